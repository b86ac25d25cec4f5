/* test_stats.c: sums over a made-up event stream, and streams that cannot be right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/stats.h"

#define N_LAYER 3

static void add(rk_stats *s, rk_event ev, const void *payload, size_t size)
{
	ev.size = (uint32_t)size;
	assert_int_equal(rk_stats_add(s, &ev, payload, NULL), 0);
}

static void start(rk_stats *s, int n_lane, const char *specs)
{
	rk_event ev = { .type = RK_EV_START, .lane = -1 };
	ev.start.n_prompt = 1000;
	ev.start.n_lane = n_lane;
	ev.start.n_layer = N_LAYER;
	ev.start.bytes_full = 7000;
	ev.start.bytes_partial = 900;
	add(s, ev, specs, strlen(specs));
}

static void token(rk_stats *s, int lane, float logprob, float kl, bool same)
{
	rk_event ev = { .type = RK_EV_TOKEN, .lane = (int8_t)lane };
	ev.token.logprob = logprob;
	ev.token.kl = kl;
	ev.token.same_top1 = same;
	add(s, ev, NULL, 0);
}

/* full: bits of the layers that refreshed */
static void step(rk_stats *s, int lane, unsigned full, int64_t ns)
{
	rk_event ev = { .type = RK_EV_STEP, .lane = (int8_t)lane };
	rk_layer_step l[N_LAYER];
	for (unsigned i = 0; i < N_LAYER; i++)
		l[i] = (rk_layer_step){ .cos = NAN, .churn = full >> i & 1 ? 0.25f : NAN, .kind = (uint8_t)(full >> i & 1) };
	ev.step.ns_shared = ns;
	ev.step.ns_attn = 1000000;
	ev.step.bytes_full = 100;
	ev.step.bytes_partial = 20;
	ev.step.bytes_score = 3;
	ev.step.bytes_vanilla = 1000;
	add(s, ev, l, sizeof l);
}

static void check_figures(void **state)
{
	(void)state;
	rk_stats s;
	rk_event ev = { .type = RK_EV_PREFILL, .lane = -1 };
	rk_stats_init(&s);
	start(&s, 2, "vanilla\nrefreshkv:k=0.125,pool=7\n");
	assert_string_equal(s.lane[0].spec, "vanilla");
	assert_string_equal(s.lane[1].spec, "refreshkv:k=0.125,pool=7");
	assert_int_equal(s.n_prompt, 1000);
	assert_int_equal(s.cache_full, 7000);
	assert_int_equal(s.cache_partial, 900);
	ev.prefill.done = 400;
	ev.prefill.ns = 5;
	add(&s, ev, NULL, 0);
	assert_int_equal(s.n_prefill, 400);

	/* nothing is known yet */
	assert_true(isnan(rk_stats_stride(&s, 1)));
	assert_true(isnan(rk_stats_layer_stride(&s, 1, 0)));
	assert_true(isnan(rk_stats_ppl(&s, 0)));
	assert_true(isnan(rk_stats_ratio(&s, 1, 0)));
	assert_true(isnan(rk_stats_ms_median(&s, 0)));
	assert_true(isnan(rk_stats_bytes_per_step(&s, 0)));

	token(&s, 0, -1, 0, true);
	token(&s, 0, -3, 0, true);
	token(&s, 1, -1.5f, 0.5f, true);
	token(&s, 1, -3.5f, 0.25f, false);
	token(&s, 1, -2, NAN, false);	/* no baseline at this one */
	assert_float_equal(rk_stats_ppl(&s, 0), exp(2), 1e-9);
	assert_float_equal(rk_stats_ratio(&s, 1, 0), exp(7.0 / 3 - 2), 1e-9);
	assert_true(rk_stats_ratio(&s, 0, 0) == 1);
	assert_float_equal(s.lane[1].kl, 0.75, 1e-9);
	assert_int_equal(s.lane[1].n_kl, 2);
	assert_int_equal(s.lane[1].n_same_top1, 1);

	step(&s, 1, 0, 9000000);
	step(&s, 1, 1, 1000000);
	step(&s, 1, 3, 4000000);
	assert_float_equal(rk_stats_layer_stride(&s, 1, 0), 1.5, 1e-9);
	assert_float_equal(rk_stats_layer_stride(&s, 1, 1), 3, 1e-9);
	assert_true(isnan(rk_stats_layer_stride(&s, 1, 2)));
	assert_float_equal(rk_stats_stride(&s, 1), 3, 1e-9);
	assert_float_equal(rk_stats_ms_median(&s, 1), 5, 1e-6);
	step(&s, 1, 0, 2000000);
	assert_float_equal(rk_stats_ms_median(&s, 1), 4, 1e-6);
	assert_float_equal(rk_stats_bytes_per_step(&s, 1), 123, 1e-9);
	assert_int_equal(s.lane[1].bytes_vanilla, 4000);
	assert_float_equal(s.lane[1].churn, 0.75, 1e-9);
	assert_int_equal(s.lane[1].n_churn, 3);

	add(&s, (rk_event){ .type = RK_EV_CONTROL, .lane = 1 }, "snapkv", 6);
	assert_string_equal(s.lane[1].spec, "snapkv");
	ev = (rk_event){ .type = RK_EV_END, .lane = 1 };
	ev.end.reason = RK_END_LENGTH;
	ev.end.logits_hash = 42;
	add(&s, ev, NULL, 0);
	assert_true(s.lane[1].ended && !s.lane[0].ended);
	assert_int_equal(s.lane[1].end, RK_END_LENGTH);
	assert_int_equal(s.lane[1].logits_hash, 42);
	ev = (rk_event){ .type = RK_EV_GAP, .lane = -1 };
	ev.gap.lost = 3;
	add(&s, ev, NULL, 0);
	add(&s, ev, NULL, 0);
	assert_int_equal(s.lost, 6);
	rk_stats_free(&s);
}

