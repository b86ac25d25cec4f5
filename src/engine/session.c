/* session.c: see session.h.  Memory and bookkeeping; the arithmetic is in forward.c and the backend. */
#include "engine/session.h"

#include <stdlib.h>
#include <string.h>

static int alloc_on(rk_backend *b, size_t bytes, void *p, rk_err *e)
{
	return b->ops->alloc(b, bytes, (void **)p, e);
}

static void store_free(rk_session *s, rk_store *st)
{
	if (st->mean && st == &s->prompt)
		s->b->ops->free(s->b, st->mean, rk_mean_bytes(s->b->hp));
	for (int bits = 0; bits <= RK_SKETCH_MAX_BITS; bits++)
		if (st->sketch[bits])
			s->b->ops->free(s->b, st->sketch[bits], rk_sketch_bytes(s->b->hp, st->cap, bits));
	if (st->k)
		s->b->ops->free(s->b, st->k, rk_store_bytes(s->b->hp, st->cap, s->b->kv_bytes));
	*st = (rk_store){ 0 };
}

/* Keys and values are one allocation: values follow the keys. */
static int store_init(rk_session *s, rk_store *st, int cap, int pos0, rk_err *e)
{
	size_t bytes = rk_store_bytes(s->b->hp, cap, s->b->kv_bytes);

	*st = (rk_store){ .cap = cap, .pos0 = pos0 };
	if (cap == 0)
		return 0;
	if (alloc_on(s->b, bytes, &st->k, e))
		return -1;
	st->v = (char *)st->k + bytes / 2;
	return 0;
}

/* Sketches of all that a store holds, of every width that it keeps. */
static void sketch_all(rk_session *s, rk_store *st)
{
	const rk_backend_ops *op = s->b->ops;

	for (int l = 0; l < s->b->hp->n_layer && st->len; l++) {
		if (st == &s->prompt)
			op->key_mean(s->b, st, l);
		op->sketch(s->b, st, l, 0, st->len);
	}
}

/* Makes a store keep sketches, and those of the positions that it holds. */
static int store_sketch(rk_session *s, rk_store *st, int bits, rk_err *e)
{
	if (st->cap == 0 || st->sketch[bits])
		return 0;
	if (!s->prompt.mean && alloc_on(s->b, rk_mean_bytes(s->b->hp), &s->prompt.mean, e))
		return -1;
	st->mean = s->prompt.mean;
	if (alloc_on(s->b, rk_sketch_bytes(s->b->hp, st->cap, bits), &st->sketch[bits], e))
		return -1;
	sketch_all(s, st);
	return 0;
}

/* What policy p of a lane scores must be there. */
static int lane_sketch(rk_session *s, rk_lane_cache *c, const rk_policy *p, rk_err *e)
{
	if (!p->bits)
		return 0;
	return store_sketch(s, &s->prompt, p->bits, e) || store_sketch(s, &c->tail, p->bits, e) ? -1 : 0;
}

static void partial_free(rk_session *s, rk_partial *p)
{
	if (p->pos)
		s->b->ops->free(s->b, p->k ? p->k : p->pos, rk_partial_bytes(s->b->hp, p->cap, p->k ? s->b->kv_bytes : 0, p->acc != NULL));
	*p = (rk_partial){ 0 };
}

/* The rings of lane c under policy pol, one allocation: keys and values (if any), positions, counts, next slots, accumulators. */
static int partial_init(rk_session *s, rk_partial *p, const rk_lane_cache *c, const rk_policy *pol, rk_err *e)
{
	const rk_hparams *hp = s->b->hp;
	int cap = rk_partial_cap(pol, s->plan.n_prompt, s->plan.max_new);
	bool acc = pol->score == RK_SCORE_ACCUMULATED, copies = s->b->ops->ring_copies(pol, c->keeps_full);
	size_t rings = (size_t)hp->n_layer * (size_t)hp->n_kv_head, slots = rings * (size_t)cap, kv_bytes = copies ? s->b->kv_bytes : 0;
	size_t kv = slots * (size_t)hp->head_dim * kv_bytes;
	char *at;

	*p = (rk_partial){ .cap = cap };
	if (cap == 0)
		return 0;
	if (alloc_on(s->b, rk_partial_bytes(hp, cap, kv_bytes, acc), &at, e))
		return -1;
	if (copies) {
		p->k = at;
		p->v = at + kv;
	}
	p->pos = (int32_t *)(at + 2 * kv);
	p->count = p->pos + slots;
	p->next = p->count + rings;
	p->acc = acc ? (float *)(p->next + rings) : NULL;
	return 0;
}

