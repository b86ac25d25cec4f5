/* header.c: the first line of a trace: what was run, on what, and how.  See trace.h. */
#include "trace/trace.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "trace/digest.h"
#include "trace/json.h"

static const char *const follow_names[] = { "none", "first", "text" };	/* in the order of enum rk_follow */

/* ---- filling ---- */

/* Version 4 of RFC 9562: 122 random bits. */
static void make_uuid(char out[40])
{
	uint8_t b[16] = { 0 };
	ssize_t n = getrandom(b, sizeof b, 0);	/* 16 bytes come whole */

	(void)n;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	for (int i = 0, at = 0; i < 16; i++)
		at += snprintf(out + at, (size_t)(40 - at), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
}

static void make_time(char out[32])
{
	struct timespec now;
	struct tm tm;
	char date[24];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, 32, "%s.%03dZ", date, (int)(now.tv_nsec / 1000000));
}

void rk_trace_header_fill(rk_trace_header *h, const rk_engine *g, const rk_engine_cfg *cfg, const char *command, enum rk_follow follow)
{
	const rk_model *m = rk_engine_model(g);
	const rk_backend *b = rk_engine_backend(g);
	const rk_hparams *hp = &m->hp;

	*h = (rk_trace_header){
		.version = RK_TRACE_VERSION, .n_thread = b->n_thread, .exact = b->exact,
		.n_layer = hp->n_layer, .n_head = hp->n_head, .n_kv_head = hp->n_kv_head, .head_dim = hp->head_dim, .n_vocab = hp->n_vocab,
		.n_ctx = cfg->session.n_ctx ? cfg->session.n_ctx : hp->n_ctx_train,
		.chunk = cfg->session.chunk ? cfg->session.chunk : RK_DEFAULT_CHUNK,
		.shadow = cfg->session.shadow, .positions = cfg->session.positions, .n_lane = cfg->session.n_lane,
		.follow = follow, .sampling = cfg->sampling,
	};
	make_uuid(h->run_id);
	make_time(h->started);
	snprintf(h->program, sizeof h->program, "%s", RK_VERSION);
	snprintf(h->command, sizeof h->command, "%s", command);
	snprintf(h->model, sizeof h->model, "%s", m->name);
	snprintf(h->tokenizer, sizeof h->tokenizer, "%s", rk_tokenizer_pre(rk_engine_tokenizer(g)));
	snprintf(h->chat, sizeof h->chat, "%s", rk_chat_name(rk_engine_chat(g)));
	snprintf(h->device, sizeof h->device, "%s", b->device);
	snprintf(h->isa, sizeof h->isa, "%s", b->isa);
	snprintf(h->kv_type, sizeof h->kv_type, "%s", b->kv_bytes == 4 ? "f32" : "f16");
	for (int i = 0; i < h->n_lane; i++)
		rk_policy_spec(&cfg->session.lane[i], h->policy[i]);
}

int rk_trace_header_prompt(rk_trace_header *h, const int32_t *ids, size_t n, bool keep_ids, rk_err *e)
{
	rk_digest(ids, n * sizeof *ids, h->prompt_sha256);	/* this program runs on little-endian machines only */
	if (!keep_ids)
		return 0;
	if (n > RK_TRACE_MAX_LINE / 12)
		return rk_fail(e, RK_EFAIL, "a prompt of %zu tokens is too long to be kept in the trace, the limit is %u", n,
		               RK_TRACE_MAX_LINE / 12);
	h->prompt = malloc((n + 1) * sizeof *ids);
	if (!h->prompt)
		return rk_fail(e, RK_ENOMEM, "no memory for %zu token ids", n);
	memcpy(h->prompt, ids, n * sizeof *ids);
	h->n_prompt = (int)n;
	return 0;
}

void rk_trace_header_free(rk_trace_header *h)
{
	free(h->prompt);
	h->prompt = NULL;
}

/* ---- writing ---- */

static json_t *text_or_null(const char *s)
{
	return s[0] ? rk_json_text(s, strlen(s)) : json_null();
}

static json_t *prompt_json(const rk_trace_header *h)
{
	json_t *ids = json_null();

	if (h->prompt) {
		ids = json_array();
		for (int i = 0; i < h->n_prompt; i++)
			json_array_append_new(ids, json_integer(h->prompt[i]));
	}
	return json_pack("{s:o, s:o}", "sha256", text_or_null(h->prompt_sha256), "ids", ids);
}

static json_t *policies_json(const rk_trace_header *h)
{
	json_t *a = json_array();

	for (int i = 0; i < h->n_lane; i++)
		json_array_append_new(a, json_string(h->policy[i]));
	return a;
}

