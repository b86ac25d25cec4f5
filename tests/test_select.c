/* test_select.c: top-K against sorting, and every policy over many steps against the list-based simulator of
 * aid_ref_attn.c.
 *
 * Keys are drawn from a small set: scores then tie exactly or are well apart, so both sides must choose the same
 * positions. The simulator reports its narrowest decision, which must stay above the error of a probability.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/aid_attn_bed.h"

#define N_ISA 3
#define N_KEY 24		/* different keys */
#define MIN_MARGIN 2e-6		/* a score of 4 is off by a few 2^-24 of it, and so is, relatively, a probability */

static void topk_with_ties(void **state)
{
	static const int lengths[] = { 1, 2, 15, 16, 17, 100, 2000 };
	uint32_t seed = 5;

	(void)state;
	for (enum rk_isa isa = 0; isa < N_ISA; isa++)
		for (size_t i = 0; bed_has_isa(isa) && i < sizeof lengths / sizeof *lengths; i++)
			for (int range = 0; range < 40; range++) {
				int n = lengths[i], k = range % 4 == 0 ? n : range % 4 == 1 ? 1 : 1 + n * range / 50;
				float *score = bed_alloc((size_t)n * sizeof *score);
				double *exact = calloc((size_t)n, sizeof *exact);
				int32_t *got = bed_alloc((size_t)n * sizeof *got);
				int *want = calloc((size_t)n, sizeof *want);
				uint64_t *tmp = bed_alloc(3 * (size_t)n * sizeof *tmp);
				bed_integers(&seed, score, (size_t)n, range);
				for (int t = 0; t < n; t++) {
					score[t] = range % 3 ? fabsf(score[t]) : fabsf(score[t]) * 1e-30f;
					exact[t] = (double)score[t];
				}
				rk_attn_topk(rk_attn_kernels_for((int)isa), score, n, k, got, tmp);
				ref_topk(exact, n, k, want);
				assert_memory_equal(got, want, (size_t)k * sizeof *got);
				bed_free(score);
				bed_free(got);
				bed_free(tmp);
				free(exact);
				free(want);
			}
}

/* Whatever the scores are, a selection stays inside its arrays. */
static void topk_of_broken_scores(void **state)
{
	static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY, -1, 0 };
	float score[37];
	int32_t pos[12];
	uint64_t tmp[3 * 37];

	(void)state;
	for (enum rk_isa isa = 0; isa < N_ISA; isa++)
		for (size_t i = 0; bed_has_isa(isa) && i < sizeof odd / sizeof *odd; i++) {
			for (int t = 0; t < 37; t++)
				score[t] = t % 3 ? odd[i] : odd[(size_t)t % 6];
			rk_attn_topk(rk_attn_kernels_for((int)isa), score, 37, 12, pos, tmp);
			for (int j = 0; j < 12; j++)
				assert_in_range(pos[j], 0, 36);
		}
}

struct trial {
	rk_policy pol;
	int budget, n_prompt, n_step;
	bool keeps_full;
	int force_at;	/* step at which force_full is set; -1: never */
	int group;
	uint32_t seed;
	bool tied;	/* accumulated scores rise every 8 positions, and all probabilities of a step are equal */
};

