/* ruler_niah.c: RULER's needles in a haystack (scripts/data/synthetic/niah.py): filler, essays, or other needles.
 *
 * The size is the number of filler sentences, of words of the essays, or of other needles.  In filler and among needles the
 * needle may stand anywhere; in essays needles stand between sentences, at distinct ones of 40 depths from 0 to 100 %.
 */
#include "eval/ruler.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "eval/words.h"

enum { MAX_NEEDLE = 4, N_DEPTH = 40, MADE_MAX = 64 };
enum { RNG_NEEDLE, RNG_PLACE, RNG_OTHERS };

struct niah {
	const rk_niah *p;
	int n_needle;
	char key[MAX_NEEDLE][MADE_MAX], value[MAX_NEEDLE][MADE_MAX];	/* of needle i, before they are shuffled */
	int order[MAX_NEEDLE];		/* needles as they stand in the text */
	int asked[MAX_NEEDLE];		/* keys, as they are asked for */
	double depth[MAX_NEEDLE];	/* 0 to 1, ascending */
	char query[MAX_NEEDLE * MADE_MAX];
	char *essay;			/* its words, each ended by a NUL */
	char **word;
	int n_word;
};

static const char *const made_name[] = { "words", "numbers", "uuids" };

static void draw(enum rk_made kind, uint64_t *rng, char out[MADE_MAX])
{
	if (kind == RK_MADE_NUMBERS) {
		snprintf(out, MADE_MAX, "%u", 1000000 + rk_rng_below(rng, 9000000));
	} else if (kind == RK_MADE_WORDS) {
		const char *adj = rk_adj[rk_rng_below(rng, RK_N_ADJ)];
		snprintf(out, MADE_MAX, "%s-%s", adj, rk_noun[rk_rng_below(rng, RK_N_NOUN)]);
	} else {	/* RFC 4122: version 4, variant 1 */
		uint64_t a = rk_rng_next(rng), b = rk_rng_next(rng);
		a = (a & ~0xf000ull) | 0x4000;
		b = (b & ~(3ull << 62)) | 2ull << 62;
		snprintf(out, MADE_MAX, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
		         (unsigned)(a & 0xffff), (unsigned)(b >> 48), (unsigned long long)(b & 0xffffffffffff));
	}
}

static bool taken(char (*made)[MADE_MAX], int n, const char *s)
{
	for (int i = 0; i < n; i++)
		if (strcmp(made[i], s) == 0)
			return true;
	return false;
}

static void draw_needles(struct niah *s, uint64_t rng)
{
	const rk_niah *p = s->p;

	for (int i = 0; i < p->n_key; i++) {
		char key[MADE_MAX];
		do
			draw(p->key, &rng, key);
		while (taken(s->key, s->n_needle, key));
		for (int v = 0; v < p->n_value; v++, s->n_needle++) {
			strcpy(s->key[s->n_needle], key);
			do
				draw(p->value, &rng, s->value[s->n_needle]);
			while (taken(s->value, s->n_needle, s->value[s->n_needle]));
		}
		s->asked[i] = i;
	}
	for (int i = 0; i < s->n_needle; i++)
		s->order[i] = i;
	rk_ruler_shuffle(s->order, s->n_needle, &rng);
	rk_ruler_shuffle(s->asked, p->n_key, &rng);
	for (int i = 0; i < p->n_query; i++) {
		const char *between = i == 0 ? "" : i == p->n_query - 1 ? ", and " : ", ";
		strcat(strcat(s->query, between), s->key[s->asked[i] * p->n_value]);
	}
}

static void draw_depths(struct niah *s, uint64_t rng)
{
	int at[N_DEPTH];

	if (s->p->hay != RK_HAY_ESSAY) {
		s->depth[0] = rk_rng_unit(&rng);
		return;
	}
	for (int i = 0; i < N_DEPTH; i++)
		at[i] = i;
	rk_ruler_shuffle(at, N_DEPTH, &rng);
	for (int i = 0; i < s->n_needle; i++) {	/* into its place among those before */
		int k = i;
		for (; k > 0 && s->depth[k - 1] > at[i]; k--)
			s->depth[k] = s->depth[k - 1];
		s->depth[k] = at[i];
	}
	for (int i = 0; i < s->n_needle; i++)
		s->depth[i] = round(100 * s->depth[i] / (N_DEPTH - 1)) / 100;
}

