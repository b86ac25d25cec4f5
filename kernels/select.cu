/* select.cu: which positions a KV head keeps: group, pool, exact top-K, and the gathering of a ring from the full
 * cache.
 *
 * The same rules and ties as src/cpu/select.c, so that equal scores give equal rings: of equal scores the lower
 * position is kept, and a ring lies in ascending order of score, of equals the higher position first.  Exact rules:
 * docs/POLICIES.md.
 */
#include "attn.cuh"

#define THREADS 256
#define RANK_THREADS 512
#define DIGITS 16	/* of 4 bits: a counter per thread and digit, so that counting needs no atomics and keeps order */

/* One score per position from the heads of a group; s->sum, or probabilities from s->score. */
__device__ __forceinline__ static float grouped(const rk_dims &m, const rk_policy &p, const rk_scratch &s,
                                                bool from_sum, int kv, int t)
{
	int h0 = kv * m.group, n = p.group == RK_GROUP_FIRST ? 1 : m.group;
	float v = 0;

	for (int g = 0; g < n; g++) {
		size_t at = (size_t)(h0 + g) * (size_t)s.ld + (size_t)t;
		float x = from_sum ? s.sum[at] : rk_exp2(s.score[at] - s.max[h0 + g]) * s.inv_sum[h0 + g];
		v = g == 0 ? x : p.group == RK_GROUP_MAX ? fmaxf(v, x) : v + x;	/* mean and sum rank alike */
	}
	return v;
}

/* pool: pooled[kv][t] = max over |u - t| <= pool/2 of the group's score at u.  Reference: rk_attn_group and pool of
 * src/cpu/select.c.
 * grid: (blocks, n_kv), each block taking every gridDim.x-th tile of 256 positions; shared: the tile and its margins.
 * Reads group floats per position, writes one; memory bound, from L2 as a rule: split has just written them. */
__global__ void pool(rk_dims m, const rk_dev_lane *lane, const rk_dev_out *out, rk_scratch s, int n_pos, bool from_sum,
                     bool always)
{
	const rk_policy &p = lane->c.pol;
	int kv = (int)blockIdx.y, half = p.pool / 2, n = n_pos ? n_pos : lane->c.n_pos;
	float *tile = (float *)rk_shared();

	if (!always && !out->refresh)
		return;
	for (int t0 = (int)blockIdx.x * THREADS; t0 < n; t0 += (int)gridDim.x * THREADS) {
		for (int i = (int)threadIdx.x; i < THREADS + 2 * half; i += THREADS) {
			int t = t0 - half + i;
			/* scores are never below 0 */
			tile[i] = t >= 0 && t < n ? grouped(m, p, s, from_sum, kv, t) : 0;
		}
		__syncthreads();
		float v = 0;
		for (int i = 0; i <= 2 * half; i++)
			v = fmaxf(v, tile[(int)threadIdx.x + i]);
		if (t0 + (int)threadIdx.x < n)
			s.pooled[(size_t)kv * (size_t)s.ld + (size_t)(t0 + (int)threadIdx.x)] = v;
		__syncthreads();
	}
}

/* ---- rank: by one block per KV head ---- */

struct block_memory {
	int *count;	/* [DIGITS][RANK_THREADS] */
	int *part;	/* [RANK_THREADS / RK_WARP] */
	int *total;	/* [DIGITS] */
};
#define RANK_SHARED ((DIGITS * RANK_THREADS + RANK_THREADS / RK_WARP + DIGITS) * sizeof(int))

/* total[digit] = the sum over threads of count[digit][.]. */
__device__ __forceinline__ static void sum_digits(const block_memory &b)
{
	int warp = (int)threadIdx.x / RK_WARP, lane = (int)threadIdx.x % RK_WARP, sum = 0;

	__syncthreads();
	for (int i = lane; i < RANK_THREADS; i += RK_WARP)
		sum += b.count[warp * RANK_THREADS + i];
	for (int x = RK_WARP / 2; x; x /= 2)
		sum += __shfl_xor_sync(RK_FULL_WARP, sum, x);
	if (lane == 0)
		b.total[warp] = sum;
	__syncthreads();
}

/* The bits of the k-th highest of score[n] >= 0, found digit by digit from the top; *n_equal: how many of that value
 * are taken. */
