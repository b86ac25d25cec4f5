/* immintrin.h: the AVX-512 intrinsics that src/cpu uses, written out in C over AVX2, for machines without AVX-512.
 *
 * Found before the compiler's header of this name, which it includes.  Functions bear the intrinsics' own names, and the list
 * below renames them, since the compiler has declared its own.  An intrinsic that is missing here fails to compile.
 * Meaning: Intel's Intrinsics Guide.  Elements that a mask leaves out are not touched in memory, so the sanitizers see what
 * a mask lets through, and what an instruction leaves undefined is filled with 0x5a.
 */
#ifndef RK_AVX512_EMU_IMMINTRIN_H
#define RK_AVX512_EMU_IMMINTRIN_H

#include_next <immintrin.h>
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __AVX512BW__ 1
#define __asm__(...)		/* sketch_vec.h pins a sum to a register that is not there */
#define always_inline unused	/* with everything in one function, dot_q8 would compile for minutes */

#undef _mm512_cmp_ps_mask	/* without optimisation the compiler has macros for those that take a constant */
#undef _mm512_extractf32x8_ps
#undef _mm512_inserti32x4
#undef _mm512_mask_cmpge_epu32_mask
#undef _mm512_roundscale_ps
#undef _mm512_slli_epi16
#undef _mm512_srli_epi16
#undef _mm512_srli_epi32
#define _mm256_maskz_loadu_epi16 emu_maskz_loadu_epi16
#define _mm256_maskz_set1_epi8 emu_maskz_set1_epi8
#define _mm512_abs_epi8 emu_abs_epi8
#define _mm512_add_epi32 emu_add_epi32
#define _mm512_add_ps emu_add_ps
#define _mm512_and_si512 emu_and_si512
#define _mm512_castpd_ps emu_castpd_ps
#define _mm512_castps512_ps256 emu_castps512_ps256
#define _mm512_castps_pd emu_castps_pd
#define _mm512_castsi512_ps emu_castsi512_ps
#define _mm512_castsi128_si512 emu_castsi128_si512
#define _mm512_cmp_ps_mask emu_cmp_ps_mask
#define _mm512_cvtepi32_epi16 emu_cvtepi32_epi16
#define _mm512_cvtepi32_ps emu_cvtepi32_ps
#define _mm512_cvtepi8_epi32 emu_cvtepi8_epi32
#define _mm512_cvtph_ps emu_cvtph_ps
#define _mm512_dpbusd_epi32 emu_dpbusd_epi32
#define _mm512_extractf32x8_ps emu_extractf32x8_ps
#define _mm512_fmadd_ps emu_fmadd_ps
#define _mm512_inserti32x4 emu_inserti32x4
#define _mm512_loadu_si512 emu_loadu_si512
#define _mm512_mask_cmpge_epu32_mask emu_mask_cmpge_epu32_mask
#define _mm512_mask_storeu_ps emu_mask_storeu_ps
#define _mm512_mask_sub_epi8 emu_mask_sub_epi8
#define _mm512_maskz_compress_epi32 emu_maskz_compress_epi32
#define _mm512_maskz_loadu_epi32 emu_maskz_loadu_epi32
#define _mm512_maskz_loadu_ps emu_maskz_loadu_ps
#define _mm512_maskz_scalef_ps emu_maskz_scalef_ps
#define _mm512_max_ps emu_max_ps
#define _mm512_movepi8_mask emu_movepi8_mask
#define _mm512_mul_ps emu_mul_ps
#define _mm512_reduce_add_ps emu_reduce_add_ps
#define _mm512_reduce_max_ps emu_reduce_max_ps
#define _mm512_roundscale_ps emu_roundscale_ps
#define _mm512_set1_epi32 emu_set1_epi32
#define _mm512_set1_epi8 emu_set1_epi8
#define _mm512_set1_ps emu_set1_ps
#define _mm512_setzero_si512 emu_setzero_si512
#define _mm512_slli_epi16 emu_slli_epi16
#define _mm512_srli_epi16 emu_srli_epi16
#define _mm512_srli_epi32 emu_srli_epi32
#define _mm512_sub_epi32 emu_sub_epi32
#define _mm512_sub_epi8 emu_sub_epi8
#define _mm512_sub_ps emu_sub_ps
#define _mm512_unpackhi_epi32 emu_unpackhi_epi32
#define _mm512_unpackhi_epi64 emu_unpackhi_epi64
#define _mm512_unpackhi_pd emu_unpackhi_pd
#define _mm512_unpackhi_ps emu_unpackhi_ps
#define _mm512_unpacklo_epi32 emu_unpacklo_epi32
#define _mm512_unpacklo_epi64 emu_unpacklo_epi64
#define _mm512_unpacklo_pd emu_unpacklo_pd
#define _mm512_unpacklo_ps emu_unpacklo_ps

