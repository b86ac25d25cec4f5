/* cmd_eval.c: `refreshkv eval`: suites of tasks under several policies, which run as lanes of one session per example.
 *
 * The work is a list of items (group of policies, task, length, index) in a fixed order; a shard takes every n-th of it.  Each
 * finished item is a line of the results file, so that a run that was ended goes on where it was.
 */
#include "cmd/cmd.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/near.h"
#include "cmd/doc.h"
#include "cmd/eval_report.h"
#include "cmd/out.h"
#include "eval/records.h"
#include "eval/runner.h"
#include "eval/text.h"
#include "trace/digest.h"

#define MAX_POLICY RK_OPT_LIST_MAX
#define MAX_LENGTH 16
#define MAX_TASK RK_OPT_LIST_MAX
#define PROGRESS_NS 15000000000	/* between two lines of progress where stderr is no terminal */

enum question { QUESTION_INSIDE, QUESTION_AFTER };
static const char *const question_names[] = { "inside", "after", NULL };

struct opts {
	rk_opt_list task, policy, sweep;
	const char *length, *offset, *json, *csv, *svg, *shard, *data, *haystack;
	int examples, seed, eval;
	enum question question;
	bool mpi, quiet;
	rk_model_opts model;
	rk_engine_opts engine;
};

static const rk_opt rows[] = {
	{ "task", 0, RK_OPT_LIST, offsetof(struct opts, task), .metavar = "NAME", .doc = "a task of the suite; without it: all of them" },
	{ "length", 'c', RK_OPT_STR, offsetof(struct opts, length), .metavar = "TOK[,TOK...]",
	  .doc = "tokens of prompt and reply together; for ppl of the prompt.  Without it: what suits the suite; 0: the task's own size" },
	{ "examples", 'n', RK_OPT_INT, offsetof(struct opts, examples), .def = "0", .min = 0, .max = 1000000, .metavar = "N",
	  .doc = "examples per task and length; 0: as many as the task says" },
	{ "seed", 0, RK_OPT_INT, offsetof(struct opts, seed), .def = "0", .min = 0, .max = 2147483647,
	  .doc = "of the examples; the same seed makes the same ones on every machine" },
	{ "question", 0, RK_OPT_ENUM, offsetof(struct opts, question), .def = "inside", .names = question_names,
	  .doc = "inside: policies select with the question in view; after: with the context alone, and the question is a further turn" },
	{ "policy", 0, RK_OPT_LIST, offsetof(struct opts, policy), .metavar = "SPEC",
	  .doc = "a policy.  Without it: refreshkv.  vanilla is added where it is missing, as the baseline" },
	{ "sweep", 0, RK_OPT_LIST, offsetof(struct opts, sweep), .metavar = "KEY=V[,V...]",
	  .doc = "every policy but vanilla with each of these values, and with several sweeps every combination" },
	{ "offset", 0, RK_OPT_STR, offsetof(struct opts, offset), .def = "0", .metavar = "N[,N...]",
	  .doc = "ppl: token at which each window of a text starts" },
	{ "eval", 0, RK_OPT_INT, offsetof(struct opts, eval), .def = "256", .min = 1, .max = 1 << 20, .metavar = "TOKENS",
	  .doc = "ppl: tokens that are scored after the prompt" },
	{ "data", 0, RK_OPT_STR, offsetof(struct opts, data), .metavar = "DIR", .doc = "folder with the files of tasks that read some" },
	{ "haystack", 0, RK_OPT_STR, offsetof(struct opts, haystack), .metavar = "FILE", .doc = "essays that RULER's niah tasks hide needles in" },
	{ 0 }
};

static const rk_opt run_rows[] = {
	{ "json", 0, RK_OPT_STR, offsetof(struct opts, json), .metavar = "FILE",
	  .doc = "results, a line per example as it is done; an existing file of the same parameters is gone on with" },
	{ "csv", 0, RK_OPT_STR, offsetof(struct opts, csv), .metavar = "FILE",
	  .doc = "one row per example and policy; -: to standard output, and the tables to stderr" },
	{ "svg", 0, RK_OPT_STR, offsetof(struct opts, svg), .metavar = "FILE",
	  .doc = "the pictures: needle's heat-maps, ppl's ratio over position, quality against bytes and time" },
	{ "shard", 0, RK_OPT_STR, offsetof(struct opts, shard), .metavar = "I/N", .doc = "only the I-th of N parts (I from 1), into FILE.I of --json" },
	{ "mpi", 0, RK_OPT_FLAG, offsetof(struct opts, mpi), .doc = "take the shard from mpirun (OMPI_COMM_WORLD_RANK and _SIZE)" },
	{ "quiet", 'q', RK_OPT_FLAG, offsetof(struct opts, quiet), .doc = "no progress on stderr" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Questions and policies", rows, 0 },
	{ "Run and results", run_rows, 0 },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ "Engine", rk_engine_rows, offsetof(struct opts, engine) },
	{ 0 }
};

