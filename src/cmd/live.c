/* live.c: see live.h */
#include "cmd/live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/cmd.h"

/* The first message as `run` sends it: the document, a break, the question. */
static char *with_document(const rk_live *l, const char *user, rk_err *e)
{
	size_t len = l->document ? strlen(l->document) : 0;
	char *out;

	while (len > 0 && (l->document[len - 1] == '\n' || l->document[len - 1] == '\r'))
		len--;
	if (asprintf(&out, "%.*s%s%s", (int)len, l->document ? l->document : "", l->document ? RK_QUESTION_BREAK : "", user) >= 0)
		return out;
	rk_fail(e, RK_ENOMEM, "no memory for a prompt of %zu bytes", len + strlen(user));
	return NULL;
}

/* Asks in tokens, so that the reply can be forced to follow a text. */
static int ask_forced(rk_live *l, const char *user, rk_err *e)
{
	int32_t *ids = NULL, *forced = NULL;
	size_t n, n_forced;
	int rc = -1;

	if (rk_engine_format(l->g, l->system, user, NULL, NULL, &ids, &n, e) == 0 &&
	    rk_tokenize(rk_engine_tokenizer(l->g), l->forced, strlen(l->forced), 0, &forced, &n_forced, e) == 0)
		rc = rk_engine_ask_ids(l->g, ids, (int)n, (int)n_forced, RK_FOLLOW_TEXT, forced, (int)n_forced, e);
	free(ids);
	free(forced);
	return rc;
}

static int ask(void *ctx, const char *user, rk_err *e)
{
	rk_live *l = ctx;
	int rc;

	if (l->asked)
		return rk_engine_ask(l->g, NULL, user, l->max_new, l->follow, e);
	char *text = with_document(l, user, e);
	if (!text)
		return -1;
	rc = l->forced ? ask_forced(l, text, e) : rk_engine_ask(l->g, l->system, text, l->max_new, l->follow, e);
	free(text);
	l->asked = rc == 0;
	return rc;
}

/* Writes one turn, and the reply where there is one; words: where those of system, user and reply are. */
static int write_turn(rk_live *l, const rk_said *turn, bool first, bool last, FILE *f, rk_stretch words[3], rk_err *e)
{
	bool raw = rk_engine_chat(l->g)->kind == RK_CHAT_RAW;
	char *user = first ? with_document(l, turn->user, e) : NULL, *text;
	size_t at = (size_t)ftell(f);

	if (first && !user)
		return -1;
	/* closed = false: each reply is text here, its end token is still to be written */
	int rc = rk_chat_turn(rk_engine_chat(l->g), l->system, user ? user : turn->user, first, false, &text, words, e);
	free(user);
	if (rc)
		return -1;
	fputs(text, f);
	words[0].at += at;
	words[1].at += at;
	words[2] = (rk_stretch){ at + strlen(text), 0 };
	free(text);
	if (!last && turn->reply) {
		fputs(turn->reply, f);
		words[2].len = raw ? 0 : strlen(turn->reply);
	}
	return 0;
}

/* The text of a whole conversation up to the point where the last reply starts; said: [3 * n]. */
static char *conversation(rk_live *l, const rk_said *turn, int n, rk_stretch *said, rk_err *e)
{
	char *all = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&all, &len);
	int rc = f ? 0 : rk_fail(e, RK_ENOMEM, "no memory for the conversation");

	for (int i = 0; i < n && rc == 0; i++)
		rc = write_turn(l, &turn[i], i == 0, i + 1 == n, f, said + 3 * i, e);
	if (f && fclose(f) && rc == 0)
		rc = rk_fail(e, RK_ENOMEM, "no memory for the conversation");
	if (rc == 0)
		return all;
	free(all);
	return NULL;
}

static int ask_again(void *ctx, const rk_said *turn, int n, int seed, rk_err *e)
{
	rk_live *l = ctx;
	int32_t *ids = NULL;
	size_t n_ids, n_said = 3 * (size_t)n;
	rk_stretch *said = calloc(n_said, sizeof *said);
	char *text = NULL;
	unsigned flags = RK_TOK_SPECIAL | (rk_engine_chat(l->g)->kind == RK_CHAT_RAW ? RK_TOK_BOS : 0);
	int rc = -1;

	rk_engine_seed(l->g, (uint64_t)seed);
	if (!said)
		rk_fail(e, RK_ENOMEM, "no memory for the conversation");
	else if ((text = conversation(l, turn, n, said, e)) &&
	         rk_tokenize_said(rk_engine_tokenizer(l->g), text, strlen(text), flags, said, n_said, &ids, &n_ids, e) == 0)
		rc = rk_engine_ask_ids(l->g, ids, (int)n_ids, l->max_new, l->follow, NULL, 0, e);
	free(said);
	free(text);
	free(ids);
	l->asked = rc == 0;
	return rc;
}

