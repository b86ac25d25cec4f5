/* test_lin.c: the linear operations of the CPU backend against their double-precision specification (aid_ref_lin), for
 * every instruction set that this machine has, every weight type, odd sizes, and every number of rows and threads.
 *
 * Tolerances are derived.  A f32 result whose terms p go through k roundings each differs from the exact one by at most
 * k u sum|p| to first order (u = 2^-24; one is added to k for the second).  What k is stands beside each use.
 */
#include "aid_ref_lin.h"
#include "cpu/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MAX_COL 1024
#define MAX_ROWS 200
#define GUARD 32		/* floats before and after every output */

static const enum rk_type all_types[] = {
	RK_F32, RK_F16, RK_BF16, RK_Q4_0, RK_Q4_1, RK_Q5_0, RK_Q5_1, RK_Q8_0, RK_Q4_K, RK_Q5_K, RK_Q6_K,
};
#define N_TYPE ((int)(sizeof all_types / sizeof *all_types))

static const char *const isas[] = { "scalar", "avx2", "avx512" };
static rk_model model;

static int setup(void **state)
{
	(void)state;
	aid_rng r = { 1 };
	model = aid_model(576, 9, 3, 64, 48, MAX_COL, aid_tensor(&r, RK_Q8_0, 40, 576));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unsetenv("RK_ISA");
	aid_model_free(&model);
	return 0;
}

/* NULL where this machine lacks the set. */
static rk_backend *open_cpu(const char *isa, int n_thread, bool exact)
{
	rk_backend_cfg cfg = {
		.device = "cpu", .n_thread = n_thread, .exact = exact, .max_rows = MAX_ROWS, .max_pos = 64,
	};
	rk_backend *b;
	rk_err e;
	setenv("RK_ISA", isa, 1);
	if (rk_backend_open(&b, &model, &cfg, &e)) {
		assert_non_null(strstr(e.msg, "this machine has"));
		return NULL;
	}
	assert_int_equal(b->n_thread, n_thread);
	assert_memory_equal(b->isa, isa, strlen(isa));
	return b;
}

static float *random_floats(aid_rng *r, size_t n, float size)
{
	float *x = malloc(n * sizeof *x);
	for (size_t i = 0; i < n; i++)
		x[i] = size * aid_uniform(r);
	return x;
}

/* An output of n floats with a guard on either side, all of one odd bit pattern. */
static float *out_new(size_t n)
{
	float *p = malloc((n + 2 * GUARD) * sizeof *p);
	memset(p, 0x5a, (n + 2 * GUARD) * sizeof *p);
	return p + GUARD;
}

static void out_free(float *p, size_t n)
{
	for (size_t i = 0; i < GUARD * sizeof *p; i++) {
		assert_int_equal(((unsigned char *)(p - GUARD))[i], 0x5a);
		assert_int_equal(((unsigned char *)(p + n))[i], 0x5a);
	}
	free(p - GUARD);
}

static void assert_near(float got, double want, double tol, const char *what, size_t at)
{
	if (!(fabs((double)got - want) <= tol))
		fail_msg("%s: element %zu is %.9g, want %.9g +- %.3g", what, at, (double)got, want, tol);
}

