/* series.c: see series.h */
#include "trace/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void rk_series_init(rk_series *s, const rk_trace_header *h)
{
	memset(s, 0, sizeof *s);
	s->head = *h;
	s->head.prompt = NULL;
	s->n_layer = h->n_layer;
	s->base = -1;
}

void rk_series_free(rk_series *s)
{
	for (int i = 0; i < RK_MAX_LANE; i++) {
		free(s->lane[i].token);
		free(s->lane[i].text);
		free(s->lane[i].cell);
	}
	memset(s, 0, sizeof *s);
}

/* Room for `want` more elements behind the first `used`. */
static int reserve(void **p, size_t used, size_t want, size_t *cap, size_t size, rk_err *e)
{
	if (used + want <= *cap)
		return 0;
	size_t n = 2 * *cap > used + want ? 2 * *cap : used + want;
	void *more = realloc(*p, n * size);
	if (!more)
		return rk_fail(e, RK_ENOMEM, "no memory for a trace of this length (%zu bytes)", n * size);
	*p = more;
	*cap = n;
	return 0;
}

static int add_text(rk_series_lane *l, const char *s, size_t n, rk_err *e)
{
	if (n == 0)
		return 0;
	if (reserve((void **)&l->text, l->n_text, n, &l->cap_text, 1, e))
		return -1;
	memcpy(l->text + l->n_text, s, n);
	l->n_text += n;
	return 0;
}

static void set_spec(rk_series *s, int lane, const char *spec, size_t n)
{
	snprintf(s->lane[lane].spec, RK_SPEC_MAX, "%.*s", (int)n, spec);
}

static bool is_vanilla(const char *spec)
{
	rk_policy p;

	return rk_policy_parse(&p, spec, NULL) == 0 && p.score == RK_SCORE_NONE;
}

static void add_start(rk_series *s, const rk_event *ev, const char *specs)
{
	const char *end = specs + ev->size;

	s->n_session++;
	s->n_prompt = ev->start.n_prompt;
	if (ev->start.n_lane > s->n_lane)
		s->n_lane = ev->start.n_lane;
	s->base = -1;
	for (int i = 0; i < ev->start.n_lane && specs < end; i++) {
		const char *nl = memchr(specs, '\n', (size_t)(end - specs));
		set_spec(s, i, specs, (size_t)((nl ? nl : end) - specs));
		specs = nl ? nl + 1 : end;
		if (s->base < 0 && is_vanilla(s->lane[i].spec))
			s->base = i;
	}
}

static int add_token(rk_series *s, const rk_event *ev, const char *text, rk_err *e)
{
	rk_series_lane *l = &s->lane[ev->lane];

	if (ev->index == 0)
		l->reply = l->n_token;
	if (reserve((void **)&l->token, l->n_token, 1, &l->cap_token, sizeof *l->token, e))
		return -1;
	l->token[l->n_token++] = (rk_series_token){
		.index = ev->index, .id = ev->token.id, .choice = rk_event_own_choice(ev), .nll = -ev->token.logprob, .base_nll = NAN,
		.kl = ev->token.kl, .same_top1 = ev->token.same_top1, .step = l->n_step, .text = l->n_text, .n_text = ev->size,
	};
	return add_text(l, text, ev->size, e);
}

/* The token that the shadow scored, up to RK_SHADOW_BATCH tokens ago; NULL: its event was lost. */
static rk_series_token *find(rk_series_lane *l, int32_t index)
{
	for (size_t i = l->n_token; i-- > l->reply && l->token[i].index >= index;)
		if (l->token[i].index == index)
			return &l->token[i];
	return NULL;
}

static void add_shadow(rk_series *s, const rk_event *ev)
{
	rk_series_token *t = find(&s->lane[ev->lane], ev->index);

	if (!t)
		return;
	t->base_nll = -ev->shadow.logprob;
	t->kl = ev->shadow.kl;
	t->same_top1 = ev->shadow.same_top1;
}

