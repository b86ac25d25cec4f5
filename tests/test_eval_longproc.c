/* test_eval_longproc.c: LongProc's prompts and scores on a small data directory of our own, in the official form.
 *
 * Prompts, references and scores that are expected here are what the official code (longproc/longproc_data.py at commit 78e873a,
 * Python 3.12, pandas 3.1) made of the same files and replies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "eval/given.h"

static char dir[64];

static int count(void *ctx, const rk_example *x, rk_err *e)
{
	(void)ctx, (void)e;
	return (int)(strlen(x->context) + strlen(x->question) + strlen(x->prefix));
}

static const rk_task *task(const char *name)
{
	const rk_task *t = rk_tasks_longproc;

	while (t->name && strcmp(t->name, name))
		t++;
	assert_non_null(t->name);
	return t;
}

static const rk_task_env env = { .seed = 7, .count = count, .data_dir = dir };

/* The example that is item `item` of the file. */
static rk_example make(const char *name, int item)
{
	rk_example x;
	rk_err e = { .msg = "" };
	int index = 0, rc;

	while ((rc = task(name)->make(task(name), &env, index++, &x, &e)) == 0 && json_integer_value(json_object_get(x.data, "item")) != item)
		rk_example_free(&x);
	if (rc)
		fail_msg("%s: %d %s", name, rc, e.msg);
	return x;
}

static void check(const char *name, const rk_example *x, const char *reply, double want, const char *key, double more, double extracted)
{
	json_t *detail = NULL;
	double got = task(name)->score(x, reply, &detail), other = json_real_value(json_object_get(detail, key));

	if (fabs(got - want) > 1e-6 || fabs(other - more) > 1e-6 || json_real_value(json_object_get(detail, "extraction_rate")) != extracted)
		fail_msg("%s: %g (%s %g), expected %g (%g) for \"%.300s\"", name, got, key, other, want, more, reply);
	json_decref(detail);
}

static void check_prompt(const rk_example *x, const char *want)
{
	char all[2000];

	snprintf(all, sizeof all, "%s%s%s", x->context, x->question, x->prefix);
	assert_string_equal(all, want);
}