static int take_essay(void *arg, const json_t *row, rk_err *e)
{
	const json_t *text = json_object_get(row, "text");

	if (!json_is_string(text))
		return rk_fail(e, RK_EFAIL, "no \"text\"");
	fputs(json_string_value(text), arg);
	return 0;
}

static int split_words(struct niah *s, const char *path, rk_err *e)
{
	char *at = NULL;
	size_t n = 0, room = 0;

	for (char *w = strtok_r(s->essay, " \t\r\n\v\f", &at); w; w = strtok_r(NULL, " \t\r\n\v\f", &at)) {
		if (n == room) {
			room = room ? 2 * room : 4096;
			char **more = realloc(s->word, room * sizeof *more);
			if (!more)
				return rk_fail(e, RK_ENOMEM, "%s: no memory for its words", path);
			s->word = more;
		}
		s->word[n++] = w;
	}
	s->n_word = (int)n;
	return n ? 0 : rk_fail(e, RK_EFAIL, "%s: holds no words", path);
}

static int load_essays(const rk_ruler *r, struct niah *s, rk_err *e)
{
	const char *path = r->env->haystack;
	size_t size;

	if (!path)
		return rk_fail(e, RK_EUSAGE, "hides its needles in essays: give --haystack FILE, RULER's PaulGrahamEssays.json (made by "
		               "download_paulgraham_essay.py in scripts/data/synthetic/json of github.com/NVIDIA/RULER) or lines of "
		               "{\"text\": ...}");
	FILE *f = open_memstream(&s->essay, &size);
	if (!f)
		return rk_fail(e, RK_ENOMEM, "%s: no memory for it", path);
	int rc = rk_given_jsonl(path, take_essay, f, e);
	if (fclose(f) && rc == 0)
		rc = rk_fail(e, RK_ENOMEM, "%s: no memory for it", path);
	return rc ? rc : split_words(s, path, e);
}

static void niah_close(void *state)
{
	struct niah *s = state;

	if (s) {
		free(s->essay);
		free(s->word);
	}
	free(s);
}

static int niah_open(rk_ruler *r, rk_err *e)
{
	struct niah *s = r->state = calloc(1, sizeof *s);

	if (!s)
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	s->p = r->spec->arg;
	draw_needles(s, rk_ruler_rng(r, RNG_NEEDLE));
	draw_depths(s, rk_ruler_rng(r, RNG_PLACE));
	const char *of_one[] = { "word", "number", "uuid" };
	r->field[1] = (rk_field){ "query", s->query };
	r->field[2] = (rk_field){ "type_needle_v", r->spec->kind == &rk_ruler_niah_one ? of_one[s->p->value] : made_name[s->p->value] };
	return s->p->hay == RK_HAY_ESSAY ? load_essays(r, s, e) : 0;
}

static void write_needle(FILE *f, const struct niah *s, const char *key, const char *value)
{
	fprintf(f, "One of the special magic %s for %s is: %s.", made_name[s->p->value], key, value);
}

/* Filler or other needles, a line each. */
static void write_lines(const rk_ruler *r, const struct niah *s, int n, FILE *f)
{
	uint64_t rng = rk_ruler_rng(r, RNG_OTHERS);
	int at = (int)(s->depth[0] * n);
	char key[MADE_MAX], value[MADE_MAX];

	for (int i = 0; i < n; i++) {
		if (i)
			fputc('\n', f);
		if (i == at) {
			write_needle(f, s, s->key[0], s->value[0]);
			fputc('\n', f);
		}
		if (s->p->hay == RK_HAY_NOISE) {
			fputs(RK_RULER_NOISE, f);
			continue;
		}
		do {
			draw(s->p->key, &rng, key);
			draw(s->p->value, &rng, value);
		} while (strcmp(key, s->key[0]) == 0 || strcmp(value, s->value[0]) == 0);
		write_needle(f, s, key, value);
	}
}

