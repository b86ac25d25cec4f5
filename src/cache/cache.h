/* cache.h: the KV cache of a session as plain structs over backend memory: the full cache C_f (a prompt store shared by
 * all lanes, a tail per lane) and the ragged partial cache C_p (a ring per lane, layer and KV head).
 *
 * Keys are stored after RoPE at the absolute position they were made with and are never re-rotated.  K and V are stored
 * once per KV head.  Element type: f16, or f32 under --exact (kv_bytes = 2 or 4).  Owned by the session; written by the
 * backend on the engine thread only.
 */
#ifndef RK_CACHE_CACHE_H
#define RK_CACHE_CACHE_H

#include <stdint.h>
#include "model/model.h"
#include "policy/policy.h"

/* Sketches: a low-bit copy of each key, to score all positions at a fraction of the bytes.  The key, less the mean key of the
 * prompt (which moves all scores of a query alike, so that softmax does not see it, and leaves less to be rounded), zero-padded to
 * rk_sketch_dim elements, is rotated by the orthonormal Hadamard transform, which spreads its outliers; element j becomes the
 * code u in 0 .. 2^bits-1 and stands for (u - (2^bits-1)/2) * scale.  scale = max|x| / (2^(bits-1) - 1/2); with 2 bits mean|x|.
 * Blocks of RK_SKETCH_BLOCK keys hold four elements of each key side by side, so that a vector of 32-bit lanes adds up one
 * key per lane: byte 4 t + j%4 of 64-byte vector v is of key t; its fields of `bits` bits, lowest first, are elements
 * j = 4 (v 8/bits + field) + 0..3.  3 bits: the low two as for bits = 2, and after them vectors of the third bit, 8 fields each. */
#define RK_SKETCH_BLOCK 16
#define RK_SKETCH_MAX_BITS 8

/* Consecutive positions pos0 .. pos0+len-1 of the full cache. */
typedef struct rk_store {
	void *k, *v;	/* [n_layer][n_kv_head][cap][head_dim]; NULL when cap = 0 */
	void *sketch[RK_SKETCH_MAX_BITS + 1];	/* by bits: [n_layer][n_kv_head] codes and scales, see rk_sketch_at; NULL: not kept */
	float *mean;	/* [n_layer][n_kv_head][head_dim] what sketches leave out of a key: one array for the prompt and all tails */
	int cap;	/* positions that fit */
	int len;	/* positions held (the engine advances it once per chunk or step, after the last layer) */
	int pos0;	/* absolute position of element 0 */
} rk_store;

/* The partial cache of one lane.  For each layer and KV head, slots hold a position and, where the
 * backend keeps copies, its key and value.  After a selection slot j is rank j in ascending score, so that `next`, the slot that
 * the next token overwrites, only moves on. */
typedef struct rk_partial {
	void *k, *v;	/* [n_layer][n_kv_head][cap][head_dim]; NULL: the rows of the full cache at `pos` are read instead */
	int32_t *pos;	/* [n_layer][n_kv_head][cap] absolute positions; NULL when cap = 0 */
	float *acc;	/* [n_layer][n_kv_head][cap] accumulated probability (RK_SCORE_ACCUMULATED), else NULL */
	int32_t *count;	/* [n_layer][n_kv_head] slots in use */
	int32_t *next;	/* [n_layer][n_kv_head] slot that the next append writes; == count while the ring still grows */
	int cap;	/* slots per ring */
} rk_partial;

/* All that a backend needs to know of a lane. */
typedef struct rk_lane_cache {
	rk_policy pol;
	int budget;		/* K in tokens, fixed at the prefill; 0 for vanilla */
	bool keeps_full;	/* C_f (prompt and tail) is there to be attended or scored */
	bool force_full;	/* the next step is a refresh in every layer: a parameter changed that the ring depends on */
	int step;		/* i: decode steps since the last prefill */
	int n_pos;		/* positions seen so far, the token of the running step included */
	const rk_store *prompt;	/* shared */
	rk_store tail;		/* this lane's own tokens; cap 0 when !keeps_full */
	rk_partial part;	/* cap 0 for vanilla */
	float *q_ref;		/* [n_layer][rk_query_len] compared query of the layer's last refresh; room for [n_layer][n_head][head_dim] */
	float *rest;		/* [n_layer][n_head][head_dim + 1] stand-in: attention over what is not selected, and its share (pol.tail) */
} rk_lane_cache;

