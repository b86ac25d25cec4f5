/* test_trace.c: the trace format, its files, and the recorder: what goes in comes out, whatever happens to the file.
 *
 * Events are random but reproducible.  Files live in a folder of their own under /tmp and are removed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aid_gguf.h"
#include "trace/asciicast.h"
#include "trace/json.h"
#include "trace/recorder.h"
#include "trace/series.h"

#define N_LAYER 30
#define N_KV 3
#define N_VOCAB 1000

static char dir[] = "/tmp/refreshkv-trace-XXXXXX";
static char path[128];
static uint64_t seed;

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

static int fresh(void **state)
{
	(void)state;
	seed = 7;
	snprintf(path, sizeof path, "%s/t.jsonl", dir);
	return 0;
}

static int clean(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

/* ---- random events ---- */

static uint32_t below(uint32_t n)
{
	return (uint32_t)(aid_random(&seed) * n);
}

static float any_float(void)
{
	uint32_t bits = (uint32_t)(aid_random(&seed) * 4294967296.0);
	float v;
	if (below(5) == 0)
		return NAN;
	if (below(2))
		return aid_gaussian(&seed);
	memcpy(&v, &bits, sizeof v);
	return isfinite(v) ? v : 0.1f;
}

static int64_t any_count(void)
{
	return below(4) ? below(100000) : (int64_t)(aid_random(&seed) * 9007199254740992.0);
}

static size_t any_text(char *out)
{
	static const char *const bits[] = { " the", "é", "日本", "😀", "\"", "\\", "\n", "\t", "<", "</script>", "\x01", "" };
	size_t n = 0;
	for (uint32_t i = below(4); i > 0; i--) {
		const char *s = bits[below(sizeof bits / sizeof *bits)];
		memcpy(out + n, s, strlen(s));
		n += strlen(s);
	}
	if (below(20) == 0)
		out[n++] = '\0';
	return n;
}

