/* app.c: the loop; see app.h.
 *
 * Sleeps in poll() on the keyboard, the source and a pipe that signal handlers write to.  While a frame is due the source is
 * not polled: its ring holds far more than a frame's worth of events, and waking once per frame is what makes the screen cheap.
 */
#include "tui/app.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "tui/history.h"
#include "tui/pane.h"
#include "tui/saved.h"
#include "tui/script.h"

#define FRAME_NS (1000000000 / RK_FPS)
#define DRAIN_MAX 4096		/* events between two looks at the keyboard */
#define RSS_NS 1000000000
#define SCRIPT_NS 5000000	/* a key script looks this often whether what it waits for has come */

static int pipe_fd[2] = { -1, -1 };

static void on_signal(int sig)
{
	int saved_errno = errno;
	char c = (char)sig;
	ssize_t n = write(pipe_fd[1], &c, 1);	/* a full pipe has enough to wake up for */

	(void)n;
	errno = saved_errno;
}

/* What ends the program by force puts the terminal back first, so that the message and the shell's prompt can be read. */
static void on_crash(int sig)
{
	rk_screen_emergency();
	signal(sig, SIG_DFL);
	raise(sig);
}

static const int caught[] = { SIGWINCH, SIGTSTP, SIGTERM, SIGHUP, SIGINT };
static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };

static void catch(int sig, void (*fn)(int))
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = SA_RESTART };

	sigaction(sig, &sa, NULL);
}

static int catch_all(rk_err *e)
{
	if (pipe2(pipe_fd, O_NONBLOCK | O_CLOEXEC))
		return rk_fail(e, RK_EFAIL, "signals: %s", strerror(errno));
	for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
		catch(caught[i], on_signal);
	for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
		catch(crashes[i], on_crash);
	return 0;
}

static void release_all(void)
{
	for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
		catch(caught[i], SIG_DFL);
	for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
		catch(crashes[i], SIG_DFL);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}

/* ---- the state ---- */

int rk_ui_init(rk_ui *ui, rk_feed *feed, const rk_settings *set, rk_err *e)
{
	*ui = (rk_ui){
		.feed = feed, .set = *set, .cursor = -1, .top = -1, .found_item = -1, .steps_per_col = 1, .shade = set->shade,
		.typing = feed->ask != NULL, .rss = NAN, .rss_peak = NAN, .dirty = true, .canvas.utf8 = true,
	};
	return rk_view_init(&ui->view, RK_VIEW_KEEP, e);
}

void rk_ui_free(rk_ui *ui)
{
	rk_view_free(&ui->view);
	rk_canvas_free(&ui->canvas);
	rk_input_free(&ui->input);
	rk_input_free(&ui->line);
	for (int i = 0; i < RK_MAX_LANE; i++)
		rk_chat_lines_free(&ui->lines[i]);
	free(ui->pattern);
}

void rk_ui_drain(rk_ui *ui)
{
	rk_event ev;
	const void *payload;

	for (int i = 0; i < DRAIN_MAX && ui->feed->next(ui->feed->ctx, &ev, &payload); i++) {
		rk_view_event(&ui->view, &ev, payload);
		ui->dirty = true;
		if (ui->lane >= ui->view.n_lane)
			ui->lane = 0;
		if (ev.type == RK_EV_START && ui->view.stats.n_prompt)
			ui->compare = ui->view.n_lane > 1;
		if (ev.type == RK_EV_START)
			ui->cursor = -1;
		if (ev.type == RK_EV_TOKEN)
			ui->from_past = false;
		if (ev.type == RK_EV_IDLE && ui->pace_first > 0)
			rk_ui_pace(ui, 0);
	}
}

/* ---- what the loop does between two sleeps ---- */

/* Once a second: this process' memory. */
static void read_memory(rk_ui *ui)
{
	struct rusage u;
	long pages, resident;

	if (ui->rss_ns && ui->now_ns - ui->rss_ns < RSS_NS)
		return;
	ui->rss_ns = ui->now_ns;
	FILE *f = fopen("/proc/self/statm", "re");
	if (f && fscanf(f, "%ld %ld", &pages, &resident) == 2)
		ui->rss = (double)resident * (double)sysconf(_SC_PAGESIZE);
	if (f)
		fclose(f);
	if (getrusage(RUSAGE_SELF, &u) == 0)
		ui->rss_peak = fmax((double)u.ru_maxrss * 1024, ui->rss);	/* the kernel counts the two apart, in batches */
}

static void resize(rk_ui *ui)
{
	int cols, rows;
	rk_err e;

	rk_screen_size(&ui->screen, &cols, &rows);
	rk_screen_resized(&ui->screen, cols, rows);
	if (rk_canvas_resize(&ui->canvas, cols, rows, &e))
		rk_ui_complain(ui, "%s", e.msg);
	ui->dirty = true;
}

static void suspend(rk_ui *ui)
{
	rk_screen_suspend(&ui->screen);
	catch(SIGTSTP, SIG_DFL);
	raise(SIGTSTP);
	/* here after `fg` */
	catch(SIGTSTP, on_signal);
	rk_screen_resume(&ui->screen);
	resize(ui);
}

/* Signals that came; returns one that asks the program to end, 0: none. */
static int read_signals(rk_ui *ui)
{
	char sig;
	int fatal = 0;

	while (read(pipe_fd[0], &sig, 1) == 1)
		switch (sig) {
		case SIGWINCH: resize(ui); break;
		case SIGTSTP: suspend(ui); break;
		case SIGINT: rk_ui_key(ui, RK_CTRL('c')); break;
		default: fatal = sig;
		}
	return fatal;
}

