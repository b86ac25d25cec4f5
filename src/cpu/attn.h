/* attn.h: inside of attention on the CPU: the kernels per instruction set, and what prefill, decode and selection
 * share.
 *
 * Scores are kept in units of log2: queries are scaled by log2(e)/sqrt(head_dim) once, and a probability is exp2(s -
 * m) / l with m the row's maximum and l its sum.  Work is cut at fixed places (key blocks and chunks counted from the
 * start of a store or ring), partial results are merged in order, and a row never depends on its neighbours, so bits
 * depend neither on threads nor on prefill chunks nor on other lanes.  The scratch belongs to the engine thread; the
 * workers of the team have a rk_attn_thread each.
 *
 * Full cache: position p is element p - tail.pos0 of the tail when keeps_full and p >= tail.pos0, else element p of
 * the prompt.
 */
#ifndef RK_CPU_ATTN_H
#define RK_CPU_ATTN_H

#include "backend/backend.h"
#include "cpu/sketch.h"

#define RK_ATTN_BLOCK 64	/* keys per tile of the prefill: 16 KB of keys at head_dim 64 */
#define RK_ATTN_ROWS 24		/* query rows (query x head) per pass over a tile: its scores stay in L1 */
#define RK_ATTN_QUERIES 64	/* queries per tile: what the conversion of a tile is spread over */
#define RK_ATTN_CHUNK 256	/* positions per partial result of a decode step: 64 KB of f16 at head_dim 64 */
#define RK_ATTN_MIN_EXP2 (-126.0f)	/* exp2 below this is taken as 0: no denormals */

/* d: head_dim, any length.  Caches are rows of d f16 (rk_half) or f32 elements, unaligned; other arrays are f32. */
typedef struct rk_attn_kernels {
	/* kt [d][RK_ATTN_BLOCK] = the keys [n][d] transposed, zero in columns n and up; n <= RK_ATTN_BLOCK. */
	void (*load_kt)(float *kt, const void *k, int n, int d, bool f16);
	/* vt [RK_ATTN_BLOCK][d_pad] = the values [n][d], zero elsewhere. */
	void (*load_v)(float *vt, const void *v, int n, int d, int d_pad, bool f16);
	/* c [m][n] = c * scale[row] + a b, or a b when scale is NULL.  a [m][k], b [k][n]; ld*: row strides; n is a
	 * multiple of 16. Every element is one chain over k in order, whatever m and n are. */
	void (*gemm)(float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
	             int m, int n, int k);
	/* Largest of s[n], n >= 1. */
	float (*max)(const float *s, int n);
	/* How many of s[n] have bits of at least `bits`, as unsigned numbers: the order of non-negative floats. */
	int (*count_ge)(const float *s, int n, uint32_t bits);
	/* Those themselves, in order, and their indexes; returns how many.  to, at [n], written beyond what is returned. */
	int (*find_ge)(float *to, int32_t *at, const float *s, int n, uint32_t bits);
	/* p[i] = exp2(s[i] - m); returns their sum. */
	float (*exp_sum)(float *p, const float *s, int n, float m);
	/* p[i] += exp2(s[i] - m) * w. */
	void (*add_exp)(float *p, const float *s, int n, float m, float w);
	/* p[i] = the largest over n_head heads of exp2(s[h][i] - m[h] - l[h]). */
	void (*largest_exp)(float *p, const float *s, int lds, int n_head, int n, const float *m, const float *l);
	/* s[h][t] = q[h] . k[t] for n_head queries [n_head][d] and keys [n][d]; lds: row stride of s.  Reads each key
	 * once. */
	void (*score)(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16);
	/* The same of keys that lie scattered, k [n] rows of d. */
	void (*score_rows)(float *s, int lds, const float *q, int n_head, const char *const *k, int n, int d, bool f16);
	/* The same from sketches of the keys. */
	rk_sketch_score_fn *sketch;
	/* o[h] = sum over t of p[h][t] v[t]; o [n_head][d], values [n][d]; ldp: row stride of p. */
	void (*mix)(float *o, const float *p, int ldp, int n_head, const void *v, int n, int d, bool f16);
	void (*mix_rows)(float *o, const float *p, int ldp, int n_head, const char *const *v, int n, int d, bool f16);
} rk_attn_kernels;

