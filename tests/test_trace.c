/* test_trace.c: the lines of a trace: what goes in comes out, and what is no line of a trace is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aid_trace.h"
#include "trace/json.h"

static void every_event_round_trips(void **state)
{
	(void)state;
	rk_trace_header h = aid_header();
	char *payload = malloc(1 << 20), *line;
	void *buf = NULL;
	size_t cap = 0, len;
	rk_event ev, back;
	rk_err e;
	for (int i = 0; i < 6000; i++) {
		aid_random_event(&ev, payload, i % (RK_EV_ERROR + 1));
		assert_int_equal(rk_trace_event_line(&h, &ev, payload, 0, &line, &len, &e), 0);
		assert_int_equal(line[len - 1], '\n');
		assert_null(memchr(line, '\n', len - 1));
		if (rk_trace_event_parse(&h, line, len - 1, &back, &buf, &cap, &e))
			fail_msg("%s\n%s", e.msg, line);
		aid_assert_same_event(&ev, payload, &back, buf);
		free(line);
	}
	free(payload);
	free(buf);
}

static void floats_are_the_shortest(void **state)
{
	(void)state;
	static const struct { float v; const char *text; } known[] = {
		{ 0.85f, "0.85" }, { 0.1f, "0.1" }, { 1.0f, "1.0" }, { -2.5f, "-2.5" }, { 1e-30f, "1e-30" }, { 16777216.0f, "16777216.0" },
		{ FLT_MAX, "3.4028235e38" }, { FLT_TRUE_MIN, "1.4013e-45" },
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		json_t *a = json_array();
		json_array_append_new(a, rk_trace_real(known[i].v));
		char *s = json_dumps(a, JSON_REAL_PRECISION(9));
		char want[40];
		snprintf(want, sizeof want, "[%s]", known[i].text);
		assert_string_equal(s, want);
		free(s);
		json_decref(a);
	}
	for (int i = 0; i < 20000; i++) {
		float v = aid_any_float();
		json_t *a = json_array();
		json_array_append_new(a, rk_trace_real(v));
		char *s = json_dumps(a, JSON_REAL_PRECISION(9));
		json_t *b = json_loads(s, 0, NULL);
		float back;
		assert_int_equal(rk_trace_take_float(json_array_get(b, 0), "v", &back, NULL), 0);
		assert_true(aid_same_float(&v, &back));
		json_decref(a);
		json_decref(b);
		free(s);
	}
}

static void header_round_trips(void **state)
{
	(void)state;
	rk_trace_header h = aid_header(), back;
	const int32_t ids[] = { 1, 999, 0 };
	char *line, *again;
	size_t len, len2;
	rk_err e;
	assert_int_equal(rk_trace_header_prompt(&h, ids, 3, true, &e), 0);
	/* SHA-256 of 01000000 e7030000 00000000, by another program. */
	assert_string_equal(h.prompt_sha256, "6e4f65ca6df4e4f88095ede37d7dd6976deaa8853bb22def6778044a281d4451");
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	assert_int_equal(rk_trace_header_parse(&back, line, len - 1, &e), 0);
	assert_int_equal(back.n_prompt, 3);
	assert_memory_equal(back.prompt, ids, sizeof ids);
	assert_string_equal(back.model, h.model);
	assert_int_equal(back.follow, RK_FOLLOW_FIRST);
	assert_float_equal(back.sampling.temp, 0.7f, 0);
	assert_int_equal(rk_trace_header_line(&back, &again, &len2, &e), 0);
	assert_string_equal(line, again);
	free(line);
	free(again);
	rk_trace_header_free(&h);
	rk_trace_header_free(&back);
}

