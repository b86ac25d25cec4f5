/* plan.h: how much memory a session will take, before any of it is taken. */
#ifndef RK_ENGINE_PLAN_H
#define RK_ENGINE_PLAN_H

#include "backend/backend.h"

#define RK_DEFAULT_CHUNK 512
#define RK_SHADOW_BATCH 16	/* tokens that the shadow takes per read of weights and cache */

typedef struct rk_session_cfg {
	int n_ctx;		/* most positions of a lane; 0: the model's training context */
	int chunk;		/* prefill chunk in tokens; 0: RK_DEFAULT_CHUNK */
	bool keep_full;		/* keep C_f for every lane, so that its policy can be switched live */
	bool shadow;		/* a hidden vanilla lane that scores lane 0's tokens in batches: the baseline of the ratio */
	bool positions;		/* report the positions of every selection (RK_EV_POSITIONS) */
	int n_lane;
	rk_policy lane[RK_MAX_LANE];	/* kept up to date by rk_session_set_policy: what the next start takes */
} rk_session_cfg;

typedef struct rk_plan {
	int n_prompt, max_new, n_lane;
	size_t weights;			/* of the file */
	size_t prompt_store;		/* C_f of the prompt, shared */
	size_t tail[RK_MAX_LANE + 1];	/* C_f of the lanes' own tokens, and reference queries; the shadow's after the others */
	size_t sketch;			/* sketches of C_f, of all stores */
	size_t partial[RK_MAX_LANE];	/* C_p */
	size_t activations;		/* session buffers, logits included */
	size_t backend;			/* the backend's scratch */
	size_t total;
} rk_plan;

/* weight_bytes: of the file.  cfg->chunk must be set. */
void rk_plan_make(rk_plan *p, const rk_backend *b, size_t weight_bytes, const rk_session_cfg *cfg, int n_prompt, int max_new);
/* RK_ENOMEM when the caches and buffers exceed what the device, or the machine (or its control group), has left; the message
 * names the size, what is available, and the flag that lowers it. */
int rk_plan_check(const rk_plan *p, rk_backend *b, rk_err *e);

#endif
