/* tokenizer.c: see tokenizer.h.  Text -> special tokens -> pieces (PCRE2) -> byte-level BPE -> ids.
 *
 * Owns: the vocabulary's bytes (one arena), two indexes over it (ordinary tokens by bytes, special tokens sorted), the
 * merges (bpe.h) and the compiled pattern.  All are read-only after init; a call to rk_tokenize keeps its own scratch
 * memory, so calls from several threads do not meet.
 * In the file every byte of an ordinary token is written as a printable character (GPT-2's byte alphabet).  That
 * spelling is undone once, at init: everything below works on plain bytes.
 * A file without tokenizer.ggml.pre gets GPT-2's pattern, under the name "default".
 * Some vocabularies lack the tokens of rare bytes (SmolLM2: six control characters and F1, F2).  Such a byte vanishes
 * before the merges, so that its neighbours may merge, as in Hugging Face's tokenizers: the model was trained that way.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer.h"

#include <limits.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "model/bpe.h"

#define NONE RK_NO_ID

/* tokenizer.ggml.token_type: the values that matter here; all others are ordinary text. */
enum { TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4 };

struct token {
	const char *bytes;	/* into the arena */
	uint32_t len;
	bool indexed;		/* ordinary, spelled in the byte alphabet: the only tokens that BPE can make */
	bool control, user, end;
};

struct special { const char *bytes; uint32_t len; int32_t id; };

/* How a family of models cuts text into pieces; merges never cross a piece. */
struct pre {
	const char *name, *pattern;
	bool whole_words;	/* a piece that is a token is that token, whatever the merges say (ignore_merges) */
	bool adds_bos;		/* when the file does not say */
	bool nfc;		/* text is normalised first */
};

struct rk_tokenizer {
	char *arena;
	struct token *tok;		/* [n_vocab] */
	int32_t n_vocab;
	int32_t *by_bytes;		/* [bytes_mask + 1] open addressing; ids of indexed tokens, NONE = empty */
	size_t bytes_mask;
	int32_t byte_id[256];		/* the token of each single byte; NONE: the byte cannot be written */
	rk_bpe bpe;
	struct special *special;	/* [n_special] in order of bytes, so that a prefix is a range */
	size_t n_special;
	size_t special_from[257];	/* specials that start with byte b: [special_from[b], special_from[b + 1]) */
	bool has_user;
	int32_t bos;			/* NONE: the file names none */
	bool adds_bos;
	const struct pre *pre;
	pcre2_code *split;
};

/* ---- patterns ------------------------------------------------------------------------------------------------ */

/* The published patterns say \s.  In the engine they were written for that is Unicode's White_Space; in PCRE2 it would
 * also take U+180E. */
#define S "\\p{White_Space}"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" S "\\p{L}\\p{N}]+|" \
	S "+(?!\\P{White_Space})|" S "+"
/* SmolLM cuts out every digit by itself, then applies GPT-2's pattern to what is left between them.  As one pattern:
 * the digit first, no other alternative takes one, and white space ends before a digit as it does at a text's end. */
#define SMOLLM "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^" S "\\p{L}\\p{N}]+|" \
	S "+(?![^" S "\\p{N}])|" S "+"
#define CL100K(digits) "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
	"| ?[^" S "\\p{L}\\p{N}]+[\\r\\n]*|" S "*[\\r\\n]+|" S "+(?!\\P{White_Space})|" S "+"
#define LLAMA3 CL100K("\\p{N}{1,3}")
#define QWEN2 CL100K("\\p{N}")

static const struct pre pres[] = {
	{ .name = "smollm", .pattern = SMOLLM },
	{ .name = "gpt2", .pattern = GPT2 },
	{ .name = "gpt-2", .pattern = GPT2 },
	{ .name = "default", .pattern = GPT2 },
	{ .name = "llama-bpe", .pattern = LLAMA3, .whole_words = true, .adds_bos = true },
	{ .name = "llama3", .pattern = LLAMA3, .whole_words = true, .adds_bos = true },
	{ .name = "llama-v3", .pattern = LLAMA3, .whole_words = true, .adds_bos = true },
	{ .name = "qwen2", .pattern = QWEN2, .nfc = true },
};
#define N_PRE (sizeof pres / sizeof pres[0])

