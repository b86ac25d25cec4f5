/* ruler.c: RULER's 13 tasks (Hsieh et al. 2024): the table, sizing and scores.
 *
 * Templates, parameters and scores are those of github.com/NVIDIA/RULER (Apache License 2.0), files scripts/synthetic.yaml,
 * scripts/data/synthetic/constants.py and scripts/eval/synthetic/constants.py: the wording of the prompts is quoted from there,
 * since results compare only under the same prompts.  Generators (ruler_*.c) are our own; docs/EVAL.md lists what differs.
 */
#include "eval/ruler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "eval/fold.h"

uint64_t rk_ruler_rng(const rk_ruler *r, int stream)
{
	return rk_rng_stream(r->seed, (uint64_t)stream);
}

void rk_ruler_shuffle(int *v, int n, uint64_t *rng)
{
	for (int i = n; i > 1; i--) {
		int j = (int)rk_rng_below(rng, (uint32_t)i), t = v[i - 1];
		v[i - 1] = v[j];
		v[j] = t;
	}
}

static int build(void *ctx, int n, rk_example *x, rk_err *e)
{
	rk_ruler *r = ctx;
	const rk_ruler_kind *k = r->spec->kind;
	const char *what = r->task->name;
	char *hay = NULL;
	size_t size;
	FILE *f = open_memstream(&hay, &size);

	if (!f)
		return rk_fail(e, RK_ENOMEM, "no memory for a haystack");
	x->max_new = k->max_new;
	int rc = k->build(r, n, f, x, e);
	if (fclose(f) && rc == 0)
		rc = rk_fail(e, RK_ENOMEM, "no memory for a haystack");
	r->field[0] = (rk_field){ "context", hay };
	if (rc == 0 && (rk_given_fill(&x->context, what, k->context, r->field, e) ||
	                rk_given_fill(&x->question, what, k->question, r->field, e) ||
	                rk_given_fill(&x->prefix, what, k->prefix, r->field, e)))
		rc = -1;
	free(hay);
	return rc;
}

static int make(const rk_task *t, const rk_task_env *env, int index, rk_example *x, rk_err *e)
{
	const rk_ruler_spec *spec = t->spec;
	rk_ruler r = { .task = t, .spec = spec, .env = env, .seed = rk_rng_stream(env->seed, (uint64_t)index), .index = index,
	               .length = env->length };
	*x = (rk_example){ 0 };
	int rc = spec->kind->open(&r, e);
	if (rc == 0 && (rc = rk_task_fit(env, spec->kind->least, build, &r, x, e)) == 0)
		x->max_new = spec->kind->max_new;	/* the official limit, whatever room is left */
	if (rc)
		rk_example_free(x);
	(spec->kind->close ? spec->kind->close : free)(r.state);
	return rc;
}

/* How many answers are part of the reply, both in lower case; control characters become newlines, as evaluate.py has it. */
static int found(const rk_example *x, const char *reply)
{
	char *low = rk_fold_lower(reply);
	int n = 0;

	if (!low)
		return -1;
	for (char *s = low; *s; s++)
		if ((unsigned char)*s < 0x20)
			*s = '\n';
	for (int i = 0; i < x->n_answer && n >= 0; i++) {
		char *want = rk_fold_lower(x->answer[i]);
		n = !want ? -1 : n + (strstr(low, want) != NULL);
		free(want);
	}
	free(low);
	return n;
}

static double score_all(const rk_example *x, const char *reply, json_t **detail)
{
	int n = found(x, reply);

	*detail = json_pack("{s:i, s:i}", "found", n, "of", x->n_answer);
	return n < 0 ? (double)NAN : x->n_answer ? (double)n / x->n_answer : 0;
}

static double score_part(const rk_example *x, const char *reply, json_t **detail)
{
	double all = score_all(x, reply, detail);

	return all > 0 ? 1 : all;
}

#define NIAH_ONE(hay_, key_, value_, n_key_) &(const rk_ruler_spec){ &rk_ruler_niah_one, &(const rk_niah){ .hay = hay_, .key = key_, \
	.value = value_, .n_key = n_key_, .n_value = 1, .n_query = 1 } }, .essays = hay_ == RK_HAY_ESSAY
#define NIAH_SOME(n_key_, n_value_, n_query_) &(const rk_ruler_spec){ &rk_ruler_niah_some, &(const rk_niah){ .hay = RK_HAY_ESSAY, \
	.key = RK_MADE_WORDS, .value = RK_MADE_NUMBERS, .n_key = n_key_, .n_value = n_value_, .n_query = n_query_ } }, .essays = true
#define TASK(name_, doc_, score_, ...) { .suite = "ruler", .name = name_, .doc = doc_, .n_example = 20, .make = make, .score = score_, \
	.spec = __VA_ARGS__ }

/* n_key is at least n_query (niah.py). */
const rk_task rk_tasks_ruler[] = {
	TASK("niah_single_1", "a number hidden in repeated filler", score_all,
	     NIAH_ONE(RK_HAY_NOISE, RK_MADE_WORDS, RK_MADE_NUMBERS, 1)),
	TASK("niah_single_2", "a number hidden in essays (--haystack)", score_all,
	     NIAH_ONE(RK_HAY_ESSAY, RK_MADE_WORDS, RK_MADE_NUMBERS, 1)),
	TASK("niah_single_3", "a UUID hidden in essays (--haystack)", score_all,
	     NIAH_ONE(RK_HAY_ESSAY, RK_MADE_WORDS, RK_MADE_UUIDS, 1)),
	TASK("niah_multikey_1", "a number among three others in essays (--haystack)", score_all,
	     NIAH_ONE(RK_HAY_ESSAY, RK_MADE_WORDS, RK_MADE_NUMBERS, 4)),
	TASK("niah_multikey_2", "a number among nothing but other numbers", score_all,
	     NIAH_ONE(RK_HAY_NEEDLE, RK_MADE_WORDS, RK_MADE_NUMBERS, 1)),
	TASK("niah_multikey_3", "a UUID under a UUID among nothing but others", score_all,
	     NIAH_ONE(RK_HAY_NEEDLE, RK_MADE_UUIDS, RK_MADE_UUIDS, 1)),
	TASK("niah_multivalue", "four numbers of one key in essays (--haystack)", score_all, NIAH_SOME(1, 4, 1)),
	TASK("niah_multiquery", "the numbers of four keys in essays (--haystack)", score_all, NIAH_SOME(4, 1, 4)),
	TASK("vt", "variables that got their value from one another, in filler", score_all, &(const rk_ruler_spec){ .kind = &rk_ruler_vt }),
	TASK("cwe", "the ten most common words of a list", score_all, &(const rk_ruler_spec){ .kind = &rk_ruler_cwe }),
	TASK("fwe", "the three most frequent made-up words", score_all, &(const rk_ruler_spec){ .kind = &rk_ruler_fwe }),
	TASK("qa_1", "questions of SQuAD over many paragraphs (--data)", score_part, &(const rk_ruler_spec){ &rk_ruler_qa, &(const rk_qa){ false } },
	     .file = { "squad.json" }, .url = "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v2.0.json"),
	TASK("qa_2", "questions of HotpotQA over many paragraphs (--data)", score_part, &(const rk_ruler_spec){ &rk_ruler_qa, &(const rk_qa){ true } },
	     .file = { "hotpotqa.json" }, .url = "http://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json"),
	{ 0 }
};
