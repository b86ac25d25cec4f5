/* attn_decode.c: one decode step of a layer: decide, attend the full cache or the ring, and keep the ring.
 *
 * RefreshKV (ACL 2025), algorithm 1; the rivals' rings are the same with another rule for what leaves.  Every used
 * slot of a ring is attended once the new token is written.  Lanes are taken one after the other: each has its own
 * decision, and its KV heads and chunks occupy the threads.  Exact rules: docs/POLICIES.md.
 */
#include <assert.h>
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

static double cosine(const float *a, const float *b, int n)
{
	double ab = 0, aa = 0, bb = 0;

	for (int i = 0; i < n; i++) {
		ab += (double)a[i] * (double)b[i];
		aa += (double)a[i] * (double)a[i];
		bb += (double)b[i] * (double)b[i];
	}
	return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* Is the stand-in due to be renewed, which takes attention over everything? */
static bool renews(const rk_lane_cache *lane)
{
	return lane->pol.tail && (lane->force_full || lane->step % lane->pol.tail == 0);
}

/* Does this layer select anew?  Fills in scratch->compared where the policy compares queries.  *cos is the cosine, NaN
 * where no check was due. */
static bool refreshes(const rk_cpu *c, int layer, const rk_lane_cache *lane, const float *q_pre, const float *q, float *cos)
{
	const rk_policy *p = &lane->pol;
	float *compared = ((rk_attn_scratch *)c->attn_scratch)->compared;
	/* A glance lane looks at the first token for itself: what the prompt's last token looked at is its own affair. */
	bool forced = lane->force_full || (p->bits && lane->step == 0) || renews(lane);

	*cos = NAN;
	if (p->score == RK_SCORE_NONE)
		return true;
	if (!lane->keeps_full)
		return false;
	if (p->refresh == RK_REFRESH_STRIDE)
		return forced || lane->step % p->stride == p->stride - 1;
	if (p->refresh == RK_REFRESH_QUERY) {
		rk_attn_compared(c->b.hp, p, compared, q_pre, q);
		if (lane->step % p->qc == p->qc - 1) {
			*cos = (float)cosine(compared, rk_attn_reference(c->b.hp, layer, lane), rk_query_len(c->b.hp, p));
			return forced || *cos < p->s;
		}
	}
	return forced;
}

/* Writes the new token k, v [n_kv_head][head_dim] to slot `next` of every ring. */
static void ring_write(rk_cpu *c, int layer, rk_lane_cache *lane, const float *k, const float *v)
{
	const rk_hparams *hp = c->b.hp;
	rk_partial *r = &lane->part;
	size_t d = (size_t)hp->head_dim;

	for (int kv = 0; kv < hp->n_kv_head; kv++, k += d, v += d) {
		size_t ring = rk_row_at(hp, layer, kv, 1), slot = rk_row_at(hp, layer, kv, r->cap) + (size_t)r->next[ring];
		assert(r->next[ring] < r->cap);
		if (c->b.kv_bytes == sizeof(rk_half)) {
			c->lin->to_half((rk_half *)r->k + slot * d, k, hp->head_dim);
			c->lin->to_half((rk_half *)r->v + slot * d, v, hp->head_dim);
		} else {
			memcpy((float *)r->k + slot * d, k, d * sizeof *k);
			memcpy((float *)r->v + slot * d, v, d * sizeof *v);
		}
		r->pos[slot] = lane->n_pos - 1;
		if (r->acc)
			r->acc[slot] = 0;
		if (r->next[ring] == r->count[ring])
			r->count[ring]++;
	}
}

/* Slot with the lowest accumulator among positions older than the K/2 most recent; of equals the highest position. */
static int lowest_accumulated(const rk_lane_cache *lane, const int32_t *pos, const float *acc, int n)
{
	int low = -1;

	for (int i = 0; i < n; i++) {
		if (pos[i] >= lane->n_pos - lane->budget / 2)
			continue;
		if (low < 0 || acc[i] < acc[low] || (acc[i] == acc[low] && pos[i] > pos[low]))
			low = i;
	}
	return low;
}

/* After the ring was attended: adds up probabilities where they count, and finds the slot of the next token. */
static void ring_advance(rk_cpu *c, int layer, rk_lane_cache *lane, int kv)
{
	rk_attn_scratch *s = c->attn_scratch;
	rk_partial *r = &lane->part;
	size_t ring = rk_row_at(c->b.hp, layer, kv, 1), base = rk_row_at(c->b.hp, layer, kv, r->cap);
	int n = r->count[ring], over = n > lane->budget;

	if (r->acc) {
		const float *p = s->score + (size_t)(kv * (c->b.hp->n_head / c->b.hp->n_kv_head)) * (size_t)s->ld_pos;
		const float *sum = rk_attn_group(c, &lane->pol, p, n, s->thread[0].grouped);
		for (int i = 0; i < n; i++)
			r->acc[base + (size_t)i] += sum[i];
	}
	switch (lane->pol.evict) {
	case RK_EVICT_NONE:
		r->next[ring] = n;
		break;
	case RK_EVICT_LOWEST:	/* the slot after the newest holds the lowest */
		r->next[ring] = r->next[ring] == lane->budget ? 0 : r->next[ring] + 1;
		break;
	case RK_EVICT_OLDEST:
		r->next[ring] = rk_attn_oldest_after(lane, r->next[ring]);
		break;
	case RK_EVICT_LOWEST_ACCUMULATED:
		r->next[ring] = over ? lowest_accumulated(lane, r->pos + base, r->acc + base, n) : n;
		break;
	}
}

/* ---- the stand-in for what is not selected: a row of head_dim + 1 per query head, its attention output and its share ---- */

#define MIN_REST 1e-3f	/* a smaller share is lost in rounding when it is divided by */

static float *rest_of(const rk_cpu *c, int layer, const rk_lane_cache *lane, int head)
{
	return lane->rest + (size_t)(layer * c->b.hp->n_head + head) * (size_t)(c->b.hp->head_dim + 1);
}

/* The share of each head of a KV head, prob [G][ld_pos], that its ring does not hold. */
static void weigh_rest(rk_cpu *c, int layer, const rk_lane_cache *lane, int kv, const float *prob)
{
	const rk_attn_scratch *s = c->attn_scratch;
	const rk_partial *r = &lane->part;
	const int32_t *pos = r->pos + rk_row_at(c->b.hp, layer, kv, r->cap);
	int group = c->b.hp->n_head / c->b.hp->n_kv_head, n = r->count[rk_row_at(c->b.hp, layer, kv, 1)];

	for (int g = 0; g < group; g++, prob += s->ld_pos) {
		float held = 0;
		for (int i = 0; i < n; i++)
			held += prob[pos[i]];
		rest_of(c, layer, lane, kv * group + g)[c->b.hp->head_dim] = fmaxf(0, 1 - held);
	}
}

/* full = (1 - share) selected + share rest, solved for rest. */
static void renew_rest(rk_cpu *c, int layer, const rk_lane_cache *lane, const float *full, const float *selected)
{
	int d = c->b.hp->head_dim;

	for (int h = 0; h < c->b.hp->n_head; h++, full += d, selected += d) {
		float *rest = rest_of(c, layer, lane, h), share = rest[d];
		for (int j = 0; j < d; j++)
			rest[j] = share < MIN_REST ? selected[j] : (full[j] - (1 - share) * selected[j]) / share;
	}
}

static void add_rest(rk_cpu *c, int layer, const rk_lane_cache *lane, float *out)
{
	int d = c->b.hp->head_dim;

	for (int h = 0; h < c->b.hp->n_head; h++, out += d) {
		const float *rest = rest_of(c, layer, lane, h);
		for (int j = 0; j < d; j++)
			out[j] += rest[d] * (rest[j] - out[j]);
	}
}

struct refill {
	rk_cpu *c;
	int layer;
	rk_lane_cache *lane;
};

static void choose_head(void *ctx, int kv, int worker)
{
	const struct refill *r = ctx;
	rk_attn_scratch *s = r->c->attn_scratch;
	const rk_hparams *hp = r->c->b.hp;
	const float *prob = s->score + (size_t)(kv * (hp->n_head / hp->n_kv_head)) * (size_t)s->ld_pos;

	s->churn[kv] = rk_attn_choose(r->c, &s->thread[worker], r->layer, r->lane, kv, prob, r->lane->n_pos);
	if (r->lane->pol.tail)
		weigh_rest(r->c, r->layer, r->lane, kv, prob);
}

/* Chooses anew what all rings of the layer hold, which is yet to be gathered; returns the share replaced, mean over KV heads. */
static float refill(rk_cpu *c, int layer, rk_lane_cache *lane)
{
	const rk_attn_scratch *s = c->attn_scratch;
	const rk_hparams *hp = c->b.hp;
	struct refill r = { c, layer, lane };
	float sum = 0;

	rk_attn_probabilities(c, lane->n_pos);
	rk_team_run(c->team, hp->n_kv_head, choose_head, &r);
	for (int kv = 0; kv < hp->n_kv_head; kv++)
		sum += s->churn[kv];
	return sum / (float)hp->n_kv_head;
}

/* Bytes of n positions of one KV head, keys alone or keys and values. */
static int64_t bytes_of(const rk_cpu *c, int64_t n, int arrays)
{
	return n * arrays * c->b.hp->head_dim * (int64_t)c->b.kv_bytes;
}

/* chosen: the rings have been chosen, and are yet to be gathered. */
static void attend_ring(rk_cpu *c, int layer, const rk_lane_cache *lane, bool chosen, float *out, rk_step_report *rep)
{
	rk_attn_plan_ring(c, layer, lane);
	if (chosen)
		rk_attn_run_chosen(c, layer, lane, out);
	else
		rk_attn_run(c, out);
	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++)
		rep->bytes_partial += bytes_of(c, lane->part.count[rk_row_at(c->b.hp, layer, kv, 1)], 2);
}

