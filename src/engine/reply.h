/* reply.h: one reply of all lanes: choose tokens, report them, step, until every lane has ended.
 *
 * Owns the lanes' samplers and the bytes of characters that are not whole yet.  Engine thread only.
 */
#ifndef RK_ENGINE_REPLY_H
#define RK_ENGINE_REPLY_H

#include "engine/engine.h"

typedef struct rk_reply_lane {
	rk_sampler sampler;
	bool active;
	int32_t token;		/* chosen, not yet fed; -1: none */
	int n_token;
	char held[8];		/* bytes of a character that further tokens complete */
	int n_held;
} rk_reply_lane;

typedef struct rk_reply {
	rk_session *s;
	const rk_tokenizer *tok;
	rk_event_ring *events;
	int base;		/* lane of the first vanilla policy, -1: none: the baseline of KL and same-top-1 */
	int max_new;
	enum rk_follow follow;
	const int32_t *forced;	/* the command's; valid while the reply runs */
	int n_forced;
	bool diverged;		/* lanes have gone their own ways in this conversation: no lane is another's baseline */
	int t;			/* index of the next token */
	rk_reply_lane lane[RK_MAX_LANE];
	struct rk_shadow *shadow;	/* NULL: the session has none; owned */
} rk_reply;

int rk_reply_init(rk_reply *r, rk_session *s, const rk_tokenizer *tok, rk_event_ring *events, const rk_sampling *cfg, rk_err *e);
void rk_reply_free(rk_reply *r);
/* A new conversation: seeds start over, nothing is pending. */
void rk_reply_forget(rk_reply *r);

void rk_reply_begin(rk_reply *r, int max_new, enum rk_follow follow, const int32_t *forced, int n_forced);
/* One token per active lane, then one step.  1: go on; 0: all lanes have ended; -1: error. */
int rk_reply_step(rk_reply *r, bool stop, rk_err *e);

/* The shadow takes the tokens that still wait for it: before a further turn, so that it has what lane 0 has. */
int rk_reply_catch_up(rk_reply *r, rk_err *e);

/* The token that ended a lane's reply and is not in its cache yet; -1: none. */
int32_t rk_reply_pending(const rk_reply *r, int lane);
void rk_reply_set_pending(rk_reply *r, int lane, int32_t id);

#endif
