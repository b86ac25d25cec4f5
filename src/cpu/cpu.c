/* cpu.c: opens the CPU backend: which instruction set, how many threads, which tables; and its memory operations.
 *
 * Device memory is host memory and every operation has finished when it returns, so sync has nothing to do.
 */
#include "cpu/cpu.h"
#include "base/memory.h"

#include <cpuid.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_THREAD 256

static const char *const isa_name[] = { "scalar", "avx2", "avx512" };

/* The builtin does not know the name with clang 14. */
static bool has_f16c(void)
{
	unsigned a, b, c, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* The builtin asks CPU and operating system. */
enum rk_isa rk_cpu_best_isa(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
		return RK_ISA_SCALAR;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
		return RK_ISA_AVX2;
	return RK_ISA_AVX512;
}

static int choose_isa(rk_cpu *c, rk_err *e)
{
	const enum rk_isa best = rk_cpu_best_isa();
	const char *want = getenv("RK_ISA");
	c->isa = best;
	if (want && *want) {
		int i = 0;
		while (i < 3 && strcmp(want, isa_name[i]))
			i++;
		if (i == 3)
			return rk_fail(e, RK_EUSAGE, "RK_ISA=%s: not one of scalar, avx2, avx512", want);
		if (i > (int)best)
			return rk_fail(e, RK_EUSAGE, "RK_ISA=%s: this machine has %s at most", want, isa_name[best]);
		c->isa = (enum rk_isa)i;
	}
	c->vnni = c->isa == RK_ISA_AVX512 && __builtin_cpu_supports("avx512vnni");
	static const rk_lin_kernels *const lin[] = { &rk_lin_scalar, &rk_lin_avx2, &rk_lin_avx512 };
	c->lin = c->vnni ? &rk_lin_avx512_vnni : lin[c->isa];
	c->attn = rk_attn_kernels_for((int)c->isa);
	snprintf(c->b.isa, sizeof c->b.isa, "%s%s", isa_name[c->isa], c->vnni ? "-vnni" : "");
	return 0;
}

/* Cores that this process may run on. */
static int available_cores(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set))
		return 1;	/* more than 1024 cores: the set does not fit, and the user can name a number */
	int n = CPU_COUNT(&set);
	return n < MAX_THREAD ? n : MAX_THREAD;
}

void *rk_cpu_alloc(size_t bytes, rk_err *e)
{
	size_t size = bytes <= SIZE_MAX - 63 ? (bytes + 63) & ~(size_t)63 : 0, align = size < RK_HUGE_PAGE ? 64 : RK_HUGE_PAGE;
	void *p = NULL;
	if (bytes > SIZE_MAX - 63 || posix_memalign(&p, align, size ? size : 64)) {
		rk_fail(e, RK_ENOMEM, "cannot allocate %zu bytes (%.1f MB) of memory", bytes, (double)bytes / 1e6);
		return NULL;
	}
	/* A cache is read a row here and a row there: with 4 KB pages the page walks cost as much again.  Where there are no
	 * huge pages, nothing is lost. */
	if (size >= RK_HUGE_PAGE)
		(void)madvise(p, size, MADV_HUGEPAGE);
	return memset(p, 0, size);
}

static int cpu_alloc(rk_backend *b, size_t bytes, void **p, rk_err *e)
{
	(void)b;
	*p = rk_cpu_alloc(bytes, e);
	return *p ? 0 : -1;
}

static void cpu_free(rk_backend *b, void *p, size_t bytes)
{
	(void)b;
	(void)bytes;
	free(p);
}

static void cpu_copy(rk_backend *b, void *dst, const void *src, size_t bytes)
{
	(void)b;
	memcpy(dst, src, bytes);
}

static int cpu_sync(rk_backend *b, rk_err *e)
{
	(void)b;
	(void)e;
	return 0;
}

static void cpu_close(rk_backend *b)
{
	rk_cpu *c = (rk_cpu *)b;
	rk_cpu_lin_free(c);
	rk_cpu_attn_free(c);
	rk_team_close(c->team);
	free(c);
}

static const rk_backend_ops cpu_ops = {
	.alloc = cpu_alloc,
	.free = cpu_free,
	.upload = cpu_copy,
	.download = cpu_copy,
	.sync = cpu_sync,
	.close = cpu_close,
	.ring_copies = rk_cpu_ring_copies,
	.embed = rk_cpu_embed,
	.rmsnorm = rk_cpu_rmsnorm,
	.matmul = rk_cpu_matmul,
	.rope = rk_cpu_rope,
	.kv_append = rk_cpu_kv_append,
	.key_mean = rk_cpu_key_mean,
	.sketch = rk_cpu_sketch,
	.attn_prefill = rk_cpu_attn_prefill,
	.select = rk_cpu_select,
	.attn_decode = rk_cpu_attn_decode,
	.silu_mul = rk_cpu_silu_mul,
	.add = rk_cpu_add,
	.logits_stats = rk_cpu_logits_stats,
	.logits_kl = rk_cpu_logits_kl,
};

int rk_cpu_open(rk_backend **b, const rk_model *m, const rk_backend_cfg *cfg, rk_err *e)
{
	*b = NULL;
	if (cfg->n_thread < 0 || cfg->n_thread > MAX_THREAD)
		return rk_fail(e, RK_EUSAGE, "threads: %d is not in 0..%d", cfg->n_thread, MAX_THREAD);
	if (cfg->max_rows < RK_MAX_LANE)
		return rk_fail(e, RK_EUSAGE, "prefill chunk: %d rows, the least is %d", cfg->max_rows, RK_MAX_LANE);
	rk_cpu *c = calloc(1, sizeof *c);
	if (!c)
		return rk_fail(e, RK_ENOMEM, "cannot allocate %zu bytes", sizeof *c);
	c->cfg = *cfg;
	c->b = (rk_backend){
		.ops = &cpu_ops, .hp = &m->hp, .w = &m->w, .exact = cfg->exact, .kv_bytes = cfg->exact ? 4 : 2,
		.n_thread = cfg->n_thread ? cfg->n_thread : available_cores(), .device = "cpu",
	};
	if (choose_isa(c, e) || rk_team_open(&c->team, c->b.n_thread, e) || rk_cpu_lin_init(c, e) || rk_cpu_attn_init(c, e)) {
		cpu_close(&c->b);
		return -1;
	}
	c->b.weights_held = m->file && rk_gguf_copy(m->file);
	*b = &c->b;
	return 0;
}

int rk_cpu_probe(const rk_backend_cfg *cfg, char isa[24], int *n_thread, rk_err *e)
{
	rk_cpu c = { 0 };
	if (choose_isa(&c, e))
		return -1;
	snprintf(isa, sizeof c.b.isa, "%s", c.b.isa);
	*n_thread = cfg->n_thread ? cfg->n_thread : available_cores();
	return 0;
}
