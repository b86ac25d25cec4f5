/* layout.c: see layout.h.  Panes stand in stacks; a stack drops what does not fit and shares the rest by weight. */
#include "tui/layout.h"

static const struct shape { int min_h, weight, keep; } shape[RK_N_PANE] = {	/* keep: the lowest is dropped first */
	[RK_PANE_CHAT] = { 4, 12, 9 }, [RK_PANE_SPEED] = { 7, 0, 5 }, [RK_PANE_STRIDE] = { 5, 8, 4 },
	[RK_PANE_TIMELINE] = { 5, 5, 3 }, [RK_PANE_RATIO] = { 5, 2, 2 }, [RK_PANE_OCCUPANCY] = { 5, 4, 1 },
};

/* Places panes from top to bottom in r. */
static void stack(rk_layout *l, rk_rect r, const enum rk_pane_id *pane, int n)
{
	enum rk_pane_id kept[RK_N_PANE];
	int need = 0, weight = 0, m = n;

	for (int i = 0; i < n; i++) {
		kept[i] = pane[i];
		need += shape[pane[i]].min_h;
	}
	while (m > 0 && need > r.h) {
		int worst = 0;
		for (int i = 1; i < m; i++)
			if (shape[kept[i]].keep < shape[kept[worst]].keep)
				worst = i;
		need -= shape[kept[worst]].min_h;
		m--;
		for (int i = worst; i < m; i++)
			kept[i] = kept[i + 1];
	}
	for (int i = 0; i < m; i++)
		weight += shape[kept[i]].weight;
	int spare = r.h - need, y = r.y;
	for (int i = 0; i < m; i++) {
		int w = shape[kept[i]].weight;
		int extra = weight ? spare * w / weight : i == m - 1 ? spare : 0;	/* of what the panes above left over */
		spare -= extra;
		weight -= w;
		l->pane[kept[i]] = (rk_rect){ r.x, y, r.w, shape[kept[i]].min_h + extra };
		y += shape[kept[i]].min_h + extra;
	}
}

/* Cuts w columns off the right of *r, and one for a divider. */
static rk_rect cut_right(rk_layout *l, rk_rect *r, int w)
{
	rk_rect right = { r->x + r->w - w, r->y, w, r->h };

	l->divider[l->n_divider++] = (rk_rect){ right.x - 1, r->y, 1, r->h };
	r->w -= w + 1;
	return right;
}

#define STACK(l, r, ...) stack(l, r, (const enum rk_pane_id[]){ __VA_ARGS__ }, \
	(int)(sizeof (enum rk_pane_id[]){ __VA_ARGS__ } / sizeof(enum rk_pane_id)))

void rk_layout_make(rk_layout *l, int cols, int rows, int zoom)
{
	rk_rect body = { 0, 1, cols, rows - 2 };

	*l = (rk_layout){ .too_small = cols < RK_MIN_COLS || rows < RK_MIN_ROWS };
	if (l->too_small)
		return;
	l->header = (rk_rect){ 0, 0, cols, 1 };
	l->footer = (rk_rect){ 0, rows - 1, cols, 1 };
	if (zoom >= 0 || (cols < 60 && rows < 20)) {
		l->pane[zoom >= 0 ? zoom : RK_PANE_CHAT] = body;
	} else if (cols >= 160) {
		rk_rect right = cut_right(l, &body, cols * 29 / 100), middle = cut_right(l, &body, cols * 29 / 100);
		STACK(l, body, RK_PANE_CHAT);
		STACK(l, middle, RK_PANE_STRIDE, RK_PANE_TIMELINE);
		STACK(l, right, RK_PANE_SPEED, RK_PANE_RATIO, RK_PANE_OCCUPANCY);
	} else if (cols >= 100) {
		rk_rect right = cut_right(l, &body, cols * 46 / 100);
		STACK(l, body, RK_PANE_CHAT);
		STACK(l, right, RK_PANE_SPEED, RK_PANE_STRIDE, RK_PANE_TIMELINE, RK_PANE_RATIO, RK_PANE_OCCUPANCY);
	} else if (cols >= 60 && rows >= 18) {
		int low = body.h / 2 + (body.h >= 20);	/* from 24 rows on, speed and ratio fit one above the other */
		rk_rect left = { 0, body.y + body.h - low, cols, low };
		STACK(l, ((rk_rect){ 0, body.y, cols, body.h - low }), RK_PANE_CHAT);
		rk_rect right = cut_right(l, &left, (cols - 1) / 2);
		STACK(l, left, RK_PANE_STRIDE, RK_PANE_TIMELINE);
		STACK(l, right, RK_PANE_SPEED, RK_PANE_RATIO, RK_PANE_OCCUPANCY);
	} else {
		STACK(l, body, RK_PANE_CHAT, RK_PANE_SPEED);
	}
}
