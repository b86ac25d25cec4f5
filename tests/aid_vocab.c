/* aid_vocab.c: see aid_vocab.h */
#include "aid_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aid_gguf.h"

/* GPT-2's spelling: a printable Latin-1 character is itself, the 68 other bytes are U+0100 to U+0143 in order. */
static char *spell(const char *bytes, size_t n)
{
	char *out = malloc(2 * n + 1), *o = out;
	for (size_t i = 0; i < n; i++) {
		int b = (uint8_t)bytes[i];
		int c = b <= ' ' ? 0x100 + b : b >= 0x7F && b <= 0xA0 ? 0x121 + b - 0x7F : b == 0xAD ? 0x143 : b;
		if (c < 0x80) {
			*o++ = (char)c;
		} else {
			*o++ = (char)(0xC0 | c >> 6);
			*o++ = (char)(0x80 | (c & 0x3F));
		}
	}
	*o = 0;
	return out;
}

int32_t aid_vocab_add_raw(aid_vocab *v, const char *name, int32_t type)
{
	if (v->n == AID_MAX_TOKEN)
		abort();
	v->token[v->n] = strdup(name);
	v->type[v->n] = type;
	v->n_type++;
	return (int32_t)v->n++;
}

int32_t aid_vocab_add(aid_vocab *v, const char *bytes, size_t n)
{
	char *name = spell(bytes, n);
	int32_t id = aid_vocab_add_raw(v, name, AID_ORDINARY);
	free(name);
	return id;
}

void aid_vocab_merge_raw(aid_vocab *v, const char *line)
{
	if (v->n_merge == AID_MAX_MERGE)
		abort();
	v->merge[v->n_merge++] = strdup(line);
}

void aid_vocab_merge(aid_vocab *v, const char *left, size_t n_left, const char *right, size_t n_right)
{
	char *l = spell(left, n_left), *r = spell(right, n_right), *line;
	if (asprintf(&line, "%s %s", l, r) < 0)
		abort();
	aid_vocab_merge_raw(v, line);
	free(line);
	free(l);
	free(r);
}

aid_vocab *aid_vocab_without(aid_vocab *v, int byte)
{
	free(v->token[byte]);
	if (asprintf(&v->token[byte], "missing%d", byte) < 0)
		abort();
	return v;
}

aid_vocab *aid_vocab_new(const char *pre)
{
	aid_vocab *v = calloc(1, sizeof *v);
	v->model = "gpt2";
	v->pre = pre;
	for (int b = 0; b < 256; b++)
		aid_vocab_add(v, &(char){ (char)b }, 1);
	return v;
}

static aid_gguf *to_gguf(const aid_vocab *v)
{
	aid_gguf *w = aid_gguf_new();
	aid_gguf_str(w, "general.architecture", "llama");
	if (v->model)
		aid_gguf_str(w, "tokenizer.ggml.model", v->model);
	if (v->pre)
		aid_gguf_str(w, "tokenizer.ggml.pre", v->pre);
	aid_gguf_str_array(w, "tokenizer.ggml.tokens", (const char *const *)v->token, v->n);
	aid_gguf_array(w, "tokenizer.ggml.token_type", AID_I32, v->type, v->n_type, v->n_type * sizeof v->type[0]);
	aid_gguf_str_array(w, "tokenizer.ggml.merges", (const char *const *)v->merge, v->n_merge);
	if (v->bos)
		aid_gguf_u32(w, "tokenizer.ggml.bos_token_id", *v->bos);
	if (v->eos)
		aid_gguf_u32(w, "tokenizer.ggml.eos_token_id", *v->eos);
	if (v->eot)
		aid_gguf_u32(w, "tokenizer.ggml.eot_token_id", *v->eot);
	if (v->add_bos)
		aid_gguf_bool(w, "tokenizer.ggml.add_bos_token", *v->add_bos);
	return w;
}

int aid_vocab_open(aid_vocab *v, rk_tokenizer **t, rk_err *e)
{
	aid_gguf *w = to_gguf(v);
	rk_gguf *g;
	char path[32];
	size_t size;
	uint8_t *bytes = aid_gguf_bytes(w, &size);
	int fd = aid_memfd(bytes, size, path);

	if (rk_gguf_open(&g, path, e)) {
		fprintf(stderr, "aid_vocab: %s\n", e->msg);
		abort();
	}
	int rc = rk_tokenizer_init(t, g, e);
	rk_gguf_close(g);	/* the tokenizer must not point into the file */
	close(fd);
	free(bytes);
	aid_gguf_free(w);
	for (size_t i = 0; i < v->n; i++)
		free(v->token[i]);
	for (size_t i = 0; i < v->n_merge; i++)
		free(v->merge[i]);
	free(v);
	return rc;
}
