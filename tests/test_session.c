/* test_session.c: lanes, caches and policies of a session on tiny models: against an independent simulation in double
 * precision, and in their degenerate cases bit for bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aid_session.h"

#define N_PROMPT 96
#define N_STEP 70

typedef struct outcome { double max, margin; int ties, full, steps; } outcome;

/* Feeds both the same tokens, until the simulation meets scores that rounding may order either way. */
static outcome simulate(const aid_rig_opt *opt, int n_prompt, int n_step)
{
	rk_policy p = aid_policy(opt->lanes[0]);
	double tie = opt->exact ? TIE_F32 : TIE_F16;
	aid_rig r;
	aid_rig_open(&r, opt);
	aid_sim *w = aid_sim_new(r.m, &p, !opt->exact);
	int32_t *ids = aid_ids(n_prompt, r.m->hp.n_vocab, 7);
	outcome o = { 0 };
	aid_sim_start(w, ids, n_prompt);
	aid_start(&r.s, ids, n_prompt, n_step);
	o.max = diff_from(&r.s, 0, w);
	for (; o.steps < n_step; o.steps++) {
		int32_t id = o.steps % 3 ? ids[(o.steps * 5) % n_prompt] : r.s.argmax[0];
		aid_step_all(&r.s, id);
		aid_sim_step(w, id, r.s.report[0].kind, tie);
		o.margin = aid_sim_margin(w);
		if (o.margin < tie)
			break;
		o.max = fmax(o.max, diff_from(&r.s, 0, w));
		check_reports(&r.s, w, false);
		check_rings(&r.s, w);
		for (int l = 0; l < r.m->hp.n_layer; l++)
			o.full += r.s.report[0].kind[l] != RK_STEP_PARTIAL;
	}
	o.ties = aid_sim_near_ties(w);
	free(ids);
	aid_sim_free(w);
	aid_rig_close(&r);
	return o;
}

static void check_simulation(bool exact, uint64_t seed)
{
	for (int i = 0; i < N_POLICY; i++) {
		aid_rig_opt opt = { .exact = exact, .seed = seed, .lanes = { policies[i] } };
		if (!exact && aid_policy(policies[i]).bits)
			continue;	/* the 8-bit query of a glance is not simulated: test_sketch.c has its error */
		outcome o = simulate(&opt, N_PROMPT, N_STEP);
		print_message("%-42s %2d steps, logits within %.1e, %3d full layer steps, %d near ties, margin %.1e\n", policies[i],
		    o.steps, o.max, o.full,
		              o.ties, o.margin);
		assert_true(o.max < (exact ? TOL_F32 : TOL_F16));
		assert_true(!exact || o.steps == N_STEP);
	}
}

static void check_exact(void **state)
{
	(void)state;
	check_simulation(true, 1);
}

static void check_half(void **state)
{
	(void)state;
	check_simulation(false, 2);
}

/* Other shapes: one KV head per query head, one for all, an odd group, a head that is no multiple of a vector. */
static void check_shapes(void **state)
{
	(void)state;
	static const aid_tiny shape[] = {
		{ .n_head = 4, .n_kv_head = 4, .n_layer = 2 }, { .n_head = 4, .n_kv_head = 1, .n_layer = 2 },
		{ .n_head = 9, .n_kv_head = 3, .head_dim = 20, .n_embd = 96, .n_layer = 1 }, { .n_head = 2, .n_kv_head = 1,
		    .head_dim = 64, .untied = true },
	};
	static const char *const some[] = { "vanilla", "refreshkv:qc=2,s=0.9", "h2o", "snapkv", "streamingllm" };
	for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
		for (size_t p = 0; p < sizeof some / sizeof *some; p++) {
			aid_rig_opt opt = { .exact = true, .tiny = shape[i], .seed = 3, .lanes = { some[p] } };
			outcome o = simulate(&opt, 70, 20);
			assert_true(o.max < TOL_F32);
			assert_int_equal(o.steps, 20);
		}
}

/* 8-bit activations against f32 ones with the same weights: each product of a matrix adds noise of 0.5 % of its size
 * (32 values, step max/127), four of them per layer; three standard deviations of their sum are 5 %. */
