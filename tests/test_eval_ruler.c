/* test_eval_ruler.c: RULER's examples against checkers that read the finished prompt, and its scores against the official ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "eval/predictions.h"
#include "eval/words.h"

static char dir[64], haystack[96];

/* Stands in for a tokenizer: runs of letters, runs of digits and single marks are a token each, the template takes 20. */
static int count_text(const char *s)
{
	int n = 0, last = 0;

	for (; *s; s++) {
		int kind = isalpha((unsigned char)*s) ? 'a' : isdigit((unsigned char)*s) ? '0' : isspace((unsigned char)*s) ? ' ' : 0;
		n += kind != ' ' && (kind == 0 || kind != last);
		last = kind;
	}
	return n;
}

static int count(void *ctx, const rk_example *x, rk_err *e)
{
	(void)ctx, (void)e;
	return 20 + count_text(x->context) + count_text(x->question) + count_text(x->prefix);
}

static const rk_task *task(const char *name)
{
	for (const rk_task *t = rk_tasks_ruler; t->name; t++)
		if (strcmp(t->name, name) == 0)
			return t;
	fail_msg("no task %s", name);
	return NULL;
}

static rk_task_env env_of(int length)
{
	return (rk_task_env){ .seed = 42, .length = length, .count = count, .data_dir = dir, .haystack = haystack };
}

/* granule: the most tokens that one more piece takes. */
static rk_example make(const char *name, int length, int index, int granule)
{
	const rk_task *t = task(name);
	rk_task_env env = env_of(length);
	rk_example x = { 0 };
	rk_err e = { .msg = "" };
	int rc = t->make(t, &env, index, &x, &e);

	if (rc)
		fail_msg("%s: %d %s", name, rc, e.msg);
	int size = count(NULL, &x, NULL) + x.max_new, slack = length / 100 > granule ? length / 100 : granule;
	if (size > length || size < length - slack)
		fail_msg("%s: %d tokens of %d", name, size, length);
	return x;
}