#define EMU static inline

/* The elements of a register of 64 bytes, or of a part of one; int: 32 bits. */
typedef int8_t emu_i8 __attribute__((vector_size(64)));
typedef uint8_t emu_u8 __attribute__((vector_size(64)));
typedef uint16_t emu_u16 __attribute__((vector_size(64)));
typedef int32_t emu_i32 __attribute__((vector_size(64)));
typedef uint32_t emu_u32 __attribute__((vector_size(64)));
typedef int8_t emu_i8x16 __attribute__((vector_size(16)));
typedef uint8_t emu_u8x32 __attribute__((vector_size(32)));
typedef uint16_t emu_u16x16 __attribute__((vector_size(32)));

/* constants and moves */

EMU __m512 _mm512_set1_ps(float x)
{
	return x - (__m512){ 0 };	/* of -0 too */
}

EMU __m512i _mm512_set1_epi32(int x)
{
	return (__m512i)((emu_i32){ 0 } + x);
}

EMU __m512i _mm512_set1_epi8(char x)
{
	return (__m512i)((emu_i8){ 0 } + (int8_t)x);
}

EMU __m512i _mm512_setzero_si512(void)
{
	return (__m512i){ 0 };
}

EMU __m256i _mm256_maskz_set1_epi8(__mmask32 k, char x)
{
	emu_u8x32 r = { 0 };
	for (int i = 0; i < 32; i++)
		r[i] = k >> i & 1 ? (uint8_t)x : 0;
	return (__m256i)r;
}

EMU __m512d _mm512_castps_pd(__m512 a)
{
	return (__m512d)a;
}

EMU __m512 _mm512_castpd_ps(__m512d a)
{
	return (__m512)a;
}

EMU __m512i _mm512_castsi128_si512(__m128i a)
{
	__m512i r = _mm512_set1_epi8(0x5a);	/* the upper part is undefined */
	memcpy(&r, &a, sizeof a);
	return r;
}

EMU __m256 _mm512_castps512_ps256(__m512 a)
{
	__m256 r;
	memcpy(&r, &a, sizeof r);
	return r;
}

EMU __m256 _mm512_extractf32x8_ps(__m512 a, int part)
{
	__m256 r;
	memcpy(&r, (char *)&a + 32 * part, sizeof r);
	return r;
}

EMU __m512i _mm512_inserti32x4(__m512i a, __m128i x, int part)
{
	memcpy((char *)&a + 16 * part, &x, sizeof x);
	return a;
}

/* memory */

EMU __m512i _mm512_loadu_si512(const void *p)
{
	__m512i r;
	memcpy(&r, p, sizeof r);
	return r;
}

EMU __m512 _mm512_maskz_loadu_ps(__mmask16 k, const void *p)
{
	__m512 r = { 0 };
	for (int i = 0; i < 16; i++)
		if (k >> i & 1)
			memcpy((char *)&r + 4 * i, (const char *)p + 4 * i, 4);
	return r;
}

EMU __m512i _mm512_maskz_loadu_epi32(__mmask16 k, const void *p)
{
	return (__m512i)_mm512_maskz_loadu_ps(k, p);
}

EMU __m256i _mm256_maskz_loadu_epi16(__mmask16 k, const void *p)
{
	__m256i r = { 0 };
	for (int i = 0; i < 16; i++)
		if (k >> i & 1)
			memcpy((char *)&r + 2 * i, (const char *)p + 2 * i, 2);
	return r;
}

