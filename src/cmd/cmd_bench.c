/* cmd_bench.c: `refreshkv bench`: how fast prefill and decoding are at several context lengths, per policy, held against
 * what the machine can do.
 *
 * The prompt is the handbook, repeated to the length asked for, and the lanes are forced to follow its continuation, so
 * that runs are the same everywhere.  Every policy runs alone, one after the other, round by round; with --lanes all run together.
 */
#include "cmd/cmd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/embedded.h"
#include "cmd/machine.h"
#include "cmd/out.h"

#define MAX_CTX 16
#define MAX_ROW (MAX_CTX * RK_MAX_LANE)

struct opts {
	const char *ctx;
	int steps, rounds;
	bool lanes, shadow;
	rk_opt_list policy;
	rk_result_opts result;
	rk_model_opts model;
	rk_engine_opts engine;
};

static const rk_opt rows[] = {
	{ "ctx", 'c', RK_OPT_STR, offsetof(struct opts, ctx), .def = "128,1024,4096,8000", .metavar = "N[,N...]", .doc = "prompt lengths in tokens" },
	{ "policy", 0, RK_OPT_LIST, offsetof(struct opts, policy), .metavar = "SPEC", .doc = "a policy.  Without it: vanilla and refreshkv:qc=10" },
	{ "steps", 'n', RK_OPT_INT, offsetof(struct opts, steps), .def = "64", .min = 2, .max = 1 << 20, .doc = "decode steps of each run" },
	{ "rounds", 0, RK_OPT_INT, offsetof(struct opts, rounds), .def = "1", .min = 1, .max = 100,
	  .doc = "how often each run is repeated, in turn with the others; figures are medians over all of them" },
	{ "lanes", 0, RK_OPT_FLAG, offsetof(struct opts, lanes), .doc = "all policies as lanes of one run instead of one by one" },
	{ "shadow", 0, RK_OPT_FLAG, offsetof(struct opts, shadow), .doc = "with the vanilla shadow that gives the perplexity ratio" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Measurement", rows, 0 },
	{ "Results", rk_result_rows, offsetof(struct opts, result) },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ "Engine", rk_engine_rows, offsetof(struct opts, engine) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_bench_opt = {
	.name = "bench", .operands = "", .groups = groups, .more = rk_policy_help,
	.doc = "Measure prefill and decode speed at several context lengths, against this machine's limits.",
};

/* A growing list of readings. */
struct sample {
	double *v;
	size_t n, cap;
};

/* One line of the table: a context length and a policy, over all rounds. */
struct row {
	int ctx;
	const char *policy;
	struct sample prefill, step, full, partial, shadow;	/* tok/s; ms */
	double bytes_weights, bytes_full, bytes_partial, bytes_score;	/* per step */
	int64_t peak_rss;
};

struct bench {
	struct opts o;
	char model_path[RK_PATH_MAX];
	int ctx[MAX_CTX], n_ctx;
	struct row row[MAX_ROW];
	int n_row;
	double bandwidth, gemm;		/* of this machine */
	char model[96], device[64], isa[24];
	int n_thread;
	size_t n_weight;		/* weights multiplied per prompt token */
	rk_results out;
};

static int put(struct sample *s, double v, rk_err *e)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 64;
		double *p = realloc(s->v, cap * sizeof *p);
		if (!p)
			return rk_fail(e, RK_ENOMEM, "bench: out of memory for %zu readings", cap);
		s->v = p;
		s->cap = cap;
	}
	s->v[s->n++] = v;
	return 0;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* The value below which a share q of the readings lies; NAN without readings. */
static double quantile(struct sample *s, double q)
{
	if (!s->n)
		return NAN;
	qsort(s->v, s->n, sizeof *s->v, ascending);
	double at = q * (double)(s->n - 1);
	size_t i = (size_t)at;
	return i + 1 < s->n ? s->v[i] + (at - (double)i) * (s->v[i + 1] - s->v[i]) : s->v[i];
}

/* n tokens of the handbook, over and over. */
static int make_ids(const rk_engine *g, int n, int32_t **out, rk_err *e)
{
	const rk_embedded *doc = rk_embedded_find("docs/handbook.md");
	int32_t *ids, *all = malloc((size_t)n * sizeof *all);
	size_t n_ids;

	if (!all)
		return rk_fail(e, RK_ENOMEM, "bench: out of memory for %d tokens", n);
	if (rk_tokenize(rk_engine_tokenizer(g), doc->data, doc->len, 0, &ids, &n_ids, e)) {
		free(all);
		return -1;
	}
	for (int i = 0; i < n; i++)
		all[i] = ids[(size_t)i % n_ids];
	free(ids);
	*out = all;
	return 0;
}

/* Events of one run: the shadow's cost is not in the record. */
static int on_event(void *ctx, const rk_event *ev, const char *payload)
{
	struct row *r = ctx;
	(void)payload;
	return ev->type == RK_EV_SHADOW && ev->shadow.ns ? put(&r->shadow, (double)ev->shadow.ns * 1e-6, NULL) : 0;
}

static int take_lane(struct row *r, const rk_record *rec, int lane, const rk_model *m, rk_err *e)
{
	const rk_lane_stats *l = &rec->stats.lane[lane];
	const rk_lane_record *lr = &rec->lane[lane];
	double n = l->n_step;

	if (put(&r->prefill, rec->stats.n_prefill / ((double)rec->stats.ns_prefill * 1e-9), e))
		return -1;
	for (size_t i = 0; i < lr->n_step; i++) {
		bool full = false;
		for (int y = 0; y < rec->stats.n_layer; y++)
			full |= lr->layer[i * (size_t)rec->stats.n_layer + (size_t)y].kind != RK_STEP_PARTIAL;
		double ms = (double)l->step_ms[i];
		if (put(&r->step, ms, e) || put(full ? &r->full : &r->partial, ms, e))
			return -1;
	}
	r->bytes_weights = (double)m->weight_bytes;
	r->bytes_full = (double)l->bytes_full / n;
	r->bytes_partial = (double)l->bytes_partial / n;
	r->bytes_score = (double)l->bytes_score / n;
	r->peak_rss = rk_cmd_peak_rss();
	return 0;
}

/* One session of the policies from..from+n-1 at one length, into their rows. */
static int run_once(struct bench *b, int ctx, int from, int n, struct row *rows_of, rk_err *e)
{
	rk_engine_cfg cfg;
	rk_engine *g = NULL;
	rk_record rec;
	int32_t *ids = NULL;
	rk_opt_list some = { .n = n };
	int rc = -1;

	memcpy(some.v, b->o.policy.v + from, (size_t)n * sizeof *some.v);
	rk_record_init(&rec);
	rk_cmd_engine_cfg(&cfg, b->model_path, &b->o.model, &b->o.engine, NULL);
	cfg.raw = cfg.one_turn = true;
	cfg.session.n_ctx = ctx + b->o.steps + 1;
	cfg.session.shadow = b->o.shadow;
	if (rk_cmd_lanes(&cfg.session, &some, e) || rk_engine_open(&g, &cfg, e) || make_ids(g, ctx + b->o.steps + 1, &ids, e) ||
	    rk_engine_ask_ids(g, ids, ctx, b->o.steps + 1, RK_FOLLOW_TEXT, ids + ctx, b->o.steps + 1, e))
		goto out;
	rk_cmd_catch_interrupt(g);
	rc = rk_cmd_follow(g, &rec, NULL, b->o.result.quiet ? RK_TELL_NOTHING : RK_TELL_PROGRESS, on_event, &rows_of[0], e);
	rk_cmd_release_interrupt();
	if (rc == 0 && rk_cmd_interrupted())
		rc = 1;
	const rk_model *m = rk_engine_model(g);
	const rk_backend *be = rk_engine_backend(g);
	memcpy(b->model, m->name, sizeof b->model);
	memcpy(b->device, be->device, sizeof b->device);
	memcpy(b->isa, be->isa, sizeof b->isa);
	b->n_thread = be->n_thread;
	b->n_weight = m->n_param - (size_t)m->w.tok_embd.n_row * (size_t)m->w.tok_embd.n_col * (m->tied ? 1 : 2);
	for (int i = 0; i < n && rc == 0; i++)
		rc = take_lane(&rows_of[i], &rec, i, m, e);
out:
	rk_engine_close(g);
	rk_record_free(&rec);
	free(ids);
	return rc;
}

/* All lengths and policies, in turn, round after round; 1 when interrupted. */
static int run_all(struct bench *b, rk_err *e)
{
	int n_pol = b->o.policy.n;

	for (int round = 0; round < b->o.rounds; round++)
		for (int c = 0; c < b->n_ctx; c++)
			for (int p = 0; p < n_pol; p += b->o.lanes ? n_pol : 1) {
				int n = b->o.lanes ? n_pol : 1;
				struct row *r = &b->row[c * n_pol + p];
				for (int i = 0; i < n; i++) {
					r[i].ctx = b->ctx[c];
					r[i].policy = b->o.policy.v[p + i];
				}
				int rc = run_once(b, b->ctx[c], p, n, r, e);
				if (rc)
					return rc;
			}
	b->n_row = b->n_ctx * n_pol;
	return 0;
}

static double bytes_of(const struct row *r)
{
	return r->bytes_weights + r->bytes_full + r->bytes_partial + r->bytes_score;
}

/* Work of the matrix products of a prompt token, without attention, per second. */
static double prefill_flops(const struct bench *b, struct row *r)
{
	return 2 * (double)b->n_weight * quantile(&r->prefill, 0.5);
}

static void print_machine(const struct bench *b)
{
	fprintf(b->out.table, "%s on %s, %s, %d threads; memory reads %.1f GB/s, matrix products %.0f GFLOP/s\n\n", b->model, b->device, b->isa,
	        b->n_thread, b->bandwidth / 1e9, b->gemm / 1e9);
}

static int print_table(struct bench *b, rk_err *e)
{
	static const char *const title[] = { "context", "policy", "prefill tok/s", "GFLOP/s", "ms/token", "10-90 %", "full", "partial",
	                                     "shadow", "KV read", "GB/s", "of limit" };
	char num[RK_NUM], range[2 * RK_NUM];
	rk_table t;

	rk_table_init(&t, (int)(sizeof title / sizeof *title));
	for (size_t i = 0; i < sizeof title / sizeof *title; i++)
		rk_table_add(&t, title[i]);
	for (int i = 0; i < b->n_row; i++) {
		struct row *r = &b->row[i];
		double ms = quantile(&r->step, 0.5), rate = bytes_of(r) / (ms * 1e-3);
		rk_table_add(&t, rk_num_count(num, r->ctx));
		rk_table_add(&t, r->policy);
		rk_table_add(&t, rk_num_real(num, quantile(&r->prefill, 0.5), 0));
		rk_table_add(&t, rk_num_real(num, prefill_flops(b, r) / 1e9, 0));
		rk_table_add(&t, rk_num_real(num, ms, 2));
		snprintf(range, sizeof range, "%.1f-%.1f", quantile(&r->step, 0.1), quantile(&r->step, 0.9));
		rk_table_add(&t, range);
		rk_table_add(&t, rk_num_real(num, quantile(&r->full, 0.5), 2));
		rk_table_add(&t, rk_num_real(num, quantile(&r->partial, 0.5), 2));
		rk_table_add(&t, rk_num_real(num, quantile(&r->shadow, 0.5), 2));
		rk_table_add(&t, rk_num_bytes(num, bytes_of(r) - r->bytes_weights));
		rk_table_add(&t, rk_num_real(num, rate / 1e9, 1));
		rk_num_real(num, 100 * rate / b->bandwidth, 0);
		rk_table_add(&t, strcat(num, " %"));
	}
	int rc = rk_table_print(&t, b->out.table, e);
	rk_table_free(&t);
	fprintf(b->out.table, "\nGB/s: weights and K/V bytes of a step over its median time; of limit: against the reads measured just before.\n");
	return rc;
}

static json_t *row_json(struct row *r)
{
	double ms = quantile(&r->step, 0.5);
	return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}, s:o, s:I}",
		"ctx", r->ctx, "policy", r->policy, "prefill_tok_per_s", rk_json_real(quantile(&r->prefill, 0.5)),
		"decode_ms_per_token", rk_json_real(ms), "decode_ms_p10", rk_json_real(quantile(&r->step, 0.1)),
		"decode_ms_p90", rk_json_real(quantile(&r->step, 0.9)), "full_step_ms", rk_json_real(quantile(&r->full, 0.5)),
		"partial_step_ms", rk_json_real(quantile(&r->partial, 0.5)), "shadow_ms_per_token", rk_json_real(quantile(&r->shadow, 0.5)),
		"bytes_per_step", rk_json_real(bytes_of(r)),
		"bytes_by_kind", "weights", rk_json_real(r->bytes_weights), "full", rk_json_real(r->bytes_full),
		"partial", rk_json_real(r->bytes_partial), "score", rk_json_real(r->bytes_score),
		"gb_per_s", rk_json_real(bytes_of(r) / (ms * 1e6)), "peak_rss_bytes", (json_int_t)r->peak_rss);
}

