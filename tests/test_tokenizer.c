/* test_tokenizer.c: model/tokenizer and model/bpe.
 *
 * Most vocabularies here are made for one test (aid_vocab.h): ids 0..255 are the bytes, then what the test adds.  The
 * ids of the real model are compared with golden/tokens.json where the model file is present ($RK_MODEL or the cache).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aid_gguf.h"
#include "aid_vocab.h"
#include "base/utf8.h"

static rk_tokenizer *must_open(aid_vocab *v)
{
	rk_tokenizer *t = NULL;
	rk_err e = { 0 };
	if (aid_vocab_open(v, &t, &e))
		fail_msg("%s", e.msg);
	return t;
}

static rk_tokenizer *open_tiny(void)
{
	rk_tokenizer *t = NULL;
	rk_gguf *g;
	rk_err e = { 0 };
	char path[32];
	int fd = aid_tiny_memfd(NULL, 1, path);
	if (rk_gguf_open(&g, path, &e) || rk_tokenizer_init(&t, g, &e))
		fail_msg("%s", e.msg);
	rk_gguf_close(g);
	close(fd);
	return t;
}

static int32_t *must_tokenize(const rk_tokenizer *t, const char *text, size_t len, unsigned flags, size_t *n)
{
	int32_t *ids;
	rk_err e = { 0 };
	if (rk_tokenize(t, text, len, flags, &ids, n, &e))
		fail_msg("%s", e.msg);
	assert_non_null(ids);
	return ids;
}

static void expect_ids(const rk_tokenizer *t, const char *text, unsigned flags, const int32_t *want, size_t n_want)
{
	size_t n;
	int32_t *ids = must_tokenize(t, text, strlen(text), flags, &n);
	if (n != n_want || memcmp(ids, want, n * sizeof *ids)) {
		for (size_t i = 0; i < n; i++)
			print_message(" %d", ids[i]);
		fail_msg(" <- ids of \"%s\" with flags %u", text, flags);
	}
	free(ids);
}
#define EXPECT(t, text, flags, ...) do { \
		const int32_t want_[] = { __VA_ARGS__ }; \
		expect_ids(t, text, flags, want_, sizeof want_ / sizeof want_[0]); \
	} while (0)

/* ---- ids ----------------------------------------------------------------------------------------------------- */

