/* view.c: see view.h */
#include "tui/view.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "engine/plan.h"

int rk_view_init(rk_view *v, int keep, rk_err *e)
{
	*v = (rk_view){ .keep = keep, .n_occ = keep / RK_OCCUPANCY_EVERY + 2, .prefill_lane = -1 };
	rk_stats_init(&v->stats);
	v->cap_item = 64;
	v->item = calloc((size_t)v->cap_item, sizeof *v->item);
	return v->item ? 0 : rk_fail(e, RK_ENOMEM, "screen: out of memory");
}

static void lane_free(rk_view_lane *l)
{
	free(l->text);
	free(l->token);
	free(l->layer);
	free(l->occ);
	free(l->occ_serial);
	*l = (rk_view_lane){ 0 };
}

void rk_view_free(rk_view *v)
{
	for (int i = 0; i < RK_MAX_LANE; i++)
		lane_free(&v->lane[i]);
	for (int i = 0; i < v->n_item; i++)
		free(v->item[i].text);
	free(v->item);
	rk_stats_free(&v->stats);
	*v = (rk_view){ 0 };
}

int rk_view_restart(rk_view *v, rk_err *e)
{
	int keep = v->keep;
	unsigned n_cut = v->n_cut;

	rk_view_free(v);
	int rc = rk_view_init(v, keep, e);
	v->n_cut = n_cut + 1;	/* so that whoever keeps something of the transcript notices */
	return rc;
}

/* ---- the transcript ---- */

static rk_view_item *add_item(rk_view *v, enum rk_item_kind kind, const char *text)
{
	if (v->n_item == v->cap_item) {
		rk_view_item *p = realloc(v->item, 2 * (size_t)v->cap_item * sizeof *p);
		if (!p) {
			v->out_of_memory = true;
			return NULL;
		}
		v->item = p;
		v->cap_item *= 2;
	}
	rk_view_item *it = &v->item[v->n_item];
	*it = (rk_view_item){ .kind = kind };
	if (text && !(it->text = strdup(text))) {
		v->out_of_memory = true;
		return NULL;
	}
	for (int i = 0; i < RK_MAX_LANE; i++) {
		it->first[i] = v->lane[i].n_token;
		it->text_at[i] = v->lane[i].n_text;
		it->differs[i] = it->end[i] = -1;
	}
	v->n_item++;
	return it;
}

void rk_view_say(rk_view *v, enum rk_item_kind kind, const char *text)
{
	add_item(v, kind, text);
}

void rk_view_note(rk_view *v, const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	add_item(v, RK_ITEM_NOTE, buf);
}

void rk_view_asked(rk_view *v)
{
	v->phase = RK_PHASE_WAITING;
}

void rk_view_cut(rk_view *v, int n)
{
	v->n_cut++;
	while (v->n_item > n)
		free(v->item[--v->n_item].text);
}

int rk_view_last(const rk_view *v, enum rk_item_kind kind)
{
	int i = v->n_item - 1;

	while (i >= 0 && v->item[i].kind != kind)
		i--;
	return i;
}

static void add_text(rk_view *v, rk_view_lane *l, const char *s, size_t len)
{
	if (len == 0)
		return;	/* a held-back character: both pointers may be NULL yet */
	if (l->n_text + len > l->cap_text) {
		size_t cap = (l->n_text + len) * 2 + 1024;
		char *p = realloc(l->text, cap);
		if (!p) {
			v->out_of_memory = true;
			return;
		}
		l->text = p;
		l->cap_text = cap;
	}
	memcpy(l->text + l->n_text, s, len);
	l->n_text += len;
}

void rk_view_past_reply(rk_view *v, const char *text)
{
	rk_view_item *it = add_item(v, RK_ITEM_REPLY, NULL);

	if (!it)
		return;
	it->past = true;
	add_text(v, &v->lane[0], text, strlen(text));
	it->text_len[0] = v->lane[0].n_text - it->text_at[0];
	for (int i = 0; i < RK_MAX_LANE; i++)
		it->end[i] = RK_END_TOKEN;
}

