/* test_attn.c: attn_prefill and attn_decode against double precision, and that bits do not depend on what they
 * must not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "aid_attn_bed.h"

#define N_ISA 3

static const int dims[] = { 16, 64, 80, 128, 20 };
static const int groups[] = { 1, 2, 3, 4, 8 };

static float *random_floats(uint32_t *seed, size_t n)
{
	float *x = malloc(n * sizeof *x);

	assert_non_null(x);
	bed_random(seed, x, n);
	return x;
}

static void assert_close(const float *got, const double *want, size_t n, double tolerance)
{
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - want[i]) <= tolerance))
			fail_msg("element %zu: %.9g, should be %.9g, tolerance %.3g", i, (double)got[i], want[i], tolerance);
}

/* A prompt store of n_prompt positions if any, then a tail of n_tail positions: the last n of them are the
 * queries. */
static void check_prefill(const bed_shape *shape, int n_prompt, int n_tail, int n)
{
	uint32_t seed = 7;
	int cap = n_prompt + n_tail;
	bed b;
	rk_store tail;

	bed_open(&b, shape, n_prompt);
	bed_store_init(&b, &tail, n_tail + 3, n_prompt);
	size_t row = (size_t)(shape->n_kv * shape->d), qrow = (size_t)(shape->n_head * shape->d);
	float *k = random_floats(&seed, (size_t)cap * row), *v = random_floats(&seed, (size_t)cap * row);
	float *q = random_floats(&seed, (size_t)n * qrow);
	bed_append(&b, &b.prompt, 0, k, v, n_prompt);
	bed_append(&b, &tail, 0, k + (size_t)n_prompt * row, v + (size_t)n_prompt * row, n_tail);

	float *out = bed_alloc((size_t)n * qrow * sizeof *out);
	float *colsum = bed_alloc((size_t)(shape->n_kv * tail.cap) * sizeof *colsum);
	double *want = calloc((size_t)n * qrow, sizeof *want);
	double *want_col = calloc((size_t)(shape->n_kv * b.seq.cap), sizeof *want_col);
	rk_cpu_attn_prefill(&b.c.b, BED_LAYER, n_prompt ? &b.prompt : NULL, &tail, n_tail - n, q, n, out, colsum);
	ref_prefill(&b.seq, q, n_prompt + n_tail - n, n, want, want_col);
	assert_close(out, want, (size_t)n * qrow, bed_tolerance(&b, 1, 1, 1, cap));
	/* A column is a sum of n * group probabilities of at most 1, each with the relative error of an output. */
	double terms = n * (shape->n_head / shape->n_kv);
	double tol = terms * (bed_tolerance(&b, 1, 1, 1, cap) + terms * ldexp(1, -24));
	for (int kv = 0; kv < shape->n_kv; kv++) {
		assert_close(colsum + kv * tail.cap, want_col + kv * b.seq.cap + n_prompt, (size_t)n_tail, tol);
		for (int t = n_tail; t < tail.cap; t++)
			assert_true(colsum[kv * tail.cap + t] == 0.0f);
	}
	bed_free(out);
	bed_free(colsum);
	free(want);
	free(want_col);
	free(k);
	free(v);
	free(q);
	bed_store_free(&b, &tail);
	bed_close(&b);
}

static void prefill_is_exact(void **state)
{
	static const int cases[][3] = {
		{ 0, 1, 1 }, { 0, 31, 31 }, { 0, 33, 33 }, { 0, 130, 67 }, { 64, 5, 5 }, { 65, 70, 66 }, { 3, 200, 1 },
	};

	(void)state;
	for (enum rk_isa isa = 0; isa < N_ISA; isa++)
		for (size_t i = 0; bed_has_isa(isa) && i < sizeof dims / sizeof *dims; i++)
			for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
				for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
					bed_shape s = { .isa = isa, .n_thread = 2, .n_kv = 2, .n_head = 2 * groups[g], .d = dims[i],
					                .kv_bytes = (c + g) % 2 ? 4 : 2, .max_rows = 67, .max_pos = 256 };
					if (isa == RK_ISA_SCALAR && s.d > 64 && groups[g] > 2)
						continue;	/* nothing in the scalar path knows these sizes; it is only slow */
					check_prefill(&s, cases[c][0], cases[c][1], cases[c][2]);
				}
}

