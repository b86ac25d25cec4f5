/* cuda_runtime.h (emulation): the part of the CUDA runtime that kernels/ uses, on the CPU, to find mistakes without a
 * GPU.
 *
 * Found before the toolkit's header when kernels/ is compiled as plain C++ (make test-cuda-emu).  Each CUDA thread of a
 * block is a fibre; barriers and warp operations block until everyone that must come has come, with the runnable fibre
 * chosen at random from a seed, as is the order of blocks.  Shared memory is an exact allocation per block, filled with
 * NaNs; so is device memory, which is closed to host code while AddressSanitizer is on.  A stream runs nothing until it
 * is waited for, so that a missing wait shows.  One host thread.  What it cannot see: docs/CUDA.md.
 */
#ifndef RK_EMU_CUDA_RUNTIME_H
#define RK_EMU_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };

/* ---- device side ---- */

struct emu_coord { unsigned x, y, z; };
extern emu_coord emu_thread, emu_block;	/* of the running fibre */
extern dim3 emu_block_dim, emu_grid_dim;
#define threadIdx emu_thread
#define blockIdx emu_block
#define blockDim emu_block_dim
#define gridDim emu_grid_dim
#define warpSize 32

void *emu_shared();
void emu_barrier(const char *file, int line);
/* All lanes of the warp bring a value to operation `op`; emu_lane_value then reads any lane's. */
void emu_exchange(const char *op, unsigned mask, uint64_t value);
uint64_t emu_lane_value(unsigned lane);
unsigned emu_lane_id();

#define __syncthreads() emu_barrier(__FILE__, __LINE__)
inline void __syncwarp(unsigned mask = ~0u) { emu_exchange("syncwarp", mask, 0); }

template<typename T> T emu_shuffle(const char *op, unsigned mask, T v, unsigned from)
{
	static_assert(sizeof(T) <= 8);
	uint64_t bits = 0;
	memcpy(&bits, &v, sizeof v);
	emu_exchange(op, mask, bits);
	bits = emu_lane_value(from & 31);
	memcpy(&v, &bits, sizeof v);
	return v;
}
template<typename T> T __shfl_sync(unsigned mask, T v, int lane) { return emu_shuffle("shfl", mask, v,
		(unsigned)lane); }
template<typename T> T __shfl_xor_sync(unsigned mask, T v,
                                       int x) { return emu_shuffle("shfl_xor", mask, v, emu_lane_id() ^ (unsigned)x); }
template<typename T> T __shfl_up_sync(unsigned mask, T v, unsigned n)
{
	unsigned lane = emu_lane_id();
	return emu_shuffle("shfl_up", mask, v, lane >= n ? lane - n : lane);
}

template<typename T> T atomicAdd(T *p, T v) { T old = *p; *p = old + v; return old; }
inline unsigned atomicOr(unsigned *p, unsigned v) { unsigned old = *p; *p = old | v; return old; }

inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, sizeof f); return f; }
inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, sizeof u); return u; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline int emu_dp4a(unsigned u, int q, int acc)
{
	for (int i = 0; i < 32; i += 8)
		acc += (int)(u >> i & 255) * (signed char)(q >> i & 255);
	return acc;
}
template<typename T> T __ldg(const T *p) { return *p; }
/* Nanoseconds of the host's clock. */
unsigned long long emu_global_timer();

/* ---- host side ---- */

enum cudaError_t {
	cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInsufficientDriver = 35,
		cudaErrorNoDevice = 100,
	cudaErrorECCUncorrectable = 214, cudaErrorNoKernelImageForDevice = 209, cudaErrorIllegalAddress = 700,
		cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
#define cudaStreamNonBlocking 1u

struct emu_stream;
struct emu_graph;
typedef emu_stream *cudaStream_t;
typedef emu_graph *cudaGraph_t;
typedef emu_graph *cudaGraphExec_t;

struct cudaDeviceProp {
	char name[256];
	size_t totalGlobalMem, sharedMemPerBlockOptin;
	int major, minor, multiProcessorCount;
};

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaRuntimeGetVersion(int *v);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);
cudaError_t emu_func_set_attribute(int bytes);
template<typename F> cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute, int bytes) { return emu_func_set_attribute(bytes); }

/* Enqueues one call of body per thread. */
void emu_launch(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t s, std::function<void()> body);
/* Enqueues work that a library does on the device. */
void emu_enqueue(cudaStream_t s, std::function<void()> work);

/* What kernels/device.cuh makes of <<<>>> under nvcc. */
#define RK_LAUNCH(kernel, grid, block, shared, stream, ...) \
	emu_launch(#kernel, grid, block, shared, stream, emu_bind([](auto... a) { kernel(a...); }, __VA_ARGS__))

/* Arguments are taken by value now and used when the stream gets there. */
template<typename F, typename... A> std::function<void()> emu_bind(F f, A... a) { return [=] { f(a...); }; }

#endif
