/* engine.c: the engine thread: takes commands, runs prefill and replies, writes events.  See engine.h.
 *
 * Shared with other threads: the command queue and the pace (under the mutex), the numbers `asked`, `stop_upto` and `n_lane` (atomics)
 * and the event ring.  Everything else below `thread` belongs to the engine thread alone while it runs.
 */
#include "engine/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/utf8.h"
#include "engine/reply.h"

#define QUEUE_LEN 16
#define RING_EVENTS 16384
#define RING_BYTES (8u << 20)

enum cmd_kind { CMD_ASK, CMD_ASK_IDS, CMD_RESET, CMD_POLICY, CMD_ADD_LANE, CMD_DROP_LANE, CMD_QUIT };

struct cmd {
	enum cmd_kind kind;
	uint64_t seq;			/* of an ask: compared with stop_upto */
	char *system, *user;		/* CMD_ASK; owned */
	int32_t *ids, *forced;		/* CMD_ASK_IDS; owned */
	int n, n_after, n_forced, max_new;	/* n_after: how many of ids come as a further turn */
	enum rk_follow follow;
	int lane;			/* CMD_POLICY, CMD_DROP_LANE */
	char spec[RK_SPEC_MAX];
};

struct rk_engine {
	rk_model *model;
	rk_tokenizer *tok;
	rk_chat_template chat;
	rk_backend *backend;
	rk_event_ring *events;
	bool one_turn;
	rk_sampling sampling;

	pthread_mutex_t lock;
	pthread_cond_t some;
	struct cmd queue[QUEUE_LEN];
	int q_head, q_len;
	bool paused;			/* pace of the reply, under lock */
	int may_step;			/* single steps granted while paused */
	float tok_per_s;		/* ceiling; 0: none */
	uint64_t seed;			/* of the next session, under lock */
	_Atomic uint64_t asked;		/* sequence number of the last ask that was queued */
	_Atomic uint64_t stop_upto;	/* asks up to this one are to stop */
	_Atomic int n_lane;		/* of the session */

	pthread_t thread;
	bool running;
	rk_session session;
	rk_reply reply;
	uint64_t seq;			/* of the ask being carried out */
	int64_t prefill_ns;		/* when the running prefill started */
	int prefill_lane;
};

static void cmd_free(struct cmd *c)
{
	free(c->system);
	free(c->user);
	free(c->ids);
	free(c->forced);
	*c = (struct cmd){ 0 };
}

static bool stopped(const rk_engine *g)
{
	return atomic_load(&g->stop_upto) >= g->seq;
}

static void emit_error(rk_engine *g, int lane, const rk_err *e)
{
	rk_event ev = { .type = RK_EV_ERROR, .lane = (int8_t)lane, .error.code = e->code };

	rk_event_push(g->events, &ev, e->msg, strlen(e->msg));
}

static void emit_start(rk_engine *g)
{
	const rk_session *s = &g->session;
	rk_event ev = { .type = RK_EV_START, .lane = -1 };
	char specs[RK_MAX_LANE * (RK_SPEC_MAX + 1)] = "";

	for (int i = 0; i < s->cfg.n_lane; i++) {
		char one[RK_SPEC_MAX];
		rk_policy_spec(&s->lane[i].pol, one);
		strcat(specs, one);
		strcat(specs, "\n");
	}
	ev.start.n_prompt = s->plan.n_prompt;
	ev.start.n_lane = s->cfg.n_lane;
	ev.start.n_layer = s->b->hp->n_layer;
	rk_session_cache_bytes(s, &ev.start.bytes_full, &ev.start.bytes_partial);
	rk_event_push(g->events, &ev, specs, strlen(specs));
}

static int on_prefill(void *ctx, int done, int total)
{
	rk_engine *g = ctx;
	rk_event ev = { .type = RK_EV_PREFILL, .lane = (int8_t)g->prefill_lane };

	if (done == 0) {
		g->prefill_ns = rk_clock_ns();
		if (g->prefill_lane < 0)
			emit_start(g);
	}
	ev.prefill.done = done;
	ev.prefill.total = total;
	ev.prefill.ns = rk_clock_ns() - g->prefill_ns;
	rk_event_push(g->events, &ev, NULL, 0);
	return stopped(g);
}

