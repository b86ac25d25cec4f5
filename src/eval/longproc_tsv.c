/* longproc_tsv.c: html_to_tsv: a web page, and the F1 of the rows that the reply lists (html_to_tsv_evaluator.py).
 *
 * The official evaluator reads tables with Python's csv module and pandas.  What these make of a malformed table is kept: a
 * last line of another width is dropped, any other such line becomes one of "N/A"; a header that names a column twice, no rows,
 * or another width than the reference's score 0.
 */
#include "eval/longproc.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "eval/fold.h"

int rk_longproc_tsv_take(rk_longproc *l, rk_example *x, rk_err *e)
{
	static const char *const key[] = { "task_topic", "task_description", "filtering_instruction", "tsv_header" };
	const char *html, *gt;
	char path[4096], *to;

	for (int i = 0; i < 4; i++) {
		l->field[i].name = key[i];
		if (rk_longproc_string(l->item, key[i], &l->field[i].value, e))
			return -1;
	}
	if (rk_longproc_string(l->item, "html_path", &html, e) || rk_longproc_string(l->item, "gt", &gt, e))
		return -1;
	snprintf(path, sizeof path, "%s/%s", l->dir, html);
	if (rk_given_text(path, &l->own[0], e))
		return -1;
	to = l->own[0];
	for (const char *s = to; *s; s++)	/* Python reads "\r\n" and "\r" as newlines */
		if (*s != '\r' || s[1] != '\n')
			*to++ = *s == '\r' ? '\n' : *s;
	*to = 0;
	l->field[4] = (rk_field){ "html_str", l->own[0] };
	return rk_given_answer(x, gt, e);
}

/* --- tables --- */

struct table {
	char **cell;	/* of row after row, owned */
	int n_cell, room;
	int *width;	/* [n_row] */
	int n_row, row_room;
};

static void table_free(struct table *t)
{
	for (int i = 0; i < t->n_cell; i++)
		free(t->cell[i]);
	free(t->cell);
	free(t->width);
	*t = (struct table){ 0 };
}

static void *grown(void *v, int n, int *room, size_t size)
{
	if (n < *room)
		return v;
	*room = *room ? 2 * *room : 64;
	return realloc(v, (size_t)*room * size);
}

static int begin_row(struct table *t)
{
	int *more = grown(t->width, t->n_row, &t->row_room, sizeof *more);

	if (!more)
		return -1;
	t->width = more;
	t->width[t->n_row++] = 0;
	return 0;
}

static int add_cell(struct table *t, const char *s, size_t len)
{
	char **more = grown(t->cell, t->n_cell, &t->room, sizeof *more);

	if (!more)
		return -1;
	t->cell = more;
	if (!(t->cell[t->n_cell] = strndup(s, len)))
		return -1;
	t->n_cell++;
	t->width[t->n_row - 1]++;
	return 0;
}

/* Python's csv.reader with delimiter tab over the lines of s, which have no newlines of their own: quotes count at the start of a
 * field only, "" inside them is one, and a quoted field goes on over lines, which are joined without a newline. */
static int read_table(struct table *t, const char *s)
{
	enum { START, FIELD, QUOTED, QUOTE, AFTER_CR } state = START;
	char *field = malloc(strlen(s) + 1);
	size_t len = 0;
	int rc = field ? begin_row(t) : -1;

	for (; rc == 0; s++) {
		char c = *s;
		bool end = c == '\n' || c == 0;
		if (state == AFTER_CR && !end && c != '\r') {
			rc = -1;	/* csv.Error: new-line character seen in unquoted field */
		} else if (state == QUOTED && !end) {
			if (c == '"')
				state = QUOTE;
			else
				field[len++] = c;
		} else if (state == QUOTED && c == '\n') {
			;
		} else if (state == START && c == '"') {
			state = QUOTED;
		} else if (state == QUOTE && c == '"') {
			field[len++] = c;
			state = QUOTED;
		} else if (c == '\t' || ((end || c == '\r') && state != AFTER_CR)) {
			/* an empty line is a row of no fields */
			bool empty = state == START && t->width[t->n_row - 1] == 0 && c != '\t';
			rc = empty ? 0 : add_cell(t, field, len);
			len = 0;
			state = c == '\r' ? AFTER_CR : START;
		} else if (!end && c != '\r') {
			field[len++] = c;
			state = FIELD;
		}
		if (c == 0)
			break;
		if (c == '\n' && state != QUOTED) {
			state = START;
			rc = rc ? rc : begin_row(t);
		}
	}
	free(field);
	return rc;
}

