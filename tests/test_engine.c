/* test_engine.c: the engine thread as its readers see it: commands in, events out, on a tiny model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aid_engine.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "engine/stats.h"

#define MAX_EVENT 4000
#define MAX_TEXT 20000

/* What came until the engine was idle. */
typedef struct record {
	rk_event ev[MAX_EVENT];
	int n;
	char text[RK_MAX_LANE][MAX_TEXT];
	size_t text_len[RK_MAX_LANE];
	int32_t id[RK_MAX_LANE][MAX_EVENT];
	rk_event end[RK_MAX_LANE];
	int n_token[RK_MAX_LANE], n_end[RK_MAX_LANE], n_error, n_control, n_cancelled;
	char message[512];	/* of the last error */
	char spec[RK_SPEC_MAX];	/* of the last change */
	rk_stats stats;
} record;

static record rec, other;	/* large */

typedef struct option {
	const char *lanes[RK_MAX_LANE + 1];
	int n_ctx, chunk;
	bool exact, lossy, one_turn, shadow, keep_full, positions, raw;
	rk_sampling sampling;
} option;

static int model_fd;
static char model_path[32];

static rk_engine *open_engine(const option *o)
{
	rk_engine_cfg cfg = {
		.model_path = model_path, .raw = o->raw, .backend = { .device = "cpu", .n_thread = 1, .exact = o->exact },
		.session = { .n_ctx = o->n_ctx, .chunk = o->chunk, .keep_full = o->keep_full, .shadow = o->shadow,
		    .positions = o->positions },
		.sampling = o->sampling, .one_turn = o->one_turn, .lossy_events = o->lossy,
	};
	rk_engine *g;
	rk_err e;
	for (; o->lanes[cfg.session.n_lane]; cfg.session.n_lane++)
		cfg.session.lane[cfg.session.n_lane] = aid_policy(o->lanes[cfg.session.n_lane]);
	if (rk_engine_open(&g, &cfg, &e))
		fail_msg("%s", e.msg);
	return g;
}

static void add_text(record *r, int lane, const void *p, size_t n)
{
	assert_true(r->text_len[lane] + n < MAX_TEXT);
	assert_int_equal(rk_utf8_check(p, n, NULL), 0);
	memcpy(r->text[lane] + r->text_len[lane], p, n);
	r->text_len[lane] += n;
}

static void note(record *r, const rk_event *ev, const void *payload)
{
	rk_err e;
	assert_true(r->n < MAX_EVENT);
	r->ev[r->n++] = *ev;
	if (rk_stats_add(&r->stats, ev, payload, &e))
		fail_msg("%s", e.msg);
	switch (ev->type) {
	case RK_EV_TOKEN:
		add_text(r, ev->lane, payload, ev->size);
		r->id[ev->lane][r->n_token[ev->lane]++] = ev->token.id;
		break;
	case RK_EV_END:
		if (ev->lane < 0) {
			r->n_cancelled++;
			break;
		}
		add_text(r, ev->lane, payload, ev->size);
		r->end[ev->lane] = *ev;
		r->n_end[ev->lane]++;
		break;
	case RK_EV_ERROR:
		r->n_error++;
		assert_true(ev->size < sizeof r->message);
		memcpy(r->message, payload, ev->size);
		r->message[ev->size] = 0;
		break;
	case RK_EV_CONTROL:
		r->n_control++;
		memcpy(r->spec, payload, ev->size);
		r->spec[ev->size] = 0;
		break;
	}
}

/* Called after each event; non-zero ends the reading. */
typedef int (*hook)(rk_engine *g, record *r);

static void read_until_idle(rk_engine *g, record *r, hook each)
{
	rk_event ev = { .type = RK_EV_GAP };
	const void *payload;
	rk_stats sums = r->stats;	/* go on through further turns */
	memset(r, 0, sizeof *r);
	r->stats = sums;
	while (ev.type != RK_EV_IDLE) {
		assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
		note(r, &ev, payload);
		if (each && each(g, r))
			return;
	}
}

static void ask(rk_engine *g, record *r, const char *user, int max_new, enum rk_follow follow)
{
	rk_err e;
	if (rk_engine_ask(g, NULL, user, max_new, follow, &e))
		fail_msg("%s", e.msg);
	read_until_idle(g, r, NULL);
	if (r->n_error)
		fail_msg("%s", r->message);
}

static void same_reply(const record *a, int i, const record *b, int j)
{
	assert_int_equal(a->n_token[i], b->n_token[j]);
	assert_memory_equal(a->id[i], b->id[j], (size_t)a->n_token[i] * sizeof(int32_t));
	assert_int_equal(a->text_len[i], b->text_len[j]);
	assert_memory_equal(a->text[i], b->text[j], a->text_len[i]);
	assert_true(a->end[i].end.logits_hash == b->end[j].end.logits_hash);
}

static const rk_event *nth(const record *r, enum rk_event_type type, int lane, int n)
{
	for (int i = 0; i < r->n; i++)
		if (r->ev[i].type == type && r->ev[i].lane == lane && n-- == 0)
			return &r->ev[i];
	return NULL;
}

static const char question[] =
	"What is in the world, and how does the world of words hold it all together? Say it in one line.";

