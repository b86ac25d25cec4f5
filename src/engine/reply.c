/* reply.c: see reply.h */
#include "engine/reply.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/utf8.h"

/* Tokens of lane 0 that the vanilla shadow has not scored yet.  Its distribution for y[i] follows from feeding x[i]. */
struct rk_shadow {
	int n;				/* waiting */
	int32_t x[RK_SHADOW_BATCH];	/* fed to lane 0 */
	int32_t y[RK_SHADOW_BATCH];	/* what lane 0 took after it */
	int index[RK_SHADOW_BATCH];	/* of y in the reply */
	float *lane;			/* [RK_SHADOW_BATCH][n_vocab] lane 0's logits for y */
	float *own;			/* the same of the shadow */
	float lane_lse[RK_SHADOW_BATCH];
	int32_t lane_argmax[RK_SHADOW_BATCH];
	int32_t fed;			/* the token that lane 0 was fed last, -1: none in this reply */
};

static void shadow_free(struct rk_shadow *w)
{
	if (w) {
		free(w->lane);
		free(w->own);
		free(w);
	}
}

static int shadow_init(struct rk_shadow **out, int n_vocab, rk_err *e)
{
	size_t n = (size_t)RK_SHADOW_BATCH * (size_t)n_vocab;
	struct rk_shadow *w = calloc(1, sizeof *w);

	if (w && (w->lane = malloc(n * sizeof *w->lane)) && (w->own = malloc(n * sizeof *w->own))) {
		*out = w;
		return 0;
	}
	shadow_free(w);
	return rk_fail(e, RK_ENOMEM, "shadow: out of memory for %d rows of %d logits", RK_SHADOW_BATCH, n_vocab);
}

int rk_reply_init(rk_reply *r, rk_session *s, const rk_tokenizer *tok, rk_event_ring *events, const rk_sampling *cfg, rk_err *e)
{
	int n_vocab = s->b->hp->n_vocab;

	*r = (rk_reply){ .s = s, .tok = tok, .events = events };
	if (rk_tokenizer_n_vocab(tok) != n_vocab)
		return rk_fail(e, RK_EMODEL, "the tokenizer has %d tokens, the model's embedding table %d", rk_tokenizer_n_vocab(tok), n_vocab);
	for (int i = 0; i < s->cfg.n_lane; i++)
		if (rk_sampler_init(&r->lane[i].sampler, cfg, n_vocab, e))
			return -1;
	if (s->cfg.shadow && shadow_init(&r->shadow, n_vocab, e))
		return -1;
	rk_reply_forget(r);
	return 0;
}

void rk_reply_free(rk_reply *r)
{
	for (int i = 0; i < RK_MAX_LANE; i++)
		rk_sampler_free(&r->lane[i].sampler);
	shadow_free(r->shadow);
}

void rk_reply_forget(rk_reply *r)
{
	r->diverged = false;
	for (int i = 0; i < r->s->cfg.n_lane; i++) {
		r->lane[i].sampler.state = r->lane[i].sampler.cfg.seed;
		r->lane[i].token = -1;
		r->lane[i].active = false;
	}
}

int32_t rk_reply_pending(const rk_reply *r, int lane)
{
	return r->lane[lane].token;
}

void rk_reply_set_pending(rk_reply *r, int lane, int32_t id)
{
	r->lane[lane].token = id;
}

/* Sends an event with len bytes of text, made valid where the model wrote bytes that are not UTF-8. */
static void push_text(rk_reply *r, const rk_event *ev, const char *text, size_t len)
{
	char *fixed;
	size_t n;

	if (rk_utf8_check(text, len, NULL) == 0) {
		rk_event_push(r->events, ev, text, len);
	} else if (rk_utf8_lossy(text, len, &fixed, &n, NULL) == 0) {
		rk_event_push(r->events, ev, fixed, n);
		free(fixed);
	} else {
		rk_event_push(r->events, ev, NULL, 0);
	}
}

