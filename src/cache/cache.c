/* cache.c: see cache.h */
#include "cache/cache.h"

int rk_partial_cap(const rk_policy *p, int n_prompt, int max_new)
{
	if (p->score == RK_SCORE_NONE)
		return 0;
	int all = n_prompt + max_new, k = rk_policy_budget(p, n_prompt);
	if (k > n_prompt && p->evict == RK_EVICT_NONE)
		k = n_prompt;	/* only the prompt is selected from */
	int cap = p->evict == RK_EVICT_NONE ? k + max_new :
	          p->evict == RK_EVICT_OLDEST ? k :	/* the new token takes the oldest one's place before it is attended */
	          k + 1;				/* the new token is attended beside the K, then one of them goes */
	return cap < all ? cap : all;
}

size_t rk_reference_bytes(const rk_hparams *hp)
{
	return (size_t)hp->n_layer * (size_t)hp->n_head * (size_t)(2 * hp->head_dim + 1) * sizeof(float);
}

size_t rk_store_bytes(const rk_hparams *hp, int cap, size_t kv_bytes)
{
	return 2 * rk_row_at(hp, hp->n_layer, 0, cap) * (size_t)hp->head_dim * kv_bytes;
}

size_t rk_sketch_bytes(const rk_hparams *hp, int cap, int bits)
{
	return cap ? rk_row_at(hp, hp->n_layer, 0, 1) * rk_sketch_head_bytes(hp, cap, bits) : 0;
}

size_t rk_mean_bytes(const rk_hparams *hp)
{
	return rk_row_at(hp, hp->n_layer, 0, (int)sizeof(float) * hp->head_dim);
}

size_t rk_partial_bytes(const rk_hparams *hp, int cap, size_t kv_bytes, bool acc)
{
	size_t rings = (size_t)hp->n_layer * (size_t)hp->n_kv_head, slots = rings * (size_t)cap;

	if (cap == 0)
		return 0;
	return 2 * slots * (size_t)hp->head_dim * kv_bytes + slots * (sizeof(int32_t) + (acc ? sizeof(float) : 0)) + 2 * rings * sizeof(int32_t);
}
