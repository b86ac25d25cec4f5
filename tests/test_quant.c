/* test_quant.c: half conversions over their whole range, and every tensor type against values that the gguf Python
 * package computed: one readable block each (aid_quant_golden.h) and a hash over 64 blocks of arbitrary bytes, which
 * also holds the order of the roundings.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aid_gguf.h"
#include "aid_quant_golden.h"
#include "model/quant.h"

static uint32_t bits(float f)
{
	uint32_t b;
	memcpy(&b, &f, sizeof b);
	return b;
}

static float of_bits(uint32_t b)
{
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

/* The definition of binary16, by arithmetic instead of by bits. */
static double half_value(unsigned h)
{
	int exp = h >> 10 & 31, frac = h & 0x3ff;
	double v = exp == 0 ? ldexp(frac, -24) : exp == 31 ? (frac ? NAN : INFINITY) : ldexp(1024 + frac, exp - 25);
	return h & 0x8000 ? -v : v;
}

static void half_to_float_is_exact(void **state)
{
	(void)state;
	for (unsigned h = 0; h < 65536; h++) {
		float f = rk_half_to_float((rk_half)h);
		if (isnan(half_value(h))) {	/* quiet, sign and payload kept */
			assert_int_equal(bits(f), (h & 0x8000) << 16 | 0x7fc00000 | (h & 0x3ff) << 13);
		} else {
			assert_int_equal(bits(f), bits((float)half_value(h)));
			assert_int_equal(rk_float_to_half(f), h);
		}
	}
}

/* Between two neighbouring halves: the middle goes to the even one, anything else to the nearer one. */
static void float_to_half_rounds_to_nearest_even(void **state)
{
	(void)state;
	for (unsigned h = 0; h < 0x7c00; h++) {
		double lo = half_value(h), hi = h == 0x7bff ? 65536 : half_value(h + 1);
		float mid = (float)((lo + hi) / 2);	/* exact: 12 significant bits */
		for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
			float s = sign ? -1 : 1;
			assert_int_equal(rk_float_to_half(s * mid), sign | (h & 1 ? h + 1 : h));
			assert_int_equal(rk_float_to_half(s * nextafterf(mid, 0)), sign | h);
			assert_int_equal(rk_float_to_half(s * nextafterf(mid, INFINITY)), sign | (h + 1));
		}
	}
}

static void float_to_half_special_values(void **state)
{
	(void)state;
	assert_int_equal(rk_float_to_half(INFINITY), 0x7c00);
	assert_int_equal(rk_float_to_half(-INFINITY), 0xfc00);
	assert_int_equal(rk_float_to_half(3e38f), 0x7c00);
	assert_int_equal(rk_float_to_half(of_bits(1)), 0);			/* the smallest subnormal float */
	assert_int_equal(rk_float_to_half(of_bits(0x80000001)), 0x8000);
	assert_int_equal(rk_float_to_half(of_bits(0x7fc00000)), 0x7e00);	/* NaN */
	assert_int_equal(rk_float_to_half(of_bits(0xff800001)), 0xfe00);	/* signalling, payload below the top ten bits */
	assert_int_equal(rk_float_to_half(of_bits(0x7fbfe000)), 0x7fff);
}

/* The generator that made the golden values. */
static void fill(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = (seed * 1103515245u + 12345u) & 0x7fffffff;
		p[i] = (uint8_t)(seed >> 16);
	}
}

static uint64_t fnv1a(uint64_t hash, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
	return hash;
}

struct golden {
	enum rk_type type;
	int scale_at[2];	/* byte offsets of the halves in a block, -1: none */
	const int16_t *table;	/* weight * 4 of the readable block; NULL for the plain types */
	uint64_t hash;
};

static const struct golden goldens[] = {
	{ RK_F32, { -1, -1 }, NULL, 0x568c4acddcd25195 },
	{ RK_F16, { -1, -1 }, NULL, 0x3eeb5276a6858e4e },
	{ RK_BF16, { -1, -1 }, NULL, 0x56e5841948268969 },
	{ RK_Q4_0, { 0, -1 }, golden_q4_0, 0x0fa249089f9b0637 },
	{ RK_Q4_1, { 0, 2 }, golden_q4_1, 0xf972134fb9396108 },
	{ RK_Q5_0, { 0, -1 }, golden_q5_0, 0x0257f6c6621378a1 },
	{ RK_Q5_1, { 0, 2 }, golden_q5_1, 0xd3bf8257cebd39a7 },
	{ RK_Q8_0, { 0, -1 }, golden_q8_0, 0x44bd6e1cfdf63afe },
	{ RK_Q4_K, { 0, 2 }, golden_q4_k, 0xfc3535eb69d07ee6 },
	{ RK_Q5_K, { 0, 2 }, golden_q5_k, 0xb307cfe22ad278ad },
	{ RK_Q6_K, { 208, -1 }, golden_q6_k, 0xb7f151357cd2232d },
};