static rk_trace_header a_header(void)
{
	rk_trace_header h = { .version = RK_TRACE_VERSION, .n_layer = N_LAYER, .n_head = 9, .n_kv_head = N_KV, .head_dim = 64,
		.n_vocab = N_VOCAB, .n_ctx = 4096, .chunk = 512, .n_thread = 2, .n_lane = 2, .follow = RK_FOLLOW_FIRST, .shadow = true,
		.sampling = { .temp = 0.7f, .top_k = 40, .top_p = 0.9f, .min_p = 0.05f, .seed = 42 } };
	strcpy(h.run_id, "0b1b5f5e-0000-4000-8000-000000000000");
	strcpy(h.program, "0.1.0");
	strcpy(h.command, "compare");
	strcpy(h.started, "2026-01-02T03:04:05.678Z");
	strcpy(h.model, "Ein \"Modell\" é");
	strcpy(h.model_sha256, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
	strcpy(h.tokenizer, "smollm");
	strcpy(h.chat, "chatml");
	strcpy(h.device, "cpu");
	strcpy(h.isa, "avx2");
	strcpy(h.kv_type, "f16");
	strcpy(h.policy[0], "vanilla");
	strcpy(h.policy[1], "refreshkv:qc=5,s=0.85");
	return h;
}

/* Payload of at least 1 MB; returns its size. */
static size_t fill_payload(rk_event *ev, char *payload)
{
	size_t n = 0;
	switch (ev->type) {
	case RK_EV_START:
		return (size_t)sprintf(payload, "vanilla\nrefreshkv:qc=5\n");
	case RK_EV_STEP:
		memset(payload, 0, N_LAYER * sizeof(rk_layer_step));
		for (int i = 0; i < N_LAYER; i++)
			((rk_layer_step *)payload)[i] = (rk_layer_step){ .cos = any_float(), .churn = any_float(), .kind = (uint8_t)below(3) };
		return N_LAYER * sizeof(rk_layer_step);
	case RK_EV_OCCUPANCY:
		for (size_t i = 0; i < N_LAYER * sizeof(rk_layer_occupancy); i++)
			payload[i] = (char)below(256);
		return N_LAYER * sizeof(rk_layer_occupancy);
	case RK_EV_POSITIONS: {
		int32_t *p = (int32_t *)payload;
		for (int h = 0; h < N_KV; h++) {
			int32_t m = (int32_t)below(50);
			p[n++] = m;
			for (int32_t i = 0; i < m; i++)
				p[n++] = below(10) ? (int32_t)below(4096) : INT32_MAX;
		}
		return n * sizeof *p;
	}
	case RK_EV_TOKEN: case RK_EV_END: case RK_EV_ERROR:
		return any_text(payload);
	case RK_EV_CONTROL:
		return (size_t)sprintf(payload, "h2o:k=%u", below(1000));
	default:
		return 0;
	}
}

static void random_event(rk_event *ev, char *payload, int type)
{
	memset(ev, 0, sizeof *ev);	/* padding too: events are compared as bytes */
	ev->type = (uint8_t)type;
	ev->lane = (int8_t)below(2);
	ev->index = (int32_t)below(3);
	ev->t_ns = any_count();
	switch (type) {
	case RK_EV_START:
		ev->lane = -1;
		ev->start.n_prompt = (int32_t)below(5000);
		ev->start.n_lane = 2;
		ev->start.n_layer = N_LAYER;
		ev->start.bytes_full = any_count();
		ev->start.bytes_partial = any_count();
		break;
	case RK_EV_PREFILL:
		ev->lane = -1;
		ev->prefill.done = (int32_t)below(100);
		ev->prefill.total = 100;
		ev->prefill.ns = any_count();
		break;
	case RK_EV_TOKEN:
		ev->token.id = (int32_t)below(N_VOCAB);
		ev->token.pos = (int32_t)below(1 << 20);
		ev->token.logprob = any_float();
		ev->token.lse = any_float();
		ev->token.kl = any_float();
		ev->token.same_top1 = below(2);
		ev->token.forced = below(2);
		for (int i = 0; i < RK_TOP; i++) {
			bool written = i < (ev->index ? RK_TRACE_TOP : RK_TOP);
			ev->token.top_id[i] = written ? (int32_t)below(N_VOCAB) : -1;
			ev->token.top_logprob[i] = written ? any_float() : -INFINITY;
		}
		break;
	case RK_EV_STEP:
		ev->step.pos = (int32_t)below(1 << 20);
		ev->step.ns_shared = any_count();
		ev->step.ns_attn = any_count();
		ev->step.bytes_full = any_count();
		ev->step.bytes_partial = any_count();
		ev->step.bytes_score = any_count();
		ev->step.bytes_vanilla = any_count();
		break;
	case RK_EV_POSITIONS:
		ev->index = (int32_t)below(3) - 1;
		ev->positions.layer = (int32_t)below(N_LAYER);
		ev->positions.n_kv_head = N_KV;
		break;
	case RK_EV_SHADOW:
		ev->shadow.logprob = any_float();
		ev->shadow.lse = any_float();
		ev->shadow.kl = any_float();
		ev->shadow.same_top1 = below(2);
		ev->shadow.ns = any_count();
		ev->shadow.ns_vanilla_attn = any_count();
		break;
	case RK_EV_END:
		ev->end.reason = (enum rk_end)below(5);
		ev->end.n_token = (int32_t)below(1000);
		ev->end.logits_hash = (uint64_t)(aid_random(&seed) * 18446744073709551615.0);
		break;
	case RK_EV_GAP:
		ev->lane = -1;
		ev->gap.lost = 1 + any_count() / 2;
		break;
	case RK_EV_ERROR:
		ev->lane = -1;
		ev->error.code = (enum rk_code)(1 + below(4));
		break;
	}
	ev->size = (uint32_t)fill_payload(ev, payload);
}

static bool same_float(const void *a, const void *b)
{
	float x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (isnan(x) && isnan(y)) || memcmp(a, b, sizeof x) == 0;
}

/* Bytes are equal but for the sign and payload of NaNs, which nobody reads. */
static void assert_same_bytes(const void *a, const void *b, size_t n)
{
	const char *x = a, *y = b;
	for (size_t i = 0; i < n; i += 4)
		if (n - i < 4)
			assert_memory_equal(x + i, y + i, n - i);
		else
			assert_true(same_float(x + i, y + i));
}

static void assert_same_event(const rk_event *a, const void *pa, const rk_event *b, const void *pb)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->size, b->size);
	assert_same_bytes(a, b, sizeof *a);
	assert_same_bytes(pa, pb, a->size);
}

