/* codec.c: one event of the stream as one line of a trace, and back.  See trace.h; docs/TRACE.md describes the format.
 *
 * Plain numbers of an event are rows of a table that both directions walk, so that what is written is what is read.
 * Variable parts (text, layers, positions) have a put and a take each.  "ev", "lane" and "t" come first in a line: the
 * reader's first pass finds tokens by these bytes alone.
 */
#include "trace/trace.h"

#include <limits.h>
#include <math.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>
#include "trace/json.h"

#define BIG ((int64_t)1 << 53)	/* the largest integer that every reader of JSON keeps exact */

enum kind { INT32, INT64, REAL, FLAG };

/* One number, or n of them side by side as an array.  `optional`: left out while it is false or NaN. */
struct field {
	const char *key;	/* NULL ends a table */
	size_t at;
	enum kind kind;
	bool optional;
	int n;			/* 0: a single number */
	int64_t min, max;	/* of integers; both 0: 0 to the largest */
};

/* The payload as it is built. */
struct buf {
	void **p;
	size_t *cap;
	uint32_t *size;
};

struct ctx {
	const rk_trace_header *h;
	const rk_event *ev;
	const void *payload;
};

struct shape {
	const char *name;
	int lane_min;			/* -1: the session's events too */
	const struct field *fields;
	const char *text;		/* key of a payload that is text, left out when empty; NULL: another payload, or none */
	int (*put)(const struct ctx *c, json_t *root);
	int (*take)(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e);
};

static void *grow(struct buf *b, size_t size, rk_err *e)
{
	if (size > *b->cap) {
		size_t cap = size + size / 2;
		void *p = realloc(*b->p, cap);
		if (!p) {
			rk_fail(e, RK_ENOMEM, "no memory for %zu bytes of an event", size);
			return NULL;
		}
		*b->p = p;
		*b->cap = cap;
	}
	*b->size = (uint32_t)size;
	return *b->p;
}

/* ---- start: the lanes' specs, one per line of the payload ---- */

static int put_start(const struct ctx *c, json_t *root)
{
	json_t *specs = json_array();
	const char *at = c->payload, *end = at + c->ev->size;

	while (at < end) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((nl ? nl : end) - at);
		json_array_append_new(specs, rk_json_text(at, len));
		at += len + 1;
	}
	return json_object_set_new(root, "policies", specs);
}

static int take_start(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e)
{
	const json_t *specs = json_object_get(root, "policies");
	size_t n = json_array_size(specs), at = 0;
	char *out = grow(b, RK_MAX_LANE * RK_SPEC_MAX, e);

	if (!out)
		return -1;
	if (!json_is_array(specs) || n != (size_t)ev->start.n_lane)
		return rk_fail(e, RK_EFAIL, "\"policies\" is not an array of %d texts", ev->start.n_lane);
	if (ev->start.n_layer != h->n_layer)
		return rk_fail(e, RK_EFAIL, "\"n_layer\" is %d, in the header %d", ev->start.n_layer, h->n_layer);
	for (size_t i = 0; i < n; i++) {
		const json_t *s = json_array_get(specs, i);
		size_t len = json_string_length(s);
		if (!rk_trace_is_spec(s))
			return rk_fail(e, RK_EFAIL, "\"policies\": entry %zu is not " RK_TRACE_SPEC, i, RK_SPEC_MAX);
		memcpy(out + at, json_string_value(s), len);
		out[at + len] = '\n';
		at += len + 1;
	}
	*b->size = (uint32_t)at;
	return 0;
}

/* ---- token: the most probable ones as [id, logprob, id, logprob, ...] ---- */

static int put_token(const struct ctx *c, json_t *root)
{
	const rk_event *ev = c->ev;
	int n = ev->index == 0 ? RK_TOP : RK_TRACE_TOP;
	json_t *top = json_array();

	for (int i = 0; i < n && ev->token.top_id[i] >= 0; i++) {
		json_array_append_new(top, json_integer(ev->token.top_id[i]));
		json_array_append_new(top, rk_trace_real(ev->token.top_logprob[i]));
	}
	return json_object_set_new(root, "top", top);
}