__device__ __forceinline__ static uint32_t threshold(const block_memory &b, const float *score, int n, int k,
                                                     int *n_equal)
{
	uint32_t found = 0;
	int left = k;

	for (int shift = 28; shift >= 0; shift -= 4) {
		for (int d = 0; d < DIGITS; d++)
			b.count[d * RANK_THREADS + (int)threadIdx.x] = 0;
		for (int i = (int)threadIdx.x; i < n; i += RANK_THREADS) {
			uint32_t u = __float_as_uint(score[i]);
			if (((u ^ found) >> shift) < DIGITS)	/* the digits above agree */
				b.count[(u >> shift & 15) * RANK_THREADS + threadIdx.x]++;
		}
		sum_digits(b);
		int d = DIGITS - 1;
		for (; d > 0 && b.total[d] < left; d--)
			left -= b.total[d];
		found |= (uint32_t)d << shift;
		__syncthreads();
	}
	*n_equal = left;
	return found;
}

/* key[k] = the k chosen of score[n], highest position first, each (bits of the score, position). */
__device__ __forceinline__ static void collect(const block_memory &b, const float *score, int n, int k, uint64_t *key)
{
	int n_equal, piece = (n + RANK_THREADS - 1) / RANK_THREADS, t0 = (int)threadIdx.x * piece,
		t1 = t0 + piece < n ? t0 + piece : n;
	int above = 0, equal = 0, all;
	uint32_t limit = threshold(b, score, n, k, &n_equal);

	for (int t = t0; t < t1; t++) {
		uint32_t u = __float_as_uint(score[t]);
		above += u > limit;
		equal += u == limit;
	}
	/* the lowest positions of the limit's value go in */
	int take = n_equal - rk_block_scan(equal, b.part, &all);
	take = take < 0 ? 0 : take < equal ? take : equal;
	int at = rk_block_scan(above + take, b.part, &all);
	for (int t = t0; t < t1; t++) {
		uint32_t u = __float_as_uint(score[t]);
		if (u > limit || (u == limit && take-- > 0))
			key[k - 1 - at++] = (uint64_t)u << 32 | (uint32_t)t;
	}
	__syncthreads();
}

/* Sorts key[k] by its upper 32 bits, ascending and stable; tmp [k].  Least digit first; a thread owns a run of keys. */
__device__ __forceinline__ static void sort_by_score(const block_memory &b, uint64_t *key, uint64_t *tmp, int k)
{
	int piece = (k + RANK_THREADS - 1) / RANK_THREADS, i0 = (int)threadIdx.x * piece,
		i1 = i0 + piece < k ? i0 + piece : k;

	for (int shift = 32; shift < 64; shift += 4) {
		for (int d = 0; d < DIGITS; d++)
			b.count[d * RANK_THREADS + (int)threadIdx.x] = 0;
		for (int i = i0; i < i1; i++)
			b.count[(int)(key[i] >> shift & 15) * RANK_THREADS + (int)threadIdx.x]++;
		__syncthreads();
		/* DIGITS counters that lie together, in the order of the scan */
		int *mine = b.count + (int)threadIdx.x * DIGITS, sum = 0, all;
		for (int i = 0; i < DIGITS; i++)
			sum += mine[i];
		int before = rk_block_scan(sum, b.part, &all);
		for (int i = 0; i < DIGITS; i++) {
			int here = mine[i];
			mine[i] = before;
			before += here;
		}
		__syncthreads();
		for (int i = i0; i < i1; i++)
			tmp[b.count[(int)(key[i] >> shift & 15) * RANK_THREADS + (int)threadIdx.x]++] = key[i];
		__syncthreads();
		uint64_t *swap = key;	/* an even number of passes ends in key */
		key = tmp;
		tmp = swap;
	}
}

/* pos[k] = the k highest of score[n] in the order in which a ring gives them up. */
__device__ __forceinline__ static void top_k(const block_memory &b, const float *score, int n, int k, int32_t *pos,
                                             uint64_t *key, int ld)
{
	if (k == 0)
		return;
	collect(b, score, n, k, key);
	sort_by_score(b, key, key + ld, k);
	for (int i = (int)threadIdx.x; i < k; i += RANK_THREADS)
		pos[i] = (int32_t)(uint32_t)key[i];
}

