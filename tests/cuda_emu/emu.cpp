/* emu.cpp: the emulated device: fibres, streams, memory.  See cuda_runtime.h and emu.h here.
 *
 * A block's threads are fibres on stacks of their own, switched by a dozen instructions (x86-64).  A fibre runs until
 * it waits or ends; then another runnable one is chosen at random.  When none is runnable and some have not ended, the
 * kernel would hang on a GPU too: the emulator says where each waits and aborts, as it does for every misuse that CUDA
 * leaves undefined.
 */
#include "emu.h"
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>	/* costs nothing outside of valgrind */
#else
#define VALGRIND_MAKE_MEM_UNDEFINED(p, n) ((void)(p), (void)(n))
#define VALGRIND_STACK_REGISTER(from, to) ((void)(from), (void)(to))
#endif

static const size_t stack_bytes = 128 * 1024;
static const unsigned max_threads = 1024;
static const char poison = (char)0xff;	/* as floats and halves: NaN */

emu_coord emu_thread, emu_block;
dim3 emu_block_dim, emu_grid_dim;

static uint64_t seed = 1, n_launch, n_replay, n_alloc;

[[noreturn]] static void die(const char *what, const char *detail)
{
	fprintf(stderr, "emulated device: %s: %s\n", what, detail);
	abort();
}

static uint64_t next_random()
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void shuffle(std::vector<unsigned> &v)
{
	for (size_t i = v.size(); i > 1; i--)
		std::swap(v[i - 1], v[next_random() % i]);
}

/* ---- fibres ---- */

/* Saves the callee-saved registers and the stack pointer to *from, and goes on where `to` was saved. */
extern "C" void emu_switch(void **from, void *to);
asm(".text\n.globl emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size emu_switch,.-emu_switch\n");

struct warp {
	unsigned arrived, members;	/* bit masks of lanes */
	const char *op;
	/* by parity of the operation: a lane may be one ahead of the readers of the last */
	uint64_t value[2][32];
	float tile[2][256];		/* of mma_sync */
};

struct fibre {
	void *sp;
	char *stack;
	emu_coord at;
	unsigned id, n_op;
	const char *file;	/* barrier that it waits at */
	int line;
	bool ended;
};

static struct {
	const char *kernel;
	const std::function<void()> *body;
	std::vector<struct fibre> fibres;
	std::vector<struct warp> warps;
	std::vector<unsigned> runnable;
	unsigned n, n_alive, n_at_barrier;
	fibre *self;
	void *host_sp;
	char *shared;
} block;

#ifdef __SANITIZE_ADDRESS__
static const void *host_stack;
static size_t host_stack_bytes;
#endif

static void to_host(bool last)
{
#ifdef __SANITIZE_ADDRESS__
	void *fake;
	__sanitizer_start_switch_fiber(last ? nullptr : &fake, host_stack, host_stack_bytes);
	emu_switch(&block.self->sp, block.host_sp);
	__sanitizer_finish_switch_fiber(fake, &host_stack, &host_stack_bytes);
#else
	(void)last;
	emu_switch(&block.self->sp, block.host_sp);
#endif
}

static void to_fibre(fibre *f)
{
	block.self = f;
	emu_thread = f->at;
#ifdef __SANITIZE_ADDRESS__
	void *fake;
	__sanitizer_start_switch_fiber(&fake, f->stack, stack_bytes);
	emu_switch(&block.host_sp, f->sp);
	__sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
	emu_switch(&block.host_sp, f->sp);
#endif
}

static void release_barrier()
{
	block.n_at_barrier = 0;
	for (unsigned i = 0; i < block.n; i++)
		if (block.fibres[i].file) {
			block.fibres[i].file = nullptr;
			block.runnable.push_back(i);
		}
}

static void fibre_main()
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_bytes);
#endif
	(*block.body)();
	block.self->ended = true;
	block.n_alive--;
	if (block.n_alive && block.n_at_barrier == block.n_alive)
		release_barrier();
	to_host(true);
	die(block.kernel, "a thread went on after its end");
}