/* More steps than the first allocation holds; then a new session starts from nothing. */
static void check_long_and_restart(void **state)
{
	(void)state;
	rk_stats s;
	rk_stats_init(&s);
	start(&s, 1, "vanilla\n");
	for (int i = 0; i < 1001; i++)
		step(&s, 0, 7, 1000000 * (int64_t)(i * 7919 % 1001));
	assert_float_equal(rk_stats_ms_median(&s, 0), 501, 1e-3);
	assert_float_equal(rk_stats_stride(&s, 0), 1, 0);
	start(&s, 1, "h2o\n");
	assert_int_equal(s.lane[0].n_step, 0);
	assert_true(isnan(rk_stats_ms_median(&s, 0)));
	assert_string_equal(s.lane[0].spec, "h2o");
	rk_stats_free(&s);
}

static void refused(rk_stats *s, rk_event ev, const void *payload, size_t size, const char *why)
{
	rk_err e = { 0 };
	ev.size = (uint32_t)size;
	assert_int_equal(rk_stats_add(s, &ev, payload, &e), -1);
	assert_int_equal(e.code, RK_EFAIL);
	if (!strstr(e.msg, why))
		fail_msg("'%s' does not say '%s'", e.msg, why);
}

/* What is read from a file may be anything. */
static void check_damaged_streams(void **state)
{
	(void)state;
	static const char zero[4096];
	rk_stats s;
	rk_event ev = { .type = RK_EV_START, .lane = -1 };
	rk_stats_init(&s);
	for (int i = 0; i < 4; i++) {
		ev.start.n_lane = (const int[]){ 9, -1, 1, 1 }[i];
		ev.start.n_layer = (const int[]){ 3, 3, RK_MAX_LAYER + 1, -1 }[i];
		refused(&s, ev, "", 0, "lanes");
	}
	start(&s, 2, "one\ntwo");	/* the last line end is missing */
	assert_string_equal(s.lane[1].spec, "two");
	start(&s, 1, "one\ntwo\nthree\n");	/* more specs than lanes */
	assert_string_equal(s.lane[1].spec, "");
	char longer[3 * RK_SPEC_MAX];
	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	start(&s, 1, longer);
	assert_int_equal(strlen(s.lane[0].spec), RK_SPEC_MAX - 1);
	for (int lane = -1; lane <= RK_MAX_LANE; lane += RK_MAX_LANE + 1) {
		refused(&s, (rk_event){ .type = RK_EV_TOKEN, .lane = (int8_t)lane }, zero, 0, "lane");
		refused(&s, (rk_event){ .type = RK_EV_STEP, .lane = (int8_t)lane }, zero, N_LAYER * sizeof(rk_layer_step), "lane");
		refused(&s, (rk_event){ .type = RK_EV_CONTROL, .lane = (int8_t)lane }, zero, 3, "lane");
	}
	refused(&s, (rk_event){ .type = RK_EV_STEP }, zero, N_LAYER * sizeof(rk_layer_step) - 1, "bytes");
	refused(&s, (rk_event){ .type = RK_EV_STEP }, zero, 4096, "bytes");
	refused(&s, (rk_event){ .type = RK_EV_CONTROL }, zero, RK_SPEC_MAX, "characters");
	add(&s, (rk_event){ .type = RK_EV_END, .lane = -1 }, NULL, 0);	/* a prefill that was cancelled */
	rk_stats_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_figures),
		cmocka_unit_test(check_long_and_restart),
		cmocka_unit_test(check_damaged_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
