/* bench_attn.c: speed of the attention operations on SmolLM2-135M's shapes, one layer at a time over all 30 layers'
 * caches, so that a step reads memory and not a cache of the processor.
 *
 * Prints CSV: operation, ISA, threads, context, median and spread of 5, and the rate.  decode: bytes of keys and
 * values read per second; glance: those, and sketches, at 4, 3 and 2 bits.  prefill: 4 n d FLOP per query, head and visible key; chunk of 512 queries that ends at the
 * context.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cpu/cpu.h"

#define N_LAYER 30
#define N_HEAD 9
#define N_KV 3
#define HEAD_DIM 64
#define CHUNK 512
#define REPEAT 5
#define QROW (N_HEAD * HEAD_DIM)
#define KVROW (N_KV * HEAD_DIM)

static rk_hparams hp = { .n_layer = N_LAYER, .n_head = N_HEAD, .n_kv_head = N_KV, .head_dim = HEAD_DIM };

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void *checked(void *p)
{
	if (!p) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	return p;
}

/* Memory as the engine has it: a cache in huge pages, zeroed. */
static void *device(size_t bytes)
{
	rk_err e;

	return checked(rk_cpu_alloc(bytes, &e));
}

static void fill_half(rk_half *x, size_t n)
{
	uint32_t s = 1;

	for (size_t i = 0; i < n; i++) {
		s = s * 1664525u + 1013904223u;
		x[i] = (rk_half)(0x3000u + (s >> 20 & 0xbffu) + (s >> 31 << 15));	/* of either sign, 0.125 to 1 */
	}
}

static void report(const rk_cpu *c, const char *op, int n, double *s, double work, const char *unit)
{
	static const char *const isa[] = { "scalar", "avx2", "avx512" };

	qsort(s, REPEAT, sizeof *s, by_value);
	printf("%s,%s,%d,%d,%.3f,%.3f,%.3f,%.1f,%s\n", op, isa[c->isa], c->b.n_thread, n, 1e3 * s[REPEAT / 2],
	       1e3 * s[0], 1e3 * s[REPEAT - 1], work / s[REPEAT / 2] / 1e9, unit);
	fflush(stdout);
}