/* Prefills n positions in chunks; returns out [n][n_head][d] and the column sums behind it. */
static float *prefill_in_chunks(const bed_shape *shape, int n, int chunk)
{
	uint32_t seed = 3;
	bed b;

	bed_open(&b, shape, n);
	size_t row = (size_t)(shape->n_kv * shape->d), qrow = (size_t)(shape->n_head * shape->d);
	float *k = random_floats(&seed, (size_t)n * row), *v = random_floats(&seed, (size_t)n * row);
	float *q = random_floats(&seed, (size_t)n * qrow);
	float *out = calloc((size_t)n * qrow + (size_t)(shape->n_kv * n), sizeof *out);
	for (int at = 0; at < n; at += chunk) {
		int m = n - at < chunk ? n - at : chunk;
		bed_append(&b, &b.prompt, at, k + (size_t)at * row, v + (size_t)at * row, m);
		rk_cpu_attn_prefill(&b.c.b, BED_LAYER, NULL, &b.prompt, at, q + (size_t)at * qrow, m, out + (size_t)at * qrow,
		                    out + (size_t)n * qrow);
	}
	free(k);
	free(v);
	free(q);
	bed_close(&b);
	return out;
}

static void prefill_bits_are_fixed(void **state)
{
	static const int lengths[] = { 31, 32, 33, 511, 512, 513 }, chunks[] = { 1, 32, 512 };

	(void)state;
	for (enum rk_isa isa = 0; isa < N_ISA; isa++)
		for (size_t i = 0; bed_has_isa(isa) && i < sizeof lengths / sizeof *lengths; i++) {
			int n = lengths[i];
			if (isa == RK_ISA_SCALAR && n > 33)
				continue;
			bed_shape s = { .isa = isa, .n_thread = 1, .n_kv = 1, .n_head = 3, .d = 16, .kv_bytes = 2,
			                .max_rows = 512, .max_pos = 513 };
			float *want = prefill_in_chunks(&s, n, 512);
			for (s.n_thread = 1; s.n_thread <= 3; s.n_thread++)
				for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
					float *got = prefill_in_chunks(&s, n, chunks[c]);
					assert_memory_equal(got, want, (size_t)(n * s.n_head * s.d + n) * sizeof *got);
					free(got);
				}
			free(want);
		}
}

/* Prefills n positions without queries, then takes steps with the same tokens in every lane; all outputs of all
 * steps. */
struct trace {
	float *out;	/* [n_step][n_lane][n_head][d] */
	rk_step_report *rep;	/* [n_step][n_lane] */
};

static struct trace run_lanes(const bed_shape *shape, const rk_policy *pols, const int *budgets, int n_lane, int n_prompt,
                              int n_step, bool check)
{
	uint32_t seed = 11;
	size_t row = (size_t)(shape->n_kv * shape->d), qrow = (size_t)(shape->n_head * shape->d);
	int group = shape->n_head / shape->n_kv;
	rk_lane_cache lane[RK_MAX_LANE], *lanes[RK_MAX_LANE];
	struct trace t = { .out = calloc((size_t)(n_step * n_lane) * qrow, sizeof(float)),
	                   .rep = calloc((size_t)(n_step * n_lane), sizeof(rk_step_report)) };
	bed b;

	bed_open(&b, shape, n_prompt);
	float *k = random_floats(&seed, (size_t)n_prompt * row), *v = random_floats(&seed, (size_t)n_prompt * row);
	float *q = random_floats(&seed, qrow);
	double *want = calloc(qrow, sizeof *want);
	bed_append(&b, &b.prompt, 0, k, v, n_prompt);
	for (int j = 0; j < n_lane; j++) {
		bed_lane_init(&b, &lane[j], &pols[j], budgets[j], true, n_step);
		rk_cpu_select(&b.c.b, BED_LAYER, &lane[j], n_prompt, q, q, 1, NULL);
		lanes[j] = &lane[j];
	}
	float *rows = malloc((size_t)n_lane * (2 * qrow + 2 * row) * sizeof *rows);
	for (int i = 0; i < n_step; i++) {
		rk_step_report *reps[RK_MAX_LANE];
		float *qs = rows, *ks = rows + (size_t)n_lane * qrow, *vs = ks + (size_t)n_lane * row;
		bed_random(&seed, qs, qrow);
		bed_random(&seed, ks, row);
		bed_random(&seed, vs, row);
		for (int j = 0; j < n_lane; j++) {
			memcpy(qs + (size_t)j * qrow, qs, qrow * sizeof *qs);
			memcpy(ks + (size_t)j * row, ks, row * sizeof *ks);
			memcpy(vs + (size_t)j * row, vs, row * sizeof *vs);
			bed_append(&b, &lane[j].tail, i, ks, vs, 1);
			lane[j].n_pos++;
			reps[j] = &t.rep[i * n_lane + j];
		}
		rk_cpu_attn_decode(&b.c.b, BED_LAYER, lanes, n_lane, qs, qs, ks, vs, t.out + (size_t)(i * n_lane) * qrow, reps);
		for (int j = 0; j < n_lane; j++) {
			lane[j].step++;
			if (!check || pols[j].score != RK_SCORE_NONE)
				continue;
			for (int h = 0; h < shape->n_head; h++)
				ref_attend(&b.seq, h / group, qs + h * shape->d, NULL, b.seq.n, want + h * shape->d);
			assert_close(t.out + (size_t)(i * n_lane + j) * qrow, want, qrow, bed_tolerance(&b, 1, 1, 1, b.seq.n));
			assert_int_equal(reps[j]->kind[BED_LAYER], RK_STEP_FULL);
			assert_true(isnan(reps[j]->cos[BED_LAYER]) && isnan(reps[j]->churn[BED_LAYER]));
			assert_int_equal(reps[j]->bytes_full, (int64_t)(2 * (size_t)b.seq.n * row * shape->kv_bytes));
			assert_int_equal(reps[j]->bytes_partial + reps[j]->bytes_score, 0);
		}
	}
	for (int j = 0; j < n_lane; j++)
		bed_lane_free(&b, &lane[j]);
	free(rows);
	free(want);
	free(k);
	free(v);
	free(q);
	bed_close(&b);
	return t;
}

