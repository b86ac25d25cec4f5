/* task.h: what an evaluation asks and how an answer is scored: pure text, no model, no engine.
 *
 * A task makes its examples one by one, each from (seed, index) alone, so that shards, resumed runs and other machines see
 * the same ones.  The runner (runner.h) turns an example into tokens, runs it under every policy as lanes of one session,
 * and hands each reply to the task's score.
 */
#ifndef RK_EVAL_TASK_H
#define RK_EVAL_TASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* One example.  The user's message is context followed by question; the reply begins with prefix. */
typedef struct rk_example {
	char *context;	/* what a policy may see before the question is known (--question after) */
	char *question;	/* the rest of the message; "" where the task has none */
	char *prefix;	/* given to the model after the chat template, not part of the reply that is scored; "" for none */
	char **answer;	/* [n_answer] what a right reply holds; the task's score knows how */
	int n_answer;
	int max_new;	/* most tokens of a reply */
	json_t *data;	/* what the scorer needs besides and what goes into the record (depth, keys ...); may be NULL */
} rk_example;

void rk_example_free(rk_example *x);

/* What makes an example: the same values give the same example, byte for byte. */
typedef struct rk_task_env {
	uint64_t seed;
	int length;			/* tokens that prompt, chat template and reply may take together; 0 (longproc only): the task's own size */
	/* Tokens of the prompt as the model will see it, template and prefix included; -1 when that failed. */
	int (*count)(void *ctx, const rk_example *x, rk_err *e);
	void *ctx;
	struct rk_given_kept *kept;	/* (given.h) the file that the example before was read from; NULL: none is kept */
	const char *data_dir;		/* files of the tasks that read some; NULL: not given */
	const char *haystack;		/* file with the essays of RULER's niah tasks; NULL: not given */
} rk_task_env;

enum { RK_TASK_FILES = 3 };

typedef struct rk_task {
	const char *suite, *name;	/* `refreshkv eval SUITE --task NAME` */
	const char *doc;		/* one line for --help and the tables */
	int n_example;			/* examples by default */
	/* Fills x.  1 when there is no example `index` (files have an end).  The error names file, line and what to do. */
	int (*make)(const struct rk_task *t, const rk_task_env *env, int index, rk_example *x, rk_err *e);
	/* Score of a reply in [0, 1].  *detail (may stay NULL) goes into the record: what was right, precision, recall ... */
	double (*score)(const rk_example *x, const char *reply, json_t **detail);
	const char *file[RK_TASK_FILES];	/* what it reads below data_dir; NULL: no more */
	const char *url;		/* where those files are from */
	bool essays;			/* it reads the haystack */
	const void *spec;		/* what variants of one make/score differ in */
	const char *refused;		/* why it cannot be run here; NULL: it can.  make and score are not called then */
} rk_task;

/* Tables that end with name = NULL. */
extern const rk_task rk_tasks_needle[], rk_tasks_chain_of_key[], rk_tasks_ruler[], rk_tasks_longproc[];
extern const rk_task *const rk_suites[];	/* those tables, in the order of --help; ends with NULL */

/* For tasks that grow by pieces (lines, sentences): makes the example of the most pieces, at least `lo`, that env->length holds
 * with its reply; the tokens that are left over, less than one piece, are added to max_new.  build makes the example of n pieces. */
typedef int (*rk_build_fn)(void *ctx, int n, rk_example *x, rk_err *e);
int rk_task_fit(const rk_task_env *env, int lo, rk_build_fn build, void *ctx, rk_example *x, rk_err *e);

#endif
