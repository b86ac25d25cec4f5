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

/* Consecutive positions pos0 .. pos0+len-1 of the full cache. */
typedef struct rk_store {
	void *k, *v;	/* [n_layer][n_kv_head][cap][head_dim]; NULL when cap = 0 */
	int cap;	/* positions that fit */
	int len;	/* positions held (the engine advances it once per chunk or step, after the last layer) */
	int pos0;	/* absolute position of element 0 */
} rk_store;

/* The partial cache of one lane.  For each layer and KV head, slots hold (key, value, position) contiguously.  After a
 * selection slot j is rank j in ascending score, so that `next`, the slot that the next token overwrites, only moves on. */
typedef struct rk_partial {
	void *k, *v;	/* [n_layer][n_kv_head][cap][head_dim]; NULL when cap = 0 */
	int32_t *pos;	/* [n_layer][n_kv_head][cap] absolute positions */
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
	float *q_ref;		/* [n_layer][head_dim] head-averaged query of the layer's last refresh; NULL unless RK_REFRESH_QUERY */
} rk_lane_cache;

/* Slots per ring for a policy: the budget and the new token, or room for max_new more where nothing is evicted. */
int rk_partial_cap(const rk_policy *p, int n_prompt, int max_new);
/* Bytes of a store of cap positions / of a ring set of cap slots, over all layers and KV heads. */
size_t rk_store_bytes(const rk_hparams *hp, int cap, size_t kv_bytes);
size_t rk_partial_bytes(const rk_hparams *hp, int cap, size_t kv_bytes, bool acc);

/* Element offset of (layer, KV head) in a [n_layer][n_kv_head][cap] array of rows. */
static inline size_t rk_row_at(const rk_hparams *hp, int layer, int kv_head, int cap)
{
	return ((size_t)layer * (size_t)hp->n_kv_head + (size_t)kv_head) * (size_t)cap;
}

#endif
