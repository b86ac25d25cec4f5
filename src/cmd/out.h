/* out.h: results: whole files or none, tables, numbers for people, JSON.
 *
 * An output file is written under a temporary name beside its target and renamed when it is complete.  A reading that
 * is not known is NAN and is shown as n/a, in JSON as null, in CSV as an empty field; never as 0.
 */
#ifndef RK_CMD_OUT_H
#define RK_CMD_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/err.h"
#include "base/json.h"
#include "base/paths.h"

typedef struct rk_out {
	FILE *f;			/* NULL: not open */
	char path[RK_PATH_MAX];		/* target, links resolved; "-" = standard output */
	char temp[RK_PATH_MAX];		/* "" when written in place (standard output, a device, a pipe) */
} rk_out;

/* Fails at once when the target cannot be written, before any long computation. */
int rk_out_open(rk_out *o, const char *path, rk_err *e);
/* Closes and puts the file in place. */
int rk_out_commit(rk_out *o, rk_err *e);
/* Closes and removes an uncommitted file; fine after commit or without open. */
void rk_out_discard(rk_out *o);
/* 0, or -1 when standard output could not be written.  A reader that went away (EPIPE) leaves e->msg empty: nobody is
 * there to be told. */
int rk_out_flush(FILE *f, const char *name, rk_err *e);

/* What ppl and bench write: JSON and CSV where asked for, and tables for people, which give way when results go to standard output. */
typedef struct rk_results {
	rk_out json, csv;	/* ->f NULL: not asked for */
	FILE *table;
} rk_results;

/* json, csv: paths, "-" or NULL. */
int rk_results_open(rk_results *r, const char *json, const char *csv, rk_err *e);
/* Puts the files in place and sees that the tables were written. */
int rk_results_commit(rk_results *r, rk_err *e);
void rk_results_discard(rk_results *r);

/* Text of a model or a document to stdout as it is; to a terminal without control characters other than newline and tab,
 * so that a text cannot drive the terminal. */
void rk_out_text(const char *s, size_t len);
/* Behind such a text: ends its last line, so that what comes next starts on its own. */
void rk_out_end_line(const char *s, size_t len);

/* ---- numbers: formatted into buf, which is returned ---- */

#define RK_NUM 32
char *rk_num_count(char buf[RK_NUM], int64_t n);		/* 12,345 */
char *rk_num_bytes(char buf[RK_NUM], double bytes);		/* 98.4 MB, decimal units */
char *rk_num_real(char buf[RK_NUM], double v, int decimals);

/* ---- tables: columns line up in display columns; the first is left-aligned, the others right-aligned ---- */

typedef struct rk_table {
	int n_col, n_cell, cap;
	char **cell;	/* [n_cell] row by row, the header first; owned */
	bool failed;	/* memory ran out */
} rk_table;

void rk_table_init(rk_table *t, int n_col);
void rk_table_add(rk_table *t, const char *cell);
int rk_table_print(const rk_table *t, FILE *f, rk_err *e);
void rk_table_free(rk_table *t);

/* ---- JSON: one object, compact, newline at the end ---- */

int rk_json_print(json_t *root, FILE *f, rk_err *e);	/* root NULL: memory ran out */

/* "text" in double quotes with controls, quotes and ill-formed bytes escaped; cut to size. */
char *rk_quote(char *out, size_t size, const char *s, size_t len);

#endif
