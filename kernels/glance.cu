/* glance.cu: scoring all positions by the low-bit sketches of their keys, and those of a prompt's keys.
 *
 * A 32-bit word of sketch.cuh holds four elements of one key, so a thread is a key and a word is one dp4a per query head and
 * field.  The query's bytes are those of src/cpu/sketch.c, and scores are integers times two factors: selections differ from
 * the CPU's only where probabilities round apart.
 */
#include "sketch.cuh"

#define WARPS 8
#define THREADS (WARPS * RK_WARP)
#define SKETCH_WARPS 4
#define MEAN_WARPS 16

static_assert(THREADS == RK_CUDA_CHUNK && RK_CUDA_CHUNK % RK_SKETCH_BLOCK == 0, "a thread per position of a chunk");

/* ---- sketches ---- */

/* sketch: keys at .. at+n-1 of a layer, of every width that the store keeps.  Reference: rk_cpu_sketch.
 * Keys [n_kv][cap][d] f16 or f32.  grid: (n / 4, n_kv), a warp per key; shared: rk_sketch_room per warp.  f32.  Reads a key,
 * writes dim bits/8 + 2 bytes per width: small beside the GEMMs of a prefill. */
template<typename T>
__global__ void sketch(rk_dims m, rk_store st, int layer, int at, int n)
{
	int warp = (int)threadIdx.x / RK_WARP, row = (int)blockIdx.x * SKETCH_WARPS + warp;
	size_t room = rk_sketch_room(m.d);

	if (row < n)
		rk_sketch_key<T>(m, st, layer, (int)blockIdx.y, at + row, (char *)rk_shared() + (size_t)warp * room);
}

/* key_mean: st.mean of a layer = the mean of its st.len keys.  Reference: rk_cpu_key_mean; f64, exact for f16 keys.
 * Keys [n_kv][cap][d] f16 or f32.  grid: (n_kv, d / 32), a lane per element, the keys dealt out to MEAN_WARPS warps; shared: a sum
 * per thread.  Reads the keys once, once per prompt. */
template<typename T>
__global__ void key_mean(rk_dims m, rk_store st, int layer)
{
	int kv = (int)blockIdx.x, lane = (int)threadIdx.x % RK_WARP, warp = (int)threadIdx.x / RK_WARP, j = (int)blockIdx.y * RK_WARP + lane;
	const T *k = rk_rows<T>(m, st.k, st.v, layer, kv, st.cap, 0).k;
	double *part = (double *)rk_shared(), sum = 0;

	for (int t = warp; t < st.len && j < m.d; t += MEAN_WARPS)
		sum += (double)rk_get(k + (size_t)t * (size_t)m.d + j);
	part[threadIdx.x] = sum;
	__syncthreads();
	if (warp > 0 || j >= m.d)
		return;
	for (int w = 1; w < MEAN_WARPS; w++)
		sum += part[w * RK_WARP + lane];
	st.mean[rk_ring_at(m, layer, kv) * (size_t)m.d + (size_t)j] = (float)(sum / st.len);
}

void rk_cuda_key_mean(rk_backend *b, rk_store *st, int layer)
{
	rk_cuda *c = (rk_cuda *)b;
	dim3 grid((unsigned)c->dims.n_kv, (unsigned)((c->dims.d + RK_WARP - 1) / RK_WARP));
	size_t shared = MEAN_WARPS * RK_WARP * sizeof(double);

	if (!rk_cuda_alive(c))
		return;
	if (b->kv_bytes == 4)
		RK_LAUNCH(key_mean<float>, grid, MEAN_WARPS * RK_WARP, shared, c->stream, c->dims, *st, layer);
	else
		RK_LAUNCH(key_mean<uint16_t>, grid, MEAN_WARPS * RK_WARP, shared, c->stream, c->dims, *st, layer);
}

void rk_cuda_sketch(rk_backend *b, rk_store *st, int layer, int at, int n)
{
	rk_cuda *c = (rk_cuda *)b;
	dim3 grid((unsigned)((n + SKETCH_WARPS - 1) / SKETCH_WARPS), (unsigned)c->dims.n_kv);
	size_t shared = SKETCH_WARPS * rk_sketch_room(c->dims.d);

	if (!rk_cuda_alive(c) || rk_cuda_stepping(c, st))
		return;
	if (b->kv_bytes == 4)
		RK_LAUNCH(sketch<float>, grid, SKETCH_WARPS * RK_WARP, shared, c->stream, c->dims, *st, layer, at, n);
	else
		RK_LAUNCH(sketch<uint16_t>, grid, SKETCH_WARPS * RK_WARP, shared, c->stream, c->dims, *st, layer, at, n);
}