/* Slots per ring for a policy: the budget and the new token, or room for max_new more where nothing is evicted. */
int rk_partial_cap(const rk_policy *p, int n_prompt, int max_new);
/* Bytes of q_ref and rest, one allocation. */
size_t rk_reference_bytes(const rk_hparams *hp);
/* Bytes of a store of cap positions / of a ring set of cap slots, over all layers and KV heads. */
size_t rk_store_bytes(const rk_hparams *hp, int cap, size_t kv_bytes);
size_t rk_sketch_bytes(const rk_hparams *hp, int cap, int bits);
size_t rk_mean_bytes(const rk_hparams *hp);
size_t rk_partial_bytes(const rk_hparams *hp, int cap, size_t kv_bytes, bool acc);	/* kv_bytes 0: no k, v */

/* Element offset of (layer, KV head) in a [n_layer][n_kv_head][cap] array of rows. */
static inline size_t rk_row_at(const rk_hparams *hp, int layer, int kv_head, int cap)
{
	return ((size_t)layer * (size_t)hp->n_kv_head + (size_t)kv_head) * (size_t)cap;
}

/* Does it keep sketches of any width? */
static inline bool rk_store_sketched(const rk_store *st)
{
	for (int bits = 0; bits <= RK_SKETCH_MAX_BITS; bits++)
		if (st->sketch[bits])
			return true;
	return false;
}

/* Floats of the query that a policy compares. */
static inline int rk_query_len(const rk_hparams *hp, const rk_policy *p)
{
	return rk_policy_query_cat(p) ? hp->n_head * hp->head_dim : hp->head_dim;
}

/* head_dim padded to a power of two, at least 32: whole vectors for every width. */
static inline int rk_sketch_dim(const rk_hparams *hp)
{
	int dim = 32;

	while (dim < hp->head_dim)
		dim *= 2;
	return dim;
}

/* Bytes that one key's sketch takes: codes and scale. */
static inline size_t rk_sketch_key_bytes(const rk_hparams *hp, int bits)
{
	return (size_t)(rk_sketch_dim(hp) * bits / 8) + sizeof(uint16_t);
}

/* Sketches of one layer and KV head of a store. */
typedef struct rk_sketch_rows {
	uint8_t *code;		/* [blocks of cap][RK_SKETCH_BLOCK * dim * bits / 8] */
	uint16_t *scale;	/* [blocks of cap][RK_SKETCH_BLOCK] f16 */
} rk_sketch_rows;

static inline size_t rk_sketch_head_bytes(const rk_hparams *hp, int cap, int bits)
{
	size_t blocks = ((size_t)cap + RK_SKETCH_BLOCK - 1) / RK_SKETCH_BLOCK;

	return (blocks * RK_SKETCH_BLOCK * rk_sketch_key_bytes(hp, bits) + 63) & ~(size_t)63;
}

static inline rk_sketch_rows rk_sketch_at(const rk_hparams *hp, const rk_store *st, int layer, int kv_head, int bits)
{
	size_t keys = ((size_t)st->cap + RK_SKETCH_BLOCK - 1) / RK_SKETCH_BLOCK * RK_SKETCH_BLOCK;
	uint8_t *at = (uint8_t *)st->sketch[bits] + rk_row_at(hp, layer, kv_head, 1) * rk_sketch_head_bytes(hp, st->cap, bits);

	return (rk_sketch_rows){ at, (uint16_t *)(at + keys * (size_t)(rk_sketch_dim(hp) * bits / 8)) };
}

#endif
