/* bench_lin.c: speed of the CPU's matmuls per shape; not a test.
 *
 * Usage: bench_lin [threads [cpu]].  `cpu` counts CPU time instead of wall time: one thread on a busy machine.
 * SmolLM2-135M's matrices: GB/s of packed weights when decoding, ms of all of a token's matmuls, GFLOP/s of a prefill
 * chunk of 512; then every type at n = 1, 2, 4, 8.  Best and median of 7 runs, since other work on the machine only
 * ever slows a run down.  Weights are random, and more than the last-level cache holds.
 */
#include "../aid_ref_lin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_RUN 7

static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void)
{
	struct timespec t;
	clock_gettime(clock_id, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* One layer of SmolLM2-135M: the matrices that share an input, and how many of each call a token makes. */
static const struct call {
	const char *name;
	int n_w, n_col, n_row[RK_MAX_FUSED];
} calls[] = {
	{ "qkv", 3, 576, { 576, 192, 192 } },
	{ "wo", 1, 576, { 576 } },
	{ "gate_up", 2, 576, { 1536, 1536 } },
	{ "down", 1, 1536, { 576 } },
};
#define N_CALL 4
#define N_LAYER 30

static rk_backend *b;
static float *x, *y[RK_MAX_FUSED];

static void run_call(const struct call *c, const rk_tensor *w, int n, enum rk_phase phase)
{
	const rk_tensor *p[RK_MAX_FUSED];
	for (int j = 0; j < c->n_w; j++)
		p[j] = w + j;
	b->ops->matmul(b, y, p, c->n_w, x, n, phase);
}

/* Seconds of one pass over all layers: best and median. */
static void measure(const struct call *c, rk_tensor (*w)[RK_MAX_FUSED], int n, enum rk_phase phase, int n_layer,
                    double *best, double *median)
{
	double t[N_RUN];
	for (int r = 0; r < N_RUN; r++) {
		t[r] = now();
		for (int l = 0; l < n_layer; l++)
			run_call(c, w[l], n, phase);
		t[r] = now() - t[r];
	}
	qsort(t, N_RUN, sizeof *t, by_value);
	*best = t[0];
	*median = t[N_RUN / 2];
}

static double weight_bytes(const struct call *c, enum rk_type t)
{
	double s = 0;
	for (int j = 0; j < c->n_w; j++)
		s += (double)c->n_row[j] * (double)rk_type_row_bytes(t, c->n_col);
	return s;
}

static void make(aid_rng *r, const struct call *c, enum rk_type t, rk_tensor (*w)[RK_MAX_FUSED], int n_layer)
{
	for (int l = 0; l < n_layer; l++)
		for (int j = 0; j < c->n_w; j++)
			w[l][j] = aid_tensor(r, t, c->n_row[j], c->n_col);
}

static void drop(rk_tensor (*w)[RK_MAX_FUSED], int n_w, int n_layer)
{
	for (int l = 0; l < n_layer; l++)
		for (int j = 0; j < n_w; j++)
			free((void *)w[l][j].data);
}

static void bench_types(aid_rng *r)
{
	static const enum rk_type types[] = {
		RK_Q4_0, RK_Q4_1, RK_Q5_0, RK_Q5_1, RK_Q8_0, RK_Q4_K, RK_Q5_K, RK_Q6_K, RK_F16, RK_F32,
	};
	static const struct call big = { "1536x1536", 1, 1536, { 1536 } };
	enum { n_layer = 40 };
	static rk_tensor w[n_layer][RK_MAX_FUSED];
	printf("decode, %s: GB/s of packed weights, best (median); then ms at n = 8 over ms at n = 1\n", big.name);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		double best = 0, median = 0, first = 0;
		make(r, &big, types[i], w, n_layer);
		printf("  %-5s", rk_type_name(types[i]));
		for (int n = 1; n <= 8; n *= 2) {
			measure(&big, w, n, RK_DECODE, n_layer, &best, &median);
			first = n == 1 ? best : first;
			printf("  n=%d %5.1f (%5.1f)", n, 1e-9 * n_layer * weight_bytes(&big, types[i]) / best,
			       1e-9 * n_layer * weight_bytes(&big, types[i]) / median);
		}
		printf("  x%.2f\n", best / first);
		drop(w, 1, n_layer);
	}
}

static void bench_model(aid_rng *r)
{
	static rk_tensor w[N_CALL][N_LAYER][RK_MAX_FUSED];
	static const struct call logits = { "logits", 1, 576, { 49152 } };
	static rk_tensor out[1][RK_MAX_FUSED];
	double best, median;
	make(r, &logits, RK_Q8_0, out, 1);
	for (int c = 0; c < N_CALL; c++) {
		make(r, &calls[c], RK_Q4_1, w[c], N_LAYER);
		measure(&calls[c], w[c], 1, RK_DECODE, N_LAYER, &best, &median);
		double gb = 1e-9 * N_LAYER * weight_bytes(&calls[c], RK_Q4_1);
		printf("decode  %-8s Q4_1 n=1   %7.2f us/layer, %5.1f GB/s (median %5.1f)\n", calls[c].name,
		       1e6 * best / N_LAYER, gb / best, gb / median);
	}
	measure(&logits, out, 1, RK_DECODE, 1, &best, &median);
	printf("decode  %-8s Q8_0 n=1   %7.2f us,       %5.1f GB/s (median %5.1f)\n", logits.name, 1e6 * best,
	       1e-9 * weight_bytes(&logits, RK_Q8_0) / best, 1e-9 * weight_bytes(&logits, RK_Q8_0) / median);
	for (int n = 1; n <= 16; n *= 2) {
		double t[N_RUN];
		for (int k = 0; k < N_RUN; k++) {
			t[k] = now();
			for (int l = 0; l < N_LAYER; l++)
				for (int c = 0; c < N_CALL; c++)
					run_call(&calls[c], w[c][l], n, RK_DECODE);
			run_call(&logits, out[0], n, RK_DECODE);
			t[k] = now() - t[k];
		}
		qsort(t, N_RUN, sizeof *t, by_value);
		printf("token   all matmuls n=%d     %7.2f ms (median %.2f)\n", n, 1e3 * t[0], 1e3 * t[N_RUN / 2]);
	}
	for (int c = 0; c < N_CALL; c++) {
		double flop = 2.0 * 512 * calls[c].n_col * (calls[c].n_row[0] + calls[c].n_row[1] + calls[c].n_row[2]);
		measure(&calls[c], w[c], 512, RK_PREFILL, 4, &best, &median);
		printf("prefill %-8s Q4_1 n=512 %7.2f ms/layer, %5.1f GFLOP/s (median %5.1f)\n", calls[c].name,
		       1e3 * best / 4, 1e-9 * 4 * flop / best, 1e-9 * 4 * flop / median);
	}
	for (int c = 0; c < N_CALL; c++)
		drop(w[c], calls[c].n_w, N_LAYER);
	drop(out, 1, 1);
}

int main(int argc, char **argv)
{
	aid_rng r = { 42 };
	rk_err e;
	rk_model m = aid_model(576, 9, 3, 64, 64, 1536, aid_tensor(&r, RK_Q8_0, 64, 576));
	rk_backend_cfg cfg = {
		.device = "cpu", .n_thread = argc > 1 ? atoi(argv[1]) : 0, .max_rows = 512, .max_pos = 2048,
	};
	if (rk_backend_open(&b, &m, &cfg, &e)) {
		fprintf(stderr, "bench_lin: %s\n", e.msg);
		return e.code;
	}
	if (argc > 2 && !strcmp(argv[2], "cpu"))
		clock_id = CLOCK_PROCESS_CPUTIME_ID;
	x = malloc(512 * 1536 * sizeof *x);
	for (int j = 0; j < RK_MAX_FUSED; j++)
		y[j] = malloc((size_t)512 * 49152 * sizeof **y);
	for (int i = 0; i < 512 * 1536; i++)
		x[i] = aid_uniform(&r);
	printf("%s, %d threads, scratch %.1f MB\n", b->isa, b->n_thread, (double)b->scratch_bytes / 1e6);
	bench_model(&r);
	bench_types(&r);
	rk_backend_close(b);
	aid_model_free(&m);
	free(x);
	for (int j = 0; j < RK_MAX_FUSED; j++)
		free(y[j]);
	return 0;
}