/* The positions to keep into pos, what leaves first in front; how many. */
__device__ __forceinline__ static int choose(const block_memory &b, const rk_lane_cache &c, const rk_scratch &s, int kv,
                                             const float *score, int n, int32_t *pos)
{
	const rk_policy &p = c.pol;
	int k = c.budget < n ? c.budget : n, recent, sinks;
	uint64_t *key = s.key + (size_t)kv * 2 * (size_t)s.ld;

	if (p.score == RK_SCORE_ATTENTION) {
		top_k(b, score, n, k, pos, key, s.ld);
	} else if (p.score == RK_SCORE_ACCUMULATED) {
		recent = c.budget / 2 < k ? c.budget / 2 : k;
		top_k(b, score, n - recent, k - recent, pos, key, s.ld);
		for (int i = (int)threadIdx.x; i < recent; i += RANK_THREADS)
			pos[k - recent + i] = n - recent + i;
	} else {	/* in order of position: what leaves after the sinks is the oldest */
		sinks = p.sinks < k ? p.sinks : k;
		for (int i = (int)threadIdx.x; i < k; i += RANK_THREADS)
			pos[i] = i < sinks ? i : n - k + i;
	}
	__syncthreads();
	return k;
}

/* In every thread: share of pos[n] that the ring does not hold.  Its slot `next`, where used, was evicted last. */
__device__ __forceinline__ static float churn(const block_memory &b, uint32_t *seen, int n_pos, const int32_t *held,
                                              int count, int next, const int32_t *pos, int n)
{
	int fresh = 0, all;

	for (int i = (int)threadIdx.x; i <= n_pos / 32; i += RANK_THREADS)
		seen[i] = 0;
	__syncthreads();
	for (int i = (int)threadIdx.x; i < count; i += RANK_THREADS)
		if (i != next)
			atomicOr(seen + held[i] / 32, 1u << (held[i] % 32));
	__syncthreads();
	for (int i = (int)threadIdx.x; i < n; i += RANK_THREADS)
		fresh += !(seen[pos[i] / 32] >> (pos[i] % 32) & 1);
	rk_block_scan(fresh, b.part, &all);
	return (float)all / (float)n;
}

/* rank: the new ring of a KV head but for its keys and values.  Reference: ref_topk; rank, churn and rk_attn_refill of
 * src/cpu/select.c. score: [n_kv][ld_score] f32.  grid: n_kv; block: 16 warps; shared: RANK_SHARED.
 * Radix select over 8 digits and radix sort of the K chosen: reads n floats 10 times and moves K 8-byte keys 8 times,
 * all from L2, on n_kv SMs: bound by the one SM's L2 bandwidth (docs/CUDA.md has the estimate). */
__global__ void __launch_bounds__(RANK_THREADS, 1) rank(rk_dims m, int layer, const rk_dev_lane *lane,
                                                     const rk_dev_out *out, rk_scratch s,
                                                     const float *score, int ld_score, int n_pos, bool always)
{
	const rk_lane_cache &c = lane->c;
	const rk_partial &r = c.part;
	int kv = (int)blockIdx.x, n_all = n_pos ? n_pos : c.n_pos;
	int *memory = (int *)rk_shared();
	block_memory b = { memory, memory + DIGITS * RANK_THREADS,
	                  memory + DIGITS * RANK_THREADS + RANK_THREADS / RK_WARP };
	size_t ring = rk_ring_at(m, layer, kv), base = ring * (size_t)r.cap;
	int32_t *pos = s.pos + (size_t)kv * (size_t)s.ld;

	if (!always && !out->refresh)
		return;
	score += (size_t)kv * (size_t)ld_score;
	int n = choose(b, c, s, kv, score, n_all, pos);
	float replaced = churn(b, s.seen + (size_t)kv * (size_t)(s.ld / 32), n_all, r.pos + base, r.count[ring],
	                       r.next[ring], pos, n);
	__syncthreads();
	for (int i = (int)threadIdx.x; i < n; i += RANK_THREADS) {
		r.pos[base + (size_t)i] = pos[i];
		if (r.acc)
			r.acc[base + (size_t)i] = score[pos[i]];
	}
	if (threadIdx.x != 0)
		return;
	s.churn[kv] = replaced;
	r.count[ring] = n;
	int first = c.pol.sinks < c.budget ? c.pol.sinks : c.budget - 1;
	r.next[ring] = c.pol.evict != RK_EVICT_OLDEST || n < c.budget ? n : first;
}

