/* record.c: see record.h */
#include "cmd/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/out.h"

void rk_record_init(rk_record *r)
{
	memset(r, 0, sizeof *r);
	rk_stats_init(&r->stats);
}

void rk_record_free(rk_record *r)
{
	for (int i = 0; i < RK_MAX_LANE; i++) {
		free(r->lane[i].text);
		free(r->lane[i].token);
		free(r->lane[i].layer);
	}
	rk_stats_free(&r->stats);
	rk_record_init(r);
}

/* Room for `want` more elements after the first `used`; *cap counts elements. */
static int reserve(void **p, size_t used, size_t want, size_t *cap, size_t size, rk_err *e)
{
	if (used + want <= *cap)
		return 0;
	size_t n = *cap * 2 > used + want ? *cap * 2 : used + want;
	void *more = realloc(*p, n * size);
	if (!more)
		return rk_fail(e, RK_ENOMEM, "no memory to record the reply (%zu bytes)", n * size);
	*p = more;
	*cap = n;
	return 0;
}

static int add_text(rk_lane_record *l, const char *s, size_t n, rk_err *e)
{
	if (reserve((void **)&l->text, l->text_len, n + 1, &l->text_cap, 1, e))
		return -1;
	if (n)
		memcpy(l->text + l->text_len, s, n);
	l->text_len += n;
	l->text[l->text_len] = '\0';
	return 0;
}

int rk_record_add(rk_record *r, const rk_event *ev, const void *payload, rk_err *e)
{
	if (rk_stats_add(&r->stats, ev, payload, e))
		return -1;
	if (ev->lane < 0 || ev->lane >= RK_MAX_LANE)
		return 0;
	rk_lane_record *l = &r->lane[ev->lane];
	size_t n_layer = (size_t)r->stats.n_layer;
	switch (ev->type) {
	case RK_EV_TOKEN:
		if (reserve((void **)&l->token, l->n_token, 1, &l->cap_token, sizeof *l->token, e))
			return -1;
		l->token[l->n_token++] = *ev;
		return add_text(l, payload, ev->size, e);
	case RK_EV_STEP:
		if (ev->size != n_layer * sizeof *l->layer)
			return rk_fail(e, RK_EFAIL, "event stream: a step of %u bytes, expected %zu layers", ev->size, n_layer);
		if (reserve((void **)&l->layer, l->n_step * n_layer, n_layer, &l->cap_layer, sizeof *l->layer, e))
			return -1;
		memcpy(l->layer + l->n_step++ * n_layer, payload, ev->size);
		return 0;
	case RK_EV_END:
		return add_text(l, payload, ev->size, e);
	default:
		return 0;
	}
}

/* ---- figures ---- */

double rk_record_ratio(const rk_record *r, int lane, int base)
{
	const rk_lane_record *a = &r->lane[lane], *b = &r->lane[base];
	if (a->n_token == 0 || a->n_token != b->n_token)
		return NAN;
	for (size_t i = 0; i < a->n_token; i++)
		if (a->token[i].token.id != b->token[i].token.id)
			return NAN;
	return rk_stats_ratio(&r->stats, lane, base);
}

double rk_record_kl(const rk_record *r, int lane)
{
	const rk_lane_stats *s = &r->stats.lane[lane];
	return s->n_kl ? s->kl / s->n_kl : NAN;
}

double rk_record_same_top1(const rk_record *r, int lane)
{
	const rk_lane_stats *s = &r->stats.lane[lane];
	return s->n_kl ? (double)s->n_same_top1 / s->n_kl : NAN;
}

double rk_record_bytes_vanilla(const rk_record *r, int lane)
{
	const rk_lane_stats *s = &r->stats.lane[lane];
	return s->n_step ? (double)s->bytes_vanilla / s->n_step : NAN;
}

const char *rk_record_end_name(const rk_lane_stats *l)
{
	static const char *const name[] = {
		[RK_END_TOKEN] = "end of reply", [RK_END_LENGTH] = "length", [RK_END_CONTEXT] = "context full",
		[RK_END_STOPPED] = "stopped", [RK_END_FORCED] = "end of text",
	};
	return l->ended ? name[l->end] : "unfinished";
}

int64_t rk_record_divergence(const rk_lane_record *a, const rk_lane_record *b)
{
	size_t n = a->n_token < b->n_token ? a->n_token : b->n_token;
	for (size_t i = 0; i < n; i++)
		if (rk_event_own_choice(&a->token[i]) != rk_event_own_choice(&b->token[i]))
			return (int64_t)i;
	return a->n_token == b->n_token ? -1 : (int64_t)n;
}

