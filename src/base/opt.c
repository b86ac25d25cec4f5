/* opt.c: see opt.h */
#include "base/opt.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/near.h"

#define WIDTH 100		/* columns of --help */
#define DOC_AT 30		/* column of the descriptions */
#define MAX_ROWS 128		/* options of one command, for the list of valid names */
#define HINT_MAX 300

/* ---- values ---- */

static bool limited(const rk_opt *row)
{
	return row->min != 0 || row->max != 0 || row->above_min;
}

static bool within(const rk_opt *row, double v)
{
	return !limited(row) || (v >= row->min && v <= row->max && !(row->above_min && v == row->min));
}

/* Numbers in messages and in specs: whole ones plain ("512"), others with the fewest digits that read back as v. */
static void format_number(char *out, size_t size, double v, bool single)
{
	char text[40];
	if (v > -1e15 && v < 1e15 && v == floor(v)) {
		snprintf(out, size, "%.0f", v);
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {	/* 17 tell any two doubles apart */
		snprintf(text, sizeof text, "%.*g", digits, v);
		if (single ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v)
			break;
	}
	snprintf(out, size, "%s", text);
}

static int n_names(const char *const *names)
{
	int n = 0;
	while (names[n])
		n++;
	return n;
}

char *rk_opt_range(const rk_opt *row, char *out, size_t size)
{
	out[0] = '\0';
	if (row->kind == RK_OPT_ENUM) {
		size_t at = 0;
		int n = n_names(row->names);
		for (int i = 0; i < n && at < size; i++)
			at += (size_t)snprintf(out + at, size - at, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ",
			                       row->names[i]);
	} else if (limited(row)) {
		char lo[32], hi[32];
		format_number(lo, sizeof lo, row->min, row->kind == RK_OPT_FLOAT);
		format_number(hi, sizeof hi, row->max, row->kind == RK_OPT_FLOAT);
		snprintf(out, size, row->above_min ? "above %s, at most %s" : "%s to %s", lo, hi);
	}
	return out;
}

static int out_of_range(const rk_opt *row, const char *what, const char *value, rk_err *e)
{
	char range[128];
	return rk_fail(e, RK_EUSAGE, "%s=%.64s is out of range: %s", what, value, rk_opt_range(row, range, sizeof range));
}

static int set_int(const rk_opt *row, int *dst, const char *what, const char *value, rk_err *e)
{
	char *end;
	errno = 0;
	long v = strtol(value, &end, 10);
	if (value[0] == '\0' || value[strspn(value, "0123456789+-")] != '\0' || *end)
		return rk_fail(e, RK_EUSAGE, "%s=%.64s is not a whole number", what, value);
	bool fits = errno == 0 && v >= INT_MIN && v <= INT_MAX;
	if (!fits && !limited(row))
		return rk_fail(e, RK_EUSAGE, "%s=%.64s is out of range: %d to %d", what, value, INT_MIN, INT_MAX);
	if (!fits || !within(row, (double)v))
		return out_of_range(row, what, value, e);
	*dst = (int)v;
	return 0;
}

/* strtod also knows "nan", "inf", hexadecimal and leading blanks; none of them is a setting. */
static int set_real(const rk_opt *row, void *dst, const char *what, const char *value, rk_err *e)
{
	char *end;
	double v = row->kind == RK_OPT_FLOAT ? (double)strtof(value, &end) : strtod(value, &end);
	if (value[0] == '\0' || value[strspn(value, "0123456789+-.eE")] != '\0' || *end)
		return rk_fail(e, RK_EUSAGE, "%s=%.64s is not a number", what, value);
	if (!isfinite(v))
		return rk_fail(e, RK_EUSAGE, "%s=%.64s is too large", what, value);
	if (!within(row, v))
		return out_of_range(row, what, value, e);
	if (row->kind == RK_OPT_FLOAT)
		*(float *)dst = (float)v;
	else
		*(double *)dst = v;
	return 0;
}

static int set_enum(const rk_opt *row, int *dst, const char *what, const char *value, rk_err *e)
{
	int n = n_names(row->names);
	for (int i = 0; i < n; i++)
		if (!strcmp(row->names[i], value)) {
			*dst = i;
			return 0;
		}
	char hint[HINT_MAX];
	rk_near_hint(hint, sizeof hint, value, row->names, n);
	return rk_fail(e, RK_EUSAGE, "%s=%.64s is not valid; %s", what, value, hint);
}

int rk_opt_value_set(const rk_opt *row, void *base, const char *what, const char *value, rk_err *e)
{
	void *dst = (char *)base + row->at;
	switch (row->kind) {
	case RK_OPT_FLAG:
		if (strcmp(value, "true") && strcmp(value, "false"))
			return rk_fail(e, RK_EUSAGE, "%s=%.64s is not valid; valid: true, false", what, value);
		*(bool *)dst = !strcmp(value, "true");
		return 0;
	case RK_OPT_INT:
		return set_int(row, dst, what, value, e);
	case RK_OPT_FLOAT:
	case RK_OPT_DOUBLE:
		return set_real(row, dst, what, value, e);
	case RK_OPT_STR:
		*(const char **)dst = value;
		return 0;
	case RK_OPT_LIST: {
		rk_opt_list *list = dst;
		if (list->n == RK_OPT_LIST_MAX)
			return rk_fail(e, RK_EUSAGE, "%s is given more than %d times", what, RK_OPT_LIST_MAX);
		list->v[list->n++] = value;
		return 0;
	}
	case RK_OPT_ENUM:
		return set_enum(row, dst, what, value, e);
	}
	return rk_fail(e, RK_EFAIL, "%s: option of unknown kind %d", what, (int)row->kind);
}

char *rk_opt_value_format(const rk_opt *row, const void *base, char *out, size_t size)
{
	const void *src = (const char *)base + row->at;
	const char *text = NULL;
	out[0] = '\0';
	switch (row->kind) {
	case RK_OPT_FLAG:
		text = *(const bool *)src ? "true" : "false";
		break;
	case RK_OPT_INT:
		snprintf(out, size, "%d", *(const int *)src);
		break;
	case RK_OPT_FLOAT:
		format_number(out, size, (double)*(const float *)src, true);
		break;
	case RK_OPT_DOUBLE:
		format_number(out, size, *(const double *)src, false);
		break;
	case RK_OPT_STR:
		text = *(const char *const *)src;
		break;
	case RK_OPT_LIST: {
		const rk_opt_list *list = src;
		size_t at = 0;
		for (int i = 0; i < list->n && at < size; i++)
			at += (size_t)snprintf(out + at, size - at, "%s%s", i ? "," : "", list->v[i]);
		break;
	}
	case RK_OPT_ENUM:
		text = row->names[*(const int *)src];
		break;
	}
	if (text)
		snprintf(out, size, "%s", text);
	return out;
}

/* ---- rows of a command ---- */

static const rk_opt help_row = { "help", 'h', RK_OPT_FLAG, .doc = "print this text and exit" };

/* The row of a long name (n bytes) or of a letter, and in *at where its struct begins; NULL: no such option. */
static const rk_opt *find(const rk_opt_cmd *c, const char *name, size_t n, char letter, size_t *at)
{
	for (const rk_opt_group *g = c->groups; g->title; g++)
		for (const rk_opt *row = g->rows; row->name; row++)
			if (letter ? row->letter == letter : strlen(row->name) == n && !strncmp(row->name, name, n)) {
				*at = g->at;
				return row;
			}
	return NULL;
}

/* dashes and the n bytes at name are what the user wrote. */
static int unknown(const rk_opt_cmd *c, const char *dashes, const char *name, size_t n, rk_err *e)
{
	const char *names[MAX_ROWS];
	int n_row = 0;
	for (const rk_opt_group *g = c->groups; g->title; g++)
		for (const rk_opt *row = g->rows; row->name && n_row < MAX_ROWS - 1; row++)
			names[n_row++] = row->name;
	names[n_row++] = help_row.name;
	char word[64];
	snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), name);
	const char *near = rk_near(word, names, n_row);
	const char *of = c->name[0] ? " of " : "";
	if (near)
		return rk_fail(e, RK_EUSAGE, "unknown option %s%s%s%s; did you mean %s%s?", dashes, word, of, c->name,
		               dashes[0] ? "--" : "", near);
	return rk_fail(e, RK_EUSAGE, "unknown option %s%s%s%s; --help lists the valid ones", dashes, word, of, c->name);
}