static int take_token(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e)
{
	const json_t *top = json_object_get(root, "top");
	size_t n = json_array_size(top) / 2;

	(void)b;
	if (!json_is_array(top) || n > RK_TOP || json_array_size(top) % 2)
		return rk_fail(e, RK_EFAIL, "\"top\" is not an array of at most %d pairs of id and logprob", RK_TOP);
	if (ev->token.id >= h->n_vocab)
		return rk_fail(e, RK_EFAIL, "\"id\" is %d, the model has %d tokens", ev->token.id, h->n_vocab);
	for (size_t i = 0; i < RK_TOP; i++) {
		ev->token.top_id[i] = -1;
		ev->token.top_logprob[i] = -INFINITY;
		if (i >= n)
			continue;
		const json_t *id = json_array_get(top, 2 * i);
		if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= h->n_vocab)
			return rk_fail(e, RK_EFAIL, "\"top\" has an id that is not in 0 to %d", h->n_vocab - 1);
		ev->token.top_id[i] = (int32_t)json_integer_value(id);
		if (rk_trace_take_float(json_array_get(top, 2 * i + 1), "top", &ev->token.top_logprob[i], e))
			return -1;
	}
	return 0;
}

/* ---- step: a mask of layers per kind, and the figures of those layers that have one: [mask, value, value, ...] ---- */

static const char *const kinds[] = { [RK_STEP_FULL] = "full", [RK_STEP_GLANCE] = "glance" };	/* the others are partial */
#define N_KIND ((int)(sizeof kinds / sizeof *kinds))

static bool is_full(const void *layers, int i)
{
	return ((const rk_layer_step *)layers)[i].kind == RK_STEP_FULL;
}

static bool is_glance(const void *layers, int i)
{
	return ((const rk_layer_step *)layers)[i].kind == RK_STEP_GLANCE;
}

static bool has_cos(const void *layers, int i)
{
	return !isnan(((const rk_layer_step *)layers)[i].cos);
}

static bool has_churn(const void *layers, int i)
{
	return !isnan(((const rk_layer_step *)layers)[i].churn);
}

static int put_sparse(json_t *root, const char *key, int n, const rk_layer_step *layers, bool (*has)(const void *, int))
{
	json_t *mask = rk_trace_mask(n, has, layers);

	if (!mask)
		return 0;
	json_t *a = json_array();
	json_array_append_new(a, mask);
	for (int i = 0; i < n; i++)
		if (has(layers, i))
			json_array_append_new(a, rk_trace_real(has == has_cos ? layers[i].cos : layers[i].churn));
	return json_object_set_new(root, key, a);
}

static int put_step(const struct ctx *c, json_t *root)
{
	const rk_layer_step *layers = c->payload;
	int n = c->h->n_layer;

	if (c->ev->size != (size_t)n * sizeof *layers)
		return -1;
	json_t *full = rk_trace_mask(n, is_full, layers), *glance = rk_trace_mask(n, is_glance, layers);
	if ((full && json_object_set_new(root, kinds[RK_STEP_FULL], full)) ||
	    (glance && json_object_set_new(root, kinds[RK_STEP_GLANCE], glance)))
		return -1;
	return put_sparse(root, "cos", n, layers, has_cos) || put_sparse(root, "churn", n, layers, has_churn) ? -1 : 0;
}

static int take_sparse(const json_t *a, const char *key, int n, float *out, rk_err *e)
{
	bool has[RK_MAX_LAYER];
	size_t at = 1;

	for (int i = 0; i < n; i++)
		out[i] = NAN;
	if (!a)
		return 0;
	if (rk_trace_take_mask(json_array_get(a, 0), key, n, has, e))
		return -1;
	for (int i = 0; i < n; i++)
		if (has[i] && rk_trace_take_float(json_array_get(a, at++), key, &out[i], e))
			return -1;
	return at == json_array_size(a) ? 0 : rk_fail(e, RK_EFAIL, "\"%s\" has other values than its mask says", key);
}

