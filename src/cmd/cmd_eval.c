/* cmd_eval.c: `refreshkv eval`: suites of tasks under several policies: the command line, and what is made of the records that
 * eval_work.h gathers: tables, pictures, prediction files, merged shards. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cmd/eval_plan.h"
#include "cmd/eval_report.h"
#include "cmd/eval_work.h"
#include "cmd/out.h"
#include "eval/predictions.h"
#include "eval/summary.h"

static const rk_opt rows[] = {
	{ "task", 0, RK_OPT_LIST, offsetof(rk_eval_opts, task), .metavar = "NAME", .doc = "a task of the suite; without it: all that the files given allow" },
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
	rk_eval_work work;
	rk_out csv, svg;
	FILE *table;
};

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
		rc = rk_eval_work_example(&v->work, task, length, i, &x, e);
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
	if (rk_eval_work_open(&v->work, 0, e))
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

/* "refreshkv: left out: A, B (need --haystack FILE), C (needs --data DIR)" */
static void say_left_out(const rk_eval_plan *p)
{
	int same = 0;	/* tasks in a row that lack the same */

	for (int i = 0; i < p->n_left_out; i++) {
		const char *lacks = rk_eval_plan_lacks(p, p->left_out[i]);
		fprintf(stderr, "%s%s", i ? ", " : "refreshkv: left out: ", p->left_out[i]->name);
		same++;
		if (i + 1 < p->n_left_out && !strcmp(lacks, rk_eval_plan_lacks(p, p->left_out[i + 1])))
			continue;
		fprintf(stderr, " (need%s %s)", same == 1 ? "s" : "", lacks);
		same = 0;
	}
	if (p->n_left_out)
		fputc('\n', stderr);
}

static int run_suite(struct eval *v, rk_err *e)
{
	const rk_eval_plan *p = &v->plan;
	json_t *h;

	if (rk_eval_plan_make(&v->plan, &v->o, &v->operand, e) || check_outputs(v, e) || open_outputs(v, e) ||
	    !(h = rk_eval_plan_header(p, e)) || rk_records_open(&v->records, p->json_path[0] ? p->json_path : NULL, h, e))
		return -1;
	rk_eval_work_init(&v->work, p, &v->records);
	say_left_out(p);
	int rc = rk_eval_work_run(&v->work, e);
	rk_cmd_release_interrupt();
	if (rc < 0)
		return -1;
	if (rc && p->json_path[0])
		fprintf(stderr, "refreshkv: %ld of %ld are in %s; the same command goes on from there\n", v->work.done, v->work.total, p->json_path);
	if (p->n_shard > 1) {	/* tables of a part would mislead */
		printf("shard %d/%d: %ld of %ld examples in %s; join the shards with `refreshkv eval merge`\n", p->shard + 1, p->n_shard, v->work.done,
		       v->work.total, p->json_path);
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
	v->records.fd = -1;
	switch (rk_opt_parse(&rk_cmd_eval_opt, argc, argv, &v->o, &v->operand, e)) {
	case 1:
		rk_opt_help(&rk_cmd_eval_opt, stdout);
		rc = rk_out_flush(stdout, "standard output", e);
		break;
	case 0:
		rc = run_operand(v, e);
		break;
	}
	rk_eval_work_close(&v->work);
	rk_records_close(&v->records);
	rk_out_discard(&v->csv);
	rk_out_discard(&v->svg);
	free(v);
	return rc;
}