static bool find_model(char path[512])
{
	const char *given = getenv("RK_MODEL"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	static const char name[] = "refreshkv/models/SmolLM2-135M-Instruct.Q4_1.gguf";
	if (given && *given)
		snprintf(path, 512, "%s", given);
	else if (cache && *cache)
		snprintf(path, 512, "%s/%s", cache, name);
	else
		snprintf(path, 512, "%s/.cache/%s", home ? home : "", name);
	return access(path, R_OK) == 0;
}

static void ids_equal_those_of_hugging_face(void **state)
{
	(void)state;
	rk_tokenizer *t;
	rk_gguf *g;
	rk_err e = { 0 };
	char path[512];
	json_error_t je;
	json_t *golden = json_load_file("tests/golden/tokens.json", 0, &je), *row;
	size_t i;

	if (!golden)
		fail_msg("tests/golden/tokens.json: %s (tests run from the repository root)", je.text);
	if (!find_model(path)) {
		print_message("skipped: no model file %s (`make model` fetches it)\n", path);
		json_decref(golden);
		skip();
	}
	if (rk_gguf_open(&g, path, &e) || rk_tokenizer_init(&t, g, &e))
		fail_msg("%s", e.msg);
	rk_gguf_close(g);
	assert_string_equal(rk_tokenizer_pre(t), "smollm");
	assert_int_equal(json_array_size(json_object_get(golden, "cases")), 25);
	json_array_foreach(json_object_get(golden, "cases"), i, row) {
		json_t *want = json_object_get(row, "ids");
		int32_t id[128];
		size_t n = json_array_size(want);
		assert_true(n <= 128);
		for (size_t k = 0; k < n; k++)
			id[k] = (int32_t)json_integer_value(json_array_get(want, k));
		/* the model wants no BOS: asking for one changes nothing */
		expect_ids(t, json_string_value(json_object_get(row, "text")), RK_TOK_SPECIAL | RK_TOK_BOS, id, n);
	}
	assert_true(rk_token_is_end(t, rk_token_find(t, "<|im_end|>")));
	assert_true(rk_token_is_end(t, rk_token_find(t, "<|endoftext|>")));
	assert_false(rk_token_is_end(t, rk_token_find(t, "<|im_start|>")));
	rk_tokenizer_free(t);
	json_decref(golden);
}

/* Any text of the tiny vocabulary, which has every byte, comes back as it was. */
static void bytes_of_ids_are_the_text(void **state)
{
	static const char *const texts[] = {
		"Hello world! Caf\xC3\xA9 d\xC3\xA9j\xC3\xA0 vu \xE2\x80\x94 123 \xF0\x9F\x98\x8A",
		"  leading and trailing  ", "tabs\tand\nnewlines\r\nCRLF\n\n\nthree",
		"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA6 \xF0\x9F\x87\xAB\xF0\x9F\x87\xB7",
		"<|im_start|>user\nHi<|im_end|>\n", "a", " ", "", "\x7F\x01\x1B[0m", "12345 the theatre then",
	};
	(void)state;
	rk_tokenizer *t = open_tiny();
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		for (unsigned flags = 0; flags <= RK_TOK_SPECIAL; flags++) {
			size_t n, len = 0, k_len;
			char back[512];
			int32_t *ids = must_tokenize(t, texts[i], strlen(texts[i]), flags, &n);
			for (size_t k = 0; k < n; k++) {
				assert_in_range(ids[k], 0, rk_tokenizer_n_vocab(t) - 1);
				const char *b = rk_token_bytes(t, ids[k], &k_len);
				memcpy(back + len, b, k_len);
				len += k_len;
			}
			free(ids);
			assert_int_equal(len, strlen(texts[i]));
			assert_memory_equal(back, texts[i], len);
		}
	size_t n;
	int32_t *ids = must_tokenize(t, "a\0b", 3, 0, &n);	/* a NUL is a byte like others */
	assert_int_equal(n, 3);
	free(ids);
	rk_tokenizer_free(t);
}

/* A character split over tokens is held back until it is whole. */
static void split_emoji_streams_whole(void **state)
{
	static const char text[] = "\xF0\x9F\x98\x8A!";
	(void)state;
	rk_tokenizer *t = must_open(aid_vocab_new("smollm"));
	size_t n, len, have = 0, shown = 0;
	char buf[8];
	int32_t *ids = must_tokenize(t, text, strlen(text), 0, &n);
	static const size_t want[] = { 0, 0, 0, 4, 5 };
	assert_int_equal(n, 5);
	for (size_t i = 0; i < n; i++) {
		const char *b = rk_token_bytes(t, ids[i], &len);
		memcpy(buf + have, b, len);
		have += len;
		shown = rk_utf8_complete(buf, have);
		assert_int_equal(shown, want[i]);
	}
	free(ids);
	rk_tokenizer_free(t);
}

/* ---- pieces -------------------------------------------------------------------------------------------------- */

/* A vocabulary in which every substring of the text is a token and every split of one a merge: then each piece becomes
 * one token, and the tokens show where the pattern cuts. */
static void expect_pieces(const char *pre, const char *text, const char *want)
{
	aid_vocab *v = aid_vocab_new(pre);
	size_t n = strlen(text), len;

	for (size_t k = 2; k <= n; k++)
		for (size_t i = 0; i + k <= n; i++)
			aid_vocab_add(v, text + i, k);
	for (size_t k = 2; k <= n; k++)
		for (size_t i = 0; i + k <= n; i++)
			for (size_t cut = 1; cut < k; cut++)
				aid_vocab_merge(v, text + i, cut, text + i + cut, k - cut);
	rk_tokenizer *t = must_open(v);
	int32_t *ids = must_tokenize(t, text, n, 0, &n);
	char got[256] = "";
	for (size_t i = 0; i < n; i++) {
		const char *b = rk_token_bytes(t, ids[i], &len);
		snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i ? "|" : "", (int)len, b);
	}
	if (strcmp(got, want))
		fail_msg("%s cuts \"%s\", expected \"%s\"", pre, got, want);
	free(ids);
	rk_tokenizer_free(t);
}

#define NBSP "\xC2\xA0"
#define MVS "\xE1\xA0\x8E"	/* U+180E, white space for PCRE2's \s but not for Unicode */
#define IDEO "\xE3\x80\x80"	/* U+3000, white space */
#define LONG_S "\xC5\xBF"	/* U+017F, folds to s */
#define E_ACUTE "\xC3\xA9"
#define HALF "\xC2\xBD"		/* No */
#define ARABIC_3 "\xD9\xA3"	/* Nd */
#define ROMAN_4 "\xE2\x85\xA3"	/* Nl */

