/* backend.h: the contract between the engine and the device that computes: opaque buffers and operations.
 *
 * src/cpu implements it (embedded default), kernels/ implements it for CUDA.  tests/aid_ref_*.c hold a plain
 * version of every operation in double precision: that is the specification, and every implementation is tested against it.
 * Called on the engine thread only.  Activations are f32, row-major, one row per token: x is [n][dim].
 * Operations cannot fail; a device records its first error, and sync returns it.  None allocates after bind.
 *
 * Results do not depend on the number of threads.  A row of the result does not depend on the other rows of the call, so
 * that lanes agree bit for bit with one lane alone.
 */
#ifndef RK_BACKEND_BACKEND_H
#define RK_BACKEND_BACKEND_H

#include <stdint.h>
#include "cache/cache.h"

#define RK_MAX_LANE 8
#define RK_MAX_FUSED 3	/* matrices that share one input in a matmul */

typedef struct rk_backend rk_backend;

/* What a device may do differently for the rows of a prompt and for those of a step.  The CPU multiplies quantised weights
 * alike with AVX2 and up; float weights, exact, and everything without AVX2 go to a GEMM in f32 where there are many rows. */
enum rk_phase {
	RK_PREFILL,	/* many rows */
	RK_DECODE,	/* one row per lane: weights read packed */
};

enum rk_step_kind {
	RK_STEP_PARTIAL,	/* attends the ring */
	RK_STEP_FULL,		/* attends (attend=selected: scores) all positions, and selects anew */
	RK_STEP_GLANCE,		/* scores the sketches of all positions, selects anew and attends the selection */
};

/* What one step did in one lane; written by attn_decode layer by layer, read by the engine after sync. */
typedef struct rk_step_report {
	uint8_t kind[RK_MAX_LAYER];	/* enum rk_step_kind */
	float cos[RK_MAX_LAYER];	/* cosine where a check was due, NaN elsewhere */
	float churn[RK_MAX_LAYER];	/* share of C_p replaced by this step's selection, mean over KV heads; NaN: no selection */
	int64_t bytes_full;		/* K and V bytes read from C_f to attend */
	int64_t bytes_partial;		/* K and V bytes of the slots of C_p attended */
	int64_t bytes_score;		/* bytes read from C_f only to score (attend=selected): keys, or their sketches */
} rk_step_report;

typedef struct rk_backend_cfg {
	const char *device;	/* "auto" | "cpu" | "cuda:N"; auto: the first GPU where the program has CUDA and finds one */
	int n_thread;		/* 0: one per available core */
	bool exact;		/* f32 activations and f32 cache instead of 8-bit and f16 */
	int max_rows;		/* largest n of a call: the prefill chunk, at least RK_MAX_LANE */
	int max_pos;		/* largest number of positions */
} rk_backend_cfg;

