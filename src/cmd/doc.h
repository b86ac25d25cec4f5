/* doc.h: documents: text from a file or standard input, checked on the way in.
 *
 * A document is valid UTF-8 without NUL bytes (a NUL marks a binary file; C strings carry the text from here on).  What
 * is not valid is an error that names the offset, or, with lossy, becomes U+FFFD.
 */
#ifndef RK_CMD_DOC_H
#define RK_CMD_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define RK_DOC_MAX (256u << 20)	/* bytes; far beyond any context, so that a wrong file is noticed early */

/* path "-": standard input.  *text is allocated, NUL-terminated beyond *len; free() it.  An empty document is an error. */
int rk_doc_read(const char *path, bool lossy, char **text, size_t *len, rk_err *e);

/* Is there a document on standard input: a pipe, a file or a socket, and not a terminal or /dev/null? */
bool rk_doc_on_stdin(void);

/* Checks text that came as an option ("-p"). */
int rk_doc_check(const char *what, const char *text, size_t len, rk_err *e);

/* Bytes as they are, without any check; an empty file is fine. */
int rk_doc_read_bytes(const char *path, char **data, size_t *len, rk_err *e);

/* Token ids separated by blanks or commas; brackets are passed over, so that a JSON array is fine too.  n may be 0. */
int rk_ids_parse(const char *name, const char *text, size_t len, int32_t **ids, size_t *n, rk_err *e);
/* Each id must be below n_vocab. */
int rk_ids_check(const char *name, const int32_t *ids, size_t n, int n_vocab, rk_err *e);

#endif
