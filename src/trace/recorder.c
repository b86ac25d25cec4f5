/* recorder.c: see recorder.h.
 *
 * Owned by the feeding thread but for what the recorder's thread works on: the sink, and the header once it runs.  `state`
 * goes RUNNING -> FAILED (by the recorder's thread, after it has filled in `why`) -> TOLD (by the feeder).
 */
#include "trace/recorder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "trace/digest.h"
#include "trace/sink.h"

#define QUEUE_EVENTS 4096
#define QUEUE_BYTES (8u << 20)
#define FLUSH_NS 50000000	/* a line is at most this late in the file */
#define FLUSH_BYTES (256u << 10)

enum { WAKE = RK_MAX_LANE, FORWARDED };	/* lanes of events that mean something in the queue only */
enum state { RUNNING, FAILED, TOLD };

struct rk_recorder {
	pthread_t thread;
	rk_event_ring *queue;
	_Atomic bool stop;
	_Atomic int state;
	rk_err why;
	rk_sink *sink;
	rk_trace_header head;
	char *model_path;
	_Atomic bool hashed;	/* head.model_sha256 stays as it is */
	bool wait;		/* as opened */
	int64_t t0;		/* what the trace counts time from */
	int64_t said;		/* losses of the queue that are in the trace */
};

/* ---- the recorder's thread ---- */

static int add_header(rk_recorder *r, rk_err *e)
{
	char *line;
	size_t len;
	rk_err unread;

	/* A model that can no longer be read leaves its digest unknown, and so does one that a user would have to wait for. */
	if (!r->hashed && r->model_path && rk_digest_file(r->model_path, r->head.model_sha256, r->wait ? NULL : &r->stop, &unread))
		r->head.model_sha256[0] = '\0';
	atomic_store(&r->hashed, true);
	if (rk_trace_header_line(&r->head, &line, &len, e))
		return -1;
	int rc = rk_sink_add(r->sink, line, len, e);
	free(line);
	return rc;
}

static int add_event(rk_recorder *r, rk_event *ev, const void *payload, rk_err *e)
{
	char *line;
	size_t len;
	const rk_event gap = { .type = RK_EV_GAP, .lane = -1, .t_ns = ev->t_ns, .gap.lost = 1 };

	if (ev->lane == WAKE)
		return 0;
	if (ev->lane == FORWARDED)
		ev->lane = -1;
	else if (ev->type == RK_EV_GAP)
		r->said += ev->gap.lost;
	/* An event that does not fit a line is lost, and said to be. */
	if (rk_trace_event_line(&r->head, ev, payload, r->t0, &line, &len, e) &&
	    rk_trace_event_line(&r->head, &gap, NULL, r->t0, &line, &len, e))
		return -1;
	int rc = rk_sink_add(r->sink, line, len, e);
	free(line);
	return rc;
}

static int record(rk_recorder *r, rk_err *e)
{
	rk_event ev;
	const void *payload;
	int64_t due = 0;	/* when what waits must be in the file; 0: nothing waits */

	if (add_header(r, e) || rk_sink_flush(r->sink, e))
		return -1;
	for (;;) {
		/* Stopping is said first, then the queue is woken: what it still holds is written. */
		bool stop = atomic_load(&r->stop);
		int64_t left = due - rk_clock_ns();
		int wait_ms = stop ? 0 : !due ? -1 : left > 0 ? (int)((left + 999999) / 1000000) : 0;
		int got = rk_event_next(r->queue, &ev, &payload, wait_ms);
		if (!got && stop)
			return 0;
		if (got && add_event(r, &ev, payload, e))
			return -1;
		if (!due && rk_sink_waiting(r->sink))
			due = rk_clock_ns() + FLUSH_NS;
		if (due && (rk_clock_ns() >= due || rk_sink_waiting(r->sink) > FLUSH_BYTES)) {
			if (rk_sink_flush(r->sink, e))
				return -1;
			due = 0;
		}
	}
}