/* mask NULL: no layer was of this kind. */
static int take_kind(const json_t *mask, int kind, int n, rk_layer_step *layers, rk_err *e)
{
	bool is[RK_MAX_LAYER];

	if (!mask)
		return 0;
	if (rk_trace_take_mask(mask, kinds[kind], n, is, e))
		return -1;
	for (int i = 0; i < n; i++)
		if (is[i])
			layers[i].kind = (uint8_t)kind;
	return 0;
}

static int take_step(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e)
{
	int n = h->n_layer;
	float cos[RK_MAX_LAYER], churn[RK_MAX_LAYER];
	rk_layer_step *layers = grow(b, (size_t)n * sizeof *layers, e);

	(void)ev;
	if (!layers || take_sparse(json_object_get(root, "cos"), "cos", n, cos, e) ||
	    take_sparse(json_object_get(root, "churn"), "churn", n, churn, e))
		return -1;
	memset(layers, 0, (size_t)n * sizeof *layers);	/* padding too: payloads are compared as bytes */
	for (int i = 0; i < n; i++) {
		layers[i].cos = cos[i];
		layers[i].churn = churn[i];
		layers[i].kind = RK_STEP_PARTIAL;
	}
	for (int kind = 0; kind < N_KIND; kind++)
		if (kinds[kind] && take_kind(json_object_get(root, kinds[kind]), kind, n, layers, e))
			return -1;
	return 0;
}

/* ---- occupancy: four counts per layer in a row, and 32 bytes of coverage per layer, all in one base64 text ---- */

#define MAX_COVER (RK_MAX_LAYER * RK_COVERAGE)

static int put_occupancy(const struct ctx *c, json_t *root)
{
	const rk_layer_occupancy *o = c->payload;
	int n = c->h->n_layer;
	uint8_t cover[MAX_COVER];
	char text[BASE64_ENCODE_RAW_LENGTH(MAX_COVER)];
	size_t n_cover = (size_t)n * RK_COVERAGE;
	json_t *counts = json_array();

	if (c->ev->size != (size_t)n * sizeof *o) {
		json_decref(counts);
		return -1;
	}
	for (int i = 0; i < n; i++) {
		const uint32_t four[] = { o[i].sink, o[i].prompt, o[i].generated, o[i].recent };
		for (int j = 0; j < 4; j++)
			json_array_append_new(counts, json_integer(four[j]));
		memcpy(cover + i * RK_COVERAGE, o[i].coverage, RK_COVERAGE);
	}
	base64_encode_raw(text, n_cover, cover);
	json_t *covered = json_stringn(text, BASE64_ENCODE_RAW_LENGTH(n_cover));
	return json_object_set_new(root, "held", counts) || json_object_set_new(root, "cover", covered) ? -1 : 0;
}

static int take_count(const json_t *counts, size_t at, uint32_t *out, rk_err *e)
{
	const json_t *v = json_array_get(counts, at);
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v) || n < 0 || n > UINT32_MAX)
		return rk_fail(e, RK_EFAIL, "\"held\": entry %zu is not a count", at);
	*out = (uint32_t)n;
	return 0;
}

/* Exactly n bytes. */
static int take_base64(const json_t *v, uint8_t *out, size_t n)
{
	struct base64_decode_ctx c;
	size_t len = json_string_length(v), got = 0;

	base64_decode_init(&c);
	if (!json_is_string(v) || len != BASE64_ENCODE_RAW_LENGTH(n) ||
	    !base64_decode_update(&c, &got, out, len, json_string_value(v)) || !base64_decode_final(&c))
		return -1;
	return got == n ? 0 : -1;
}

