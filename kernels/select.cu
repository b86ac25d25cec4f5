/* select.cu: which positions a KV head keeps: group, pool, exact top-K, on the whole grid.
 *
 * The same rules and ties as src/cpu/select.c, so that equal scores give equal rings: of equal scores the lower
 * position is kept, and a ring lies in ascending order of score, of equals the higher position first.  Exact rules:
 * docs/POLICIES.md.
 *
 * `pool` counts scores into bins, `pick` puts what may be among the best into the places of its bin, `rank` counts
 * within bins.  The order in which atomics come decides where a key lies in its bin, and nothing else.
 */
#include "attn.cuh"

#define THREADS 256
#define BINS RK_CUDA_BINS	/* 64 to an octave, the highest scores first; 2^11 and more in the first, 2^-53 and less in the last */
#define OWN (BINS / THREADS)	/* bins of a thread of pick */
#define HIGHEST ((127 + 11) << 6)	/* exponent and first 6 bits of the fraction of 2^11 */

static_assert(BINS % (4 * THREADS) == 0, "pick reads four bins at a time");

__device__ __forceinline__ static int bin_of(uint32_t score)
{
	int bin = HIGHEST - 1 - (int)(score >> 17);

	return bin < 0 ? 0 : bin < BINS ? bin : BINS - 1;
}

/* What a selection is made from. */
struct rk_scored {
	int n_pos;		/* of a first selection, from s.sum or colsum; 0: of the running step where the layer selects, from s.score */
	const float *colsum;	/* [n_kv][ld] instead of the heads' scores, or NULL */
	int ld;
	bool glanced;		/* max and inv_sum of the step's scores are yet to be joined from the chunks */
};

/* How a ring of k is made up: `top` of the first n positions by score, after them the first `sinks` and the most recent. */
struct quota { int n, top, k, sinks; };
__device__ __forceinline__ static quota quota_of(const rk_lane_cache &c, int n_pos)
{
	const rk_policy &p = c.pol;
	int k = c.budget < n_pos ? c.budget : n_pos, recent = c.budget / 2 < k ? c.budget / 2 : k;

	if (p.score == RK_SCORE_ATTENTION)
		return { n_pos, k, k, 0 };
	if (p.score == RK_SCORE_ACCUMULATED)
		return { n_pos - recent, k - recent, k, 0 };
	return { 0, 0, k, p.sinks < k ? p.sinks : k };
}

/* max[g], inv_sum[g] of a group's heads, in shared memory [2][group], joined from the chunks where that is left to be done. */
__device__ __forceinline__ static void join_group(float *max, const rk_dims &m, const rk_dev_lane *lane, const rk_scratch &s,
                                                  bool glanced, int kv)
{
	int warp = (int)threadIdx.x / RK_WARP, h0 = kv * m.group, n = rk_full_chunks(lane->c, lane->c.n_pos);
	float *inv_sum = max + m.group;

	for (int g = warp; g < m.group; g += THREADS / RK_WARP) {
		rk_joined j = rk_join(m, s, kv, g, glanced ? n : 0);
		if (threadIdx.x % RK_WARP == 0) {
			max[g] = glanced ? j.max : s.max[h0 + g];
			inv_sum[g] = glanced ? 1 / j.sum : s.inv_sum[h0 + g];
		}
	}
	__syncthreads();
	for (int g = (int)threadIdx.x; glanced && blockIdx.x == 0 && g < m.group; g += THREADS) {
		s.max[h0 + g] = max[g];
		s.inv_sum[h0 + g] = inv_sum[g];
	}
}