/* Expected pieces: Hugging Face tokenizers 0.23, Split(Regex) with the pattern of each model's tokenizer.json. */
static void patterns_cut_like_the_published_ones(void **state)
{
	static const struct { const char *text, *gpt2, *smollm, *llama3, *qwen2; } cases[] = {
		{ "I'll DON'T x's", "I|'ll| DON|'|T| x|'s", "I|'ll| DON|'|T| x|'s", "I|'ll| DON|'T| x|'s",
		  "I|'ll| DON|'T| x|'s" },
		{ "a  12345 b", "a| | 12345| b", "a|  |1|2|3|4|5| b", "a| | |123|45| b", "a| | |1|2|3|4|5| b" },
		{ "x\r\n\r\n  y", "x|\r\n\r\n | y", "x|\r\n\r\n | y", "x|\r\n\r\n| | y", "x|\r\n\r\n| | y" },
		{ "f(x);\n\n z", "f|(|x|);|\n\n| z", "f|(|x|);|\n\n| z", "f|(x|);\n\n| z", "f|(x|);\n\n| z" },
		{ "t\t\tu " NBSP "v", "t|\t|\t|u| |" NBSP "|v", "t|\t|\t|u| |" NBSP "|v", "t|\t|\tu| |" NBSP "v",
		  "t|\t|\tu| |" NBSP "v" },
		{ HALF ARABIC_3 " " ROMAN_4 " 1", HALF ARABIC_3 "| " ROMAN_4 "| 1", HALF "|" ARABIC_3 "| |" ROMAN_4 "| |1",
		  HALF ARABIC_3 "| |" ROMAN_4 "| |1", HALF "|" ARABIC_3 "| |" ROMAN_4 "| |1" },
		{ "a" MVS "b " IDEO "c", "a|" MVS "|b| |" IDEO "|c", "a|" MVS "|b| |" IDEO "|c", "a|" MVS "b| |" IDEO "c",
		  "a|" MVS "b| |" IDEO "c" },
		{ "it'" LONG_S " " E_ACUTE, "it|'|" LONG_S "| " E_ACUTE, "it|'|" LONG_S "| " E_ACUTE,
		  "it|'" LONG_S "| " E_ACUTE, "it|'" LONG_S "| " E_ACUTE },
		{ "--- ==\n", "---| ==|\n", "---| ==|\n", "---| ==\n", "---| ==\n" },
		{ "  lead  ", " | lead|  ", " | lead|  ", " | lead|  ", " | lead|  " },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		expect_pieces("gpt2", cases[i].text, cases[i].gpt2);
		expect_pieces("smollm", cases[i].text, cases[i].smollm);
		expect_pieces("llama-bpe", cases[i].text, cases[i].llama3);
		expect_pieces("qwen2", cases[i].text, cases[i].qwen2);
	}
	expect_pieces("llama3", "1234", "123|4");
	expect_pieces("llama-v3", "1234", "123|4");
	expect_pieces("gpt-2", "1234", "1234");
	expect_pieces(NULL, "1234", "1234");	/* no key: GPT-2's */
}

static void llama3_takes_whole_words_before_merges(void **state)
{
	static const char *const pres[] = { "llama-bpe", "gpt2" };
	(void)state;
	for (int i = 0; i < 2; i++) {
		aid_vocab *v = aid_vocab_new(pres[i]);
		int32_t ab = aid_vocab_add(v, "ab", 2), abc = aid_vocab_add(v, "abc", 3);
		aid_vocab_merge(v, "a", 1, "b", 1);	/* no merge leads to abc */
		rk_tokenizer *t = must_open(v);
		if (i == 0)
			EXPECT(t, "abc", 0, abc);
		else
			EXPECT(t, "abc", 0, ab, 'c');
		rk_tokenizer_free(t);
	}
}

static void qwen2_normalises_to_nfc(void **state)
{
	(void)state;
	aid_vocab *v = aid_vocab_new("qwen2");
	int32_t acute = aid_vocab_add(v, E_ACUTE, 2), user = aid_vocab_add_raw(v, "e\xCC\x81!", AID_USER);
	aid_vocab_merge(v, "\xC3", 1, "\xA9", 1);
	rk_tokenizer *t = must_open(v);
	EXPECT(t, "e\xCC\x81", 0, acute);
	EXPECT(t, "xe\xCC\x81!e\xCC\x81", 0, 'x', user, acute);		/* special tokens match before */
	rk_tokenizer_free(t);
}

