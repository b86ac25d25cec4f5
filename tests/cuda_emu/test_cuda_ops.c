/* test_cuda_ops.c: every operation of the CUDA backend, against its scalar reference in double precision:
 * on the emulated device, and by tests/device-check.sh on a GPU.
 *
 * Tolerances are derived as in test_lin.c and test_attn.c: roundings per result times u = 2^-24 times the sum of
 * magnitudes; where inputs are rounded to f16, 2^-11 of the magnitudes comes on top.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "aid_ref_attn.h"
#include "aid_ref_lin.h"
#include "cpu/cpu.h"

#define U16 0x1p-11	/* relative error of one f16 rounding */
#define MAX_ROWS 70
#define MAX_POS 1500

static const enum rk_type types[] = { RK_F32, RK_F16, RK_BF16, RK_Q4_0, RK_Q4_1, RK_Q5_0, RK_Q5_1, RK_Q8_0, RK_Q4_K,
                                     RK_Q5_K, RK_Q6_K };
#define N_TYPE ((int)(sizeof types / sizeof *types))

static rk_backend *open_gpu(const rk_model *m, bool exact)
{
	rk_backend_cfg cfg = { .device = "cuda:0", .exact = exact, .max_rows = MAX_ROWS, .max_pos = MAX_POS };
	rk_backend *b;
	rk_err e;

	if (rk_backend_open(&b, m, &cfg, &e))
		fail_msg("%s", e.msg);
	return b;
}

static void *on_gpu(rk_backend *b, const void *src, size_t bytes)
{
	void *p;

	assert_int_equal(b->ops->alloc(b, bytes, &p, NULL), 0);
	if (src)
		b->ops->upload(b, p, src, bytes);
	return p;
}

static void *back(rk_backend *b, const void *p, size_t bytes)
{
	void *host = malloc(bytes);

	assert_non_null(host);
	b->ops->download(b, host, p, bytes);
	assert_int_equal(b->ops->sync(b, NULL), 0);
	return host;
}

static float *floats(aid_rng *r, size_t n)
{
	float *x = malloc(n * sizeof *x);

	assert_non_null(x);
	for (size_t i = 0; i < n; i++)
		x[i] = aid_uniform(r);
	return x;
}

static void assert_near(float got, double want, double tol, const char *what, size_t at)
{
	if (!(fabs((double)got - want) <= tol))
		fail_msg("%s: element %zu is %.9g, want %.9g +- %.3g", what, at, (double)got, want, tol);
}

/* ---- weights ---- */

/* A model whose layer t has a matrix of type t. */
static rk_model typed_model(int n_row, int n_col)
{
	aid_rng r = { 11 };
	rk_model m = aid_model(512, 4, 2, 16, 16, 768, aid_tensor(&r, RK_Q8_0, 40, 512));

	m.hp.n_layer = N_TYPE;
	m.w.layer = calloc(N_TYPE, sizeof *m.w.layer);
	for (int t = 0; t < N_TYPE; t++) {
		m.w.layer[t].wq = aid_tensor(&r, types[t], n_row, n_col);
		m.w.layer[t].wk = aid_tensor(&r, types[(t + 1) % N_TYPE], 9, n_col);
		m.w.layer[t].wv = aid_tensor(&r, types[(t + 1) % N_TYPE], 16, n_col);
	}
	return m;
}

static void typed_model_free(rk_model *m)
{
	for (int t = 0; t < N_TYPE; t++) {
		free((void *)m->w.layer[t].wq.data);
		free((void *)m->w.layer[t].wk.data);
		free((void *)m->w.layer[t].wv.data);
	}
	free(m->w.layer);
	aid_model_free(m);
}

static void check_product(const float *y, const rk_tensor *w, const float *x, int n, double per_mag)
{
	size_t len = (size_t)n * (size_t)w->n_row;
	double *want = malloc(len * sizeof *want), *mag = malloc(len * sizeof *mag);

	ref_matmul(want, mag, w, x, n);
	for (size_t i = 0; i < len; i++)
		assert_near(y[i], want[i], per_mag * mag[i], rk_type_name(w->type), i);
	free(want);
	free(mag);
}

/* Decode: a lane adds n_col / 32 products to its sum, 5 more additions join the lanes, and a weight takes up to 3
 * roundings.
 * The rows of a call of 11 have the bits of calls with fewer. */
