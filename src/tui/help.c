/* help.c: the `?` overlay: every key from the table of keys, every command, every word from the glossary of the handbook
 * that travels in the binary, so that the screen and the handbook never disagree. */
#include <stdlib.h>
#include <string.h>
#include "base/embedded.h"
#include "tui/pane.h"

/* Draws lines from a virtual page, of which only some are on the screen. */
struct page { rk_canvas *c; rk_rect r; int y, top; };

static void line(struct page *p, int x, enum rk_role role, const char *s, size_t len)
{
	if (p->y >= p->top && p->y - p->top < p->r.h)
		rk_put(p->c, p->r, x, p->y - p->top, role, s, len);
}

static void heading(struct page *p, const char *s)
{
	p->y += p->y > 0;
	line(p, 0, RK_ROLE_TITLE, s, strlen(s));
	p->y++;
}

/* A term in the left column, its meaning wrapped in the right one. */
static void entry(struct page *p, const char *term, size_t n_term, const char *text, size_t len, int at)
{
	int w = p->r.w - at;

	line(p, 2, RK_ROLE_KEY, term, n_term);
	if (rk_text_width(term, n_term) + 3 > at)
		p->y++;
	while (len > 0) {
		size_t n = len;
		if ((int)len > w) {
			for (n = (size_t)(w > 1 ? w : 1); n > 0 && text[n] != ' '; n--)
				;
			n = n ? n : (size_t)(w > 1 ? w : 1);
		}
		line(p, at, RK_ROLE_TEXT, text, n);
		p->y++;
		while (n < len && text[n] == ' ')
			n++;
		text += n;
		len -= n;
	}
}

static void keys(const rk_ui *ui, struct page *p, enum rk_place place)
{
	char names[64];

	for (int a = 1; a < RK_N_ACTION; a++)
		if (rk_actions[a].place == place && ui->set.keys.key[a][0]) {
			rk_keymap_names(&ui->set.keys, (enum rk_action)a, names, sizeof names);
			entry(p, names, strlen(names), rk_actions[a].doc, strlen(rk_actions[a].doc), 18);
		}
}

static void glossary(struct page *p)
{
	const rk_embedded *f = rk_embedded_find("docs/handbook.md");
	const char *s = f ? strstr(f->data, "## Glossary\n") : NULL;
	char text[600];

	for (s = s ? strstr(s, "\n- ") : NULL; s; s = strstr(s, "\n- ")) {
		s += 3;
		const char *colon = strchr(s, ':'), *end = strstr(s, "\n- ");
		size_t len = 0;
		if (!colon)
			return;
		if (!end)
			end = s + strlen(s);
		for (const char *q = colon + 1; q < end && len < sizeof text - 1; q++) {	/* joins the lines of an entry */
			char ch = *q == '\n' ? ' ' : *q;
			if (ch != ' ' || (len && text[len - 1] != ' '))
				text[len++] = ch;
		}
		entry(p, s, (size_t)(colon - s), text, len, 30);
		s--;
	}
}

void rk_help_draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	struct page p = { c, r, 0, ui->overlay_top };

	heading(&p, "Keys");
	keys(ui, &p, RK_IN_PANES);
	entry(&p, "0 to 9", 6, RK_SEEK_DOC, strlen(RK_SEEK_DOC), 18);
	heading(&p, "Keys while typing");
	keys(ui, &p, RK_IN_TYPING);
	entry(&p, "Up Down", 7, "earlier and later questions, at the first and last line", 55, 18);
	heading(&p, "Everywhere");
	entry(&p, "C-c", 3, "stop the reply; twice: leave the program", 40, 18);
	entry(&p, "C-z", 3, "suspend; the reply waits until `fg`", 35, 18);
	heading(&p, "Commands, after :");
	for (const rk_command_row *k = rk_commands; k->name; k++) {
		char term[80];
		int n = snprintf(term, sizeof term, "%s %s", k->name, k->args);
		entry(&p, term, (size_t)n, k->doc, strlen(k->doc), 30);
	}
	heading(&p, "Words");
	glossary(&p);
	int most = p.y - r.h > 0 ? p.y - r.h : 0;
	if (ui->overlay_top > most) {	/* scrolled past the end: once more from where the end is */
		ui->overlay_top = most;
		rk_fill(c, r, RK_ROLE_TEXT);
		rk_help_draw(ui, c, r);
		return;
	}
	rk_rect below = { r.x, r.y + r.h, r.w, 1 };
	rk_putf(c, below, 2, 0, RK_ROLE_DIM, " lines %d to %d of %d   j k PgUp PgDn scroll   Esc closes ", ui->overlay_top + 1,
	        ui->overlay_top + (p.y < r.h ? p.y : r.h), p.y);
}