/* The kept positions in slot order, from the one that leaves first. */
static int held(const bed *b, const rk_lane_cache *l, int kv, int *pos)
{
	size_t ring = rk_row_at(&b->hp, BED_LAYER, kv, 1), base = rk_row_at(&b->hp, BED_LAYER, kv, l->part.cap);
	int count = l->part.count[ring], next = l->part.next[ring], n = 0;

	assert_in_range(count, 1, l->part.cap);
	for (int i = 0; i < count; i++) {
		int slot = next < count ? (next + i) % count : i;
		if (slot != next || l->pol.evict == RK_EVICT_OLDEST)
			pos[n++] = l->part.pos[base + (size_t)slot];
	}
	return n;
}

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static void check_ring(const bed *b, const rk_lane_cache *l, const ref_lane *r, int step)
{
	size_t d = (size_t)b->hp.head_dim;

	for (int kv = 0; kv < b->hp.n_kv_head; kv++) {
		int got[1024], want[1024], n = held(b, l, kv, got);
		if (n != r->len[kv])
			fail_msg("step %d, KV head %d: %d positions are kept, should be %d", step, kv, n, r->len[kv]);
		memcpy(want, r->list[kv], (size_t)n * sizeof *want);
		/* No order is promised here. */
		if (l->pol.evict == RK_EVICT_OLDEST || l->pol.evict == RK_EVICT_LOWEST_ACCUMULATED) {
			qsort(got, (size_t)n, sizeof *got, by_value);
			qsort(want, (size_t)n, sizeof *want, by_value);
		}
		for (int i = 0; i < n; i++)
			if (got[i] != want[i])
				fail_msg("step %d, KV head %d: place %d of %d is position %d, should be %d", step, kv, i, n, got[i],
				         want[i]);
		size_t base = rk_row_at(&b->hp, BED_LAYER, kv, l->part.cap);
		for (int i = 0; l->part.k && i < l->part.count[rk_row_at(&b->hp, BED_LAYER, kv, 1)]; i++) {
			size_t slot = base + (size_t)i, at = ((size_t)l->part.pos[slot] * (size_t)b->hp.n_kv_head + (size_t)kv) * d;
			for (size_t j = 0; j < d; j++) {
				size_t e = slot * d + j;
				bool f16 = b->c.b.kv_bytes == 2;
				double k = (double)(f16 ? rk_half_to_float(((rk_half *)l->part.k)[e]) : ((float *)l->part.k)[e]);
				double v = (double)(f16 ? rk_half_to_float(((rk_half *)l->part.v)[e]) : ((float *)l->part.v)[e]);
				assert_true(k == b->seq.k[at + j] && v == b->seq.v[at + j]);
			}
			if (l->part.acc && i != l->part.next[rk_row_at(&b->hp, BED_LAYER, kv, 1)]) {
				double want_acc = r->acc[kv][l->part.pos[slot]];
				assert_true(fabs((double)l->part.acc[slot] - want_acc) <= 1e-5 * (1 + want_acc));
			}
		}
	}
}

static void check_report(const bed *b, const rk_step_report *rep, const ref_lane *r)
{
	int64_t row = b->hp.head_dim * (int64_t)b->c.b.kv_bytes, attended = 0, all = (int64_t)b->seq.n * b->hp.n_kv_head;
	bool selected = r->full && r->pol.score != RK_SCORE_NONE && r->pol.attend == RK_ATTEND_SELECTED;

	for (int kv = 0; kv < b->hp.n_kv_head; kv++)
		attended += r->n_attended[kv];
	assert_int_equal(rep->kind[BED_LAYER], r->full ? RK_STEP_FULL : RK_STEP_PARTIAL);
	assert_int_equal(rep->bytes_full, r->full && !selected ? 2 * all * row : 0);
	assert_int_equal(rep->bytes_partial, r->full && !selected ? 0 : 2 * attended * row);
	assert_int_equal(rep->bytes_score, selected ? all * row : 0);
	assert_int_equal(isnan(rep->cos[BED_LAYER]), isnan(r->cos));
	assert_int_equal(isnan(rep->churn[BED_LAYER]), isnan(r->churn));
	if (!isnan(r->cos))
		assert_true(fabs((double)rep->cos[BED_LAYER] - r->cos) <= 1e-6);
	if (!isnan(r->churn))
		assert_true(fabs((double)rep->churn[BED_LAYER] - r->churn) <= 1e-6);
}

/* k [n][row] = rows of keys [N_KEY][row]. */
static void draw_keys(uint32_t *seed, const float *keys, float *k, size_t n, size_t row)
{
	for (size_t i = 0; i < n; i++) {
		float r;
		bed_random(seed, &r, 1);
		memcpy(k + i * row, keys + (size_t)((r + 1) / 2 * N_KEY) * row, row * sizeof *k);
	}
}

