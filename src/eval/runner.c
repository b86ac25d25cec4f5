/* runner.c: see runner.h */
#include "eval/runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/stats.h"
#include "eval/garble.h"
#include "trace/digest.h"
#include "trace/json.h"

/* ---- prompts ---- */

struct prompt {
	char *text;		/* as the model sees it, the reply's prefix included */
	rk_stretch said[2];	/* see rk_chat_turn */
	int32_t *ids;
	int n, n_after;		/* tokens; those of them that come after the first selection */
};

static void prompt_free(struct prompt *p)
{
	free(p->text);
	free(p->ids);
}

/* Where the question starts in the formatted text; a template may have trimmed the message in front. */
static size_t question_at(const char *text, const char *message, size_t context)
{
	size_t blank = strspn(message, " \t\r\n");
	size_t probe = context > blank ? context - blank : 0;
	const char *at = memmem(text, strlen(text), message + blank, probe);

	return at ? (size_t)(at - text) + probe : 0;
}

/* Tokens of the text's bytes from..to. */
static int tokenize(const rk_engine *g, const struct prompt *p, size_t from, size_t to, int32_t **ids, size_t *n, rk_err *e)
{
	bool raw = rk_engine_chat(g)->kind == RK_CHAT_RAW;
	rk_stretch said[2];

	for (int i = 0; i < 2; i++) {	/* what is left of them behind `from`, counted from there */
		size_t at = p->said[i].at > from ? p->said[i].at : from, end = p->said[i].at + p->said[i].len;
		said[i] = (rk_stretch){ at - from, end > at ? end - at : 0 };
	}
	return rk_tokenize_said(rk_engine_tokenizer(g), p->text + from, to - from, RK_TOK_SPECIAL | (raw && !from ? RK_TOK_BOS : 0), said, 2, ids,
	                        n, e);
}

/* Tokens of text, in two pieces where the question comes after: no token may then reach over the seam. */
static int make_ids(const rk_engine *g, struct prompt *p, size_t seam, rk_err *e)
{
	size_t len = strlen(p->text), n, n_after = 0;
	int32_t *after = NULL;

	if (tokenize(g, p, 0, seam ? seam : len, &p->ids, &n, e) || (seam && tokenize(g, p, seam, len, &after, &n_after, e)))
		return -1;
	int32_t *all = realloc(p->ids, (n + n_after + 1) * sizeof *all);
	if (!all) {
		free(after);
		return rk_fail(e, RK_ENOMEM, "no memory for a prompt of %zu tokens", n + n_after);
	}
	if (n_after)
		memcpy(all + n, after, n_after * sizeof *all);
	free(after);
	p->ids = all;
	p->n = (int)(n + n_after);
	p->n_after = (int)n_after;
	return 0;
}

static int make_prompt(const rk_runner *r, const rk_example *x, struct prompt *p, rk_err *e)
{
	char *message = NULL, *text = NULL;
	int rc = -1;

	*p = (struct prompt){ 0 };
	if (asprintf(&message, "%s%s", x->context, x->question) < 0)
		return rk_fail(e, RK_ENOMEM, "no memory for a prompt");
	if (rk_engine_format(r->g, NULL, message, &text, p->said, NULL, NULL, e))
		goto out;
	if (asprintf(&p->text, "%s%s", text, x->prefix) < 0) {
		p->text = NULL;
		rk_fail(e, RK_ENOMEM, "no memory for a prompt");
		goto out;
	}
	size_t context = strlen(x->context);
	rc = make_ids(r->g, p, r->after && context ? question_at(p->text, message, context) : 0, e);
out:
	free(message);
	free(text);
	return rc;
}

int rk_runner_count(void *runner, const rk_example *x, rk_err *e)
{
	struct prompt p;
	int n = make_prompt(runner, x, &p, e) ? -1 : p.n;

	prompt_free(&p);
	return n;
}

/* ---- replies, gathered from the events ---- */

struct lane {
	FILE *out;		/* onto text */
	char *text;
	size_t size;
	float *nll;		/* [n] */
	size_t n, cap;
};

struct replies {
	rk_stats stats;
	struct lane lane[RK_MAX_LANE];
	bool stopped;
};

