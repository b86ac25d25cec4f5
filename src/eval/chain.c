/* chain.c: chain-of-key (Xu et al. 2025, section 4): a list of keys of two words, in which each key has exactly one successor,
 * the key whose first word is its last word; the model is to go on from a given key for ten keys.  It must look at another
 * place of the context with every key that it writes, which none of the policies can foresee.
 *
 * The words are the corners of one cycle and the keys its edges, so that a chain never meets itself; the lines are shuffled.
 * Score: keys of the reply, from the first on, that are valid, over ten.
 */
#include "eval/task.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "eval/nouns.h"

#define CHAIN 10
#define MAX_KEY (RK_N_NOUN * (RK_N_NOUN - 1))	/* longer lists than any context holds */
#define WORD 20

struct chain {
	uint64_t rng;
	int n;			/* keys, and words */
	char (*word)[WORD];	/* [n] */
	int *line;		/* [n] key of each line */
};

/* Draws n different words: the plain ones in random order, and when they run out compounds of two. */
static void draw_words(struct chain *c, unsigned char *taken)
{
	int plain[RK_N_NOUN], n_plain = c->n < RK_N_NOUN ? c->n : RK_N_NOUN;

	for (int i = 0; i < RK_N_NOUN; i++)
		plain[i] = i;
	rk_rng_deal(&c->rng, plain, n_plain, RK_N_NOUN);
	for (int i = 0; i < n_plain; i++)
		snprintf(c->word[i], WORD, "%s", rk_noun[plain[i]]);
	for (int i = RK_N_NOUN; i < c->n;) {
		uint32_t a = rk_rng_below(&c->rng, RK_N_NOUN), b = rk_rng_below(&c->rng, RK_N_NOUN);
		if (a == b || taken[a * RK_N_NOUN + b])
			continue;
		taken[a * RK_N_NOUN + b] = 1;
		snprintf(c->word[i++], WORD, "%s%s", rk_noun[a], rk_noun[b]);
	}
}

static int draw(struct chain *c, rk_err *e)
{
	unsigned char *taken = calloc((size_t)RK_N_NOUN * RK_N_NOUN, 1);

	c->word = malloc((size_t)c->n * sizeof *c->word);
	c->line = malloc((size_t)c->n * sizeof *c->line);
	if (!taken || !c->word || !c->line) {
		free(taken);
		return rk_fail(e, RK_ENOMEM, "chain-of-key: no memory for %d keys", c->n);
	}
	draw_words(c, taken);
	for (int i = 0; i < c->n; i++) {	/* shuffled as it grows */
		int j = (int)rk_rng_below(&c->rng, (uint32_t)i + 1);
		c->line[i] = j < i ? c->line[j] : i;
		c->line[j] = i;
	}
	free(taken);
	return 0;
}

/* Key i is word i and word i + 1. */
static int print_key(const struct chain *c, FILE *f, int i)
{
	return fprintf(f, "%s-%s", c->word[i % c->n], c->word[(i + 1) % c->n]);
}

static char *key_text(const struct chain *c, int i)
{
	char *s = NULL;
	size_t size;
	FILE *f = open_memstream(&s, &size);

	if (f) {
		print_key(c, f, i);
		fclose(f);
	}
	return s;
}

static char *context_text(const struct chain *c)
{
	char *s = NULL;
	size_t size;
	FILE *f = open_memstream(&s, &size);

	if (!f)
		return NULL;
	fprintf(f, "Here is a list of keys. A key is two words joined by a hyphen.\n\n");
	for (int i = 0; i < c->n; i++) {
		fprintf(f, "Name of key: ");
		print_key(c, f, c->line[i]);
		fputc('\n', f);
	}
	fclose(f);
	return s;
}

static int fill(const struct chain *c, rk_example *x, rk_err *e)
{
	char *first = key_text(c, 0);

	x->context = context_text(c);
	x->answer = calloc(CHAIN, sizeof *x->answer);
	bool ok = first && x->context && x->answer;
	for (int i = 0; ok && i < CHAIN; i++)
		ok = (x->answer[x->n_answer++] = key_text(c, i + 1)) != NULL;
	ok = ok && asprintf(&x->question, "\nIn a chain of keys, the first word of each key is the last word of the key before it, and every "
	                    "key is in the list above. Write the chain of %d keys that follows the key %s. Write nothing but the keys, "
	                    "in order, separated by commas.", CHAIN, first) >= 0;
	ok = ok && asprintf(&x->prefix, "%s,", first) >= 0;
	x->data = json_pack("{s:s, s:i}", "first", first ? first : "", "keys", c->n);
	free(first);
	return ok && x->data ? 0 : rk_fail(e, RK_ENOMEM, "chain-of-key: no memory for %d keys", c->n);
}

struct build {
	const rk_task_env *env;
	uint64_t rng;
};

/* The reply has room for the chain as the model would write it, and half as much again. */
static int reply_room(const rk_task_env *env, rk_example *x, rk_err *e)
{
	char *bare = x->prefix, *full = NULL;
	size_t size;
	FILE *f = open_memstream(&full, &size);

	if (!f)
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	fputs(bare, f);
	for (int i = 0; i < x->n_answer; i++)
		fprintf(f, " %s,", x->answer[i]);
	if (fclose(f)) {
		free(full);
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	}
	int n = env->count(env->ctx, x, e);
	x->prefix = full;
	int m = n < 0 ? -1 : env->count(env->ctx, x, e);
	x->prefix = bare;
	free(full);
	return m < 0 ? -1 : (m - n) * 3 / 2;
}

static int build(void *ctx, int n, rk_example *x, rk_err *e)
{
	const struct build *b = ctx;
	struct chain c = { .rng = b->rng, .n = n };

	if (n > MAX_KEY)
		return rk_fail(e, RK_EUSAGE, "--length %d: chain-of-key has words for %d keys", b->env->length, MAX_KEY);
	int rc = draw(&c, e) || fill(&c, x, e) ? -1 : 0;
	free(c.word);
	free(c.line);
	if (rc)
		return -1;
	x->max_new = reply_room(b->env, x, e);
	return x->max_new < 0 ? -1 : 0;
}

static int make(const rk_task *t, const rk_task_env *env, int index, rk_example *x, rk_err *e)
{
	struct build b = { .env = env, .rng = rk_rng_stream(env->seed, (uint64_t)index) };

	(void)t;
	return rk_task_fit(env, CHAIN + 2, build, &b, x, e);
}

/* Each key has one successor, so the valid continuation is the list of answers. */
static double score(const rk_example *x, const char *reply, json_t **detail)
{
	int valid = 0;

	for (const char *s = reply; *s && valid < x->n_answer;) {
		size_t n = strcspn(s, ",\n"), a = 0, z = n;
		while (a < z && (isspace((unsigned char)s[a]) || s[a] == '.'))
			a++;
		while (z > a && (isspace((unsigned char)s[z - 1]) || s[z - 1] == '.'))
			z--;
		const char *want = x->answer[valid];
		if (z > a && (strlen(want) != z - a || strncmp(want, s + a, z - a)))
			break;
		valid += z > a;		/* nothing between two separators is no key */
		s += n + (s[n] != '\0');
	}
	*detail = json_pack("{s:i}", "valid", valid);
	return (double)valid / x->n_answer;
}

const rk_task rk_tasks_chain_of_key[] = {
	{ .suite = "chain-of-key", .name = "chain-of-key", .doc = "go on with a chain of 10 keys scattered over a list (Xu et al. 2025)",
	  .n_example = 20, .make = make, .score = score },
	{ 0 }
};
