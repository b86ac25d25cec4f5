/* draw.c: one frame: header, panes with their titles, footer, and what lies over them. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include "tui/pane.h"

#define TOUR_ROWS 16

const rk_pane *const rk_panes[RK_N_PANE] = {
	[RK_PANE_CHAT] = &rk_pane_chat, [RK_PANE_STRIDE] = &rk_pane_stride, [RK_PANE_TIMELINE] = &rk_pane_timeline,
	[RK_PANE_OCCUPANCY] = &rk_pane_occupancy, [RK_PANE_RATIO] = &rk_pane_ratio, [RK_PANE_SPEED] = &rk_pane_speed,
};

static void put_centered(rk_canvas *c, rk_rect r, int y, const char *s, size_t len)
{
	int w = rk_text_width(s, len);

	rk_put(c, r, w < r.w ? (r.w - w) / 2 : 0, y, RK_ROLE_DIM, s, len);
}

/* Bytes of s that fit in w columns, up to a blank. */
static size_t fitting(const char *s, int w)
{
	size_t n = strlen(s);

	while (n > 0 && (rk_text_width(s, n) > w || (s[n] && s[n] != ' ')))
		n--;
	return n;
}

void rk_put_n_a(rk_canvas *c, rk_rect r, const char *about, const char *why)
{
	int rows = 0, w = r.w - 4;
	size_t n = 1;

	for (const char *s = about; *s && n; s += n + (s[n] == ' '), rows++)
		n = fitting(s, w);
	if (!n || rows + 2 > r.h)
		rows = 0;
	int y = rows ? (r.h - rows - 2) / 2 : r.h / 2, below = rows ? y + rows + 1 : y;
	for (const char *s = about; rows > 0; rows--, s += n + (s[n] == ' ')) {
		n = fitting(s, w);
		put_centered(c, r, y++, s, n);
	}
	put_centered(c, r, below, why, strlen(why));
}

bool rk_ui_policy(const rk_ui *ui, int lane, rk_policy *p)
{
	return ui->view.n_lane && rk_policy_parse(p, ui->view.stats.lane[lane].spec, NULL) == 0;
}

int64_t rk_ui_serial(const rk_ui *ui)
{
	return ui->cursor >= 0 ? ui->cursor : ui->view.lane[ui->lane].n_token - 1;
}

/* "prefill 45 %  310 tok/s  12 s left" and the like. */
static void phase_text(const rk_ui *ui, char *out, size_t size)
{
	const rk_view *v = &ui->view;
	double s = (double)v->prefill_ns * 1e-9, rate = s > 0 ? v->prefill_done / s : 0;

	if (v->phase == RK_PHASE_WAITING) {
		snprintf(out, size, "starting");
	} else if (v->phase == RK_PHASE_PREFILL && rate > 0) {
		snprintf(out, size, "reading %d %%  %.0f tok/s  %.0f s left  Esc: cancel", v->prefill_total ? (int)(100ll * v->prefill_done / v->prefill_total) : 0,
		         rate, ceil((v->prefill_total - v->prefill_done) / rate));
	} else if (v->phase == RK_PHASE_PREFILL) {
		snprintf(out, size, "reading 0 %%  of %d tokens  Esc: cancel", v->prefill_total);
	} else if (ui->paused) {
		snprintf(out, size, "paused");
	} else if (v->phase == RK_PHASE_REPLY) {
		snprintf(out, size, "writing");
	} else {
		int at = rk_view_last(v, RK_ITEM_REPLY), end = at < 0 ? -1 : v->item[at].end[ui->lane];
		bool early = end > RK_END_TOKEN && end < RK_END_FORCED;
		snprintf(out, size, "%s%s%s%s", v->n_lane ? "ready" : "", early ? " (" : "", early ? rk_view_end_name(end) : "", early ? ")" : "");
	}
	if (ui->tok_per_s > 0 && v->phase == RK_PHASE_REPLY) {
		size_t n = strlen(out);
		snprintf(out + n, size - n, "  at most %.3g tok/s", (double)ui->tok_per_s);
	}
}

