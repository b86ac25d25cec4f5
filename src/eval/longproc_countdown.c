/* longproc_countdown.c: four numbers to a target: the search as it is to be written down, and its score (countdown_evaluator.py).
 *
 * The prompt's two solved examples and every reference are made here by the same depth-first search as the official ones.
 */
#include "eval/longproc.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "eval/fold.h"

enum { N_NUMBER = 4, N_STEP = N_NUMBER - 1, TOO_LARGE = 2000 };
#define PROCEDURE "# Search Procedure"
#define FOUND "Now we have found the target"

struct search {
	FILE *log;
	int target;
	char step[N_STEP][64];	/* the equations on the way to where the search is */
};

static void put_numbers(FILE *f, const int *v, int n)
{
	fputc('[', f);
	for (int i = 0; i < n; i++)
		fprintf(f, "%s%d", i ? ", " : "", v[i]);
	fputc(']', f);
}

static void put_indent(FILE *f, int level)
{
	fprintf(f, "\n%*s|- ", level, "");
}

static bool explore(struct search *s, const int *v, int n, int level);

/* a op b with the numbers that are left, as the next step; decimals and large numbers go no further. */
static bool try_step(struct search *s, int a, char op, int b, const int *left, int n_left, int level)
{
	int v[N_NUMBER], c = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : b ? a / b : 0;
	bool decimal = op == '/' && b && a % b;
	char *eq = s->step[N_STEP - 1 - n_left];

	put_indent(s->log, level);
	if (op == '/' && b == 0) {
		fprintf(s->log, "Try %d / %d (invalid operation). drop this branch.", a, b);
		return false;
	}
	if (decimal)
		snprintf(eq, sizeof s->step[0], "%d / %d = %.1f", a, b, (double)a / b);
	else
		snprintf(eq, sizeof s->step[0], "%d %c %d = %d", a, op, b, c);
	fprintf(s->log, "Try %s. ", eq);
	if (decimal)
		fprintf(s->log, "%.1f is a decimal, drop this branch.", (double)a / b);
	else if (c >= TOO_LARGE)
		fprintf(s->log, "%d exceeds the maximum intermediate result, drop this branch.", c);
	if (decimal || c >= TOO_LARGE)
		return false;
	if (n_left == 0) {
		fprintf(s->log, c == s->target ? "Evaluate %d == %d, target found!" : "Evaluate %d != %d, drop this branch.", c, s->target);
		return c == s->target;
	}
	fprintf(s->log, "Add %d to the number set. Current number set: ", c);
	v[0] = c;
	memcpy(v + 1, left, (size_t)n_left * sizeof *v);
	return explore(s, v, n_left + 1, level);
}

/* The end of the line that has introduced the numbers v[0..n), and everything below it. */
static bool explore(struct search *s, const int *v, int n, int level)
{
	static const char op[] = { '+', '-', '*', '/' };

	put_numbers(s->log, v, n);
	fprintf(s->log, ", target: %d%s", s->target, n == 2 ? ", just two numbers left." : ". Options for choosing two numbers: [");
	for (int i = 0; n > 2 && i < n; i++)
		for (int j = i + 1; j < n; j++)
			fprintf(s->log, "(%d, %d)%s", v[i], v[j], i == n - 2 ? "]." : ", ");
	level += n > 2;
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n; j++) {
			int left[N_NUMBER], n_left = 0, a = v[i] < v[j] ? v[j] : v[i], b = v[i] < v[j] ? v[i] : v[j];
			for (int k = 0; k < n; k++)
				if (k != i && k != j)
					left[n_left++] = v[k];
			if (n > 2) {
				put_indent(s->log, level);
				fprintf(s->log, "Pick two numbers (%d, %d) (numbers left: ", v[i], v[j]);
				put_numbers(s->log, left, n_left);
				fputs("). Try possible operations.", s->log);
			}
			for (int o = 0; o < 4; o++)
				if (try_step(s, a, op[o], b, left, n_left, level + 1))
					return true;
		}
	return false;
}

