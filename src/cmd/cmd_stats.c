/* cmd_stats.c: `refreshkv stats`: what traces say about policies: figures, effective stride per layer, ratio over position.
 *
 * Lanes of one policy are taken together, over all sessions of all files.  Figures are those of engine/stats.h, so they
 * are the ones that the recorded command printed; ratio, KL and same top-1 come from the vanilla lane where the lanes
 * were fed the same tokens, and else from the shadow.
 */
#include "cmd/cmd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/figures.h"
#include "cmd/out.h"
#include "trace/series.h"

#define MAX_POLICY 64

struct opts {
	bool json;
	int window;
};

static const rk_opt rows[] = {
	{ "json", 0, RK_OPT_FLAG, offsetof(struct opts, json), .doc = "one JSON object instead of tables" },
	{ "window", 0, RK_OPT_INT, offsetof(struct opts, window), .def = "64", .min = 1, .max = 1 << 20, .metavar = "TOKENS",
	  .doc = "tokens of the reply per row of the ratio over position" },
	{ 0 }
};

static const rk_opt_group groups[] = { { "Statistics", rows, 0 }, { 0 } };

const rk_opt_cmd rk_cmd_stats_opt = {
	.name = "stats", .operands = "TRACE...", .groups = groups, .min_operand = 1, .max_operand = RK_OPT_LIST_MAX,
	.doc = "Show what traces say about their policies: effective stride per layer, ratio over position, bytes, churn.",
};

struct window {
	double log_ratio;	/* sum of nll - baseline's nll */
	int64_t n;
};

struct policy {
	char spec[RK_SPEC_MAX];
	rk_sums sums;
	int n_layer;			/* 0: traces of models with different numbers of layers */
	int64_t n_full[RK_MAX_LAYER];
	double log_ratio, kl;
	int64_t n_ratio, n_kl, n_same;
	struct window *window;		/* [n_window] over the token's index in its reply; owned */
	int n_window;
};

/* What is held against the first file. */
struct reply {
	char prompt_sha256[65];		/* "": not known */
	int32_t *choice;		/* [n_token] what the first file's lane chose of itself; NULL for the others; owned */
	size_t n_token;
	int64_t differs;		/* first choice that is not the first file's: -1: none; n_token: the shorter one ends there */
};

struct stats {
	struct opts o;
	struct policy *policy;		/* [MAX_POLICY] */
	int n_policy;
	struct reply *reply;		/* [a file each] of its lane 0; owned */
	int64_t lost;
	bool cut;
};

static struct policy *policy_of(struct stats *s, const char *spec, int n_layer, rk_err *e)
{
	for (int i = 0; i < s->n_policy; i++)
		if (!strcmp(s->policy[i].spec, spec)) {
			if (s->policy[i].n_layer != n_layer)
				s->policy[i].n_layer = 0;
			return &s->policy[i];
		}
	if (s->n_policy == MAX_POLICY) {
		rk_fail(e, RK_EUSAGE, "more than %d different policies in these traces", MAX_POLICY);
		return NULL;
	}
	struct policy *p = &s->policy[s->n_policy++];
	snprintf(p->spec, sizeof p->spec, "%s", spec);
	p->n_layer = n_layer;
	return p;
}

/* ---- gathering ---- */

/* One session is over: its sums go to its policies, before the next one starts them anew. */
static int add_session(struct stats *s, const rk_stats *stats, rk_err *e)
{
	for (int i = 0; i < stats->n_lane; i++) {
		struct policy *p = policy_of(s, stats->lane[i].spec, stats->n_layer, e);
		if (!p || rk_sums_add(&p->sums, stats, i, e))
			return -1;
		for (int l = 0; l < stats->n_layer; l++)
			p->n_full[l] += stats->lane[i].n_full[l];
	}
	s->lost += stats->lost;
	return 0;
}

static int add_to_window(struct policy *p, int at, double log_ratio, rk_err *e)
{
	if (at >= p->n_window) {
		struct window *more = realloc(p->window, (size_t)(at + 1) * sizeof *more);
		if (!more)
			return rk_fail(e, RK_ENOMEM, "no memory for %d windows", at + 1);
		memset(more + p->n_window, 0, (size_t)(at + 1 - p->n_window) * sizeof *more);
		p->window = more;
		p->n_window = at + 1;
	}
	p->window[at].log_ratio += log_ratio;
	p->window[at].n++;
	return 0;
}