/* gather: keys and values of the ring from the full cache, at the positions that rank wrote.  Reference: gather of
 * src/cpu/select.c.
 * grid: (blocks, n_kv); a warp per row of keys and values, 16 bytes per lane.  Reads and writes 2 K d bytes(T) per KV
 * head; rows of 256 bytes lie scattered: memory bound. */
template<typename T>
__global__ void gather(rk_dims m, int layer, const rk_dev_lane *lane, const rk_dev_out *out, int n_pos, bool always)
{
	const rk_lane_cache &c = lane->c;
	const rk_partial &r = c.part;
	int kv = (int)blockIdx.y, warp = (int)threadIdx.x / RK_WARP, lane_id = (int)threadIdx.x % RK_WARP,
		n_all = n_pos ? n_pos : c.n_pos;
	size_t ring = rk_ring_at(m, layer, kv), base = ring * (size_t)r.cap, d = (size_t)m.d;

	if (!always && !out->refresh)
		return;
	int in_prompt = rk_in_prompt(c, n_all), words = (int)(d * sizeof(T) / sizeof(uint4));
	rk_span<T> p = rk_rows<T>(m, lane->prompt.k, lane->prompt.v, layer, kv, lane->prompt.cap, 0);
	rk_span<T> t = rk_rows<T>(m, c.tail.k, c.tail.v, layer, kv, c.tail.cap, 0);
	int first = (int)blockIdx.x * (THREADS / RK_WARP) + warp, stride = (int)gridDim.x * (THREADS / RK_WARP);
	for (int i = first; i < r.count[ring]; i += stride) {
		int pos = r.pos[base + (size_t)i];
		const T *k = pos < in_prompt ? p.k + (size_t)pos * d : t.k + (size_t)(pos - in_prompt) * d;
		const T *v = pos < in_prompt ? p.v + (size_t)pos * d : t.v + (size_t)(pos - in_prompt) * d;
		uint4 *rk = (uint4 *)((T *)r.k + (base + (size_t)i) * d),
			*rv = (uint4 *)((T *)r.v + (base + (size_t)i) * d);
		for (int w = lane_id; w < 2 * words; w += RK_WARP)
			if (w < words)
				rk[w] = ((const uint4 *)k)[w];
			else
				rv[w - words] = ((const uint4 *)v)[w - words];
	}
}

static unsigned tiles(const rk_cuda *c)
{
	int all = c->s.ld / THREADS, fill = 4 * c->n_sm / c->dims.n_kv + 1;
	return (unsigned)(all < fill ? all : fill);
}

void rk_cuda_refill(rk_cuda *c, int layer, int slot, const rk_policy *pol, int n_pos, bool from_sum,
                    const float *colsum, bool always)
{
	const rk_dev_lane *lane = &c->step->lane[slot];
	const rk_dev_out *out = &c->out[slot];
	dim3 grid(tiles(c), (unsigned)c->dims.n_kv);
	const float *score = colsum ? colsum : c->s.pooled;
	int ld = colsum ? c->step_host->lane[slot].prompt.cap : c->s.ld;

	if (pol->score == RK_SCORE_ATTENTION)
		RK_LAUNCH(pool, grid, THREADS, (size_t)(THREADS + pol->pool) * sizeof(float), c->stream, c->dims, lane,
		          out, c->s, n_pos, from_sum, always);
	RK_LAUNCH(rank, c->dims.n_kv, RANK_THREADS, RANK_SHARED, c->stream, c->dims, layer, lane, out, c->s, score, ld,
	          n_pos, always);
	if (c->b.kv_bytes == 4)
		RK_LAUNCH(gather<float>, grid, THREADS, 0, c->stream, c->dims, layer, lane, out, n_pos, always);
	else
		RK_LAUNCH(gather<uint16_t>, grid, THREADS, 0, c->stream, c->dims, layer, lane, out, n_pos, always);
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
	rk_cuda_refill(c, layer, slot, p, n_pos, true, p->score == RK_SCORE_ACCUMULATED ? colsum : NULL, true);
	if (p->refresh != RK_REFRESH_QUERY || !q_pre)	/* none when a ring is made anew in mid-session */
		return;
	const float *newest = q + (size_t)(n_q - 1) * (size_t)(c->dims.n_head * c->dims.d);
	RK_LAUNCH(set_reference, 1, THREADS, 0, c->stream, c->dims, layer, &c->step->lane[slot],
	          rk_policy_query_post(p) ? newest : q_pre);
}
