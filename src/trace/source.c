/* source.c: see source.h.
 *
 * `text` holds uncompressed bytes; its first one is byte `base` of the text.  A zstd file is a chain of frames; where each
 * MiB's first frame starts is remembered, so that a seek decompresses from there.
 */
#include "trace/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>
#include "trace/trace.h"

#define CHUNK (256u << 10)	/* bytes read at once */
#define FRAME_STEP (1 << 20)	/* text between two remembered frames, at least */

struct frame {
	int64_t text, file;	/* offsets of its first byte */
};

struct rk_source {
	int fd;
	char *text;		/* [cap] */
	size_t cap, n, at;	/* held; of these passed */
	int64_t base, line;	/* line: offset of the line last returned */
	bool end, cut;
	ZSTD_DStream *z;	/* NULL: a plain file */
	char *packed;		/* [CHUNK] compressed bytes */
	ZSTD_inBuffer in;
	int64_t file;		/* offset in the file behind `in` */
	bool in_frame;
	struct frame *frame;	/* [n_frame] ascending */
	size_t n_frame, cap_frame;
};

static int out_of_memory(rk_err *e)
{
	return rk_fail(e, RK_ENOMEM, "no memory to read a trace");
}

int rk_source_open(rk_source **out, const char *path, rk_err *e)
{
	static const unsigned char magic[4] = { 0x28, 0xb5, 0x2f, 0xfd };
	unsigned char first[4];
	rk_source *s = calloc(1, sizeof *s);

	if (!s)
		return out_of_memory(e);
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = s->fd < 0 ? -1 : pread(s->fd, first, sizeof first, 0);
	if (n < 0) {
		rk_fail(e, RK_EFAIL, "cannot read: %s", errno == ESPIPE ? "a trace is read from a file, not from a pipe" : strerror(errno));
		goto fail;
	}
	s->cap = 2 * CHUNK;
	if (!(s->text = malloc(s->cap)))
		goto memory;
	if (n == 4 && !memcmp(first, magic, 4) &&
	    (!(s->z = ZSTD_createDStream()) || !(s->packed = malloc(CHUNK))))
		goto memory;
	*out = s;
	return 0;
memory:
	out_of_memory(e);
fail:
	rk_source_close(s);
	return -1;
}

void rk_source_close(rk_source *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	ZSTD_freeDStream(s->z);
	free(s->packed);
	free(s->frame);
	free(s->text);
	free(s);
}

/* -1: error; otherwise the bytes read, 0 at the end. */
static ssize_t read_some(rk_source *s, char *to, size_t n, rk_err *e)
{
	ssize_t got;

	do
		got = read(s->fd, to, n);
	while (got < 0 && errno == EINTR);
	if (got < 0) {
		s->end = true;
		return rk_fail(e, RK_EFAIL, "cannot read: %s", strerror(errno));
	}
	return got;
}

static int remember_frame(rk_source *s, int64_t text, int64_t file, rk_err *e)
{
	if (s->n_frame && text < s->frame[s->n_frame - 1].text + FRAME_STEP)
		return 0;
	if (s->n_frame == s->cap_frame) {
		size_t cap = s->cap_frame ? 2 * s->cap_frame : 64;
		struct frame *more = realloc(s->frame, cap * sizeof *more);
		if (!more)
			return out_of_memory(e);
		s->frame = more;
		s->cap_frame = cap;
	}
	s->frame[s->n_frame++] = (struct frame){ text, file };
	return 0;
}

/* One step of decompression into the free end of the text. */
static int unpack(rk_source *s, rk_err *e)
{
	ZSTD_outBuffer to = { s->text, s->cap, s->n };

	if (s->in.pos == s->in.size) {
		ssize_t got = read_some(s, s->packed, CHUNK, e);
		if (got < 0)
			return -1;
		s->in = (ZSTD_inBuffer){ s->packed, (size_t)got, 0 };
		s->file += got;
		if (got == 0 && !s->in_frame) {
			s->end = true;
			return 0;
		}
	}
	bool no_more = s->in.size == 0;
	if (!s->in_frame && remember_frame(s, s->base + (int64_t)s->n, s->file - (int64_t)(s->in.size - s->in.pos), e))
		return -1;
	size_t rc = ZSTD_decompressStream(s->z, &to, &s->in);
	if (ZSTD_isError(rc)) {
		s->end = true;
		return rk_fail(e, RK_EFAIL, "damaged zstd data before byte %lld: %s", (long long)s->file, ZSTD_getErrorName(rc));
	}
	if (no_more && to.pos == s->n) {	/* the decoder has nothing left either */
		s->end = s->cut = true;
		return 0;
	}
	s->n = to.pos;
	s->in_frame = rc != 0;
	return 0;
}

