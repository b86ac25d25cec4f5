/* sketch.h: inside of sketches on the CPU: queries in the form that a sketch is scored with, and the kernels.
 *
 * Codes are unsigned and queries signed bytes, so a score is an integer product: with u the codes, q the query's bytes
 * and step what one of them stands for,
 *	score = sum_j q_j step (u_j - (2^bits-1)/2) scale = (2 sum_j q_j u_j - (2^bits-1) sum_j q_j) scale step/2
 * The integers are exact, so every instruction set gives the same bits.  Layout of the codes: cache.h.
 */
#ifndef RK_CPU_SKETCH_H
#define RK_CPU_SKETCH_H

#include <stdbool.h>
#include <stdint.h>
#include "model/quant.h"

#define RK_SKETCH_AHEAD 2048	/* bytes of codes asked for ahead: they are used up faster than the processor looks ahead by itself */

/* One query head, rotated as the keys are. */
typedef struct rk_sketch_query {
	float *x;		/* [dim] */
	int8_t *q;		/* [dim] x ~ step * q */
	int32_t sum;		/* of q */
	float half_step;
} rk_sketch_query;

/* s[h][t] = score of n_head queries and n keys, as above; lds: row stride of s.  Reads each code once for up to 4 heads. */
typedef void rk_sketch_score_fn(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                                const rk_half *scale, int n, int dim, int bits);
rk_sketch_score_fn rk_sketch_score_scalar, rk_sketch_score_avx2;
rk_sketch_score_fn rk_sketch_score_avx512;	/* with VNNI where the machine has it */
rk_sketch_score_fn rk_sketch_score_exact;	/* from x rather than q: for --exact */

/* x[dim] = its orthonormal Hadamard transform; dim: a power of two. */
void rk_sketch_rotate(float *x, int dim);
/* q->x [dim], zero-padded behind the query: rotates it and fills in the rest. */
void rk_sketch_query_make(rk_sketch_query *q, int dim);
/* Writes key t of a layer and KV head; x [dim]: the rotated key. */
void rk_sketch_write(uint8_t *code, rk_half *scale, int t, const float *x, int dim, int bits);
/* Code of element j of key t of a block. */
unsigned rk_sketch_code(const uint8_t *block, int t, int j, int dim, int bits);

#endif
