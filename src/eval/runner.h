/* runner.h: one example, or one window of a text, through every lane of an engine; what came of it as a JSON record.
 *
 * A record holds what was asked, and per policy the reply, its score and what it cost.  Everything that depends on the machine
 * and not on the question is in its `timing`, so that CPUs make equal records (a GPU rounds otherwise).  docs/EVAL.md lists the
 * fields.
 * Runs on the thread that reads the engine's events.
 */
#ifndef RK_EVAL_RUNNER_H
#define RK_EVAL_RUNNER_H

#include <stdbool.h>
#include "engine/engine.h"
#include "eval/task.h"

typedef struct rk_runner {
	rk_engine *g;		/* borrowed; every command runs to its RK_EV_IDLE */
	bool after;		/* policies select before they see the question */
} rk_runner;

/* The ->count of a rk_task_env whose ctx is a rk_runner. */
int rk_runner_count(void *runner, const rk_example *x, rk_err *e);

/* New record in *record: {"prompt_sha256", "prompt_tokens", "answer", "data", "policies": [...], "timing"}.  1 when the engine was
 * stopped: there is no record then. */
int rk_runner_example(rk_runner *r, const rk_task *t, const rk_example *x, json_t **record, rk_err *e);

/* The same for ids[0..ctx) as the prompt and ids[ctx..ctx + eval) as what every lane is given and scored on. */
int rk_runner_window(rk_runner *r, const int32_t *ids, int ctx, int eval, json_t **record, rk_err *e);

#endif
