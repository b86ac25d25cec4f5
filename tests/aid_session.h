/* aid_session.h: what the tests of a session assert, and which policies they run; for files that include cmocka.h.
 *
 * Tolerances of the comparison with the simulation: logits have a standard deviation near 2 and are sums that single
 * precision gets wrong by some 2^-23 of each term; what a policy selects is equal where scores are further apart than
 * that.  With an f16 cache, a key or value that lies between two halves may round the other way: 2^-11 of one element.
 */
#ifndef AID_SESSION_H
#define AID_SESSION_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "aid_engine.h"

#define TOL_F32 1.2e-4	/* 100 x 2^-23 x the largest logit, of about 10 */
#define TOL_F16 5e-3	/* keys and values off by 2^-11, the average of many */
#define TIE_F32 1e-5	/* cosines and scores nearer than this may be decided either way: 100 x 2^-23 */
#define TIE_F16 5e-4	/* 2^-11 */

/* Every preset, and every value of every axis that a preset leaves out. */
static const char *const policies[] = {
	"vanilla", "streamingllm", "snapkv", "h2o", "refreshkv:qc=5,s=0.8", "refreshkv-fixed", "refreshkv-norefresh",
	    "refreshkv-nofull:qc=3,s=0.85",
	"refreshkv:query=post,qc=2,s=0.7", "refreshkv:pool=1,group=mean,k=0.1", "refreshkv:group=first,qc=1,s=0.9",
	    "refreshkv-fixed:stride=7,pool=3",
	"snapkv:window=8", "snapkv:window=32,group=mean", "streamingllm:sinks=0,k=20", "streamingllm:k=5", "h2o:k=0.3",
	    "h2o:k=7",
	"refreshkv-norefresh:evict=none,k=3", "refreshkv:k=1", "h2o:k=1", "refreshkv-fixed:attend=selected,stride=4",
	"refreshkv-dynamic", "refreshkv:query=pre-cat,qc=2,s=0.8", "glance", "glance:stride=1,bits=8,group=max",
	    "glance:stride=3,bits=4,group=max", "glance:bits=3,s=0.95,qc=2,query=pre",
	"glance:bits=4,tail=8,group=max", "glance:stride=1,bits=3,k=0.07,tail=16,group=max",
};
#define N_POLICY (int)(sizeof policies / sizeof *policies)

static inline int by_value(const void *a, const void *b)
{
	return *(const int32_t *)a - *(const int32_t *)b;
}

/* The same positions; and where a ring's order decides who leaves, the same order. */
static inline void check_rings(const rk_session *s, const aid_sim *w)
{
	const rk_lane_cache *c = &s->lane[0];
	const rk_hparams *hp = &s->m->hp;
	int32_t want[4096], have[4096];
	if (!c->part.cap)
		return;
	for (int l = 0; l < hp->n_layer; l++)
		for (int kv = 0; kv < hp->n_kv_head; kv++) {
			size_t ring = rk_row_at(hp, l, kv, 1), base = rk_row_at(hp, l, kv, c->part.cap);
			int count = c->part.count[ring], next = c->part.next[ring], n = 0, n_want = aid_sim_ring(w, l, kv, want);
			/* the slot that the next token overwrites holds what was given up, except for sinks + recent */
			bool gone = next < count && c->pol.evict != RK_EVICT_OLDEST;
			for (int i = 0; i < count; i++) {
				int slot = gone ? (next + 1 + i) % count : i;
				if (!(gone && slot == next))
					have[n++] = c->part.pos[base + (size_t)slot];
			}
			assert_int_equal(n, n_want);
			if (c->pol.evict != RK_EVICT_LOWEST) {
				qsort(have, (size_t)n, sizeof *have, by_value);
				qsort(want, (size_t)n, sizeof *want, by_value);
			}
			assert_memory_equal(have, want, (size_t)n * sizeof *have);
		}
}

static inline double diff_from(const rk_session *s, int lane, const aid_sim *w)
{
	double max = 0;
	for (int i = 0; i < s->m->hp.n_vocab; i++)
		max = fmax(max, fabs((double)aid_logits(s, lane)[i] - aid_sim_logits(w)[i]));
	return max;
}

/* Decisions and cosines of the last step.  forced: whatever the cosine is, it was not asked for. */
static inline void check_reports(const rk_session *s, const aid_sim *w, bool forced)
{
	for (int l = 0; l < s->m->hp.n_layer; l++) {
		double cos = (double)s->report[0].cos[l], churn = (double)s->report[0].churn[l];
		assert_int_equal(s->report[0].kind[l], aid_sim_kind(w, l));
		if (!forced)
			assert_int_equal(isnan(cos), isnan(aid_sim_cos(w, l)));
		if (!forced && !isnan(cos))
			assert_float_equal(cos, aid_sim_cos(w, l), s->b->exact ? 1e-5 : 1e-3);
		assert_int_equal(isnan(churn), s->report[0].kind[l] == RK_STEP_PARTIAL || s->lane[0].pol.score == RK_SCORE_NONE);
		if (!isnan(churn))
			assert_true(churn >= 0 && churn <= 1);
	}
}

static inline void same_bits(const rk_session *a, int i, const rk_session *b, int j)
{
	assert_memory_equal(aid_logits(a, i), aid_logits(b, j), (size_t)a->m->hp.n_vocab * sizeof(float));
	assert_true(a->lse[i] == b->lse[j] && a->argmax[i] == b->argmax[j]);
}

/* exact f32 weights, default f32 weights, default quantised weights */
static inline aid_rig_opt flavour(int i)
{
	return (aid_rig_opt){ .exact = i == 0, .tiny.type = i == 2 ? RK_Q4_1 : RK_F32, .seed = 5 };
}

static inline void refused(int rc, const rk_err *e, enum rk_code code, const char *a, const char *b)
{
	assert_int_equal(rc, -1);
	assert_int_equal(e->code, code);
	if (!strstr(e->msg, a) || !strstr(e->msg, b))
		fail_msg("'%s' does not say '%s' and '%s'", e->msg, a, b);
}

#endif
