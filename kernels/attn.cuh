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

/* A kernel of a layer's attention is done, or nearly so: its first block is. */
__device__ __forceinline__ void rk_stamp(rk_dev_out *out)
{
	if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0)
		out->t_end = rk_clock_ns();
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

/* Chunks of the full cache. */
__device__ __forceinline__ int rk_full_chunks(const rk_lane_cache &c, int n_pos)
{
	int n = rk_in_prompt(c, n_pos);

	return rk_chunks(n) + rk_chunks(n_pos - n);
}

/* By a warp: maximum and sum of what n chunks left of head g of a group, in every lane. */
struct rk_joined { float max, sum; };
__device__ __forceinline__ rk_joined rk_join(const rk_dims &m, const rk_scratch &s, int kv, int g, int n)
{
	size_t first = (size_t)kv * (size_t)s.max_chunk * (size_t)m.group + (size_t)g;
	int lane = (int)threadIdx.x % RK_WARP;
	rk_joined j = { -INFINITY, 0 };

#pragma unroll 4
	for (int i = lane; i < n; i += RK_WARP)
		j.max = fmaxf(j.max, s.part_max[first + (size_t)(i * m.group)]);
	j.max = rk_team_max(j.max);
#pragma unroll 4
	for (int i = lane; i < n; i += RK_WARP)
		j.sum += s.part_sum[first + (size_t)(i * m.group)] * rk_exp2(s.part_max[first + (size_t)(i * m.group)] - j.max);
	j.sum = rk_team_sum(j.sum);
	return j;
}

/* Is the stand-in due to be renewed, which takes attention over everything? */
__host__ __device__ __forceinline__ bool rk_renews(const rk_lane_cache &c)
{
	return c.pol.tail && (c.force_full || c.step % c.pol.tail == 0);
}

/* What a KV head attends: the full cache, prompt and tail; or its ring, which is a list of positions in the full cache of a
 * lane that keeps that, and else has rows of its own. */
template<typename T> struct rk_job {
	rk_span<T> a, b;	/* rows 0 .. a.n - 1, and those that follow */
	const int32_t *pos;	/* [n] the rows to attend, in this order; NULL: all */
	int n, n_chunk;		/* n: rows to attend */
};
template<typename T>
__device__ __forceinline__ rk_job<T> rk_job_of(const rk_dims &m, int layer, int kv, const rk_dev_lane *l, bool ring,
                                               int n_pos)
{
	const rk_lane_cache &c = l->c;
	const rk_partial &r = c.part;
	size_t at = rk_ring_at(m, layer, kv);
	int held = ring ? r.count[at] : 0, in_prompt = rk_in_prompt(c, n_pos);

	if (ring && !c.keeps_full)
		return { rk_rows<T>(m, r.k, r.v, layer, kv, r.cap, held), {}, NULL, held, rk_chunks(held) };
	rk_span<T> a = rk_rows<T>(m, l->prompt.k, l->prompt.v, layer, kv, l->prompt.cap, in_prompt),
		b = rk_rows<T>(m, c.tail.k, c.tail.v, layer, kv, c.tail.cap, n_pos - in_prompt);
	if (ring)
		return { a, b, r.pos + at * (size_t)r.cap, held, rk_chunks(held) };
	return { a, b, NULL, n_pos, rk_full_chunks(c, n_pos) };
}

/* The part of a job's rows that makes a chunk; a chunk of the full cache lies in one store. */
struct rk_piece { int first, n; };
template<typename T> __device__ __forceinline__ rk_piece rk_piece_of(const rk_job<T> &j, int chunk)
{
	int in_a = j.pos ? j.n_chunk : rk_chunks(j.a.n), first = chunk * RK_CUDA_CHUNK, end = j.pos ? j.n : j.a.n;

	if (chunk >= in_a) {
		first = j.a.n + (chunk - in_a) * RK_CUDA_CHUNK;
		end = j.n;
	}
	return { first, end - first < RK_CUDA_CHUNK ? end - first : RK_CUDA_CHUNK };
}

/* Where entry i of a job lies in the keys or, with b's and a's values, in the values. */
template<typename T>
__device__ __forceinline__ const T *rk_row_in(const rk_job<T> &j, const T *a, const T *b, int i, int d)
{
	int row = j.pos ? j.pos[i] : i;

	return row < j.a.n ? a + (size_t)row * (size_t)d : b + (size_t)(row - j.a.n) * (size_t)d;
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
