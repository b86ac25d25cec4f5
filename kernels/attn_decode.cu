/* attn_decode.cu: one decode step of a layer: decide, attend the full cache or the ring, keep the ring.
 *
 * RefreshKV (ACL 2025), algorithm 1, as src/cpu/attn_decode.c has it; exact rules: docs/POLICIES.md.  The decision
 * stays on the device: `decide` writes it, the kernels after it read it and find nothing to do where it went the other
 * way.  Lanes are taken one after the other and share the scratch.
 */
#include "sketch.cuh"

#define WARPS 8
#define THREADS (WARPS * RK_WARP)

__device__ __forceinline__ static double warp_sum(double v)
{
	for (int x = RK_WARP / 2; x; x /= 2)
		v += __shfl_xor_sync(RK_FULL_WARP, v, x);
	return v;
}

/* In every lane of a warp: cosine of a, b [n]; 0 where one of them is 0. */
__device__ __forceinline__ static float cosine(const float *a, const float *b, int n)
{
	double ab = 0, aa = 0, bb = 0;

	for (int i = (int)threadIdx.x % RK_WARP; i < n; i += RK_WARP) {
		ab += (double)a[i] * (double)b[i];
		aa += (double)a[i] * (double)a[i];
		bb += (double)b[i] * (double)b[i];
	}
	ab = warp_sum(ab);
	aa = warp_sum(aa);
	bb = warp_sum(bb);
	return aa > 0 && bb > 0 ? (float)(ab / sqrt(aa * bb)) : 0;
}

/* Is a selection due whatever the cosine is?  Vanilla counts as one that is never made. */
__device__ __forceinline__ static bool due_by_clock(const rk_lane_cache &c)
{
	if (c.pol.score == RK_SCORE_NONE)
		return true;
	return c.keeps_full && (c.force_full || rk_renews(c) ||
	                        (c.pol.refresh == RK_REFRESH_STRIDE && c.step % c.pol.stride == c.pol.stride - 1));
}

/* Bytes that the step reads in this layer, of keys and values of `row` bytes each. */
__device__ __forceinline__ static void count_bytes(rk_step_report *rep, const rk_dims &m, int layer, const rk_lane_cache &c, bool refresh,
                                                   int64_t row)
{
	bool renew = rk_renews(c), selected = c.pol.score != RK_SCORE_NONE && c.pol.attend == RK_ATTEND_SELECTED && !renew;
	int64_t keys = (int64_t)c.n_pos * m.n_kv, held = 0;

	if (!refresh)
		for (int kv = 0; kv < m.n_kv; kv++)
			held += c.part.count[rk_ring_at(m, layer, kv)];
	else if (renew || selected)
		held = (int64_t)(c.budget < c.n_pos ? c.budget : c.n_pos) * m.n_kv;
	if (refresh && !selected)
		rep->bytes_full += 2 * row * keys;
	else if (refresh)
		rep->bytes_score += keys * (c.pol.bits ? rk_sketch_row_bytes(m.d, c.pol.bits) : row);
	rep->bytes_partial += 2 * row * held;
}

/* The new token's k, v [n_kv][d] to the end of the tail, and its sketches.  Shared: rk_sketch_room per warp if sketched. */
template<typename T>
__device__ __forceinline__ static void tail_write(const rk_dims &m, int layer, const rk_lane_cache &c, const float *k,
                                                  const float *v, bool sketched)
{
	for (int i = (int)threadIdx.x; i < m.n_kv * m.d; i += (int)blockDim.x) {
		size_t row = rk_ring_at(m, layer, i / m.d) * (size_t)c.tail.cap + (size_t)c.tail.len,
			to = row * (size_t)m.d + (size_t)(i % m.d);
		rk_put((T *)c.tail.k + to, k[i]);
		rk_put((T *)c.tail.v + to, v[i]);
	}
	if (!sketched)
		return;
	__syncthreads();
	int warp = (int)threadIdx.x / RK_WARP;
	char *room = (char *)rk_shared() + (size_t)warp * rk_sketch_room(m.d);
	for (int kv = warp; kv < m.n_kv; kv += WARPS)
		rk_sketch_key<T>(m, c.tail, layer, kv, c.tail.len, room);
}

/* Slot to write after `slot` in a ring of evict=oldest, which has the sinks in front. */
__device__ __forceinline__ static int oldest_after(const rk_lane_cache &c, int slot)
{
	int first = c.pol.sinks < c.budget ? c.pol.sinks : c.budget - 1;

	return slot + 1 < c.budget ? slot + 1 : first;
}