static void block_matches_gguf_py(const struct golden *g)
{
	static const rk_half scale[2] = { 0x3400, 0x3800 };	/* 0.25, 0.5 */
	uint8_t block[256];
	float w[RK_QK_K];
	int len = rk_type_block_len(g->type);
	fill(block, rk_type_block_bytes(g->type), 1);
	for (int i = 0; i < 2; i++)
		if (g->scale_at[i] >= 0)
			memcpy(block + g->scale_at[i], &scale[i], sizeof scale[i]);
	rk_dequant_row(g->type, block, w, len);
	for (int j = 0; j < len; j++)
		if (bits(w[j]) != bits((float)g->table[j] / 4) && !(w[j] == 0 && g->table[j] == 0))
			fail_msg("%s: weight %d is %g, expected %g", rk_type_name(g->type), j, (double)w[j], g->table[j] / 4.0);
}

/* 64 blocks of arbitrary bytes with scales of about 2^-7 to 2^-4 and either sign, or 2048 plain elements of which the
 * finite ones count. */
static void hash_matches_gguf_py(const struct golden *g)
{
	int len = rk_type_block_len(g->type), n_block = len > 1 ? 64 : 2048;
	size_t bytes = rk_type_block_bytes(g->type);
	uint8_t *row = malloc(bytes * (size_t)n_block);
	float *w = malloc(sizeof *w * (size_t)(n_block * len));
	uint64_t hash = 0xcbf29ce484222325u;
	fill(row, bytes * (size_t)n_block, 2);
	for (int k = 0; k < n_block; k++)
		for (int i = 0; i < 2; i++)
			if (g->scale_at[i] >= 0) {
				uint8_t *top = row + (size_t)k * bytes + g->scale_at[i] + 1;
				*top = (uint8_t)((*top & 0x83) | 0x20 | k % 4 * 4);
			}
	rk_dequant_row(g->type, row, w, n_block * len);
	for (int j = 0; j < n_block * len; j++)
		if (isfinite(w[j]))
			hash = fnv1a(hash, &w[j], sizeof w[j]);
	if (hash != g->hash)
		fail_msg("%s: hash %016llx, expected %016llx", rk_type_name(g->type), (unsigned long long)hash,
			 (unsigned long long)g->hash);
	free(row);
	free(w);
}

static void every_type_matches_gguf_py(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
		if (goldens[i].table)
			block_matches_gguf_py(&goldens[i]);
		hash_matches_gguf_py(&goldens[i]);
	}
}

static void types_have_names_and_sizes(void **state)
{
	(void)state;
	assert_string_equal(rk_type_name(RK_Q4_1), "Q4_1");
	assert_string_equal(rk_type_name((enum rk_type)23), "IQ4_XS");
	assert_string_equal(rk_type_name((enum rk_type)4), "type 4");
	assert_string_equal(rk_type_name((enum rk_type)4000000000u), "type 4000000000");
	assert_int_equal(rk_type_block_len((enum rk_type)23), 0);
	assert_int_equal(rk_type_block_len((enum rk_type)4000000000u), 0);
	assert_int_equal(rk_type_row_bytes(RK_Q6_K, 512), 420);
	assert_int_equal(rk_type_row_bytes(RK_F16, 3), 6);
}

/* The test aid's own quantisers stay within half a level, which also checks nibble order against the reader. */
static void aid_quantisers_round_to_nearest(void **state)
{
	static const struct { enum rk_type type; float level; } cases[] = {
		{ RK_F32, 0 }, { RK_F16, 0x1p-10f }, { RK_BF16, 0x1p-7f }, { RK_Q8_0, 1.0f / 127 },
		{ RK_Q4_0, 0.143f }, { RK_Q4_1, 0.14f },
	};
	uint64_t rng = 3;
	float x[128], y[128];
	uint8_t row[512];
	(void)state;
	for (int j = 0; j < 128; j++)
		x[j] = (float)(2 * aid_random(&rng) - 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		aid_quantize_row(cases[i].type, x, row, 128);
		rk_dequant_row(cases[i].type, row, y, 128);
		for (int j = 0; j < 128; j++)
			if (!(fabsf(x[j] - y[j]) <= cases[i].level / 2 + 1e-3f * cases[i].level))
				fail_msg("%s: %g became %g", rk_type_name(cases[i].type), (double)x[j], (double)y[j]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_to_float_is_exact),
		cmocka_unit_test(float_to_half_rounds_to_nearest_even),
		cmocka_unit_test(float_to_half_special_values),
		cmocka_unit_test(every_type_matches_gguf_py),
		cmocka_unit_test(types_have_names_and_sizes),
		cmocka_unit_test(aid_quantisers_round_to_nearest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