/* The characters that this token completes go out with its event; an unfinished one waits in `held`. */
static void push_token(rk_reply *r, int lane, const rk_event *ev)
{
	rk_reply_lane *l = &r->lane[lane];
	size_t len;
	const char *bytes = rk_token_bytes(r->tok, ev->token.id, &len);
	char small[256], *text = small;

	if (rk_token_is_control(r->tok, ev->token.id))
		len = 0;
	size_t all = (size_t)l->n_held + len;
	if (all > sizeof small && !(text = malloc(all))) {
		rk_event_push(r->events, ev, NULL, 0);
		return;
	}
	memcpy(text, l->held, (size_t)l->n_held);
	memcpy(text + l->n_held, bytes, len);
	size_t whole = rk_utf8_complete(text, all);	/* holds back 3 bytes at most */
	l->n_held = (int)(all - whole);
	memcpy(l->held, text + whole, all - whole);
	push_text(r, ev, text, whole);
	if (text != small)
		free(text);
}

/* The RK_TOP most probable tokens, the lower id first among equals. */
static void find_top(const float *x, int n, float lse, rk_event *ev)
{
	float best[RK_TOP];
	int32_t id[RK_TOP];
	int m = 0;

	for (int i = 0; i < n; i++) {
		if (m == RK_TOP && x[i] <= best[m - 1])
			continue;
		int j = m < RK_TOP ? m++ : m - 1;
		for (; j > 0 && best[j - 1] < x[i]; j--) {
			best[j] = best[j - 1];
			id[j] = id[j - 1];
		}
		best[j] = x[i];
		id[j] = i;
	}
	for (int j = 0; j < RK_TOP; j++) {
		ev->token.top_id[j] = j < m ? id[j] : -1;
		ev->token.top_logprob[j] = j < m ? best[j] - lse : -INFINITY;
	}
}

/* KL(p || q) of two distributions over the vocabulary, from their logits. */
static float kl(const rk_reply *r, const float *p, float p_lse, const float *q, float q_lse)
{
	return r->s->b->ops->logits_kl(r->s->b, p, p_lse, q, q_lse);
}

static const float *logits_of(const rk_reply *r, int lane)
{
	return r->s->logits + (size_t)lane * (size_t)r->s->b->hp->n_vocab;
}

static bool has_base(const rk_reply *r)
{
	/* Its policy may have been changed since the reply began. */
	return r->base >= 0 && r->lane[r->base].active && r->s->lane[r->base].pol.score == RK_SCORE_NONE;
}

static void report_token(rk_reply *r, int lane, int32_t id, bool forced)
{
	const rk_session *s = r->s;
	int n = s->b->hp->n_vocab;
	const float *x = logits_of(r, lane);
	rk_event ev = { .type = RK_EV_TOKEN, .lane = (int8_t)lane, .index = r->t };

	ev.token.id = id;
	ev.token.pos = s->lane[lane].n_pos;
	ev.token.lse = s->lse[lane];
	ev.token.logprob = x[id] - s->lse[lane];
	ev.token.forced = forced;
	ev.token.kl = !has_base(r) ? NAN : lane == r->base ? 0 :
	              kl(r, logits_of(r, r->base), s->lse[r->base], x, s->lse[lane]);
	ev.token.same_top1 = has_base(r) && s->argmax[lane] == s->argmax[r->base];
	find_top(x, n, s->lse[lane], &ev);
	push_token(r, lane, &ev);
	r->lane[lane].token = id;
	r->lane[lane].n_token++;
}

int rk_reply_catch_up(rk_reply *r, rk_err *e)
{
	struct rk_shadow *w = r->shadow;
	size_t n_vocab = (size_t)r->s->b->hp->n_vocab;
	float lse[RK_SHADOW_BATCH];
	int32_t argmax[RK_SHADOW_BATCH];
	int64_t t = rk_clock_ns(), ns_attn;

	if (!w || !w->n)
		return 0;
	if (rk_session_shadow(r->s, w->x, w->n, w->own, lse, argmax, &ns_attn, e))
		return -1;
	for (int i = 0; i < w->n; i++) {
		const float *own = w->own + (size_t)i * n_vocab;
		rk_event ev = { .type = RK_EV_SHADOW, .index = w->index[i] };
		ev.shadow.logprob = own[w->y[i]] - lse[i];
		ev.shadow.lse = lse[i];
		ev.shadow.kl = kl(r, own, lse[i], w->lane + (size_t)i * n_vocab, w->lane_lse[i]);
		ev.shadow.same_top1 = argmax[i] == w->lane_argmax[i];
		ev.shadow.ns = (rk_clock_ns() - t) / w->n;
		ev.shadow.ns_vanilla_attn = ns_attn;
		rk_event_push(r->events, &ev, NULL, 0);
	}
	w->n = 0;
	return 0;
}

