/* export_chrome.c: Chrome's trace event format, as Perfetto reads it; see export.h.
 *
 * Times are microseconds.  A step is reported when it has ended and says how long it took, so that it starts that much
 * before, but never before the end of the one before: slices of a track do not overlap.
 */
#include "trace/export.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "trace/json.h"

struct chrome {
	FILE *f;
	const rk_series *s;
	bool any;
	int64_t end[RK_MAX_LANE];		/* of the lane's last slice */
	size_t n_token[RK_MAX_LANE];
	double log_ratio[RK_MAX_LANE];		/* running sum of nll - baseline's, and how many */
	int64_t n_ratio[RK_MAX_LANE];
	int64_t prefill_from;			/* when the chunk that is prefilled started */
	int prefill_done;
};

static double us(int64_t ns)
{
	return (double)ns / 1e3;
}

/* Takes root over. */
static int put(struct chrome *c, json_t *root, rk_err *e)
{
	if (!root)
		return rk_fail(e, RK_ENOMEM, "no memory for the export");
	fputs(c->any ? ",\n" : "\n", c->f);
	c->any = true;
	/* 16 digits: microseconds of a day keep their nanoseconds. */
	int rc = json_dumpf(root, c->f, JSON_COMPACT | JSON_REAL_PRECISION(16));
	json_decref(root);
	return rc ? rk_fail(e, RK_EFAIL, "the export cannot be written") : 0;
}

static int put_name(struct chrome *c, const char *what, int pid, int tid, const char *name, rk_err *e)
{
	return put(c, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", what, "pid", pid, "tid", tid, "args", "name", name), e);
}

static int put_sort_index(struct chrome *c, int pid, int tid, int at, rk_err *e)
{
	return put(c, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", "thread_sort_index", "pid", pid, "tid", tid,
	                        "args", "sort_index", at), e);
}

static int put_names(struct chrome *c, rk_err *e)
{
	int n_layer = c->s->n_layer;
	char name[RK_SPEC_MAX + 16];

	for (int lane = 0; lane < c->s->n_lane; lane++) {
		snprintf(name, sizeof name, "%d: %s", lane + 1, c->s->lane[lane].spec);
		if (put_name(c, "process_name", lane, n_layer, name, e) || put_name(c, "thread_name", lane, n_layer, "steps", e) ||
		    put_sort_index(c, lane, n_layer, -1, e))
			return -1;
		for (int l = 0; l < n_layer; l++) {
			snprintf(name, sizeof name, "layer %d", l);
			if (put_name(c, "thread_name", lane, l, name, e) || put_sort_index(c, lane, l, l, e))
				return -1;
		}
	}
	return 0;
}

static int put_slice(struct chrome *c, int lane, int tid, const char *name, const char *cat, int64_t from, int64_t to,
                     json_t *args, rk_err *e)
{
	return put(c, json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "ph", "X", "name", name, "cat", cat, "ts", us(from),
	                        "dur", us(to - from), "pid", lane, "tid", tid, "args", args), e);
}

static int put_counter(struct chrome *c, int lane, const char *name, int64_t t, json_t *args, rk_err *e)
{
	return put(c, json_pack("{s:s, s:s, s:f, s:i, s:o}", "ph", "C", "name", name, "ts", us(t), "pid", lane, "args", args), e);
}

static json_t *layer_args(const rk_layer_step *l, int step)
{
	json_t *args = json_pack("{s:i}", "step", step);

	if (!isnan(l->cos))
		json_object_set_new(args, "cosine", rk_trace_real(l->cos));
	if (!isnan(l->churn))
		json_object_set_new(args, "churn", rk_trace_real(l->churn));
	return args;
}

static int put_step(struct chrome *c, const rk_event *ev, const rk_layer_step *layers, rk_err *e)
{
	int lane = ev->lane, n_layer = c->s->n_layer, n_cos = 0, n_full = 0;
	int64_t to = ev->t_ns, from = to - ev->step.ns_shared - ev->step.ns_attn;
	double cos = 0;
	char name[32];

	if (from < c->end[lane])
		from = c->end[lane];
	if (to <= from)
		return 0;	/* events out of order: nothing that could be drawn */
	c->end[lane] = to;
	int64_t attn = to - from < ev->step.ns_attn ? to - from : ev->step.ns_attn;
	for (int i = 0; i < n_layer; i++) {
		const char *kind = rk_step_kind_name(layers[i].kind);
		n_full += layers[i].kind == RK_STEP_FULL;
		if (!isnan(layers[i].cos)) {
			cos += (double)layers[i].cos;
			n_cos++;
		}
		if (put_slice(c, lane, i, kind, kind, from, to, layer_args(&layers[i], ev->index), e))
			return -1;
	}
	snprintf(name, sizeof name, "step %d", ev->index);
	json_t *args = json_pack("{s:i, s:i, s:I, s:I, s:I, s:I}", "pos", ev->step.pos, "full_layers", n_full,
		"bytes_full", (json_int_t)ev->step.bytes_full, "bytes_partial", (json_int_t)ev->step.bytes_partial,
		"bytes_score", (json_int_t)ev->step.bytes_score, "bytes_vanilla", (json_int_t)ev->step.bytes_vanilla);
	if (put_slice(c, lane, n_layer, name, "step", from, to, args, e) ||
	    put_slice(c, lane, n_layer, "attention", "phase", to - attn, to, json_object(), e) ||
	    put_counter(c, lane, "bytes read", to, json_pack("{s:I, s:I}", "full", (json_int_t)(ev->step.bytes_full + ev->step.bytes_score),
	                                                   "partial", (json_int_t)ev->step.bytes_partial), e))
		return -1;
	return n_cos ? put_counter(c, lane, "cosine", to, json_pack("{s:f}", "mean", cos / n_cos), e) : 0;
}

