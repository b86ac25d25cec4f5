/* attn_decode.c: one decode step of a layer: decide, attend the full cache or the ring, and keep the ring.
 *
 * RefreshKV (ACL 2025), algorithm 1; the rivals' rings are the same with another rule for what leaves.  Every used
 * slot of a ring is attended once the new token is written.  Lanes are taken one after the other: each has its own
 * decision, and its KV heads and chunks occupy the threads.  Exact rules: docs/POLICIES.md.
 */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
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
	bool forced = lane->force_full || renews(lane);

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
		if (r->k && c->b.kv_bytes == sizeof(rk_half)) {	/* without copies the tail has it */
			c->lin->to_half((rk_half *)r->k + slot * d, k, hp->head_dim);
			c->lin->to_half((rk_half *)r->v + slot * d, v, hp->head_dim);
		} else if (r->k) {
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
		float *sum = s->thread[0].grouped;
		rk_attn_group(c, &lane->pol, kv, n, sum);
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

/* The share of each head's last scores of a KV head that its ring does not hold. */
static void weigh_rest(rk_cpu *c, rk_attn_thread *t, int layer, const rk_lane_cache *lane, int kv)
{
	const rk_attn_scratch *s = c->attn_scratch;
	const rk_partial *r = &lane->part;
	const int32_t *pos = r->pos + rk_row_at(c->b.hp, layer, kv, r->cap);
	int group = c->b.hp->n_head / c->b.hp->n_kv_head, n = r->count[rk_row_at(c->b.hp, layer, kv, 1)];

	for (int h = kv * group; h < (kv + 1) * group; h++) {
		const float *score = s->score + (size_t)h * (size_t)s->ld_pos;
		for (int i = 0; i < n; i++)
			t->pooled[i] = score[pos[i]];
		float held = c->attn->exp_sum(t->pooled, t->pooled, n, s->max[h]) * s->inv_sum[h];
		rest_of(c, layer, lane, h)[c->b.hp->head_dim] = fmaxf(0, 1 - held);
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

/* ---- a refresh, in one region of the team ---- */

struct refresh {
	rk_cpu *c;
	int layer;
	rk_lane_cache *lane;
	float *all;	/* attention over everything; NULL: it is only scored */
	bool attend;	/* what is chosen is attended at once */
};

/* One KV head chooses anew what its ring holds, which is yet to be gathered. */
static void choose(const struct refresh *r, int kv, int worker)
{
	rk_attn_scratch *s = r->c->attn_scratch;
	rk_attn_thread *t = &s->thread[worker];

	rk_attn_merge(r->c, s->job, kv, r->all);
	rk_attn_group(r->c, &r->lane->pol, kv, r->lane->n_pos, t->grouped);
	s->churn[kv] = rk_attn_choose(r->c, t, r->layer, r->lane, kv, t->grouped, r->lane->n_pos);
	if (r->lane->pol.tail)
		weigh_rest(r->c, t, r->layer, r->lane, kv);
}

/* Pieces: the chunks of all KV heads, then the choices, then the chunks of what was chosen.  Each waits for those of its own KV
 * head only: few heads would leave threads idle if all had to have chosen first. */
static void refresh_piece(void *ctx, int piece, int worker)
{
	const struct refresh *r = ctx;
	rk_cpu *c = r->c;
	rk_attn_scratch *s = c->attn_scratch;
	int n_kv = c->b.hp->n_kv_head, n_item = s->job[n_kv].first_item, kv;

	if (piece < n_item) {
		kv = rk_attn_kv_of(s->job, piece);
		rk_attn_chunk(c, s->job, piece, worker, r->all != NULL);
	} else if (piece < n_item + n_kv) {
		kv = piece - n_item;
		rk_team_wait(&s->n_done[kv], s->job[kv + 1].first_item - s->job[kv].first_item);
		choose(r, kv, worker);
	} else {
		int item = piece - n_kv;
		kv = rk_attn_kv_of(s->ring_job, item);
		rk_team_wait(&s->n_done[kv], s->job[kv + 1].first_item - s->job[kv].first_item + 1);
		if (r->lane->part.k)
			rk_attn_gather_chunk(c, r->layer, r->lane, kv, item - s->ring_job[kv].first_item, r->lane->n_pos);
		if (r->attend)
			rk_attn_chunk(c, s->ring_job, item, worker, true);
	}
	/* release: what the piece wrote, for those that wait */
	atomic_fetch_add_explicit(&s->n_done[kv], 1, memory_order_release);
}

/* After s->job was planned.  Returns the share of the rings that was replaced, mean over KV heads. */
static float run_refresh(struct refresh *r)
{
	rk_cpu *c = r->c;
	const rk_attn_scratch *s = c->attn_scratch;
	int n_kv = c->b.hp->n_kv_head;
	float sum = 0;

	rk_attn_plan_chosen(c, r->layer, r->lane);
	for (int kv = 0; kv < n_kv; kv++)
		atomic_store_explicit(&s->n_done[kv], 0, memory_order_relaxed);	/* the team publishes it */
	rk_team_run(c->team, s->ring_job[n_kv].first_item + n_kv, refresh_piece, r);
	for (int kv = 0; kv < n_kv; kv++)
		sum += s->churn[kv];
	return sum / (float)n_kv;
}

/* Bytes of n positions of one KV head, keys alone or keys and values. */
static int64_t bytes_of(const rk_cpu *c, int64_t n, int arrays)
{
	return n * arrays * c->b.hp->head_dim * (int64_t)c->b.kv_bytes;
}

static void count_ring_bytes(const rk_cpu *c, int layer, const rk_lane_cache *lane, rk_step_report *rep)
{
	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++)
		rep->bytes_partial += bytes_of(c, lane->part.count[rk_row_at(c->b.hp, layer, kv, 1)], 2);
}

/* Attends or only scores all positions, and selects anew from the scores. */
static void refresh_step(rk_cpu *c, int layer, rk_lane_cache *lane, float *out, rk_step_report *rep)
{
	const rk_attn_scratch *s = c->attn_scratch;
	const rk_hparams *hp = c->b.hp;
	const rk_policy *p = &lane->pol;
	int64_t keys = (int64_t)lane->n_pos * hp->n_kv_head;
	bool renew = renews(lane), selected = p->score != RK_SCORE_NONE && p->attend == RK_ATTEND_SELECTED && !renew;
	struct refresh r = { c, layer, lane, selected ? NULL : renew ? s->full : out, selected || renew };

	if (p->bits && !renew)
		rk_attn_plan_glance(c, layer, lane, lane->n_pos);
	else
		rk_attn_plan_full(c, layer, lane, lane->n_pos);
	if (!selected)
		rep->bytes_full += bytes_of(c, keys, 2);
	else
		rep->bytes_score += p->bits ? keys * (int64_t)rk_sketch_key_bytes(hp, p->bits) : bytes_of(c, keys, 1);
	if (p->score == RK_SCORE_NONE) {
		rk_attn_run(c, out);
		return;
	}
	rep->churn[layer] = run_refresh(&r);
	if (p->refresh == RK_REFRESH_QUERY)
		memcpy(rk_attn_reference(hp, layer, lane), s->compared, (size_t)rk_query_len(hp, p) * sizeof *s->compared);
	if (!r.attend)
		return;
	for (int kv = 0; kv < hp->n_kv_head; kv++)
		rk_attn_merge(c, s->ring_job, kv, out);
	count_ring_bytes(c, layer, lane, rep);
	if (renew) {
		renew_rest(c, layer, lane, s->full, out);
		memcpy(out, s->full, (size_t)(hp->n_head * hp->head_dim) * sizeof *out);
	} else if (p->tail) {
		add_rest(c, layer, lane, out);
	}
}

static void partial_step(rk_cpu *c, int layer, rk_lane_cache *lane, const float *k, const float *v, float *out,
                         rk_step_report *rep)
{
	ring_write(c, layer, lane, k, v);
	rk_attn_plan_ring(c, layer, lane);
	rk_attn_run(c, out);
	count_ring_bytes(c, layer, lane, rep);
	if (lane->pol.tail)
		add_rest(c, layer, lane, out);
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
