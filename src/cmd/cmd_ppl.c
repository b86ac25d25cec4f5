/* cmd_ppl.c: `refreshkv ppl`: how well each policy predicts a text, teacher-forced, all of them as lanes of one run.
 *
 * A window is ctx tokens of prompt and eval tokens that are scored; every lane is fed the same tokens, so that the ratios
 * compare like with like.  eval/text.h says what a window starts with; ids that are given with --ids are used as they are.
 */
#include "cmd/cmd.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/doc.h"
#include "cmd/figures.h"
#include "cmd/out.h"
#include "eval/text.h"
#include "trace/digest.h"

struct opts {
	const char *file, *ids, *offset;
	int ctx, eval;
	bool lossy;
	rk_opt_list policy;
	rk_result_opts result;
	rk_model_opts model;
	rk_engine_opts engine;
	rk_trace_opts trace;
};

static const rk_opt rows[] = {
	{ "file", 'f', RK_OPT_STR, offsetof(struct opts, file), .metavar = "TEXT", .doc = "the text; -: standard input" },
	{ "ids", 0, RK_OPT_STR, offsetof(struct opts, ids), .metavar = "FILE",
	  .doc = "token ids (blanks between them, or a JSON array) instead of a text" },
	{ "ctx", 'c', RK_OPT_INT, offsetof(struct opts, ctx), .def = "4096", .min = 1, .max = 1 << 24, .metavar = "TOKENS",
	  .doc = "tokens of the prompt of a window" },
	{ "eval", 0, RK_OPT_INT, offsetof(struct opts, eval), .def = "256", .min = 1, .max = 1 << 20, .metavar = "TOKENS",
	  .doc = "tokens that are scored after it" },
	{ "offset", 0, RK_OPT_STR, offsetof(struct opts, offset), .def = "0", .metavar = "N[,N...]",
	  .doc = "token at which each window starts" },
	{ "policy", 0, RK_OPT_LIST, offsetof(struct opts, policy), .metavar = "SPEC",
	  .doc = "a policy.  Without it: those of the RefreshKV paper.  vanilla is added where it is missing, as the baseline" },
	{ "lossy", 0, RK_OPT_FLAG, offsetof(struct opts, lossy), .doc = "replace invalid UTF-8 and NUL bytes by U+FFFD" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Measurement", rows, 0 },
	{ "Results", rk_result_rows, offsetof(struct opts, result) },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ "Engine", rk_engine_rows, offsetof(struct opts, engine) },
	{ "Trace", rk_trace_rows, offsetof(struct opts, trace) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_ppl_opt = {
	.name = "ppl", .operands = "", .groups = groups, .more = rk_policy_help,
	.doc = "Measure the perplexity of policies on a text, against vanilla and on the same tokens.",
};

/* ---- set-up ---- */

struct ppl {
	struct opts o;
	int base;			/* lane of the first vanilla policy */
	bool base_added;
	rk_engine *g;
	rk_recorder *trace;
	char document_sha256[65];
	rk_text text;			/* bos -1 also where ids were given */
	int offset[RK_OPT_LIST_MAX];
	int n_offset;
	rk_sums total[RK_MAX_LANE];
	json_t *windows;
	rk_results out;
};

/* The policies of RefreshKV's table 1 and of its ablations (tables 3 and 4): as many as one run holds. */
static const rk_opt_list paper = { .n = 8, .v = { "vanilla", "streamingllm", "h2o", "snapkv", "refreshkv", "refreshkv-fixed",
                                                  "refreshkv-norefresh", "refreshkv-nofull" } };

/* Policies given or those of the paper; a vanilla one in front where there is none. */
static int choose_policies(struct ppl *p, rk_session_cfg *s, rk_err *e)
{
	rk_opt_list *list = &p->o.policy;
	if (list->n == 0)
		*list = paper;
	for (int i = 0; i < list->n; i++)
		for (int j = 0; j < i; j++)
			if (!strcmp(list->v[i], list->v[j]))
				return rk_fail(e, RK_EUSAGE, "--policy %.160s is given twice", list->v[i]);
	if (rk_cmd_lanes(s, list, e))
		return -1;
	for (p->base = 0; p->base < s->n_lane && s->lane[p->base].score != RK_SCORE_NONE; p->base++)
		;
	if (p->base < s->n_lane)
		return 0;
	if (list->n == RK_MAX_LANE)
		return rk_fail(e, RK_EUSAGE, "--policy: %d policies and the baseline vanilla, the limit of one run is %d", list->n,
		               RK_MAX_LANE);
	memmove(list->v + 1, list->v, (size_t)list->n++ * sizeof *list->v);
	list->v[0] = "vanilla";
	p->base = 0;
	p->base_added = true;
	return rk_cmd_lanes(s, list, e);
}

static int read_ids(struct ppl *p, rk_err *e)
{
	char *data;
	size_t len;
	p->text = (rk_text){ .name = p->o.ids, .bos = -1 };
	if (rk_doc_read_bytes(p->o.ids, &data, &len, e))
		return -1;
	int rc = rk_ids_parse(p->o.ids, data, len, &p->text.ids, &p->text.n, e);
	free(data);
	return rc ? rc : rk_ids_check(p->o.ids, p->text.ids, p->text.n, rk_tokenizer_n_vocab(rk_engine_tokenizer(p->g)), e);
}

static int read_tokens(struct ppl *p, rk_err *e)
{
	char *text;
	size_t len;
	if (p->o.ids)
		return read_ids(p, e);
	if (rk_doc_read(p->o.file, p->o.lossy, &text, &len, e))
		return -1;
	rk_digest(text, len, p->document_sha256);
	int rc = rk_text_init(&p->text, p->o.file, rk_engine_tokenizer(p->g), text, len, e);
	free(text);
	return rc;
}

static int check_windows(const struct ppl *p, rk_err *e)
{
	for (int i = 0; i < p->n_offset; i++)
		if (rk_text_check(&p->text, (size_t)p->offset[i], p->o.ctx, p->o.eval, e))
			return -1;
	return 0;
}

/* ---- output ---- */

static void table_header(rk_table *t)
{
	static const char *const title[] = { "policy", "ppl", "ratio", "KL", "same top-1", "ms/token", "read/step", "of vanilla",
	                                     "eff. stride" };
	rk_table_init(t, (int)(sizeof title / sizeof *title));
	for (size_t i = 0; i < sizeof title / sizeof *title; i++)
		rk_table_add(t, title[i]);
}

static void table_row(rk_table *t, const char *spec, const rk_figures *f)
{
	char b[RK_NUM];
	double share = 100 * f->bytes / f->bytes_vanilla;
	rk_table_add(t, spec);
	rk_table_add(t, rk_num_real(b, f->ppl, 3));
	rk_table_add(t, rk_num_real(b, f->ratio, 4));
	rk_table_add(t, rk_num_real(b, f->kl, 4));
	rk_num_real(b, 100 * f->same_top1, 1);
	rk_table_add(t, strcat(b, isnan(f->same_top1) ? "" : " %"));
	rk_table_add(t, rk_num_real(b, f->ms, 2));
	rk_table_add(t, rk_num_bytes(b, f->bytes));
	rk_num_real(b, share, 1);
	rk_table_add(t, strcat(b, isnan(share) ? "" : " %"));
	rk_table_add(t, rk_num_real(b, f->stride, 1));
}

static void csv_real(FILE *f, double v)
{
	fputc(',', f);
	if (isfinite(v))
		fprintf(f, "%.9g", v);
}

static void csv_row(struct ppl *p, size_t offset, const char *spec, const rk_figures *f)
{
	FILE *out = p->out.csv.f;
	fprintf(out, "%zu,%d,%d,\"", offset, p->o.ctx, p->o.eval);
	for (const char *s = spec; *s; s++)
		fputs(*s == '"' ? "\"\"" : (char[]){ *s, '\0' }, out);
	fputc('"', out);
	csv_real(out, f->ppl);
	csv_real(out, f->ratio);
	csv_real(out, f->kl);
	csv_real(out, f->same_top1);
	csv_real(out, f->ms);
	csv_real(out, f->bytes);
	csv_real(out, f->bytes_vanilla);
	csv_real(out, f->stride);
	fputc('\n', out);
}

static json_t *figures_json(const rk_figures *f)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"ppl", rk_json_real(f->ppl), "ratio", rk_json_real(f->ratio), "kl", rk_json_real(f->kl),
		"same_top1", rk_json_real(f->same_top1), "ms_per_token", rk_json_real(f->ms),
		"bytes_read_per_step", rk_json_real(f->bytes), "bytes_vanilla_per_step", rk_json_real(f->bytes_vanilla),
		"effective_stride", rk_json_real(f->stride));
}