static json_t *report_json(struct bench *b)
{
	json_t *list = json_array();
	for (int i = 0; i < b->n_row; i++)
		json_array_append_new(list, row_json(&b->row[i]));
	return json_pack("{s:s, s:{s:s, s:s, s:i, s:o, s:o}, s:s, s:b, s:i, s:i, s:o}", "version", RK_VERSION,
		"machine", "device", b->device, "isa", b->isa, "threads", b->n_thread, "read_bytes_per_s", rk_json_real(b->bandwidth),
		"gemm_flop_per_s", rk_json_real(b->gemm), "model", b->model, "lanes", b->o.lanes, "steps", b->o.steps, "rounds", b->o.rounds,
		"rows", list);
}

static void write_csv(struct bench *b)
{
	fprintf(b->out.csv.f, "ctx,policy,prefill_tok_per_s,decode_ms_per_token,decode_ms_p10,decode_ms_p90,full_step_ms,partial_step_ms,"
	        "shadow_ms_per_token,bytes_per_step,gb_per_s,peak_rss_bytes\n");
	for (int i = 0; i < b->n_row; i++) {
		struct row *r = &b->row[i];
		double ms = quantile(&r->step, 0.5);
		double v[] = { quantile(&r->prefill, 0.5), ms, quantile(&r->step, 0.1), quantile(&r->step, 0.9), quantile(&r->full, 0.5),
		               quantile(&r->partial, 0.5), quantile(&r->shadow, 0.5), bytes_of(r), bytes_of(r) / (ms * 1e6) };
		fprintf(b->out.csv.f, "%d,\"%s\"", r->ctx, r->policy);
		for (size_t k = 0; k < sizeof v / sizeof *v; k++)
			isfinite(v[k]) ? fprintf(b->out.csv.f, ",%.6g", v[k]) : fprintf(b->out.csv.f, ",");
		fprintf(b->out.csv.f, ",%lld\n", (long long)r->peak_rss);
	}
}