/* ---- merging ------------------------------------------------------------------------------------------------- */

enum { MAX_SYM = 16 };	/* longest merged string, with its NUL */

struct pair { char left[MAX_SYM], right[MAX_SYM]; };

/* The definition: find the best applicable merge, leftmost, apply it, start over. */
static size_t merge_by_definition(const struct pair *merges, size_t n_merge, char sym[][MAX_SYM], size_t n)
{
	for (;;) {
		size_t best = n_merge, at = 0;
		for (size_t i = 0; i + 1 < n; i++)
			for (size_t r = 0; r < best; r++)
				if (!strcmp(sym[i], merges[r].left) && !strcmp(sym[i + 1], merges[r].right)) {
					best = r;
					at = i;
				}
		if (best == n_merge)
			return n;
		size_t used = strlen(sym[at]);
		memcpy(sym[at] + used, sym[at + 1], strlen(sym[at + 1]) + 1);
		memmove(sym[at + 1], sym[at + 2], (n - at - 2) * sizeof sym[0]);
		n--;
	}
}

static void merges_follow_the_definition(void **state)
{
	enum { N_MERGE = 24, LEN = 120 };
	(void)state;
	uint64_t rng = 5;
	for (int round = 0; round < 20; round++) {
		aid_vocab *v = aid_vocab_new("gpt2");
		struct pair merges[N_MERGE];
		char made[3 + N_MERGE][MAX_SYM] = { "a", "b", "c" };
		size_t n_made = 3, n_merge = 0;
		while (n_merge < N_MERGE) {	/* random merges of what exists; a string may be made in more than one way */
			const char *l = made[(size_t)(aid_random(&rng) * (double)n_made)];
			const char *r = made[(size_t)(aid_random(&rng) * (double)n_made)];
			char whole[MAX_SYM];
			if (strlen(l) + strlen(r) > 7)
				continue;
			strcat(strcpy(whole, l), r);
			strcpy(merges[n_merge].left, l);
			strcpy(merges[n_merge].right, r);
			aid_vocab_merge(v, l, strlen(l), r, strlen(r));
			n_merge++;
			size_t k = 0;
			while (k < n_made && strcmp(made[k], whole))
				k++;
			if (k == n_made) {
				strcpy(made[n_made++], whole);
				aid_vocab_add(v, whole, strlen(whole));
			}
		}
		rk_tokenizer *t = must_open(v);
		for (size_t len = 0; len <= LEN; len += 7) {
			char text[LEN + 1], sym[LEN + 1][MAX_SYM];
			for (size_t i = 0; i < len; i++) {
				text[i] = (char)('a' + (int)(aid_random(&rng) * 3));
				sym[i][0] = text[i];
				sym[i][1] = 0;
			}
			size_t want = merge_by_definition(merges, n_merge, sym, len), n, k_len;
			int32_t *ids = must_tokenize(t, text, len, 0, &n);
			assert_int_equal(n, want);
			for (size_t i = 0; i < n; i++) {
				const char *b = rk_token_bytes(t, ids[i], &k_len);
				assert_int_equal(k_len, strlen(sym[i]));
				assert_memory_equal(b, sym[i], k_len);
			}
			free(ids);
		}
		rk_tokenizer_free(t);
	}
}

/* Quadratic merging or a limit of the pattern engine would show here as minutes or as an error. */
static void long_runs_are_one_piece(void **state)
{
	enum { LEN = 1 << 18 };
	static const char *const pres[] = { "smollm", "llama-bpe", "qwen2" };
	static const char runs[] = "a \n!";
	(void)state;
	char *text = malloc(LEN);
	for (size_t p = 0; p < 3; p++) {
		aid_vocab *v = aid_vocab_new(pres[p]);
		char word[65];
		for (const char *c = runs; *c; c++)
			for (size_t half = 1; half <= 32; half *= 2) {
				memset(word, *c, 64);
				aid_vocab_add(v, word, 2 * half);
				aid_vocab_merge(v, word, half, word, half);
			}
		rk_tokenizer *t = must_open(v);
		for (const char *c = runs; *c; c++) {
			size_t n;
			memset(text, *c, LEN);
			free(must_tokenize(t, text, LEN, 0, &n));
			assert_int_equal(n, LEN / 64);
		}
		rk_tokenizer_free(t);
	}
	free(text);
}