/* suite ppl has no tasks: its texts are operands */
struct suite { const char *name, *lengths; };
static const struct suite suites[] = {
	{ "chain-of-key", "2048" }, { "needle", "1024,2048,4096" }, { "ruler", "4096" }, { "longproc", "0" }, { "ppl", "4096" },
};
#define N_SUITE (sizeof suites / sizeof *suites)

static void list_tasks(FILE *f)
{
	for (const rk_task *const *s = rk_suites; *s; s++)
		for (const rk_task *t = *s; t->name; t++)
			rk_opt_wrap(f, fprintf(f, "  %-13s %-16s ", t->suite, t->name), 31, t->doc);
	rk_opt_wrap(f, fprintf(f, "  %-13s %-16s ", "ppl", "TEXT..."), 31, "perplexity on texts, teacher-forced, against vanilla on the same tokens");
}

static void more_help(FILE *f)
{
	fputs("Suites and their tasks (`refreshkv eval list`):\n", f);
	list_tasks(f);
	fputs("\n`refreshkv eval merge OUT SHARD...` joins the results of shards; OUT -: only print the tables.\n\n", f);
	rk_policy_help(f);
}

const rk_opt_cmd rk_cmd_eval_opt = {
	.name = "eval", .operands = "SUITE [TEXT...] | list | merge OUT SHARD...", .groups = groups, .min_operand = 1,
	.max_operand = RK_OPT_LIST_MAX, .more = more_help,
	.doc = "Measure what policies lose on tasks: chain-of-key, ruler, longproc, needle, ppl.",
};

/* ---- set-up ---- */

struct eval {
	struct opts o;
	rk_opt_list operand;
	const struct suite *suite;
	const rk_task *task[MAX_TASK];	/* NULL with ppl */
	const char *task_name[MAX_TASK];	/* texts with ppl */
	int n_task, length[MAX_LENGTH], n_length, offset[RK_OPT_LIST_MAX], n_offset;
	rk_policy policy[MAX_POLICY];
	char name[MAX_POLICY][RK_SPEC_MAX];	/* as typed, with what a sweep adds */
	int n_policy, base, n_group;
	int shard, n_shard;			/* from 0 */
	char model_path[RK_PATH_MAX], json_path[RK_PATH_MAX];
	rk_records records;
	rk_out csv, svg;
	FILE *table;
	rk_engine *g;
	int open_group;				/* which g is open for; -1: none */
	rk_text text[MAX_TASK];
	int64_t start_ns, shown_ns;
	long done, made, total;			/* items of this shard; made: by this process */
};

static bool is_ppl(const struct eval *v)
{
	return !strcmp(v->suite->name, "ppl");
}

static int find_suite(struct eval *v, rk_err *e)
{
	const char *name = v->operand.v[0], *names[N_SUITE];
	char hint[200];

	for (size_t i = 0; i < N_SUITE; i++) {
		names[i] = suites[i].name;
		if (!strcmp(name, suites[i].name))
			v->suite = &suites[i];
	}
	if (!v->suite)
		return rk_fail(e, RK_EUSAGE, "unknown suite '%.64s'; %s", name, rk_near_hint(hint, sizeof hint, name, names, N_SUITE));
	if (is_ppl(v) && v->operand.n < 2)
		return rk_fail(e, RK_EUSAGE, "eval ppl: no text: name one or more files");
	if (!is_ppl(v) && v->operand.n > 1)
		return rk_fail(e, RK_EUSAGE, "unexpected operand '%.128s': only eval ppl takes texts", v->operand.v[1]);
	return 0;
}