static int init_pre(rk_tokenizer *t, const rk_gguf *g, rk_err *e)
{
	static const char key[] = "tokenizer.ggml.pre";
	rk_str name = { "default", strlen("default") };

	if (rk_gguf_str(g, key, &name, e) < 0)
		return -1;
	for (size_t i = 0; i < N_PRE && !t->pre; i++)
		if (strlen(pres[i].name) == name.len && !memcmp(pres[i].name, name.s, name.len))
			t->pre = &pres[i];
	if (!t->pre) {
		char known[128] = "";
		for (size_t i = 0, n = 0; i < N_PRE; i++)
			n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", pres[i].name);
		return rk_fail(e, RK_EMODEL, "%s: %s = \"%.*s\" is not a known pre-tokenizer (%s)",
			rk_gguf_path(g), key, (int)(name.len < 40 ? name.len : 40), name.s, known);
	}
	/* Anchored: pieces lie end to end, so a match anywhere but at the start offset would be a hole. */
	int rc;
	PCRE2_SIZE at;
	t->split = pcre2_compile((PCRE2_SPTR)t->pre->pattern, PCRE2_ZERO_TERMINATED,
		PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &rc, &at, NULL);
	if (!t->split)
		return rk_fail(e, RK_EFAIL, "pre-tokenizer %s: pattern refused by PCRE2 at %zu (error %d)",
			t->pre->name, at, rc);
	/* Where no executable memory is allowed this fails, and pcre2_match interprets the pattern: slower, same pieces. */
	pcre2_jit_compile(t->split, PCRE2_JIT_COMPLETE);
	return 0;
}

/* ---- vocabulary ---------------------------------------------------------------------------------------------- */

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes are U+0100.. in order.  byte_of[c] is the
 * byte that character c stands for, NONE when it stands for none. */
#define ALPHABET_END (256 + 68)

static void make_alphabet(int16_t byte_of[ALPHABET_END])
{
	for (int c = 0; c < ALPHABET_END; c++)
		byte_of[c] = NONE;
	for (int b = 0, next = 256; b < 256; b++) {
		bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
		byte_of[printable ? b : next++] = (int16_t)b;
	}
}

/* Undoes the spelling: out gets at most len bytes.  Returns their number; NONE: s is not spelled in the alphabet. */
static int64_t decode(const int16_t byte_of[ALPHABET_END], const char *s, size_t len, char *out)
{
	int64_t n = 0;
	for (size_t i = 0; i < len; ) {
		utf8proc_int32_t c;
		utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(len - i), &c);
		if (k <= 0 || c >= ALPHABET_END || byte_of[c] == NONE)
			return NONE;
		out[n++] = (char)byte_of[c];
		i += (size_t)k;
	}
	return n;
}

static uint64_t hash_bytes(const char *s, size_t len)
{
	uint64_t h = 0xCBF29CE484222325u;	/* FNV-1a, with a last fold because the low bits pick the slot */
	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)s[i]) * 0x100000001B3u;
	return h ^ h >> 32;
}

/* The slot that holds the ordinary token with these bytes, or the empty slot where it would go. */
static int32_t *slot_of_bytes(const rk_tokenizer *t, const char *s, size_t len)
{
	for (size_t i = hash_bytes(s, len); ; i++) {
		int32_t *slot = &t->by_bytes[i & t->bytes_mask];
		if (*slot == NONE || (t->tok[*slot].len == len && !memcmp(t->tok[*slot].bytes, s, len)))
			return slot;
	}
}

static int no_memory(const rk_gguf *g, rk_err *e)
{
	return rk_fail(e, RK_ENOMEM, "%s: no memory for the vocabulary", rk_gguf_path(g));
}

