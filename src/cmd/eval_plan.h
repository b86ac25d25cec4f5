/* eval_plan.h: what an evaluation is to do, read from the command line: suite, tasks, lengths, policies, shard, and the header that
 * says so in the results file. */
#ifndef RK_CMD_EVAL_PLAN_H
#define RK_CMD_EVAL_PLAN_H

#include <jansson.h>
#include "cmd/cmd.h"
#include "eval/task.h"

#define RK_EVAL_MAX_POLICY 64
#define RK_EVAL_MAX_LENGTH 16
#define RK_EVAL_MAX_TASK 64

enum rk_question { RK_QUESTION_INSIDE, RK_QUESTION_AFTER };
extern const char *const rk_question_names[];

typedef struct rk_eval_opts {
	rk_opt_list task, policy, sweep;
	const char *length, *offset, *json, *csv, *svg, *shard, *data, *haystack, *predictions;
	int examples, seed, eval;
	enum rk_question question;
	bool mpi, quiet;
	rk_model_opts model;
	rk_engine_opts engine;
} rk_eval_opts;

typedef struct rk_eval_plan {
	const rk_eval_opts *o;
	const char *suite;
	bool ppl;				/* texts instead of tasks */
	const rk_task *task[RK_EVAL_MAX_TASK];	/* NULL with ppl */
	const char *task_name[RK_EVAL_MAX_TASK];	/* paths of texts with ppl */
	const rk_task *left_out[RK_EVAL_MAX_TASK];	/* of the suite, since they lack what they read */
	int n_left_out;
	int n_task, length[RK_EVAL_MAX_LENGTH], n_length, offset[RK_OPT_LIST_MAX], n_offset;
	rk_policy policy[RK_EVAL_MAX_POLICY];
	char name[RK_EVAL_MAX_POLICY][RK_SPEC_MAX];	/* as typed, with what a sweep adds */
	int n_policy, base;			/* base: the baseline, the first vanilla */
	int n_group;				/* of policies that run together */
	int shard, n_shard;			/* from 0 */
	char model_path[RK_PATH_MAX], json_path[RK_PATH_MAX];	/* json_path "": results stay in memory */
} rk_eval_plan;

/* operand: the suite, then the texts of ppl. */
int rk_eval_plan_make(rk_eval_plan *p, const rk_eval_opts *o, const rk_opt_list *operand, rk_err *e);
/* The option with what this task reads, where it is not given; NULL: it has all. */
const char *rk_eval_plan_lacks(const rk_eval_plan *p, const rk_task *t);
/* Every parameter that results depend on. */
json_t *rk_eval_plan_header(const rk_eval_plan *p, rk_err *e);
/* Examples of a task and length. */
int rk_eval_plan_n(const rk_eval_plan *p, int task);
/* Most tokens of a lane at this length. */
int rk_eval_plan_ctx(const rk_eval_plan *p, int length);
/* Policies that run together: all, or, where they are more than one session holds, the baseline and the next ones of the others. */
void rk_eval_plan_lanes(const rk_eval_plan *p, int group, rk_session_cfg *s);

#endif