static int add_step(rk_series *s, const rk_event *ev, const rk_layer_step *layers, rk_err *e)
{
	rk_series_lane *l = &s->lane[ev->lane];
	size_t n = (size_t)s->n_layer;

	if (reserve((void **)&l->cell, l->n_step * n, n, &l->cap_cell, 1, e))
		return -1;
	uint8_t *cell = l->cell + l->n_step++ * n;
	for (size_t i = 0; i < n; i++) {
		cell[i] = layers[i].kind == RK_STEP_FULL ? RK_CELL_FULL : layers[i].kind == RK_STEP_GLANCE ? RK_CELL_GLANCE :
		          isnan(layers[i].cos) ? RK_CELL_PARTIAL : RK_CELL_CHECKED;
		l->n_full[i] += cell[i] == RK_CELL_FULL;
	}
	return 0;
}

/* Lanes that were fed the same tokens as a vanilla lane have it as their baseline. */
static void use_base(rk_series *s)
{
	if (s->base < 0 || s->head.follow == RK_FOLLOW_NONE)
		return;
	const rk_series_lane *b = &s->lane[s->base];
	for (int i = 0; i < s->n_lane; i++) {
		rk_series_lane *l = &s->lane[i];
		for (size_t j = l->reply; j < l->n_token; j++) {
			size_t k = b->reply + (j - l->reply);
			if (k < b->n_token && b->token[k].id == l->token[j].id && isnan(l->token[j].base_nll))
				l->token[j].base_nll = b->token[k].nll;
		}
	}
}

int rk_series_add(rk_series *s, const rk_event *ev, const void *payload, rk_err *e)
{
	switch (ev->type) {
	case RK_EV_START:
		add_start(s, ev, payload);
		return 0;
	case RK_EV_TOKEN:
		return add_token(s, ev, payload, e);
	case RK_EV_SHADOW:
		add_shadow(s, ev);
		return 0;
	case RK_EV_STEP:
		return add_step(s, ev, payload, e);
	case RK_EV_OCCUPANCY:
		memcpy(s->lane[ev->lane].occupancy, payload, ev->size);
		s->lane[ev->lane].has_occupancy = true;
		return 0;
	case RK_EV_CONTROL:
		set_spec(s, ev->lane, payload, ev->size);
		return 0;
	case RK_EV_END:
		if (ev->lane < 0)
			return 0;
		if (s->lane[ev->lane].n_token)
			s->lane[ev->lane].token[s->lane[ev->lane].n_token - 1].n_text += ev->size;
		return add_text(&s->lane[ev->lane], payload, ev->size, e);
	case RK_EV_IDLE:
		use_base(s);
		return 0;
	case RK_EV_GAP:
		s->lost += ev->gap.lost;
		return 0;
	default:
		return 0;
	}
}

void rk_series_end(rk_series *s)
{
	use_base(s);
}

int rk_series_load(rk_series *s, rk_trace *t, rk_err *e)
{
	rk_event ev;
	const void *payload;
	int rc = rk_trace_seek(t, 0, e);

	while (rc == 0 && (rc = rk_trace_next(t, &ev, &payload, e)) > 0)
		rc = rk_series_add(s, &ev, payload, e);
	rk_series_end(s);
	return rc;
}

double rk_series_stride(const rk_series *s, int lane, int layer)
{
	const rk_series_lane *l = &s->lane[lane];

	return l->n_full[layer] ? (double)l->n_step / (double)l->n_full[layer] : (double)NAN;
}

double rk_series_ratio(const rk_series *s, int lane, size_t from, size_t to)
{
	const rk_series_lane *l = &s->lane[lane];
	double sum = 0;
	size_t n = 0;

	for (size_t i = from; i < to && i < l->n_token; i++)
		if (!isnan(l->token[i].base_nll)) {
			sum += (double)l->token[i].nll - (double)l->token[i].base_nll;
			n++;
		}
	return n ? exp(sum / (double)n) : (double)NAN;
}

bool rk_series_has_ratio(const rk_series *s, int lane)
{
	for (size_t i = 0; i < s->lane[lane].n_token; i++)
		if (!isnan(s->lane[lane].token[i].base_nll))
			return true;
	return false;
}
