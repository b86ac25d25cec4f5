/* live.h: an engine as the source of a screen: the document goes in front of the first question, commands go to the queue.
 *
 * UI thread only; the engine has its own.
 */
#ifndef RK_CMD_LIVE_H
#define RK_CMD_LIVE_H

#include "base/paths.h"
#include "engine/engine.h"
#include "cmd/tape.h"
#include "tui/feed.h"

typedef struct rk_live {
	rk_engine *g;		/* borrowed */
	rk_tape tape;		/* gets every event; its borrowed fields are the caller's to set */
	char trace_path[RK_PATH_MAX];	/* what feed.recording points to */
	const char *document;	/* its text, NULL: none; borrowed */
	const char *system;
	int max_new;
	enum rk_follow follow;	/* of every reply: NONE or FIRST */
	const char *forced;	/* the text that the first reply is forced to follow; NULL: none */
	bool asked;		/* the first question is out */
	bool replied;		/* and the session holds it */
	bool relaid;		/* lanes have come or gone, and the session has not started with them yet */
	bool untold;		/* recording has stopped, for the reason in `why` */
	rk_err why;
	rk_feed feed;
} rk_live;

/* l's borrowed fields are set by the caller.  trace_path: what the tape's recorder, if there is one already, writes to. */
void rk_live_init(rk_live *l, const char *document_name, double bandwidth, const char *trace_path);

#endif
