/* out.c: see out.h */
#include "cmd/out.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/utf8.h"

/* ---- files ---- */

static int open_fail(const char *path, rk_err *e)
{
	return rk_fail(e, RK_EFAIL, "%s: cannot write: %s", path, strerror(errno));
}

/* A temporary file in the folder of o->path, with the permissions that an ordinary new file gets. */
static FILE *open_temp(rk_out *o)
{
	if (snprintf(o->temp, sizeof o->temp, "%s.XXXXXX", o->path) >= (int)sizeof o->temp) {
		o->temp[0] = '\0';
		errno = ENAMETOOLONG;
		return NULL;
	}
	int fd = mkstemp(o->temp);
	if (fd < 0) {
		o->temp[0] = '\0';
		return NULL;
	}
	mode_t mask = umask(0);
	umask(mask);
	fchmod(fd, 0666 & ~mask);
	return fdopen(fd, "w");
}

int rk_out_open(rk_out *o, const char *path, rk_err *e)
{
	memset(o, 0, sizeof *o);
	if (!strcmp(path, "-")) {
		strcpy(o->path, "-");
		o->f = stdout;
		return 0;
	}
	/* Resolved, so that a link is written through and not replaced. */
	char *real = realpath(path, NULL);
	bool fits = snprintf(o->path, sizeof o->path, "%s", real ? real : path) < (int)sizeof o->path;
	free(real);
	if (!fits) {
		errno = ENAMETOOLONG;
		return open_fail(path, e);
	}
	struct stat st;
	if (stat(o->path, &st) == 0 && !S_ISREG(st.st_mode))
		o->f = fopen(o->path, "w");	/* a device or a pipe cannot be renamed over */
	else
		o->f = open_temp(o);
	if (!o->f) {
		open_fail(path, e);
		rk_out_discard(o);
		return -1;
	}
	return 0;
}

int rk_out_flush(FILE *f, const char *name, rk_err *e)
{
	if (fflush(f) == 0 && !ferror(f))
		return 0;
	rk_fail(e, RK_EFAIL, "%s: %s", name, strerror(errno));
	if (errno == EPIPE)
		e->msg[0] = '\0';
	return -1;
}

int rk_out_commit(rk_out *o, rk_err *e)
{
	if (o->f == stdout) {
		o->f = NULL;
		return rk_out_flush(stdout, "standard output", e);
	}
	int rc = rk_out_flush(o->f, o->path, e);
	FILE *f = o->f;
	o->f = NULL;
	if (fclose(f) && rc == 0)
		rc = rk_fail(e, RK_EFAIL, "%s: %s", o->path, strerror(errno));
	if (rc == 0 && o->temp[0] && rename(o->temp, o->path))
		rc = open_fail(o->path, e);
	if (rc == 0)
		o->temp[0] = '\0';
	else
		rk_out_discard(o);
	return rc;
}

void rk_out_discard(rk_out *o)
{
	if (o->f && o->f != stdout)
		fclose(o->f);
	o->f = NULL;
	if (o->temp[0])
		unlink(o->temp);
	o->temp[0] = '\0';
}

static bool is_stdout(const char *path)
{
	return path && !strcmp(path, "-");
}

int rk_results_open(rk_results *r, const char *json, const char *csv, rk_err *e)
{
	*r = (rk_results){ .table = is_stdout(json) || is_stdout(csv) ? stderr : stdout };
	if (is_stdout(json) && is_stdout(csv))
		return rk_fail(e, RK_EUSAGE, "--json and --csv cannot both go to standard output");
	if (json && rk_out_open(&r->json, json, e))
		return -1;
	return csv ? rk_out_open(&r->csv, csv, e) : 0;
}

int rk_results_commit(rk_results *r, rk_err *e)
{
	if ((r->json.f && rk_out_commit(&r->json, e)) || (r->csv.f && rk_out_commit(&r->csv, e)))
		return -1;
	return rk_out_flush(r->table, r->table == stdout ? "standard output" : "standard error", e);
}

void rk_results_discard(rk_results *r)
{
	rk_out_discard(&r->json);
	rk_out_discard(&r->csv);
}

void rk_out_text(const char *s, size_t len)
{
	bool tty = isatty(STDOUT_FILENO);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];
		if (!tty || (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t')
			putchar(c);
	}
}

void rk_out_end_line(const char *s, size_t len)
{
	if (len && s[len - 1] != '\n')
		putchar('\n');
}

