/* test_team.c: the CPU backend's threads: every piece exactly once, results visible, whatever the sizes and the load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include "cpu/team.h"

#define MAX_PIECE 300

struct sheet {
	int times[MAX_PIECE];		/* how often each piece was done; plain ints: a race shows under TSan */
	int n_thread, bad_worker;
};

static void mark(void *ctx, int piece, int worker)
{
	struct sheet *s = ctx;

	s->times[piece]++;
	if (worker < 0 || worker >= s->n_thread)
		s->bad_worker++;
}

static void check_run(rk_team *t, struct sheet *s, int n)
{
	for (int i = 0; i < MAX_PIECE; i++)
		s->times[i] = 0;
	rk_team_run(t, n, mark, s);
	for (int i = 0; i < MAX_PIECE; i++)
		assert_int_equal(s->times[i], i < n);
	assert_int_equal(s->bad_worker, 0);
}

static void each_piece_once(void **state)
{
	(void)state;
	for (int n_thread = 1; n_thread <= 5; n_thread++) {
		struct sheet s = { .n_thread = n_thread };
		rk_team *t;
		rk_err e;
		assert_int_equal(rk_team_open(&t, n_thread, &e), 0);
		for (int i = 0; i < 4000; i++)
			check_run(t, &s, (i * 7919) % MAX_PIECE);
		rk_team_close(t);
	}
}

/* Jobs that follow each other at once, one of them tiny, one large: a late worker meets a job that has changed. */
static void short_after_long(void **state)
{
	(void)state;
	struct sheet s = { .n_thread = 4 };
	rk_team *t;
	rk_err e;

	assert_int_equal(rk_team_open(&t, 4, &e), 0);
	for (int i = 0; i < 20000; i++)
		check_run(t, &s, i % 2 ? 2 : 3 + i % 37);
	rk_team_close(t);
}

static void add_up(void *ctx, int piece, int worker)
{
	int64_t *sum = ctx;

	(void)worker;
	for (int i = 0; i < 2000; i++)
		sum[piece] += i ^ piece;
}

/* What the workers wrote is there when run returns, also after they have slept. */
static void results_are_visible(void **state)
{
	(void)state;
	rk_team *t;
	rk_err e;
	int64_t sum[64], want[64] = { 0 };

	for (int i = 0; i < 64; i++)
		add_up(want, i, 0);
	assert_int_equal(rk_team_open(&t, 3, &e), 0);
	for (int k = 0; k < 200; k++) {
		for (int i = 0; i < 64; i++)
			sum[i] = 0;
		rk_team_run(t, 64, add_up, sum);
		assert_memory_equal(sum, want, sizeof sum);
		for (volatile int spin = 0; k % 20 == 0 && spin < 3000000; spin++)
			;	/* long enough for the workers to go to sleep */
	}
	rk_team_close(t);
}

static void closing_nothing_is_fine(void **state)
{
	(void)state;
	rk_team_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_piece_once),
		cmocka_unit_test(short_after_long),
		cmocka_unit_test(results_are_visible),
		cmocka_unit_test(closing_nothing_is_fine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