static json_t *lane_json(const rk_record *r, int lane, const rk_figures *f)
{
	json_t *j = figures_json(f);
	json_object_set_new(j, "spec", json_string(r->stats.lane[lane].spec));
	json_object_set_new(j, "nll", rk_record_nll_json(r, lane));
	json_object_set_new(j, "full_layers_per_step", rk_record_full_layers_json(r, lane));
	json_object_set_new(j, "cos", rk_record_cos_json(r, lane));
	return j;
}

static json_t *report_json(struct ppl *p)
{
	const rk_model *m = rk_engine_model(p->g);
	const rk_backend *b = rk_engine_backend(p->g);
	json_t *summary = json_object();
	for (int i = 0; i < p->o.policy.n; i++) {
		rk_figures f = rk_sums_figures(&p->total[i], &p->total[p->base]);
		json_object_set_new(summary, p->o.policy.v[i], figures_json(&f));
	}
	return json_pack("{s:s, s:{s:o, s:s}, s:s, s:s, s:i, s:b, s:s, s:s, s:I, s:o, s:O, s:o}",
		"version", RK_VERSION,
		"model", "name", rk_json_text(m->name, strlen(m->name)), "file", rk_gguf_path(m->file),
		"device", b->device, "isa", b->isa, "threads", b->n_thread, "exact", b->exact,
		"text", p->o.ids ? p->o.ids : p->o.file, "baseline", p->o.policy.v[p->base],
		"text_tokens", (json_int_t)p->text.n, "bos", p->text.bos < 0 ? json_null() : json_integer(p->text.bos),
		"windows", p->windows, "summary", summary);
}