static void replies_free(struct replies *p)
{
	for (int i = 0; i < RK_MAX_LANE; i++) {
		if (p->lane[i].out)
			fclose(p->lane[i].out);
		free(p->lane[i].text);
		free(p->lane[i].nll);
	}
	rk_stats_free(&p->stats);
	free(p);
}

static int add_token(struct lane *l, const rk_event *ev, rk_err *e)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 256;
		float *more = realloc(l->nll, cap * sizeof *more);
		if (!more)
			return rk_fail(e, RK_ENOMEM, "no memory for the figures of %zu tokens", cap);
		l->nll = more;
		l->cap = cap;
	}
	l->nll[l->n++] = -ev->token.logprob;
	return 0;
}

static int take(struct replies *p, const rk_event *ev, const void *payload, rk_err *e)
{
	struct lane *l = ev->lane >= 0 && ev->lane < RK_MAX_LANE ? &p->lane[ev->lane] : NULL;

	if (rk_stats_add(&p->stats, ev, payload, e))
		return -1;
	if (ev->type == RK_EV_END && ev->end.reason == RK_END_STOPPED)
		p->stopped = true;
	if (!l || (ev->type != RK_EV_TOKEN && ev->type != RK_EV_END))
		return 0;
	if (!l->out && !(l->out = open_memstream(&l->text, &l->size)))
		return rk_fail(e, RK_ENOMEM, "no memory for a reply");
	fwrite(payload, 1, ev->size, l->out);
	return ev->type == RK_EV_TOKEN ? add_token(l, ev, e) : 0;
}

/* Reads events until the engine is idle.  After a failure of ours it is stopped, and its last events are dropped. */
static int gather(rk_engine *g, struct replies *p, rk_err *e)
{
	rk_event ev;
	const void *payload;
	int rc = 0;

	do {
		rk_event_next(rk_engine_events(g), &ev, &payload, -1);
		if (rc == 0 && ev.type == RK_EV_ERROR && ev.lane < 0) {
			rc = rk_fail(e, ev.error.code, "%.*s", (int)ev.size, (const char *)payload);
		} else if (rc == 0 && take(p, &ev, payload, e)) {
			rk_engine_stop(g);
			rc = -1;
		}
	} while (ev.type != RK_EV_IDLE);
	for (int i = 0; i < RK_MAX_LANE; i++)
		if (p->lane[i].out)
			fflush(p->lane[i].out);
	return rc ? rc : p->stopped;
}

/* ---- records ---- */

static const char *end_name(enum rk_end end)
{
	static const char *const name[] = {
		[RK_END_TOKEN] = "token", [RK_END_LENGTH] = "length", [RK_END_CONTEXT] = "context", [RK_END_STOPPED] = "stopped",
		[RK_END_FORCED] = "forced",
	};
	return name[end];
}

/* What a lane did and read, as sums, so that figures over many records can be made of them. */
static void put_cost(json_t *j, const rk_stats *s, int lane)
{
	const rk_lane_stats *l = &s->lane[lane];
	json_int_t full = 0;
	char hash[20];

	for (int i = 0; i < s->n_layer; i++)
		full += l->n_full[i];
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)l->logits_hash);
	json_object_set_new(j, "steps", json_integer(l->n_step));
	json_object_set_new(j, "layer_steps", json_integer((json_int_t)l->n_step * s->n_layer));
	json_object_set_new(j, "full_layer_steps", json_integer(full));
	json_object_set_new(j, "bytes_read", json_integer(l->bytes_full + l->bytes_partial + l->bytes_score));
	json_object_set_new(j, "bytes_vanilla", json_integer(l->bytes_vanilla));
	json_object_set_new(j, "logits_hash", json_string(hash));
}

static json_t *timing(const rk_engine *g, rk_stats *s)
{
	const rk_backend *b = rk_engine_backend(g);
	json_t *ms = json_array();

	for (int i = 0; i < s->n_lane; i++)
		json_array_append_new(ms, rk_json_real(rk_stats_ms_median(s, i)));
	return json_pack("{s:s, s:s, s:i, s:o, s:o}", "device", b->device, "isa", b->isa, "threads", b->n_thread,
	                 "prefill_ms", rk_json_real((double)s->ns_prefill * 1e-6), "ms_per_token", ms);
}

