/* fuzz_eval.c: hostile corpora, data directories, prediction files and replies of the evaluation tasks.
 *
 * The first byte chooses what the rest is: one of the files that RULER's and LongProc's tasks read, or a reply to be scored.
 * Whatever is accepted must make an example that fits, and every score lies in [0, 1].
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "eval/predictions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct { const rk_task *suite; const char *task, *file; } reads[] = {
	{ rk_tasks_ruler, "niah_multikey_1", "essays.json" }, { rk_tasks_ruler, "qa_1", "squad.json" }, { rk_tasks_ruler, "qa_2", "hotpotqa.json" },
	{ rk_tasks_longproc, "html_to_tsv_0.5k", "html_to_tsv/html_to_tsv_0.5k.json" },
	{ rk_tasks_longproc, "path_traversal_2k", "path_traversal/path_traversal_2k.json" },
	{ rk_tasks_longproc, "tom_tracking_8k", "tom_tracking/tom_tracking_8k.json" },
	{ rk_tasks_longproc, "countdown_2k", "countdown/countdown_2k.json" },
	{ rk_tasks_longproc, "travel_planning_2k", "travel_planning/travel_planning_all.json" },
	{ rk_tasks_longproc, "tom_tracking_8k", "tom_tracking/prompts.yaml" },
};
static const struct { const rk_task *suite; const char *task, *answer; } scores[] = {
	{ rk_tasks_ruler, "cwe", "apple" }, { rk_tasks_ruler, "qa_1", "Apple" },
	{ rk_tasks_longproc, "html_to_tsv_0.5k", "a\tb\n1\t2\n3\t\"4\"\n" }, { rk_tasks_longproc, "path_traversal_2k", "From A.\nFrom B." },
	{ rk_tasks_longproc, "tom_tracking_8k", "- Step 1: the x\n- Step 2: a y\n" },
	{ rk_tasks_longproc, "countdown_2k", "# Search Procedure\nInitial\n |- Pick two numbers\n  |- Try 1 + 1 = 2. drop this branch." },
	{ rk_tasks_longproc, "travel_planning_2k", "<Solving Procedure>\nRead\n |- Try\n</Solving Procedure>\n<Plan>\n</Plan>" },
};
enum { N_READ = sizeof reads / sizeof *reads, N_SCORE = sizeof scores / sizeof *scores };

static char dir[] = "/tmp/rk_fuzz_eval_XXXXXX", essays[64];

static int count(void *ctx, const rk_example *x, rk_err *e)
{
	(void)ctx, (void)e;
	return (int)((strlen(x->context) + strlen(x->question) + strlen(x->prefix)) / 4);
}

static const rk_task *find(const rk_task *t, const char *name)
{
	while (strcmp(t->name, name))
		t++;
	return t;
}

static void put(const char *name, const void *data, size_t size)
{
	char path[160];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f))
		abort();
}

static void prepare(void)
{
	static const char *const folder[] = { "html_to_tsv", "path_traversal", "tom_tracking", "countdown", "travel_planning" };
	static const char *const prompt[] = {
		"USER_PROMPT: \"{html_str}\"\n", "USER_PROMPT: \"{city_context}\"\n", "USER_PROMPT: \"{story}\"\n", "USER_PROMPT: \"{demonstration}\"\n",
		"USER_PROMPT: \"{demonstration}\"\n",
	};
	char path[160];

	if (!mkdtemp(dir))
		abort();
	for (int i = 0; i < 5; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, folder[i]);
		mkdir(path, 0700);
		snprintf(path, sizeof path, "%s/prompts.yaml", folder[i]);
		put(path, prompt[i], strlen(prompt[i]));
	}
	put("travel_planning/travel_planning_icl_examples.json", "[]", 2);
	put("tom_tracking/tom_tracking_8k.json", "[{\"story\": \"a\", \"question\": \"b\", \"story_components\": \"\", \"solution\": \"- c\"}]", 75);
	snprintf(essays, sizeof essays, "%s/essays.json", dir);
}

static void read_file(int i, const uint8_t *data, size_t size)
{
	const rk_task *t = find(reads[i].suite, reads[i].task);
	const rk_task_env env = { .seed = size, .length = t->suite[0] == 'r' ? 2048 : 0, .count = count, .data_dir = dir, .haystack = essays };
	rk_example x;
	rk_err e;

	put(reads[i].file, data, size);
	for (int index = 0; index < 2; index++) {
		if (t->make(t, &env, index, &x, &e))
			continue;
		if (env.length && count(NULL, &x, NULL) + x.max_new > env.length)
			abort();
		rk_example_free(&x);
	}
	if (strstr(reads[i].file, "prompts"))
		put(reads[i].file, "USER_PROMPT: \"{story}\"\n", 23);
}

static void score_reply(int i, const uint8_t *data, size_t size)
{
	char *answer[] = { strdup(scores[i].answer) }, *reply = strndup((const char *)data, size);
	rk_example x = { .answer = answer, .n_answer = 1,
	                 .data = json_pack("{s:[i,i,i,i], s:i, s:s, s:s}", "nums", 1, 2, 3, 4, "target", 24, "cities", "Oslo**Rome", "days", "3**4") };
	json_t *detail = NULL;
	double v = find(scores[i].suite, scores[i].task)->score(&x, reply, &detail);

	if (!(v >= 0 && v <= 1) || !detail)
		abort();
	json_decref(detail);
	json_decref(x.data);
	free(answer[0]);
	free(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool ready;
	char path[160];
	rk_predictions p;
	rk_err e;

	if (!ready)
		prepare();
	ready = true;
	if (size == 0)
		return 0;
	int i = data[0] % (N_READ + N_SCORE + 1);
	if (i < N_READ) {
		read_file(i, data + 1, size - 1);
	} else if (i < N_READ + N_SCORE) {
		score_reply(i - N_READ, data + 1, size - 1);
	} else {
		put("predictions.jsonl", data + 1, size - 1);
		snprintf(path, sizeof path, "%s/predictions.jsonl", dir);
		if (rk_predictions_score(find(rk_tasks_ruler, "vt"), path, &p, &e) == 0 && p.n && !(p.score >= 0 && p.score <= 1))
			abort();
	}
	return 0;
}
