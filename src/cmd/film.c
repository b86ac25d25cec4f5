/* film.c: see film.h */
#include "cmd/film.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "cmd/replay_feed.h"
#include "trace/asciicast.h"
#include "tui/app.h"

#define FRAME_NS (1000000000 / RK_FPS)
#define MAX_COLS 500
#define MAX_ROWS 200

int rk_film_size(const char *text, int *cols, int *rows, rk_err *e)
{
	char *end;
	unsigned long c = strtoul(text, &end, 10), r = *end == 'x' ? strtoul(end + 1, &end, 10) : 0;
	bool fits = c >= RK_MIN_COLS && c <= MAX_COLS && r >= RK_MIN_ROWS && r <= MAX_ROWS;

	if (!fits || *end || strspn(text, "0123456789x") != strlen(text))
		return rk_fail(e, RK_EUSAGE, "--size %.32s: COLSxROWS, from %dx%d to %dx%d", text, RK_MIN_COLS, RK_MIN_ROWS,
		               MAX_COLS, MAX_ROWS);
	*cols = (int)c;
	*rows = (int)r;
	return 0;
}

/* Draws, and moves what that wrote into the screen's file to the cast. */
static int put_frame(rk_ui *ui, FILE *wire, rk_asciicast *cast, rk_err *e)
{
	int fd = fileno(wire);

	rk_ui_draw(ui);
	rk_screen_show(&ui->screen, &ui->canvas, ui->cursor_shown ? ui->cursor_x : -1, ui->cursor_y);
	ui->dirty = false;
	off_t n = lseek(fd, 0, SEEK_CUR);
	char *bytes = malloc((size_t)n + 1);
	int rc = bytes ? 0 : rk_fail(e, RK_ENOMEM, "screen: no memory for a frame");
	if (rc == 0 && (pread(fd, bytes, (size_t)n, 0) != n || ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET)))
		rc = rk_fail(e, RK_EFAIL, "screen: %s", strerror(errno));
	if (rc == 0)
		rc = rk_asciicast_write(cast, ui->now_ns, bytes, (size_t)n, e);
	free(bytes);
	return rc;
}

/* The last frame stays; a shell after it gets its cursor back, in the last row. */
static int put_end(const rk_ui *ui, rk_asciicast *cast, rk_err *e)
{
	char end[40];
	int n = snprintf(end, sizeof end, "\033[m\033[%d;1H\033[?25h", ui->canvas.rows);

	return rk_asciicast_write(cast, ui->now_ns, end, (size_t)n, e) || rk_asciicast_end(cast, e) ? -1 : 0;
}

/* The screen's loop (app.c) without keys, and with a clock that jumps to where something is due. */
static int roll(rk_ui *ui, FILE *wire, rk_asciicast *cast, rk_err *e)
{
	rk_feed *feed = ui->feed;
	int64_t next_frame = FRAME_NS;
	int ms;

	if (put_frame(ui, wire, cast, e))
		return -1;
	while ((ms = feed->wait_ms(feed->ctx)) >= 0) {
		ui->now_ns += ms * 1000000LL;
		if (ui->now_ns < next_frame)
			ui->now_ns = next_frame;
		do
			rk_ui_drain(ui);
		while (feed->wait_ms(feed->ctx) == 0);
		if (ui->dirty && put_frame(ui, wire, cast, e))
			return -1;
		next_frame = ui->now_ns + FRAME_NS;
	}
	return put_end(ui, cast, e);
}

static int open_screen(rk_ui *ui, FILE *wire, int cols, int rows, rk_err *e)
{
	setlocale(LC_CTYPE, "C.UTF-8");		/* without it the screen is drawn in ASCII */
	if (rk_screen_open_file(&ui->screen, wire, cols, rows, e))
		return -1;
	ui->canvas.utf8 = ui->screen.utf8;
	rk_screen_theme(&ui->screen, &ui->set.theme);
	return rk_canvas_resize(&ui->canvas, cols, rows, e);
}

/* Unix time of the recording; 0: not known. */
static int64_t started(const rk_trace_header *h)
{
	struct tm tm = { 0 };

	return strptime(h->started, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

int rk_film(rk_trace *t, int cols, int rows, double speed, FILE *f, rk_err *e)
{
	const rk_trace_header *h = rk_trace_head(t);
	int fd = memfd_create("screen", MFD_CLOEXEC);
	FILE *wire = fd < 0 ? NULL : fdopen(fd, "r+");
	rk_ui *ui = calloc(1, sizeof *ui);
	rk_settings set;
	rk_asciicast cast;
	rk_pair *p = NULL;
	rk_replay r;
	int rc = -1;

	rk_settings_default(&set, e);
	if (!wire || !ui) {
		rk_fail(e, RK_ENOMEM, "screen: %s", strerror(errno));
		goto out;
	}
	if (rk_pair_open(&p, t, NULL, e))
		goto out;
	rk_replay_init(&r, p, speed, &ui->now_ns);
	if (rk_ui_init(ui, &r.feed, &set, e) == 0 && open_screen(ui, wire, cols, rows, e) == 0 &&
	    rk_asciicast_begin(&cast, f, cols, rows, h->model[0] ? h->model : NULL, started(h), e) == 0)
		rc = roll(ui, wire, &cast, e);
	if (rc == 0 && r.why.msg[0]) {		/* the screen shows a damaged line and goes on; an export is whole or fails */
		*e = r.why;
		rc = -1;
	}
	rk_screen_close(&ui->screen);
	rk_ui_free(ui);
out:
	rk_pair_close(p);
	free(ui);
	if (wire)
		fclose(wire);
	else if (fd >= 0)
		close(fd);
	return rc;
}
