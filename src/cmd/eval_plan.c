/* eval_plan.c: see eval_plan.h */
#include "cmd/eval_plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/near.h"
#include "base/utf8.h"
#include "eval/records.h"
#include "trace/digest.h"

const char *const rk_question_names[] = { "inside", "after", NULL };

static const struct suite { const char *name, *lengths; } suites[] = {
	{ "chain-of-key", "2048" }, { "needle", "1024,2048,4096" }, { "ruler", "4096" }, { "longproc", "0" }, { "ppl", "4096" },
};
#define N_SUITE (sizeof suites / sizeof *suites)

/* ---- what to ask ---- */

/* *lengths: those that are taken where none are given. */
static int find_suite(rk_eval_plan *p, const char *name, const char **lengths, rk_err *e)
{
	const char *names[N_SUITE];
	char hint[200];

	for (size_t i = 0; i < N_SUITE; i++) {
		names[i] = suites[i].name;
		if (strcmp(name, suites[i].name))
			continue;
		p->suite = suites[i].name;
		*lengths = suites[i].lengths;
		p->ppl = !strcmp(name, "ppl");
		return 0;
	}
	return rk_fail(e, RK_EUSAGE, "unknown suite '%.64s'; %s", name, rk_near_hint(hint, sizeof hint, name, names, N_SUITE));
}

/* With ppl texts are what tasks are elsewhere. */
static int take_texts(rk_eval_plan *p, const rk_opt_list *operand, rk_err *e)
{
	if (p->ppl && operand->n < 2)
		return rk_fail(e, RK_EUSAGE, "eval ppl: no text: name one or more files");
	if (p->ppl && p->o->task.n)
		return rk_fail(e, RK_EUSAGE, "eval ppl has no tasks: --task does not go with it");
	if (!p->ppl && operand->n > 1)
		return rk_fail(e, RK_EUSAGE, "unexpected operand '%.128s': only eval ppl takes texts", operand->v[1]);
	if (operand->n - 1 > RK_EVAL_MAX_TASK)
		return rk_fail(e, RK_EUSAGE, "eval ppl: %d texts, the limit of one run is %d", operand->n - 1, RK_EVAL_MAX_TASK);
	for (int i = 1; i < operand->n; i++) {
		if (rk_utf8_check(operand->v[i], strlen(operand->v[i]), NULL))
			return rk_fail(e, RK_EUSAGE, "eval ppl: text %d has a name that is not UTF-8, which results files are", i);
		for (int j = 1; j < i; j++)
			if (!strcmp(operand->v[i], operand->v[j]))
				return rk_fail(e, RK_EUSAGE, "eval ppl: %.128s is named twice", operand->v[i]);
		p->task_name[p->n_task++] = operand->v[i];
	}
	return 0;
}

static int take_task(rk_eval_plan *p, const rk_task *all, int n, const char *name, rk_err *e)
{
	const char *names[RK_EVAL_MAX_TASK];
	char hint[300];

	for (int i = 0; i < n; i++) {
		names[i] = all[i].name;
		if (strcmp(name, all[i].name))
			continue;
		if (all[i].refused)
			return rk_fail(e, RK_EUSAGE, "--task %s: %s", name, all[i].refused);
		for (int j = 0; j < p->n_task; j++)
			if (p->task[j] == &all[i])
				return rk_fail(e, RK_EUSAGE, "--task %s is given twice", name);
		p->task[p->n_task++] = &all[i];
		return 0;
	}
	return rk_fail(e, RK_EUSAGE, "--task %.64s: not a task of %s; %s", name, p->suite, rk_near_hint(hint, sizeof hint, name, names, n));
}

const char *rk_eval_plan_lacks(const rk_eval_plan *p, const rk_task *t)
{
	return t->essays && !p->o->haystack ? "--haystack FILE" : t->file[0] && !p->o->data ? "--data DIR" : NULL;
}

/* All that can be run with what is given.  Where that is none, all: the first then says in its own words what it needs. */
static void take_suite(rk_eval_plan *p, const rk_task *all, int n)
{
	for (int i = 0; i < n; i++) {
		if (all[i].refused)
			continue;
		if (rk_eval_plan_lacks(p, &all[i]))
			p->left_out[p->n_left_out++] = &all[i];
		else
			p->task[p->n_task++] = &all[i];
	}
	if (p->n_task == 0) {
		memcpy(p->task, p->left_out, sizeof p->task);
		p->n_task = p->n_left_out;
		p->n_left_out = 0;
	}
}

