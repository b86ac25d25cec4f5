/* aid_attn_bed.h: a CPU backend without a model, with caches and lanes, to run the attention operations on.
 *
 * Two layers, of which the second is used, so that a wrong layer offset shows.  Every cache array is an allocation of
 * its own with a canary behind it, and keys and values are kept in a ref_seq as well.
 */
#ifndef RK_TESTS_AID_ATTN_BED_H
#define RK_TESTS_AID_ATTN_BED_H

#include "cpu/cpu.h"
#include "aid_ref_attn.h"

#define BED_LAYER 1

typedef struct bed {
	rk_hparams hp;
	rk_cpu c;
	ref_seq seq;
	rk_store prompt;
} bed;

typedef struct bed_shape {
	enum rk_isa isa;
	int n_thread, n_head, n_kv, d;
	size_t kv_bytes;
	int max_rows, max_pos;
} bed_shape;

/* Does this machine have it? */
bool bed_has_isa(enum rk_isa isa);
void bed_open(bed *b, const bed_shape *s, int prompt_cap);
void bed_close(bed *b);	/* checks the canaries */

/* Deterministic: uniform in [-1, 1), or whole numbers in [-range, range]. */
void bed_random(uint32_t *state, float *x, size_t n);
void bed_integers(uint32_t *state, float *x, size_t n, int range);

void bed_store_init(bed *b, rk_store *st, int cap, int pos0);
void bed_store_free(bed *b, rk_store *st);
/* k, v [n][n_kv][d] to elements at .. at+n-1 of st and to the sequence at st->pos0 + at; st->len = at + n. */
void bed_append(bed *b, rk_store *st, int at, const float *k, const float *v, int n);

/* A lane over b->prompt with room for max_new tokens. */
void bed_lane_init(bed *b, rk_lane_cache *l, const rk_policy *pol, int budget, bool keeps_full, int max_new);
void bed_lane_free(bed *b, rk_lane_cache *l);

void *bed_alloc(size_t bytes);	/* with a canary; bed_free checks it */
void bed_free(void *p);

/* Bound on the error of an attention output over n positions computed in f32 from exact inputs (see the .c file). */
double bed_tolerance(const bed *b, double q_max, double k_max, double v_max, int n);

#endif
