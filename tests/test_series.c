/* test_series.c: what is computed from a whole trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "aid_trace.h"
#include "trace/series.h"

static void push_token(rk_series *s, int lane, int index, float logprob)
{
	rk_event ev = { .type = RK_EV_TOKEN, .lane = (int8_t)lane, .index = index, .size = 1,
		.token = { .id = 5, .logprob = logprob, .kl = NAN } };
	assert_int_equal(rk_series_add(s, &ev, "x", NULL), 0);
}

static void ratios_take_the_right_baseline(void **state)
{
	(void)state;
	rk_trace_header h = aid_header();
	rk_series s;
	rk_event start = { .type = RK_EV_START, .lane = -1, .start = { .n_lane = 2, .n_layer = N_LAYER }, .size = 23 };
	rk_event shadow = { .type = RK_EV_SHADOW, .index = 0, .shadow = { .logprob = -1, .kl = 0.25f } };
	rk_event idle = { .type = RK_EV_IDLE, .lane = -1 };
	/* Forced: lane 1 against vanilla in lane 0; two sessions, the second half as surprising. */
	rk_series_init(&s, &h);
	for (int k = 1; k <= 2; k++) {
		assert_int_equal(rk_series_add(&s, &start, "vanilla\nrefreshkv:qc=5\n", NULL), 0);
		for (int i = 0; i < 3; i++) {
			push_token(&s, 0, i, -1);
			push_token(&s, 1, i, -1 - 1.0f / (float)k);
		}
		assert_int_equal(rk_series_add(&s, &idle, NULL, NULL), 0);
	}
	assert_int_equal(s.base, 0);
	assert_float_equal((float)rk_series_ratio(&s, 1, 0, 3), expf(1), 1e-5);
	assert_float_equal((float)rk_series_ratio(&s, 1, 3, 6), expf(0.5f), 1e-5);
	assert_float_equal((float)rk_series_ratio(&s, 0, 0, 6), 1, 0);
	assert_true(isnan(rk_series_ratio(&s, 1, 6, 9)));
	rk_series_free(&s);
	/* Generated: only the shadow counts, late as it is, and a lane on its own way has no baseline. */
	h.follow = RK_FOLLOW_NONE;
	rk_series_init(&s, &h);
	rk_series_add(&s, &start, "vanilla\nrefreshkv:qc=5\n", NULL);
	for (int i = 0; i < 3; i++) {
		push_token(&s, 0, i, -2);
		push_token(&s, 1, i, -2);
	}
	rk_series_add(&s, &shadow, NULL, NULL);
	shadow.index = 99;	/* its token was lost */
	rk_series_add(&s, &shadow, NULL, NULL);
	rk_series_add(&s, &idle, NULL, NULL);
	assert_float_equal((float)rk_series_ratio(&s, 0, 0, 3), expf(1), 1e-5);
	assert_float_equal(s.lane[0].token[0].kl, 0.25f, 0);
	assert_true(isnan(rk_series_ratio(&s, 0, 1, 3)));
	assert_false(rk_series_has_ratio(&s, 1));
	rk_series_free(&s);
}

static void a_given_token_is_not_the_choice(void **state)
{
	(void)state;
	rk_trace_header h = aid_header();
	rk_series s;
	rk_event ev = { .type = RK_EV_TOKEN, .token = { .id = 5, .kl = NAN, .top_id = { 7, 5 } } };
	rk_series_init(&s, &h);
	assert_int_equal(rk_series_add(&s, &ev, "", NULL), 0);
	ev.index = 1;
	ev.token.forced = true;
	assert_int_equal(rk_series_add(&s, &ev, "", NULL), 0);
	assert_int_equal(s.lane[0].token[0].choice, 5);	/* sampled */
	assert_int_equal(s.lane[0].token[1].choice, 7);
	assert_int_equal(s.lane[0].token[1].id, 5);
	rk_series_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ratios_take_the_right_baseline), cmocka_unit_test(a_given_token_is_not_the_choice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