/* Attends or only scores all positions, and selects anew from the scores. */
static void refresh_step(rk_cpu *c, int layer, rk_lane_cache *lane, float *out, rk_step_report *rep)
{
	const rk_attn_scratch *s = c->attn_scratch;
	const rk_hparams *hp = c->b.hp;
	const rk_policy *p = &lane->pol;
	size_t out_bytes = (size_t)(hp->n_head * hp->head_dim) * sizeof *out;
	int64_t keys = (int64_t)lane->n_pos * hp->n_kv_head;
	bool renew = renews(lane), selected = p->score != RK_SCORE_NONE && p->attend == RK_ATTEND_SELECTED && !renew;

	if (p->bits && !renew)
		rk_attn_plan_glance(c, layer, lane, lane->n_pos);
	else
		rk_attn_plan_full(c, layer, lane, lane->n_pos);
	rk_attn_run(c, selected ? NULL : out);
	if (!selected)
		rep->bytes_full += bytes_of(c, keys, 2);
	else
		rep->bytes_score += p->bits ? keys * (int64_t)rk_sketch_key_bytes(hp, p->bits) : bytes_of(c, keys, 1);
	if (p->score == RK_SCORE_NONE)
		return;
	rep->churn[layer] = refill(c, layer, lane);
	if (p->refresh == RK_REFRESH_QUERY)
		memcpy(rk_attn_reference(hp, layer, lane), s->compared, (size_t)rk_query_len(hp, p) * sizeof *s->compared);
	if (renew) {
		memcpy(s->full, out, out_bytes);
		attend_ring(c, layer, lane, true, out, rep);
		renew_rest(c, layer, lane, s->full, out);
		memcpy(out, s->full, out_bytes);
	} else if (selected) {
		attend_ring(c, layer, lane, true, out, rep);
		if (p->tail)
			add_rest(c, layer, lane, out);
	} else {
		rk_attn_gather(c, layer, lane, lane->n_pos);
	}
}