static void start_fibre(unsigned i)
{
	fibre &f = block.fibres[i];
	if (!f.stack) {	/* the page below the stack stays closed */
		char *p = (char *)mmap(nullptr, stack_bytes + 4096, PROT_READ | PROT_WRITE,
		                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED || mprotect(p, 4096, PROT_NONE))
			die("fibre", "no memory for its stack");
		f.stack = p + 4096;
		VALGRIND_STACK_REGISTER(f.stack, f.stack + stack_bytes);
	}
	/* The frames in which the last thread on this stack ended have never returned, so they are still closed. */
	ASAN_UNPOISON_MEMORY_REGION(f.stack + stack_bytes - 4096, 4096);
	/* at fibre_main the stack is 8 off a multiple of 16, as after a call */
	void **top = (void **)(f.stack + stack_bytes) - 2;
	*top = (void *)fibre_main;
	f.sp = top - 6;
	memset(f.sp, 0, 6 * sizeof(void *));
	f.id = i;
	f.at = { i % emu_block_dim.x, i / emu_block_dim.x % emu_block_dim.y, i / (emu_block_dim.x * emu_block_dim.y) };
	f.n_op = 0;
	f.file = nullptr;
	f.ended = false;
	block.runnable.push_back(i);
}

[[noreturn]] static void hang()
{
	for (unsigned i = 0; i < block.n; i++) {
		const fibre &f = block.fibres[i];
		const warp &w = block.warps[i / 32];
		if (!f.ended)
			fprintf(stderr, "  thread %u waits at %s:%d\n", i, f.file ? f.file : w.arrived ? w.op : "?",
			        f.line);
	}
	die(block.kernel, "no thread can go on");
}

static void run_block(unsigned id)
{
	emu_block = { id % emu_grid_dim.x, id / emu_grid_dim.x % emu_grid_dim.y,
	             id / (emu_grid_dim.x * emu_grid_dim.y) };
	block.runnable.clear();
	block.n_alive = block.n;
	block.n_at_barrier = 0;
	block.warps.assign((block.n + 31) / 32, warp());
	for (unsigned i = 0; i < block.n; i++) {
		block.warps[i / 32].members |= 1u << (i % 32);
		start_fibre(i);
	}
	while (block.n_alive) {
		if (block.runnable.empty())
			hang();
		size_t pick = next_random() % block.runnable.size();
		unsigned i = block.runnable[pick];
		block.runnable[pick] = block.runnable.back();
		block.runnable.pop_back();
		to_fibre(&block.fibres[i]);
	}
}

static void run_kernel(const char *name, dim3 grid, dim3 dim, size_t shared, const std::function<void()> &body)
{
	std::vector<unsigned> order(grid.x * grid.y * grid.z);
	n_launch++;
	block.kernel = name;
	block.body = &body;
	block.n = dim.x * dim.y * dim.z;
	if (block.fibres.empty())
		block.fibres.resize(max_threads);
	emu_grid_dim = grid;
	emu_block_dim = dim;
	for (size_t i = 0; i < order.size(); i++)
		order[i] = (unsigned)i;
	shuffle(order);
	for (unsigned id : order) {
		size_t held = (shared + 127) / 128 * 128;
		block.shared = held ? (char *)aligned_alloc(128, held) : nullptr;
		if (held) {
			memset(block.shared, poison, shared);
			VALGRIND_MAKE_MEM_UNDEFINED(block.shared, shared);
			ASAN_POISON_MEMORY_REGION(block.shared + shared, held - shared);
		}
		run_block(id);
		ASAN_UNPOISON_MEMORY_REGION(block.shared, held);
		free(block.shared);
	}
}

void *emu_shared()
{
	return block.shared;
}

void emu_barrier(const char *file, int line)
{
	fibre *f = block.self;
	for (unsigned i = 0; block.n_at_barrier && i < block.n; i++) {	/* one that waits tells where all must wait */
		const fibre &o = block.fibres[i];
		if (!o.file)
			continue;
		if (o.line != line || strcmp(o.file, file))
			die(block.kernel, "threads of a block wait at different barriers");
		break;
	}
	f->file = file;
	f->line = line;
	if (++block.n_at_barrier == block.n_alive)
		release_barrier();
	to_host(false);
}

unsigned emu_lane_id()
{
	return block.self->id % 32;
}