void rk_opt_defaults(const rk_opt_cmd *c, void *dst)
{
	static const size_t bytes[] = {
		[RK_OPT_FLAG] = sizeof(bool), [RK_OPT_INT] = sizeof(int), [RK_OPT_FLOAT] = sizeof(float),
		[RK_OPT_DOUBLE] = sizeof(double), [RK_OPT_STR] = sizeof(char *), [RK_OPT_LIST] = sizeof(rk_opt_list),
		[RK_OPT_ENUM] = sizeof(int),
	};
	for (const rk_opt_group *g = c->groups; g->title; g++)
		for (const rk_opt *row = g->rows; row->name; row++) {
			memset((char *)dst + g->at + row->at, 0, bytes[row->kind]);
			if (!row->def)
				continue;
			int rc = rk_opt_value_set(row, (char *)dst + g->at, row->name, row->def, NULL);
			assert(rc == 0);	/* a table's own default is valid, or the table is wrong */
			(void)rc;
		}
}

int rk_opt_set(const rk_opt_cmd *c, void *dst, const char *name, const char *value, rk_err *e)
{
	size_t at;
	const rk_opt *row = find(c, name, strlen(name), 0, &at);
	if (!row)
		return unknown(c, "", name, strlen(name), e);
	return rk_opt_value_set(row, (char *)dst + at, name, value, e);
}

/* ---- the command line ---- */

