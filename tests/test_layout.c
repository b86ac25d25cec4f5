/* test_layout.c: every terminal size has a layout: inside, without overlap, dropping panes in the stated order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "tui/layout.h"

#define COLS 300
#define ROWS 100

static unsigned char grid[ROWS][COLS];

static void cover(rk_rect r, int cols, int rows)
{
	if (!r.w && !r.h)
		return;
	assert_true(r.w > 0 && r.h > 0);
	assert_true(r.x >= 0 && r.y >= 0 && r.x + r.w <= cols && r.y + r.h <= rows);
	for (int y = r.y; y < r.y + r.h; y++)
		for (int x = r.x; x < r.x + r.w; x++) {
			assert_int_equal(grid[y][x], 0);
			grid[y][x] = 1;
		}
}

static void check(int cols, int rows, int zoom)
{
	rk_layout l;

	rk_layout_make(&l, cols, rows, zoom);
	assert_int_equal(l.too_small, cols < RK_MIN_COLS || rows < RK_MIN_ROWS);
	if (l.too_small)
		return;
	memset(grid, 0, sizeof grid);
	cover(l.header, cols, rows);
	cover(l.footer, cols, rows);
	for (int i = 0; i < RK_N_PANE; i++)
		cover(l.pane[i], cols, rows);
	for (int i = 0; i < l.n_divider; i++)
		cover(l.divider[i], cols, rows);
	if (zoom >= 0) {
		for (int i = 0; i < RK_N_PANE; i++)
			assert_int_equal(l.pane[i].w != 0, i == zoom);
		return;
	}
	assert_true(l.pane[RK_PANE_CHAT].w > 0);
}

static void every_size(void **state)
{
	(void)state;
	for (int rows = 1; rows <= ROWS; rows++)
		for (int cols = 1; cols <= COLS; cols++)
			check(cols, rows, -1);
	for (int zoom = 0; zoom < RK_N_PANE; zoom++)
		for (int rows = 1; rows <= ROWS; rows += 3)
			for (int cols = 1; cols <= COLS; cols += 7)
				check(cols, rows, zoom);
}

/* In a column, a pane that stays implies that those which leave after it stay. */
static void drops_in_order(void **state)
{
	static const int order[] = { RK_PANE_OCCUPANCY, RK_PANE_RATIO, RK_PANE_TIMELINE, RK_PANE_STRIDE, RK_PANE_SPEED };
	rk_layout l;

	(void)state;
	for (int cols = 100; cols < 160; cols++)	/* all five share one column */
		for (int rows = RK_MIN_ROWS; rows <= ROWS; rows++) {
			rk_layout_make(&l, cols, rows, -1);
			for (int i = 0; i < 4; i++)
				if (l.pane[order[i]].w)
					assert_true(l.pane[order[i + 1]].w > 0);
		}
}

static void usual_sizes_show_everything(void **state)
{
	static const int size[][2] = { { 120, 40 }, { 160, 50 }, { 200, 60 }, { 300, 100 } };
	rk_layout l;

	(void)state;
	for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
		rk_layout_make(&l, size[k][0], size[k][1], -1);
		for (int i = 0; i < RK_N_PANE; i++)
			assert_true(l.pane[i].w > 0);
	}
	rk_layout_make(&l, 80, 24, -1);
	assert_true(l.pane[RK_PANE_SPEED].w && l.pane[RK_PANE_STRIDE].w && l.pane[RK_PANE_RATIO].w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size), cmocka_unit_test(drops_in_order), cmocka_unit_test(usual_sizes_show_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
