/* fuzz_tokenizer.c: any bytes through rk_tokenize (libFuzzer: `make fuzz`, needs clang).
 *
 * First input byte: pre-tokenizer and flags; the rest is the text.  Invalid UTF-8 is an error.  Anything else gives ids
 * in range whose bytes are the text again (its NFC form for qwen2, not compared), behind a BOS where one was added.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aid_vocab.h"
#include "base/utf8.h"

static const char *const pres[] = { "smollm", "gpt2", "llama-bpe", "qwen2" };
enum { N_PRE = 4, QWEN2 = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_tokenizer: %s\n", what);
	abort();
}

static rk_tokenizer *make(const char *pre)
{
	static const char *const words[] = {
		"th", "the", "  ", "    ", "\n\n", "12", "\xC3\xA9", "\xF0\x9F", "aa", "aaaa",
	};
	static const uint32_t bos = 256;
	static const bool add_bos = true;
	aid_vocab *v = aid_vocab_new(pre);
	rk_tokenizer *t = NULL;
	rk_err e = { 0 };

	aid_vocab_add_raw(v, "<s>", AID_CONTROL);
	aid_vocab_add_raw(v, "<|a|>", AID_CONTROL);
	aid_vocab_add_raw(v, "<|a|>b", AID_CONTROL);
	aid_vocab_add_raw(v, "<u", AID_USER);
	aid_vocab_add_raw(v, "\xC3\xA9!", AID_USER);
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		size_t n = strlen(words[i]), left = n == 3 ? 2 : n / 2;
		aid_vocab_add(v, words[i], n);
		aid_vocab_merge(v, words[i], left, words[i] + left, n - left);
	}
	v->bos = &bos;
	v->add_bos = &add_bos;
	if (aid_vocab_open(v, &t, &e))
		require(false, e.msg);
	return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static rk_tokenizer *tokenizers[N_PRE];	/* live as long as the process */

	if (!size)
		return 0;
	unsigned which = data[0] % N_PRE, flags = data[0] / N_PRE & (RK_TOK_SPECIAL | RK_TOK_BOS);
	if (!tokenizers[which])
		tokenizers[which] = make(pres[which]);
	const rk_tokenizer *t = tokenizers[which];
	const char *text = (const char *)data + 1;
	size_t len = size - 1, n, at = 0, k;
	int32_t *ids;
	rk_err e = { 0 };

	bool valid = rk_utf8_check(text, len, NULL) == 0;
	int rc = rk_tokenize(t, text, len, flags, &ids, &n, &e);
	require((rc == 0) == valid, "valid UTF-8 was refused, or invalid accepted");
	if (rc)
		return 0;
	for (size_t i = 0; i < n; i++) {
		require(ids[i] >= 0 && ids[i] < rk_tokenizer_n_vocab(t), "id out of range");
		const char *b = rk_token_bytes(t, ids[i], &k);
		bool in_text = (flags & RK_TOK_SPECIAL) && len >= k && !memcmp(text, b, k);
		if (which == QWEN2 || (i == 0 && (flags & RK_TOK_BOS) && !in_text))
			continue;
		require(len - at >= k && !memcmp(text + at, b, k), "the ids' bytes are not the text");
		at += k;
	}
	require(which == QWEN2 || at == len, "text is missing from the ids");
	free(ids);
	return 0;
}
