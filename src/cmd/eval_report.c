/* eval_report.c: see eval_report.h.  Everything is read from the header and the records. */
#include "cmd/eval_report.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/out.h"
#include "eval/pictures.h"
#include "eval/summary.h"

static bool is_ppl(const rk_records *r)
{
	return rk_records_suite_is(r, "ppl");
}

static size_t n_policy(const rk_records *r)
{
	return (size_t)rk_records_count(r, "policies");
}

static int length_at(const rk_records *r, size_t i)
{
	return (int)json_integer_value(json_array_get(json_object_get(r->header, "lengths"), i));
}

static rk_eval_figures figures(const rk_records *r, size_t policy, const char *task, int length)
{
	return rk_eval_sum(r->list, rk_records_text(r, "policies", policy), rk_records_baseline(r), task, length, -1);
}

/* ---- tables ---- */

static void percent(rk_table *t, double share)
{
	char b[RK_NUM];

	rk_num_real(b, 100 * share, 1);
	rk_table_add(t, isfinite(share) ? strcat(b, " %") : b);
}

static void real(rk_table *t, double v, int decimals)
{
	char b[RK_NUM];

	rk_table_add(t, rk_num_real(b, v, decimals));
}

static void header(rk_table *t, const char *const *title)
{
	int n = 0;

	while (title[n])
		n++;
	rk_table_init(t, n);
	for (int i = 0; i < n; i++)
		rk_table_add(t, title[i]);
}

static int print(rk_table *t, FILE *f, rk_err *e)
{
	int rc = rk_table_print(t, f, e);

	rk_table_free(t);
	fputc('\n', f);
	return rc;
}

/* A row per policy, a column per task and length: scores in percent, or ratios with ppl. */
static int print_cells(const rk_records *r, FILE *f, rk_err *e)
{
	size_t n_task = (size_t)rk_records_count(r, "tasks"), n_length = (size_t)rk_records_count(r, "lengths");
	rk_table t;

	if (n_task * n_length < 2)
		return 0;
	rk_table_init(&t, (int)(1 + n_task * n_length));
	rk_table_add(&t, is_ppl(r) ? "ratio" : "score");
	for (size_t i = 0; i < n_task * n_length; i++) {
		char name[200];
		int length = length_at(r, i % n_length);
		const char *task = rk_records_text(r, "tasks", i / n_length);
		const char *slash = strrchr(task, '/');
		snprintf(name, sizeof name, length ? "%s@%d" : "%s", slash ? slash + 1 : task, length);
		rk_table_add(&t, name);
	}
	for (size_t p = 0; p < n_policy(r); p++) {
		rk_table_add(&t, rk_records_text(r, "names", p));
		for (size_t i = 0; i < n_task * n_length; i++) {
			int length = length_at(r, i % n_length);
			rk_eval_figures c = figures(r, p, rk_records_text(r, "tasks", i / n_length), length);
			real(&t, is_ppl(r) ? c.ratio : 100 * c.score, is_ppl(r) ? 4 : 1);
		}
	}
	return print(&t, f, e);
}

static int print_scores(const rk_records *r, FILE *f, rk_err *e)
{
	static const char *const title[] = { "policy", "examples", "score", "ratio", "eff. stride", "ms/token", "read/step", "of vanilla",
	                                     "garbled", NULL };
	char b[RK_NUM];
	rk_table t;

	header(&t, title);
	for (size_t p = 0; p < n_policy(r); p++) {
		rk_eval_figures c = figures(r, p, NULL, 0);
		rk_table_add(&t, rk_records_text(r, "names", p));
		rk_table_add(&t, rk_num_count(b, c.n));
		real(&t, 100 * c.score, 1);
		real(&t, c.ratio, 3);
		real(&t, c.stride, 1);
		real(&t, c.ms, 2);
		rk_table_add(&t, rk_num_bytes(b, c.bytes));
		percent(&t, c.bytes / c.bytes_vanilla);
		rk_table_add(&t, rk_num_count(b, c.garbled));
	}
	if (print(&t, f, e))
		return -1;
	const char *question = json_string_value(json_object_get(r->header, "question"));
	fprintf(f, "score: mean in percent; ratio: to vanilla's; garbled: replies that are empty or go round in a loop;\n"
	        "ms/token: median, the work that lanes share and this lane's own attention.  Policies selected %s the question in view.\n",
	        question && !strcmp(question, "after") ? "without" : "with");
	return 0;
}

static int print_ppl(const rk_records *r, FILE *f, rk_err *e)
{
	static const char *const title[] = { "policy", "windows", "ppl", "ratio", "KL", "same top-1", "eff. stride", "ms/token", "read/step",
	                                     "of vanilla", NULL };
	char b[RK_NUM];
	rk_table t;

	header(&t, title);
	for (size_t p = 0; p < n_policy(r); p++) {
		rk_eval_figures c = figures(r, p, NULL, 0);
		rk_table_add(&t, rk_records_text(r, "names", p));
		rk_table_add(&t, rk_num_count(b, c.n));
		real(&t, c.ppl, 3);
		real(&t, c.ratio, 4);
		real(&t, c.kl, 4);
		percent(&t, c.same_top1);
		real(&t, c.stride, 1);
		real(&t, c.ms, 2);
		rk_table_add(&t, rk_num_bytes(b, c.bytes));
		percent(&t, c.bytes / c.bytes_vanilla);
	}
	if (print(&t, f, e))
		return -1;
	fprintf(f, "teacher-forced; ratio of perplexities and KL (nats) against vanilla on the same tokens, over all windows;\n"
	        "ms/token: median, the work that lanes share and this lane's own attention.\n");
	return 0;
}

