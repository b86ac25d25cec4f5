/* longproc_travel.c: a trip under constraints: the search as it is to be written down, and its score (travel_planning_evaluator.py;
 * the parsing of plans comes from NATURAL PLAN, Zheng et al. 2024).
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "eval/longproc.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "eval/fold.h"

enum { MAX_CITY = 16, MAX_STEP = 100000 };
#define BEGIN "<Solving Procedure>"
#define OUTPUT "Output the plan in the required format:"

struct city {
	const char *name;
	int n_day, start, end;	/* start 0: no fixed schedule */
};

struct trip {
	FILE *log;
	int n_city, n_step;
	struct city fixed[MAX_CITY], free[MAX_CITY], plan[MAX_CITY];
	bool used[MAX_CITY];	/* of free */
	int n_fixed, n_free, n_plan;
	const json_t *flights;	/* [[from, to]] */
};

static FILE *line(const struct trip *t, int indent)
{
	if (indent)
		fprintf(t->log, "%*s|- ", indent, "");
	return t->log;
}

static bool flies(const struct trip *t, const char *from, const char *to)
{
	const json_t *f;
	size_t i;

	json_array_foreach(t->flights, i, f) {
		const char *a = json_string_value(json_array_get(f, 0)), *b = json_string_value(json_array_get(f, 1));
		if (a && b && strcmp(a, from) == 0 && strcmp(b, to) == 0)
			return true;
	}
	return false;
}

static const struct city *next_fixed(const struct trip *t, int day)
{
	for (int i = 0; i < t->n_fixed; i++)
		if (t->fixed[i].start > day)
			return &t->fixed[i];
	return NULL;
}

/* Can c, which starts today, come next?  Writes down why. */
static bool feasible(const struct trip *t, const struct city *c, int day, int in)
{
	const char *last = t->n_plan ? t->plan[t->n_plan - 1].name : "the starting point";
	const struct city *next = next_fixed(t, day);

	fprintf(line(t, in), "Try arranging to visit %s from Day %d. Duration: %d days. Schedule: Day %d - %d.\n", c->name, day, c->n_day, day,
	        day + c->n_day - 1);
	fprintf(line(t, in), "Check for direct flight from %s to %s.\n", last, c->name);
	if (t->n_plan && !flies(t, last, c->name)) {
		fprintf(line(t, in), "No. Drop this branch.\n");
		return false;
	}
	fprintf(line(t, in), "Yes.\n");
	fprintf(line(t, in), "Check whether this arrangement is compatible with the next fixed schedule after Day %d: ", day);
	if (!next) {
		fprintf(t->log, "None.\n");
		fprintf(line(t, in), "No following fixed schedules. This arrangement is compatible.\n");
	} else {
		bool late = next->start < c->end;
		fprintf(t->log, "%s (Day %d - %d).\n", next->name, next->start, next->end);
		fprintf(line(t, in), "The departure day of %s is Day %d. The arrival day of %s is Day %d. Day %d is %slater than (%s) Day %d. "
		        "This arrangement is %s.%s\n", c->name, c->end, next->name, next->start, c->end, late ? "" : "not ", late ? ">" : "<=",
		        next->start, late ? "incompatible" : "compatible", late ? " Drop this branch." : "");
		if (late)
			return false;
	}
	fprintf(line(t, in), "This arrangement is feasible for now. Continue to arrange the rest of the plan.\n");
	return true;
}

static bool arrange(struct trip *t, int day);

static bool visit(struct trip *t, struct city c, int day, int in)
{
	if (!feasible(t, &c, day, in))
		return false;
	t->plan[t->n_plan++] = c;
	if (arrange(t, c.end))
		return true;
	t->n_plan--;
	return false;
}

static void put_free(const struct trip *t)
{
	const char *between = "";

	for (int i = 0; i < t->n_free; i++)
		if (!t->used[i]) {
			fprintf(t->log, "%s%s", between, t->free[i].name);
			between = ", ";
		}
}

