/* reader.c: a trace file as a source of events.  See trace.h.
 *
 * The first pass finds tokens by the first bytes of a line, without parsing, and leaves a mark every `stride` tokens; when
 * the marks are full, every second one goes and the stride doubles.
 */
#include "trace/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "trace/json.h"
#include "trace/source.h"

#define MAX_MARK 4096

struct mark {
	int64_t token, at, line;	/* this token's line: offset and number */
};

struct rk_trace {
	char *path;
	rk_source *src;
	rk_trace_header head;
	int64_t begin;			/* offset of the first event */
	int64_t n_token, duration;
	bool cut, no_start;
	bool started;			/* the session's start was read, or nothing of it is to be */
	int64_t line;			/* number of the line last read, from 1 */
	int64_t token;			/* tokens of lane 0 read */
	struct mark mark[MAX_MARK];
	int n_mark;
	int64_t stride;
	void *payload;
	size_t cap_payload;
};

/* Puts file and line in front of the message. */
static int fail_at(const rk_trace *t, int64_t line, rk_err *e)
{
	rk_err why = *e;

	return rk_fail(e, why.code, "%s:%" PRId64 ": %s", t->path, line, why.msg);
}

static int next_line(rk_trace *t, const char **line, size_t *len, rk_err *e)
{
	int rc = rk_source_line(t->src, line, len, e);

	t->line += rc != 0;
	return rc < 0 ? fail_at(t, t->line, e) : rc;
}

/* What the first pass wants to know of a line, from its first bytes where they are as this program writes them. */
static bool look(const char *line, size_t len, int64_t *t_ns)
{
	static const char usual[] = "{\"ev\":\"", token[] = "{\"ev\":\"token\",\"lane\":0,";
	const char *time;

	if (len > sizeof token && !memcmp(line, usual, sizeof usual - 1) &&
	    (time = memmem(line, len < 64 ? len : 64, "\"t\":", 4))) {
		*t_ns = 0;
		for (time += 4; time < line + len && *time >= '0' && *time <= '9' && *t_ns < INT64_MAX / 100; time++)
			*t_ns = *t_ns * 10 + (*time - '0');
		return !memcmp(line, token, sizeof token - 1);
	}
	json_t *root = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
	const char *ev = json_string_value(json_object_get(root, "ev"));
	const json_t *lane = json_object_get(root, "lane"), *at = json_object_get(root, "t");
	bool is_token = ev && !strcmp(ev, "token") && json_is_integer(lane) && json_integer_value(lane) == 0;
	if (json_is_integer(at))
		*t_ns = json_integer_value(at);
	json_decref(root);
	return is_token;
}

static void add_mark(rk_trace *t)
{
	if (t->n_token % t->stride)
		return;
	if (t->n_mark == MAX_MARK) {
		for (int i = 0; i < MAX_MARK / 2; i++)
			t->mark[i] = t->mark[2 * i];
		t->n_mark = MAX_MARK / 2;
		t->stride *= 2;
		if (t->n_token % t->stride)
			return;
	}
	t->mark[t->n_mark++] = (struct mark){ t->n_token, rk_source_tell(t->src), t->line };
}

/* Reads up to the first session's start, or to where it should have been, so that its loss is known from the outset.  Lines that are
 * no events are told when they are read in earnest. */
static int look_for_start(rk_trace *t, rk_err *e)
{
	rk_event ev;
	const void *payload;

	if (rk_trace_seek(t, 0, e))
		return -1;
	while (!t->started && rk_trace_next(t, &ev, &payload, e) != 0)
		;
	return rk_trace_seek(t, 0, e);
}

static int first_pass(rk_trace *t, rk_err *e)
{
	const char *line;
	size_t len;
	int rc = next_line(t, &line, &len, e);

	if (rc == 0)
		return rk_fail(e, RK_EFAIL, "%s: not a trace: no line in it", t->path);
	if (rc < 0)
		return -1;
	if (rk_trace_header_parse(&t->head, line, len, e))
		return fail_at(t, 1, e);
	t->begin = (int64_t)len + 1;
	while ((rc = next_line(t, &line, &len, e)) > 0)
		if (look(line, len, &t->duration)) {
			add_mark(t);
			t->n_token++;
		}
	t->cut = rk_source_cut(t->src);
	return rc < 0 ? -1 : look_for_start(t, e);
}