/* The pictures on f, or as SVG. */
static int draw(const rk_records *r, FILE *f, bool svg, rk_err *e)
{
	rk_chart *c;
	int n, rc = rk_eval_pictures(r, &c, &n, e);

	if (rc == 0 && svg)
		rk_chart_svg(c, n, f);
	else if (rc == 0)
		rk_chart_print(c, n, f);
	for (int i = 0; i < n; i++)
		rk_chart_free(&c[i]);
	free(c);
	return rc;
}

int rk_eval_report(const rk_records *r, FILE *f, rk_err *e)
{
	if (draw(r, f, false, e) || print_cells(r, f, e))
		return -1;
	return is_ppl(r) ? print_ppl(r, f, e) : print_scores(r, f, e);
}

int rk_eval_svg(const rk_records *r, FILE *f, rk_err *e)
{
	return draw(r, f, true, e);
}

static size_t put_running(const rk_records *r, size_t policy, const char *what, char *out, size_t size)
{
	rk_eval_figures c = figures(r, policy, NULL, 0);
	char b[RK_NUM];

	return (size_t)snprintf(out, size, "%s%s %s", what, rk_records_text(r, "names", policy),
	                        is_ppl(r) ? rk_num_real(b, c.ratio, 4) : rk_num_real(b, 100 * c.score, 1));
}

/* Of many policies a line holds the baseline, the best and the worst. */
void rk_eval_running(const rk_records *r, char *out, size_t size)
{
	size_t n = n_policy(r), base = (size_t)json_integer_value(json_object_get(r->header, "baseline")), best = n, worst = n, at = 0;
	double top = NAN, low = NAN;

	for (size_t p = 0; p < n && n <= 4 && at < size; p++)
		at += put_running(r, p, p ? ", " : "", out + at, size - at);
	if (n <= 4)
		return;
	for (size_t p = 0; p < n; p++) {
		rk_eval_figures c = figures(r, p, NULL, 0);
		double v = is_ppl(r) ? -c.ratio : c.score;
		if (p == base || isnan(v))
			continue;
		best = !(v <= top) ? p : best;
		top = fmax(v, top);
		worst = !(v >= low) ? p : worst;
		low = fmin(v, low);
	}
	at = put_running(r, base, "", out, size);
	if (best < n && at < size)
		at += put_running(r, best, ", best ", out + at, size - at);
	if (worst < n && at < size)
		put_running(r, worst, ", worst ", out + at, size - at);
}

/* ---- CSV ---- */

static void csv_text(FILE *f, const char *s)
{
	fputc('"', f);
	for (; s && *s; s++)
		fputs(*s == '"' ? "\"\"" : (char[]){ *s, '\0' }, f);
	fputc('"', f);
}

static void csv_value(FILE *f, const json_t *v)
{
	fputc(',', f);
	if (json_is_integer(v))
		fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		fprintf(f, "%.9g", json_real_value(v));
	else if (json_is_string(v))
		csv_text(f, json_string_value(v));
}

static void csv_row(FILE *f, const json_t *rec, const json_t *reply, size_t at)
{
	static const char *const of_reply[] = { "score", "garbled", "end", "tokens", "steps", "layer_steps", "full_layer_steps", "bytes_read",
	                                        "bytes_vanilla", "kl", "same_top1" };
	json_t *nll = json_object_get(reply, "nll"), *v;
	double sum = 0;
	size_t i;

	json_t *answer = json_object_get(rec, "answer");
	char *answers = answer ? json_dumps(answer, JSON_COMPACT) : NULL;

	csv_text(f, json_string_value(json_object_get(rec, "task")));
	csv_value(f, json_object_get(rec, "length"));
	csv_value(f, json_object_get(rec, "index"));
	csv_value(f, json_object_get(rec, "group"));
	csv_value(f, json_object_get(reply, "policy"));
	for (i = 0; i < sizeof of_reply / sizeof *of_reply; i++)
		csv_value(f, json_object_get(reply, of_reply[i]));
	json_array_foreach(nll, i, v)
		sum += json_number_value(v);
	fputc(',', f);
	if (json_array_size(nll))
		fprintf(f, "%.9g", sum / (double)json_array_size(nll));
	csv_value(f, json_array_get(json_object_get(json_object_get(rec, "timing"), "ms_per_token"), at));
	csv_value(f, json_object_get(rec, "prompt_tokens"));
	csv_value(f, json_object_get(rec, "prompt_sha256"));
	csv_value(f, json_object_get(reply, "reply"));
	fputc(',', f);
	if (answers)
		csv_text(f, answers);
	fputc('\n', f);
	free(answers);
}

void rk_eval_csv(const rk_records *r, FILE *f)
{
	json_t *rec, *reply;
	size_t i, at;

	fprintf(f, "task,length,index,group,policy,score,garbled,end,tokens,steps,layer_steps,full_layer_steps,bytes_read,bytes_vanilla,kl,"
	        "same_top1,mean_nll,ms_per_token,prompt_tokens,prompt_sha256,reply,answer\n");
	json_array_foreach(r->list, i, rec)
		json_array_foreach(json_object_get(rec, "policies"), at, reply)
			csv_row(f, rec, reply, at);
}