int rk_trace_header_line(const rk_trace_header *h, char **line, size_t *len, rk_err *e)
{
	const rk_sampling *s = &h->sampling;
	json_t *root = json_pack("{s:s, s:i, s:s, s:o, s:o, s:o}",
		"schema", RK_TRACE_SCHEMA, "version", h->version, "run", h->run_id, "program", text_or_null(h->program),
		"command", text_or_null(h->command), "started", text_or_null(h->started));
	json_t *what = json_pack("{s:{s:o, s:o, s:i, s:i, s:i, s:i, s:i}, s:{s:o, s:o}, s:{s:o, s:o, s:i, s:b, s:o}}",
		"model", "name", text_or_null(h->model), "sha256", text_or_null(h->model_sha256), "n_layer", h->n_layer,
		"n_head", h->n_head, "n_kv_head", h->n_kv_head, "head_dim", h->head_dim, "n_vocab", h->n_vocab,
		"tokenizer", "pre", text_or_null(h->tokenizer), "chat", text_or_null(h->chat),
		"engine", "device", text_or_null(h->device), "isa", text_or_null(h->isa), "threads", h->n_thread, "exact", h->exact,
		"kv", text_or_null(h->kv_type));
	json_t *how = json_pack("{s:i, s:i, s:b, s:b, s:o, s:s, s:{s:o, s:i, s:o, s:o, s:I}, s:{s:o}, s:o}",
		"context", h->n_ctx, "chunk", h->chunk, "shadow", h->shadow, "positions", h->positions, "policies", policies_json(h),
		"follow", follow_names[h->follow],
		"sampling", "temp", rk_trace_real(s->temp), "top_k", s->top_k, "top_p", rk_trace_real(s->top_p),
		"min_p", rk_trace_real(s->min_p), "seed", (json_int_t)s->seed,
		"document", "sha256", text_or_null(h->document_sha256), "prompt", prompt_json(h));
	int rc = !root || !what || !how || json_object_update(root, what) || json_object_update(root, how) ||
	         (h->after && json_object_set_new(root, "after", json_integer(h->after)));

	json_decref(what);
	json_decref(how);
	if (rc) {
		json_decref(root);
		return rk_fail(e, RK_ENOMEM, "no memory for the header of a trace");
	}
	return rk_trace_dump(root, line, len, e);
}

/* ---- reading ---- */

static int take_int(const json_t *root, const char *key, int min, int max, int *out, rk_err *e)
{
	int64_t v;

	if (rk_trace_take_int(root, key, min, max, &v, e))
		return -1;
	*out = (int)v;
	return 0;
}

static int take_flag(const json_t *root, const char *key, bool *out, rk_err *e)
{
	const json_t *v = json_object_get(root, key);

	*out = json_is_true(v);
	return json_is_boolean(v) ? 0 : rk_fail(e, RK_EFAIL, "\"%s\" is not true or false", key);
}

/* Facts for people, which may be unknown: null and absent are "". */
static int take_text(const json_t *root, const char *key, char *out, size_t size, rk_err *e)
{
	const json_t *v = json_object_get(root, key);

	out[0] = '\0';
	return !v || json_is_null(v) ? 0 : rk_trace_take_str(root, key, out, size, e);
}

static int take_policies(rk_trace_header *h, const json_t *a, rk_err *e)
{
	size_t n = json_array_size(a);

	if (n < 1 || n > RK_MAX_LANE)
		return rk_fail(e, RK_EFAIL, "\"policies\" is not an array of 1 to %d texts", RK_MAX_LANE);
	h->n_lane = (int)n;
	for (size_t i = 0; i < n; i++) {
		const json_t *s = json_array_get(a, i);
		if (!rk_trace_is_spec(s))
			return rk_fail(e, RK_EFAIL, "\"policies\": entry %zu is not " RK_TRACE_SPEC, i, RK_SPEC_MAX);
		snprintf(h->policy[i], RK_SPEC_MAX, "%s", json_string_value(s));
	}
	return 0;
}

static int take_sampling(rk_trace_header *h, const json_t *root, rk_err *e)
{
	rk_sampling *s = &h->sampling;
	int64_t seed;

	if (rk_trace_take_float(json_object_get(root, "temp"), "temp", &s->temp, e) || take_int(root, "top_k", 0, INT_MAX, &s->top_k, e) ||
	    rk_trace_take_float(json_object_get(root, "top_p"), "top_p", &s->top_p, e) ||
	    rk_trace_take_float(json_object_get(root, "min_p"), "min_p", &s->min_p, e) ||
	    rk_trace_take_int(root, "seed", INT64_MIN, INT64_MAX, &seed, e))
		return -1;
	s->seed = (uint64_t)seed;
	return 0;
}