static void matmul_decode(void **state)
{
	enum { N_ROW = 37, N_COL = 512, N = 11 };
	rk_model m = typed_model(N_ROW, N_COL);
	rk_backend *b = open_gpu(&m, false);
	aid_rng r = { 5 };
	float *x = floats(&r, N * N_COL), *x_gpu = on_gpu(b, x, N * N_COL * sizeof *x),
		*y_gpu = on_gpu(b, NULL, N * (N_ROW + 25) * sizeof(float));

	(void)state;
	for (int t = 0; t < N_TYPE; t++) {
		const rk_layer_weights *w = &b->w->layer[t], *host = &m.w.layer[t];
		float *y[] = { y_gpu, y_gpu + N * N_ROW, y_gpu + N * (N_ROW + 9) };
		b->ops->matmul(b, y, (const rk_tensor *[]){ &w->wq, &w->wk, &w->wv }, 3, x_gpu, N, RK_DECODE);
		float *all = back(b, y_gpu, N * (N_ROW + 25) * sizeof *all);
		check_product(all, &host->wq, x, N, (N_COL / 32 + 9) * AID_U);
		check_product(all + N * N_ROW, &host->wk, x, N, (N_COL / 32 + 9) * AID_U);
		check_product(all + N * (N_ROW + 9), &host->wv, x, N, (N_COL / 32 + 9) * AID_U);
		for (int n = 1; n < N; n += n == 1 ? 1 : 2) {
			b->ops->matmul(b, y, (const rk_tensor *[]){ &w->wq }, 1, x_gpu, n, RK_DECODE);
			float *some = back(b, y_gpu, (size_t)(n * N_ROW) * sizeof *some);
			assert_memory_equal(some, all, (size_t)(n * N_ROW) * sizeof *some);
			free(some);
		}
		free(all);
	}
	free(x);
	b->ops->free(b, x_gpu, 0);
	b->ops->free(b, y_gpu, 0);
	rk_backend_close(b);
	typed_model_free(&m);
}

/* Prefill: nothing is assumed about the order of sums of cuBLAS. */
static void matmul_prefill(void **state)
{
	enum { N_ROW = 37, N_COL = 512, N = 20 };
	rk_model m = typed_model(N_ROW, N_COL);
	aid_rng r = { 5 };
	float *x = floats(&r, N * N_COL);

	(void)state;
	for (int exact = 0; exact < 2; exact++) {
		rk_backend *b = open_gpu(&m, exact);
		float *x_gpu = on_gpu(b, x, N * N_COL * sizeof *x), *y_gpu = on_gpu(b, NULL, N * N_ROW * sizeof(float));
		for (int t = 0; t < N_TYPE; t++) {
			b->ops->matmul(b, &y_gpu, (const rk_tensor *[]){ &b->w->layer[t].wq }, 1, x_gpu, N, RK_PREFILL);
			float *y = back(b, y_gpu, N * N_ROW * sizeof *y);
			check_product(y, &m.w.layer[t].wq, x, N, (N_COL + 9) * AID_U + (exact ? 0 : 2.01 * U16));
			free(y);
		}
		b->ops->free(b, x_gpu, 0);
		b->ops->free(b, y_gpu, 0);
		rk_backend_close(b);
	}
	free(x);
	typed_model_free(&m);
}

static void embed(void **state)
{
	const int32_t ids[] = { 39, 0, 17, 17 };
	enum { N = 4, N_COL = 512 };

	(void)state;
	for (int t = 0; t < N_TYPE; t++) {
		aid_rng r = { 9 };
		rk_model m = aid_model(N_COL, 4, 2, 16, 16, 768, aid_tensor(&r, types[t], 40, N_COL));
		rk_backend *b = open_gpu(&m, false);
		double want[N * N_COL];
		float *x_gpu = on_gpu(b, NULL, N * N_COL * sizeof(float));
		b->ops->embed(b, x_gpu, ids, N);
		float *x = back(b, x_gpu, N * N_COL * sizeof *x);
		ref_embed(want, &m.w.tok_embd, ids, N);
		for (size_t i = 0; i < N * N_COL; i++)
			assert_near(x[i], want[i], 4 * AID_U, rk_type_name(types[t]), i);
		free(x);
		b->ops->free(b, x_gpu, 0);
		rk_backend_close(b);
		aid_model_free(&m);
	}
}

