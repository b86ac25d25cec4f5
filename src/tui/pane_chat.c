/* pane_chat.c: the conversation, each token on a ground that tells which share of the layers took a full step for it; below
 * it the inspector of one token and the editor for the next question. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

/* Vanilla has nothing to tell: all its layers are full at every step. */
static enum rk_role shade_of(const rk_ui *ui, int lane, const rk_view_token *t)
{
	int n = ui->view.n_layer;

	if (!ui->shade || !strncmp(ui->view.stats.lane[lane].spec, "vanilla", 7) || !t || !t->stepped || t->n_full == 0)
		return RK_ROLE_TEXT;
	int quarter = t->n_full * 4 / n;	/* 0 to 4 */
	return (enum rk_role)(RK_ROLE_SHADE1 + (quarter > 3 ? 3 : quarter));
}

/* A line of a reply, token by token, so that each has its own role. */
static void draw_reply_line(rk_ui *ui, rk_canvas *c, rk_rect r, int y, int lane, const rk_chat_line *ln)
{
	const rk_view_item *it = &ui->view.item[ln->item];
	size_t len, at = ln->at, end = ln->at + ln->len;
	const char *text = rk_chat_text(&ui->view, it, lane, &len);
	int x = RK_CHAT_INDENT;

	while (at < end) {
		int64_t serial = rk_view_token_of(&ui->view, it, lane, at);
		const rk_view_token *t = serial < 0 ? NULL : rk_view_token_at(&ui->view, lane, serial);
		size_t stop = t ? t->text_at + t->text_len - it->text_at[lane] : end;
		enum rk_role role = shade_of(ui, lane, t);
		if (stop > end)
			stop = end;
		if (t && it->differs[lane] >= 0 && t->index == it->differs[lane])
			role = RK_ROLE_DIFFERS;
		if (serial >= 0 && serial == ui->cursor && lane == ui->lane)
			role = RK_ROLE_CURSOR;
		for (int32_t cp; at < stop;) {
			size_t n = rk_char_next(text + at, stop - at, &cp);
			x = cp == '\t' ? rk_puts(c, r, x, y, role, " ") : rk_put(c, r, x, y, role, text + at, n);
			at += n;
		}
	}
}

static void mark_match(const rk_ui *ui, rk_canvas *c, rk_rect r, int y, const rk_chat_line *ln, const char *text)
{
	size_t from = ui->found_at, to = ui->found_at + ui->found_len;

	if (ln->item != ui->found_item || to <= ln->at || from >= ln->at + ln->len)
		return;
	if (from < ln->at)
		from = ln->at;
	if (to > ln->at + ln->len)
		to = ln->at + ln->len;
	rk_set_role(c, r, RK_CHAT_INDENT + rk_text_width(text + ln->at, from - ln->at), y, rk_text_width(text + from, to - from), RK_ROLE_MATCH);
}

void rk_chat_draw_lines(rk_ui *ui, rk_canvas *c, rk_rect r, int lane)
{
	rk_chat_lines *l = &ui->lines[lane];
	const rk_view *v = &ui->view;
	size_t len;

	rk_chat_lines_update(l, v, lane, r.w);
	int64_t top = ui->top < 0 || ui->top > l->n - r.h ? l->n - r.h : ui->top;
	if (top < 0)
		top = 0;
	if (lane == ui->lane) {
		ui->text_rect = r;
		ui->text_top = top;
	}
	for (int y = 0; y < r.h && top + y < l->n; y++) {
		const rk_chat_line *ln = &l->line[top + y];
		if (ln->item < 0)
			continue;
		const rk_view_item *it = &v->item[ln->item];
		const char *text = rk_chat_text(v, it, lane, &len);
		if (it->kind == RK_ITEM_REPLY) {
			draw_reply_line(ui, c, r, y, lane, ln);
		} else {
			bool user = it->kind == RK_ITEM_USER, error = !user && !strncmp(text, "error:", 6);
			enum rk_role role = user ? RK_ROLE_USER : error ? RK_ROLE_ERROR : RK_ROLE_NOTE;
			if (ln->first)
				rk_put_sym(c, r, 0, y, role, user ? RK_SYM_POINT : RK_SYM_DOT);
			rk_put(c, r, RK_CHAT_INDENT, y, role, text + ln->at, ln->len);
		}
		mark_match(ui, c, r, y, ln, text);
	}
	if (l->n > r.h && r.h > 1) {	/* how far down this is */
		int mark = (int)(top * (r.h - 1) / (l->n - r.h));
		rk_put_sym(c, r, r.w - 1, mark, RK_ROLE_RULE, RK_SYM_HALF);
	}
}