static void *run(void *arg)
{
	rk_recorder *r = arg;
	rk_event ev;
	const void *payload;

	if (record(r, &r->why) == 0)
		return NULL;
	atomic_store(&r->state, FAILED);
	/* A feeder that waits for room must not wait for ever. */
	while (!atomic_load(&r->stop))
		rk_event_next(r->queue, &ev, &payload, -1);
	return NULL;
}

/* ---- the feeder's thread ---- */

static void recorder_free(rk_recorder *r)
{
	rk_event_ring_free(r->queue);
	rk_trace_header_free(&r->head);
	free(r->model_path);
	free(r);
}

int rk_recorder_open(rk_recorder **out, const char *path, bool force, bool wait, const rk_trace_header *h, const char *model_path,
                     rk_err *e)
{
	rk_recorder *r = calloc(1, sizeof *r);

	if (!r)
		return rk_fail(e, RK_ENOMEM, "%s: no memory to record", path);
	r->head = *h;
	r->hashed = h->model_sha256[0] != '\0';
	r->wait = wait;
	r->t0 = rk_clock_ns();
	if (h->prompt) {
		r->head.prompt = malloc(((size_t)h->n_prompt + 1) * sizeof *h->prompt);
		if (r->head.prompt)
			memcpy(r->head.prompt, h->prompt, (size_t)h->n_prompt * sizeof *h->prompt);
	}
	r->model_path = model_path ? strdup(model_path) : NULL;
	if ((h->prompt && !r->head.prompt) || (model_path && !r->model_path)) {
		rk_fail(e, RK_ENOMEM, "%s: no memory to record", path);
		goto fail;
	}
	if (rk_event_ring_init(&r->queue, QUEUE_EVENTS, QUEUE_BYTES, wait, e) || rk_sink_open(&r->sink, path, force, e))
		goto fail;
	if (pthread_create(&r->thread, NULL, run, r)) {
		rk_fail(e, RK_EFAIL, "%s: cannot start a thread to record", path);
		rk_sink_close(r->sink, NULL);
		goto fail;
	}
	*out = r;
	return 0;
fail:
	recorder_free(r);
	return -1;
}

const char *rk_recorder_model(const rk_recorder *r)
{
	return atomic_load(&r->hashed) ? r->head.model_sha256 : "";
}

static int tell(rk_recorder *r, rk_err *e)
{
	int failed = FAILED;

	if (!atomic_compare_exchange_strong(&r->state, &failed, TOLD))
		return 0;
	return rk_fail(e, r->why.code, "recording stopped: %s", r->why.msg);
}

int rk_recorder_push(rk_recorder *r, const rk_event *ev, const void *payload, rk_err *e)
{
	if (!r)
		return 0;
	if (atomic_load(&r->state) != RUNNING)
		return tell(r, e);
	rk_event mine = *ev;
	if (ev->type == RK_EV_GAP)
		mine.lane = FORWARDED;	/* losses of the stream, not of the queue */
	rk_event_push(r->queue, &mine, payload, ev->size);
	return 0;
}

/* What was lost last may have found no room for its gap in the queue. */
static int add_last_gap(rk_recorder *r, int64_t lost, rk_err *e)
{
	rk_event gap = { .type = RK_EV_GAP, .lane = FORWARDED, .t_ns = rk_clock_ns(), .gap.lost = lost - r->said };

	return gap.gap.lost > 0 ? add_event(r, &gap, NULL, e) : 0;
}

int rk_recorder_close(rk_recorder *r, rk_err *e)
{
	rk_err why;

	if (!r)
		return 0;
	int64_t lost = rk_event_lost(r->queue);
	atomic_store(&r->stop, true);
	rk_event_ring_close(r->queue);
	rk_event_push(r->queue, &(rk_event){ .lane = WAKE }, NULL, 0);
	pthread_join(r->thread, NULL);
	int rc = tell(r, e);
	bool bad = atomic_load(&r->state) == RUNNING && add_last_gap(r, lost, &why);
	if ((rk_sink_close(r->sink, bad ? NULL : &why) || bad) && rc == 0)
		rc = rk_fail(e, why.code, "recording stopped: %s", why.msg);
	recorder_free(r);
	return rc;
}
