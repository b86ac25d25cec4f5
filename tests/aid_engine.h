/* aid_engine.h: what the engine's tests share: a tiny model with a backend and a session on it, and an independent
 * simulation of that session.
 *
 * The simulation (aid_sim) is a plain forward pass in double precision with list-based caches, one lane at a time, written
 * from docs/POLICIES.md alone: it shares the model file's loader and dequantisation with the program, nothing else.
 * Failures of the helpers themselves are aborts with a message.
 */
#ifndef AID_ENGINE_H
#define AID_ENGINE_H

#include "aid_gguf.h"
#include "engine/session.h"

typedef struct aid_rig {
	int fd;			/* the tiny model's file; -1: a model that was opened by path */
	rk_model *m;
	rk_backend *b;
	rk_session s;
} aid_rig;

typedef struct aid_rig_opt {
	aid_tiny tiny;
	uint64_t seed;		/* [1] of the model */
	const char *path;	/* a model file instead of a tiny one */
	bool exact;
	int n_thread;		/* [1] */
	int chunk, n_ctx;	/* as in rk_session_cfg */
	bool keep_full;
	const char *lanes[RK_MAX_LANE + 1];	/* policy specs, NULL-terminated */
} aid_rig_opt;

void aid_rig_open(aid_rig *r, const aid_rig_opt *opt);
void aid_rig_close(aid_rig *r);

rk_policy aid_policy(const char *spec);
/* n token ids of ordinary text (no control tokens), reproducible; the caller frees them. */
int32_t *aid_ids(int n, int n_vocab, uint64_t seed);

/* rk_session_start and rk_session_step, which must succeed. */
void aid_start(rk_session *s, const int32_t *ids, int n, int max_new);
void aid_step_all(rk_session *s, int32_t id);		/* the same token to every lane */
void aid_step_one(rk_session *s, int lane, int32_t id);
const float *aid_logits(const rk_session *s, int lane);
double aid_max_diff(const float *a, const float *b, int n);

/* ---- the simulation ---- */

typedef struct aid_sim aid_sim;

/* half: keys and values are rounded to binary16 as they enter a cache. */
aid_sim *aid_sim_new(const rk_model *m, const rk_policy *pol, bool half);
void aid_sim_free(aid_sim *w);
void aid_sim_start(aid_sim *w, const int32_t *ids, int n);
/* follow: NULL, or the kinds [n_layer] that the program chose; where a decision is closer than `tie` to its threshold the
 * simulation then decides likewise. */
void aid_sim_step(aid_sim *w, int32_t id, const uint8_t *follow, double tie);
void aid_sim_turn(aid_sim *w, const int32_t *ids, int n);
/* As rk_session_set_policy of a lane that keeps C_f; ring: the change needs another partial cache. */
void aid_sim_set_policy(aid_sim *w, const rk_policy *pol, bool ring);

const double *aid_sim_logits(const aid_sim *w);		/* [n_vocab] */
enum rk_step_kind aid_sim_kind(const aid_sim *w, int layer);	/* of the last step */
double aid_sim_cos(const aid_sim *w, int layer);	/* NaN: no check was due */
int aid_sim_near_ties(const aid_sim *w);		/* decisions taken from `follow` so far */
/* Relative gap between the lowest score kept and the highest dropped, the smallest over all selections and evictions so
 * far: below the rounding of f32 another selection would be as good. */
double aid_sim_margin(const aid_sim *w);
/* Positions in the ring, in the order in which they will be given up (POSITION: ascending); returns their number. */
int aid_sim_ring(const aid_sim *w, int layer, int kv_head, int32_t *pos);

#endif