/* Depth first over the cities that may come on this day, in the order of the task. */
static bool arrange(struct trip *t, int day)
{
	int in = 2 * t->n_plan;
	const struct city *now = NULL;
	bool found = false;

	if (t->n_step++ > MAX_STEP)
		return false;
	fprintf(line(t, in), "Current day: %d. Current plan: [", day);
	for (int i = 0; i < t->n_plan; i++)
		fprintf(t->log, "%s%s", i ? ", " : "", t->plan[i].name);
	fputs("].\n", t->log);
	if (t->n_plan == t->n_city) {
		fprintf(line(t, in), "All %d cities are arranged. Complete plan is found!\n", t->n_city);
		return true;
	}
	fprintf(line(t, in), "Check whether the city with an arrival day of Day %d - is fixed.\n", day);
	for (int i = 0; i < t->n_fixed && !now; i++)
		if (t->fixed[i].start == day)
			now = &t->fixed[i];
	if (now) {
		fprintf(line(t, in), "Yes. The city with an arrival day of Day %d - is fixed: %s.\n", day, now->name);
		found = visit(t, *now, day, in + 1);
	} else {
		fprintf(line(t, in), "No. Consider possible options from cities needing arrangement: [");
		put_free(t);
		fputs("] and explore these options in order.\n", t->log);
		for (int i = 0; i < t->n_free && !found; i++) {
			if (t->used[i])
				continue;
			struct city c = t->free[i];
			c.start = day;
			c.end = day + c.n_day - 1;
			t->used[i] = true;
			found = visit(t, c, day, in + 1);
			t->used[i] = found;
		}
	}
	if (!found)
		fprintf(line(t, in + 1), "Fail to arrange any option on day %d in the current arrangement. Drop this branch.\n", day);
	return found;
}

static int by_start(const void *a, const void *b)
{
	return ((const struct city *)a)->start - ((const struct city *)b)->start;
}

static const struct city *fixed_of(const struct trip *t, const char *name)
{
	for (int i = 0; i < t->n_fixed; i++)
		if (strcmp(t->fixed[i].name, name) == 0)
			return &t->fixed[i];
	return NULL;
}

/* The constraints: fixed ones first, since a city with one needs no arranging. */
static int take_cities(struct trip *t, const json_t *item, struct city *all, int *n_all, rk_err *e)
{
	const json_t *list = json_object_get(item, "constraints"), *c;
	size_t i;

	*n_all = 0;
	if (!json_is_array(list) || json_array_size(list) > MAX_CITY * 2)
		return rk_fail(e, RK_EFAIL, "no list of at most %d \"constraints\"", MAX_CITY * 2);
	json_array_foreach(list, i, c) {
		struct city v = { 0 };
		const char *type;
		if (rk_longproc_string(c, "type", &type, e) || rk_longproc_string(c, "city", &v.name, e))
			return -1;
		bool fixed = strcmp(type, "fixed") == 0;
		if ((fixed ? t->n_fixed : *n_all) == MAX_CITY)
			return rk_fail(e, RK_EFAIL, "more than %d cities", MAX_CITY);
		if (fixed ? rk_longproc_int(c, "start_day", &v.start, e) || rk_longproc_int(c, "end_day", &v.end, e)
		          : rk_longproc_int(c, "num_days", &v.n_day, e))
			return -1;
		v.n_day = fixed ? v.end - v.start + 1 : v.n_day;
		*(fixed ? &t->fixed[t->n_fixed++] : &all[(*n_all)++]) = v;
	}
	for (int k = 0; k < *n_all; k++)
		if (!fixed_of(t, all[k].name))
			t->free[t->n_free++] = all[k];
	return rk_longproc_int(item, "num_cities", &t->n_city, e) ||
	       (t->n_city > MAX_CITY && rk_fail(e, RK_EFAIL, "more than %d cities", MAX_CITY)) ? -1 : 0;
}

static void put_cities(struct trip *t, const struct city *all, int n_all)
{
	fputs("Read the requirements and identify the cities that have fixed schedules and the cities that need to be arranged.\n", t->log);
	for (int i = 0; i < n_all; i++) {
		const struct city *f = fixed_of(t, all[i].name);
		fprintf(t->log, "* City: %s, Duration: %d days", all[i].name, all[i].n_day);
		if (f)
			fprintf(t->log, ", Fixed Schedule: Day %d - %d", f->start, f->end);
		fputs(".\n", t->log);
	}
	qsort(t->fixed, (size_t)t->n_fixed, sizeof t->fixed[0], by_start);
	fprintf(t->log, "\nCities that have fixed schedules%s", t->n_fixed ? " (sorted by their arrival days):\n" : ": None.\n");
	for (int i = 0; i < t->n_fixed; i++)
		fprintf(t->log, "* City: %s, Fixed Schedule: Day %d - %d.\n", t->fixed[i].name, t->fixed[i].start, t->fixed[i].end);
	fprintf(t->log, "\nCities needing arrangement:%s\n", t->n_free ? "" : " None.");
	for (int i = 0; i < t->n_free; i++)
		fprintf(t->log, "* City: %s, Duration: %d days.\n", t->free[i].name, t->free[i].n_day);
	fputc('\n', t->log);
}

