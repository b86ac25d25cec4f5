/* asciicast.h: writes asciicast v2 (docs.asciinema.org/manual/asciicast/v2): a header line, then [seconds, "o", text].
 *
 * The screen hands over the bytes that it would have sent to a terminal, at the time of the trace.  A character is never
 * split over two events: its first bytes wait for the rest.
 */
#ifndef RK_TRACE_ASCIICAST_H
#define RK_TRACE_ASCIICAST_H

#include <stdint.h>
#include <stdio.h>
#include "base/err.h"

typedef struct rk_asciicast {
	FILE *f;		/* the caller's */
	char held[8];		/* start of a character that is not whole yet */
	size_t n_held;
	int64_t t_ns;		/* of the last event: time does not go back */
} rk_asciicast;

/* title may be NULL; timestamp: Unix time of the recording, 0: not known. */
int rk_asciicast_begin(rk_asciicast *a, FILE *f, int width, int height, const char *title, int64_t timestamp, rk_err *e);
int rk_asciicast_write(rk_asciicast *a, int64_t t_ns, const char *bytes, size_t n, rk_err *e);
int rk_asciicast_resize(rk_asciicast *a, int64_t t_ns, int width, int height, rk_err *e);
/* What is held back goes out as U+FFFD.  Errors of the stream are the caller's to check (ferror). */
int rk_asciicast_end(rk_asciicast *a, rk_err *e);

#endif