static int take_occupancy(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e)
{
	size_t n = (size_t)h->n_layer;
	const json_t *held = json_object_get(root, "held");
	uint8_t cover[BASE64_DECODE_LENGTH(BASE64_ENCODE_RAW_LENGTH(MAX_COVER))];
	rk_layer_occupancy *o = grow(b, n * sizeof *o, e);

	(void)ev;
	if (!o)
		return -1;
	if (json_array_size(held) != 4 * n)
		return rk_fail(e, RK_EFAIL, "\"held\" is not an array of %zu counts", 4 * n);
	if (take_base64(json_object_get(root, "cover"), cover, n * RK_COVERAGE))
		return rk_fail(e, RK_EFAIL, "\"cover\" is not %zu bytes in base64", n * RK_COVERAGE);
	for (size_t i = 0; i < n; i++) {
		if (take_count(held, 4 * i, &o[i].sink, e) || take_count(held, 4 * i + 1, &o[i].prompt, e) ||
		    take_count(held, 4 * i + 2, &o[i].generated, e) || take_count(held, 4 * i + 3, &o[i].recent, e))
			return -1;
		memcpy(o[i].coverage, cover + i * RK_COVERAGE, RK_COVERAGE);
	}
	return 0;
}

/* ---- positions: per KV head the slots in order, each as the difference from the one before ---- */

static int put_positions(const struct ctx *c, json_t *root)
{
	const int32_t *p = c->payload, *end = p + c->ev->size / sizeof *p;
	json_t *heads = json_array();

	for (int h = 0; h < c->ev->positions.n_kv_head && p < end; h++) {
		json_t *head = json_array();
		int32_t n = *p++, last = 0;
		for (; n > 0 && p < end; n--) {
			json_array_append_new(head, json_integer(*p - last));
			last = *p++;
		}
		json_array_append_new(heads, head);
	}
	return json_object_set_new(root, "heads", heads);
}

static int take_head(const json_t *head, int32_t *out, size_t n, rk_err *e)
{
	int64_t pos = 0;

	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(head, i);
		json_int_t d = json_integer_value(v);
		if (!json_is_integer(v) || d < -INT32_MAX || d > INT32_MAX || (pos += d) < 0 || pos > INT32_MAX)
			return rk_fail(e, RK_EFAIL, "\"heads\": entry %zu does not lead to a position", i);
		out[i] = (int32_t)pos;
	}
	return 0;
}

static int take_positions(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e)
{
	const json_t *heads = json_object_get(root, "heads");
	size_t n = json_array_size(heads), total = 0, at = 0;

	if (!json_is_array(heads) || n > (size_t)h->n_kv_head)
		return rk_fail(e, RK_EFAIL, "\"heads\" is not an array of at most %d arrays", h->n_kv_head);
	if (ev->positions.layer >= h->n_layer)
		return rk_fail(e, RK_EFAIL, "\"layer\" is %d, the model has %d", ev->positions.layer, h->n_layer);
	for (size_t i = 0; i < n; i++)
		total += 1 + json_array_size(json_array_get(heads, i));
	int32_t *out = grow(b, total * sizeof *out, e);
	if (!out && total)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const json_t *head = json_array_get(heads, i);
		size_t m = json_array_size(head);
		if (!json_is_array(head))
			return rk_fail(e, RK_EFAIL, "\"heads\": entry %zu is not an array", i);
		out[at++] = (int32_t)m;
		if (take_head(head, out + at, m, e))
			return -1;
		at += m;
	}
	ev->positions.n_kv_head = h->n_kv_head;
	return 0;
}

/* ---- end: why, and the hash of the last logits ---- */

static const char *const reasons[] = {
	[RK_END_TOKEN] = "token", [RK_END_LENGTH] = "length", [RK_END_CONTEXT] = "context", [RK_END_STOPPED] = "stopped",
	[RK_END_FORCED] = "forced",
};
#define N_REASON (sizeof reasons / sizeof *reasons)

static int put_end(const struct ctx *c, json_t *root)
{
	if ((unsigned)c->ev->end.reason >= N_REASON)
		return -1;
	json_t *hash = json_sprintf("%016llx", (unsigned long long)c->ev->end.logits_hash);
	return json_object_set_new(root, "reason", json_string(reasons[c->ev->end.reason])) ||
	       json_object_set_new(root, "hash", hash) ? -1 : 0;
}