/* ---- numbers ---- */

char *rk_num_count(char buf[RK_NUM], int64_t n)
{
	char digits[RK_NUM];
	int len = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
	for (int i = 0; i < len && at < RK_NUM - 1; i++) {
		if (i > (digits[0] == '-') && (len - i) % 3 == 0)
			buf[at++] = ',';
		buf[at++] = digits[i];
	}
	buf[at] = '\0';
	return buf;
}

char *rk_num_bytes(char buf[RK_NUM], double bytes)
{
	static const char *const unit[] = { "B", "kB", "MB", "GB", "TB" };
	size_t i = 0;
	while (bytes >= 999.5 && i < 4) {
		bytes /= 1000;
		i++;
	}
	if (isnan(bytes))
		snprintf(buf, RK_NUM, "n/a");
	else
		snprintf(buf, RK_NUM, "%.*f %s", i == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, bytes, unit[i]);
	return buf;
}

char *rk_num_real(char buf[RK_NUM], double v, int decimals)
{
	if (!isfinite(v))
		snprintf(buf, RK_NUM, "n/a");
	else if (snprintf(buf, RK_NUM, "%.*f", decimals, v) >= RK_NUM)	/* too large to be read as a decimal */
		snprintf(buf, RK_NUM, "%.6g", v);
	return buf;
}

/* ---- tables ---- */

void rk_table_init(rk_table *t, int n_col)
{
	*t = (rk_table){ .n_col = n_col };
}

void rk_table_add(rk_table *t, const char *cell)
{
	if (t->n_cell == t->cap) {
		int cap = t->cap ? t->cap * 2 : 64;
		char **more = realloc(t->cell, (size_t)cap * sizeof *more);
		if (!more) {
			t->failed = true;
			return;
		}
		t->cell = more;
		t->cap = cap;
	}
	t->cell[t->n_cell] = strdup(cell);
	if (t->cell[t->n_cell])
		t->n_cell++;
	else
		t->failed = true;
}

/* Columns taken by a cell: characters, which is exact for what tables here hold (figures, specs, file names in most scripts). */
static int columns(const char *s)
{
	int n = 0;
	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

int rk_table_print(const rk_table *t, FILE *f, rk_err *e)
{
	if (t->failed)
		return rk_fail(e, RK_ENOMEM, "no memory for a table");
	for (int i = 0; i < t->n_cell; i++) {
		int col = i % t->n_col, width = 0;
		for (int j = col; j < t->n_cell; j += t->n_col)
			width = columns(t->cell[j]) > width ? columns(t->cell[j]) : width;
		int pad = width - columns(t->cell[i]);
		if (col == 0)
			fprintf(f, "%s%*s", t->cell[i], pad, "");
		else
			fprintf(f, "  %*s%s", pad, "", t->cell[i]);
		if (col == t->n_col - 1)
			fputc('\n', f);
	}
	return 0;
}

void rk_table_free(rk_table *t)
{
	for (int i = 0; i < t->n_cell; i++)
		free(t->cell[i]);
	free(t->cell);
	*t = (rk_table){ 0 };
}

/* ---- JSON ---- */

int rk_json_print(json_t *root, FILE *f, rk_err *e)
{
	/* 9 digits tell every float apart. */
	if (!root || (json_dumpf(root, f, JSON_COMPACT | JSON_REAL_PRECISION(9)) && !ferror(f)))
		return rk_fail(e, RK_ENOMEM, "no memory for the JSON output");
	fputc('\n', f);
	return 0;
}

/* ---- quoting ---- */

char *rk_quote(char *out, size_t size, const char *s, size_t len)
{
	size_t at = 0;
	out[at++] = '"';
	for (size_t i = 0; i < len && at + 12 < size; ) {
		unsigned char c = (unsigned char)s[i];
		size_t n = 1;
		while (n < 4 && i + n < len && ((unsigned char)s[i + n] & 0xc0) == 0x80)
			n++;
		if (c == '\n' || c == '\t' || c == '"' || c == '\\') {
			at += (size_t)snprintf(out + at, size - at, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : c);
		} else if (c < 0x20 || c == 0x7f || rk_utf8_check(s + i, n, NULL)) {
			at += (size_t)snprintf(out + at, size - at, "\\x%02x", c);
			n = 1;
		} else {
			memcpy(out + at, s + i, n);
			at += n;
		}
		i += n;
	}
	out[at++] = '"';
	out[at] = '\0';
	return out;
}
