/* test_opt.c: the command-line parser (base/opt.h) and the nearest-name hints (base/near.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/near.h"
#include "base/opt.h"

enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };
struct model_opts {
	const char *model;
	int threads;
};
struct all_opts {
	bool exact;
	double temp;
	float p;
	enum color color;
	rk_opt_list policy;
	int any;
	struct model_opts m;
};

static const char *const colors[] = { "auto", "always", "never", NULL };
static const rk_opt model_rows[] = {
	{ "model", 'm', RK_OPT_STR, offsetof(struct model_opts, model), .metavar = "FILE", .doc = "GGUF model file" },
	{ "threads", 't', RK_OPT_INT, offsetof(struct model_opts, threads), .def = "0", .min = 0, .max = 256,
	  .doc = "CPU threads; 0: one per core" },
	{ 0 },
};
static const rk_opt rows[] = {
	{ "exact", 0, RK_OPT_FLAG, offsetof(struct all_opts, exact), .doc = "no rounding" },
	{ "temp", 0, RK_OPT_DOUBLE, offsetof(struct all_opts, temp), .def = "0.7", .min = 0, .max = 10, .doc = "temperature" },
	{ "top-p", 0, RK_OPT_FLOAT, offsetof(struct all_opts, p), .def = "0.95", .min = 0, .max = 1, .above_min = true,
	  .doc = "nucleus" },
	{ "color", 0, RK_OPT_ENUM, offsetof(struct all_opts, color), .def = "auto", .names = colors, .doc = "colours" },
	{ "policy", 'p', RK_OPT_LIST, offsetof(struct all_opts, policy), .metavar = "SPEC", .doc = "a lane's policy" },
	{ "any", 0, RK_OPT_INT, offsetof(struct all_opts, any), .metavar = "ANY-NUMBER-AT-ALL",
	  .doc = "an int without limits" },
	{ 0 },
};
static const rk_opt_group groups[] = { { "General", rows, 0 }, { "Model", model_rows, offsetof(struct all_opts, m) }, { 0 } };
static void more(FILE *f) { fputs("Examples follow.\n", f); }
static const rk_opt_cmd cmd = { "ppl", "TEXT [TEXT]", "Measures perplexity.", groups, 1, 2, more };

/* Splits line at spaces, after a command name.  The words live until the next call: values point into them. */
static int parse(const char *line, struct all_opts *o, rk_opt_list *operands, rk_err *e)
{
	static char text[16 * RK_OPT_LIST_MAX];
	char *argv[3 * RK_OPT_LIST_MAX] = { "ppl" };
	int argc = 1;
	snprintf(text, sizeof text, "%s", line);
	for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
		argv[argc++] = w;
	*e = (rk_err){ 0 };
	return rk_opt_parse(&cmd, argc, argv, o, operands, e);
}

static void test_defaults(void **state)
{
	(void)state;
	struct all_opts o;
	rk_opt_list rest;
	rk_err e;
	memset(&o, 0xa5, sizeof o);
	assert_int_equal(parse("a.txt", &o, &rest, &e), 0);
	assert_false(o.exact);
	assert_true(o.temp == 0.7 && o.p == 0.95f);
	assert_int_equal(o.color, COLOR_AUTO);
	assert_int_equal(o.policy.n, 0);
	assert_int_equal(o.m.threads, 0);
	assert_null(o.m.model);
	assert_int_equal(rest.n, 1);
	assert_string_equal(rest.v[0], "a.txt");
}