static void byte_without_token_vanishes(void **state)
{
	(void)state;
	aid_vocab *v = aid_vocab_new("smollm");
	int32_t ab = aid_vocab_add(v, "ab", 2), a_a9 = aid_vocab_add(v, "a\xA9", 2);
	aid_vocab_merge(v, "a", 1, "b", 1);
	aid_vocab_merge(v, "a", 1, "\xA9", 1);
	aid_vocab_without(v, 0x04);	/* SmolLM2 has no token for U+0004 */
	aid_vocab_without(v, 0xFF);
	aid_vocab_without(v, 0xC3);
	rk_tokenizer *t = must_open(v);
	EXPECT(t, "x\x04y", 0, 'x', 'y');
	EXPECT(t, "a\x04" "b", 0, 'a', 'b');	/* two pieces */
	EXPECT(t, "ba\xC3\xA9", 0, 'b', a_a9);	/* gone before the merges: its neighbours meet */
	EXPECT(t, "ab", 0, ab);
	size_t n;
	free(must_tokenize(t, "\x04", 1, 0, &n));
	assert_int_equal(n, 0);
	rk_tokenizer_free(t);
}

/* ---- special tokens ------------------------------------------------------------------------------------------ */

static void special_tokens_inside_text(void **state)
{
	(void)state;
	aid_vocab *v = aid_vocab_new("gpt2");
	int32_t im = aid_vocab_add_raw(v, "<|im|>", AID_CONTROL), im_x = aid_vocab_add_raw(v, "<|im|>x", AID_CONTROL);
	int32_t q = aid_vocab_add_raw(v, "<|q|>", AID_CONTROL), user = aid_vocab_add_raw(v, "<u>", AID_USER);
	int32_t space = aid_vocab_add_raw(v, "  ", AID_USER), e = aid_vocab_add_raw(v, E_ACUTE, AID_USER);
	aid_vocab_add_raw(v, "", AID_CONTROL);
	rk_tokenizer *t = must_open(v);

	EXPECT(t, "a<|im|>b", RK_TOK_SPECIAL, 'a', im, 'b');
	EXPECT(t, "<|im|>xx<|q|>", RK_TOK_SPECIAL, im_x, 'x', q);		/* the longest wins */
	EXPECT(t, "<|im|><|im|", RK_TOK_SPECIAL, im, '<', '|', 'i', 'm', '|');
	EXPECT(t, "<<|im|>", RK_TOK_SPECIAL, '<', im);
	EXPECT(t, "<|<|q|>", RK_TOK_SPECIAL, '<', '|', q);
	EXPECT(t, "<|q|>", 0, '<', '|', 'q', '|', '>');				/* not asked for: text */
	EXPECT(t, "<u>a  b<|q|>", 0, user, 'a', space, 'b', '<', '|', 'q', '|', '>');	/* user-defined: always */
	EXPECT(t, E_ACUTE, 0, e);

	size_t n;
	assert_true(rk_token_is_control(t, im));
	assert_false(rk_token_is_control(t, user));
	assert_string_equal(strndupa(rk_token_bytes(t, im, &n), 6), "<|im|>");
	assert_int_equal(n, 6);
	rk_token_bytes(t, e, &n);	/* stands for its own text, not for the byte that U+00E9 spells */
	assert_int_equal(n, 2);
	assert_int_equal(rk_token_find(t, "<|im|>x"), im_x);
	assert_int_equal(rk_token_find(t, "\xC4\xA0"), ' ');	/* by the name in the file: U+0120 spells a space */
	assert_int_equal(rk_token_find(t, "  "), space);
	assert_int_equal(rk_token_find(t, "nowhere"), -1);
	rk_tokenizer_free(t);
}

