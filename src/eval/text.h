/* text.h: a text in tokens, cut into windows for measuring perplexity.
 *
 * Special tokens in the text are ordinary text; where the model wants a BOS it takes the place of each window's first token, as it
 * stood before every text the model was trained on.
 */
#ifndef RK_EVAL_TEXT_H
#define RK_EVAL_TEXT_H

#include "model/tokenizer.h"

typedef struct rk_text {
	const char *name;	/* for errors; borrowed */
	int32_t *ids;		/* [n] owned */
	size_t n;
	int32_t bos;		/* -1: windows start with the text's own token */
} rk_text;

int rk_text_init(rk_text *t, const char *name, const rk_tokenizer *tok, const char *text, size_t len, rk_err *e);
void rk_text_free(rk_text *t);
/* Is there a window of ctx tokens of prompt and eval tokens that are scored at this offset? */
int rk_text_check(const rk_text *t, size_t offset, int ctx, int eval, rk_err *e);
/* The window's ctx + eval ids in a new array. */
int rk_text_window(const rk_text *t, size_t offset, int ctx, int eval, int32_t **ids, rk_err *e);

#endif