EMU __m512i _mm512_maskz_compress_epi32(__mmask16 k, __m512i a)
{
	emu_i32 r = { 0 };
	for (int i = 0, to = 0; i < 16; i++)
		if (k >> i & 1)
			r[to++] = ((emu_i32)a)[i];
	return (__m512i)r;
}

EMU __m512 _mm512_castsi512_ps(__m512i a)
{
	return (__m512)a;
}

EMU void _mm512_mask_storeu_ps(void *p, __mmask16 k, __m512 a)
{
	for (int i = 0; i < 16; i++)
		if (k >> i & 1)
			memcpy((char *)p + 4 * i, (const char *)&a + 4 * i, 4);
}

/* floats */

EMU __m512 _mm512_add_ps(__m512 a, __m512 b)
{
	return a + b;
}

EMU __m512 _mm512_sub_ps(__m512 a, __m512 b)
{
	return a - b;
}

EMU __m512 _mm512_mul_ps(__m512 a, __m512 b)
{
	return a * b;
}

EMU __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c)
{
	__m512 r;
	for (int i = 0; i < 16; i++)
		r[i] = fmaf(a[i], b[i], c[i]);
	return r;
}

EMU __m512 _mm512_max_ps(__m512 a, __m512 b)
{
	__m512 r;
	for (int i = 0; i < 16; i++)
		r[i] = a[i] > b[i] ? a[i] : b[i];
	return r;
}