extern const rk_attn_kernels rk_attn_scalar, rk_attn_avx2, rk_attn_avx512;
/* isa: enum rk_isa.  The caller has checked that the machine has it. */
const rk_attn_kernels *rk_attn_kernels_for(int isa);
/* Of the AVX2 table, used by AVX-512 too: a tile is loaded once per RK_ATTN_QUERIES queries. */
void rk_attn_avx2_load_kt(float *kt, const void *k, int n, int d, bool f16);

/* Rows of one KV head that lie one after the other: [n][head_dim]. */
typedef struct rk_attn_span {
	const char *k, *v;
	rk_sketch_rows sketch;	/* where they are scored instead of k */
	int n;
} rk_attn_span;

/* What one KV head attends in a decode step: prompt and tail, a choice of their rows, or its ring. */
typedef struct rk_attn_job {
	rk_attn_span span[2];
	const int32_t *pos;	/* the positions attended of the two spans, in this order; NULL: all */
	int n;			/* positions attended */
	int bits;		/* of the sketches that are scored; 0: the keys */
	int first_item;		/* chunks before this job's */
} rk_attn_job;

/* Of one worker of the team. */
typedef struct rk_attn_thread {
	float *kt;	/* [head_dim][RK_ATTN_BLOCK] */
	float *vt;	/* [RK_ATTN_BLOCK][d_pad] */
	float *s;	/* [RK_ATTN_ROWS][RK_ATTN_BLOCK] */
	float *o;	/* [RK_ATTN_QUERIES * G][d_pad] */
	float *p;	/* [G][RK_ATTN_CHUNK] */
	const char **k_row, **v_row;	/* [RK_ATTN_CHUNK] */
	float *grouped;	/* [ld_pos] */
	float *pooled;	/* [ld_pos] */
	uint64_t *key;	/* [3][ld_pos] of a top-K */
	int32_t *pos;	/* [ld_pos] a selection */
	uint64_t *seen;	/* [ld_pos / 64] set of positions, empty between uses */
} rk_attn_thread;

typedef struct rk_attn_scratch {
	int d_pad;		/* head_dim rounded up to 16 */
	int ld_pos;		/* max_pos rounded up to 64 */
	/* prefill; a row is a query and one head of the group, ordered by query, then head */
	float *q_rows;		/* [n_kv_head][max_rows * G][d_pad] scaled queries */
	float *row_max, *row_sum;	/* [n_kv_head][max_rows * G] */
	/* decode and selection, one lane at a time */
	rk_attn_job *job;	/* [n_kv_head], and one more whose first item ends the last */
	rk_attn_job *ring_job;	/* the same for rings that are chosen while `job` runs; its items follow those of `job` */
	float *q;		/* [n_head][head_dim] scaled queries */
	rk_sketch_query *sketch_q;	/* [n_head] the same for sketches */
	float *score;		/* [n_head][ld_pos] of what was last attended */
	float *mean;		/* [n_head][ld_pos] probabilities summed over the window of a first selection */
	float *max, *inv_sum, *log_sum;	/* [n_head] of `score`; log_sum: log2 of the sum */
	float *part_max, *part_sum;	/* [items][G] */
	float *part_out;	/* [items][G][head_dim]; an item is a chunk of a job */
	float *churn;		/* [n_kv_head] */
	_Atomic int *n_done;	/* [n_kv_head] pieces of a refresh that are done */
	float *full;		/* [n_head][head_dim] attention over everything, while that of the selection is taken */
	float *compared;	/* [n_head][head_dim] */
	rk_attn_thread *thread;	/* [n_thread] */
	void *block;		/* all of the above but `thread` */
} rk_attn_scratch;