static void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(a + i, b + i, sizeof *a))
			fail_msg("%s: element %zu differs: %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

static bool is_float(enum rk_type t)
{
	return rk_type_block_len(t) == 1;
}

/* A row length near n that the type allows; odd for floats. */
static int col_of(enum rk_type t, int n)
{
	int len = rk_type_block_len(t);
	return len == 1 ? n - 1 : (n + len - 1) / len * len;
}

/* Roundings that a term of a result goes through, one more for the second order included:
 * - 8-bit: d * da, one addition per group at most, 3 to join the lanes, 1 for the minimum terms, 1 in the
 *   reference's own f32 weight: n_col/32 + 7;
 * - decode, f32: the product, n_col/8 in a lane (2 sums of at least 4 lanes), 5 to join them, 31 for what is left over;
 * - prefill, f32: nothing is assumed of oneDNN's order. */
static double roundings(bool q8, enum rk_phase phase, int n_col)
{
	if (q8)
		return n_col / 32 + 7;
	return phase == RK_PREFILL ? n_col + 2 : n_col / 8 + 38;
}

/* y of the whole call against the specification. */
static void check_matmul(const float *y, const rk_tensor *w, const float *x, int n, bool q8, enum rk_phase phase)
{
	size_t len = (size_t)n * (size_t)w->n_row;
	double *want = malloc(len * sizeof *want), *mag = malloc(len * sizeof *mag);
	double *quant = calloc(len, sizeof *quant);
	double *exact = malloc(len * sizeof *exact), *unused = malloc(len * sizeof *unused);
	double k = roundings(q8, phase, (int)w->n_col) * AID_U;
	ref_matmul(exact, q8 ? unused : mag, w, x, n);
	if (q8)
		ref_matmul_q8(want, mag, quant, w, x, n);
	else
		memcpy(want, exact, len * sizeof *want);
	for (size_t i = 0; i < len; i++) {
		assert_near(y[i], want[i], k * mag[i], rk_type_name(w->type), i);
		/* q is within half a step of x/d, but for the roundings of d and 127/max: 127 * 3u of a step */
		if (q8)
			assert_near(y[i], exact[i], quant[i] * (1 + 1e-4) + k * mag[i], rk_type_name(w->type), i);
	}
	free(want);
	free(mag);
	free(quant);
	free(exact);
	free(unused);
}

static void run_matmul(rk_backend *b, float *y, const rk_tensor *w, const float *x, int n, enum rk_phase phase)
{
	const rk_tensor *p = w;
	b->ops->matmul(b, &y, &p, 1, x, n, phase);
}

/* Every n and number of threads gives the bits of the first n rows of one large call, and those are right. */
static void check_calls(const char *isa, const rk_tensor *w, bool exact, enum rk_phase phase, const int *ns, int n_n)
{
	aid_rng r = { 7 };
	int n_max = ns[n_n - 1];
	size_t n_row = (size_t)w->n_row;
	float *x = random_floats(&r, (size_t)n_max * (size_t)w->n_col, 1), *all = out_new((size_t)n_max * n_row);
	rk_backend *b = open_cpu(isa, 1, exact);
	run_matmul(b, all, w, x, n_max, phase);
	rk_backend_close(b);
	bool q8 = !exact && !is_float(w->type) && (phase == RK_DECODE || strcmp(isa, "scalar"));
	check_matmul(all, w, x, n_max, q8, phase);
	for (int n_thread = 1; n_thread <= 3; n_thread++) {
		b = open_cpu(isa, n_thread, exact);
		for (int i = 0; i < n_n; i++) {
			size_t len = (size_t)ns[i] * n_row;
			float *y = out_new(len);
			run_matmul(b, y, w, x, ns[i], phase);
			assert_same_bits(y, all, len, rk_type_name(w->type));
			out_free(y, len);
		}
		/* the last row alone: its place in the call does not matter either */
		float *y = out_new(n_row);
		run_matmul(b, y, w, x + (size_t)(n_max - 1) * (size_t)w->n_col, 1, phase);
		assert_same_bits(y, all + (size_t)(n_max - 1) * n_row, n_row, "last row alone");
		out_free(y, n_row);
		rk_backend_close(b);
	}
	out_free(all, (size_t)n_max * n_row);
	free(x);
}

static void for_each_type(const char *isa, bool exact, enum rk_phase phase, const int (*shape)[2], int n_shape,
                          const int *ns, int n_n)
{
	rk_backend *b = open_cpu(isa, 1, exact);
	if (!b)
		return;
	rk_backend_close(b);
	aid_rng r = { 3 };
	for (int t = 0; t < N_TYPE; t++)
		for (int s = 0; s < n_shape; s++) {
			rk_tensor w = aid_tensor(&r, all_types[t], shape[s][0], col_of(all_types[t], shape[s][1]));
			check_calls(isa, &w, exact, phase, ns, n_n);
			free((void *)w.data);
		}
}

static void test_decode(void **state)
{
	(void)state;
	static const int shape[][2] = { { 1, 32 }, { 17, 96 }, { 35, 576 } };
	static const int ns[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33 };
	for (int i = 0; i < 3; i++) {
		for_each_type(isas[i], false, RK_DECODE, shape, 3, ns, 12);
		for_each_type(isas[i], true, RK_DECODE, shape, 3, ns, 12);
	}
}

static void test_prefill(void **state)
{
	(void)state;
	static const int shape[][2] = { { 5, 32 }, { 150, 1024 } };
	static const int ns[] = {
		1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 18, 19, 31, 32, 33, 63, 64, 65, 129, 143, 144, 145, 159, 160, 163, 200,
	};
	for (int i = 0; i < 3; i++) {
		for_each_type(isas[i], false, RK_PREFILL, shape + 0, 1, ns, 28);
		for_each_type(isas[i], true, RK_PREFILL, shape + 0, 1, ns, 28);
	}
	/* the long one: whole blocks of activations, and as many rows as take several pieces */
	static const enum rk_type types[] = { RK_F32, RK_Q4_1, RK_Q6_K };
	for (int i = 0; i < 3; i++) {
		rk_backend *b = open_cpu(isas[i], 1, false);
		aid_rng r = { 5 };
		for (int t = 0; b && t < 3; t++) {
			rk_tensor w = aid_tensor(&r, types[t], shape[1][0], shape[1][1]);
			check_calls(isas[i], &w, false, RK_PREFILL, ns, 28);
			free((void *)w.data);
		}
		rk_backend_close(b);
	}
}

/* Three matrices of different types and heights in one call give what three calls give. */
static void test_fused(void **state)
{
	(void)state;
	aid_rng r = { 11 };
	rk_tensor w[3];
	w[0] = aid_tensor(&r, RK_Q4_K, 170, 512);
	w[1] = aid_tensor(&r, RK_F16, 9, 512);
	w[2] = aid_tensor(&r, RK_Q8_0, 40, 512);
	float *x = random_floats(&r, 20 * 512, 2);
	const rk_tensor *p[3] = { w, w + 1, w + 2 };
	for (int i = 0; i < 3; i++) {
		rk_backend *b = open_cpu(isas[i], 2, false);
		for (int n = 1; b && n <= 20; n += 19)
			for (int phase = RK_PREFILL; phase <= RK_DECODE; phase++) {
				float *y[3], *alone[3];
				for (int j = 0; j < 3; j++) {
					y[j] = out_new((size_t)n * (size_t)w[j].n_row);
					alone[j] = out_new((size_t)n * (size_t)w[j].n_row);
					run_matmul(b, alone[j], p[j], x, n, (enum rk_phase)phase);
				}
				b->ops->matmul(b, y, p, 3, x, n, (enum rk_phase)phase);
				for (int j = 0; j < 3; j++) {
					size_t len = (size_t)n * (size_t)w[j].n_row;
					assert_same_bits(y[j], alone[j], len, "fused");
					out_free(y[j], len);
					out_free(alone[j], len);
				}
			}
		rk_backend_close(b);
	}
	for (int j = 0; j < 3; j++)
		free((void *)w[j].data);
	free(x);
}

/* The tables that this machine can run. */
static int tables(const rk_lin_kernels *t[4])
{
	int n = 0;
	t[n++] = &rk_lin_scalar;
	rk_backend *b = open_cpu("avx2", 1, false);
	if (b)
		t[n++] = &rk_lin_avx2;
	rk_backend_close(b);
	b = open_cpu("avx512", 1, false);
	if (b)
		t[n++] = &rk_lin_avx512;
	if (b && ((rk_cpu *)b)->vnni)
		t[n++] = &rk_lin_avx512_vnni;
	rk_backend_close(b);
	return n;
}

/* What tables must agree on bit for bit: dequantisation, quantised activations, and among AVX2 and up the products. */
static void test_tables(void **state)
{
	(void)state;
	enum { N_COL = 512, N_ROW = 35, N_ACT = 19 };	/* more than a tile, and no whole number of them */
	const rk_lin_kernels *table[4];
	int n_table = tables(table);
	aid_rng r = { 13 };
	float *x = random_floats(&r, N_ACT * N_COL, 3), *ds[4];
	int8_t *q[4];
	/* a row of zeros, a row of numbers too small to scale, ties */
	memset(x + N_COL, 0, N_COL * sizeof *x);
	for (int j = 0; j < N_COL; j++)
		x[2 * N_COL + j] *= 1e-38f;
	x[0] = 127;
	x[1] = 2.5f;
	x[2] = -3.5f;
	for (int k = 0; k < n_table; k++) {
		q[k] = malloc(N_ACT * N_COL);
		ds[k] = calloc(N_ACT * N_COL / 32 * 2, sizeof **ds);
		for (int i = 0; i < N_ACT; i++)
			table[k]->quantise(x + i * N_COL, N_COL, N_ACT, q[k] + i * 32, ds[k] + 2 * i);
		assert_memory_equal(q[k], q[0], N_ACT * N_COL);
		assert_same_bits(ds[k], ds[0], N_ACT * N_COL / 32 * 2, "quantise");
	}
	assert_int_equal(q[0][1], 2);
	assert_int_equal(q[0][2], -4);
	for (int t = 0; t < N_TYPE; t++) {
		rk_tensor w = aid_tensor(&r, all_types[t], N_ROW, N_COL);
		int n = col_of(all_types[t], N_COL);	/* for floats one short of a whole number of vectors */
		float want[N_COL], got[N_COL], *first = NULL;
		rk_dequant_row(w.type, w.data, want, n);
		for (int k = 0; k < n_table; k++) {
			table[k]->dequant(w.type, w.data, got, n);
			assert_same_bits(got, want, (size_t)n, rk_type_name(w.type));
			if (is_float(w.type) || k == 0)
				continue;
			rk_act a = { q[k], ds[k], N_COL, N_ACT };
			float *y = out_new(N_ACT * N_ROW);
			table[k]->dot_q8(w.type, w.data, N_ROW, &a, y, N_ROW);
			if (first) {
				assert_same_bits(y, first, N_ACT * N_ROW, rk_type_name(w.type));
				out_free(y, N_ACT * N_ROW);
			} else {
				first = y;
			}
		}
		if (first)
			out_free(first, N_ACT * N_ROW);
		free((void *)w.data);
	}
	for (int k = 0; k < n_table; k++) {
		free(q[k]);
		free(ds[k]);
	}
	free(x);
}

static void test_to_half(void **state)
{
	(void)state;
	static const float special[] = {
		0, -0.0f, 65504, 65519.9f, 65520, 1e9f, -1e9f, INFINITY, -INFINITY, 0x1p-14f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f,
		0x1.002p0f, 0x1.006p0f, 1e-30f, NAN,
	};
	enum { N = 2000 + sizeof special / sizeof *special };
	const rk_lin_kernels *table[4];
	int n_table = tables(table);
	aid_rng r = { 17 };
	float x[N];
	rk_half want[N], got[N + 2];
	memcpy(x, special, sizeof special);
	for (int i = sizeof special / sizeof *special; i < N; i++)
		x[i] = ldexpf(aid_uniform(&r), (int)(aid_u32(&r) % 48) - 28);
	for (int i = 0; i < N; i++)
		want[i] = rk_float_to_half(x[i]);
	for (int k = 0; k < n_table; k++)
		for (int n = N - 9; n <= N; n++) {
			memset(got, 0x5a, sizeof got);
			table[k]->to_half(got, x, n);
			assert_memory_equal(got, want, (size_t)n * sizeof *got);
			assert_int_equal(got[n], 0x5a5a);
		}
}

static void test_embed(void **state)
{
	(void)state;
	static const int32_t ids[] = { 39, 0, 7, 39 };
	double want[4 * 576];
	ref_embed(want, &model.w.tok_embd, ids, 4);
	for (int i = 0; i < 3; i++) {
		rk_backend *b = open_cpu(isas[i], 1, false);
		if (!b)
			continue;
		float *x = out_new(4 * 576);
		b->ops->embed(b, x, ids, 4);
		for (size_t j = 0; j < 4 * 576; j++)
			assert_near(x[j], want[j], 0, "embed", j);
		out_free(x, 4 * 576);
		rk_backend_close(b);
	}
}

/* One of the operations that work row by row; x2 is the second operand. */
typedef void row_op(rk_backend *b, float *y, const float *x, const float *x2, int n, int dim);

static void op_rmsnorm(rk_backend *b, float *y, const float *x, const float *x2, int n, int dim)
{
	rk_tensor w = { .data = x2, .type = RK_F32, .n_row = 1, .n_col = dim };
	b->ops->rmsnorm(b, y, x, &w, n, dim, 1e-5f);
}

static void op_silu_mul(rk_backend *b, float *y, const float *x, const float *x2, int n, int dim)
{
	b->ops->silu_mul(b, y, x, x2, n, dim);
}

static void op_add(rk_backend *b, float *y, const float *x, const float *x2, int n, int dim)
{
	memcpy(y, x, (size_t)n * (size_t)dim * sizeof *y);
	b->ops->add(b, y, x2, n, dim);
}

/* n rows in one call, and one at a time for the same bits.  shared: all rows have the same x2. */
static void check_rows(row_op *op, const double *want, const double *tol, const float *x, const float *x2, int n, int dim,
                       bool shared)
{
	size_t len = (size_t)n * (size_t)dim;
	for (int i = 0; i < 3; i++)
		for (int n_thread = 1; n_thread <= 3; n_thread++) {
			rk_backend *b = open_cpu(isas[i], n_thread, false);
			if (!b)
				continue;
			float *y = out_new(len), *alone = out_new(len);
			op(b, y, x, x2, n, dim);
			for (size_t j = 0; j < len; j++)
				assert_near(y[j], want[j], tol[j], isas[i], j);
			for (int k = 0; k < n; k++)
				op(b, alone + k * dim, x + k * dim, x2 + (shared ? 0 : k * dim), 1, dim);
			assert_same_bits(y, alone, len, isas[i]);
			out_free(y, len);
			out_free(alone, len);
			rk_backend_close(b);
		}
}

static void test_rows(void **state)
{
	(void)state;
	static const int dims[] = { 1, 5, 17, 64, 577 };
	enum { N = 19 };
	for (int d = 0; d < 5; d++) {
		int dim = dims[d];
		size_t len = (size_t)N * (size_t)dim;
		aid_rng r = { 19 };
		float *x = random_floats(&r, len, 12), *x2 = random_floats(&r, len, 3);
		double *want = malloc(len * sizeof *want), *tol = malloc(len * sizeof *tol);
		ref_rmsnorm(want, x, x2, N, dim, 1e-5f);
		/* all terms of the sum are positive: dim/4 + 18 roundings of it, halved by the root, and 5 more */
		for (size_t j = 0; j < len; j++)
			tol[j] = fabs(want[j]) * ((dim / 4 + 18) / 2.0 + 6) * AID_U;
		check_rows(op_rmsnorm, want, tol, x, x2, N, dim, true);
		ref_silu_mul(want, x, x2, (int)len);
		/* the error of exp, and 4 roundings */
		for (size_t j = 0; j < len; j++)
			tol[j] = fabs(want[j]) * (2e-7 + 5 * AID_U);
		check_rows(op_silu_mul, want, tol, x, x2, N, dim, false);
		for (size_t j = 0; j < len; j++) {
			want[j] = (double)x[j] + (double)x2[j];
			tol[j] = fabs(want[j]) * AID_U;
		}
		check_rows(op_add, want, tol, x, x2, N, dim, false);
		free(x);
		free(x2);
		free(want);
		free(tol);
	}
}

/* exp over its whole range, seen through SiLU at -x, where silu(-x) = -x exp(-x) / (1 + exp(-x)). */
static void test_exp(void **state)
{
	(void)state;
	enum { N = 20001 };
	const rk_lin_kernels *table[4];
	int n_table = tables(table);
	float *x = malloc(N * sizeof *x), *u = malloc(N * sizeof *u), *y = malloc(N * sizeof *y);
	double *want = malloc(N * sizeof *want);
	for (int j = 0; j < N; j++) {
		x[j] = -87.0f * (float)j / (N - 1) + (j % 2 ? 0 : 87.0f);
		u[j] = 1;
	}
	ref_silu_mul(want, x, u, N);
	for (int k = 0; k < n_table; k++) {
		table[k]->silu_mul(y, x, u, N);
		for (int j = 0; j < N; j++)
			assert_near(y[j], want[j], fabs(want[j]) * (2e-7 + 5 * AID_U), "silu", (size_t)j);
	}
	static const float far[] = { -1e30f, -INFINITY, 1e30f, NAN, 200, -200, 0, -0.0f };
	for (int k = 0; k < n_table; k++) {
		table[k]->silu_mul(y, far, u, 8);
		assert_true(isnan(y[3]) && y[2] == 1e30f && y[4] == 200 && y[6] == 0 && fabsf(y[5]) < 1e-35f);
	}
	free(x);
	free(u);
	free(y);
	free(want);
}

static void test_rope(void **state)
{
	(void)state;
	enum { N = 11, N_HEAD = 3, DIM = 64, LEN = N * N_HEAD * DIM };
	static const int32_t pos[N] = { 0, 1, 2, 3, 1000, 1001, 131071, 131070, 77777, 5, 5 };
	aid_rng r = { 23 };
	float *x = random_floats(&r, LEN, 4);
	double *want = malloc(LEN * sizeof *want);
	ref_rope(want, x, pos, N, N_HEAD, &model.hp);
	for (int i = 0; i < 3; i++) {
		rk_backend *b = open_cpu(isas[i], 2, false);
		if (!b)
			continue;
		float *y = out_new(LEN), *alone = out_new(LEN);
		b->ops->rope(b, y, x, pos, N, N_HEAD);
		/* two products of at most 4, with a rounded factor (2 roundings each), and their sum */
		for (size_t j = 0; j < LEN; j++)
			assert_near(y[j], want[j], 4 * AID_U * 2 * 4, "rope", j);
		memcpy(alone, x, LEN * sizeof *x);	/* in place, one row at a time */
		for (int k = 0; k < N; k++)
			b->ops->rope(b, alone + k * N_HEAD * DIM, alone + k * N_HEAD * DIM, pos + k, 1, N_HEAD);
		assert_same_bits(y, alone, LEN, "rope");
		assert_same_bits(y + 48, x + 48, 16, "elements beyond rope_dim");
		out_free(y, LEN);
		out_free(alone, LEN);
		rk_backend_close(b);
	}
	free(x);
	free(want);
}

static void test_kv_append(void **state)
{
	(void)state;
	enum { CAP = 40, N_KV = 3, DIM = 64, ROW = N_KV * DIM };
	static const int at[] = { 0, 1, 12, 39 }, n[] = { 1, 11, 27, 1 };
	aid_rng r = { 29 };
	float *k = random_floats(&r, CAP * ROW, 4), *v = random_floats(&r, CAP * ROW, 4);
	for (int exact = 0; exact < 2; exact++) {
		rk_backend *b = open_cpu("scalar", 2, exact);
		size_t floats = CAP * ROW * b->kv_bytes / sizeof(float);
		rk_store st = { .k = out_new(floats), .v = out_new(floats), .cap = CAP };
		for (int c = 0; c < 4; c++)
			b->ops->kv_append(b, &st, 0, at[c], k + at[c] * ROW, v + at[c] * ROW, n[c]);
		for (int p = 0; p < CAP; p++)
			for (int h = 0; h < N_KV; h++)
				for (int j = 0; j < DIM; j++) {
					size_t dst = ((size_t)h * CAP + (size_t)p) * DIM + (size_t)j;
					int src = p * ROW + h * DIM + j;
					if (exact) {
						assert_true(((float *)st.k)[dst] == k[src]);
						assert_true(((float *)st.v)[dst] == v[src]);
					} else {
						assert_int_equal(((rk_half *)st.k)[dst], rk_float_to_half(k[src]));
						assert_int_equal(((rk_half *)st.v)[dst], rk_float_to_half(v[src]));
					}
				}
		out_free(st.k, floats);
		out_free(st.v, floats);
		rk_backend_close(b);
	}
	free(k);
	free(v);
}

static void test_logits_stats(void **state)
{
	(void)state;
	static const int sizes[] = { 1, 3, 16, 17, 1000, 1025, 49152 };
	const rk_lin_kernels *table[4];
	int n_table = tables(table);
	for (int s = 0; s < 7; s++) {
		int n = sizes[s];
		aid_rng r = { 31 };
		float *x = random_floats(&r, (size_t)n, 20);
		for (int round = 0; round < 3; round++) {
			double want;
			int32_t at;
			if (round && n > 2) {	/* a tie; the lower wins, also when the other comes first in a lane */
				x[n - 1] = 21.0f + (float)round;
				x[round == 1 ? n / 2 : 0] = x[n - 1];
			}
			ref_logits_stats(x, n, &want, &at);
			for (int k = 0; k < n_table; k++) {
				float lse;
				int32_t argmax;
				table[k]->logits_stats(x, n, &lse, &argmax);
				assert_int_equal(argmax, at);
				/* relative error of the sum: exp 2e-7, rounding of its argument (t e^-t < 0.4, one u), and
				 * 64 + 5 + 1 additions; then the rounding of the result */
				assert_near(lse, want, 2e-7 + 71 * AID_U + fabs(want) * AID_U, "lse", (size_t)n);
			}
		}
		free(x);
	}
	model.hp.n_vocab = 50;
	aid_rng r = { 37 };
	float *x = random_floats(&r, 4 * 50, 5), lse[4], lse1;
	int32_t argmax[4], argmax1;
	rk_backend *b = open_cpu("scalar", 3, false);
	b->ops->logits_stats(b, x, 4, lse, argmax);
	for (int i = 0; i < 4; i++) {
		b->ops->logits_stats(b, x + i * 50, 1, &lse1, &argmax1);
		assert_true(lse1 == lse[i] && argmax1 == argmax[i]);
	}
	rk_backend_close(b);
	free(x);
	model.hp.n_vocab = 40;
}

static void expect_refused(const rk_backend_cfg *cfg, const char *isa, enum rk_code code, const char *words)
{
	rk_backend *b;
	rk_err e;
	setenv("RK_ISA", isa, 1);
	assert_int_equal(rk_backend_open(&b, &model, cfg, &e), -1);
	assert_null(b);
	assert_int_equal(e.code, code);
	if (!strstr(e.msg, words))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, words);
}