static void pointwise(void **state)
{
	enum { N = 5, DIM = 576, HEADS = 9, VOCAB = 1001 };
	const int32_t pos[N] = { 0, 1, 77, 4095, 100000 };
	aid_rng r = { 3 };
	rk_model m = aid_model(DIM, HEADS, 3, 64, 48, 768, aid_tensor(&r, RK_F32, VOCAB, DIM));
	rk_backend *b = open_gpu(&m, true);
	float *x = floats(&r, N * VOCAB), *u = floats(&r, N * VOCAB), *w = floats(&r, DIM), lse[N], *y;
	float *x_gpu = on_gpu(b, x, N * VOCAB * sizeof *x), *u_gpu = on_gpu(b, u, N * VOCAB * sizeof *u),
		*w_gpu = on_gpu(b, w, DIM * sizeof *w);
	float *y_gpu = on_gpu(b, NULL, N * VOCAB * sizeof *y);
	double *want = malloc(N * VOCAB * sizeof *want);
	int32_t argmax[N], want_max[N];

	(void)state;
	b->ops->rmsnorm(b, y_gpu, x_gpu, &(rk_tensor){ .data = w_gpu, .type = RK_F32, .n_row = 1, .n_col = DIM }, N,
	                DIM, 1e-5f);
	y = back(b, y_gpu, N * DIM * sizeof *y);
	ref_rmsnorm(want, x, w, N, DIM, 1e-5);
	for (size_t i = 0; i < N * DIM; i++)
		assert_near(y[i], want[i], (DIM / 256.0 + 20) * AID_U * fabs(want[i]), "rmsnorm", i);
	free(y);

	for (int twice = 0; twice < 2; twice++) {	/* the second time with the table of the first */
		b->ops->rope(b, y_gpu, x_gpu, pos, N, HEADS);
		y = back(b, y_gpu, N * DIM * sizeof *y);
		ref_rope(want, x, pos, N, HEADS, &m.hp);
		for (size_t i = 0; i < N * DIM; i++)
			assert_near(y[i], want[i], 6 * AID_U, "rope", i);
		free(y);
	}
	b->ops->upload(b, y_gpu, x, N * DIM * sizeof *x);	/* in place */
	b->ops->rope(b, y_gpu, y_gpu, pos, N, HEADS);
	y = back(b, y_gpu, N * DIM * sizeof *y);
	for (size_t i = 0; i < N * DIM; i++)
		assert_near(y[i], want[i], 6 * AID_U, "rope in place", i);
	free(y);

	b->ops->silu_mul(b, y_gpu, x_gpu, u_gpu, N, VOCAB);
	y = back(b, y_gpu, N * VOCAB * sizeof *y);
	ref_silu_mul(want, x, u, N * VOCAB);
	for (size_t i = 0; i < N * VOCAB; i++)
		assert_near(y[i], want[i], 8 * AID_U, "silu_mul", i);
	free(y);

	x[VOCAB - 3] = x[5] = 3;	/* a tie: the lower index */
	b->ops->upload(b, x_gpu, x, N * VOCAB * sizeof *x);
	b->ops->logits_stats(b, x_gpu, N, lse, argmax);
	for (int i = 0; i < N; i++) {
		ref_logits_stats(x + i * VOCAB, VOCAB, want, want_max);
		assert_near(lse[i], want[0], 40 * AID_U * fabs(want[0]), "lse", (size_t)i);
		assert_int_equal(argmax[i], *want_max);
	}
	assert_int_equal(argmax[0], 5);

	b->ops->add(b, x_gpu, u_gpu, N, VOCAB);
	y = back(b, x_gpu, N * VOCAB * sizeof *y);
	for (size_t i = 0; i < N * VOCAB; i++)
		assert_true(y[i] == x[i] + u[i]);
	free(y);
	free(x);
	free(u);
	free(w);
	free(want);
	void *all[] = { x_gpu, u_gpu, w_gpu, y_gpu };
	for (int i = 0; i < 4; i++)
		b->ops->free(b, all[i], 0);
	rk_backend_close(b);
	aid_model_free(&m);
}

/* ---- attention ---- */

static rk_model attn_model(int n_head, int n_kv, int d)
{
	aid_rng r = { 1 };
	rk_model m = aid_model(64, n_head, n_kv, d, d, 64, aid_tensor(&r, RK_F32, 33, 64));
	m.hp.n_layer = 2;	/* of which the second is used, so that a wrong offset shows */
	return m;
}

static rk_store store_on(rk_backend *b, int cap, int pos0)
{
	rk_store st = { .cap = cap, .pos0 = pos0 };

	if (cap) {
		size_t bytes = rk_store_bytes(b->hp, cap, b->kv_bytes);
		st.k = on_gpu(b, NULL, bytes);
		st.v = (char *)st.k + bytes / 2;
	}
	return st;
}

/* Appends through the backend, and to the reference what the cache then holds. */
static void append(rk_backend *b, rk_store *st, ref_seq *seq, const float *k, const float *v, int n)
{
	size_t row = (size_t)(b->hp->n_kv_head * b->hp->head_dim), bytes = (size_t)n * row * sizeof *k;
	int at = st->pos0 + st->len;

	if (n == 0)
		return;
	float *k_gpu = on_gpu(b, k, bytes), *v_gpu = on_gpu(b, v, bytes);
	b->ops->kv_append(b, st, 1, st->len, k_gpu, v_gpu, n);
	assert_int_equal(b->ops->sync(b, NULL), 0);
	for (size_t i = 0; i < (size_t)n * row; i++) {
		seq->k[(size_t)at * row + i] = b->kv_bytes == 4 ? (double)k[i] :
			(double)rk_half_to_float(rk_float_to_half(k[i]));
		seq->v[(size_t)at * row + i] = b->kv_bytes == 4 ? (double)v[i] :
			(double)rk_half_to_float(rk_float_to_half(v[i]));
	}
	st->len += n;
	seq->n = at + n;
	b->ops->free(b, k_gpu, 0);
	b->ops->free(b, v_gpu, 0);
}

