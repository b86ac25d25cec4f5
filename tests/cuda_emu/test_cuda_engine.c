/* test_cuda_engine.c: the CUDA backend on the emulated device, through the engine, against the CPU backend.
 *
 * Under --exact both compute in f32 with f32 caches, so decisions, rings and greedy tokens must be equal but for near
 * ties, which are printed.  Several orders of blocks and threads must give the same bits.  Then what can go wrong with
 * a device.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "aid_engine.h"
#include "emu.h"

#define NEAR_COS 1e-5		/* a quotient of sums of head_dim products of f32 numbers of a few roundings each */
#define TOL_LOGIT 2e-4		/* logits are about 2: a few hundred f32 roundings through three layers */
#define DRIVER 13000

typedef struct rig { int fd; rk_model *m; rk_backend *b; rk_session s; } rig;

static void rig_open(rig *r, const aid_rig_opt *opt, const char *device)
{
	rk_session_cfg cfg = { .n_ctx = opt->n_ctx, .chunk = opt->chunk, .keep_full = opt->keep_full };
	char path[32];
	rk_err e;

	r->fd = aid_tiny_memfd(&opt->tiny, opt->seed ? opt->seed : 1, path);
	assert_int_equal(rk_model_load(&r->m, path, &e), 0);
	while (opt->lanes[cfg.n_lane]) {
		cfg.lane[cfg.n_lane] = aid_policy(opt->lanes[cfg.n_lane]);
		cfg.n_lane++;
	}
	rk_backend_cfg bc = { .device = device, .n_thread = 1, .exact = opt->exact, .max_rows = cfg.chunk,
	                     .max_pos = cfg.n_ctx };
	if (rk_backend_open(&r->b, r->m, &bc, &e))
		fail_msg("%s", e.msg);
	assert_int_equal(rk_session_init(&r->s, r->m, r->b, &cfg, &e), 0);
}

static void rig_close(rig *r)
{
	rk_session_free(&r->s);
	rk_backend_close(r->b);
	rk_model_free(r->m);
	close(r->fd);
	assert_int_equal(emu_bytes_held(), 0);
}

/* Compares one lane after a step; false: a near tie went the other way, and the lane is not followed any further. */
static bool same_step(rig *cpu, rig *gpu, int lane, int step)
{
	const rk_step_report *a = &cpu->s.report[lane], *b = &gpu->s.report[lane];
	const rk_policy *p = &cpu->s.lane[lane].pol;
	const rk_hparams *hp = &cpu->m->hp;

	for (int l = 0; l < hp->n_layer; l++) {
		assert_int_equal(isnan(a->cos[l]), isnan(b->cos[l]));
		if (!isnan(a->cos[l]) && !(fabs((double)(a->cos[l] - b->cos[l])) <= NEAR_COS))
			fail_msg("step %d lane %d layer %d: cosine %.8f, CPU %.8f", step, lane, l, (double)b->cos[l],
			         (double)a->cos[l]);
		if (a->kind[l] == b->kind[l])
			continue;
		print_message("  near tie: %s step %d layer %d: cosine %.8f against %g\n", p->name, step, l,
		              (double)a->cos[l], (double)p->s);
		assert_true(fabs((double)(a->cos[l] - p->s)) <= NEAR_COS);
		return false;
	}
	assert_int_equal(a->bytes_full, b->bytes_full);
	assert_int_equal(a->bytes_partial, b->bytes_partial);
	assert_int_equal(a->bytes_score, b->bytes_score);
	for (int l = 0; l < hp->n_layer; l++) {
		int n = rk_session_positions(&cpu->s, lane, l), m = rk_session_positions(&gpu->s, lane, l);
		assert_int_equal(n, m);
		if (memcmp(cpu->s.pos, gpu->s.pos, (size_t)n * sizeof *cpu->s.pos)) {
			int differ = 0;
			for (int i = 0; i < n; i++)
				differ += cpu->s.pos[i] != gpu->s.pos[i];
			print_message("  near tie: %s step %d layer %d: %d of %d slots hold other positions\n", p->name,
			              step, l, differ, n);
			assert_true(differ <= 2 * hp->n_kv_head * p->pool);
			return false;
		}
		assert_int_equal(isnan(a->churn[l]), isnan(b->churn[l]));
		assert_true(isnan(a->churn[l]) || fabs((double)(a->churn[l] - b->churn[l])) < 1e-6);
	}
	double diff = aid_max_diff(aid_logits(&cpu->s, lane), aid_logits(&gpu->s, lane), hp->n_vocab);
	if (!(diff <= TOL_LOGIT))
		fail_msg("step %d lane %d (%s): logits differ by %.3g", step, lane, p->name, diff);
	assert_true(fabs((double)(cpu->s.lse[lane] - gpu->s.lse[lane])) < TOL_LOGIT);
	if (cpu->s.argmax[lane] != gpu->s.argmax[lane]) {
		print_message("  near tie: %s step %d: greedy token %d, CPU %d\n", p->name, step, gpu->s.argmax[lane],
		              cpu->s.argmax[lane]);
		return false;
	}
	return true;
}