static int put_token(struct chrome *c, const rk_event *ev, rk_err *e)
{
	int lane = ev->lane;
	const rk_series_lane *l = &c->s->lane[lane];

	if (c->n_token[lane] >= l->n_token)
		return 0;
	const rk_series_token *t = &l->token[c->n_token[lane]++];
	json_t *name = rk_json_text(l->text + t->text, t->n_text);
	if (put(c, json_pack("{s:s, s:o, s:s, s:s, s:f, s:i, s:i, s:{s:i, s:i, s:o}}", "ph", "i", "name", name, "cat", "token", "s", "t",
	                     "ts", us(ev->t_ns), "pid", lane, "tid", c->s->n_layer, "args", "index", ev->index, "id", ev->token.id,
	                     "logprob", rk_trace_real(ev->token.logprob)), e))
		return -1;
	if (isnan(t->base_nll) || isnan(t->nll))
		return 0;
	c->log_ratio[lane] += (double)t->nll - (double)t->base_nll;
	c->n_ratio[lane]++;
	double ratio = exp(c->log_ratio[lane] / (double)c->n_ratio[lane]);
	return isfinite(ratio) ? put_counter(c, lane, "perplexity ratio", ev->t_ns, json_pack("{s:f}", "running", ratio), e) : 0;
}

static int put_occupancy(struct chrome *c, const rk_event *ev, const rk_layer_occupancy *o, rk_err *e)
{
	int64_t sink = 0, prompt = 0, generated = 0, recent = 0;

	for (int i = 0; i < c->s->n_layer; i++) {
		sink += o[i].sink;
		prompt += o[i].prompt;
		generated += o[i].generated;
		recent += o[i].recent;
	}
	return put_counter(c, ev->lane, "entries held", ev->t_ns, json_pack("{s:I, s:I, s:I, s:I}", "sink", (json_int_t)sink,
		"prompt", (json_int_t)prompt, "generated", (json_int_t)generated, "recent", (json_int_t)recent), e);
}

/* The shared prefill is drawn in lane 0, a slice per chunk. */
static int put_prefill(struct chrome *c, const rk_event *ev, rk_err *e)
{
	int lane = ev->lane < 0 ? 0 : ev->lane, done = ev->prefill.done;
	int64_t from = c->prefill_from > c->end[lane] ? c->prefill_from : c->end[lane];

	c->prefill_from = ev->t_ns;
	if (done == 0 || ev->t_ns <= from) {
		c->prefill_done = done;
		return 0;
	}
	json_t *args = json_pack("{s:i, s:i}", "tokens", done - c->prefill_done, "done", done);
	c->prefill_done = done;
	c->end[lane] = ev->t_ns;
	return put_slice(c, lane, c->s->n_layer, "prefill", "prefill", from, ev->t_ns, args, e);
}

static int put_event(struct chrome *c, const rk_event *ev, const void *payload, rk_err *e)
{
	switch (ev->type) {
	case RK_EV_PREFILL: return put_prefill(c, ev, e);
	case RK_EV_TOKEN: return put_token(c, ev, e);
	case RK_EV_STEP: return put_step(c, ev, payload, e);
	case RK_EV_OCCUPANCY: return put_occupancy(c, ev, payload, e);
	default: return 0;
	}
}

int rk_export_chrome(rk_trace *t, FILE *f, rk_err *e)
{
	const rk_trace_header *h = rk_trace_head(t);
	rk_series s;
	rk_event ev;
	const void *payload;
	struct chrome c = { .f = f, .s = &s };
	json_t *other = json_pack("{s:s, s:o, s:s}", "run", h->run_id, "model", rk_json_text(h->model, strlen(h->model)),
	                          "started", h->started);
	char *head = other ? json_dumps(other, JSON_COMPACT) : NULL;

	json_decref(other);
	if (!head)
		return rk_fail(e, RK_ENOMEM, "no memory for the export");
	fprintf(f, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[", head);
	free(head);
	rk_series_init(&s, h);
	int rc = rk_series_load(&s, t, e) || rk_trace_seek(t, 0, e) || put_names(&c, e) ? -1 : 0;
	while (rc == 0 && (rc = rk_trace_next(t, &ev, &payload, e)) > 0)
		rc = put_event(&c, &ev, payload, e);
	fputs("\n]}\n", f);
	rk_series_free(&s);
	return rc;
}
