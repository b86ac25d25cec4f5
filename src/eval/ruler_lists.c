/* ruler_lists.c: RULER's variable tracking, common words and frequent words (scripts/data/synthetic/variable_tracking.py,
 * common_words_extraction.py, freq_words_extraction.py).
 *
 * The size is the number of filler sentences, of different words, and of words before rounding.  The first two begin with a
 * solved example, which stands in the user's message here under every chat template.
 */
#include "eval/ruler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "eval/words.h"

enum { RNG_DRAW, RNG_EXAMPLE, RNG_PLACE };

/* --- vt: VAR A = 12345, VAR B = VAR A, ... in filler --- */

enum { N_HOP = 4, N_VAR = N_HOP + 1, EXAMPLE_TOKENS = 500 };

#define VT_TEXT "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\n"
#define VT_QUESTION "Question: Find all variables that are assigned the value {query} in the text above."
#define VT_PREFIX " Answer: According to the chain(s) of variable assignment in the text above, {num_v} variables are assigned the value " \
	"{query}, they are: "

struct chain {
	char name[N_VAR][8], value[8];
};
struct vt {
	struct chain chain;
	char *example;
};

static void draw_chain(struct chain *c, int n_letter, uint64_t *rng)
{
	for (int i = 0; i < N_VAR; i++) {
		bool again;
		do {
			for (int k = 0; k < n_letter; k++)
				c->name[i][k] = (char)('A' + rk_rng_below(rng, 26));
			again = false;
			for (int j = 0; j < i; j++)
				again |= strcmp(c->name[i], c->name[j]) == 0;
		} while (again);
	}
	snprintf(c->value, sizeof c->value, "%u", 10000 + rk_rng_below(rng, 89999));
}

/* n sentences of filler; each assignment stands before one of N_VAR different ones, in the chain's order. */
static void write_chain(const struct chain *c, int n, uint64_t rng, FILE *f)
{
	int left = N_VAR;

	for (int i = 0; i < n; i++) {
		if (i)
			fputc('\n', f);
		if (left && (int)rk_rng_below(&rng, (uint32_t)(n - i)) < left) {
			int k = N_VAR - left--;
			if (k == 0)
				fprintf(f, "VAR %s = %s\n", c->name[0], c->value);
			else
				fprintf(f, "VAR %s = VAR %s \n", c->name[k], c->name[k - 1]);
		}
		fputs(RK_RULER_NOISE, f);
	}
}

static int fill_example(const struct chain *c, int n, uint64_t rng, char **out, rk_err *e)
{
	char *hay;
	size_t size;
	FILE *f = open_memstream(&hay, &size);

	if (!f)
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	write_chain(c, n, rng, f);
	if (fclose(f))
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	const char *const *v = (const char *const[]){ c->name[0], c->name[1], c->name[2], c->name[3], c->name[4] };
	char names[N_VAR * 8];
	snprintf(names, sizeof names, "%s %s %s %s %s", v[0], v[1], v[2], v[3], v[4]);
	const rk_field field[] = { { "context", hay }, { "query", c->value }, { "num_v", "5" }, { "names", names }, { 0 } };
	int rc = rk_given_fill(out, "vt", VT_TEXT VT_QUESTION VT_PREFIX " {names}\n", field, e);
	free(hay);
	return rc;
}

/* -1 when counting failed. */
static int n_token(const rk_ruler *r, char *text, rk_err *e)
{
	char none[] = "";
	const rk_example x = { .context = text, .question = none, .prefix = none }, empty = { .context = none, .question = none, .prefix = none };
	int frame = r->env->count(r->env->ctx, &empty, e), all = frame < 0 ? -1 : r->env->count(r->env->ctx, &x, e);

	return all < frame || frame < 0 ? -1 : all - frame;
}

/* The solved example: names of three letters, and as much filler as 500 tokens hold, but at least five sentences. */
static int vt_open(rk_ruler *r, rk_err *e)
{
	struct vt *s = r->state = calloc(1, sizeof *s);
	uint64_t rng = rk_ruler_rng(r, RNG_DRAW), of_example = rk_ruler_rng(r, RNG_EXAMPLE);
	struct chain c = { 0 };

	if (!s)
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	draw_chain(&s->chain, 5, &rng);
	draw_chain(&c, 3, &of_example);
	for (int n = N_VAR; ; n++) {
		char *text;
		if (fill_example(&c, n, of_example, &text, e))
			return -1;
		int size = n > N_VAR ? n_token(r, text, e) : 0;
		if (size < 0 || size > EXAMPLE_TOKENS) {
			free(text);
			if (size < 0)
				return -1;
			break;
		}
		free(s->example);
		s->example = text;
	}
	r->field[1] = (rk_field){ "query", s->chain.value };
	r->field[2] = (rk_field){ "num_v", "5" };
	r->field[3] = (rk_field){ "example", s->example };
	return 0;
}

