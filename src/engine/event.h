/* event.h: what the engine tells the world: fixed-size records in a single-producer single-consumer ring, with variable
 * parts (text, per-layer figures) in a byte ring beside it.
 *
 * The engine thread writes, one other thread reads.  Screen, recorder and printers are all readers of this stream; a
 * trace is the stream written down.  When the ring is full, a `wait` ring makes the engine wait (batch commands must not
 * lose output), a lossy one (interactive) counts what it dropped and says so with RK_EV_GAP before the next record.
 */
#ifndef RK_ENGINE_EVENT_H
#define RK_ENGINE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define RK_TOP 10	/* most probable tokens reported with each token */

enum rk_event_type {
	RK_EV_START,	/* caches planned and allocated; text: the lanes' canonical specs, one per line */
	RK_EV_PREFILL,	/* progress; lane -1 while the shared prompt is prefilled */
	RK_EV_TOKEN,	/* a token was chosen; text: the characters it completes (may be empty: a character is held back) */
	RK_EV_STEP,	/* that token went through the model; layers: what each layer did */
	RK_EV_OCCUPANCY,	/* what a lane's C_p holds, per layer: every RK_OCCUPANCY_EVERY steps and when its reply ends */
	RK_EV_POSITIONS,	/* the C_p of one layer after a selection; only where the session asks for it */
	RK_EV_SHADOW,	/* the vanilla shadow scored a token of lane 0, up to RK_SHADOW_BATCH tokens late */
	RK_EV_CONTROL,	/* a lane's policy changed; text: its canonical spec */
	RK_EV_END,	/* a lane's reply is complete; text: what was still held back.  Lane -1: a prefill was cancelled */
	RK_EV_IDLE,	/* the command is done, the engine waits for the next */
	RK_EV_GAP,	/* events were lost */
	RK_EV_ERROR,	/* the command failed, or, with a lane, a change of its policy was refused and all goes on; text: the message */
};

enum rk_end { RK_END_TOKEN, RK_END_LENGTH, RK_END_CONTEXT, RK_END_STOPPED, RK_END_FORCED };

/* One layer of one step, in the payload of RK_EV_STEP. */
typedef struct rk_layer_step {
	float cos;	/* NaN: no check was due */
	float churn;	/* share of C_p replaced, NaN: no selection */
	uint8_t kind;	/* enum rk_step_kind of backend.h */
} rk_layer_step;

/* One layer of a lane's C_p (of C_f for vanilla), in the payload of RK_EV_OCCUPANCY.  Counts are entries summed over the KV
 * heads; each entry counts once: as a sink (positions 0 to 3), else recent (the last 64), else by where it came from. */
#define RK_COVERAGE 32
#define RK_OCCUPANCY_EVERY 16
typedef struct rk_layer_occupancy {
	uint32_t sink, prompt, generated, recent;
	uint8_t coverage[RK_COVERAGE];	/* share held of each 1/32 of the prompt, mean over KV heads: 255 = all of it */
} rk_layer_occupancy;

typedef struct rk_event {
	uint8_t type;		/* enum rk_event_type */
	int8_t lane;		/* -1: the session */
	int32_t index;		/* TOKEN: index in the reply, 0 from the prefill.  STEP: decode step i since the prefill */
	int64_t t_ns;		/* monotonic clock */
	uint32_t size;		/* bytes of payload */
	uint64_t at;		/* private: where the payload lies in the byte ring */
	union {
		struct { int32_t n_prompt, n_lane, n_layer; int64_t bytes_full, bytes_partial; } start;	/* cache bytes allocated */
		struct { int32_t done, total; int64_t ns; } prefill;				/* tokens; ns since its start */
		struct {
			int32_t id, pos;		/* pos: position it will be fed at */
			float logprob;			/* natural log, of this lane's own distribution before temperature */
			float lse;			/* log sum exp of the logits: logit = logprob + lse */
			float kl;			/* KL(baseline || lane) of the same history; NaN without a baseline */
			bool same_top1;			/* same most probable token as the baseline's */
			bool forced;			/* given by follow, not sampled */
			int32_t top_id[RK_TOP];
			float top_logprob[RK_TOP];
		} token;
		struct {
			int32_t pos;
			int64_t ns_shared;		/* weights and all else that lanes share */
			int64_t ns_attn;		/* this lane's attention, decisions and refreshes */
			int64_t bytes_full, bytes_partial, bytes_score;	/* K and V bytes read */
			int64_t bytes_vanilla;		/* what attending everything reads at this step */
		} step;
		struct {
			float logprob, lse;		/* of the same token, by full attention over the same history */
			float kl;			/* KL(vanilla || lane 0) */
			bool same_top1;
			int64_t ns;			/* what watching cost, per token of its batch */
			int64_t ns_vanilla_attn;	/* attention of one vanilla step here: measured on one layer, times n_layer */
		} shadow;
		struct { int32_t layer, n_kv_head; } positions;	/* payload: per KV head a count, then that many positions; int32 */
		struct { enum rk_end reason; int32_t n_token; uint64_t logits_hash; } end;
		struct { int64_t lost; } gap;
		struct { enum rk_code code; } error;
	};
} rk_event;

/* The token that a lane would have taken of itself: what it took, or its most probable one where the token was given. */
static inline int32_t rk_event_own_choice(const rk_event *token)
{
	return token->token.forced ? token->token.top_id[0] : token->token.id;
}

typedef struct rk_event_ring rk_event_ring;

/* n_event and n_byte are rounded up to powers of two. */
int rk_event_ring_init(rk_event_ring **r, size_t n_event, size_t n_byte, bool wait, rk_err *e);
void rk_event_ring_free(rk_event_ring *r);

/* Producer.  size: at most half of the ring's bytes; a larger payload is a lost event. */
void rk_event_push(rk_event_ring *r, const rk_event *ev, const void *payload, size_t size);
/* Consumer: makes a producer that waits for room give up waiting (it counts losses instead), before joining its thread. */
void rk_event_ring_close(rk_event_ring *r);

/* Consumer: 1 and *ev filled, 0 when none came within timeout_ms (-1: wait for ever).  The payload, at a multiple of 8, stays valid
 * until the next rk_event_next. */
int rk_event_next(rk_event_ring *r, rk_event *ev, const void **payload, int timeout_ms);
int64_t rk_event_lost(const rk_event_ring *r);
/* A descriptor that polls readable when events came while the consumer slept in poll(); see rk_event_next. */
int rk_event_fd(const rk_event_ring *r);

#endif
