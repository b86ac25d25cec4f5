/* session.h: lanes over one shared prompt: prefill, decode step, further turns.  No threads, no events.
 *
 * Owns the caches and the activation buffers; used by the engine thread only (tests call it directly).
 * All memory is planned and allocated by rk_session_start, once the prompt's length is known; rk_session_step allocates nothing.
 */
#ifndef RK_ENGINE_SESSION_H
#define RK_ENGINE_SESSION_H

#include "backend/backend.h"
#include "engine/event.h"
#include "engine/plan.h"

typedef struct rk_session {
	const rk_model *m;
	rk_backend *b;
	rk_session_cfg cfg;
	rk_plan plan;
	int n_prompt;			/* 0: not started */
	rk_store prompt;		/* C_f of the prompt, shared by all lanes; freed after the prefill if no lane keeps it */
	rk_lane_cache lane[RK_MAX_LANE + 1];	/* the shadow, if any, comes after the n_lane others */
	rk_step_report report[RK_MAX_LANE];	/* of the last step */
	int64_t ns_attn[RK_MAX_LANE];	/* of the last step, per lane */
	int64_t ns_shared;		/* of the last step: everything but attention */
	float *logits;			/* [n_lane + shadow][n_vocab] each lane's prediction for its next token (host) */
	float lse[RK_MAX_LANE + 1];	/* the shadow's is that of its last prefill */
	int32_t argmax[RK_MAX_LANE + 1];
	int32_t *pos;			/* [n_kv_head * (1 + n_prompt + max_new)] work space of the two functions that look into rings */
	struct rk_act *act;		/* activation buffers, private to forward.c */
} rk_session;

/* Return non-zero from on_progress to cancel. */
typedef int (*rk_progress_fn)(void *ctx, int done, int total);

/* The backend must have been opened with max_rows >= chunk. */
int rk_session_init(rk_session *s, const rk_model *m, rk_backend *b, const rk_session_cfg *cfg, rk_err *e);
void rk_session_free(rk_session *s);

/* Back to an empty session; its memory is given back. */
void rk_session_clear(rk_session *s);

/* Plans, allocates, prefills the prompt for all lanes, makes each lane's first selection.  max_new bounds the tokens that
 * each lane may take after the prompt (replies and further turns).  Errors: prompt empty, longer than the context (both
 * numbers), memory.  Returns 1 when cancelled by on_progress (the session is then empty again). */
int rk_session_start(rk_session *s, const int32_t *ids, int n, int max_new, rk_progress_fn on_progress, void *ctx, rk_err *e);

/* Feeds one token to each of the n listed lanes and predicts the next: logits, lse, argmax, report, ns_* are updated. */
int rk_session_step(rk_session *s, const int *lanes, const int32_t *ids, int n, rk_err *e);

/* A further turn of one lane: n tokens.  Lanes that keep C_f are prefilled against it and select anew from the last token;
 * the others are fed token by token through decode steps (kept set + new).  1 when cancelled: a lane that keeps C_f is then
 * as before; of another the tokens fed so far stay. */
int rk_session_turn(rk_session *s, int lane, const int32_t *ids, int n, rk_progress_fn on_progress, void *ctx, rk_err *e);

/* Forgets what a lane that keeps C_f has taken from position n_pos on; a further turn must follow, which selects anew. */
void rk_session_rewind(rk_session *s, int lane, int n_pos);

/* The shadow takes n <= RK_SHADOW_BATCH tokens that lane 0 has taken; logits [n][n_vocab] (host), lse and argmax [n] predict the
 * token after each.  *ns_attn: attention of one vanilla decode step at this length, measured on one layer. */
int rk_session_shadow(rk_session *s, const int32_t *ids, int n, float *logits, float *lse, int32_t *argmax, int64_t *ns_attn, rk_err *e);

/* What each layer of a lane's cache holds: out [n_layer]. */
void rk_session_occupancy(const rk_session *s, int lane, rk_layer_occupancy *out);

/* The ring of one layer into s->pos: per KV head a count, then the positions by slot.  Returns how many numbers. */
int rk_session_positions(rk_session *s, int lane, int layer);

/* Positions that the lane can still take. */
int rk_session_room(const rk_session *s, int lane);

/* Changes a lane's policy between steps: "key=value,..." or a whole spec.  A change that the ring depends on (k, bits
 * from or to 0, or another preset) makes the next step a refresh in all layers, and needs the full cache: without it, an error. */
int rk_session_set_policy(rk_session *s, int lane, const char *spec, rk_err *e);

/* Bytes of C_f (prompt store, tails, their sketches) and C_p now held. */
void rk_session_cache_bytes(const rk_session *s, int64_t *full, int64_t *partial);

/* forward.c, used by session.c */
int rk_act_init(rk_session *s, int n_prompt, rk_err *e);
void rk_act_free(rk_session *s);
size_t rk_act_bytes(const rk_backend *b, const rk_session_cfg *cfg, int n_prompt);
/* One chunk of the shared prompt (lane < 0) or of a lane's tail; the store's len is advanced.  last: make the selections
 * (of all lanes, or of that lane) and leave the logits in rows of s->logits. */
void rk_forward_prefill(rk_session *s, int lane, const int32_t *ids, int n, bool last);
void rk_forward_step(rk_session *s, const int *lanes, const int32_t *ids, int n);
void rk_forward_shadow(rk_session *s, const int32_t *ids, int n, float *logits, float *lse, int32_t *argmax, int64_t *ns_attn);

#endif