static int add_ratios(struct stats *s, const rk_series *series, rk_err *e)
{
	for (int i = 0; i < series->n_lane; i++) {
		const rk_series_lane *l = &series->lane[i];
		struct policy *p = policy_of(s, l->spec, series->n_layer, e);
		if (!p)
			return -1;
		for (size_t j = 0; j < l->n_token; j++) {
			const rk_series_token *t = &l->token[j];
			if (!isnan(t->kl)) {
				p->kl += (double)t->kl;
				p->n_same += t->same_top1;
				p->n_kl++;
			}
			if (isnan(t->base_nll))
				continue;
			/* Indices count up from 0 in each reply; anything else would ask for windows without end. */
			int at = t->index >= 0 && (size_t)t->index < l->n_token ? t->index / s->o.window : 0;
			double log_ratio = (double)t->nll - (double)t->base_nll;
			p->log_ratio += log_ratio;
			p->n_ratio++;
			if (add_to_window(p, at, log_ratio, e))
				return -1;
		}
	}
	return 0;
}

/* Tokens of lane 0 over all sessions of the file. */
static int add_reply(struct stats *s, int file, const rk_series *series, rk_err *e)
{
	struct reply *r = &s->reply[file], *first = &s->reply[0];
	const rk_series_lane *l = &series->lane[0];
	size_t at = 0;
	memcpy(r->prompt_sha256, series->head.prompt_sha256, sizeof r->prompt_sha256);
	r->n_token = l->n_token;
	r->differs = -1;
	if (file == 0) {
		if (!(r->choice = malloc((l->n_token + 1) * sizeof *r->choice)))
			return rk_fail(e, RK_ENOMEM, "no memory for %zu tokens", l->n_token);
		for (size_t i = 0; i < l->n_token; i++)
			r->choice[i] = l->token[i].choice;
		return 0;
	}
	while (at < l->n_token && at < first->n_token && l->token[at].choice == first->choice[at])
		at++;
	if (at < l->n_token || at < first->n_token)
		r->differs = (int64_t)at;
	return 0;
}

static bool same_prompt(const struct stats *s, int file)
{
	return file > 0 && s->reply[0].prompt_sha256[0] && !strcmp(s->reply[file].prompt_sha256, s->reply[0].prompt_sha256);
}

static int add_file(struct stats *s, int file, const char *path, rk_err *e)
{
	rk_trace *t;
	rk_stats stats;
	rk_series series;
	rk_event ev;
	const void *payload;
	int rc;
	if (rk_trace_open(&t, path, e))
		return -1;
	rk_stats_init(&stats);
	rk_series_init(&series, rk_trace_head(t));
	while ((rc = rk_trace_next(t, &ev, &payload, e)) > 0)
		if ((ev.type == RK_EV_START && add_session(s, &stats, e)) || rk_stats_add(&stats, &ev, payload, e) ||
		    rk_series_add(&series, &ev, payload, e)) {
			rc = -1;
			break;
		}
	rk_series_end(&series);
	if (rc == 0 && (add_session(s, &stats, e) || add_ratios(s, &series, e) || add_reply(s, file, &series, e)))
		rc = -1;
	s->cut |= rk_trace_cut(t);
	rk_cmd_trace_remarks(stderr, "refreshkv: ", "\n", t, path, series.lost);
	rk_stats_free(&stats);
	rk_series_free(&series);
	rk_trace_close(t);
	return rc;
}

/* ---- figures ---- */

static double mean(double sum, int64_t n)
{
	return n ? sum / (double)n : (double)NAN;
}

static rk_figures figures_of(struct policy *p)
{
	rk_figures f = rk_sums_figures(&p->sums, NULL);
	f.ratio = exp(mean(p->log_ratio, p->n_ratio));
	f.kl = mean(p->kl, p->n_kl);
	f.same_top1 = mean((double)p->n_same, p->n_kl);
	return f;
}

static double stride_of(const struct policy *p, int layer)
{
	return p->n_full[layer] ? (double)p->sums.n_step / (double)p->n_full[layer] : (double)NAN;
}

static double window_ratio(const struct policy *p, int at)
{
	return at < p->n_window ? exp(mean(p->window[at].log_ratio, p->window[at].n)) : (double)NAN;
}