/* tok[], their bytes and kinds. */
static int load_tokens(rk_tokenizer *t, const rk_gguf *g, const int16_t byte_of[ALPHABET_END], rk_err *e)
{
	static const char key[] = "tokenizer.ggml.tokens", type_key[] = "tokenizer.ggml.token_type";
	rk_str *name = NULL;
	int32_t *type = NULL;
	size_t n = 0, n_type = 0, room = 0;
	int rc = rk_gguf_str_array(g, key, &name, &n, e);

	if (rc == 0)
		rc = rk_gguf_i32_array(g, type_key, &type, &n_type, e) < 0 ? -1 : 0;	/* without types all are ordinary */
	else if (rc > 0)
		rc = rk_fail(e, RK_EMODEL, "%s: %s is missing: the file has no vocabulary", rk_gguf_path(g), key);
	if (rc == 0 && (n == 0 || n > INT32_MAX / 4))
		rc = rk_fail(e, RK_EMODEL, "%s: %s has %zu entries, must be 1 to %d", rk_gguf_path(g), key, n, INT32_MAX / 4);
	if (rc == 0 && type && n_type != n)
		rc = rk_fail(e, RK_EMODEL, "%s: %s has %zu entries, but %s has %zu", rk_gguf_path(g), type_key, n_type, key, n);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		room += name[i].len;
		if (name[i].len > INT32_MAX)
			rc = rk_fail(e, RK_EMODEL, "%s: %s: token %zu has %zu bytes", rk_gguf_path(g), key, i, name[i].len);
	}
	if (rc == 0) {
		t->arena = malloc(room + 1);	/* + 1: tokens may all be empty */
		t->tok = calloc(n, sizeof *t->tok);
		if (!t->arena || !t->tok)
			rc = no_memory(g, e);
	}
	char *to = t->arena;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct token *k = &t->tok[i];
		k->bytes = to;
		k->control = type && type[i] == TYPE_CONTROL;
		k->user = type && type[i] == TYPE_USER_DEFINED;
		t->n_special += k->control || k->user;
		int64_t len = k->control || k->user ? NONE : decode(byte_of, name[i].s, name[i].len, to);
		k->indexed = len > 0;
		if (len == NONE) {	/* special, or outside the alphabet: it stands for its own text */
			len = (int64_t)name[i].len;
			memcpy(to, name[i].s, name[i].len);
		}
		k->len = (uint32_t)len;
		to += len;
	}
	t->n_vocab = (int32_t)n;
	free(name);
	free(type);
	return rc;
}

static int index_tokens(rk_tokenizer *t, const rk_gguf *g, rk_err *e)
{
	size_t size = rk_bpe_table_size((size_t)t->n_vocab);

	t->by_bytes = malloc(size * sizeof *t->by_bytes);
	if (!t->by_bytes)
		return no_memory(g, e);
	t->bytes_mask = size - 1;
	for (size_t i = 0; i < size; i++)
		t->by_bytes[i] = NONE;
	for (int32_t id = 0; id < t->n_vocab; id++) {
		int32_t *slot = t->tok[id].indexed ? slot_of_bytes(t, t->tok[id].bytes, t->tok[id].len) : NULL;
		if (slot && *slot == NONE)	/* of two tokens with the same bytes the first is the one in use */
			*slot = id;
	}
	for (int b = 0; b < 256; b++) {
		char c = (char)b;
		t->byte_id[b] = *slot_of_bytes(t, &c, 1);
		if (t->byte_id[b] == NONE && (b == '\n' || (b >= ' ' && b <= '~')))	/* plain text must not vanish */
			return rk_fail(e, RK_EMODEL, "%s: tokenizer.ggml.tokens has no token for byte 0x%02X", rk_gguf_path(g), b);
	}
	return 0;
}

static int by_bytes_order(const void *pa, const void *pb)
{
	const struct special *a = pa, *b = pb;
	int order = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);
	if (order)
		return order;
	if (a->len != b->len)
		return a->len < b->len ? -1 : 1;
	return a->id < b->id ? -1 : 1;
}