static void bos_once_and_only_where_wanted(void **state)
{
	static const struct { const char *pre; int add_bos; bool adds; } cases[] = {	/* add_bos -1: no key */
		{ "gpt2", 1, true }, { "gpt2", 0, false }, { "gpt2", -1, false },
		{ "llama-bpe", -1, true }, { "llama-bpe", 0, false },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		aid_vocab *v = aid_vocab_new(cases[i].pre);
		const bool add = cases[i].add_bos == 1;
		const uint32_t bos = (uint32_t)aid_vocab_add_raw(v, "<s>", AID_CONTROL);
		const int32_t b = (int32_t)bos;
		v->bos = &bos;
		if (cases[i].add_bos >= 0)
			v->add_bos = &add;
		rk_tokenizer *t = must_open(v);
		EXPECT(t, "a", 0, 'a');
		if (cases[i].adds) {
			EXPECT(t, "a", RK_TOK_BOS, b, 'a');
			EXPECT(t, "", RK_TOK_BOS, b);
			EXPECT(t, "<s>", RK_TOK_BOS, b, '<', 's', '>');		/* as text it is no BOS */
		} else {
			EXPECT(t, "a", RK_TOK_BOS, 'a');
		}
		EXPECT(t, "<s>a", RK_TOK_BOS | RK_TOK_SPECIAL, b, 'a');		/* the text has one */
		rk_tokenizer_free(t);
	}
}

static void every_end_token_is_known(void **state)
{
	static const char *const names[] = {
		"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<end_of_turn>", "</s>",
	};
	(void)state;
	aid_vocab *v = aid_vocab_new("gpt2");
	const uint32_t eos = (uint32_t)aid_vocab_add_raw(v, "<eos>", AID_CONTROL);
	const uint32_t eot = (uint32_t)aid_vocab_add_raw(v, "<eot>", AID_CONTROL);
	const int32_t other = aid_vocab_add_raw(v, "<|im_start|>", AID_CONTROL);
	for (size_t i = 0; i < 7; i++)
		aid_vocab_add_raw(v, names[i], i < 6 ? AID_CONTROL : AID_ORDINARY);
	v->eos = &eos;
	v->eot = &eot;
	rk_tokenizer *t = must_open(v);
	assert_true(rk_token_is_end(t, (int32_t)eos));
	assert_true(rk_token_is_end(t, (int32_t)eot));
	assert_false(rk_token_is_end(t, other));
	assert_false(rk_token_is_end(t, 'a'));
	for (size_t i = 0; i < 7; i++)
		assert_int_equal(rk_token_is_end(t, rk_token_find(t, names[i])), i < 6);
	rk_tokenizer_free(t);
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

static void invalid_utf8_names_the_offset(void **state)
{
	(void)state;
	rk_tokenizer *t = open_tiny();
	rk_err e = { 0 };
	int32_t *ids;
	size_t n = 9;
	assert_int_equal(rk_tokenize(t, "caf\xE9 x", 6, 0, &ids, &n, &e), -1);
	assert_int_equal(e.code, RK_EFAIL);
	assert_non_null(strstr(e.msg, "0xE9 at offset 3"));
	assert_null(ids);
	assert_int_equal(n, 0);
	rk_tokenizer_free(t);
}

static void expect_refused(aid_vocab *v, const char *why)
{
	rk_tokenizer *t = NULL;
	rk_err e = { 0 };
	assert_int_equal(aid_vocab_open(v, &t, &e), -1);
	assert_null(t);
	assert_int_equal(e.code, RK_EMODEL);
	if (!strstr(e.msg, why) || !strstr(e.msg, "/proc/self/fd/"))
		fail_msg("\"%s\" does not say \"%s\" and name the file", e.msg, why);
}

static void damaged_vocabularies_are_refused(void **state)
{
	static const uint32_t too_big = 256, huge = UINT32_MAX;
	static const bool yes = true;
	aid_vocab *v;
	(void)state;

	(v = aid_vocab_new("gpt2"))->model = "llama";
	expect_refused(v, "tokenizer.ggml.model = \"llama\"");
	(v = aid_vocab_new("gpt2"))->model = NULL;
	expect_refused(v, "tokenizer.ggml.model is missing");
	expect_refused(aid_vocab_new("tekken"), "\"tekken\" is not a known pre-tokenizer (smollm, gpt2, ");
	(v = aid_vocab_new("gpt2"))->n_type = 255;
	expect_refused(v, "token_type has 255 entries, but tokenizer.ggml.tokens has 256");
	expect_refused(calloc(1, sizeof *v), "tokenizer.ggml.model is missing");
	(v = calloc(1, sizeof *v))->model = "gpt2";
	expect_refused(v, "tokenizer.ggml.tokens");
	expect_refused(aid_vocab_without(aid_vocab_new("gpt2"), 'a'), "no token for byte 0x61");
	(v = aid_vocab_new("gpt2"))->type['\n'] = AID_CONTROL;
	expect_refused(v, "no token for byte 0x0A");
	(v = aid_vocab_new("gpt2"))->eos = &too_big;
	expect_refused(v, "eos_token_id = 256, but the vocabulary has 256 tokens");
	(v = aid_vocab_new("gpt2"))->bos = &huge;
	expect_refused(v, "bos_token_id = 4294967295");
	(v = aid_vocab_new("gpt2"))->add_bos = &yes;
	expect_refused(v, "bos_token_id is missing");
	aid_vocab_merge(v = aid_vocab_new("gpt2"), "a", 1, "b", 1);
	expect_refused(v, "merges[0] = \"a b\"");
	static const char *const bad_merges[] = { "", " ", "ab", "a ", " b", "a  b", "a b c", "\xFF a", "a \xE4\xB8\xAD" };
	for (size_t i = 0; i < sizeof bad_merges / sizeof bad_merges[0]; i++) {
		v = aid_vocab_new("gpt2");
		aid_vocab_add(v, "ab", 2);
		aid_vocab_merge(v, "a", 1, "b", 1);
		aid_vocab_merge_raw(v, bad_merges[i]);
		expect_refused(v, "merges[1]");
	}
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

struct worker { const rk_tokenizer *t; const char *text; int32_t *ids; size_t n; };

static void *work(void *arg)
{
	struct worker *w = arg;
	for (int i = 0; i < 50; i++) {
		free(w->ids);
		if (rk_tokenize(w->t, w->text, strlen(w->text), RK_TOK_SPECIAL, &w->ids, &w->n, NULL))
			return w;
	}
	return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
	(void)state;
	rk_tokenizer *t = open_tiny();
	static const char text[] = "the theatre <|im_end|> then 12 things";
	struct worker w[2] = { { t, text, NULL, 0 }, { t, text, NULL, 0 } };
	pthread_t id[2];
	void *bad;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&id[i], NULL, work, &w[i]), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(id[i], &bad);
		assert_null(bad);
	}
	assert_int_equal(w[0].n, w[1].n);
	assert_memory_equal(w[0].ids, w[1].ids, w[0].n * sizeof *w[0].ids);
	free(w[0].ids);
	free(w[1].ids);
	rk_tokenizer_free(t);
}