/* ---- the measurement ---- */

static int report_window(struct ppl *p, size_t offset, const rk_record *r, rk_err *e)
{
	rk_sums s[RK_MAX_LANE] = { 0 };
	json_t *policies = json_object();
	rk_table t;
	int rc = 0;
	table_header(&t);
	for (int i = 0; i < p->o.policy.n && rc == 0; i++)
		if (rk_sums_add(&s[i], &r->stats, i, e) || rk_sums_add(&p->total[i], &r->stats, i, e))
			rc = -1;
	for (int i = 0; i < p->o.policy.n && rc == 0; i++) {
		rk_figures f = rk_sums_figures(&s[i], &s[p->base]);
		table_row(&t, p->o.policy.v[i], &f);
		if (p->out.csv.f)
			csv_row(p, offset, p->o.policy.v[i], &f);
		json_object_set_new(policies, p->o.policy.v[i], lane_json(r, i, &f));
	}
	json_array_append_new(p->windows, json_pack("{s:I, s:i, s:i, s:o, s:o}", "offset", (json_int_t)offset, "ctx", p->o.ctx,
		"eval", p->o.eval, "prefill_top10", rk_record_top_json(r, p->base), "policies", policies));
	if (rc == 0) {
		fprintf(p->out.table, "\nwindow at token %zu: %d tokens of prompt, %d scored\n", offset, p->o.ctx, p->o.eval);
		rc = rk_table_print(&t, p->out.table, e);
		fflush(p->out.table);
	}
	rk_table_free(&t);
	for (int i = 0; i < RK_MAX_LANE; i++)
		rk_sums_free(&s[i]);
	return rc;
}

/* 1 when interrupted: a window that was not scored to its end is not reported. */
static int run_window(struct ppl *p, size_t offset, rk_err *e)
{
	int32_t *ids;
	rk_record r;
	if (rk_text_window(&p->text, offset, p->o.ctx, p->o.eval, &ids, e))
		return -1;
	rk_record_init(&r);
	int rc = rk_engine_ask_ids(p->g, ids, p->o.ctx, p->o.eval, RK_FOLLOW_TEXT, ids + p->o.ctx, p->o.eval, e);
	free(ids);
	if (rc == 0)
		rc = rk_cmd_follow(p->g, &r, p->trace, p->o.result.quiet ? RK_TELL_NOTHING : RK_TELL_PROGRESS, NULL, NULL, e);
	if (rc == 0)
		rc = rk_cmd_interrupted() ? 1 : report_window(p, offset, &r, e);
	rk_record_free(&r);
	return rc;
}

