/* aid_ref_lin.h: the linear operations of backend.h in plain double precision: the specification that src/cpu and
 * kernels/ are tested against.  Also makes tensors of any type, and a model around them, out of a seed.
 *
 * Each matmul gives with the result y the sum of magnitudes `mag` that rounding errors scale with.
 */
#ifndef RK_TESTS_AID_REF_LIN_H
#define RK_TESTS_AID_REF_LIN_H

#include "backend/backend.h"

#define AID_U 0x1p-24	/* relative error of one f32 rounding */

/* xorshift64*; every test seeds its own. */
typedef struct aid_rng { uint64_t s; } aid_rng;
uint32_t aid_u32(aid_rng *r);
float aid_uniform(aid_rng *r);	/* in [-1, 1) */

/* Random weights of about unit size: every bit pattern of the packed quants, sane scales.  free() t->data. */
rk_tensor aid_tensor(aid_rng *r, enum rk_type t, int64_t n_row, int64_t n_col);
/* A model with these hyper-parameters and embedding table and no layers: what opening a backend needs.
 * rope_freq: theta^(-2j/rope_dim); aid_model_free releases it and, if any, the table's data. */
rk_model aid_model(int n_embd, int n_head, int n_kv_head, int head_dim, int rope_dim, int n_ff, rk_tensor tok_embd);
void aid_model_free(rk_model *m);

/* y[i][r] = W[r] . x[i]; mag[i][r] = sum |W[r][j] x[i][j]|. */
void ref_matmul(double *y, double *mag, const rk_tensor *w, const float *x, int n);
/* The same with x replaced by d q in groups of 32 (d = max|x|/127, q = x * (127/max|x|) to nearest even, in f32).
 * mag counts a weight d q + m as |d q| + |m|.  quant[i][r] = what the replacement can change: sum |W[r][j]| d / 2. */
void ref_matmul_q8(double *y, double *mag, double *quant, const rk_tensor *w, const float *x, int n);
void ref_embed(double *x, const rk_tensor *w, const int32_t *ids, int n);
void ref_rmsnorm(double *y, const float *x, const float *w, int n, int dim, double eps);
void ref_rope(double *out, const float *x, const int32_t *pos, int n, int n_head, const rk_hparams *hp);
void ref_silu_mul(double *y, const float *gate, const float *up, int n);
void ref_logits_stats(const float *x, int n_vocab, double *lse, int32_t *argmax);

#endif