static char *normal_cell(const char *s)
{
	char *out = rk_fold_normal(s, "", "a|an|the"), *to = out;

	for (const char *p = out; p && *p; p++)
		if (*p != ' ')
			*to++ = *p;
	if (out)
		*to = 0;
	return out;
}

/* All rows below the header as wide as it is, cells normalised; the header stays as row 0. */
static int even_out(struct table *t)
{
	struct table out = { 0 };
	int n_col = t->width[0], rc = 0;
	char **cell = t->cell;

	if (t->n_row < 2)
		return -1;
	for (int a = 0; a < n_col; a++)
		for (int b = 0; b < a; b++)
			if (strcmp(t->cell[a], t->cell[b]) == 0)
				return -1;
	int n_row = t->n_row - (t->width[t->n_row - 1] != n_col);
	for (int r = 0; r < n_row && rc == 0; cell += t->width[r++]) {
		rc = begin_row(&out);
		for (int c = 0; c < n_col && rc == 0; c++) {
			char *s = normal_cell(t->width[r] == n_col ? cell[c] : "N/A");
			rc = s ? add_cell(&out, s, strlen(s)) : -1;
			free(s);
		}
	}
	table_free(t);
	*t = out;
	return rc;
}

static int to_table(struct table *t, const char *text)
{
	size_t len;
	const char *s = rk_fold_strip(text, &len);
	char *copy = strndup(s, len);
	int rc = copy ? read_table(t, copy) : -1;

	free(copy);
	return rc ? rc : even_out(t);
}

static bool has_row(const struct table *t, char **row)
{
	int n_col = t->width[0];

	for (int r = 1; r < t->n_row; r++) {
		bool same = true;
		for (int c = 0; c < n_col && same; c++)
			same = strcmp(t->cell[r * n_col + c], row[c]) == 0;
		if (same)
			return true;
	}
	return false;
}

/* Share of a's rows that b has; order does not count. */
static double share(const struct table *a, const struct table *b)
{
	int n = 0, n_col = a->width[0];

	for (int r = 1; r < a->n_row; r++)
		n += has_row(b, a->cell + r * n_col);
	return (double)n / (a->n_row - 1);
}

/* From the first "```tsv" to the last "```" after it; without an end, to the next "```tsv" or the end; without a start, all. */
static char *fenced(const char *reply)
{
	const char *from = strstr(reply, "```tsv"), *to = NULL;

	if (!from)
		return strdup(reply);
	from += 6;
	for (const char *s = from; (s = strstr(s, "```")); s++)
		to = s;
	if (!to)
		return strdup(from);
	return strndup(from, (size_t)(to - from));
}

double rk_longproc_tsv_score(const rk_example *x, const char *reply, json_t **detail)
{
	struct table want = { 0 }, got = { 0 };
	char *text = fenced(reply);
	double precision = 0, recall = 0, f1 = 0, extracted = 0;

	if (text && to_table(&want, x->answer[0]) == 0 && to_table(&got, text) == 0 && want.n_row > 1 && got.n_row > 1 &&
	    want.width[0] == got.width[0]) {
		precision = share(&got, &want);
		recall = share(&want, &got);
		f1 = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
		extracted = 1;
	}
	table_free(&want);
	table_free(&got);
	free(text);
	*detail = json_pack("{s:f, s:f, s:f, s:f}", "f1", f1, "precision", precision, "recall", recall, "extraction_rate", extracted);
	return f1;
}