/* One score per position: column sums, or the group's heads' sums or probabilities together. */
__device__ __forceinline__ static float grouped(const rk_dims &m, const rk_policy &p, const rk_scratch &s, const rk_scored &from,
                                                const float *max, int kv, int t)
{
	const float *inv_sum = max + m.group;
	int n = p.group == RK_GROUP_FIRST ? 1 : m.group;
	float v = 0;

	if (from.colsum)
		return from.colsum[(size_t)kv * (size_t)from.ld + (size_t)t];
	for (int g = 0; g < n; g++) {
		size_t at = (size_t)(kv * m.group + g) * (size_t)s.ld + (size_t)t;
		float x = from.n_pos ? s.sum[at] : rk_exp2(s.score[at] - max[g]) * inv_sum[g];
		v = g == 0 ? x : p.group == RK_GROUP_MAX ? fmaxf(v, x) : v + x;	/* mean and sum rank alike */
	}
	return v;
}

/* Shared memory of pool: counters, max and inv_sum of the group, a tile and its margins. */
static size_t pool_shared(int group, int pool)
{
	return (BINS + 2 * (size_t)group + THREADS + (size_t)pool) * sizeof(float);
}

/* pool: pooled[kv][t] = max over |u - t| <= pool/2 of the group's score at u; and how many scores lie in each bin.
 * Reference: rk_attn_group and pool of src/cpu/select.c.  hist [n_kv][BINS] is found zeroed; what pick and rank add up is
 * zeroed here.
 * grid: (blocks, n_kv), each block taking every gridDim.x-th tile of 256 positions; shared: pool_shared.  Counts in shared
 * memory, then adds those that are not 0.  Reads group floats per position, writes one: bound by L2, since split has just
 * written them. */
__global__ void pool(rk_dims m, const rk_dev_lane *lane, const rk_dev_out *out, rk_scratch s, rk_scored from)
{
	const rk_policy &p = lane->c.pol;
	int kv = (int)blockIdx.y, n = from.n_pos ? from.n_pos : lane->c.n_pos, step = (int)gridDim.x * THREADS,
		first = (int)(blockIdx.x * THREADS + threadIdx.x), half = from.colsum ? 0 : p.pool / 2;
	int *count = (int *)rk_shared(), *hist = s.hist + kv * BINS;
	float *max = (float *)(count + BINS), *tile = max + 2 * m.group;

	if (!from.n_pos && !out->refresh)
		return;
	quota q = quota_of(lane->c, n);
	for (int i = first; i < BINS; i += step)
		s.fill[kv * BINS + i] = 0;
	for (int i = first; i <= n / 32; i += step)
		s.seen[(size_t)kv * (size_t)(s.ld / 32) + (size_t)i] = 0;
	for (int i = (int)threadIdx.x; i < BINS; i += THREADS)
		count[i] = 0;
	if (from.n_pos)
		__syncthreads();
	else
		join_group(max, m, lane, s, from.glanced, kv);
	for (int t0 = first - (int)threadIdx.x; t0 < n && p.score != RK_SCORE_POSITION; t0 += step) {
		for (int i = (int)threadIdx.x; i < THREADS + 2 * half; i += THREADS) {
			int t = t0 - half + i;
			/* scores are never below 0 */
			tile[i] = t >= 0 && t < n ? grouped(m, p, s, from, max, kv, t) : 0;
		}
		__syncthreads();
		float v = 0;
		int t = t0 + (int)threadIdx.x;
		for (int i = 0; i <= 2 * half; i++)
			v = fmaxf(v, tile[(int)threadIdx.x + i]);
		if (t < n)
			s.pooled[(size_t)kv * (size_t)s.ld + (size_t)t] = v;
		if (t < q.n)
			atomicAdd(count + bin_of(__float_as_uint(v)), 1);
		__syncthreads();
	}
	for (int i = (int)threadIdx.x; i < BINS; i += THREADS)
		if (count[i])
			atomicAdd(hist + i, count[i]);
}