static void put_file(const char *name, const char *text)
{
	char path[200];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_html_to_tsv(void **state)
{
	static const struct { const char *reply; double f1, precision, extracted; } of[] = {
		{ "```tsv\nname\tlength\nHeron\t7 m\nOsprey\t9.5 m\nTern\tn/a\nBig Gull\t11 m\n```", 1, 1, 1 },
		{ "```tsv\nname\tlength\nOsprey\t95m\nHERON\t7m\nKite\t3 m\n```\nThat is all.", 4. / 7, 2. / 3, 1 },
		{ "name\tlength\nheron\t7 m", 0.4, 1, 1 },
		{ "```tsv\nname\tlength\nTern\nHeron\t7 m\nOsprey\n```", 1. / 3, 0.5, 1 },	/* short rows: N/A, and dropped at the end */
		{ "```tsv\nname\tname\nHeron\t7 m\n```", 0, 0, 0 },
		{ "```tsv\nname\nHeron\n```", 0, 0, 0 },
		{ "```tsv\nname\tlength\n```", 0, 0, 0 },
		{ "", 0, 0, 0 },
		{ "```tsv\nname\tlength\n\"He\n\nron\"\t\"7\"\" m\"\nTern\tNA\n```", 2. / 3, 1, 1 },	/* quotes as in csv */
		{ "```tsv\r\nname\tlength\r\nHeron\t7 m\r\nTern\ta\rb\r\n```", 0, 0, 0 },	/* csv.Error */
	};
	rk_example x = make("html_to_tsv_0.5k", 0);

	(void)state;
	check_prompt(&x, "Page:\n<p>{Heron}</p>\n<p>Osprey</p>\nTopic boats, list (1) name; (2) length\nname\tlength\n{rows}");
	assert_string_equal(x.question, "\nTopic boats, list (1) name; (2) length\nname\tlength\n{rows}");
	assert_int_equal(x.max_new, 1024);
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		check("html_to_tsv_0.5k", &x, of[i].reply, of[i].f1, "precision", of[i].precision, of[i].extracted);
	rk_example_free(&x);
}

#define ROUTE "From A, take a bus to B.\nFrom B, take a train to C."

static void test_path_traversal(void **state)
{
	rk_example x = make("path_traversal_0.5k", 0);

	(void)state;
	check_prompt(&x, "A leads to B. B leads to C.\nFrom A to C.");
	check("path_traversal_0.5k", &x, "<Route>\n" ROUTE "\n</Route>", 1, "partial_accuracy", 1, 1);
	check("path_traversal_0.5k", &x, "<Route>\nFrom A, take a bus to B.\nFrom B, take a bus to C.\n</Route>", 0, "partial_accuracy", 1, 1);
	check("path_traversal_0.5k", &x, "<Route>From A, take a bus to B.</Route>", 0, "partial_accuracy", 0.5, 1);
	check("path_traversal_0.5k", &x, "<Route>\n" ROUTE "\nFrom C, take a bus to A.</Route>", 0, "partial_accuracy", 1, 1);
	check("path_traversal_0.5k", &x, "<Route>x</Route>", 0, "partial_accuracy", 0.5, 1);
	check("path_traversal_0.5k", &x, ROUTE, 0, "partial_accuracy", 0, 0);
	check("path_traversal_0.5k", &x, "</Route>x<Route>", 0, "partial_accuracy", 0.5, 1);
	rk_example_free(&x);
}

#define STEP0 "- Step 0: (initial state) {Ann location: hall; cup location: hall's shelf}\n"
#define STEP1 "- Step 1: (Ann location changed) {Ann location: None}\n"
#define STEP2 "- Step 2: (unchanged) {Ann location: yard}\n"

static void test_tom_tracking(void **state)
{
	static const struct { const char *reply; double accuracy, partial; } of[] = {
		{ "Ann's belief on the cup:\n" STEP0 STEP1 STEP2 "Final Answer: hall's shelf", 1, 1 },
		{ "- STEP 0: (INITIAL STATE) {ANN LOCATION: HALL; CUP LOCATION: HALL\u2019S SHELF}\n" STEP1 STEP2, 1, 1 },
		{ STEP0 STEP1 "- Step 2: (unchanged) {Ann location: hall}\n", 0, 2. / 3 },
		{ STEP0 STEP1, 0, 2. / 3 },
		{ "- wrong\n" STEP0 STEP1 STEP2, 0, 0 },
		{ STEP0 "  " STEP1 STEP2, 0, 1. / 3 },	/* indented: not read, except in the first line */
		{ "  " STEP0 STEP1 STEP2, 1, 1 },
		{ "", 0, 0 },
	};
	rk_example x = make("tom_tracking_0.5k", 0);

	(void)state;
	check_prompt(&x, "Step 0: Ann is in the hall.\nWhere is the cup?");
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		check("tom_tracking_0.5k", &x, of[i].reply, of[i].accuracy, "partial_accuracy", of[i].partial, 1);
	rk_example_free(&x);
}

/* First n lines of the reference, then more. */
static void reference(const rk_example *x, int n, const char *more, char *out)
{
	const char *s = x->answer[0];

	while (n-- > 0)
		s = strchr(s, '\n') + 1;
	sprintf(out, "%.*s%s", (int)(s - x->answer[0]), x->answer[0], more);
}

static void test_countdown(void **state)
{
	rk_example x = make("countdown_0.5k", 1), other = make("countdown_0.5k", 0);
	char got[4000];
	int n = 0;

	(void)state;
	for (const char *s = x.answer[0]; (s = strchr(s, '\n')); s++)
		n++;
	assert_int_equal(n, 32);
	reference(&x, 5, "", got);
	assert_string_equal(got, "# Search Procedure\nInitial number set: [3, 5, 7, 2], target: 28. Options for choosing two numbers: [(3, 5), "
	                    "(3, 7), (3, 2), (5, 7), (5, 2), (7, 2)].\n |- Pick two numbers (3, 5) (numbers left: [7, 2]). Try possible "
	                    "operations.\n  |- Try 5 + 3 = 8. Add 8 to the number set. Current number set: [8, 7, 2], target: 28. Options for "
	                    "choosing two numbers: [(8, 7), (8, 2), (7, 2)].\n   |- Pick two numbers (8, 7) (numbers left: [2]). Try possible "
	                    "operations.\n");
	assert_non_null(strstr(x.answer[0], "\n    |- Try 8 + 7 = 15. Add 15 to the number set. Current number set: [15, 2], target: 28, just "
	                       "two numbers left.\n     |- Try 15 + 2 = 17. Evaluate 17 != 28, drop this branch.\n"));
	assert_non_null(strstr(x.answer[0], "\n     |- Try 15 / 2 = 7.5. 7.5 is a decimal, drop this branch.\n"));
	assert_non_null(strstr(x.answer[0], "\n     |- Try 56 / 2 = 28. Evaluate 28 == 28, target found!\n\nNow we have found the target, let's "
	                       "trace back the solution:\nFinal step: 56 / 2 = 28\nThe step before: 8 * 7 = 56\nThe first step: 5 + 3 = 8\n\n"
	                       "Output the solution in the required format:\n<Solution>\n5 + 3 = 8\n8 * 7 = 56\n56 / 2 = 28\n</Solution>\n"));
	assert_int_equal(count(NULL, &other, NULL), 14352);
	assert_string_equal(x.question, "\nNumbers: [3, 5, 7, 2]\nTarget: 28");
	static const char *const right[] = { "<Solution>\n7 - 3 = 4\n5 + 2 = 7\n4 * 7 = 28\n</Solution>" };
	static const char *const wrong[] = {
		"<Solution>\n7 * 5 = 35\n35 / 5 = 7\n</Solution>", "<Solution>\n5 + 2 = 7\n7 * 7 = 49\n49 - 3 = 46\n</Solution>",
		"<Solution>3 * 5 = 15\n15 + 7 = 22\n22 + 2 = 24</Solution>", "<Solution>\n7 - 3 = 4\n5 + 2 = 8\n4 * 7 = 28\n</Solution>",
		"<Solution>\n28\n28\n28\n</Solution>", "<Solution>\n7 / 0 = 4\n5 + 2 = 7\n4 * 7 = 28\n</Solution>",
		"<Solution>\n99999999999999999999 - 3 = 4\n5 + 2 = 7\n4 * 7 = 28\n</Solution>", "<Solution></Solution>",
	};
	check("countdown_0.5k", &x, x.answer[0], 1, "partial_accuracy", 1, 1);
	check("countdown_0.5k", &x, right[0], 1, "partial_accuracy", 1, 1);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		check("countdown_0.5k", &x, wrong[i], 0, "partial_accuracy", 0, 1);
	check("countdown_0.5k", &x, "# Search Procedure\nInitial", 0, "partial_accuracy", 0, 0);
	check("countdown_0.5k", &x, "none", 0, "partial_accuracy", 0, 0);
	reference(&x, 8, "", got);
	check("countdown_0.5k", &x, got, 0, "partial_accuracy", 5. / 18, 0);
	reference(&x, 5, "    |- Try 8 + 7 = 99. drop this branch", got);	/* added there: another action */
	check("countdown_0.5k", &x, got, 0, "partial_accuracy", 3. / 18, 0);
	rk_example_free(&x);
	rk_example_free(&other);
}

static void test_travel_planning(void **state)
{
	rk_example x = make("travel_planning_2k", 0), big = make("travel_planning_8k", 1);
	char got[8000];
	const char *plan = strstr(x.answer[0], "<Plan>");

	(void)state;
	assert_int_equal(big.max_new, 9216);
	rk_example_free(&big);
	reference(&x, 15, "", got);
	assert_string_equal(got, "<Solving Procedure>\nRead the requirements and identify the cities that have fixed schedules and the cities that "
	                    "need to be arranged.\n* City: Oslo, Duration: 4 days.\n* City: Rome, Duration: 3 days, Fixed Schedule: Day 7 - 9.\n"
	                    "* City: Bern, Duration: 4 days.\n\nCities that have fixed schedules (sorted by their arrival days):\n* City: Rome, "
	                    "Fixed Schedule: Day 7 - 9.\n\nCities needing arrangement:\n* City: Oslo, Duration: 4 days.\n* City: Bern, Duration: 4 "
	                    "days.\n\nCurrent day: 1. Current plan: [].\nCheck whether the city with an arrival day of Day 1 - is fixed.\n");
	assert_non_null(strstr(x.answer[0], "\n    |- Yes. The city with an arrival day of Day 7 - is fixed: Rome.\n     |- Try arranging to visit "
	                       "Rome from Day 7. Duration: 3 days. Schedule: Day 7 - 9.\n     |- Check for direct flight from Bern to Rome.\n     |- "
	                       "No. Drop this branch.\n     |- Fail to arrange any option on day 7 in the current arrangement. Drop this branch.\n   |- "
	                       "Fail to arrange any option on day 4 in the current arrangement. Drop this branch.\n |- Try arranging to visit Bern"));
	assert_string_equal(plan, "<Plan>\n**Day 1-4:** Arriving in Bern and visit Bern for 4 days.\n**Day 4:** Fly from Bern to Oslo.\n**Day 4-7:** "
	                    "Visit Oslo for 4 days.\n**Day 7:** Fly from Oslo to Rome.\n**Day 7-9:** Visit Rome for 3 days.\n</Plan>");
	check("travel_planning_2k", &x, x.answer[0], 1, "partial_accuracy", 1, 1);
	check("travel_planning_2k", &x, plan, 1, "partial_accuracy", 1, 1);
	char *late = strdup(x.answer[0]);
	strstr(late, "Day 4:** Fly")[4] = '5';	/* two stays of another length, and 65 of 70 lines before that */
	check("travel_planning_2k", &x, late, 0, "partial_accuracy", 65. / 70, 1);
	free(late);
	reference(&x, 12, "", got);
	check("travel_planning_2k", &x, got, 0, "partial_accuracy", 9. / 70, 0);
	reference(&x, 16, "wrong", got);
	check("travel_planning_2k", &x, got, 0, "partial_accuracy", 13. / 70, 0);
	check("travel_planning_2k", &x, "", 0, "partial_accuracy", 0, 0);
	check("travel_planning_2k", &x, "<Plan>\n**Day 1-2147483647:** Visit A.\n**Day 2147483647:** Fly from A to B.\n**Day 99999999999:** Fly from B "
	      "to C.\n</Plan>", 0, "partial_accuracy", 0, 1);
	rk_example_free(&x);
}

/* A file that is kept is not read again, and gives the same examples; another one takes its place. */
static void test_kept(void **state)
{
	rk_given_kept kept = { 0 };
	rk_task_env with = env;
	rk_example x, y;
	rk_err e = { .msg = "" };

	(void)state;
	with.kept = &kept;
	assert_int_equal(task("travel_planning_2k")->make(task("travel_planning_2k"), &env, 0, &x, &e), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(task("travel_planning_2k")->make(task("travel_planning_2k"), &with, 0, &y, &e), 0);
		assert_string_equal(x.context, y.context);
		assert_true(json_equal(x.data, y.data));
		rk_example_free(&y);
		json_t *root = kept.root;
		assert_non_null(strstr(kept.path, "travel_planning_all.json"));
		assert_int_equal(task("travel_planning_8k")->make(task("travel_planning_8k"), &with, 0, &y, &e), 0);
		rk_example_free(&y);
		assert_ptr_equal(kept.root, root);
		assert_int_equal(task("countdown_0.5k")->make(task("countdown_0.5k"), &with, 0, &y, &e), 0);
		rk_example_free(&y);
		assert_non_null(strstr(kept.path, "countdown_0.5k.json"));
	}
	rk_example_free(&x);
	rk_given_drop(&kept);
}

static void expect_error(const char *name, const rk_task_env *v, const char *part)
{
	rk_example x;
	rk_err e = { .msg = "" };

	assert_int_equal(task(name)->make(task(name), v, 0, &x, &e), -1);
	if (!strstr(e.msg, part) || strchr(e.msg, '\n'))
		fail_msg("\"%s\" is not in \"%s\"", part, e.msg);
}

static void test_bad_input(void **state)
{
	rk_task_env none = env, nowhere = env, brief = env;
	rk_example x;

	(void)state;
	none.data_dir = NULL;
	nowhere.data_dir = "/nowhere";
	brief.length = 1100;
	expect_error("tom_tracking_2k", &none, "needs --data DIR: the folder `data` of https://github.com/princeton-pli/LongProc");
	expect_error("tom_tracking_2k", &nowhere, "/nowhere/tom_tracking/tom_tracking_2k.json: No such file or directory");
	assert_non_null(strstr(task("pseudo_to_code_2k")->refused, "compiling and running"));
	expect_error("html_to_tsv_0.5k", &brief, "--length 1100: example 0 takes 1116 tokens, 1024 of them for the reply");
	assert_int_equal(task("tom_tracking_0.5k")->make(task("tom_tracking_0.5k"), &env, 1, &x, NULL), 1);
	put_file("tom_tracking/tom_tracking_2k.json", "[\n{\"story\": \n]");
	expect_error("tom_tracking_2k", &env, "tom_tracking_2k.json:3: ");
	put_file("tom_tracking/tom_tracking_2k.json", "{}");
	expect_error("tom_tracking_2k", &env, "tom_tracking_2k.json: is not a list of items");
	put_file("tom_tracking/tom_tracking_2k.json", "[{\"story\": 3}]");
	expect_error("tom_tracking_2k", &env, "tom_tracking_2k.json: item 0: no text \"story\"");
	put_file("path_traversal/path_traversal_2k.json", "[{\"context_nl\": \"\", \"answer_nl\": \"\", \"question_repr\": [\"A\"]}]");
	expect_error("path_traversal_2k", &env, "item 0: no two cities in \"question_repr\"");
	put_file("html_to_tsv/html_to_tsv_2k.json", "[{\"html_path\": \"no.html\", \"task_topic\": \"\", \"task_description\": \"\", "
	         "\"filtering_instruction\": \"\", \"tsv_header\": \"\", \"gt\": \"\"}]");
	expect_error("html_to_tsv_2k", &env, "html_to_tsv/no.html: No such file");
	put_file("countdown/countdown_2k.json", "[{\"nums\": [1, 1, 1, 1], \"target\": 1000}]");
	expect_error("countdown_2k", &env, "item 0: 1000 cannot be reached");
	put_file("countdown/countdown_2k.json", "[{\"nums\": [1, 1, 1], \"target\": 1}]");
	expect_error("countdown_2k", &env, "item 0: no four numbers");
	put_file("countdown/prompts.yaml", "USER_PROMPT: \"{demonstration} {what}\"\n");
	expect_error("countdown_0.5k", &env, "countdown/prompts.yaml: unknown field at \"{what}\"");
	put_file("countdown/prompts.yaml", "OTHER: \"{demonstration}\"\n");
	expect_error("countdown_0.5k", &env, "countdown/prompts.yaml: no USER_PROMPT with {demonstration} in it");
}

#define TRIP "{\"num_cities\": 3, \"total_days\": 9, \"constraints\": [{\"type\": \"duration\", \"city\": \"Oslo\", \"num_days\": 4}, " \
	"{\"type\": \"duration\", \"city\": \"Rome\", \"num_days\": 3}, {\"type\": \"fixed\", \"city\": \"Rome\", \"start_day\": 7, \"end_day\": 9}, " \
	"{\"type\": \"duration\", \"city\": \"Bern\", \"num_days\": 4}], \"connected_cities\": [[\"Bern\", \"Oslo\"], [\"Oslo\", \"Rome\"], [\"Oslo\", " \
	"\"Bern\"]], \"disambig_question_text\": \"Three cities in 9 days.\", \"ground_truth_cities\": \"Bern**Oslo**Rome\", " \
	"\"ground_truth_durations\": \"4**4**3\", \"estimated_output_tokens\": "

static const struct { const char *name, *text; } file[] = {
	{ "html_to_tsv/prompts.yaml", "USER_PROMPT: |-\n  Page:\n  {html_str}\n  Topic {task_topic}, list {task_description}{filtering_instruction}\n"
	  "  {tsv_header}\n  {{rows}}" },
	{ "html_to_tsv/html_to_tsv_0.5k.json", "[{\"html_path\": \"webpage/a.html\", \"task_topic\": \"boats\", \"task_description\": \"(1) name; (2) "
	  "length\", \"filtering_instruction\": \"\", \"tsv_header\": \"name\\tlength\", \"gt\": \"name\\tlength\\nThe Heron\\t7 m\\nOsprey\\t9,5 m\\nTern\\t"
	  "N/A\\n\\\"Big\\\" Gull\\t11 m\"}]" },
	{ "html_to_tsv/webpage/a.html", "<p>{Heron}</p>\r\n<p>Osprey</p>" },
	{ "path_traversal/prompts.yaml", "USER_PROMPT: |-\n  {city_context}\n  From {src_city} to {dst_city}." },
	{ "path_traversal/path_traversal_0.5k.json", "[{\"context_nl\": \"A leads to B. B leads to C.\", \"question_repr\": [\"A\", \"C\"], \"answer_nl\": "
	  "\"From A, take a bus to B.\\nFrom B, take a train to C.\"}]" },
	{ "tom_tracking/prompts.yaml", "USER_PROMPT: |-\n  {story}\n  {question}" },
	{ "tom_tracking/tom_tracking_0.5k.json", "[{\"story_components\": \"\", \"story\": \"Step 0: Ann is in the hall.\", \"question\": \"Where is the "
	  "cup?\", \"solution\": \"Ann's belief on the cup:\\n- Step 0: (initial state) {Ann location: hall; cup location: hall's shelf}\\n- Step 1: (Ann "
	  "location changed) {Ann location: None}\\n- Step 2: (unchanged) {Ann location: yard}\\nFinal Answer: hall's shelf\"}]" },
	{ "countdown/prompts.yaml", "USER_PROMPT: |-\n  {demonstration}\n  Numbers: {nums}\n  Target: {target}" },
	{ "countdown/countdown_0.5k.json", "[{\"nums\": [9, 16, 6, 18], \"target\": 12}, {\"nums\": [3, 5, 7, 2], \"target\": 28}]" },
	{ "travel_planning/prompts.yaml", "USER_PROMPT: |-\n  {demonstration}\n  {problem}" },
	{ "travel_planning/travel_planning_all.json", "[" TRIP "300}, " TRIP "5000}, " TRIP "3000}]" },
	{ "travel_planning/travel_planning_icl_examples.json", "[" TRIP "1}]" },
	{ "tom_tracking/tom_tracking_2k.json", "" }, { "path_traversal/path_traversal_2k.json", "" }, { "html_to_tsv/html_to_tsv_2k.json", "" },
	{ "countdown/countdown_2k.json", "" },
};
static const char *const folder[] = { "html_to_tsv", "html_to_tsv/webpage", "path_traversal", "tom_tracking", "countdown", "travel_planning" };
enum { N_FILE = sizeof file / sizeof *file, N_FOLDER = sizeof folder / sizeof *folder };

static int put_data(void **state)
{
	char path[200];

	(void)state;
	strcpy(dir, "/tmp/rk_longproc_XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	for (int i = 0; i < N_FOLDER; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, folder[i]);
		if (mkdir(path, 0700))
			return -1;
	}
	for (int i = 0; i < N_FILE; i++)
		put_file(file[i].name, file[i].text);
	return 0;
}

static int remove_data(void **state)
{
	char path[200];

	(void)state;
	for (int i = 0; i < N_FILE; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, file[i].name);
		unlink(path);
	}
	for (int i = N_FOLDER - 1; i >= 0; i--) {
		snprintf(path, sizeof path, "%s/%s", dir, folder[i]);
		rmdir(path);
	}
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_html_to_tsv), cmocka_unit_test(test_path_traversal), cmocka_unit_test(test_tom_tracking),
		cmocka_unit_test(test_countdown), cmocka_unit_test(test_travel_planning), cmocka_unit_test(test_kept), cmocka_unit_test(test_bad_input),
	};
	return cmocka_run_group_tests(tests, put_data, remove_data);
}
