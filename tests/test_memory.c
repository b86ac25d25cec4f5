/* test_memory.c: what a session reads, plans and allocates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aid_session.h"

static void check_bytes_read(void **state)
{
	(void)state;
	for (int exact = 0; exact < 2; exact++) {
		aid_rig_opt opt = { .exact = exact, .lanes = { "vanilla", "refreshkv-norefresh", "streamingllm", "snapkv", "h2o",
		    "refreshkv-fixed:stride=5",
		                                               "refreshkv-fixed:stride=5,attend=selected" } };
		aid_rig r;
		aid_rig_open(&r, &opt);
		const rk_hparams *hp = &r.m->hp;
		int32_t *ids = aid_ids(240, hp->n_vocab, 24);
		int64_t k = 200 / 8, pair = hp->n_layer * hp->n_kv_head * hp->head_dim * 2 * (exact ? 4 : 2);	/* of one position */
		aid_start(&r.s, ids, 200, 40);
		for (int i = 0; i < 40; i++) {
			aid_step_all(&r.s, ids[200 + i]);
			const rk_step_report *v = r.s.report;
			int64_t n = 201 + i;
			bool full = i % 5 == 4;
			assert_int_equal(v[0].bytes_full, n * pair);
			assert_int_equal(v[0].bytes_partial + v[0].bytes_score, 0);
			/* after a refresh the ring holds K: the next step attends K and the new token */
			assert_int_equal(v[1].bytes_partial, (k + 1) * pair);
			assert_int_equal(v[1].bytes_full + v[1].bytes_score, 0);
			assert_int_equal(v[2].bytes_partial, k * pair);
			assert_int_equal(v[3].bytes_partial, (k + 1 + i) * pair);
			assert_int_equal(v[4].bytes_partial, (k + 1) * pair);
			assert_int_equal(v[5].bytes_partial, full ? 0 : (k + 1) * pair);
			assert_int_equal(v[5].bytes_full, full ? n * pair : 0);
			assert_int_equal(v[6].bytes_partial, full ? k * pair : (k + 1) * pair);
			assert_int_equal(v[6].bytes_score, full ? n * pair / 2 : 0);
			assert_int_equal(v[6].bytes_full, 0);
		}
		free(ids);
		aid_rig_close(&r);
	}
}

/* A backend whose memory is counted. */
static struct { rk_backend_ops ops; const rk_backend_ops *real; void *p[64]; size_t bytes[64]; size_t held,
    most; int fail_at; } counted;

static int counted_alloc(rk_backend *b, size_t bytes, void **p, rk_err *e)
{
	int i = 0;
	if (counted.fail_at >= 0 && counted.fail_at-- == 0)
		return rk_fail(e, RK_ENOMEM, "cannot allocate %zu bytes", bytes);
	if (counted.real->alloc(b, bytes, p, e))
		return -1;
	while (counted.p[i])
		i++;
	counted.p[i] = *p;
	counted.bytes[i] = bytes;
	counted.held += bytes;
	counted.most = counted.held > counted.most ? counted.held : counted.most;
	return 0;
}

static void counted_free(rk_backend *b, void *p, size_t bytes)
{
	int i = 0;
	while (counted.p[i] != p)
		assert_true(++i < 64);
	assert_int_equal(counted.bytes[i], bytes);
	counted.p[i] = NULL;
	counted.held -= bytes;
	counted.real->free(b, p, bytes);
}

static void count_memory(rk_backend *b)
{
	memset(&counted, 0, sizeof counted);
	counted.fail_at = -1;
	counted.real = b->ops;
	counted.ops = *b->ops;
	counted.ops.alloc = counted_alloc;
	counted.ops.free = counted_free;
	b->ops = &counted.ops;
}

