/* cmd_run.c: `refreshkv run`: answers one question, usually about a document; the answer on stdout, figures on stderr. */
#include "cmd/cmd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/doc.h"
#include "cmd/out.h"

struct opts {
	rk_prompt_opts prompt;
	rk_sampling_opts sampling;
	rk_model_opts model;
	rk_engine_opts engine;
	rk_trace_opts trace;
	const char *policy;
	bool json, quiet, show_prompt;
};

static const rk_opt rows[] = {
	{ "policy", 0, RK_OPT_STR, offsetof(struct opts, policy), .def = "refreshkv", .metavar = "SPEC",
	  .doc = "KV-cache policy: a preset or a YAML file, and parameters after a colon" },
	{ "json", 0, RK_OPT_FLAG, offsetof(struct opts, json),
	  .doc = "one JSON object with text, ids, decisions and figures instead of the streamed text" },
	{ "quiet", 'q', RK_OPT_FLAG, offsetof(struct opts, quiet), .doc = "no progress and no figures on stderr" },
	{ "show-prompt", 0, RK_OPT_FLAG, offsetof(struct opts, show_prompt),
	  .doc = "print the formatted prompt and, on the last line, its token ids; answer nothing" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Prompt", rk_prompt_rows, offsetof(struct opts, prompt) },
	{ "Answer", rows, 0 },
	{ "Sampling", rk_sampling_rows, offsetof(struct opts, sampling) },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ "Engine", rk_engine_rows, offsetof(struct opts, engine) },
	{ "Trace", rk_trace_rows, offsetof(struct opts, trace) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_run_opt = {
	.name = "run", .operands = "", .groups = groups, .more = rk_policy_help,
	.doc = "Answer a question, usually about a document given with -f or on standard input.",
};

/* ---- output ---- */

/* Text goes out as it comes. */
static int stream_text(void *ctx, const rk_event *ev, const char *payload)
{
	if ((ev->type != RK_EV_TOKEN && ev->type != RK_EV_END) || ev->size == 0)
		return 0;
	rk_out_text(payload, ev->size);
	return rk_out_flush(stdout, "standard output", ctx);
}

static json_t *prefill_json(const rk_stats *s)
{
	double seconds = (double)s->ns_prefill / 1e9;
	return json_pack("{s:i, s:o, s:o}", "tokens", s->n_prefill, "seconds", rk_json_real(seconds),
	                 "tok_per_s", rk_json_real(s->ns_prefill ? s->n_prefill / seconds : (double)NAN));
}

static int print_json(rk_record *r, const rk_engine *g, rk_err *e)
{
	const rk_model *m = rk_engine_model(g);
	const rk_backend *b = rk_engine_backend(g);
	json_t *root = json_pack("{s:s, s:{s:o, s:s}, s:s, s:s, s:i, s:b, s:i, s:o, s:o, s:{s:I, s:I}, s:I}",
		"version", RK_VERSION,
		"model", "name", rk_json_text(m->name, strlen(m->name)), "file", rk_gguf_path(m->file),
		"device", b->device, "isa", b->isa, "threads", b->n_thread, "exact", b->exact,
		"prompt_tokens", r->stats.n_prompt,
		"prefill", prefill_json(&r->stats),
		"prefill_top10", rk_record_top_json(r, 0),
		"cache_bytes", "full", (json_int_t)r->stats.cache_full, "partial", (json_int_t)r->stats.cache_partial,
		"peak_rss_bytes", (json_int_t)rk_cmd_peak_rss());
	json_t *lane = rk_record_lane_json(r, 0);
	if (root && (!lane || json_object_update(root, lane))) {
		json_decref(root);
		root = NULL;
	}
	json_decref(lane);
	int rc = rk_json_print(root, stdout, e);
	json_decref(root);
	return rc ? -1 : rk_out_flush(stdout, "standard output", e);
}

/* 0: a trace has lost what would say so. */
static const char *known_count(char buf[RK_NUM], int64_t n)
{
	return n ? rk_num_count(buf, n) : "n/a";
}

void rk_cmd_print_figures(rk_record *r, int lane)
{
	rk_stats *s = &r->stats;
	const rk_lane_stats *l = &s->lane[lane];
	char a[RK_NUM], b[RK_NUM], c[RK_NUM];
	rk_policy pol;
	double seconds = s->n_prefill ? (double)s->ns_prefill / 1e9 : (double)NAN, ms = rk_stats_ms_median(s, lane);
	double read = rk_stats_bytes_per_step(s, lane), vanilla = rk_record_bytes_vanilla(r, lane);
	fprintf(stderr, "\n%-17s %s tokens, prefilled in %s s at %s tok/s\n", "prompt", known_count(a, s->n_prompt),
	        rk_num_real(b, seconds, 2), rk_num_real(c, seconds > 0 ? s->n_prefill / seconds : (double)NAN, 0));
	fprintf(stderr, "%-17s %s tokens, %s ms/token (median); ended by: %s\n", "reply", rk_num_count(a, l->n_token),
	        rk_num_real(b, ms, 2), rk_record_end_name(l));
	fprintf(stderr, "%-17s %s\n", "policy", l->spec);
	if (s->n_prompt && rk_policy_parse(&pol, l->spec, NULL) == 0 && pol.score != RK_SCORE_NONE)
		fprintf(stderr, "%-17s keeps %s of the prompt's %s tokens in each layer and KV head\n", "",
		        rk_num_count(a, rk_policy_budget(&pol, s->n_prompt)), rk_num_count(b, s->n_prompt));
	fprintf(stderr, "%-17s %s per step, %s %% of vanilla's %s\n", "cache read", rk_num_bytes(a, read),
	        rk_num_real(b, 100 * read / vanilla, 1), rk_num_bytes(c, vanilla));
	fprintf(stderr, "%-17s %s steps per full step, mean over layers\n", "effective stride",
	        rk_num_real(a, rk_stats_stride(s, lane), 1));
	fprintf(stderr, "%-17s full %s, partial %s\n", "cache held", rk_num_bytes(a, s->n_prompt ? (double)s->cache_full : (double)NAN),
	        rk_num_bytes(b, s->n_prompt ? (double)s->cache_partial : (double)NAN));
	fprintf(stderr, "%-17s %016llx\n", "logits hash", (unsigned long long)l->logits_hash);
}

static int show_prompt(const rk_prompt *p, const rk_engine *g, bool json, rk_err *e)
{
	char *text = NULL;
	int32_t *ids = NULL;
	size_t n;
	int rc = 0;
	if (rk_prompt_format(p, g, &text, &ids, &n, e))
		return -1;
	if (json) {
		json_t *list = json_array();
		for (size_t i = 0; i < n; i++)
			json_array_append_new(list, json_integer(ids[i]));
		json_t *root = json_pack("{s:o, s:o}", "text", text ? rk_json_text(text, strlen(text)) : json_null(), "ids", list);
		rc = rk_json_print(root, stdout, e);
		json_decref(root);
	} else {
		if (text)
			puts(text);
		for (size_t i = 0; i < n; i++)
			printf(i ? " %d" : "%d", ids[i]);
		putchar('\n');
	}
	free(text);
	free(ids);
	return rc ? -1 : rk_out_flush(stdout, "standard output", e);
}

/* ---- the command ---- */

/* Text goes to the engine as a turn, ids as they are. */
static int ask(rk_engine *g, const rk_prompt *p, int n_new, rk_err *e)
{
	if (p->text)
		return rk_engine_ask(g, p->system, p->text, n_new, RK_FOLLOW_NONE, e);
	if (rk_ids_check("--ids", p->ids, p->n, rk_tokenizer_n_vocab(rk_engine_tokenizer(g)), e))
		return -1;
	return rk_engine_ask_ids(g, p->ids, (int)p->n, n_new, RK_FOLLOW_NONE, NULL, 0, e);
}

/* The prompt's ids are worked out once more for the trace: cheap beside its prefill. */
static int start_trace(rk_recorder **r, rk_engine *g, const rk_engine_cfg *cfg, const rk_prompt *p, const struct opts *o,
                       rk_err *e)
{
	char *text = NULL;
	int32_t *ids = NULL;
	size_t n;
	*r = NULL;
	if (!o->trace.path)
		return 0;
	int rc = rk_prompt_format(p, g, &text, &ids, &n, e);
	if (rc == 0)
		rc = rk_trace_opts_open(r, &o->trace, g, cfg, "run", RK_FOLLOW_NONE, p->document_sha256, ids, n, e);
	free(text);
	free(ids);
	return rc;
}

static int answer(rk_engine *g, const rk_engine_cfg *cfg, const rk_prompt *p, const struct opts *o, rk_err *e)
{
	rk_recorder *trace;
	if (start_trace(&trace, g, cfg, p, o, e))
		return -1;
	rk_record r;
	rk_record_init(&r);
	rk_cmd_catch_interrupt(g);
	int rc = ask(g, p, o->sampling.n_new, e);
	if (rc == 0)
		rc = rk_cmd_follow(g, &r, trace, o->quiet ? RK_TELL_NOTHING : RK_TELL_REPLY, o->json ? NULL : stream_text, e, e);
	rk_cmd_release_interrupt();
	rk_trace_opts_close(trace);
	if (!o->json) {		/* an error must start on its own line, too, and be told before one of the output */
		rk_err other;
		rk_out_end_line(r.lane[0].text, r.lane[0].text_len);
		if (rk_out_flush(stdout, "standard output", rc ? &other : e))
			rc = -1;
	}
	if (rc)
		goto out;
	if (o->json)
		rc = print_json(&r, g, e);
	if (rc == 0 && !o->quiet) {
		char peak[RK_NUM];
		rk_cmd_print_figures(&r, 0);
		fprintf(stderr, "%-17s %s\n", "peak memory", rk_num_bytes(peak, (double)rk_cmd_peak_rss()));
	}
	if (rc == 0 && rk_cmd_interrupted())
		rc = RK_EXIT_INTERRUPTED;
out:
	rk_record_free(&r);
	return rc;
}

int rk_cmd_run(int argc, char **argv, rk_err *e)
{
	struct opts o;
	switch (rk_opt_parse(&rk_cmd_run_opt, argc, argv, &o, NULL, e)) {
	case 1: rk_opt_help(&rk_cmd_run_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	char buf[RK_PATH_MAX];
	const char *path;
	rk_engine_cfg cfg;
	rk_engine *g = NULL;
	rk_prompt p = { 0 };
	rk_opt_list policy = { .n = 1, .v = { o.policy } };
	int rc = -1;
	/* What is cheap to check comes before the model is opened. */
	if (rk_cmd_model_path(o.model.model, buf, &path, e))
		return -1;
	rk_cmd_engine_cfg(&cfg, path, &o.model, &o.engine, &o.sampling);
	cfg.raw = o.prompt.raw;
	cfg.one_turn = true;
	cfg.session.n_ctx = o.prompt.ctx;
	if (rk_trace_opts_apply(&o.trace, &cfg.session, e) || rk_cmd_lanes(&cfg.session, &policy, e) ||
	    rk_prompt_read(&p, &o.prompt, e) || rk_engine_open(&g, &cfg, e))
		goto out;
	rc = o.show_prompt ? show_prompt(&p, g, o.json, e) : answer(g, &cfg, &p, &o, e);
out:
	rk_engine_close(g);
	rk_prompt_free(&p);
	return rc;
}