static int index_specials(rk_tokenizer *t, const rk_gguf *g, rk_err *e)
{
	t->special = malloc((t->n_special + 1) * sizeof *t->special);
	if (!t->special)
		return no_memory(g, e);
	t->n_special = 0;
	for (int32_t id = 0; id < t->n_vocab; id++) {
		const struct token *k = &t->tok[id];
		t->has_user |= k->user;
		if ((k->control || k->user) && k->len)
			t->special[t->n_special++] = (struct special){ k->bytes, k->len, id };
	}
	qsort(t->special, t->n_special, sizeof *t->special, by_bytes_order);
	for (size_t b = 0, i = 0; b < 256; b++) {
		t->special_from[b] = i;
		while (i < t->n_special && (uint8_t)t->special[i].bytes[0] == b)
			i++;
	}
	t->special_from[256] = t->n_special;
	return 0;
}

/* "left right", best first.  A merge that names an unknown token is an error: the trainer never writes one, Hugging
 * Face's tokenizers refuse it too, and skipping it would give other ids than the model was trained with. */
static int load_merges(rk_tokenizer *t, const rk_gguf *g, const int16_t byte_of[ALPHABET_END], rk_err *e)
{
	static const char key[] = "tokenizer.ggml.merges";
	rk_str *line = NULL;
	size_t n = 0, longest = 0;
	char *bytes = NULL;
	int rc = rk_gguf_str_array(g, key, &line, &n, e);

	if (rc > 0)
		rc = rk_fail(e, RK_EMODEL, "%s: %s is missing: without it text cannot be tokenized", rk_gguf_path(g), key);
	else if (rc == 0 && n > INT32_MAX / 4)
		rc = rk_fail(e, RK_EMODEL, "%s: %s has %zu entries, at most %d", rk_gguf_path(g), key, n, INT32_MAX / 4);
	for (size_t i = 0; rc == 0 && i < n; i++)
		longest = line[i].len > longest ? line[i].len : longest;
	if (rc == 0) {
		bytes = malloc(longest + 1);
		if (!bytes || rk_bpe_init(&t->bpe, n))
			rc = no_memory(g, e);
	}
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const char *s = line[i].s, *gap = line[i].len ? memchr(s, ' ', line[i].len) : NULL;
		int64_t nl = gap ? decode(byte_of, s, (size_t)(gap - s), bytes) : NONE;
		int64_t nr = nl > 0 ? decode(byte_of, gap + 1, line[i].len - (size_t)(gap + 1 - s), bytes + nl) : NONE;
		int32_t left = NONE, right = NONE, whole = NONE;
		if (nr > 0) {
			left = *slot_of_bytes(t, bytes, (size_t)nl);
			right = *slot_of_bytes(t, bytes + nl, (size_t)nr);
			whole = *slot_of_bytes(t, bytes, (size_t)(nl + nr));
		}
		if (left == NONE || right == NONE || whole == NONE) {
			rc = rk_fail(e, RK_EMODEL, "%s: %s[%zu] = \"%.*s\" is not two tokens that make a third",
				rk_gguf_path(g), key, i, (int)(line[i].len < 80 ? line[i].len : 80), s);
			break;
		}
		rk_bpe_add(&t->bpe, (int32_t)i, left, right, whole);
	}
	free(line);
	free(bytes);
	return rc;
}

/* ---- named ids ----------------------------------------------------------------------------------------------- */

/* *id = the token that key names, NONE when the key is absent. */
static int load_id(const rk_tokenizer *t, const rk_gguf *g, const char *key, int32_t *id, rk_err *e)
{
	uint32_t v = 0;
	int rc = rk_gguf_u32(g, key, &v, e);

	*id = NONE;
	if (rc)
		return rc < 0 ? -1 : 0;
	if (v >= (uint32_t)t->n_vocab)
		return rk_fail(e, RK_EMODEL, "%s: %s = %u, but the vocabulary has %d tokens",
			rk_gguf_path(g), key, v, t->n_vocab);
	*id = (int32_t)v;
	return 0;
}

/* A chat model often ends its replies with another token than eos_token_id names, so the known markers end one too.
 * Ordinary tokens with such a name do not: there it is text. */