static int take_prompt(rk_trace_header *h, const json_t *root, rk_err *e)
{
	const json_t *ids = json_object_get(root, "ids");
	size_t n = json_array_size(ids);

	if (take_text(root, "sha256", h->prompt_sha256, sizeof h->prompt_sha256, e))
		return -1;
	if (!json_is_array(ids))
		return 0;
	if (!(h->prompt = calloc(n + 1, sizeof *h->prompt)))
		return rk_fail(e, RK_ENOMEM, "no memory for %zu token ids", n);
	h->n_prompt = (int)n;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(ids, i);
		json_int_t id = json_integer_value(v);
		if (!json_is_integer(v) || id < 0 || id >= h->n_vocab)
			return rk_fail(e, RK_EFAIL, "\"ids\": entry %zu is not a token id below %d", i, h->n_vocab);
		h->prompt[i] = (int32_t)id;
	}
	return 0;
}

static int take_header(rk_trace_header *h, const json_t *root, rk_err *e)
{
	const json_t *model = json_object_get(root, "model"), *tok = json_object_get(root, "tokenizer");
	const json_t *engine = json_object_get(root, "engine"), *follow = json_object_get(root, "follow");
	const char *schema = json_string_value(json_object_get(root, "schema"));
	int64_t version;

	if (!schema || strcmp(schema, RK_TRACE_SCHEMA))
		return rk_fail(e, RK_EFAIL, "not a trace: \"schema\" is not \"" RK_TRACE_SCHEMA "\"");
	if (rk_trace_take_int(root, "version", 1, INT_MAX, &version, e))
		return -1;
	if (version > RK_TRACE_VERSION)
		return rk_fail(e, RK_EFAIL, RK_TRACE_SCHEMA " version %lld is newer than version %d, which this program reads",
		               (long long)version, RK_TRACE_VERSION);
	h->version = (int)version;
	h->follow = RK_FOLLOW_NONE;
	for (int i = 0; i < 3; i++)
		if (json_is_string(follow) && !strcmp(json_string_value(follow), follow_names[i]))
			h->follow = (enum rk_follow)i;
	return take_text(root, "run", h->run_id, sizeof h->run_id, e) || take_text(root, "program", h->program, sizeof h->program, e) ||
	       take_text(root, "command", h->command, sizeof h->command, e) ||
	       take_text(root, "started", h->started, sizeof h->started, e) ||
	       take_text(model, "name", h->model, sizeof h->model, e) ||
	       take_text(model, "sha256", h->model_sha256, sizeof h->model_sha256, e) ||
	       take_int(model, "n_layer", 1, RK_MAX_LAYER, &h->n_layer, e) || take_int(model, "n_head", 1, 1 << 16, &h->n_head, e) ||
	       take_int(model, "n_kv_head", 1, 1 << 16, &h->n_kv_head, e) || take_int(model, "head_dim", 1, 1 << 16, &h->head_dim, e) ||
	       take_int(model, "n_vocab", 1, INT_MAX, &h->n_vocab, e) ||
	       take_text(tok, "pre", h->tokenizer, sizeof h->tokenizer, e) || take_text(tok, "chat", h->chat, sizeof h->chat, e) ||
	       take_text(engine, "device", h->device, sizeof h->device, e) || take_text(engine, "isa", h->isa, sizeof h->isa, e) ||
	       take_int(engine, "threads", 0, INT_MAX, &h->n_thread, e) || take_flag(engine, "exact", &h->exact, e) ||
	       take_text(engine, "kv", h->kv_type, sizeof h->kv_type, e) ||
	       take_int(root, "context", 0, INT_MAX, &h->n_ctx, e) || take_int(root, "chunk", 0, INT_MAX, &h->chunk, e) ||
	       take_flag(root, "shadow", &h->shadow, e) || take_flag(root, "positions", &h->positions, e) ||
	       (json_object_get(root, "after") && take_int(root, "after", 0, INT_MAX, &h->after, e)) ||
	       take_policies(h, json_object_get(root, "policies"), e) || take_sampling(h, json_object_get(root, "sampling"), e) ||
	       take_text(json_object_get(root, "document"), "sha256", h->document_sha256, sizeof h->document_sha256, e) ||
	       take_prompt(h, json_object_get(root, "prompt"), e) ? -1 : 0;
}

int rk_trace_header_parse(rk_trace_header *h, const char *line, size_t len, rk_err *e)
{
	json_error_t why;
	json_t *root = json_loadb(line, len, 0, &why);

	*h = (rk_trace_header){ 0 };
	if (!root)
		return rk_fail(e, RK_EFAIL, "not a trace: the first line is not JSON: %s (column %d)", why.text, why.column);
	int rc = take_header(h, root, e);
	json_decref(root);
	if (rc)
		rk_trace_header_free(h);
	return rc;
}