/* Does a sentence end between these words?  RULER asks NLTK's trained splitter, which mostly agrees. */
static bool sentence_ends(const char *word, const char *next)
{
	static const char *const abbreviation[] = { "Mr.", "Mrs.", "Ms.", "Dr.", "St.", "vs.", "e.g.", "i.e.", "etc.", "cf.", "No." };
	size_t n = strlen(word);

	for (size_t i = 0; i < sizeof abbreviation / sizeof *abbreviation; i++)
		if (strcmp(word, abbreviation[i]) == 0)
			return false;
	if (n == 2 && isupper((unsigned char)word[0]) && word[1] == '.')
		return false;	/* an initial */
	while (n > 0 && strchr("\"')]", word[n - 1]))
		n--;
	return n > 0 && strchr(".?!", word[n - 1]) && !islower((unsigned char)*next);
}

/* The first n words, from the start again where they end, with needles between sentences. */
static void write_essay(const struct niah *s, int n, FILE *f)
{
	int n_sentence = 1, sentence = 0, k = 0;

	for (int i = 0; i + 1 < n; i++)
		n_sentence += sentence_ends(s->word[i % s->n_word], s->word[(i + 1) % s->n_word]);
	for (int i = 0; i <= n; i++) {
		bool start = i == 0 || i == n || sentence_ends(s->word[(i - 1) % s->n_word], s->word[i % s->n_word]);
		sentence += start && i > 0;
		for (; start && k < s->n_needle && (int)(n_sentence * s->depth[k] + 1e-9) <= sentence; k++) {
			fputs(i || k ? " " : "", f);
			write_needle(f, s, s->key[s->order[k]], s->value[s->order[k]]);
		}
		if (i < n)
			fprintf(f, "%s%s", i || k ? " " : "", s->word[i % s->n_word]);
	}
}

static int niah_build(rk_ruler *r, int n, FILE *f, rk_example *x, rk_err *e)
{
	const struct niah *s = r->state;

	if (s->p->hay == RK_HAY_ESSAY)
		write_essay(s, n, f);
	else
		write_lines(r, s, n, f);
	for (int i = 0; i < s->p->n_query; i++)
		for (int v = 0; v < s->p->n_value; v++)
			if (rk_given_answer(x, s->value[s->asked[i] * s->p->n_value + v], e))
				return -1;
	json_t *depth = json_array();
	for (int i = 0; i < s->n_needle; i++)
		json_array_append_new(depth, json_real(s->depth[i]));
	x->data = json_pack("{s:i, s:o}", "size", n, "depth", depth);
	return x->data ? 0 : rk_fail(e, RK_ENOMEM, "no memory for an example");
}

/* The official template is written for several values; for one it is changed word by word, to this. */
const rk_ruler_kind rk_ruler_niah_one = {
	.context = "A special magic {type_needle_v} is hidden within the following text. Make sure to memorize it. I will quiz you about the "
	           "{type_needle_v} afterwards.\n{context}\n",
	.question = "What is the special magic {type_needle_v} for {query} mentioned in the provided text?",
	.prefix = " The special magic {type_needle_v} for {query} mentioned in the provided text is",
	.max_new = 128, .least = 1, .open = niah_open, .build = niah_build, .close = niah_close,
};

const rk_ruler_kind rk_ruler_niah_some = {
	.context = "Some special magic {type_needle_v} are hidden within the following text. Make sure to memorize it. I will quiz you about "
	           "the {type_needle_v} afterwards.\n{context}\n",
	.question = "What are all the special magic {type_needle_v} for {query} mentioned in the provided text?",
	.prefix = " The special magic {type_needle_v} for {query} mentioned in the provided text are",
	.max_new = 128, .least = 1, .open = niah_open, .build = niah_build, .close = niah_close,
};