/* ---- lines ---- */

static void every_event_round_trips(void **state)
{
	(void)state;
	rk_trace_header h = a_header();
	char *payload = malloc(1 << 20), *line;
	void *buf = NULL;
	size_t cap = 0, len;
	rk_event ev, back;
	rk_err e;
	for (int i = 0; i < 6000; i++) {
		random_event(&ev, payload, i % (RK_EV_ERROR + 1));
		assert_int_equal(rk_trace_event_line(&h, &ev, payload, 0, &line, &len, &e), 0);
		assert_int_equal(line[len - 1], '\n');
		assert_null(memchr(line, '\n', len - 1));
		if (rk_trace_event_parse(&h, line, len - 1, &back, &buf, &cap, &e))
			fail_msg("%s\n%s", e.msg, line);
		assert_same_event(&ev, payload, &back, buf);
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
		float v = any_float();
		json_t *a = json_array();
		json_array_append_new(a, rk_trace_real(v));
		char *s = json_dumps(a, JSON_REAL_PRECISION(9));
		json_t *b = json_loads(s, 0, NULL);
		float back;
		assert_int_equal(rk_trace_take_float(json_array_get(b, 0), "v", &back, NULL), 0);
		assert_true(same_float(&v, &back));
		json_decref(a);
		json_decref(b);
		free(s);
	}
}

static void header_round_trips(void **state)
{
	(void)state;
	rk_trace_header h = a_header(), back;
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
	rk_trace_header h = a_header();
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

/* ---- files ---- */

static void write_file(const char *text, size_t n)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	fclose(f);
}

static size_t file_size(void)
{
	struct stat st;
	return stat(path, &st) ? 0 : (size_t)st.st_size;
}

static void headers_are_checked(void **state)
{
	(void)state;
	rk_trace_header h = a_header();
	char *line, want[256];
	size_t len;
	rk_trace *t;
	rk_err e;
	h.version = 2;
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	write_file(line, len);
	free(line);
	assert_int_equal(rk_trace_open(&t, path, &e), -1);
	snprintf(want, sizeof want, "%s:1: refreshkv-trace version 2 is newer than version 1, which this program reads", path);
	assert_string_equal(e.msg, want);
	write_file("{}\n", 3);
	assert_int_equal(rk_trace_open(&t, path, &e), -1);
	assert_non_null(strstr(e.msg, ":1: not a trace"));
	write_file("", 0);
	assert_int_equal(rk_trace_open(&t, path, &e), -1);
	assert_int_equal(rk_trace_open(&t, "/nonexistent/x", &e), -1);
	assert_non_null(strstr(e.msg, "/nonexistent/x: cannot read"));
	assert_int_equal(rk_trace_open(&t, "/", &e), -1);
}

/* Pushes n random events (times ascending from now on, as an engine's are) and remembers them. */
struct memory {
	int n;
	rk_event *ev;
	char **payload;
};

static struct memory feed(rk_recorder *r, int n)
{
	struct memory m = { n, calloc((size_t)n, sizeof *m.ev), calloc((size_t)n, sizeof *m.payload) };
	char *payload = malloc(1 << 20);
	rk_err e;
	for (int i = 0; i < n; i++) {
		int type = i == 0 ? RK_EV_START : RK_EV_START + (int)below(RK_EV_ERROR + 1);
		random_event(&m.ev[i], payload, type);
		m.ev[i].t_ns = 0;	/* now */
		m.payload[i] = malloc(m.ev[i].size + 1);
		memcpy(m.payload[i], payload, m.ev[i].size);
		assert_int_equal(rk_recorder_push(r, &m.ev[i], payload, &e), 0);
	}
	free(payload);
	return m;
}