/* Cuts what does not fit in w columns, visibly. */
static void cut(const rk_canvas *c, char *s, int w)
{
	size_t len = strlen(s), i = 0, end = 0;
	int32_t cp;

	if (rk_text_width(s, len) <= w)
		return;
	for (int x = 0; i < len && x < w; i += rk_char_next(s + i, len - i, &cp)) {
		rk_char_next(s + i, len - i, &cp);
		x += rk_char_width(cp);
		if (x < w)
			end = i + rk_char_next(s + i, len - i, &cp);
	}
	snprintf(s + end, 4, "%s", rk_sym_text(c, RK_SYM_MORE));
}

static void draw_header(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_feed_info *in = &ui->feed->info;
	char phase[140], left[512] = "", brief[RK_SPEC_MAX];
	int n = 0;
	int at = ui->feed->recording ? snprintf(phase, sizeof phase, "recording  ") : 0;

	phase_text(ui, phase + at, sizeof phase - (size_t)at);
	/* from the left by importance: what does not fit is cut off */
	if (ui->view.stats.lost)
		n += snprintf(left, sizeof left, "  %lld events lost", (long long)ui->view.stats.lost);
	if (ui->view.out_of_memory)
		n += snprintf(left + n, sizeof left - (size_t)n, "  out of memory: details are missing");
	if (ui->view.n_lane)
		n += snprintf(left + n, sizeof left - (size_t)n, "  policy %s", rk_view_brief(ui->view.stats.lane[ui->lane].spec, brief));
	snprintf(left + n, sizeof left - (size_t)n, "%s%.120s  %s", in->document[0] ? "  " : "", in->document, in->model);
	int x = rk_puts(c, r, 0, 0, RK_ROLE_TITLE, "refreshkv");
	cut(c, left, r.w - x - rk_text_width(phase, strlen(phase)) - 2);
	rk_puts(c, r, x, 0, RK_ROLE_DIM, left);
	rk_put_right(c, r, 0, ui->paused || ui->view.phase == RK_PHASE_PREFILL ? RK_ROLE_WARN : RK_ROLE_TEXT, phase);
}

/* Can this feed do it? */
static bool possible(const rk_ui *ui, enum rk_action a)
{
	switch (a) {
	case RK_ACT_TYPE: return ui->feed->ask != NULL;
	case RK_ACT_REGENERATE:
	case RK_ACT_EDIT_LAST: return ui->feed->ask_again != NULL;
	case RK_ACT_EDIT_POLICY: return ui->feed->set_policy != NULL;
	case RK_ACT_STOP: return ui->feed->stop != NULL;
	case RK_ACT_LANE:
	case RK_ACT_COMPARE: return ui->view.n_lane > 1;
	default: return true;
	}
}

static int put_action(const rk_ui *ui, rk_canvas *c, rk_rect r, int x, enum rk_action a)
{
	char name[16];
	int32_t key = ui->set.keys.key[a][0];

	if (!key || !rk_actions[a].label[0] || !possible(ui, a))
		return x;
	rk_key_name(key, name);
	if (x + rk_text_width(name, strlen(name)) + (int)strlen(rk_actions[a].label) + 1 > r.w)
		return r.w;
	x = rk_puts(c, r, x, 0, RK_ROLE_KEY, name);
	return rk_putf(c, r, x, 0, RK_ROLE_DIM, " %s  ", rk_actions[a].label);
}

static void draw_footer(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	static const enum rk_action typing[] = { RK_ACT_SEND, RK_ACT_NEWLINE, RK_ACT_LEAVE, RK_ACT_TYPE_NEXT_PANE, RK_ACT_TYPE_HELP, 0 };
	static const enum rk_action always[] = { RK_ACT_NEXT_PANE, RK_ACT_HELP, RK_ACT_QUIT, 0 };
	int x = 0;

	if (ui->line_mode != RK_LINE_NONE) {
		x = rk_puts(c, r, 0, 0, RK_ROLE_KEY, ui->line_mode == RK_LINE_COMMAND ? ":" : "/");
		rk_input_draw(&ui->line, c, (rk_rect){ r.x + x, r.y, r.w - x, 1 }, &ui->cursor_x, &ui->cursor_y);
		ui->cursor_shown = true;
		return;
	}
	if (ui->message_until) {
		rk_puts(c, r, 0, 0, ui->message_error ? RK_ROLE_ERROR : RK_ROLE_GOOD, ui->message);
		return;
	}
	const enum rk_action *own = ui->typing ? typing : rk_panes[ui->focus]->footer;
	if (ui->view.phase == RK_PHASE_REPLY && !ui->typing)
		x = put_action(ui, c, r, x, RK_ACT_STOP);
	for (int i = 0; own[i]; i++)
		x = put_action(ui, c, r, x, own[i]);
	for (int i = 0; !ui->typing && always[i]; i++)
		x = put_action(ui, c, r, x, always[i]);
}

