/* given.c: see given.h */
#include "eval/given.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

static const char *value_of(const rk_field *field, const char *name, size_t len)
{
	for (; field->name; field++)
		if (strlen(field->name) == len && memcmp(field->name, name, len) == 0)
			return field->value;
	return NULL;
}

int rk_given_fill(char **out, const char *what, const char *tpl, const rk_field *field, rk_err *e)
{
	size_t size;
	FILE *f = open_memstream(out, &size);
	const char *s = tpl;

	if (!f)
		return rk_fail(e, RK_ENOMEM, "no memory for a prompt");
	while (*s) {
		size_t n = strcspn(s, "{}");
		fwrite(s, 1, n, f);
		s += n;
		const char *end = *s == '{' ? strchr(s, '}') : NULL;
		const char *value = end ? value_of(field, s + 1, (size_t)(end - s - 1)) : NULL;
		if (*s && s[1] == *s) {
			fputc(*s, f);
			s += 2;
		} else if (value) {
			fputs(value, f);
			s = end + 1;
		} else if (*s) {
			fclose(f);
			free(*out);
			*out = NULL;
			return rk_fail(e, RK_EFAIL, "%s: unknown field at \"%.20s\"", what, s);
		}
	}
	return fclose(f) ? rk_fail(e, RK_ENOMEM, "no memory for a prompt") : 0;
}

int rk_given_answer(rk_example *x, const char *answer, rk_err *e)
{
	char **more = realloc(x->answer, (size_t)(x->n_answer + 1) * sizeof *more);

	if (more)
		x->answer = more;
	if (!more || !(more[x->n_answer] = strdup(answer)))
		return rk_fail(e, RK_ENOMEM, "no memory for an answer");
	x->n_answer++;
	return 0;
}

int rk_given_text(const char *path, char **text, rk_err *e)
{
	FILE *f = fopen(path, "rb");
	size_t size, bad;
	char buf[65536];
	FILE *to = f ? open_memstream(text, &size) : NULL;

	if (!to) {
		int err = errno;
		if (f)
			fclose(f);
		return rk_fail(e, RK_EFAIL, "%s: %s", path, strerror(err));
	}
	size_t total = 0;
	for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0 && total <= RK_GIVEN_MAX; total += n)
		fwrite(buf, 1, n, to);
	bool unread = ferror(f) != 0;
	fclose(f);
	const char *why = fclose(to) ? "no memory for it" : unread ? "cannot be read" : total > RK_GIVEN_MAX ? "more than 256 MiB" :
	                  memchr(*text, 0, size) ? "holds NUL bytes" : rk_utf8_check(*text, size, &bad) ? "is not UTF-8" : NULL;
	if (!why)
		return 0;
	free(*text);
	*text = NULL;
	return rk_fail(e, RK_EFAIL, "%s: %s", path, why);
}

void rk_given_drop(rk_given_kept *kept)
{
	free(kept->path);
	json_decref(kept->root);
	*kept = (rk_given_kept){ 0 };
}

int rk_given_json(rk_given_kept *kept, const char *path, json_t **root, rk_err *e)
{
	json_error_t je;

	if (kept && kept->path && !strcmp(kept->path, path)) {
		*root = json_incref(kept->root);
		return 0;
	}
	FILE *f = fopen(path, "rb");
	if (!f)
		return rk_fail(e, RK_EFAIL, "%s: %s", path, strerror(errno));
	*root = json_loadf(f, 0, &je);
	fclose(f);
	if (!*root)
		return rk_fail(e, RK_EFAIL, "%s:%d: %s", path, je.line < 1 ? 1 : je.line, je.text);
	if (kept) {
		rk_given_drop(kept);
		kept->path = strdup(path);	/* NULL without memory: then it is read again */
		kept->root = json_incref(*root);
	}
	return 0;
}

int rk_given_jsonl(const char *path, rk_row_fn fn, void *arg, rk_err *e)
{
	FILE *f = fopen(path, "rb");
	char *line = NULL;
	size_t size = 0;
	ssize_t len;
	int rc = 0, n = 0;

	if (!f)
		return rk_fail(e, RK_EFAIL, "%s: %s", path, strerror(errno));
	while (rc == 0 && (len = getline(&line, &size, f)) >= 0) {
		json_error_t je;
		rk_err why;
		n++;
		if (strspn(line, " \t\r\n") == (size_t)len)
			continue;
		json_t *row = json_loadb(line, (size_t)len, 0, &je);
		if (!row)
			rc = rk_fail(e, RK_EFAIL, "%s:%d: %s", path, n, je.text);
		else if (fn(arg, row, &why))
			rc = rk_fail(e, why.code, "%s:%d: %s", path, n, why.msg);
		json_decref(row);
	}
	if (rc == 0 && ferror(f))
		rc = rk_fail(e, RK_EFAIL, "%s: cannot be read", path);
	free(line);
	fclose(f);
	return rc;
}
