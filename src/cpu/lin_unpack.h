/* lin_unpack.h: packed weights to bytes and scales in 256-bit registers, and from there to f32.
 *
 * A template that lin_avx2.c and lin_avx512.c include after lin_float.h: what a format means is written once for both,
 * and for both the integer products (lin_dot.h) and the dequantisation.  Layouts: quant.h.
 * A block has 1 (plain types) or 8 (K types) groups of 32 weights; w[j] = d q[j] + m in a group, with two d for Q6_K.
 * `t` and `k` are constants wherever these functions are inlined, so that each switch leaves one case.
 */
#include <immintrin.h>

INLINE bool has_min(const enum rk_type t)
{
	return t == RK_Q4_1 || t == RK_Q5_1 || t == RK_Q4_K || t == RK_Q5_K;
}

INLINE int groups_per_block(const enum rk_type t)
{
	return t == RK_Q4_K || t == RK_Q5_K || t == RK_Q6_K ? RK_QK_K / RK_GROUP : 1;
}

INLINE size_t block_bytes(const enum rk_type t)
{
	switch (t) {
	case RK_Q4_0: return sizeof(rk_block_q4_0);
	case RK_Q4_1: return sizeof(rk_block_q4_1);
	case RK_Q5_0: return sizeof(rk_block_q5_0);
	case RK_Q5_1: return sizeof(rk_block_q5_1);
	case RK_Q8_0: return sizeof(rk_block_q8_0);
	case RK_Q4_K: return sizeof(rk_block_q4_k);
	case RK_Q5_K: return sizeof(rk_block_q5_k);
	default: return sizeof(rk_block_q6_k);
	}
}

INLINE __m256i load32(const void *p)
{
	return _mm256_loadu_si256(p);
}

/* Byte j and j+16 = low and high nibble of byte j of the 16 at p. */
INLINE __m256i nibbles(const uint8_t *p)
{
	__m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
	v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
	return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

/* Byte j = 16 where bit j of the 4 bytes at p is set. */
INLINE __m256i fifth_bits(const uint8_t *p)
{
	uint32_t bits;
	memcpy(&bits, p, sizeof bits);
#ifdef __AVX512BW__
	return _mm256_maskz_set1_epi8(bits, 16);
#else
	const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
	const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
	__m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
	return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit), _mm256_set1_epi8(16));
#endif
}

/* 4-bit group k of the 128 bytes qs of a Q4_K or Q5_K block: low nibbles of 32 bytes for even k, high ones for odd. */
INLINE __m256i nibbles_k(const uint8_t *qs, const int k)
{
	__m256i v = load32(qs + k / 2 * 32);
	if (k % 2)
		v = _mm256_srli_epi16(v, 4);
	return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

INLINE __m256i group_q5_k(const rk_block_q5_k *b, const int k)
{
	__m256i h = _mm256_and_si256(_mm256_srli_epi16(load32(b->qh), k), _mm256_set1_epi8(1));
	return _mm256_or_si256(nibbles_k(b->qs, k), _mm256_slli_epi16(h, 4));
}

INLINE __m256i group_q6_k(const rk_block_q6_k *b, const int k)
{
	__m256i l = load32(b->ql + k / 4 * 64 + k % 2 * 32), h = load32(b->qh + k / 4 * 32);
	l = _mm256_and_si256(k / 2 % 2 ? _mm256_srli_epi16(l, 4) : l, _mm256_set1_epi8(15));
	h = _mm256_and_si256(_mm256_srli_epi16(h, k % 4 * 2), _mm256_set1_epi8(3));
	return _mm256_sub_epi8(_mm256_or_si256(l, _mm256_slli_epi16(h, 4)), _mm256_set1_epi8(32));
}

/* The 32 q of group k: not negative in types with a minimum, signed in the others. */
INLINE __m256i unpack_group(const enum rk_type t, const void *block, const int k)
{
	switch (t) {
	case RK_Q4_0:
		return _mm256_sub_epi8(nibbles(((const rk_block_q4_0 *)block)->qs), _mm256_set1_epi8(8));
	case RK_Q4_1:
		return nibbles(((const rk_block_q4_1 *)block)->qs);
	case RK_Q5_0: {
		const rk_block_q5_0 *b = block;
		return _mm256_sub_epi8(_mm256_or_si256(nibbles(b->qs), fifth_bits(b->qh)), _mm256_set1_epi8(16));
	}
	case RK_Q5_1: {
		const rk_block_q5_1 *b = block;
		return _mm256_or_si256(nibbles(b->qs), fifth_bits(b->qh));
	}
	case RK_Q8_0:
		return load32(((const rk_block_q8_0 *)block)->qs);
	case RK_Q4_K:
		return nibbles_k(((const rk_block_q4_k *)block)->qs, k);
	case RK_Q5_K:
		return group_q5_k(block, k);
	default:
		return group_q6_k(block, k);
	}
}

/* s[2k], s[2k+1] = d and m of group k of a Q4_K or Q5_K block, whose first bytes are alike. */
INLINE void scales_q45_k(const rk_block_q4_k *b, float s[16])
{
	uint32_t u[3];
	memcpy(u, b->scales, sizeof u);
	uint32_t sc_hi = (u[2] & 0x0f0f0f0f) | (u[0] >> 6 & 0x03030303) << 4;
	uint32_t mn_hi = (u[2] >> 4 & 0x0f0f0f0f) | (u[1] >> 6 & 0x03030303) << 4;
	__m128i sc = _mm_setr_epi32((int)(u[0] & 0x3f3f3f3f), (int)sc_hi, 0, 0);
	__m128i mn = _mm_setr_epi32((int)(u[1] & 0x3f3f3f3f), (int)mn_hi, 0, 0);
	__m128i both = _mm_unpacklo_epi8(sc, mn);
	__m128 d = _mm_cvtph_ps(_mm_loadu_si32(b));
	__m256 dm = _mm256_castpd_ps(_mm256_broadcastsd_pd(_mm_castps_pd(_mm_xor_ps(d, _mm_setr_ps(0, -0.0f, 0, 0)))));
	_mm256_storeu_ps(s, _mm256_mul_ps(dm, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(both))));
	_mm256_storeu_ps(s + 8, _mm256_mul_ps(dm, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(both, 8)))));
}

