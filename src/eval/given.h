/* given.h: reading what a task is given: templates to fill in, and files with texts, questions and answers.
 *
 * Errors name the file, and the line where there is one.  Whoever gets a char * or a root frees it.
 */
#ifndef RK_EVAL_GIVEN_H
#define RK_EVAL_GIVEN_H

#include <jansson.h>
#include "eval/task.h"

typedef struct rk_field {
	const char *name, *value;
} rk_field;

/* tpl with each "{name}" replaced by that field's value, "{{" and "}}" by a brace.  field[] ends with name = NULL.  what: where
 * the template is from, for errors. */
int rk_given_fill(char **out, const char *what, const char *tpl, const rk_field *field, rk_err *e);

/* One more answer at the end of x->answer. */
int rk_given_answer(rk_example *x, const char *answer, rk_err *e);

#define RK_GIVEN_MAX (256u << 20)	/* bytes of a file */
/* The text of a file, which is checked to be UTF-8 without NUL. */
int rk_given_text(const char *path, char **text, rk_err *e);
/* The file that was read last: examples of one task follow each other, and need not parse it again each. */
typedef struct rk_given_kept {
	char *path;
	json_t *root;
} rk_given_kept;
void rk_given_drop(rk_given_kept *kept);

/* New reference to the root in *root, which is not to be changed.  kept: from there if it is, and left there; may be NULL.  The
 * error is "path:line: what". */
int rk_given_json(rk_given_kept *kept, const char *path, json_t **root, rk_err *e);
/* Calls fn for every line that is not empty, with the JSON on it; an error of fn gets "path:line: " in front. */
typedef int (*rk_row_fn)(void *arg, const json_t *row, rk_err *e);
int rk_given_jsonl(const char *path, rk_row_fn fn, void *arg, rk_err *e);

#endif