static json_t *reply_json(const struct replies *p, int lane, const rk_task *t, const rk_example *x)
{
	const struct lane *l = &p->lane[lane];
	const rk_lane_stats *s = &p->stats.lane[lane];
	const char *text = l->text ? l->text : "", *garbled = rk_garbled(text);
	json_t *detail = NULL;
	double score = t->score(x, text, &detail);
	json_t *j = json_pack("{s:s, s:o, s:o, s:i, s:s, s:s?, s:o}", "policy", s->spec, "score", rk_json_real(score),
	                      "reply", rk_json_text(text, strlen(text)), "tokens", s->n_token, "end", end_name(s->end),
	                      "garbled", garbled, "detail", detail ? detail : json_null());
	put_cost(j, &p->stats, lane);
	return j;
}

static json_t *window_json(const struct replies *p, int lane)
{
	const struct lane *l = &p->lane[lane];
	const rk_lane_stats *s = &p->stats.lane[lane];
	json_t *nll = json_array();

	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(nll, rk_trace_real(l->nll[i]));
	json_t *j = json_pack("{s:s, s:o, s:i, s:o, s:o}", "policy", s->spec, "nll", nll, "tokens", s->n_token,
	                      "kl", rk_json_real(s->n_kl ? s->kl / s->n_kl : (double)NAN),
	                      "same_top1", rk_json_real(s->n_kl ? (double)s->n_same_top1 / s->n_kl : (double)NAN));
	put_cost(j, &p->stats, lane);
	return j;
}

static json_t *answers(const rk_example *x)
{
	json_t *a = json_array();

	for (int i = 0; i < x->n_answer; i++)
		json_array_append_new(a, json_string(x->answer[i]));
	return a;
}

static struct replies *replies_new(rk_err *e)
{
	struct replies *p = calloc(1, sizeof *p);

	if (p)
		rk_stats_init(&p->stats);
	else
		rk_fail(e, RK_ENOMEM, "no memory for the replies");
	return p;
}

int rk_runner_example(rk_runner *r, const rk_task *t, const rk_example *x, json_t **record, rk_err *e)
{
	struct replies *p = replies_new(e);
	struct prompt q = { 0 };
	char sha[65];
	int rc = -1;

	if (!p || make_prompt(r, x, &q, e))
		goto out;
	if (q.n + x->max_new > rk_engine_n_ctx(r->g)) {
		rk_fail(e, RK_EFAIL, "%s: prompt and reply take %d tokens, the context holds %d", t->name, q.n + x->max_new,
		        rk_engine_n_ctx(r->g));
		goto out;
	}
	if (rk_engine_ask_parts(r->g, q.ids, q.n, q.n_after, x->max_new, RK_FOLLOW_NONE, e) || (rc = gather(r->g, p, e)))
		goto out;
	json_t *policies = json_array();
	for (int i = 0; i < p->stats.n_lane; i++)
		json_array_append_new(policies, reply_json(p, i, t, x));
	rk_digest(q.text, strlen(q.text), sha);
	*record = json_pack("{s:s, s:i, s:i, s:o, s:O?, s:o, s:o}", "prompt_sha256", sha, "prompt_tokens", q.n, "tokens_after", q.n_after,
	                    "answer", answers(x), "data", x->data, "policies", policies, "timing", timing(r->g, &p->stats));
	rc = *record ? 0 : rk_fail(e, RK_ENOMEM, "no memory for a record");
out:
	prompt_free(&q);
	if (p)
		replies_free(p);
	return rc;
}

int rk_runner_window(rk_runner *r, const int32_t *ids, int ctx, int eval, json_t **record, rk_err *e)
{
	struct replies *p = replies_new(e);
	char sha[65];
	int rc = -1;

	if (!p || rk_engine_ask_ids(r->g, ids, ctx, eval, RK_FOLLOW_TEXT, ids + ctx, eval, e) || (rc = gather(r->g, p, e)))
		goto out;
	json_t *policies = json_array();
	for (int i = 0; i < p->stats.n_lane; i++)
		json_array_append_new(policies, window_json(p, i));
	rk_digest(ids, (size_t)(ctx + eval) * sizeof *ids, sha);
	*record = json_pack("{s:s, s:i, s:o, s:o}", "prompt_sha256", sha, "prompt_tokens", ctx, "policies", policies,
	                    "timing", timing(r->g, &p->stats));
	rc = *record ? 0 : rk_fail(e, RK_ENOMEM, "no memory for a record");
out:
	if (p)
		replies_free(p);
	return rc;
}
