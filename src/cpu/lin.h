/* lin.h: the table of small kernels behind the linear part of the CPU backend, one per instruction set.
 *
 * Kernels are pure: single-threaded, no allocation, no state.  matmul.c and pointwise.c cut the work and call them.
 * Activations are f32; weights are rows of a GGUF type.  A result never depends on how many rows share a call: every
 * kernel sums a row in one fixed order.  Unaligned pointers are fine unless said.
 */
#ifndef RK_CPU_LIN_H
#define RK_CPU_LIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "model/quant.h"

#define RK_MAX_ACT 64	/* rows of activations that share the unpacking of weights */
#define RK_GROUP 32	/* activations per 8-bit scale: every quantised type has blocks of 32, or of 256 made of 32s */

/* n <= RK_MAX_ACT rows of activations as signed bytes: x ~ d q in each group of 32. */
typedef struct rk_act {
	const int8_t *q;	/* [n_col/32][n][32], in -127..127: group by group, as the products read them */
	const float *ds;	/* [n_col/32][n][2]: d, and d * sum(q) of the group, for types with a minimum */
	int n_col;		/* a multiple of 32 */
	int n;
} rk_act;

typedef struct rk_lin_kernels {
	/* dst[0..n) = weights; n a multiple of the block length.  The same bits as rk_dequant_row. */
	void (*dequant)(enum rk_type t, const void *src, float *dst, int64_t n);
	/* One row x[n_col] of n into an rk_act's arrays, from that row's part of the first group on: d = max|x|/127,
	 * q = x/d to nearest even.  The same bits in every table. */
	void (*quantise)(const float *x, int n_col, int n, int8_t *q, float *ds);
	/* y[i*ldy + r] = W[r] . a[i] for n_row consecutive rows of W and all a->n activations: exact integer sums
	 * within a group, f32 over the groups.  t: a quantised type. */
	void (*dot_q8)(enum rk_type t, const void *w, int n_row, const rk_act *a, float *y, size_t ldy);
	/* y[i*ldy] = w . x[i], f32 [n_col] and [n][n_col]. */
	void (*dot_f32)(const float *w, const float *x, int n_col, int n, float *y, size_t ldy);
	void (*to_half)(rk_half *dst, const float *src, int n);
	/* One row: y = x / sqrt(mean(x^2) + eps) * w.  y may be x. */
	void (*rmsnorm)(float *y, const float *x, const float *w, int dim, float eps);
	/* y = g / (1 + exp(-g)) * u; y may be g. */
	void (*silu_mul)(float *y, const float *g, const float *u, size_t n);
	void (*add)(float *x, const float *y, size_t n);
	/* lse = log sum exp x, argmax = the lowest index of the largest x; n >= 1. */
	void (*logits_stats)(const float *x, int n, float *lse, int32_t *argmax);
	/* Sum of exp(p[i] - p_lse) (p[i] - q[i]): the mean difference of two rows of logits under the first. */
	float (*expected_gap)(const float *p, float p_lse, const float *q, int n);
} rk_lin_kernels;

extern const rk_lin_kernels rk_lin_scalar;
extern const rk_lin_kernels rk_lin_avx2;	/* AVX2, FMA, F16C */
extern const rk_lin_kernels rk_lin_avx512;	/* AVX-512 F, BW, VL, DQ */
extern const rk_lin_kernels rk_lin_avx512_vnni;	/* and VNNI */

/* What the linear operations keep between calls.  Owned by matmul.c; engine thread, its team inside one operation. */
typedef struct rk_lin_scratch {
	int max_col;		/* longest row of any matrix, rounded up to 256 */
	int8_t *q;		/* [max_rows][max_col] activations of the running matmul: an rk_act's for every RK_MAX_ACT rows */
	float *ds;		/* [max_rows][max_col/32][2] */
	float *tile;		/* [n_thread][tile_len]: dequantised weights of each thread */
	size_t tile_len;
	float *x_pad;		/* [16][max_col]: the input of a GEMM with fewer rows */
	float *y_pad;		/* [n_thread][16][tile rows]: the last rows of a GEMM */
	float *trig;		/* [max_rows][rope_dim/2][2]: cos, sin of row i's angles, */
	int32_t *trig_pos;	/* [max_rows] at this position; every layer of a step asks for the same ones */
} rk_lin_scratch;

/* The integer products of rk_lin_avx2, which rk_lin_avx512 shares. */
void rk_lin_dot_q8_avx2(enum rk_type t, const void *w, int n_row, const rk_act *a, float *y, size_t ldy);

#endif