static int choose_tasks(rk_eval_plan *p, rk_err *e)
{
	const rk_task *all = NULL;
	int n = 0;

	for (const rk_task *const *s = rk_suites; *s; s++)
		if (!strcmp((*s)->suite, p->suite))
			all = *s;
	while (all && all[n].name)
		n++;
	for (int i = 0; i < p->o->task.n; i++)
		if (take_task(p, all, n, p->o->task.v[i], e))
			return -1;
	if (p->o->task.n == 0)
		take_suite(p, all, n);
	for (int i = 0; i < p->n_task; i++)
		p->task_name[i] = p->task[i]->name;
	return 0;
}

static int choose_lengths(rk_eval_plan *p, const char *usual, rk_err *e)
{
	const char *list = p->o->length ? p->o->length : usual;
	bool own = !strcmp(p->suite, "longproc");

	if (rk_cmd_numbers("--length", list, own ? 0 : 1, 1 << 24, p->length, RK_EVAL_MAX_LENGTH, &p->n_length, e) ||
	    rk_cmd_numbers("--offset", p->o->offset, 0, INT_MAX, p->offset, RK_OPT_LIST_MAX, &p->n_offset, e))
		return -1;
	for (int i = 0; i < p->n_length; i++)
		for (int j = 0; j < i; j++)
			if (p->length[i] == p->length[j])
				return rk_fail(e, RK_EUSAGE, "--length %d is given twice", p->length[i]);
	return 0;
}

/* ---- policies ---- */

static int add_policy(rk_eval_plan *p, const char *name, const rk_policy *pol, rk_err *e)
{
	char spec[RK_SPEC_MAX], other[RK_SPEC_MAX];

	if (p->n_policy == RK_EVAL_MAX_POLICY)
		return rk_fail(e, RK_EUSAGE, "more than %d policies", RK_EVAL_MAX_POLICY);
	rk_policy_spec(pol, spec);
	for (int i = 0; i < p->n_policy; i++) {
		rk_policy_spec(&p->policy[i], other);
		if (!strcmp(spec, other))
			return rk_fail(e, RK_EUSAGE, "--policy %.100s and %.100s are the same", p->name[i], name);
	}
	snprintf(p->name[p->n_policy], RK_SPEC_MAX, "%s", name);
	p->policy[p->n_policy++] = *pol;
	return 0;
}

/* pol with every combination of the values of sweeps i and later. */
static int sweep(rk_eval_plan *p, int i, const char *name, const rk_policy *pol, rk_err *e)
{
	if (i == p->o->sweep.n || pol->score == RK_SCORE_NONE)
		return add_policy(p, name, pol, e);
	const char *s = p->o->sweep.v[i], *at = strchr(s, '=');
	if (!at || at == s || !at[1])
		return rk_fail(e, RK_EUSAGE, "--sweep %.64s is not key=value,value...", s);
	int key = (int)(at - s);
	for (at++; at; ) {
		int n = (int)strcspn(at, ",");
		char one[RK_SPEC_MAX], longer[RK_SPEC_MAX];
		rk_policy q = *pol;
		if (snprintf(one, sizeof one, "%.*s=%.*s", key, s, n, at) >= (int)sizeof one ||
		    snprintf(longer, sizeof longer, "%s%c%s", name, strchr(name, ':') ? ',' : ':', one) >= (int)sizeof longer)
			return rk_fail(e, RK_EUSAGE, "--sweep %.64s: longer than %d characters", s, RK_SPEC_MAX - 1);
		if (rk_policy_set(&q, one, e) || sweep(p, i + 1, longer, &q, e))
			return -1;
		at = at[n] ? at + n + 1 : NULL;
	}
	return 0;
}