/* ---- tables ---- */

static void add_percent(rk_table *t, double share)
{
	char b[RK_NUM];
	rk_num_real(b, 100 * share, 1);
	rk_table_add(t, strcat(b, isnan(share) ? "" : " %"));
}

static int print_table(rk_table *t, const char *title, rk_err *e)
{
	printf("%s\n", title);
	int rc = rk_table_print(t, stdout, e);
	rk_table_free(t);
	return rc;
}

static int print_policies(struct stats *s, rk_err *e)
{
	static const char *const title[] = { "", "policy", "tokens", "ppl", "ratio", "KL", "same top-1", "ms/token", "read/step", "of vanilla",
	                                     "eff. stride", "churn" };
	rk_table t;
	char b[RK_NUM];
	rk_table_init(&t, (int)(sizeof title / sizeof *title));
	for (size_t i = 0; i < sizeof title / sizeof *title; i++)
		rk_table_add(&t, title[i]);
	for (int i = 0; i < s->n_policy; i++) {
		rk_figures f = figures_of(&s->policy[i]);
		rk_table_add(&t, rk_num_count(b, i + 1));
		rk_table_add(&t, s->policy[i].spec);
		rk_table_add(&t, rk_num_count(b, s->policy[i].sums.n_token));
		rk_table_add(&t, rk_num_real(b, f.ppl, 3));
		rk_table_add(&t, rk_num_real(b, f.ratio, 4));
		rk_table_add(&t, rk_num_real(b, f.kl, 4));
		add_percent(&t, f.same_top1);
		rk_table_add(&t, rk_num_real(b, f.ms, 2));
		rk_table_add(&t, rk_num_bytes(b, f.bytes));
		add_percent(&t, f.bytes / f.bytes_vanilla);
		rk_table_add(&t, rk_num_real(b, f.stride, 1));
		add_percent(&t, f.churn);
	}
	return print_table(&t, "Policies", e);
}

/* A first column, then one per policy, headed by its number in the first table. */
static void start_columns(rk_table *t, const struct stats *s, const char *first)
{
	char b[RK_NUM];
	rk_table_init(t, s->n_policy + 1);
	rk_table_add(t, first);
	for (int i = 0; i < s->n_policy; i++)
		rk_table_add(t, rk_num_count(b, i + 1));
}

static int print_strides(const struct stats *s, rk_err *e)
{
	rk_table t;
	char b[RK_NUM];
	int n_layer = 0;
	for (int i = 0; i < s->n_policy; i++)
		n_layer = s->policy[i].n_layer > n_layer ? s->policy[i].n_layer : n_layer;
	start_columns(&t, s, "layer");
	for (int l = 0; l < n_layer; l++) {
		rk_table_add(&t, rk_num_count(b, l));
		for (int i = 0; i < s->n_policy; i++)
			rk_table_add(&t, l < s->policy[i].n_layer ? rk_num_real(b, stride_of(&s->policy[i], l), 1) : "n/a");
	}
	return print_table(&t, "\nEffective stride per layer (steps per full step)", e);
}

static int n_window(const struct stats *s)
{
	int n = 0;
	for (int i = 0; i < s->n_policy; i++)
		n = s->policy[i].n_window > n ? s->policy[i].n_window : n;
	return n;
}

static int print_ratios(const struct stats *s, rk_err *e)
{
	rk_table t;
	char b[RK_NUM], range[2 * RK_NUM];
	if (n_window(s) == 0) {
		printf("\nPerplexity ratio over position: no baseline in these traces (vanilla on the same tokens, or --trace-shadow)\n");
		return 0;
	}
	start_columns(&t, s, "tokens");
	for (int w = 0; w < n_window(s); w++) {
		snprintf(range, sizeof range, "%lld-%lld", (long long)w * s->o.window, (long long)(w + 1) * s->o.window - 1);
		rk_table_add(&t, range);
		for (int i = 0; i < s->n_policy; i++)
			rk_table_add(&t, rk_num_real(b, window_ratio(&s->policy[i], w), 4));
	}
	return print_table(&t, "\nPerplexity ratio over position in the reply", e);
}