static int load_ids(rk_tokenizer *t, const rk_gguf *g, rk_err *e)
{
	static const char *const end_keys[] = {
		"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
	};
	static const char *const end_names[] = {
		"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<end_of_turn>", "</s>",
	};
	for (size_t i = 0; i < sizeof end_keys / sizeof end_keys[0]; i++) {
		int32_t id;
		if (load_id(t, g, end_keys[i], &id, e))
			return -1;
		if (id != NONE)
			t->tok[id].end = true;
	}
	for (size_t i = 0; i < sizeof end_names / sizeof end_names[0]; i++) {
		int32_t id = rk_token_find(t, end_names[i]);
		if (id != NONE && (t->tok[id].control || t->tok[id].user))
			t->tok[id].end = true;
	}
	if (load_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, e))
		return -1;
	int rc = rk_gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, e);
	if (rc < 0)
		return -1;
	if (rc > 0)
		t->adds_bos = t->pre->adds_bos && t->bos != NONE;
	if (t->adds_bos && t->bos == NONE)
		return rk_fail(e, RK_EMODEL,
			"%s: tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing", rk_gguf_path(g));
	return 0;
}

int rk_tokenizer_init(rk_tokenizer **out, const rk_gguf *g, rk_err *e)
{
	static const char key[] = "tokenizer.ggml.model";
	int16_t byte_of[ALPHABET_END];
	rk_str model = { "", 0 };
	int rc = rk_gguf_str(g, key, &model, e);

	*out = NULL;
	if (rc < 0)
		return -1;
	if (rc > 0)
		return rk_fail(e, RK_EMODEL, "%s: %s is missing: the file has no vocabulary", rk_gguf_path(g), key);
	if (model.len != 4 || memcmp(model.s, "gpt2", 4))
		return rk_fail(e, RK_EMODEL, "%s: %s = \"%.*s\" is not supported, only \"gpt2\" (byte-level BPE) is",
			rk_gguf_path(g), key, (int)(model.len < 40 ? model.len : 40), model.s);
	rk_tokenizer *t = calloc(1, sizeof *t);
	if (!t)
		return no_memory(g, e);
	make_alphabet(byte_of);
	if (init_pre(t, g, e) || load_tokens(t, g, byte_of, e) || index_tokens(t, g, e) || index_specials(t, g, e) ||
			load_merges(t, g, byte_of, e) || load_ids(t, g, e)) {
		rk_tokenizer_free(t);
		return -1;
	}
	*out = t;
	return 0;
}

void rk_tokenizer_free(rk_tokenizer *t)
{
	if (!t)
		return;
	pcre2_code_free(t->split);
	free(t->special);
	rk_bpe_free(&t->bpe);
	free(t->by_bytes);
	free(t->tok);
	free(t->arena);
	free(t);
}

/* ---- tokenizing ---------------------------------------------------------------------------------------------- */

/* Scratch of one call. */
struct job {
	const rk_tokenizer *t;
	pcre2_match_data *match;
	pcre2_match_context *limits;
	rk_bpe_scratch bpe;
	int32_t *ids;		/* [cap_ids] the answer so far */
	size_t n_ids, cap_ids;
};

static int out_of_memory(rk_err *e)
{
	return rk_fail(e, RK_ENOMEM, "no memory to tokenize the text");
}

/* Room for n more ids. */
static int reserve(struct job *j, size_t n, rk_err *e)
{
	if (n <= j->cap_ids - j->n_ids)
		return 0;
	size_t cap = 2 * j->cap_ids + n;
	int32_t *ids = realloc(j->ids, cap * sizeof *ids);
	if (!ids)
		return out_of_memory(e);
	j->ids = ids;
	j->cap_ids = cap;
	return 0;
}