/* The reply that a token of a lane belongs to: a new one where the lane starts over. */
static rk_view_item *reply_item(rk_view *v, int lane, int index)
{
	int at = rk_view_last(v, RK_ITEM_REPLY);

	if (at >= 0 && v->item[at].end[lane] < 0 && (index > 0 || v->item[at].n_token[lane] == 0))
		return &v->item[at];
	rk_view_item *it = add_item(v, RK_ITEM_REPLY, NULL);
	/* A token from the middle of a reply whose start was lost still finds its place. */
	return it;
}

/* ---- events ---- */

static bool lane_init(rk_view *v, rk_view_lane *l)
{
	size_t keep = (size_t)v->keep, layers = (size_t)v->n_layer;

	free(l->token);
	free(l->layer);
	free(l->occ);
	free(l->occ_serial);
	l->token = calloc(keep, sizeof *l->token);
	l->layer = calloc(keep * layers, sizeof *l->layer);
	l->occ = calloc((size_t)v->n_occ * layers, sizeof *l->occ);
	l->occ_serial = malloc((size_t)v->n_occ * sizeof *l->occ_serial);
	if (!l->token || !l->layer || !l->occ || !l->occ_serial)
		return false;
	for (int i = 0; i < v->n_occ; i++)
		l->occ_serial[i] = -1;
	l->n_before = l->n_token;
	return true;
}

/* Replies of other lanes than there are now: their text stays, as if from an earlier run. */
static void make_past(rk_view *v)
{
	v->n_cut++;	/* lanes show another text */
	for (int i = 0; i < v->n_item; i++) {
		v->item[i].past = true;
		for (int k = 0; k < RK_MAX_LANE; k++) {
			v->item[i].n_token[k] = 0;
			v->item[i].differs[k] = -1;
			if (v->item[i].end[k] < 0)
				v->item[i].end[k] = RK_END_TOKEN;
		}
	}
}

/* One may have come and another gone: as many lanes are not yet the same ones. */
static bool same_lanes(const rk_view *v, const rk_event *ev, const char *specs)
{
	const char *end = specs + ev->size;

	if (ev->start.n_lane != v->n_lane || ev->start.n_layer != v->n_layer)
		return false;
	for (int i = 0; i < v->n_lane && specs < end; i++) {
		const char *nl = memchr(specs, '\n', (size_t)(end - specs));
		size_t len = (size_t)((nl ? nl : end) - specs);
		if (strlen(v->stats.lane[i].spec) != len || memcmp(v->stats.lane[i].spec, specs, len))
			return false;
		specs += len + (nl != NULL);
	}
	return true;
}

/* false: a session that cannot be shown. */
static bool on_start(rk_view *v, const rk_event *ev, const char *specs)
{
	int n_lane = ev->start.n_lane, n_layer = ev->start.n_layer;

	if (!same_lanes(v, ev, specs)) {
		v->n_lane = v->n_layer = 0;	/* until there is memory for it */
		if (n_lane < 1 || n_lane > RK_MAX_LANE || n_layer < 1 || n_layer > RK_MAX_LAYER)
			return false;
		v->n_layer = n_layer;
		for (int i = 0; i < n_lane; i++)
			if (!lane_init(v, &v->lane[i])) {
				v->out_of_memory = true;
				v->n_layer = 0;
				return false;
			}
		v->n_lane = n_lane;
		make_past(v);
	}
	for (int i = 0; i < n_lane; i++) {
		rk_view_lane *l = &v->lane[i];
		l->cum_nll = l->cum_kl = 0;
		l->n_cum = l->n_same = 0;
		l->ms_vanilla_attn = l->ms_shadow = NAN;
		for (int k = 0; k < v->n_occ; k++)
			l->occ_serial[k] = -1;
	}
	return true;
}

static rk_view_token *token_slot(const rk_view *v, int lane, int64_t serial)
{
	const rk_view_lane *l = &v->lane[lane];

	if (lane >= v->n_lane || serial < 0 || serial >= l->n_token || serial < rk_view_oldest(v, lane))
		return NULL;
	return &l->token[serial % v->keep];
}

