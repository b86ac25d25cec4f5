/* test_eval_tasks.c: the generators of chain-of-key and needle against checks that know nothing of how they work, their scores,
 * sizing, and the check for garbled replies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "eval/garble.h"
#include "eval/nouns.h"
#include "eval/task.h"

/* A stand-in for a tokenizer: a token per four bytes. */
static int count(void *ctx, const rk_example *x, rk_err *e)
{
	(void)ctx, (void)e;
	return (int)(strlen(x->context) + strlen(x->question) + strlen(x->prefix) + 3) / 4 + 20;
}

static rk_example make(const rk_task *t, int length, uint64_t seed, int index)
{
	rk_task_env env = { .seed = seed, .length = length, .count = count };
	rk_example x = { 0 };
	rk_err e;

	if (t->make(t, &env, index, &x, &e))
		fail_msg("%s", e.msg);
	return x;
}

static bool same(const rk_example *a, const rk_example *b)
{
	return !strcmp(a->context, b->context) && !strcmp(a->question, b->question) && !strcmp(a->prefix, b->prefix) &&
	       a->max_new == b->max_new && json_equal(a->data, b->data);
}

/* ---- all tasks ---- */

static void test_same_seed_same_bytes(void **state)
{
	(void)state;
	for (const rk_task *const *s = rk_suites; *s; s++)
		for (const rk_task *t = *s; t->name; t++) {
			if (t->suite != rk_tasks_needle->suite && t->suite != rk_tasks_chain_of_key->suite)
				continue;
			for (int i = 0; i < 4; i++) {
				rk_example a = make(t, 1024, 7, i), b = make(t, 1024, 7, i), c = make(t, 1024, 8, i), d = make(t, 1024, 7, i + 11);
				assert_true(same(&a, &b));
				assert_false(same(&a, &c) || same(&a, &d));
				rk_example_free(&a), rk_example_free(&b), rk_example_free(&c), rk_example_free(&d);
			}
		}
}

/* Prompt and reply together take the length that was asked for, and what fills it up is less than one more line would take. */
static void test_sizes(void **state)
{
	static const int lengths[] = { 512, 1000, 4096, 30000 };
	(void)state;
	for (int k = 0; k < 3; k++) {
		const rk_task *t = k == 2 ? rk_tasks_chain_of_key : &rk_tasks_needle[k];
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			rk_example x = make(t, lengths[i], 1, 3);
			assert_int_equal(count(NULL, &x, NULL) + x.max_new, lengths[i]);
			if (k < 2)
				assert_in_range(x.max_new, k ? 32 : 16, (k ? 32 : 16) + 30);
			rk_example_free(&x);
		}
	}
}

static void test_too_short(void **state)
{
	rk_task_env env = { .length = 60, .count = count };
	rk_example x = { 0 };
	rk_err e;
	(void)state;
	assert_int_equal(rk_tasks_chain_of_key->make(rk_tasks_chain_of_key, &env, 0, &x, &e), -1);
	assert_int_equal(e.code, RK_EUSAGE);
	assert_non_null(strstr(e.msg, "60"));
	rk_example_free(&x);
}

/* ---- chain of key ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* No two ways to the same compound, and no compound that is a plain word: words of a list are told apart by their letters. */
static void test_words(void **state)
{
	size_t n = 0;
	char **all = calloc(RK_N_NOUN * (RK_N_NOUN + 1), sizeof *all);
	(void)state;
	for (int i = 0; i < RK_N_NOUN; i++) {
		assert_in_range(strlen(rk_noun[i]), 3, 8);
		all[n++] = strdup(rk_noun[i]);
		for (int j = 0; j < RK_N_NOUN; j++)
			if (i != j)
				assert_true(asprintf(&all[n++], "%s%s", rk_noun[i], rk_noun[j]) > 0);
	}
	qsort(all, n, sizeof *all, by_text);
	for (size_t i = 1; i < n; i++)
		assert_true(strcmp(all[i - 1], all[i]) != 0);
	for (size_t i = 0; i < n; i++)
		free(all[i]);
	free(all);
}

struct keys { char *first[9000], *last[9000]; int n; };

static struct keys read_keys(const char *context)
{
	struct keys k = { 0 };
	for (const char *s = strstr(context, "Name of key: "); s; s = strstr(s, "Name of key: ")) {
		s += strlen("Name of key: ");
		size_t a = strcspn(s, "-"), b = strcspn(s + a + 1, "\n");
		k.first[k.n] = strndup(s, a);
		k.last[k.n++] = strndup(s + a + 1, b);
	}
	return k;
}