static int take_end(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e)
{
	char word[17];
	bool bit[64];
	unsigned i = 0;

	(void)h;
	(void)b;
	if (rk_trace_take_str(root, "reason", word, sizeof word, e))
		return -1;
	while (i < N_REASON && strcmp(word, reasons[i]))
		i++;
	if (i == N_REASON)
		return rk_fail(e, RK_EFAIL, "\"reason\" is \"%s\"; known: token, length, context, stopped, forced", word);
	ev->end.reason = (enum rk_end)i;
	if (rk_trace_take_mask(json_object_get(root, "hash"), "hash", 64, bit, e))
		return -1;
	for (int j = 0; j < 64; j++)
		ev->end.logits_hash |= (uint64_t)bit[j] << j;
	return 0;
}

/* ---- the tables ---- */

#define F(key_, member, kind_, ...) { .key = key_, .at = offsetof(rk_event, member), .kind = kind_, __VA_ARGS__ }

static const struct field index_field = F("i", index, INT32, .min = -1, .max = INT32_MAX);
static const struct field no_fields[] = { { 0 } };
static const struct field start_fields[] = {
	F("n_prompt", start.n_prompt, INT32), F("n_lane", start.n_lane, INT32, .min = 1, .max = RK_MAX_LANE),
	F("n_layer", start.n_layer, INT32), F("bytes", start.bytes_full, INT64, .n = 2), { 0 }
};
static const struct field prefill_fields[] = {
	F("done", prefill.done, INT32), F("total", prefill.total, INT32), F("ns", prefill.ns, INT64), { 0 }
};
static const struct field token_fields[] = {
	F("id", token.id, INT32), F("pos", token.pos, INT32), F("lp", token.logprob, REAL), F("lse", token.lse, REAL),
	F("kl", token.kl, REAL, .optional = true), F("same", token.same_top1, FLAG, .optional = true),
	F("forced", token.forced, FLAG, .optional = true), { 0 }
};
static const struct field step_fields[] = {
	F("pos", step.pos, INT32), F("ns", step.ns_shared, INT64, .n = 2), F("bytes", step.bytes_full, INT64, .n = 4), { 0 }
};
static const struct field positions_fields[] = { F("layer", positions.layer, INT32), { 0 } };
static const struct field shadow_fields[] = {
	F("lp", shadow.logprob, REAL), F("lse", shadow.lse, REAL), F("kl", shadow.kl, REAL, .optional = true),
	F("same", shadow.same_top1, FLAG, .optional = true), F("ns", shadow.ns, INT64, .n = 2), { 0 }
};
static const struct field end_fields[] = { F("n_token", end.n_token, INT32), { 0 } };
static const struct field gap_fields[] = { F("lost", gap.lost, INT64), { 0 } };
static const struct field error_fields[] = { F("code", error.code, INT32, .min = RK_EFAIL, .max = RK_ENOMEM), { 0 } };

/* Members that one array holds lie side by side. */
#define NEXT_TO(a, b) _Static_assert(offsetof(rk_event, b) == offsetof(rk_event, a) + sizeof(int64_t), #b)
NEXT_TO(start.bytes_full, start.bytes_partial);
NEXT_TO(step.ns_shared, step.ns_attn);
NEXT_TO(step.bytes_full, step.bytes_partial);
NEXT_TO(step.bytes_partial, step.bytes_score);
NEXT_TO(step.bytes_score, step.bytes_vanilla);
NEXT_TO(shadow.ns, shadow.ns_vanilla_attn);