/* Where this lane's reply leaves lane 0's.  Lanes take turns within a step, so the other one may be behind. */
static void note_difference(rk_view *v, rk_view_item *it, int lane, int index)
{
	for (int i = 1; i < v->n_lane; i++) {
		if ((lane && i != lane) || index >= it->n_token[i] || index >= it->n_token[0])
			continue;
		const rk_view_token *a = token_slot(v, 0, it->first[0] + index), *b = token_slot(v, i, it->first[i] + index);
		if (!a || !b)
			continue;
		it->other_text[i] |= a->id != b->id;
		if (it->differs[i] < 0 && a->choice != b->choice)
			it->differs[i] = index;
	}
}

static void on_token(rk_view *v, const rk_event *ev, const char *text)
{
	rk_view_lane *l = &v->lane[ev->lane];
	rk_view_item *it = reply_item(v, ev->lane, ev->index);

	if (!it)
		return;
	v->phase = RK_PHASE_REPLY;
	rk_view_token *t = &l->token[l->n_token % v->keep];
	memset(l->layer + (size_t)(l->n_token % v->keep) * (size_t)v->n_layer, 0, (size_t)v->n_layer * sizeof *l->layer);
	*t = (rk_view_token){
		.id = ev->token.id, .choice = rk_event_own_choice(ev), .pos = ev->token.pos, .index = ev->index, .item = (int32_t)(it - v->item),
		.text_at = (uint32_t)l->n_text, .text_len = ev->size,
		.logprob = ev->token.logprob, .lse = ev->token.lse, .kl = ev->token.kl, .same_top1 = ev->token.same_top1,
		.forced = ev->token.forced, .shadow_logprob = NAN, .cum_nll = NAN,
	};
	for (int i = 0; i < RK_VIEW_TOP; i++) {
		t->top_id[i] = ev->token.top_id[i];
		t->top_logprob[i] = ev->token.top_logprob[i];
	}
	add_text(v, l, text, ev->size);
	if (it->n_token[ev->lane] == 0)
		it->first[ev->lane] = l->n_token;
	l->n_token++;
	it->n_token[ev->lane]++;
	it->text_len[ev->lane] = l->n_text - it->text_at[ev->lane];
	note_difference(v, it, ev->lane, it->n_token[ev->lane] - 1);
}

static void on_step(rk_view *v, const rk_event *ev, const rk_layer_step *layers)
{
	rk_view_lane *l = &v->lane[ev->lane];
	int64_t serial = l->n_token - 1;
	rk_view_token *t = token_slot(v, ev->lane, serial);

	if (!t || t->stepped)
		return;
	rk_view_layer *out = l->layer + (size_t)(serial % v->keep) * (size_t)v->n_layer;
	for (int i = 0; i < v->n_layer; i++) {
		rk_layer_step s;
		memcpy(&s, layers + i, sizeof s);
		out[i] = (rk_view_layer){
			.cos = isnan(s.cos) ? RK_VIEW_NO_COS : (int16_t)lrintf(10000 * fmaxf(-1, fminf(1, s.cos))),
			.churn = isnan(s.churn) ? 255 : (uint8_t)lrintf(254 * fmaxf(0, fminf(1, s.churn))),
			.kind = s.kind,
		};
		t->n_full = (uint16_t)(t->n_full + (s.kind == RK_STEP_FULL));
	}
	t->stepped = true;
	t->step = ev->index;
	t->ms_shared = (float)((double)ev->step.ns_shared * 1e-6);
	t->ms_attn = (float)((double)ev->step.ns_attn * 1e-6);
	t->bytes_full = ev->step.bytes_full;
	t->bytes_partial = ev->step.bytes_partial;
	t->bytes_score = ev->step.bytes_score;
	t->bytes_vanilla = ev->step.bytes_vanilla;
}

static void on_occupancy(rk_view *v, const rk_event *ev, const void *payload)
{
	rk_view_lane *l = &v->lane[ev->lane];
	size_t size = (size_t)v->n_layer * sizeof *l->occ;

	if (ev->size != size)
		return;
	memcpy(l->occ + (size_t)l->occ_next * (size_t)v->n_layer, payload, size);
	l->occ_serial[l->occ_next] = l->n_token - 1;
	l->occ_next = (l->occ_next + 1) % v->n_occ;
}