/* Uniform in [-3, 3), for probabilities of very different size; or zero. */
static void random_queries(uint32_t *seed, float *q, size_t n, bool tied)
{
	bed_random(seed, q, n);
	for (size_t i = 0; i < n; i++)
		q[i] *= tied ? 0 : 3;
}

/* Moves a query on a little, so that its cosine with an earlier one falls slowly. */
static void drift(uint32_t *seed, float *q, size_t n)
{
	for (int i = 0; i < 4; i++) {
		float r[2];
		bed_random(seed, r, 2);
		q[(size_t)((r[0] + 1) / 2 * (float)n)] = 3 * r[1];
	}
}

/* Runs one lane and the simulator side by side; returns the number of full steps.  copies: the ring has keys and values. */
static int run_trial(const struct trial *t, enum rk_isa isa, size_t kv_bytes, int n_thread, bool copies)
{
	bed_shape s = { .isa = isa, .n_thread = n_thread, .n_kv = 2, .n_head = 2 * t->group, .d = 16, .kv_bytes = kv_bytes,
	                .max_rows = 1024, .max_pos = t->n_prompt + t->n_step };
	size_t row = (size_t)(s.n_kv * s.d), qrow = (size_t)(s.n_head * s.d);
	uint32_t seed = t->seed;
	bed b;
	rk_lane_cache lane, *lanes = &lane;
	ref_lane ref;
	rk_store unkept;	/* where the tokens of a lane without a tail are noted for the simulator */
	int n_full = 0, n_q = t->pol.window < t->n_prompt ? t->pol.window : t->n_prompt;

	bed_open(&b, &s, t->n_prompt);
	bed_lane_init(&b, &lane, &t->pol, t->budget, t->keeps_full, t->n_step);
	if (!copies) {
		bed_free(lane.part.k);
		bed_free(lane.part.v);
		lane.part.k = lane.part.v = NULL;
	}
	ref_lane_init(&ref, &t->pol, t->budget, t->keeps_full, &b.seq);
	bed_store_init(&b, &unkept, t->n_step, t->n_prompt);
	size_t n = (size_t)t->n_prompt;
	float *k = malloc(n * row * sizeof *k), *v = malloc(n * row * sizeof *v);
	float *q = malloc(n * qrow * sizeof *q), *q_pre = malloc(qrow * sizeof *q_pre);
	float *out = bed_alloc(n * qrow * sizeof *out), *colsum = bed_alloc((size_t)s.n_kv * n * sizeof *colsum);
	float *keys = malloc(N_KEY * row * sizeof *keys);
	double *want = malloc(qrow * sizeof *want);
	bed_random(&seed, keys, N_KEY * row);
	draw_keys(&seed, keys, k, n, row);
	bed_random(&seed, v, n * row);
	random_queries(&seed, q, n * qrow, t->tied);
	random_queries(&seed, q_pre, qrow, false);
	bed_append(&b, &b.prompt, 0, k, v, t->n_prompt);
	if (t->pol.score == RK_SCORE_ACCUMULATED)
		rk_cpu_attn_prefill(&b.c.b, BED_LAYER, NULL, &b.prompt, 0, q, t->n_prompt, out, colsum);
	for (size_t i = 0; t->tied && i < (size_t)s.n_kv * n; i++)
		colsum[i] = (float)(i % n / 8);
	const float *last = q + (n - (size_t)n_q) * qrow;
	rk_cpu_select(&b.c.b, BED_LAYER, &lane, t->n_prompt, q_pre, last, n_q, colsum);
	ref_lane_select(&ref, &b.seq, q_pre, last, n_q, colsum, t->n_prompt);
	check_ring(&b, &lane, &ref, -1);
	for (int i = 0; i < t->n_step; i++) {
		rk_step_report rep = { 0 }, *reps = &rep;
		draw_keys(&seed, keys, k, 1, row);
		bed_random(&seed, v, row);
		drift(&seed, q_pre, qrow);
		random_queries(&seed, q, qrow, t->tied);
		bed_append(&b, t->keeps_full ? &lane.tail : &unkept, i, k, v, 1);
		lane.n_pos++;
		lane.force_full = ref.force_full = i == t->force_at;
		rk_cpu_attn_decode(&b.c.b, BED_LAYER, &lanes, 1, q_pre, q, k, v, out, &reps);
		ref_lane_step(&ref, &b.seq, q_pre, q, want);
		lane.step++;
		lane.force_full = false;
		if (ref.margin < MIN_MARGIN)
			fail_msg("step %d: the data of seed %u has a near tie (%g): choose another seed", i, t->seed, ref.margin);
		check_report(&b, &rep, &ref);
		check_ring(&b, &lane, &ref, i);
		n_full += ref.full;
		double tolerance = bed_tolerance(&b, 3, 1, 1, b.seq.n);
		for (size_t j = 0; j < qrow; j++)
			if (!(fabs((double)out[j] - want[j]) <= tolerance))
				fail_msg("step %d: output %zu is %.9g, should be %.9g", i, j, (double)out[j], want[j]);
	}
	free(keys);
	free(k);
	free(v);
	free(q);
	free(q_pre);
	free(want);
	bed_free(out);
	bed_free(colsum);
	bed_store_free(&b, &unkept);
	ref_lane_free(&ref);
	bed_lane_free(&b, &lane);
	bed_close(&b);
	return n_full;
}

