/* pair.c: see pair.h.
 *
 * Each side is read one event ahead.  Where an event belongs (session, reply, token) decides whose turn it is; the
 * idle that ends a command, and what follows it, waits for the other side's last token.  Two starts become one.
 */
#include "trace/pair.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct side {
	rk_trace *t;
	rk_event ev;		/* read, not handed over yet */
	const void *payload;
	int rc;			/* of reading it: 1, 0 at the end, -1 */
	bool have;
	rk_err why;
	int first;		/* number of its lane 0 in the pair */
	int session, reply, index;	/* where the event in hand belongs */
	char specs[RK_MAX_LANE * RK_SPEC_MAX + 1];	/* of its last start */
	rk_event start;
};

struct rk_pair {
	struct side side[2];
	int n;
	int64_t t_ns;		/* of the last event handed over */
	int64_t shift;		/* of the second one's times */
	char specs[2 * RK_MAX_LANE * RK_SPEC_MAX];
};

/* ---- what may go together ---- */

static int differ(const char *what, const char *a, const char *b, rk_err *e)
{
	return rk_fail(e, RK_EUSAGE, "these traces cannot be shown side by side: %s (%s and %s)", what, a, b);
}

static int differ_by_number(const char *what, int a, int b, rk_err *e)
{
	return rk_fail(e, RK_EUSAGE, "these traces cannot be shown side by side: %s (%d and %d)", what, a, b);
}

static int check(const rk_trace_header *a, const rk_trace_header *b, rk_err *e)
{
	bool known = a->prompt_sha256[0] && b->prompt_sha256[0], documents = a->document_sha256[0] && b->document_sha256[0];

	if (a->n_layer != b->n_layer)
		return differ_by_number("models with different numbers of layers", a->n_layer, b->n_layer, e);
	if (a->n_vocab != b->n_vocab)
		return differ_by_number("models with different numbers of tokens", a->n_vocab, b->n_vocab, e);
	if (known && strcmp(a->prompt_sha256, b->prompt_sha256))
		return differ("they have different prompts", a->prompt_sha256, b->prompt_sha256, e);
	if (!known && documents && strcmp(a->document_sha256, b->document_sha256))
		return differ("they have different documents", a->document_sha256, b->document_sha256, e);
	if (a->after != b->after)
		return differ_by_number("they begin at different tokens of their sessions", a->after, b->after, e);
	if (a->n_lane + b->n_lane > RK_MAX_LANE)
		return rk_fail(e, RK_EUSAGE, "these traces have %d and %d lanes, the limit is %d together", a->n_lane, b->n_lane, RK_MAX_LANE);
	return 0;
}

bool rk_pair_same_prompt(const rk_pair *p)
{
	const rk_trace_header *a = rk_trace_head(p->side[0].t), *b = p->n > 1 ? rk_trace_head(p->side[1].t) : NULL;

	return b && a->prompt_sha256[0] && !strcmp(a->prompt_sha256, b->prompt_sha256);
}

/* ---- opening ---- */

/* Until its own start is read, a side's is the header's: its lanes have their place also where its trace has no event. */
static void begin(struct side *s)
{
	const rk_trace_header *h = rk_trace_head(s->t);

	s->start = (rk_event){ .start.n_lane = h->n_lane };
	for (int i = 0; i < h->n_lane; i++)
		s->start.size += (uint32_t)snprintf(s->specs + s->start.size, sizeof s->specs - s->start.size, "%s\n", h->policy[i]);
	s->have = false;
	s->session = s->index = 0;
	s->reply = -1;
}

int rk_pair_open(rk_pair **out, rk_trace *a, rk_trace *b, rk_err *e)
{
	rk_pair *p;

	if (b && check(rk_trace_head(a), rk_trace_head(b), e))
		return -1;
	if (!(p = calloc(1, sizeof *p)))
		return rk_fail(e, RK_ENOMEM, "no memory for a trace");
	p->n = b ? 2 : 1;
	p->side[0].t = a;
	p->side[1].t = b;
	p->side[1].first = rk_trace_head(a)->n_lane;
	for (int i = 0; i < p->n; i++)
		begin(&p->side[i]);
	*out = p;
	return 0;
}

void rk_pair_close(rk_pair *p)
{
	free(p);
}

rk_trace *rk_pair_trace(const rk_pair *p, int i) { return p->side[i].t; }

int rk_pair_n_lane(const rk_pair *p)
{
	return rk_trace_head(p->side[0].t)->n_lane + (p->n > 1 ? rk_trace_head(p->side[1].t)->n_lane : 0);
}

