/* longproc.c: LongProc's tasks (Ye et al. 2025): the data directory, prompts, and the scores of path_traversal and tom_tracking.
 *
 * Data and prompt templates are read from the folder `data` of github.com/princeton-pli/LongProc; rules are those of its
 * longproc/longproc_data.py and *_evaluator.py (Apache License 2.0).  An example is item `index` of the file in an order that
 * depends on the seed.
 */
#include "eval/longproc.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "base/yaml.h"
#include "eval/fold.h"

/* Reply limits of example_usage.py: room for tokenizers that need more than the name says. */
enum { NEW_05K = 1024, NEW_2K = 3072, NEW_8K = 9216 };

struct spec {
	const rk_longproc_kind *kind;
	int max_new;
	int least, most;	/* of an item's estimated_output_tokens, where one file serves several tasks; most 0: all */
};

int rk_longproc_string(const json_t *item, const char *key, const char **value, rk_err *e)
{
	*value = json_string_value(json_object_get(item, key));
	return *value ? 0 : rk_fail(e, RK_EFAIL, "no text \"%s\"", key);
}

int rk_longproc_int(const json_t *item, const char *key, int *value, rk_err *e)
{
	const json_t *v = json_object_get(item, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 1000000)
		return rk_fail(e, RK_EFAIL, "no number from 0 to 1000000 \"%s\"", key);
	*value = (int)json_integer_value(v);
	return 0;
}

char *rk_longproc_tagged(const char *reply, const char *tag)
{
	char open[32], close[32];
	size_t len;

	snprintf(open, sizeof open, "<%s>", tag);
	snprintf(close, sizeof close, "</%s>", tag);
	const char *from = strstr(reply, open), *to = strstr(reply, close);
	if (!from || !to)
		return NULL;
	from += strlen(open);
	char *s = to > from ? strndup(from, (size_t)(to - from)) : strdup("");
	if (s) {
		const char *inner = rk_fold_strip(s, &len);
		memmove(s, inner, len);
		s[len] = 0;
	}
	return s;
}

char **rk_longproc_lines(char *s, int *n)
{
	int room = 1;

	for (const char *p = s; (p = strchr(p, '\n')); p++)
		room++;
	char **line = malloc((size_t)room * sizeof *line);
	*n = 0;
	while (line && s) {
		line[(*n)++] = s;
		s = strchr(s, '\n');
		if (s)
			*s++ = 0;
	}
	return line;
}

double rk_longproc_detail(json_t **detail, double accuracy, double partial, double extracted)
{
	*detail = json_pack("{s:f, s:f, s:f}", "accuracy", accuracy, "partial_accuracy", partial, "extraction_rate", extracted);
	return accuracy;
}

/* --- path_traversal --- */

static int path_take(rk_longproc *l, rk_example *x, rk_err *e)
{
	const char *context, *answer;
	const json_t *q = json_object_get(l->item, "question_repr");
	const char *from = json_string_value(json_array_get(q, 0)), *to = json_string_value(json_array_get(q, 1));

	if (rk_longproc_string(l->item, "context_nl", &context, e) || rk_longproc_string(l->item, "answer_nl", &answer, e))
		return -1;
	if (!from || !to)
		return rk_fail(e, RK_EFAIL, "no two cities in \"question_repr\"");
	l->field[0] = (rk_field){ "city_context", context };
	l->field[1] = (rk_field){ "src_city", from };
	l->field[2] = (rk_field){ "dst_city", to };
	return rk_given_answer(x, answer, e);
}

/* The route line by line.  The partial score counts the first wrong line as well, as the official one does. */
static double path_score(const rk_example *x, const char *reply, json_t **detail)
{
	char *route = rk_longproc_tagged(reply, "Route"), *want = strdup(x->answer[0]);
	int n_want = 0, n_got = 0, i = 0;
	size_t len;

	if (!route || !want) {
		free(route);
		free(want);
		return rk_longproc_detail(detail, 0, 0, 0);
	}
	char *stripped = (char *)rk_fold_strip(want, &len);
	stripped[len] = 0;
	bool exact = strcmp(stripped, route) == 0;
	char **w = rk_longproc_lines(stripped, &n_want), **g = rk_longproc_lines(route, &n_got);
	int n = n_want < n_got ? n_want : n_got;
	while (w && g && i < n && strcmp(w[i], g[i]) == 0)
		i++;
	if (i < n)
		i++;
	free(w);
	free(g);
	free(want);
	free(route);
	return rk_longproc_detail(detail, exact, exact ? 1 : n_want ? (double)i / n_want : 0, 1);
}

static const rk_longproc_kind path_traversal = { "path_traversal", "city_context", path_take };

/* --- tom_tracking --- */

static int tom_take(rk_longproc *l, rk_example *x, rk_err *e)
{
	static const char *const key[] = { "story", "question", "story_components" };
	const char *solution;

	for (int i = 0; i < 3; i++) {
		l->field[i].name = key[i];
		if (rk_longproc_string(l->item, key[i], &l->field[i].value, e))
			return -1;
	}
	return rk_longproc_string(l->item, "solution", &solution, e) ? -1 : rk_given_answer(x, solution, e);
}

