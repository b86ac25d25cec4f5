/* test_eval_chart.c: charts of ordinary, degenerate and unknown values: what is drawn where, and nothing outside the frame. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "eval/chart.h"

static rk_chart chart(enum rk_chart_kind kind, int n_row, int n_col)
{
	rk_chart c;
	rk_err e;
	assert_int_equal(rk_chart_init(&c, kind, n_row, n_col, &e), 0);
	snprintf(c.title, sizeof c.title, "title <&>");
	for (int i = 0; i < n_row; i++) {
		char label[16];
		snprintf(label, sizeof label, "row%d", i);
		assert_int_equal(rk_chart_label(&c, i, label, &e), 0);
	}
	return c;
}

static char *drawn(const rk_chart *c, int n, bool svg)
{
	char *s = NULL;
	size_t size;
	FILE *f = open_memstream(&s, &size);
	if (svg)
		rk_chart_svg(c, n, f);
	else
		rk_chart_print(c, n, f);
	fclose(f);
	assert_null(strstr(s, "nan"));
	assert_null(strstr(s, "inf"));
	return s;
}

static int count(const char *s, const char *what)
{
	int n = 0;
	for (const char *at = s; (at = strstr(at, what)); at++)
		n++;
	return n;
}

/* Two heat-maps beside each other: shades by value, a blank for what is not known. */
static void test_heat(void **state)
{
	rk_chart c[2] = { chart(RK_CHART_HEAT, 2, 2), chart(RK_CHART_HEAT, 2, 2) };
	(void)state;
	for (int i = 0; i < 2; i++) {
		memcpy(c[i].x, (double[]){ 1024, 2048, NAN, NAN }, 4 * sizeof(double));
		memcpy(c[i].y, (double[]){ 0, 1, 0.5, NAN }, 4 * sizeof(double));
	}
	char *s = drawn(c, 2, false), *svg = drawn(c, 2, true);
	assert_int_equal(count(s, "\n"), 5);
	assert_int_equal(count(s, "█"), 12);	/* 6 columns a cell, in each of the two */
	assert_int_equal(count(s, "▒"), 12);
	assert_int_equal(count(s, "·"), 12);
	assert_int_equal(count(s, "2048"), 2);
	assert_int_equal(count(svg, "class=\"full\""), 6);
	assert_int_equal(count(svg, "title &lt;&amp;&gt;"), 2);
	free(s), free(svg);
	rk_chart_free(&c[0]), rk_chart_free(&c[1]);
}

static void test_points(void **state)
{
	rk_chart c = chart(RK_CHART_POINTS, 3, 1);
	(void)state;
	memcpy(c.x, (double[]){ 0, 50, NAN }, 3 * sizeof(double));
	memcpy(c.y, (double[]){ 2, 1, 1 }, 3 * sizeof(double));
	char *s = drawn(&c, 1, false), *svg = drawn(&c, 1, true);
	const char *a = strchr(s, 'a'), *b = strchr(s, 'b');
	assert_true(a && b && a < b && b < strstr(s, "a  row0"));	/* in the plot, the greater value higher up */
	assert_non_null(strstr(s, "c  row2"));
	assert_int_equal(count(svg, "<circle"), 2);
	free(s), free(svg);
	rk_chart_free(&c);
}

/* Whatever the values are, marks stay inside the plot (the sanitizers would tell) and files are whole. */
static void test_any_values(void **state)
{
	uint64_t rng = 7;
	(void)state;
	for (int round = 0; round < 300; round++) {
		int kind = round % 3, rows = 1 + (int)rk_rng_below(&rng, 70), cols = kind == RK_CHART_POINTS ? 1 : 1 + (int)rk_rng_below(&rng, 20);
		rk_chart c = chart((enum rk_chart_kind)kind, rows, cols);
		double scale = pow(10, (double)rk_rng_below(&rng, 18) - 9);
		for (int i = 0; i < rows * cols; i++) {
			static const double odd[] = { NAN, INFINITY, -INFINITY, 0, -0.0, 1 };
			bool pick = rk_rng_below(&rng, 4) == 0;
			c.x[i] = kind == RK_CHART_HEAT ? 1024 * i : pick ? odd[rk_rng_below(&rng, 6)] : scale * rk_rng_unit(&rng);
			c.y[i] = kind == RK_CHART_HEAT ? rk_rng_unit(&rng) : pick ? odd[rk_rng_below(&rng, 6)] : scale * (rk_rng_unit(&rng) - 0.5);
		}
		char *s = drawn(&c, 1, false), *svg = drawn(&c, 1, true);
		assert_non_null(strstr(svg, "</svg>"));
		free(s), free(svg);
		rk_chart_free(&c);
	}
}

/* One value, or all the same: still a frame around it. */
static void test_flat(void **state)
{
	static const double values[] = { 0, 1, -5, 1e9, 1e-9 };
	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		rk_chart c = chart(RK_CHART_POINTS, 2, 1);
		c.x[0] = c.x[1] = c.y[0] = c.y[1] = values[i];
		char *s = drawn(&c, 1, false);
		assert_true(strchr(s, 'a') < strstr(s, "a  row0"));
		free(s);
		rk_chart_free(&c);
	}
}

/* Every score 0 %, read whole: the axes of percent, each tick once, and no minus zero. */
static void test_all_zero(void **state)
{
	rk_chart c = chart(RK_CHART_POINTS, 3, 1);
	(void)state;
	c.x_usual[1] = c.y_usual[1] = 100;
	for (int i = 0; i < 3; i++) {
		c.x[i] = 100;
		c.y[i] = i ? 0.0 : -0.0;
	}
	char *s = drawn(&c, 1, false), *svg = drawn(&c, 1, true);
	assert_non_null(strstr(s, "         0 +"));
	assert_non_null(strstr(s, "       100 +"));
	assert_int_equal(count(s, "+"), 4);	/* 0, 50, 100, and the corner */
	assert_null(strstr(s, "-0"));
	assert_null(strstr(svg, ">-0"));
	assert_non_null(strstr(svg, ">100<"));
	free(s), free(svg);
	for (int i = 0; i < 3; i++)
		c.y[i] = 0;
	c.y_usual[1] = 0;			/* nothing is known of the unit */
	s = drawn(&c, 1, false);
	assert_non_null(strstr(s, "       0.0 +"));
	assert_non_null(strstr(s, "       1.0 +"));
	assert_null(strstr(s, "-0.0 "));
	free(s);
	rk_chart_free(&c);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_heat), cmocka_unit_test(test_points), cmocka_unit_test(test_any_values), cmocka_unit_test(test_flat),
		cmocka_unit_test(test_all_zero),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