/* Puts the new token into slot `next` of every ring; its k, v [n_kv][d] too, in the cache's type, where no full cache has
 * them.  Reference: ring_write and ring_advance of src/cpu/attn_decode.c. */
template<typename T>
__device__ __forceinline__ static void ring_write(const rk_dims &m, int layer, const rk_lane_cache &c, const float *k,
                                                  const float *v)
{
	const rk_partial &r = c.part;
	size_t ring0 = rk_ring_at(m, layer, 0);

	for (int i = (int)threadIdx.x; i < m.n_kv * m.d && !c.keeps_full; i += (int)blockDim.x) {
		size_t ring = ring0 + (size_t)(i / m.d),
			to = (ring * (size_t)r.cap + (size_t)r.next[ring]) * (size_t)m.d + (size_t)(i % m.d);
		rk_put((T *)r.k + to, k[i]);
		rk_put((T *)r.v + to, v[i]);
	}
	__syncthreads();	/* before count moves */
	for (int kv = (int)threadIdx.x; kv < m.n_kv; kv += (int)blockDim.x) {
		size_t ring = ring0 + (size_t)kv, slot = ring * (size_t)r.cap + (size_t)r.next[ring];
		int next = r.next[ring];
		r.pos[slot] = c.n_pos - 1;
		if (r.acc)
			r.acc[slot] = 0;
		if (next == r.count[ring])
			r.count[ring]++;
		if (c.pol.evict == RK_EVICT_NONE)
			r.next[ring] = r.count[ring];
		else if (c.pol.evict == RK_EVICT_LOWEST)	/* the slot after the newest holds the lowest */
			r.next[ring] = next == c.budget ? 0 : next + 1;
		else if (c.pol.evict == RK_EVICT_OLDEST)
			r.next[ring] = oldest_after(c, next);
	}
	__syncthreads();
}

/* decide: select anew or not, and then the reference query; the report; the new token enters the tail (in_step; else
 * kv_append and sketch have been there) and, on a partial step, the ring.  Reference: refreshes of src/cpu/attn_decode.c.
 * q_pre, q, compared [n_head][d], k, v [n_kv][d] f32.  One block; shared: see tail_write.  Mean in f32 by head, cosine in f64.  Some 10 KB
 * touched: bound by latency. */
template<typename T>
__global__ void decide(rk_dims m, int layer, const rk_dev_lane *lane, rk_dev_out *out, float *compared,
                       const float *q_pre, const float *q, const float *k, const float *v, bool in_step, bool sketched)
{
	const rk_lane_cache &c = lane->c;
	float cos = NAN;
	bool refresh = due_by_clock(c);

	if (threadIdx.x == 0) {
		out->ns_attn += (int64_t)(out->t_end - out->t0);
		out->t0 = rk_clock_ns();
	}
	if (in_step && c.keeps_full)
		tail_write<T>(m, layer, c, k, v, sketched);
	if (c.keeps_full && c.pol.score != RK_SCORE_NONE && c.pol.refresh == RK_REFRESH_QUERY) {
		rk_compared(compared, m, c.pol, rk_query_post(c.pol) ? q : q_pre);
		__syncthreads();
		if (c.step % c.pol.qc == c.pol.qc - 1) {
			cos = cosine(compared, rk_reference(m, layer, c), rk_compared_len(m, c.pol));
			refresh = refresh || cos < c.pol.s;
		}
		__syncthreads();
		for (int j = (int)threadIdx.x; refresh && j < rk_compared_len(m, c.pol); j += (int)blockDim.x)
			rk_reference(m, layer, c)[j] = compared[j];
	}
	if (!refresh)
		ring_write<T>(m, layer, c, k, v);
	if (threadIdx.x != 0)
		return;
	out->refresh = refresh;
	out->rep.kind[layer] = !refresh ? RK_STEP_PARTIAL : c.pol.bits && !rk_renews(c) ? RK_STEP_GLANCE : RK_STEP_FULL;
	out->rep.cos[layer] = cos;
	count_bytes(&out->rep, m, layer, c, refresh, (int64_t)m.d * (int64_t)sizeof(T));
}