/* Every lane takes its own greedy tokens. */
static void compare(const aid_rig_opt *opt, int n_prompt, int n_step)
{
	rig cpu, gpu;
	bool follow[RK_MAX_LANE];
	int lanes[RK_MAX_LANE], left = 0;
	int32_t next[RK_MAX_LANE];

	rig_open(&cpu, opt, "cpu");
	rig_open(&gpu, opt, "cuda:0");
	int n = cpu.s.cfg.n_lane;
	int32_t *ids = aid_ids(n_prompt, cpu.m->hp.n_vocab, 5);
	aid_start(&cpu.s, ids, n_prompt, n_step + 1);
	aid_start(&gpu.s, ids, n_prompt, n_step + 1);
	for (int i = 0; i < n; i++) {
		follow[i] = same_step(&cpu, &gpu, i, -1);
		lanes[i] = i;
	}
	uint64_t allocs = emu_n_alloc();
	for (int t = 0; t < n_step; t++) {
		for (int i = 0; i < n; i++)
			next[i] = cpu.s.argmax[i];
		assert_int_equal(rk_session_step(&cpu.s, lanes, next, n, NULL), 0);
		assert_int_equal(rk_session_step(&gpu.s, lanes, next, n, NULL), 0);
		for (int i = 0; i < n; i++)
			follow[i] = follow[i] && same_step(&cpu, &gpu, i, t);
	}
	assert_int_equal(emu_n_alloc(), allocs);	/* the token loop allocates nothing */
	for (int i = 0; i < n; i++)
		left += follow[i];
	print_message("  %d of %d lanes equal to the end\n", left, n);
	assert_true(left >= n - 1);
	free(ids);
	rig_close(&gpu);
	rig_close(&cpu);
}

static void all_policies(void **state)
{
	(void)state;
	compare(&(aid_rig_opt){ .exact = true, .chunk = 48, .n_ctx = 512,
	                       .lanes = { "vanilla", "refreshkv:qc=3,s=0.6,k=40", "snapkv:k=30,window=16",
	        "refreshkv:qc=2,s=0.8,k=24,query=pre-cat", "h2o:k=32", "streamingllm:k=24", "refreshkv-nofull:k=32",
	        	"refreshkv-fixed:stride=4,k=16" } }, 150, 16);
}

/* Every width of sketches, query and way of refreshing; the stand-in; heads that are padded, prompts across chunks of
 * positions and blocks of keys. */
static void glances(void **state)
{
	(void)state;
	compare(&(aid_rig_opt){ .exact = true, .chunk = 48, .n_ctx = 512,
	                       .lanes = { "glance:k=24", "glance:k=20,bits=2,s=0.9,query=pre,group=max", "glance:k=16,bits=3,qc=2,query=post",
	        "glance:k=24,bits=8,tail=3,query=pre-cat", "glance:k=24,stride=1,bits=4", "refreshkv-nofull:k=20,bits=4,pool=5", "glance:k=9,bits=4,tail=5,s=0.5",
	        "glance:k=30,bits=3,stride=3,tail=4,group=mean" } }, 150, 9);
	compare(&(aid_rig_opt){ .tiny = { .n_layer = 2, .n_embd = 64, .n_head = 12, .n_kv_head = 4, .head_dim = 40,
	                                 .n_ff = 96 }, .exact = true, .chunk = 64, .n_ctx = 640, .keep_full = true,
	        .lanes = { "glance:k=100", "vanilla", "glance:k=50,bits=2,tail=2" } }, 265, 4);
}