/* Lane 0 took token `id`.  The first one of a reply follows from the prefill, which the shadow has done too. */
static int watch(rk_reply *r, int32_t id, rk_err *e)
{
	struct rk_shadow *w = r->shadow;
	const rk_session *s = r->s;
	size_t n_vocab = (size_t)s->b->hp->n_vocab;

	if (w->fed < 0) {
		int own = s->cfg.n_lane;
		rk_event ev = { .type = RK_EV_SHADOW, .index = r->t };
		ev.shadow.logprob = logits_of(r, own)[id] - s->lse[own];
		ev.shadow.lse = s->lse[own];
		ev.shadow.kl = kl(r, logits_of(r, own), s->lse[own], logits_of(r, 0), s->lse[0]);
		ev.shadow.same_top1 = s->argmax[own] == s->argmax[0];
		rk_event_push(r->events, &ev, NULL, 0);
		return 0;
	}
	w->x[w->n] = w->fed;
	w->y[w->n] = id;
	w->index[w->n] = r->t;
	w->lane_lse[w->n] = s->lse[0];
	w->lane_argmax[w->n] = s->argmax[0];
	memcpy(w->lane + (size_t)w->n * n_vocab, logits_of(r, 0), n_vocab * sizeof(float));
	return ++w->n == RK_SHADOW_BATCH ? rk_reply_catch_up(r, e) : 0;
}

static void report_occupancy(rk_reply *r, int lane)
{
	rk_layer_occupancy o[RK_MAX_LAYER];
	rk_event ev = { .type = RK_EV_OCCUPANCY, .lane = (int8_t)lane, .index = r->t };

	rk_session_occupancy(r->s, lane, o);
	rk_event_push(r->events, &ev, o, (size_t)r->s->b->hp->n_layer * sizeof *o);
}

static uint64_t hash_logits(const float *x, int n)
{
	uint64_t h = 0xcbf29ce484222325u;	/* FNV-1a over 32-bit words */

	for (int i = 0; i < n; i++) {
		uint32_t w;
		memcpy(&w, x + i, sizeof w);
		h = (h ^ w) * 0x100000001b3u;
	}
	return h;
}

static void end_lane(rk_reply *r, int lane, enum rk_end reason)
{
	rk_reply_lane *l = &r->lane[lane];
	rk_event ev = { .type = RK_EV_END, .lane = (int8_t)lane, .index = r->t };
	int n_vocab = r->s->b->hp->n_vocab;

	ev.end.reason = reason;
	ev.end.n_token = l->n_token;
	ev.end.logits_hash = hash_logits(logits_of(r, lane), n_vocab);
	push_text(r, &ev, l->held, (size_t)l->n_held);
	report_occupancy(r, lane);
	l->active = false;
	l->n_held = 0;
}

static void report_positions(rk_reply *r, int lane, int layer, int index)
{
	rk_event ev = { .type = RK_EV_POSITIONS, .lane = (int8_t)lane, .index = index };
	int n = rk_session_positions(r->s, lane, layer);

	ev.positions.layer = layer;
	ev.positions.n_kv_head = r->s->b->hp->n_kv_head;
	rk_event_push(r->events, &ev, r->s->pos, (size_t)n * sizeof(int32_t));
}

static void report_step(rk_reply *r, int lane)
{
	const rk_session *s = r->s;
	const rk_hparams *hp = s->b->hp;
	const rk_step_report *rep = &s->report[lane];
	const rk_lane_cache *c = &s->lane[lane];
	rk_event ev = { .type = RK_EV_STEP, .lane = (int8_t)lane, .index = c->step - 1 };
	rk_layer_step layers[RK_MAX_LAYER];

	for (int l = 0; l < hp->n_layer; l++)
		layers[l] = (rk_layer_step){ .cos = rep->cos[l], .churn = rep->churn[l], .kind = rep->kind[l] };
	ev.step.pos = c->n_pos - 1;
	ev.step.ns_shared = s->ns_shared;
	ev.step.ns_attn = s->ns_attn[lane];
	ev.step.bytes_full = rep->bytes_full;
	ev.step.bytes_partial = rep->bytes_partial;
	ev.step.bytes_score = rep->bytes_score;
	ev.step.bytes_vanilla = 2 * (int64_t)hp->n_layer * hp->n_kv_head * hp->head_dim * c->n_pos * (int64_t)s->b->kv_bytes;
	rk_event_push(r->events, &ev, layers, (size_t)hp->n_layer * sizeof *layers);
	for (int l = 0; l < hp->n_layer && s->cfg.positions; l++)
		if (!isnan(rep->churn[l]))
			report_positions(r, lane, l, c->step - 1);
}