static void free_trace(struct trace t)
{
	free(t.out);
	free(t.rep);
}

static const rk_policy vanilla = { .name = "vanilla", .window = 1, .pool = 1 };
static const rk_policy refresh = { .name = "refreshkv", .score = RK_SCORE_ATTENTION, .window = 1, .pool = 7,
                                   .evict = RK_EVICT_LOWEST, .refresh = RK_REFRESH_STRIDE, .stride = 3 };

static void decode_is_exact(void **state)
{
	static const int prompts[] = { 1, 255, 256, 257, 600 };

	(void)state;
	for (enum rk_isa isa = 0; isa < N_ISA; isa++)
		for (size_t i = 0; bed_has_isa(isa) && i < sizeof dims / sizeof *dims; i++)
			for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
				for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++) {
					bed_shape s = { .isa = isa, .n_thread = 2, .n_kv = 2, .n_head = 2 * groups[g], .d = dims[i],
					                .kv_bytes = (p + g) % 2 ? 4 : 2, .max_rows = 8, .max_pos = 610 };
					free_trace(run_lanes(&s, &vanilla, &(int){ 0 }, 1, prompts[p], 3, true));
				}
}

/* The same bits on 1, 2 and 3 threads, and for a lane alone and among others. */
static void decode_bits_are_fixed(void **state)
{
	rk_policy selected = refresh;
	selected.attend = RK_ATTEND_SELECTED;
	const rk_policy pols[] = { refresh, vanilla, refresh, selected };
	const int budgets[] = { 300, 0, 17, 290 }, n_prompt = 700, n_step = 7;

	(void)state;
	for (enum rk_isa isa = 0; isa < N_ISA; isa++) {
		if (!bed_has_isa(isa))
			continue;
		bed_shape s = { .isa = isa, .n_thread = 1, .n_kv = 3, .n_head = 9, .d = 16, .kv_bytes = 2,
		                .max_rows = 8, .max_pos = 710 };
		size_t qrow = (size_t)(s.n_head * s.d);
		struct trace want = run_lanes(&s, pols, budgets, 4, n_prompt, n_step, false);
		for (s.n_thread = 1; s.n_thread <= 3; s.n_thread++) {
			struct trace got = run_lanes(&s, pols, budgets, 4, n_prompt, n_step, false);
			assert_memory_equal(got.out, want.out, (size_t)n_step * 4 * qrow * sizeof *got.out);
			free_trace(got);
			for (int j = 0; j < 4; j++) {
				got = run_lanes(&s, &pols[j], &budgets[j], 1, n_prompt, n_step, false);
				for (int i = 0; i < n_step; i++)
					assert_memory_equal(got.out + (size_t)i * qrow, want.out + (size_t)(i * 4 + j) * qrow,
					                    qrow * sizeof *got.out);
				free_trace(got);
			}
		}
		free_trace(want);
	}
}

