/* model.h: hyper-parameters and weights of a llama-architecture model, bound by name and checked by shape.
 *
 * Owns the GGUF file it was loaded from.  Immutable after rk_model_load, so shared by threads.
 */
#ifndef RK_MODEL_MODEL_H
#define RK_MODEL_MODEL_H

#include "model/gguf.h"

#define RK_MAX_LAYER 256

enum rk_rope_scaling { RK_ROPE_PLAIN, RK_ROPE_LINEAR, RK_ROPE_LLAMA3 };

typedef struct rk_hparams {
	int n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab, n_ctx_train;
	float rms_eps;
	float rope_theta;
	int rope_dim;		/* leading elements of a head that are rotated, in interleaved pairs; the rest pass through */
	enum rk_rope_scaling rope_scaling;
	float *rope_freq;	/* [rope_dim/2] radians per position, scaling and rope_freqs.weight applied; owned */
} rk_hparams;

typedef struct rk_layer_weights {
	rk_tensor attn_norm;			/* [n_embd] f32 */
	rk_tensor wq, wk, wv;			/* [n_head*head_dim | n_kv_head*head_dim][n_embd] */
	rk_tensor wo;				/* [n_embd][n_head*head_dim] */
	rk_tensor ffn_norm;			/* [n_embd] f32 */
	rk_tensor w_gate, w_up, w_down;		/* [n_ff][n_embd] x 2, [n_embd][n_ff] */
} rk_layer_weights;

/* Weights as a backend sees them: on the CPU, data points into the file as rk_gguf has it; a device keeps a copy of this struct
 * whose data are device addresses. */
typedef struct rk_weights {
	rk_tensor tok_embd;	/* [n_vocab][n_embd] */
	rk_tensor out_norm;	/* [n_embd] f32 */
	rk_tensor output;	/* [n_vocab][n_embd]; the same as tok_embd when tied */
	rk_layer_weights *layer;	/* [n_layer] */
} rk_weights;

typedef struct rk_model {
	rk_gguf *file;
	char name[96];		/* general.name, or the file's base name */
	bool tied;
	size_t weight_bytes;	/* read per decode step: every bound tensor once, the embedding table only when tied */
	size_t n_param;
	rk_hparams hp;
	rk_weights w;
} rk_model;

/* Errors (RK_EMODEL): missing or damaged file, architecture other than llama (named), tensor missing, of a wrong
 * shape or of a type that cannot be read (named), split file (says which parts), vocabulary-only file. */
int rk_model_load(rk_model **m, const char *path, rk_err *e);
void rk_model_free(rk_model *m);

#endif
