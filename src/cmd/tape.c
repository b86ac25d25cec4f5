/* tape.c: see tape.h */
#include "cmd/tape.h"

#include <stdio.h>
#include <string.h>
#include "base/clock.h"

void rk_tape_init(rk_tape *t)
{
	rk_tape_forget(t);
	t->n_lane = t->cfg->session.n_lane;
	for (int i = 0; i < t->n_lane; i++)
		rk_policy_spec(&t->cfg->session.lane[i], t->spec[i]);
}

void rk_tape_forget(rk_tape *t)
{
	t->start.type = t->prefill.type = RK_EV_GAP;
	t->n_token = 0;
}

/* ---- what is remembered ---- */

static void on_start(rk_tape *t, const rk_event *ev, const char *specs)
{
	const char *end = specs + ev->size;

	t->start = *ev;
	t->prefill.type = RK_EV_GAP;
	t->n_token = 0;
	t->n_lane = ev->start.n_lane;
	for (int i = 0; i < t->n_lane && specs < end; i++) {
		const char *nl = memchr(specs, '\n', (size_t)(end - specs));
		size_t len = (size_t)((nl ? nl : end) - specs);
		snprintf(t->spec[i], RK_SPEC_MAX, "%.*s", (int)len, specs);
		specs += len + (nl != NULL);
	}
}

static void remember(rk_tape *t, const rk_event *ev, const void *payload)
{
	switch (ev->type) {
	case RK_EV_START: on_start(t, ev, payload); break;
	case RK_EV_PREFILL:
		t->prefill = *ev;
		t->busy = true;
		break;
	case RK_EV_TOKEN:
		t->n_token += ev->lane == 0;
		t->in_reply = t->busy = true;
		break;
	case RK_EV_CONTROL: snprintf(t->spec[ev->lane], RK_SPEC_MAX, "%.*s", (int)ev->size, (const char *)payload); break;
	case RK_EV_IDLE: t->in_reply = t->busy = false; break;
	default: break;
	}
}

/* ---- recording ---- */

/* What the trace starts with when the session has begun already.  The queue is empty: nothing is lost here. */
static int push_past(rk_tape *t, rk_err *e)
{
	char specs[RK_MAX_LANE * RK_SPEC_MAX];
	const rk_event idle = { .type = RK_EV_IDLE, .lane = -1, .t_ns = rk_clock_ns() };
	rk_event start = t->start;
	size_t at = 0;

	if (start.type != RK_EV_START)
		return 0;
	for (int i = 0; i < t->n_lane; i++)
		at += (size_t)snprintf(specs + at, sizeof specs - at, "%s\n", t->spec[i]);
	start.size = (uint32_t)at;
	if (rk_recorder_push(t->recorder, &start, specs, e))
		return -1;
	if (t->prefill.type == RK_EV_PREFILL && rk_recorder_push(t->recorder, &t->prefill, NULL, e))
		return -1;
	return t->busy ? 0 : rk_recorder_push(t->recorder, &idle, NULL, e);
}

int rk_tape_begin(rk_tape *t, const char *path, bool force, int *after, rk_err *e)
{
	rk_trace_header h;

	rk_trace_header_fill(&h, t->g, t->cfg, t->command, t->follow);
	snprintf(h.document_sha256, sizeof h.document_sha256, "%s", t->document_sha256);
	memcpy(h.model_sha256, t->model_sha256, sizeof h.model_sha256);
	h.n_lane = t->n_lane;	/* lanes may have come or gone since the engine was opened */
	for (int i = 0; i < h.n_lane; i++)
		memcpy(h.policy[i], t->spec[i], RK_SPEC_MAX);
	h.after = *after = t->n_token;
	if (rk_recorder_open(&t->recorder, path, force, false, &h, rk_gguf_path(rk_engine_model(t->g)->file), e)) {
		t->recorder = NULL;
		return -1;
	}
	t->waiting = t->in_reply;
	if (push_past(t, e) == 0)
		return 0;
	rk_tape_end(t, NULL);
	return -1;
}

/* An event that may follow what push_past said: of the session, or the first of a step. */
static bool is_boundary(const rk_event *ev)
{
	return ev->type == RK_EV_START || ev->type == RK_EV_IDLE || (ev->type == RK_EV_TOKEN && ev->lane == 0);
}

int rk_tape_event(rk_tape *t, const rk_event *ev, const void *payload, rk_err *e)
{
	remember(t, ev, payload);
	if (!t->recorder)
		return 0;
	t->waiting = t->waiting && !is_boundary(ev);
	if (t->waiting || rk_recorder_push(t->recorder, ev, payload, e) == 0)
		return 0;
	rk_tape_end(t, NULL);
	return -1;
}

int rk_tape_end(rk_tape *t, rk_err *e)
{
	rk_recorder *r = t->recorder;

	t->recorder = NULL;
	if (r)
		snprintf(t->model_sha256, sizeof t->model_sha256, "%s", rk_recorder_model(r));
	return rk_recorder_close(r, e);
}