/* Rows that lie scattered give the bits that they give one after the other. */
static void scattered_rows(void **state)
{
	enum { N = 37, MOST = 128 };
	uint32_t seed = 9;
	float *x = random_floats(&seed, N * MOST), *q = random_floats(&seed, 8 * MOST), *p = random_floats(&seed, 8 * N);
	rk_half half[N * MOST];

	(void)state;
	for (int i = 0; i < N * MOST; i++)
		half[i] = rk_float_to_half(x[i]);
	for (enum rk_isa isa = 0; isa < N_ISA; isa++)
		for (size_t i = 0; bed_has_isa(isa) && i < sizeof dims / sizeof *dims; i++)
			for (size_t g = 0; g < 2 * (sizeof groups / sizeof *groups); g++) {
				const rk_attn_kernels *k = rk_attn_kernels_for((int)isa);
				bool f16 = g % 2;
				int d = dims[i], heads = groups[g / 2];
				size_t bytes = (size_t)d * (f16 ? 2 : 4);
				char *in_order = bed_alloc(N * bytes), *all = f16 ? (char *)half : (char *)x;
				const char *row[N];
				float *want = bed_alloc(8 * MOST * sizeof *want), *got = bed_alloc(8 * MOST * sizeof *got);
				for (int t = 0; t < N; t++) {
					row[t] = all + (size_t)(t * 11 % N) * bytes;
					memcpy(in_order + (size_t)t * bytes, row[t], bytes);
				}
				k->score(want, MOST, q, heads, in_order, N, d, f16);
				k->score_rows(got, MOST, q, heads, row, N, d, f16);
				assert_memory_equal(got, want, 8 * MOST * sizeof *got);
				k->mix(want, p, N, heads, in_order, N, d, f16);
				k->mix_rows(got, p, N, heads, row, N, d, f16);
				assert_memory_equal(got, want, 8 * MOST * sizeof *got);
				bed_free(in_order);
				bed_free(want);
				bed_free(got);
			}
	free(x);
	free(q);
	free(p);
}

/* stride=1, and s > 1 with qc=1, refresh at every step: vanilla bit for bit.  K >= n: vanilla within rounding. */
static void degenerate_policies_are_vanilla(void **state)
{
	rk_policy stride = refresh, query = refresh, never = refresh;
	const int n_prompt = 300, n_step = 9;

	(void)state;
	stride.stride = 1;
	query.refresh = RK_REFRESH_QUERY;
	query.qc = 1;
	query.s = 1.5f;
	never.refresh = RK_REFRESH_NEVER;
	for (enum rk_isa isa = 0; isa < N_ISA; isa++) {
		if (!bed_has_isa(isa))
			continue;
		bed_shape s = { .isa = isa, .n_thread = 2, .n_kv = 3, .n_head = 9, .d = 64, .kv_bytes = 2,
		                .max_rows = 8, .max_pos = 310 };
		const rk_policy pols[] = { vanilla, stride, query, never };
		struct trace t = run_lanes(&s, pols, (int[]){ 0, 40, 40, 500 }, 4, n_prompt, n_step, true);
		size_t qrow = (size_t)(s.n_head * s.d);
		bed b = { .hp = { .head_dim = s.d } };
		for (int i = 0; i < n_step; i++) {
			const float *want = t.out + (size_t)(4 * i) * qrow;
			assert_memory_equal(want + qrow, want, qrow * sizeof *want);
			assert_memory_equal(want + 2 * qrow, want, qrow * sizeof *want);
			for (size_t j = 0; j < qrow; j++)
				assert_true(fabs((double)want[3 * qrow + j] - (double)want[j]) <= 2 * bed_tolerance(&b, 1, 1, 1, 310));
		}
		free_trace(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prefill_is_exact),
		cmocka_unit_test(prefill_bits_are_fixed),
		cmocka_unit_test(decode_is_exact),
		cmocka_unit_test(decode_bits_are_fixed),
		cmocka_unit_test(scattered_rows),
		cmocka_unit_test(degenerate_policies_are_vanilla),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
