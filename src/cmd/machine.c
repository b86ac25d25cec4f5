/* machine.c: see machine.h.  Runs before or after a measurement, never beside one. */
#include "cmd/machine.h"

#include <dnnl.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cpu/team.h"

#define READ_BYTES (64u << 20)	/* beyond what caches hold */
#define READ_PIECES 64
#define GEMM_M 144		/* rows, columns and inner length of one product: a tile of a prefill */
#define GEMM_N 144
#define GEMM_K 768
#define GEMM_PIECES 64
#define PASSES 5

struct job {
	const uint64_t *data;
	const float *a, *b;
	float *c;			/* [workers][GEMM_M][GEMM_N] */
	uint64_t sum[READ_PIECES];	/* kept, or the reads could be left out */
};

static void read_piece(void *ctx, int piece, int worker)
{
	struct job *j = ctx;
	size_t n = READ_BYTES / sizeof *j->data / READ_PIECES;
	const uint64_t *p = j->data + (size_t)piece * n;
	uint64_t sum = 0;

	(void)worker;
	for (size_t i = 0; i < n; i++)
		sum += p[i];
	j->sum[piece] = sum;
}

static void gemm_piece(void *ctx, int piece, int worker)
{
	const struct job *j = ctx;

	(void)piece;
	dnnl_sgemm('N', 'T', GEMM_M, GEMM_N, GEMM_K, 1, j->a, GEMM_K, j->b, GEMM_K, 0, j->c + worker * GEMM_M * GEMM_N, GEMM_N);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Units of work per second, the best of PASSES. */
static double best_rate(int n_thread, int n_piece, rk_team_fn fn, struct job *j, double units)
{
	int before = omp_get_max_threads();
	rk_team *t;
	double best = 0;

	if (rk_team_open(&t, n_thread, NULL))
		return NAN;
	omp_set_num_threads(1);	/* of this thread: oneDNN must not start a team of its own */
	for (int pass = 0; pass < PASSES; pass++) {
		double t0 = seconds();
		rk_team_run(t, n_piece, fn, j);
		best = fmax(best, units / (seconds() - t0));
	}
	omp_set_num_threads(before);
	rk_team_close(t);
	return best;
}

static int threads(int n_thread)
{
	return n_thread > 0 ? n_thread : omp_get_num_procs();
}

double rk_machine_bandwidth(int n_thread)
{
	uint64_t *data = malloc(READ_BYTES);
	struct job j = { .data = data };
	double rate = NAN;

	if (data) {
		memset(data, 1, READ_BYTES);
		rate = best_rate(threads(n_thread), READ_PIECES, read_piece, &j, READ_BYTES);
	}
	free(data);
	return rate;
}

double rk_machine_gemm(int n_thread)
{
	size_t n = (GEMM_M + GEMM_N) * GEMM_K, out = (size_t)threads(n_thread) * GEMM_M * GEMM_N;
	float *data = malloc((n + out) * sizeof *data);
	struct job j = { .a = data, .b = data + GEMM_M * GEMM_K, .c = data + n };
	double rate = NAN;

	if (data) {
		for (size_t i = 0; i < n; i++)
			data[i] = (float)(i % 17) * 0.1f;
		rate = best_rate(threads(n_thread), GEMM_PIECES, gemm_piece, &j, 2.0 * GEMM_M * GEMM_N * GEMM_K * GEMM_PIECES);
	}
	free(data);
	return rate;
}
