/* test_turn.c: what happens to a session between replies: further turns, cancelled prefills, prompts that do not fit,
 * policies that change while it runs; against the simulation, and against sessions to which nothing happened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aid_session.h"

static void check_second_turn(void **state)
{
	(void)state;
	for (int i = 0; i < N_POLICY; i++) {
		rk_policy p = aid_policy(policies[i]);
		aid_rig_opt opt = { .exact = true, .chunk = 32, .seed = 1, .lanes = { policies[i] } };
		aid_rig r;
		aid_rig_open(&r, &opt);
		aid_sim *w = aid_sim_new(r.m, &p, false);
		int32_t *ids = aid_ids(200, r.m->hp.n_vocab, 16);
		double max = 0;
		int at = 60;
		aid_sim_start(w, ids, at);
		aid_start(&r.s, ids, at, 140);
		for (int turn = 0; turn < 3; turn++) {
			for (int k = 0; k < 12; k++, at++) {
				aid_step_all(&r.s, ids[at]);
				aid_sim_step(w, ids[at], r.s.report[0].kind, TIE_F32);
				assert_true(aid_sim_margin(w) > 1e-6);
				max = fmax(max, diff_from(&r.s, 0, w));
				check_reports(&r.s, w, false);
			}
			int n = (const int[]){ 1, 32, 45 }[turn];	/* less than a chunk, one, and one and a half */
			assert_int_equal(rk_session_turn(&r.s, 0, ids + at, n, NULL, NULL, NULL), 0);
			aid_sim_turn(w, ids + at, n);
			at += n;
			max = fmax(max, diff_from(&r.s, 0, w));
			check_rings(&r.s, w);
			assert_int_equal(r.s.lane[0].n_pos, at);
			assert_int_equal(r.s.lane[0].step, 0);
		}
		if (max >= TOL_F32)
			fail_msg("%s: off by %.1e", policies[i], max);
		free(ids);
		aid_sim_free(w);
		aid_rig_close(&r);
	}
}

/* With the full cache, a turn is a longer prompt. */
static void check_turn_is_a_longer_prompt(void **state)
{
	(void)state;
	aid_rig_opt opt = { .exact = true, .chunk = 16, .lanes = { "vanilla", "refreshkv:k=20", "refreshkv-fixed:k=20" } };
	aid_rig a, b;
	aid_rig_open(&a, &opt);
	aid_rig_open(&b, &opt);
	int32_t *ids = aid_ids(120, a.m->hp.n_vocab, 17);
	aid_start(&a.s, ids, 60, 60);
	for (int lane = 0; lane < 3; lane++)
		assert_int_equal(rk_session_turn(&a.s, lane, ids + 60, 41, NULL, NULL, NULL), 0);
	aid_start(&b.s, ids, 101, 19);
	for (int i = 101; i < 120; i++) {
		for (int lane = 0; lane < 3; lane++)
			assert_true(aid_max_diff(aid_logits(&a.s, lane), aid_logits(&b.s, lane), a.m->hp.n_vocab) < TOL_F32);
		aid_step_all(&a.s, ids[i]);
		aid_step_all(&b.s, ids[i]);
	}
	free(ids);
	aid_rig_close(&a);
	aid_rig_close(&b);
}

typedef struct progress { int calls, stop_at, last; } progress;

static int count_progress(void *ctx, int done, int total)
{
	progress *p = ctx;
	assert_true(done >= p->last && done <= total);
	p->last = done;
	return p->calls++ == p->stop_at;
}