static int report(struct bench *b, rk_err *e)
{
	print_machine(b);
	if (print_table(b, e))
		return -1;
	if (b->out.json.f) {
		json_t *root = report_json(b);
		int rc = rk_json_print(root, b->out.json.f, e);
		json_decref(root);
		if (rc)
			return -1;
	}
	if (b->out.csv.f)
		write_csv(b);
	return rk_results_commit(&b->out, e);
}

static int measure(struct bench *b, rk_err *e)
{
	rk_session_cfg check = { 0 };
	const char *path;

	if (!b->o.policy.n) {
		b->o.policy.v[b->o.policy.n++] = "vanilla";
		b->o.policy.v[b->o.policy.n++] = "refreshkv:qc=10";
	}
	if (rk_cmd_numbers("--ctx", b->o.ctx, 1, 1 << 24, b->ctx, MAX_CTX, &b->n_ctx, e) || rk_cmd_lanes(&check, &b->o.policy, e) ||
	    rk_cmd_model_path(b->o.model.model, b->model_path, &path, e))
		return -1;
	if (path != b->model_path)
		snprintf(b->model_path, sizeof b->model_path, "%s", path);
	if (rk_results_open(&b->out, b->o.result.json, b->o.result.csv, e))
		return -1;
	b->bandwidth = rk_machine_bandwidth(b->o.engine.threads);
	b->gemm = rk_machine_gemm(b->o.engine.threads);
	int rc = run_all(b, e);
	return rc < 0 ? -1 : rc ? RK_EXIT_INTERRUPTED : report(b, e);
}

int rk_cmd_bench(int argc, char **argv, rk_err *e)
{
	struct bench *b = calloc(1, sizeof *b);
	int rc = -1;

	if (!b)
		return rk_fail(e, RK_ENOMEM, "bench: out of memory");
	switch (rk_opt_parse(&rk_cmd_bench_opt, argc, argv, &b->o, NULL, e)) {
	case 0: rc = measure(b, e); break;
	case 1: rk_opt_help(&rk_cmd_bench_opt, stdout); rc = rk_out_flush(stdout, "standard output", e); break;
	}
	rk_results_discard(&b->out);
	for (int i = 0; i < MAX_ROW; i++) {
		struct row *r = &b->row[i];
		free(r->prefill.v), free(r->step.v), free(r->full.v), free(r->partial.v), free(r->shadow.v);
	}
	free(b);
	return rc;
}
