/* sink.c: see sink.h */
#include "trace/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define FRAME_BYTES (4 << 20)	/* text per frame: what a seek decompresses at most */
#define ZSTD_LEVEL 3

struct rk_sink {
	int fd;
	char *path;
	char *text;		/* [n] lines that wait */
	size_t n, cap;
	int64_t written;	/* bytes in the file that end with a whole line (or block) */
	bool failed;
	ZSTD_CCtx *z;		/* NULL: a plain file */
	char *packed;		/* [cap_packed] */
	size_t cap_packed;
	size_t in_frame;	/* text in the current frame */
};

static bool has_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && !strcmp(s + n - m, suffix);
}

static int open_file(const char *path, bool force, rk_err *e)
{
	struct stat st;
	bool is_file = stat(path, &st) || S_ISREG(st.st_mode);	/* a device or pipe has nothing to overwrite */
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (!is_file ? 0 : force ? O_TRUNC : O_EXCL), 0666);

	if (fd < 0 && errno == EEXIST)
		return rk_fail(e, RK_EUSAGE, "%s: exists", path);
	return fd >= 0 ? fd : rk_fail(e, RK_EFAIL, "%s: cannot write: %s", path, strerror(errno));
}

int rk_sink_open(rk_sink **out, const char *path, bool force, rk_err *e)
{
	rk_sink *s = calloc(1, sizeof *s);

	if (!s)
		return rk_fail(e, RK_ENOMEM, "%s: no memory", path);
	s->fd = open_file(path, force, e);
	if (s->fd < 0)
		goto fail;
	if (!(s->path = strdup(path)))
		goto memory;
	if (has_suffix(path, ".zst")) {
		s->cap_packed = ZSTD_CStreamOutSize();
		if (!(s->z = ZSTD_createCCtx()) || !(s->packed = malloc(s->cap_packed)))
			goto memory;
		ZSTD_CCtx_setParameter(s->z, ZSTD_c_compressionLevel, ZSTD_LEVEL);
		ZSTD_CCtx_setParameter(s->z, ZSTD_c_checksumFlag, 1);
	}
	*out = s;
	return 0;
memory:
	rk_fail(e, RK_ENOMEM, "%s: no memory", path);
fail:
	s->failed = true;
	rk_sink_close(s, NULL);
	return -1;
}

static int write_all(rk_sink *s, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(s->fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return -1;
		p += w;
		n -= (size_t)w;
		s->written += w;
	}
	return 0;
}

static int write_packed(rk_sink *s, ZSTD_EndDirective end)
{
	ZSTD_inBuffer in = { s->text, s->n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer to = { s->packed, s->cap_packed, 0 };
		left = ZSTD_compressStream2(s->z, &to, &in, end);
		if (ZSTD_isError(left)) {
			errno = ENOMEM;	/* the only way in which compressing valid input fails */
			return -1;
		}
		if (write_all(s, s->packed, to.pos))
			return -1;
	} while (left || in.pos < in.size);
	return 0;
}

static int flush(rk_sink *s, bool last, rk_err *e)
{
	int64_t good = s->written;
	int rc;

	if (s->failed)
		return -1;
	s->in_frame += s->n;
	bool end = s->z && s->in_frame && (last || s->in_frame >= FRAME_BYTES);
	if (!s->n && !end)
		return 0;
	rc = s->z ? write_packed(s, end ? ZSTD_e_end : ZSTD_e_flush) : write_all(s, s->text, s->n);
	s->n = 0;
	if (end)
		s->in_frame = 0;
	if (rc == 0)
		return 0;
	rk_fail(e, RK_EFAIL, "%s: %s", s->path, strerror(errno));
	s->failed = true;
	s->written = good;
	rc = ftruncate(s->fd, good);	/* fails on what is not a file, which keeps nothing anyway */
	return -1;
}

int rk_sink_flush(rk_sink *s, rk_err *e)
{
	return flush(s, false, e);
}

int rk_sink_add(rk_sink *s, const char *line, size_t len, rk_err *e)
{
	if (s->n + len > s->cap) {
		size_t cap = 2 * s->cap > s->n + len ? 2 * s->cap : s->n + len;
		char *more = realloc(s->text, cap);
		if (!more)
			return rk_fail(e, RK_ENOMEM, "%s: no memory for %zu bytes", s->path, cap);
		s->text = more;
		s->cap = cap;
	}
	memcpy(s->text + s->n, line, len);
	s->n += len;
	return 0;
}

size_t rk_sink_waiting(const rk_sink *s) { return s->n; }

int rk_sink_close(rk_sink *s, rk_err *e)
{
	if (!s)
		return 0;
	int rc = s->failed ? 0 : flush(s, true, e);
	if (s->fd >= 0 && close(s->fd) && rc == 0)
		rc = rk_fail(e, RK_EFAIL, "%s: %s", s->path, strerror(errno));
	ZSTD_freeCCtx(s->z);
	free(s->packed);
	free(s->text);
	free(s->path);
	free(s);
	return rc;
}