static void check_cancel(void **state)
{
	(void)state;
	aid_rig_opt opt = { .exact = true, .chunk = 16, .lanes = { "vanilla", "refreshkv", "snapkv", "h2o" } };
	aid_rig a, b;
	aid_rig_open(&a, &opt);
	aid_rig_open(&b, &opt);
	int32_t *ids = aid_ids(140, a.m->hp.n_vocab, 18);
	/* the first prefill: 60 tokens in 12 + 16 + 16 + 16 */
	for (int stop = 0; stop < 4; stop++) {
		progress p = { .stop_at = stop };
		assert_int_equal(rk_session_start(&a.s, ids, 60, 80, count_progress, &p, NULL), 1);
		assert_int_equal(p.last, stop ? 12 + 16 * (stop - 1) : 0);
		assert_int_equal(a.s.n_prompt, 0);
		assert_null(a.s.prompt.k);
		assert_null(a.s.lane[1].part.k);
	}
	progress all = { .stop_at = -1 };
	assert_int_equal(rk_session_start(&a.s, ids, 60, 80, count_progress, &all, NULL), 0);
	assert_int_equal(all.calls, 5);
	assert_int_equal(all.last, 60);
	aid_start(&b.s, ids, 60, 80);
	aid_step_all(&a.s, ids[60]);
	aid_step_all(&b.s, ids[60]);
	/* a turn: lanes with the full cache are as before, the others keep what they were fed */
	for (int lane = 0; lane < 4; lane++) {
		progress p = { .stop_at = 2 };
		assert_int_equal(rk_session_turn(&a.s, lane, ids + 70, 50, count_progress, &p, NULL), 1);
	}
	for (int lane = 2; lane < 4; lane++) {
		assert_int_equal(a.s.lane[lane].n_pos, 63);
		for (int i = 0; i < 2; i++)
			aid_step_one(&b.s, lane, ids[70 + i]);
	}
	for (int i = 80; i < 90; i++) {
		aid_step_all(&a.s, ids[i]);
		aid_step_all(&b.s, ids[i]);
		for (int lane = 0; lane < 4; lane++)
			same_bits(&a.s, lane, &b.s, lane);
	}
	free(ids);
	aid_rig_close(&a);
	aid_rig_close(&b);
}

static void check_room(void **state)
{
	(void)state;
	aid_rig_opt opt = { .n_ctx = 50, .lanes = { "vanilla", "snapkv", "streamingllm:k=8" } };
	aid_rig r;
	rk_err e;
	aid_rig_open(&r, &opt);
	int32_t *ids = aid_ids(60, r.m->hp.n_vocab, 19);
	refused(rk_session_start(&r.s, ids, 0, 5, NULL, NULL, &e), &e, RK_EFAIL, "empty", "");
	refused(rk_session_start(&r.s, ids, 51, 5, NULL, NULL, &e), &e, RK_EFAIL, "51", "50");
	aid_start(&r.s, ids, 50, 5);	/* nothing more fits, but it can be read */
	assert_int_equal(rk_session_room(&r.s, 0), 0);
	refused(rk_session_step(&r.s, &(int){ 1 }, ids, 1, &e), &e, RK_EFAIL, "lane 1", "50");
	aid_start(&r.s, ids, 40, 100);	/* as much as there is */
	assert_int_equal(rk_session_room(&r.s, 0), 10);
	for (int lane = 0; lane < 3; lane++) {
		refused(rk_session_turn(&r.s, lane, ids, 11, NULL, NULL, &e), &e, RK_EFAIL, "11", "--ctx");
		assert_int_equal(rk_session_room(&r.s, lane), 10);
	}
	for (int i = 0; i < 9; i++)
		aid_step_all(&r.s, ids[i]);
	assert_int_equal(rk_session_turn(&r.s, 0, ids, 1, NULL, NULL, &e), 0);
	aid_step_one(&r.s, 1, ids[0]);
	for (int lane = 0; lane < 2; lane++)
		refused(rk_session_step(&r.s, &lane, ids, 1, &e), &e, RK_EFAIL, "50 of 50", "--ctx");
	aid_step_one(&r.s, 2, ids[0]);	/* the others being full does not matter */
	free(ids);
	aid_rig_close(&r);
}

static void check_bad_configurations(void **state)
{
	(void)state;
	aid_rig_opt opt = { .chunk = 16, .lanes = { "streamingllm:k=0.05" } };
	aid_rig r;
	rk_err e;
	rk_session s;
	aid_rig_open(&r, &opt);
	int32_t *ids = aid_ids(80, r.m->hp.n_vocab, 20);
	refused(rk_session_start(&r.s, ids, 80, 5, NULL, NULL, &e), &e, RK_EUSAGE, "streamingllm", "sinks");	/* 4 of 80 */
	assert_null(r.s.prompt.k);
	for (int n = -1; n <= RK_MAX_LANE + 1; n += RK_MAX_LANE + 2) {
		rk_session_cfg cfg = { .n_lane = n };
		refused(rk_session_init(&s, r.m, r.b, &cfg, &e), &e, RK_EUSAGE, "lanes", "8");
		rk_session_free(&s);
	}
	rk_session_cfg cfg = { .n_lane = 1, .chunk = 16, .lane = { aid_policy("snapkv:window=17") } };
	refused(rk_session_init(&s, r.m, r.b, &cfg, &e), &e, RK_EUSAGE, "window=17", "--chunk");
	rk_session_free(&s);
	free(ids);
	aid_rig_close(&r);
}

/* ---- policies that change while the session runs ---- */