/* Groups of 3 and 1, heads of 24 (a team of 4 lanes with one idle), prompts across the chunk of 256 positions. */
static void other_shapes(void **state)
{
	(void)state;
	compare(&(aid_rig_opt){ .tiny = { .n_layer = 2, .n_embd = 64, .n_head = 12, .n_kv_head = 4, .head_dim = 24,
	                                 .n_ff = 96 }, .exact = true, .chunk = 64,
	        .n_ctx = 640, .lanes = { "vanilla", "refreshkv:qc=2,s=0.7,k=300,query=post,group=mean", "h2o:k=280" } },
	        	520, 5);
	compare(&(aid_rig_opt){ .tiny = { .n_layer = 2, .n_embd = 64, .n_head = 2, .n_kv_head = 2, .head_dim = 32,
	                                 .untied = true, .rope_factors = true,
	        .type = RK_Q8_0 }, .exact = true, .chunk = 16, .n_ctx = 300, .keep_full = true,
	        .lanes = { "vanilla", "refreshkv-norefresh:k=8", "refreshkv:qc=1,s=1.5,k=8,group=first",
	                  "streamingllm:k=5" } }, 250, 8);
}

/* Logits of every lane after every step; turns, policy changes and the shadow's kind of call included. */
static uint64_t digest(uint64_t seed, const aid_rig_opt *opt)
{
	uint64_t h = 1469598103934665603ull;
	rig r;
	rk_err e;

	emu_seed(seed);
	rig_open(&r, opt, "cuda:0");
	int32_t *ids = aid_ids(120, r.m->hp.n_vocab, 7);
	aid_start(&r.s, ids, 100, 40);
	for (int t = 0; t < 14; t++) {
		if (t == 6)
			assert_int_equal(rk_session_set_policy(&r.s, 1, "k=12", &e), 0);
		if (t == 9)
			assert_int_equal(rk_session_turn(&r.s, 1, ids + 100, 9, NULL, NULL, &e), 0);
		aid_step_all(&r.s, ids[t]);
		for (int i = 0; i < r.s.cfg.n_lane; i++)
			for (int j = 0; j < r.m->hp.n_vocab; j++) {
				uint32_t u;
				assert_true(isfinite(aid_logits(&r.s, i)[j]));
				memcpy(&u, aid_logits(&r.s, i) + j, sizeof u);
				h = (h ^ u) * 1099511628211ull;
			}
	}
	free(ids);
	rig_close(&r);
	return h;
}

static void any_order_gives_the_same_bits(void **state)
{
	const aid_rig_opt opt = { .tiny = { .type = RK_Q4_1 }, .chunk = 32, .n_ctx = 200, .keep_full = true,
	                          .lanes = { "h2o:k=20", "refreshkv:qc=2,s=0.7,k=20", "glance:k=16,tail=4" } };
	uint64_t first = digest(1, &opt);

	(void)state;
	for (uint64_t seed = 2; seed <= 3; seed++)
		assert_int_equal(digest(seed, &opt), first);
}

/* A lane alone gives the bits that it gives among others; stride=1 gives those of vanilla. */
static void lanes_do_not_matter(void **state)
{
	aid_rig_opt opt = { .tiny = { .type = RK_Q4_0 }, .chunk = 32, .n_ctx = 200,
	                   .lanes = { "vanilla", "refreshkv-fixed:stride=1,k=20",
	                    "glance:k=20,bits=3,tail=3" } };
	rig all, one;
	int32_t *ids;

	(void)state;
	rig_open(&all, &opt, "cuda:0");
	opt.lanes[0] = opt.lanes[2];
	opt.lanes[1] = NULL;
	rig_open(&one, &opt, "cuda:0");
	size_t bytes = (size_t)all.m->hp.n_vocab * sizeof(float);
	ids = aid_ids(90, all.m->hp.n_vocab, 3);
	aid_start(&all.s, ids, 70, 30);
	aid_start(&one.s, ids, 70, 30);
	for (int t = 0; t < 8; t++) {
		aid_step_all(&all.s, ids[70 + t]);
		aid_step_all(&one.s, ids[70 + t]);
		assert_memory_equal(aid_logits(&all.s, 0), aid_logits(&all.s, 1), bytes);
		assert_memory_equal(aid_logits(&all.s, 2), aid_logits(&one.s, 0), bytes);
	}
	free(ids);
	rk_session_free(&all.s);
	rk_backend_close(all.b);
	rk_model_free(all.m);
	close(all.fd);
	rig_close(&one);
}