void rk_session_clear(rk_session *s)
{
	for (int i = 0; i < s->cfg.n_lane + s->cfg.shadow; i++) {
		rk_lane_cache *c = &s->lane[i];
		store_free(s, &c->tail);
		partial_free(s, &c->part);
		if (c->q_ref)
			s->b->ops->free(s->b, c->q_ref, rk_reference_bytes(s->b->hp));
		*c = (rk_lane_cache){ .pol = i < s->cfg.n_lane ? s->cfg.lane[i] : c->pol };
	}
	store_free(s, &s->prompt);
	rk_act_free(s);
	free(s->pos);
	s->pos = NULL;
	s->n_prompt = 0;
}

int rk_session_init(rk_session *s, const rk_model *m, rk_backend *b, const rk_session_cfg *cfg, rk_err *e)
{
	*s = (rk_session){ 0 };
	if (cfg->n_lane < 1 || cfg->n_lane > RK_MAX_LANE)
		return rk_fail(e, RK_EUSAGE, "%d policies: a session has 1 to %d lanes", cfg->n_lane, RK_MAX_LANE);
	*s = (rk_session){ .m = m, .b = b, .cfg = *cfg };
	if (!s->cfg.n_ctx)
		s->cfg.n_ctx = m->hp.n_ctx_train;
	if (!s->cfg.chunk)
		s->cfg.chunk = RK_DEFAULT_CHUNK;
	for (int i = 0; i < cfg->n_lane; i++) {
		s->lane[i].pol = cfg->lane[i];
		if (cfg->lane[i].window > s->cfg.chunk)
			return rk_fail(e, RK_EUSAGE, "policy %s: window=%d is larger than the prefill chunk of %d tokens (--chunk)",
			               cfg->lane[i].name, cfg->lane[i].window, s->cfg.chunk);
	}
	if (cfg->shadow && rk_policy_parse(&s->lane[cfg->n_lane].pol, "vanilla", e))
		return -1;
	s->logits = calloc((size_t)(cfg->n_lane + cfg->shadow) * (size_t)m->hp.n_vocab, sizeof *s->logits);
	if (!s->logits)
		return rk_fail(e, RK_ENOMEM, "logits: out of memory for %d lanes of %d", cfg->n_lane, m->hp.n_vocab);
	return 0;
}

void rk_session_free(rk_session *s)
{
	if (s->b)
		rk_session_clear(s);
	free(s->logits);
	*s = (rk_session){ 0 };
}

static int lane_init(rk_session *s, int i, int n, int max_new, rk_err *e)
{
	rk_lane_cache *c = &s->lane[i];
	const rk_policy *p = &c->pol;

	if (rk_policy_check_budget(p, n, e))
		return -1;
	c->budget = rk_policy_budget(p, n);
	c->keeps_full = s->cfg.keep_full || rk_policy_keeps_full(p);
	c->prompt = &s->prompt;
	c->n_pos = n;
	if (c->keeps_full && (store_init(s, &c->tail, max_new, n, e) || alloc_on(s->b, rk_reference_bytes(s->b->hp), &c->q_ref, e)))
		return -1;
	if (c->keeps_full)
		c->rest = c->q_ref + (size_t)s->b->hp->n_layer * (size_t)(s->b->hp->n_head * s->b->hp->head_dim);
	if (lane_sketch(s, c, p, e))
		return -1;
	return partial_init(s, &c->part, c, p, e);
}

/* Prefills n tokens in chunks, the first one short, so that the last is whole: the queries that a selection looks at are
 * then in one chunk; a prompt's sketches follow.  1: cancelled. */