/* Lanes as a binary tree, as gcc adds them. */
EMU float _mm512_reduce_add_ps(__m512 a)
{
	for (int half = 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			a[i] += a[i + half];
	return a[0];
}

EMU float _mm512_reduce_max_ps(__m512 a)
{
	for (int i = 1; i < 16; i++)
		a[0] = a[i] > a[0] ? a[i] : a[0];
	return a[0];
}

EMU __m512 _mm512_roundscale_ps(__m512 a, int how)
{
	assert(how == (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	for (int i = 0; i < 16; i++)
		a[i] = nearbyintf(a[i]);
	return a;
}

EMU __m512 _mm512_maskz_scalef_ps(__mmask16 k, __m512 a, __m512 b)
{
	for (int i = 0; i < 16; i++)
		a[i] = k >> i & 1 ? ldexpf(a[i], (int)floorf(b[i])) : 0;
	return a;
}

EMU __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int op)
{
	unsigned k = 0;
	assert(op == _CMP_GE_OQ);
	for (int i = 0; i < 16; i++)
		k |= (unsigned)(a[i] >= b[i]) << i;
	return (__mmask16)k;
}

/* integers: vectors of them wrap around */

EMU __m512i _mm512_and_si512(__m512i a, __m512i b)
{
	return a & b;
}

EMU __m512i _mm512_add_epi32(__m512i a, __m512i b)
{
	return (__m512i)((emu_u32)a + (emu_u32)b);
}

EMU __m512i _mm512_sub_epi32(__m512i a, __m512i b)
{
	return (__m512i)((emu_u32)a - (emu_u32)b);
}

EMU __m512i _mm512_sub_epi8(__m512i a, __m512i b)
{
	return (__m512i)((emu_u8)a - (emu_u8)b);
}

EMU __m512i _mm512_mask_sub_epi8(__m512i rest, __mmask64 k, __m512i a, __m512i b)
{
	emu_u8 r = (emu_u8)rest, all = (emu_u8)a - (emu_u8)b;
	for (int i = 0; i < 64; i++)
		r[i] = k >> i & 1 ? all[i] : r[i];
	return (__m512i)r;
}

EMU __m512i _mm512_abs_epi8(__m512i a)
{
	emu_i8 negative = (emu_i8)a < 0;	/* -1 or 0; -128 stays */
	return (__m512i)(((emu_u8)a ^ (emu_u8)negative) - (emu_u8)negative);
}

EMU __mmask64 _mm512_movepi8_mask(__m512i a)
{
	__mmask64 k = 0;
	for (int i = 0; i < 64; i++)
		k |= (__mmask64)((emu_u8)a)[i] >> 7 << i;
	return k;
}

EMU __mmask16 _mm512_mask_cmpge_epu32_mask(__mmask16 k, __m512i a, __m512i b)
{
	unsigned ge = 0;
	for (int i = 0; i < 16; i++)
		ge |= (unsigned)(((emu_u32)a)[i] >= ((emu_u32)b)[i]) << i;
	return (__mmask16)(k & ge);
}

EMU __m512i _mm512_slli_epi16(__m512i a, unsigned n)
{
	return (__m512i)((emu_u16)a << n);	/* all uses have n < 16 */
}

EMU __m512i _mm512_srli_epi16(__m512i a, unsigned n)
{
	return (__m512i)((emu_u16)a >> n);
}

EMU __m512i _mm512_srli_epi32(__m512i a, unsigned n)
{
	return (__m512i)((emu_u32)a >> n);
}

/* Lane = sum + the four unsigned bytes of u times the four signed ones of a. */
EMU __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i u, __m512i a)
{
	emu_i32 r = (emu_i32)sum;
	for (int j = 0; j < 4; j++)
		r += (emu_i32)((emu_u32)u >> 8 * j & 255) * ((emu_i32)((emu_u32)a << (24 - 8 * j)) >> 24);
	return (__m512i)r;
}

/* conversions */

EMU __m512 _mm512_cvtepi32_ps(__m512i a)
{
	return __builtin_convertvector((emu_i32)a, __m512);
}

EMU __m512i _mm512_cvtepi8_epi32(__m128i a)
{
	return (__m512i)__builtin_convertvector((emu_i8x16)a, emu_i32);
}

EMU __m256i _mm512_cvtepi32_epi16(__m512i a)
{
	return (__m256i)__builtin_convertvector((emu_u32)a, emu_u16x16);	/* the low halves */
}

EMU __m512 _mm512_cvtph_ps(__m256i a)
{
	__m512 r;
	for (int i = 0; i < 16; i++)
		r[i] = _cvtsh_ss(((emu_u16x16)a)[i]);
	return r;
}

/* From each 128 bits: elements of a and b in turn, of their low or high 64. */

EMU __m512i emu_unpack32(__m512i a, __m512i b, int high)
{
	emu_i32 x = (emu_i32)a, y = (emu_i32)b, r;
	for (int i = 0; i < 16; i++)
		r[i] = (i % 2 ? y : x)[i / 4 * 4 + 2 * high + i % 4 / 2];
	return (__m512i)r;
}

EMU __m512i emu_unpack64(__m512i a, __m512i b, int high)
{
	__m512i r;
	for (int i = 0; i < 8; i++)
		r[i] = (i % 2 ? b : a)[i / 2 * 2 + high];
	return r;
}

EMU __m512i _mm512_unpacklo_epi32(__m512i a, __m512i b)
{
	return emu_unpack32(a, b, 0);
}

EMU __m512i _mm512_unpackhi_epi32(__m512i a, __m512i b)
{
	return emu_unpack32(a, b, 1);
}

EMU __m512 _mm512_unpacklo_ps(__m512 a, __m512 b)
{
	return (__m512)emu_unpack32((__m512i)a, (__m512i)b, 0);
}

EMU __m512 _mm512_unpackhi_ps(__m512 a, __m512 b)
{
	return (__m512)emu_unpack32((__m512i)a, (__m512i)b, 1);
}

EMU __m512i _mm512_unpacklo_epi64(__m512i a, __m512i b)
{
	return emu_unpack64(a, b, 0);
}

EMU __m512i _mm512_unpackhi_epi64(__m512i a, __m512i b)
{
	return emu_unpack64(a, b, 1);
}

EMU __m512d _mm512_unpacklo_pd(__m512d a, __m512d b)
{
	return (__m512d)emu_unpack64((__m512i)a, (__m512i)b, 0);
}

EMU __m512d _mm512_unpackhi_pd(__m512d a, __m512d b)
{
	return (__m512d)emu_unpack64((__m512i)a, (__m512i)b, 1);
}

#endif