static void change_policy(rk_engine *g, const struct cmd *c)
{
	rk_event ev = { .type = RK_EV_CONTROL, .lane = (int8_t)c->lane };
	char spec[RK_SPEC_MAX];
	rk_err e;

	if (rk_session_set_policy(&g->session, c->lane, c->spec, &e)) {
		emit_error(g, c->lane, &e);
		return;
	}
	rk_policy_spec(&g->session.lane[c->lane].pol, spec);
	rk_event_push(g->events, &ev, spec, strlen(spec));
}

/* Policy changes at the head of the queue take effect between steps; anything behind another command waits its turn. */
static void apply_waiting_changes(rk_engine *g)
{
	for (;;) {
		struct cmd c;
		pthread_mutex_lock(&g->lock);
		bool some = g->q_len && g->queue[g->q_head].kind == CMD_POLICY;
		if (some) {
			c = g->queue[g->q_head];
			g->q_head = (g->q_head + 1) % QUEUE_LEN;
			g->q_len--;
		}
		pthread_mutex_unlock(&g->lock);
		if (!some)
			return;
		change_policy(g, &c);
	}
}

/* Before a step: lets policy changes in, and waits while the reply is paused or ahead of its pace. */
static void wait_for_turn(rk_engine *g, int64_t *last_ns)
{
	for (;;) {
		apply_waiting_changes(g);
		pthread_mutex_lock(&g->lock);
		int64_t now = rk_clock_ns(), until = g->tok_per_s > 0 ? *last_ns + (int64_t)(1e9 / (double)g->tok_per_s) : 0;
		bool go = stopped(g) || (g->paused ? g->may_step > 0 : now >= until);
		if (go && g->paused && g->may_step > 0)
			g->may_step--;
		if (!go) {
			/* stop must be safe in a signal handler and so cannot signal the condition: look every 20 ms */
			int64_t ns = 20000000;
			struct timespec t;
			if (!g->paused && until - now < ns)
				ns = until - now;
			clock_gettime(CLOCK_MONOTONIC, &t);
			t.tv_nsec += ns;
			t.tv_sec += t.tv_nsec / 1000000000;
			t.tv_nsec %= 1000000000;
			pthread_cond_timedwait(&g->some, &g->lock, &t);
		}
		pthread_mutex_unlock(&g->lock);
		if (go)
			break;
	}
	*last_ns = rk_clock_ns();
}

/* Replies until every lane is done, stopped or out of room. */
static int run_reply(rk_engine *g, const struct cmd *c, rk_err *e)
{
	int64_t last_ns = 0;

	rk_reply_begin(&g->reply, c->max_new, c->follow, c->forced, c->n_forced);
	for (;;) {
		wait_for_turn(g, &last_ns);
		int more = rk_reply_step(&g->reply, stopped(g), e);
		if (more <= 0)
			return more;
	}
}

static int format_turn(const rk_engine *g, const char *system, const char *user, bool first, bool closed, char **text, rk_stretch said[2],
                       int32_t **ids, size_t *n, rk_err *e)
{
	char *t;
	unsigned flags = RK_TOK_SPECIAL | (g->chat.kind == RK_CHAT_RAW && first ? RK_TOK_BOS : 0);

	if (rk_chat_turn(&g->chat, system, user, first, closed, &t, said, e))
		return -1;
	int rc = ids ? rk_tokenize_said(g->tok, t, strlen(t), flags, said, 2, ids, n, e) : 0;
	if (text && !rc)
		*text = t;
	else
		free(t);
	return rc;
}

int rk_engine_format(const rk_engine *g, const char *system, const char *user, char **text, rk_stretch said[2], int32_t **ids, size_t *n,
                     rk_err *e)
{
	rk_stretch own[2];

	return format_turn(g, system, user, true, false, text, said ? said : own, ids, n, e);
}