typedef struct rk_backend_ops {
	/* Device memory, 64-byte aligned, zeroed.  e names the size. */
	int (*alloc)(rk_backend *b, size_t bytes, void **p, rk_err *e);
	void (*free)(rk_backend *b, void *p, size_t bytes);
	/* Bytes that alloc can still give, UINT64_MAX: not known.  NULL: this machine's memory, weights and scratch included. */
	uint64_t (*memory_left)(rk_backend *b);
	void (*upload)(rk_backend *b, void *dst, const void *src, size_t bytes);
	void (*download)(rk_backend *b, void *dst, const void *src, size_t bytes);
	int (*sync)(rk_backend *b, rk_err *e);
	void (*close)(rk_backend *b);

	/* Has the ring of such a lane copies of keys and values?  Else their rows are read from the full cache, which is kept then. */
	bool (*ring_copies)(const rk_policy *pol, bool keeps_full);

	/* x[i] = row ids[i] of the embedding table.  ids: host. */
	void (*embed)(rk_backend *b, float *x, const int32_t *ids, int n);
	/* y = x / sqrt(mean(x^2) + eps) * w, per row of dim. */
	void (*rmsnorm)(rk_backend *b, float *y, const float *x, const rk_tensor *w, int n, int dim, float eps);
	/* y[j][i] = W_j x[i] for the n_w <= RK_MAX_FUSED matrices that share x: [n][W.n_col] -> [n][W_j.n_row]. */
	void (*matmul)(rk_backend *b, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n, enum rk_phase phase);
	/* out = x rotated, interleaved pairs, row i at position pos[i]; x: [n][n_head][head_dim].  out may be x.  pos: host. */
	void (*rope)(rk_backend *b, float *out, const float *x, const int32_t *pos, int n, int n_head);
	/* Converts k, v [n][n_kv_head][head_dim] to the cache's type at elements at .. at+n-1 of the layer. */
	void (*kv_append)(rk_backend *b, rk_store *st, int layer, int at, const float *k, const float *v, int n);
	/* st->mean of a layer = the mean of the st->len keys as they are stored.  Sums in f64: exact in any order where keys are f16. */
	void (*key_mean)(rk_backend *b, rk_store *st, int layer);
	/* After kv_append of the same elements: their sketches, of every width that st keeps, from st->mean and the keys as they are stored. */
	void (*sketch)(rk_backend *b, rk_store *st, int layer, int at, int n);
	/* Causal attention of n consecutive queries q [n][n_head][head_dim] (after RoPE), flash-style, no n x L matrix.
	 * Query i attends the whole of `prompt` (prompt->len positions) and then the first tail_len+i+1 positions of `tail`.
	 * During the first prefill prompt is NULL and tail is the prompt store being filled (tail_len = tokens before the chunk).
	 * colsum: NULL, or [n_kv_head][tail->cap] += probabilities summed over the queries and the group's heads. */
	void (*attn_prefill)(rk_backend *b, int layer, const rk_store *prompt, const rk_store *tail, int tail_len,
	                     const float *q, int n, float *out, float *colsum);
	/* After the last chunk's K/V of `layer` are in C_f: the first selection of a lane, and q_ref.  n_pos positions are in
	 * prompt + tail.  q_pre: the last token's query before RoPE [n_head][head_dim]; q: the last n_q queries after RoPE,
	 * the newest last (n_q = min(pol.window, n_pos)).  colsum: this layer's, or NULL.  Nothing to do for vanilla. */
	void (*select)(rk_backend *b, int layer, rk_lane_cache *lane, int n_pos, const float *q_pre, const float *q, int n_q, const float *colsum);
	/* One decode step of `layer`: row j of q_pre, q [n_head][head_dim], k, v [n_kv_head][head_dim] belongs to lanes[j].
	 * Decides, attends (out [n_lane][n_head][head_dim]), refreshes; appends k, v to the ring.  The tail already holds the
	 * token (kv_append at tail.len) when keeps_full; n_pos counts it. */
	void (*attn_decode)(rk_backend *b, int layer, rk_lane_cache *const lanes[], int n_lane, const float *q_pre, const float *q,
	                    const float *k, const float *v, float *out, rk_step_report *const reports[]);
	/* y = silu(gate) * up, elementwise over n rows of dim; y may be gate. */
	void (*silu_mul)(rk_backend *b, float *y, const float *gate, const float *up, int n, int dim);
	/* x += y over n rows of dim. */
	void (*add)(rk_backend *b, float *x, const float *y, int n, int dim);
	/* Per row of logits [n][n_vocab]: lse[i] = log sum exp, argmax[i] (the lower id wins ties).  Outputs: host. */
	void (*logits_stats)(rk_backend *b, const float *logits, int n, float *lse, int32_t *argmax);
	/* KL(p || q) in nats of two rows of logits with their log-sum-exps; at least 0. */
	float (*logits_kl)(rk_backend *b, const float *p, float p_lse, const float *q, float q_lse);

	/* Round the operations of a decode step of these lanes, fed ids at pos (host), from embed to the logits; both NULL where
	 * operations run as they are called.  A device that records steps may have this one: true then, and it is under way whole, so the
	 * operations must not be called.  step_end waits, fills in all reports, and ns_attn [n] with the time of each lane's attention. */
	bool (*step_begin)(rk_backend *b, rk_lane_cache *const lanes[], int n, const int32_t *ids, const int32_t *pos);
	void (*step_end)(rk_backend *b, rk_step_report *const reports[], int64_t ns_attn[]);
} rk_backend_ops;

struct rk_backend {
	const rk_backend_ops *ops;
	const rk_hparams *hp;
	const rk_weights *w;	/* as this device sees them */
	size_t kv_bytes;	/* per cache element: 2 or 4 */
	bool exact;
	int n_thread;
	char device[64];	/* "cpu" or the GPU's name */
	char isa[24];		/* "scalar", "avx2", "avx512", "avx512-vnni", "sm_90" */
	bool weights_held;	/* the weights were copied when it was opened: memory that is left is beside them */
	size_t scratch_bytes;	/* held by the backend itself */
};

/* Chooses and opens a backend for a model, which must outlive it.  RK_ISA=scalar|avx2|avx512 in the environment forces a
 * CPU path; one that this machine lacks is an error that says so. */
int rk_backend_open(rk_backend **b, const rk_model *m, const rk_backend_cfg *cfg, rk_err *e);
void rk_backend_close(rk_backend *b);	/* NULL is fine */
/* What rk_backend_open would choose for cfg, without a model: device and isa as in rk_backend, threads.  The same errors. */
int rk_backend_probe(const rk_backend_cfg *cfg, char device[64], char isa[24], int *n_thread, rk_err *e);

/* The devices that rk_backend_open chooses from; declared here because backend must not include what lies right of it. */
int rk_cpu_open(rk_backend **b, const rk_model *m, const rk_backend_cfg *cfg, rk_err *e);
int rk_cpu_probe(const rk_backend_cfg *cfg, char isa[24], int *n_thread, rk_err *e);
/* GPU number `device`, in a program that is built with CUDA (RK_CUDA). */
int rk_cuda_open(rk_backend **b, const rk_model *m, const rk_backend_cfg *cfg, int device, rk_err *e);
int rk_cuda_probe(int device, char name[64], char isa[24], rk_err *e);
/* Is there a GPU that can be used?  No: why says what is missing. */
bool rk_cuda_usable(char why[128]);

#endif
