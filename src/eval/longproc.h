/* longproc.h: what the kinds of LongProc's tasks share (longproc.c): an item of the data directory on its way to an example.
 *
 * A kind takes an item and names the values that the directory's prompt template is filled with.  Scores follow the official
 * evaluators to the letter, also where these are odd; the comments say where.
 */
#ifndef RK_EVAL_LONGPROC_H
#define RK_EVAL_LONGPROC_H

#include "eval/given.h"

enum { RK_LONGPROC_FIELDS = 6, RK_LONGPROC_OWN = 4 };

typedef struct rk_longproc {
	const char *dir;	/* of this kind's data */
	const json_t *item;
	rk_field field[RK_LONGPROC_FIELDS];	/* ends with name = NULL */
	char *own[RK_LONGPROC_OWN];		/* values of fields that have to be freed */
} rk_longproc;

typedef struct rk_longproc_kind {
	const char *name;	/* of the folder */
	const char *document;	/* the field up to which the template is the context */
	/* Fields of l from l->item; the reference and what else the score needs to x. */
	int (*take)(rk_longproc *l, rk_example *x, rk_err *e);
} rk_longproc_kind;

typedef int rk_longproc_take_fn(rk_longproc *l, rk_example *x, rk_err *e);
typedef double rk_longproc_score_fn(const rk_example *x, const char *reply, json_t **detail);
rk_longproc_take_fn rk_longproc_tsv_take, rk_longproc_countdown_take, rk_longproc_travel_take;
rk_longproc_score_fn rk_longproc_tsv_score, rk_longproc_countdown_score, rk_longproc_travel_score;

/* A text or number of the item; the error names the key. */
int rk_longproc_string(const json_t *item, const char *key, const char **value, rk_err *e);
int rk_longproc_int(const json_t *item, const char *key, int *value, rk_err *e);

/* The text between the first <tag> and the first </tag> without blanks at its ends; NULL when one of them is missing. */
char *rk_longproc_tagged(const char *reply, const char *tag);
/* Cuts s at each newline: pointers into it, in a new array. */
char **rk_longproc_lines(char *s, int *n);
/* {"accuracy", "partial_accuracy", "extraction_rate"}; returns accuracy. */
double rk_longproc_detail(json_t **detail, double accuracy, double partial, double extracted);

#endif