/* Starts the session on a prompt; 1 when cancelled. */
static int start_session(rk_engine *g, const int32_t *ids, int n, int max_new, rk_err *e)
{
	g->prefill_lane = -1;
	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < g->session.cfg.n_lane; i++)
		g->reply.lane[i].sampler.cfg.seed = g->seed;
	pthread_mutex_unlock(&g->lock);
	rk_reply_forget(&g->reply);
	return rk_session_start(&g->session, ids, n, max_new, on_prefill, g, e);
}

static int first_turn(rk_engine *g, const struct cmd *c, rk_err *e)
{
	int32_t *ids;
	size_t n;

	if (rk_engine_format(g, c->system, c->user, NULL, NULL, &ids, &n, e))
		return -1;
	int rc = start_session(g, ids, (int)n, g->one_turn ? c->max_new : g->session.cfg.n_ctx, e);
	free(ids);
	return rc;
}

/* Brings one lane up to date with its own last token (-1: none) and the new turn's text. */
static int lane_turn(rk_engine *g, const struct cmd *c, int lane, int32_t last, rk_err *e)
{
	int32_t *ids, *all;
	size_t n;
	rk_stretch said[2];
	int k = last >= 0;

	if (format_turn(g, NULL, c->user, false, k && rk_token_is_end(g->tok, last), NULL, said, &ids, &n, e))
		return -1;
	all = malloc((n + 1) * sizeof *all);
	if (!all) {
		free(ids);
		return rk_fail(e, RK_ENOMEM, "turn: out of memory for %zu tokens", n);
	}
	all[0] = last;
	memcpy(all + k, ids, n * sizeof *ids);
	g->prefill_lane = lane;
	int rc = rk_session_turn(&g->session, lane, all, (int)n + k, on_prefill, g, e);
	free(ids);
	free(all);
	return rc;
}

/* A prompt in tokens: start, and what is to come after the first selection as a further turn of each lane. */
static int ask_ids(rk_engine *g, const struct cmd *c, rk_err *e)
{
	rk_session *s = &g->session;
	int first = c->n - c->n_after;
	int rc = start_session(g, c->ids, first, g->one_turn ? c->n_after + c->max_new : s->cfg.n_ctx, e);

	for (int i = s->cfg.n_lane + s->cfg.shadow - 1; i >= 0 && !rc && c->n_after; i--) {
		g->prefill_lane = i;
		rc = rk_session_turn(s, i, c->ids + first, c->n_after, on_prefill, g, e);
	}
	if (rc)
		rk_session_clear(s);
	return rc;
}

/* A further turn of all lanes, the shadow (which has what lane 0 has) first.  When it fails or is cancelled, lanes that
 * keep C_f have it as before (their rings are the next turn's affair, which selects anew); another one keeps the tokens that it
 * was fed. */
static int further_turn(rk_engine *g, const struct cmd *c, rk_err *e)
{
	rk_session *s = &g->session;
	int n_lane = s->cfg.n_lane, before[RK_MAX_LANE], rc = 0;
	int32_t last[RK_MAX_LANE];

	for (int i = 0; i < n_lane; i++) {
		before[i] = s->lane[i].n_pos;
		last[i] = rk_reply_pending(&g->reply, i);
	}
	if (s->cfg.shadow)
		rc = lane_turn(g, c, n_lane, last[0], e);
	for (int i = 0; i < n_lane && !rc; i++)
		rc = lane_turn(g, c, i, last[i], e);
	for (int i = 0; i < n_lane; i++) {
		if (rc && rk_policy_keeps_full(&s->lane[i].pol))
			rk_session_rewind(s, i, before[i]);
		rk_reply_set_pending(&g->reply, i, s->lane[i].n_pos == before[i] ? last[i] : -1);
	}
	if (rc && s->cfg.shadow)
		rk_session_rewind(s, n_lane, s->lane[0].n_pos);
	return rc;
}