/* A shape is recorded once: refreshkv has steps that may select and steps that may not. */
static void steps_are_replayed(void **state)
{
	const aid_rig_opt opt = { .chunk = 32, .n_ctx = 200, .exact = true, .lanes = { "refreshkv:qc=4,k=20" } };
	rig r;

	(void)state;
	rig_open(&r, &opt, "cuda:0");
	int32_t *ids = aid_ids(90, r.m->hp.n_vocab, 3);
	aid_start(&r.s, ids, 50, 30);
	uint64_t replays = emu_n_replay(), launches = 0, before = 0;
	for (int t = 0; t < 12; t++) {
		before = emu_n_launch();
		aid_step_all(&r.s, ids[t]);
		if (t == 4)
			launches = emu_n_launch() - before;
		if (t > 4 && t % 4 != 3)
			assert_int_equal(emu_n_launch() - before, launches);
		assert_true(r.s.ns_attn[0] > 0);
	}
	assert_int_equal(emu_n_replay() - replays, 12);
	free(ids);
	rig_close(&r);
}

/* The shadow, in batches, predicts what lane 0 predicts when that is vanilla. */
static void shadow_agrees(void **state)
{
	const aid_rig_opt opt = { .chunk = 32, .n_ctx = 200, .exact = true, .lanes = { "vanilla" } };
	rig r;
	rk_session_cfg cfg;
	rk_err e;
	float *logits, lse[RK_SHADOW_BATCH];
	int32_t argmax[RK_SHADOW_BATCH];
	int64_t ns;

	(void)state;
	rig_open(&r, &opt, "cuda:0");
	cfg = r.s.cfg;
	cfg.shadow = true;
	rk_session_free(&r.s);
	assert_int_equal(rk_session_init(&r.s, r.m, r.b, &cfg, &e), 0);
	int32_t *ids = aid_ids(90, r.m->hp.n_vocab, 3);
	aid_start(&r.s, ids, 50, 30);
	logits = calloc((size_t)(RK_SHADOW_BATCH * r.m->hp.n_vocab), sizeof *logits);
	for (int t = 0; t < 5; t++)
		aid_step_one(&r.s, 0, ids[60 + t]);
	assert_int_equal(rk_session_shadow(&r.s, ids + 60, 5, logits, lse, argmax, &ns, &e), 0);
	assert_true(aid_max_diff(logits + 4 * r.m->hp.n_vocab, aid_logits(&r.s, 0), r.m->hp.n_vocab) <= TOL_LOGIT);
	assert_true(ns > 0);
	assert_true(r.b->ops->logits_kl(r.b, aid_logits(&r.s, 0), r.s.lse[0], logits + 4 * r.m->hp.n_vocab,
	                                lse[4]) < 1e-6f);
	free(logits);
	free(ids);
	rig_close(&r);
}

static void expect_error(const char *device, enum rk_code code, const char *part)
{
	char path[32];
	rk_model *m;
	rk_backend *b;
	rk_err e;
	rk_backend_cfg cfg = { .device = device, .n_thread = 1, .max_rows = 64, .max_pos = 128 };
	int fd = aid_tiny_memfd(&(aid_tiny){ 0 }, 1, path);

	assert_int_equal(rk_model_load(&m, path, &e), 0);
	assert_int_equal(rk_backend_open(&b, m, &cfg, &e), -1);
	assert_int_equal(e.code, code);
	if (!strstr(e.msg, part))
		fail_msg("'%s' does not say '%s'", e.msg, part);
	rk_model_free(m);
	close(fd);
}

static void expect_cpu(const char *part)
{
	char path[32];
	rk_model *m;
	rk_backend *b;
	rk_err e;
	rk_backend_cfg cfg = { .device = "auto", .n_thread = 1, .max_rows = 64, .max_pos = 128 };
	int fd = aid_tiny_memfd(&(aid_tiny){ 0 }, 1, path);

	assert_int_equal(rk_model_load(&m, path, &e), 0);
	assert_int_equal(rk_backend_open(&b, m, &cfg, &e), 0);
	if (strncmp(b->device, "cpu", 3) || !strstr(b->device, part))
		fail_msg("'%s' does not say '%s'", b->device, part);
	rk_backend_close(b);
	rk_model_free(m);
	close(fd);
}

