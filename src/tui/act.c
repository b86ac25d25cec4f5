/* act.c: what keys do: from a key to an action, and what each action means where the user is. */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tui/history.h"
#include "tui/pane.h"
#include "tui/saved.h"

#define MESSAGE_NS 5000000000
#define OVERLAY_MOST 100000	/* lines: more than any overlay has; drawing it brings the number down */

static void say(rk_ui *ui, bool error, const char *fmt, va_list ap)
{
	vsnprintf(ui->message, sizeof ui->message, fmt, ap);
	ui->message_error = error;
	ui->message_until = ui->now_ns + MESSAGE_NS;
	ui->dirty = true;
}

void rk_ui_say(rk_ui *ui, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(ui, false, fmt, ap);
	va_end(ap);
}

void rk_ui_complain(rk_ui *ui, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(ui, true, fmt, ap);
	va_end(ap);
}

static bool busy(const rk_ui *ui)
{
	return ui->view.phase != RK_PHASE_IDLE;
}

/* ---- questions ---- */

static void ask_again(rk_ui *ui)
{
	rk_err e;
	int n;
	rk_said *turn = rk_saved_turns(ui, &n, &e);

	ui->from_past = true;	/* until it is answered: the prompt may not fit, or be stopped */
	if (turn && ui->feed->ask_again(ui->feed->ctx, turn, n, ui->seed, &e) == 0) {
		rk_view_asked(&ui->view);
	} else {
		rk_view_note(&ui->view, "error: %s", e.msg);
	}
	free(turn);
}

void rk_ui_ask(rk_ui *ui, const char *user)
{
	rk_err e;

	rk_view_say(&ui->view, RK_ITEM_USER, user);
	ui->top = ui->cursor = -1;
	if (ui->from_past) {
		ask_again(ui);
	} else if (ui->feed->ask(ui->feed->ctx, user, &e)) {
		rk_view_note(&ui->view, "error: %s", e.msg);
	} else {
		rk_view_asked(&ui->view);
	}
}

static void send(rk_ui *ui)
{
	rk_err e;

	if (!ui->input.text || strspn(ui->input.text, " \n\t") == ui->input.len)
		return;
	if (busy(ui)) {
		rk_ui_complain(ui, "a reply is running; Esc stops it");
		return;
	}
	char *text = rk_input_take(&ui->input);
	if (text)
		rk_ui_ask(ui, text);
	if (text && ui->history[0] && rk_history_add(ui->history, text, &e)) {
		rk_ui_complain(ui, "%s", e.msg);
		ui->history[0] = '\0';		/* said once */
	}
	free(text);
}

void rk_ui_regenerate(rk_ui *ui, bool edit)
{
	int at = rk_view_last(&ui->view, RK_ITEM_USER);

	if (!ui->feed->ask_again || at < 0 || busy(ui)) {
		rk_ui_complain(ui, "%s", !ui->feed->ask_again ? "a recording cannot be asked again" : at < 0 ? "there is no question yet" :
		               "a reply is running; Esc stops it");
		return;
	}
	if (edit) {
		rk_input_set(&ui->input, ui->view.item[at].text);
		rk_view_cut(&ui->view, at);
		ui->from_past = true;
		ui->typing = true;
		ui->focus = RK_PANE_CHAT;
		return;
	}
	rk_view_cut(&ui->view, at + 1);
	ui->seed++;
	ui->top = ui->cursor = -1;
	ask_again(ui);
}

void rk_ui_new_session(rk_ui *ui)
{
	rk_err e;

	if (busy(ui)) {
		rk_ui_complain(ui, "a reply is running; Esc stops it");
	} else if (!ui->feed->reset) {
		rk_ui_complain(ui, "a recording has only its own session");
	} else if (ui->feed->reset(ui->feed->ctx, &e)) {
		rk_ui_complain(ui, "%s", e.msg);
	} else {
		rk_view_cut(&ui->view, 0);
		ui->from_past = false;
		ui->top = ui->cursor = -1;
	}
}