/* Session and reply anew with other lanes, or as they were. */
static int change_lanes(rk_engine *g, const struct cmd *c, rk_err *e)
{
	rk_session_cfg sc = g->session.cfg;
	rk_session s;
	rk_reply r;

	if (c->kind == CMD_ADD_LANE) {
		if (sc.n_lane == RK_MAX_LANE)
			return rk_fail(e, RK_EUSAGE, "%d lanes: there cannot be more", RK_MAX_LANE);
		if (rk_policy_parse(&sc.lane[sc.n_lane++], c->spec, e))
			return -1;
	} else {
		if (c->lane < 0 || c->lane >= sc.n_lane || sc.n_lane == 1)
			return rk_fail(e, RK_EUSAGE, "lane %d of %d cannot be dropped", c->lane + 1, sc.n_lane);
		memmove(sc.lane + c->lane, sc.lane + c->lane + 1, (size_t)(--sc.n_lane - c->lane) * sizeof *sc.lane);
	}
	if (rk_session_init(&s, g->model, g->backend, &sc, e)) {
		rk_session_free(&s);
		return -1;
	}
	if (rk_reply_init(&r, &s, g->tok, g->events, &g->sampling, e)) {
		rk_reply_free(&r);
		rk_session_free(&s);
		return -1;
	}
	rk_reply_free(&g->reply);
	rk_session_free(&g->session);
	g->session = s;
	g->reply = r;
	g->reply.s = &g->session;
	atomic_store(&g->n_lane, sc.n_lane);
	return 0;
}

static void carry_out(rk_engine *g, const struct cmd *c)
{
	rk_event idle = { .type = RK_EV_IDLE, .lane = -1 };
	rk_err e = { 0 };
	int rc = 0;

	g->seq = c->seq;
	switch (c->kind) {
	case CMD_ASK:
		rc = g->session.n_prompt ? further_turn(g, c, &e) : first_turn(g, c, &e);
		break;
	case CMD_ASK_IDS:
		rc = ask_ids(g, c, &e);
		break;
	case CMD_RESET:
		rk_session_clear(&g->session);
		rk_reply_forget(&g->reply);
		break;
	case CMD_ADD_LANE:
	case CMD_DROP_LANE:
		if (change_lanes(g, c, &e))
			emit_error(g, -1, &e);
		return;
	case CMD_POLICY:
		change_policy(g, c);
		return;
	case CMD_QUIT:
		return;
	}
	if (c->kind == CMD_ASK || c->kind == CMD_ASK_IDS) {
		if (rc == 0)
			rc = run_reply(g, c, &e);
		else if (rc > 0)
			rk_event_push(g->events, &(rk_event){ .type = RK_EV_END, .lane = -1, .end.reason = RK_END_STOPPED }, NULL, 0);
		if (rc < 0)
			emit_error(g, -1, &e);
	}
	rk_event_push(g->events, &idle, NULL, 0);
}

static void *engine_main(void *arg)
{
	rk_engine *g = arg;

	for (;;) {
		pthread_mutex_lock(&g->lock);
		while (!g->q_len)
			pthread_cond_wait(&g->some, &g->lock);
		struct cmd c = g->queue[g->q_head];
		g->q_head = (g->q_head + 1) % QUEUE_LEN;
		g->q_len--;
		pthread_mutex_unlock(&g->lock);
		bool quit = c.kind == CMD_QUIT;
		carry_out(g, &c);
		cmd_free(&c);
		if (quit)
			return NULL;
	}
}

/* Takes over c's memory, also on error. */
static int enqueue(rk_engine *g, struct cmd *c, rk_err *e)
{
	pthread_mutex_lock(&g->lock);
	bool full = g->q_len == QUEUE_LEN - (c->kind != CMD_QUIT);	/* one place is kept for the last command */
	if (!full) {
		if (c->kind == CMD_ASK || c->kind == CMD_ASK_IDS)
			c->seq = atomic_fetch_add(&g->asked, 1) + 1;
		g->queue[(g->q_head + g->q_len++) % QUEUE_LEN] = *c;
		pthread_cond_signal(&g->some);
	}
	pthread_mutex_unlock(&g->lock);
	if (!full)
		return 0;
	cmd_free(c);
	return rk_fail(e, RK_EFAIL, "the engine has %d commands waiting already", QUEUE_LEN - 1);
}