/* A line that is not an event is an error that says why. */
static void hostile_lines_are_refused(void **state)
{
	(void)state;
	static const char *const bad[][2] = {
		{ "", "not JSON" }, { "{", "not JSON" }, { "[]", "not a JSON object" }, { "null", "not JSON" }, { "{\"ev\":\"idle\"}", "\"lane\" is missing" },
		{ "{\"ev\":\"what\",\"lane\":0,\"t\":0}", "unknown event \"what\"" },
		{ "{\"ev\":\"idle\",\"lane\":-2,\"t\":0}", "\"lane\" is -2" }, { "{\"ev\":\"idle\",\"lane\":8,\"t\":0}", "\"lane\" is 8" },
		{ "{\"ev\":\"token\",\"lane\":-1,\"t\":0}", "\"lane\" is -1" },
		{ "{\"ev\":\"idle\",\"lane\":0,\"t\":-1}", "\"t\" is -1" }, { "{\"ev\":\"idle\",\"lane\":0,\"t\":99999999999999999999}", "not JSON" },
		{ "{\"ev\":\"idle\",\"lane\":0,\"t\":1.5}", "\"t\" is not an integer" },
		{ "{\"ev\":\"gap\",\"lane\":-1,\"t\":0,\"lost\":\"3\"}", "\"lost\" is not an integer" },
		{ "{\"ev\":\"start\",\"lane\":-1,\"t\":0,\"n_prompt\":1,\"n_lane\":9,\"n_layer\":30,\"bytes\":[1,1],\"policies\":[]}", "\"n_lane\" is 9" },
		{ "{\"ev\":\"start\",\"lane\":-1,\"t\":0,\"n_prompt\":1,\"n_lane\":1,\"n_layer\":300,\"bytes\":[1,1],\"policies\":[\"x\"]}", "in the header 30" },
		{ "{\"ev\":\"start\",\"lane\":-1,\"t\":0,\"n_prompt\":1,\"n_lane\":2,\"n_layer\":30,\"bytes\":[1,1],\"policies\":[\"x\"]}", "array of 2" },
		{ "{\"ev\":\"start\",\"lane\":-1,\"t\":0,\"n_prompt\":1,\"n_lane\":1,\"n_layer\":30,\"bytes\":[1,1],\"policies\":[\"/tmp/x:k=8\"]}", "entry 0 is not a policy" },
		{ "{\"ev\":\"start\",\"lane\":-1,\"t\":0,\"n_prompt\":1,\"n_lane\":1,\"n_layer\":30,\"bytes\":[1,1],\"policies\":[\"x.yaml\"]}", "entry 0 is not a policy" },
		{ "{\"ev\":\"start\",\"lane\":-1,\"t\":0,\"n_prompt\":1,\"n_lane\":1,\"n_layer\":30,\"bytes\":[1,1],\"policies\":[\"h2o\\nh2o\"]}", "entry 0 is not a policy" },
		{ "{\"ev\":\"control\",\"lane\":0,\"t\":0,\"policy\":\"./x\"}", "\"policy\" is not a policy" },
		{ "{\"ev\":\"token\",\"lane\":0,\"t\":0,\"id\":1000,\"pos\":0,\"lp\":0,\"lse\":0,\"top\":[]}", "the model has 1000" },
		{ "{\"ev\":\"token\",\"lane\":0,\"t\":0,\"id\":1,\"pos\":0,\"lp\":0,\"lse\":0,\"top\":[1]}", "\"top\"" },
		{ "{\"ev\":\"token\",\"lane\":0,\"t\":0,\"id\":1,\"pos\":0,\"lp\":1e300,\"lse\":0,\"top\":[]}", "\"lp\" is not a number" },
		{ "{\"ev\":\"token\",\"lane\":0,\"t\":0,\"id\":1,\"pos\":0,\"lp\":0,\"lse\":0,\"same\":1,\"top\":[]}", "\"same\" is not true or false" },
		{ "{\"ev\":\"step\",\"lane\":0,\"t\":0,\"pos\":1,\"ns\":[1],\"bytes\":[1,1,1,1]}", "\"ns\" is not an array of 2" },
		{ "{\"ev\":\"step\",\"lane\":0,\"t\":0,\"pos\":1,\"ns\":[1,1],\"bytes\":[1,1,1,1],\"full\":\"ffffffff\"}", "mask of 30" },
		{ "{\"ev\":\"step\",\"lane\":0,\"t\":0,\"pos\":1,\"ns\":[1,1],\"bytes\":[1,1,1,1],\"full\":\"1\"}", "mask of 8" },
		{ "{\"ev\":\"step\",\"lane\":0,\"t\":0,\"pos\":1,\"ns\":[1,1],\"bytes\":[1,1,1,1],\"cos\":[\"00000003\",1]}", "\"cos\"" },
		{ "{\"ev\":\"step\",\"lane\":0,\"t\":0,\"pos\":1,\"ns\":[1,1],\"bytes\":[1,1,1,1],\"cos\":[\"00000001\",1,1]}", "\"cos\" has other" },
		{ "{\"ev\":\"occupancy\",\"lane\":0,\"t\":0,\"held\":[1],\"cover\":\"\"}", "array of 120" },
		{ "{\"ev\":\"positions\",\"lane\":0,\"t\":0,\"layer\":30,\"heads\":[]}", "\"layer\" is 30" },
		{ "{\"ev\":\"positions\",\"lane\":0,\"t\":0,\"layer\":0,\"heads\":[[],[],[],[]]}", "at most 3" },
		{ "{\"ev\":\"positions\",\"lane\":0,\"t\":0,\"layer\":0,\"heads\":[[-1]]}", "does not lead to a position" },
		{ "{\"ev\":\"positions\",\"lane\":0,\"t\":0,\"layer\":0,\"heads\":[[2147483647,1]]}", "does not lead to a position" },
		{ "{\"ev\":\"positions\",\"lane\":0,\"t\":0,\"layer\":0,\"heads\":[7]}", "is not an array" },
		{ "{\"ev\":\"end\",\"lane\":0,\"t\":0,\"n_token\":1,\"reason\":\"bored\",\"hash\":\"0000000000000000\"}", "bored" },
		{ "{\"ev\":\"error\",\"lane\":-1,\"t\":0,\"code\":0}", "\"code\" is 0" },
	};
	rk_trace_header h = aid_header();
	void *buf = NULL;
	size_t cap = 0;
	rk_event ev;
	rk_err e;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(rk_trace_event_parse(&h, bad[i][0], strlen(bad[i][0]), &ev, &buf, &cap, &e), -1);
		if (!strstr(e.msg, bad[i][1]))
			fail_msg("%s: expected \"%s\", got \"%s\"", bad[i][0], bad[i][1], e.msg);
	}
	char *deep = malloc(200001);
	memset(deep, '[', 200000);
	assert_int_equal(rk_trace_event_parse(&h, deep, 200000, &ev, &buf, &cap, &e), -1);
	free(deep);
	char spec[RK_SPEC_MAX + 80];
	snprintf(spec, sizeof spec, "{\"ev\":\"control\",\"lane\":0,\"t\":0,\"policy\":\"%0*d\"}", RK_SPEC_MAX, 1);
	assert_int_equal(rk_trace_event_parse(&h, spec, strlen(spec), &ev, &buf, &cap, &e), -1);
	free(buf);
}
static void headers_are_checked(void **state)
{
	(void)state;
	rk_trace_header h = aid_header(), read;
	char *line, want[256];
	size_t len;
	rk_trace *t;
	rk_err e;
	strcpy(h.policy[1], "/dev/stdin:k=8");	/* a reader would open it */
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	assert_int_equal(rk_trace_header_parse(&read, line, len, &e), -1);
	assert_string_equal(e.msg, "\"policies\": entry 1 is not a policy in one line of fewer than 240 bytes that names no file");
	free(line);
	h = aid_header();
	h.version = 2;
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	aid_write_file(line, len);
	free(line);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), -1);
	snprintf(want, sizeof want, "%s:1: refreshkv-trace version 2 is newer than version 1, which this program reads", aid_path);
	assert_string_equal(e.msg, want);
	aid_write_file("{}\n", 3);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), -1);
	assert_non_null(strstr(e.msg, ":1: not a trace"));
	aid_write_file("", 0);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), -1);
	assert_int_equal(rk_trace_open(&t, "/nonexistent/x", &e), -1);
	assert_non_null(strstr(e.msg, "/nonexistent/x: cannot read"));
	assert_int_equal(rk_trace_open(&t, "/", &e), -1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, aid_fresh, aid_clean)
	const struct CMUnitTest tests[] = {
		T(every_event_round_trips), T(floats_are_the_shortest), T(header_round_trips), T(hostile_lines_are_refused), T(headers_are_checked),
	};
	return cmocka_run_group_tests(tests, aid_make_dir, aid_remove_dir);
}