/* The whole solution as text. */
static int demonstrate(const int *v, int target, char **out, rk_err *e)
{
	struct search s = { .target = target };
	size_t size;

	s.log = open_memstream(out, &size);
	if (!s.log)
		return rk_fail(e, RK_ENOMEM, "no memory for a search");
	fputs(PROCEDURE "\nInitial number set: ", s.log);
	bool found = explore(&s, v, N_NUMBER, 0);
	fprintf(s.log, "\n\n" FOUND ", let's trace back the solution:\nFinal step: %s\nThe step before: %s\nThe first step: %s\n\n"
	        "Output the solution in the required format:\n<Solution>\n%s\n%s\n%s\n</Solution>\n", s.step[2], s.step[1], s.step[0],
	        s.step[0], s.step[1], s.step[2]);
	if (fclose(s.log))
		return rk_fail(e, RK_ENOMEM, "no memory for a search");
	if (found)
		return 0;
	free(*out);
	*out = NULL;
	return rk_fail(e, RK_EFAIL, "%d cannot be reached from these numbers", target);
}

static int put_examples(char **out, rk_err *e)
{
	static const struct { int v[N_NUMBER], target; } demo[] = { { { 40, 19, 23, 7 }, 29 }, { { 9, 16, 6, 18 }, 12 } };
	size_t size;
	FILE *f = open_memstream(out, &size);
	int rc = f ? 0 : rk_fail(e, RK_ENOMEM, "no memory for a search");

	for (int i = 0; i < 2 && rc == 0; i++) {
		char *text;
		rc = demonstrate(demo[i].v, demo[i].target, &text, e);
		if (rc)
			break;
		fprintf(f, "%s# Example\nNumbers: ", i ? "\n\n" : "");
		put_numbers(f, demo[i].v, N_NUMBER);
		fprintf(f, "\nTarget: %d\n\n%s", demo[i].target, text);
		free(text);
	}
	if (f && fclose(f) && rc == 0)
		rc = rk_fail(e, RK_ENOMEM, "no memory for a search");
	return rc;
}

static int take_numbers(const json_t *o, int v[N_NUMBER], int *target, rk_err *e)
{
	const json_t *nums = json_object_get(o, "nums");

	if (json_array_size(nums) != N_NUMBER)
		return rk_fail(e, RK_EFAIL, "no four numbers in \"nums\"");
	for (int i = 0; i < N_NUMBER; i++) {
		json_int_t n = json_integer_value(json_array_get(nums, (size_t)i));
		if (!json_is_integer(json_array_get(nums, (size_t)i)) || n < 0 || n >= TOO_LARGE)
			return rk_fail(e, RK_EFAIL, "\"nums\": no number from 0 to %d", TOO_LARGE - 1);
		v[i] = (int)n;
	}
	return rk_longproc_int(o, "target", target, e);
}

int rk_longproc_countdown_take(rk_longproc *l, rk_example *x, rk_err *e)
{
	int v[N_NUMBER], target;
	char *solution;

	if (take_numbers(l->item, v, &target, e) || put_examples(&l->own[0], e))
		return -1;
	if (asprintf(&l->own[1], "[%d, %d, %d, %d]", v[0], v[1], v[2], v[3]) < 0 || asprintf(&l->own[2], "%d", target) < 0)
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	l->field[0] = (rk_field){ "demonstration", l->own[0] };
	l->field[1] = (rk_field){ "nums", l->own[1] };
	l->field[2] = (rk_field){ "target", l->own[2] };
	if (demonstrate(v, target, &solution, e))
		return -1;
	int rc = rk_given_answer(x, solution, e);
	free(solution);
	x->data = json_pack("{s:[i,i,i,i], s:i}", "nums", v[0], v[1], v[2], v[3], "target", target);
	return rc;
}

/* --- score --- */

/* A whole number with blanks round it, as int() takes it. */
static bool whole(const char *s, const char *end, long long *v)
{
	char buf[24];
	char *rest;

	while (s < end && rk_fold_blank((unsigned char)*s))
		s++;
	while (s < end && rk_fold_blank((unsigned char)end[-1]))
		end--;
	if (s == end || end - s >= (int)sizeof buf - 4 || strspn(s, "+-0123456789") < (size_t)(end - s))
		return false;
	memcpy(buf, s, (size_t)(end - s));
	buf[end - s] = 0;
	*v = strtoll(buf, &rest, 10);
	return *rest == 0;
}

