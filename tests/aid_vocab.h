/* aid_vocab.h: vocabularies for the tokenizer's tests, written as GGUF files and read back.
 *
 * A new one has the 256 bytes as tokens 0..255, ordinary, spelled as GPT-2 does; the test adds tokens and merges.
 * Fields may be set to what a damaged file would hold.  Every failure of the helper itself is an abort.
 */
#ifndef AID_VOCAB_H
#define AID_VOCAB_H

#include "model/tokenizer.h"

enum { AID_ORDINARY = 1, AID_CONTROL = 3, AID_USER = 4 };
enum { AID_MAX_TOKEN = 1024, AID_MAX_MERGE = 8192 };

typedef struct aid_vocab {
	char *token[AID_MAX_TOKEN], *merge[AID_MAX_MERGE];	/* as spelled in the file; owned */
	int32_t type[AID_MAX_TOKEN];
	size_t n, n_merge;
	size_t n_type;			/* entries of token_type; differs from n only in damaged files */
	const char *model, *pre;	/* these and the rest: NULL = the key is left out */
	const uint32_t *bos, *eos, *eot;
	const bool *add_bos;
} aid_vocab;

aid_vocab *aid_vocab_new(const char *pre);
int32_t aid_vocab_add(aid_vocab *v, const char *bytes, size_t n);		/* ordinary; returns the id */
int32_t aid_vocab_add_raw(aid_vocab *v, const char *name, int32_t type);	/* the name as it is */
void aid_vocab_merge(aid_vocab *v, const char *left, size_t n_left, const char *right, size_t n_right);
void aid_vocab_merge_raw(aid_vocab *v, const char *line);
aid_vocab *aid_vocab_without(aid_vocab *v, int byte);	/* that byte has no token any more; returns v */

/* Writes the file, opens a tokenizer from it as rk_tokenizer_init does, closes the file, frees v. */
int aid_vocab_open(aid_vocab *v, rk_tokenizer **t, rk_err *e);

#endif
