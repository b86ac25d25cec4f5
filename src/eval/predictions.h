/* predictions.h: RULER's prediction files (scripts/pred/call_api.py): one JSON object a line for each example of a task.
 *
 * What is written here can be scored by RULER's scripts/eval/evaluate.py, which expects DIR/TASK.jsonl, and what its
 * scripts wrote can be scored here.
 */
#ifndef RK_EVAL_PREDICTIONS_H
#define RK_EVAL_PREDICTIONS_H

#include <stdio.h>
#include "eval/task.h"

/* One line.  n_token: of prompt and reply limit together, or -1.  path is for errors. */
int rk_predictions_write(FILE *f, const char *path, int index, const rk_example *x, const char *reply, int n_token, rk_err *e);

typedef struct rk_predictions {
	int n, n_null;	/* lines; of these with an empty prediction */
	double score;	/* mean of the task's score, 0 to 1; NaN for none */
} rk_predictions;

/* Scores a file by the rule of a RULER task.  Errors are "path:line: what". */
int rk_predictions_score(const rk_task *t, const char *path, rk_predictions *out, rk_err *e);

#endif
