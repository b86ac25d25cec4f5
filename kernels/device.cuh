/* device.cuh: what all kernels share: the launch macro, shared memory, half floats, reductions over warp and block.
 *
 * Kernels are started through RK_LAUNCH only and take shared memory only from rk_shared(), so that the very same
 * sources compile as C++ for the emulator of tests/cuda_emu.  Blocks are whole warps.  Sums are taken in a fixed order:
 * no result depends on the order in which blocks or warps run.
 */
#ifndef RK_KERNELS_DEVICE_CUH
#define RK_KERNELS_DEVICE_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __CUDACC__
#define RK_LAUNCH(kernel, grid, block, shared, stream, ...) kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)

/* The block's dynamic shared memory, aligned to 128 bytes. */
__device__ __forceinline__ void *rk_shared()
{
	extern __shared__ __align__(128) unsigned char rk_shared_memory[];
	return rk_shared_memory;
}

__device__ __forceinline__ unsigned long long rk_clock_ns()
{
	unsigned long long t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}
/* acc + the sum over four bytes of u (unsigned) times q (signed). */
__device__ __forceinline__ int32_t rk_dp4a(uint32_t u, int32_t q, int32_t acc)
{
	asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(acc) : "r"(u), "r"(q), "r"(acc));
	return acc;
}
#else
inline int32_t rk_dp4a(uint32_t u, int32_t q, int32_t acc) { return emu_dp4a(u, q, acc); }
inline void *rk_shared() { return emu_shared(); }
inline unsigned long long rk_clock_ns() { return emu_global_timer(); }
#endif

#define RK_FULL_WARP 0xffffffffu
#define RK_WARP 32

__device__ __forceinline__ void rk_put(float *p, float v) { *p = v; }
__device__ __forceinline__ void rk_put(uint16_t *p, float v) { *p = __half_as_ushort(__float2half_rn(v)); }

__device__ __forceinline__ float rk_half_bits(uint32_t bits)
{
	return __half2float(__ushort_as_half((unsigned short)bits));
}

__device__ __forceinline__ float rk_get(const float *p) { return *p; }
__device__ __forceinline__ float rk_get(const uint16_t *p) { return rk_half_bits(*p); }

/* out[8] = the 8 elements at p, which is aligned to their size. */
__device__ __forceinline__ void rk_get8(float out[8], const float *p)
{
	float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);
	out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
	out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}
__device__ __forceinline__ void rk_get8(float out[8], const uint16_t *p)
{
	uint4 u = *(const uint4 *)p;
	uint32_t w[4] = { u.x, u.y, u.z, u.w };
	for (int i = 0; i < 4; i++) {
		out[2 * i] = rk_half_bits(w[i] & 0xffff);
		out[2 * i + 1] = rk_half_bits(w[i] >> 16);
	}
}

/* Of all lanes, in every lane; `width` lanes that are neighbours (a power of two) make a team. */
__device__ __forceinline__ float rk_team_sum(float v, int width = RK_WARP)
{
	for (int x = width / 2; x; x /= 2)
		v += __shfl_xor_sync(RK_FULL_WARP, v, x);
	return v;
}
__device__ __forceinline__ float rk_team_max(float v, int width = RK_WARP)
{
	for (int x = width / 2; x; x /= 2)
		v = fmaxf(v, __shfl_xor_sync(RK_FULL_WARP, v, x));
	return v;
}

/* Of all threads of a block of one dimension, in every thread.  part: shared, one float per warp.  All threads must
 * come. */
__device__ __forceinline__ float rk_block_sum(float v, float *part)
{
	int warp = threadIdx.x / RK_WARP, n = blockDim.x / RK_WARP;
	v = rk_team_sum(v);
	__syncthreads();
	if (threadIdx.x % RK_WARP == 0)
		part[warp] = v;
	__syncthreads();
	v = 0;
	for (int i = 0; i < n; i++)
		v += part[i];
	return v;
}
__device__ __forceinline__ float rk_block_max(float v, float *part)
{
	int warp = threadIdx.x / RK_WARP, n = blockDim.x / RK_WARP;
	v = rk_team_max(v);
	__syncthreads();
	if (threadIdx.x % RK_WARP == 0)
		part[warp] = v;
	__syncthreads();
	v = part[0];
	for (int i = 1; i < n; i++)
		v = fmaxf(v, part[i]);
	return v;
}

/* How many threads of a block of one dimension come before this one with how much: exclusive prefix sum, and in *total
 * the sum. part: shared, one int per warp. */
__device__ __forceinline__ int rk_block_scan(int v, int *part, int *total)
{
	int lane = threadIdx.x % RK_WARP, warp = threadIdx.x / RK_WARP, n = blockDim.x / RK_WARP, sum = v, before = 0;
	for (int x = 1; x < RK_WARP; x *= 2) {
		int up = __shfl_up_sync(RK_FULL_WARP, sum, x);
		if (lane >= x)
			sum += up;
	}
	__syncthreads();
	if (lane == RK_WARP - 1)
		part[warp] = sum;
	__syncthreads();
	*total = 0;
	for (int i = 0; i < n; i++) {
		if (i < warp)
			before += part[i];
		*total += part[i];
	}
	return before + sum - v;
}

#endif
