/* replay_feed.c: see replay_feed.h */
#include "cmd/replay_feed.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include "base/clock.h"

#define FAR_NS 4e18	/* a century: what a very slow replay waits at most, so that it can be added to a clock */

static int64_t now(const rk_replay *r)
{
	return r->clock ? *r->clock : rk_clock_ns();
}

/* Reads one event ahead; false at the end.  A damaged line is told as the engine tells an error. */
static bool look(rk_replay *r)
{
	if (r->have)
		return true;
	if (r->ended)
		return false;
	int rc = rk_pair_next(r->p, &r->ev, &r->payload, &r->why);
	if (rc < 0) {
		r->ev = (rk_event){ .type = RK_EV_ERROR, .lane = -1, .t_ns = r->ev.t_ns, .size = (uint32_t)strlen(r->why.msg) };
		r->payload = r->why.msg;
	}
	r->have = rc != 0;
	r->ended = rc == 0;
	return r->have;
}

/* When the event that was read ahead may go out; INT64_MAX: not before a key. */
static int64_t due_ns(const rk_replay *r)
{
	bool token = r->ev.type == RK_EV_TOKEN && r->ev.lane <= 0;
	int64_t at = r->speed > 0 ? r->origin_ns + (int64_t)fmin((double)(r->ev.t_ns - r->base_ns) / r->speed, FAR_NS) : 0;

	if (r->n_token < r->rush_token)
		return 0;
	if (token && r->paused)
		return r->may_step ? 0 : INT64_MAX;
	if (r->paused)
		return 0;	/* what belongs to the token that was let through */
	if (r->tok_per_s > 0)
		return token ? r->last_token_ns + (int64_t)(1e9 / (double)r->tok_per_s) : 0;
	return at;
}

/* The recorded pace goes on from here. */
static void rebase(rk_replay *r)
{
	r->origin_ns = now(r);
	r->base_ns = r->have ? r->ev.t_ns : r->base_ns;
}

static int next(void *ctx, rk_event *ev, const void **payload)
{
	rk_replay *r = ctx;

	if (!look(r) || due_ns(r) > now(r))
		return 0;
	r->have = false;
	*ev = r->ev;
	*payload = r->payload;
	if (ev->type == RK_EV_TOKEN && ev->lane <= 0) {
		r->n_token++;
		r->last_token_ns = now(r);
		r->may_step -= r->paused && r->may_step > 0;
		if (r->n_token == r->rush_token)
			r->origin_ns = now(r), r->base_ns = ev->t_ns;
	}
	return 1;
}

static int wait_ms(void *ctx)
{
	rk_replay *r = ctx;

	if (!look(r))
		return -1;
	int64_t due = due_ns(r), ns = due - now(r);
	return due == INT64_MAX ? -1 : ns <= 0 ? 0 : ns >= INT_MAX * 1000000LL ? INT_MAX : (int)((ns + 999999) / 1000000);
}

static void hold(void *ctx, bool paused)
{
	rk_replay *r = ctx;

	r->paused = paused;
	r->may_step = 0;
	look(r);
	rebase(r);
}

static void single_step(void *ctx) { ((rk_replay *)ctx)->may_step++; }

static void pace(void *ctx, float tok_per_s)
{
	rk_replay *r = ctx;

	r->tok_per_s = tok_per_s;
	look(r);
	rebase(r);
}

/* From the start again, and at once to where so many tokens were. */
static int go_to(rk_replay *r, int64_t token, rk_err *e)
{
	if (rk_pair_rewind(r->p, e))
		return -1;
	r->have = r->ended = false;
	r->n_token = 0;
	r->rush_token = token;
	rebase(r);
	return 0;
}

static int seek(void *ctx, double frac, rk_err *e)
{
	rk_replay *r = ctx;

	return go_to(r, frac < 1 ? (int64_t)(frac * (double)rk_trace_n_token(rk_pair_trace(r->p, 0))) : INT64_MAX, e);
}

#define FIND_MAX 256	/* bytes of text looked at together */

/* Adds a token's text to the last bytes before it, NUL-terminated. */
static void add_tail(char tail[2 * FIND_MAX], const char *s, size_t n)
{
	size_t had = strlen(tail), over;

	if (n > FIND_MAX - 1)
		s += n - (FIND_MAX - 1), n = FIND_MAX - 1;
	over = had > FIND_MAX ? had - FIND_MAX : 0;
	memmove(tail, tail + over, had - over);
	if (n)
		memcpy(tail + had - over, s, n);
	tail[had - over + n] = '\0';
}

static int find(void *ctx, const char *text, rk_err *e)
{
	rk_replay *r = ctx;
	rk_trace *t = rk_pair_trace(r->p, 0);
	char tail[2 * FIND_MAX] = "";
	int64_t from = r->n_token, token = from;
	rk_event ev;
	const void *payload;
	bool found = false;
	int rc;

	if (strlen(text) > FIND_MAX)
		return rk_fail(e, RK_EUSAGE, "a text to look for of more than %d bytes", FIND_MAX);
	if (rk_trace_seek(t, from, e))
		return -1;
	while (!found && (rc = rk_trace_next(t, &ev, &payload, e)))
		if (rc > 0 && ev.type == RK_EV_TOKEN && ev.lane == 0) {
			token++;
			add_tail(tail, payload, ev.size);
			found = strcasestr(tail, text);
		}
	return go_to(r, found ? token : from, e) ? -1 : found;
}

static const char *token_text(void *ctx, int32_t id, size_t *len)
{
	const rk_tokenizer *tok = ((rk_replay *)ctx)->tok;

	return id >= 0 && id < rk_tokenizer_n_vocab(tok) ? rk_token_bytes(tok, id, len) : NULL;
}

void rk_replay_vocabulary(rk_replay *r, const rk_tokenizer *tok)
{
	r->tok = tok;
	r->feed.token_text = tok ? token_text : NULL;
}

void rk_replay_init(rk_replay *r, rk_pair *p, double speed, const int64_t *clock)
{
	const rk_trace_header *h = rk_trace_head(rk_pair_trace(p, 0));
	rk_trace *other = rk_pair_trace(p, 1);
	rk_feed_info *in = &r->feed.info;

	*r = (rk_replay){
		.p = p, .speed = speed, .clock = clock,
		.feed = { .ctx = r, .fd = -1, .next = next, .wait_ms = wait_ms, .pause = hold, .single_step = single_step, .pace = pace, .seek = seek, .find = find,
		          .info = { .n_ctx = h->n_ctx, .weight_bytes = NAN, .bandwidth = NAN } },
	};
	r->origin_ns = now(r);
	snprintf(in->model, sizeof in->model, "%s", h->model);
	snprintf(in->device, sizeof in->device, "%s %s", h->device, h->isa);
	snprintf(in->document, sizeof in->document, "recorded %.19s%s%.19s", h->started, other ? " beside " : "",
	         other ? rk_trace_head(other)->started : "");
}