static void test_forms(void **state)
{
	(void)state;
	struct all_opts o;
	rk_opt_list rest;
	rk_err e;
	const char *line = "--model=a=b.gguf --exact -t 4 - --policy h2o -p snapkv --temp 1e-3 --color never --any -7 -- --exact";
	assert_int_equal(parse(line, &o, &rest, &e), 0);
	assert_string_equal(o.m.model, "a=b.gguf");
	assert_true(o.exact);
	assert_int_equal(o.m.threads, 4);
	assert_true(o.temp == 0.001);
	assert_int_equal(o.color, COLOR_NEVER);
	assert_int_equal(o.any, -7);
	assert_int_equal(o.policy.n, 2);
	assert_string_equal(o.policy.v[0], "h2o");
	assert_string_equal(o.policy.v[1], "snapkv");
	assert_int_equal(rest.n, 2);
	assert_string_equal(rest.v[0], "-");
	assert_string_equal(rest.v[1], "--exact");

	assert_int_equal(parse("x --exact --exact=false --any 1 --any 2 --model=", &o, &rest, &e), 0);
	assert_false(o.exact);
	assert_int_equal(o.any, 2);	/* the last one counts */
	assert_string_equal(o.m.model, "");
	assert_int_equal(parse("x --top-p 1 --any 2147483647", &o, &rest, &e), 0);
	assert_true(o.p == 1.0f);
}

static void test_help_request(void **state)
{
	(void)state;
	struct all_opts o;
	rk_err e;
	assert_int_equal(parse("--help", &o, NULL, &e), 1);
	assert_int_equal(parse("x -t 1 -h --no-such", &o, NULL, &e), 1);
	assert_int_equal(parse("x -- -h", &o, NULL, &e), 0);
}