void rk_reply_begin(rk_reply *r, int max_new, enum rk_follow follow, const int32_t *forced, int n_forced)
{
	r->max_new = max_new;
	r->follow = follow;
	r->forced = forced;
	r->n_forced = n_forced;
	r->t = 0;
	if (r->shadow)
		r->shadow->fed = -1;
	r->base = -1;
	r->diverged |= follow == RK_FOLLOW_NONE;
	for (int i = 0; i < r->s->cfg.n_lane; i++) {
		r->lane[i].active = true;
		r->lane[i].token = -1;
		r->lane[i].n_token = r->lane[i].n_held = 0;
		if (r->base < 0 && !r->diverged && r->s->lane[i].pol.score == RK_SCORE_NONE)
			r->base = i;
		for (int l = 0; l < r->s->b->hp->n_layer && r->s->cfg.positions && r->s->lane[i].part.cap; l++)
			report_positions(r, i, l, -1);	/* the selection that the prefill made */
	}
}

static int32_t choose(rk_reply *r, int lane)
{
	const rk_session *s = r->s;
	int n = s->b->hp->n_vocab;

	if (r->follow == RK_FOLLOW_TEXT)
		return r->forced[r->t];
	if (r->follow == RK_FOLLOW_FIRST && lane > 0)
		return r->lane[0].token;
	return rk_sample(&r->lane[lane].sampler, logits_of(r, lane), n, s->argmax[lane]);
}

/* Why a lane ends after the token that was just chosen; -1: it does not. */
static int why_end(const rk_reply *r, int lane, bool stop)
{
	int32_t id = r->lane[lane].token;

	if (r->follow == RK_FOLLOW_TEXT ? r->t + 1 == r->n_forced : rk_token_is_end(r->tok, id))
		return r->follow == RK_FOLLOW_TEXT ? RK_END_FORCED : RK_END_TOKEN;
	if (stop)
		return RK_END_STOPPED;
	if (r->follow != RK_FOLLOW_TEXT && r->t + 1 == r->max_new)
		return RK_END_LENGTH;
	/* Lanes that follow have nothing to take once lane 0 has ended, which is before them where its history is longer. */
	bool alone = r->follow == RK_FOLLOW_FIRST && !r->lane[0].active;
	return alone || rk_session_room(r->s, lane) < 1 ? (int)RK_END_CONTEXT : -1;
}

int rk_reply_step(rk_reply *r, bool stop, rk_err *e)
{
	rk_session *s = r->s;
	int lanes[RK_MAX_LANE], n = 0;
	int32_t ids[RK_MAX_LANE];

	bool was = r->lane[0].active;
	for (int i = 0; i < s->cfg.n_lane; i++)
		if (r->lane[i].active)
			report_token(r, i, choose(r, i), r->follow == RK_FOLLOW_TEXT || (r->follow == RK_FOLLOW_FIRST && i > 0));
	if (r->shadow && was && watch(r, r->lane[0].token, e))
		return -1;
	for (int i = 0; i < s->cfg.n_lane; i++) {
		if (!r->lane[i].active)
			continue;
		int why = why_end(r, i, stop);
		if (why >= 0) {
			end_lane(r, i, (enum rk_end)why);
		} else {
			lanes[n] = i;
			ids[n++] = r->lane[i].token;
		}
	}
	if (was && !r->lane[0].active && rk_reply_catch_up(r, e))
		return -1;
	if (n == 0)
		return 0;
	if (rk_session_step(s, lanes, ids, n, e))
		return -1;
	r->t++;
	if (r->shadow && lanes[0] == 0)
		r->shadow->fed = ids[0];
	for (int j = 0; j < n; j++) {
		r->lane[lanes[j]].token = -1;
		report_step(r, lanes[j]);
		if (r->t % RK_OCCUPANCY_EVERY == 0)
			report_occupancy(r, lanes[j]);
	}
	return 1;
}