int rk_engine_open(rk_engine **out, const rk_engine_cfg *cfg, rk_err *e)
{
	rk_engine *g = calloc(1, sizeof *g);
	rk_backend_cfg bc = cfg->backend;
	rk_session_cfg sc = cfg->session;
	pthread_condattr_t attr;

	if (!g)
		return rk_fail(e, RK_ENOMEM, "engine: out of memory");
	pthread_mutex_init(&g->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&g->some, &attr);
	pthread_condattr_destroy(&attr);
	g->one_turn = cfg->one_turn;
	g->sampling = cfg->sampling;
	g->seed = cfg->sampling.seed;
	if (rk_model_load(&g->model, cfg->model_path, e) || rk_tokenizer_init(&g->tok, g->model->file, e) ||
	    rk_chat_detect(&g->chat, g->model->file, cfg->raw ? "raw" : cfg->chat_template, e))
		goto fail;
	if (!sc.n_ctx)
		sc.n_ctx = g->model->hp.n_ctx_train;
	if (!sc.chunk)
		sc.chunk = RK_DEFAULT_CHUNK;
	bc.max_rows = sc.chunk > RK_SHADOW_BATCH ? sc.chunk : RK_SHADOW_BATCH;
	bc.max_pos = sc.n_ctx;
	g->n_lane = sc.n_lane;
	if (rk_backend_open(&g->backend, g->model, &bc, e) ||
	    rk_event_ring_init(&g->events, RING_EVENTS, RING_BYTES, !cfg->lossy_events, e) ||
	    rk_session_init(&g->session, g->model, g->backend, &sc, e) ||
	    rk_reply_init(&g->reply, &g->session, g->tok, g->events, &g->sampling, e))
		goto fail;
	if (pthread_create(&g->thread, NULL, engine_main, g)) {
		rk_fail(e, RK_EFAIL, "engine: cannot start a thread");
		goto fail;
	}
	g->running = true;
	*out = g;
	return 0;
fail:
	rk_engine_close(g);
	return -1;
}