/* ---- scores ---- */

/* Four bytes of each of HB queries, in one load. */
template<int HB> struct alignas(HB < 4 ? 4 * HB : 16) four_of { int32_t head[HB]; };

/* HB query heads in shared memory, rotated as the keys are: rk_sketch_query. */
template<int HB> struct queries {
	float *x;		/* [HB][dim] */
	four_of<HB> *q;		/* [dim / 4] */
	float *half_step;	/* [HB] */
	int32_t *sum;	/* [HB] */
};
static size_t glance_shared(int heads, int dim)
{
	return (size_t)heads * (RK_CUDA_CHUNK * sizeof(float) + (size_t)dim * (sizeof(float) + 1) + 8);
}

/* By a warp: head h from query [d], NULL: zeros.  Reference: rk_sketch_query_make. */
template<int HB>
__device__ __forceinline__ static void make_query(const queries<HB> &to, int h, const float *query, float scale, int d, int dim)
{
	int lane = (int)threadIdx.x % RK_WARP, sum = 0;
	float x[RK_SKETCH_PART];

#pragma unroll
	for (int i = 0; i < RK_SKETCH_PART; i++)
		x[i] = query && lane + i * RK_WARP < d ? query[lane + i * RK_WARP] * scale : 0;
	rk_hadamard(x, dim);
	float max = rk_largest(x), inv = max > 0 ? 127 / max : 0;
#pragma unroll
	for (int i = 0; i < RK_SKETCH_PART; i++)
		if (i * RK_WARP < dim) {
			int v = (int)rintf(x[i] * inv), j = lane + i * RK_WARP;
			to.x[h * dim + j] = x[i];
			((int8_t *)&to.q[j / 4].head[h])[j % 4] = (int8_t)v;
			sum += v;
		}
	for (int k = RK_WARP / 2; k; k /= 2)
		sum += __shfl_xor_sync(RK_FULL_WARP, sum, k);
	if (lane == 0) {
		to.half_step[h] = max / 254;
		to.sum[h] = sum;
	}
}

/* use(g, u) for the codes u of elements 4 g .. 4 g + 3, in order, from a key's words. */
template<int BITS, typename F> __device__ __forceinline__ void each_code(const uint32_t *word, int dim, F use)
{
	constexpr int LOW = BITS == 3 ? 2 : BITS, FIELDS = 8 / LOW;
	constexpr uint32_t MASK = (uint32_t)((1u << LOW) - 1) * RK_EACH_BYTE;
	int n_word = dim * LOW / 32;

#pragma unroll 4
	for (int v = 0; v < n_word; v++) {
		uint32_t low = word[v * RK_SKETCH_BLOCK], top = 0;
		if (BITS == 3)	/* a word of third bits for two of the others */
			top = word[(n_word + v / 2) * RK_SKETCH_BLOCK] >> (v % 2 * 4);
#pragma unroll
		for (int f = 0; f < FIELDS; f++)
			use(v * FIELDS + f, (low >> (f * LOW) & MASK) | (top >> f & RK_EACH_BYTE) << 2);
	}
}

/* p[h][.] = the scores of one key for HB heads.  Reference: rk_sketch_score_scalar, rk_sketch_score_exact. */
template<int HB, int BITS>
__device__ __forceinline__ void score_key(float *p, const queries<HB> &q, const uint32_t *word, float scale, int dim, bool exact)
{
	constexpr int LEVELS = (1 << BITS) - 1;

	if (exact) {
		float acc[HB] = {};
		each_code<BITS>(word, dim, [&](int g, uint32_t u) {
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int h = 0; h < HB; h++)
					acc[h] += q.x[h * dim + 4 * g + i] * ((float)(u >> (8 * i) & 255) - (float)LEVELS / 2);
		});
		for (int h = 0; h < HB; h++)
			p[h * RK_CUDA_CHUNK] = acc[h] * scale;
	} else {
		int32_t acc[HB] = {};
		each_code<BITS>(word, dim, [&](int g, uint32_t u) {
			const four_of<HB> four = q.q[g];
#pragma unroll
			for (int h = 0; h < HB; h++)
				acc[h] = rk_dp4a(u, four.head[h], acc[h]);
		});
#pragma unroll
		for (int h = 0; h < HB; h++)
			p[h * RK_CUDA_CHUNK] = (float)(2 * acc[h] - LEVELS * q.sum[h]) * (scale * q.half_step[h]);
	}
}

