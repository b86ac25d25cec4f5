/* vocab.h: the text behind a recording's token ids, from the model file that it was recorded with, if that is here.
 *
 * A trace holds the text of the tokens that were written but only the ids of those that might have been.
 */
#ifndef RK_CMD_VOCAB_H
#define RK_CMD_VOCAB_H

#include "trace/trace.h"

typedef struct rk_vocab {
	rk_gguf *file;
	rk_tokenizer *tok;	/* NULL: none, ids are shown as numbers */
} rk_vocab;

/* path: of the model; NULL: the default model, which may be missing or another one, and then there is no vocabulary.  A model that
 * was named and is not the recorded one is an error (RK_EUSAGE). */
int rk_vocab_open(rk_vocab *v, const rk_trace_header *h, const char *path, rk_err *e);
void rk_vocab_close(rk_vocab *v);

#endif