typedef struct rk_cpu rk_cpu;

/* What a query is multiplied by. */
float rk_attn_scale(const rk_hparams *hp);
/* The first n rows of (layer, KV head) in keys and values [n_layer][n_kv_head][cap][head_dim]. */
rk_attn_span rk_attn_rows(const rk_cpu *c, const void *k, const void *v, int layer, int kv, int cap, int n);
/* How many of the first n_pos positions lie in the prompt store. */
int rk_attn_in_prompt(const rk_lane_cache *lane, int n_pos);
/* s->q = the queries [n_head][head_dim] scaled. */
void rk_attn_scale_queries(rk_cpu *c, const float *q);
/* Jobs over the first n_pos positions of the full cache / over all used slots of the rings. */
void rk_attn_plan_full(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos);
/* Jobs that only score, over the sketches of the full cache; queries must have been scaled. */
void rk_attn_plan_glance(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos);
void rk_attn_plan_ring(rk_cpu *c, int layer, const rk_lane_cache *lane);
/* s->ring_job: over the slots that the rings will have when they are chosen from the whole of the full cache. */
void rk_attn_plan_chosen(rk_cpu *c, int layer, const rk_lane_cache *lane);
/* The KV head that an item belongs to. */
int rk_attn_kv_of(const rk_attn_job *jobs, int item);
/* Scores and sums of one chunk and, with mix, its output. */
void rk_attn_chunk(rk_cpu *c, const rk_attn_job *jobs, int item, int worker, bool mix);
/* Merges a KV head's chunks, which are done: max, inv_sum, log_sum and, unless out [n_head][head_dim] is NULL, its rows of out. */
void rk_attn_merge(rk_cpu *c, const rk_attn_job *jobs, int kv, float *out);
/* Runs s->job: scores, what rk_attn_merge gives and, unless out is NULL, the attention output [n_head][head_dim]. */
void rk_attn_run(rk_cpu *c, float *out);
/* out [rk_query_len] = what p compares of one token's queries [n_head][head_dim] before and after RoPE. */
void rk_attn_compared(const rk_hparams *hp, const rk_policy *p, float *out, const float *q_pre, const float *q);
/* The layer's row of lane->q_ref. */
float *rk_attn_reference(const rk_hparams *hp, int layer, const rk_lane_cache *lane);

/* The k <= n highest of score[n] (all >= 0; of equals the lower position wins) as positions in ascending order of
 * score, of equals the higher position first: the order in which a ring gives them up.  tmp: [3][n]. */
void rk_attn_topk(const rk_attn_kernels *kern, const float *score, int n, int k, int32_t *pos, uint64_t *tmp);
/* out [n] = the probabilities of the heads of a KV head, as one figure per position, from their last scores. */
void rk_attn_group(const rk_cpu *c, const rk_policy *pol, int kv, int n, float *out);
/* Chooses what the ring of one KV head holds of the first n_pos positions of the full cache.  score [n_pos]: for
 * RK_SCORE_ATTENTION probabilities, for RK_SCORE_ACCUMULATED their sums, else not read.
 * Returns the share of the new entries that the ring did not hold before. */
float rk_attn_choose(rk_cpu *c, rk_attn_thread *t, int layer, rk_lane_cache *lane, int kv, const float *score, int n_pos);
/* Copies the keys and values of what was chosen into a ring, RK_ATTN_CHUNK of its slots (counted from 0): all of them, or
 * those that an attention over the ring is about to read. */
void rk_attn_gather_chunk(const rk_cpu *c, int layer, const rk_lane_cache *lane, int kv, int chunk, int n_pos);
void rk_attn_gather(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos);
/* Slot to write after `slot` in a ring of evict=oldest, which has the sinks in front. */
int rk_attn_oldest_after(const rk_lane_cache *lane, int slot);

#endif