/* What a call of split and merge has to do; false: nothing. */
struct task { bool ring, mix; int n_pos; };
__device__ __forceinline__ static bool task_of(task *t, const rk_dev_lane *lane, const rk_dev_out *out, int what,
                                               int n_pos)
{
	const rk_policy &p = lane->c.pol;

	*t = { false, false, n_pos ? n_pos : lane->c.n_pos };
	if (what == RK_ATTEND_SCORES)
		return true;
	t->ring = what == RK_ATTEND_RING || what == RK_ATTEND_NEW_RING || !out->refresh;
	t->mix = t->ring || p.score == RK_SCORE_NONE || p.attend == RK_ATTEND_FULL || rk_renews(lane->c);
	return what != RK_ATTEND_NEW_RING || out->refresh;
}

/* Shared memory of split: scores or probabilities [HB][RK_CUDA_CHUNK], then outputs [WARPS][HB][d]. */
static size_t split_shared(int heads, int d)
{
	return (size_t)heads * (RK_CUDA_CHUNK + WARPS * (size_t)d) * sizeof(float);
}

/* split: attention of up to HB heads of a group over chunks of RK_CUDA_CHUNK positions: per chunk and head the maximum
 * m, the sum l of exp2(s - m) and the output sum exp2(s - m) v.  Reference: ref_attend, with merge below.
 * q [n_head][d] f32; keys and values [n][d] f16 or f32, rows of two spans, all or those at a ring's positions; part_* in the
 * scratch; scores kept where a selection or an accumulator wants them.
 * grid: (as many as fill the GPU, n_kv, heads / HB), each block taking every gridDim.x-th chunk; block: 8 warps;
 * shared: split_shared.  A team of lanes reads a row, 16 bytes (f16) each; f32 sums: within a lane in order, then
 * butterflies, then warps in order.  Reads each key and value once for all heads of the group: 2 n d bytes(T) per KV
 * head; memory bound. */
template<typename T, int HB>
__global__ void __launch_bounds__(THREADS, HB * sizeof(T) == 2 ? 3 : 1) split(rk_dims m, int layer, const rk_dev_lane *lane, const rk_dev_out *out,
                                                  rk_scratch s, const float *q, int what, int n_pos)
{
	int kv = (int)blockIdx.y, g0 = (int)blockIdx.z * HB, heads = m.group - g0 < HB ? m.group - g0 : HB;
	int warp = (int)threadIdx.x / RK_WARP, lane_id = (int)threadIdx.x % RK_WARP, team = 1;
	float *p = (float *)rk_shared(), *o_warp = p + HB * RK_CUDA_CHUNK, qr[HB][8];
	task t;

	if (!task_of(&t, lane, out, what, n_pos))
		return;
	while (team * 8 < m.d)
		team *= 2;
	int teams = RK_WARP / team, my_team = lane_id / team, col = lane_id % team * 8;
	bool in = col < m.d;
	rk_job<T> job = rk_job_of<T>(m, layer, kv, lane, t.ring, t.n_pos);
	bool keep = what == RK_ATTEND_SCORES || lane->c.pol.score == RK_SCORE_ATTENTION ||
		lane->c.pol.score == RK_SCORE_ACCUMULATED;
	float scale = rk_scale(m.d);
#pragma unroll
	for (int h = 0; h < HB; h++)
		for (int i = 0; i < 8; i++)
			qr[h][i] = in && h < heads ? q[(kv * m.group + g0 + h) * m.d + col + i] * scale : 0;

	for (int chunk = (int)blockIdx.x; chunk < job.n_chunk; chunk += (int)gridDim.x) {
		rk_piece piece = rk_piece_of(job, chunk);
		int first = piece.first, n = piece.n;
		size_t part = ((size_t)kv * (size_t)s.max_chunk + (size_t)chunk) * (size_t)m.group + (size_t)g0;

		/* scores: a row per team */
#pragma unroll 4
		for (int base = warp * teams; base < n; base += WARPS * teams) {
			int r = base + my_team;
			float x[8] = {};
			if (in && r < n)
				rk_get8(x, rk_row_in(job, job.a.k, job.b.k, first + r, m.d) + col);
#pragma unroll
			for (int h = 0; h < HB; h++) {
				float dot = 0;
				for (int i = 0; i < 8; i++)
					dot += qr[h][i] * x[i];
				dot = rk_team_sum(dot, team);
				if (col == 0 && r < n)
					p[h * RK_CUDA_CHUNK + r] = dot;
			}
		}
		__syncthreads();
		/* a head per warp */
		if (warp < heads) {
			float *score = s.score + (size_t)(kv * m.group + g0 + warp) * (size_t)s.ld + first;
			rk_chunk_sum(p + warp * RK_CUDA_CHUNK, keep ? score : NULL, n, s.part_max + part + warp, s.part_sum + part + warp);
		}
		__syncthreads();
		if (t.mix) {
			float acc[HB][8] = {};
#pragma unroll 4
			for (int r = warp * teams + my_team; r < n; r += WARPS * teams) {
				float x[8] = {};
				if (in)
					rk_get8(x, rk_row_in(job, job.a.v, job.b.v, first + r, m.d) + col);
#pragma unroll
				for (int h = 0; h < HB; h++) {
					float w = h < heads ? p[h * RK_CUDA_CHUNK + r] : 0;
					for (int i = 0; i < 8; i++)
						acc[h][i] += w * x[i];
				}
			}
#pragma unroll
			for (int h = 0; h < HB; h++)
				for (int i = 0; i < 8; i++) {
					for (int x = team; x < RK_WARP; x *= 2)
						acc[h][i] += __shfl_xor_sync(RK_FULL_WARP, acc[h][i], x);
					if (in && my_team == 0)
						o_warp[(warp * HB + h) * m.d + col + i] = acc[h][i];
				}
			__syncthreads();
			for (int i = (int)threadIdx.x; i < heads * m.d; i += THREADS) {
				float sum = 0;
				for (int w = 0; w < WARPS; w++)
					sum += o_warp[w * HB * m.d + i];
				s.part_out[part * (size_t)m.d + (size_t)i] = sum;
			}
		}
		/* No barrier here: all have read p, and o_warp is written again only after two more. */
	}
}

