/* replay_feed.h: a recorded trace, or two side by side, as the feed of a screen: the same events at the same pace, or faster, held, stepped, sought.
 *
 * UI thread only.  Seeking reads the trace from its start and hands over all events up to the place without waiting, because
 * what the screen shows is sums over the stream.
 */
#ifndef RK_CMD_REPLAY_FEED_H
#define RK_CMD_REPLAY_FEED_H

#include "trace/pair.h"
#include "tui/feed.h"

typedef struct rk_replay {
	rk_pair *p;			/* borrowed */
	double speed;			/* times the recorded pace; 0: no waiting */
	rk_event ev;			/* read, not handed over yet */
	const void *payload;
	bool have, ended;
	const int64_t *clock;		/* NULL: the machine's monotonic clock; else the caller's, borrowed */
	int64_t origin_ns;		/* clock at which t_ns = base_ns is due */
	int64_t base_ns;
	bool paused;
	int may_step;
	float tok_per_s;		/* ceiling instead of the recorded pace; 0: none */
	int64_t last_token_ns;
	int64_t rush_token;		/* hand over without waiting up to this many tokens of lane 0 */
	int64_t n_token;
	const rk_tokenizer *tok;	/* see rk_replay_vocabulary; borrowed */
	rk_err why;			/* a damaged line, shown as an error event */
	rk_feed feed;
} rk_replay;

/* clock: see above; what it says now is the start. */
void rk_replay_init(rk_replay *r, rk_pair *p, double speed, const int64_t *clock);
/* Tokens are shown as text from here on; without, those that were not chosen are numbers.  NULL: none. */
void rk_replay_vocabulary(rk_replay *r, const rk_tokenizer *tok);

#endif
