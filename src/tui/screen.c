/* screen.c: see screen.h
 *
 * Bytes on the wire are curses' business: it sends the cells that changed, once per rk_screen_show.
 */
#define _XOPEN_SOURCE_EXTENDED 1
#include "tui/screen.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

/* For the crash handler: what the terminal was, and the bytes that bring it back. */
static struct termios saved;
static int saved_fd = -1;
static char restore[256];
static size_t n_restore;
static volatile bool on_screen;

static FILE *tty_in;
static SCREEN *curses;

#define FILE_TERM "xterm-256color"	/* what recordings are played on understands this */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"

void rk_screen_emergency(void)
{
	if (!on_screen)
		return;
	on_screen = false;
	ssize_t n = write(STDOUT_FILENO, restore, n_restore);
	(void)n;
	tcsetattr(saved_fd, TCSANOW, &saved);
}

static void add_restore(const char *s)
{
	size_t n = s ? strlen(s) : 0;

	if (s && s != (char *)-1 && n_restore + n < sizeof restore) {
		memcpy(restore + n_restore, s, n);
		n_restore += n;
	}
}

/* A description of this terminal with 24-bit colour, where the terminal says it can and the database has one. */
static const char *direct_name(const char *term, char out[64])
{
	const char *ct = getenv("COLORTERM");
	size_t len = strcspn(term, "-");

	if (!ct || (strcmp(ct, "truecolor") && strcmp(ct, "24bit")) || len > 40)
		return term;
	snprintf(out, 64, "%.*s-direct", (int)len, term);
	int err, fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && setupterm(out, fd, &err) == 0;
	if (ok)
		del_curterm(cur_term);
	if (fd >= 0)
		close(fd);
	return ok ? out : term;
}

static bool wants_color(enum rk_color_mode mode)
{
	const char *no = getenv("NO_COLOR");

	return mode == RK_COLOR_ALWAYS || (mode == RK_COLOR_AUTO && !(no && no[0]));
}

static int open_keys(rk_err *e)
{
	if (isatty(STDIN_FILENO)) {
		tty_in = stdin;
		return 0;
	}
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);
	if (fd < 0 || !(tty_in = fdopen(fd, "r+")))
		return rk_fail(e, RK_EFAIL, "/dev/tty: %s; the screen needs a keyboard", strerror(errno));
	return 0;
}

/* Around curses, which does not know these: not through stdio, whose buffer might outlive the screen. */
static void emit(const char *s)
{
	ssize_t n = write(STDOUT_FILENO, s, strlen(s));

	(void)n;
}

static void setup_modes(rk_screen *s, bool mouse)
{
	/* marks of a paste, and cursor keys as terminals send them that ignore the application mode asked for */
	static const struct { const char *bytes; int key; } known[] = {
		{ "\033[200~", KEY_MAX + 1 }, { "\033[201~", KEY_MAX + 2 }, { "\033[A", KEY_UP }, { "\033[B", KEY_DOWN },
		{ "\033[C", KEY_RIGHT }, { "\033[D", KEY_LEFT }, { "\033[H", KEY_HOME }, { "\033[F", KEY_END },
	};

	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	intrflush(stdscr, FALSE);
	curs_set(0);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		define_key(known[i].bytes, known[i].key);
	rk_screen_mouse(s, mouse);
	emit(PASTE_ON);
}

static void setup_colors(rk_screen *s, bool wanted)
{
	if (has_colors() && wanted && start_color() == OK && use_default_colors() == OK)
		s->n_color = COLORS >= 1 << 24 ? 1 << 24 : COLORS >= 256 ? 256 : COLORS >= 16 ? 16 : 8;
}

int rk_screen_open(rk_screen *s, const rk_screen_cfg *cfg, rk_err *e)
{
	const char *term = getenv("TERM");
	char direct[64];

	*s = (rk_screen){ 0 };
	if (!term || !term[0] || !strcmp(term, "dumb"))
		return rk_fail(e, RK_EFAIL, "TERM=%s cannot show a screen; `refreshkv run` answers without one", term ? term : "");
	if (open_keys(e))
		return -1;
	s->fd = saved_fd = fileno(tty_in);
	if (tcgetattr(saved_fd, &saved))
		return rk_fail(e, RK_EFAIL, "terminal: %s", strerror(errno));
	if (!getenv("ESCDELAY"))
		set_escdelay(25);
	const char *name = direct_name(term, direct);
	curses = newterm(name, stdout, tty_in);
	if (!curses && name != term)
		curses = newterm(term, stdout, tty_in);
	if (!curses)
		return rk_fail(e, RK_EFAIL, "TERM=%s is not in the terminal database; set TERM to what the terminal is, e.g. xterm-256color", term);
	if (!cursor_address) {
		endwin();
		return rk_fail(e, RK_EFAIL, "TERM=%s cannot move its cursor; `refreshkv run` answers without a screen", term);
	}
	n_restore = 0;
	add_restore(PASTE_OFF "\033[?1000l\033[?1002l\033[?1006l");
	add_restore(exit_attribute_mode);
	add_restore(cursor_normal);
	add_restore(exit_ca_mode);
	add_restore(keypad_local);
	on_screen = s->open = true;
	s->utf8 = !cfg->ascii && !strcmp(nl_langinfo(CODESET), "UTF-8");
	setup_colors(s, wants_color(cfg->color));
	setup_modes(s, cfg->mouse);
	return 0;
}