static int take_task(struct eval *v, const rk_task *all, int n, const char *name, rk_err *e)
{
	const char *names[MAX_TASK];
	char hint[300];

	for (int i = 0; i < n; i++) {
		names[i] = all[i].name;
		if (strcmp(name, all[i].name))
			continue;
		for (int j = 0; j < v->n_task; j++)
			if (v->task[j] == &all[i])
				return rk_fail(e, RK_EUSAGE, "--task %s is given twice", name);
		v->task[v->n_task++] = &all[i];
		return 0;
	}
	return rk_fail(e, RK_EUSAGE, "--task %.64s: not a task of %s; %s", name, v->suite->name, rk_near_hint(hint, sizeof hint, name, names, n));
}

static int choose_tasks(struct eval *v, rk_err *e)
{
	const rk_task *all = NULL;
	int n = 0;

	if (is_ppl(v)) {
		for (int i = 1; i < v->operand.n; i++)
			v->task_name[v->n_task++] = v->operand.v[i];
		return v->o.task.n ? rk_fail(e, RK_EUSAGE, "eval ppl has no tasks: --task does not go with it") : 0;
	}
	for (const rk_task *const *s = rk_suites; *s; s++)
		if (!strcmp((*s)->suite, v->suite->name))
			all = *s;
	while (all && all[n].name)
		n++;
	for (int i = 0; i < v->o.task.n; i++)
		if (take_task(v, all, n, v->o.task.v[i], e))
			return -1;
	for (int i = 0; i < n && !v->o.task.n; i++)
		v->task[v->n_task++] = &all[i];
	for (int i = 0; i < v->n_task; i++)
		v->task_name[i] = v->task[i]->name;
	return 0;
}

static int choose_lengths(struct eval *v, rk_err *e)
{
	const char *list = v->o.length ? v->o.length : v->suite->lengths;
	bool own = !strcmp(v->suite->name, "longproc");

	if (rk_cmd_numbers("--length", list, own ? 0 : 1, 1 << 24, v->length, MAX_LENGTH, &v->n_length, e) ||
	    rk_cmd_numbers("--offset", v->o.offset, 0, INT_MAX, v->offset, RK_OPT_LIST_MAX, &v->n_offset, e))
		return -1;
	for (int i = 0; i < v->n_length; i++)
		for (int j = 0; j < i; j++)
			if (v->length[i] == v->length[j])
				return rk_fail(e, RK_EUSAGE, "--length %d is given twice", v->length[i]);
	return 0;
}

static int add_policy(struct eval *v, const char *name, const rk_policy *p, rk_err *e)
{
	char spec[RK_SPEC_MAX], other[RK_SPEC_MAX];

	if (v->n_policy == MAX_POLICY)
		return rk_fail(e, RK_EUSAGE, "more than %d policies", MAX_POLICY);
	rk_policy_spec(p, spec);
	for (int i = 0; i < v->n_policy; i++) {
		rk_policy_spec(&v->policy[i], other);
		if (!strcmp(spec, other))
			return rk_fail(e, RK_EUSAGE, "--policy %.100s and %.100s are the same", v->name[i], name);
	}
	snprintf(v->name[v->n_policy], RK_SPEC_MAX, "%s", name);
	v->policy[v->n_policy++] = *p;
	return 0;
}

/* p with every combination of the values of sweeps i and later. */
static int sweep(struct eval *v, int i, const char *name, const rk_policy *p, rk_err *e)
{
	if (i == v->o.sweep.n || p->score == RK_SCORE_NONE)
		return add_policy(v, name, p, e);
	const char *s = v->o.sweep.v[i], *at = strchr(s, '=');
	if (!at || at == s || !at[1])
		return rk_fail(e, RK_EUSAGE, "--sweep %.64s is not key=value,value...", s);
	int key = (int)(at - s);
	for (at++; at; ) {
		int n = (int)strcspn(at, ",");
		char one[RK_SPEC_MAX], longer[RK_SPEC_MAX];
		rk_policy q = *p;
		if (snprintf(one, sizeof one, "%.*s=%.*s", key, s, n, at) >= (int)sizeof one ||
		    snprintf(longer, sizeof longer, "%s%c%s", name, strchr(name, ':') ? ',' : ':', one) >= (int)sizeof longer)
			return rk_fail(e, RK_EUSAGE, "--sweep %.64s: longer than %d characters", s, RK_SPEC_MAX - 1);
		if (rk_policy_set(&q, one, e) || sweep(v, i + 1, longer, &q, e))
			return -1;
		at = at[n] ? at + n + 1 : NULL;
	}
	return 0;
}

