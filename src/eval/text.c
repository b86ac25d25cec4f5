/* text.c: see text.h */
#include "eval/text.h"

#include <stdlib.h>
#include <string.h>

int rk_text_init(rk_text *t, const char *name, const rk_tokenizer *tok, const char *text, size_t len, rk_err *e)
{
	int32_t *bos;
	size_t n;

	*t = (rk_text){ .name = name, .bos = -1 };
	if (rk_tokenize(tok, "", 0, RK_TOK_BOS, &bos, &n, e))
		return -1;
	if (n == 1)
		t->bos = bos[0];
	free(bos);
	return rk_tokenize(tok, text, len, 0, &t->ids, &t->n, e);
}

void rk_text_free(rk_text *t)
{
	free(t->ids);
	*t = (rk_text){ 0 };
}

int rk_text_check(const rk_text *t, size_t offset, int ctx, int eval, rk_err *e)
{
	size_t need = offset + (size_t)ctx + (size_t)eval;

	if (need <= t->n)
		return 0;
	return rk_fail(e, RK_EFAIL, "%s: %zu tokens, the window at offset %zu needs %zu (%d of prompt and %d scored from there)", t->name, t->n,
	               offset, need, ctx, eval);
}

int rk_text_window(const rk_text *t, size_t offset, int ctx, int eval, int32_t **ids, rk_err *e)
{
	size_t n = (size_t)ctx + (size_t)eval;

	*ids = malloc(n * sizeof **ids);
	if (!*ids)
		return rk_fail(e, RK_ENOMEM, "%s: no memory for %zu tokens", t->name, n);
	memcpy(*ids, t->ids + offset, n * sizeof **ids);
	if (t->bos >= 0)
		(*ids)[0] = t->bos;
	return 0;
}