static void put_plan(const struct trip *t)
{
	for (int i = 0; i < t->n_plan; i++) {
		const struct city *c = &t->plan[i];
		if (i == 0)
			fprintf(t->log, "**Day %d-%d:** Arriving in %s and visit %s for %d days.\n", c->start, c->end, c->name, c->name, c->n_day);
		else
			fprintf(t->log, "**Day %d-%d:** Visit %s for %d days.\n", c->start, c->end, c->name, c->n_day);
		if (i + 1 < t->n_plan)
			fprintf(t->log, "**Day %d:** Fly from %s to %s.\n", c->end, c->name, c[1].name);
	}
}

static int demonstrate(const json_t *item, char **out, rk_err *e)
{
	struct trip t = { .flights = json_object_get(item, "connected_cities") };
	struct city all[MAX_CITY];
	size_t size;
	int n_all;

	if (take_cities(&t, item, all, &n_all, e))
		return -1;
	if (!(t.log = open_memstream(out, &size)))
		return rk_fail(e, RK_ENOMEM, "no memory for a search");
	fputs(BEGIN "\n", t.log);
	put_cities(&t, all, n_all);
	bool found = arrange(&t, 1);
	fputs("</Solving Procedure>\n\n" OUTPUT "\n<Plan>\n", t.log);
	put_plan(&t);
	fputs("</Plan>", t.log);
	if (fclose(t.log))
		return rk_fail(e, RK_ENOMEM, "no memory for a search");
	if (found)
		return 0;
	free(*out);
	*out = NULL;
	return rk_fail(e, RK_EFAIL, "no plan meets these constraints%s", t.n_step > MAX_STEP ? ", as far as the search goes" : "");
}

static int put_examples(const char *dir, char **out, rk_err *e)
{
	char path[4096];
	json_t *root, *d;
	size_t i, size;
	FILE *f;
	rk_err why;

	snprintf(path, sizeof path, "%s/travel_planning_icl_examples.json", dir);
	if (rk_given_json(NULL, path, &root, e))
		return -1;
	int rc = (f = open_memstream(out, &size)) ? 0 : rk_fail(&why, RK_ENOMEM, "no memory for it");
	for (i = 0; rc == 0 && i < json_array_size(root); i++) {
		char *text = NULL;
		const char *problem;
		d = json_array_get(root, i);
		rc = rk_longproc_string(d, "disambig_question_text", &problem, &why) || demonstrate(d, &text, &why) ? -1 : 0;
		if (rc == 0)
			fprintf(f, "%s# Example\n%s\n\n%s", i ? "\n\n" : "", problem, text);
		free(text);
	}
	if (f && fclose(f) && rc == 0)
		rc = rk_fail(&why, RK_ENOMEM, "no memory for it");
	json_decref(root);
	return rc ? rk_fail(e, why.code, "%s: %s", path, why.msg) : 0;
}

int rk_longproc_travel_take(rk_longproc *l, rk_example *x, rk_err *e)
{
	const char *problem, *cities, *days;
	char *solution;

	if (rk_longproc_string(l->item, "disambig_question_text", &problem, e) ||
	    rk_longproc_string(l->item, "ground_truth_cities", &cities, e) ||
	    rk_longproc_string(l->item, "ground_truth_durations", &days, e) || put_examples(l->dir, &l->own[0], e))
		return -1;
	l->field[0] = (rk_field){ "demonstration", l->own[0] };
	l->field[1] = (rk_field){ "problem", problem };
	if (demonstrate(l->item, &solution, e))
		return -1;
	int rc = rk_given_answer(x, solution, e);
	free(solution);
	x->data = json_pack("{s:s, s:s}", "cities", cities, "days", days);
	return rc;
}

/* --- score --- */

/* The groups of the first match of a pattern, at most three: copies in out. */
static bool match(const char *pattern, const char *s, char out[3][64])
{
	int code, n;
	PCRE2_SIZE at;
	pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
	pcre2_match_data *m = re ? pcre2_match_data_create_from_pattern(re, NULL) : NULL;

	n = m ? pcre2_match(re, (PCRE2_SPTR)s, PCRE2_ZERO_TERMINATED, 0, 0, m, NULL) : -1;
	for (int i = 1; i < n && i <= 3; i++) {
		PCRE2_SIZE *v = pcre2_get_ovector_pointer(m) + 2 * i;
		snprintf(out[i - 1], 64, "%.*s", (int)(v[1] - v[0]), s + v[0]);
	}
	pcre2_match_data_free(m);
	pcre2_code_free(re);
	return n > 0;
}

enum { MAX_FLIGHT = 64 };
struct stays {
	char city[MAX_FLIGHT + 1][64];
	int day[MAX_FLIGHT + 1], n;	/* days in it */
};