/* The plan is what is allocated, to the byte; and a failing allocation leaves nothing behind. */
static void check_plan(void **state)
{
	(void)state;
	static const struct { bool keep_full, shadow; const char *lanes[RK_MAX_LANE + 1]; } row[] = {
		{ false, false, { "vanilla" } }, { false, false, { "snapkv" } }, { false, false, { "h2o", "streamingllm" } },
		    { true, false, { "h2o", "snapkv" } },
		{ false, false, { "refreshkv", "refreshkv-fixed", "refreshkv-norefresh", "vanilla", "snapkv", "h2o",
		    "streamingllm:k=20", "refreshkv-nofull" } },
		{ false, true, { "refreshkv" } }, { false, true, { "glance", "glance:bits=2,k=9", "vanilla", "glance:stride=3" } },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		aid_rig_opt opt = { .chunk = 32, .n_ctx = 100 + 40, .keep_full = row[i].keep_full };
		aid_rig r;
		rk_err e;
		int64_t full, partial;
		memcpy(opt.lanes, row[i].lanes, sizeof opt.lanes);
		aid_rig_open(&r, &opt);
		if (row[i].shadow) {
			rk_session_cfg cfg = r.s.cfg;
			rk_session_free(&r.s);
			cfg.shadow = true;
			assert_int_equal(rk_session_init(&r.s, r.m, r.b, &cfg, &e), 0);
		}
		int32_t *ids = aid_ids(100, r.m->hp.n_vocab, 25);
		count_memory(r.b);
		aid_start(&r.s, ids, 100, 1000);
		const rk_plan *p = &r.s.plan;
		rk_session_cache_bytes(&r.s, &full, &partial);
		assert_int_equal(p->max_new, 40);
		assert_true(counted.most <= p->total - p->weights - p->backend);
		assert_true(counted.most >= (p->total - p->weights - p->backend) * 99 / 100);
		size_t kept = (r.s.prompt.k ? p->prompt_store : 0) + p->sketch;	/* given back where no lane will look at it again */
		size_t beside = rk_reference_bytes(r.b->hp);	/* in the tails, but no cache */
		for (int j = 0; j < r.s.cfg.n_lane + r.s.cfg.shadow; j++)
			kept += p->partial[j] + p->tail[j] - (p->tail[j] ? beside : 0);
		assert_int_equal(full + partial, kept);
		for (int n = 0; n < 3; n++)
			aid_step_all(&r.s, ids[n]);
		rk_session_clear(&r.s);
		assert_int_equal(counted.held, 0);
		for (int at = 0; ; at++) {
			counted.fail_at = at;
			int rc = rk_session_start(&r.s, ids, 100, 1000, NULL, NULL, &e);
			if (rc == 0) {
				assert_true(at > 1);
				break;
			}
			assert_int_equal(e.code, RK_ENOMEM);
			assert_int_equal(counted.held, 0);
		}
		counted.fail_at = -1;
		rk_session_clear(&r.s);
		assert_int_equal(counted.held, 0);
		free(ids);
		r.b->ops = counted.real;
		aid_rig_close(&r);
	}
}

/* A change of policy that finds no memory leaves the lane as it was. */
static void check_change_without_memory(void **state)
{
	(void)state;
	aid_rig_opt opt = { .lanes = { "refreshkv" } };
	aid_rig r;
	rk_err e;
	aid_rig_open(&r, &opt);
	int32_t *ids = aid_ids(100, r.m->hp.n_vocab, 26);
	count_memory(r.b);
	aid_start(&r.s, ids, 60, 40);
	size_t held = counted.held;
	counted.fail_at = 0;
	refused(rk_session_set_policy(&r.s, 0, "k=0.5", &e), &e, RK_ENOMEM, "", "");
	counted.fail_at = -1;
	assert_int_equal(counted.held, held);
	assert_true(r.s.lane[0].pol.k == 0.125);
	aid_step_all(&r.s, ids[60]);
	assert_int_equal(rk_session_set_policy(&r.s, 0, "k=0.5", &e), 0);
	aid_step_all(&r.s, ids[61]);
	rk_session_clear(&r.s);
	assert_int_equal(counted.held, 0);
	free(ids);
	r.b->ops = counted.real;
	aid_rig_close(&r);
}

#ifndef __SANITIZE_ADDRESS__
/* Every allocation of this thread, also by libraries, passes here. */
static _Thread_local int n_malloc;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
void *malloc(size_t n) { n_malloc++; return __libc_malloc(n); }
void *calloc(size_t n, size_t size) { n_malloc++; return __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { n_malloc++; return __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n) { n_malloc++; return __libc_memalign(align, n); }
#endif

static void check_steps_allocate_nothing(void **state)
{
	(void)state;
#ifdef __SANITIZE_ADDRESS__
	print_message("skipped: the sanitizer has its own allocator\n");
	skip();
#else
	for (int f = 0; f < 3; f++) {
		aid_rig_opt opt = flavour(f);
		aid_rig r;
		const char *lanes[] = { "vanilla", "refreshkv", "refreshkv-fixed:stride=3", "snapkv", "h2o", "streamingllm",
		    "refreshkv-nofull:s=0.99", "vanilla" };
		memcpy(opt.lanes, lanes, sizeof lanes);
		opt.n_thread = 2;
		aid_rig_open(&r, &opt);
		int32_t *ids = aid_ids(150, r.m->hp.n_vocab, 27);
		aid_start(&r.s, ids, 80, 70);
		aid_step_all(&r.s, ids[80]);
		int before = n_malloc;
		for (int i = 81; i < 150; i++)
			aid_step_all(&r.s, ids[i]);
		assert_int_equal(n_malloc, before);
		free(ids);
		aid_rig_close(&r);
	}
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_bytes_read),
		cmocka_unit_test(check_plan),
		cmocka_unit_test(check_change_without_memory),
		cmocka_unit_test(check_steps_allocate_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