static void check_quantised(void **state)
{
	(void)state;
	aid_rig_opt opt = { .tiny = { .type = RK_Q4_1 }, .lanes = { "vanilla" } };
	aid_rig a, b;
	double diff = 0, size = 0;
	aid_rig_open(&a, &opt);
	opt.exact = true;
	aid_rig_open(&b, &opt);
	int n = a.m->hp.n_vocab;
	int32_t *ids = aid_ids(100, n, 3);
	aid_start(&a.s, ids, 50, 50);
	aid_start(&b.s, ids, 50, 50);
	for (int i = 50; i < 100; i++) {
		aid_step_all(&a.s, ids[i]);
		aid_step_all(&b.s, ids[i]);
		for (int j = 0; j < n; j++) {
			double x = (double)aid_logits(&a.s, 0)[j], y = (double)aid_logits(&b.s, 0)[j];
			diff += (x - y) * (x - y);
			size += y * y;
		}
	}
	print_message("8-bit activations: logits off by %.2f %%\n", 100 * sqrt(diff / size));
	assert_true(diff > 0);
	assert_true(sqrt(diff / size) < 0.05);
	free(ids);
	aid_rig_close(&a);
	aid_rig_close(&b);
}

/* ---- bit for bit ---- */

/* What attention's sums in another order may do to logits: in itself rounding, but that may tip the rounding of a
 * cached half, or of an 8-bit activation, 1/127 of its group's largest. */
static const double reordered[] = { TOL_F32, TOL_F16, 0.1 };

static void check_degenerate(void **state)
{
	(void)state;
	for (int f = 0; f < 3; f++) {
		aid_rig_opt opt = flavour(f);
		aid_rig r;
		const char *lanes[] = { "vanilla", "refreshkv-fixed:stride=1", "refreshkv:s=2,qc=1",
		    "refreshkv:s=2,qc=1,query=post,k=1", "vanilla" };
		memcpy(opt.lanes, lanes, sizeof lanes);
		aid_rig_open(&r, &opt);
		int32_t *ids = aid_ids(150, r.m->hp.n_vocab, 11);
		aid_start(&r.s, ids, 100, 50);
		for (int i = 100; i < 150; i++) {
			aid_step_all(&r.s, ids[i]);
			for (int lane = 1; lane < r.s.cfg.n_lane; lane++)
				same_bits(&r.s, 0, &r.s, lane);
		}
		free(ids);
		aid_rig_close(&r);
	}
}

/* Nothing is left out: all lanes get the text of the first, and their logits differ by the order of sums only (so that
 * two tokens that are nearly tied may change places). */
static void check_budget_of_everything(void **state)
{
	(void)state;
	for (int f = 0; f < 3; f++) {
		aid_rig_opt opt = flavour(f);
		aid_rig r;
		const char *lanes[] = { "vanilla", "refreshkv-norefresh:k=1000", "refreshkv:k=160,s=0.8", "streamingllm:k=1000",
		    "h2o:k=1000", "snapkv:k=100",
		                        "refreshkv-nofull:k=150,s=0.9", "streamingllm:k=150,sinks=0" };
		int n_lane = sizeof lanes / sizeof *lanes, all[RK_MAX_LANE];
		memcpy(opt.lanes, lanes, sizeof lanes);
		aid_rig_open(&r, &opt);
		int32_t *ids = aid_ids(100, r.m->hp.n_vocab, 12), next[RK_MAX_LANE];
		aid_start(&r.s, ids, 100, 50);
		for (int i = 0; i < 50; i++) {
			for (int lane = 0; lane < n_lane; lane++) {
				all[lane] = lane;
				next[lane] = r.s.argmax[0];
				assert_true(aid_max_diff(aid_logits(&r.s, lane), aid_logits(&r.s, 0), r.m->hp.n_vocab) < reordered[f]);
			}
			assert_int_equal(rk_session_step(&r.s, all, next, n_lane, NULL), 0);
		}
		free(ids);
		aid_rig_close(&r);
	}
}