/* merge: the chunks of a query head into its output, maximum and 1/sum.  Reference: ref_attend.
 * One block per head, 8 warps: columns side by side, chunks dealt to THREADS / d' slices and joined in order; shared: the
 * slices.  Reads (d + 2) floats per chunk: 1.6 % of what split reads at d = 128, group 4. */
template<typename T>
__global__ void merge(rk_dims m, int layer, const rk_dev_lane *lane, rk_dev_out *out, rk_scratch s, float *o,
                      int what, int n_pos)
{
	int head = (int)blockIdx.x, kv = head / m.group, g = head % m.group,
		wide = (m.d + RK_WARP - 1) / RK_WARP * RK_WARP;
	int slices = THREADS / wide, slice = (int)threadIdx.x / wide, j = (int)threadIdx.x % wide;
	float *slice_out = (float *)rk_shared(), acc = 0;
	task t;

	if (!task_of(&t, lane, out, what, n_pos))
		return;
	int n = rk_job_of<T>(m, layer, kv, lane, t.ring, t.n_pos).n_chunk;
	size_t first = (size_t)kv * (size_t)s.max_chunk * (size_t)m.group + (size_t)g;
	rk_joined all = rk_join(m, s, kv, g, n);	/* every warp for itself */
	if (threadIdx.x == 0) {
		s.max[head] = all.max;
		s.inv_sum[head] = 1 / all.sum;
	}
	if (!t.mix)
		return;
	if (slice < slices && j < m.d) {
#pragma unroll 4
		for (int i = slice; i < n; i += slices) {
			size_t part = first + (size_t)(i * m.group);
			acc += rk_exp2(s.part_max[part] - all.max) * s.part_out[part * (size_t)m.d + (size_t)j];
		}
		slice_out[slice * m.d + j] = acc;
	}
	__syncthreads();
	if (slice == 0 && j < m.d) {
		acc = 0;
		for (int i = 0; i < slices; i++)
			acc += slice_out[i * m.d + j];
		o[head * m.d + j] = acc / all.sum;
	}
	rk_stamp(out);
}

int rk_cuda_heads_together(int group)
{
	return group > 4 ? 8 : group > 2 ? 4 : group;
}

dim3 rk_cuda_chunk_grid(const rk_cuda *c, int heads)
{
	int fill = rk_cuda_fill(c);

	return dim3((unsigned)(fill < c->s.max_chunk ? fill : c->s.max_chunk), (unsigned)c->dims.n_kv,
	            (unsigned)((c->dims.group + heads - 1) / heads));
}