void rk_ui_set_policy(rk_ui *ui, const char *spec)
{
	rk_policy p;
	rk_err e;

	if (!ui->feed->set_policy) {
		rk_ui_complain(ui, "a recording's policy cannot be changed");
		return;
	}
	/* what is wrong in itself is said here, at once; what the session cannot do comes back as an event */
	bool assignments = strchr(spec, '=') && !strchr(spec, ':');
	int rc = !assignments ? rk_policy_parse(&p, spec, &e) : rk_ui_policy(ui, ui->lane, &p) ? rk_policy_set(&p, spec, &e) : 0;
	if (rc || ui->feed->set_policy(ui->feed->ctx, ui->lane, spec, &e))
		rk_ui_complain(ui, "%s", e.msg);
}

static bool lanes_may_change(rk_ui *ui)
{
	if (!ui->feed->add_lane)
		rk_ui_complain(ui, "a recording has the lanes it has");
	else if (busy(ui))
		rk_ui_complain(ui, "a reply is running; Esc stops it");
	else if (rk_view_last(&ui->view, RK_ITEM_USER) < 0)
		rk_ui_complain(ui, "ask first, or start with several --policy options");
	else
		return true;
	return false;
}

void rk_ui_add_lane(rk_ui *ui, const char *spec)
{
	rk_err e;

	if (!lanes_may_change(ui))
		return;
	if (ui->feed->n_lane(ui->feed->ctx) >= RK_LANES_SHOWN) {
		rk_ui_complain(ui, "%d lanes are side by side already; `:lane drop N` makes room", RK_LANES_SHOWN);
	} else if (ui->feed->add_lane(ui->feed->ctx, spec, &e)) {
		rk_ui_complain(ui, "%s", e.msg);
	} else {
		rk_ui_regenerate(ui, false);
		rk_ui_say(ui, "a lane more: the prompt is read again, for all of them");
	}
}

void rk_ui_drop_lane(rk_ui *ui, int lane)
{
	rk_err e;

	if (!lanes_may_change(ui))
		return;
	int n = ui->feed->n_lane(ui->feed->ctx);
	if (lane < 0 || lane >= n || n < 2) {
		rk_ui_complain(ui, n < 2 ? "there is one lane only" : "lane drop N: 1 to %d", n);
	} else if (ui->feed->drop_lane(ui->feed->ctx, lane, &e)) {
		rk_ui_complain(ui, "%s", e.msg);
	} else {
		rk_ui_regenerate(ui, false);
		rk_ui_say(ui, "a lane less: the prompt is read again");
	}
}

/* ---- search ---- */

static bool same_letters(const char *a, const char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i]))
			return false;
	return true;
}

/* The next match in one item, at or after `from` (at or before it backwards); false: none. */
static bool match_in(const char *s, size_t len, const char *pat, int64_t from, int direction, size_t *at)
{
	size_t n = strlen(pat);

	if (n > len)
		return false;
	if (from > (int64_t)(len - n) && direction < 0)
		from = (int64_t)(len - n);
	for (int64_t i = from; i >= 0 && i <= (int64_t)(len - n); i += direction)
		if (same_letters(s + i, pat, n)) {
			*at = (size_t)i;
			return true;
		}
	return false;
}

void rk_ui_search(rk_ui *ui, int direction)
{
	rk_view *v = &ui->view;
	rk_chat_lines *l = &ui->lines[ui->lane];
	size_t len, at;

	if (!ui->pattern || !v->n_item)
		return;
	int item = ui->found_item >= 0 && ui->found_item < v->n_item ? ui->found_item : v->n_item - 1;
	int64_t from = ui->found_item >= 0 ? (int64_t)ui->found_at + direction : direction < 0 ? INT64_MAX : 0;
	for (int tries = 0; tries <= v->n_item; tries++) {
		const char *s = rk_chat_text(v, &v->item[item], ui->lane, &len);
		if (match_in(s, len, ui->pattern, from, direction, &at)) {
			ui->found_item = item;
			ui->found_at = at;
			ui->found_len = strlen(ui->pattern);
			int line = rk_chat_line_of(l, item, at);
			ui->top = line > ui->text_rect.h / 2 ? line - ui->text_rect.h / 2 : 0;
			return;
		}
		item = (item + direction + v->n_item) % v->n_item;
		from = direction > 0 ? 0 : INT64_MAX;
	}
	ui->found_item = -1;
	rk_ui_complain(ui, "no match for %s", ui->pattern);
}