static void on_shadow(rk_view *v, const rk_event *ev)
{
	rk_view_lane *l = &v->lane[ev->lane];
	const rk_view_token *last = token_slot(v, ev->lane, l->n_token - 1);
	rk_view_token *t = last ? token_slot(v, ev->lane, l->n_token - 1 - (last->index - ev->index)) : NULL;

	if (!t || t->index != ev->index)	/* lost, or of a reply whose start was not recorded */
		return;
	l->cum_nll += (double)ev->shadow.logprob - (double)t->logprob;
	l->cum_kl += (double)ev->shadow.kl;
	l->n_same += ev->shadow.same_top1;
	l->n_cum++;
	t->shadow_logprob = ev->shadow.logprob;
	t->kl = ev->shadow.kl;
	t->same_top1 = ev->shadow.same_top1;
	t->cum_nll = l->cum_nll;
	t->n_cum = l->n_cum;
	if (ev->shadow.ns_vanilla_attn > 0) {
		l->ms_vanilla_attn = (float)((double)ev->shadow.ns_vanilla_attn * 1e-6);
		l->ms_shadow = (float)((double)ev->shadow.ns * 1e-6);
	}
}

static void on_end(rk_view *v, const rk_event *ev, const char *text)
{
	int at = rk_view_last(v, RK_ITEM_REPLY);

	if (ev->lane < 0) {
		rk_view_note(v, "stopped while reading the prompt");
		return;
	}
	if (at < 0)
		return;
	add_text(v, &v->lane[ev->lane], text, ev->size);
	v->item[at].text_len[ev->lane] = v->lane[ev->lane].n_text - v->item[at].text_at[ev->lane];
	v->item[at].end[ev->lane] = (int8_t)ev->end.reason;
}

#define MOST_TOK (1 << 30)		/* above what any session reaches, below where sums overflow */
#define MOST_COUNT (1ll << 44)		/* bytes or ns of one step */

static bool in_range(int64_t v, int64_t most)
{
	return v >= 0 && v <= most;
}

/* A recording may hold anything; what an engine cannot have said is passed over, so that nothing behind here need check. */
static bool plausible(const rk_view *v, const rk_event *ev)
{
	bool of_lane = ev->type == RK_EV_TOKEN || ev->type == RK_EV_STEP || ev->type == RK_EV_OCCUPANCY || ev->type == RK_EV_CONTROL ||
	               ev->type == RK_EV_SHADOW || (ev->type == RK_EV_END && ev->lane >= 0);

	if (of_lane && (ev->lane < 0 || ev->lane >= v->n_lane || !in_range(ev->index, MOST_TOK)))
		return false;		/* also where its session's start was lost */
	switch (ev->type) {
	case RK_EV_START:
		return in_range(ev->start.n_prompt, MOST_TOK) && in_range(ev->start.bytes_full, INT64_MAX) && in_range(ev->start.bytes_partial, INT64_MAX);
	case RK_EV_PREFILL:
		return in_range(ev->prefill.total, MOST_TOK) && in_range(ev->prefill.done, ev->prefill.total) && ev->prefill.ns >= 0;
	case RK_EV_TOKEN:
		return in_range(ev->token.pos, MOST_TOK);
	case RK_EV_STEP:
		return ev->size == (size_t)v->n_layer * sizeof(rk_layer_step) && in_range(ev->step.pos, MOST_TOK) &&
		       in_range(ev->step.ns_shared, MOST_COUNT) && in_range(ev->step.ns_attn, MOST_COUNT) &&
		       in_range(ev->step.bytes_full, MOST_COUNT) && in_range(ev->step.bytes_partial, MOST_COUNT) &&
		       in_range(ev->step.bytes_score, MOST_COUNT) && in_range(ev->step.bytes_vanilla, MOST_COUNT);
	case RK_EV_CONTROL:
		return ev->size < RK_SPEC_MAX;
	case RK_EV_GAP:
		return in_range(ev->gap.lost, MOST_COUNT);
	default:
		return true;
	}
}

/* Where a lane keeps too little for a reply, in front of it. */
static void note_remark(rk_view *v)
{
	char remark[RK_REMARK_MAX];

	rk_stats_remark(&v->stats, remark);
	if (remark[0])
		rk_view_note(v, "%s", remark);
}