static void test_open(void **state)
{
	(void)state;
	const rk_backend_cfg good = { .device = "auto", .max_rows = 8, .max_pos = 16 };
	rk_backend_cfg c = good;
	rk_backend *b;
	rk_err e;
	unsetenv("RK_ISA");
	assert_int_equal(rk_backend_open(&b, &model, &good, &e), 0);
	assert_true(b->n_thread >= 1 && b->kv_bytes == 2 && b->scratch_bytes > 0);
	void *p;
	assert_int_equal(b->ops->alloc(b, 100, &p, &e), 0);
	assert_int_equal((uintptr_t)p % 64, 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(((char *)p)[i], 0);
	b->ops->upload(b, p, "abc", 4);
	char back[4];
	b->ops->download(b, back, p, 4);
	assert_string_equal(back, "abc");
	b->ops->free(b, p, 100);
	assert_int_equal(b->ops->alloc(b, SIZE_MAX, &p, &e), -1);
	assert_int_equal(e.code, RK_ENOMEM);
	assert_int_equal(b->ops->sync(b, &e), 0);
	rk_backend_close(b);
	rk_backend_close(NULL);
	c.device = "cuda";
	expect_refused(&c, "", RK_EUSAGE, "no CUDA");
	c.device = "tpu";
	expect_refused(&c, "", RK_EUSAGE, "tpu");
	c = good;
	c.n_thread = -1;
	expect_refused(&c, "", RK_EUSAGE, "-1");
	c = good;
	c.max_rows = 7;
	expect_refused(&c, "", RK_EUSAGE, "7");
	expect_refused(&good, "sse9", RK_EUSAGE, "sse9");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode),
		cmocka_unit_test(test_prefill),
		cmocka_unit_test(test_fused),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_to_half),
		cmocka_unit_test(test_embed),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_exp),
		cmocka_unit_test(test_rope),
		cmocka_unit_test(test_kv_append),
		cmocka_unit_test(test_logits_stats),
		cmocka_unit_test(test_open),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