/* As bed_tolerance of aid_attn_bed.c, whose derivation holds here too: tiles of 32 keys are rescaled instead of blocks
 * of 64. */
static double tolerance(int d, int n)
{
	double s = sqrt(d) * 1.4427;

	return AID_U * (2 * (0.6932 * (2 * d + 4) * s + 4) + 2 * (n + 8) + 3 * (n / 32.0 + 1));
}

static void check_prefill(int n_head, int n_kv, int d, bool exact, int n_prompt, int n_tail, int n)
{
	rk_model m = attn_model(n_head, n_kv, d);
	rk_backend *b = open_gpu(&m, exact);
	rk_store prompt = store_on(b, n_prompt, 0), tail = store_on(b, n_tail + 3, n_prompt);
	size_t row = (size_t)(n_kv * d), qrow = (size_t)(n_head * d), len = (size_t)n * qrow;
	aid_rng r = { 21 };
	ref_seq seq;
	float *k = floats(&r, (size_t)(n_prompt + n_tail) * row), *v = floats(&r, (size_t)(n_prompt + n_tail) * row),
		*q = floats(&r, len);

	ref_seq_init(&seq, n_head, n_kv, d, n_prompt + n_tail + 3);
	append(b, &prompt, &seq, k, v, n_prompt);
	for (int at = 0; at < n_tail; at += MAX_ROWS)
		append(b, &tail, &seq, k + (size_t)(n_prompt + at) * row, v + (size_t)(n_prompt + at) * row,
		       n_tail - at < MAX_ROWS ? n_tail - at : MAX_ROWS);
	float *q_gpu = on_gpu(b, q, len * sizeof *q), *o_gpu = on_gpu(b, NULL, len * sizeof *q),
		*col_gpu = on_gpu(b, NULL, (size_t)(n_kv * tail.cap) * sizeof *q);
	double *want = calloc(len, sizeof *want), *want_col = calloc((size_t)(n_kv * seq.cap), sizeof *want_col);
	b->ops->attn_prefill(b, 1, n_prompt ? &prompt : NULL, &tail, n_tail - n, q_gpu, n, o_gpu, col_gpu);
	float *o = back(b, o_gpu, len * sizeof *o), *col = back(b, col_gpu, (size_t)(n_kv * tail.cap) * sizeof *col);
	ref_prefill(&seq, q, n_prompt + n_tail - n, n, want, want_col);
	/* Tensor cores: scaled queries and probabilities are f16, so a score is off by 2^-11 of sum |q k| and an output
	 * by twice what that makes of a probability, and by 2^-11 of |v| <= 1 for its own rounding and that of the
	 * probabilities. */
	double mma = exact ? 0 : U16 * (2 * 0.6932 * sqrt(d) * 1.4427 + 2);
	double tol = tolerance(d, n_prompt + n_tail) + mma, terms = n * (n_head / n_kv),
		tol_col = terms * (tol + terms * AID_U);
	for (size_t i = 0; i < len; i++)
		assert_near(o[i], want[i], tol, "attn_prefill", i);
	for (int h = 0; h < n_kv; h++)
		for (int t = 0; t < tail.cap; t++)
			assert_near(col[h * tail.cap + t], t < n_tail ? want_col[h * seq.cap + n_prompt + t] : 0,
			            t < n_tail ? tol_col : 0, "column sums", (size_t)t);
	free(k), free(v), free(q), free(o), free(col), free(want), free(want_col);
	ref_seq_free(&seq);
	void *all[] = { q_gpu, o_gpu, col_gpu, prompt.k, tail.k };
	for (int i = 0; i < 5; i++)
		b->ops->free(b, all[i], 0);
	rk_backend_close(b);
	aid_model_free(&m);
}

static void attn_prefill(void **state)
{
	(void)state;
	check_prefill(4, 2, 16, true, 0, 1, 1);
	check_prefill(4, 2, 16, true, 0, 33, 33);
	check_prefill(6, 2, 64, true, 0, 130, 67);
	check_prefill(8, 1, 24, true, 65, 70, 66);
	check_prefill(3, 3, 128, true, 3, 100, 1);
	check_prefill(4, 2, 80, true, 64, 5, 5);
	check_prefill(2, 1, 256, true, 10, 40, 9);
	check_prefill(4, 2, 64, false, 0, 1, 1);
	check_prefill(6, 2, 64, false, 0, 190, 67);
	check_prefill(4, 1, 128, false, 65, 70, 66);
	check_prefill(3, 3, 80, false, 3, 100, 33);
	check_prefill(2, 2, 96, false, 64, 64, 64);
	check_prefill(2, 1, 24, false, 10, 40, 9);	/* no kernel of this size: f32 arithmetic over an f16 cache */
}