static int choose_policies(rk_eval_plan *p, rk_err *e)
{
	static const rk_opt_list usual = { .n = 1, .v = { "refreshkv" } };
	const rk_opt_list *list = p->o->policy.n ? &p->o->policy : &usual;
	bool have = false;
	rk_policy pol;

	for (int i = 0; i < list->n; i++) {
		if (rk_policy_parse(&pol, list->v[i], e))
			return -1;
		have |= pol.score == RK_SCORE_NONE;
	}
	if (!have && (rk_policy_parse(&pol, "vanilla", e) || add_policy(p, "vanilla", &pol, e)))
		return -1;
	for (int i = 0; i < list->n; i++)
		if (rk_policy_parse(&pol, list->v[i], e) || sweep(p, 0, list->v[i], &pol, e))
			return -1;
	while (p->policy[p->base].score != RK_SCORE_NONE)
		p->base++;
	p->n_group = p->n_policy <= RK_MAX_LANE ? 1 : (p->n_policy - 1 + RK_MAX_LANE - 2) / (RK_MAX_LANE - 1);
	return 0;
}

void rk_eval_plan_lanes(const rk_eval_plan *p, int group, rk_session_cfg *s)
{
	s->n_lane = 0;
	if (p->n_group > 1)
		s->lane[s->n_lane++] = p->policy[p->base];
	for (int i = 0, other = 0; i < p->n_policy; i++)
		if (p->n_group == 1 || (i != p->base && other++ / (RK_MAX_LANE - 1) == group))
			s->lane[s->n_lane++] = p->policy[i];
}

/* ---- shards ---- */

static int env_number(const char *name, int *n, rk_err *e)
{
	const char *s = getenv(name);

	if (!s)
		return rk_fail(e, RK_EUSAGE, "--mpi: %s is not set; start the program with Open MPI's mpirun, or give --shard", name);
	int count;
	return rk_cmd_numbers(name, s, 0, RK_SHARD_MAX, n, 1, &count, e);
}

/* "I/N"; *i from 0. */
static int read_shard(const char *s, int *i, int *n, rk_err *e)
{
	char *at;
	long a = strtol(s, &at, 10), b = *at == '/' ? strtol(at + 1, &at, 10) : 0;

	if (*at || a < 1 || a > b || b > RK_SHARD_MAX)
		return rk_fail(e, RK_EUSAGE, "--shard %.32s is not I/N with I from 1 to N and N up to %d", s, RK_SHARD_MAX);
	*i = (int)a - 1;
	*n = (int)b;
	return 0;
}

static int choose_shard(rk_eval_plan *p, rk_err *e)
{
	p->n_shard = 1;
	if (p->o->mpi && p->o->shard)
		return rk_fail(e, RK_EUSAGE, "--mpi and --shard exclude each other");
	if (p->o->mpi) {
		if (env_number("OMPI_COMM_WORLD_RANK", &p->shard, e) || env_number("OMPI_COMM_WORLD_SIZE", &p->n_shard, e))
			return -1;
		if (p->shard >= p->n_shard)
			return rk_fail(e, RK_EUSAGE, "--mpi: rank OMPI_COMM_WORLD_RANK=%d of OMPI_COMM_WORLD_SIZE=%d", p->shard, p->n_shard);
	} else if (p->o->shard && read_shard(p->o->shard, &p->shard, &p->n_shard, e)) {
		return -1;
	}
	if (!p->o->mpi && !p->o->shard)
		snprintf(p->json_path, sizeof p->json_path, "%s", p->o->json ? p->o->json : "");
	else if (!p->o->json)
		return rk_fail(e, RK_EUSAGE, "a shard needs --json FILE, which the shards' results are named after");
	else
		snprintf(p->json_path, sizeof p->json_path, "%s.%d", p->o->json, p->shard + 1);
	return 0;
}

int rk_eval_plan_make(rk_eval_plan *p, const rk_eval_opts *o, const rk_opt_list *operand, rk_err *e)
{
	const char *lengths = NULL, *path;
	char buf[RK_PATH_MAX];

	*p = (rk_eval_plan){ .o = o };
	if (find_suite(p, operand->v[0], &lengths, e) || take_texts(p, operand, e) || (!p->ppl && choose_tasks(p, e)) ||
	    choose_lengths(p, lengths, e) || choose_policies(p, e) || choose_shard(p, e) ||
	    rk_cmd_model_path(o->model.model, buf, &path, e))
		return -1;
	snprintf(p->model_path, sizeof p->model_path, "%s", path);
	return 0;
}

