/* eval_work.h: the items of an evaluation (group of policies, task, length, index), run one after the other in a fixed order: an
 * engine for the policies of a group, examples, and a record each.
 *
 * A shard takes every n-th item; what the records hold is not run again, so that a run that was ended goes on where it was.
 * Main thread.
 */
#ifndef RK_CMD_EVAL_WORK_H
#define RK_CMD_EVAL_WORK_H

#include "cmd/eval_plan.h"
#include "eval/given.h"
#include "eval/records.h"
#include "eval/text.h"

typedef struct rk_eval_work {
	const rk_eval_plan *plan;		/* borrowed */
	rk_records *records;			/* borrowed */
	rk_engine *g;
	int open_group;				/* which g is open for; -1: none */
	rk_text text[RK_EVAL_MAX_TASK];		/* with ppl */
	rk_given_kept kept;			/* the data file read last */
	int64_t start_ns, shown_ns;
	long done, made, total;			/* items of this shard; made: by this process */
} rk_eval_work;

void rk_eval_work_init(rk_eval_work *w, const rk_eval_plan *plan, rk_records *records);
void rk_eval_work_close(rk_eval_work *w);

/* All items that the records lack.  2 when interrupted; done and total say how far it came. */
int rk_eval_work_run(rk_eval_work *w, rk_err *e);

/* An engine for the lanes of a group. */
int rk_eval_work_open(rk_eval_work *w, int group, rk_err *e);
/* One example, which is the caller's to free, sized with the engine that is open.  1: there is no such one. */
int rk_eval_work_example(rk_eval_work *w, int task, int length, int index, rk_example *x, rk_err *e);

#endif