/* Digits as a day; those beyond all trips are one. */
static int day_of(const char *digits)
{
	long n = strtol(digits, NULL, 10);

	return n < 1000000 ? (int)n : 1000000;
}

/* The cities of a plan and how long it stays in each: from its flights, and the last day that a visit names. */
static void read_plan(char *plan, struct stays *s)
{
	int n_line, total = -1, last = 0, flight[MAX_FLIGHT], n_flight = 0;
	char **text = rk_longproc_lines(plan, &n_line), g[3][64];

	s->n = 0;
	for (int i = 0; text && i < n_line; i++) {
		if (match("European cities for ([0-9]+) days", text[i], g))
			total = day_of(g[0]);
		if (match("([0-9]+)-([0-9]+)", text[i], g)) {
			last = day_of(g[1]);
			if (last == total)
				break;
		}
		if (n_flight < MAX_FLIGHT && match(".*Day ([0-9]+).*from (\\w+) to (\\w+)", text[i], g)) {
			if (n_flight == 0)
				strcpy(s->city[0], g[1]);
			flight[n_flight++] = day_of(g[0]);
			strcpy(s->city[n_flight], g[2]);
		}
	}
	free(text);
	if (!n_flight || !last)
		return;
	s->n = n_flight + 1;
	for (int i = 0; i < s->n; i++)
		s->day[i] = (i < n_flight ? flight[i] : last) - (i ? flight[i - 1] : 1) + 1;
}

/* Are all of the right stays there, in order?  More of them behind do no harm. */
static bool right_plan(const rk_example *x, const char *plan)
{
	struct stays *s = malloc(sizeof *s);
	char *cities = strdup(json_string_value(json_object_get(x->data, "cities"))), *at_city = NULL, *at_day = NULL;
	char *days = strdup(json_string_value(json_object_get(x->data, "days"))), *copy = strdup(plan);
	bool ok = s && cities && days && copy;
	int i = 0;

	if (ok)
		read_plan(copy, s);
	for (char *c = ok ? strtok_r(cities, "*", &at_city) : NULL, *d = ok ? strtok_r(days, "*", &at_day) : NULL; ok && c && d;
	     c = strtok_r(NULL, "*", &at_city), d = strtok_r(NULL, "*", &at_day), i++)
		ok = i < s->n && strcmp(c, s->city[i]) == 0 && atoi(d) == s->day[i];
	free(s);
	free(cities);
	free(days);
	free(copy);
	return ok && i > 0;
}

/* A copy from `begin` (from the start, where it is missing) to the next one, without the phrase before the plan. */
static char *procedure(const char *s)
{
	const char *from = strstr(s, BEGIN);
	const char *to = from ? strstr(from + strlen(BEGIN), BEGIN) : NULL;
	char *out = from ? strndup(from, to ? (size_t)(to - from) : strlen(from)) : strdup(s);

	for (char *p = out; p && (p = strstr(p, OUTPUT)); )
		memmove(p, p + strlen(OUTPUT), strlen(p + strlen(OUTPUT)) + 1);
	return out;
}

/* Next line that is not blank, normalised; NULL: none left. */
static char *next_line(char **text, int n, int *i)
{
	size_t len = 0;

	while (*i < n && (rk_fold_strip(text[*i], &len), len == 0))
		++*i;
	return *i < n ? rk_fold_normal(text[(*i)++], "", "a|an|the") : NULL;
}

/* Share of the reference's lines that the procedure holds one by one.  If all do, the last does not count: the official score is the
 * number of the last line compared. */
static double follow(const char *reference, const char *reply)
{
	char *want = procedure(reference), *got = procedure(reply), *w, *g;
	int n_want = 0, n_got = 0, i = 0, k = 0, right = -1, n_line = 0;
	char **all = want ? rk_longproc_lines(want, &n_want) : NULL, **have = got ? rk_longproc_lines(got, &n_got) : NULL;
	bool same = true;

	while (all && have && (w = next_line(all, n_want, &i))) {
		n_line++;
		g = same ? next_line(have, n_got, &k) : NULL;
		right += same && g;
		same = g && strstr(g, w);
		free(w);
		free(g);
	}
	free(all);
	free(have);
	free(want);
	free(got);
	return right > 0 ? (double)right / n_line : 0;
}

double rk_longproc_travel_score(const rk_example *x, const char *reply, json_t **detail)
{
	char *plan = rk_longproc_tagged(reply, "Plan");
	bool right = plan && right_plan(x, plan), extracted = plan != NULL;

	free(plan);
	return rk_longproc_detail(detail, right, right ? 1 : follow(x->answer[0], reply), extracted);
}