/* glance: scores of up to HB heads of a group for all positions, by sketches of BITS bits, and per chunk and head their
 * maximum m and the sum of exp2(s - m); pool joins those.  Reference: rk_attn_plan_glance, and run_chunk of src/cpu/attn.c.
 * q [n_head][d] f32, times scale; codes and f16 scales of prompt and tail; scores [n_head][ld] f32.
 * grid: (as many as fill the GPU, n_kv, heads / HB), each block taking every gridDim.x-th chunk of 256 positions, a thread
 * per position; shared: glance_shared.  Integer products, f32 afterwards; sums of a chunk as in split.
 * Reads dim BITS/8 + 2 bytes per position and KV head once for all heads of a group, in runs of 64; 4 products per dp4a:
 * memory bound up to groups of 8 (docs/CUDA.md). */
template<int HB, int BITS>
__global__ void __launch_bounds__(THREADS) glance(rk_dims m, int layer, const rk_dev_lane *lane, const rk_dev_out *out, rk_scratch s,
                                                   const float *q, float scale, bool exact)
{
	int kv = (int)blockIdx.y, g0 = (int)blockIdx.z * HB, heads = m.group - g0 < HB ? m.group - g0 : HB, dim = rk_sketch_width(m.d);
	int warp = (int)threadIdx.x / RK_WARP, me = (int)threadIdx.x, head0 = kv * m.group + g0;
	float *p = (float *)rk_shared(), *x = p + HB * RK_CUDA_CHUNK;
	float *half_step = x + HB * dim + HB * dim / 4;
	queries<HB> to = { x, (four_of<HB> *)(x + HB * dim), half_step, (int32_t *)(half_step + HB) };

	if (!out->refresh)
		return;
	if (warp < HB)
		make_query<HB>(to, warp, warp < heads ? q + (head0 + warp) * m.d : NULL, scale, m.d, dim);
	__syncthreads();
	int n_pos = lane->c.n_pos, in_prompt = rk_in_prompt(lane->c, n_pos), in_a = rk_chunks(in_prompt);
	for (int chunk = (int)blockIdx.x; chunk < in_a + rk_chunks(n_pos - in_prompt); chunk += (int)gridDim.x) {
		bool a = chunk < in_a;
		int at = (a ? chunk : chunk - in_a) * RK_CUDA_CHUNK, left = (a ? in_prompt : n_pos - in_prompt) - at;
		int n = left < RK_CUDA_CHUNK ? left : RK_CUDA_CHUNK;
		rk_sketch_rows r = rk_sketch_rows_of(m, a ? lane->prompt : lane->c.tail, layer, kv, BITS);
		if (me < n)
			score_key<HB, BITS>(p + me, to, rk_sketch_words_of(r, at + me, dim, BITS), rk_half_bits(r.scale[at + me]), dim, exact);
		__syncthreads();
		if (warp < heads) {
			size_t part = ((size_t)kv * (size_t)s.max_chunk + (size_t)chunk) * (size_t)m.group + (size_t)(g0 + warp);
			float *score = s.score + (size_t)(head0 + warp) * (size_t)s.ld + at + (a ? 0 : in_prompt);
			rk_chunk_sum(p + warp * RK_CUDA_CHUNK, score, n, s.part_max + part, s.part_sum + part);
		}
		__syncthreads();	/* p is written again */
	}
}

template<int HB> static void launch_glance(rk_cuda *c, dim3 grid, int bits, int layer, const rk_dev_lane *lane, const rk_dev_out *out,
                                           const float *q)
{
	size_t shared = glance_shared(HB, rk_sketch_width(c->dims.d));
	float scale = (float)(1.4426950408889634 / sqrt((double)c->dims.d));	/* rk_attn_scale to the bit */
	bool exact = c->b.exact;

	if (bits == 2)
		RK_LAUNCH((glance<HB, 2>), grid, THREADS, shared, c->stream, c->dims, layer, lane, out, c->s, q, scale, exact);
	else if (bits == 3)
		RK_LAUNCH((glance<HB, 3>), grid, THREADS, shared, c->stream, c->dims, layer, lane, out, c->s, q, scale, exact);
	else if (bits == 4)
		RK_LAUNCH((glance<HB, 4>), grid, THREADS, shared, c->stream, c->dims, layer, lane, out, c->s, q, scale, exact);
	else
		RK_LAUNCH((glance<HB, 8>), grid, THREADS, shared, c->stream, c->dims, layer, lane, out, c->s, q, scale, exact);
}

