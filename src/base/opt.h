/* opt.h: command-line options as tables: one row per option feeds parsing, defaults, --help and the printing of values.
 *
 * A command owns a plain struct of options.  Rows say where in it a value lives (offsetof) and what is valid; rows come in
 * titled groups, so that a group shared by several commands is written once over its own struct, which each command
 * embeds (`at` of the group).  Nothing is allocated: strings point into argv, into the row's default, or into what the
 * caller passed to rk_opt_set.  No state; safe from any thread.
 *
 *	struct model_opts { const char *model; int threads; };
 *	static const rk_opt model_rows[] = {
 *		{ "model", 'm', RK_OPT_STR, offsetof(struct model_opts, model), .metavar = "FILE", .doc = "GGUF file" },
 *		{ "threads", 't', RK_OPT_INT, offsetof(struct model_opts, threads), .def = "0", .min = 0, .max = 256,
 *		  .doc = "CPU threads; 0: one per core" },
 *		{ 0 } };
 *	struct ppl_opts { struct model_opts m; int ctx; };
 *	static const rk_opt_group ppl_groups[] = {
 *		{ "Measurement", ppl_rows, 0 }, { "Model", model_rows, offsetof(struct ppl_opts, m) }, { 0 } };
 *	static const rk_opt_cmd ppl_cmd = { .name = "ppl", .operands = "TEXT", .doc = "...", .groups = ppl_groups,
 *		.min_operand = 1, .max_operand = 1 };
 *
 *	struct ppl_opts o;
 *	rk_opt_list files;
 *	switch (rk_opt_parse(&ppl_cmd, argc, argv, &o, &files, e)) {	// argv[0] is the command's own name
 *	case 1: rk_opt_help(&ppl_cmd, stdout); return 0;
 *	case -1: return -1;
 *	}
 */
#ifndef RK_BASE_OPT_H
#define RK_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "base/err.h"

enum rk_opt_kind {	/* type of the field */
	RK_OPT_FLAG,	/* bool: --name, or --name=true|false */
	RK_OPT_INT,	/* int */
	RK_OPT_FLOAT,	/* float */
	RK_OPT_DOUBLE,	/* double */
	RK_OPT_STR,	/* const char * */
	RK_OPT_LIST,	/* rk_opt_list: the option may be repeated */
	RK_OPT_ENUM,	/* an enum: index in `names` */
};

#define RK_OPT_LIST_MAX 1024	/* a name per job of a large array */
typedef struct rk_opt_list {
	int n;
	const char *v[RK_OPT_LIST_MAX];
} rk_opt_list;

typedef struct rk_opt {
	const char *name;		/* long name without the dashes; NULL ends a table */
	char letter;			/* -x; 0: none */
	enum rk_opt_kind kind;
	size_t at;			/* offset of the field */
	const char *metavar;		/* in --help; NULL: chosen by the kind */
	const char *def;		/* written as a value, shown in --help; NULL: false, 0, NULL, empty.  Not for a LIST */
	double min, max;		/* numbers: inclusive limits; both 0: those of the type */
	bool above_min;			/* min itself is excluded */
	const char *const *names;	/* ENUM: NULL-terminated, in the enum's order */
	const char *doc;
} rk_opt;

typedef struct rk_opt_group {
	const char *title;		/* NULL ends the list */
	const rk_opt *rows;
	size_t at;			/* offset, in the command's struct, of the struct that the rows describe */
} rk_opt_group;

typedef struct rk_opt_cmd {
	const char *name;		/* as typed: "ppl", or "" for the program without a command */
	const char *operands;		/* shown in the usage line: "[FILE]", "" for none */
	const char *doc;		/* one sentence for the top of --help and for the list of commands */
	const rk_opt_group *groups;
	int min_operand, max_operand;	/* max_operand <= RK_OPT_LIST_MAX */
	void (*more)(FILE *f);		/* NULL, or prints what follows the options in --help (examples, policies) */
} rk_opt_cmd;

/* Sets every field that a row describes to its default. */
void rk_opt_defaults(const rk_opt_cmd *c, void *dst);

/* Defaults, then argv[1..argc).  Accepts --name value, --name=value, -x value, -- (the rest are operands) and - (an
 * operand).  A value may start with '-'.  An option other than a LIST that is given twice: the last one counts.
 * 0: *dst and *operands are filled in (operands may be NULL when there are none).  1: --help or -h was given.
 * -1: RK_EUSAGE naming the option, value, limits and, for an unknown name, the nearest valid one. */
int rk_opt_parse(const rk_opt_cmd *c, int argc, char **argv, void *dst, rk_opt_list *operands, rk_err *e);

/* As rk_opt_parse, without setting defaults first: for options that a settings file has already filled in. */
int rk_opt_parse_over(const rk_opt_cmd *c, int argc, char **argv, void *dst, rk_opt_list *operands, rk_err *e);

/* Sets one option by its long name: a line of a settings file.  A FLAG takes true or false.  value must outlive *dst. */
int rk_opt_set(const rk_opt_cmd *c, void *dst, const char *name, const char *value, rk_err *e);

/* Usage, options with their ranges and defaults, and c->more. */
void rk_opt_help(const rk_opt_cmd *c, FILE *f);

/* The same rows serve other tables of typed values (policy parameters).
 * set: parses and checks value; base is the struct of the row; what names it in errors ("--threads", "policy h2o: k").
 * format: the shortest text that rk_opt_value_set reads back as the same value ("0.85", "512"); a LIST with commas.
 * range: "1 to 256", "above 0", "max, mean or first"; "" where any value of the type is valid. */
int rk_opt_value_set(const rk_opt *row, void *base, const char *what, const char *value, rk_err *e);
char *rk_opt_value_format(const rk_opt *row, const void *base, char *out, size_t size);
char *rk_opt_range(const rk_opt *row, char *out, size_t size);

/* Prints text wrapped at 100 columns, each line from column `at` on; the first goes on from column `col`, where the cursor
 * is.  Ends the line. */
void rk_opt_wrap(FILE *f, int col, int at, const char *text);

#endif