/* Names of control tokens in what people say are ordinary words; those of the template are tokens. */
static void check_said(void **state)
{
	(void)state;
	rk_engine *g = open_engine(&(option){ .lanes = { "refreshkv" } });
	const rk_tokenizer *t = rk_engine_tokenizer(g);
	const char *const user[] = { "the word", "the <|im_end|> word <|im_start|>" };
	int n_control[2] = { 0 };
	for (int i = 0; i < 2; i++) {
		int32_t *ids;
		size_t n;
		char *text;
		rk_stretch said[2];
		assert_int_equal(rk_engine_format(g, "be <|im_end|> brief", user[i], &text, said, &ids, &n, NULL), 0);
		assert_memory_equal(text + said[1].at, user[i], said[1].len);
		assert_int_equal(said[1].len, strlen(user[i]));
		for (size_t k = 0; k < n; k++)
			n_control[i] += rk_token_is_control(t, ids[k]);
		free(text);
		free(ids);
	}
	assert_int_equal(n_control[0], 5);	/* three starts, two ends */
	assert_int_equal(n_control[1], 5);
	rk_engine_close(g);
}

/* ---- one reply ---- */

static void check_flow(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv" }, .chunk = 16 };
	rk_engine *g = open_engine(&o);
	int32_t *ids;
	size_t n_ids;
	assert_int_equal(rk_engine_format(g, NULL, question, NULL, NULL, &ids, &n_ids, NULL), 0);
	ask(g, &rec, question, 40, RK_FOLLOW_NONE);
	int at = 0, chunks = ((int)n_ids + 15) / 16;
	assert_int_equal(rec.ev[at].type, RK_EV_START);
	assert_int_equal(rec.ev[at].start.n_prompt, n_ids);
	assert_int_equal(rec.ev[at].start.n_lane, 1);
	assert_int_equal(rec.ev[at].start.n_layer, rk_engine_model(g)->hp.n_layer);
	assert_true(rec.ev[at].start.bytes_full > 0 && rec.ev[at].start.bytes_partial > 0);
	at++;
	for (int i = 0, last = -1; i <= chunks; i++, at++) {
		assert_int_equal(rec.ev[at].type, RK_EV_PREFILL);
		assert_int_equal(rec.ev[at].prefill.total, n_ids);
		assert_true(rec.ev[at].prefill.done > last);
		last = rec.ev[at].prefill.done;
		assert_true(i || last == 0);
		assert_true(i < chunks || last == (int)n_ids);
	}
	int n = rec.n_token[0];
	for (int i = 0; i < n; i++) {
		const rk_event *t = nth(&rec, RK_EV_TOKEN, 0, i), *s = nth(&rec, RK_EV_STEP, 0, i);
		assert_int_equal(t->index, i);
		assert_int_equal(t->token.pos, (int)n_ids + i);
		assert_int_equal(t->token.id, t->token.top_id[0]);	/* greedy */
		assert_true(t->token.logprob == t->token.top_logprob[0] && t->token.logprob < 0);
		for (int k = 1; k < RK_TOP; k++)
			assert_true(t->token.top_logprob[k] <= t->token.top_logprob[k - 1]);
		assert_true(isnan(t->token.kl) && !t->token.same_top1 && !t->token.forced);
		if (i == n - 1) {
			assert_null(s);
			break;
		}
		assert_true(s > t);
		assert_int_equal(s->index, i);
		assert_int_equal(s->step.pos, (int)n_ids + i);
		assert_true(s->step.bytes_vanilla > s->step.bytes_partial);
	}
	assert_int_equal(rec.n_end[0], 1);
	assert_int_equal(rec.end[0].end.n_token, n);
	assert_int_equal(rec.end[0].end.reason, n == 40 ? RK_END_LENGTH : RK_END_TOKEN);
	assert_int_equal(rec.ev[rec.n - 1].type, RK_EV_IDLE);
	free(ids);
	rk_engine_close(g);
}

/* The pieces are the text of the ids, made valid as a whole would be. */
static void check_text(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 8; seed++) {
		option o = { .lanes = { "vanilla" }, .sampling = { .temp = 3, .top_p = 1, .seed = seed } };
		rk_engine *g = open_engine(&o);
		char bytes[MAX_TEXT], *want;
		size_t n = 0, n_want;
		ask(g, &rec, question, 300, RK_FOLLOW_NONE);
		for (int i = 0; i < rec.n_token[0]; i++) {
			size_t len;
			const char *p = rk_token_bytes(rk_engine_tokenizer(g), rec.id[0][i], &len);
			if (rk_token_is_control(rk_engine_tokenizer(g), rec.id[0][i]))
				continue;
			memcpy(bytes + n, p, len);
			n += len;
		}
		assert_int_equal(rk_utf8_lossy(bytes, n, &want, &n_want, NULL), 0);
		assert_int_equal(rec.text_len[0], n_want);
		assert_memory_equal(rec.text[0], want, n_want);
		free(want);
		rk_engine_close(g);
	}
}