/* Attention of a decode step over the full cache: group sizes of every kernel, both kinds of chunk ends. */
static void check_decode(int n_head, int n_kv, int d, bool exact, int n_prompt)
{
	enum { N_STEP = 3 };
	rk_model m = attn_model(n_head, n_kv, d);
	rk_backend *b = open_gpu(&m, exact);
	rk_store prompt = store_on(b, n_prompt, 0);
	rk_lane_cache lane = { .pol = { .name = "vanilla", .window = 1, .pool = 1 }, .keeps_full = true,
	                      .n_pos = n_prompt, .prompt = &prompt,
	                       .tail = store_on(b, N_STEP, n_prompt) }, *lanes = &lane;
	size_t row = (size_t)(n_kv * d), qrow = (size_t)(n_head * d);
	aid_rng r = { 31 };
	ref_seq seq;
	double *want = calloc(qrow, sizeof *want);
	float *k = floats(&r, (size_t)(n_prompt + N_STEP) * row), *v = floats(&r, (size_t)(n_prompt + N_STEP) * row),
		*o_gpu = on_gpu(b, NULL, qrow * sizeof *k);

	ref_seq_init(&seq, n_head, n_kv, d, n_prompt + N_STEP);
	append(b, &prompt, &seq, k, v, n_prompt);
	for (int t = 0; t < N_STEP; t++) {
		rk_step_report rep = { 0 }, *reps = &rep;
		float *q = floats(&r, qrow), *q_gpu = on_gpu(b, q, qrow * sizeof *q);
		append(b, &lane.tail, &seq, k + (size_t)(n_prompt + t) * row, v + (size_t)(n_prompt + t) * row, 1);
		lane.tail.len--;	/* the engine advances it after the step */
		lane.n_pos++;
		b->ops->attn_decode(b, 1, &lanes, 1, q_gpu, q_gpu, q_gpu, q_gpu, o_gpu, &reps);
		float *o = back(b, o_gpu, qrow * sizeof *o);
		lane.tail.len++;
		for (int h = 0; h < n_head; h++) {
			ref_attend(&seq, h / (n_head / n_kv), q + h * d, NULL, seq.n, want + h * d);
			for (int j = 0; j < d; j++)
				assert_near(o[h * d + j], want[h * d + j], tolerance(d, seq.n), "attn_decode",
				            (size_t)(h * d + j));
		}
		assert_int_equal(rep.kind[1], RK_STEP_FULL);
		assert_true(isnan(rep.cos[1]) && isnan(rep.churn[1]));
		assert_int_equal(rep.bytes_full, (int64_t)(2 * (size_t)seq.n * row * b->kv_bytes));
		assert_int_equal(rep.bytes_partial + rep.bytes_score, 0);
		free(o), free(q);
		b->ops->free(b, q_gpu, 0);
	}
	free(k), free(v), free(want);
	ref_seq_free(&seq);
	b->ops->free(b, o_gpu, 0);
	b->ops->free(b, prompt.k, 0);
	b->ops->free(b, lane.tail.k, 0);
	rk_backend_close(b);
	aid_model_free(&m);
}

static void attn_decode(void **state)
{
	static const int groups[] = { 1, 2, 3, 4, 5, 8, 12 }, dims[] = { 16, 64, 80, 128, 24, 256, 8 },
		prompts[] = { 1, 255, 256, 257, 600, 40, 513 };

	(void)state;
	for (int i = 0; i < 7; i++) {
		check_decode(2 * groups[i], 2, dims[i], i % 2, prompts[i]);
		check_decode(2 * groups[i], 2, 16, !(i % 2), prompts[(i + 3) % 7]);
	}
	check_decode(8, 8, 16, false, 690);	/* 3 and 1 chunks for 2 blocks per KV head: they take turns */
}

/* ---- selection ---- */

/* The ring that a prompt with these scores gives: keys are such that the probabilities are in the order of score, ties
 * included.  columns: as sums of columns, of which the K/2 most recent positions need none. */