static void free_keys(struct keys *k)
{
	for (int i = 0; i < k->n; i++)
		free(k->first[i]), free(k->last[i]);
}

static int find_key(const struct keys *k, const char *text)
{
	int found = -1;
	for (int i = 0; i < k->n; i++) {
		char both[64];
		snprintf(both, sizeof both, "%s-%s", k->first[i], k->last[i]);
		if (!strcmp(both, text)) {
			assert_int_equal(found, -1);	/* once in the list */
			found = i;
		}
	}
	return found;
}

/* Brute force: exactly one key starts with the last word of each key; the answers are a chain of keys of the list from the given one. */
static void test_chain(void **state)
{
	static const int lengths[] = { 512, 4096, 16000 };
	(void)state;
	for (size_t l = 0; l < 3; l++)
		for (int index = 0; index < 3; index++) {
			rk_example x = make(rk_tasks_chain_of_key, lengths[l], 5, index);
			struct keys k = read_keys(x.context);
			assert_int_equal(k.n, json_integer_value(json_object_get(x.data, "keys")));
			for (int i = 0; i < k.n; i++) {
				int successors = 0;
				for (int j = 0; j < k.n; j++)
					successors += !strcmp(k.last[i], k.first[j]);
				assert_int_equal(successors, 1);
			}
			int at = find_key(&k, json_string_value(json_object_get(x.data, "first")));
			assert_int_equal(x.n_answer, 10);
			for (int i = 0; i < x.n_answer; i++) {
				int next = find_key(&k, x.answer[i]);
				assert_true(at >= 0 && next >= 0);
				assert_string_equal(k.last[at], k.first[next]);
				at = next;
			}
			assert_null(strstr(x.question, x.answer[0]));
			free_keys(&k);
			rk_example_free(&x);
		}
}

static double score(const rk_task *t, const rk_example *x, const char *reply)
{
	json_t *detail = NULL;
	double s = t->score(x, reply, &detail);
	json_decref(detail);
	return s;
}

static void test_chain_score(void **state)
{
	const rk_task *t = rk_tasks_chain_of_key;
	rk_example x = make(t, 512, 1, 0);
	char reply[1000] = "", **a = x.answer;
	(void)state;
	for (int i = 0; i < 10; i++) {
		sprintf(reply + strlen(reply), "%s%s", i ? ", " : " ", a[i]);
		assert_float_equal(score(t, &x, reply), ((i + 1) / 10.0), 1e-6);
	}
	strcat(reply, ", and-more, keys-yet.");
	assert_float_equal(score(t, &x, reply), 1, 1e-6);
	assert_float_equal(score(t, &x, ""), 0, 0);
	assert_float_equal(score(t, &x, a[1]), 0, 0);			/* skips one */
	sprintf(reply, "%s,%s\n%s.", a[0], a[1], a[2]);			/* other separators */
	assert_float_equal(score(t, &x, reply), 0.3, 1e-6);
	sprintf(reply, "%s, %s, %s", a[0], a[0], a[1]);			/* repeats one */
	assert_float_equal(score(t, &x, reply), 0.1, 1e-6);
	sprintf(reply, "%s, %sx, %s", a[0], a[1], a[2]);		/* only nearly a key */
	assert_float_equal(score(t, &x, reply), 0.1, 1e-6);
	rk_example_free(&x);
}

/* ---- needle ---- */

/* The needle is in the text once, at the depth that the record names, to within one sentence of filler. */
static void test_needle(void **state)
{
	static const char *const marks[] = { "The pass key is ", "The clockmaker of Arden keeps a " };
	(void)state;
	for (int k = 0; k < 2; k++)
		for (int index = 0; index < 23; index++) {
			rk_example x = make(&rk_tasks_needle[k], 3000, 9, index);
			const char *body = strchr(x.context, '\n') + 2, *at = strstr(body, marks[k]);
			double depth = json_number_value(json_object_get(x.data, "depth")), size = (double)strlen(body);
			assert_non_null(at);
			assert_null(strstr(at + 1, marks[k]));
			assert_int_equal(strncmp(at + strlen(marks[k]), x.answer[0], strlen(x.answer[0])), 0);
			assert_float_equal(depth, (index % 11 / 10.0), 1e-6);
			assert_float_equal(((double)(at - body) / size), depth, (250 / size));
			assert_null(strstr(x.question, x.answer[0]));
			assert_float_equal(score(&rk_tasks_needle[k], &x, x.answer[0]), 1, 0);
			assert_float_equal(score(&rk_tasks_needle[k], &x, "no idea"), 0, 0);
			rk_example_free(&x);
		}
}