/* One piece: its bytes' tokens, merged in place at the end of the answer. */
static int add_piece(struct job *j, const char *s, size_t n, rk_err *e)
{
	const rk_tokenizer *t = j->t;

	if (reserve(j, n, e))
		return -1;
	if (t->pre->whole_words) {
		int32_t id = *slot_of_bytes(t, s, n);
		if (id != NONE) {
			j->ids[j->n_ids++] = id;
			return 0;
		}
	}
	int32_t *ids = j->ids + j->n_ids, n_sym = 0;
	for (size_t i = 0; i < n; i++)
		if (t->byte_id[(uint8_t)s[i]] != NONE)
			ids[n_sym++] = t->byte_id[(uint8_t)s[i]];
	int64_t kept = rk_bpe_merge(&t->bpe, &j->bpe, ids, n_sym);
	if (kept < 0)
		return out_of_memory(e);
	j->n_ids += (size_t)kept;
	return 0;
}

/* Cuts ordinary text into pieces.  s is known to be valid UTF-8. */
static int split_text(struct job *j, const char *s, size_t n, rk_err *e)
{
	PCRE2_SIZE *span = pcre2_get_ovector_pointer(j->match);

	for (size_t at = 0; at < n; at = span[1]) {
		int rc = pcre2_match(j->t->split, (PCRE2_SPTR)s, n, at, PCRE2_NO_UTF_CHECK, j->match, j->limits);
		if (rc < 0 || span[1] <= at) {
			PCRE2_UCHAR why[120] = "empty match";
			if (rc < 0)
				pcre2_get_error_message(rc, why, sizeof why);
			return rk_fail(e, RK_EFAIL, "pre-tokenizer %s failed at byte %zu of %zu: %s", j->t->pre->name, at, n, why);
		}
		if (add_piece(j, s + at, span[1] - at, e))
			return -1;
	}
	return 0;
}

static int tokenize_text(struct job *j, const char *s, size_t n, rk_err *e)
{
	if (!j->t->pre->nfc || !n)
		return split_text(j, s, n, e);
	utf8proc_uint8_t *nfc = NULL;
	utf8proc_ssize_t len = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &nfc,
		UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	if (len < 0)
		return rk_fail(e, RK_EFAIL, "text could not be normalised: %s", utf8proc_errmsg(len));
	int rc = split_text(j, (char *)nfc, (size_t)len, e);
	free(nfc);
	return rc;
}

/* The longest special token that s starts with, among those that flags ask for. */
static const struct special *special_at(const rk_tokenizer *t, const char *s, size_t n, unsigned flags)
{
	const struct special *best = NULL, *sp = t->special;
	size_t lo = t->special_from[(uint8_t)s[0]], hi = t->special_from[(uint8_t)s[0] + 1];

	/* [lo, hi): the specials that share s[0..depth).  Shorter ones sort first, so those that end here are at lo. */
	for (size_t depth = 1; lo < hi; depth++) {
		for (; lo < hi && sp[lo].len == depth; lo++)
			if ((flags & RK_TOK_SPECIAL) || t->tok[sp[lo].id].user)
				best = &sp[lo];
		if (depth == n)
			break;
		uint8_t c = (uint8_t)s[depth];
		size_t a = lo, b = hi;
		while (a < b) {			/* first with byte >= c */
			size_t mid = (a + b) / 2;
			if ((uint8_t)sp[mid].bytes[depth] < c)
				a = mid + 1;
			else
				b = mid;
		}
		lo = a;
		for (b = hi; a < b; ) {		/* first with byte > c */
			size_t mid = (a + b) / 2;
			if ((uint8_t)sp[mid].bytes[depth] <= c)
				a = mid + 1;
			else
				b = mid;
		}
		hi = a;
	}
	return best;
}

