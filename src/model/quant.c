/* quant.c: element types of GGUF tensors: names, block sizes, and the plain scalar meaning of every block.
 *
 * Owns no state; every function is pure and may run on any thread.  Speed is not the point here: the routines of
 * src/cpu and kernels/ are tested against these, so each is written the way the format is defined, weight by weight.
 * The order of the roundings (d * scale first, then * q, then - minimum) is part of the definition: results equal those
 * of ggml bit for bit.
 */
#include "model/quant.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Names of all types of the format, so that an error can name what it refuses; block_len 0 = not read. */
static const struct type_info {
	const char *name;
	int block_len;		/* weights */
	size_t block_bytes;
} types[] = {
	[RK_F32] = { "F32", 1, 4 },
	[RK_F16] = { "F16", 1, 2 },
	[RK_Q4_0] = { "Q4_0", RK_QK, sizeof(rk_block_q4_0) },
	[RK_Q4_1] = { "Q4_1", RK_QK, sizeof(rk_block_q4_1) },
	[RK_Q5_0] = { "Q5_0", RK_QK, sizeof(rk_block_q5_0) },
	[RK_Q5_1] = { "Q5_1", RK_QK, sizeof(rk_block_q5_1) },
	[RK_Q8_0] = { "Q8_0", RK_QK, sizeof(rk_block_q8_0) },
	[9] = { .name = "Q8_1" },
	[10] = { .name = "Q2_K" },
	[11] = { .name = "Q3_K" },
	[RK_Q4_K] = { "Q4_K", RK_QK_K, sizeof(rk_block_q4_k) },
	[RK_Q5_K] = { "Q5_K", RK_QK_K, sizeof(rk_block_q5_k) },
	[RK_Q6_K] = { "Q6_K", RK_QK_K, sizeof(rk_block_q6_k) },
	[15] = { .name = "Q8_K" },
	[16] = { .name = "IQ2_XXS" },
	[17] = { .name = "IQ2_XS" },
	[18] = { .name = "IQ3_XXS" },
	[19] = { .name = "IQ1_S" },
	[20] = { .name = "IQ4_NL" },
	[21] = { .name = "IQ3_S" },
	[22] = { .name = "IQ2_S" },
	[23] = { .name = "IQ4_XS" },
	[24] = { .name = "I8" },
	[25] = { .name = "I16" },
	[26] = { .name = "I32" },
	[27] = { .name = "I64" },
	[28] = { .name = "F64" },
	[29] = { .name = "IQ1_M" },
	[RK_BF16] = { "BF16", 1, 2 },
	[34] = { .name = "TQ1_0" },
	[35] = { .name = "TQ2_0" },
	[39] = { .name = "MXFP4" },
};

static const struct type_info *info(enum rk_type t)
{
	static const struct type_info none;
	return (unsigned)t < sizeof types / sizeof *types ? &types[t] : &none;
}

int rk_type_block_len(enum rk_type t)
{
	return info(t)->block_len;
}

size_t rk_type_block_bytes(enum rk_type t)
{
	return info(t)->block_bytes;
}

size_t rk_type_row_bytes(enum rk_type t, int64_t n)
{
	const struct type_info *ti = info(t);
	assert(ti->block_len && n % ti->block_len == 0);
	return (size_t)(n / ti->block_len) * ti->block_bytes;
}

const char *rk_type_name(enum rk_type t)
{
	static _Thread_local char other[24];	/* a number that a damaged file may hold */
	if (info(t)->name)
		return info(t)->name;
	snprintf(other, sizeof other, "type %u", (unsigned)t);
	return other;
}

