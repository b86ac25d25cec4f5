/* test_policy.c: presets, specs and their errors, policy files, budgets (policy/policy.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "policy/policy.h"

static rk_policy must_parse(const char *spec)
{
	rk_policy p;
	rk_err e = { 0 };
	if (rk_policy_parse(&p, spec, &e))
		fail_msg("%s: %s", spec, e.msg);
	return p;
}

static void assert_same(const rk_policy *a, const rk_policy *b)
{
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->score, b->score);
	assert_int_equal(a->group, b->group);
	assert_int_equal(a->window, b->window);
	assert_int_equal(a->pool, b->pool);
	assert_true(a->k == b->k);
	assert_int_equal(a->sinks, b->sinks);
	assert_int_equal(a->evict, b->evict);
	assert_int_equal(a->refresh, b->refresh);
	assert_int_equal(a->stride, b->stride);
	assert_int_equal(a->qc, b->qc);
	assert_true(a->s == b->s);
	assert_int_equal(a->query, b->query);
	assert_int_equal(a->attend, b->attend);
}

static void assert_spec(const char *spec, const char *canonical)
{
	char out[RK_SPEC_MAX];
	rk_policy p = must_parse(spec);
	rk_policy_spec(&p, out);
	assert_string_equal(out, canonical);
}

static void test_presets(void **state)
{
	(void)state;
	static const char *const canonical[] = {
		"glance:k=0.125,pool=1,group=mean,qc=1,s=0.87,query=post-cat,attend=selected,bits=2,tail=0",
		"h2o:k=0.125",
		"refreshkv:k=0.125,pool=7,group=max,qc=5,s=0.85,query=pre,attend=full",
		"refreshkv-dynamic:k=0.125,pool=7,group=max,qc=1,s=0.5,query=post-cat,attend=full",
		"refreshkv-fixed:k=0.125,pool=7,group=max,stride=10,attend=full",
		"refreshkv-nofull:k=0.125,pool=7,group=max,qc=5,s=0.85,query=pre,attend=selected,bits=0",
		"refreshkv-norefresh:k=0.125,pool=7,group=max,window=1",
		"snapkv:k=0.125,pool=7,group=max,window=1",
		"streamingllm:k=0.125,sinks=4",
		"vanilla",
	};
	const int n = sizeof canonical / sizeof *canonical;
	assert_int_equal(rk_policy_n_preset(), n);
	for (int i = 0; i < n; i++) {
		assert_spec(rk_policy_preset_name(i), canonical[i]);
		assert_non_null(strstr(rk_policy_preset_doc(i), "arXiv"));
	}
}

/* The fields that the backends execute. */
static void test_preset_fields(void **state)
{
	(void)state;
	rk_policy p = must_parse("vanilla");
	assert_int_equal(p.score, RK_SCORE_NONE);
	assert_true(rk_policy_keeps_full(&p));
	p = must_parse("streamingllm");
	assert_int_equal(p.score, RK_SCORE_POSITION);
	assert_int_equal(p.evict, RK_EVICT_OLDEST);
	assert_int_equal(p.sinks, 4);
	assert_false(rk_policy_keeps_full(&p));
	p = must_parse("h2o");
	assert_int_equal(p.score, RK_SCORE_ACCUMULATED);
	assert_int_equal(p.evict, RK_EVICT_LOWEST_ACCUMULATED);
	assert_false(rk_policy_keeps_full(&p));
	p = must_parse("snapkv");
	assert_int_equal(p.score, RK_SCORE_ATTENTION);
	assert_int_equal(p.evict, RK_EVICT_NONE);
	assert_int_equal(p.window, 1);
	assert_false(rk_policy_keeps_full(&p));
	p = must_parse("refreshkv");
	assert_int_equal(p.score, RK_SCORE_ATTENTION);
	assert_int_equal(p.group, RK_GROUP_MAX);
	assert_int_equal(p.evict, RK_EVICT_LOWEST);
	assert_int_equal(p.refresh, RK_REFRESH_QUERY);
	assert_int_equal(p.qc, 5);
	assert_true(p.s == 0.85f && p.k == 0.125);
	assert_int_equal(p.pool, 7);
	assert_int_equal(p.query, RK_QUERY_PRE);
	assert_int_equal(p.attend, RK_ATTEND_FULL);
	assert_true(rk_policy_keeps_full(&p));
	p = must_parse("refreshkv-fixed");
	assert_int_equal(p.refresh, RK_REFRESH_STRIDE);
	assert_int_equal(p.stride, 10);
	p = must_parse("refreshkv-norefresh");
	assert_int_equal(p.refresh, RK_REFRESH_NEVER);
	assert_int_equal(p.evict, RK_EVICT_LOWEST);
	assert_false(rk_policy_keeps_full(&p));
	p = must_parse("refreshkv-nofull");
	assert_int_equal(p.attend, RK_ATTEND_SELECTED);
}