static void check_topk(int n, int k, int n_value, int group, int seed, bool columns)
{
	enum { D = 8 };
	rk_model m = attn_model(2 * group, 2, D);
	rk_backend *b = open_gpu(&m, true);
	rk_store prompt = store_on(b, n, 0);
	rk_lane_cache lane = { .pol = { .name = "topk", .score = RK_SCORE_ATTENTION, .window = 1, .pool = 1,
	                               .evict = RK_EVICT_LOWEST }, .budget = k, .n_pos = n,
	                       .prompt = &prompt };
	size_t rings = 4, slots = rings * (size_t)(k + 1), kv = slots * D * sizeof(float);
	int recent = columns ? k / 2 : 0;
	aid_rng r = { (uint64_t)seed };
	float *sums = calloc((size_t)(2 * n), sizeof *sums);
	float *keys = calloc((size_t)(n * 2 * D), sizeof *keys), *q = calloc((size_t)(2 * group * D), sizeof *q);
	double *score = calloc((size_t)(2 * n), sizeof *score);
	int *want = calloc((size_t)k, sizeof *want);
	ref_seq seq;

	for (int t = 0; t < n; t++)
		for (int h = 0; h < 2; h++) {
			keys[(t * 2 + h) * D] = (float)(score[h * n + t] = (double)(aid_u32(&r) % (uint32_t)n_value));
			sums[h * n + t] = 32 * (float)score[h * n + t];
		}
	for (int h = 0; h < 2 * group; h++)
		q[h * D] = 0.5f;
	ref_seq_init(&seq, 2 * group, 2, D, n);
	append(b, &prompt, &seq, keys, keys, n);
	lane.part = (rk_partial){ .cap = k + 1, .k = on_gpu(b, NULL, 2 * kv + slots * 4 + rings * 8) };
	lane.part.v = (char *)lane.part.k + kv;
	lane.part.pos = (int32_t *)((char *)lane.part.v + kv);
	lane.part.count = lane.part.pos + slots;
	lane.part.next = lane.part.count + rings;
	if (columns)
		lane.pol.score = RK_SCORE_ACCUMULATED;
	float *q_gpu = on_gpu(b, q, (size_t)(2 * group * D) * sizeof *q), *sums_gpu = on_gpu(b, sums, (size_t)(2 * n) * sizeof *sums);
	b->ops->select(b, 1, &lane, n, q_gpu, q_gpu, 1, columns ? sums_gpu : NULL);
	int32_t *pos = back(b, lane.part.pos, slots * sizeof *pos),
		*count = back(b, lane.part.count, rings * sizeof *count);
	float *ring = back(b, lane.part.k, kv);
	for (int h = 0; h < 2; h++) {
		size_t base = (size_t)(2 + h) * (size_t)(k + 1);
		assert_int_equal(count[2 + h], k);
		ref_topk(score + h * n, n - recent, k - recent, want);
		for (int i = 0; i < recent; i++)
			want[k - recent + i] = n - recent + i;
		for (int i = 0; i < k; i++) {
			if (pos[base + (size_t)i] != want[i])
				fail_msg("n %d k %d head %d: slot %d holds %d, should hold %d", n, k, h, i,
				         pos[base + (size_t)i], want[i]);
			assert_true(ring[(base + (size_t)i) * D] == keys[(want[i] * 2 + h) * D]);
		}
	}
	free(keys), free(q), free(score), free(sums), free(want), free(pos), free(count), free(ring);
	ref_seq_free(&seq);
	b->ops->free(b, q_gpu, 0);
	b->ops->free(b, sums_gpu, 0);
	b->ops->free(b, prompt.k, 0);
	b->ops->free(b, lane.part.k, 0);
	rk_backend_close(b);
	aid_model_free(&m);
}

/* Many values: probabilities, and sums, that lie beyond the bins at both ends.  1,450 positions: blocks take more than one tile. */
static void topk_with_ties(void **state)
{
	static const int cases[][3] = { { 1, 1, 3 }, { 31, 7, 2 }, { 100, 100, 30 }, { 513, 64, 40 }, { 600, 599, 5 },
	                               { 640, 320, 1 }, { 700, 1, 8 }, { 640, 500, 400 }, { 700, 690, 380 }, { 1450, 300, 60 } };

	(void)state;
	for (int i = 0; i < 10; i++) {
		check_topk(cases[i][0], cases[i][1], cases[i][2], 1 + i % 3, i + 1, false);
		check_topk(cases[i][0], cases[i][1], cases[i][2], 1, i + 50, true);
	}
}

/* ---- sketches ---- */

static const int widths[] = { 2, 3, 4, 8 };
#define N_WIDTH 4

/* A store with sketches of every width, and the same as the CPU makes them of the keys that it holds. */
typedef struct sketched { rk_store st, cpu; } sketched;

/* mean: that of the prompt, for a tail; NULL: room for it. */
static sketched sketched_on(rk_backend *b, int cap, int pos0, float *mean)
{
	sketched s = { .st = store_on(b, cap, pos0), .cpu = { .cap = cap, .pos0 = pos0 } };

	s.st.mean = mean ? mean : on_gpu(b, NULL, rk_mean_bytes(b->hp));
	for (int w = 0; w < N_WIDTH; w++) {
		s.st.sketch[widths[w]] = on_gpu(b, NULL, rk_sketch_bytes(b->hp, cap, widths[w]));
		s.cpu.sketch[widths[w]] = calloc(1, rk_sketch_bytes(b->hp, cap, widths[w]));
	}
	return s;
}

static void sketched_free(rk_backend *b, sketched *s)
{
	for (int w = 0; w < N_WIDTH; w++) {
		b->ops->free(b, s->st.sketch[widths[w]], 0);
		free(s->cpu.sketch[widths[w]]);
	}
	b->ops->free(b, s->st.k, 0);
}