template<typename T> static void attend(rk_cuda *c, int layer, int slot, const float *q, float *o, enum rk_what what, int n_pos)
{
	const rk_dims m = c->dims;
	const rk_dev_lane *lane = &c->step->lane[slot];
	rk_dev_out *out = &c->out[slot];
	int heads = rk_cuda_heads_together(m.group);
	dim3 grid = rk_cuda_chunk_grid(c, heads);
	size_t shared = split_shared(heads, m.d);

	switch (heads) {
	case 1:
		RK_LAUNCH((split<T, 1>), grid, THREADS, shared, c->stream, m, layer, lane, out, c->s, q, what, n_pos);
		break;
	case 2:
		RK_LAUNCH((split<T, 2>), grid, THREADS, shared, c->stream, m, layer, lane, out, c->s, q, what, n_pos);
		break;
	case 4:
		RK_LAUNCH((split<T, 4>), grid, THREADS, shared, c->stream, m, layer, lane, out, c->s, q, what, n_pos);
		break;
	default:
		RK_LAUNCH((split<T, 8>), grid, THREADS, shared, c->stream, m, layer, lane, out, c->s, q, what, n_pos);
	}
	RK_LAUNCH(merge<T>, m.n_head, THREADS, THREADS * sizeof(float), c->stream, m, layer, lane, out, c->s, o, what, n_pos);
}

void rk_cuda_attend(rk_cuda *c, int layer, int slot, const float *q, float *out, enum rk_what what, int n_pos)
{
	if (c->b.kv_bytes == 4)
		attend<float>(c, layer, slot, q, out, what, n_pos);
	else
		attend<uint16_t>(c, layer, slot, q, out, what, n_pos);
}

/* split may need more shared memory than a kernel gets unasked. */
bool rk_cuda_attn_decode_init(rk_cuda *c)
{
	const cudaFuncAttribute max = cudaFuncAttributeMaxDynamicSharedMemorySize;
	int bytes = (int)split_shared(8, RK_CUDA_MAX_DIM);

	return rk_cuda_ok(c, cudaFuncSetAttribute(split<float, 8>, max, bytes), "cudaFuncSetAttribute") &&
	       rk_cuda_ok(c, cudaFuncSetAttribute(split<uint16_t, 8>, max, bytes), "cudaFuncSetAttribute");
}

/* Adds this step's probabilities, summed over the heads of the group, to the accumulators of a ring of n entries. */
__device__ __forceinline__ static void add_probabilities(const rk_dims &m, const rk_scratch &s, int kv, float *acc, int n)
{
	for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
		float sum = 0;
		for (int h = kv * m.group; h < (kv + 1) * m.group; h++)
			sum += rk_exp2(s.score[(size_t)h * (size_t)s.ld + (size_t)i] - s.max[h]) * s.inv_sum[h];
		acc[i] += sum;
	}
	__syncthreads();
}

/* In every thread: slot with the lowest accumulator among positions older than the K/2 most recent; of equals the
 * highest position. */
__device__ __forceinline__ static int lowest_accumulated(const rk_lane_cache &c, const int32_t *pos, const float *acc,
                                                         int n, float *part)
{
	float low = INFINITY;
	int32_t at = -1, slot = -1;

	for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
		if (pos[i] < c.n_pos - c.budget / 2 && (acc[i] < low || (acc[i] == low && pos[i] > at))) {
			low = acc[i];
			at = pos[i];
			slot = i;
		}
	float lowest = -rk_block_max(-low, part);
	/* positions and slots below 2^24 are exact */
	float last = rk_block_max(low == lowest ? (float)at : -1.0f, part);
	return (int)rk_block_max(low == lowest && (float)at == last ? (float)slot : -1.0f, part);
}

/* accumulate: after a partial step the accumulators of a ring, and where they rule it the slot of the next token.
 * Reference: ring_advance of src/cpu/attn_decode.c.  One block per KV head; shared: a float per warp. */
__global__ void accumulate(rk_dims m, int layer, const rk_dev_lane *lane, rk_dev_out *out, rk_scratch s)
{
	const rk_lane_cache &c = lane->c;
	const rk_partial &r = c.part;
	int kv = (int)blockIdx.x;
	size_t ring = rk_ring_at(m, layer, kv), base = ring * (size_t)r.cap;

	if (out->refresh)
		return;
	int n = r.count[ring];
	add_probabilities(m, s, kv, r.acc + base, n);
	if (c.pol.evict == RK_EVICT_LOWEST_ACCUMULATED) {
		int next = n > c.budget ? lowest_accumulated(c, r.pos + base, r.acc + base, n, (float *)rk_shared()) : n;
		if (threadIdx.x == 0)
			r.next[ring] = next;
	}
	rk_stamp(out);
}

