/* cmd_compare.c: `refreshkv compare`: one prompt, several policies side by side; where each leaves the first, and what
 * each read to get there.
 *
 * With --follow none every lane goes its own way and only cost can be compared; with first or text all lanes are fed the
 * same tokens, so that ratio and KL mean something, and a lane diverges where its own first choice is another token.
 */
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
	rk_opt_list policy;
	enum rk_follow follow;
	const char *text;
	bool json, quiet;
};

static const char *const follow_names[] = { "none", "first", "text", NULL };	/* in the order of enum rk_follow */

static const rk_opt rows[] = {
	{ "policy", 0, RK_OPT_LIST, offsetof(struct opts, policy), .metavar = "SPEC",
	  .doc = "a policy; repeat it.  Without it: vanilla and refreshkv; with one: vanilla and that one" },
	{ "follow", 0, RK_OPT_ENUM, offsetof(struct opts, follow), .def = "none", .names = follow_names,
	  .doc = "each policy takes its own tokens, those of the first, or those of --text" },
	{ "text", 0, RK_OPT_STR, offsetof(struct opts, text), .metavar = "FILE", .doc = "the continuation for --follow text" },
	{ "json", 0, RK_OPT_FLAG, offsetof(struct opts, json), .doc = "one JSON object instead of text and table" },
	{ "quiet", 'q', RK_OPT_FLAG, offsetof(struct opts, quiet), .doc = "no progress on stderr" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Prompt", rk_prompt_rows, offsetof(struct opts, prompt) },
	{ "Comparison", rows, 0 },
	{ "Sampling", rk_sampling_rows, offsetof(struct opts, sampling) },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ "Engine", rk_engine_rows, offsetof(struct opts, engine) },
	{ "Trace", rk_trace_rows, offsetof(struct opts, trace) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_compare_opt = {
	.name = "compare", .operands = "", .groups = groups, .more = rk_policy_help,
	.doc = "Answer a question under several policies side by side and show where they diverge.",
};

/* ---- output ---- */

/* First vanilla lane, or -1. */
static int baseline(const rk_session_cfg *s)
{
	for (int i = 0; i < s->n_lane; i++)
		if (s->lane[i].score == RK_SCORE_NONE)
			return i;
	return -1;
}

/* In free generation lanes have histories of their own, so a ratio would compare different texts. */
static double ratio(const rk_record *r, const struct opts *o, int lane, int base)
{
	return o->follow != RK_FOLLOW_NONE && base >= 0 ? rk_record_ratio(r, lane, base) : (double)NAN;
}

static void print_lane(const rk_record *r, const struct opts *o, const rk_tokenizer *t, int lane)
{
	const rk_lane_record *l = &r->lane[lane];
	char ours[120], theirs[120];
	printf("--- %d: %s\n", lane + 1, o->policy.v[lane]);
	if (o->follow == RK_FOLLOW_NONE || lane == 0) {	/* otherwise all texts are the same */
		rk_out_text(l->text, l->text_len);
		rk_out_end_line(l->text, l->text_len);
	}
	if (lane == 0)
		return;
	int64_t at = rk_record_divergence(&r->lane[0], &r->lane[lane]);
	if (at < 0)
		printf("(never leaves policy 1, over %zu tokens)\n", l->n_token);
	else
		printf("(leaves policy 1 at token %lld: %s instead of %s)\n", (long long)at,
		       rk_record_choice(l, (size_t)at, t, ours, sizeof ours), rk_record_choice(&r->lane[0], (size_t)at, t, theirs, sizeof theirs));
}

static int print_scores(rk_record *r, const struct opts *o, int base, rk_err *e)
{
	static const char *const title[] = { "policy", "tokens", "diverges", "ratio", "KL", "same top-1", "ms/token", "read/step",
	                                     "of vanilla", "eff. stride" };
	const int n_col = (int)(sizeof title / sizeof *title);
	rk_table t;
	char b[RK_NUM];
	rk_table_init(&t, n_col);
	for (int i = 0; i < n_col; i++)
		rk_table_add(&t, title[i]);
	for (int i = 0; i < o->policy.n; i++) {
		double read = rk_stats_bytes_per_step(&r->stats, i), same = rk_record_same_top1(r, i);
		double share = 100 * read / rk_record_bytes_vanilla(r, i);
		int64_t at = rk_record_divergence(&r->lane[0], &r->lane[i]);
		rk_table_add(&t, o->policy.v[i]);
		rk_table_add(&t, rk_num_count(b, (int64_t)r->lane[i].n_token));
		rk_table_add(&t, i == 0 || at < 0 ? "never" : rk_num_count(b, at));
		rk_table_add(&t, rk_num_real(b, ratio(r, o, i, base), 4));
		rk_table_add(&t, rk_num_real(b, rk_record_kl(r, i), 4));
		rk_num_real(b, 100 * same, 1);
		rk_table_add(&t, strcat(b, isnan(same) ? "" : " %"));
		rk_table_add(&t, rk_num_real(b, rk_stats_ms_median(&r->stats, i), 2));
		rk_table_add(&t, rk_num_bytes(b, read));
		rk_num_real(b, share, 1);
		rk_table_add(&t, strcat(b, isnan(share) ? "" : " %"));
		rk_table_add(&t, rk_num_real(b, rk_stats_stride(&r->stats, i), 1));
	}
	putchar('\n');
	int rc = rk_table_print(&t, stdout, e);
	rk_table_free(&t);
	return rc;
}

static json_t *lane_json(rk_record *r, const struct opts *o, int lane, int base)
{
	json_t *j = rk_record_lane_json(r, lane);
	int64_t at = rk_record_divergence(&r->lane[0], &r->lane[lane]);
	json_object_set_new(j, "spec", json_string(o->policy.v[lane]));
	json_object_set_new(j, "diverges_at", at < 0 ? json_null() : json_integer(at));
	json_object_set_new(j, "ratio", rk_json_real(ratio(r, o, lane, base)));
	return j;
}

static int print_json(rk_record *r, const struct opts *o, const rk_engine *g, int base, rk_err *e)
{
	const rk_model *m = rk_engine_model(g);
	const rk_backend *b = rk_engine_backend(g);
	json_t *lanes = json_array();
	for (int i = 0; i < o->policy.n; i++)
		json_array_append_new(lanes, lane_json(r, o, i, base));
	json_t *root = json_pack("{s:s, s:{s:o, s:s}, s:s, s:s, s:i, s:b, s:s, s:i, s:o}",
		"version", RK_VERSION,
		"model", "name", rk_json_text(m->name, strlen(m->name)), "file", rk_gguf_path(m->file),
		"device", b->device, "isa", b->isa, "threads", b->n_thread, "exact", b->exact,
		"follow", follow_names[o->follow], "prompt_tokens", r->stats.n_prompt, "lanes", lanes);
	int rc = rk_json_print(root, stdout, e);
	json_decref(root);
	return rc;
}

/* ---- the command ---- */

static int choose_policies(struct opts *o, rk_session_cfg *s, rk_err *e)
{
	if (o->policy.n == 0)
		o->policy.v[o->policy.n++] = "refreshkv";
	if (o->policy.n == 1) {
		o->policy.v[1] = o->policy.v[0];
		o->policy.v[0] = "vanilla";
		o->policy.n = 2;
	}
	return rk_cmd_lanes(s, &o->policy, e);
}

/* The forced tokens: of --text, at most -n of them. */
static int read_forced(const struct opts *o, const rk_engine *g, int32_t **ids, size_t *n, rk_err *e)
{
	char *text;
	size_t len;
	*ids = NULL;
	*n = 0;
	if (o->follow != RK_FOLLOW_TEXT)
		return 0;
	if (rk_doc_read(o->text, o->prompt.lossy, &text, &len, e))
		return -1;
	int rc = rk_tokenize(rk_engine_tokenizer(g), text, len, 0, ids, n, e);
	free(text);
	if (rc == 0 && *n > (size_t)o->sampling.n_new)
		*n = (size_t)o->sampling.n_new;
	return rc;
}

static int ask(rk_engine *g, const rk_engine_cfg *cfg, const rk_prompt *p, const struct opts *o, rk_recorder **trace, rk_err *e)
{
	int32_t *ids = NULL, *forced = NULL;
	char *text = NULL;
	size_t n, n_forced;
	int rc = -1;
	if (rk_prompt_format(p, g, &text, &ids, &n, e) || read_forced(o, g, &forced, &n_forced, e) ||
	    rk_trace_opts_open(trace, &o->trace, g, cfg, "compare", o->follow, p->document_sha256, ids, n, e))
		goto out;
	int n_new = o->follow == RK_FOLLOW_TEXT ? (int)n_forced : o->sampling.n_new;
	rc = rk_engine_ask_ids(g, ids, (int)n, n_new, o->follow, forced, (int)n_forced, e);
out:
	free(text);
	free(ids);
	free(forced);
	return rc;
}

static int compare(rk_engine *g, const rk_engine_cfg *cfg, const rk_prompt *p, const struct opts *o, int base, rk_err *e)
{
	rk_record r;
	rk_recorder *trace = NULL;
	rk_record_init(&r);
	rk_cmd_catch_interrupt(g);
	int rc = ask(g, cfg, p, o, &trace, e);
	if (rc == 0)
		rc = rk_cmd_follow(g, &r, trace, o->quiet ? RK_TELL_NOTHING : RK_TELL_REPLY, NULL, NULL, e);
	rk_cmd_release_interrupt();
	rk_trace_opts_close(trace);
	if (rc == 0 && o->json) {
		rc = print_json(&r, o, g, base, e);
	} else if (rc == 0) {
		for (int i = 0; i < o->policy.n; i++)
			print_lane(&r, o, rk_engine_tokenizer(g), i);
		rc = print_scores(&r, o, base, e);
	}
	if (rc == 0)
		rc = rk_out_flush(stdout, "standard output", e);
	if (rc == 0 && rk_cmd_interrupted())
		rc = RK_EXIT_INTERRUPTED;
	rk_record_free(&r);
	return rc;
}

int rk_cmd_compare(int argc, char **argv, rk_err *e)
{
	struct opts o;
	switch (rk_opt_parse(&rk_cmd_compare_opt, argc, argv, &o, NULL, e)) {
	case 1: rk_opt_help(&rk_cmd_compare_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	if ((o.follow == RK_FOLLOW_TEXT) != (o.text != NULL))
		return rk_fail(e, RK_EUSAGE, "--follow text and --text FILE go together");
	char buf[RK_PATH_MAX];
	const char *path;
	rk_engine_cfg cfg;
	rk_engine *g = NULL;
	rk_prompt p = { 0 };
	int rc = -1;
	if (rk_cmd_model_path(o.model.model, buf, &path, e))
		return -1;
	rk_cmd_engine_cfg(&cfg, path, &o.model, &o.engine, &o.sampling);
	cfg.raw = o.prompt.raw;
	cfg.one_turn = true;
	cfg.session.n_ctx = o.prompt.ctx;
	if (rk_trace_opts_apply(&o.trace, &cfg.session, e) || choose_policies(&o, &cfg.session, e) ||
	    rk_prompt_read(&p, &o.prompt, e) || rk_engine_open(&g, &cfg, e))
		goto out;
	rc = compare(g, &cfg, &p, &o, baseline(&cfg.session), e);
out:
	rk_engine_close(g);
	rk_prompt_free(&p);
	return rc;
}