void emu_exchange(const char *op, unsigned mask, uint64_t value)
{
	fibre *f = block.self;
	unsigned w = f->id / 32, lane = f->id % 32;
	warp *p = &block.warps[w];
	if (mask != ~0u || p->members != ~0u)
		die(op, "only whole warps are used in kernels/");
	if (p->arrived && strcmp(p->op, op))
		die(block.kernel, "lanes of a warp meet at different operations");
	p->op = op;
	p->value[f->n_op++ % 2][lane] = value;
	p->arrived |= 1u << lane;
	if (p->arrived == mask) {
		p->arrived = 0;
		for (unsigned i = 0; i < 32; i++)
			block.runnable.push_back(w * 32 + i);
	}
	to_host(false);
}

uint64_t emu_lane_value(unsigned lane)
{
	const fibre *f = block.self;
	return block.warps[f->id / 32].value[(f->n_op - 1) % 2][lane];
}

float *emu_warp_tile()
{
	return block.warps[block.self->id / 32].tile[0];
}

void emu_check_tile(const void *p, size_t ld_bytes)
{
	if ((uintptr_t)p % 32 || ld_bytes % 16)
		die(block.kernel, "a matrix tile must be aligned to 32 bytes and its rows to 16");
}

unsigned long long emu_global_timer()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

/* ---- machine, memory ---- */

static struct { int n_device = 1, driver = 13000, major = 9, minor = 0; size_t memory = 8ull << 30; } machine;
static std::map<char *, size_t> device_memory, pinned_memory;
static size_t held;
static struct { char call[40]; int n; cudaError_t error; } fail;
static cudaError_t broken = cudaSuccess;	/* sticky, as after a fault on the device */
static cudaError_t bad_launch = cudaSuccess;	/* what cudaGetLastError gives once */

/* What this call returns, unless it is cudaSuccess. */
static cudaError_t fault(const char *call)
{
	if (broken)
		return broken;
	if (!fail.n || strcmp(fail.call, call) || --fail.n)
		return cudaSuccess;
	if (fail.error >= 200)
		broken = fail.error;
	return fail.error;
}
#define FAULT() do { if (cudaError_t error = fault(__func__)) return error; } while (0)

static void open_memory(bool open)
{
	for (auto &m : device_memory)
		if (open)
			ASAN_UNPOISON_MEMORY_REGION(m.first, m.second);
		else
			ASAN_POISON_MEMORY_REGION(m.first, m.second);
}

static bool inside(const std::map<char *, size_t> &all, const void *p, size_t bytes)
{
	auto m = all.upper_bound((char *)p);
	if (m == all.begin())
		return false;
	--m;
	return (char *)p + bytes <= m->first + m->second;
}

static void check_device(const char *call, const void *p, size_t bytes)
{
	if (bytes && !inside(device_memory, p, bytes))
		die(call, "not device memory");
}

cudaError_t cudaGetDeviceCount(int *n)
{
	*n = machine.n_device;
	if (machine.driver < 13000)
		return cudaErrorInsufficientDriver;
	return machine.n_device ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int *v) { *v = machine.driver; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaGetLastError() { return broken ? broken : std::exchange(bad_launch, cudaSuccess); }

cudaError_t cudaSetDevice(int device)
{
	FAULT();
	return device < machine.n_device ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
	FAULT();
	*p = cudaDeviceProp{ "emulated device", machine.memory, 227 * 1024, machine.major, machine.minor, 2 };
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaSuccess: return "no error";
	case cudaErrorMemoryAllocation: return "out of memory";
	case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
	case cudaErrorNoDevice: return "no CUDA-capable device is detected";
	case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
	case cudaErrorECCUncorrectable: return "uncorrectable ECC error encountered";
	case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
	default: return "unspecified launch failure";
	}
}

