/* quant.h: tensor element types of GGUF files, their block layouts, and the scalar definition of each.
 *
 * rk_dequant_row is the specification that every faster routine (src/cpu, kernels) is tested against.
 * Layouts follow the GGUF specification (ggml docs/gguf.md) and ggml-common.h; type numbers are those of the file format.
 */
#ifndef RK_MODEL_QUANT_H
#define RK_MODEL_QUANT_H

#include <stddef.h>
#include <stdint.h>

enum rk_type {
	RK_F32 = 0, RK_F16 = 1, RK_Q4_0 = 2, RK_Q4_1 = 3, RK_Q5_0 = 6, RK_Q5_1 = 7, RK_Q8_0 = 8,
	RK_Q4_K = 12, RK_Q5_K = 13, RK_Q6_K = 14, RK_BF16 = 30,
};

#define RK_QK 32	/* weights per block of the plain quantised types */
#define RK_QK_K 256	/* weights per super-block of the K types */

typedef uint16_t rk_half;	/* IEEE binary16 bits */

typedef struct { rk_half d; uint8_t qs[16]; } rk_block_q4_0;			/* w = d (q - 8); low nibbles are weights 0..15, high 16..31 */
typedef struct { rk_half d, m; uint8_t qs[16]; } rk_block_q4_1;			/* w = d q + m */
typedef struct { rk_half d; uint8_t qh[4], qs[16]; } rk_block_q5_0;		/* w = d (q - 16); bit j of qh is bit 4 of weight j */
typedef struct { rk_half d, m; uint8_t qh[4], qs[16]; } rk_block_q5_1;		/* w = d q + m */
typedef struct { rk_half d; int8_t qs[32]; } rk_block_q8_0;			/* w = d q */
typedef struct { rk_half d, dmin; uint8_t scales[12], qs[128]; } rk_block_q4_k;	/* 8 groups of 32: w = d sc q - dmin mn; 6-bit sc, mn */
typedef struct { rk_half d, dmin; uint8_t scales[12], qh[32], qs[128]; } rk_block_q5_k;
typedef struct { uint8_t ql[128], qh[64]; int8_t scales[16]; rk_half d; } rk_block_q6_k; /* 16 groups of 16: w = d sc (q - 32) */

_Static_assert(sizeof(rk_block_q4_0) == 18, "q4_0");
_Static_assert(sizeof(rk_block_q4_1) == 20, "q4_1");
_Static_assert(sizeof(rk_block_q5_0) == 22, "q5_0");
_Static_assert(sizeof(rk_block_q5_1) == 24, "q5_1");
_Static_assert(sizeof(rk_block_q8_0) == 34, "q8_0");
_Static_assert(sizeof(rk_block_q4_k) == 144, "q4_k");
_Static_assert(sizeof(rk_block_q5_k) == 176, "q5_k");
_Static_assert(sizeof(rk_block_q6_k) == 210, "q6_k");

/* Weights per block, 0 for a type that this program does not read. */
int rk_type_block_len(enum rk_type t);
/* Bytes per block. */
size_t rk_type_block_bytes(enum rk_type t);
/* Bytes of a row of n weights (n a multiple of the block length). */
size_t rk_type_row_bytes(enum rk_type t, int64_t n);
/* "Q4_1", "F32", ...; "type 29" style text (static storage) for others. */
const char *rk_type_name(enum rk_type t);

float rk_half_to_float(rk_half h);
rk_half rk_float_to_half(float f);	/* round to nearest, ties to even, as VCVTPS2PH does */

/* dst[0..n) = the weights of one row; n a multiple of the block length. */
void rk_dequant_row(enum rk_type t, const void *src, float *dst, int64_t n);

#endif