/* true: keys were handled, and their user should see that at once. */
static bool read_keys(rk_ui *ui)
{
	int32_t key;
	bool any = false;

	while (!ui->quit && (key = rk_screen_key(&ui->screen)) != RK_KEY_NONE) {
		any = true;
		if (key < 0)
			ui->quit = true;	/* the terminal is gone */
		else
			rk_ui_key(ui, key);
	}
	return any;
}

static void show(rk_ui *ui)
{
	read_memory(ui);
	rk_ui_draw(ui);
	rk_screen_show(&ui->screen, &ui->canvas, ui->cursor_shown ? ui->cursor_x : -1, ui->cursor_y);
	ui->dirty = false;
}

/* How long there is nothing to do, in ms; -1: until something comes. */
static int sleep_ms(const rk_ui *ui, int64_t next_frame, bool scripted)
{
	int64_t until = ui->dirty ? next_frame : ui->message_until ? ui->message_until : INT64_MAX;
	int due = ui->feed->wait_ms && !ui->dirty ? ui->feed->wait_ms(ui->feed->ctx) : -1;

	if (due >= 0 && ui->now_ns + due * 1000000LL < until)
		until = ui->now_ns + due * 1000000LL;
	if (scripted && ui->now_ns + SCRIPT_NS < until)
		until = ui->now_ns + SCRIPT_NS;
	return until == INT64_MAX ? -1 : until <= ui->now_ns ? 0 : (int)((until - ui->now_ns + 999999) / 1000000);
}

static int loop(rk_ui *ui, rk_script *script)
{
	int64_t next_frame = 0;
	int fatal = 0;

	while (!ui->quit && !fatal) {
		struct pollfd p[3] = { { .fd = ui->screen.fd, .events = POLLIN }, { .fd = pipe_fd[0], .events = POLLIN },
		                       { .fd = ui->dirty ? -1 : ui->feed->fd, .events = POLLIN } };
		poll(p, 3, sleep_ms(ui, next_frame, script->at < script->n));
		ui->now_ns = rk_clock_ns();
		fatal = read_signals(ui);
		if (p[0].revents & (POLLHUP | POLLERR | POLLNVAL))
			ui->quit = true;
		if (read_keys(ui))
			next_frame = ui->now_ns;
		rk_ui_drain(ui);
		while (!ui->quit && rk_script_run(script, ui))
			rk_ui_drain(ui);
		if (ui->message_until && ui->now_ns >= ui->message_until) {
			ui->message_until = 0;
			ui->dirty = true;
		}
		if (ui->dirty && ui->now_ns >= next_frame && !ui->quit) {
			show(ui);
			next_frame = ui->now_ns + FRAME_NS;
		}
	}
	return fatal;
}

/* ---- opening ---- */

/* Without a history the program runs as well: what is wrong with it is said, once. */
static void load_history(rk_ui *ui)
{
	rk_err e;

	if (!ui->set.history || !ui->feed->ask)
		return;
	if (rk_path(ui->history, RK_DIR_STATE, "history", &e) || rk_history_load(&ui->input, ui->history, &e)) {
		rk_ui_complain(ui, "%s", e.msg);
		ui->history[0] = '\0';
	}
}

static int open_screen(rk_ui *ui, const rk_app_cfg *cfg, rk_err *e)
{
	int cols, rows;

	if (rk_screen_open(&ui->screen, &cfg->screen, e))
		return -1;
	if (!ui->screen.n_color && rk_theme_load(&ui->set.theme, "mono", e))
		return -1;
	ui->canvas.utf8 = ui->screen.utf8;
	rk_screen_size(&ui->screen, &cols, &rows);
	rk_screen_theme(&ui->screen, &ui->set.theme);
	return rk_canvas_resize(&ui->canvas, cols, rows, e);
}

int rk_app_run(rk_feed *feed, const rk_app_cfg *cfg, rk_err *e)
{
	rk_ui *ui = calloc(1, sizeof *ui);
	rk_script script = { 0 };
	int rc = -1, fatal = 0;

	if (!ui)
		return rk_fail(e, RK_ENOMEM, "screen: out of memory");
	setlocale(LC_CTYPE, "");
	if (rk_ui_init(ui, feed, &cfg->settings, e) || (cfg->keys && rk_script_load(&script, cfg->keys, e)) ||
	    (cfg->resume && rk_saved_read(ui, cfg->resume, e)))
		goto out;
	if (cfg->resume)
		snprintf(ui->session_name, sizeof ui->session_name, "%s", cfg->resume);
	if (catch_all(e))
		goto out;
	if (open_screen(ui, cfg, e) == 0) {
		rc = 0;
		ui->now_ns = rk_clock_ns();
		load_history(ui);
		ui->lead = cfg->lead;
		if (ui->lead)
			rk_view_say(&ui->view, RK_ITEM_NOTE, ui->lead);
		if (cfg->pace > 0)
			rk_ui_pace(ui, cfg->pace);
		ui->pace_first = cfg->pace;
		if (cfg->first)
			rk_ui_ask(ui, cfg->first);
		fatal = loop(ui, &script);
	}
	rk_screen_close(&ui->screen);
	release_all();
	if (fatal)
		raise(fatal);	/* so that the parent sees what ended it */
out:
	rk_script_free(&script);
	rk_ui_free(ui);
	free(ui);
	return rc;
}
