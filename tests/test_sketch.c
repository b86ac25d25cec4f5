/* test_sketch.c: sketches of keys: the rotation, the codes, their layout, and scores on every instruction set against
 * double precision; and that sketches which are made late are those which are made as keys arrive. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "aid_attn_bed.h"
#include "aid_engine.h"

static const int widths[] = { 2, 3, 4, 8 };
#define N_WIDTH 4

/* Entry (i, j) of the orthonormal Hadamard matrix of order n. */
static double hadamard(int i, int j, int n)
{
	return (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1) / sqrt(n);
}

static void check_rotation(void **state)
{
	(void)state;
	for (int dim = 32; dim <= 1024; dim *= 2) {
		uint32_t seed = 3;
		float *x = malloc((size_t)dim * sizeof *x), *y = malloc((size_t)dim * sizeof *y);
		bed_random(&seed, x, (size_t)dim);
		memcpy(y, x, (size_t)dim * sizeof *x);
		rk_sketch_rotate(y, dim);
		for (int i = 0; i < dim; i++) {
			double want = 0;
			for (int j = 0; j < dim; j++)
				want += hadamard(i, j, dim) * (double)x[j];
			assert_true(fabs((double)y[i] - want) < 1e-6 * sqrt(dim));
		}
		free(x);
		free(y);
	}
}

static double level(unsigned u, int bits)
{
	return u - ((1 << bits) - 1) / 2.0;
}

/* What is written is the nearest level, in its own place: the neighbours' codes stay, and so does what was there before. */
static void check_codes(void **state)
{
	(void)state;
	enum { DIM = 64, N = 40 };
	for (int w = 0; w < N_WIDTH; w++) {
		int bits = widths[w];
		size_t size = (size_t)((N + 15) / 16 * 16 * DIM * bits / 8);
		uint32_t seed = 5;
		uint8_t *code = bed_alloc(size);
		rk_half *scale = bed_alloc(48 * sizeof *scale);
		static float x[N][DIM];
		bed_random(&seed, x[0], N * DIM);
		memset(x[7], 0, sizeof x[7]);
		for (int j = 0; j < DIM; j++)
			x[9][j] *= 100;
		for (int round = 0; round < 2; round++)	/* again, backwards, over what is there */
			for (int i = 0; i < N; i++) {
				int t = round ? N - 1 - i : i;
				rk_sketch_write(code, scale, t, x[round ? t : N - 1 - t], DIM, bits);
			}
		for (int t = 0; t < N; t++) {
			double s = (double)rk_half_to_float(scale[t]), max = 0, mean = 0;
			for (int j = 0; j < DIM; j++) {
				max = fmax(max, fabs((double)x[t][j]));
				mean += fabs((double)x[t][j]) / DIM;
			}
			double want = bits == 2 ? mean : max / level((1u << bits) - 1, bits);
			assert_true(fabs(s - want) <= ldexp(want, -11));	/* rounded to f16 */
			for (int j = 0; j < DIM; j++) {
				double got = s * level(rk_sketch_code(code + (size_t)(t / 16 * 16 * DIM * bits / 8), t % 16, j, DIM, bits), bits);
				double off = fabs(got - (double)x[t][j]), beyond = fabs((double)x[t][j]) - s * level((1u << bits) - 1, bits);
				assert_true(off <= s / 2 * (1 + 1e-5) || off <= beyond * (1 + 1e-5));
			}
		}
		bed_free(code);
		bed_free(scale);
	}
}

static rk_sketch_score_fn *const score_of[] = { rk_sketch_score_scalar, rk_sketch_score_avx2, rk_sketch_score_avx512 };