/* base[BINS + 1], in shared memory: how many scores lie in better bins; at its end, in all. */
__device__ __forceinline__ static void sum_bins(int *base, int *part, const int *hist)
{
	int own[OWN], sum = 0, all, me = (int)threadIdx.x * OWN;

#pragma unroll
	for (int i = 0; i < OWN; i += 4) {
		uint4 four = *(const uint4 *)(hist + me + i);
		own[i] = (int)four.x, own[i + 1] = (int)four.y, own[i + 2] = (int)four.z, own[i + 3] = (int)four.w;
		sum += own[i] + own[i + 1] + own[i + 2] + own[i + 3];
	}
	int better = rk_block_scan(sum, part, &all);
#pragma unroll
	for (int i = 0; i < OWN; i++) {
		base[me + i] = better;
		better += own[i];
	}
	if (me + OWN == BINS)
		base[BINS] = all;
	__syncthreads();
}

/* pick: key [n_kv][ld] = (score, ~position) of all positions in the bins that hold one of the best, bin after bin; and
 * which positions the ring holds.  base [n_kv][BINS + 1]: where the bins begin; n_key: where the last of these ends.
 * grid: (blocks, n_kv); shared: base, and an int per warp.  Every block sums the bins for itself, from 16 KB.  Reads a
 * float per position, writes 8 bytes per key: bound by L2 and latency. */
__global__ void pick(rk_dims m, int layer, const rk_dev_lane *lane, const rk_dev_out *out, rk_scratch s, int n_pos)
{
	const rk_partial &r = lane->c.part;
	int kv = (int)blockIdx.y, step = (int)gridDim.x * THREADS, first = (int)(blockIdx.x * THREADS + threadIdx.x);
	int *base = (int *)rk_shared(), *fill = s.fill + kv * BINS;
	size_t ring = rk_ring_at(m, layer, kv), row = (size_t)kv * (size_t)s.ld;
	uint32_t *seen = s.seen + (size_t)kv * (size_t)(s.ld / 32);

	if (!n_pos && !out->refresh)
		return;
	quota q = quota_of(lane->c, n_pos ? n_pos : lane->c.n_pos);
	for (int i = first; i < r.count[ring]; i += step)
		if (i != r.next[ring]) {	/* the slot that is written next was evicted last */
			int held = r.pos[ring * (size_t)r.cap + (size_t)i];
			atomicOr(seen + held / 32, 1u << (held % 32));
		}
	sum_bins(base, base + BINS + 1, s.hist + kv * BINS);
	for (int i = (int)threadIdx.x; blockIdx.x == 0 && i < BINS; i += THREADS) {
		s.base[kv * (BINS + 1) + i] = base[i];
		if (base[i] < q.top && q.top <= base[i + 1])
			s.n_key[kv] = s.base[kv * (BINS + 1) + i + 1] = base[i + 1];
	}
	for (int t = first; t < q.n; t += step) {
		uint32_t u = __float_as_uint(s.pooled[row + (size_t)t]);
		int bin = bin_of(u);
		if (base[bin] < q.top)
			s.key[row + (size_t)(base[bin] + atomicAdd(fill + bin, 1))] = (uint64_t)u << 32 | (uint32_t)~t;
	}
}

/* rank: the new ring of a KV head but for its keys and values.  Reference: ref_topk; rank, churn and rk_attn_choose of
 * src/cpu/select.c.
 * grid: (blocks, n_kv), a thread per key, which counts those of its bin that come before it; shared: an int per warp.
 * Compares each key with its bin, some 0.05 % of n, all threads of a warp with the same at the same time: bound by issue. */