static const struct shape shapes[] = {
	[RK_EV_START] = { "start", -1, start_fields, .put = put_start, .take = take_start },
	[RK_EV_PREFILL] = { "prefill", -1, prefill_fields },
	[RK_EV_TOKEN] = { "token", 0, token_fields, "text", put_token, take_token },
	[RK_EV_STEP] = { "step", 0, step_fields, .put = put_step, .take = take_step },
	[RK_EV_OCCUPANCY] = { "occupancy", 0, no_fields, .put = put_occupancy, .take = take_occupancy },
	[RK_EV_POSITIONS] = { "positions", 0, positions_fields, .put = put_positions, .take = take_positions },
	[RK_EV_SHADOW] = { "shadow", 0, shadow_fields },
	[RK_EV_CONTROL] = { "control", 0, no_fields, "policy" },
	[RK_EV_END] = { "end", -1, end_fields, "text", put_end, take_end },
	[RK_EV_IDLE] = { "idle", -1, no_fields },
	[RK_EV_GAP] = { "gap", -1, gap_fields },
	[RK_EV_ERROR] = { "error", -1, error_fields, "text" },
};
#define N_SHAPE ((int)(sizeof shapes / sizeof *shapes))

/* ---- writing ---- */

static json_t *number(const struct field *f, const char *at)
{
	switch (f->kind) {
	case INT32: return json_integer(*(const int32_t *)at);
	case INT64: return json_integer(*(const int64_t *)at);
	case REAL: return rk_trace_real(*(const float *)at);
	default: return json_boolean(*(const bool *)at);
	}
}

static bool is_default(const struct field *f, const char *at)
{
	return f->kind == FLAG ? !*(const bool *)at : f->kind == REAL && isnan(*(const float *)at);
}

static int put_field(const struct field *f, const rk_event *ev, json_t *root)
{
	const char *at = (const char *)ev + f->at;

	if (f->optional && is_default(f, at))
		return 0;
	if (!f->n)
		return json_object_set_new(root, f->key, number(f, at));
	json_t *a = json_array();
	for (int i = 0; i < f->n; i++)
		json_array_append_new(a, json_integer(((const int64_t *)at)[i]));
	return json_object_set_new(root, f->key, a);
}

int rk_trace_event_line(const rk_trace_header *h, const rk_event *ev, const void *payload, int64_t t0, char **line, size_t *len,
                        rk_err *e)
{
	const struct shape *s = ev->type < N_SHAPE ? &shapes[ev->type] : NULL;
	const struct ctx c = { h, ev, payload };

	if (!s)
		return rk_fail(e, RK_EFAIL, "event type %d is not part of a trace", ev->type);
	int64_t t = ev->t_ns > t0 ? ev->t_ns - t0 : 0;	/* a recording that begins in mid-session is told of the start first */
	json_t *root = json_pack("{s:s, s:i, s:I}", "ev", s->name, "lane", ev->lane, "t", (json_int_t)t);
	int rc = !root || (ev->index && put_field(&index_field, ev, root));
	for (const struct field *f = s->fields; rc == 0 && f->key; f++)
		rc = put_field(f, ev, root);
	if (rc == 0 && s->put)
		rc = s->put(&c, root);
	if (rc == 0 && s->text && ev->size)
		rc = json_object_set_new(root, s->text, rk_json_text(payload, ev->size));
	if (rc) {
		json_decref(root);
		return rk_fail(e, RK_ENOMEM, "no memory for a line of a trace, or an event \"%s\" of a wrong size", s->name);
	}
	if (rk_trace_dump(root, line, len, e))
		return -1;
	if (*len <= RK_TRACE_MAX_LINE)
		return 0;
	free(*line);
	return rk_fail(e, RK_EFAIL, "an event \"%s\" of %zu bytes, the limit of a line is %u", s->name, *len, RK_TRACE_MAX_LINE);
}

/* ---- reading ---- */

static int take_one(const struct field *f, const json_t *v, char *at, rk_err *e)
{
	json_int_t x = json_integer_value(v);
	int64_t max = f->max ? f->max : f->kind == INT32 ? INT32_MAX : BIG;

	if (f->kind == REAL)
		return rk_trace_take_float(v, f->key, (float *)at, e);
	if (f->kind == FLAG ? !json_is_boolean(v) : !json_is_integer(v))
		return rk_fail(e, RK_EFAIL, "\"%s\" %s", f->key, !v ? "is missing" :
		               f->kind == FLAG ? "is not true or false" : "is not an integer");
	if (f->kind == FLAG)
		*(bool *)at = json_is_true(v);
	else if (x < f->min || x > max)
		return rk_fail(e, RK_EFAIL, "\"%s\" is %lld, not in %lld to %lld", f->key, (long long)x, (long long)f->min,
		               (long long)max);
	else if (f->kind == INT32)
		*(int32_t *)at = (int32_t)x;
	else
		*(int64_t *)at = x;
	return 0;
}