static void forget(struct memory *m)
{
	for (int i = 0; i < m->n; i++)
		free(m->payload[i]);
	free(m->payload);
	free(m->ev);
}

static void record(const char *name, int n, struct memory *m)
{
	rk_trace_header h = a_header();
	rk_recorder *r;
	rk_err e;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	assert_int_equal(rk_recorder_open(&r, path, false, true, &h, NULL, &e), 0);
	*m = feed(r, n);
	assert_int_equal(rk_recorder_close(r, &e), 0);
}

static void check_next(rk_trace *t, const struct memory *m, int i)
{
	rk_event ev;
	const void *payload;
	rk_err e;
	if (rk_trace_next(t, &ev, &payload, &e) != 1)
		fail_msg("event %d: %s", i, e.msg);
	ev.t_ns = m->ev[i].t_ns;
	assert_same_event(&m->ev[i], m->payload[i], &ev, payload);
}

static void files_read_back(const char *name)
{
	struct memory m;
	rk_trace *t;
	rk_event ev;
	const void *payload;
	rk_err e;
	record(name, 3000, &m);
	if (rk_trace_open(&t, path, &e))
		fail_msg("%s", e.msg);
	assert_false(rk_trace_cut(t));
	int64_t n_token = 0, last = -1;
	for (int i = 0; i < m.n; i++) {
		check_next(t, &m, i);
		n_token += m.ev[i].type == RK_EV_TOKEN && m.ev[i].lane == 0;
		assert_int_equal(rk_trace_tell(t), n_token);
	}
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_n_token(t), n_token);
	/* Seeking: forwards, backwards, over the ends. */
	for (int k = 0; k < 200; k++) {
		int64_t want = k % 3 == 0 ? n_token - 1 - k / 3 : (int64_t)below((uint32_t)n_token), seen = 0;
		int i = 0;
		while (!(m.ev[i].type == RK_EV_TOKEN && m.ev[i].lane == 0 && seen++ == want))
			i++;
		assert_int_equal(rk_trace_seek(t, want, &e), 0);
		assert_int_equal(rk_trace_tell(t), want == 0 ? 0 : want);
		if (want > 0)
			for (int j = i; j < i + 5 && j < m.n; j++)
				check_next(t, &m, j);
	}
	assert_int_equal(rk_trace_seek(t, n_token, &e), 0);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_seek(t, INT64_MAX, &e), 0);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_seek(t, -5, &e), 0);
	check_next(t, &m, 0);
	/* Times ascend. */
	assert_int_equal(rk_trace_seek(t, 0, &e), 0);
	while (rk_trace_next(t, &ev, &payload, &e) == 1) {
		assert_true(ev.t_ns >= last);
		last = ev.t_ns;
	}
	assert_int_equal(rk_trace_duration_ns(t), last);
	rk_trace_close(t);
	forget(&m);
}

static void plain_files_read_back(void **state)
{
	(void)state;
	files_read_back("t.jsonl");
}

static void compressed_files_read_back(void **state)
{
	(void)state;
	files_read_back("t.jsonl.zst");
}

/* Every cut of a file can be read up to its last whole line. */
static void cut_files_read_to_the_last_line(void **state)
{
	(void)state;
	struct memory m;
	rk_event ev;
	const void *payload;
	rk_err e;
	for (int z = 0; z < 2; z++) {
		record(z ? "t.jsonl.zst" : "t.jsonl", 60, &m);
		for (size_t n = file_size(); n-- > 0; n -= n % 7) {
			rk_trace *t;
			assert_int_equal(truncate(path, (off_t)n), 0);
			if (rk_trace_open(&t, path, &e)) {
				assert_non_null(strstr(e.msg, "not a trace"));	/* the header is not whole */
				continue;
			}
			int i = 0, rc;
			while ((rc = rk_trace_next(t, &ev, &payload, &e)) == 1) {
				assert_int_equal(ev.type, m.ev[i].type);
				i++;
			}
			assert_int_equal(rc, 0);
			assert_true(z ? rk_trace_cut(t) : i < m.n);
			rk_trace_close(t);
		}
		clean(NULL);
		forget(&m);
	}
}

