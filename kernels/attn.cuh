/* attn.cuh: how kernels find keys and values, and the units of scores.
 *
 * Scores are in units of log2: queries are scaled by log2(e)/sqrt(d) as they are loaded, and a probability is exp2(s -
 * m) / l with m the row's maximum and l its sum.  Keys are cut into chunks and tiles counted from the start of a store
 * or ring, whatever the
 * grid is, and partial results are merged in that order: bits depend neither on the GPU nor on other lanes.
 */
#ifndef RK_KERNELS_ATTN_CUH
#define RK_KERNELS_ATTN_CUH

#include "cuda.h"

#include <math.h>

#define RK_LOG2_E 1.44269504088896340736f

/* Rows [n][d] that lie one after the other. */
template<typename T> struct rk_span { const T *k, *v; int n; };

__device__ __forceinline__ float rk_scale(int d) { return RK_LOG2_E / sqrtf((float)d); }

/* exp2, 0 where the CPU says 0. */
__device__ __forceinline__ float rk_exp2(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

/* rk_sketch_dim and rk_sketch_key_bytes for kernels. */
__host__ __device__ __forceinline__ int rk_sketch_width(int d)
{
	int dim = 32;

	while (dim < d)
		dim *= 2;
	return dim;
}
__device__ __forceinline__ int64_t rk_sketch_row_bytes(int d, int bits)
{
	return rk_sketch_width(d) * bits / 8 + (int64_t)sizeof(uint16_t);
}

__device__ __forceinline__ size_t rk_ring_at(const rk_dims &m, int layer, int kv)
{
	return (size_t)layer * (size_t)m.n_kv + (size_t)kv;
}

template<typename T>
__device__ __forceinline__ rk_span<T> rk_rows(const rk_dims &m, const void *k, const void *v, int layer, int kv,
                                              int cap, int n)
{
	size_t at = rk_ring_at(m, layer, kv) * (size_t)cap * (size_t)m.d;
	return { (const T *)k + at, (const T *)v + at, n };
}

/* rk_policy_query_post, rk_policy_query_cat and rk_query_len for kernels. */
__device__ __forceinline__ bool rk_query_post(const rk_policy &p)
{
	return p.query == RK_QUERY_POST || p.query == RK_QUERY_POST_CAT;
}
__device__ __forceinline__ int rk_compared_len(const rk_dims &m, const rk_policy &p)
{
	return p.query == RK_QUERY_PRE_CAT || p.query == RK_QUERY_POST_CAT ? m.n_head * m.d : m.d;
}
__device__ __forceinline__ float *rk_reference(const rk_dims &m, int layer, const rk_lane_cache &c)
{
	return c.q_ref + (size_t)layer * (size_t)rk_compared_len(m, c.pol);
}

/* out [rk_compared_len] = what a policy compares of the queries q [n_head][d]: their mean in the order of the heads, or
 * all of them. */
__device__ __forceinline__ void rk_compared(float *out, const rk_dims &m, const rk_policy &p, const float *q)
{
	bool all = rk_compared_len(m, p) != m.d;

	for (int j = (int)threadIdx.x; j < rk_compared_len(m, p); j += (int)blockDim.x) {
		float sum = 0;
		for (int h = 0; h < m.n_head && !all; h++)
			sum += q[h * m.d + j];
		out[j] = all ? q[j] : sum / (float)m.n_head;
	}
}

/* How many of the first n_pos positions lie in the prompt store. */
__device__ __forceinline__ int rk_in_prompt(const rk_lane_cache &c, int n_pos)
{
	return c.keeps_full && c.tail.pos0 < n_pos ? c.tail.pos0 : n_pos;
}

__device__ __forceinline__ int rk_chunks(int n) { return (n + RK_CUDA_CHUNK - 1) / RK_CUDA_CHUNK; }

/* By a warp: row [n] of scores goes to score (unless NULL) and becomes exp2(row - its maximum); maximum and sum by lane 0. */
__device__ __forceinline__ void rk_chunk_sum(float *row, float *score, int n, float *max_out, float *sum_out)
{
	int lane = (int)threadIdx.x % RK_WARP;
	float max = -INFINITY, sum = 0;

	for (int r = lane; r < n; r += RK_WARP) {
		max = fmaxf(max, row[r]);
		if (score)
			score[r] = row[r];
	}
	max = rk_team_max(max);
	for (int r = lane; r < n; r += RK_WARP) {
		row[r] = rk_exp2(row[r] - max);
		sum += row[r];
	}
	sum = rk_team_sum(sum);
	if (lane == 0) {
		*max_out = max;
		*sum_out = sum;
	}
}

/* Is the stand-in due to be renewed, which takes attention over everything? */
__host__ __device__ __forceinline__ bool rk_renews(const rk_lane_cache &c)
{
	return c.pol.tail && (c.force_full || c.step % c.pol.tail == 0);
}

/* What a KV head attends: prompt and tail, or its ring. */
template<typename T> struct rk_job {
	rk_span<T> a, b;
	int n_chunk;
};
template<typename T>
__device__ __forceinline__ rk_job<T> rk_job_of(const rk_dims &m, int layer, int kv, const rk_dev_lane *l, bool ring,
                                               int n_pos)
{
	const rk_partial &r = l->c.part;
	rk_job<T> j = {};
	if (ring) {
		j.a = rk_rows<T>(m, r.k, r.v, layer, kv, r.cap, r.count[rk_ring_at(m, layer, kv)]);
	} else {
		int n = rk_in_prompt(l->c, n_pos);
		j.a = rk_rows<T>(m, l->prompt.k, l->prompt.v, layer, kv, l->prompt.cap, n);
		j.b = rk_rows<T>(m, l->c.tail.k, l->c.tail.v, layer, kv, l->c.tail.cap, n_pos - n);
	}
	j.n_chunk = rk_chunks(j.a.n) + rk_chunks(j.b.n);
	return j;
}

/* One call of attn_prefill. */
struct rk_prefill_call {
	int layer, n_prompt, prompt_cap, tail_len, tail_cap;
	int n;		/* queries */
	int max_rows;	/* rows per KV head in row_max, row_sum */
	const void *pk, *pv, *tk, *tv;
	const float *q;	/* [n][n_head][d] */
	float *out;	/* [n][n_head][d] */
	float *colsum;	/* [n_kv][tail_cap] */
};

/* Row `row` of a KV head, a query and one head of the group, in q or out. */
__device__ __forceinline__ float *rk_row_of(const rk_dims &m, float *q, int kv, int row)
{
	return q + ((size_t)(row / m.group) * (size_t)m.n_head + (size_t)(kv * m.group + row % m.group)) * (size_t)m.d;
}

/* attn_mma.cu: false where it has no kernel for this head size. */
bool rk_cuda_flash_mma(rk_cuda *c, const rk_prefill_call &a);

#endif