static void test_canonical(void **state)
{
	(void)state;
	static const struct { const char *spec, *canonical; } cases[] = {
		{ "refreshkv:s=0.90,qc=10,k=512",
		  "refreshkv:k=512,pool=7,group=max,qc=10,s=0.9,query=pre,attend=full" },
		{ "refreshkv:k=5e-1,s=1.01,qc=1",
		  "refreshkv:k=0.5,pool=7,group=max,qc=1,s=1.01,query=pre,attend=full" },
		/* stride, qc and s say which refresh is meant */
		{ "refreshkv:stride=15", "refreshkv:k=0.125,pool=7,group=max,stride=15,attend=full" },
		{ "refreshkv-fixed:s=0.95",
		  "refreshkv-fixed:k=0.125,pool=7,group=max,qc=5,s=0.95,query=pre,attend=full" },
		{ "refreshkv-fixed:refresh=query",
		  "refreshkv-fixed:k=0.125,pool=7,group=max,qc=5,s=0.85,query=pre,attend=full" },
		{ "refreshkv:refresh=never", "refreshkv:refresh=never,k=0.125,pool=7,group=max,window=1" },
		{ "refreshkv:refresh=never,window=32", "refreshkv:refresh=never,k=0.125,pool=7,group=max,window=32" },
		{ "snapkv:evict=lowest", "snapkv:evict=lowest,k=0.125,pool=7,group=max,window=1" },
		{ "snapkv:evict=lowest,refresh=stride,stride=3",
		  "snapkv:evict=lowest,refresh=stride,k=0.125,pool=7,group=max,stride=3,attend=full" },
		{ "refreshkv:score=position,evict=oldest,refresh=never,sinks=0",
		  "refreshkv:score=position,evict=oldest,refresh=never,k=0.125,sinks=0" },
		{ "refreshkv:score=none,evict=none,refresh=never", "refreshkv:score=none,evict=none,refresh=never" },
		{ "streamingllm:k=5", "streamingllm:k=5,sinks=4" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_spec(cases[i].spec, cases[i].canonical);
}

/* docs/POLICIES.md calls these the same policy. */
static void test_three_names(void **state)
{
	(void)state;
	rk_policy a = must_parse("refreshkv-norefresh"), b = must_parse("snapkv:evict=lowest");
	rk_policy c = must_parse("refreshkv:refresh=never");
	memcpy(b.name, a.name, sizeof a.name);
	memcpy(c.name, a.name, sizeof a.name);
	assert_same(&a, &b);
	assert_same(&a, &c);
}

static void test_errors(void **state)
{
	(void)state;
	static const struct { const char *spec, *msg; } cases[] = {
		{ "refreskv", "unknown policy 'refreskv'; did you mean 'refreshkv'?" },
		{ "",
		  "unknown policy ''; valid: glance, h2o, refreshkv, refreshkv-dynamic, refreshkv-fixed, refreshkv-nofull, refreshkv-norefresh, snapkv, streamingllm, vanilla" },
		{ "refreshkv:", "policy refreshkv: '' is not key=value" },
		{ "refreshkv:qc", "policy refreshkv: 'qc' is not key=value" },
		{ "refreshkv:qc=5,", "policy refreshkv: '' is not key=value" },
		{ "refreshkv:sride=5", "policy refreshkv: unknown key 'sride'; did you mean 'stride'?" },
		{ "refreshkv:zebra=5",
		  "policy refreshkv: unknown key 'zebra'; valid: score, evict, refresh, k, pool, group, window, sinks, stride, qc, s, query, attend, bits, tail" },
		{ "refreshkv:qc=5,qc=6", "policy refreshkv: qc is given twice" },
		{ "refreshkv:group=maxi", "policy refreshkv: group=maxi is not valid; did you mean 'max'?" },
		{ "refreshkv:query=q", "policy refreshkv: query=q is not valid; valid: pre, post, pre-cat, post-cat" },
		{ "refreshkv:k=0", "policy refreshkv: k=0 is out of range: above 0, at most 1000000000" },
		{ "refreshkv:k=-1", "policy refreshkv: k=-1 is out of range: above 0, at most 1000000000" },
		{ "refreshkv:k=1e10", "policy refreshkv: k=1e10 is out of range: above 0, at most 1000000000" },
		{ "refreshkv:k=1.5", "policy refreshkv: k=1.5 counts tokens from 1 up and must be whole there" },
		{ "refreshkv:k=many", "policy refreshkv: k=many is not a number" },
		{ "refreshkv:pool=4", "policy refreshkv: pool=4 must be odd (1 to 255)" },
		{ "refreshkv:pool=257", "policy refreshkv: pool=257 is out of range: 1 to 255" },
		{ "refreshkv:pool=0", "policy refreshkv: pool=0 is out of range: 1 to 255" },
		{ "refreshkv:s=-1", "policy refreshkv: s=-1 is out of range: above -1, at most 2" },
		{ "refreshkv:s=2.1", "policy refreshkv: s=2.1 is out of range: above -1, at most 2" },
		{ "refreshkv:qc=0", "policy refreshkv: qc=0 is out of range: 1 to 1000000" },
		{ "refreshkv:stride=0", "policy refreshkv: stride=0 is out of range: 1 to 1000000" },
		{ "refreshkv:qc=2.5", "policy refreshkv: qc=2.5 is not a whole number" },
		{ "glance:bits=9", "policy glance: bits=9 is out of range: 0 to 8" },
		{ "glance:bits=5", "policy glance: bits=5 is not 0, 2, 3, 4 or 8" },
		{ "refreshkv:bits=4", "policy refreshkv: bits=4 has no meaning with score=attention, refresh=query, attend=full" },
		{ "refreshkv-nofull:tail=9", "policy refreshkv-nofull: tail=9 has no meaning with score=attention, refresh=query, bits=0" },
		{ "snapkv:bits=4", "policy snapkv: bits=4 has no meaning with score=attention, refresh=never" },
		{ "snapkv:window=0", "policy snapkv: window=0 is out of range: 1 to 1024" },
		{ "streamingllm:sinks=-1", "policy streamingllm: sinks=-1 is out of range: 0 to 1000000" },
		/* no meaning */
		{ "refreshkv:window=32",
		  "policy refreshkv: window=32 has no meaning with score=attention, refresh=query" },
		{ "vanilla:k=0.5", "policy vanilla: k=0.5 has no meaning with score=none, refresh=never" },
		{ "snapkv:qc=5", "policy snapkv: qc=5 has no meaning with score=attention, refresh=never" },
		{ "snapkv:attend=selected",
		  "policy snapkv: attend=selected has no meaning with score=attention, refresh=never" },
		{ "refreshkv:stride=10,s=0.9",
		  "policy refreshkv: s=0.9 has no meaning with score=attention, refresh=stride" },
		{ "refreshkv:stride=10,refresh=query",
		  "policy refreshkv: stride=10 has no meaning with score=attention, refresh=query" },
		{ "streamingllm:pool=3",
		  "policy streamingllm: pool=3 has no meaning with score=position, refresh=never" },
		{ "h2o:sinks=2", "policy h2o: sinks=2 has no meaning with score=accumulated, refresh=never" },
		/* do not go together */
		{ "streamingllm:refresh=query",
		  "policy streamingllm: score=position needs refresh=never, not refresh=query" },
		{ "h2o:refresh=stride", "policy h2o: score=accumulated needs refresh=never, not refresh=stride" },
		{ "vanilla:refresh=stride", "policy vanilla: score=none needs refresh=never, not refresh=stride" },
		{ "vanilla:evict=oldest", "policy vanilla: score=none needs evict=none, not evict=oldest" },
		{ "streamingllm:evict=none", "policy streamingllm: score=position needs evict=oldest, not evict=none" },
		{ "h2o:evict=lowest",
		  "policy h2o: score=accumulated needs evict=lowest-accumulated, not evict=lowest" },
		{ "snapkv:evict=oldest",
		  "policy snapkv: score=attention needs evict=lowest or none, not evict=oldest" },
		{ "refreshkv:evict=none", "policy refreshkv: refresh=query needs evict=lowest, not evict=none" },
		{ "streamingllm:k=4", "policy streamingllm: k=4 must exceed sinks=4" },
		{ "no/such.yaml", "no/such.yaml: cannot open: No such file or directory" },
		{ "such:no.yaml:k=1", "such:no.yaml: cannot open: No such file or directory" },
		{ "refreshkv:k=0.12345678901234567890123456789012345678901234567890123456789012345",
		  "policy refreshkv: 'k=0.123456789012345678901234567890123456...' is longer than 63 bytes" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		rk_policy p;
		rk_err e = { 0 };
		assert_int_equal(rk_policy_parse(&p, cases[i].spec, &e), -1);
		assert_string_equal(e.msg, cases[i].msg);
		assert_int_equal(e.code, RK_EUSAGE);
	}
	static char name[4000];
	rk_policy p;
	rk_err e;
	memset(name, 'x', sizeof name - 1);
	assert_int_equal(rk_policy_parse(&p, name, &e), -1);
	assert_string_equal(e.msg, "policy 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' has a name longer than 1023 bytes");
}

static void test_set(void **state)
{
	(void)state;
	rk_err e;
	rk_policy p = must_parse("refreshkv"), before = p, want;
	assert_int_equal(rk_policy_set(&p, "qc=10,k=256", &e), 0);
	want = must_parse("refreshkv:k=256,qc=10");
	assert_same(&p, &want);
	assert_int_equal(rk_policy_set(&p, "stride=4", &e), 0);	/* leaves no trace of qc=10 */
	want = must_parse("refreshkv:k=256,stride=4");
	assert_same(&p, &want);
	assert_int_equal(rk_policy_set(&p, "refresh=query,k=0.125", &e), 0);
	assert_same(&p, &before);
	assert_int_equal(rk_policy_set(&p, "qc=7,pool=2", &e), -1);	/* unchanged on error, qc too */
	assert_same(&p, &before);
}

/* Said only where a fraction is to blame, and only below 16 positions. */
static void test_remark(void **state)
{
	(void)state;
	static const struct { const char *spec; int n_prompt; bool said; } cases[] = {
		{ "refreshkv", 37, true }, { "refreshkv", 127, true }, { "refreshkv", 128, false }, { "refreshkv", 0, false },
		{ "snapkv:k=0.5", 20, true }, { "refreshkv:k=4", 37, false }, { "vanilla", 37, false },
	};
	char remark[RK_REMARK_MAX];
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		rk_policy p = must_parse(cases[i].spec);
		rk_policy_remark(&p, cases[i].n_prompt, remark);
		assert_int_equal(remark[0] != 0, cases[i].said);
	}
	rk_policy p = must_parse("refreshkv");
	rk_policy_remark(&p, 37, remark);
	assert_string_equal(remark, "policy refreshkv keeps 4 of this first prompt's 37 tokens (k=0.125), too few for a sensible reply; refreshkv:"
	                            "k=64 does not depend on the prompt");
}

static void test_budget(void **state)
{
	(void)state;
	static const struct { const char *spec; int n_prompt, budget; } cases[] = {
		{ "refreshkv", 1024, 128 }, { "refreshkv", 1023, 127 }, { "refreshkv", 7, 1 }, { "refreshkv", 0, 1 },
		{ "refreshkv:k=512", 100, 512 }, { "refreshkv:k=1", 100, 1 }, { "h2o:k=0.29", 100, 29 }, { "h2o:k=0.999", 1000, 999 },
		{ "refreshkv:k=1e-300", 100, 1 }, { "refreshkv:k=1e9", 100, 1000000000 }, { "vanilla", 1024, 0 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		rk_policy p = must_parse(cases[i].spec);
		assert_int_equal(rk_policy_budget(&p, cases[i].n_prompt), cases[i].budget);
	}
	rk_err e;
	rk_policy p = must_parse("streamingllm");
	assert_int_equal(rk_policy_check_budget(&p, 40, &e), 0);
	assert_int_equal(rk_policy_check_budget(&p, 39, &e), -1);
	assert_string_equal(e.msg, "policy streamingllm: k=0.125 of a prompt of 39 tokens keeps 4, which must exceed sinks=4");
	p = must_parse("refreshkv");
	assert_int_equal(rk_policy_check_budget(&p, 1, &e), 0);
}

/* ---- files ---- */

static char file_path[] = P_tmpdir "/rk-policy-XXXXXX.yaml";

static int parse_file(const char *text, const char *rest, rk_policy *p, rk_err *e)
{
	char spec[256];
	FILE *f = fopen(file_path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	snprintf(spec, sizeof spec, "%s%s", file_path, rest);
	*e = (rk_err){ 0 };
	return rk_policy_parse(p, spec, e);
}

static void test_files(void **state)
{
	(void)state;
	rk_policy p, want;
	rk_err e;
	assert_int_equal(parse_file("preset: refreshkv\ndoc: mine\ncite: none\ndeparts: a lot\nqc: 10\ns: 0.9\n", ":k=64", &p, &e), 0);
	want = must_parse("refreshkv:qc=10,s=0.9,k=64");
	assert_same(&p, &want);

	static const struct { const char *text, *msg; } cases[] = {	/* msg: after the path */
		{ "", ": 'preset: NAME' is missing, which says what the policy starts from" },
		{ "qc: 10\npreset: refreshkv\n",
		  ":1: 'qc' comes before 'preset: NAME', which says what the policy starts from" },
		{ "preset: snapvk\n", ":1: unknown policy 'snapvk'; did you mean 'snapkv'?" },
		{ "preset: h2o\n\nks: 1\n", ":3: unknown key 'ks'; did you mean 'k'?" },
		{ "preset: h2o\nk: 0\n", ":2: k=0 is out of range: above 0, at most 1000000000" },
		{ "preset: h2o\nk:\n", ":2: k= is not a number" },
		{ "preset: h2o\nk: 1\nk: 2\n", ":3: key 'k' is given twice" },
		{ "preset: h2o\nk: [1]\n", ":2: lists are not supported" },
		{ "preset: h2o\npool: 3\n",
		  ": policy h2o: pool=3 has no meaning with score=accumulated, refresh=never" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(parse_file(cases[i].text, "", &p, &e), -1);
		assert_memory_equal(e.msg, file_path, strlen(file_path));
		assert_string_equal(e.msg + strlen(file_path), cases[i].msg);
		assert_int_equal(e.code, RK_EUSAGE);
	}
	char text[600];
	snprintf(text, sizeof text, "preset: h2o\ndoc: %0500d\n", 0);
	assert_int_equal(parse_file(text, "", &p, &e), -1);
	assert_string_equal(e.msg + strlen(file_path), ":2: doc is longer than 159 bytes");
}

/* ---- properties ---- */

static uint64_t rng = 0x2545f4914f6cdd1du;
static unsigned next_random(unsigned n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (unsigned)(rng >> 33) % n;
}

/* A random value for each key, most of them valid. */
static void random_value(int key, char *out, size_t size)
{
	static const char *const words[][4] = {
		{ "none",
		  "attention", "accumulated", "position" }, { "none", "lowest", "oldest", "lowest-accumulated" },
		{ "never",
		  "stride", "query", "query" }, { "max", "mean", "first", "max" }, { "pre", "post", "pre", "post" },
		{ "full", "selected", "full", "selected" },
	};
	if (key < 6)
		snprintf(out, size, "%s", words[key][next_random(4)]);
	else if (key == 6 && next_random(2))		/* k as a fraction, with all its digits */
		snprintf(out, size, "%.17g", (next_random(1000000) + 1) / 1000003.0 / (next_random(3) ? 1 : 1e6));
	else if (key == 6)
		snprintf(out, size, "%u", next_random(100000) + 1);
	else if (key == 7)				/* s */
		snprintf(out, size, "%.9g", (double)((float)next_random(3000000) / 1e6f - 1.0f) * (next_random(9) ? 1 : 1e-6));
	else if (key == 8)				/* pool */
		snprintf(out, size, "%u", next_random(128) * 2 + 1);
	else
		snprintf(out, size, "%u", next_random(20) ? next_random(1000) + 1 : 1000000);
}

/* Parsing a canonical spec gives the same policy and the same spec, however the policy came about; no spec is cut short. */
static void test_round_trip(void **state)
{
	(void)state;
	static const char *const keys[] = {
		"score", "evict", "refresh", "group", "query", "attend", "k", "s", "pool", "window", "sinks", "stride", "qc",
	};
	const unsigned n_key = sizeof keys / sizeof *keys;
	rk_policy p = must_parse("refreshkv");
	size_t longest = 0;
	int changed = 0;
	for (int i = 0; i < 50000; i++) {
		char text[400] = "", spec[RK_SPEC_MAX], again[RK_SPEC_MAX];
		if (i % 16 == 0)
			p = must_parse(rk_policy_preset_name((int)next_random((unsigned)rk_policy_n_preset())));
		for (unsigned n = 1 + next_random(4), j = 0; j < n; j++) {
			char v[64];
			unsigned key = next_random(n_key);
			random_value((int)key, v, sizeof v);
			snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%s", j ? "," : "", keys[key], v);
		}
		changed += rk_policy_set(&p, text, NULL) == 0;
		rk_policy_spec(&p, spec);
		rk_policy q = must_parse(spec);
		assert_same(&p, &q);
		rk_policy_spec(&q, again);
		assert_string_equal(spec, again);
		if (strlen(spec) > longest)
			longest = strlen(spec);
	}
	assert_true(changed > 5000);		/* the walk went somewhere */
	assert_true(longest < RK_SPEC_MAX - 1);
}

/* The longest spec there is, from every preset. */
static void test_longest_spec(void **state)
{
	(void)state;
	for (int i = 0; i < rk_policy_n_preset(); i++) {
		char spec[RK_SPEC_MAX];
		rk_policy p = must_parse(rk_policy_preset_name(i)), q;
		rk_err e = { 0 };
		const char *all = "score=attention,evict=lowest,refresh=query,k=1.2345678901234567e-300,pool=255,group=first,"
			"qc=1000000,s=-1.23456791e-05,query=post-cat,attend=selected,bits=8,tail=1000000";
		if (rk_policy_set(&p, all, &e))
			fail_msg("%s", e.msg);
		rk_policy_spec(&p, spec);
		assert_true(strlen(spec) < RK_SPEC_MAX - 1);
		q = must_parse(spec);
		assert_same(&p, &q);
	}
}

static void test_help(void **state)
{
	(void)state;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	rk_policy_help(f);
	fclose(f);
	for (int i = 0; i < rk_policy_n_preset(); i++)
		assert_non_null(strstr(text, rk_policy_preset_name(i)));
	assert_non_null(strstr(text, "  qc        each layer compares its query at each qc-th step (1 to 1000000; default 5);"));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 100);
	free(text);
}

static int make_file(void **state)
{
	(void)state;
	int fd = mkstemps(file_path, 5);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(file_path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_presets), cmocka_unit_test(test_preset_fields), cmocka_unit_test(test_canonical),
		cmocka_unit_test(test_three_names), cmocka_unit_test(test_errors), cmocka_unit_test(test_set),
		cmocka_unit_test(test_budget), cmocka_unit_test(test_remark), cmocka_unit_test(test_files),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_longest_spec), cmocka_unit_test(test_help),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