static void damage_is_named_by_line(void **state)
{
	(void)state;
	rk_trace_header h = a_header();
	char *line, want[256];
	size_t len;
	rk_event ev;
	const void *payload;
	rk_trace *t;
	rk_err e;
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	FILE *f = fopen(path, "wb");
	fwrite(line, 1, len, f);
	free(line);
	fputs("{\"ev\":\"idle\",\"lane\":-1,\"t\":1}\nrubbish\n{\"lane\": 0, \"t\": 5, \"ev\": \"idle\"}\n", f);
	fclose(f);
	assert_int_equal(rk_trace_open(&t, path, &e), 0);
	assert_int_equal(rk_trace_duration_ns(t), 5);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 1);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), -1);
	snprintf(want, sizeof want, "%s:3: not JSON", path);
	assert_memory_equal(e.msg, want, strlen(want));
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 1);	/* reading goes on behind it */
	assert_int_equal(ev.t_ns, 5);
	rk_trace_close(t);
}

static void endless_lines_are_refused(void **state)
{
	(void)state;
	rk_trace_header h = a_header();
	char *line, want[200], *fill = malloc(1 << 20);
	size_t len;
	rk_trace *t;
	rk_err e;
	struct rusage before, after;
	memset(fill, 'x', 1 << 20);
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	FILE *f = fopen(path, "wb");
	fwrite(line, 1, len, f);
	for (int i = 0; i < 100; i++)
		fwrite(fill, 1, 1 << 20, f);
	fputs("\n{\"ev\":\"idle\",\"lane\":-1,\"t\":1}\n", f);
	fclose(f);
	free(line);
	free(fill);
	getrusage(RUSAGE_SELF, &before);
	assert_int_equal(rk_trace_open(&t, path, &e), -1);
	getrusage(RUSAGE_SELF, &after);
	snprintf(want, sizeof want, "%s:2: a line of more than %u bytes", path, RK_TRACE_MAX_LINE);
	assert_string_equal(e.msg, want);
	assert_true(after.ru_maxrss - before.ru_maxrss < 40 * 1024);
}

/* ---- the recorder ---- */

static void nothing_is_overwritten(void **state)
{
	(void)state;
	rk_trace_header h = a_header();
	rk_recorder *r;
	rk_err e;
	write_file("precious", 8);
	assert_int_equal(rk_recorder_open(&r, path, false, true, &h, NULL, &e), -1);
	assert_int_equal(e.code, RK_EUSAGE);
	assert_non_null(strstr(e.msg, "--force"));
	assert_int_equal(file_size(), 8);
	assert_int_equal(rk_recorder_open(&r, path, true, true, &h, NULL, &e), 0);
	assert_int_equal(rk_recorder_close(r, &e), 0);
	assert_true(file_size() > 100);
	assert_int_equal(rk_recorder_open(&r, "/nonexistent/x", false, true, &h, NULL, &e), -1);
	assert_int_equal(e.code, RK_EFAIL);
}

/* A disk that is full after 20 kB: said once, nothing waits for ever, and the file ends with a whole line. */
static void write_errors_stop_the_recording_only(void **state)
{
	(void)state;
	for (int z = 0; z < 2; z++) {
		rk_trace_header h = a_header();
		rk_recorder *r;
		rk_event ev;
		const void *got;
		rk_trace *t;
		rk_err e;
		char *payload = malloc(1 << 20);
		struct rlimit old, small;
		snprintf(path, sizeof path, "%s/t.jsonl%s", dir, z ? ".zst" : "");
		getrlimit(RLIMIT_FSIZE, &old);
		small = (struct rlimit){ 20000, old.rlim_max };
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &small);
		assert_int_equal(rk_recorder_open(&r, path, false, true, &h, NULL, &e), 0);
		int told = 0;
		for (int i = 0; i < 3000; i++) {
			random_event(&ev, payload, i == 0 ? RK_EV_START : RK_EV_OCCUPANCY);
			if (rk_recorder_push(r, &ev, payload, &e)) {
				told++;
				assert_non_null(strstr(e.msg, "recording stopped: "));
				assert_non_null(strstr(e.msg, path));
			}
		}
		if (rk_recorder_close(r, &e))
			told++;
		assert_int_equal(told, 1);
		setrlimit(RLIMIT_FSIZE, &old);
		assert_true(file_size() <= 20000);
		if (rk_trace_open(&t, path, &e))
			fail_msg("%s", e.msg);
		assert_int_equal(rk_trace_cut(t), z);	/* the last frame of a compressed file has no end */
		int rc;
		while ((rc = rk_trace_next(t, &ev, &got, &e)) == 1)
			;
		assert_int_equal(rc, 0);
		rk_trace_close(t);
		clean(NULL);
		free(payload);
	}
}