int rk_eval_plan_n(const rk_eval_plan *p, int task)
{
	return p->ppl ? p->n_offset : p->o->examples ? p->o->examples : p->task[task]->n_example;
}

int rk_eval_plan_ctx(const rk_eval_plan *p, int length)
{
	return length + (p->ppl ? p->o->eval : 0);
}

/* ---- the header ---- */

static json_t *file_digest(const char *path, rk_err *e)
{
	char sha[65];

	if (!path)
		return json_null();
	return rk_digest_file(path, sha, NULL, e) ? NULL : json_string(sha);
}

static json_t *texts_json(const rk_eval_plan *p, rk_err *e)
{
	json_t *a = json_array();

	for (int i = 0; i < p->n_task && p->ppl; i++) {
		json_t *sha = file_digest(p->task_name[i], e);
		if (!sha) {
			json_decref(a);
			return NULL;
		}
		json_array_append_new(a, sha);
	}
	return a;
}

/* Of the files below --data that each task reads; null for one that reads none. */
static json_t *data_json(const rk_eval_plan *p, rk_err *e)
{
	json_t *a = json_array();
	char path[RK_PATH_MAX];
	rk_err why;

	for (int i = 0; i < p->n_task && !p->ppl; i++) {
		const rk_task *t = p->task[i];
		json_t *files = p->o->data && t->file[0] ? json_array() : json_null();
		json_array_append_new(a, files);
		for (int k = 0; json_is_array(files) && k < RK_TASK_FILES && t->file[k]; k++) {
			snprintf(path, sizeof path, "%s/%s", p->o->data, t->file[k]);
			json_t *sha = file_digest(path, &why);
			if (!sha) {
				rk_fail(e, why.code, "%s: %s; get it from %s", t->name, why.msg, t->url);
				json_decref(a);
				return NULL;
			}
			json_array_append_new(files, sha);
		}
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

json_t *rk_eval_plan_header(const rk_eval_plan *p, rk_err *e)
{
	json_t *tasks = json_array(), *examples = json_array(), *policies = json_array(), *names = json_array();
	json_t *model = NULL, *haystack = NULL, *texts = NULL, *data = NULL, *h = NULL;

	for (int i = 0; i < p->n_task; i++) {
		json_array_append_new(tasks, json_string(p->task_name[i]));
		json_array_append_new(examples, json_integer(rk_eval_plan_n(p, i)));
	}
	for (int i = 0; i < p->n_policy; i++) {
		char spec[RK_SPEC_MAX];
		rk_policy_spec(&p->policy[i], spec);
		json_array_append_new(policies, json_string(spec));
		json_array_append_new(names, json_string(p->name[i]));
	}
	if ((model = file_digest(p->model_path, e)) && (haystack = file_digest(p->o->haystack, e)) && (texts = texts_json(p, e)) &&
	    (data = data_json(p, e)))
		h = json_pack("{s:i, s:s, s:s, s:O, s:o, s:O, s:i, s:s, s:O, s:O, s:i, s:O, s:s?, s:b, s:O, s:O, s:O, s:o, s:i}",
			"refreshkv_eval", 1, "version", RK_VERSION, "suite", p->suite, "tasks", tasks,
			"lengths", numbers_json(p->length, p->n_length), "examples", examples, "seed", p->o->seed,
			"question", rk_question_names[p->o->question], "policies", policies, "names", names, "baseline", p->base,
			"model_sha256", model, "chat_template", p->o->model.chat, "exact", p->o->engine.exact, "data_sha256", data,
			"haystack_sha256", haystack, "texts_sha256", texts, "offsets", numbers_json(p->offset, p->ppl ? p->n_offset : 0),
			"eval", p->ppl ? p->o->eval : 0);
	if (h)
		json_object_set_new(h, "shard", p->json_path[0] && (p->o->mpi || p->o->shard) ?
		                    json_pack("[i, i]", p->shard + 1, p->n_shard) : json_null());
	else if (data)
		rk_fail(e, RK_ENOMEM, "no memory for the results' header");
	json_decref(tasks), json_decref(examples), json_decref(policies), json_decref(names);
	json_decref(model), json_decref(haystack), json_decref(texts), json_decref(data);
	return h;
}