cudaError_t emu_func_set_attribute(int bytes)
{
	cudaError_t error = fault("cudaFuncSetAttribute");
	return error ? error : bytes <= 227 * 1024 ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t allocate(std::map<char *, size_t> &all, void **p, size_t bytes)
{
	n_alloc++;
	char *q = (char *)aligned_alloc(256, (bytes + 255) / 256 * 256);
	if (!q)
		return cudaErrorMemoryAllocation;
	memset(q, poison, bytes);
	VALGRIND_MAKE_MEM_UNDEFINED(q, bytes);
	all[q] = bytes;
	ASAN_POISON_MEMORY_REGION(q + bytes, (256 - bytes % 256) % 256);
	*p = q;
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	FAULT();
	if (bytes > machine.memory - held)
		return cudaErrorMemoryAllocation;
	cudaError_t r = allocate(device_memory, p, bytes);
	if (r)
		return r;
	held += bytes;
	ASAN_POISON_MEMORY_REGION(*p, bytes);
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
	FAULT();
	return allocate(pinned_memory, p, bytes);
}

static void release(std::map<char *, size_t> &all, const char *call, void *p)
{
	auto m = all.find((char *)p);
	if (m == all.end())
		die(call, "not what was allocated");
	ASAN_UNPOISON_MEMORY_REGION(m->first, (m->second + 255) / 256 * 256);
	free(m->first);
	all.erase(m);
}

static void drain_all();

cudaError_t cudaFree(void *p)
{
	if (!p)
		return cudaSuccess;
	drain_all();	/* it waits for the device */
	held -= device_memory.count((char *)p) ? device_memory[(char *)p] : 0;
	release(device_memory, "cudaFree", p);
	return broken;
}

cudaError_t cudaFreeHost(void *p)
{
	if (p)
		release(pinned_memory, "cudaFreeHost", p);
	return broken;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
	FAULT();
	*total = machine.memory;
	*free = machine.memory > held ? machine.memory - held : 0;
	return cudaSuccess;
}

/* ---- streams and graphs ---- */

struct emu_graph { std::vector<std::function<void()>> work; };
struct emu_stream {
	std::vector<std::function<void()>> work;
	std::unique_ptr<emu_graph> capture;
};
static std::vector<emu_stream *> streams;

void emu_enqueue(cudaStream_t s, std::function<void()> work)
{
	(s->capture ? s->capture->work : s->work).push_back(std::move(work));
}

static void drain(emu_stream *s)
{
	if (s->work.empty() || broken) {
		s->work.clear();
		return;
	}
	open_memory(true);
	for (auto &w : s->work)
		w();
	s->work.clear();
	open_memory(false);
}

static void drain_all()
{
	for (emu_stream *s : streams)
		drain(s);
}

void emu_launch(const char *name, dim3 grid, dim3 dim, size_t shared, cudaStream_t s, std::function<void()> body)
{
	size_t threads = (size_t)dim.x * dim.y * dim.z;
	if (!threads || threads > max_threads || !grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 ||
	    shared > 227 * 1024)
		die(name, "grid, block or shared memory out of range");
	if (cudaError_t error = fault("launch"))
		bad_launch = error;
	else
		emu_enqueue(s, [=] { run_kernel(name, grid, dim, shared, body); });
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
	FAULT();
	if (!bytes)
		return cudaSuccess;
	const void *host = kind == cudaMemcpyHostToDevice ? src : dst;
	bool pinned = inside(pinned_memory, host, bytes);
	if (kind != cudaMemcpyHostToDevice)
		check_device("cudaMemcpyAsync from", src, bytes);
	if (kind != cudaMemcpyDeviceToHost)
		check_device("cudaMemcpyAsync to", dst, bytes);
	if (kind != cudaMemcpyDeviceToDevice && !pinned) {
		if (s->capture)
			die("cudaMemcpyAsync", "pageable memory in a captured stream");
		if (kind == cudaMemcpyHostToDevice) {	/* taken to a staging buffer before the call returns */
			std::shared_ptr<char[]> copy(new char[bytes]);
			memcpy(copy.get(), src, bytes);
			emu_enqueue(s, [=] { memcpy(dst, copy.get(), bytes); });
			return cudaSuccess;
		}
		drain(s);
		open_memory(true);
		memcpy(dst, src, bytes);
		open_memory(false);
		return broken;
	}
	emu_enqueue(s, [=] { memcpy(dst, src, bytes); });
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s)
{
	FAULT();
	check_device("cudaMemsetAsync", dst, bytes);
	emu_enqueue(s, [=] { memset(dst, value, bytes); });
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
	FAULT();
	*s = new emu_stream;
	streams.push_back(*s);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	drain(s);
	std::erase(streams, s);
	delete s;
	return broken;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	if (s->capture)
		die("cudaStreamSynchronize", "the stream is being captured");
	cudaError_t error = fault("cudaStreamSynchronize");
	drain(s);
	return error;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
	FAULT();
	s->capture = std::make_unique<emu_graph>();
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
	std::unique_ptr<emu_graph> captured = std::move(s->capture);
	FAULT();
	*g = captured.release();
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
	FAULT();
	*x = new emu_graph(*g);
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
	FAULT();
	n_replay++;
	for (auto &w : x->work)
		s->work.push_back(w);
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) { delete g; return broken; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { delete x; return broken; }

/* ---- cuBLAS ---- */

struct emu_cublas { cudaStream_t stream; };

cublasStatus_t cublasCreate(cublasHandle_t *h)
{
	if (fault("cublasCreate"))
		return CUBLAS_STATUS_ALLOC_FAILED;
	*h = new emu_cublas{ nullptr };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t h) { delete h; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s) { h->stream = s; return CUBLAS_STATUS_SUCCESS; }
const char *cublasGetStatusString(cublasStatus_t) { return "CUBLAS_STATUS_EXECUTION_FAILED"; }

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *p, size_t bytes)
{
	check_device("cublasSetWorkspace", p, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

static float element(const void *p, cudaDataType_t t, size_t i)
{
	return t == CUDA_R_32F ? ((const float *)p)[i] : rk_half_to_float(((const uint16_t *)p)[i]);
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void *alpha,
                            const void *a, cudaDataType_t a_type, int lda, const void *b, cudaDataType_t b_type,
                            	int ldb, const void *beta,
                            void *c, cudaDataType_t c_type, int ldc, cublasComputeType_t, cublasGemmAlgo_t)
{
	if (ta != CUBLAS_OP_T || tb != CUBLAS_OP_N || *(const float *)alpha != 1 || *(const float *)beta != 0 ||
	    c_type != CUDA_R_32F)
		die("cublasGemmEx", "a form of it that kernels/ does not use");
	if (fault("cublasGemmEx"))
		return CUBLAS_STATUS_EXECUTION_FAILED;
	emu_enqueue(h->stream, [=] {
		std::vector<float> col((size_t)k);
		for (int j = 0; j < n; j++) {
			for (int l = 0; l < k; l++)
				col[(size_t)l] = element(b, b_type, (size_t)j * (size_t)ldb + (size_t)l);
			for (int i = 0; i < m; i++) {
				float sum = 0;
				for (int l = 0; l < k; l++)
					sum += element(a, a_type, (size_t)i * (size_t)lda + (size_t)l) * col[(size_t)l];
				((float *)c)[(size_t)j * (size_t)ldc + (size_t)i] = sum;
			}
		}
	});
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- emu.h ---- */

void emu_seed(uint64_t s) { seed = s * 0x9e3779b97f4a7c15ull + 1; }
uint64_t emu_n_launch(void) { return n_launch; }
uint64_t emu_n_replay(void) { return n_replay; }
uint64_t emu_n_alloc(void) { return n_alloc; }
uint64_t emu_bytes_held(void) { return held; }

void emu_machine(int n_device, int driver_version, int major, int minor, uint64_t memory_bytes)
{
	machine = { n_device, driver_version, major, minor, memory_bytes };
}

void emu_fail(const char *call, int n, int error)
{
	snprintf(fail.call, sizeof fail.call, "%s", call);
	fail.n = n;
	fail.error = (cudaError_t)error;
	if (!n)
		broken = bad_launch = cudaSuccess;
}

__attribute__((constructor)) static void from_environment()
{
	const char *m = getenv("EMU_MACHINE"), *f = getenv("EMU_FAIL");
	char call[40];
	int n_device, driver, major, minor, n, error;
	unsigned long long memory;

	if (m && sscanf(m, "%d %d %d %d %llu", &n_device, &driver, &major, &minor, &memory) != 5)
		die("EMU_MACHINE", m);
	if (m)
		emu_machine(n_device, driver, major, minor, memory);
	if (f && sscanf(f, "%39s %d %d", call, &n, &error) != 3)
		die("EMU_FAIL", f);
	if (f)
		emu_fail(call, n, error);
}