/* A lane among seven others, with threads or without, is the lane alone; and a lane's twin is its twin. */
static void check_lanes_are_independent(void **state)
{
	(void)state;
	for (int f = 0; f < 3; f++)
		for (int first = 0; first < N_POLICY; first += 7) {
			aid_rig_opt opt = flavour(f), one = flavour(f);
			aid_rig many, two, alone[RK_MAX_LANE];
			int n = 0;
			for (; n < 7 && first + n < N_POLICY; n++)
				opt.lanes[n] = policies[first + n];
			opt.lanes[n] = opt.lanes[0];
			n++;
			aid_rig_open(&many, &opt);
			opt.n_thread = 2;
			aid_rig_open(&two, &opt);
			int32_t *ids = aid_ids(80, many.m->hp.n_vocab, 13);
			aid_start(&many.s, ids, 60, 20);
			aid_start(&two.s, ids, 60, 20);
			for (int i = 0; i < n; i++) {
				one.lanes[0] = opt.lanes[i];
				aid_rig_open(&alone[i], &one);
				aid_start(&alone[i].s, ids, 60, 20);
			}
			for (int t = 60; t < 80; t++) {
				aid_step_all(&many.s, ids[t]);
				aid_step_all(&two.s, ids[t]);
				for (int i = 0; i < n; i++) {
					aid_step_one(&alone[i].s, 0, ids[t]);
					same_bits(&many.s, i, &alone[i].s, 0);
					same_bits(&many.s, i, &two.s, i);
				}
				same_bits(&many.s, 0, &many.s, n - 1);
			}
			for (int i = 0; i < n; i++)
				aid_rig_close(&alone[i]);
			free(ids);
			aid_rig_close(&many);
			aid_rig_close(&two);
		}
}

/* CASES 12: how the prompt is cut into chunks changes nothing. */
static void check_chunks(void **state)
{
	(void)state;
	static const int lengths[] = { 31, 32, 33, 511, 512, 513 }, chunks[] = { 512, 32, 1 };
	int bits = 0, all = 0;
	for (int f = 0; f < 2; f++)
		for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
			int32_t text[3][4][12];
			static float logits[3][4 * AID_TINY_N_VOCAB];
			for (int c = 0; c < 3; c++) {
				aid_rig_opt opt = { .tiny = { .type = f ? RK_Q4_1 : RK_F32, .n_layer = 2 }, .chunk = chunks[c], .seed = 6,
				                    .lanes = { "vanilla", "refreshkv", "h2o", "snapkv:k=12" } };
				int lanes[4] = { 0, 1, 2, 3 };
				aid_rig r;
				aid_rig_open(&r, &opt);
				int32_t *ids = aid_ids(lengths[n], r.m->hp.n_vocab, 14);
				aid_start(&r.s, ids, lengths[n], 12);
				for (int i = 0; i < 12; i++) {
					int32_t next[4];
					for (int lane = 0; lane < 4; lane++)
						next[lane] = text[c][lane][i] = r.s.argmax[lane];
					assert_int_equal(rk_session_step(&r.s, lanes, next, 4, NULL), 0);
				}
				memcpy(logits[c], r.s.logits, sizeof logits[c]);
				assert_memory_equal(text[c], text[0], sizeof text[0]);
				bits += c && !memcmp(logits[c], logits[0], sizeof logits[0]);
				all += c > 0;
				free(ids);
				aid_rig_close(&r);
			}
		}
	print_message("chunks: the same text everywhere, the same bits in %d of %d\n", bits, all);
}

/* The last `window` queries are in the last chunk, whatever the lengths. */
static void check_window_and_chunks(void **state)
{
	(void)state;
	static const int lengths[] = { 5, 7, 8, 9, 63, 64, 65, 100 };
	for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
		rk_policy p = aid_policy("snapkv:window=8,k=0.3");
		int32_t want[64], first[64] = { 0 };
		for (int chunk = 8; chunk <= 128; chunk *= 2) {
			aid_rig_opt opt = { .exact = true, .chunk = chunk, .seed = 8, .lanes = { "snapkv:window=8,k=0.3" } };
			aid_rig r;
			aid_rig_open(&r, &opt);
			int32_t *ids = aid_ids(lengths[n], r.m->hp.n_vocab, 15);
			aid_start(&r.s, ids, lengths[n], 4);
			aid_sim *w = aid_sim_new(r.m, &p, false);
			aid_sim_start(w, ids, lengths[n]);
			const rk_partial *part = &r.s.lane[0].part;
			assert_int_equal(part->count[0], aid_sim_ring(w, 0, 0, want));
			for (int l = 0; l < r.m->hp.n_layer; l++)
				for (int kv = 0; kv < r.m->hp.n_kv_head; kv++) {
					int k = aid_sim_ring(w, l, kv, want);
					assert_memory_equal(part->pos + rk_row_at(&r.m->hp, l, kv, part->cap), want, (size_t)k * sizeof *want);
				}
			assert_true(aid_sim_margin(w) > TIE_F32);
			if (chunk == 8)
				memcpy(first, part->pos, (size_t)part->count[0] * sizeof *first);
			assert_memory_equal(part->pos, first, (size_t)part->count[0] * sizeof *first);
			aid_sim_free(w);
			free(ids);
			aid_rig_close(&r);
		}
	}
}