static void devices_that_cannot_be_used(void **state)
{
	const uint64_t memory = 8ull << 30;

	(void)state;
	expect_error("cuda:3", RK_EUSAGE, "this machine has 1 (cuda:0 to cuda:0)");
	expect_error("cuda:x", RK_EUSAGE, "not one of auto, cpu, cuda:N");
	expect_error("cuda:-1", RK_EUSAGE, "not one of");
	expect_error("gpu", RK_EUSAGE, "not one of");
	emu_machine(0, 0, 0, 0, memory);
	expect_error("cuda:0", RK_EUSAGE, "no CUDA driver");
	expect_cpu("no CUDA driver");
	emu_machine(1, 12040, 8, 0, memory);
	expect_error("cuda", RK_EUSAGE, "the driver is for CUDA 12.4, 13.0 is needed");
	emu_machine(0, DRIVER, 8, 0, memory);
	expect_error("cuda:0", RK_EUSAGE, "no CUDA-capable device");
	emu_machine(1, DRIVER, 7, 5, memory);
	expect_error("cuda:0", RK_EUSAGE, "compute capability 7.5, 8.0 is needed");
	expect_cpu("compute capability");
	emu_machine(1, DRIVER, 8, 0, 1000);
	expect_error("cuda:0", RK_ENOMEM, "the model takes");
	emu_machine(1, DRIVER, 8, 0, 1 << 20);
	expect_error("cuda:0", RK_ENOMEM, "lower --ctx");
	emu_machine(1, DRIVER, 9, 0, memory);
	assert_int_equal(emu_bytes_held(), 0);
}

/* The caches do not fit, by the plan or because the memory is in pieces: an error that names sizes and flags, and the session can
 * start again smaller. */
static void session_out_of_memory(void **state)
{
	const aid_rig_opt opt = { .chunk = 32, .n_ctx = 3000, .lanes = { "vanilla" } };
	rig r;
	rk_err e;

	(void)state;
	rig_open(&r, &opt, "cuda:0");
	int32_t *ids = aid_ids(2000, r.m->hp.n_vocab, 3);
	emu_machine(1, DRIVER, 9, 0, emu_bytes_held() + 400000);
	assert_int_equal(rk_session_start(&r.s, ids, 2000, 900, NULL, NULL, &e), -1);
	assert_int_equal(e.code, RK_ENOMEM);
	assert_int_equal(strncmp(e.msg, "not enough memory on cuda:0 emulated device: this session needs ", 64), 0);
	assert_non_null(strstr(e.msg, "KV cache for 2000 + 900 tokens), 0.4 MB are available; lower --ctx or -n"));
	emu_machine(1, DRIVER, 9, 0, 8ull << 30);
	for (int n = 1; n <= 3; n++) {
		emu_fail("cudaMalloc", n, 2);
		assert_int_equal(rk_session_start(&r.s, ids, 2000, 900, NULL, NULL, &e), -1);
		assert_int_equal(e.code, RK_ENOMEM);
		if (!strstr(e.msg, "the session takes ") || !strstr(e.msg, " MB are free; lower --ctx, -n, --chunk or the number of lanes"))
			fail_msg("'%s'", e.msg);
	}
	aid_start(&r.s, ids, 40, 10);
	aid_step_all(&r.s, 5);
	free(ids);
	rig_close(&r);
}