const char *rk_record_choice(const rk_lane_record *l, size_t i, const rk_tokenizer *t, char *out, size_t size)
{
	size_t at = 0, len;

	if (i >= l->n_token)
		return "(end)";
	const rk_event *token = &l->token[i];
	int32_t id = rk_event_own_choice(token);
	if (t) {
		const char *bytes = rk_token_bytes(t, id, &len);
		return rk_quote(out, size, bytes, len);
	}
	if (id != token->token.id) {
		snprintf(out, size, "token id %d", id);
		return out;
	}
	for (size_t j = 0; j < i; j++)
		at += l->token[j].size;
	return rk_quote(out, size, at + token->size <= l->text_len ? l->text + at : "", token->size);
}

/* ---- JSON ---- */

json_t *rk_record_full_layers_json(const rk_record *r, int lane)
{
	const rk_lane_record *l = &r->lane[lane];
	size_t n_layer = (size_t)r->stats.n_layer;
	json_t *steps = json_array();
	for (size_t i = 0; i < l->n_step; i++) {
		json_t *full = json_array();
		for (size_t j = 0; j < n_layer; j++)
			if (l->layer[i * n_layer + j].kind == RK_STEP_FULL)
				json_array_append_new(full, json_integer((json_int_t)j));
		json_array_append_new(steps, full);
	}
	return steps;
}

json_t *rk_record_cos_json(const rk_record *r, int lane)
{
	const rk_lane_record *l = &r->lane[lane];
	size_t n_layer = (size_t)r->stats.n_layer;
	json_t *checks = json_array();
	for (size_t i = 0; i < l->n_step; i++)
		for (size_t j = 0; j < n_layer; j++) {
			double cos = l->layer[i * n_layer + j].cos;
			if (!isnan(cos))
				json_array_append_new(checks, json_pack("[I, I, f]", (json_int_t)i, (json_int_t)j, cos));
		}
	return checks;
}

json_t *rk_record_top_json(const rk_record *r, int lane)
{
	json_t *top = json_array();
	if (r->lane[lane].n_token == 0)
		return top;
	const rk_event *first = &r->lane[lane].token[0];
	for (int i = 0; i < RK_TOP; i++)
		json_array_append_new(top, json_pack("[i, f]", first->token.top_id[i],
		                                     (double)first->token.top_logprob[i] + (double)first->token.lse));
	return top;
}

static json_t *tokens_json(const rk_lane_record *l, json_t *(*figure)(const rk_event *))
{
	json_t *a = json_array();
	for (size_t i = 0; i < l->n_token; i++)
		json_array_append_new(a, figure(&l->token[i]));
	return a;
}

static json_t *token_id(const rk_event *ev)
{
	return json_integer(ev->token.id);
}

static json_t *token_logprob(const rk_event *ev)
{
	return rk_json_real(ev->token.logprob);
}

/* How far ahead the most probable token is of the next, in nats: near 0 is a near tie. */
static json_t *token_margin(const rk_event *ev)
{
	return rk_json_real((double)ev->token.top_logprob[0] - (double)ev->token.top_logprob[1]);
}

json_t *rk_record_nll_json(const rk_record *r, int lane)
{
	json_t *a = json_array();
	for (size_t i = 0; i < r->lane[lane].n_token; i++)
		json_array_append_new(a, rk_json_real(-(double)r->lane[lane].token[i].token.logprob));
	return a;
}

json_t *rk_record_lane_json(rk_record *r, int lane)
{
	const rk_lane_record *l = &r->lane[lane];
	const rk_lane_stats *s = &r->stats.lane[lane];
	char hash[20];
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->logits_hash);
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"policy", s->spec,
		"text", rk_json_text(l->text ? l->text : "", l->text_len),
		"ids", tokens_json(l, token_id),
		"logprob", tokens_json(l, token_logprob),
		"margin", tokens_json(l, token_margin),
		"end", rk_record_end_name(s),
		"logits_hash", hash,
		"steps", s->n_step,
		"ms_per_token", rk_json_real(rk_stats_ms_median(&r->stats, lane)),
		"bytes_read_per_step", rk_json_real(rk_stats_bytes_per_step(&r->stats, lane)),
		"bytes_vanilla_per_step", rk_json_real(rk_record_bytes_vanilla(r, lane)),
		"effective_stride", rk_json_real(rk_stats_stride(&r->stats, lane)),
		"kl", rk_json_real(rk_record_kl(r, lane)),
		"same_top1", rk_json_real(rk_record_same_top1(r, lane)),
		"full_layers_per_step", rk_record_full_layers_json(r, lane),
		"cos", rk_record_cos_json(r, lane));
}