static int take_field(const struct field *f, const json_t *root, rk_event *ev, rk_err *e)
{
	const json_t *v = json_object_get(root, f->key);
	char *at = (char *)ev + f->at;

	if (!v && f->optional) {
		if (f->kind == REAL)
			*(float *)at = NAN;
		return 0;	/* a flag is false already */
	}
	if (!f->n)
		return v ? take_one(f, v, at, e) : rk_fail(e, RK_EFAIL, "\"%s\" is missing", f->key);
	if (json_array_size(v) != (size_t)f->n)
		return rk_fail(e, RK_EFAIL, "\"%s\" is not an array of %d numbers", f->key, f->n);
	for (int i = 0; i < f->n; i++)
		if (take_one(f, json_array_get(v, (size_t)i), at + (size_t)i * sizeof(int64_t), e))
			return -1;
	return 0;
}

static int take_text(const struct shape *s, const json_t *root, struct buf *b, rk_err *e)
{
	const json_t *v = json_object_get(root, s->text);
	size_t n = json_string_length(v);

	if (!v)
		return 0;
	if (!json_is_string(v))
		return rk_fail(e, RK_EFAIL, "\"%s\" is not a text", s->text);
	if (s == &shapes[RK_EV_CONTROL] && !rk_trace_is_spec(v))
		return rk_fail(e, RK_EFAIL, "\"policy\" is not " RK_TRACE_SPEC, RK_SPEC_MAX);
	char *out = n ? grow(b, n, e) : NULL;
	if (n && !out)
		return -1;
	if (n)
		memcpy(out, json_string_value(v), n);
	return 0;
}

static int take_event(const rk_trace_header *h, const json_t *root, rk_event *ev, struct buf *b, rk_err *e)
{
	char name[16];
	int64_t lane;
	int type = 0;

	if (!json_is_object(root))
		return rk_fail(e, RK_EFAIL, "not a JSON object");
	if (rk_trace_take_str(root, "ev", name, sizeof name, e))
		return -1;
	while (type < N_SHAPE && strcmp(name, shapes[type].name))
		type++;
	if (type == N_SHAPE)
		return rk_fail(e, RK_EFAIL, "unknown event \"%s\"", name);
	const struct shape *s = &shapes[type];
	ev->type = (uint8_t)type;
	if (rk_trace_take_int(root, "lane", s->lane_min, RK_MAX_LANE - 1, &lane, e) ||
	    rk_trace_take_int(root, "t", 0, BIG, &ev->t_ns, e))
		return -1;
	ev->lane = (int8_t)lane;
	if (json_object_get(root, "i") && take_field(&index_field, root, ev, e))
		return -1;
	for (const struct field *f = s->fields; f->key; f++)
		if (take_field(f, root, ev, e))
			return -1;
	if (s->take && s->take(h, root, ev, b, e))
		return -1;
	return s->text ? take_text(s, root, b, e) : 0;
}

int rk_trace_event_parse(const rk_trace_header *h, const char *line, size_t len, rk_event *ev, void **buf, size_t *cap, rk_err *e)
{
	json_error_t why;
	json_t *root = json_loadb(line, len, JSON_ALLOW_NUL, &why);
	struct buf b = { buf, cap, &ev->size };

	memset(ev, 0, sizeof *ev);
	if (!root)
		return rk_fail(e, RK_EFAIL, "not JSON: %s (column %d)", why.text, why.column);
	int rc = take_event(h, root, ev, &b, e);
	json_decref(root);
	return rc;
}