static int tokenize_all(struct job *j, const char *text, size_t len, unsigned flags, const rk_stretch *said, size_t n_said, rk_err *e)
{
	bool any = j->t->has_user || ((flags & RK_TOK_SPECIAL) && j->t->n_special);
	size_t start = 0;

	for (size_t i = 0, k = 0; any && i < len; ) {
		while (k < n_said && said[k].at + said[k].len <= i)
			k++;
		bool is_said = k < n_said && said[k].at <= i;
		const struct special *sp = special_at(j->t, text + i, len - i, is_said ? flags & ~(unsigned)RK_TOK_SPECIAL : flags);
		if (!sp) {
			i++;
			continue;
		}
		if (tokenize_text(j, text + start, i - start, e) || reserve(j, 1, e))
			return -1;
		j->ids[j->n_ids++] = sp->id;
		start = i += sp->len;
	}
	if (tokenize_text(j, text + start, len - start, e) || reserve(j, 1, e))
		return -1;
	if ((flags & RK_TOK_BOS) && j->t->adds_bos && (j->n_ids == 0 || j->ids[0] != j->t->bos)) {
		memmove(j->ids + 1, j->ids, j->n_ids++ * sizeof *j->ids);
		j->ids[0] = j->t->bos;
	}
	return 0;
}

int rk_tokenize(const rk_tokenizer *t, const char *text, size_t len, unsigned flags, int32_t **ids, size_t *n, rk_err *e)
{
	return rk_tokenize_said(t, text, len, flags, NULL, 0, ids, n, e);
}

int rk_tokenize_said(const rk_tokenizer *t, const char *text, size_t len, unsigned flags, const rk_stretch *said, size_t n_said, int32_t **ids,
                     size_t *n, rk_err *e)
{
	struct job j = { .t = t };
	size_t bad;
	int rc = -1;

	*ids = NULL;
	*n = 0;
	if (len > INT32_MAX)
		return rk_fail(e, RK_EFAIL, "text of %zu bytes is too long to tokenize, at most %d", len, INT32_MAX);
	if (rk_utf8_check(text, len, &bad))
		return rk_fail(e, RK_EFAIL, "text is not valid UTF-8: byte 0x%02X at offset %zu", (uint8_t)text[bad], bad);
	j.match = pcre2_match_data_create_from_pattern(t->split, NULL);
	j.limits = pcre2_match_context_create(NULL);
	if (!j.match || !j.limits) {
		out_of_memory(e);
		goto done;
	}
	/* PCRE2's limits guard against patterns that backtrack without end.  Ours do not: an alternative gives back at most
	 * the white space that it took, once.  A long run of spaces must not hit a limit meant for something else. */
	pcre2_set_match_limit(j.limits, UINT32_MAX);
	pcre2_set_depth_limit(j.limits, UINT32_MAX);
	rc = tokenize_all(&j, text, len, flags, said, n_said, e);
done:
	pcre2_match_context_free(j.limits);
	pcre2_match_data_free(j.match);
	rk_bpe_scratch_free(&j.bpe);
	if (rc) {
		free(j.ids);
		return -1;
	}
	*ids = j.ids;
	*n = j.n_ids;
	return 0;
}

/* ---- questions about tokens ---------------------------------------------------------------------------------- */

int rk_tokenizer_n_vocab(const rk_tokenizer *t)
{
	return t->n_vocab;
}

const char *rk_tokenizer_pre(const rk_tokenizer *t)
{
	return t->pre->name;
}

const char *rk_token_bytes(const rk_tokenizer *t, int32_t id, size_t *len)
{
	*len = t->tok[id].len;
	return t->tok[id].bytes;
}

bool rk_token_is_control(const rk_tokenizer *t, int32_t id)
{
	return t->tok[id].control;
}

bool rk_token_is_end(const rk_tokenizer *t, int32_t id)
{
	return t->tok[id].end;
}

/* Linear: callers ask for a handful of names, once. */
int32_t rk_token_find(const rk_tokenizer *t, const char *name)
{
	int16_t byte_of[ALPHABET_END];
	size_t len = strlen(name);
	char *bytes = malloc(len + 1);
	int32_t found = NONE;

	make_alphabet(byte_of);
	int64_t n = bytes ? decode(byte_of, name, len, bytes) : NONE;
	for (int32_t id = 0; id < t->n_vocab && found == NONE; id++) {
		const struct token *k = &t->tok[id];
		const char *want = k->indexed ? bytes : name;
		int64_t want_len = k->indexed ? n : (int64_t)len;
		if (k->len == want_len && !memcmp(k->bytes, want, k->len))
			found = id;
	}
	free(bytes);
	return found;
}