/* Reads more text behind what is held; s->end when there is none. */
static int fill(rk_source *s, rk_err *e)
{
	if (s->at) {	/* the line in hand moves to the front */
		memmove(s->text, s->text + s->at, s->n - s->at);
		s->base += (int64_t)s->at;
		s->n -= s->at;
		s->at = 0;
	}
	if (s->n == s->cap) {
		size_t cap = 2 * s->cap;
		char *more = realloc(s->text, cap);
		if (!more)
			return out_of_memory(e);
		s->text = more;
		s->cap = cap;
	}
	if (s->z)
		return unpack(s, e);
	ssize_t got = read_some(s, s->text + s->n, s->cap - s->n, e);
	if (got < 0)
		return -1;
	s->n += (size_t)got;
	s->end = got == 0;
	return 0;
}

/* Passes over a line that is too long, in pieces. */
static int skip_line(rk_source *s, rk_err *e)
{
	const char *nl;

	while (!(nl = memchr(s->text + s->at, '\n', s->n - s->at)) && !s->end) {
		s->at = s->n;
		if (fill(s, e))
			return -1;
	}
	s->at = nl ? (size_t)(nl - s->text) + 1 : s->n;
	return rk_fail(e, RK_EFAIL, "a line of more than %u bytes", RK_TRACE_MAX_LINE);
}

int rk_source_line(rk_source *s, const char **line, size_t *len, rk_err *e)
{
	const char *nl;
	size_t seen = 0;	/* bytes of the line that hold no newline */

	while (!(nl = memchr(s->text + s->at + seen, '\n', s->n - s->at - seen))) {
		seen = s->n - s->at;
		if (seen > RK_TRACE_MAX_LINE)
			return skip_line(s, e);
		if (s->end) {
			s->cut |= seen > 0;
			return 0;
		}
		if (fill(s, e))
			return -1;
	}
	*line = s->text + s->at;
	*len = (size_t)(nl - *line);
	s->line = s->base + (int64_t)s->at;
	s->at += *len + 1;
	return *len <= RK_TRACE_MAX_LINE ? 1 : rk_fail(e, RK_EFAIL, "a line of more than %u bytes", RK_TRACE_MAX_LINE);
}

int64_t rk_source_tell(const rk_source *s)
{
	return s->line;
}

int rk_source_seek(rk_source *s, int64_t at, rk_err *e)
{
	int64_t file = at, text = at;

	if (at >= s->base && at <= s->base + (int64_t)s->n) {
		s->at = (size_t)(at - s->base);
		return 0;
	}
	if (s->z) {
		size_t i = s->n_frame;
		while (i > 1 && s->frame[i - 1].text > at)
			i--;
		text = i ? s->frame[i - 1].text : 0;
		file = i ? s->frame[i - 1].file : 0;
		s->in = (ZSTD_inBuffer){ 0 };
		s->in_frame = false;
		ZSTD_initDStream(s->z);
	}
	if (lseek(s->fd, file, SEEK_SET) < 0)
		return rk_fail(e, RK_EFAIL, "cannot seek: %s", strerror(errno));
	s->file = file;
	s->base = text;
	s->n = s->at = 0;
	s->end = false;
	while (s->base + (int64_t)s->n < at && !s->end) {
		s->at = s->n;
		if (fill(s, e))
			return -1;
	}
	s->at = at > s->base ? (size_t)(at - s->base) : 0;
	if (s->at > s->n)
		s->at = s->n;	/* the file became shorter */
	return 0;
}

bool rk_source_cut(const rk_source *s)
{
	return s->cut;
}
