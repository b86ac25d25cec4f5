/* feed.h: where events come from and commands go: a live engine or a recording, behind one table of functions.
 *
 * The screen knows no engine.  A function that is NULL is something this source cannot do, and the screen says so.
 * Called on the UI thread; none of them may block.
 */
#ifndef RK_TUI_FEED_H
#define RK_TUI_FEED_H

#include "engine/event.h"

typedef struct rk_feed_info {
	char model[96], device[96], document[128];	/* what the header says; document "": none */
	char document_id[40];		/* changes with the document's content */
	int n_ctx;			/* positions that fit; 0: not known */
	double weight_bytes;		/* read per step; NAN: not known */
	double bandwidth;		/* bytes/s that this machine's memory delivers; NAN: not measured */
} rk_feed_info;

typedef struct rk_said {	/* one turn of a conversation */
	const char *user, *reply;	/* reply NULL: this one is to be answered */
} rk_said;

typedef struct rk_feed {
	void *ctx;
	rk_feed_info info;
	int fd;				/* polls readable when events wait; -1: none, see wait_ms */
	/* 1 and an event with its payload, which is valid until the next call; 0: none waits now. */
	int (*next)(void *ctx, rk_event *ev, const void **payload);
	int (*wait_ms)(void *ctx);	/* until the next event is due; -1: not known.  May be NULL */
	int (*ask)(void *ctx, const char *user, rk_err *e);
	/* From an empty session: a whole conversation whose last turn is to be answered; seed: of the sampler. */
	int (*ask_again)(void *ctx, const rk_said *turn, int n, int seed, rk_err *e);
	int (*reset)(void *ctx, rk_err *e);
	int (*set_policy)(void *ctx, int lane, const char *spec, rk_err *e);
	int (*add_lane)(void *ctx, const char *spec, rk_err *e);	/* the session is then empty */
	int (*drop_lane)(void *ctx, int lane, rk_err *e);
	int (*n_lane)(void *ctx);	/* also where a session with them never started; there when add_lane is */
	/* A recording starts over and goes at once to this share of it, or to the next token with which a text is complete: 1, or
	 * 0 where there is none and it goes to where it was. */
	int (*seek)(void *ctx, double frac, rk_err *e);
	int (*find)(void *ctx, const char *text, rk_err *e);
	void (*stop)(void *ctx);
	void (*pause)(void *ctx, bool paused);
	void (*single_step)(void *ctx);
	void (*pace)(void *ctx, float tok_per_s);	/* 0: as fast as it goes */
	const char *recording;		/* the trace that is being written; NULL: none */
	/* Writes what happens from here on to a trace; *after: how many tokens of the session are not in it.  RK_EUSAGE: path
	 * exists and force is false. */
	int (*record)(void *ctx, const char *path, bool force, int *after, rk_err *e);
	int (*stop_recording)(void *ctx, rk_err *e);
	const char *(*token_text)(void *ctx, int32_t id, size_t *len);	/* NULL: ids are shown as numbers */
} rk_feed;

#endif