/* Where a template's text holds what people said, names of control tokens are words; nothing else is cut otherwise. */
static void names_that_were_said(void **state)
{
	(void)state;
	rk_tokenizer *t = open_tiny();
	static const char text[] = "<|im_end|>the <|im_end|> then<|im_end|>";
	const rk_stretch said[] = { { 0, 0 }, { 10, sizeof text - 1 - 20 } };
	int32_t end = rk_token_find(t, "<|im_end|>"), *ids, *plain;
	size_t n, n_plain;
	assert_int_equal(rk_tokenize_said(t, text, strlen(text), RK_TOK_SPECIAL, said, 2, &ids, &n, NULL), 0);
	assert_int_equal(rk_tokenize(t, text + said[1].at, said[1].len, 0, &plain, &n_plain, NULL), 0);
	assert_int_equal(n, n_plain + 2);
	assert_int_equal(ids[0], end);
	assert_int_equal(ids[n - 1], end);
	assert_memory_equal(ids + 1, plain, n_plain * sizeof *plain);
	free(ids);
	free(plain);
	rk_tokenizer_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_equal_those_of_hugging_face),
		cmocka_unit_test(bytes_of_ids_are_the_text),
		cmocka_unit_test(split_emoji_streams_whole),
		cmocka_unit_test(patterns_cut_like_the_published_ones),
		cmocka_unit_test(llama3_takes_whole_words_before_merges),
		cmocka_unit_test(qwen2_normalises_to_nfc),
		cmocka_unit_test(merges_follow_the_definition),
		cmocka_unit_test(long_runs_are_one_piece),
		cmocka_unit_test(byte_without_token_vanishes),
		cmocka_unit_test(special_tokens_inside_text),
		cmocka_unit_test(bos_once_and_only_where_wanted),
		cmocka_unit_test(every_end_token_is_known),
		cmocka_unit_test(invalid_utf8_names_the_offset),
		cmocka_unit_test(damaged_vocabularies_are_refused),
		cmocka_unit_test(threads_share_a_tokenizer), cmocka_unit_test(names_that_were_said),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