static int prefill(rk_session *s, int lane, const int32_t *ids, int n, rk_progress_fn on_progress, void *ctx)
{
	int chunk = s->cfg.chunk;

	for (int done = 0; done < n;) {
		int take = done ? chunk : (n - 1) % chunk + 1;
		if (on_progress && on_progress(ctx, done, n))
			return 1;
		rk_forward_prefill(s, lane, ids + done, take, done + take == n);
		done += take;
	}
	if (lane < 0 && rk_store_sketched(&s->prompt))
		sketch_all(s, &s->prompt);
	if (on_progress)
		on_progress(ctx, n, n);
	return 0;
}

int rk_session_start(rk_session *s, const int32_t *ids, int n, int max_new, rk_progress_fn on_progress, void *ctx, rk_err *e)
{
	bool kept = false;

	rk_session_clear(s);
	if (n < 1)
		return rk_fail(e, RK_EFAIL, "the prompt is empty");
	if (n > s->cfg.n_ctx)
		return rk_fail(e, RK_EFAIL, "the prompt has %d tokens, the context holds %d: shorten it or raise --ctx", n, s->cfg.n_ctx);
	if (max_new > s->cfg.n_ctx - n)
		max_new = s->cfg.n_ctx - n;
	rk_plan_make(&s->plan, s->b, rk_gguf_bytes(s->m->file), &s->cfg, n, max_new);
	if (rk_plan_check(&s->plan, s->b, e) || store_init(s, &s->prompt, n, 0, e) || rk_act_init(s, n, e))
		goto fail;
	for (int i = 0; i < s->cfg.n_lane + s->cfg.shadow; i++) {
		if (lane_init(s, i, n, max_new, e))
			goto fail;
		kept |= s->lane[i].keeps_full;
	}
	s->pos = malloc((size_t)s->b->hp->n_kv_head * (size_t)(1 + n + max_new) * sizeof *s->pos);
	if (!s->pos) {
		rk_fail(e, RK_ENOMEM, "session: out of memory for %d positions", n + max_new);
		goto fail;
	}
	if (prefill(s, -1, ids, n, on_progress, ctx)) {
		rk_session_clear(s);
		return 1;
	}
	if (s->b->ops->sync(s->b, e))
		goto fail;
	if (!kept)
		store_free(s, &s->prompt);	/* no lane will look at it again */
	s->n_prompt = n;
	return 0;
fail:
	rk_session_clear(s);
	return -1;
}

int rk_session_room(const rk_session *s, int lane)
{
	return s->plan.n_prompt + s->plan.max_new - s->lane[lane].n_pos;
}

static int check_room(const rk_session *s, int lane, int n, rk_err *e)
{
	if (n <= rk_session_room(s, lane))
		return 0;
	return rk_fail(e, RK_EFAIL, "lane %d: %d more tokens do not fit: %d of %d positions are taken; raise --ctx", lane, n,
	               s->lane[lane].n_pos, s->plan.n_prompt + s->plan.max_new);
}

int rk_session_step(rk_session *s, const int *lanes, const int32_t *ids, int n, rk_err *e)
{
	for (int j = 0; j < n; j++)
		if (check_room(s, lanes[j], 1, e))
			return -1;
	rk_forward_step(s, lanes, ids, n);
	return s->b->ops->sync(s->b, e);
}

void rk_session_rewind(rk_session *s, int lane, int n_pos)
{
	rk_lane_cache *c = &s->lane[lane];

	c->tail.len -= c->n_pos - n_pos;
	c->n_pos = n_pos;
}

int rk_session_shadow(rk_session *s, const int32_t *ids, int n, float *logits, float *lse, int32_t *argmax, int64_t *ns_attn, rk_err *e)
{
	if (check_room(s, s->cfg.n_lane, n, e))
		return -1;
	rk_forward_shadow(s, ids, n, logits, lse, argmax, ns_attn);
	return s->b->ops->sync(s->b, e);
}