void rk_engine_close(rk_engine *g)
{
	if (!g)
		return;
	if (g->running) {
		struct cmd quit = { .kind = CMD_QUIT };
		rk_engine_stop(g);
		rk_event_ring_close(g->events);
		enqueue(g, &quit, NULL);
		pthread_join(g->thread, NULL);
	}
	while (g->q_len--) {
		cmd_free(&g->queue[g->q_head]);
		g->q_head = (g->q_head + 1) % QUEUE_LEN;
	}
	rk_reply_free(&g->reply);
	rk_session_free(&g->session);
	rk_event_ring_free(g->events);
	rk_backend_close(g->backend);
	rk_tokenizer_free(g->tok);
	rk_model_free(g->model);
	pthread_cond_destroy(&g->some);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static int copy_text(char **dst, const char *src, rk_err *e)
{
	if (src && !(*dst = strdup(src)))
		return rk_fail(e, RK_ENOMEM, "command: out of memory for %zu bytes", strlen(src));
	return 0;
}

static int copy_ids(int32_t **dst, const int32_t *src, int n, rk_err *e)
{
	*dst = malloc(((size_t)n + 1) * sizeof **dst);
	if (!*dst)
		return rk_fail(e, RK_ENOMEM, "command: out of memory for %d tokens", n);
	if (src)
		memcpy(*dst, src, (size_t)n * sizeof **dst);
	return 0;
}

int rk_engine_ask(rk_engine *g, const char *system, const char *user, int max_new, enum rk_follow follow, rk_err *e)
{
	struct cmd c = { .kind = CMD_ASK, .max_new = max_new, .follow = follow };

	if (max_new < 1)
		return rk_fail(e, RK_EUSAGE, "a reply of %d tokens: at least 1", max_new);
	if (follow == RK_FOLLOW_TEXT)
		return rk_fail(e, RK_EUSAGE, "a question comes without the tokens of its reply: ask in tokens to force them");
	if (copy_text(&c.system, system, e) || copy_text(&c.user, user, e)) {
		cmd_free(&c);
		return -1;
	}
	return enqueue(g, &c, e);
}

static int queue_ids(rk_engine *g, struct cmd c, const int32_t *ids, const int32_t *forced, rk_err *e)
{
	for (int i = 0; i < c.n + c.n_forced; i++) {
		int32_t id = i < c.n ? ids[i] : forced[i - c.n];
		if (id < 0 || id >= g->model->hp.n_vocab)
			return rk_fail(e, RK_EUSAGE, "token id %d: the vocabulary has %d", id, g->model->hp.n_vocab);
	}
	if (c.max_new < 1)
		return rk_fail(e, RK_EUSAGE, "a reply of %d tokens: at least 1", c.max_new);
	if (copy_ids(&c.ids, ids, c.n, e) || copy_ids(&c.forced, forced, c.n_forced, e)) {
		cmd_free(&c);
		return -1;
	}
	return enqueue(g, &c, e);
}

int rk_engine_ask_ids(rk_engine *g, const int32_t *ids, int n, int max_new, enum rk_follow follow, const int32_t *forced, int n_forced,
                      rk_err *e)
{
	struct cmd c = { .kind = CMD_ASK_IDS, .n = n, .n_forced = n_forced, .follow = follow,
	                 .max_new = follow == RK_FOLLOW_TEXT ? n_forced : max_new };

	return queue_ids(g, c, ids, forced, e);
}

int rk_engine_ask_parts(rk_engine *g, const int32_t *ids, int n, int n_after, int max_new, enum rk_follow follow, rk_err *e)
{
	struct cmd c = { .kind = CMD_ASK_IDS, .n = n, .n_after = n_after, .max_new = max_new, .follow = follow };

	return queue_ids(g, c, ids, NULL, e);
}

int rk_engine_reset(rk_engine *g, rk_err *e)
{
	return enqueue(g, &(struct cmd){ .kind = CMD_RESET }, e);
}

int rk_engine_set_policy(rk_engine *g, int lane, const char *spec, rk_err *e)
{
	struct cmd c = { .kind = CMD_POLICY, .lane = lane };

	if (strlen(spec) >= sizeof c.spec)
		return rk_fail(e, RK_EUSAGE, "policy: longer than %zu characters", sizeof c.spec - 1);
	strcpy(c.spec, spec);
	return enqueue(g, &c, e);
}

int rk_engine_add_lane(rk_engine *g, const char *spec, rk_err *e)
{
	struct cmd c = { .kind = CMD_ADD_LANE };
	rk_policy p;

	if (rk_policy_parse(&p, spec, e))
		return -1;
	rk_policy_spec(&p, c.spec);
	return enqueue(g, &c, e);
}

int rk_engine_drop_lane(rk_engine *g, int lane, rk_err *e)
{
	return enqueue(g, &(struct cmd){ .kind = CMD_DROP_LANE, .lane = lane }, e);
}

void rk_engine_pause(rk_engine *g, bool paused)
{
	pthread_mutex_lock(&g->lock);
	g->paused = paused;
	g->may_step = 0;
	pthread_cond_signal(&g->some);
	pthread_mutex_unlock(&g->lock);
}

void rk_engine_single_step(rk_engine *g)
{
	pthread_mutex_lock(&g->lock);
	g->may_step += g->paused;
	pthread_cond_signal(&g->some);
	pthread_mutex_unlock(&g->lock);
}

void rk_engine_pace(rk_engine *g, float tok_per_s)
{
	pthread_mutex_lock(&g->lock);
	g->tok_per_s = tok_per_s;
	pthread_cond_signal(&g->some);
	pthread_mutex_unlock(&g->lock);
}

void rk_engine_seed(rk_engine *g, uint64_t seed)
{
	pthread_mutex_lock(&g->lock);
	g->seed = seed;
	pthread_mutex_unlock(&g->lock);
}

void rk_engine_stop(rk_engine *g)
{
	atomic_store(&g->stop_upto, atomic_load(&g->asked));
}

const rk_model *rk_engine_model(const rk_engine *g) { return g->model; }
const rk_tokenizer *rk_engine_tokenizer(const rk_engine *g) { return g->tok; }
const rk_chat_template *rk_engine_chat(const rk_engine *g) { return &g->chat; }
const rk_backend *rk_engine_backend(const rk_engine *g) { return g->backend; }
int rk_engine_n_ctx(const rk_engine *g) { return g->session.cfg.n_ctx; }
int rk_engine_n_lane(const rk_engine *g) { return atomic_load(&g->n_lane); }
rk_event_ring *rk_engine_events(rk_engine *g) { return g->events; }