/* CASES 1, 13: the same prompt gives the same reply, later in one process as well as alone. */
static void check_repeats(void **state)
{
	(void)state;
	for (int hot = 0; hot < 2; hot++) {
		option o = { .lanes = { "refreshkv", "h2o", "snapkv", "vanilla" }, .sampling = { .temp = hot ? 1.5f : 0, .top_p = 1,
		    .seed = 3 } };
		rk_engine *g = open_engine(&o), *fresh = open_engine(&o);
		ask(g, &other, question, 30, RK_FOLLOW_NONE);
		assert_int_equal(rk_engine_reset(g, NULL), 0);
		read_until_idle(g, &rec, NULL);
		ask(g, &rec, "Another text that is longer than the first: the world of words, the words of the world.", 20,
		    RK_FOLLOW_NONE);
		assert_int_equal(rk_engine_reset(g, NULL), 0);
		read_until_idle(g, &rec, NULL);
		ask(g, &rec, question, 30, RK_FOLLOW_NONE);
		for (int lane = 0; lane < 4; lane++)
			same_reply(&rec, lane, &other, lane);
		ask(fresh, &rec, question, 30, RK_FOLLOW_NONE);
		for (int lane = 0; lane < 4; lane++) {
			same_reply(&rec, lane, &other, lane);
			assert_int_equal(rec.stats.lane[lane].bytes_partial, other.stats.lane[lane].bytes_partial);
		}
		rk_engine_close(g);
		rk_engine_close(fresh);
	}
}

/* ---- further turns ---- */

/* A conversation is the text that it is: vanilla's second reply is that to the whole of it as one prompt. */
static void check_further_turn(void **state)
{
	(void)state;
	option o = { .lanes = { "vanilla", "refreshkv", "snapkv", "streamingllm:k=20" }, .exact = true, .chunk = 32 };
	rk_engine *g = open_engine(&o);
	int32_t *ids, *more;
	size_t n, n_more;
	char *text;
	for (int max_new = 1; max_new <= 20; max_new += 19) {
		assert_int_equal(rk_engine_reset(g, NULL), 0);
		read_until_idle(g, &rec, NULL);
		assert_int_equal(rk_engine_format(g, NULL, question, NULL, NULL, &ids, &n, NULL), 0);
		ask(g, &rec, question, max_new, RK_FOLLOW_NONE);
		int n_reply = rec.n_token[0];
		bool closed = rec.end[0].end.reason == RK_END_TOKEN;
		assert_int_equal(rk_chat_turn(rk_engine_chat(g), NULL, "And then?", false, closed, &text, NULL, NULL), 0);
		assert_int_equal(rk_tokenize(rk_engine_tokenizer(g), text, strlen(text), RK_TOK_SPECIAL, &more, &n_more, NULL), 0);
		ids = realloc(ids, (n + (size_t)n_reply + n_more) * sizeof *ids);
		memcpy(ids + n, rec.id[0], (size_t)n_reply * sizeof *ids);
		memcpy(ids + n + n_reply, more, n_more * sizeof *ids);
		ask(g, &other, "And then?", 15, RK_FOLLOW_NONE);
		assert_int_equal(nth(&other, RK_EV_TOKEN, 0, 0)->token.pos, n + (size_t)n_reply + n_more);
		for (int lane = 1; lane < 4; lane++)
			assert_int_equal(other.n_end[lane], 1);
		rk_engine *whole = open_engine(&o);
		assert_int_equal(rk_engine_ask_ids(whole, ids, (int)(n + (size_t)n_reply + n_more), 15, RK_FOLLOW_NONE, NULL, 0,
		    NULL), 0);
		read_until_idle(whole, &rec, NULL);
		assert_int_equal(rec.n_token[0], other.n_token[0]);
		assert_memory_equal(rec.id[0], other.id[0], (size_t)rec.n_token[0] * sizeof(int32_t));
		rk_engine_close(whole);
		free(ids);
		free(more);
		free(text);
	}
	rk_engine_close(g);
}

/* A prompt in two parts is a session that is started with the first and given the second as a further turn. */
static void check_two_parts(void **state)
{
	(void)state;
	enum { N = 60, AFTER = 17, REPLY = 12 };
	const char *lanes[] = { "vanilla", "refreshkv:qc=2,s=0.8", "snapkv", "h2o", NULL };
	option o = { .lanes = { lanes[0], lanes[1], lanes[2], lanes[3] }, .exact = true, .chunk = 32, .one_turn = true };
	aid_rig_opt ro = { .path = model_path, .exact = true, .chunk = 32, .lanes = { lanes[0], lanes[1], lanes[2], lanes[3] } };
	rk_engine *g = open_engine(&o);
	int32_t *ids = aid_ids(N, AID_TINY_N_VOCAB, 3);
	aid_rig rig;
	assert_int_equal(rk_engine_ask_parts(g, ids, N, AFTER, REPLY, RK_FOLLOW_NONE, NULL), 0);
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.stats.n_prompt, N - AFTER);
	aid_rig_open(&rig, &ro);
	aid_start(&rig.s, ids, N - AFTER, AFTER + REPLY);
	for (int lane = 0; lane < 4; lane++) {
		assert_int_equal(rk_session_turn(&rig.s, lane, ids + N - AFTER, AFTER, NULL, NULL, NULL), 0);
		for (int i = 0; i < rec.n_token[lane]; i++) {
			assert_int_equal(rec.id[lane][i], rig.s.argmax[lane]);
			if (i + 1 < rec.n_token[lane])
				aid_step_one(&rig.s, lane, rec.id[lane][i]);
		}
		assert_true(rec.n_token[lane] == REPLY || rec.end[lane].end.reason == RK_END_TOKEN);
	}
	aid_rig_close(&rig);
	assert_int_equal(rk_engine_ask_parts(g, ids, N, N, REPLY, RK_FOLLOW_NONE, NULL), 0);	/* nothing to start with */
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.n_error, 1);
	free(ids);
	rk_engine_close(g);
}

/* ---- stopping ---- */