static void finish_line(rk_ui *ui)
{
	enum rk_line_mode mode = ui->line_mode;
	char *text = rk_input_take(&ui->line);

	ui->line_mode = RK_LINE_NONE;
	if (text && mode == RK_LINE_COMMAND) {
		rk_ui_command(ui, text);
	} else if (text) {
		free(ui->pattern);
		ui->pattern = text;
		ui->found_item = -1;
		rk_ui_search(ui, -1);
		return;
	}
	free(text);
}

static void open_line(rk_ui *ui, enum rk_line_mode mode, const char *text)
{
	ui->line_mode = mode;
	ui->line.back = 0;
	rk_input_set(&ui->line, text);
}

/* ---- moving about ---- */

void rk_ui_show_cursor(rk_ui *ui)
{
	const rk_view_token *t = rk_view_token_at(&ui->view, ui->lane, ui->cursor);
	rk_chat_lines *l = &ui->lines[ui->lane];

	if (!t || t->item >= ui->view.n_item || ui->text_rect.h < 1)
		return;
	int64_t line = rk_chat_line_of(l, t->item, t->text_at - ui->view.item[t->item].text_at[ui->lane]);
	if (line < ui->text_top || line >= ui->text_top + ui->text_rect.h)
		ui->top = line > ui->text_rect.h / 2 ? line - ui->text_rect.h / 2 : 0;
	else
		ui->top = ui->text_top;
}

static void move_cursor(rk_ui *ui, int64_t to)
{
	int64_t last = ui->view.lane[ui->lane].n_token - 1, oldest = rk_view_oldest(&ui->view, ui->lane);

	if (last < 0)
		return;
	ui->cursor = to < oldest ? oldest : to > last ? last : to;
	rk_ui_show_cursor(ui);
}

static int clamp(int v, int lo, int hi)
{
	return v > hi ? hi : v < lo ? lo : v;
}

static void scroll(rk_ui *ui, int by)
{
	int n = ui->lines[ui->lane].n, h = ui->text_rect.h;

	if (ui->focus == RK_PANE_STRIDE) {
		ui->top_layer = clamp(ui->top_layer + by, 0, ui->view.n_layer - 1);
		return;
	}
	ui->top = ui->text_top + by;
	if (ui->top < 0)
		ui->top = 0;
	if (ui->top >= n - h)
		ui->top = -1;
}

static void next_pane(rk_ui *ui, int direction)
{
	/* the order in which they stand on the screen */
	static const enum rk_pane_id order[RK_N_PANE] = { RK_PANE_CHAT, RK_PANE_SPEED, RK_PANE_STRIDE, RK_PANE_TIMELINE, RK_PANE_RATIO,
	                                                  RK_PANE_OCCUPANCY };
	int i = 0;

	while (order[i] != ui->focus)
		i++;
	for (int k = 0; k < RK_N_PANE; k++) {
		i = (i + direction + RK_N_PANE) % RK_N_PANE;
		if (ui->zoomed || ui->layout.pane[order[i]].w)
			break;
	}
	ui->focus = order[i];
}

static void stop(rk_ui *ui)
{
	if (busy(ui) && ui->feed->stop) {
		ui->feed->stop(ui->feed->ctx);
		if (ui->paused && ui->feed->pause) {	/* or it would wait for ever to be stopped */
			ui->paused = false;
			ui->feed->pause(ui->feed->ctx, false);
		}
		return;
	}
	if (ui->zoomed && ui->cursor < 0)
		ui->zoomed = false;
	ui->cursor = ui->top = -1;
	ui->found_item = -1;
}

void rk_ui_pace(rk_ui *ui, float tok_per_s)
{
	ui->tok_per_s = tok_per_s;
	ui->pace_first = 0;
	if (ui->feed->pace)
		ui->feed->pace(ui->feed->ctx, tok_per_s);
}

static void set_pace(rk_ui *ui, float factor)
{
	rk_view_speed s = rk_view_speed_at(&ui->view, 0, ui->view.lane[0].n_token - 1, 32);
	float from = ui->tok_per_s > 0 ? ui->tok_per_s : s.n && s.ms > 0 ? (float)(1000 / s.ms) : 32;

	float to = factor > 1 && ui->tok_per_s <= 0 ? 0 : from * factor;

	if (to > 256)
		to = 0;
	if (to > 0 && to < 0.25f)
		to = 0.25f;
	rk_ui_pace(ui, to);
	if (ui->tok_per_s > 0)
		rk_ui_say(ui, "at most %.3g tokens per second", (double)ui->tok_per_s);
	else
		rk_ui_say(ui, "as fast as it goes");
}

