/* aid_gguf.h: writes GGUF files for tests: single keys and tensors, or a whole tiny llama model.
 *
 * The writer builds the file in memory and can write what the reader must refuse; every failure of its own is an abort.
 * Same options and seed, same bytes, on every machine (no function of libm that may round differently).
 *
 *	char path[32];
 *	int fd = aid_tiny_memfd(&(aid_tiny){ .type = RK_Q4_1, .untied = true }, 7, path);
 *	rk_model_load(&m, path, &e);	... close(fd) when the file is no longer needed by path
 */
#ifndef AID_GGUF_H
#define AID_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "model/quant.h"

/* Value types of the format (gguf_metadata_value_type). */
enum aid_value {
	AID_U8, AID_I8, AID_U16, AID_I16, AID_U32, AID_I32, AID_F32, AID_BOOL, AID_STR, AID_ARRAY, AID_U64, AID_I64, AID_F64
};

typedef struct aid_gguf aid_gguf;

aid_gguf *aid_gguf_new(void);		/* version 3, alignment 32 (no key), nothing in it */
void aid_gguf_free(aid_gguf *w);
void aid_gguf_version(aid_gguf *w, uint32_t version);
void aid_gguf_alignment(aid_gguf *w, uint32_t alignment);	/* writes the key; pads by it where it is a power of two */

/* Keys are written in the order of the calls; nothing stops a key from being written twice. */
void aid_gguf_scalar(aid_gguf *w, const char *key, enum aid_value type, const void *value, size_t bytes);
void aid_gguf_u32(aid_gguf *w, const char *key, uint32_t v);
void aid_gguf_f32(aid_gguf *w, const char *key, float v);
void aid_gguf_bool(aid_gguf *w, const char *key, bool v);
void aid_gguf_str(aid_gguf *w, const char *key, const char *v);
void aid_gguf_str_array(aid_gguf *w, const char *key, const char *const *v, size_t n);
/* Elements of a fixed size, raw little-endian bytes. */
void aid_gguf_array(aid_gguf *w, const char *key, enum aid_value elem, const void *v, size_t n, size_t bytes);

/* A tensor entry and its bytes (dims in GGUF order: row length first); data is copied and padded to the alignment. */
void aid_gguf_tensor(aid_gguf *w, const char *name, enum rk_type type, int n_dim, const uint64_t *dim,
		     const void *data, size_t bytes);
/* The usual case: n_row x n_col from f32 values, quantised to type. */
void aid_gguf_matrix(aid_gguf *w, const char *name, enum rk_type type, int64_t n_row, int64_t n_col, const float *v);

/* The file as bytes, to damage or to write; malloc'ed, free() it. */
uint8_t *aid_gguf_bytes(const aid_gguf *w, size_t *n);
void aid_gguf_write(const aid_gguf *w, const char *path);
/* An unnamed file in memory that opens as `path` ("/proc/self/fd/N") until the returned descriptor is closed. */
int aid_memfd(const void *bytes, size_t n, char path[32]);

/* dst = src[0..n) in blocks of type: F32, F16, BF16, Q8_0, Q4_0 or Q4_1.  Nearest rounding of a min-max scale: a plain
 * quantiser for tests, not as good as the one that made a downloaded file. */
void aid_quantize_row(enum rk_type type, const float *src, void *dst, int64_t n);

/* Uniform in [0, 1) and standard normal numbers (sum of 12 uniforms: exact, so the same everywhere). */
double aid_random(uint64_t *state);
float aid_gaussian(uint64_t *state);

/* A tiny random llama model that the whole program can run.  0 = the default in brackets.
 *
 * Weights are scaled so that a forward pass looks alive (measured over 467 tokens of English): attention scores have a
 * standard deviation of 2 to 3 (neither uniform nor one-hot), logits one near 2, and head-averaged queries of
 * neighbouring steps have cosines spread over 0 to 1, because embeddings share a part.  Greedy text wanders among some
 * tokens, with runs of one (tied more than untied), and never ends by itself: the control tokens' logits are never the
 * highest.  The float weights depend on the seed and the sizes, not on `type`: two types of one seed are the same model
 * up to rounding.
 *
 * Tokenizer: byte-level BPE ("gpt2", pre "smollm"): ids 0 <|endoftext|>, 1 <|im_start|> (bos), 2 <|im_end|> (eos,
 * padding), 3 + b is byte b, then one token per merge in merge order.  add_bos_token is false.  The chat template is
 * plain ChatML. */
typedef struct aid_tiny {
	int n_layer;		/* [3] */
	int n_embd;		/* [64]; this, n_ff and n_head*head_dim must be multiples of 32 for the quantised types */
	int n_head;		/* [4] */
	int n_kv_head;		/* [2] */
	int head_dim;		/* [16, or n_embd/n_head where n_embd or n_head is given]; key_length is written where it differs */
	int n_ff;		/* [128] */
	int n_ctx;		/* [4096] llama.context_length */
	float rope_theta;	/* [10000] */
	enum rk_type type;	/* [RK_F32] of the matrices and the embeddings; norms are always F32 */
	bool untied;		/* an output.weight of its own */
	bool rope_factors;	/* a rope_freqs.weight, as in llama 3.1 */
} aid_tiny;

#define AID_TINY_N_MERGE 48
#define AID_TINY_N_VOCAB (3 + 256 + AID_TINY_N_MERGE)	/* 307: not a multiple of any vector width */

aid_gguf *aid_tiny_gguf(const aid_tiny *opt, uint64_t seed);	/* opt NULL: all defaults; more keys may be added */
void aid_tiny_model(const char *path, const aid_tiny *opt, uint64_t seed);
int aid_tiny_memfd(const aid_tiny *opt, uint64_t seed, char path[32]);	/* as aid_memfd */

#endif
