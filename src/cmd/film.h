/* film.h: the replayed screen as asciicast v2, without a terminal.
 *
 * The screen is the one of `replay`, drawn into a file in memory.  Time is that of the trace and never the machine's, so the
 * same trace, size and speed give the same bytes, as fast as they can be drawn.  One screen per process (screen.h).
 */
#ifndef RK_CMD_FILM_H
#define RK_CMD_FILM_H

#include "trace/trace.h"

/* text: COLSxROWS. */
int rk_film_size(const char *text, int *cols, int *rows, rk_err *e);
/* The trace from where it is to its end; the last frame stays on the screen.  speed: times the recorded pace, above 0.
 * Write errors of f are the caller's to check. */
int rk_film(rk_trace *t, int cols, int rows, double speed, FILE *f, rk_err *e);

#endif
