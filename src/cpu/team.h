/* team.h: the threads of the CPU backend: fork and join over pieces of work, several hundred times per token.
 *
 * Why not OpenMP's own teams: libgomp shares a loop out and then spins for a descheduled thread, so on a machine where
 * something else holds a core (an editor, a recorder, another run) each region costs milliseconds instead of under one
 * microsecond.  Here every worker claims pieces one by one, the caller too; a worker that the system has put aside simply
 * claims none.  Idle workers spin for a bounded time, then sleep.
 */
#ifndef RK_CPU_TEAM_H
#define RK_CPU_TEAM_H

#include <stdint.h>
#include "base/err.h"

typedef struct rk_team rk_team;

/* Does piece `piece` as worker `worker`, 0 <= worker < the team's size. */
typedef void (*rk_team_fn)(void *ctx, int piece, int worker);

/* n_thread workers, the caller of rk_team_run included. */
int rk_team_open(rk_team **t, int n_thread, rk_err *e);
void rk_team_close(rk_team *t);	/* NULL is fine */

/* Calls fn for each piece 0 .. n-1 exactly once, on any worker, and returns when all are done.  What the pieces wrote is
 * visible to the caller then.  Pieces begin in order, so that one may wait for what earlier ones do.  One caller at a time;
 * fn must not call it. */
void rk_team_run(rk_team *t, int n, rk_team_fn fn, void *ctx);
/* In a piece: waits until earlier ones have counted n_done up to n (by atomic_fetch_add, release), and sees what they wrote. */
void rk_team_wait(_Atomic int *n_done, int n);

#endif