static void draw_pane(rk_ui *ui, rk_canvas *c, enum rk_pane_id id)
{
	rk_rect r = ui->layout.pane[id];
	char caption[160] = "";
	bool focus = id == ui->focus && !ui->typing;

	if (!r.w)
		return;
	rk_put_line(c, r, 0, 0, r.w, RK_ROLE_RULE, RK_SYM_HLINE);
	int x = rk_putf(c, r, 1, 0, focus ? RK_ROLE_FOCUS : RK_ROLE_TITLE, " %s ", rk_panes[id]->title);
	if (rk_panes[id]->caption)
		rk_panes[id]->caption(ui, caption, sizeof caption);
	int w = rk_text_width(caption, strlen(caption));
	if (w && x + w + 3 < r.w)
		rk_putf(c, r, r.w - w - 3, 0, RK_ROLE_DIM, " %s ", caption);
	rk_panes[id]->draw(ui, c, (rk_rect){ r.x, r.y + 1, r.w, r.h - 1 });
}

static void draw_too_small(rk_canvas *c)
{
	rk_rect r = { 0, 0, c->cols, c->rows };

	rk_puts(c, r, 0, 0, RK_ROLE_WARN, "too small");
	rk_putf(c, r, 0, 1, RK_ROLE_TEXT, "have %dx%d", c->cols, c->rows);
	rk_putf(c, r, 0, 2, RK_ROLE_TEXT, "need %dx%d", RK_MIN_COLS, RK_MIN_ROWS);
}

/* Nearly all of the screen for help, a page for the tour; not wider than lines read well. */
static rk_rect overlay_box(const rk_ui *ui, const rk_canvas *c)
{
	int w = c->cols > 104 ? 100 : c->cols - 2, h = c->rows - 2;

	if (ui->overlay == RK_OVERLAY_TOUR && h > TOUR_ROWS)
		h = TOUR_ROWS;
	return (rk_rect){ (c->cols - w) / 2, (c->rows - h) / 2, w, h };
}

static void draw_overlay(rk_ui *ui, rk_canvas *c)
{
	rk_rect r = overlay_box(ui, c), in = { r.x + 2, r.y + 1, r.w - 4, r.h - 2 };

	rk_fill(c, r, RK_ROLE_TEXT);
	rk_put_line(c, r, 0, 0, r.w, RK_ROLE_RULE, RK_SYM_HLINE);
	rk_put_line(c, r, 0, r.h - 1, r.w, RK_ROLE_RULE, RK_SYM_HLINE);
	rk_put_vline(c, (rk_rect){ r.x, r.y + 1, r.w, r.h - 2 }, 0, RK_ROLE_RULE);
	rk_put_vline(c, (rk_rect){ r.x, r.y + 1, r.w, r.h - 2 }, r.w - 1, RK_ROLE_RULE);
	if (ui->overlay == RK_OVERLAY_HELP)
		rk_help_draw(ui, c, in);
	else
		rk_tour_draw(ui, c, in);
}

void rk_ui_draw(rk_ui *ui)
{
	rk_canvas *c = &ui->canvas;

	rk_canvas_clear(c);
	ui->cursor_shown = false;
	rk_layout_make(&ui->layout, c->cols, c->rows, ui->zoomed ? (int)ui->focus : ui->compare ? RK_PANE_CHAT : -1);
	if (ui->layout.too_small) {
		draw_too_small(c);
		return;
	}
	draw_header(ui, c, ui->layout.header);
	for (int i = 0; i < RK_N_PANE; i++)
		draw_pane(ui, c, (enum rk_pane_id)i);
	for (int i = 0; i < ui->layout.n_divider; i++)
		rk_put_vline(c, ui->layout.divider[i], 0, RK_ROLE_RULE);
	draw_footer(ui, c, ui->layout.footer);
	if (ui->overlay != RK_OVERLAY_NONE) {
		ui->cursor_shown = ui->cursor_shown && ui->line_mode != RK_LINE_NONE;
		draw_overlay(ui, c);
	}
}