int rk_session_turn(rk_session *s, int lane, const int32_t *ids, int n, rk_progress_fn on_progress, void *ctx, rk_err *e)
{
	rk_lane_cache *c = &s->lane[lane];
	int n_pos = c->n_pos;

	if (check_room(s, lane, n, e))
		return -1;
	if (rk_policy_keeps_full(&c->pol)) {
		int cancelled = prefill(s, lane, ids, n, on_progress, ctx);
		c->n_pos = c->tail.pos0 + c->tail.len;
		if (cancelled) {
			rk_session_rewind(s, lane, n_pos);
			return 1;
		}
		c->force_full = false;
	} else {
		for (int i = 0; i < n; i++) {
			if (on_progress && on_progress(ctx, i, n))
				return 1;
			rk_forward_step(s, &lane, ids + i, 1);
		}
		if (on_progress)
			on_progress(ctx, n, n);
	}
	c->step = 0;
	return s->b->ops->sync(s->b, e);
}

/* Gives a lane whose full cache is there another ring, filled at the next step (at once for positions, which need no query). */
static int change_ring(rk_session *s, int lane, const rk_policy *pol, rk_err *e)
{
	rk_lane_cache *c = &s->lane[lane];
	rk_partial part;

	if (!c->keeps_full)
		return rk_fail(e, RK_EFAIL, "lane %d (%s) has dropped its full cache, so its selection cannot be made anew", lane, c->pol.name);
	if (pol->score == RK_SCORE_ACCUMULATED)
		return rk_fail(e, RK_EFAIL, "policy %s needs sums that are taken during the prefill; start a new session with it", pol->name);
	if (rk_policy_check_budget(pol, s->n_prompt, e) || partial_init(s, &part, c, pol, e))
		return -1;
	partial_free(s, &c->part);
	c->part = part;
	c->pol = s->cfg.lane[lane] = *pol;
	c->budget = rk_policy_budget(pol, s->n_prompt);
	if (pol->score == RK_SCORE_POSITION)
		for (int l = 0; l < s->b->hp->n_layer; l++)
			s->b->ops->select(s->b, l, c, c->n_pos, NULL, NULL, 0, NULL);
	c->force_full = pol->score == RK_SCORE_ATTENTION;
	return 0;
}

int rk_session_set_policy(rk_session *s, int lane, const char *spec, rk_err *e)
{
	if (lane < 0 || lane >= s->cfg.n_lane)
		return rk_fail(e, RK_EUSAGE, "lane %d: the session has lanes 0 to %d", lane, s->cfg.n_lane - 1);
	rk_lane_cache *c = &s->lane[lane];
	const rk_policy *old = &c->pol;
	rk_policy pol = *old;
	bool assignments = strchr(spec, '=') && !strchr(spec, ':');

	if (assignments ? rk_policy_set(&pol, spec, e) : rk_policy_parse(&pol, spec, e))
		return -1;
	if (pol.window > s->cfg.chunk)
		return rk_fail(e, RK_EUSAGE, "policy %s: window=%d is larger than the prefill chunk of %d tokens (--chunk)", pol.name, pol.window,
		               s->cfg.chunk);
	if (!s->n_prompt) {	/* nothing is cached yet */
		c->pol = s->cfg.lane[lane] = pol;
		return 0;
	}
	if (rk_policy_keeps_full(&pol) && !c->keeps_full)
		return rk_fail(e, RK_EFAIL, "lane %d (%s) has dropped its full cache, which %s needs", lane, old->name, pol.name);
	if (lane_sketch(s, c, &pol, e))
		return -1;
	/* from and to sketches: a ring with copies and one without, where the backend tells them apart; the same steps everywhere */
	if (pol.score != old->score || pol.evict != old->evict || pol.sinks != old->sinks || !pol.bits != !old->bits ||
	    rk_policy_budget(&pol, s->n_prompt) != rk_policy_budget(old, s->n_prompt))
		return change_ring(s, lane, &pol, e);
	if (pol.refresh == RK_REFRESH_QUERY && (old->refresh != RK_REFRESH_QUERY || pol.query != old->query))
		c->force_full = true;	/* the reference query is missing or of another kind */
	if (pol.tail && !old->tail)
		c->force_full = true;	/* so is the stand-in */
	c->pol = s->cfg.lane[lane] = pol;
	return 0;
}