/* One option at argv[*i]; moves *i past a value in a word of its own. */
static int parse_option(const rk_opt_cmd *c, int argc, char **argv, int *i, void *dst, rk_err *e)
{
	const char *word = argv[*i];
	bool is_long = word[1] == '-';
	const char *name = word + (is_long ? 2 : 1);
	size_t n = is_long ? strcspn(name, "=") : strlen(name);
	const char *value = is_long && name[n] == '=' ? name + n + 1 : NULL;

	size_t at = 0;
	const rk_opt *row = is_long ? find(c, name, n, 0, &at) : n == 1 ? find(c, NULL, 0, name[0], &at) : NULL;
	if (!row)
		return unknown(c, is_long ? "--" : "-", name, n, e);
	char what[72];
	snprintf(what, sizeof what, "--%s", row->name);
	if (!value && row->kind == RK_OPT_FLAG)
		value = "true";
	if (!value) {
		if (*i + 1 >= argc)
			return rk_fail(e, RK_EUSAGE, "%s needs a value: %s", what, row->doc);
		value = argv[++*i];
	}
	return rk_opt_value_set(row, (char *)dst + at, what, value, e);
}

int rk_opt_parse_over(const rk_opt_cmd *c, int argc, char **argv, void *dst, rk_opt_list *operands, rk_err *e)
{
	rk_opt_list rest = { 0 };
	bool only_operands = false;
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		if (only_operands || word[0] != '-' || !word[1]) {
			if (rest.n == c->max_operand)
				return rk_fail(e, RK_EUSAGE, "unexpected operand '%.128s'; usage: %s %s", word, c->name,
				               c->operands);
			rest.v[rest.n++] = word;
		} else if (!strcmp(word, "--")) {
			only_operands = true;
		} else if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
			return 1;
		} else if (parse_option(c, argc, argv, &i, dst, e)) {
			return -1;
		}
	}
	if (rest.n < c->min_operand)
		return rk_fail(e, RK_EUSAGE, "missing operand; usage: %s %s", c->name, c->operands);
	if (operands)
		*operands = rest;
	return 0;
}

int rk_opt_parse(const rk_opt_cmd *c, int argc, char **argv, void *dst, rk_opt_list *operands, rk_err *e)
{
	rk_opt_defaults(c, dst);
	return rk_opt_parse_over(c, argc, argv, dst, operands, e);
}

/* ---- help ---- */

void rk_opt_wrap(FILE *f, int col, int at, const char *text)
{
	while (*text) {
		int n = (int)strcspn(text, " ");
		if (col > at && col + 1 + n > WIDTH) {
			fputc('\n', f);
			col = 0;
		}
		if (col > at)
			col += fprintf(f, " ");
		else
			col += fprintf(f, "%*s", at - col, "");
		col += fprintf(f, "%.*s", n, text);
		text += n;
		text += strspn(text, " ");
	}
	fputc('\n', f);
}

static const char *metavar(const rk_opt *row)
{
	static const char *const by_kind[] = {
		[RK_OPT_INT] = "N", [RK_OPT_FLOAT] = "X", [RK_OPT_DOUBLE] = "X", [RK_OPT_STR] = "TEXT",
		[RK_OPT_LIST] = "TEXT", [RK_OPT_ENUM] = "NAME",
	};
	return row->metavar ? row->metavar : by_kind[row->kind];
}

static void help_option(const rk_opt *row, FILE *f)
{
	char range[160], doc[800];
	int col = row->letter ? fprintf(f, "  -%c, ", row->letter) : fprintf(f, "      ");
	col += fprintf(f, "--%s", row->name);
	if (row->kind != RK_OPT_FLAG)
		col += fprintf(f, " %s", metavar(row));
	rk_opt_range(row, range, sizeof range);
	size_t at = (size_t)snprintf(doc, sizeof doc, "%s", row->doc);
	const char *sep = " (";
	if (range[0] && at < sizeof doc) {
		at += (size_t)snprintf(doc + at, sizeof doc - at, "%s%s", sep, range);
		sep = "; ";
	}
	if (row->kind == RK_OPT_LIST && at < sizeof doc) {
		at += (size_t)snprintf(doc + at, sizeof doc - at, "%smay be repeated", sep);
		sep = "; ";
	}
	if (row->def && at < sizeof doc) {
		at += (size_t)snprintf(doc + at, sizeof doc - at, "%sdefault %s", sep, row->def);
		sep = "; ";
	}
	if (sep[0] == ';' && at < sizeof doc)
		snprintf(doc + at, sizeof doc - at, ")");
	if (col >= DOC_AT - 1)		/* no room for the text beside it */
		col = fprintf(f, "\n") - 1;
	rk_opt_wrap(f, col, DOC_AT, doc);
}

void rk_opt_help(const rk_opt_cmd *c, FILE *f)
{
	fprintf(f, "Usage: refreshkv%s%s [OPTION...]%s%s\n\n", c->name[0] ? " " : "", c->name,
	        c->operands[0] ? " " : "", c->operands);
	rk_opt_wrap(f, 0, 0, c->doc);
	for (const rk_opt_group *g = c->groups; g->title; g++) {
		fprintf(f, "\n%s:\n", g->title);
		for (const rk_opt *row = g->rows; row->name; row++)
			help_option(row, f);
	}
	fputc('\n', f);
	help_option(&help_row, f);
	if (c->more) {
		fputc('\n', f);
		c->more(f);
	}
}
