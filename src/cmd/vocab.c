/* vocab.c: see vocab.h */
#include "cmd/vocab.h"

#include <string.h>
#include <unistd.h>
#include "base/paths.h"

void rk_vocab_close(rk_vocab *v)
{
	rk_tokenizer_free(v->tok);
	rk_gguf_close(v->file);
	*v = (rk_vocab){ 0 };
}

/* Not by its digest, which takes a while: a model of that name with as many tokens, split in the same way, has that vocabulary. */
static bool same(const rk_vocab *v, const rk_trace_header *h)
{
	rk_str name = { 0 };
	rk_err ignored;

	if (rk_gguf_str(v->file, "general.name", &name, &ignored) == 0 && (name.len != strlen(h->model) || memcmp(name.s, h->model, name.len)))
		return false;
	return rk_tokenizer_n_vocab(v->tok) == h->n_vocab && !strcmp(rk_tokenizer_pre(v->tok), h->tokenizer);
}

int rk_vocab_open(rk_vocab *v, const rk_trace_header *h, const char *path, rk_err *e)
{
	char own[RK_PATH_MAX];
	bool named = path;
	rk_err ignored;

	*v = (rk_vocab){ 0 };
	if (!named && (rk_path_default_model(own, &ignored) || access(own, R_OK)))
		return 0;
	path = named ? path : own;
	int rc = rk_gguf_open(&v->file, path, e) || rk_tokenizer_init(&v->tok, v->file, e) ? -1 : 0;
	if (rc == 0 && !same(v, h))
		rc = rk_fail(e, RK_EUSAGE, "%s: not the recorded model, %s: its tokens are others", path, h->model);
	if (rc)
		rk_vocab_close(v);
	return named ? rc : 0;
}