static void edit_policy(rk_ui *ui)
{
	char buf[RK_SPEC_MAX + 8];
	const char *spec = ui->view.n_lane ? ui->view.stats.lane[ui->lane].spec : "", *colon = strchr(spec, ':');

	snprintf(buf, sizeof buf, colon ? "set %s" : "policy %s", colon ? colon + 1 : spec);
	open_line(ui, RK_LINE_COMMAND, buf);
}

void rk_ui_dump(rk_ui *ui, const char *path)
{
	char own[64];
	time_t now = time(NULL);
	struct tm tm;

	if (!path) {
		localtime_r(&now, &tm);
		strftime(own, sizeof own, "refreshkv-screen-%Y%m%d-%H%M%S.txt", &tm);
		path = own;
	}
	rk_ui_draw(ui);
	FILE *f = fopen(path, "we");
	if (f)
		rk_canvas_write(&ui->canvas, f);
	if (!f || fclose(f))
		rk_ui_complain(ui, "%s cannot be written", path);
	else
		rk_ui_say(ui, "the screen is in %s", path);
}

static void next_theme(rk_ui *ui)
{
	rk_err e;

	if (rk_theme_load(&ui->set.theme, rk_theme_next(ui->set.theme.name), &e))
		rk_ui_complain(ui, "%s", e.msg);
	else
		rk_ui_say(ui, "theme %s", ui->set.theme.name);
	if (ui->screen.open)
		rk_screen_theme(&ui->screen, &ui->set.theme);
}

/* ---- actions ---- */

/* How far an action moves in the overlay: pages of the tour, lines of the help. */
static int overlay_step(const rk_ui *ui, enum rk_action a)
{
	bool tour = ui->overlay == RK_OVERLAY_TOUR;
	int page = tour ? 1 : ui->canvas.rows - 4;

	switch (a) {
	case RK_ACT_RIGHT: return tour;
	case RK_ACT_LEFT: return -tour;
	case RK_ACT_DOWN: return 1;
	case RK_ACT_UP: return -1;
	case RK_ACT_PAUSE:	/* Space goes on, as in a pager */
	case RK_ACT_PAGE_DOWN: return page;
	case RK_ACT_PAGE_UP: return -page;
	case RK_ACT_FIRST: return -OVERLAY_MOST;
	case RK_ACT_LAST: return OVERLAY_MOST;
	default: return 0;
	}
}

/* true: the action was the overlay's. */
static bool act_overlay(rk_ui *ui, enum rk_action a)
{
	int by = overlay_step(ui, a);

	if (by)
		ui->overlay_top = clamp(ui->overlay_top + by, 0, ui->overlay == RK_OVERLAY_TOUR ? RK_TOUR_PAGES - 1 : OVERLAY_MOST);
	else if (a == RK_ACT_STOP || a == RK_ACT_HELP || a == RK_ACT_TOUR || a == RK_ACT_QUIT || a == RK_ACT_TYPE)
		ui->overlay = RK_OVERLAY_NONE;
	return a != RK_ACT_DUMP && a != RK_ACT_COMMAND && a != RK_ACT_THEME;
}

static void act_reply(rk_ui *ui, enum rk_action a)
{
	switch (a) {
	case RK_ACT_STOP: stop(ui); break;
	case RK_ACT_PAUSE:
		ui->paused = !ui->paused;
		if (ui->feed->pause)
			ui->feed->pause(ui->feed->ctx, ui->paused);
		break;
	case RK_ACT_STEP:
		if (!ui->paused)
			act_reply(ui, RK_ACT_PAUSE);
		else if (ui->feed->single_step)
			ui->feed->single_step(ui->feed->ctx);
		break;
	case RK_ACT_SLOWER: set_pace(ui, 0.5f); break;
	case RK_ACT_FASTER: set_pace(ui, 2); break;
	case RK_ACT_EDIT_POLICY: edit_policy(ui); break;
	case RK_ACT_REGENERATE: rk_ui_regenerate(ui, false); break;
	case RK_ACT_EDIT_LAST: rk_ui_regenerate(ui, true); break;
	default: break;
	}
}