void rk_view_event(rk_view *v, const rk_event *ev, const void *payload)
{
	char spec[RK_SPEC_MAX], brief[RK_SPEC_MAX];
	rk_err ignored;

	if (!plausible(v, ev) || (ev->type == RK_EV_START && !on_start(v, ev, payload)))
		return;
	if (rk_stats_add(&v->stats, ev, payload, &ignored))
		v->out_of_memory = true;
	switch (ev->type) {
	case RK_EV_START: note_remark(v); break;
	case RK_EV_PREFILL:
		v->phase = RK_PHASE_PREFILL;
		v->prefill_lane = ev->lane;
		v->prefill_done = ev->prefill.done;
		v->prefill_total = ev->prefill.total;
		v->prefill_ns = ev->prefill.ns;
		break;
	case RK_EV_TOKEN: on_token(v, ev, payload); break;
	case RK_EV_STEP: on_step(v, ev, payload); break;
	case RK_EV_OCCUPANCY: on_occupancy(v, ev, payload); break;
	case RK_EV_SHADOW: on_shadow(v, ev); break;
	case RK_EV_CONTROL:
		snprintf(spec, sizeof spec, "%.*s", (int)ev->size, (const char *)payload);
		if (v->n_lane > 1)
			rk_view_note(v, "policy of lane %d: %s", ev->lane + 1, rk_view_brief(spec, brief));
		else
			rk_view_note(v, "policy: %s", rk_view_brief(spec, brief));
		break;
	case RK_EV_END: on_end(v, ev, payload); break;
	case RK_EV_GAP: rk_view_note(v, "%lld events were lost: they came faster than they were read", (long long)ev->gap.lost); break;
	case RK_EV_ERROR: rk_view_note(v, "error: %.*s", (int)ev->size, (const char *)payload); break;
	case RK_EV_IDLE: v->phase = RK_PHASE_IDLE; break;
	}
}

/* ---- looking things up ---- */

int64_t rk_view_oldest(const rk_view *v, int lane)
{
	int64_t n = v->lane[lane].n_token;

	return n - v->keep > v->lane[lane].n_before ? n - v->keep : v->lane[lane].n_before;
}

const rk_view_token *rk_view_token_at(const rk_view *v, int lane, int64_t serial)
{
	return token_slot(v, lane, serial);
}

const rk_view_layer *rk_view_layers_at(const rk_view *v, int lane, int64_t serial)
{
	const rk_view_token *t = token_slot(v, lane, serial);

	return t && t->stepped ? v->lane[lane].layer + (size_t)(serial % v->keep) * (size_t)v->n_layer : NULL;
}

const rk_layer_occupancy *rk_view_occupancy_at(const rk_view *v, int lane, int64_t serial, int64_t *taken)
{
	const rk_view_lane *l = &v->lane[lane];

	for (int k = 1; lane < v->n_lane && k <= v->n_occ; k++) {
		int i = (l->occ_next - k + 2 * v->n_occ) % v->n_occ;
		if (l->occ_serial[i] < 0)
			break;
		if (l->occ_serial[i] <= serial) {
			if (taken)
				*taken = l->occ_serial[i];
			return l->occ + (size_t)i * (size_t)v->n_layer;
		}
	}
	return NULL;
}

int64_t rk_view_token_of(const rk_view *v, const rk_view_item *it, int lane, size_t at)
{
	if (lane >= v->n_lane || it->past)
		return -1;
	at += it->text_at[lane];
	int64_t lo = rk_view_oldest(v, lane), hi = v->lane[lane].n_token - 1;
	const rk_view_token *t;

	while (lo < hi) {	/* the last token that starts at or before `at` and is not empty, or the first that reaches it */
		int64_t mid = lo + (hi - lo) / 2;
		t = token_slot(v, lane, mid);
		if ((size_t)t->text_at + t->text_len > at)
			hi = mid;
		else
			lo = mid + 1;
	}
	t = token_slot(v, lane, lo);
	return t && t->text_at <= at && at < (size_t)t->text_at + t->text_len ? lo : -1;
}

