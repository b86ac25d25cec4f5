/* engine.h: the engine thread: commands in, events out.
 *
 * Opens model, tokenizer, chat template and backend on the caller's thread, then owns backend and session on its own.
 * Readers of the event stream never touch the session.  Commands go through a small bounded queue and run in order; stop is
 * a flag that takes effect within one prefill chunk or one step.
 */
#ifndef RK_ENGINE_ENGINE_H
#define RK_ENGINE_ENGINE_H

#include "engine/event.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "model/chat.h"
#include "model/tokenizer.h"

enum rk_follow {
	RK_FOLLOW_NONE,		/* each lane samples its own tokens */
	RK_FOLLOW_FIRST,	/* every lane takes lane 0's tokens */
	RK_FOLLOW_TEXT,		/* every lane takes the given tokens: teacher forcing */
};

typedef struct rk_engine_cfg {
	const char *model_path;
	const char *chat_template;	/* NULL: recognise from the file */
	bool raw;			/* no chat template: the prompt is the text as it stands */
	rk_backend_cfg backend;		/* max_rows, max_pos are filled in from session */
	rk_session_cfg session;
	rk_sampling sampling;
	bool one_turn;			/* caches are sized for the prompt and one reply; otherwise for the whole context */
	bool lossy_events;		/* interactive: never wait for a slow reader */
} rk_engine_cfg;

typedef struct rk_engine rk_engine;

int rk_engine_open(rk_engine **g, const rk_engine_cfg *cfg, rk_err *e);
/* Stops what runs, joins the thread, frees everything. */
void rk_engine_close(rk_engine *g);

/* Immutable after open; any thread. */
const rk_model *rk_engine_model(const rk_engine *g);
const rk_tokenizer *rk_engine_tokenizer(const rk_engine *g);
const rk_chat_template *rk_engine_chat(const rk_engine *g);
const rk_backend *rk_engine_backend(const rk_engine *g);
int rk_engine_n_ctx(const rk_engine *g);	/* most positions of a lane */
rk_event_ring *rk_engine_events(rk_engine *g);

/* Text and ids of a first turn, as rk_engine_ask would send it, and (said, see rk_chat_turn) where in the text people's own words are.
 * *text and *ids are allocated; any of them may be NULL. */
int rk_engine_format(const rk_engine *g, const char *system, const char *user, char **text, rk_stretch said[2], int32_t **ids, size_t *n,
                     rk_err *e);

/* Commands: queued, return at once (-1 with e when the queue is full or an argument is wrong); what happens is told by
 * events, ending with RK_EV_IDLE, or RK_EV_ERROR then RK_EV_IDLE. */

/* The user's message: the first starts the session, later ones are further turns.  max_new bounds each lane's reply. */
int rk_engine_ask(rk_engine *g, const char *system, const char *user, int max_new, enum rk_follow follow, rk_err *e);
/* A prompt in tokens, always from an empty session; forced (for RK_FOLLOW_TEXT): n_forced tokens that the lanes take,
 * and max_new has no meaning. */
int rk_engine_ask_ids(rk_engine *g, const int32_t *ids, int n, int max_new, enum rk_follow follow, const int32_t *forced, int n_forced,
                      rk_err *e);
/* The same in two parts: policies select with the first n - n_after tokens alone; the rest comes as a further turn, see
 * rk_session_turn, and the reply follows it. */
int rk_engine_ask_parts(rk_engine *g, const int32_t *ids, int n, int n_after, int max_new, enum rk_follow follow, rk_err *e);
/* Forgets the conversation and frees its caches. */
int rk_engine_reset(rk_engine *g, rk_err *e);
/* See rk_session_set_policy; takes effect before the next step, also while a reply is running. */
int rk_engine_set_policy(rk_engine *g, int lane, const char *spec, rk_err *e);
/* One lane more, after the others, or one less.  The conversation is forgotten, as by reset: lanes share one prefill.  A change
 * that cannot be made (too many or too few lanes, no memory) is an RK_EV_ERROR and changes nothing; one that is made is told by the
 * start of the next session, and by n_lane once it is carried out. */
int rk_engine_add_lane(rk_engine *g, const char *spec, rk_err *e);
int rk_engine_drop_lane(rk_engine *g, int lane, rk_err *e);
int rk_engine_n_lane(const rk_engine *g);	/* any thread */
/* Seed of the samplers from the next start of a session on. */
void rk_engine_seed(rk_engine *g, uint64_t seed);
/* Pace of a reply, at once and outside the queue: paused, it waits before the next step; single_step lets one more through;
 * tok_per_s > 0 is a ceiling. */
void rk_engine_pause(rk_engine *g, bool paused);
void rk_engine_single_step(rk_engine *g);
void rk_engine_pace(rk_engine *g, float tok_per_s);
/* Ends the running prefill or reply; safe in a signal handler. */
void rk_engine_stop(rk_engine *g);

#endif