/* The mean key of the prompt. */
static void check_mean(rk_backend *b, rk_store *st, const ref_seq *seq)
{
	size_t row = (size_t)(b->hp->n_kv_head * b->hp->head_dim);

	b->ops->key_mean(b, st, 1);
	float *mean = back(b, st->mean, rk_mean_bytes(b->hp));
	for (size_t j = 0; j < row; j++) {
		double sum = 0;
		for (int t = 0; t < st->len; t++)
			sum += seq->k[(size_t)t * row + j];
		assert_near(mean[row + j], sum / st->len, b->exact ? 1e-7 : fabs(sum / st->len) * 6e-8, "mean key", j);
	}
	free(mean);
}

/* Sketches the n keys from `at` on, on both. */
static void sketch_both(rk_backend *b, sketched *s, const ref_seq *seq, int at, int n)
{
	const rk_hparams *hp = b->hp;
	int dim = rk_sketch_dim(hp), d = hp->head_dim, n_kv = hp->n_kv_head;
	float x[256], *mean = back(b, s->st.mean, rk_mean_bytes(hp));

	b->ops->sketch(b, &s->st, 1, at, n);
	for (int t = at; t < at + n; t++)
		for (int kv = 0; kv < n_kv; kv++) {
			const double *key = seq->k + ((size_t)(s->st.pos0 + t) * (size_t)n_kv + (size_t)kv) * (size_t)d;
			for (int j = 0; j < dim; j++)
				x[j] = j < d ? (float)key[j] - mean[(n_kv + kv) * d + j] : 0;
			rk_sketch_rotate(x, dim);
			for (int w = 0; w < N_WIDTH; w++) {
				rk_sketch_rows r = rk_sketch_at(hp, &s->cpu, 1, kv, widths[w]);
				rk_sketch_write(r.code, r.scale, t, x, dim, widths[w]);
			}
		}
	for (int w = 0; w < N_WIDTH; w++) {
		size_t bytes = rk_sketch_bytes(hp, s->st.cap, widths[w]);
		uint8_t *got = back(b, s->st.sketch[widths[w]], bytes);
		assert_memory_equal(got, s->cpu.sketch[widths[w]], bytes);
		free(got);
	}
	free(mean);
}

/* score[t] = the largest probability that a head of the group of kv gives position t, by sketches of these bits. */
static void ref_glance(const rk_backend *b, const sketched *prompt, const sketched *tail, int kv, int bits, const float *q, double *score)
{
	const rk_hparams *hp = b->hp;
	int group = hp->n_head / hp->n_kv_head, dim = rk_sketch_dim(hp), n = prompt->st.len + tail->st.len;
	float x[256], *s = malloc((size_t)n * sizeof *s);
	int8_t bytes[256];

	memset(score, 0, (size_t)n * sizeof *score);
	for (int h = kv * group; h < (kv + 1) * group; h++) {
		rk_sketch_query query = { .x = x, .q = bytes };
		double max = -INFINITY, sum = 0;
		for (int j = 0; j < dim; j++)
			x[j] = j < hp->head_dim ? q[h * hp->head_dim + j] * rk_attn_scale(hp) : 0;
		rk_sketch_query_make(&query, dim);
		for (int i = 0, at = 0; i < 2; at += prompt->st.len, i++) {
			const sketched *from = i ? tail : prompt;
			rk_sketch_rows r = rk_sketch_at(hp, &from->cpu, 1, kv, bits);
			(b->exact ? rk_sketch_score_exact : rk_sketch_score_scalar)(s + at, n, &query, 1, r.code, r.scale, from->st.len, dim, bits);
		}
		for (int t = 0; t < n; t++)
			max = fmax(max, (double)s[t]);
		for (int t = 0; t < n; t++)
			sum += exp2((double)s[t] - max);
		for (int t = 0; t < n; t++)
			score[t] = fmax(score[t], exp2((double)s[t] - max) / sum);
	}
	free(s);
}

/* The ring holds the top of score [n] but for ties within rounding, lowest first. */
static void check_ring(const int32_t *pos, int k, const double *score, int n)
{
	bool *held = calloc((size_t)n, sizeof *held);
	double lowest = INFINITY;

	for (int i = 0; i < k; i++) {
		assert_in_range(pos[i], 0, n - 1);
		assert_false(held[pos[i]]);
		held[pos[i]] = true;
		assert_true(i == 0 || score[pos[i]] >= score[pos[i - 1]] * (1 - 1e-5));
		lowest = fmin(lowest, score[pos[i]]);
	}
	for (int t = 0; t < n; t++)
		if (!held[t] && score[t] > lowest * (1 + 1e-5))
			fail_msg("position %d (%.9g) is left out, the least held is %.9g", t, score[t], lowest);
	free(held);
}

/* Sketches of the prompt and then as token after token arrives; then a step that glances: the ring, its attention, the bytes.  The
 * lane keeps its full cache, so the ring needs no keys and values. */