/* Killed without warning, a recording can be read up to the last 50 ms. */
static void kill_leaves_a_readable_trace(void **state)
{
	(void)state;
	for (int z = 0; z < 2; z++) {
		snprintf(path, sizeof path, "%s/t.jsonl%s", dir, z ? ".zst" : "");
		pid_t child = fork();
		if (child == 0) {
			rk_trace_header h = a_header();
			rk_recorder *r;
			rk_event ev;
			char *payload = malloc(1 << 20);
			if (rk_recorder_open(&r, path, false, true, &h, NULL, NULL))
				_exit(1);
			for (int i = 0; ; i++) {
				random_event(&ev, payload, i == 0 ? RK_EV_START : RK_EV_STEP);
				rk_recorder_push(r, &ev, payload, NULL);
				usleep(1000);
			}
		}
		usleep(400000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		rk_trace *t;
		rk_event ev;
		const void *payload;
		rk_err e;
		int n = 0, rc;
		if (rk_trace_open(&t, path, &e))
			fail_msg("%s", e.msg);
		while ((rc = rk_trace_next(t, &ev, &payload, &e)) == 1)
			n++;
		assert_int_equal(rc, 0);
		assert_true(n > 20);
		rk_trace_close(t);
		clean(NULL);
	}
}

/* A recorder that may not hold up its feeder loses events, and the trace says how many. */
static void losses_are_gaps(void **state)
{
	(void)state;
	rk_trace_header h = a_header();
	rk_recorder *r;
	rk_trace *t;
	rk_event ev;
	const void *payload;
	rk_err e;
	const int n = 60000;
	char *bytes = malloc(1 << 20);
	assert_int_equal(rk_recorder_open(&r, path, false, false, &h, NULL, &e), 0);
	random_event(&ev, bytes, RK_EV_OCCUPANCY);
	for (int i = 0; i < n; i++)
		rk_recorder_push(r, &ev, bytes, &e);
	assert_int_equal(rk_recorder_close(r, &e), 0);
	assert_int_equal(rk_trace_open(&t, path, &e), 0);
	int64_t kept = 0, lost = 0;
	while (rk_trace_next(t, &ev, &payload, &e) == 1)
		if (ev.type == RK_EV_GAP)
			lost += ev.gap.lost;
		else
			kept++;
	assert_true(lost > 0);
	assert_true(kept > 0);
	assert_int_equal(kept + lost, n);
	rk_trace_close(t);
	free(bytes);
}

/* ---- what is computed from a trace ---- */

static void push_token(rk_series *s, int lane, int index, float logprob)
{
	rk_event ev = { .type = RK_EV_TOKEN, .lane = (int8_t)lane, .index = index, .size = 1,
		.token = { .id = 5, .logprob = logprob, .kl = NAN } };
	assert_int_equal(rk_series_add(s, &ev, "x", NULL), 0);
}

static void ratios_take_the_right_baseline(void **state)
{
	(void)state;
	rk_trace_header h = a_header();
	rk_series s;
	rk_event start = { .type = RK_EV_START, .lane = -1, .start = { .n_lane = 2, .n_layer = N_LAYER }, .size = 23 };
	rk_event shadow = { .type = RK_EV_SHADOW, .index = 0, .shadow = { .logprob = -1, .kl = 0.25f } };
	rk_event idle = { .type = RK_EV_IDLE, .lane = -1 };
	/* Forced: lane 1 against vanilla in lane 0; two sessions, the second half as surprising. */
	rk_series_init(&s, &h);
	for (int k = 1; k <= 2; k++) {
		assert_int_equal(rk_series_add(&s, &start, "vanilla\nrefreshkv:qc=5\n", NULL), 0);
		for (int i = 0; i < 3; i++) {
			push_token(&s, 0, i, -1);
			push_token(&s, 1, i, -1 - 1.0f / (float)k);
		}
		assert_int_equal(rk_series_add(&s, &idle, NULL, NULL), 0);
	}
	assert_int_equal(s.base, 0);
	assert_float_equal((float)rk_series_ratio(&s, 1, 0, 3), expf(1), 1e-5);
	assert_float_equal((float)rk_series_ratio(&s, 1, 3, 6), expf(0.5f), 1e-5);
	assert_float_equal((float)rk_series_ratio(&s, 0, 0, 6), 1, 0);
	assert_true(isnan(rk_series_ratio(&s, 1, 6, 9)));
	rk_series_free(&s);
	/* Generated: only the shadow counts, late as it is, and a lane on its own way has no baseline. */
	h.follow = RK_FOLLOW_NONE;
	rk_series_init(&s, &h);
	rk_series_add(&s, &start, "vanilla\nrefreshkv:qc=5\n", NULL);
	for (int i = 0; i < 3; i++) {
		push_token(&s, 0, i, -2);
		push_token(&s, 1, i, -2);
	}
	rk_series_add(&s, &shadow, NULL, NULL);
	shadow.index = 99;	/* its token was lost */
	rk_series_add(&s, &shadow, NULL, NULL);
	rk_series_add(&s, &idle, NULL, NULL);
	assert_float_equal((float)rk_series_ratio(&s, 0, 0, 3), expf(1), 1e-5);
	assert_float_equal(s.lane[0].token[0].kl, 0.25f, 0);
	assert_true(isnan(rk_series_ratio(&s, 0, 1, 3)));
	assert_false(rk_series_has_ratio(&s, 1));
	rk_series_free(&s);
}

static void asciicast_keeps_characters_whole(void **state)
{
	(void)state;
	rk_asciicast a;
	char *text;
	size_t len;
	rk_err e;
	FILE *f = open_memstream(&text, &len);
	assert_int_equal(rk_asciicast_begin(&a, f, 80, 24, "a \"title\"", 1700000000, &e), 0);
	assert_int_equal(rk_asciicast_write(&a, 1500000, "\x1b[1mh\xc3", 6, &e), 0);
	assert_int_equal(rk_asciicast_write(&a, 1000000, "\xa9!", 2, &e), 0);	/* time does not go back */
	assert_int_equal(rk_asciicast_resize(&a, 2000000000, 100, 30, &e), 0);
	assert_int_equal(rk_asciicast_write(&a, 3000000000, "\xf0\x9f", 2, &e), 0);
	assert_int_equal(rk_asciicast_end(&a, &e), 0);
	fclose(f);
	assert_string_equal(text,
		"{\"version\":2,\"width\":80,\"height\":24,\"title\":\"a \\\"title\\\"\",\"env\":{\"TERM\":\"xterm-256color\"},\"timestamp\":1700000000}\n"
		"[0.0015,\"o\",\"\\u001B[1mh\"]\n[0.0015,\"o\",\"\xc3\xa9!\"]\n[2.0,\"r\",\"100x30\"]\n[3.0,\"o\",\"\xef\xbf\xbd\"]\n");
	free(text);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fresh, clean)
	const struct CMUnitTest tests[] = {
		T(every_event_round_trips), T(floats_are_the_shortest), T(header_round_trips), T(hostile_lines_are_refused),
		T(headers_are_checked), T(plain_files_read_back), T(compressed_files_read_back), T(cut_files_read_to_the_last_line),
		T(damage_is_named_by_line), T(endless_lines_are_refused), T(nothing_is_overwritten), T(write_errors_stop_the_recording_only),
		T(kill_leaves_a_readable_trace), T(losses_are_gaps), T(ratios_take_the_right_baseline), T(asciicast_keeps_characters_whole),
	};
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