__global__ void rank(rk_dims m, int layer, const rk_dev_lane *lane, rk_dev_out *out, rk_scratch s, int n_pos)
{
	const rk_lane_cache &c = lane->c;
	const rk_partial &r = c.part;
	int kv = (int)blockIdx.y, step = (int)gridDim.x * THREADS, first = (int)(blockIdx.x * THREADS + threadIdx.x);
	int n_all = n_pos ? n_pos : c.n_pos, fresh = 0, all;
	size_t ring = rk_ring_at(m, layer, kv), to = ring * (size_t)r.cap, row = (size_t)kv * (size_t)s.ld;
	const uint32_t *seen = s.seen + (size_t)kv * (size_t)(s.ld / 32);
	const uint64_t *key = s.key + row;

	if (!n_pos && !out->refresh)
		return;
	quota q = quota_of(c, n_all);
	auto put = [&](int slot, int pos) {
		r.pos[to + (size_t)slot] = pos;
		if (r.acc)
			r.acc[to + (size_t)slot] = s.pooled[row + (size_t)pos];
		fresh += !(seen[pos / 32] >> (pos % 32) & 1);
	};
	for (int i = first, n = q.top ? s.n_key[kv] : 0; i < n; i += step) {
		const int *bin = s.base + kv * (BINS + 1) + bin_of((uint32_t)(key[i] >> 32));
		int before = bin[0];
		for (int j = bin[0]; j < bin[1]; j++)
			before += key[j] > key[i];
		if (before < q.top)
			put(q.top - 1 - before, (int)~(uint32_t)key[i]);
	}
	for (int i = q.top + first; i < q.k; i += step)	/* what leaves after the sinks is the oldest */
		put(i, i < q.sinks ? i : n_all - q.k + i);
	for (int i = first; i < BINS; i += step)
		s.hist[kv * BINS + i] = 0;
	rk_block_scan(fresh, (int *)rk_shared(), &all);
	if (threadIdx.x == 0 && !n_pos)
		atomicAdd(out->fresh + layer, all);
	rk_stamp(out);
	if (first != 0)
		return;
	r.count[ring] = q.k;
	int oldest = c.pol.sinks < c.budget ? c.pol.sinks : c.budget - 1;
	r.next[ring] = c.pol.evict != RK_EVICT_OLDEST || q.k < c.budget ? q.k : oldest;
}

/* gather: keys and values of the ring from the prompt, which goes after the first selection: only of lanes that do not keep
 * the full cache.  Reference: gather of src/cpu/select.c.
 * grid: (blocks, n_kv); a warp per row of keys and values, 16 bytes per lane.  Reads and writes 2 K d bytes(T) per KV
 * head; rows of 256 bytes lie scattered: memory bound. */
template<typename T>
__global__ void gather(rk_dims m, int layer, const rk_dev_lane *lane)
{
	const rk_partial &r = lane->c.part;
	int kv = (int)blockIdx.y, warp = (int)threadIdx.x / RK_WARP, lane_id = (int)threadIdx.x % RK_WARP;
	int first = (int)blockIdx.x * (THREADS / RK_WARP) + warp, stride = (int)gridDim.x * (THREADS / RK_WARP),
		words = (int)((size_t)m.d * sizeof(T) / sizeof(uint4));
	size_t ring = rk_ring_at(m, layer, kv), base = ring * (size_t)r.cap, d = (size_t)m.d;
	rk_span<T> from = rk_rows<T>(m, lane->prompt.k, lane->prompt.v, layer, kv, lane->prompt.cap, 0);

	for (int i = first; i < r.count[ring]; i += stride) {
		size_t at = (size_t)r.pos[base + (size_t)i] * d, to = (base + (size_t)i) * d;
		const uint4 *k = (const uint4 *)(from.k + at), *v = (const uint4 *)(from.v + at);
		uint4 *rk = (uint4 *)((T *)r.k + to), *rv = (uint4 *)((T *)r.v + to);
		for (int w = lane_id; w < 2 * words; w += RK_WARP)
			if (w < words)
				rk[w] = k[w];
			else
				rv[w - words] = v[w - words];
	}
}

static unsigned tiles(const rk_cuda *c)
{
	int all = c->s.ld / THREADS, fill = rk_cuda_fill(c);
	return (unsigned)(all < fill ? all : fill);
}

static void refill(rk_cuda *c, int layer, int slot, int pool_width, const rk_scored &from)
{
	const rk_dev_lane *lane = &c->step->lane[slot];
	rk_dev_out *out = &c->out[slot];
	const size_t ints = (THREADS / RK_WARP) * sizeof(int);
	dim3 grid(tiles(c), (unsigned)c->dims.n_kv);

	RK_LAUNCH(pool, grid, THREADS, pool_shared(c->dims.group, pool_width), c->stream, c->dims, lane, out, c->s, from);
	RK_LAUNCH(pick, grid, THREADS, (BINS + 1) * sizeof(int) + ints, c->stream, c->dims, layer, lane, out, c->s, from.n_pos);
	RK_LAUNCH(rank, grid, THREADS, ints, c->stream, c->dims, layer, lane, out, c->s, from.n_pos);
}