/* "a op b = c", true and with c whole.  The operation is the first of + - * / that occurs, as in the official evaluator. */
static bool equation(const char *line, long long *a, long long *b, long long *c)
{
	const char *eq = strchr(line, '='), *at = NULL;
	char op = 0;

	if (!eq || strchr(eq + 1, '='))
		return false;
	for (const char *o = "+-*/"; *o && !at; o++) {
		at = memchr(line, *o, (size_t)(eq - line));
		op = *o;
	}
	if (!at || memchr(at + 1, op, (size_t)(eq - at - 1)) || !whole(line, at, a) || !whole(at + 1, eq, b) ||
	    !whole(eq + 1, line + strlen(line), c))
		return false;
	long long r;
	switch (op) {
	case '+': return !__builtin_add_overflow(*a, *b, &r) && r == *c;
	case '-': return !__builtin_sub_overflow(*a, *b, &r) && r == *c;
	case '*': return !__builtin_mul_overflow(*a, *b, &r) && r == *c;
	default: return *b && *a % *b == 0 && *a / *b == *c;
	}
}

static bool use(long long *v, int *n, long long number)
{
	for (int i = 0; i < *n; i++)
		if (v[i] == number) {
			v[i] = v[--*n];
			return true;
		}
	return false;
}

/* Three true equations that use every number once and end in the target. */
static bool solves(const char *solution, const int *nums, int target)
{
	char *copy = strdup(solution);
	int n_line, n = N_NUMBER;
	char **line = copy ? rk_longproc_lines(copy, &n_line) : NULL;
	long long v[N_NUMBER], a, b, c;
	bool ok = line && n_line == N_STEP;

	for (int i = 0; i < N_NUMBER; i++)
		v[i] = nums[i];
	for (int i = 0; ok && i < N_STEP; i++) {
		ok = equation(line[i], &a, &b, &c) && use(v, &n, a) && use(v, &n, b);
		if (ok)
			v[n++] = c;
	}
	free(line);
	free(copy);
	return ok && v[0] == target;
}

static bool same_try(const char *got, const char *want)
{
	size_t to_eq = strcspn(want, "=");

	return strcspn(got, "=") == to_eq && memcmp(got, want, to_eq) == 0 &&
	       !strstr(got, "drop this branch") == !strstr(want, "drop this branch");
}

/* Share of the reference's lines that the procedure follows: the same pairs in the same order, the same operations tried, the same
 * branches dropped; what the numbers come to is not compared.  Of a procedure that is all right the last line does not count. */
static double follow(char *got, char *want)
{
	int n_got, n_want, i = 1, right = -1;
	char **g = rk_longproc_lines(got, &n_got), **w = rk_longproc_lines(want, &n_want);

	if (g && w && strcmp(g[0], w[0]) == 0)
		for (; i < n_got && i < n_want; i++) {
			right++;
			if (strcmp(g[i], w[i]) && (strstr(w[i], "Pick two numbers") || !same_try(g[i], w[i])))
				break;
		}
	free(g);
	free(w);
	return right > 0 ? (double)right / (n_want - 1) : 0;
}

static char *after_last(const char *s, const char *mark)
{
	size_t len;

	for (const char *p; (p = strstr(s, mark)); )
		s = p + strlen(mark);
	s = rk_fold_strip(s, &len);
	return strndup(s, len);
}

double rk_longproc_countdown_score(const rk_example *x, const char *reply, json_t **detail)
{
	char *solution = rk_longproc_tagged(reply, "Solution");
	double extracted = solution != NULL, partial = 0;
	int nums[N_NUMBER], target;

	bool solved = solution && take_numbers(x->data, nums, &target, NULL) == 0 && solves(solution, nums, target);
	free(solution);
	if (!solved && strstr(reply, PROCEDURE)) {
		char *found = strstr(x->answer[0], "\n\n" FOUND);
		char *head = strndup(x->answer[0], found ? (size_t)(found - x->answer[0]) : strlen(x->answer[0]));
		char *want = head ? after_last(head, PROCEDURE) : NULL, *got = after_last(reply, PROCEDURE);
		partial = got && want ? follow(got, want) : 0;
		free(head);
		free(want);
		free(got);
	}
	return rk_longproc_detail(detail, solved, solved ? 1 : partial, extracted);
}
