/* task.c: what all tasks share: the list of suites, and sizing.  See task.h. */
#include "eval/task.h"

#include <stdlib.h>
#include <string.h>

const rk_task *const rk_suites[] = { rk_tasks_chain_of_key, rk_tasks_needle, rk_tasks_ruler, rk_tasks_longproc, NULL };

void rk_example_free(rk_example *x)
{
	free(x->context);
	free(x->question);
	free(x->prefix);
	for (int i = 0; i < x->n_answer; i++)
		free(x->answer[i]);
	free(x->answer);
	json_decref(x->data);
	*x = (rk_example){ 0 };
}

/* The example of n pieces into *x; its size in *size. */
static int try_size(const rk_task_env *env, int n, rk_build_fn build, void *ctx, rk_example *x, int *size, rk_err *e)
{
	rk_example_free(x);
	if (build(ctx, n, x, e))
		return -1;
	int prompt = env->count(env->ctx, x, e);
	if (prompt < 0)
		return -1;
	*size = prompt + x->max_new;
	return 0;
}

/* Sizes grow nearly in proportion to n, so that the next n to try is on the line through the two known sizes. */
int rk_task_fit(const rk_task_env *env, int lo, rk_build_fn build, void *ctx, rk_example *x, rk_err *e)
{
	int hi = lo, size_lo = 0, size_hi, size = 0;

	if (try_size(env, lo, build, ctx, x, &size_lo, e))
		return -1;
	if (size_lo > env->length)
		return rk_fail(e, RK_EUSAGE, "--length %d: the shortest example of this task takes %d tokens, reply included", env->length,
		               size_lo);
	for (size_hi = size_lo; size_hi <= env->length;) {	/* lo fits, hi does not */
		lo = hi;
		size_lo = size_hi;
		hi = 2 * hi + 1;
		if (try_size(env, hi, build, ctx, x, &size_hi, e))
			return -1;
	}
	while (hi - lo > 1) {
		int64_t at = lo + (int64_t)(hi - lo) * (env->length - size_lo) / (size_hi - size_lo);
		int n = at <= lo ? lo + 1 : at >= hi ? hi - 1 : (int)at;
		if (try_size(env, n, build, ctx, x, &size, e))
			return -1;
		if (size <= env->length) {
			lo = n;
			size_lo = size;
		} else {
			hi = n;
			size_hi = size;
		}
	}
	if (try_size(env, lo, build, ctx, x, &size, e))
		return -1;
	x->max_new += env->length - size;
	return 0;
}