/* A backend that stops its engine in the middle of things: at the given embedding from now on; there is one per chunk
 * or step. */
static struct { rk_engine *g; rk_backend_ops ops; const rk_backend_ops *real; int countdown; } stopper;

static void embed_and_stop(rk_backend *b, float *x, const int32_t *ids, int n)
{
	if (--stopper.countdown == 0)
		rk_engine_stop(stopper.g);
	stopper.real->embed(b, x, ids, n);
}

/* Only while the engine is idle. */
static void stop_at(rk_engine *g, int embedding)
{
	rk_backend *b = (rk_backend *)(uintptr_t)rk_engine_backend(g);	/* the engine's, which is not const */
	if (b->ops != &stopper.ops) {
		stopper.real = b->ops;
		stopper.ops = *b->ops;
		stopper.ops.embed = embed_and_stop;
		stopper.g = g;
		b->ops = &stopper.ops;
	}
	stopper.countdown = embedding;
}

static void ask_and_stop(rk_engine *g, record *r, const char *user, int max_new, int embedding)
{
	stop_at(g, embedding);
	ask(g, r, user, max_new, RK_FOLLOW_NONE);
}

static void start_over(rk_engine *g, record *r)
{
	assert_int_equal(rk_engine_reset(g, NULL), 0);
	read_until_idle(g, r, NULL);
}

static void check_stop_in_prefill(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv", "vanilla" }, .chunk = 8 };
	rk_engine *g = open_engine(&o), *fresh = open_engine(&o);
	/* nothing is left of a first one */
	ask_and_stop(g, &rec, question, 30, 3);
	assert_int_equal(rec.n_cancelled, 1);
	assert_int_equal(rec.n_token[0] + rec.n_token[1], 0);
	assert_int_equal(nth(&rec, RK_EV_END, -1, 0)->end.reason, RK_END_STOPPED);
	ask(g, &rec, question, 30, RK_FOLLOW_NONE);
	ask(fresh, &other, question, 30, RK_FOLLOW_NONE);
	for (int lane = 0; lane < 2; lane++)
		same_reply(&rec, lane, &other, lane);
	/* of a further turn neither, in whichever lane's prefill it was, where all is kept */
	ask(fresh, &other, "And why?", 10, RK_FOLLOW_NONE);
	for (int at = 1; at < 6; at++) {
		ask_and_stop(g, &rec, "And why?", 10, at);
		assert_int_equal(rec.n_cancelled, 1);
	}
	ask(g, &rec, "And why?", 10, RK_FOLLOW_NONE);
	for (int lane = 0; lane < 2; lane++)
		same_reply(&rec, lane, &other, lane);
	rk_engine_close(g);
	rk_engine_close(fresh);
}

static void check_stop_in_reply(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv", "snapkv" }, .chunk = 512 };
	rk_engine *g = open_engine(&o), *fresh = open_engine(&o);
	ask(fresh, &other, question, 40, RK_FOLLOW_NONE);
	assert_true(other.n_token[0] > 10 && other.n_token[1] > 10);
	ask_and_stop(g, &rec, question, 40, 6);	/* the prefill, and the fifth step: the token after it is the last */
	for (int lane = 0; lane < 2; lane++) {
		assert_int_equal(rec.n_token[lane], 6);
		assert_memory_equal(rec.id[lane], other.id[lane], 6 * sizeof(int32_t));
		assert_int_equal(rec.end[lane].end.reason, RK_END_STOPPED);
	}
	/* the conversation goes on from what was said: as if the limit had been there */
	start_over(fresh, &other);
	ask(fresh, &other, question, 6, RK_FOLLOW_NONE);
	ask(fresh, &other, "And?", 10, RK_FOLLOW_NONE);
	/* nothing runs: a stop is for nothing, and not for the next reply */
	rk_engine_stop(g);
	ask(g, &rec, "And?", 10, RK_FOLLOW_NONE);
	for (int lane = 0; lane < 2; lane++)
		same_reply(&rec, lane, &other, lane);
	/* questions that wait are stopped with the one that runs */
	rk_engine_pause(g, true);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rk_engine_ask(g, NULL, "And?", 500, RK_FOLLOW_NONE, NULL), 0);
	rk_engine_stop(g);
	rk_engine_pause(g, false);
	for (int i = 0; i < 3; i++) {
		read_until_idle(g, &rec, NULL);
		assert_true(rec.n_cancelled == 1 || rec.end[0].end.reason == RK_END_STOPPED);
	}
	rk_engine_close(g);
	rk_engine_close(fresh);
}

/* ---- lanes that follow ---- */

static void check_follow_first(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv:k=0.05", "vanilla", "vanilla", "h2o" }, .sampling = { .temp = 1, .top_p = 1,
	    .seed = 4 } };
	rk_engine *g = open_engine(&o);
	ask(g, &rec, question, 40, RK_FOLLOW_FIRST);
	assert_true(rec.n_token[0] > 3);
	for (int lane = 1; lane < 4; lane++) {
		assert_int_equal(rec.n_token[lane], rec.n_token[0]);
		assert_memory_equal(rec.id[lane], rec.id[0], (size_t)rec.n_token[0] * sizeof(int32_t));
		assert_int_equal(rec.end[lane].end.reason, rec.end[0].end.reason);
		assert_true(nth(&rec, RK_EV_TOKEN, lane, 0)->token.forced);
	}
	assert_false(nth(&rec, RK_EV_TOKEN, 0, 0)->token.forced);
	/* vanilla against vanilla: no difference at all, to the bit */
	assert_true(rk_stats_ratio(&rec.stats, 2, 1) == 1);
	assert_true(rec.stats.lane[1].kl == 0 && rec.stats.lane[2].kl == 0);
	assert_int_equal(rec.stats.lane[2].n_kl, rec.n_token[0]);
	assert_int_equal(rec.stats.lane[2].n_same_top1, rec.n_token[0]);
	assert_true(rec.end[1].end.logits_hash == rec.end[2].end.logits_hash);
	/* the first token follows from the prefill, which all lanes share */
	assert_true(nth(&rec, RK_EV_TOKEN, 0, 0)->token.kl == 0);
	assert_true(rec.stats.lane[0].kl > 0 && rec.stats.lane[3].kl > 0);
	rk_engine_close(g);
}