static int64_t store_bytes(const rk_session *s, const rk_store *st)
{
	size_t bytes = rk_store_bytes(s->b->hp, st->cap, s->b->kv_bytes);

	for (int bits = 0; bits <= RK_SKETCH_MAX_BITS; bits++)
		bytes += st->sketch[bits] ? rk_sketch_bytes(s->b->hp, st->cap, bits) : 0;
	return (int64_t)bytes;
}

void rk_session_cache_bytes(const rk_session *s, int64_t *full, int64_t *partial)
{
	const rk_hparams *hp = s->b->hp;

	*full = store_bytes(s, &s->prompt) + (s->prompt.mean ? (int64_t)rk_mean_bytes(hp) : 0);
	*partial = 0;
	for (int i = 0; i < s->cfg.n_lane + s->cfg.shadow; i++) {
		const rk_lane_cache *c = &s->lane[i];
		*full += store_bytes(s, &c->tail);
		*partial += (int64_t)rk_partial_bytes(hp, c->part.cap, c->part.k ? s->b->kv_bytes : 0, c->part.acc != NULL);
	}
}

static void count_entry(rk_layer_occupancy *o, uint32_t *hit, int32_t pos, int n_pos, int n_prompt)
{
	if (pos < 4)
		o->sink++;
	else if (pos >= n_pos - 64)
		o->recent++;
	else if (pos >= n_prompt)
		o->generated++;
	else
		o->prompt++;
	if (pos < n_prompt)
		hit[(int64_t)pos * RK_COVERAGE / n_prompt]++;
}

void rk_session_occupancy(const rk_session *s, int lane, rk_layer_occupancy *out)
{
	const rk_hparams *hp = s->b->hp;
	const rk_lane_cache *c = &s->lane[lane];
	const rk_partial *p = &c->part;

	for (int l = 0; l < hp->n_layer; l++) {
		uint32_t hit[RK_COVERAGE] = { 0 };
		if (l > 0 && !p->cap) {
			out[l] = out[0];	/* vanilla: every layer holds everything */
			continue;
		}
		out[l] = (rk_layer_occupancy){ 0 };
		for (int h = 0; h < hp->n_kv_head; h++) {
			size_t ring = rk_row_at(hp, l, h, 1);
			int32_t count;
			if (!p->cap) {
				for (int32_t pos = 0; pos < c->n_pos; pos++)
					count_entry(&out[l], hit, pos, c->n_pos, s->n_prompt);
				continue;
			}
			s->b->ops->download(s->b, &count, p->count + ring, sizeof count);
			s->b->ops->download(s->b, s->pos, p->pos + ring * (size_t)p->cap, (size_t)count * sizeof *s->pos);
			for (int32_t i = 0; i < count; i++)
				count_entry(&out[l], hit, s->pos[i], c->n_pos, s->n_prompt);
		}
		for (int i = 0; i < RK_COVERAGE; i++) {
			int64_t lo = ((int64_t)i * s->n_prompt + RK_COVERAGE - 1) / RK_COVERAGE;
			int64_t hi = ((int64_t)(i + 1) * s->n_prompt + RK_COVERAGE - 1) / RK_COVERAGE;
			int64_t all = (hi - lo) * hp->n_kv_head;
			out[l].coverage[i] = all ? (uint8_t)(255 * (int64_t)hit[i] / all) : 0;
		}
	}
}

int rk_session_positions(rk_session *s, int lane, int layer)
{
	const rk_hparams *hp = s->b->hp;
	const rk_partial *p = &s->lane[lane].part;
	int n = 0;

	for (int h = 0; h < hp->n_kv_head && p->cap; h++) {
		size_t ring = rk_row_at(hp, layer, h, 1);
		int32_t count;
		s->b->ops->download(s->b, &count, p->count + ring, sizeof count);
		s->pos[n++] = count;
		s->b->ops->download(s->b, s->pos + n, p->pos + ring * (size_t)p->cap, (size_t)count * sizeof *s->pos);
		n += count;
	}
	return n;
}