int rk_trace_open(rk_trace **out, const char *path, rk_err *e)
{
	rk_trace *t = calloc(1, sizeof *t);

	if (!t || !(t->path = strdup(path))) {
		free(t);
		return rk_fail(e, RK_ENOMEM, "%s: no memory to read it", path);
	}
	t->stride = 64;
	if (rk_source_open(&t->src, path, e)) {
		rk_err why = *e;
		rk_fail(e, why.code, "%s: %s", path, why.msg);
		goto fail;
	}
	if (first_pass(t, e))
		goto fail;
	*out = t;
	return 0;
fail:
	rk_trace_close(t);
	return -1;
}

void rk_trace_close(rk_trace *t)
{
	if (!t)
		return;
	rk_source_close(t->src);
	rk_trace_header_free(&t->head);
	free(t->payload);
	free(t->path);
	free(t);
}

const rk_trace_header *rk_trace_head(const rk_trace *t) { return &t->head; }
int64_t rk_trace_n_token(const rk_trace *t) { return t->n_token; }
int64_t rk_trace_duration_ns(const rk_trace *t) { return t->duration; }
bool rk_trace_cut(const rk_trace *t) { return t->cut; }
bool rk_trace_no_start(const rk_trace *t) { return t->no_start; }
int64_t rk_trace_tell(const rk_trace *t) { return t->token; }

/* The line in hand is read again by the next call. */
static int unread(rk_trace *t, rk_err *e)
{
	t->line--;
	return rk_source_seek(t->src, rk_source_tell(t->src), e);
}

/* An event of a session that was lost, from what the header knows. */
static int make_start(rk_trace *t, int64_t t_ns, rk_event *ev, rk_err *e)
{
	const rk_trace_header *h = &t->head;
	size_t cap = RK_MAX_LANE * RK_SPEC_MAX, at = 0;
	char *specs = malloc(cap);

	if (!specs)
		return rk_fail(e, RK_ENOMEM, "%s: no memory to read it", t->path);
	for (int i = 0; i < h->n_lane; i++)
		at += (size_t)snprintf(specs + at, cap - at, "%s\n", h->policy[i]);
	free(t->payload);
	t->payload = specs;
	t->cap_payload = cap;
	t->no_start = true;
	*ev = (rk_event){ .type = RK_EV_START, .lane = -1, .t_ns = t_ns, .size = (uint32_t)at,
	                  .start = { .n_lane = h->n_lane, .n_layer = h->n_layer } };
	return unread(t, e);
}

int rk_trace_next(rk_trace *t, rk_event *ev, const void **payload, rk_err *e)
{
	const char *line;
	size_t len;
	int rc = next_line(t, &line, &len, e);

	if (rc <= 0)
		return rc;
	if (rk_trace_event_parse(&t->head, line, len, ev, &t->payload, &t->cap_payload, e))
		return fail_at(t, t->line, e);
	bool early = !t->started && ev->lane >= 0 && ev->type != RK_EV_START;
	t->started |= ev->lane >= 0 || ev->type == RK_EV_START;
	if (early && make_start(t, ev->t_ns, ev, e))
		return -1;
	t->token += ev->type == RK_EV_TOKEN && ev->lane == 0;
	*payload = t->payload;
	return 1;
}

int rk_trace_seek(rk_trace *t, int64_t token, rk_err *e)
{
	struct mark from = { 0, t->begin, 2 };
	const char *line;
	size_t len;
	int64_t t_ns;
	int rc, i = t->n_mark;

	if (token > 0) {
		while (i > 1 && t->mark[i - 1].token > token)
			i--;
		if (i)
			from = t->mark[i - 1];
	}
	if (rk_source_seek(t->src, from.at, e))
		return fail_at(t, from.line, e);
	t->started = token > 0;
	t->token = from.token;
	t->line = from.line - 1;
	if (token <= 0)
		return 0;
	while ((rc = next_line(t, &line, &len, e)) > 0) {
		if (!look(line, len, &t_ns))
			continue;
		if (t->token == token)
			return unread(t, e);
		t->token++;
	}
	return rc;
}