/* s[2k], s[2k+1] = d of the first and of the second 16 weights of group k */
INLINE void scales_q6_k(const rk_block_q6_k *b, float s[16])
{
	__m128i sc = _mm_loadu_si128((const void *)b->scales);
	__m256 d = _mm256_set1_ps(_cvtsh_ss(b->d));
	_mm256_storeu_ps(s, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sc))));
	_mm256_storeu_ps(s + 8, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(sc, 8)))));
}

INLINE void unpack_scales(const enum rk_type t, const void *block, float s[16])
{
	if (t == RK_Q4_K || t == RK_Q5_K)
		scales_q45_k(block, s);
	else if (t == RK_Q6_K)
		scales_q6_k(block, s);
}

/* Lanes 0 and 1 = d and m of group k (both d of Q6_K).  s: from unpack_scales for K types.  The plain types start with
 * d (and m) in half precision; where there is no m, lane 1 is made of the first two weights and is not used. */
INLINE __m128 group_scales(const enum rk_type t, const void *block, const float s[16], const int k)
{
	if (groups_per_block(t) == 1)
		return _mm_cvtph_ps(_mm_loadu_si32(block));
	return _mm_castsi128_ps(_mm_loadl_epi64((const void *)(s + 2 * k)));
}

/* dst[0..32) = d q + m, which rounds once: every product d q of a format is exact in f32. */
INLINE void store_group(const enum rk_type t, float *dst, __m256i q, __m128 dm)
{
	vf d0 = vset(dm[0]), d1 = t == RK_Q6_K ? vset(dm[1]) : d0, m = vset(has_min(t) ? dm[1] : 0.0f);
	for (int j = 0; j < RK_GROUP; j += VW) {
		vf f;
		__m128i lane16 = j < 16 ? _mm256_castsi256_si128(q) : _mm256_extracti128_si256(q, 1);
#if VW == 16
		f = (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(lane16));
#else
		f = (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(j % 16 ? _mm_srli_si128(lane16, 8) : lane16));
#endif
		vf d = j < 16 ? d0 : d1;
		vstore(dst + j, has_min(t) ? VFMA(d, f, m) : d * f);
	}
}

INLINE void dequant_rows(const enum rk_type t, const uint8_t *src, float *dst, int64_t n)
{
	const int per_block = groups_per_block(t);
	for (int64_t j = 0; j < n; j += per_block * RK_GROUP, src += block_bytes(t)) {
		float s[16];
		unpack_scales(t, src, s);
#pragma GCC unroll 8
		for (int k = 0; k < per_block; k++)
			store_group(t, dst + j + k * RK_GROUP, unpack_group(t, src, k), group_scales(t, src, s, k));
	}
}

static void dequant_f16(const rk_half *src, float *dst, int64_t n)
{
	int64_t j = 0;
	for (; j + 8 <= n; j += 8)
		_mm256_storeu_ps(dst + j, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(src + j))));
	for (; j < n; j++)
		dst[j] = _cvtsh_ss(src[j]);
}

static void dequant_bf16(const uint16_t *src, float *dst, int64_t n)
{
	for (int64_t j = 0; j < n; j++) {
		uint32_t bits = (uint32_t)src[j] << 16;
		memcpy(dst + j, &bits, sizeof bits);
	}
}

static void dequant(enum rk_type t, const void *src, float *dst, int64_t n)
{
	switch (t) {
	case RK_F32: memcpy(dst, src, (size_t)n * sizeof *dst); break;
	case RK_F16: dequant_f16(src, dst, n); break;
	case RK_BF16: dequant_bf16(src, dst, n); break;
	case RK_Q4_0: dequant_rows(RK_Q4_0, src, dst, n); break;
	case RK_Q4_1: dequant_rows(RK_Q4_1, src, dst, n); break;
	case RK_Q5_0: dequant_rows(RK_Q5_0, src, dst, n); break;
	case RK_Q5_1: dequant_rows(RK_Q5_1, src, dst, n); break;
	case RK_Q8_0: dequant_rows(RK_Q8_0, src, dst, n); break;
	case RK_Q4_K: dequant_rows(RK_Q4_K, src, dst, n); break;
	case RK_Q5_K: dequant_rows(RK_Q5_K, src, dst, n); break;
	case RK_Q6_K: dequant_rows(RK_Q6_K, src, dst, n); break;
	}
}

static void to_half(rk_half *dst, const float *src, int n)
{
	int j = 0;
	for (; j + 8 <= n; j += 8) {
		__m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + j), _MM_FROUND_TO_NEAREST_INT);
		_mm_storeu_si128((void *)(dst + j), h);
	}
	for (; j < n; j++)
		dst[j] = _cvtss_sh(src[j], _MM_FROUND_TO_NEAREST_INT);
}
