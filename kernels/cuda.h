/* cuda.h: inside of the CUDA backend: its state, and the operations of backend.h that the .cu files implement.
 *
 * One device, one stream, one engine thread.  Operations enqueue and return; the first error is kept in `error` and
 * returned by sync, after which operations do nothing.  A decode step is recorded as a CUDA graph per shape (step.cu);
 * what changes from step to step (tokens, positions, lanes) therefore lies in device memory, in `step`, and never in a
 * kernel's arguments.
 */
#ifndef RK_KERNELS_CUDA_H
#define RK_KERNELS_CUDA_H

#include "rk.h"
#include "weights.cuh"

#include <cublas_v2.h>

#define RK_CUDA_MAX_DIM 256	/* head_dim: a multiple of 8 up to this */
#define RK_CUDA_CHUNK 256	/* positions per partial result of a decode step */
#define RK_CUDA_BINS 4096	/* of scores, in a selection */
#define RK_CUDA_SLOT (RK_MAX_LANE + 1)	/* lanes of a step, and one for calls outside of a step */
#define RK_CUDA_GRAPH 16	/* step shapes kept */
#define RK_CUDA_TILE_BYTES (32u << 20)	/* dequantised weights per GEMM of the prefill */
#define RK_CUDA_WORKSPACE (32u << 20)	/* of cuBLAS */
#define RK_CUDA_MATVEC_ROWS 8	/* activations per read of a weight */

/* Sizes that most kernels need. */
typedef struct rk_dims { int n_head, n_kv, group, d; } rk_dims;

/* A lane in device memory. */
typedef struct rk_dev_lane {
	rk_lane_cache c;	/* as the engine has it; c.prompt is a host address and not used */
	rk_store prompt;	/* *c.prompt */
} rk_dev_lane;

/* What the kernels leave of a lane's step. */
typedef struct rk_dev_out {
	rk_step_report rep;	/* but for churn */
	int fresh[RK_MAX_LAYER];	/* how many of the layer's new rings, all together, were not in the old ones */
	int64_t ns_attn;	/* device clock, from decide to the last kernel, summed over the layers before this one */
	uint64_t t0, t_end;	/* of this layer */
	int refresh;		/* this layer's decision: it selects anew; vanilla always does */
} rk_dev_out;

/* All input of a step, in one copy. */
typedef struct rk_dev_step {
	int32_t ids[RK_MAX_LANE], pos[RK_MAX_LANE];
	rk_dev_lane lane[RK_CUDA_SLOT];
} rk_dev_step;

/* Device memory between kernels, one lane and layer at a time.  ld: max_pos rounded up to 256. */
typedef struct rk_scratch {
	int ld, max_chunk;	/* max_chunk: partial results per KV head */
	float *score;		/* [n_head][ld] q.k of what was last attended, in units of log2 */
	float *sum;		/* [n_head][ld] probabilities summed over the window of a first selection */
	float *pooled;		/* [n_kv][ld] */
	/* a selection between its kernels, see select.cu; hist is zero before and after */
	int *hist, *fill;	/* [n_kv][RK_CUDA_BINS] */
	int *base;		/* [n_kv][RK_CUDA_BINS + 1] */
	uint64_t *key;		/* [n_kv][ld] */
	int *n_key;		/* [n_kv] */
	uint32_t *seen;		/* [n_kv][ld / 32] positions of the ring before */
	float *part_max, *part_sum;	/* [n_kv][max_chunk][group] */
	float *part_out;	/* [n_kv][max_chunk][group][d] */
	float *max, *inv_sum;	/* [n_head] of `score` */
	float *ring_out;	/* [n_head][d] attention over the new ring while that over everything is the step's */
	float *compared;	/* [n_head][d] query of the running layer that is compared with the reference */
	float *row_max, *row_sum;	/* [n_kv][max_rows * group] of the last attn_prefill */
	float *trig;		/* [max_rows][rope_dim/2][2] cos, sin */
	int32_t *row_pos, *row_id;	/* [max_rows] */
	float *lse;		/* [max_rows] */
	int32_t *argmax;	/* [max_rows] */
	uint16_t *x_half;	/* [max_rows][longest row of a matrix]; none under exact */
	void *tile;		/* RK_CUDA_TILE_BYTES of f16, or f32 under exact */
} rk_scratch;

typedef struct rk_graph {
	int n;			/* lanes; 0: free */
	const rk_lane_cache *lane[RK_MAX_LANE];
	rk_policy pol[RK_MAX_LANE];
	bool keeps_full[RK_MAX_LANE], may_select[RK_MAX_LANE], renews[RK_MAX_LANE];
	cudaGraphExec_t exec;
} rk_graph;

typedef struct rk_cuda {
	rk_backend b;		/* first */
	rk_backend_cfg cfg;
	rk_dims dims;
	int device, n_sm;
	rk_err error;		/* the first one; code RK_OK: none */
	cudaStream_t stream;
	cublasHandle_t blas;
	void *workspace;
	rk_weights w;		/* device addresses; b.w points here */
	void *weights, *scratch;	/* the allocations behind w and s */
	float *rope_freq;	/* [rope_dim/2] device, at the end of weights */
	rk_scratch s;
	rk_dev_step *step, *step_host;	/* device, pinned */
	rk_dev_out *out, *out_host;	/* [RK_CUDA_SLOT] device, pinned */
	float *lse_host;		/* [max_rows] pinned */
	int32_t *argmax_host;		/* [max_rows] pinned */
	int32_t *row_pos;		/* [max_rows] host: what s.row_pos holds; -1: nothing */
	/* the step that runs, n_step = 0 outside of one */
	int n_step;
	const rk_lane_cache *lane[RK_MAX_LANE];
	bool may_select[RK_MAX_LANE];
	bool recording;
	rk_graph graph[RK_CUDA_GRAPH];
	int next_graph;		/* the one that is given up next */
} rk_cuda;