static int next(void *ctx, rk_event *ev, const void **payload)
{
	rk_live *l = ctx;

	if (l->untold) {	/* the session goes on; the user is told as of any other error */
		l->untold = false;
		*ev = (rk_event){ .type = RK_EV_ERROR, .lane = -1, .size = (uint32_t)strlen(l->why.msg), .error.code = l->why.code };
		*payload = l->why.msg;
		return 1;
	}
	if (!rk_event_next(rk_engine_events(l->g), ev, payload, 0))
		return 0;
	if (rk_tape_event(&l->tape, ev, *payload, &l->why)) {
		l->untold = true;
		l->feed.recording = NULL;
	}
	/* a first prompt that did not fit or was cancelled leaves no session: the document goes with the next question again */
	if ((ev->type == RK_EV_ERROR || ev->type == RK_EV_END) && ev->lane < 0 && !l->replied)
		l->asked = false;
	if (ev->type == RK_EV_TOKEN)	/* whatever failed before: a change of lanes does so only once the next question is out */
		l->asked = l->replied = true;
	if (ev->type == RK_EV_START)
		l->relaid = false;
	return 1;
}

static int reset(void *ctx, rk_err *e)
{
	rk_live *l = ctx;

	if (rk_engine_reset(l->g, e))
		return -1;
	rk_tape_forget(&l->tape);
	l->asked = l->replied = false;
	return 0;
}

/* A trace says at its start how many lanes it has. */
static int lanes_may_change(const rk_live *l, rk_err *e)
{
	return !l->feed.recording ? 0 :
	       rk_fail(e, RK_EUSAGE, "recording to %s, which has the lanes it has; `:record stop` ends it", l->feed.recording);
}

static int add_lane(void *ctx, const char *spec, rk_err *e)
{
	rk_live *l = ctx;

	if (lanes_may_change(l, e) || rk_engine_add_lane(l->g, spec, e))
		return -1;
	l->asked = l->replied = false;
	l->relaid = true;
	return 0;
}

static int drop_lane(void *ctx, int lane, rk_err *e)
{
	rk_live *l = ctx;

	if (lanes_may_change(l, e) || rk_engine_drop_lane(l->g, lane, e))
		return -1;
	l->asked = l->replied = false;
	l->relaid = true;
	return 0;
}

static int record(void *ctx, const char *path, bool force, int *after, rk_err *e)
{
	rk_live *l = ctx;

	if (l->relaid)
		return rk_fail(e, RK_EFAIL, "`:lane` was used and the session has not started since: a recording can begin with the next reply");
	if (rk_tape_begin(&l->tape, path, force, after, e))
		return -1;
	snprintf(l->trace_path, sizeof l->trace_path, "%s", path);
	l->feed.recording = l->trace_path;
	return 0;
}

static int stop_recording(void *ctx, rk_err *e)
{
	rk_live *l = ctx;

	l->feed.recording = NULL;
	return rk_tape_end(&l->tape, e);
}

static int set_policy(void *ctx, int lane, const char *spec, rk_err *e) { return rk_engine_set_policy(((rk_live *)ctx)->g, lane, spec, e); }
static int n_lane(void *ctx) { return rk_engine_n_lane(((rk_live *)ctx)->g); }
static void stop(void *ctx) { rk_engine_stop(((rk_live *)ctx)->g); }
static void hold(void *ctx, bool paused) { rk_engine_pause(((rk_live *)ctx)->g, paused); }
static void single_step(void *ctx) { rk_engine_single_step(((rk_live *)ctx)->g); }
static void pace(void *ctx, float tok_per_s) { rk_engine_pace(((rk_live *)ctx)->g, tok_per_s); }

static const char *token_text(void *ctx, int32_t id, size_t *len)
{
	const rk_tokenizer *t = rk_engine_tokenizer(((rk_live *)ctx)->g);

	return id >= 0 && id < rk_tokenizer_n_vocab(t) ? rk_token_bytes(t, id, len) : NULL;
}

/* Tells whether a document is still the one of a saved session; no secret, so a plain FNV-1a. */
static void document_id(const char *text, char out[40])
{
	uint64_t h = 0xcbf29ce484222325u;
	size_t n = 0;

	for (; text && text[n]; n++)
		h = (h ^ (unsigned char)text[n]) * 0x100000001b3u;
	snprintf(out, 40, "%zu-%016llx", n, (unsigned long long)h);
}

void rk_live_init(rk_live *l, const char *document_name, double bandwidth, const char *trace_path)
{
	const rk_model *m = rk_engine_model(l->g);
	const rk_backend *b = rk_engine_backend(l->g);

	rk_tape_init(&l->tape);
	l->feed = (rk_feed){
		.ctx = l, .fd = rk_event_fd(rk_engine_events(l->g)), .next = next, .ask = ask, .ask_again = ask_again, .reset = reset,
		.set_policy = set_policy, .add_lane = add_lane, .drop_lane = drop_lane, .n_lane = n_lane, .stop = stop, .pause = hold, .single_step = single_step, .pace = pace,
		.token_text = token_text,
		.record = record, .stop_recording = stop_recording, .recording = trace_path,
		.info = { .n_ctx = rk_engine_n_ctx(l->g), .weight_bytes = (double)m->weight_bytes, .bandwidth = bandwidth },
	};
	rk_feed_info *in = &l->feed.info;
	snprintf(in->model, sizeof in->model, "%s", m->name);
	snprintf(in->device, sizeof in->device, "%s %s", b->device, b->isa);
	snprintf(in->document, sizeof in->document, "%s", document_name ? document_name : "");
	if (l->document)
		document_id(l->document, in->document_id);
}
