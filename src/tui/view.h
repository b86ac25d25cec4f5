/* view.h: all that the screen knows: a model built from the event stream and from what the user said, nothing else.
 *
 * A live session, a recording and a test with made-up events give the same view.  Memory is bounded: each lane keeps the
 * details of its last `keep` tokens (probabilities, layers, figures); of older ones only the text stays.  Tokens are known
 * by a serial number that never starts over, so that one cursor means the same token in every pane.
 * Owned and used by the UI thread.
 */
#ifndef RK_TUI_VIEW_H
#define RK_TUI_VIEW_H

#include "engine/stats.h"

#define RK_VIEW_KEEP 16384
#define RK_VIEW_TOP 5
#define RK_VIEW_WINDOW 64	/* tokens of the windowed ratio */

/* One layer of one step. */
typedef struct rk_view_layer {
	int16_t cos;		/* cosine x 10,000; RK_VIEW_NO_COS: no check was due */
	uint8_t churn;		/* 0 to 254 = share of C_p that was replaced; 255: no selection */
	uint8_t kind;		/* enum rk_step_kind */
} rk_view_layer;
#define RK_VIEW_NO_COS INT16_MIN

typedef struct rk_view_token {
	int32_t id, pos, index;		/* index in its reply */
	int32_t choice;			/* rk_event_own_choice */
	int32_t item;			/* of the transcript */
	uint32_t text_at, text_len;	/* in the lane's text */
	float logprob, lse;
	float kl;			/* to the baseline lane or the shadow; NAN: neither */
	bool same_top1, forced;
	int32_t top_id[RK_VIEW_TOP];
	float top_logprob[RK_VIEW_TOP];
	/* Once the vanilla shadow has scored it; NAN before. */
	float shadow_logprob;
	double cum_nll;			/* sum of (shadow's logprob - own) over the n_cum scored tokens up to this one */
	int32_t n_cum;
	/* Once it went through the model. */
	bool stepped;
	int32_t step;			/* i: decode step since the prefill */
	uint16_t n_full;		/* layers that took a full step */
	float ms_shared, ms_attn;
	int64_t bytes_full, bytes_partial, bytes_score, bytes_vanilla;
} rk_view_token;

typedef struct rk_view_lane {
	char *text;			/* all of the lane's replies, one after the other; owned */
	size_t n_text, cap_text;
	int64_t n_token;		/* serial of the next token */
	int64_t n_before;		/* tokens from before the rings were made: no details */
	rk_view_token *token;		/* [keep] ring; owned */
	rk_view_layer *layer;		/* [keep][n_layer] ring; owned */
	rk_layer_occupancy *occ;	/* [n_occ][n_layer] ring of snapshots; owned */
	int64_t *occ_serial;		/* [n_occ] serial of the newest token at that time, -1: empty; owned */
	int occ_next;
	double cum_nll, cum_kl;		/* lane 0: over the tokens that the shadow scored in this session */
	int32_t n_cum, n_same;
	float ms_vanilla_attn;		/* as last measured by the shadow; NAN: never */
	float ms_shadow;		/* what watching costs per token */
} rk_view_lane;

enum rk_item_kind { RK_ITEM_USER, RK_ITEM_REPLY, RK_ITEM_NOTE };

typedef struct rk_view_item {
	enum rk_item_kind kind;
	char *text;			/* USER, NOTE; owned */
	bool past;			/* REPLY of other lanes than there are now, or of an earlier run: lane 0's text stands for all */
	/* REPLY, per lane: */
	int64_t first[RK_MAX_LANE];	/* serial of its first token */
	int32_t n_token[RK_MAX_LANE];
	size_t text_at[RK_MAX_LANE], text_len[RK_MAX_LANE];
	int32_t differs[RK_MAX_LANE];	/* index of the first token where the lane's own choice is not lane 0's, -1: none so far */
	bool other_text[RK_MAX_LANE];	/* it took other tokens than lane 0; lanes that follow one text never do */
	int8_t end[RK_MAX_LANE];	/* enum rk_end; -1: running */
} rk_view_item;

enum rk_view_phase { RK_PHASE_IDLE, RK_PHASE_WAITING, RK_PHASE_PREFILL, RK_PHASE_REPLY };

typedef struct rk_view {
	int keep, n_occ;
	int n_lane, n_layer;		/* 0: no session yet */
	rk_view_lane lane[RK_MAX_LANE];
	rk_stats stats;			/* sums over the session: the figures that `run` prints */
	rk_view_item *item;		/* the transcript; owned */
	int n_item, cap_item;
	unsigned n_cut;			/* times that items were dropped */
	enum rk_view_phase phase;
	int prefill_lane, prefill_done, prefill_total;
	int64_t prefill_ns;
	bool out_of_memory;		/* some text or detail could not be kept */
} rk_view;

int rk_view_init(rk_view *v, int keep, rk_err *e);
void rk_view_free(rk_view *v);
int rk_view_restart(rk_view *v, rk_err *e);	/* as if nothing had been seen: the feed starts over */

/* payload: ev->size bytes. */
void rk_view_event(rk_view *v, const rk_event *ev, const void *payload);
void rk_view_say(rk_view *v, enum rk_item_kind kind, const char *text);	/* a line of the user, or a note of the program */
void rk_view_note(rk_view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A question is on its way: the screen waits for events. */
void rk_view_asked(rk_view *v);
/* Drops item n and everything after it: to ask again. */
void rk_view_cut(rk_view *v, int n);
/* A reply of an earlier run, without details, for a resumed session. */
void rk_view_past_reply(rk_view *v, const char *text);

/* NULL: never seen, or too old for details. */
const rk_view_token *rk_view_token_at(const rk_view *v, int lane, int64_t serial);
const rk_view_layer *rk_view_layers_at(const rk_view *v, int lane, int64_t serial);	/* [n_layer]; NULL also before its step */
/* The newest snapshot that is not later than serial, [n_layer]; NULL: none. */
const rk_layer_occupancy *rk_view_occupancy_at(const rk_view *v, int lane, int64_t serial, int64_t *taken);
int64_t rk_view_oldest(const rk_view *v, int lane);	/* serial of the oldest token with details */
/* The serial of the token whose text holds byte `at` of a reply; -1: none with details. */
int64_t rk_view_token_of(const rk_view *v, const rk_view_item *it, int lane, size_t at);
/* The last item of a kind, -1: none. */
int rk_view_last(const rk_view *v, enum rk_item_kind kind);

/* Means over the last `window` stepped tokens up to serial; NAN: none. */
typedef struct rk_view_speed {
	int n;
	double ms, ms_shared, ms_attn;
	double bytes_full, bytes_partial, bytes_score, bytes_vanilla;
} rk_view_speed;
rk_view_speed rk_view_speed_at(const rk_view *v, int lane, int64_t serial, int window);

/* The ratio to the shadow up to serial and over the last RK_VIEW_WINDOW scored tokens before it; NAN: no baseline. */
void rk_view_ratio_at(const rk_view *v, int64_t serial, double *running, double *windowed);
/* exp(mean NLL of lane - mean NLL of the first vanilla lane) where both took the same tokens; else NAN. */
double rk_view_lane_ratio(const rk_view *v, int lane);
int rk_view_base_lane(const rk_view *v);	/* the first vanilla lane, -1: none */

const char *rk_view_end_name(int end);
/* A policy without the parameters that its preset has anyway: what is worth a narrow screen. */
char *rk_view_brief(const char *spec, char out[RK_SPEC_MAX]);

#endif
