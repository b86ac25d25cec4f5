/* aid_trace.c: see aid_trace.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aid_gguf.h"
#include "aid_trace.h"

char aid_dir[] = "/tmp/refreshkv-trace-XXXXXX";
char aid_path[128];
static uint64_t seed;

int aid_make_dir(void **state)
{
	(void)state;
	return mkdtemp(aid_dir) ? 0 : -1;
}

int aid_remove_dir(void **state)
{
	(void)state;
	return rmdir(aid_dir);
}

int aid_fresh(void **state)
{
	(void)state;
	seed = 7;
	snprintf(aid_path, sizeof aid_path, "%s/t.jsonl", aid_dir);
	return 0;
}

int aid_clean(void **state)
{
	(void)state;
	unlink(aid_path);
	return 0;
}

/* ---- random events ---- */

uint32_t aid_below(uint32_t n)
{
	return (uint32_t)(aid_random(&seed) * n);
}

float aid_any_float(void)
{
	uint32_t bits = (uint32_t)(aid_random(&seed) * 4294967296.0);
	float v;
	if (aid_below(5) == 0)
		return NAN;
	if (aid_below(2))
		return aid_gaussian(&seed);
	memcpy(&v, &bits, sizeof v);
	return isfinite(v) ? v : 0.1f;
}

static int64_t any_count(void)
{
	return aid_below(4) ? aid_below(100000) : (int64_t)(aid_random(&seed) * 9007199254740992.0);
}

static size_t any_text(char *out)
{
	static const char *const bits[] = { " the", "é", "日本", "😀", "\"", "\\", "\n", "\t", "<", "</script>", "\x01", "" };
	size_t n = 0;
	for (uint32_t i = aid_below(4); i > 0; i--) {
		const char *s = bits[aid_below(sizeof bits / sizeof *bits)];
		memcpy(out + n, s, strlen(s));
		n += strlen(s);
	}
	if (aid_below(20) == 0)
		out[n++] = '\0';
	return n;
}

rk_trace_header aid_header(void)
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
			((rk_layer_step *)payload)[i] = (rk_layer_step){ .cos = aid_any_float(), .churn = aid_any_float(), .kind = (uint8_t)aid_below(3) };
		return N_LAYER * sizeof(rk_layer_step);
	case RK_EV_OCCUPANCY:
		for (size_t i = 0; i < N_LAYER * sizeof(rk_layer_occupancy); i++)
			payload[i] = (char)aid_below(256);
		return N_LAYER * sizeof(rk_layer_occupancy);
	case RK_EV_POSITIONS: {
		int32_t *p = (int32_t *)payload;
		for (int h = 0; h < N_KV; h++) {
			int32_t m = (int32_t)aid_below(50);
			p[n++] = m;
			for (int32_t i = 0; i < m; i++)
				p[n++] = aid_below(10) ? (int32_t)aid_below(4096) : INT32_MAX;
		}
		return n * sizeof *p;
	}
	case RK_EV_TOKEN: case RK_EV_END: case RK_EV_ERROR:
		return any_text(payload);
	case RK_EV_CONTROL:
		return (size_t)sprintf(payload, "h2o:k=%u", aid_below(1000));
	default:
		return 0;
	}
}

void aid_random_event(rk_event *ev, char *payload, int type)
{
	memset(ev, 0, sizeof *ev);	/* padding too: events are compared as bytes */
	ev->type = (uint8_t)type;
	ev->lane = (int8_t)aid_below(2);
	ev->index = (int32_t)aid_below(3);
	ev->t_ns = any_count();
	switch (type) {
	case RK_EV_START:
		ev->lane = -1;
		ev->start.n_prompt = (int32_t)aid_below(5000);
		ev->start.n_lane = 2;
		ev->start.n_layer = N_LAYER;
		ev->start.bytes_full = any_count();
		ev->start.bytes_partial = any_count();
		break;
	case RK_EV_PREFILL:
		ev->lane = -1;
		ev->prefill.done = (int32_t)aid_below(100);
		ev->prefill.total = 100;
		ev->prefill.ns = any_count();
		break;
	case RK_EV_TOKEN:
		ev->token.id = (int32_t)aid_below(N_VOCAB);
		ev->token.pos = (int32_t)aid_below(1 << 20);
		ev->token.logprob = aid_any_float();
		ev->token.lse = aid_any_float();
		ev->token.kl = aid_any_float();
		ev->token.same_top1 = aid_below(2);
		ev->token.forced = aid_below(2);
		for (int i = 0; i < RK_TOP; i++) {
			bool written = i < (ev->index ? RK_TRACE_TOP : RK_TOP);
			ev->token.top_id[i] = written ? (int32_t)aid_below(N_VOCAB) : -1;
			ev->token.top_logprob[i] = written ? aid_any_float() : -INFINITY;
		}
		break;
	case RK_EV_STEP:
		ev->step.pos = (int32_t)aid_below(1 << 20);
		ev->step.ns_shared = any_count();
		ev->step.ns_attn = any_count();
		ev->step.bytes_full = any_count();
		ev->step.bytes_partial = any_count();
		ev->step.bytes_score = any_count();
		ev->step.bytes_vanilla = any_count();
		break;
	case RK_EV_POSITIONS:
		ev->index = (int32_t)aid_below(3) - 1;
		ev->positions.layer = (int32_t)aid_below(N_LAYER);
		ev->positions.n_kv_head = N_KV;
		break;
	case RK_EV_SHADOW:
		ev->shadow.logprob = aid_any_float();
		ev->shadow.lse = aid_any_float();
		ev->shadow.kl = aid_any_float();
		ev->shadow.same_top1 = aid_below(2);
		ev->shadow.ns = any_count();
		ev->shadow.ns_vanilla_attn = any_count();
		break;
	case RK_EV_END:
		ev->end.reason = (enum rk_end)aid_below(5);
		ev->end.n_token = (int32_t)aid_below(1000);
		ev->end.logits_hash = (uint64_t)(aid_random(&seed) * 18446744073709551615.0);
		break;
	case RK_EV_GAP:
		ev->lane = -1;
		ev->gap.lost = 1 + any_count() / 2;
		break;
	case RK_EV_ERROR:
		ev->lane = -1;
		ev->error.code = (enum rk_code)(1 + aid_below(4));
		break;
	}
	ev->size = (uint32_t)fill_payload(ev, payload);
}

bool aid_same_float(const void *a, const void *b)
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
			assert_true(aid_same_float(x + i, y + i));
}

void aid_assert_same_event(const rk_event *a, const void *pa, const rk_event *b, const void *pb)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->size, b->size);
	assert_same_bytes(a, b, sizeof *a);
	assert_same_bytes(pa, pb, a->size);
}

void aid_write_file(const char *text, size_t n)
{
	FILE *f = fopen(aid_path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	fclose(f);
}