static int print_summary(struct ppl *p, rk_err *e)
{
	rk_table t;
	table_header(&t);
	for (int i = 0; i < p->o.policy.n; i++) {
		rk_figures f = rk_sums_figures(&p->total[i], &p->total[p->base]);
		table_row(&t, p->o.policy.v[i], &f);
	}
	fprintf(p->out.table, "\nall %d windows\n", p->n_offset);
	int rc = rk_table_print(&t, p->out.table, e);
	rk_table_free(&t);
	return rc;
}

static void print_convention(const struct ppl *p)
{
	fprintf(p->out.table, "\nTeacher-forced; ratio and KL (nats) against %s on the same tokens%s.  %s.\n"
	        "ms/token: median step, the work that the %d lanes share and this lane's own attention.\n", p->o.policy.v[p->base],
	        p->base_added ? " (added as the baseline)" : "",
	        p->o.ids ? "Ids as given" : p->text.bos < 0 ? "No BOS; special tokens are text" :
	        "BOS in place of each window's first token; special tokens are text", p->o.policy.n);
}

static int measure(struct ppl *p, rk_err *e)
{
	if (p->out.csv.f)
		fprintf(p->out.csv.f, "offset,ctx,eval,policy,ppl,ratio,kl,same_top1,ms_per_token,bytes_read_per_step,bytes_vanilla_per_step,"
		        "effective_stride\n");
	rk_cmd_catch_interrupt(p->g);
	int rc = 0;
	for (int i = 0; i < p->n_offset && rc == 0; i++)
		rc = run_window(p, (size_t)p->offset[i], e);
	rk_cmd_release_interrupt();
	if (rc)
		return rc < 0 ? -1 : RK_EXIT_INTERRUPTED;
	if (p->n_offset > 1 && print_summary(p, e))
		return -1;
	print_convention(p);
	if (p->out.json.f) {
		json_t *report = report_json(p);
		rc = rk_json_print(report, p->out.json.f, e);
		json_decref(report);
		if (rc)
			return -1;
	}
	return rk_results_commit(&p->out, e);
}

int rk_cmd_ppl(int argc, char **argv, rk_err *e)
{
	struct ppl p = { .windows = json_array() };
	char buf[RK_PATH_MAX];
	const char *path;
	rk_engine_cfg cfg;
	int rc = -1;
	switch (rk_opt_parse(&rk_cmd_ppl_opt, argc, argv, &p.o, NULL, e)) {
	case 1: rk_opt_help(&rk_cmd_ppl_opt, stdout); rc = rk_out_flush(stdout, "standard output", e); goto out;
	case -1: goto out;
	}
	if (!p.o.file == !p.o.ids) {
		rk_fail(e, RK_EUSAGE, p.o.file ? "-f and --ids exclude each other" : "no text: give a file with -f, or token ids with --ids");
		goto out;
	}
	if (rk_trace_opts_no_prompt(&p.o.trace, "ppl", e) ||
	    rk_cmd_numbers("--offset", p.o.offset, 0, INT_MAX, p.offset, RK_OPT_LIST_MAX, &p.n_offset, e) ||
	    rk_cmd_model_path(p.o.model.model, buf, &path, e))
		goto out;
	rk_cmd_engine_cfg(&cfg, path, &p.o.model, &p.o.engine, NULL);
	cfg.raw = true;	/* no chat template is needed, so none need be recognised */
	cfg.one_turn = true;
	cfg.session.n_ctx = p.o.ctx + p.o.eval;
	if (rk_trace_opts_apply(&p.o.trace, &cfg.session, e) || choose_policies(&p, &cfg.session, e) || rk_results_open(&p.out, p.o.result.json, p.o.result.csv, e) ||
	    rk_engine_open(&p.g, &cfg, e) || read_tokens(&p, e) || check_windows(&p, e) ||
	    rk_trace_opts_open(&p.trace, &p.o.trace, p.g, &cfg, "ppl", RK_FOLLOW_TEXT, p.document_sha256, NULL, 0, e))
		goto out;
	rc = measure(&p, e);
out:
	rk_trace_opts_close(p.trace);
	rk_results_discard(&p.out);
	rk_engine_close(p.g);
	for (int i = 0; i < RK_MAX_LANE; i++)
		rk_sums_free(&p.total[i]);
	json_decref(p.windows);
	rk_text_free(&p.text);
	return rc;
}