static void check_follow_text(void **state)
{
	(void)state;
	option o = { .lanes = { "vanilla", "refreshkv" }, .one_turn = true };
	aid_rig_opt ro = { .lanes = { "vanilla", "refreshkv" }, .seed = 1 };
	rk_engine *g = open_engine(&o);
	aid_rig r;
	aid_rig_open(&r, &ro);
	int32_t *ids = aid_ids(150, r.m->hp.n_vocab, 30);
	ids[120] = 2;	/* an end token that is forced ends nothing */
	/* max_new has no meaning beside the forced tokens */
	assert_int_equal(rk_engine_ask_ids(g, ids, 100, 1, RK_FOLLOW_TEXT, ids + 100, 50, NULL), 0);
	read_until_idle(g, &rec, NULL);
	aid_start(&r.s, ids, 100, 50);
	for (int i = 0; i < 50; i++) {
		for (int lane = 0; lane < 2; lane++) {
			const rk_event *t = nth(&rec, RK_EV_TOKEN, lane, i);
			assert_non_null(t);
			assert_int_equal(t->token.id, ids[100 + i]);
			assert_true(t->token.forced);
			assert_true(t->token.lse == r.s.lse[lane]);
			assert_true(t->token.logprob == aid_logits(&r.s, lane)[ids[100 + i]] - r.s.lse[lane]);
		}
		double kl = 0;
		const float *x = aid_logits(&r.s, 0), *y = aid_logits(&r.s, 1);
		for (int k = 0; k < r.m->hp.n_vocab; k++) {
			double p = (double)x[k] - (double)r.s.lse[0], q = (double)y[k] - (double)r.s.lse[1];
			kl += exp(p) * (p - q);
		}
		assert_float_equal(nth(&rec, RK_EV_TOKEN, 1, i)->token.kl, kl, 1e-5);
		assert_int_equal(nth(&rec, RK_EV_TOKEN, 1, i)->token.same_top1, r.s.argmax[0] == r.s.argmax[1]);
		if (i < 49)
			aid_step_all(&r.s, ids[100 + i]);
	}
	assert_int_equal(rec.end[0].end.reason, RK_END_FORCED);
	assert_int_equal(rec.n_token[0], 50);
	free(ids);
	aid_rig_close(&r);
	rk_engine_close(g);
}

/* Lanes that went their own ways have different lengths: those that follow end with lane 0. */
static void check_follow_to_the_end(void **state)
{
	(void)state;
	option o = { .lanes = { "vanilla", "snapkv:k=1", "h2o:k=1" }, .n_ctx = 700, .sampling = { .temp = 4, .top_p = 1,
	    .seed = 6 } };
	rk_engine *g = open_engine(&o);
	ask(g, &rec, "Say it.", 200, RK_FOLLOW_NONE);
	assert_true(rec.n_token[0] != rec.n_token[1] && rec.n_token[0] != rec.n_token[2]);
	ask(g, &rec, "Go on.", 1000, RK_FOLLOW_FIRST);
	for (int lane = 1; lane < 3; lane++) {
		assert_true(rec.n_token[lane] <= rec.n_token[0]);
		assert_memory_equal(rec.id[lane], rec.id[0], (size_t)rec.n_token[lane] * sizeof(int32_t));
		assert_int_equal(rec.n_end[lane], 1);
	}
	rk_engine_close(g);
}

/* The shadow says of lane 0's tokens what a vanilla lane that follows says. */
static void check_shadow(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv:k=0.05" }, .exact = true, .shadow = true },
	    both = { .lanes = { "refreshkv:k=0.05", "vanilla" }, .exact = true };
	rk_engine *g = open_engine(&o), *h = open_engine(&both);
	for (int turn = 0; turn < 2; turn++) {
		ask(g, &rec, question, 60, RK_FOLLOW_FIRST);
		ask(h, &other, question, 60, RK_FOLLOW_FIRST);
		assert_int_equal(rec.n_token[0], other.n_token[0]);
		assert_memory_equal(rec.id[0], other.id[0], (size_t)rec.n_token[0] * sizeof(int32_t));
		int n = 0;
		for (int i = 0; i < rec.n; i++) {
			const rk_event *ev = &rec.ev[i];
			if (ev->type != RK_EV_SHADOW)
				continue;
			const rk_event *t = nth(&other, RK_EV_TOKEN, 1, n), *l = nth(&other, RK_EV_TOKEN, 0, n);
			assert_int_equal(ev->index, n);
			assert_float_equal(ev->shadow.logprob, t->token.logprob, 1e-4);
			assert_float_equal(ev->shadow.lse, t->token.lse, 1e-4);
			assert_float_equal(ev->shadow.kl, l->token.kl, 1e-4);
			assert_int_equal(ev->shadow.same_top1, l->token.same_top1);
			n++;
		}
		assert_int_equal(n, rec.n_token[0]);
	}
	rk_engine_close(g);
	rk_engine_close(h);
}