int rk_pair_rewind(rk_pair *p, rk_err *e)
{
	for (int i = 0; i < p->n; i++) {
		if (rk_trace_seek(p->side[i].t, 0, e))
			return -1;
		begin(&p->side[i]);
	}
	p->t_ns = p->shift = 0;
	return 0;
}

/* ---- reading ---- */

/* Reads ahead, and finds out where that event belongs. */
static void look(struct side *s)
{
	if (s->have)
		return;
	s->rc = rk_trace_next(s->t, &s->ev, &s->payload, &s->why);
	s->have = true;
	if (s->rc <= 0)
		return;
	const rk_event *ev = &s->ev;
	if (ev->type == RK_EV_START) {
		s->session++;
		s->reply = -1;
		s->index = 0;
	} else if (ev->type == RK_EV_TOKEN) {
		s->reply += ev->lane == 0 && (ev->index == 0 || s->reply < 0);
		s->index = ev->index;
	} else if (ev->type == RK_EV_IDLE) {
		s->index = INT_MAX;	/* behind every token of the reply */
	}
}

/* The lanes of two are numbered by their headers. */
static void check_lanes(struct side *s)
{
	int n = rk_trace_head(s->t)->n_lane;

	if (s->rc > 0 && s->ev.type == RK_EV_START && s->ev.start.n_lane != n)
		s->rc = rk_fail(&s->why, RK_EFAIL, "a session of %d lanes, the trace's header has %d", s->ev.start.n_lane, n);
	else if (s->rc > 0 && s->ev.lane >= n)
		s->rc = rk_fail(&s->why, RK_EFAIL, "an event of lane %d, the trace's header has %d lanes", s->ev.lane, n);
}

/* Is a's event to be handed over before b's? */
static bool before(const struct side *a, const struct side *b)
{
	if (a->rc <= 0 || b->rc <= 0)
		return a->rc < 0 || (a->rc > 0 && b->rc == 0);
	if (a->session != b->session)
		return a->session < b->session;
	if (a->reply != b->reply)
		return a->reply < b->reply;
	return a->index < b->index;
}

static void keep_start(struct side *s)
{
	s->start = s->ev;
	memcpy(s->specs, s->payload, s->ev.size);
	s->have = false;
}

/* The session of both: a side without a start of its own (its trace has ended) takes part with its last one. */
static int hand_start(rk_pair *p, rk_event *ev, const void **payload)
{
	struct side *a = &p->side[0], *b = &p->side[1];

	for (int i = 0; i < 2; i++)
		if (p->side[i].rc > 0 && p->side[i].ev.type == RK_EV_START)
			keep_start(&p->side[i]);
	*ev = a->start;
	memcpy(p->specs, a->specs, a->start.size);
	memcpy(p->specs + a->start.size, b->specs, b->start.size);
	ev->size = a->start.size + b->start.size;
	ev->type = RK_EV_START;
	ev->lane = -1;
	ev->start.n_lane = a->start.start.n_lane + b->start.start.n_lane;
	ev->start.n_layer = rk_trace_head(a->t)->n_layer;
	ev->start.n_prompt = a->start.start.n_prompt ? a->start.start.n_prompt : b->start.start.n_prompt;
	ev->start.bytes_full = a->start.start.bytes_full + b->start.start.bytes_full;
	ev->start.bytes_partial = a->start.start.bytes_partial + b->start.start.bytes_partial;
	*payload = p->specs;
	return 1;
}

static int hand(struct side *s, rk_event *ev, const void **payload, rk_err *e)
{
	s->have = s->rc == 0;	/* the end stays */
	if (s->rc < 0)
		*e = s->why;
	if (s->rc <= 0)
		return s->rc;
	*ev = s->ev;
	*payload = s->payload;
	if (ev->lane >= 0)
		ev->lane = (int8_t)(ev->lane + s->first);
	return 1;
}

int rk_pair_next(rk_pair *p, rk_event *ev, const void **payload, rk_err *e)
{
	struct side *a = &p->side[0], *b = &p->side[1];
	int rc;

	look(a);
	if (p->n == 1)
		return hand(a, ev, payload, e);
	look(b);
	check_lanes(a);
	check_lanes(b);
	struct side *s = before(b, a) ? b : a;
	if (s->rc > 0 && s->ev.type == RK_EV_START)
		rc = hand_start(p, ev, payload);
	else
		rc = hand(s, ev, payload, e);
	if (rc <= 0)
		return rc;
	if (s == b && a->rc != 0)
		p->shift = p->t_ns - ev->t_ns;
	if (s == b)
		ev->t_ns += p->shift;
	ev->t_ns = p->t_ns = ev->t_ns > p->t_ns ? ev->t_ns : p->t_ns;
	return 1;
}