static void draw_welcome(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	const rk_feed_info *in = &ui->feed->info;
	int y = r.h > 8 ? 1 : 0;

	if (in->document[0])
		rk_putf(c, r, 2, y++, RK_ROLE_TEXT, "%s is the document.", in->document);
	rk_puts(c, r, 2, y++, RK_ROLE_TEXT, !ui->feed->ask ? "Waiting for the recording." :
	        in->document[0] ? "Type a question about it and press Enter; it is read then." : "Type a question and press Enter.");
	rk_puts(c, r, 2, y + 1, RK_ROLE_DIM, "Tab goes to the panes; there ? explains every key and word.");
}

/* The editor: its rows grow with the text, up to a third of the pane. */
static int editor_rows(const rk_ui *ui, rk_rect r)
{
	int rows = rk_input_rows(&ui->input, r.w - RK_CHAT_INDENT), most = r.h / 3 > 1 ? r.h / 3 : 1;

	return !ui->feed->ask ? 0 : rows < most ? rows : most;
}

static void draw_editor(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	rk_put_sym(c, r, 0, 0, ui->typing ? RK_ROLE_FOCUS : RK_ROLE_DIM, RK_SYM_POINT);
	rk_rect box = { r.x + RK_CHAT_INDENT, r.y, r.w - RK_CHAT_INDENT, r.h };
	int x = -1, y = -1;
	rk_input_draw(&ui->input, c, box, &x, &y);
	if (!ui->typing && !ui->input.len)
		rk_puts(c, box, 0, 0, RK_ROLE_DIM, "Enter or i: type a question");
	if (ui->typing && ui->line_mode == RK_LINE_NONE && x >= 0) {
		ui->cursor_shown = true;
		ui->cursor_x = x;
		ui->cursor_y = y;
	}
}

static void draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	int edit = editor_rows(ui, r);
	int look = ui->inspect && ui->view.n_lane && r.h - edit >= RK_INSPECTOR_ROWS + RK_INSPECTOR_LEAVES ? RK_INSPECTOR_ROWS : 0;
	rk_rect text = { r.x, r.y, r.w, r.h - edit - look - (edit && r.h > 6 ? 1 : 0) };

	if (ui->compare && ui->view.n_lane > 1)
		rk_compare_draw(ui, c, text);
	else if (ui->view.n_item)
		rk_chat_draw_lines(ui, c, text, ui->lane);
	else
		draw_welcome(ui, c, text);
	if (look)
		rk_inspector_draw(ui, c, (rk_rect){ r.x, r.y + r.h - edit - look, r.w, look });
	else if (edit && r.h > 6)
		rk_put_line(c, r, 0, r.h - edit - 1, r.w, RK_ROLE_RULE, RK_SYM_HLINE);
	if (edit)
		draw_editor(ui, c, (rk_rect){ r.x, r.y + r.h - edit, r.w, edit });
}

static void caption(const rk_ui *ui, char *out, size_t size)
{
	if (ui->view.n_lane > 1 && !ui->compare)
		snprintf(out, size, "lane %d of %d", ui->lane + 1, ui->view.n_lane);
	else
		snprintf(out, size, "%s", ui->shade && ui->view.n_lane ? "shaded by full layers" : "");
}

const rk_pane rk_pane_chat = {
	.name = "chat", .title = "Conversation", .draw = draw, .caption = caption,
	.footer = { RK_ACT_TYPE, RK_ACT_INSPECT, RK_ACT_SHADE, RK_ACT_SEARCH, RK_ACT_REGENERATE, RK_ACT_EDIT_LAST, RK_ACT_PAUSE },
};
