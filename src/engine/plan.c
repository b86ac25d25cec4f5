/* plan.c: see plan.h */
#include "engine/plan.h"

#include <inttypes.h>
#include "base/memory.h"
#include "engine/session.h"

/* C_f of a lane's own tokens, and the queries that its refreshes compare with. */
static size_t tail_bytes(const rk_backend *b, int max_new)
{
	return rk_store_bytes(b->hp, max_new, b->kv_bytes) + rk_reference_bytes(b->hp);
}

void rk_plan_make(rk_plan *p, const rk_backend *b, size_t weight_bytes, const rk_session_cfg *cfg, int n_prompt, int max_new)
{
	*p = (rk_plan){ .n_prompt = n_prompt, .max_new = max_new, .n_lane = cfg->n_lane, .weights = weight_bytes };
	p->prompt_store = rk_store_bytes(b->hp, n_prompt, b->kv_bytes);
	p->activations = rk_act_bytes(b, cfg, n_prompt);
	p->backend = b->scratch_bytes;
	p->total = p->weights + p->prompt_store + p->activations + p->backend;
	unsigned shared = 0;	/* widths that the prompt's sketches have */
	for (int i = 0; i < cfg->n_lane; i++) {
		const rk_policy *pol = &cfg->lane[i];
		if (pol->bits)
			p->sketch += rk_sketch_bytes(b->hp, max_new, pol->bits) + (p->sketch ? 0 : rk_mean_bytes(b->hp)) +
			             (shared & 1u << pol->bits ? 0 : rk_sketch_bytes(b->hp, n_prompt, pol->bits));
		shared |= 1u << pol->bits;
		bool keeps_full = cfg->keep_full || rk_policy_keeps_full(pol);
		if (keeps_full)
			p->tail[i] = tail_bytes(b, max_new);
		p->partial[i] = rk_partial_bytes(b->hp, rk_partial_cap(pol, n_prompt, max_new), b->ops->ring_copies(pol, keeps_full) ? b->kv_bytes : 0,
		                                 pol->score == RK_SCORE_ACCUMULATED);
		p->total += p->tail[i] + p->partial[i];
	}
	p->total += p->sketch;
	if (cfg->shadow)
		p->total += p->tail[cfg->n_lane] = tail_bytes(b, max_new);
}

int rk_plan_check(const rk_plan *p, rk_backend *b, rk_err *e)
{
	bool device = b->ops->memory_left;
	size_t held = p->backend + (b->weights_held ? p->weights : 0), need = p->total - held;
	uint64_t have = device ? b->ops->memory_left(b) : rk_memory_left();

	if (need <= have)
		return 0;
	return rk_fail(e, RK_ENOMEM, "not enough memory%s%s: this session needs %.1f MB (%.1f MB of it KV cache for %d + %d tokens), "
	               "%.1f MB are available; lower --ctx or -n, or use fewer lanes", device ? " on " : "", device ? b->device : "",
	               (double)need / 1e6, (double)(p->total - p->weights - p->backend - p->activations) / 1e6, p->n_prompt, p->max_new, (double)have / 1e6);
}