/* Steps both, compares, and says how many layers took a full step. */
static int compare_steps(rk_session *s, aid_sim *w, const int32_t *ids, int n)
{
	int full = 0;
	for (int i = 0; i < n; i++) {
		bool forced = s->lane[0].force_full;
		aid_step_one(s, 0, ids[i]);
		aid_sim_step(w, ids[i], s->report[0].kind, TIE_F32);
		assert_true(aid_sim_margin(w) > 1e-6);
		assert_true(diff_from(s, 0, w) < TOL_F32);
		check_reports(s, w, forced);
		check_rings(s, w);
		for (int l = 0; l < s->m->hp.n_layer; l++)
			full += s->report[0].kind[l] != RK_STEP_PARTIAL;
	}
	return full;
}

static void check_policy_changes(void **state)
{
	(void)state;
	/* ring: the change needs another partial cache, which the next step fills */
	static const struct { const char *from, *to; bool ring; } change[] = {
		{ "refreshkv:s=0.8", "k=0.25", true }, { "refreshkv:s=0.8", "k=5", true }, { "refreshkv:s=0.8", "s=0.99,qc=2",
		    false },
		{ "refreshkv", "pool=3,group=mean", false }, { "refreshkv:s=0.8", "stride=4", false }, { "refreshkv:s=0.8",
		    "vanilla", true },
		{ "vanilla", "refreshkv:s=0.8", true }, { "vanilla", "snapkv", true }, { "vanilla", "streamingllm", true },
		    { "vanilla", "h2o:k=1", false },
		{ "refreshkv:s=0.8", "streamingllm:k=20", true }, { "refreshkv", "refreshkv-norefresh", false }, { "snapkv",
		    "refreshkv:qc=2,s=0.9", true },
		{ "refreshkv-norefresh", "refreshkv:qc=3,s=0.8", true }, { "streamingllm", "sinks=2", true }, { "streamingllm",
		    "refreshkv:k=9", true },
		{ "h2o", "refreshkv", true }, { "h2o", "vanilla", true }, { "refreshkv-fixed:stride=5", "refreshkv:qc=1,s=0.7",
		    true },
		{ "refreshkv:s=0.8", "query=post", true }, { "refreshkv:s=0.8", "attend=selected", false },
		{ "glance", "bits=0", true }, { "glance:s=0.9", "bits=2", false }, { "glance:k=20", "refreshkv:k=9", true },
		{ "refreshkv:s=0.8", "glance", true },
	};
	for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
		rk_policy p = aid_policy(change[i].from);
		aid_rig_opt opt = { .exact = true, .chunk = 32, .keep_full = true, .seed = 1, .lanes = { change[i].from } };
		aid_rig r;
		rk_err e;
		aid_rig_open(&r, &opt);
		int32_t *ids = aid_ids(160, r.m->hp.n_vocab, 21);
		aid_sim *w = aid_sim_new(r.m, &p, false);
		aid_start(&r.s, ids, 80, 80);
		aid_sim_start(w, ids, 80);
		compare_steps(&r.s, w, ids + 80, 13);
		int rc = rk_session_set_policy(&r.s, 0, change[i].to, &e);
		if (aid_policy(strchr(change[i].to, '=') ? "h2o" : change[i].to).score == RK_SCORE_ACCUMULATED &&
		    !strncmp(change[i].to, "h2o", 3)) {
			refused(rc, &e, RK_EFAIL, "h2o", "prefill");
			compare_steps(&r.s, w, ids + 93, 5);
		} else {
			if (rc)
				fail_msg("%s, then %s: %s", change[i].from, change[i].to, e.msg);
			p = r.s.lane[0].pol;
			assert_memory_equal(&r.s.cfg.lane[0], &p, sizeof p);
			aid_sim_set_policy(w, &p, change[i].ring);
			int full = compare_steps(&r.s, w, ids + 93, 1);
			if (change[i].ring && p.score == RK_SCORE_ATTENTION)
				assert_int_equal(full, r.m->hp.n_layer);
			compare_steps(&r.s, w, ids + 94, 22);
			assert_int_equal(rk_session_turn(&r.s, 0, ids + 116, 10, NULL, NULL, &e), 0);
			aid_sim_turn(w, ids + 116, 10);
			compare_steps(&r.s, w, ids + 126, 10);
		}
		aid_sim_free(w);
		free(ids);
		aid_rig_close(&r);
	}
}

