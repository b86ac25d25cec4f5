/* cmd_eval.c: `refreshkv eval`: suites of tasks under several policies, which run as lanes of one session per example.
 *
 * The work is a list of items (group of policies, task, length, index) in a fixed order; a shard takes every n-th of it.  Each
 * finished item is a line of the results file, so that a run that was ended goes on where it was.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/utf8.h"
#include "cmd/doc.h"
#include "cmd/eval_plan.h"
#include "cmd/eval_report.h"
#include "cmd/out.h"
#include "eval/given.h"
#include "eval/predictions.h"
#include "eval/records.h"
#include "eval/runner.h"
#include "eval/summary.h"
#include "eval/text.h"

#define TTY_COLUMNS 79		/* of the line of progress on a terminal that does not say how wide it is */
#define TTY_NS 200000000	/* between two lines of progress there: sums over all records are not for free */
#define PROGRESS_NS 15000000000	/* between two lines of progress where stderr is no terminal */

static const rk_opt rows[] = {
	{ "task", 0, RK_OPT_LIST, offsetof(rk_eval_opts, task), .metavar = "NAME", .doc = "a task of the suite; without it: all of them" },
	{ "length", 'c', RK_OPT_STR, offsetof(rk_eval_opts, length), .metavar = "TOK[,TOK...]",
	  .doc = "tokens of prompt and reply together; for ppl of the prompt.  Without it: what suits the suite; longproc: 0 is the task's own size" },
	{ "examples", 'n', RK_OPT_INT, offsetof(rk_eval_opts, examples), .def = "0", .min = 0, .max = 1000000, .metavar = "N",
	  .doc = "examples per task and length; 0: as many as the task says" },
	{ "seed", 0, RK_OPT_INT, offsetof(rk_eval_opts, seed), .def = "0", .min = 0, .max = 2147483647,
	  .doc = "of the examples; the same seed makes the same ones on every machine" },
	{ "question", 0, RK_OPT_ENUM, offsetof(rk_eval_opts, question), .def = "inside", .names = rk_question_names,
	  .doc = "inside: policies select with the question in view; after: with the context alone, and the question is a further turn" },
	{ "policy", 0, RK_OPT_LIST, offsetof(rk_eval_opts, policy), .metavar = "SPEC",
	  .doc = "a policy.  Without it: refreshkv.  vanilla is added where it is missing, as the baseline" },
	{ "sweep", 0, RK_OPT_LIST, offsetof(rk_eval_opts, sweep), .metavar = "KEY=V[,V...]",
	  .doc = "every policy but vanilla with each of these values, and with several sweeps every combination" },
	{ "offset", 0, RK_OPT_STR, offsetof(rk_eval_opts, offset), .def = "0", .metavar = "N[,N...]",
	  .doc = "ppl: token at which each window of a text starts" },
	{ "eval", 0, RK_OPT_INT, offsetof(rk_eval_opts, eval), .def = "256", .min = 1, .max = 1 << 20, .metavar = "TOKENS",
	  .doc = "ppl: tokens that are scored after the prompt" },
	{ "data", 0, RK_OPT_STR, offsetof(rk_eval_opts, data), .metavar = "DIR", .doc = "folder with the files of tasks that read some" },
	{ "haystack", 0, RK_OPT_STR, offsetof(rk_eval_opts, haystack), .metavar = "FILE", .doc = "essays that RULER's niah tasks hide needles in" },
	{ 0 }
};

