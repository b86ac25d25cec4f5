/* source.h: lines of a file, plain or zstd, with seeking by offset in the uncompressed text.
 *
 * Memory: a buffer of at most RK_TRACE_MAX_LINE and one pair of offsets per MiB of compressed text.
 */
#ifndef RK_TRACE_SOURCE_H
#define RK_TRACE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef struct rk_source rk_source;

int rk_source_open(rk_source **s, const char *path, rk_err *e);
void rk_source_close(rk_source *s);	/* NULL is fine */

/* 1: the next line without its newline, valid until the next call; 0: the end; -1: it cannot be read or is too long (what
 * follows it can still be read).  Messages do not name the file. */
int rk_source_line(rk_source *s, const char **line, size_t *len, rk_err *e);
int64_t rk_source_tell(const rk_source *s);	/* where the line last returned starts */
/* The next line starts there.  Compressed: only to where reading has been.  The line in hand stays valid when it is what is
 * sought. */
int rk_source_seek(rk_source *s, int64_t at, rk_err *e);
/* At the end: bytes without a newline, or a compressed frame that is not complete, were left out. */
bool rk_source_cut(const rk_source *s);

#endif