static int times(const char *s, const char *what)
{
	int n = 0;

	for (; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

static char *between(const char *s, const char *a, const char *b)
{
	const char *from = strstr(s, a);

	assert_non_null(from);
	from += strlen(a);
	const char *to = strstr(from, b);
	assert_non_null(to);
	return strndup(from, (size_t)(to - from));
}

static void test_needle_in_noise(void **state)
{
	static const int length[] = { 256, 1024, 4096, 16384 };
	double least = 1, most = 0;

	(void)state;
	for (int i = 0; i < 60; i++) {
		rk_example x = make("niah_single_1", length[i % 4], i, 25);
		char needle[200];
		char *key = between(x.question, "the special magic number for ", " mentioned");
		assert_int_equal(x.n_answer, 1);
		assert_int_equal(x.max_new, 128);
		assert_int_equal(strlen(x.answer[0]), 7);
		snprintf(needle, sizeof needle, "\nOne of the special magic numbers for %s is: %s.\n", key, x.answer[0]);
		assert_int_equal(times(x.context, needle), 1);
		assert_int_equal(times(x.context, x.answer[0]), 1);
		assert_int_equal(times(x.context, key), 1);
		assert_int_equal(times(x.context, "The grass is green."), json_integer_value(json_object_get(x.data, "size")));
		double depth = json_real_value(json_array_get(json_object_get(x.data, "depth"), 0));
		const char *at = strstr(x.context, needle);
		int before = times(x.context, "The grass is green.") - times(at, "The grass is green.");
		assert_int_equal(before, (int)(depth * times(x.context, "The grass is green.")));
		least = fmin(least, depth);
		most = fmax(most, depth);
		assert_int_equal(strncmp(x.context, "A special magic number is hidden within the following text. Make sure to memorize it. "
		                         "I will quiz you about the number afterwards.\n", 130), 0);
		assert_int_equal(strncmp(x.prefix, " The special magic number for ", 30), 0);
		free(key);
		rk_example_free(&x);
	}
	assert_true(least < 0.1 && most > 0.9);
}

/* The haystack's words without the needles are its first words again, and every needle stands between sentences. */
static void check_essay(const rk_example *x, int n_needle, const char *plural)
{
	char *hay = strdup(strstr(x->context, "afterwards.\n") + 12), mark[64];
	int n = 0, word = 0;

	snprintf(mark, sizeof mark, "One of the special magic %s for ", plural);
	for (char *at; (at = strstr(hay, mark)); n++) {
		char *end = strstr(at, ". ");
		if (!end)
			end = strrchr(at, '.');
		const char *last = at, *next = end + strspn(end, ". \n");
		while (last > hay && isspace((unsigned char)last[-1]))
			last--;
		if (last > hay && last[-1] != '.' && *next)	/* the last sentence may be cut short */
			fail_msg("a needle inside \"%.20s\"", last - 20);
		memset(at, ' ', (size_t)(end + 1 - at));
	}
	assert_int_equal(n, n_needle);
	for (char *w = strtok(hay, " \n"); w; w = strtok(NULL, " \n"), word++)
		assert_int_equal(strtol(w, NULL, 10), word % 5000 + 1);
	assert_int_equal(word, json_integer_value(json_object_get(x->data, "size")));
	free(hay);
}

static void test_needles_in_essays(void **state)
{
	static const struct { const char *name, *plural; int n_needle, n_answer; } of[] = {
		{ "niah_single_2", "numbers", 1, 1 }, { "niah_single_3", "uuids", 1, 1 }, { "niah_multikey_1", "numbers", 4, 1 },
		{ "niah_multivalue", "numbers", 4, 4 }, { "niah_multiquery", "numbers", 4, 4 },
	};
	bool at_start = false, at_end = false;

	(void)state;
	for (int i = 0; i < 100; i++) {
		rk_example x = make(of[i % 5].name, i % 2 ? 1024 : 12000, i, 4);
		check_essay(&x, of[i % 5].n_needle, of[i % 5].plural);
		assert_int_equal(x.n_answer, of[i % 5].n_answer);
		for (int k = 0; k < x.n_answer; k++)
			assert_int_equal(times(x.context, x.answer[k]), 1);
		if (i % 5 == 1)
			assert_true(strlen(x.answer[0]) == 36 && x.answer[0][14] == '4' && strchr("89ab", x.answer[0][19]));
		for (int k = 0; k < of[i % 5].n_needle; k++) {
			double depth = json_real_value(json_array_get(json_object_get(x.data, "depth"), (size_t)k));
			at_start |= depth == 0;
			at_end |= depth == 1;
		}
		if (i % 5 == 4) {	/* answers in the order of the question */
			char *keys = between(x.question, "numbers for ", " mentioned"), *at = NULL;
			int k = 0;
			for (char *key = strtok_r(keys, ", ", &at); key; key = strtok_r(NULL, ", ", &at)) {
				char needle[200];
				if (strcmp(key, "and") == 0)
					continue;
				snprintf(needle, sizeof needle, "numbers for %s is: %s.", key, x.answer[k++]);
				assert_int_equal(times(x.context, needle), 1);
			}
			assert_int_equal(k, 4);
			free(keys);
		}
		rk_example_free(&x);
	}
	assert_true(at_start && at_end);
}

static void test_needle_among_needles(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		rk_example x = make(i % 2 ? "niah_multikey_3" : "niah_multikey_2", i % 4 < 2 ? 1024 : 4096, i, 60);
		char *key = between(x.question, i % 2 ? "magic uuid for " : "magic number for ", " mentioned"), line[200];
		int n = times(x.context, "\nOne of the special magic ");
		assert_int_equal(n, json_integer_value(json_object_get(x.data, "size")) + 1);
		snprintf(line, sizeof line, "\nOne of the special magic %s for %s is: %s.\n", i % 2 ? "uuids" : "numbers", key, x.answer[0]);
		assert_int_equal(times(x.context, line), 1);
		assert_int_equal(times(x.context, key), 1);
		assert_int_equal(times(x.context, x.answer[0]), 1);
		free(key);
		rk_example_free(&x);
	}
}

/* Follows the assignments of a text: the variables that have the value, in order, joined by blanks. */
static void follow(const char *text, const char *value, char *out)
{
	char name[32][8], of[32][8], var[16], right[16], more[16];
	int n = 0;

	*out = 0;
	for (const char *s = text; (s = strstr(s, "VAR ")) && strncmp(s, "VAR ", 4) == 0; s = strchr(s, '\n')) {
		int got = sscanf(s, "VAR %8s = %8s %8s", var, right, more);
		assert_true(got >= 2 && n < 32);
		bool has = strcmp(right, value) == 0;
		for (int i = 0; strcmp(right, "VAR") == 0 && i < n; i++)
			has |= strcmp(name[i], more) == 0 && strcmp(of[i], value) == 0;
		assert_true(has);	/* one chain: nothing else is assigned */
		strcpy(name[n], var);
		strcpy(of[n++], value);
		strcat(strcat(out, n > 1 ? " " : ""), var);
	}
}

static void test_variable_tracking(void **state)
{
	char want[64], got[256];

	(void)state;
	for (int i = 0; i < 20; i++) {
		rk_example x = make("vt", i % 2 ? 4096 : 1536, i, 25);
		char *value = between(x.question, "assigned the value ", " in the text");
		char *example = between(x.context, "", "\n\nMemorize and track"), *main = strstr(x.context, "\n\nMemorize and track") + 2;
		snprintf(want, sizeof want, "%s %s %s %s %s", x.answer[0], x.answer[1], x.answer[2], x.answer[3], x.answer[4]);
		assert_int_equal(x.n_answer, 5);
		assert_int_equal(x.max_new, 30);
		follow(main, value, got);
		assert_string_equal(got, want);
		char *of_example = between(example, "assigned the value ", " in the text"), *solved = strstr(example, "they are:  ") + 11;
		char *question = strstr(example, "Question:");
		*question = 0;
		follow(example, of_example, got);
		assert_string_equal(got, solved);
		snprintf(got, sizeof got, " Answer: According to the chain(s) of variable assignment in the text above, 5 variables are assigned "
		         "the value %s, they are: ", value);
		assert_string_equal(x.prefix, got);
		free(value);
		free(example);
		free(of_example);
		rk_example_free(&x);
	}
}

struct tally {
	char word[4000][32];
	int n[4000], n_word, total;
};

static int by_count(const void *a, const void *b)
{
	return *(const int *)b - *(const int *)a;
}

static void add_word(struct tally *t, const char *w)
{
	int i = 0;

	while (i < t->n_word && strcmp(t->word[i], w))
		i++;
	assert_true(i < 4000);
	if (i == t->n_word) {
		strcpy(t->word[t->n_word], w);
		t->n[t->n_word++] = 0;
	}
	t->n[i]++;
	t->total++;
}

/* "1. word 2. word ..." */
static void tally_list(struct tally *t, char *list)
{
	int k = 1;

	*t = (struct tally){ 0 };
	for (char *w = strtok(list, " \n"); w; w = strtok(NULL, " \n")) {
		assert_int_equal(atoi(w), k++);
		w = strtok(NULL, " \n");
		assert_non_null(w);
		add_word(t, w);
	}
}

static void test_common_words(void **state)
{
	struct tally *t = malloc(sizeof *t);

	(void)state;
	for (int i = 0; i < 9; i++) {
		int length = i % 3 == 0 ? 2048 : i % 3 == 1 ? 4096 : 20000, often = length < 4096 ? 6 : 30, seldom = length < 4096 ? 1 : 3;
		rk_example x = make("cwe", length, i, 10);
		char *main = strstr(x.context, "\nBelow is a numbered list") + 1, *list = strdup(strchr(main, '\n') + 1);
		char *first = between(x.context, "most often.\n", "\nQuestion");
		tally_list(t, list);
		assert_int_equal(t->n_word, json_integer_value(json_object_get(x.data, "size")));
		for (int k = 0; k < t->n_word; k++) {
			bool common = false;
			for (int a = 0; a < 10; a++)
				common |= strcmp(t->word[k], x.answer[a]) == 0;
			assert_int_equal(t->n[k], common ? often : seldom);
		}
		assert_int_equal(x.n_answer, 10);
		tally_list(t, first);	/* the solved example */
		char *solved = between(x.context, "appear most often in the list are:", "\nBelow");
		int right = 0;
		for (int k = 0; k < t->n_word; k++) {
			char item[40];
			snprintf(item, sizeof item, ". %s", t->word[k]);
			right += t->n[k] == (length < 4096 ? 3 : 10) && strstr(solved, item);
		}
		assert_int_equal(right, 10);
		assert_int_equal(t->n_word, length < 4096 ? 20 : 40);
		free(list);
		free(first);
		free(solved);
		rk_example_free(&x);
	}
	free(t);
}

static void test_frequent_words(void **state)
{
	struct tally *t = malloc(sizeof *t);

	(void)state;
	for (int i = 0; i < 6; i++) {
		rk_example x = make("fwe", i % 2 ? 8192 : 2048, i, 12);
		char *text = strdup(strstr(x.context, "coded words. ") + 13);
		*t = (struct tally){ 0 };
		for (char *w = strtok(text, " \n"); w; w = strtok(NULL, " \n"))
			add_word(t, w);
		for (int k = 0; k < t->n_word; k++) {
			int rank = 0;	/* of the answers */
			for (int a = 0; a < 3; a++)
				if (strcmp(t->word[k], x.answer[a]) == 0)
					rank = a + 2;
			double share = json_integer_value(json_object_get(x.data, "size")) * 6 / (M_PI * M_PI);
			if (strcmp(t->word[k], "...") == 0)
				rank = 1;
			if (rank)
				assert_int_equal(t->n[k], (int)(share / (rank * rank)));
			else
				assert_true(t->n[k] <= (int)(share / 16));
		}
		qsort(t->n, (size_t)t->n_word, sizeof t->n[0], by_count);
		assert_true(t->n[3] > t->n[4]);
		free(text);
		rk_example_free(&x);
	}
	free(t);
}

static void put_file(const char *name, const char *text)
{
	char path[200];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

/* 40 articles of 5 paragraphs; paragraph p of article a is "text a-p ..."; the third question has no answer. */
static void put_squad(void)
{
	json_t *data = json_array();

	for (int a = 0; a < 40; a++) {
		json_t *paragraphs = json_array();
		for (int p = 0; p < 5; p++) {
			char text[400], q[64], answer[64];
			snprintf(text, sizeof text, "text %d-%d has the answer number %d in it, and some more words so that it is longer", a, p, 100 * a + p);
			snprintf(q, sizeof q, "What is in %d-%d?", a, p);
			snprintf(answer, sizeof answer, "number %d", 100 * a + p);
			json_array_append_new(paragraphs, json_pack("{s:s, s:[{s:s, s:b, s:[{s:s}, {s:s}]}]}", "context", text, "qas", "question", q,
			                      "is_impossible", p == 2 && a == 0, "answers", "text", answer, "text", "the answer"));
		}
		json_array_append_new(data, json_pack("{s:o}", "paragraphs", paragraphs));
	}
	json_t *root = json_pack("{s:o}", "data", data);
	char *s = json_dumps(root, 0);
	put_file("squad.json", s);
	free(s);
	json_decref(root);
}

static void put_hotpot(void)
{
	json_t *root = json_array();

	for (int q = 0; q < 30; q++) {
		json_t *context = json_array();
		for (int p = 0; p < 10; p++) {
			char title[32], text[64];
			snprintf(title, sizeof title, "Title %d", 7 * q + p);	/* neighbours share three */
			snprintf(text, sizeof text, "Fact %d of many.", 7 * q + p);
			json_array_append_new(context, json_pack("[s, [s, s]]", title, text, " And more."));
		}
		json_array_append_new(root, json_pack("{s:s, s:s, s:o}", "question", "Which?", "answer", "Fact", "context", context));
	}
	char *s = json_dumps(root, 0);
	put_file("hotpotqa.json", s);
	free(s);
	json_decref(root);
}

static void check_numbers(const rk_example *x)
{
	int n = 0;
	char want[32];

	for (const char *s = strstr(x->context, "Document 1:\n"); s; n++) {
		snprintf(want, sizeof want, "\n\nDocument %d:\n", n + 2);
		s = strstr(s, want);
	}
	assert_int_equal(times(x->context, "Document "), n);
}

static void test_questions(void **state)
{
	(void)state;
	put_squad();
	for (int i = 0; i < 12; i++) {
		rk_example x = make("qa_1", i % 2 ? 512 : 2048, i, 30);
		int at = i < 2 ? i : i + 1;	/* the third has no answer */
		char gold[64], next[64];
		snprintf(gold, sizeof gold, "text %d-%d has", at / 5, at % 5);
		snprintf(next, sizeof next, "text %d-%d has", at / 5, (at + 1) % 5);
		assert_int_equal(times(x.context, gold), 1);
		assert_int_equal(times(x.context, next), 1);	/* of the same article: before any other */
		assert_int_equal(x.n_answer, 2);
		assert_non_null(strstr(x.context, x.answer[0]));
		assert_int_equal(x.max_new, 32);
		check_numbers(&x);
		rk_example_free(&x);
	}
	rk_example big = make("qa_1", 16384, 0, 30);	/* more than the corpus: each document again, the gold one too */
	assert_true(times(big.context, "Document ") > 200);
	rk_example_free(&big);
	put_hotpot();
	rk_example x = make("qa_2", 2048, 3, 30);
	for (int p = 0; p < 10; p++) {
		char doc[64];
		snprintf(doc, sizeof doc, ":\nTitle %d\nFact %d of many. And more.", 21 + p, 21 + p);
		assert_int_equal(times(x.context, doc), 1);
	}
	check_numbers(&x);
	rk_example_free(&x);
	rk_task_env env = env_of(2048);
	assert_int_equal(task("qa_2")->make(task("qa_2"), &env, 30, &x, NULL), 1);	/* the file has ended */
}

static void test_same_example_again(void **state)
{
	(void)state;
	put_squad();
	put_hotpot();
	for (const rk_task *t = rk_tasks_ruler; t->name; t++) {
		rk_example a = make(t->name, 2048, 3, 60), b = make(t->name, 2048, 3, 60), c = make(t->name, 2048, 4, 60);
		assert_string_equal(a.context, b.context);
		assert_string_equal(a.question, b.question);
		assert_string_equal(a.answer[0], b.answer[0]);
		assert_true(strcmp(a.context, c.context) != 0);
		rk_example_free(&a);
		rk_example_free(&b);
		rk_example_free(&c);
	}
}

static void expect_error(const char *name, int length, const char *hay, const char *data, const char *part)
{
	rk_task_env env = env_of(length);
	rk_example x;
	rk_err e = { .msg = "" };

	env.haystack = hay;
	env.data_dir = data;
	assert_int_equal(task(name)->make(task(name), &env, 0, &x, &e), -1);
	if (!strstr(e.msg, part) || strchr(e.msg, '\n'))
		fail_msg("\"%s\" is not in \"%s\"", part, e.msg);
}

static void test_bad_input(void **state)
{
	char path[200], want[300];

	(void)state;
	expect_error("niah_single_2", 1024, NULL, dir, "--haystack FILE");
	expect_error("niah_single_2", 1024, "/nowhere/x.json", dir, "/nowhere/x.json: No such file");
	put_file("bad.jsonl", "{\"text\": \"one two.\"}\n\n{\"text\": 3}\n");
	snprintf(path, sizeof path, "%s/bad.jsonl", dir);
	snprintf(want, sizeof want, "%s:3: no \"text\"", path);
	expect_error("niah_single_2", 1024, path, dir, want);
	put_file("bad.jsonl", "{\"text\": \"one two.\"}\n{\"text\": \"thr");
	snprintf(want, sizeof want, "%s:2: ", path);
	expect_error("niah_single_2", 1024, path, dir, want);
	put_file("bad.jsonl", "{\"text\": \" \"}\n");
	expect_error("niah_single_2", 1024, path, dir, "holds no words");
	expect_error("qa_1", 1024, NULL, NULL, "needs --data DIR with squad.json in it: https://rajpurkar");
	expect_error("qa_2", 1024, NULL, "/nowhere", "/nowhere/hotpotqa.json: No such file or directory; get it from http");
	put_file("squad.json", "{\"data\": [\n{\"paragraphs\": [}]}");
	snprintf(want, sizeof want, "%s/squad.json:2: ", dir);
	expect_error("qa_1", 1024, NULL, dir, want);
	put_file("squad.json", "{\"data\": [{\"paragraphs\": [{\"context\": 3}]}]}");
	expect_error("qa_1", 1024, NULL, dir, "squad.json: is not SQuAD 2.0 as published");
	put_file("squad.json", "{\"data\": [{\"paragraphs\": [{\"context\": \"a\", \"qas\": [{\"question\": \"b\", \"answers\": [{}]}]}]}]}");
	expect_error("qa_1", 1024, NULL, dir, "an answer without text");
	expect_error("niah_single_1", 100, NULL, dir, "--length 100: ");
	expect_error("fwe", 200, NULL, dir, "--length 200: ");
	put_hotpot();
	expect_error("qa_2", 100, NULL, dir, "--length 100: ");
}

static double score(const char *name, const char *reply, const char *a, const char *b, const char *c, const char *d)
{
	const char *all[] = { a, b, c, d };
	rk_example x = { .answer = (char **)all };
	json_t *detail = NULL;

	while (x.n_answer < 4 && all[x.n_answer])
		x.n_answer++;
	double v = task(name)->score(&x, reply, &detail);
	json_decref(detail);
	return v;
}

/* What string_match_all and string_match_part of RULER's scripts/eval/synthetic/constants.py return (in percent), after
 * postprocess_pred of evaluate.py, for the same predictions: run once with its code at commit 38da79d. */
static void test_scores(void **state)
{
	(void)state;
	assert_true(score("niah_multivalue", "They are 1234567 and 7654321.", "1234567", "7654321", "1111111", "2222222") == 0.5);
	assert_true(score("cwe", "apple, BANJO\tcanoe", "Apple", "banjo", "canoe", "dune") == 0.75);
	assert_true(score("vt", "", "x", NULL, NULL, NULL) == 0);
	assert_true(score("qa_1", "in the \303\211 Cole Polytechnique", "\303\251 cole", "zz", NULL, NULL) == 1);
	assert_true(score("qa_2", "nothing", "x", "y", NULL, NULL) == 0);
	assert_true(score("fwe", "a\tb", "a\tb", "a\nb", NULL, NULL) == 0.5);
	assert_true(score("niah_single_1", "12345678", "1234567", NULL, NULL, NULL) == 1);
}

static void test_predictions(void **state)
{
	rk_example x = make("niah_multiquery", 1024, 1, 4);
	char path[200], reply[200], want[300];
	rk_predictions p;
	rk_err e;

	(void)state;
	snprintf(path, sizeof path, "%s/niah_multiquery.jsonl", dir);
	snprintf(reply, sizeof reply, "\"%s\"\nand\t%s", x.answer[0], x.answer[3]);
	FILE *f = fopen(path, "w");
	assert_int_equal(rk_predictions_write(f, path, 0, &x, reply, 1000, &e), 0);
	assert_int_equal(rk_predictions_write(f, path, 1, &x, " \n", -1, &e), 0);
	assert_int_equal(rk_predictions_write(f, path, 2, &x, "\377", -1, &e), -1);
	fclose(f);
	assert_int_equal(rk_predictions_score(task("niah_multiquery"), path, &p, &e), 0);
	assert_int_equal(p.n, 2);
	assert_int_equal(p.n_null, 1);
	assert_true(p.score == 0.25);

	f = fopen(path, "a");
	fputs("{\"pred\": \"x\", \"outputs\": [\"x\"]}\n{\"pred\": 1, \"outputs\": [\"x\"]}\n", f);
	fclose(f);
	snprintf(want, sizeof want, "%s:4: no text \"pred\"", path);
	assert_int_equal(rk_predictions_score(task("niah_multiquery"), path, &p, &e), -1);
	assert_string_equal(e.msg, want);
	put_file("empty.jsonl", "");
	snprintf(path, sizeof path, "%s/empty.jsonl", dir);
	assert_int_equal(rk_predictions_score(task("vt"), path, &p, &e), 0);
	assert_true(p.n == 0 && isnan(p.score));
	rk_example_free(&x);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void test_words_differ(void **state)
{
	char (*word)[RK_WORD_MAX] = malloc(RK_N_COMPOUND * sizeof *word);

	(void)state;
	for (int i = 0; i < RK_N_WORD; i++) {
		strcpy(word[i], rk_word(i));
		assert_int_equal(strspn(word[i], "abcdefghijklmnopqrstuvwxyz"), strlen(word[i]));
	}
	qsort(word, RK_N_WORD, sizeof *word, by_text);
	for (int i = 1; i < RK_N_WORD; i++)
		assert_string_not_equal(word[i - 1], word[i]);
	for (int i = 0; i < RK_N_COMPOUND; i++)
		rk_word_compound(i, word[i]);
	qsort(word, RK_N_COMPOUND, sizeof *word, by_text);
	for (int i = 1; i < RK_N_COMPOUND; i++)
		assert_string_not_equal(word[i - 1], word[i]);
	free(word);
}

/* "1 2 3 4. 5 6 ... 5000": words that say where they are, in sentences of four to nine. */
static int put_haystack(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/rk_ruler_XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(haystack, sizeof haystack, "%s/essays.json", dir);
	FILE *f = fopen(haystack, "w");
	fputs("{\"text\": \"", f);
	for (int i = 1, left = 4; i <= 5000; i++) {
		bool end = --left == 0 || i == 5000;
		fprintf(f, "%d%s", i, end ? i % 3 ? ". " : ".\\n\\n" : " ");
		if (end)
			left = 4 + i % 6;
	}
	fputs("\"}", f);
	return fclose(f);
}

static int remove_dir(void **state)
{
	static const char *const name[] = { "essays.json", "bad.jsonl", "squad.json", "hotpotqa.json", "niah_multiquery.jsonl", "empty.jsonl" };
	char path[200];

	(void)state;
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, name[i]);
		unlink(path);
	}
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_needle_in_noise), cmocka_unit_test(test_needles_in_essays), cmocka_unit_test(test_needle_among_needles),
		cmocka_unit_test(test_variable_tracking), cmocka_unit_test(test_common_words), cmocka_unit_test(test_frequent_words),
		cmocka_unit_test(test_questions), cmocka_unit_test(test_same_example_again), cmocka_unit_test(test_bad_input),
		cmocka_unit_test(test_scores), cmocka_unit_test(test_predictions), cmocka_unit_test(test_words_differ),
	};
	return cmocka_run_group_tests(tests, put_haystack, remove_dir);
}