void rk_cuda_refill(rk_cuda *c, int layer, int slot, const rk_policy *pol, bool glanced)
{
	refill(c, layer, slot, pol->pool, { 0, NULL, 0, glanced });
}

/* sum_probabilities: sum[h][t] += p of the first n positions.  grid: (blocks, n_head). */
__global__ void sum_probabilities(rk_scratch s, int n)
{
	size_t row = (size_t)blockIdx.y * (size_t)s.ld;

	for (int t = (int)(blockIdx.x * THREADS + threadIdx.x); t < n; t += (int)gridDim.x * THREADS)
		s.sum[row + (size_t)t] += rk_exp2(s.score[row + (size_t)t] - s.max[blockIdx.y]) * s.inv_sum[blockIdx.y];
}

/* set_reference: q_ref of a layer, from the last token's query.  One block. */
__global__ void set_reference(rk_dims m, int layer, const rk_dev_lane *lane, const float *q)
{
	rk_compared(rk_reference(m, layer, lane->c), m, lane->c.pol, q);
}

/* s.sum [n_head][ld] = probabilities of the last n_q queries, summed over them in order. */
static void sum_window(rk_cuda *c, int layer, int slot, int n_pos, const float *q, int n_q)
{
	const rk_dims m = c->dims;

	if (!rk_cuda_ok(c, cudaMemsetAsync(c->s.sum, 0, (size_t)m.n_head * (size_t)c->s.ld * sizeof(float), c->stream),
	                "cudaMemsetAsync"))
		return;
	for (int j = 0; j < n_q; j++, q += m.n_head * m.d) {
		int n = n_pos - n_q + 1 + j;
		rk_cuda_attend(c, layer, slot, q, NULL, RK_ATTEND_SCORES, n);
		RK_LAUNCH(sum_probabilities, dim3(tiles(c), (unsigned)m.n_head), THREADS, 0, c->stream, c->s, n);
	}
}

void rk_cuda_select(rk_backend *b, int layer, rk_lane_cache *lane, int n_pos, const float *q_pre, const float *q,
                    int n_q, const float *colsum)
{
	rk_cuda *c = (rk_cuda *)b;
	const rk_policy *p = &lane->pol;

	if (!rk_cuda_alive(c) || p->score == RK_SCORE_NONE)
		return;
	int slot = rk_cuda_slot(c, lane);
	if (p->score == RK_SCORE_ATTENTION)
		sum_window(c, layer, slot, n_pos, q, n_q);
	refill(c, layer, slot, p->pool, { n_pos, p->score == RK_SCORE_ACCUMULATED ? colsum : NULL, lane->prompt->cap, false });
	if (!lane->keeps_full && b->kv_bytes == 4)
		RK_LAUNCH(gather<float>, dim3(tiles(c), (unsigned)c->dims.n_kv), THREADS, 0, c->stream, c->dims, layer, &c->step->lane[slot]);
	else if (!lane->keeps_full)
		RK_LAUNCH(gather<uint16_t>, dim3(tiles(c), (unsigned)c->dims.n_kv), THREADS, 0, c->stream, c->dims, layer, &c->step->lane[slot]);
	if (p->refresh != RK_REFRESH_QUERY || !q_pre)	/* none when a ring is made anew in mid-session */
		return;
	const float *newest = q + (size_t)(n_q - 1) * (size_t)(c->dims.n_head * c->dims.d);
	RK_LAUNCH(set_reference, 1, THREADS, 0, c->stream, c->dims, layer, &c->step->lane[slot],
	          rk_policy_query_post(p) ? newest : q_pre);
}
