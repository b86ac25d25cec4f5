/* pair.h: one trace, or two of the same prompt side by side, as one stream of events.
 *
 * Of two, the second one's lanes follow those of the first, in one session.  They go in step: a token of one is handed over
 * when the other has come as far, reply by reply, so that both columns of the screen show the same place; time is that of
 * the first, and behind its end that of the second.
 */
#ifndef RK_TRACE_PAIR_H
#define RK_TRACE_PAIR_H

#include "trace/trace.h"

typedef struct rk_pair rk_pair;

/* b NULL: one trace.  Both are borrowed and are read by nobody else meanwhile.  RK_EUSAGE: their prompts, shapes or starts
 * differ, or they have more than RK_MAX_LANE lanes. */
int rk_pair_open(rk_pair **p, rk_trace *a, rk_trace *b, rk_err *e);
void rk_pair_close(rk_pair *p);		/* NULL is fine */
/* As rk_trace_next. */
int rk_pair_next(rk_pair *p, rk_event *ev, const void **payload, rk_err *e);
int rk_pair_rewind(rk_pair *p, rk_err *e);

rk_trace *rk_pair_trace(const rk_pair *p, int i);	/* 0, 1; NULL: there is none */
int rk_pair_n_lane(const rk_pair *p);
/* Two traces: both headers hold a digest of the prompt, and it is the same. */
bool rk_pair_same_prompt(const rk_pair *p);

#endif