static const rk_opt run_rows[] = {
	{ "json", 0, RK_OPT_STR, offsetof(rk_eval_opts, json), .metavar = "FILE",
	  .doc = "results, a line per example as it is done; an existing file of the same parameters is gone on with" },
	{ "csv", 0, RK_OPT_STR, offsetof(rk_eval_opts, csv), .metavar = "FILE",
	  .doc = "one row per example and policy; -: to standard output, and the tables to stderr" },
	{ "svg", 0, RK_OPT_STR, offsetof(rk_eval_opts, svg), .metavar = "FILE",
	  .doc = "the pictures: needle's heat-maps, ppl's ratio over position, quality against bytes and time; -: as for --csv" },
	{ "shard", 0, RK_OPT_STR, offsetof(rk_eval_opts, shard), .metavar = "I/N", .doc = "only the I-th of N parts (I from 1), into FILE.I of --json" },
	{ "predictions", 0, RK_OPT_STR, offsetof(rk_eval_opts, predictions), .metavar = "DIR",
	  .doc = "ruler: write the replies as RULER's prediction files, DIR/POLICY/LENGTH/TASK.jsonl" },
	{ "mpi", 0, RK_OPT_FLAG, offsetof(rk_eval_opts, mpi), .doc = "take the shard from mpirun (OMPI_COMM_WORLD_RANK and _SIZE)" },
	{ "quiet", 'q', RK_OPT_FLAG, offsetof(rk_eval_opts, quiet), .doc = "no progress on stderr" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Questions and policies", rows, 0 },
	{ "Run and results", run_rows, 0 },
	{ "Model", rk_model_rows, offsetof(rk_eval_opts, model) },
	{ "Engine", rk_engine_rows, offsetof(rk_eval_opts, engine) },
	{ 0 }
};

static void list_tasks(FILE *f)
{
	for (const rk_task *const *s = rk_suites; *s; s++)
		for (const rk_task *t = *s; t->name; t++)
			rk_opt_wrap(f, fprintf(f, "  %-13s %-20s ", t->suite, t->name), 35, t->doc);
	rk_opt_wrap(f, fprintf(f, "  %-13s %-20s ", "ppl", "TEXT..."), 35, "perplexity on texts, teacher-forced, against vanilla on the same tokens");
}

static void more_help(FILE *f)
{
	fputs("Suites and their tasks (`refreshkv eval list`):\n", f);
	list_tasks(f);
	fputs("\n`refreshkv eval merge OUT SHARD...` joins the results of shards; OUT -: only print the tables.\n"
	      "`refreshkv eval score TASK FILE...` scores prediction files in RULER's format.\n\n", f);
	rk_policy_help(f);
}

const rk_opt_cmd rk_cmd_eval_opt = {
	.name = "eval", .operands = "SUITE [TEXT...] | list | merge OUT SHARD... | score TASK FILE...", .groups = groups, .min_operand = 1,
	.max_operand = RK_OPT_LIST_MAX, .more = more_help,
	.doc = "Measure what policies lose on tasks: chain-of-key, ruler, longproc, needle, ppl.",
};

struct eval {
	rk_eval_opts o;
	rk_opt_list operand;
	rk_eval_plan plan;
	rk_records records;
	rk_out csv, svg;
	FILE *table;
	rk_engine *g;
	int open_group;				/* which g is open for; -1: none */
	rk_text text[RK_EVAL_MAX_TASK];		/* with ppl */
	rk_given_kept kept;			/* the data file read last */
	int64_t start_ns, shown_ns;
	long done, made, total;			/* items of this shard; made: by this process */
};

/* ---- the work ---- */

static int read_texts(struct eval *v, rk_err *e)
{
	for (int i = 0; i < v->plan.n_task && v->plan.ppl; i++) {
		char *text;
		size_t len;
		if (rk_doc_read(v->plan.task_name[i], false, &text, &len, e))
			return -1;
		rk_text_free(&v->text[i]);
		int rc = rk_text_init(&v->text[i], v->plan.task_name[i], rk_engine_tokenizer(v->g), text, len, e);
		free(text);
		for (int k = 0; k < v->plan.n_offset * v->plan.n_length && rc == 0; k++)
			rc = rk_text_check(&v->text[i], (size_t)v->plan.offset[k % v->plan.n_offset], v->plan.length[k / v->plan.n_offset], v->o.eval, e);
		if (rc)
			return -1;
	}
	return 0;
}

static int check_lengths(const struct eval *v, rk_err *e)
{
	int most = rk_engine_model(v->g)->hp.n_ctx_train;

	for (int i = 0; i < v->plan.n_length; i++) {
		int need = rk_eval_plan_ctx(&v->plan, v->plan.length[i]);
		if (need > most)
			return rk_fail(e, RK_EUSAGE, "--length %d: %d tokens with what is scored, the model's context holds %d", v->plan.length[i], need, most);
	}
	return 0;
}

/* An engine for the lanes of a group. */
static int open_engine(struct eval *v, int group, rk_err *e)
{
	rk_engine_cfg cfg;

	if (v->open_group == group)
		return 0;
	rk_cmd_release_interrupt();
	rk_engine_close(v->g);
	v->g = NULL;
	v->open_group = -1;
	rk_cmd_engine_cfg(&cfg, v->plan.model_path, &v->o.model, &v->o.engine, NULL);
	cfg.raw = v->plan.ppl;
	cfg.one_turn = true;
	for (int i = 0; i < v->plan.n_length; i++) {
		int need = rk_eval_plan_ctx(&v->plan, v->plan.length[i]);
		if (!v->plan.length[i])
			need = INT_MAX;		/* the task's own size: whatever the model holds */
		cfg.session.n_ctx = need > cfg.session.n_ctx ? need : cfg.session.n_ctx;
	}
	if (cfg.session.n_ctx == INT_MAX)
		cfg.session.n_ctx = 0;
	rk_eval_plan_lanes(&v->plan, group, &cfg.session);
	if (rk_engine_open(&v->g, &cfg, e) || check_lengths(v, e) || read_texts(v, e))
		return -1;
	v->open_group = group;
	rk_cmd_catch_interrupt(v->g);
	return 0;
}

static int make_example(struct eval *v, int task, int length, int index, rk_example *x, rk_err *e)
{
	rk_runner r = { .g = v->g, .after = v->o.question == RK_QUESTION_AFTER };
	rk_task_env env = { .seed = (uint64_t)v->o.seed, .length = length, .count = rk_runner_count, .ctx = &r, .kept = &v->kept,
	                    .data_dir = v->o.data, .haystack = v->o.haystack };
	rk_err why;

	int rc = v->plan.task[task]->make(v->plan.task[task], &env, index, x, &why);
	if (rc >= 0)
		return rc;
	rk_example_free(x);
	return index == 0 ? rk_fail(e, why.code, "%s: %s", v->plan.task_name[task], why.msg) :	/* what the first lacks all of them lack */
	       rk_fail(e, why.code, "%s, example %d: %s", v->plan.task_name[task], index, why.msg);
}

static int make_window(struct eval *v, int task, int length, int index, json_t **record, rk_err *e)
{
	rk_runner r = { .g = v->g };
	int32_t *ids;

	if (rk_text_window(&v->text[task], (size_t)v->plan.offset[index], length, v->o.eval, &ids, e))
		return -1;
	int rc = rk_runner_window(&r, ids, length, v->o.eval, record, e);
	free(ids);
	return rc > 0 ? 2 : rc;
}

/* 1 when there is no such example, 2 when interrupted. */
static int make_record(struct eval *v, int task, int length, int index, json_t **record, rk_err *e)
{
	rk_runner r = { .g = v->g, .after = v->o.question == RK_QUESTION_AFTER };
	rk_example x = { 0 };

	if (v->plan.ppl)
		return make_window(v, task, length, index, record, e);
	int rc = make_example(v, task, length, index, &x, e);
	if (rc == 0 && rk_cmd_interrupted())
		rc = 2;
	if (rc == 0) {
		rc = rk_runner_example(&r, v->plan.task[task], &x, record, e);
		rc = rc > 0 ? 2 : rc;
	}
	rk_example_free(&x);
	return rc;
}

static int tty_columns(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1 : TTY_COLUMNS;
}

/* One line: rewritten in place on a terminal, now and then elsewhere. */
static void show_progress(struct eval *v)
{
	bool tty = isatty(STDERR_FILENO);
	int64_t now = rk_clock_ns();
	char line[700], running[600];
	size_t at = 0;

	if (v->o.quiet || (v->shown_ns && now - v->shown_ns < (tty ? TTY_NS : PROGRESS_NS)))
		return;
	v->shown_ns = now;
	double left = (double)(now - v->start_ns) * 1e-9 / (double)v->made * (double)(v->total - v->done);
	rk_eval_running(&v->records, running, sizeof running);
	at += (size_t)snprintf(line, sizeof line, "%ld/%ld, %.0f %s left; ", v->done, v->total, left < 90 ? left : left / 60,
	                       left < 90 ? "s" : "min");
	snprintf(line + at, sizeof line - at, "%s", running);
	int wide = tty_columns(), len = (int)strlen(line);
	if (tty)
		fprintf(stderr, "\r%.*s\033[K", (int)rk_utf8_complete(line, (size_t)(len < wide ? len : wide)), line);
	else
		fprintf(stderr, "%s\n", line);
}

/* One item.  Results as in make_record. */
static int run_item(struct eval *v, int group, int task, int length, int index, rk_err *e)
{
	json_t *record, *own;

	if (open_engine(v, group, e))
		return -1;
	if (rk_cmd_interrupted())
		return 2;
	int rc = make_record(v, task, length, index, &own, e);
	if (rc)
		return rc;
	record = json_pack("{s:i, s:s, s:i, s:i}", "group", group, "task", v->plan.task_name[task], "length", length, "index", index);
	if (!record || json_object_update(record, own)) {
		json_decref(own);
		return rk_fail(e, RK_ENOMEM, "no memory for a record");
	}
	json_decref(own);
	if (rk_records_add(&v->records, record, e))
		return -1;
	v->done++;
	v->made++;
	show_progress(v);
	return 0;
}

static bool is_mine(const struct eval *v, long ordinal)
{
	return ordinal % v->plan.n_shard == v->plan.shard;
}

/* All examples of one task and length; *ordinal counts the items of the whole run. */
static int run_cell(struct eval *v, int group, int task, int length, long *ordinal, rk_err *e)
{
	int n = rk_eval_plan_n(&v->plan, task);
	long first = *ordinal;

	*ordinal += n;
	for (int i = 0; i < n; i++) {
		if (!is_mine(v, first + i) || rk_records_find(&v->records, group, v->plan.task_name[task], length, i))
			continue;
		int rc = run_item(v, group, task, length, i, e);
		if (rc == 1) {	/* the task has no more */
			for (; i < n; i++)
				v->total -= is_mine(v, first + i);
			return 0;
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* Makes one example, and sees that the context holds it.  Results as in make_record. */
static int try_example(struct eval *v, int task, int length, int index, rk_err *e)
{
	rk_runner r = { .g = v->g };
	rk_example x = { 0 };
	int most = rk_engine_n_ctx(v->g), rc = rk_cmd_interrupted() ? 2 : make_example(v, task, length, index, &x, e);

	if (rc == 0) {
		int n = rk_runner_count(&r, &x, e);
		if (n < 0 || n + x.max_new > most)
			rc = n < 0 ? -1 : rk_fail(e, RK_EUSAGE, "%s, example %d: prompt and reply take %d tokens, %d of them for the reply; the context "
			                          "holds %d", v->plan.task_name[task], index, n + x.max_new, x.max_new, most);
	}
	rk_example_free(&x);
	return rc;
}

/* The first example of every task, and of those that come from files, where each has a size of its own, all that are to be run: what
 * is missing or does not fit is noticed before hours of work.  0, -1, or 2 when interrupted. */
static int try_tasks(struct eval *v, rk_err *e)
{
	long ordinal = 0;

	if (v->plan.ppl || v->done == v->total)
		return 0;
	if (open_engine(v, 0, e))
		return -1;
	for (int t = 0; t < v->plan.n_task; t++)
		for (int l = 0; l < v->plan.n_length; l++) {
			int n = rk_eval_plan_n(&v->plan, t), length = v->plan.length[l], rc = 0;
			for (int i = 0; i < n && rc == 0; i++)
				if (i == 0 || (v->plan.task[t]->file[0] && is_mine(v, ordinal + i) &&
				               !rk_records_find(&v->records, 0, v->plan.task_name[t], length, i)))
					rc = try_example(v, t, length, i, e);
			if (rc < 0 || rc == 2)
				return rc;
			ordinal += n;
		}
	return 0;
}

static int run_all(struct eval *v, rk_err *e)
{
	long n = 0, ordinal = 0;
	int rc = 0;

	for (int t = 0; t < v->plan.n_task; t++)
		n += (long)v->plan.n_group * v->plan.n_length * rk_eval_plan_n(&v->plan, t);
	for (long i = 0; i < n; i++)
		v->total += is_mine(v, i);
	v->done = (long)json_array_size(v->records.list);
	rc = try_tasks(v, e);
	if (rc)
		return rc;
	v->start_ns = rk_clock_ns();
	for (int g = 0; g < v->plan.n_group; g++)
		for (int t = 0; t < v->plan.n_task; t++)
			for (int l = 0; l < v->plan.n_length && !rc; l++)
				rc = run_cell(v, g, t, v->plan.length[l], &ordinal, e);
	if (!v->o.quiet && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	return rc;
}

/* ---- prediction files ---- */

static int check_outputs(const struct eval *v, rk_err *e)
{
	if (v->o.json && !strcmp(v->o.json, "-"))
		return rk_fail(e, RK_EUSAGE, "--json -: results are a file that a later run goes on with, not standard output");
	if (v->plan.n_shard > 1 && (v->o.predictions || v->o.csv || v->o.svg))
		return rk_fail(e, RK_EUSAGE, "--predictions, --csv and --svg do not go with shards: merge them, and name the merged file with --json");
	return 0;
}

/* DIR/POLICY/LENGTH, made where it is not there; a '/' of a policy's name becomes '_'. */
static int prediction_dir(const struct eval *v, int policy, int length, char out[RK_PATH_MAX], rk_err *e)
{
	const char *dir = v->o.predictions;
	char name[RK_SPEC_MAX];

	snprintf(name, sizeof name, "%s", v->plan.name[policy]);
	for (char *s = name; *s; s++)
		*s = *s == '/' ? '_' : *s;
	for (int depth = 0; depth < 3; depth++) {
		int n = depth == 0 ? snprintf(out, RK_PATH_MAX, "%s", dir) : depth == 1 ? snprintf(out, RK_PATH_MAX, "%s/%s", dir, name) :
		        snprintf(out, RK_PATH_MAX, "%s/%s/%d", dir, name, length);
		if (n >= RK_PATH_MAX || (mkdir(out, 0777) && errno != EEXIST))
			return rk_fail(e, RK_EFAIL, "%.200s: cannot make the folder: %s", out, n >= RK_PATH_MAX ? "too long" : strerror(errno));
	}
	return 0;
}

static int write_prediction(const struct eval *v, int policy, int task, int length, int index, const rk_example *x, rk_out *out, rk_err *e)
{
	char spec[RK_SPEC_MAX];
	size_t at;

	rk_policy_spec(&v->plan.policy[policy], spec);
	for (int g = 0; g < v->plan.n_group; g++) {
		const json_t *rec = rk_records_find(&v->records, g, v->plan.task_name[task], length, index);
		const json_t *reply = rec ? rk_eval_reply(rec, spec, &at) : NULL;
		if (reply)
			return rk_predictions_write(out->f, out->path, index, x, json_string_value(json_object_get(reply, "reply")),
			                            (int)json_integer_value(json_object_get(rec, "prompt_tokens")) + x->max_new, e);
	}
	return 0;
}

static int open_prediction(const struct eval *v, int policy, int task, int length, rk_out *out, rk_err *e)
{
	char dir[RK_PATH_MAX], path[RK_PATH_MAX];

	if (prediction_dir(v, policy, length, dir, e))
		return -1;
	if (snprintf(path, sizeof path, "%s/%s.jsonl", dir, v->plan.task_name[task]) >= (int)sizeof path)
		return rk_fail(e, RK_EFAIL, "%.200s: too long", dir);
	return rk_out_open(out, path, e);
}

/* The files of one task and length, one per policy; the examples, which take long, are made again once for their text. */
static int write_files(struct eval *v, int task, int length, rk_err *e)
{
	rk_out *out = calloc((size_t)v->plan.n_policy, sizeof *out);
	int n = v->plan.n_policy, rc = out ? 0 : rk_fail(e, RK_ENOMEM, "no memory for %d files", n);

	for (int p = 0; p < n && rc == 0; p++)
		rc = open_prediction(v, p, task, length, &out[p], e);
	for (int i = 0; i < rk_eval_plan_n(&v->plan, task) && rc == 0; i++) {
		rk_example x = { 0 };
		rc = make_example(v, task, length, i, &x, e);
		for (int p = 0; p < n && rc == 0; p++)
			rc = write_prediction(v, p, task, length, i, &x, &out[p], e);
		rk_example_free(&x);
	}
	for (int p = 0; p < n && rc >= 0; p++)
		rc = rk_out_commit(&out[p], e);
	for (int p = 0; out && p < n; p++)
		rk_out_discard(&out[p]);
	free(out);
	return rc;
}

static int write_predictions(struct eval *v, rk_err *e)
{
	if (open_engine(v, 0, e))
		return -1;
	for (int t = 0; t < v->plan.n_task; t++)
		for (int l = 0; l < v->plan.n_length; l++)
			if (write_files(v, t, v->plan.length[l], e))
				return -1;
	return 0;
}

/* `eval score TASK FILE...` */
static int score_files(const struct eval *v, rk_err *e)
{
	const rk_task *t = rk_tasks_ruler;
	char b[RK_NUM];
	rk_table table;
	int rc = 0;

	if (v->operand.n < 3)
		return rk_fail(e, RK_EUSAGE, "eval score: give a task of RULER and its prediction files: score TASK FILE...");
	while (t->name && strcmp(t->name, v->operand.v[1]))
		t++;
	if (!t->name)
		return rk_fail(e, RK_EUSAGE, "eval score: %.64s is not a task of ruler; `refreshkv eval list` names them", v->operand.v[1]);
	rk_table_init(&table, 4);
	for (int i = 0; i < 4; i++)
		rk_table_add(&table, (const char *[]){ "file", "examples", "empty", "score" }[i]);
	for (int i = 2; i < v->operand.n && rc == 0; i++) {
		rk_predictions p;
		rc = rk_predictions_score(t, v->operand.v[i], &p, e);
		rk_table_add(&table, v->operand.v[i]);
		rk_table_add(&table, rk_num_count(b, p.n));
		rk_table_add(&table, rk_num_count(b, p.n_null));
		rk_table_add(&table, rk_num_real(b, 100 * p.score, 2));
	}
	if (rc == 0)
		rc = rk_table_print(&table, stdout, e);
	rk_table_free(&table);
	return rc ? rc : rk_out_flush(stdout, "standard output", e);
}

/* ---- commands ---- */

static int report(struct eval *v, rk_err *e)
{
	if (rk_eval_report(&v->records, v->table, e))
		return -1;
	if (v->csv.f)
		rk_eval_csv(&v->records, v->csv.f);
	if ((v->csv.f && rk_out_commit(&v->csv, e)) || (v->svg.f && (rk_eval_svg(&v->records, v->svg.f, e) || rk_out_commit(&v->svg, e))))
		return -1;
	return rk_out_flush(v->table, v->table == stdout ? "standard output" : "standard error", e);
}

static int open_outputs(struct eval *v, rk_err *e)
{
	bool csv = v->o.csv && !strcmp(v->o.csv, "-"), svg = v->o.svg && !strcmp(v->o.svg, "-");

	v->table = csv || svg ? stderr : stdout;
	if (csv && svg)
		return rk_fail(e, RK_EUSAGE, "--csv - and --svg -: only one of them can go to standard output");
	if (v->o.csv && rk_out_open(&v->csv, v->o.csv, e))
		return -1;
	return v->o.svg ? rk_out_open(&v->svg, v->o.svg, e) : 0;
}

static int run_suite(struct eval *v, rk_err *e)
{
	const rk_eval_plan *p = &v->plan;
	json_t *h;

	if (rk_eval_plan_make(&v->plan, &v->o, &v->operand, e) || check_outputs(v, e) || open_outputs(v, e) ||
	    !(h = rk_eval_plan_header(p, e)) || rk_records_open(&v->records, p->json_path[0] ? p->json_path : NULL, h, e))
		return -1;
	int rc = run_all(v, e);
	rk_cmd_release_interrupt();
	if (rc < 0)
		return -1;
	if (rc && p->json_path[0])
		fprintf(stderr, "refreshkv: %ld of %ld are in %s; the same command goes on from there\n", v->done, v->total, p->json_path);
	if (p->n_shard > 1) {	/* tables of a part would mislead */
		printf("shard %d/%d: %ld of %ld examples in %s; join the shards with `refreshkv eval merge`\n", p->shard + 1, p->n_shard, v->done,
		       v->total, p->json_path);
		return rk_out_flush(stdout, "standard output", e) ? -1 : rc ? RK_EXIT_INTERRUPTED : 0;
	}
	if (report(v, e) || (!rc && v->o.predictions && write_predictions(v, e)))
		return -1;
	return rc ? RK_EXIT_INTERRUPTED : 0;
}

static int merge(struct eval *v, rk_err *e)
{
	rk_out out = { 0 };
	int rc = -1;

	if (v->operand.n < 3)
		return rk_fail(e, RK_EUSAGE, "eval merge: give the file to write and the shards: merge OUT SHARD...");
	bool write = strcmp(v->operand.v[1], "-") != 0;
	if (open_outputs(v, e) || rk_records_merge(&v->records, v->operand.v + 2, v->operand.n - 2, e) ||
	    (write && rk_out_open(&out, v->operand.v[1], e)))
		goto done;
	if (write && (rk_records_write(&v->records, out.f, e) || rk_out_commit(&out, e)))
		goto done;
	rc = report(v, e);
done:
	rk_out_discard(&out);
	return rc;
}

/* Options are refused where they would do nothing. */
static int check_options(const struct eval *v, rk_err *e)
{
	static const char suites[] = "a suite", tasks[] = "chain-of-key, needle, ruler and longproc", ppl[] = "ppl", files[] = "ruler and longproc",
	                  ruler[] = "ruler", tables[] = "a suite and merge";
	const rk_eval_opts *o = &v->o;
	const char *what = v->operand.v[0];
	bool merge = !strcmp(what, "merge"), is_ppl = !strcmp(what, "ppl"), is_ruler = !strcmp(what, "ruler");
	bool suite = !merge && strcmp(what, "list") && strcmp(what, "score");
	const struct { const char *name; bool given; const char *with; } row[] = {
		{ "task", o->task.n, suites }, { "length", o->length, suites }, { "examples", o->examples, tasks }, { "seed", o->seed, tasks },
		{ "question", o->question != RK_QUESTION_INSIDE, tasks }, { "policy", o->policy.n, suites }, { "sweep", o->sweep.n, suites },
		{ "offset", strcmp(o->offset, "0"), ppl }, { "eval", o->eval != 256, ppl }, { "data", o->data, files },
		{ "haystack", o->haystack, ruler }, { "json", o->json, suites }, { "csv", o->csv, tables }, { "svg", o->svg, tables },
		{ "shard", o->shard, suites }, { "mpi", o->mpi, suites }, { "predictions", o->predictions, ruler },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		const char *with = row[i].with;
		bool fits = with == suites ? suite : with == tasks ? suite && !is_ppl : with == ppl ? is_ppl : with == ruler ? is_ruler :
		            with == files ? is_ruler || !strcmp(what, "longproc") : suite || merge;
		if (row[i].given && !fits)
			return rk_fail(e, RK_EUSAGE, "--%s does nothing for eval %.64s: it goes with %s", row[i].name, what, with);
	}
	if (!strcmp(what, "list") && v->operand.n > 1)
		return rk_fail(e, RK_EUSAGE, "unexpected operand '%.128s' of eval list", v->operand.v[1]);
	return 0;
}

static int run_operand(struct eval *v, rk_err *e)
{
	const char *what = v->operand.v[0];

	if (check_options(v, e))
		return -1;
	if (!strcmp(what, "list")) {
		list_tasks(stdout);
		return rk_out_flush(stdout, "standard output", e);
	}
	return !strcmp(what, "merge") ? merge(v, e) : !strcmp(what, "score") ? score_files(v, e) : run_suite(v, e);
}

int rk_cmd_eval(int argc, char **argv, rk_err *e)
{
	struct eval *v = calloc(1, sizeof *v);
	int rc = -1;

	if (!v)
		return rk_fail(e, RK_ENOMEM, "eval: out of memory");
	v->open_group = v->records.fd = -1;
	switch (rk_opt_parse(&rk_cmd_eval_opt, argc, argv, &v->o, &v->operand, e)) {
	case 1:
		rk_opt_help(&rk_cmd_eval_opt, stdout);
		rc = rk_out_flush(stdout, "standard output", e);
		break;
	case 0:
		rc = run_operand(v, e);
		break;
	}
	rk_engine_close(v->g);
	rk_records_close(&v->records);
	rk_out_discard(&v->csv);
	rk_out_discard(&v->svg);
	rk_given_drop(&v->kept);
	for (int i = 0; i < RK_EVAL_MAX_TASK; i++)
		rk_text_free(&v->text[i]);
	free(v);
	return rc;
}