/* The word itself, its plural, in any case; not a longer word or number that holds it. */
static void test_needle_score(void **state)
{
	static const struct { const char *word, *reply; int score; } of[] = {
		{ "badge", "He keeps a Badge.", 1 }, { "badge", "badges", 1 }, { "badge", "He keeps a badger.", 0 }, { "elm", "a helmet", 0 },
		{ "elm", "a helmet under an elm", 1 }, { "fig", "figure, FIG", 1 }, { "12345", " 12345.", 1 }, { "12345", "123456", 0 }, { "12345", "912345", 0 },
		{ "12345", "12345s", 0 }, { "elm", "", 0 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		char *word = (char *)of[i].word;
		rk_example x = { .answer = &word, .n_answer = 1 };
		if (score(&rk_tasks_needle[1], &x, of[i].reply) != of[i].score)
			fail_msg("%s in \"%s\"", word, of[i].reply);
	}
}

/* A tokenizer that fails after some calls: its own words come out, from every place that counts. */
static int failing(void *ctx, const rk_example *x, rk_err *e)
{
	int *left = ctx;
	return (*left)-- > 0 ? count(NULL, x, e) : rk_fail(e, RK_EFAIL, "the tokenizer is ill");
}

static void test_count_fails(void **state)
{
	static const rk_task *const suites[] = { rk_tasks_chain_of_key, rk_tasks_needle, rk_tasks_ruler };
	(void)state;
	for (int s = 0; s < 3; s++)
		for (const rk_task *t = suites[s]; t->name; t++)
			for (int calls = 0; calls < 12; calls++) {
				int left = calls;
				rk_task_env env = { .seed = 1, .length = 1500, .count = failing, .ctx = &left };
				rk_example x = { 0 };
				rk_err e = { .msg = "" };
				int rc = t->make(t, &env, 0, &x, &e);
				if (left < 0 && (rc != -1 || strcmp(e.msg, "the tokenizer is ill")))
					fail_msg("%s after %d calls: %d \"%s\"", t->name, calls, rc, e.msg);
				rk_example_free(&x);
			}
}

/* ---- garbled replies ---- */

static void test_garbled(void **state)
{
	char loop[1000] = "", varied[1000] = "";
	(void)state;
	for (int i = 0; i < 20; i++) {
		strcat(loop, "snake-jersey, ");
		sprintf(varied + strlen(varied), "%d. item number %d, ", i, 37 * i % 101);
	}
	assert_string_equal(rk_garbled(""), "empty");
	assert_string_equal(rk_garbled(" \n\t "), "empty");
	assert_string_equal(rk_garbled(loop), "repeats");
	assert_null(rk_garbled(varied));
	assert_null(rk_garbled("blue"));
	assert_null(rk_garbled("ha ha ha ha"));
	assert_null(rk_garbled("A token is a piece of text, about three quarters of an English word, and a model reads and writes nothing else."));
	memset(loop, 'x', 200);
	loop[200] = '\0';
	assert_string_equal(rk_garbled(loop), "repeats");
	memset(loop, 'x', 400);
	loop[400] = '\0';
	strcat(varied, loop);
	assert_string_equal(rk_garbled(varied), "repeats");
}

/* What a long task asks for says much again over its length: it is no loop.  A long reply that ends in one is. */
static void test_garbled_long(void **state)
{
	static const char *const who[] = { "Ella", "Jackson", "Ruth", "Hunter" };
	char *steps = calloc(1, 40000), *at = steps;
	(void)state;
	for (int i = 0; i < 80; i++) {
		at += sprintf(at, "- Step %d:\n", i);
		for (int k = 0; k < 4; k++)
			at += sprintf(at, "%s thinks %s believes the %s is in the %s.\n", who[(i + k) % 4], who[(i / 4 + 2 * k) % 4], rk_noun[i / 20],
			              rk_noun[40 + (i + 3 * k) % 6]);
	}
	assert_null(rk_garbled(steps));
	for (int i = 0; i < 40; i++)
		at += sprintf(at, "The end of it. ");
	assert_string_equal(rk_garbled(steps), "repeats");
	free(steps);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_seed_same_bytes), cmocka_unit_test(test_sizes), cmocka_unit_test(test_too_short),
		cmocka_unit_test(test_words), cmocka_unit_test(test_chain), cmocka_unit_test(test_chain_score), cmocka_unit_test(test_needle),
		cmocka_unit_test(test_needle_score), cmocka_unit_test(test_count_fails),
		cmocka_unit_test(test_garbled), cmocka_unit_test(test_garbled_long),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