rk_view_speed rk_view_speed_at(const rk_view *v, int lane, int64_t serial, int window)
{
	rk_view_speed s = { 0 };

	for (int64_t i = serial; i >= 0 && s.n < window && i > serial - 2 * window; i--) {
		const rk_view_token *t = token_slot(v, lane, i);
		if (!t)
			break;
		if (!t->stepped)
			continue;
		s.n++;
		s.ms_shared += (double)t->ms_shared;
		s.ms_attn += (double)t->ms_attn;
		s.bytes_full += (double)t->bytes_full;
		s.bytes_partial += (double)t->bytes_partial;
		s.bytes_score += (double)t->bytes_score;
		s.bytes_vanilla += (double)t->bytes_vanilla;
	}
	double n = s.n ? (double)s.n : (double)NAN;
	s.ms_shared /= n;
	s.ms_attn /= n;
	s.ms = s.ms_shared + s.ms_attn;
	s.bytes_full /= n;
	s.bytes_partial /= n;
	s.bytes_score /= n;
	s.bytes_vanilla /= n;
	return s;
}

void rk_view_ratio_at(const rk_view *v, int64_t serial, double *running, double *windowed)
{
	const rk_view_token *t = NULL, *u = NULL;

	*running = *windowed = NAN;
	for (int64_t i = serial; i >= 0 && i > serial - RK_SHADOW_BATCH - 2; i--) {	/* the shadow may be a batch late */
		t = token_slot(v, 0, i);
		if (!t || t->n_cum) {
			serial = i;
			break;
		}
	}
	if (!t || !t->n_cum)
		return;
	*running = exp(t->cum_nll / t->n_cum);
	if (t->n_cum <= RK_VIEW_WINDOW) {
		*windowed = *running;
		return;
	}
	u = token_slot(v, 0, serial - RK_VIEW_WINDOW);
	if (u && u->n_cum == t->n_cum - RK_VIEW_WINDOW)
		*windowed = exp((t->cum_nll - u->cum_nll) / RK_VIEW_WINDOW);
}

int rk_view_base_lane(const rk_view *v)
{
	for (int i = 0; i < v->n_lane; i++)
		if (!strncmp(v->stats.lane[i].spec, "vanilla", 7))
			return i;
	return -1;
}

double rk_view_lane_ratio(const rk_view *v, int lane)
{
	int base = rk_view_base_lane(v);

	for (int i = v->n_item - 1; i >= 0 && base >= 0; i--) {
		const rk_view_item *it = &v->item[i];
		if (it->kind != RK_ITEM_REPLY)
			continue;
		/* the same tokens, and as many */
		if (it->n_token[lane] != it->n_token[base] || it->other_text[lane] || it->other_text[base])
			return NAN;
	}
	return base < 0 ? (double)NAN : rk_stats_ratio(&v->stats, lane, base);
}

static bool has_parameter(const char *spec, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = spec; (p = strpbrk(p, ":,")); )
		if (!strncmp(++p, word, len) && (p[len] == ',' || p[len] == '\0'))
			return true;
	return false;
}

char *rk_view_brief(const char *spec, char out[RK_SPEC_MAX])
{
	char preset[RK_SPEC_MAX] = "", rest[RK_SPEC_MAX], *save = NULL;
	size_t n = strcspn(spec, ":");
	rk_policy p;

	n = (size_t)snprintf(out, RK_SPEC_MAX, "%.*s", (int)(n < RK_SPEC_MAX - 1 ? n : RK_SPEC_MAX - 1), spec);
	snprintf(rest, sizeof rest, "%s", spec[n] ? spec + n + 1 : "");
	if (rk_policy_parse(&p, out, NULL) == 0)
		rk_policy_spec(&p, preset);
	char sep = ':';
	for (char *w = strtok_r(rest, ",", &save); w && n < RK_SPEC_MAX; w = strtok_r(NULL, ",", &save))
		if (!has_parameter(preset, w)) {
			n += (size_t)snprintf(out + n, RK_SPEC_MAX - n, "%c%s", sep, w);
			sep = ',';
		}
	return out;
}

const char *rk_view_end_name(int end)
{
	static const char *const name[] = { "end of text", "length limit", "context is full", "stopped", "end of the given text" };

	return end < 0 || end > RK_END_FORCED ? "running" : name[end];
}