/* ---- changes and errors ---- */

static int change_at_step_3(rk_engine *g, record *r)
{
	const rk_event *ev = &r->ev[r->n - 1];
	if (ev->type == RK_EV_STEP && ev->index == 3) {
		assert_int_equal(rk_engine_set_policy(g, 0, "k=0.5", NULL), 0);
		assert_int_equal(rk_engine_set_policy(g, 0, "k=nonsense", NULL), 0);
	}
	return 0;
}

static void check_policy_changes(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv" } };
	rk_engine *g = open_engine(&o);
	rk_event ev;
	const void *payload;
	/* before anything runs */
	assert_int_equal(rk_engine_set_policy(g, 0, "s=0.5", NULL), 0);
	assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
	assert_int_equal(ev.type, RK_EV_CONTROL);
	assert_int_equal(rk_engine_set_policy(g, 1, "s=0.5", NULL), 0);
	assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
	assert_int_equal(ev.type, RK_EV_ERROR);
	/* while a reply runs: the reply goes on */
	assert_int_equal(rk_engine_ask(g, NULL, question, 300, RK_FOLLOW_NONE, NULL), 0);
	read_until_idle(g, &rec, change_at_step_3);
	assert_non_null(strstr(rec.stats.lane[0].spec, "s=0.5"));
	assert_int_equal(rec.n_control, 1);
	assert_non_null(strstr(rec.spec, "k=0.5"));
	assert_int_equal(rec.n_error, 1);
	assert_non_null(strstr(rec.message, "nonsense"));
	assert_int_equal(rec.n_end[0], 1);
	/* what was set lasts */
	assert_int_equal(rk_engine_reset(g, NULL), 0);
	read_until_idle(g, &rec, NULL);
	ask(g, &rec, question, 3, RK_FOLLOW_NONE);
	assert_non_null(strstr(rec.stats.lane[0].spec, "k=0.5"));
	char longer[2 * RK_SPEC_MAX];
	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	assert_int_equal(rk_engine_set_policy(g, 0, longer, NULL), -1);
	rk_engine_close(g);
}

/* A session that was started in tokens, as for a question asked again or a first reply that is forced, has room for further turns. */
static void check_turn_after_ids(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv:k=8" } };
	rk_engine *g = open_engine(&o);
	int32_t *ids = aid_ids(40, rk_engine_model(g)->hp.n_vocab, 5);
	assert_int_equal(rk_engine_ask_ids(g, ids, 40, 5, RK_FOLLOW_NONE, NULL, 0, NULL), 0);
	read_until_idle(g, &rec, NULL);
	ask(g, &rec, question, 5, RK_FOLLOW_NONE);
	assert_true(rec.n_token[0] > 0);
	rk_engine_close(g);
	free(ids);
}

/* Lanes that come and go: what is then asked is answered as by an engine that was opened with them. */
static void check_lanes(void **state)
{
	(void)state;
	option one = { .lanes = { "refreshkv:k=8" }, .shadow = true }, two = { .lanes = { "refreshkv:k=8", "streamingllm:k=8" }, .shadow = true };
	rk_engine *g = open_engine(&two);
	rk_event ev;
	const void *payload;
	ask(g, &other, question, 12, RK_FOLLOW_NONE);
	rk_engine_close(g);

	g = open_engine(&one);
	assert_int_equal(rk_engine_drop_lane(g, 0, NULL), 0);	/* the only one stays */
	assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
	assert_int_equal(ev.type, RK_EV_ERROR);
	assert_int_equal(rk_engine_add_lane(g, "nonsense", NULL), -1);
	ask(g, &rec, question, 12, RK_FOLLOW_NONE);
	assert_int_equal(rk_engine_add_lane(g, "streamingllm:k=8", NULL), 0);
	ask(g, &rec, question, 12, RK_FOLLOW_NONE);
	assert_int_equal(rec.stats.n_lane, 2);
	assert_int_equal(rk_engine_n_lane(g), 2);
	same_reply(&rec, 0, &other, 0);
	same_reply(&rec, 1, &other, 1);
	assert_int_equal(rk_engine_drop_lane(g, 0, NULL), 0);
	ask(g, &rec, question, 12, RK_FOLLOW_NONE);
	assert_int_equal(rec.stats.n_lane, 1);
	same_reply(&rec, 0, &other, 1);
	for (int i = 1; i < RK_MAX_LANE; i++)
		assert_int_equal(rk_engine_add_lane(g, "vanilla", NULL), 0);
	assert_int_equal(rk_engine_add_lane(g, "vanilla", NULL), 0);	/* one too many */
	assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
	assert_int_equal(ev.type, RK_EV_ERROR);
	assert_int_equal(rk_engine_n_lane(g), RK_MAX_LANE);	/* though no session has started with them */
	assert_int_equal(rk_engine_drop_lane(g, RK_MAX_LANE, NULL), 0);
	assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
	assert_int_equal(ev.type, RK_EV_ERROR);
	rk_engine_close(g);
}