/* What stands after the hyphen of lines that begin with one, normalised; empty ones left out.  A line that is indented counts only
 * if it is the first, which is how the official evaluator strips. */
static char **beliefs(const char *text, int *n)
{
	char *copy = strdup(text), **out = NULL, *at = NULL;
	int room = 0;
	bool first = true;

	*n = 0;
	for (char *line = copy ? strtok_r(copy, "\n\r\v\f\x1c\x1d\x1e", &at) : NULL; line;
	     line = strtok_r(NULL, "\n\r\v\f\x1c\x1d\x1e", &at)) {
		size_t len;
		const char *s = rk_fold_strip(line, &len);
		if (*s != '-' || (!first && s != line)) {
			first &= *s != '-';
			continue;
		}
		first = false;
		char *belief = rk_fold_normal(s + 1, "\xe2\x80\x99", "a|an|the|on|in|at|step|thinks|think|believes|believe|is|are|of|location|"
		                              "know|knows|belief");
		if (*n == room) {
			room = room ? 2 * room : 64;
			char **more = realloc(out, (size_t)room * sizeof *out);
			if (more)
				out = more;
			else
				room = *n;
		}
		if (belief && *belief && *n < room)
			out[(*n)++] = belief;
		else
			free(belief);
	}
	free(copy);
	return out;
}

static double tom_score(const rk_example *x, const char *reply, json_t **detail)
{
	int n_got, n_want, same = 0;
	char **got = beliefs(reply, &n_got), **want = beliefs(x->answer[0], &n_want);

	while (same < n_got && same < n_want && strcmp(got[same], want[same]) == 0)
		same++;
	bool exact = same == n_got && same == n_want;
	for (int i = 0; i < n_got; i++)
		free(got[i]);
	for (int i = 0; i < n_want; i++)
		free(want[i]);
	free(got);
	free(want);
	return rk_longproc_detail(detail, exact, exact ? 1 : n_want ? (double)same / n_want : 0, 1);
}

static const rk_longproc_kind tom_tracking = { "tom_tracking", "story", tom_take };

static const rk_longproc_kind html_to_tsv = { "html_to_tsv", "html_str", rk_longproc_tsv_take };
static const rk_longproc_kind countdown = { "countdown", "demonstration", rk_longproc_countdown_take };
static const rk_longproc_kind travel_planning = { "travel_planning", "demonstration", rk_longproc_travel_take };

/* --- examples --- */

static int take_prompt(void *arg, const char *key, const char *value, int line, rk_err *e)
{
	char **prompt = arg;

	(void)line;
	if (strcmp(key, "USER_PROMPT"))
		return 0;
	*prompt = strdup(value);
	return *prompt ? 0 : rk_fail(e, RK_ENOMEM, "no memory for the prompt");
}

/* The template in two, after the field with the document. */
static int fill_prompt(const rk_longproc *l, const rk_longproc_kind *k, rk_example *x, rk_err *e)
{
	char path[4096], field[64], *prompt = NULL;

	snprintf(path, sizeof path, "%s/prompts.yaml", l->dir);
	snprintf(field, sizeof field, "{%s}", k->document);
	if (rk_yaml_load(path, take_prompt, &prompt, e)) {
		free(prompt);
		return -1;
	}
	char *cut = prompt ? strstr(prompt, field) : NULL;
	int rc = -1;
	if (!cut) {
		rk_fail(e, RK_EFAIL, "%s: no USER_PROMPT with %s in it", path, field);
	} else {
		char *head = strndup(prompt, (size_t)(cut - prompt) + strlen(field));
		x->prefix = strdup("");
		if (!head || !x->prefix)
			rk_fail(e, RK_ENOMEM, "%s: no memory for a prompt", path);
		else
			rc = rk_given_fill(&x->context, path, head, l->field, e) ||
			     rk_given_fill(&x->question, path, cut + strlen(field), l->field, e) ? -1 : 0;
		free(head);
	}
	free(prompt);
	return rc;
}

static bool is_of(const struct spec *s, const json_t *item)
{
	int n = (int)json_integer_value(json_object_get(item, "estimated_output_tokens"));

	return s->most == 0 || (n >= s->least && n < s->most);
}

/* Position in the file of example `index`, -1 behind the last one, -2 without memory: a random order of the task's
 * items. */
static int choose(const struct spec *s, const json_t *root, uint64_t seed, int index)
{
	int n = 0, at = -1, *item = malloc((json_array_size(root) + 1) * sizeof *item);
	uint64_t rng = rk_rng_stream(seed, 0);

	if (!item)
		return -2;
	for (size_t i = 0; i < json_array_size(root); i++)
		if (is_of(s, json_array_get(root, i)))
			item[n++] = (int)i;
	if (index < n) {
		rk_rng_deal(&rng, item, index + 1, n);
		at = item[index];
	}
	free(item);
	return at;
}

