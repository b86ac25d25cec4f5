/* cpu.h: inside of the CPU backend; not seen by the rest of the program.
 *
 * One set of operations (matmul.c, pointwise.c, sketch.c, attn_prefill.c, attn_decode.c, select.c), written once for a team of threads
 * (team.h) over tables of small kernels.  The tables exist per instruction set (lin_scalar.c, lin_avx2.c, lin_avx512.c for the linear part,
 * attn_scalar.c, attn_avx2.c, attn_avx512.c for attention) and are picked once at open.
 * Work is cut into fixed pieces that do not depend on the number of threads, and partial results are merged in a fixed order.
 */
#ifndef RK_CPU_CPU_H
#define RK_CPU_CPU_H

#include "backend/backend.h"
#include "cpu/attn.h"
#include "cpu/lin.h"
#include "cpu/team.h"

enum rk_isa { RK_ISA_SCALAR, RK_ISA_AVX2, RK_ISA_AVX512 };

typedef struct rk_cpu {
	rk_backend b;			/* first: an rk_backend* of this backend is an rk_cpu* */
	rk_backend_cfg cfg;
	enum rk_isa isa;
	bool vnni;			/* AVX-512 VNNI is there too */
	const rk_lin_kernels *lin;
	const rk_attn_kernels *attn;
	rk_team *team;			/* b.n_thread workers */
	void *lin_scratch;		/* owned by matmul.c: rk_cpu_lin_init / rk_cpu_lin_free */
	void *attn_scratch;		/* owned by attn_*.c and select.c: rk_cpu_attn_init / rk_cpu_attn_free */
} rk_cpu;

/* The best set that CPU and operating system support. */
enum rk_isa rk_cpu_best_isa(void);

/* Operations; signatures and meaning in backend.h. */
void rk_cpu_embed(rk_backend *b, float *x, const int32_t *ids, int n);
void rk_cpu_rmsnorm(rk_backend *b, float *y, const float *x, const rk_tensor *w, int n, int dim, float eps);
void rk_cpu_matmul(rk_backend *b, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n, enum rk_phase phase);
void rk_cpu_rope(rk_backend *b, float *out, const float *x, const int32_t *pos, int n, int n_head);
void rk_cpu_kv_append(rk_backend *b, rk_store *st, int layer, int at, const float *k, const float *v, int n);
void rk_cpu_key_mean(rk_backend *b, rk_store *st, int layer);
void rk_cpu_sketch(rk_backend *b, rk_store *st, int layer, int at, int n);
void rk_cpu_silu_mul(rk_backend *b, float *y, const float *gate, const float *up, int n, int dim);
void rk_cpu_add(rk_backend *b, float *x, const float *y, int n, int dim);
void rk_cpu_logits_stats(rk_backend *b, const float *logits, int n, float *lse, int32_t *argmax);
float rk_cpu_logits_kl(rk_backend *b, const float *p, float p_lse, const float *q, float q_lse);
bool rk_cpu_ring_copies(const rk_policy *pol, bool keeps_full);
void rk_cpu_attn_prefill(rk_backend *b, int layer, const rk_store *prompt, const rk_store *tail, int tail_len,
                         const float *q, int n, float *out, float *colsum);
void rk_cpu_select(rk_backend *b, int layer, rk_lane_cache *lane, int n_pos, const float *q_pre, const float *q, int n_q,
                   const float *colsum);
void rk_cpu_attn_decode(rk_backend *b, int layer, rk_lane_cache *const lanes[], int n_lane, const float *q_pre, const float *q,
                        const float *k, const float *v, float *out, rk_step_report *const reports[]);

/* Scratch, sized from cfg and hparams, allocated once; each adds what it took to b.scratch_bytes. */
int rk_cpu_lin_init(rk_cpu *c, rk_err *e);
void rk_cpu_lin_free(rk_cpu *c);
int rk_cpu_attn_init(rk_cpu *c, rk_err *e);
void rk_cpu_attn_free(rk_cpu *c);

/* 64-byte aligned, zeroed, size rounded up to 64; free() it.  NULL with e naming the size. */
void *rk_cpu_alloc(size_t bytes, rk_err *e);

#endif
