/* ruler.h: what the kinds of RULER's tasks share (ruler.c): one example in the making.
 *
 * A kind opens an example, which draws everything that does not depend on its size, and then writes the haystack at several
 * sizes until it fits.  Random numbers come from the example's seed, so that every size is the same example.
 */
#ifndef RK_EVAL_RULER_H
#define RK_EVAL_RULER_H

#include <stdbool.h>
#include <stdio.h>
#include "eval/given.h"

#define RK_RULER_NOISE "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

typedef struct rk_ruler rk_ruler;

typedef struct rk_ruler_kind {
	/* The official template in three: until the haystack's end, the question, the answer prefix. */
	const char *context, *question, *prefix;
	int max_new;	/* tokens_to_generate */
	int least;	/* the smallest size that makes sense */
	int (*open)(rk_ruler *r, rk_err *e);			/* fields and state; 1: no such example */
	int (*build)(rk_ruler *r, int n, FILE *f, rk_example *x, rk_err *e);	/* haystack of size n to f; answers and data to x */
	void (*close)(void *state);				/* NULL: free() will do */
} rk_ruler_kind;

typedef struct rk_ruler_spec {
	const rk_ruler_kind *kind;
	const void *arg;	/* what tasks of one kind differ in */
} rk_ruler_spec;

struct rk_ruler {
	const rk_task *task;
	const rk_ruler_spec *spec;
	const rk_task_env *env;
	uint64_t seed;		/* of this example */
	int index, length;
	rk_field field[6];	/* [0] is {context} */
	void *state;		/* the kind's */
};

/* Another stream of random numbers of this example. */
uint64_t rk_ruler_rng(const rk_ruler *r, int stream);
void rk_ruler_shuffle(int *v, int n, uint64_t *rng);

extern const rk_ruler_kind rk_ruler_niah_one, rk_ruler_niah_some, rk_ruler_vt, rk_ruler_cwe, rk_ruler_fwe, rk_ruler_qa;

enum rk_hay { RK_HAY_NOISE, RK_HAY_ESSAY, RK_HAY_NEEDLE };
enum rk_made { RK_MADE_WORDS, RK_MADE_NUMBERS, RK_MADE_UUIDS };
typedef struct rk_niah {	/* arg of the niah tasks */
	enum rk_hay hay;
	enum rk_made key, value;
	int n_key, n_value, n_query;
} rk_niah;
typedef struct rk_qa {		/* arg of the qa tasks */
	bool hotpot;
} rk_qa;

#endif