static void check_errors(void **state)
{
	(void)state;
	option o = { .lanes = { "vanilla", "streamingllm" }, .n_ctx = 120 };
	rk_engine *g = open_engine(&o);
	rk_err e;
	int32_t *ids = aid_ids(200, rk_engine_model(g)->hp.n_vocab, 31);
	/* wrong arguments: told at once */
	assert_int_equal(rk_engine_ask(g, NULL, "x", 0, RK_FOLLOW_NONE, &e), -1);
	assert_int_equal(e.code, RK_EUSAGE);
	assert_int_equal(rk_engine_ask(g, NULL, "x", 5, RK_FOLLOW_TEXT, &e), -1);
	assert_int_equal(rk_engine_ask_ids(g, ids, 10, 5, RK_FOLLOW_TEXT, NULL, 0, &e), -1);
	assert_int_equal(rk_engine_ask_ids(g, (int32_t[]){ 5, -1 }, 2, 5, RK_FOLLOW_NONE, NULL, 0, &e), -1);
	assert_non_null(strstr(e.msg, "-1"));
	assert_int_equal(rk_engine_ask_ids(g, ids, 10, 5, RK_FOLLOW_TEXT, (int32_t[]){ AID_TINY_N_VOCAB }, 1, &e), -1);
	assert_non_null(strstr(e.msg, "307"));
	/* a prompt that does not fit: CASES 5 */
	assert_int_equal(rk_engine_ask_ids(g, ids, 121, 5, RK_FOLLOW_NONE, NULL, 0, &e), 0);
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.n_error, 1);
	assert_non_null(strstr(rec.message, "121"));
	assert_non_null(strstr(rec.message, "120"));
	assert_int_equal(rec.n_token[0], 0);
	/* one that fits with nothing to spare ends with the context */
	assert_int_equal(rk_engine_ask_ids(g, ids, 120, 5, RK_FOLLOW_NONE, NULL, 0, &e), 0);
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.n_error, 0);
	assert_int_equal(rec.n_token[0], 1);
	assert_true(rec.end[0].end.reason == RK_END_CONTEXT || rec.end[0].end.reason == RK_END_TOKEN);
	/* and has no room for another turn, which changes nothing */
	assert_int_equal(rk_engine_ask(g, NULL, "x", 5, RK_FOLLOW_NONE, &e), 0);
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.n_error, 1);
	assert_non_null(strstr(rec.message, "--ctx"));
	/* an empty prompt */
	assert_int_equal(rk_engine_ask_ids(g, ids, 0, 5, RK_FOLLOW_NONE, NULL, 0, &e), 0);
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.n_error, 1);
	/* after all that it still works */
	assert_int_equal(rk_engine_ask_ids(g, ids, 50, 5, RK_FOLLOW_NONE, NULL, 0, &e), 0);
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.n_error, 0);
	free(ids);
	rk_engine_close(g);
}

static void check_bad_engines(void **state)
{
	(void)state;
	rk_engine *g;
	rk_err e;
	rk_engine_cfg cfg = { .model_path = "/nonexistent/model.gguf", .session = { .n_lane = 1,
	    .lane = { aid_policy("vanilla") } } };
	assert_int_equal(rk_engine_open(&g, &cfg, &e), -1);
	assert_int_equal(e.code, RK_EMODEL);
	cfg.model_path = model_path;
	for (int n = 0; n <= RK_MAX_LANE + 1; n += RK_MAX_LANE + 1) {
		cfg.session.n_lane = n;
		assert_int_equal(rk_engine_open(&g, &cfg, &e), -1);
		assert_int_equal(e.code, RK_EUSAGE);
	}
	cfg.session.n_lane = 1;
	cfg.chat_template = "nonsense";
	assert_int_equal(rk_engine_open(&g, &cfg, &e), -1);
	assert_non_null(strstr(e.msg, "nonsense"));
	rk_engine_close(NULL);
}

/* ---- queue, ring, closing ---- */

static int begun(rk_engine *g, record *r)
{
	(void)g;
	return nth(r, RK_EV_START, -1, 0) != NULL;
}

static void check_queue(void **state)
{
	(void)state;
	option o = { .lanes = { "vanilla" } };
	rk_engine *g = open_engine(&o);
	rk_err e;
	int n = 0;
	rk_engine_pause(g, true);
	assert_int_equal(rk_engine_ask(g, NULL, question, 30, RK_FOLLOW_NONE, NULL), 0);
	read_until_idle(g, &rec, begun);	/* the engine has taken it: no place of the queue gets free any more */
	while (rk_engine_reset(g, &e) == 0)
		assert_true(++n < 100);
	assert_true(n >= 10);
	assert_non_null(strstr(e.msg, "waiting"));
	assert_int_equal(rk_engine_set_policy(g, 0, "vanilla", &e), -1);
	rk_engine_stop(g);
	rk_engine_pause(g, false);
	for (int i = 0; i <= n; i++) {
		read_until_idle(g, &rec, NULL);
		assert_int_equal(rec.n_error, 0);
	}
	ask(g, &rec, question, 3, RK_FOLLOW_NONE);
	rk_engine_close(g);
}