static int choose_policies(struct eval *v, rk_err *e)
{
	rk_opt_list *list = &v->o.policy;
	bool have = false;
	rk_policy p;

	if (!list->n)
		list->v[list->n++] = "refreshkv";
	for (int i = 0; i < list->n; i++) {
		if (rk_policy_parse(&p, list->v[i], e))
			return -1;
		have |= p.score == RK_SCORE_NONE;
	}
	if (!have && (rk_policy_parse(&p, "vanilla", e) || add_policy(v, "vanilla", &p, e)))
		return -1;
	for (int i = 0; i < list->n; i++)
		if (rk_policy_parse(&p, list->v[i], e) || sweep(v, 0, list->v[i], &p, e))
			return -1;
	while (v->policy[v->base].score != RK_SCORE_NONE)
		v->base++;
	v->n_group = v->n_policy <= RK_MAX_LANE ? 1 : (v->n_policy - 1 + RK_MAX_LANE - 2) / (RK_MAX_LANE - 1);
	return 0;
}

/* Policies that run together: all, or, where they are more than one session holds, the baseline and the next ones of the others. */
static void group_lanes(const struct eval *v, int group, rk_session_cfg *s)
{
	s->n_lane = 0;
	if (v->n_group > 1)
		s->lane[s->n_lane++] = v->policy[v->base];
	for (int i = 0, other = 0; i < v->n_policy; i++)
		if (v->n_group == 1 || (i != v->base && other++ / (RK_MAX_LANE - 1) == group))
			s->lane[s->n_lane++] = v->policy[i];
}

static int env_number(const char *name, int *n, rk_err *e)
{
	const char *s = getenv(name);

	if (!s)
		return rk_fail(e, RK_EUSAGE, "--mpi: %s is not set; start the program with Open MPI's mpirun, or give --shard", name);
	int count;
	return rk_cmd_numbers(name, s, 0, 1 << 20, n, 1, &count, e);
}

static int choose_shard(struct eval *v, rk_err *e)
{
	v->n_shard = 1;
	if (v->o.mpi && v->o.shard)
		return rk_fail(e, RK_EUSAGE, "--mpi and --shard exclude each other");
	if (v->o.mpi) {
		if (env_number("OMPI_COMM_WORLD_RANK", &v->shard, e) || env_number("OMPI_COMM_WORLD_SIZE", &v->n_shard, e))
			return -1;
	} else if (v->o.shard) {
		int n = 0;
		if (sscanf(v->o.shard, "%d/%d%n", &v->shard, &v->n_shard, &n) != 2 || v->o.shard[n] || v->shard < 1 || v->shard > v->n_shard)
			return rk_fail(e, RK_EUSAGE, "--shard %.32s is not I/N with I from 1 to N", v->o.shard);
		v->shard--;
	}
	if (!v->o.mpi && !v->o.shard)
		snprintf(v->json_path, sizeof v->json_path, "%s", v->o.json ? v->o.json : "");
	else if (!v->o.json)
		return rk_fail(e, RK_EUSAGE, "a shard needs --json FILE, which the shards' results are named after");
	else
		snprintf(v->json_path, sizeof v->json_path, "%s.%d", v->o.json, v->shard + 1);
	return 0;
}

static int n_example(const struct eval *v, int task)
{
	return is_ppl(v) ? v->n_offset : v->o.examples ? v->o.examples : v->task[task]->n_example;
}

/* ---- the header: every parameter that results depend on ---- */

static json_t *file_digest(const char *path, rk_err *e)
{
	char sha[65];

	if (!path)
		return json_null();
	return rk_digest_file(path, sha, e) ? NULL : json_string(sha);
}

static json_t *texts_json(const struct eval *v, rk_err *e)
{
	json_t *a = json_array();

	for (int i = 0; i < v->n_task && is_ppl(v); i++) {
		json_t *sha = file_digest(v->task_name[i], e);
		if (!sha) {
			json_decref(a);
			return NULL;
		}
		json_array_append_new(a, sha);
	}
	return a;
}

static json_t *numbers_json(const int *v, int n)
{
	json_t *a = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_integer(v[i]));
	return a;
}

