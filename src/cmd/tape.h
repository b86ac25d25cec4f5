/* tape.h: the recording of a live session, begun and ended while it runs.
 *
 * Every event of the session goes through rk_tape_event, recorded or not: what a recording that begins in its middle must be
 * told first (start, prefill, the policies as they are by then) is remembered here.  Inside a reply it begins with the next
 * token of lane 0, so that no step is there in part.  UI thread only.
 */
#ifndef RK_CMD_TAPE_H
#define RK_CMD_TAPE_H

#include "engine/engine.h"
#include "trace/recorder.h"

typedef struct rk_tape {
	const rk_engine *g;		/* borrowed, as what follows */
	const rk_engine_cfg *cfg;
	const char *command;
	enum rk_follow follow;
	const char *document_sha256;	/* "": none */

	rk_recorder *recorder;		/* NULL: nothing is recorded; owned (rk_tape_end) */
	bool waiting;			/* for that token of lane 0 */
	char model_sha256[65];		/* as a recording has found it; "": none has yet */

	/* of the session, whether it is recorded or not */
	rk_event start, prefill;	/* the last ones; type RK_EV_GAP: none yet */
	int n_lane;			/* since the last start; before: as the engine was opened */
	char spec[RK_MAX_LANE][RK_SPEC_MAX];	/* policies as they are now */
	int n_token;			/* of lane 0 */
	bool in_reply, busy;
} rk_tape;

/* g to document_sha256 are the caller's to set. */
void rk_tape_init(rk_tape *t);
/* The session was cleared: nothing of it is in a trace that begins from here on.  Its lanes stay. */
void rk_tape_forget(rk_tape *t);
/* RK_EUSAGE: path exists and force is false.  *after: how many tokens of lane 0 the session has that the trace lacks. */
int rk_tape_begin(rk_tape *t, const char *path, bool force, int *after, rk_err *e);
/* -1, once, when recording has stopped because of a write error. */
int rk_tape_event(rk_tape *t, const rk_event *ev, const void *payload, rk_err *e);
/* Fine without a recording.  -1 with a write error that was not told yet. */
int rk_tape_end(rk_tape *t, rk_err *e);

#endif