static void bench(rk_cpu *c, rk_store *st, const char *op, const float *q, float *out)
{
	static const rk_policy pols[] = {
		{ .score = RK_SCORE_NONE, .window = 1, .pool = 1 },
		{ .score = RK_SCORE_ATTENTION, .window = 1, .pool = 7, .evict = RK_EVICT_LOWEST },
		{ .score = RK_SCORE_ATTENTION, .window = 1, .pool = 7, .evict = RK_EVICT_LOWEST, .refresh = RK_REFRESH_STRIDE,
		  .stride = 1 },
		{ .score = RK_SCORE_ATTENTION, .window = 1, .pool = 1, .evict = RK_EVICT_LOWEST, .refresh = RK_REFRESH_STRIDE,
		  .stride = 1, .attend = RK_ATTEND_SELECTED },
	};
	bool partial = !strcmp(op, "partial"), refresh = !strcmp(op, "refresh"), glance = !strncmp(op, "glance", 6);
	int n = st->len, k = n / 8, rings = N_LAYER * N_KV;
	double s[REPEAT];

	if (!strncmp(op, "prefill", 7)) {
		float *colsum = strcmp(op, "prefill+colsum") ? NULL : checked(calloc((size_t)(N_KV * st->cap), sizeof *colsum));
		for (int r = 0; r < REPEAT; r++) {
			double t = now_s();
			for (int l = 0; l < 3; l++)
				rk_cpu_attn_prefill(&c->b, l, NULL, st, n - CHUNK, q, CHUNK, out, colsum);
			s[r] = (now_s() - t) / 3;
		}
		free(colsum);
		report(c, op, n, s, 4.0 * HEAD_DIM * N_HEAD * CHUNK * (n - CHUNK / 2.0), "GFLOP/s");
		return;
	}
	rk_lane_cache lane = { .pol = pols[partial ? 1 : refresh ? 2 : glance ? 3 : 0], .budget = k, .keeps_full = true, .prompt = st,
	                       .n_pos = n };
	rk_lane_cache *lanes = &lane;
	size_t slots = (size_t)rings * (size_t)(k + 1);
	lane.tail.pos0 = n;
	if (glance) {
		lane.pol.bits = atoi(op + 6);
		st->sketch[lane.pol.bits] = device(rk_sketch_bytes(&hp, st->cap, lane.pol.bits));
		for (int l = 0; l < N_LAYER; l++)
			rk_cpu_sketch(&c->b, st, l, 0, n);
	}
	lane.part = (rk_partial){ .cap = k + 1, .k = device(slots * HEAD_DIM * 2),
	                          .v = device(slots * HEAD_DIM * 2), .pos = checked(calloc(slots, sizeof(int32_t))),
	                          .count = checked(calloc((size_t)rings, sizeof(int32_t))),
	                          .next = checked(calloc((size_t)rings, sizeof(int32_t))) };
	for (int l = 0; l < N_LAYER; l++)
		rk_cpu_select(&c->b, l, &lane, n, q, q, 1, NULL);
	for (int r = 0; r < REPEAT + 1; r++) {	/* the first warms up */
		rk_step_report rep = { 0 }, *reps = &rep;
		double t = now_s();
		for (int l = 0; l < N_LAYER; l++)
			rk_cpu_attn_decode(&c->b, l, &lanes, 1, q, q, q, q, out, &reps);
		s[r ? r - 1 : 0] = now_s() - t;
	}
	double row = 2.0 * HEAD_DIM * 2, sketch = glance ? (double)rk_sketch_key_bytes(&hp, lane.pol.bits) : 0;
	report(c, op, n, s, rings * (row * (partial || glance ? k + 1 : n) + sketch * n), "GB/s");
	free(st->sketch[lane.pol.bits]);
	st->sketch[lane.pol.bits] = NULL;
	free(lane.part.k);
	free(lane.part.v);
	free(lane.part.pos);
	free(lane.part.count);
	free(lane.part.next);
}

/* Usage: bench_attn [threads [isa [op]]]; isa: 0 scalar, 1 avx2, 2 avx512. */
int main(int argc, char **argv)
{
	static const int contexts[] = { 1024, 4096, 8000 };
	static const char *const ops[] = { "decode", "partial", "refresh", "glance4", "glance3", "glance2", "prefill", "prefill+colsum" };
	int n_thread = argc > 1 ? atoi(argv[1]) : 2, isa = argc > 2 ? atoi(argv[2]) : RK_ISA_AVX512;
	rk_cpu c = { .b = { .hp = &hp, .kv_bytes = 2, .n_thread = n_thread }, .isa = (enum rk_isa)isa,
	             .cfg = { .max_rows = CHUNK, .max_pos = 8192 },
	             .lin = &rk_lin_scalar, .attn = rk_attn_kernels_for(isa) };
	rk_store st = { .cap = 8192 };
	size_t n = (size_t)N_LAYER * N_KV * 8192 * HEAD_DIM;
	rk_err e;

	if (n_thread < 1 || rk_team_open(&c.team, n_thread, &e) || rk_cpu_attn_init(&c, &e))
		return 1;
	st.k = device(n * 2);
	st.v = device(n * 2);
	fill_half(st.k, n);
	fill_half(st.v, n);
	float *q = checked(malloc(CHUNK * QROW * sizeof *q)), *out = checked(malloc(CHUNK * QROW * sizeof *out));
	for (int i = 0; i < CHUNK * QROW; i++)
		q[i] = sinf((float)i);
	puts("op,isa,threads,context,median_ms,min_ms,max_ms,rate,unit");
	for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
		for (size_t i = 0; i < sizeof contexts / sizeof *contexts && (argc < 4 || !strcmp(argv[3], ops[o])); i++) {
			st.len = contexts[i];
			bench(&c, &st, ops[o], q, out);
		}
	rk_cpu_attn_free(&c);
	rk_team_close(c.team);
	free(st.k);
	free(st.v);
	free(q);
	free(out);
	return 0;
}
