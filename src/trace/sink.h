/* sink.h: the file that a trace is written to, plain or zstd: whole lines or nothing.
 *
 * Lines gather in memory until a flush.  When a flush fails, the file is cut back to where the last one ended, so that it
 * ends with a whole line; nothing is written after that.  Compressed files are frames of a few MiB, each flush a block
 * that can be read, each frame a place to seek to.
 */
#ifndef RK_TRACE_SINK_H
#define RK_TRACE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef struct rk_sink rk_sink;

/* An existing regular file is an error (RK_EUSAGE) without force, and emptied with it. */
int rk_sink_open(rk_sink **s, const char *path, bool force, rk_err *e);
int rk_sink_add(rk_sink *s, const char *line, size_t len, rk_err *e);
int rk_sink_flush(rk_sink *s, rk_err *e);
size_t rk_sink_waiting(const rk_sink *s);	/* bytes that a flush would write */
/* Ends the frame, closes, frees.  NULL is fine. */
int rk_sink_close(rk_sink *s, rk_err *e);

#endif
