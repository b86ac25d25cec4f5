/* trace.h: a trace is the event stream written down: `refreshkv-trace` version 1, JSON Lines, plain or zstd (docs/TRACE.md).
 *
 * One line is the header, every other line one rk_event with its payload.  What is written and read back is the same
 * event, payload byte for byte; only t_ns, which counts from the start of the recording, and -inf and inf, which become
 * NaN, differ.  A reader is a source of events like the ring of a live engine: next() in a loop.  Nothing here keeps a
 * thread or shares state; the recorder (recorder.h) has the thread.
 */
#ifndef RK_TRACE_TRACE_H
#define RK_TRACE_TRACE_H

#include <stdio.h>
#include "engine/engine.h"

#define RK_TRACE_SCHEMA "refreshkv-trace"
#define RK_TRACE_VERSION 1
#define RK_TRACE_MAX_LINE (4u << 20)	/* bytes; a longer line is an error.  131,072 positions in a line are under 1 MB */
#define RK_TRACE_TOP 5			/* most probable tokens written with each token; all RK_TOP with a reply's first */

/* All that is known before the first event.  "" and 0: not known. */
typedef struct rk_trace_header {
	int version;
	char run_id[40];		/* random UUID */
	char program[32];		/* version of the program that recorded */
	char command[16];		/* "run", "compare", ... */
	char started[32];		/* ISO 8601, UTC, milliseconds */
	char model[96], model_sha256[65];	/* general.name; digest of the file */
	char tokenizer[32], chat[16];	/* pre-tokenizer, chat template */
	char device[64], isa[24];
	int n_thread;
	bool exact;
	char kv_type[8];		/* "f16", "f32" */
	int n_layer, n_head, n_kv_head, head_dim, n_vocab, n_ctx, chunk;
	bool shadow, positions;		/* which events to expect */
	int after;			/* tokens of lane 0 that the session had when recording began */
	int n_lane;
	char policy[RK_MAX_LANE][RK_SPEC_MAX];	/* canonical: every parameter */
	enum rk_follow follow;
	rk_sampling sampling;
	char document_sha256[65];	/* of the document's bytes */
	char prompt_sha256[65];		/* of the prompt's token ids as little-endian int32 */
	int32_t *prompt;		/* [n_prompt] the ids themselves, where asked for; owned (rk_trace_header_free) */
	int n_prompt;
} rk_trace_header;

/* What the engine and its configuration know, a fresh run id and the time.  Not the model's digest (the recorder adds it). */
void rk_trace_header_fill(rk_trace_header *h, const rk_engine *g, const rk_engine_cfg *cfg, const char *command, enum rk_follow follow);
/* Digest of the prompt, and with keep_ids the ids themselves. */
int rk_trace_header_prompt(rk_trace_header *h, const int32_t *ids, size_t n, bool keep_ids, rk_err *e);
void rk_trace_header_free(rk_trace_header *h);

/* ---- lines ---- */

/* One line with its newline, allocated; free() it.  Error: no memory. */
int rk_trace_header_line(const rk_trace_header *h, char **line, size_t *len, rk_err *e);
/* t0: what t_ns is counted from. */
int rk_trace_event_line(const rk_trace_header *h, const rk_event *ev, const void *payload, int64_t t0, char **line, size_t *len,
                        rk_err *e);

/* line: without its newline; len at most RK_TRACE_MAX_LINE.  Everything is checked: lanes, layers and counts against the
 * header, numbers against the range of their field.  Errors (RK_EFAIL) say what is wrong but not where; see rk_trace_next. */
int rk_trace_header_parse(rk_trace_header *h, const char *line, size_t len, rk_err *e);
/* *buf, of *cap bytes, grows as needed and holds the payload; the caller frees it after the last call. */
int rk_trace_event_parse(const rk_trace_header *h, const char *line, size_t len, rk_event *ev, void **buf, size_t *cap, rk_err *e);

/* ---- reading a file ---- */

typedef struct rk_trace rk_trace;

/* Reads the header and passes over the file once, which takes well under 2 s for 1,000,000 tokens; keeps an index of bounded
 * size.  A last line that is cut off (or a zstd stream that is) is left out; see rk_trace_cut.  Errors (RK_EFAIL) name file
 * and line; a newer schema is refused by its number. */
int rk_trace_open(rk_trace **t, const char *path, rk_err *e);
void rk_trace_close(rk_trace *t);	/* NULL is fine */

const rk_trace_header *rk_trace_head(const rk_trace *t);
int64_t rk_trace_n_token(const rk_trace *t);		/* RK_EV_TOKEN events of lane 0 */
int64_t rk_trace_duration_ns(const rk_trace *t);	/* t_ns of the last event */
bool rk_trace_cut(const rk_trace *t);			/* the end is missing: recording was killed, or is still running */
bool rk_trace_no_start(const rk_trace *t);		/* the first session's start was lost; see rk_trace_next */

/* 1: *ev is the next event, *payload ev->size bytes (not NUL-terminated, valid until the next call); 0: end of the trace;
 * -1: a line that is not an event (e names file:line); the next call goes on behind it.  Where the start of the first session
 * was lost, an RK_EV_START made from the header takes its place, whose prompt and cache sizes are 0: not known. */
int rk_trace_next(rk_trace *t, rk_event *ev, const void **payload, rk_err *e);
/* The next event will be token `token` of lane 0 (0 = first): for 0, the start of the trace, with the events that come before the
 * first token; from n_token on, the end.  What a reader has summed up is its own business. */
int rk_trace_seek(rk_trace *t, int64_t token, rk_err *e);
int64_t rk_trace_tell(const rk_trace *t);		/* number of tokens of lane 0 read so far */

#endif