static int take_item(const rk_longproc_kind *k, rk_longproc *l, const char *path, int at, rk_example *x, rk_err *e)
{
	rk_err why;

	if (k->take(l, x, &why))
		return rk_fail(e, why.code, "%s: item %d: %s", path, at, why.msg);
	return fill_prompt(l, k, x, e);
}

static int load(const rk_task *t, const rk_task_env *env, int index, rk_example *x, rk_err *e)
{
	const struct spec *s = t->spec;
	char dir[4000], path[4096];
	rk_longproc l = { .dir = dir };
	json_t *root;

	snprintf(dir, sizeof dir, "%s/%s", env->data_dir, s->kind->name);
	snprintf(path, sizeof path, "%s/%s", env->data_dir, t->file[0]);
	if (rk_given_json(env->kept, path, &root, e))
		return -1;
	int at = choose(s, root, env->seed, index), rc = 1;
	if (!json_is_array(root))
		rc = rk_fail(e, RK_EFAIL, "%s: is not a list of items", path);
	else if (at == -2)
		rc = rk_fail(e, RK_ENOMEM, "%s: no memory for its items", path);
	else if (at >= 0) {
		l.item = json_array_get(root, (size_t)at);
		rc = take_item(s->kind, &l, path, at, x, e);
	}
	for (int i = 0; i < RK_LONGPROC_OWN; i++)
		free(l.own[i]);
	json_decref(root);
	if (rc == 0 && !x->data)
		x->data = json_object();
	if (rc == 0 && (!x->data || json_object_set_new(x->data, "item", json_integer(at))))
		rc = rk_fail(e, RK_ENOMEM, "no memory for an example");
	return rc;
}

static int make(const rk_task *t, const rk_task_env *env, int index, rk_example *x, rk_err *e)
{
	const struct spec *s = t->spec;

	*x = (rk_example){ .max_new = s->max_new };
	if (!env->data_dir)
		return rk_fail(e, RK_EUSAGE, "needs --data DIR: %s", t->url);
	int rc = load(t, env, index, x, e);
	if (rc == 0 && env->length) {
		int n = env->count(env->ctx, x, e);
		if (n < 0 || n + x->max_new > env->length)
			rc = n < 0 ? -1 : rk_fail(e, RK_EUSAGE, "--length %d: example %d takes %d tokens, %d of them for the reply", env->length,
			                          index, n + x->max_new, x->max_new);
	}
	if (rc)
		rk_example_free(x);
	return rc;
}

#define TASK(name_, dir_, file_, more_, doc_, score_, ...) { .suite = "longproc", .name = name_, .doc = doc_, .n_example = 20, \
	.make = make, .score = score_, .file = { dir_ "/" file_ ".json", dir_ "/prompts.yaml", more_ }, \
	.url = "the folder `data` of https://github.com/princeton-pli/LongProc", .spec = &(const struct spec){ __VA_ARGS__ } }
#define SIZED(kind_, size, doc_, score_, new_) TASK(#kind_ "_" size, #kind_, #kind_ "_" size, NULL, doc_ ", replies of " size, score_, \
	.kind = &kind_, .max_new = new_)
#define TSV(size, new_) SIZED(html_to_tsv, size, "rows of a web page as a table", rk_longproc_tsv_score, new_)
#define PATH(size, new_) SIZED(path_traversal, size, "a route in a graph where every city has one way out", path_score, new_)
#define TOM(size, new_) SIZED(tom_tracking, size, "who believes what is where, step by step", tom_score, new_)
#define COUNTDOWN(size, new_) SIZED(countdown, size, "four numbers to a target by search", rk_longproc_countdown_score, new_)
#define TRAVEL(size, new_, ...) TASK("travel_planning_" size, "travel_planning", "travel_planning_all", \
	"travel_planning/travel_planning_icl_examples.json", "a trip under constraints by search, replies of " size, \
	rk_longproc_travel_score, &travel_planning, new_, __VA_ARGS__)
#define CODE(size) { .suite = "longproc", .name = "pseudo_to_code_" size, .doc = "code from pseudocode: not run here", .refused = \
	"is scored by compiling and running what the model wrote, which refreshkv does not do" }

const rk_task rk_tasks_longproc[] = {
	TSV("0.5k", NEW_05K), TSV("2k", NEW_2K), TSV("8k", NEW_8K),
	PATH("0.5k", NEW_05K), PATH("2k", NEW_2K), PATH("8k", NEW_8K),
	TOM("0.5k", NEW_05K), TOM("2k", NEW_2K), TOM("8k", NEW_8K),
	COUNTDOWN("0.5k", NEW_05K), COUNTDOWN("2k", NEW_2K), COUNTDOWN("8k", NEW_8K),
	TRAVEL("2k", NEW_2K, 0, 2048), TRAVEL("8k", NEW_8K, 4096, 8192),
	CODE("0.5k"), CODE("2k"),
	{ 0 }
};