/* On every instruction set, f16 and f32, 1 to 3 threads; with copies of keys and values and, where they lie in the full cache, without. */
static int run_everywhere(const struct trial *t)
{
	int n_full = 0;

	for (enum rk_isa isa = 0; isa < N_ISA; isa++)
		for (int copies = !t->keeps_full; bed_has_isa(isa) && copies < 2; copies++)
			n_full = run_trial(t, isa, (isa == RK_ISA_AVX2) == copies ? 4 : 2, 1 + ((int)isa + copies) % 3, copies);
	return n_full;
}

#define ATTENTION .score = RK_SCORE_ATTENTION, .window = 1, .pool = 7, .evict = RK_EVICT_LOWEST
#define ACCUMULATED .score = RK_SCORE_ACCUMULATED, .window = 1, .pool = 1, .evict = RK_EVICT_LOWEST_ACCUMULATED
#define POSITION .score = RK_SCORE_POSITION, .window = 1, .pool = 1, .evict = RK_EVICT_OLDEST

static void refresh_by_stride(void **state)
{
	(void)state;
	for (int g = 1; g <= 3; g++)
		for (enum rk_group group = RK_GROUP_MAX; group <= RK_GROUP_FIRST; group++) {
			struct trial t = { .pol = { ATTENTION, .group = group, .refresh = RK_REFRESH_STRIDE, .stride = 7 },
				.budget = 12, .n_prompt = 90, .n_step = 100, .keeps_full = true, .force_at = 3, .group = g, .seed = 1 };
			assert_int_equal(run_everywhere(&t), 100 / 7 + 1);
		}
}

static void refresh_by_query(void **state)
{
	(void)state;
	for (enum rk_query query = RK_QUERY_PRE; query <= RK_QUERY_POST_CAT; query++) {
		struct trial t = { .pol = { ATTENTION, .refresh = RK_REFRESH_QUERY, .qc = 5, .s = 0.8f, .query = query },
			.budget = 20, .n_prompt = 70, .n_step = 200, .keeps_full = true, .force_at = 50, .group = 3, .seed = 2 };
		int n_full = run_everywhere(&t);
		assert_in_range(n_full, 2, 41);
		if (query == RK_QUERY_PRE)
			assert_in_range(n_full, 2, 39);	/* some checks find the query near enough */
	}
}

