/* tokenizer.h: byte-level BPE (GGUF tokenizer.ggml.model = gpt2), with the pre-tokenizer pattern named by the file.
 *
 * Patterns run in PCRE2 with Unicode properties.  Special tokens inside the text are parsed as such on request.
 * Immutable after init; rk_tokenize may be called from several threads.
 */
#ifndef RK_MODEL_TOKENIZER_H
#define RK_MODEL_TOKENIZER_H

#include "model/gguf.h"

typedef struct rk_tokenizer rk_tokenizer;

enum {
	RK_TOK_SPECIAL = 1,	/* "<|im_end|>" in the text becomes that token; otherwise it is ordinary text */
	RK_TOK_BOS = 2,		/* prepend BOS where the file says that this model wants one, and only if the text does not start with it */
};

int rk_tokenizer_init(rk_tokenizer **t, const rk_gguf *g, rk_err *e);
void rk_tokenizer_free(rk_tokenizer *t);

/* text: valid UTF-8, len bytes.  *ids is allocated (free() it); *n may be 0.  The ids' bytes are the text again, except
 * that a rare byte for which the vocabulary has no token is left out, as in the tokenizer that the model was trained with. */
int rk_tokenize(const rk_tokenizer *t, const char *text, size_t len, unsigned flags, int32_t **ids, size_t *n, rk_err *e);

/* The same for a prompt that a chat template has written: in the stretches `said`, ascending, the names of control tokens are ordinary
 * text whatever flags say, so that a document which holds "<|im_end|>" does not end its message. */
typedef struct rk_stretch {
	size_t at, len;		/* bytes of the text */
} rk_stretch;
int rk_tokenize_said(const rk_tokenizer *t, const char *text, size_t len, unsigned flags, const rk_stretch *said, size_t n_said, int32_t **ids,
                     size_t *n, rk_err *e);

int rk_tokenizer_n_vocab(const rk_tokenizer *t);
const char *rk_tokenizer_pre(const rk_tokenizer *t);	/* "smollm", "llama-bpe", ... */
/* The bytes that a token stands for (a UTF-8 character may be split over tokens), or for a control token its name.
 * Never NULL for 0 <= id < n_vocab. */
const char *rk_token_bytes(const rk_tokenizer *t, int32_t id, size_t *len);
bool rk_token_is_control(const rk_tokenizer *t, int32_t id);
/* Any token that ends a reply: eos, eot, and the known end markers of the vocabulary (<|im_end|>, <|eot_id|>, ...). */
bool rk_token_is_end(const rk_tokenizer *t, int32_t id);
int32_t rk_token_find(const rk_tokenizer *t, const char *name);	/* id of a token by its exact name, -1: absent */

#endif
