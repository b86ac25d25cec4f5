/* asciicast.c: see asciicast.h */
#include "trace/asciicast.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

/* Takes root over. */
static int put_line(rk_asciicast *a, json_t *root, rk_err *e)
{
	int rc = root ? json_dumpf(root, a->f, JSON_COMPACT | JSON_REAL_PRECISION(15)) : -1;

	json_decref(root);
	fputc('\n', a->f);
	return rc && !ferror(a->f) ? rk_fail(e, RK_ENOMEM, "asciicast: no memory for a line") : 0;
}

static void advance(rk_asciicast *a, int64_t t_ns)
{
	if (t_ns > a->t_ns)
		a->t_ns = t_ns;
}

/* Microseconds are what terminals can show, and keep the lines short. */
static int put_event(rk_asciicast *a, const char *code, json_t *data, rk_err *e)
{
	return put_line(a, json_pack("[f, s, o]", (double)(a->t_ns / 1000) / 1e6, code, data), e);
}

int rk_asciicast_begin(rk_asciicast *a, FILE *f, int width, int height, const char *title, int64_t timestamp, rk_err *e)
{
	*a = (rk_asciicast){ .f = f };
	json_t *root = json_pack("{s:i, s:i, s:i, s:s*, s:{s:s}}", "version", 2, "width", width, "height", height,
	                         "title", title, "env", "TERM", "xterm-256color");
	if (root && timestamp > 0)
		json_object_set_new(root, "timestamp", json_integer(timestamp));
	return put_line(a, root, e);
}

/* Well-formed text, or U+FFFD in place of what is not. */
static int put_text(rk_asciicast *a, const char *s, size_t n, rk_err *e)
{
	char *clean;
	size_t len;

	if (n == 0)
		return 0;
	if (rk_utf8_lossy(s, n, &clean, &len, e))
		return -1;
	json_t *data = json_stringn(clean, len);
	free(clean);
	return put_event(a, "o", data, e);
}

int rk_asciicast_write(rk_asciicast *a, int64_t t_ns, const char *bytes, size_t n, rk_err *e)
{
	char *all = malloc(a->n_held + n + 1);

	advance(a, t_ns);
	if (!all)
		return rk_fail(e, RK_ENOMEM, "asciicast: no memory for %zu bytes", n);
	memcpy(all, a->held, a->n_held);
	if (n)
		memcpy(all + a->n_held, bytes, n);
	n += a->n_held;
	size_t whole = rk_utf8_complete(all, n);
	a->n_held = n - whole;	/* 3 bytes at most */
	memcpy(a->held, all + whole, a->n_held);
	int rc = put_text(a, all, whole, e);
	free(all);
	return rc;
}

int rk_asciicast_resize(rk_asciicast *a, int64_t t_ns, int width, int height, rk_err *e)
{
	advance(a, t_ns);
	return put_event(a, "r", json_sprintf("%dx%d", width, height), e);
}

int rk_asciicast_end(rk_asciicast *a, rk_err *e)
{
	size_t n = a->n_held;

	a->n_held = 0;
	return put_text(a, a->held, n, e);
}