/* Every call of opening a device may fail: one error, nothing is left behind, and the next opening is well. */
static void opening_fails(void **state)
{
	static const struct { const char *call; int n, error; enum rk_code code; const char *part; } cases[] = {
		{ "cudaGetDeviceProperties", 1, 999, RK_EUSAGE, "device cuda:0: " },
		{ "cudaSetDevice", 1, 999, RK_EFAIL, "cudaSetDevice: " },
		{ "cudaStreamCreateWithFlags", 1, 719, RK_EFAIL, "cudaStreamCreate: " },
		{ "cublasCreate", 1, 2, RK_EFAIL, "cublasCreate: " },
		{ "cudaMalloc", 1, 2, RK_ENOMEM, "the model takes " }, { "cudaMalloc", 2, 2, RK_ENOMEM, "the scratch takes " },
		{ "cudaMalloc", 5, 2, RK_ENOMEM, "the scratch takes " }, { "cudaMalloc", 2, 214, RK_EFAIL, "cudaMalloc: uncorrectable ECC" },
		{ "cudaMemcpyAsync", 3, 719, RK_EFAIL, "copy of the weights: " },
		{ "cudaMallocHost", 1, 2, RK_EFAIL, "cudaMallocHost: out of memory" }, { "cudaMallocHost", 4, 2, RK_EFAIL, "cudaMallocHost: " },
		{ "cudaFuncSetAttribute", 1, 209, RK_EFAIL, "cudaFuncSetAttribute: no kernel image" },
		{ "cudaStreamSynchronize", 1, 214, RK_EFAIL, "copy of the weights: uncorrectable ECC" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		emu_fail(cases[i].call, cases[i].n, cases[i].error);
		expect_error("cuda:0", cases[i].code, cases[i].part);
		emu_fail("", 0, 0);
		assert_int_equal(emu_bytes_held(), 0);
	}
}

/* A call fails in the prompt or in mid-generation: one error that names it, no crash, and everything is closed. */
static void session_fails(void **state)
{
	static const struct { const char *call; int n, error; const char *part; } cases[] = {
		{ "cudaStreamSynchronize", 1, 214, ": uncorrectable ECC error" }, { "cudaStreamSynchronize", 3, 700, ": an illegal memory access" },
		{ "cudaStreamSynchronize", 6, 214, ": uncorrectable ECC error" }, { "cudaMemcpyAsync", 2, 719, "copy of " },
		{ "cudaMemcpyAsync", 7, 719, "copy " }, { "launch", 3, 209, "no kernel image" }, { "launch", 40, 719, ": unspecified launch" },
	}, running[] = {
		{ "cudaStreamBeginCapture", 1, 719, "cudaStreamBeginCapture: " }, { "cudaStreamEndCapture", 1, 719, "cudaStreamEndCapture: " },
		{ "cudaGraphInstantiate", 1, 2, "cudaGraphInstantiate: out of memory" }, { "cudaGraphLaunch", 1, 719, "cudaGraphLaunch: " },
		{ "cudaGraphLaunch", 4, 719, "cudaGraphLaunch: " }, { "cudaMemsetAsync", 1, 719, "cudaMemsetAsync: " },
	};
	const aid_rig_opt opt = { .chunk = 32, .n_ctx = 200, .lanes = { "refreshkv:qc=2,k=20", "vanilla" } };
	enum { N_CASE = sizeof cases / sizeof *cases, N_RUNNING = sizeof running / sizeof *running };

	(void)state;
	for (int i = 0; i < 2 * N_CASE + N_RUNNING; i++) {
		bool started = i >= N_CASE;
		const char *call = i < 2 * N_CASE ? cases[i % N_CASE].call : running[i - 2 * N_CASE].call;
		const char *part = i < 2 * N_CASE ? cases[i % N_CASE].part : running[i - 2 * N_CASE].part;
		rig r;
		rk_err e = { 0 };
		int failed = 0;
		rig_open(&r, &opt, "cuda:0");
		int32_t *ids = aid_ids(40, r.m->hp.n_vocab, 3);
		if (started)
			aid_start(&r.s, ids, 40, 30);
		emu_fail(call, i < 2 * N_CASE ? cases[i % N_CASE].n : running[i - 2 * N_CASE].n,
		         i < 2 * N_CASE ? cases[i % N_CASE].error : running[i - 2 * N_CASE].error);
		if (!started)
			failed = rk_session_start(&r.s, ids, 40, 30, NULL, NULL, &e);
		for (int t = 0; !failed && t < 10; t++)
			failed = rk_session_step(&r.s, (int[]){ 0, 1 }, (int32_t[]){ 4, 5 }, 2, &e);
		assert_int_equal(failed, -1);
		assert_int_equal(e.code, RK_EFAIL);
		if (!strstr(e.msg, part) || strncmp(e.msg, "GPU 0 (cuda:0 emulated device): ", 32))
			fail_msg("%s: '%s'", call, e.msg);
		rk_session_free(&r.s);
		rk_backend_close(r.b);
		rk_model_free(r.m);
		close(r.fd);
		free(ids);
		emu_fail("", 0, 0);
		assert_int_equal(emu_bytes_held(), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_policies),
		cmocka_unit_test(other_shapes),
		cmocka_unit_test(glances),
		cmocka_unit_test(any_order_gives_the_same_bits),
		cmocka_unit_test(lanes_do_not_matter),
		cmocka_unit_test(steps_are_replayed),
		cmocka_unit_test(shadow_agrees),
		cmocka_unit_test(devices_that_cannot_be_used),
		cmocka_unit_test(session_out_of_memory),
		cmocka_unit_test(opening_fails),
		cmocka_unit_test(session_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