static json_t *header(const struct eval *v, rk_err *e)
{
	json_t *tasks = json_array(), *examples = json_array(), *policies = json_array(), *names = json_array();
	json_t *model = NULL, *haystack = NULL, *texts = NULL, *h = NULL;

	for (int i = 0; i < v->n_task; i++) {
		json_array_append_new(tasks, json_string(v->task_name[i]));
		json_array_append_new(examples, json_integer(n_example(v, i)));
	}
	for (int i = 0; i < v->n_policy; i++) {
		char spec[RK_SPEC_MAX];
		rk_policy_spec(&v->policy[i], spec);
		json_array_append_new(policies, json_string(spec));
		json_array_append_new(names, json_string(v->name[i]));
	}
	if ((model = file_digest(v->model_path, e)) && (haystack = file_digest(v->o.haystack, e)) && (texts = texts_json(v, e)))
		h = json_pack("{s:i, s:s, s:s, s:O, s:o, s:O, s:i, s:s, s:O, s:O, s:i, s:O, s:s?, s:b, s:s?, s:O, s:O, s:o, s:i}",
			"refreshkv_eval", 1, "version", RK_VERSION, "suite", v->suite->name, "tasks", tasks,
			"lengths", numbers_json(v->length, v->n_length), "examples", examples, "seed", v->o.seed,
			"question", question_names[v->o.question], "policies", policies, "names", names, "baseline", v->base,
			"model_sha256", model, "chat_template", v->o.model.chat, "exact", v->o.engine.exact, "data", v->o.data,
			"haystack_sha256", haystack, "texts_sha256", texts, "offsets", numbers_json(v->offset, is_ppl(v) ? v->n_offset : 0),
			"eval", is_ppl(v) ? v->o.eval : 0);
	if (h)
		json_object_set_new(h, "shard", v->json_path[0] && (v->o.mpi || v->o.shard) ?
		                    json_pack("[i, i]", v->shard + 1, v->n_shard) : json_null());
	else if (model && haystack && texts)
		rk_fail(e, RK_ENOMEM, "no memory for the results' header");
	json_decref(tasks), json_decref(examples), json_decref(policies), json_decref(names);
	json_decref(model), json_decref(haystack), json_decref(texts);
	return h;
}

/* ---- the work ---- */

static int read_texts(struct eval *v, rk_err *e)
{
	for (int i = 0; i < v->n_task && is_ppl(v); i++) {
		char *text;
		size_t len;
		if (rk_doc_read(v->task_name[i], false, &text, &len, e))
			return -1;
		rk_text_free(&v->text[i]);
		int rc = rk_text_init(&v->text[i], v->task_name[i], rk_engine_tokenizer(v->g), text, len, e);
		free(text);
		for (int k = 0; k < v->n_offset * v->n_length && rc == 0; k++)
			rc = rk_text_check(&v->text[i], (size_t)v->offset[k % v->n_offset], v->length[k / v->n_offset], v->o.eval, e);
		if (rc)
			return -1;
	}
	return 0;
}