static void print_divergences(const struct stats *s, const rk_opt_list *files)
{
	bool any = false;
	for (int i = 1; i < files->n; i++) {
		if (!same_prompt(s, i))
			continue;
		if (!any)
			printf("\nFirst token that is not that of %s, on the same prompt (lane 1 of each)\n", files->v[0]);
		any = true;
		if (s->reply[i].differs < 0)
			printf("%s: none, over %zu tokens\n", files->v[i], s->reply[i].n_token);
		else
			printf("%s: token %lld\n", files->v[i], (long long)s->reply[i].differs);
	}
}

static int print_tables(struct stats *s, const rk_opt_list *files, rk_err *e)
{
	if (print_policies(s, e) || print_strides(s, e) || print_ratios(s, e))
		return -1;
	print_divergences(s, files);
	return 0;
}

/* ---- JSON ---- */

static json_t *policy_json(const struct stats *s, struct policy *p)
{
	rk_figures f = figures_of(p);
	json_t *strides = json_array(), *ratios = json_array();
	for (int l = 0; l < p->n_layer; l++)
		json_array_append_new(strides, rk_json_real(stride_of(p, l)));
	for (int w = 0; w < p->n_window; w++)
		json_array_append_new(ratios, json_pack("{s:I, s:I, s:o}", "from", (json_int_t)w * s->o.window,
			"tokens", (json_int_t)p->window[w].n, "ratio", rk_json_real(window_ratio(p, w))));
	return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"policy", p->spec, "tokens", (json_int_t)p->sums.n_token, "steps", (json_int_t)p->sums.n_step,
		"ppl", rk_json_real(f.ppl), "ratio", rk_json_real(f.ratio), "kl", rk_json_real(f.kl),
		"same_top1", rk_json_real(f.same_top1), "ms_per_token", rk_json_real(f.ms),
		"bytes_read_per_step", rk_json_real(f.bytes), "bytes_vanilla_per_step", rk_json_real(f.bytes_vanilla),
		"effective_stride", rk_json_real(f.stride), "churn", rk_json_real(f.churn),
		"effective_stride_per_layer", strides, "ratio_over_position", ratios);
}

static int print_json(struct stats *s, const rk_opt_list *files, rk_err *e)
{
	json_t *names = json_array(), *policies = json_array(), *divergences = json_array();
	for (int i = 1; i < files->n; i++)
		json_array_append_new(divergences, json_pack("{s:o, s:b, s:o}", "file", rk_json_text(files->v[i], strlen(files->v[i])),
			"same_prompt", same_prompt(s, i), "token",
			same_prompt(s, i) && s->reply[i].differs >= 0 ? json_integer((json_int_t)s->reply[i].differs) : json_null()));
	for (int i = 0; i < files->n; i++)
		json_array_append_new(names, rk_json_text(files->v[i], strlen(files->v[i])));
	for (int i = 0; i < s->n_policy; i++)
		json_array_append_new(policies, policy_json(s, &s->policy[i]));
	json_t *root = json_pack("{s:s, s:o, s:b, s:I, s:i, s:o, s:o}", "version", RK_VERSION, "files", names, "cut", s->cut,
		"lost_events", (json_int_t)s->lost, "window", s->o.window, "policies", policies, "divergences", divergences);
	int rc = rk_json_print(root, stdout, e);
	json_decref(root);
	return rc;
}

int rk_cmd_stats(int argc, char **argv, rk_err *e)
{
	struct stats s = { 0 };
	rk_opt_list files;
	int rc = 0;
	switch (rk_opt_parse(&rk_cmd_stats_opt, argc, argv, &s.o, &files, e)) {
	case 1: rk_opt_help(&rk_cmd_stats_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	s.policy = calloc(MAX_POLICY, sizeof *s.policy);
	s.reply = calloc((size_t)files.n, sizeof *s.reply);
	if (!s.policy || !s.reply)
		rc = rk_fail(e, RK_ENOMEM, "no memory for the figures");
	for (int i = 0; i < files.n && rc == 0; i++)
		rc = add_file(&s, i, files.v[i], e);
	if (rc == 0)
		rc = s.o.json ? print_json(&s, &files, e) : print_tables(&s, &files, e);
	if (rc == 0)
		rc = rk_out_flush(stdout, "standard output", e);
	for (int i = 0; i < s.n_policy; i++) {
		rk_sums_free(&s.policy[i].sums);
		free(s.policy[i].window);
	}
	if (s.reply)
		free(s.reply[0].choice);
	free(s.reply);
	free(s.policy);
	return rc;
}
