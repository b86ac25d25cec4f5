/* doc.c: see doc.h */
#include "cmd/doc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/utf8.h"

static const char *shown(const char *path)
{
	return strcmp(path, "-") ? path : "standard input";
}

static int read_stream(FILE *f, const char *path, char **data, size_t *len, rk_err *e)
{
	char *buf = NULL;
	size_t n = 0, cap = 0;
	for (;;) {
		if (cap - n < 2) {	/* one byte more than read, for the NUL */
			cap = cap ? cap * 2 : 1 << 16;
			char *more = realloc(buf, cap);
			if (!more) {
				free(buf);
				return rk_fail(e, RK_ENOMEM, "%s: no memory for %zu bytes", shown(path), cap);
			}
			buf = more;
		}
		size_t got = fread(buf + n, 1, cap - 1 - n, f);
		n += got;
		if (n > RK_DOC_MAX || ferror(f)) {
			if (n > RK_DOC_MAX)
				rk_fail(e, RK_EFAIL, "%s: larger than the limit of %u bytes", shown(path), RK_DOC_MAX);
			else
				rk_fail(e, RK_EFAIL, "%s: %s", shown(path), strerror(errno));
			free(buf);
			return -1;
		}
		if (got == 0)
			break;
	}
	buf[n] = '\0';
	*data = buf;
	*len = n;
	return 0;
}

int rk_doc_read_bytes(const char *path, char **data, size_t *len, rk_err *e)
{
	if (!strcmp(path, "-"))
		return read_stream(stdin, path, data, len, e);
	FILE *f = fopen(path, "rb");
	if (!f)
		return rk_fail(e, RK_EFAIL, "%s: %s", path, strerror(errno));
	int rc = read_stream(f, path, data, len, e);
	fclose(f);
	return rc;
}

/* The first offset that keeps the text from being a document, or len. */
static size_t first_bad(const char *text, size_t len)
{
	size_t bad = len;
	rk_utf8_check(text, len, &bad);
	const char *nul = memchr(text, '\0', len);
	return nul && (size_t)(nul - text) < bad ? (size_t)(nul - text) : bad;
}

int rk_doc_check(const char *what, const char *text, size_t len, rk_err *e)
{
	size_t bad = first_bad(text, len);
	if (bad == len)
		return 0;
	return rk_fail(e, RK_EFAIL, "%s: %s at byte %zu", what, text[bad] ? "invalid UTF-8" : "a NUL byte, so not a text,", bad);
}

/* U+FFFD for what is ill-formed and for NUL bytes. */
static int repair(char **text, size_t *len, rk_err *e)
{
	for (char *p = *text; (p = memchr(p, '\0', (size_t)(*text + *len - p))); )
		*p = '\xff';	/* ill-formed anywhere, so that one pass replaces both kinds */
	char *clean;
	size_t n;
	if (rk_utf8_lossy(*text, *len, &clean, &n, e))
		return -1;
	free(*text);
	*text = clean;
	*len = n;
	return 0;
}

int rk_doc_read(const char *path, bool lossy, char **text, size_t *len, rk_err *e)
{
	char *buf;
	size_t n;
	if (rk_doc_read_bytes(path, &buf, &n, e))
		return -1;
	if (n == 0) {
		rk_fail(e, RK_EFAIL, "%s: the document is empty", shown(path));
		goto fail;
	}
	if (lossy && first_bad(buf, n) < n && repair(&buf, &n, e))
		goto fail;
	if (first_bad(buf, n) < n) {
		rk_doc_check(shown(path), buf, n, e);
		size_t at = strlen(e->msg);
		snprintf(e->msg + at, sizeof e->msg - at, " (--lossy replaces what is not valid)");
		goto fail;
	}
	*text = buf;
	*len = n;
	return 0;
fail:
	free(buf);
	return -1;
}

bool rk_doc_on_stdin(void)
{
	struct stat st;
	return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

static bool between_ids(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == '[' || c == ']';
}

int rk_ids_parse(const char *name, const char *text, size_t len, int32_t **ids, size_t *n, rk_err *e)
{
	int32_t *out = malloc((len / 2 + 1) * sizeof *out);	/* an id and what ends it take two bytes, the last one */
	if (!out)
		return rk_fail(e, RK_ENOMEM, "%s: no memory for token ids", shown(name));
	size_t count = 0;
	for (size_t i = 0; i < len; ) {
		if (between_ids(text[i])) {
			i++;
			continue;
		}
		int64_t v = 0;
		size_t start = i;
		while (i < len && text[i] >= '0' && text[i] <= '9' && v <= INT32_MAX)
			v = v * 10 + (text[i++] - '0');
		bool ended = i == len || between_ids(text[i]);
		if (i == start || v > INT32_MAX || !ended) {
			free(out);
			return rk_fail(e, RK_EFAIL, "%s: not a token id at byte %zu", shown(name), start);
		}
		out[count++] = (int32_t)v;
	}
	*ids = out;
	*n = count;
	return 0;
}

int rk_ids_check(const char *name, const int32_t *ids, size_t n, int n_vocab, rk_err *e)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= n_vocab)
			return rk_fail(e, RK_EFAIL, "%s: token id %d is outside the vocabulary of %d", shown(name), ids[i], n_vocab);
	return 0;
}