/* Keeps the first error.  Each returns whether the call went well. */
bool rk_cuda_ok(rk_cuda *c, cudaError_t r, const char *call);
bool rk_cuda_blas_ok(rk_cuda *c, cublasStatus_t r, const char *call);
/* false after an error: there is nothing to enqueue any more. */
inline bool rk_cuda_alive(const rk_cuda *c) { return c->error.code == RK_OK; }
/* Blocks per KV head that fill the GPU. */
inline int rk_cuda_fill(const rk_cuda *c) { return 4 * c->n_sm / c->dims.n_kv + 1; }

/* Copies a matrix to the device, sorted into planes; dst must hold rk_matrix_place bytes. */
int rk_cuda_tensor_put(rk_cuda *c, void *dst, const rk_tensor *src, rk_err *e);
size_t rk_cuda_tensor_bytes(const rk_tensor *t);

/* step.cu */
bool rk_cuda_step_begin(rk_backend *b, rk_lane_cache *const lanes[], int n, const int32_t *ids, const int32_t *pos);
void rk_cuda_step_end(rk_backend *b, rk_step_report *const reports[], int64_t ns_attn[]);
void rk_cuda_forget_graphs(rk_cuda *c);
/* The slot of a lane in step->lane: its own inside a step; outside, the last one, which is filled. */
int rk_cuda_slot(rk_cuda *c, const rk_lane_cache *lane);
/* Is it the tail of a lane of the running step?  Then decide appends to it. */
bool rk_cuda_stepping(const rk_cuda *c, const rk_store *st);
/* The layer's churn into rep, from what the kernels counted. */
void rk_cuda_churn(const rk_cuda *c, const rk_lane_cache *lane, const rk_dev_out *out, int layer, rk_step_report *rep);
/* Can the lane's next step select anew? */
bool rk_cuda_may_select(const rk_lane_cache *lane);

/* Operations; signatures and meaning in backend.h. */
void rk_cuda_embed(rk_backend *b, float *x, const int32_t *ids, int n);
void rk_cuda_rmsnorm(rk_backend *b, float *y, const float *x, const rk_tensor *w, int n, int dim, float eps);
void rk_cuda_matmul(rk_backend *b, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n,
                    enum rk_phase phase);
void rk_cuda_rope(rk_backend *b, float *out, const float *x, const int32_t *pos, int n, int n_head);
void rk_cuda_kv_append(rk_backend *b, rk_store *st, int layer, int at, const float *k, const float *v, int n);
void rk_cuda_key_mean(rk_backend *b, rk_store *st, int layer);
void rk_cuda_sketch(rk_backend *b, rk_store *st, int layer, int at, int n);
void rk_cuda_silu_mul(rk_backend *b, float *y, const float *gate, const float *up, int n, int dim);
void rk_cuda_add(rk_backend *b, float *x, const float *y, int n, int dim);
void rk_cuda_logits_stats(rk_backend *b, const float *logits, int n, float *lse, int32_t *argmax);
float rk_cuda_logits_kl(rk_backend *b, const float *p, float p_lse, const float *q, float q_lse);
void rk_cuda_attn_prefill(rk_backend *b, int layer, const rk_store *prompt, const rk_store *tail, int tail_len,
                          const float *q, int n,
                          float *out, float *colsum);
void rk_cuda_select(rk_backend *b, int layer, rk_lane_cache *lane, int n_pos, const float *q_pre, const float *q,
                    int n_q, const float *colsum);
void rk_cuda_attn_decode(rk_backend *b, int layer, rk_lane_cache *const lanes[], int n_lane, const float *q_pre,
                         const float *q,
                         const float *k, const float *v, float *out, rk_step_report *const reports[]);
/* cos and sin of the rows' angles, from s.row_pos: part of a step's recording. */
void rk_cuda_rope_table(rk_cuda *c, const int32_t *pos_dev, int n);

/* attn_decode.cu, glance.cu and select.cu share these.  attend: what the first n_pos positions (0: the lane's own n_pos) or the
 * ring give. */
enum rk_what {
	/* the full cache or the ring, as decided; scores only where a step attends its selection */
	RK_ATTEND_STEP,
	RK_ATTEND_NEW_RING,	/* the ring after a selection, else nothing */
	RK_ATTEND_RING,		/* the ring, whatever was decided */
	RK_ATTEND_SCORES,	/* scores, max and inv_sum over the full cache, whatever was decided; no output */
};
void rk_cuda_attend(rk_cuda *c, int layer, int slot, const float *q, float *out, enum rk_what what, int n_pos);
/* Query heads of a group that share a read (1, 2, 4, 8), and the grid of kernels that go through the chunks of all KV heads. */
int rk_cuda_heads_together(int group);
dim3 rk_cuda_chunk_grid(const rk_cuda *c, int heads);
/* Where the layer selects: scores over the sketches of the full cache, and maximum and sum of each chunk. */
void rk_cuda_glance(rk_cuda *c, int layer, int slot, int bits, const float *q);
/* The stand-in of policies with tail: its share of a new selection; then renews it, or adds it to out. */
void rk_cuda_weigh_rest(rk_cuda *c, int layer, int slot);
void rk_cuda_mix_rest(rk_cuda *c, int layer, int slot, float *out);
/* Where the layer selects: the new ring from the step's scores.  glanced: they are those of rk_cuda_glance. */
void rk_cuda_refill(rk_cuda *c, int layer, int slot, const rk_policy *pol, bool glanced);

#endif