static int check_lengths(const struct eval *v, rk_err *e)
{
	int most = rk_engine_model(v->g)->hp.n_ctx_train;

	for (int i = 0; i < v->n_length; i++) {
		int need = v->length[i] + (is_ppl(v) ? v->o.eval : 0);
		if (need > most)
			return rk_fail(e, RK_EUSAGE, "--length %d: %d tokens with what is scored, the model's context holds %d", v->length[i], need, most);
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
	rk_cmd_engine_cfg(&cfg, v->model_path, &v->o.model, &v->o.engine, NULL);
	cfg.raw = is_ppl(v);
	cfg.one_turn = true;
	for (int i = 0; i < v->n_length; i++) {
		int need = v->length[i] + (is_ppl(v) ? v->o.eval : 0);
		cfg.session.n_ctx = need > cfg.session.n_ctx ? need : cfg.session.n_ctx;
	}
	group_lanes(v, group, &cfg.session);
	if (rk_engine_open(&v->g, &cfg, e) || check_lengths(v, e) || read_texts(v, e))
		return -1;
	v->open_group = group;
	rk_cmd_catch_interrupt(v->g);
	return 0;
}

/* 1 when there is no such example, 2 when interrupted. */
static int make_record(struct eval *v, int task, int length, int index, json_t **record, rk_err *e)
{
	rk_runner r = { .g = v->g, .after = v->o.question == QUESTION_AFTER };
	rk_task_env env = { .seed = (uint64_t)v->o.seed, .length = length, .count = rk_runner_count, .ctx = &r, .data_dir = v->o.data,
	                    .haystack = v->o.haystack };
	rk_example x = { 0 };
	int32_t *ids;
	int rc;

	if (is_ppl(v)) {
		if (rk_text_window(&v->text[task], (size_t)v->offset[index], length, v->o.eval, &ids, e))
			return -1;
		rc = rk_runner_window(&r, ids, length, v->o.eval, record, e);
		free(ids);
		return rc > 0 ? 2 : rc;
	}
	rc = v->task[task]->make(v->task[task], &env, index, &x, e);
	if (rc == 0) {
		rc = rk_runner_example(&r, v->task[task], &x, record, e);
		rc = rc > 0 ? 2 : rc;
	}
	rk_example_free(&x);
	return rc;
}

/* One line: in place on a terminal, now and then elsewhere. */
static void show_progress(struct eval *v)
{
	bool tty = isatty(STDERR_FILENO);
	int64_t now = rk_clock_ns();
	char running[600];

	if (v->o.quiet || (!tty && now - v->shown_ns < PROGRESS_NS))
		return;
	v->shown_ns = now;
	double left = v->made ? (double)(now - v->start_ns) * 1e-9 / (double)v->made * (double)(v->total - v->done) : (double)NAN;
	rk_eval_running(&v->records, running, tty ? 80 : sizeof running);
	fprintf(stderr, tty ? "\r%ld/%ld" : "%ld/%ld", v->done, v->total);
	if (left < 90)
		fprintf(stderr, ", %.0f s left", left);
	else if (isfinite(left))
		fprintf(stderr, ", %.0f min left", left / 60);
	fprintf(stderr, tty ? "; %s \033[K" : "; %s\n", running);
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
	record = json_pack("{s:i, s:s, s:i, s:i}", "group", group, "task", v->task_name[task], "length", length, "index", index);
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
	return ordinal % v->n_shard == v->shard;
}

/* All examples of one task and length; *ordinal counts the items of the whole run. */
static int run_cell(struct eval *v, int group, int task, int length, long *ordinal, rk_err *e)
{
	int n = n_example(v, task);
	long first = *ordinal;

	*ordinal += n;
	for (int i = 0; i < n; i++) {
		if (!is_mine(v, first + i) || rk_records_has(&v->records, group, v->task_name[task], length, i))
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

static int run_all(struct eval *v, rk_err *e)
{
	long n = 0, ordinal = 0;
	int rc = 0;

	for (int t = 0; t < v->n_task; t++)
		n += (long)v->n_group * v->n_length * n_example(v, t);
	for (long i = 0; i < n; i++)
		v->total += is_mine(v, i);
	v->done = (long)json_array_size(v->records.list);
	v->start_ns = rk_clock_ns();
	for (int g = 0; g < v->n_group; g++)
		for (int t = 0; t < v->n_task; t++)
			for (int l = 0; l < v->n_length && !rc; l++)
				rc = run_cell(v, g, t, v->length[l], &ordinal, e);
	if (!v->o.quiet && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	return rc;
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
	v->table = v->o.csv && !strcmp(v->o.csv, "-") ? stderr : stdout;
	if (v->o.csv && rk_out_open(&v->csv, v->o.csv, e))
		return -1;
	return v->o.svg ? rk_out_open(&v->svg, v->o.svg, e) : 0;
}

static int run_suite(struct eval *v, rk_err *e)
{
	const char *path;
	char buf[RK_PATH_MAX];
	json_t *h;

	if (find_suite(v, e) || choose_tasks(v, e) || choose_lengths(v, e) || choose_policies(v, e) || choose_shard(v, e) ||
	    rk_cmd_model_path(v->o.model.model, buf, &path, e))
		return -1;
	snprintf(v->model_path, sizeof v->model_path, "%s", path);
	if (open_outputs(v, e) || !(h = header(v, e)) || rk_records_open(&v->records, v->json_path[0] ? v->json_path : NULL, h, e))
		return -1;
	int rc = run_all(v, e);
	rk_cmd_release_interrupt();
	if (rc < 0)
		return -1;
	if (rc && v->json_path[0])
		fprintf(stderr, "refreshkv: %ld of %ld are in %s; the same command goes on from there\n", v->done, v->total, v->json_path);
	if (report(v, e))
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
		if (!strcmp(v->operand.v[0], "list")) {
			list_tasks(stdout);
			rc = rk_out_flush(stdout, "standard output", e);
		} else {
			rc = !strcmp(v->operand.v[0], "merge") ? merge(v, e) : run_suite(v, e);
		}
		break;
	}
	rk_engine_close(v->g);
	rk_records_close(&v->records);
	rk_out_discard(&v->csv);
	rk_out_discard(&v->svg);
	for (int i = 0; i < v->n_task; i++)
		rk_text_free(&v->text[i]);
	free(v);
	return rc;
}