static void act_move(rk_ui *ui, enum rk_action a)
{
	int page = ui->text_rect.h > 2 ? ui->text_rect.h - 1 : 1;

	switch (a) {
	case RK_ACT_LEFT: move_cursor(ui, rk_ui_serial(ui) - (ui->cursor >= 0)); break;
	case RK_ACT_RIGHT:
		if (ui->cursor >= 0)
			move_cursor(ui, ui->cursor + 1);
		break;
	case RK_ACT_UP: scroll(ui, -1); break;
	case RK_ACT_DOWN: scroll(ui, 1); break;
	case RK_ACT_PAGE_UP: scroll(ui, -page); break;
	case RK_ACT_PAGE_DOWN: scroll(ui, page); break;
	case RK_ACT_FIRST: ui->top = 0; break;
	case RK_ACT_LAST: ui->top = ui->cursor = -1; break;
	case RK_ACT_NEXT_MATCH: rk_ui_search(ui, 1); break;
	case RK_ACT_PREV_MATCH: rk_ui_search(ui, -1); break;
	default: break;
	}
}

static void act_look(rk_ui *ui, enum rk_action a)
{
	const rk_rect *chat = &ui->layout.pane[RK_PANE_CHAT];

	switch (a) {
	case RK_ACT_ZOOM: ui->zoomed = !ui->zoomed; break;
	case RK_ACT_SHADE: ui->shade = !ui->shade; break;
	case RK_ACT_INSPECT:
		ui->inspect = !ui->inspect;
		/* below a title, above a line of the editor */
		if (ui->inspect && chat->w && chat->h - 1 - (ui->feed->ask != NULL) < RK_INSPECTOR_ROWS + RK_INSPECTOR_LEAVES)
			rk_ui_complain(ui, "no room for details here; zoom the conversation");
		break;
	case RK_ACT_WIDER: ui->steps_per_col = ui->steps_per_col > 1 ? ui->steps_per_col / 2 : 1; break;
	case RK_ACT_NARROWER: ui->steps_per_col = ui->steps_per_col < 64 ? ui->steps_per_col * 2 : 64; break;
	case RK_ACT_COMPARE:
		if (ui->view.n_lane > 1)
			ui->compare = !ui->compare;
		else
			rk_ui_complain(ui, "one lane only: `:lane add SPEC` puts another beside it");
		break;
	case RK_ACT_LANE:
		if (ui->view.n_lane > 1)
			ui->lane = (ui->lane + 1) % ui->view.n_lane;
		ui->cursor = -1;
		break;
	case RK_ACT_THEME: next_theme(ui); break;
	case RK_ACT_MOUSE:
		rk_screen_mouse(&ui->screen, !ui->screen.mouse);
		rk_ui_say(ui, ui->screen.mouse ? "the mouse is the program's; Shift-drag selects" : "the mouse is the terminal's");
		break;
	case RK_ACT_DUMP: rk_ui_dump(ui, NULL); break;
	default: break;
	}
}

void rk_ui_act(rk_ui *ui, enum rk_action a)
{
	ui->dirty = true;
	if (ui->overlay != RK_OVERLAY_NONE && act_overlay(ui, a))
		return;
	switch (a) {
	case RK_ACT_QUIT: ui->quit = true; break;
	case RK_ACT_HELP:
	case RK_ACT_TYPE_HELP:
	case RK_ACT_TOUR:
		ui->overlay = a == RK_ACT_TOUR ? RK_OVERLAY_TOUR : RK_OVERLAY_HELP;
		ui->overlay_top = 0;
		break;
	case RK_ACT_NEXT_PANE: next_pane(ui, 1); break;
	case RK_ACT_PREV_PANE: next_pane(ui, -1); break;
	case RK_ACT_TYPE:
		if (ui->feed->ask) {
			ui->typing = true;
			ui->focus = RK_PANE_CHAT;
		}
		break;
	case RK_ACT_COMMAND: open_line(ui, RK_LINE_COMMAND, ""); break;
	case RK_ACT_SEARCH: open_line(ui, RK_LINE_SEARCH, ""); break;
	case RK_ACT_SEND: send(ui); break;
	case RK_ACT_LEAVE:
		if (busy(ui))
			stop(ui);
		else
			ui->typing = false;
		break;
	case RK_ACT_TYPE_NEXT_PANE:
		ui->typing = false;
		next_pane(ui, 1);
		break;
	default:
		act_reply(ui, a);
		act_move(ui, a);
		act_look(ui, a);
	}
}