static void partial_step(rk_cpu *c, int layer, rk_lane_cache *lane, const float *k, const float *v, float *out,
                         rk_step_report *rep)
{
	ring_write(c, layer, lane, k, v);
	attend_ring(c, layer, lane, false, out, rep);
	if (lane->pol.tail)
		add_rest(c, layer, lane, out);
	if (lane->part.acc)	/* all rings of such a lane are of one length */
		rk_attn_probabilities(c, lane->part.count[rk_row_at(c->b.hp, layer, 0, 1)]);
	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++)
		ring_advance(c, layer, lane, kv);
}

void rk_cpu_attn_decode(rk_backend *b, int layer, rk_lane_cache *const lanes[], int n_lane, const float *q_pre,
                        const float *q, const float *k, const float *v, float *out, rk_step_report *const reports[])
{
	rk_cpu *c = (rk_cpu *)b;
	size_t d = (size_t)b->hp->head_dim, qd = (size_t)b->hp->n_head * d, kvd = (size_t)b->hp->n_kv_head * d;

	for (int j = 0; j < n_lane; j++, q_pre += qd, q += qd, k += kvd, v += kvd, out += qd) {
		rk_lane_cache *lane = lanes[j];
		rk_step_report *rep = reports[j];
		bool refresh = refreshes(c, layer, lane, q_pre, q, &rep->cos[layer]);

		rep->kind[layer] = !refresh ? RK_STEP_PARTIAL : lane->pol.bits && !renews(lane) ? RK_STEP_GLANCE : RK_STEP_FULL;
		rep->churn[layer] = NAN;
		rk_attn_scale_queries(c, q);
		if (refresh)
			refresh_step(c, layer, lane, out, rep);
		else
			partial_step(c, layer, lane, k, v, out, rep);
	}
}