static void test_errors(void **state)
{
	(void)state;
	static const struct { const char *line, *msg; } cases[] = {
		{ "x --modle a", "unknown option --modle of ppl; did you mean --model?" },
		{ "x --thread=3", "unknown option --thread of ppl; did you mean --threads?" },
		{ "x --zebra", "unknown option --zebra of ppl; --help lists the valid ones" },
		{ "x --hepl", "unknown option --hepl of ppl; did you mean --help?" },
		{ "x -z", "unknown option -z of ppl; --help lists the valid ones" },
		{ "x -exact", "unknown option -exact of ppl; did you mean --exact?" },
		{ "x --=1", "unknown option -- of ppl; --help lists the valid ones" },
		{ "x --model", "--model needs a value: GGUF model file" },
		{ "x -t", "--threads needs a value: CPU threads; 0: one per core" },
		{ "x -t 257", "--threads=257 is out of range: 0 to 256" },
		{ "x -t -1", "--threads=-1 is out of range: 0 to 256" },
		{ "x -t 99999999999999999999", "--threads=99999999999999999999 is out of range: 0 to 256" },
		{ "x --any 2147483648", "--any=2147483648 is out of range: -2147483648 to 2147483647" },
		{ "x -t 4x", "--threads=4x is not a whole number" },
		{ "x -t 4.0", "--threads=4.0 is not a whole number" },
		{ "x --threads=", "--threads= is not a whole number" },
		{ "x --temp=", "--temp= is not a number" },
		{ "x --temp nan", "--temp=nan is not a number" },
		{ "x --temp inf", "--temp=inf is not a number" },
		{ "x --temp 0x1", "--temp=0x1 is not a number" },
		{ "x --temp 1e999", "--temp=1e999 is too large" },
		{ "x --temp 1e", "--temp=1e is not a number" },
		{ "x --temp 10.5", "--temp=10.5 is out of range: 0 to 10" },
		{ "x --top-p 0", "--top-p=0 is out of range: above 0, at most 1" },
		{ "x --color alwys", "--color=alwys is not valid; did you mean 'always'?" },
		{ "x --color=", "--color= is not valid; valid: auto, always, never" },
		{ "x --exact=yes", "--exact=yes is not valid; valid: true, false" },
		{ "--exact", "missing operand; usage: ppl TEXT [TEXT]" },
		{ "a b c", "unexpected operand 'c'; usage: ppl TEXT [TEXT]" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct all_opts o;
		rk_err e;
		assert_int_equal(parse(cases[i].line, &o, NULL, &e), -1);
		assert_int_equal(e.code, RK_EUSAGE);
		assert_string_equal(e.msg, cases[i].msg);
	}
}

static void test_list_is_bounded(void **state)
{
	(void)state;
	char line[16 * RK_OPT_LIST_MAX] = "x";
	struct all_opts o;
	rk_err e;
	for (int i = 0; i < RK_OPT_LIST_MAX; i++)
		strcat(line, " -p h2o");
	assert_int_equal(parse(line, &o, NULL, &e), 0);
	assert_int_equal(o.policy.n, RK_OPT_LIST_MAX);
	strcat(line, " -p h2o");
	assert_int_equal(parse(line, &o, NULL, &e), -1);
	assert_string_equal(e.msg, "--policy is given more than 1024 times");
}

static void test_settings_then_command_line(void **state)
{
	(void)state;
	struct all_opts o;
	rk_err e;
	char *argv[] = { "ppl", "x", "--temp", "2" };
	rk_opt_defaults(&cmd, &o);
	assert_int_equal(rk_opt_set(&cmd, &o, "threads", "3", &e), 0);
	assert_int_equal(rk_opt_set(&cmd, &o, "temp", "1", &e), 0);
	assert_int_equal(rk_opt_set(&cmd, &o, "exact", "true", &e), 0);
	assert_int_equal(rk_opt_parse_over(&cmd, 4, argv, &o, NULL, &e), 0);
	assert_true(o.exact && o.temp == 2 && o.m.threads == 3);

	assert_int_equal(rk_opt_set(&cmd, &o, "theads", "3", &e), -1);
	assert_string_equal(e.msg, "unknown option theads of ppl; did you mean threads?");
	assert_int_equal(rk_opt_set(&cmd, &o, "threads", "300", &e), -1);
	assert_string_equal(e.msg, "threads=300 is out of range: 0 to 256");
}

static void test_help_text(void **state)
{
	(void)state;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	rk_opt_help(&cmd, f);
	fclose(f);
	assert_non_null(strstr(text, "Usage: refreshkv ppl [OPTION...] TEXT [TEXT]\n"));
	assert_non_null(strstr(text, "\nGeneral:\n"));
	assert_non_null(strstr(text, "  -t, --threads N             CPU threads; 0: one per core (0 to 256; default 0)\n"));
	assert_non_null(strstr(text, "      --color NAME            colours (auto, always or never; default auto)\n"));
	assert_non_null(strstr(text, "  -p, --policy SPEC           a lane's policy (may be repeated)\n"));
	assert_non_null(strstr(text, "  -h, --help                  print this text and exit\n"));
	assert_non_null(strstr(text, "      --any ANY-NUMBER-AT-ALL\n                              an int without limits\n"));
	assert_non_null(strstr(text, "Examples follow.\n"));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 100);
	free(text);
}

static void test_wrap(void **state)
{
	(void)state;
	char *text = NULL, word[80];
	size_t len = 0;
	memset(word, 'w', 60);
	word[60] = '\0';
	FILE *f = open_memstream(&text, &len);
	char both[200];
	snprintf(both, sizeof both, "%s %s", word, word);
	rk_opt_wrap(f, 0, 4, both);		/* the second word does not fit behind the first */
	fputs("lead-in:", f);
	rk_opt_wrap(f, 8, 4, both);		/* goes on from where the cursor is */
	rk_opt_wrap(f, 0, 0, "");
	fclose(f);
	char want[400];
	snprintf(want, sizeof want, "    %s\n    %s\nlead-in: %s\n    %s\n\n", word, word, word, word);
	assert_string_equal(text, want);
	free(text);
}

static uint64_t rng = 0x9e3779b97f4a7c15u;
static uint64_t next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}