static void check_pause(void **state)
{
	(void)state;
	option o = { .lanes = { "vanilla" } };
	rk_engine *g = open_engine(&o);
	rk_event ev;
	const void *payload;
	int steps = 0;
	rk_engine_pause(g, true);
	assert_int_equal(rk_engine_ask(g, NULL, question, 400, RK_FOLLOW_NONE, NULL), 0);
	while (rk_event_next(rk_engine_events(g), &ev, &payload, 300))
		steps += ev.type == RK_EV_STEP;
	assert_true(steps <= 1);
	for (int i = 0; i < 3; i++) {
		int before = steps;
		rk_engine_single_step(g);
		while (steps == before) {
			assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
			steps += ev.type == RK_EV_STEP;
		}
		while (rk_event_next(rk_engine_events(g), &ev, &payload, 100))
			steps += ev.type == RK_EV_STEP;
		assert_int_equal(steps, before + 1);
	}
	/* paused, it still stops */
	rk_engine_stop(g);
	read_until_idle(g, &rec, NULL);
	assert_int_equal(rec.end[0].end.reason, RK_END_STOPPED);
	rk_engine_close(g);
}

static int first_step(rk_engine *g, record *r)
{
	(void)g;
	return r->ev[r->n - 1].type == RK_EV_STEP;
}

static int first_progress(rk_engine *g, record *r)
{
	(void)g;
	return r->ev[r->n - 1].type == RK_EV_PREFILL;
}

static void check_close(void **state)
{
	(void)state;
	option o = { .lanes = { "refreshkv", "vanilla", "h2o" }, .chunk = 8 };
	rk_engine *g = open_engine(&o);
	rk_engine_close(g);	/* idle */
	const hook at[] = { first_progress, first_step, NULL };
	for (int i = 0; i < 3; i++) {
		g = open_engine(&o);
		for (int k = 0; k < 5; k++)	/* one runs, the others wait */
			assert_int_equal(rk_engine_ask(g, NULL, question, 2000, RK_FOLLOW_NONE, NULL), 0);
		if (at[i])
			read_until_idle(g, &rec, at[i]);
		rk_engine_close(g);
	}
	/* while the engine waits for a reader that is gone: more events than the ring holds */
	o = (option){ .lanes = { "vanilla", "vanilla", "vanilla", "vanilla", "vanilla", "vanilla", "vanilla", "vanilla" },
	    .n_ctx = 4000 };
	g = open_engine(&o);
	int32_t *ids = aid_ids(1400, rk_engine_model(g)->hp.n_vocab, 32);
	assert_int_equal(rk_engine_ask_ids(g, ids, 4, 1400, RK_FOLLOW_TEXT, ids, 1400, NULL), 0);
	usleep(50000);
	rk_engine_close(g);
	free(ids);
}

/* A reader that does not read: the engine goes on, and says what was lost. */
static void check_lossy(void **state)
{
	(void)state;
	option o = { .lanes = { "streamingllm:k=8", "streamingllm:k=8", "streamingllm:k=8", "streamingllm:k=8",
	    "streamingllm:k=8", "streamingllm:k=8",
	                        "streamingllm:k=8", "streamingllm:k=8" }, .lossy = true, .n_ctx = 4000 };
	rk_engine *g = open_engine(&o);
	rk_event ev;
	const void *payload;
	int64_t told = 0, token = 0, step = 0;
	int32_t *ids = aid_ids(1200, rk_engine_model(g)->hp.n_vocab, 33);
	assert_int_equal(rk_engine_ask_ids(g, ids, 4, 1, RK_FOLLOW_TEXT, ids, 1200, NULL), 0);
	while (!rk_event_lost(rk_engine_events(g)))
		usleep(1000);
	for (bool idle = false; !idle;) {
		assert_int_equal(rk_event_next(rk_engine_events(g), &ev, &payload, -1), 1);
		told += ev.type == RK_EV_GAP ? ev.gap.lost : 0;
		token += ev.type == RK_EV_TOKEN;
		step += ev.type == RK_EV_STEP;
		idle = ev.type == RK_EV_IDLE;
	}
	assert_true(told > 0);
	assert_int_equal(told, rk_event_lost(rk_engine_events(g)));
	/* occupancy is told too, so lost events are more than these */
	assert_true(token < 8 * 1200 || step < 8 * 1199);
	assert_true(told >= 8 * 1200 - token + 8 * 1199 - step);
	free(ids);
	rk_engine_close(g);
}

static int open_model(void **state)
{
	(void)state;
	model_fd = aid_tiny_memfd(NULL, 1, model_path);
	return 0;
}

static int close_model(void **state)
{
	(void)state;
	rk_stats_free(&rec.stats);
	rk_stats_free(&other.stats);
	return close(model_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_said),
		cmocka_unit_test(check_flow),
		cmocka_unit_test(check_text),
		cmocka_unit_test(check_repeats),
		cmocka_unit_test(check_further_turn), cmocka_unit_test(check_two_parts),
		cmocka_unit_test(check_stop_in_prefill),
		cmocka_unit_test(check_stop_in_reply),
		cmocka_unit_test(check_follow_first),
		cmocka_unit_test(check_follow_to_the_end),
		cmocka_unit_test(check_follow_text),
		cmocka_unit_test(check_shadow),
		cmocka_unit_test(check_policy_changes),
		cmocka_unit_test(check_turn_after_ids), cmocka_unit_test(check_lanes), cmocka_unit_test(check_errors),
		cmocka_unit_test(check_bad_engines),
		cmocka_unit_test(check_queue),
		cmocka_unit_test(check_pause),
		cmocka_unit_test(check_close),
		cmocka_unit_test(check_lossy),
	};
	return cmocka_run_group_tests(tests, open_model, close_model);
}
