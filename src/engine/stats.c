/* stats.c: see stats.h */
#include "engine/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void rk_stats_init(rk_stats *s)
{
	*s = (rk_stats){ 0 };
}

void rk_stats_free(rk_stats *s)
{
	for (int i = 0; i < RK_MAX_LANE; i++)
		free(s->lane[i].step_ms);
	rk_stats_init(s);
}

/* A new session: the sums start over. */
static void add_start(rk_stats *s, const rk_event *ev, const char *specs)
{
	rk_stats_free(s);
	s->n_lane = ev->start.n_lane;
	s->n_layer = ev->start.n_layer;
	s->n_prompt = ev->start.n_prompt;
	s->cache_full = ev->start.bytes_full;
	s->cache_partial = ev->start.bytes_partial;
	const char *at = specs, *end = specs + ev->size;
	for (int i = 0; i < s->n_lane && at < end; i++) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((nl ? nl : end) - at);
		if (len >= RK_SPEC_MAX)
			len = RK_SPEC_MAX - 1;
		memcpy(s->lane[i].spec, at, len);
		at = nl ? nl + 1 : end;
	}
}

static int add_step(rk_lane_stats *l, const rk_event *ev, const rk_layer_step *layers, int n_layer, rk_err *e)
{
	for (int i = 0; i < n_layer; i++) {
		l->n_full[i] += layers[i].kind == RK_STEP_FULL;
		if (!isnan(layers[i].churn)) {
			l->churn += (double)layers[i].churn;
			l->n_churn++;
		}
	}
	l->n_step++;
	l->bytes_full += ev->step.bytes_full;
	l->bytes_partial += ev->step.bytes_partial;
	l->bytes_score += ev->step.bytes_score;
	l->bytes_vanilla += ev->step.bytes_vanilla;
	l->ns_shared += ev->step.ns_shared;
	l->ns_attn += ev->step.ns_attn;
	if (l->n_step_ms == l->cap_step_ms) {
		int cap = l->cap_step_ms ? 2 * l->cap_step_ms : 256;
		float *p = realloc(l->step_ms, (size_t)cap * sizeof *p);
		if (!p)
			return rk_fail(e, RK_ENOMEM, "statistics: out of memory for %d steps", cap);
		l->step_ms = p;
		l->cap_step_ms = cap;
	}
	l->step_ms[l->n_step_ms++] = (float)((double)(ev->step.ns_shared + ev->step.ns_attn) * 1e-6);
	return 0;
}

static void add_token(rk_lane_stats *l, const rk_event *ev)
{
	l->n_token++;
	l->ended = false;	/* a further reply */
	l->nll -= (double)ev->token.logprob;
	if (isnan(ev->token.kl))
		return;
	l->kl += (double)ev->token.kl;
	l->n_kl++;
	l->n_same_top1 += ev->token.same_top1;
}

/* A stream may come from a file: what is used as an index or a length is checked first. */
static int check(const rk_stats *s, const rk_event *ev, rk_err *e)
{
	size_t layers = (size_t)s->n_layer * sizeof(rk_layer_step);

	if (ev->type == RK_EV_START && (ev->start.n_lane < 1 || ev->start.n_lane > RK_MAX_LANE || ev->start.n_layer < 1 ||
	                                ev->start.n_layer > RK_MAX_LAYER))
		return rk_fail(e, RK_EFAIL, "event stream: a session of %d lanes and %d layers; at most %d and %d", ev->start.n_lane,
		               ev->start.n_layer, RK_MAX_LANE, RK_MAX_LAYER);
	if ((ev->type == RK_EV_TOKEN || ev->type == RK_EV_STEP || ev->type == RK_EV_CONTROL) && (ev->lane < 0 || ev->lane >= RK_MAX_LANE))
		return rk_fail(e, RK_EFAIL, "event stream: an event of lane %d; at most %d lanes", ev->lane, RK_MAX_LANE);
	if (ev->type == RK_EV_STEP && ev->size != layers)
		return rk_fail(e, RK_EFAIL, "event stream: a step of %u bytes, %zu expected for %d layers", ev->size, layers, s->n_layer);
	if (ev->type == RK_EV_CONTROL && ev->size >= RK_SPEC_MAX)
		return rk_fail(e, RK_EFAIL, "event stream: a policy of %u characters, at most %d", ev->size, RK_SPEC_MAX - 1);
	return 0;
}

int rk_stats_add(rk_stats *s, const rk_event *ev, const void *payload, rk_err *e)
{
	rk_lane_stats *l = ev->lane >= 0 && ev->lane < RK_MAX_LANE ? &s->lane[ev->lane] : NULL;

	if (check(s, ev, e))
		return -1;
	switch (ev->type) {
	case RK_EV_START:
		add_start(s, ev, payload);
		break;
	case RK_EV_PREFILL:
		s->n_prefill = ev->prefill.done;
		s->ns_prefill = ev->prefill.ns;
		break;
	case RK_EV_TOKEN:
		add_token(l, ev);
		break;
	case RK_EV_STEP:
		return add_step(l, ev, payload, s->n_layer, e);
	case RK_EV_CONTROL:
		memcpy(l->spec, payload, ev->size);
		l->spec[ev->size] = 0;
		break;
	case RK_EV_END:
		if (!l)
			break;
		l->ended = true;
		l->end = ev->end.reason;
		l->logits_hash = ev->end.logits_hash;
		break;
	case RK_EV_GAP:
		s->lost += ev->gap.lost;
		break;
	}
	return 0;
}

double rk_stats_layer_stride(const rk_stats *s, int lane, int layer)
{
	const rk_lane_stats *l = &s->lane[lane];

	return l->n_full[layer] ? (double)l->n_step / l->n_full[layer] : (double)NAN;
}

double rk_stats_stride(const rk_stats *s, int lane)
{
	const rk_lane_stats *l = &s->lane[lane];
	int64_t full = 0;

	for (int i = 0; i < s->n_layer; i++)
		full += l->n_full[i];
	return full ? (double)l->n_step * s->n_layer / (double)full : (double)NAN;
}

double rk_stats_ppl(const rk_stats *s, int lane)
{
	const rk_lane_stats *l = &s->lane[lane];

	return l->n_token ? exp(l->nll / l->n_token) : (double)NAN;
}

double rk_stats_ratio(const rk_stats *s, int lane, int base)
{
	const rk_lane_stats *l = &s->lane[lane], *b = &s->lane[base];

	return l->n_token && b->n_token ? exp(l->nll / l->n_token - b->nll / b->n_token) : (double)NAN;
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

double rk_stats_ms_median(rk_stats *s, int lane)
{
	rk_lane_stats *l = &s->lane[lane];
	int n = l->n_step_ms;

	if (!n)
		return NAN;
	qsort(l->step_ms, (size_t)n, sizeof *l->step_ms, by_value);
	return (double)(l->step_ms[(n - 1) / 2] + l->step_ms[n / 2]) / 2;
}

double rk_stats_bytes_per_step(const rk_stats *s, int lane)
{
	const rk_lane_stats *l = &s->lane[lane];

	return l->n_step ? (double)(l->bytes_full + l->bytes_partial + l->bytes_score) / l->n_step : (double)NAN;
}

void rk_stats_remark(const rk_stats *s, char out[RK_REMARK_MAX])
{
	rk_policy p;

	out[0] = '\0';
	for (int i = 0; i < s->n_lane && !out[0]; i++)
		if (!rk_policy_parse(&p, s->lane[i].spec, NULL))
			rk_policy_remark(&p, s->n_prompt, out);
}