static float float_of_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint32_t bits_of_float(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

float rk_half_to_float(rk_half h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, frac = h & 0x3ff;
	if (exp == 0) {		/* zero or subnormal: frac * 2^-24, exact in f32 */
		float f = (float)frac * 0x1p-24f;
		return sign ? -f : f;
	}
	if (exp == 31)		/* infinity or NaN; a NaN becomes a quiet one, as VCVTPH2PS makes it */
		return float_of_bits(sign | 0x7f800000 | (frac ? 0x400000 | frac << 13 : 0));
	return float_of_bits(sign | (exp + 112) << 23 | frac << 13);
}

rk_half rk_float_to_half(float f)
{
	uint32_t bits = bits_of_float(f), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
	uint32_t half, rest, tie;	/* truncated result, the bits cut off, and what they would be at a tie */
	if (a > 0x7f800000)		/* NaN: made quiet, top of the payload kept */
		return (rk_half)(sign | 0x7e00 | (a >> 13 & 0x3ff));
	if (a >= 0x47800000)		/* 2^16 and above */
		return (rk_half)(sign | 0x7c00);
	if (a >= 0x38800000) {		/* 2^-14 and above: a normal half; a carry out of the fraction is right, up to infinity */
		half = (a - 0x38000000) >> 13;
		rest = a & 0x1fff;
		tie = 0x1000;
	} else if (a >= 0x33000000) {	/* 2^-25 and above: a multiple of 2^-24 */
		uint32_t shift = 126 - (a >> 23), frac = (a & 0x7fffff) | 0x800000;
		half = frac >> shift;
		rest = frac & ((1u << shift) - 1);
		tie = 1u << (shift - 1);
	} else {
		return (rk_half)sign;
	}
	half += rest > tie || (rest == tie && (half & 1));
	return (rk_half)(sign | half);
}

/* In each of the following: src = the block, dst = its RK_QK or RK_QK_K weights. */

static void dequant_q4_0(const rk_block_q4_0 *b, float *dst)
{
	float d = rk_half_to_float(b->d);
	for (int j = 0; j < 16; j++) {
		dst[j] = d * (float)((b->qs[j] & 15) - 8);
		dst[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
	}
}

static void dequant_q4_1(const rk_block_q4_1 *b, float *dst)
{
	float d = rk_half_to_float(b->d), m = rk_half_to_float(b->m);
	for (int j = 0; j < 16; j++) {
		dst[j] = d * (float)(b->qs[j] & 15) + m;
		dst[j + 16] = d * (float)(b->qs[j] >> 4) + m;
	}
}

/* Bit 4 of weight j: the 4 bytes of qh are one little-endian number. */
static int high_bit(const uint8_t qh[4], int j)
{
	return (qh[j / 8] >> (j % 8) & 1) << 4;
}

static void dequant_q5_0(const rk_block_q5_0 *b, float *dst)
{
	float d = rk_half_to_float(b->d);
	for (int j = 0; j < 16; j++) {
		dst[j] = d * (float)(((b->qs[j] & 15) | high_bit(b->qh, j)) - 16);
		dst[j + 16] = d * (float)(((b->qs[j] >> 4) | high_bit(b->qh, j + 16)) - 16);
	}
}

static void dequant_q5_1(const rk_block_q5_1 *b, float *dst)
{
	float d = rk_half_to_float(b->d), m = rk_half_to_float(b->m);
	for (int j = 0; j < 16; j++) {
		dst[j] = d * (float)((b->qs[j] & 15) | high_bit(b->qh, j)) + m;
		dst[j + 16] = d * (float)((b->qs[j] >> 4) | high_bit(b->qh, j + 16)) + m;
	}
}

static void dequant_q8_0(const rk_block_q8_0 *b, float *dst)
{
	float d = rk_half_to_float(b->d);
	for (int j = 0; j < 32; j++)
		dst[j] = d * (float)b->qs[j];
}

/* 6-bit scale and minimum of group g of a Q4_K or Q5_K block.  Groups 0..3 lie in the low 6 bits of bytes g and g+4;
 * groups 4..7 in the nibbles of byte g+4, their top two bits in the spare bits of bytes g-4 and g. */
static void scale_min(const uint8_t s[12], int g, int *sc, int *mn)
{
	if (g < 4) {
		*sc = s[g] & 63;
		*mn = s[g + 4] & 63;
	} else {
		*sc = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
		*mn = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
	}
}

/* Q4_K, and Q5_K where qh is not NULL: 32 bytes of qs hold group g in the low and g+1 in the high nibbles (g even);
 * bit g of qh[j] is bit 4 of weight j of group g. */
static void dequant_q45_k(rk_half d, rk_half dmin, const uint8_t s[12], const uint8_t *qh, const uint8_t *qs,
			  float *dst)
{
	for (int g = 0; g < 8; g++, dst += 32) {
		int sc, mn;
		scale_min(s, g, &sc, &mn);
		float scale = rk_half_to_float(d) * (float)sc, min = rk_half_to_float(dmin) * (float)mn;
		for (int j = 0; j < 32; j++) {
			int q = qs[g / 2 * 32 + j] >> (g % 2 * 4) & 15;
			if (qh)
				q |= (qh[j] >> g & 1) << 4;
			dst[j] = scale * (float)q - min;
		}
	}
}

/* Each half block of 128 weights has 64 bytes of ql, 32 of qh and 8 scales; its quarter r (32 weights) takes the low
 * (r = 0, 1) or high nibbles of bytes 32 (r % 2) .. of ql and bits 2r, 2r+1 of qh. */
static void dequant_q6_k(const rk_block_q6_k *b, float *dst)
{
	float d = rk_half_to_float(b->d);
	for (int h = 0; h < 2; h++) {
		const uint8_t *ql = b->ql + 64 * h, *qh = b->qh + 32 * h;
		for (int r = 0; r < 4; r++)
			for (int j = 0; j < 32; j++) {
				int q = (ql[r % 2 * 32 + j] >> (r / 2 * 4) & 15) | (qh[j] >> (2 * r) & 3) << 4;
				*dst++ = d * (float)b->scales[8 * h + 2 * r + j / 16] * (float)(q - 32);
			}
	}
}

static void dequant_block(enum rk_type t, const void *src, float *dst)
{
	switch (t) {
	case RK_F32:
		memcpy(dst, src, sizeof *dst);
		break;
	case RK_F16:
		*dst = rk_half_to_float(*(const rk_half *)src);
		break;
	case RK_BF16:
		*dst = float_of_bits((uint32_t)*(const uint16_t *)src << 16);
		break;
	case RK_Q4_0:
		dequant_q4_0(src, dst);
		break;
	case RK_Q4_1:
		dequant_q4_1(src, dst);
		break;
	case RK_Q5_0:
		dequant_q5_0(src, dst);
		break;
	case RK_Q5_1:
		dequant_q5_1(src, dst);
		break;
	case RK_Q8_0:
		dequant_q8_0(src, dst);
		break;
	case RK_Q4_K: {
		const rk_block_q4_k *b = src;
		dequant_q45_k(b->d, b->dmin, b->scales, NULL, b->qs, dst);
		break;
	}
	case RK_Q5_K: {
		const rk_block_q5_k *b = src;
		dequant_q45_k(b->d, b->dmin, b->scales, b->qh, b->qs, dst);
		break;
	}
	case RK_Q6_K:
		dequant_q6_k(src, dst);
		break;
	}
}

void rk_dequant_row(enum rk_type t, const void *src, float *dst, int64_t n)
{
	int len = rk_type_block_len(t);
	const char *p = src;
	assert(len && n % len == 0);
	for (int64_t i = 0; i < n; i += len, p += rk_type_block_bytes(t))
		dequant_block(t, p, dst + i);
}
