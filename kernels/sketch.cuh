/* sketch.cuh: low-bit sketches of keys, made by warps: by the kernel `sketch` once a prompt is there, by `decide` in a step.
 *
 * The layout is that of src/cache/cache.h: a 32-bit word holds the same field of four elements of one key.  Codes and scales
 * are those of src/cpu/sketch.c bit for bit.
 */
#ifndef RK_KERNELS_SKETCH_CUH
#define RK_KERNELS_SKETCH_CUH

#include "attn.cuh"

#define RK_SKETCH_PART (RK_CUDA_MAX_DIM / RK_WARP)	/* elements of a vector per lane: element lane + 32 i is x[i] */
#define RK_EACH_BYTE 0x01010101u

/* rk_sketch_at for kernels. */
__device__ __forceinline__ rk_sketch_rows rk_sketch_rows_of(const rk_dims &m, const rk_store &st, int layer, int kv, int bits)
{
	size_t keys = (size_t)(st.cap + RK_SKETCH_BLOCK - 1) / RK_SKETCH_BLOCK * RK_SKETCH_BLOCK;
	size_t codes = keys * (size_t)(rk_sketch_width(m.d) * bits / 8), head = (codes + keys * sizeof(uint16_t) + 63) & ~(size_t)63;
	uint8_t *at = (uint8_t *)st.sketch[bits] + rk_ring_at(m, layer, kv) * head;

	return { at, (uint16_t *)(at + codes) };
}
/* Word 0 of key t; its words lie RK_SKETCH_BLOCK apart. */
__device__ __forceinline__ uint32_t *rk_sketch_words_of(const rk_sketch_rows &r, int t, int dim, int bits)
{
	uint8_t *block = r.code + (size_t)(t / RK_SKETCH_BLOCK) * (size_t)(RK_SKETCH_BLOCK * dim * bits / 8);

	return (uint32_t *)block + t % RK_SKETCH_BLOCK;
}

/* A warp's vector = its orthonormal Hadamard transform.  Reference: rk_sketch_rotate, in its order. */
__device__ __forceinline__ void rk_hadamard(float x[RK_SKETCH_PART], int dim)
{
	int lane = (int)threadIdx.x % RK_WARP;
	float norm = 1 / sqrtf((float)dim);

	for (int half = 1; half < RK_WARP; half *= 2)
#pragma unroll
		for (int i = 0; i < RK_SKETCH_PART; i++)
			if (i * RK_WARP < dim) {
				float other = __shfl_xor_sync(RK_FULL_WARP, x[i], half);
				x[i] = lane & half ? other - x[i] : x[i] + other;
			}
#pragma unroll
	for (int k = 1; k < RK_SKETCH_PART; k *= 2)
#pragma unroll
		for (int i = 0; i < RK_SKETCH_PART; i++)
			if (!(i & k) && (i + k) * RK_WARP < dim) {
				float a = x[i], b = x[i + k];
				x[i] = a + b;
				x[i + k] = a - b;
			}
#pragma unroll
	for (int i = 0; i < RK_SKETCH_PART; i++)
		x[i] *= norm;
}

__device__ __forceinline__ float rk_largest(const float x[RK_SKETCH_PART])
{
	float max = 0;

#pragma unroll
	for (int i = 0; i < RK_SKETCH_PART; i++)
		max = fmaxf(max, fabsf(x[i]));
	return rk_team_max(max);
}

/* Word v of vectors with `width` bits per element, from the bits from `shift` up of code [dim]. */
__device__ __forceinline__ uint32_t rk_sketch_packed(const uint8_t *code, int v, int width, int shift)
{
	const uint32_t *four = (const uint32_t *)code + v * (8 / width);
	uint32_t mask = ((1u << width) - 1) * RK_EACH_BYTE, word = 0;

	for (int f = 0; f < 8 / width; f++)
		word |= (four[f] >> shift & mask) << (f * width);
	return word;
}

/* Key t from its rotated elements, in x and in all [dim]; code [dim]: room.  Reference: rk_sketch_write. */
__device__ __forceinline__ void rk_sketch_write_key(const rk_sketch_rows &r, int t, const float x[RK_SKETCH_PART], const float *all, uint8_t *code,
                                                 int dim, int bits)
{
	int lane = (int)threadIdx.x % RK_WARP, low = bits == 3 ? 2 : bits, n_word = dim * low / 32;
	uint32_t *word = rk_sketch_words_of(r, t, dim, bits);
	float n_level = (float)(1 << bits), sum = 0, max = rk_largest(x);

	for (int j = 0; j < dim && bits == 2; j++)	/* in the CPU's order: every lane for itself */
		sum += fabsf(all[j]);
	uint16_t scale = __half_as_ushort(__float2half_rn(bits == 2 ? sum / (float)dim : max / (n_level / 2 - 0.5f)));
	float s = rk_half_bits(scale), inv = s > 0 ? 1 / s : 0;
#pragma unroll
	for (int i = 0; i < RK_SKETCH_PART; i++)
		if (i * RK_WARP < dim)
			code[lane + i * RK_WARP] = (uint8_t)fminf(fmaxf(rintf(__fmul_rn(x[i], inv) - 0.5f) + n_level / 2, 0.0f), n_level - 1);
	__syncwarp();
	for (int v = lane; v < n_word; v += RK_WARP)
		word[v * RK_SKETCH_BLOCK] = rk_sketch_packed(code, v, low, 0);
	for (int v = lane; bits == 3 && v < dim / 32; v += RK_WARP)
		word[(n_word + v) * RK_SKETCH_BLOCK] = rk_sketch_packed(code, v, 1, 2);
	if (lane == 0)
		r.scale[t] = scale;
	__syncwarp();
}

/* Room of a warp in shared memory. */
__host__ __device__ __forceinline__ size_t rk_sketch_room(int d)
{
	return (size_t)rk_sketch_width(d) * (sizeof(float) + 1);
}

/* By a warp: element t of a store, from its key as it is stored, in every width that the store keeps.  room: rk_sketch_room. */
template<typename T>
__device__ __forceinline__ void rk_sketch_key(const rk_dims &m, const rk_store &st, int layer, int kv, int t, void *room)
{
	int lane = (int)threadIdx.x % RK_WARP, dim = rk_sketch_width(m.d);
	const T *key = rk_rows<T>(m, st.k, st.v, layer, kv, st.cap, 0).k + (size_t)t * (size_t)m.d;
	const float *mean = st.mean + rk_ring_at(m, layer, kv) * (size_t)m.d;
	float *all = (float *)room, x[RK_SKETCH_PART];

#pragma unroll
	for (int i = 0; i < RK_SKETCH_PART; i++)
		x[i] = lane + i * RK_WARP < m.d ? rk_get(key + lane + i * RK_WARP) - mean[lane + i * RK_WARP] : 0;
	rk_hadamard(x, dim);
#pragma unroll
	for (int i = 0; i < RK_SKETCH_PART; i++)
		if (i * RK_WARP < dim)
			all[lane + i * RK_WARP] = x[i];
	__syncwarp();
	for (int bits = 2; bits <= RK_SKETCH_MAX_BITS; bits++)
		if (st.sketch[bits])
			rk_sketch_write_key(rk_sketch_rows_of(m, st, layer, kv, bits), t, x, all, (uint8_t *)(all + dim), dim, bits);
}

#endif