/* From the decision to the ring: what is scored, selected and attended.  On a step that may glance the ring is attended last,
 * be it the old one or the new. */
static void attend_step(rk_cuda *c, int layer, int slot, const rk_lane_cache *l, const float *q, float *o)
{
	bool selects = c->n_step ? c->may_select[slot] : rk_cuda_may_select(l), renew = rk_renews(*l);
	bool glances = selects && l->pol.bits && !renew;

	if (glances)
		rk_cuda_glance(c, layer, slot, l->pol.bits, q);
	else
		rk_cuda_attend(c, layer, slot, q, o, RK_ATTEND_STEP, 0);
	if (selects) {
		rk_cuda_refill(c, layer, slot, &l->pol, glances);
		if (l->pol.tail)
			rk_cuda_weigh_rest(c, layer, slot);
		if (l->pol.attend == RK_ATTEND_SELECTED)
			rk_cuda_attend(c, layer, slot, q, renew ? c->s.ring_out : o, glances ? RK_ATTEND_RING : RK_ATTEND_NEW_RING, 0);
	}
	if (l->pol.tail)
		rk_cuda_mix_rest(c, layer, slot, o);
}

/* Steps outside of step_begin .. step_end read their report back at once. */
static void one_lane(rk_cuda *c, int layer, const rk_lane_cache *l, const float *q_pre, const float *q, const float *k,
                     const float *v, float *o,
                     rk_step_report *rep)
{
	int slot = rk_cuda_slot(c, l);
	const rk_dev_lane *lane = &c->step->lane[slot];
	rk_dev_out *out = &c->out[slot];

	if (!c->n_step && !rk_cuda_ok(c, cudaMemsetAsync(out, 0, sizeof *out, c->stream), "cudaMemsetAsync"))
		return;
	bool in_step = c->n_step > 0, sketched = rk_store_sketched(&l->tail);
	size_t room = sketched ? WARPS * rk_sketch_room(c->dims.d) : 0;
	if (c->b.kv_bytes == 4)
		RK_LAUNCH(decide<float>, 1, THREADS, room, c->stream, c->dims, layer, lane, out, c->s.compared, q_pre, q, k, v, in_step, sketched);
	else
		RK_LAUNCH(decide<uint16_t>, 1, THREADS, room, c->stream, c->dims, layer, lane, out, c->s.compared, q_pre, q, k, v, in_step,
		          sketched);
	attend_step(c, layer, slot, l, q, o);
	if (l->part.acc)
		RK_LAUNCH(accumulate, c->dims.n_kv, THREADS, WARPS * sizeof(float), c->stream, c->dims, layer, lane, out, c->s);
	if (c->n_step || !rk_cuda_ok(c, cudaMemcpyAsync(c->out_host + slot, out, sizeof *out, cudaMemcpyDeviceToHost,
	                                                c->stream), "copy of the report") ||
	    !rk_cuda_ok(c, cudaStreamSynchronize(c->stream), "attn_decode"))
		return;
	const rk_step_report *got = &c->out_host[slot].rep;
	rep->kind[layer] = got->kind[layer];
	rep->cos[layer] = got->cos[layer];
	rk_cuda_churn(c, l, &c->out_host[slot], layer, rep);
	rep->bytes_full += got->bytes_full;
	rep->bytes_partial += got->bytes_partial;
	rep->bytes_score += got->bytes_score;
}

void rk_cuda_attn_decode(rk_backend *b, int layer, rk_lane_cache *const lanes[], int n_lane, const float *q_pre,
                         const float *q,
                         const float *k, const float *v, float *out, rk_step_report *const reports[])
{
	rk_cuda *c = (rk_cuda *)b;
	size_t qd = (size_t)c->dims.n_head * (size_t)c->dims.d, kvd = (size_t)c->dims.n_kv * (size_t)c->dims.d;

	for (int j = 0; j < n_lane && rk_cuda_alive(c); j++, q_pre += qd, q += qd, k += kvd, v += kvd, out += qd)
		one_lane(c, layer, lanes[j], q_pre, q, k, v, out, reports[j]);
}