static int vt_build(rk_ruler *r, int n, FILE *f, rk_example *x, rk_err *e)
{
	const struct vt *s = r->state;

	write_chain(&s->chain, n, rk_ruler_rng(r, RNG_PLACE), f);
	for (int i = 0; i < N_VAR; i++)
		if (rk_given_answer(x, s->chain.name[i], e))
			return -1;
	x->data = json_pack("{s:i}", "size", n);
	return x->data ? 0 : rk_fail(e, RK_ENOMEM, "no memory for an example");
}

static void vt_close(void *state)
{
	struct vt *s = state;

	if (s)
		free(s->example);
	free(s);
}

const rk_ruler_kind rk_ruler_vt = {
	.context = "{example}\n" VT_TEXT, .question = VT_QUESTION, .prefix = VT_PREFIX,
	.max_new = 30, .least = N_VAR, .open = vt_open, .build = vt_build, .close = vt_close,
};

/* --- cwe: a numbered list in which ten words come more often than the others --- */

enum { N_COMMON = 10, SHORT_LENGTH = 4096 };	/* below that length lists are easier (common_words_extraction.py) */

#define CWE_TEXT "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that appear " \
	"most often.\n{context}\n"
#define CWE_QUESTION "Question: What are the 10 most common words in the above list?"
#define CWE_PREFIX " Answer: The top 10 words that appear most often in the list are:"

/* Different numbers below `of` in random order: the first n of them in a new array. */
static int *sample(int n, int of, uint64_t *rng)
{
	int *v = malloc((size_t)of * sizeof *v);

	for (int i = 0; v && i < of; i++)
		v[i] = i;
	if (v)
		rk_rng_deal(rng, v, n, of);
	return v;
}

static const char *list_word(int n, int i, char buf[RK_WORD_MAX])
{
	return n <= RK_N_WORD ? rk_word(i) : rk_word_compound(i, buf);
}

/* n different words, the first ten `often` times, the others `seldom`; common[] receives those ten. */
static int write_list(FILE *f, int n, int often, int seldom, uint64_t rng, char common[N_COMMON][RK_WORD_MAX], rk_err *e)
{
	if (n > RK_N_COMPOUND)
		return rk_fail(e, RK_EUSAGE, "no list of more than %d different words", RK_N_COMPOUND);
	int n_line = N_COMMON * often + (n - N_COMMON) * seldom, at = 0;
	int *word = sample(n, n <= RK_N_WORD ? RK_N_WORD : RK_N_COMPOUND, &rng), *line = malloc((size_t)n_line * sizeof *line);
	char buf[RK_WORD_MAX];

	if (word && line) {
		for (int i = 0; i < n; i++)
			for (int k = 0; k < (i < N_COMMON ? often : seldom); k++)
				line[at++] = word[i];
		rk_ruler_shuffle(line, n_line, &rng);
		for (int i = 0; i < n_line; i++)
			fprintf(f, "%s%d. %s", i ? " " : "", i + 1, list_word(n, line[i], buf));
		for (int i = 0; i < N_COMMON; i++)
			snprintf(common[i], RK_WORD_MAX, "%s", list_word(n, word[i], buf));
	}
	bool ok = word && line;
	free(word);
	free(line);
	return ok ? 0 : rk_fail(e, RK_ENOMEM, "no memory for a list of %d words", n);
}

static int cwe_open(rk_ruler *r, rk_err *e)
{
	char common[N_COMMON][RK_WORD_MAX], *hay, *text;
	size_t size;
	bool brief = r->length < SHORT_LENGTH;
	FILE *f = open_memstream(&hay, &size);

	if (!f)
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	int rc = write_list(f, brief ? 20 : 40, brief ? 3 : 10, brief ? 1 : 3, rk_ruler_rng(r, RNG_EXAMPLE), common, e);
	fclose(f);
	const rk_field field[] = { { "context", hay }, { 0 } };
	if (rc == 0)
		rc = rk_given_fill(&text, "cwe", CWE_TEXT CWE_QUESTION CWE_PREFIX, field, e);
	free(hay);
	if (rc)
		return rc;
	f = open_memstream((char **)&r->state, &size);
	if (f) {
		fputs(text, f);
		for (int i = 0; i < N_COMMON; i++)
			fprintf(f, " %d. %s", i + 1, common[i]);
	}
	free(text);
	if (!f || fclose(f))
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	r->field[1] = (rk_field){ "example", r->state };
	return 0;
}