int rk_screen_open_file(rk_screen *s, FILE *f, int cols, int rows, rk_err *e)
{
	char size[16];

	*s = (rk_screen){ .fd = -1 };
	tty_in = fopen("/dev/null", "re");
	if (!tty_in)
		return rk_fail(e, RK_EFAIL, "/dev/null: %s", strerror(errno));
	snprintf(size, sizeof size, "%d", rows);
	setenv("LINES", size, 1);	/* before curses starts, which takes scrolling regions and the like from its first size */
	snprintf(size, sizeof size, "%d", cols);
	setenv("COLUMNS", size, 1);
	curses = newterm(FILE_TERM, f, tty_in);
	if (!curses) {
		fclose(tty_in);
		return rk_fail(e, RK_EFAIL, FILE_TERM " is not in the terminal database; install it (Debian: ncurses-base)");
	}
	typeahead(-1);		/* /dev/null always has something to read, for which curses would leave frames half drawn */
	s->open = true;
	s->utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	setup_colors(s, true);
	refresh();		/* goes to the alternate screen: dropped, so that the last frame stays where the recording is played */
	if (ftruncate(fileno(f), 0) || lseek(fileno(f), 0, SEEK_SET)) {
		rk_fail(e, RK_EFAIL, "screen: %s", strerror(errno));
		rk_screen_close(s);
		return -1;
	}
	return 0;
}

void rk_screen_close(rk_screen *s)
{
	if (!s->open)
		return;
	s->open = false;
	if (s->fd >= 0) {
		rk_screen_mouse(s, false);
		emit(PASTE_OFF);
	}
	endwin();
	on_screen = false;
	if (s->fd >= 0)
		tcsetattr(saved_fd, TCSADRAIN, &saved);
	delscreen(curses);
	if (tty_in != stdin)
		fclose(tty_in);
}

void rk_screen_suspend(rk_screen *s)
{
	(void)s;
	emit(PASTE_OFF);
	def_prog_mode();
	endwin();
	on_screen = false;
}

void rk_screen_resume(rk_screen *s)
{
	int cols, rows;

	on_screen = true;
	reset_prog_mode();
	rk_screen_size(s, &cols, &rows);
	resize_term(rows, cols);
	clearok(stdscr, TRUE);
	setup_modes(s, s->mouse);
	refresh();
}

void rk_screen_size(const rk_screen *s, int *cols, int *rows)
{
	struct winsize w;

	(void)s;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row) {
		*cols = w.ws_col;
		*rows = w.ws_row;
	} else {
		*cols = COLS;
		*rows = LINES;
	}
}

void rk_screen_resized(rk_screen *s, int cols, int rows)
{
	(void)s;
	resize_term(rows, cols);
	clearok(curscr, TRUE);
}

void rk_screen_mouse(rk_screen *s, bool on)
{
	s->mouse = on;
	mousemask(on ? BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED : 0, NULL);
	mouseinterval(0);
}

static int color_index(const rk_screen *s, int32_t c)
{
	if (c == RK_COLOR_DEFAULT)
		return -1;
	if (c >= RK_COLOR_NAMED) {
		int i = c - RK_COLOR_NAMED;
		return s->n_color == 8 ? i & 7 : i;
	}
	if (s->n_color >= 1 << 24)
		return c < 8 ? 8 : c;	/* of a direct terminal the first eight are the palette's */
	return rk_color_nearest(c, s->n_color);
}

void rk_screen_theme(rk_screen *s, const rk_theme *t)
{
	s->theme = t;
	for (int i = 0; s->n_color && i < RK_N_ROLE; i++)
		init_extended_pair(i + 1, color_index(s, t->role[i].fg), color_index(s, t->role[i].bg));
	if (s->open)
		clearok(curscr, TRUE);
}

