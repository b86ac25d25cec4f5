/* lin_avx512.c: the kernels of lin.h for AVX-512 F, BW, VL and DQ, and for those with VNNI.
 *
 * Compiled for the first set; only dot_q8 is compiled for VNNI, and only the second table holds it.  Without VNNI
 * the integer products gain nothing from wider registers than AVX2's, so that table shares them.
 */
#include "cpu/lin.h"

#define VW 16
#define VFMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#include <immintrin.h>
#include "cpu/lin_float.h"
#include "cpu/lin_unpack.h"

#pragma GCC push_options
#pragma GCC target("avx512vnni")
#include "cpu/lin_dot.h"
#pragma GCC pop_options

#define TABLE(dot) { \
	.dequant = dequant, \
	.quantise = quantise, \
	.dot_q8 = dot, \
	.dot_f32 = dot_f32, \
	.to_half = to_half, \
	.rmsnorm = rmsnorm, \
	.silu_mul = silu_mul, \
	.add = add, \
	.logits_stats = logits_stats, \
	.expected_gap = expected_gap, \
}

const rk_lin_kernels rk_lin_avx512 = TABLE(rk_lin_dot_q8_avx2);
const rk_lin_kernels rk_lin_avx512_vnni = TABLE(dot_q8);