static void attend_selected(void **state)
{
	(void)state;
	struct trial t = { .pol = { ATTENTION, .refresh = RK_REFRESH_STRIDE, .stride = 4, .attend = RK_ATTEND_SELECTED },
		.budget = 12, .n_prompt = 90, .n_step = 60, .keeps_full = true, .force_at = -1, .group = 2, .seed = 3 };
	assert_int_equal(run_everywhere(&t), 15);
}

static void never_refreshed(void **state)
{
	(void)state;
	for (int window = 1; window <= 40; window += 13)
		for (enum rk_evict evict = RK_EVICT_NONE; evict <= RK_EVICT_LOWEST; evict++) {
			struct trial t = { .pol = { ATTENTION }, .budget = 16, .n_prompt = 35, .n_step = 60, .force_at = -1,
				.group = 3, .seed = 4 };
			t.pol.window = window;
			t.pol.evict = evict;
			assert_int_equal(run_everywhere(&t), 0);
		}
}

static void streaming(void **state)
{
	static const int prompts[] = { 1, 3, 16, 17, 60 };

	(void)state;
	for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
		struct trial t = { .pol = { POSITION, .sinks = 4 },
			.budget = 16, .n_prompt = prompts[i], .n_step = 80, .force_at = -1, .group = 2, .seed = 5 };
		run_everywhere(&t);
	}
}

static void heavy_hitters(void **state)
{
	static const int prompts[] = { 1, 10, 16, 17, 120 };

	(void)state;
	for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
		for (int budget = 15; budget <= 16; budget++) {
			struct trial t = { .pol = { ACCUMULATED },
				.budget = budget, .n_prompt = prompts[i], .n_step = 150, .force_at = -1, .group = 3, .seed = 6 };
			run_everywhere(&t);
		}
}

static void tied_heavy_hitters(void **state)
{
	(void)state;
	struct trial t = { .pol = { ACCUMULATED },
		.budget = 24, .n_prompt = 60, .n_step = 60, .force_at = -1, .group = 2, .seed = 10, .tied = true };
	run_everywhere(&t);
}

/* K >= n for as long as it lasts, K = 1, wide pooling of a short prompt, prompts across chunk borders. */
static void corner_cases(void **state)
{
	static const struct { int budget, n_prompt, pool; } cases[] = {
		{ 50, 20, 7 }, { 1, 30, 7 }, { 3, 1, 7 }, { 8, 5, 255 }, { 300, 520, 1 }, { 7, 255, 3 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (enum rk_refresh refresh = RK_REFRESH_NEVER; refresh <= RK_REFRESH_STRIDE; refresh++) {
			struct trial t = { .pol = { ATTENTION, .refresh = refresh, .stride = 9 }, .budget = cases[i].budget,
				.n_prompt = cases[i].n_prompt, .n_step = 50, .keeps_full = refresh != RK_REFRESH_NEVER, .force_at = -1, .group = 2, .seed = 7 };
			t.pol.pool = cases[i].pool;
			run_everywhere(&t);
		}
	struct trial h2o = { .pol = { ACCUMULATED },
		.budget = 1, .n_prompt = 9, .n_step = 30, .force_at = -1, .group = 1, .seed = 8 };
	run_everywhere(&h2o);
	struct trial sinks = { .pol = { POSITION },
		.budget = 1, .n_prompt = 9, .n_step = 30, .force_at = -1, .group = 1, .seed = 9 };
	run_everywhere(&sinks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(topk_with_ties),
		cmocka_unit_test(topk_of_broken_scores),
		cmocka_unit_test(refresh_by_stride),
		cmocka_unit_test(refresh_by_query),
		cmocka_unit_test(attend_selected),
		cmocka_unit_test(never_refreshed),
		cmocka_unit_test(streaming),
		cmocka_unit_test(heavy_hitters),
		cmocka_unit_test(tied_heavy_hitters),
		cmocka_unit_test(corner_cases),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