static void check_glance(int n_head, int n_kv, int d, bool exact, int n_prompt, int bits)
{
	enum { K = 21, N_NEW = 3 };
	rk_model m = attn_model(n_head, n_kv, d);
	rk_backend *b = open_gpu(&m, exact);
	sketched prompt = sketched_on(b, n_prompt + 2, 0, NULL), tail = sketched_on(b, N_NEW, n_prompt, prompt.st.mean);
	size_t row = (size_t)(n_kv * d), qrow = (size_t)(n_head * d), rings = 2 * (size_t)n_kv, slots = rings * (K + 1);
	rk_lane_cache lane = { .pol = { .name = "glance", .score = RK_SCORE_ATTENTION, .window = 1, .pool = 1, .evict = RK_EVICT_LOWEST,
	                               .refresh = RK_REFRESH_STRIDE, .stride = 1, .attend = RK_ATTEND_SELECTED, .bits = bits },
	                      .budget = K, .keeps_full = true, .n_pos = n_prompt + N_NEW, .step = 2 }, *lanes = &lane;
	aid_rng r = { (uint64_t)(bits + n_prompt) };
	float *k = floats(&r, (size_t)(n_prompt + N_NEW) * row), *v = floats(&r, (size_t)(n_prompt + N_NEW) * row), *q = floats(&r, qrow);
	double *score = calloc((size_t)(n_prompt + N_NEW), sizeof *score), *want = calloc((size_t)d, sizeof *want);
	rk_step_report rep = { 0 }, *reps = &rep;
	ref_seq seq;

	ref_seq_init(&seq, n_head, n_kv, d, n_prompt + N_NEW);
	for (int at = 0; at < n_prompt; at += MAX_ROWS - 3)
		append(b, &prompt.st, &seq, k + (size_t)at * row, v + (size_t)at * row, n_prompt - at < MAX_ROWS - 3 ? n_prompt - at : MAX_ROWS - 3);
	check_mean(b, &prompt.st, &seq);
	sketch_both(b, &prompt, &seq, 0, n_prompt);
	for (int t = 0; t < N_NEW; t++) {
		append(b, &tail.st, &seq, k + (size_t)(n_prompt + t) * row, v + (size_t)(n_prompt + t) * row, 1);
		sketch_both(b, &tail, &seq, t, 1);
	}
	lane.prompt = &prompt.st;
	lane.tail = tail.st;
	lane.tail.len--;	/* the engine advances it after the step */
	lane.part = (rk_partial){ .cap = K + 1, .pos = on_gpu(b, NULL, slots * 4 + rings * 8) };
	lane.part.count = lane.part.pos + slots;
	lane.part.next = lane.part.count + rings;
	float *q_gpu = on_gpu(b, q, qrow * sizeof *q), *o_gpu = on_gpu(b, NULL, qrow * sizeof *q);
	b->ops->attn_decode(b, 1, &lanes, 1, q_gpu, q_gpu, q_gpu, q_gpu, o_gpu, &reps);
	float *o = back(b, o_gpu, qrow * sizeof *o);
	int32_t *pos = back(b, lane.part.pos, slots * sizeof *pos);
	assert_int_equal(rep.kind[1], RK_STEP_GLANCE);
	assert_int_equal(rep.bytes_score, (int64_t)(seq.n * n_kv) * (int64_t)rk_sketch_key_bytes(b->hp, bits));
	for (int h = 0; h < n_head; h++) {
		int kv = h / (n_head / n_kv), *at = pos + (size_t)(n_kv + kv) * (K + 1);
		ref_glance(b, &prompt, &tail, kv, bits, q, score);
		check_ring(at, K, score, seq.n);
		ref_attend(&seq, kv, q + h * d, at, K, want);
		for (int j = 0; j < d; j++)
			assert_near(o[h * d + j], want[j], tolerance(d, K), "glance", (size_t)(h * d + j));
	}
	free(k), free(v), free(q), free(score), free(want), free(o), free(pos);
	ref_seq_free(&seq);
	void *all[] = { q_gpu, o_gpu, lane.part.pos, prompt.st.mean };
	for (int i = 0; i < 4; i++)
		b->ops->free(b, all[i], 0);
	sketched_free(b, &prompt);
	sketched_free(b, &tail);
	rk_backend_close(b);
	aid_model_free(&m);
}

static void glance(void **state)
{
	(void)state;
	for (int w = 0; w < N_WIDTH; w++) {
		check_glance(2 + w, 2 - w % 2, 64, false, 70 + 100 * w, widths[w]);
		check_glance(4, 1, 40, w % 2, 255 + w, widths[w]);
		check_glance(2, 2, 8, true, 30, widths[w]);
	}
	check_glance(14, 2, 128, false, 300, 4);
	check_glance(9, 1, 256, false, 100, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matmul_decode),
		cmocka_unit_test(matmul_prefill),
		cmocka_unit_test(embed),
		cmocka_unit_test(pointwise),
		cmocka_unit_test(attn_prefill),
		cmocka_unit_test(attn_decode),
		cmocka_unit_test(topk_with_ties),
		cmocka_unit_test(glance),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