static attr_t attributes(const rk_style *st)
{
	return (st->attr & RK_ATTR_BOLD ? A_BOLD : 0) | (st->attr & RK_ATTR_DIM ? A_DIM : 0) |
	       (st->attr & RK_ATTR_UNDERLINE ? A_UNDERLINE : 0) | (st->attr & RK_ATTR_REVERSE ? A_REVERSE : 0);
}

/* curses measures by wcwidth: where that disagrees with the canvas, columns would shift, so show a stand-in. */
static bool agrees(const rk_glyph *c)
{
	return wcwidth(c->ch[0]) == c->width;
}

static void show_cell(const rk_screen *s, const rk_glyph *c, int x, int y)
{
	const rk_style *st = &s->theme->role[c->role];
	wchar_t ch[2 + RK_COMBINING] = { c->ch[0] ? c->ch[0] : L' ' };
	int pair = s->n_color ? c->role + 1 : 0;
	cchar_t out;

	if (c->ch[0] && !agrees(c)) {
		ch[0] = s->utf8 ? 0xFFFD : L'?';
		for (int i = 1; i < c->width; i++) {
			setcchar(&out, L" ", attributes(st), (short)pair, &pair);
			mvadd_wch(y, x + i, &out);
		}
	} else {
		for (int k = 1, n = 1; k <= RK_COMBINING && c->ch[k]; k++)
			if (wcwidth(c->ch[k]) == 0)
				ch[n++] = c->ch[k];
	}
	setcchar(&out, ch, attributes(st), (short)pair, &pair);
	mvadd_wch(y, x, &out);
}

void rk_screen_show(rk_screen *s, const rk_canvas *c, int x, int y)
{
	for (int row = 0; row < c->rows; row++)
		for (int col = 0; col < c->cols; col++) {
			const rk_glyph *cell = c->cell + (size_t)row * (size_t)c->cols + (size_t)col;
			if (cell->width)
				show_cell(s, cell, col, row);
		}
	if (x >= 0)
		move(y, x);
	curs_set(x >= 0);
	refresh();
}

static int32_t translate(int key)
{
	static const struct { int curses; int32_t key; } map[] = {
		{ KEY_UP, RK_KEY_UP }, { KEY_DOWN, RK_KEY_DOWN }, { KEY_LEFT, RK_KEY_LEFT }, { KEY_RIGHT, RK_KEY_RIGHT },
		{ KEY_PPAGE, RK_KEY_PGUP }, { KEY_NPAGE, RK_KEY_PGDN }, { KEY_HOME, RK_KEY_HOME }, { KEY_END, RK_KEY_END },
		{ KEY_DC, RK_KEY_DELETE }, { KEY_BTAB, RK_KEY_BACKTAB }, { KEY_BACKSPACE, RK_KEY_BACKSPACE }, { KEY_ENTER, RK_KEY_ENTER },
		{ KEY_MAX + 1, RK_KEY_PASTE_BEGIN }, { KEY_MAX + 2, RK_KEY_PASTE_END },
	};

	for (size_t i = 0; i < sizeof map / sizeof *map; i++)
		if (map[i].curses == key)
			return map[i].key;
	return key > KEY_F0 && key <= KEY_F0 + 10 ? RK_KEY_F1 + key - KEY_F0 - 1 : RK_KEY_NONE;
}

static int32_t mouse_key(rk_screen *s)
{
	MEVENT m;

	if (getmouse(&m) != OK)
		return RK_KEY_NONE;
	s->mouse_x = m.x;
	s->mouse_y = m.y;
	s->mouse_wheel = m.bstate & BUTTON4_PRESSED ? -1 : m.bstate & BUTTON5_PRESSED ? 1 : 0;
	return RK_KEY_MOUSE;
}

int32_t rk_screen_key(rk_screen *s)
{
	wint_t ch;

	for (;;) {
		errno = 0;
		int kind = get_wch(&ch);
		if (kind == ERR)
			return errno == EIO || errno == EBADF ? -1 : RK_KEY_NONE;
		int32_t key = RK_KEY_NONE;
		if (kind == KEY_CODE_YES) {
			key = ch == KEY_MOUSE ? mouse_key(s) : translate((int)ch);
		} else if (ch == 8) {
			key = RK_KEY_BACKSPACE;
		} else if (ch == RK_KEY_ESC) {
			/* Alt sends Esc and the key in one go */
			kind = get_wch(&ch);
			if (kind == OK && ch != RK_KEY_ESC)
				return (int32_t)ch | RK_ALT;
			if (kind != ERR)
				unget_wch((wchar_t)ch);
			return RK_KEY_ESC;
		} else {
			key = (int32_t)ch;
		}
		if (key != RK_KEY_NONE)
			return key;
	}
}