/* ---- keys ---- */

static void click(rk_ui *ui)
{
	int x = ui->screen.mouse_x, y = ui->screen.mouse_y;
	rk_chat_lines *l = &ui->lines[ui->lane];
	rk_rect t = ui->text_rect;

	for (int i = 0; i < RK_N_PANE; i++) {
		rk_rect r = ui->layout.pane[i];
		if (x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + r.h)
			ui->focus = (enum rk_pane_id)i;
	}
	if (ui->screen.mouse_wheel) {
		scroll(ui, 3 * ui->screen.mouse_wheel);
		return;
	}
	int64_t line = ui->text_top + y - t.y;
	if (x < t.x || x >= t.x + t.w || y < t.y || y >= t.y + t.h || line >= l->n || l->line[line].item < 0)
		return;
	const rk_view_item *it = &ui->view.item[l->line[line].item];
	size_t len, at = l->line[line].at, end = at + l->line[line].len;
	const char *s = rk_chat_text(&ui->view, it, ui->lane, &len);
	int32_t cp;
	for (int col = t.x + RK_CHAT_INDENT; it->kind == RK_ITEM_REPLY && at < end;) {
		size_t n = rk_char_next(s + at, end - at, &cp);
		col += rk_char_width(cp);
		if (x < col) {
			ui->cursor = rk_view_token_of(&ui->view, it, ui->lane, at);
			ui->inspect = true;
			return;
		}
		at += n;
	}
}

static void interrupt(rk_ui *ui)
{
	if (ui->interrupted) {
		ui->quit = true;
		return;
	}
	ui->interrupted = true;
	if (busy(ui))
		stop(ui);
	ui->line_mode = RK_LINE_NONE;
	rk_ui_say(ui, "Ctrl-C once more leaves the program");
}

static void line_key(rk_ui *ui, int32_t key)
{
	enum rk_action a = rk_keymap_find(&ui->set.keys, RK_IN_TYPING, key);

	if (key == RK_KEY_ESC || (key == RK_KEY_BACKSPACE && !ui->line.len))
		ui->line_mode = RK_LINE_NONE;
	else if (a == RK_ACT_SEND && !ui->line.pasting)
		finish_line(ui);
	else if (a != RK_ACT_NEWLINE)
		rk_input_key(&ui->line, a, key);
}

void rk_ui_key(rk_ui *ui, int32_t key)
{
	ui->dirty = true;
	ui->message_until = 0;
	if (key == RK_CTRL('c')) {
		interrupt(ui);
		return;
	}
	ui->interrupted = false;
	if (key == RK_KEY_MOUSE) {
		click(ui);
	} else if (ui->line_mode != RK_LINE_NONE) {
		line_key(ui, key);
	} else if (ui->typing && ui->overlay == RK_OVERLAY_NONE) {
		enum rk_action a = rk_keymap_find(&ui->set.keys, RK_IN_TYPING, key);
		if (key == RK_CTRL('d') && !ui->input.len)
			ui->quit = true;
		else if (!rk_input_key(&ui->input, a, key))
			rk_ui_act(ui, a);
		if (ui->input.cut) {
			ui->input.cut = false;
			rk_ui_complain(ui, "longer than %u bytes: the rest is left out", RK_INPUT_MAX);
		}
	} else if (key == RK_KEY_PASTE_BEGIN && ui->feed->ask) {	/* a paste is meant for the editor */
		ui->typing = true;
		rk_input_key(&ui->input, RK_ACT_NONE, key);
	} else {
		enum rk_action a = rk_keymap_find(&ui->set.keys, RK_IN_PANES, key);
		if (a == RK_ACT_NONE && ui->overlay == RK_OVERLAY_NONE && ui->feed->seek && key >= '0' && key <= '9')
			rk_ui_seek(ui, (const char[]){ (char)key, '0', '\0' });
		else
			rk_ui_act(ui, a);
	}
}
