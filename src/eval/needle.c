/* needle.c: a fact hidden at a given depth of a long text, asked for at its end: the depth x length heat-map.
 *
 * passkey: a five-digit number in filler that repeats itself (after Mohtashami and Jaggi 2023).  sentence: who keeps what, in
 * made-up prose where many others keep other things somewhere else.  Example `index` lies at depth (index mod 11) x 10 %.
 * Score: 1 when the reply holds the number or the word.
 */
#include "eval/task.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "eval/nouns.h"

#define N_DEPTH 11

struct kind {
	const char *intro;
	void (*filler)(FILE *f, uint64_t *rng);
	int max_new;
};

static void repeated(FILE *f, uint64_t *rng)
{
	(void)rng;
	fputs("The grass is green. The sky is blue. The sun is yellow. We go there and come back. ", f);
}

static const char *noun(uint64_t *rng)
{
	return rk_noun[rk_rng_below(rng, RK_N_NOUN)];
}

static void prose(FILE *f, uint64_t *rng)
{
	const char *a = noun(rng), *b = noun(rng), *c = noun(rng);

	switch (rk_rng_below(rng, 5)) {
	case 0: fprintf(f, "Behind the %s somebody had left a %s and a %s. ", a, b, c); break;
	case 1: fprintf(f, "Nobody in the village remembered who had painted the %s on the %s. ", a, b); break;
	case 2: fprintf(f, "When the rain stopped, the %s by the %s was covered in mud. ", a, b); break;
	case 3: fprintf(f, "The keeper of the %s asked for a %s, and was given a %s. ", a, b, c); break;
	default: fprintf(f, "For years the %s had stood next to the %s without being noticed. ", a, b); break;
	}
}

static const struct kind passkey = { "A pass key is hidden in the following text. Remember it, you will be asked for it.\n\n", repeated, 16 };
static const struct kind sentence = { "Read the following text carefully, you will be asked about it.\n\n", prose, 32 };

struct build {
	const struct kind *kind;
	uint64_t rng;
	double depth;
};

/* The reply's first token follows from the prefill, in which every policy attends everything: a prefix must not bring the answer
 * so near that this token is all of it. */
static int fill(const struct build *b, uint64_t *rng, char **needle, rk_example *x)
{
	int key = 10000 + (int)rk_rng_below(rng, 90000);
	const char *word = noun(rng);

	x->answer = calloc(1, sizeof *x->answer);
	if (!x->answer)
		return -1;
	x->n_answer = 1;
	if (b->kind == &passkey)
		return asprintf(needle, "The pass key is %d. Remember it: %d is the pass key. ", key, key) < 0 ||
		       asprintf(&x->answer[0], "%d", key) < 0 || !(x->question = strdup("\n\nWhat is the pass key?")) ||
		       !(x->prefix = strdup("The pass key is"));
	return asprintf(needle, "The clockmaker of Arden keeps a %s under the floor. ", word) < 0 || !(x->answer[0] = strdup(word)) ||
	       !(x->question = strdup("\n\nWhat does the clockmaker of Arden keep under the floor? Answer in a sentence.")) ||
	       !(x->prefix = strdup(""));
}

/* n sentences of filler, the needle after the share `depth` of them. */
static int build(void *ctx, int n, rk_example *x, rk_err *e)
{
	const struct build *b = ctx;
	uint64_t rng = b->rng;
	char *needle = NULL;
	size_t size;
	int at = (int)(b->depth * n + 0.5);
	bool ok = fill(b, &rng, &needle, x) == 0;
	FILE *f = open_memstream(&x->context, &size);

	if (f) {
		fputs(b->kind->intro, f);
		for (int i = 0; ok && i <= n; i++) {
			if (i == at)
				fputs(needle, f);
			if (i < n)
				b->kind->filler(f, &rng);
		}
		fclose(f);
	}
	free(needle);
	x->max_new = b->kind->max_new;
	x->data = json_pack("{s:f}", "depth", b->depth);
	return ok && x->context && x->data ? 0 : rk_fail(e, RK_ENOMEM, "needle: no memory for an example");
}

static int make(const rk_task *t, const rk_task_env *env, int index, rk_example *x, rk_err *e)
{
	struct build b = { .kind = t->spec, .rng = rk_rng_stream(env->seed, (uint64_t)index), .depth = index % N_DEPTH / 10.0 };

	return rk_task_fit(env, 1, build, &b, x, e);
}

/* The answer as a word of its own, or its plural: not "badger" for "badge", nor "123456" for "12345". */
static double score(const rk_example *x, const char *reply, json_t **detail)
{
	(void)detail;
	for (const char *at = reply; (at = strcasestr(at, x->answer[0])); at++) {
		const char *end = at + strlen(x->answer[0]);
		end += *end == 's' && isalpha((unsigned char)end[-1]);
		if ((at == reply || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)*end))
			return 1;
	}
	return 0;
}

const rk_task rk_tasks_needle[] = {
	{ .suite = "needle", .name = "passkey", .doc = "a number hidden in filler that repeats itself, at depths of 0 to 100 %",
	  .n_example = N_DEPTH, .make = make, .score = score, .spec = &passkey },
	{ .suite = "needle", .name = "sentence", .doc = "a fact hidden in made-up prose, at depths of 0 to 100 %",
	  .n_example = N_DEPTH, .make = make, .score = score, .spec = &sentence },
	{ 0 }
};
