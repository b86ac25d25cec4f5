/* record.h: what a reply was, gathered from the event stream: tokens, text and decisions per lane beside the figures of
 * engine/stats.h.  The printers of run, ppl and compare read it when the reply is complete.
 *
 * Filled on the thread that reads the events; owns copies of everything.
 */
#ifndef RK_CMD_RECORD_H
#define RK_CMD_RECORD_H

#include <jansson.h>
#include "engine/event.h"
#include "engine/stats.h"
#include "model/tokenizer.h"

typedef struct rk_lane_record {
	char *text;			/* NUL-terminated; may hold ill-formed UTF-8, as a model can emit any byte */
	size_t text_len, text_cap;
	rk_event *token;		/* [n_token] the RK_EV_TOKEN events */
	size_t n_token, cap_token;
	rk_layer_step *layer;		/* [n_step][n_layer] what each layer did in each step; cap_layer counts elements */
	size_t n_step, cap_layer;
} rk_lane_record;

typedef struct rk_record {
	rk_stats stats;
	rk_lane_record lane[RK_MAX_LANE];
} rk_record;

void rk_record_init(rk_record *r);
void rk_record_free(rk_record *r);
int rk_record_add(rk_record *r, const rk_event *ev, const void *payload, rk_err *e);

/* exp(mean NLL of lane - mean NLL of base); NAN where the two were not scored on the same tokens. */
double rk_record_ratio(const rk_record *r, int lane, int base);
/* Mean KL(baseline || lane) in nats and share of tokens with the baseline's most probable token; NAN without a baseline. */
double rk_record_kl(const rk_record *r, int lane);
double rk_record_same_top1(const rk_record *r, int lane);
/* Bytes that attending everything would have read per step; NAN without steps. */
double rk_record_bytes_vanilla(const rk_record *r, int lane);

/* Index of the first token at which two lanes part, -1: none.  A reply that is a prefix of the other parts at its end. */
int64_t rk_record_divergence(const rk_lane_record *a, const rk_lane_record *b);
/* The lane's own choice at index i in quotes, or "(end)" behind the reply; into out or a literal.  t NULL: what it would have taken
 * instead of a given token is known by its number only. */
const char *rk_record_choice(const rk_lane_record *l, size_t i, const rk_tokenizer *t, char *out, size_t size);

/* New references, or NULL when memory ran out. */
json_t *rk_record_full_layers_json(const rk_record *r, int lane);	/* [[layer, ...], ...] per step */
json_t *rk_record_cos_json(const rk_record *r, int lane);	/* [[step, layer, cosine], ...] */
json_t *rk_record_top_json(const rk_record *r, int lane);	/* [[id, logit], ...] after the prompt: RK_TOP entries */
json_t *rk_record_nll_json(const rk_record *r, int lane);	/* [nll, ...] per token */
/* All of one lane: spec, text, ids, logprob and margin per token, figures, decisions. */
json_t *rk_record_lane_json(rk_record *r, int lane);

const char *rk_record_end_name(const rk_lane_stats *l);

#endif