/* CASES 1: a second prompt in one process is served as the first was. */
static void check_restart(void **state)
{
	(void)state;
	aid_rig_opt opt = { .lanes = { "vanilla", "refreshkv", "snapkv", "h2o", "streamingllm" } };
	aid_rig a, b;
	aid_rig_open(&a, &opt);
	aid_rig_open(&b, &opt);
	int32_t *ids = aid_ids(300, a.m->hp.n_vocab, 28);
	aid_start(&a.s, ids + 100, 150, 50);
	for (int i = 0; i < 30; i++)
		aid_step_all(&a.s, ids[i]);
	aid_start(&a.s, ids, 100, 50);
	aid_start(&b.s, ids, 100, 50);
	for (int i = 0; i < 50; i++) {
		aid_step_all(&a.s, ids[i]);
		aid_step_all(&b.s, ids[i]);
		for (int lane = 0; lane < 5; lane++) {
			same_bits(&a.s, lane, &b.s, lane);
			assert_int_equal(a.s.report[lane].bytes_partial, b.s.report[lane].bytes_partial);
			assert_memory_equal(a.s.report[lane].kind, b.s.report[lane].kind, (size_t)a.m->hp.n_layer);
		}
	}
	free(ids);
	aid_rig_close(&a);
	aid_rig_close(&b);
}

/* The shadow's predictions are those of a vanilla lane that is fed the same tokens. */
static void check_shadow(void **state)
{
	(void)state;
	for (int f = 0; f < 3; f++) {
		aid_rig_opt opt = flavour(f);
		aid_rig a, b;
		rk_err e;
		opt.lanes[0] = "refreshkv";
		aid_rig_open(&a, &opt);
		rk_session_cfg cfg = a.s.cfg;
		rk_session_free(&a.s);
		cfg.shadow = true;
		assert_int_equal(rk_session_init(&a.s, a.m, a.b, &cfg, &e), 0);
		opt.lanes[0] = "vanilla";
		aid_rig_open(&b, &opt);
		int n = a.m->hp.n_vocab, at = 60;
		int32_t *ids = aid_ids(200, n, 29);
		float *logits = malloc((size_t)(RK_SHADOW_BATCH * n) * sizeof *logits);
		assert_non_null(logits);
		aid_start(&a.s, ids, 60, 100);
		aid_start(&b.s, ids, 60, 100);
		for (int batch = 1; batch <= RK_SHADOW_BATCH; batch += 5) {
			float lse[RK_SHADOW_BATCH];
			int32_t argmax[RK_SHADOW_BATCH];
			int64_t ns = -1;
			for (int i = 0; i < batch; i++)
				aid_step_all(&a.s, ids[at + i]);
			assert_int_equal(rk_session_shadow(&a.s, ids + at, batch, logits, lse, argmax, &ns, &e), 0);
			assert_true(ns >= 0);
			for (int i = 0; i < batch; i++) {
				aid_step_all(&b.s, ids[at + i]);
				assert_true(aid_max_diff(logits + (size_t)i * (size_t)n, aid_logits(&b.s, 0), n) < reordered[f]);
				assert_float_equal(lse[i], b.s.lse[0], reordered[f]);
			}
			at += batch;
		}
		free(logits);
		free(ids);
		aid_rig_close(&a);
		aid_rig_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_exact),
		cmocka_unit_test(check_half),
		cmocka_unit_test(check_shapes),
		cmocka_unit_test(check_quantised),
		cmocka_unit_test(check_degenerate),
		cmocka_unit_test(check_budget_of_everything),
		cmocka_unit_test(check_lanes_are_independent),
		cmocka_unit_test(check_chunks),
		cmocka_unit_test(check_window_and_chunks),
		cmocka_unit_test(check_restart),
		cmocka_unit_test(check_shadow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