/* Any finite number is printed so that it reads back as the same bits, and common ones are printed short. */
static void test_number_round_trip(void **state)
{
	(void)state;
	struct { double d; float f; } v, w;
	rk_opt d = { .name = "d", .kind = RK_OPT_DOUBLE };
	rk_opt f = { .name = "f", .kind = RK_OPT_FLOAT, .at = offsetof(__typeof__(v), f) };
	char text[64];
	rk_err e;
	for (int i = 0; i < 20000; i++) {
		uint64_t bits = next_random();
		memcpy(&v.d, &bits, 8);
		memcpy(&v.f, &bits, 4);
		if (v.d - v.d != 0 || v.f - v.f != 0)
			continue;
		assert_int_equal(rk_opt_value_set(&d, &w, "d", rk_opt_value_format(&d, &v, text, sizeof text), &e), 0);
		assert_int_equal(rk_opt_value_set(&f, &w, "f", rk_opt_value_format(&f, &v, text, sizeof text), &e), 0);
		assert_true(w.d == v.d && w.f == v.f);
	}
	v.d = 0.125;
	v.f = 0.85f;
	assert_string_equal(rk_opt_value_format(&d, &v, text, sizeof text), "0.125");
	assert_string_equal(rk_opt_value_format(&f, &v, text, sizeof text), "0.85");
	v.d = 512;
	assert_string_equal(rk_opt_value_format(&d, &v, text, sizeof text), "512");
	v.d = DBL_MAX;
	assert_string_equal(rk_opt_value_format(&d, &v, text, sizeof text), "1.7976931348623157e+308");
}

static void test_format_other_kinds(void **state)
{
	(void)state;
	struct all_opts o;
	char text[64];
	rk_err e;
	assert_int_equal(parse("x --exact -p a -p b --color never --any -3", &o, NULL, &e), 0);
	assert_string_equal(rk_opt_value_format(&rows[0], &o, text, sizeof text), "true");
	assert_string_equal(rk_opt_value_format(&rows[3], &o, text, sizeof text), "never");
	assert_string_equal(rk_opt_value_format(&rows[4], &o, text, sizeof text), "a,b");
	assert_string_equal(rk_opt_value_format(&rows[5], &o, text, sizeof text), "-3");
	assert_string_equal(rk_opt_value_format(&model_rows[0], &o.m, text, sizeof text), "");
	assert_string_equal(rk_opt_range(&rows[5], text, sizeof text), "");
}

static void test_near(void **state)
{
	(void)state;
	static const char *const names[] = { "vanilla", "snapkv", "h2o", "refreshkv", "k", "s", "qc" };
	const int n = sizeof names / sizeof *names;
	char hint[64], word[200];
	assert_string_equal(rk_near("snpakv", names, n), "snapkv");	/* neighbours swapped */
	assert_string_equal(rk_near("refreskv", names, n), "refreshkv");
	assert_string_equal(rk_near("h20", names, n), "h2o");
	assert_string_equal(rk_near("vanila", names, n), "vanilla");
	assert_string_equal(rk_near("cq", names, n), "qc");
	assert_null(rk_near("x", names, n));
	assert_null(rk_near("zebra", names, n));
	assert_null(rk_near("", names, n));
	memset(word, 'k', sizeof word - 1);
	word[sizeof word - 1] = '\0';
	assert_null(rk_near(word, names, n));
	assert_string_equal(rk_near_hint(hint, sizeof hint, "vanila", names, n), "did you mean 'vanilla'?");
	assert_string_equal(rk_near_hint(hint, sizeof hint, "zebra", names, 3), "valid: vanilla, snapkv, h2o");
	assert_string_equal(rk_near_hint(hint, 12, "zebra", names, 3), "valid: vani");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults), cmocka_unit_test(test_forms), cmocka_unit_test(test_help_request),
		cmocka_unit_test(test_errors), cmocka_unit_test(test_list_is_bounded),
		cmocka_unit_test(test_settings_then_command_line),
		cmocka_unit_test(test_help_text), cmocka_unit_test(test_wrap), cmocka_unit_test(test_number_round_trip),
		cmocka_unit_test(test_format_other_kinds), cmocka_unit_test(test_near),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