/* A change, and then a turn before any step. */
static void check_policy_change_before_turn(void **state)
{
	(void)state;
	static const char *const to[] = { "refreshkv:k=20", "snapkv:k=20", "streamingllm:k=20", "vanilla", "glance:k=20" };
	for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
		rk_policy p = aid_policy("refreshkv:s=0.8");
		aid_rig_opt opt = { .exact = true, .chunk = 32, .keep_full = true, .seed = 1, .lanes = { "refreshkv:s=0.8" } };
		aid_rig r;
		rk_err e;
		aid_rig_open(&r, &opt);
		int32_t *ids = aid_ids(160, r.m->hp.n_vocab, 22);
		aid_sim *w = aid_sim_new(r.m, &p, false);
		aid_start(&r.s, ids, 80, 80);
		aid_sim_start(w, ids, 80);
		compare_steps(&r.s, w, ids + 80, 3);
		assert_int_equal(rk_session_set_policy(&r.s, 0, to[i], &e), 0);
		aid_sim_set_policy(w, &r.s.lane[0].pol, true);
		assert_int_equal(rk_session_turn(&r.s, 0, ids + 83, 7, NULL, NULL, &e), 0);
		aid_sim_turn(w, ids + 83, 7);
		assert_true(diff_from(&r.s, 0, w) < TOL_F32);
		compare_steps(&r.s, w, ids + 90, 12);
		aid_sim_free(w);
		free(ids);
		aid_rig_close(&r);
	}
}

static void check_policy_refusals(void **state)
{
	(void)state;
	aid_rig_opt opt = { .chunk = 16, .lanes = { "snapkv", "refreshkv", "refreshkv-norefresh", "vanilla", "h2o" } };
	static const struct { int lane; const char *spec; enum rk_code code; const char *a, *b; } bad[] = {
		{ 0, "refreshkv", RK_EFAIL, "snapkv", "full cache" }, { 0, "k=0.5", RK_EFAIL, "snapkv", "full cache" },
		{ 0, "vanilla", RK_EFAIL, "snapkv", "full cache" }, { 2, "refreshkv", RK_EFAIL, "norefresh", "full cache" },
		{ 1, "h2o", RK_EFAIL, "h2o", "prefill" }, { 4, "k=3", RK_EFAIL, "h2o", "full cache" }, { 1, "streamingllm:k=0.05",
		    RK_EUSAGE, "sinks", "4" },
		{ 1, "refreshkv-norefresh:window=17", RK_EUSAGE, "17", "16" }, { 1, "kk=3", RK_EUSAGE, "kk", "" }, { 1, "k=0",
		    RK_EUSAGE, "k", "0" },
		{ 1, "nonsense", RK_EUSAGE, "nonsense", "" }, { 5, "vanilla", RK_EUSAGE, "lane 5", "4" }, { -1, "vanilla",
		    RK_EUSAGE, "lane -1", "4" },
		{ 3, "k=0.5", RK_EUSAGE, "vanilla", "k" },
	};
	aid_rig a, b;
	rk_err e;
	aid_rig_open(&a, &opt);
	aid_rig_open(&b, &opt);
	int32_t *ids = aid_ids(120, a.m->hp.n_vocab, 23);
	/* nothing runs yet: anything goes, also what will need a prefill */
	assert_int_equal(rk_session_set_policy(&a.s, 0, "h2o", &e), 0);
	assert_int_equal(rk_session_set_policy(&a.s, 0, "snapkv", &e), 0);
	aid_start(&a.s, ids, 80, 40);
	aid_start(&b.s, ids, 80, 40);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(rk_session_set_policy(&a.s, bad[i].lane, bad[i].spec, &e), &e, bad[i].code, bad[i].a, bad[i].b);
	for (int i = 80; i < 100; i++) {
		aid_step_all(&a.s, ids[i]);
		aid_step_all(&b.s, ids[i]);
		for (int lane = 0; lane < 5; lane++)
			same_bits(&a.s, lane, &b.s, lane);
	}
	/* what is set outlives the session: the next one starts with it */
	assert_int_equal(rk_session_set_policy(&a.s, 1, "k=0.25", &e), 0);
	aid_start(&a.s, ids, 80, 40);
	assert_int_equal(a.s.lane[1].budget, 20);
	assert_int_equal(a.s.lane[1].part.count[0], 20);
	free(ids);
	aid_rig_close(&a);
	aid_rig_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_second_turn),
		cmocka_unit_test(check_turn_is_a_longer_prompt),
		cmocka_unit_test(check_cancel),
		cmocka_unit_test(check_room),
		cmocka_unit_test(check_bad_configurations),
		cmocka_unit_test(check_policy_changes),
		cmocka_unit_test(check_policy_change_before_turn),
		cmocka_unit_test(check_policy_refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