static int cwe_build(rk_ruler *r, int n, FILE *f, rk_example *x, rk_err *e)
{
	char common[N_COMMON][RK_WORD_MAX];
	bool brief = r->length < SHORT_LENGTH;

	if (write_list(f, n, brief ? 6 : 30, brief ? 1 : 3, rk_ruler_rng(r, RNG_DRAW), common, e))
		return -1;
	for (int i = 0; i < N_COMMON; i++)
		if (rk_given_answer(x, common[i], e))
			return -1;
	x->data = json_pack("{s:i}", "size", n);
	return x->data ? 0 : rk_fail(e, RK_ENOMEM, "no memory for an example");
}

const rk_ruler_kind rk_ruler_cwe = {
	.context = "{example}\n" CWE_TEXT, .question = CWE_QUESTION, .prefix = CWE_PREFIX,
	.max_new = 120, .least = N_COMMON, .open = cwe_open, .build = cwe_build,
};

/* --- fwe: made-up words, the k-th of them n k^-2 / zeta(2) times, the first of all being dots --- */

enum { N_LETTER = 6, N_TOP = 3, FWE_NEW = 50 };

struct fwe {
	int n_vocab;
	char (*word)[N_LETTER + 1];
};

static int by_word(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int fwe_open(rk_ruler *r, rk_err *e)
{
	struct fwe *s = r->state = calloc(1, sizeof *s);
	uint64_t rng = rk_ruler_rng(r, RNG_DRAW);
	int n = (r->length - FWE_NEW) / 50;

	if (n < N_TOP + 1)
		return rk_fail(e, RK_EUSAGE, "--length %d: one made-up word for every 50 tokens, and it needs four", r->length);
	if (!s || !(s->word = calloc((size_t)n, sizeof *s->word)))
		return rk_fail(e, RK_ENOMEM, "no memory for %d words", n);
	while (s->n_vocab < n) {	/* fill up, then take doubles out */
		for (int i = s->n_vocab; i < n; i++)
			for (int k = 0; k < N_LETTER; k++)
				s->word[i][k] = (char)('a' + rk_rng_below(&rng, 26));
		qsort(s->word, (size_t)n, sizeof *s->word, by_word);
		s->n_vocab = 1;
		for (int i = 1; i < n; i++)
			if (strcmp(s->word[i], s->word[s->n_vocab - 1]))
				memmove(s->word[s->n_vocab++], s->word[i], sizeof *s->word);
	}
	for (int i = n; i > 1; i--) {
		int j = (int)rk_rng_below(&rng, (uint32_t)i);
		char t[N_LETTER + 1];
		memcpy(t, s->word[i - 1], sizeof t);
		memmove(s->word[i - 1], s->word[j], sizeof t);
		memcpy(s->word[j], t, sizeof t);
	}
	strcpy(s->word[0], "...");
	return 0;
}

static int fwe_build(rk_ruler *r, int n, FILE *f, rk_example *x, rk_err *e)
{
	const struct fwe *s = r->state;
	uint64_t rng = rk_ruler_rng(r, RNG_PLACE);
	double zeta2 = M_PI * M_PI / 6;
	int *coded = malloc((size_t)n * sizeof *coded), at = 0;

	if (!coded)
		return rk_fail(e, RK_ENOMEM, "no memory for %d words", n);
	for (int k = 1; k <= s->n_vocab; k++)
		for (int c = (int)(n / ((double)k * k) / zeta2); c > 0; c--)
			coded[at++] = k - 1;
	rk_ruler_shuffle(coded, at, &rng);
	for (int i = 0; i < at; i++)
		fprintf(f, "%s%s", i ? " " : "", s->word[coded[i]]);
	free(coded);
	for (int i = 1; i <= N_TOP; i++)
		if (rk_given_answer(x, s->word[i], e))
			return -1;
	x->data = json_pack("{s:i}", "size", n);
	return x->data ? 0 : rk_fail(e, RK_ENOMEM, "no memory for an example");
}

static void fwe_close(void *state)
{
	struct fwe *s = state;

	if (s)
		free(s->word);
	free(s);
}

const rk_ruler_kind rk_ruler_fwe = {
	.context = "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared coded "
	           "words. {context}\n",
	.question = "Question: Do not provide any explanation. Please ignore the dots '....'. What are the three most frequently appeared "
	            "words in the above coded text?",
	.prefix = " Answer: According to the coded text above, the three most frequently appeared words are:",
	.max_new = FWE_NEW, .least = 60, .open = fwe_open, .build = fwe_build, .close = fwe_close,	/* 60: counts of 4, 2 and 1 differ */
};