/* Every instruction set gives the same bits, within what bytes for a query may do of the sketches' own products. */
static void check_scores(void **state)
{
	(void)state;
	enum { MAX_N = 70, HEADS = 7 };
	static const int lengths[] = { 1, 7, 8, 9, 16, 31, MAX_N };
	for (int w = 0; w < N_WIDTH; w++)
		for (int dim = 32; dim <= 256; dim *= 2)
			for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
				int bits = widths[w], n = lengths[l], keys = (n + 15) / 16 * 16, lds = MAX_N + 3;
				uint32_t seed = 11;
				uint8_t *code = bed_alloc((size_t)(keys * dim * bits / 8));
				rk_half *scale = bed_alloc((size_t)keys * sizeof *scale);
				rk_sketch_query q[HEADS];
				float x[256], got[3][HEADS * (MAX_N + 3)], exact[HEADS * (MAX_N + 3)];
				double rotated[HEADS][256], step[HEADS];
				for (int t = 0; t < n; t++) {
					bed_random(&seed, x, (size_t)dim);
					rk_sketch_write(code, scale, t, x, dim, bits);
				}
				for (int h = 0; h < HEADS; h++) {
					q[h] = (rk_sketch_query){ .x = bed_alloc((size_t)dim * sizeof(float)), .q = bed_alloc((size_t)dim) };
					bed_random(&seed, q[h].x, (size_t)dim);
					if (h == 1)
						memset(q[h].x, 0, (size_t)dim * sizeof(float));
					memcpy(x, q[h].x, (size_t)dim * sizeof *x);
					double max = 0;
					for (int i = 0; i < dim; i++) {
						rotated[h][i] = 0;
						for (int j = 0; j < dim; j++)
							rotated[h][i] += hadamard(i, j, dim) * (double)x[j];
						max = fmax(max, fabs(rotated[h][i]));
					}
					step[h] = max / 127;
					rk_sketch_query_make(&q[h], dim);
				}
				rk_sketch_score_exact(exact, lds, q, HEADS, code, scale, n, dim, bits);
				for (int isa = 0; isa < 3; isa++) {
					memset(got[isa], 0x7d, sizeof got[isa]);
					if (!bed_has_isa((enum rk_isa)isa))
						continue;
					score_of[isa](got[isa], lds, q, HEADS, code, scale, n, dim, bits);
					assert_memory_equal(got[isa], got[0], sizeof got[isa]);	/* what lies between the rows, too */
				}
				for (int h = 0; h < HEADS; h++)
					for (int t = 0; t < n; t++) {
						double want = 0, s = (double)rk_half_to_float(scale[t]), size = 0;
						for (int j = 0; j < dim; j++) {
							double k = s * level(rk_sketch_code(code + (size_t)(t / 16 * 16 * dim * bits / 8), t % 16, j, dim, bits), bits);
							want += rotated[h][j] * k;
							size += fabs(k);
						}
						double byte = (double)got[0][h * lds + t], full = (double)exact[h * lds + t];
						assert_true(fabs(byte - want) <= step[h] / 2 * size * 1.001 + 1e-6);
						assert_true(fabs(full - want) <= 1e-5 * (1 + step[h] * 127 * size));
					}
				for (int h = 0; h < HEADS; h++) {
					bed_free(q[h].x);
					bed_free(q[h].q);
				}
				bed_free(code);
				bed_free(scale);
			}
}

/* A policy that is switched on in mid-session sees what one sees that was there from the start; rewinding and further
 * turns included. */
static void check_late(void **state)
{
	(void)state;
	for (int w = 0; w < N_WIDTH; w++) {
		char spec[64];
		snprintf(spec, sizeof spec, "glance:stride=1,bits=%d,k=12", widths[w]);
		aid_rig_opt opt = { .tiny = { .type = RK_Q4_1 }, .keep_full = true, .lanes = { spec, "refreshkv-nofull:stride=1,pool=1,k=12" } };
		aid_rig r;
		rk_err e = { 0 };
		aid_rig_open(&r, &opt);
		int32_t *ids = aid_ids(120, r.m->hp.n_vocab, 4);
		aid_start(&r.s, ids, 70, 50);
		for (int i = 70; i < 90; i++) {
			assert_non_null(r.s.prompt.sketch[widths[w]]);
			assert_null(r.s.lane[1].tail.sketch[widths[w]]);
			aid_step_one(&r.s, 0, ids[i]);
		}
		for (int lane = 1; lane >= 0; lane--) {	/* both are where lane 0's tokens are the same full-precision history */
			rk_session_rewind(&r.s, lane, 70);
			assert_int_equal(rk_session_turn(&r.s, lane, ids + 70, 20, NULL, NULL, &e), 0);
		}
		assert_int_equal(rk_session_set_policy(&r.s, 1, spec, &e), 0);
		for (int i = 90; i < 110; i++) {
			aid_step_all(&r.s, ids[i]);
			assert_memory_equal(aid_logits(&r.s, 0), aid_logits(&r.s, 1), (size_t)r.m->hp.n_vocab * sizeof(float));
			for (int l = 0; l < r.m->hp.n_layer; l++)
				assert_int_equal(r.s.report[1].kind[l], RK_STEP_GLANCE);
		}
		free(ids);
		aid_rig_close(&r);
	}
}

/* A budget of everything: vanilla but for the order of sums, with nothing left for a stand-in. */
static void check_everything(void **state)
{
	(void)state;
	aid_rig_opt opt = { .exact = true, .lanes = { "vanilla", "glance:stride=1,k=1000", "glance:bits=2,k=1000,tail=5", "glance:bits=8,k=1000" } };
	aid_rig r;
	aid_rig_open(&r, &opt);
	int32_t *ids = aid_ids(100, r.m->hp.n_vocab, 9);
	aid_start(&r.s, ids, 60, 40);
	for (int i = 60; i < 100; i++) {
		aid_step_all(&r.s, ids[i]);
		for (int lane = 1; lane < 4; lane++)
			assert_true(aid_max_diff(aid_logits(&r.s, lane), aid_logits(&r.s, 0), r.m->hp.n_vocab) < 1.2e-4);	/* TOL_F32 of aid_session.h */
	}
	free(ids);
	aid_rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_rotation),
		cmocka_unit_test(check_codes),
		cmocka_unit_test(check_scores),
		cmocka_unit_test(check_late),
		cmocka_unit_test(check_everything),
	};

	return cmocka_run_group_tests_name("sketch", tests, NULL, NULL);
}
