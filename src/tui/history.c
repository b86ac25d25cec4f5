/* history.c: see history.h */
#include "tui/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/paths.h"
#include "base/utf8.h"

#define LINE_BYTES (2 * RK_HISTORY_LINE + 2)	/* every byte escaped, the new line, the end */

static int fail(const char *path, rk_err *e)
{
	return rk_fail(e, RK_EFAIL, "history %s: %s", path, strerror(errno));
}

/* Text to a line with its end; 0: too long to be kept. */
static size_t to_line(char out[LINE_BYTES], const char *text)
{
	size_t n = 0;

	if (strlen(text) > RK_HISTORY_LINE)
		return 0;
	for (const char *s = text; *s; s++) {
		if (*s == '\n' || *s == '\\')
			out[n++] = '\\';
		out[n++] = *s == '\n' ? 'n' : *s;
	}
	out[n++] = '\n';
	return n;
}

/* A line without its end back to text, in place; false: damaged, or too long to be kept. */
static bool to_text(char *s, size_t len)
{
	size_t n = 0;

	if (!len || memchr(s, '\0', len) || rk_utf8_check(s, len, NULL))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] == '\\' && i + 1 < len)
			s[n++] = s[++i] == 'n' ? '\n' : s[i];
		else
			s[n++] = s[i];
	}
	s[n] = '\0';
	return n <= RK_HISTORY_LINE;
}

static int write_all(int fd, const char *s, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, s, len);
		if (n < 0 && errno != EINTR)
			return -1;
		s += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* The questions that are remembered, as the whole file. */
static int rewrite(const rk_input *in, const char *path, rk_err *e)
{
	char temp[RK_PATH_MAX + 16], line[LINE_BYTES];
	int rc = 0;

	snprintf(temp, sizeof temp, "%s.%ld", path, (long)getpid());	/* another program may do the same now */
	int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(path, e);
	for (int i = 0; i < in->n_history && rc == 0; i++)
		rc = write_all(fd, line, to_line(line, in->history[i]));
	rc |= close(fd);
	if (rc == 0 && rename(temp, path) == 0)
		return 0;
	fail(path, e);
	unlink(temp);
	return -1;
}

int rk_history_load(rk_input *in, const char *path, rk_err *e)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0, bytes = 0;
	ssize_t len;

	if (!f)
		return errno == ENOENT ? 0 : fail(path, e);
	while ((len = getline(&line, &cap, f)) > 0) {
		bytes += (size_t)len;
		if (line[len - 1] == '\n' && to_text(line, (size_t)len - 1))
			rk_input_remember(in, line);
	}
	int rc = ferror(f) ? fail(path, e) : 0;
	fclose(f);
	free(line);
	return rc == 0 && bytes > RK_HISTORY_FILE ? rewrite(in, path, e) : rc;
}

int rk_history_add(const char *path, const char *text, rk_err *e)
{
	char line[LINE_BYTES];
	size_t len = to_line(line, text);

	if (!len)
		return 0;
	if (rk_path_make_dirs(path, e))
		return -1;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(path, e);
	int rc = write_all(fd, line, len) ? fail(path, e) : 0;
	return close(fd) && rc == 0 ? fail(path, e) : rc;
}