void rk_cuda_glance(rk_cuda *c, int layer, int slot, int bits, const float *q)
{
	const rk_dev_lane *lane = &c->step->lane[slot];
	const rk_dev_out *out = &c->out[slot];
	int heads = rk_cuda_heads_together(c->dims.group);
	dim3 grid = rk_cuda_chunk_grid(c, heads);

	if (heads == 1)
		launch_glance<1>(c, grid, bits, layer, lane, out, q);
	else if (heads == 2)
		launch_glance<2>(c, grid, bits, layer, lane, out, q);
	else if (heads == 4)
		launch_glance<4>(c, grid, bits, layer, lane, out, q);
	else
		launch_glance<8>(c, grid, bits, layer, lane, out, q);
}

/* ---- the stand-in for what is not selected: per query head d floats of attention output, and its share ---- */

#define MIN_REST 1e-3f	/* a smaller share is lost in rounding when it is divided by */

__device__ __forceinline__ static float *rest_of(const rk_dims &m, int layer, const rk_lane_cache &c, int head)
{
	return c.rest + (size_t)(layer * m.n_head + head) * (size_t)(m.d + 1);
}

/* weigh_rest: the share of a head that its new ring does not hold.  Reference: weigh_rest of src/cpu/attn_decode.c.
 * After rank, while the scores are those of the selection.  One block per head; shared: a float per warp.  Reads K scores. */
__global__ void weigh_rest(rk_dims m, int layer, const rk_dev_lane *lane, const rk_dev_out *out, rk_scratch s)
{
	const rk_partial &r = lane->c.part;
	int head = (int)blockIdx.x;
	size_t ring = rk_ring_at(m, layer, head / m.group);
	const float *score = s.score + (size_t)head * (size_t)s.ld;
	float held = 0;

	if (!out->refresh)
		return;
	for (int i = (int)threadIdx.x; i < r.count[ring]; i += THREADS)
		held += rk_exp2(score[r.pos[ring * (size_t)r.cap + (size_t)i]] - s.max[head]);
	held = rk_block_sum(held, (float *)rk_shared());
	if (threadIdx.x == 0)
		rest_of(m, layer, lane->c, head)[m.d] = fmaxf(0, 1 - held * s.inv_sum[head]);
}

/* mix_rest: on a step that renews it the stand-in, from attention over everything in o and over the ring in s.ring_out; else o
 * [n_head][d] gets its share.  Reference: renew_rest, add_rest of src/cpu/attn_decode.c.  One block per head. */
__global__ void mix_rest(rk_dims m, int layer, const rk_dev_lane *lane, rk_dev_out *out, rk_scratch s, float *o)
{
	int head = (int)blockIdx.x;
	float *rest = rest_of(m, layer, lane->c, head), share = rest[m.d];
	bool renew = out->refresh && rk_renews(lane->c);

	o += head * m.d;
	for (int j = (int)threadIdx.x; j < m.d; j += (int)blockDim.x)
		if (renew) {
			float selected = s.ring_out[head * m.d + j];
			rest[j] = share < MIN_REST ? selected : (o[j] - (1 - share) * selected) / share;
		} else {
			o[j] += share * (rest[j] - o[j]);
		}
	rk_stamp(out);
}

void rk_cuda_weigh_rest(rk_cuda *c, int layer, int slot)
{
	RK_LAUNCH(weigh_rest, c->dims.n_head, THREADS, WARPS * sizeof(float), c->stream, c->dims, layer, &c->step->lane[slot], &c->out[slot],
	          c->s);
}

void rk_cuda_mix_rest(rk_cuda *c, int layer, int slot, float *o)
{
	RK_LAUNCH(mix_rest, c->dims.n_head, THREADS, 0, c->stream, c->dims, layer, &c->step->lane[slot], &c->out[slot], c->s, o);
}
