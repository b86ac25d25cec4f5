/* select.c: which positions a KV head keeps: group, pool, top-K, and the gathering of a ring from the full cache.
 *
 * One worker chooses for one KV head; copies are cut into chunks.  A ring is laid out so that what leaves next is found by moving on one slot: in
 * ascending order of score, or of position where the oldest goes first.  Only RK_SCORE_ATTENTION selects again after
 * the prefill (policy.c sees to that).  Exact rules: docs/POLICIES.md.
 */
#include <assert.h>
#include <string.h>
#include "cpu/cpu.h"

#define DIGIT 9	/* bits that a pass of the sort goes by */
#define AHEAD 16	/* rows in flight while gathering */

static uint32_t bits_of(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);	/* of non-negative floats the bits are in the order of the values */
	return u;
}

/* The highest bits that at least k scores reach, found bit by bit and given up early. */
struct limit {
	uint32_t bits, next;	/* next: the bit to try; 0: all are found */
	int n_ge;		/* scores that reach it */
};

/* Raises the limit until no more than `enough` >= k scores reach it, or it is found. */
static void raise_limit(struct limit *l, const rk_attn_kernels *kern, const float *score, int n, int k, int enough)
{
	for (; l->next && l->n_ge > enough; l->next >>= 1) {
		int count = kern->count_ge(score, n, l->bits | l->next);
		if (count >= k) {
			l->bits |= l->next;
			l->n_ge = count;
		}
	}
}

/* Sorts key[n] by its upper 32 bits, ascending and stable; tmp [n].  Returns the one of the two in which they are then. */
static const uint64_t *sort_by_score(uint64_t *key, uint64_t *tmp, int n)
{
	int32_t at[(32 + DIGIT - 1) / DIGIT][1 << DIGIT];
	uint64_t any = 0;
	int n_pass = 0;

	for (int i = 0; i < n; i++)
		any |= key[i];
	for (; any >> 32 >> (n_pass * DIGIT); n_pass++)
		memset(at[n_pass], 0, sizeof at[n_pass]);
	for (int i = 0; i < n; i++)
		for (int p = 0; p < n_pass; p++)
			at[p][key[i] >> (32 + p * DIGIT) & ((1 << DIGIT) - 1)]++;
	for (int p = 0; p < n_pass; p++) {
		uint64_t *swap = key;
		int32_t sum = 0;
		for (int i = 0; i < 1 << DIGIT; i++) {
			int32_t here = at[p][i];
			at[p][i] = sum;
			sum += here;
		}
		for (int i = 0; i < n; i++)
			tmp[at[p][key[i] >> (32 + p * DIGIT) & ((1 << DIGIT) - 1)]++] = key[i];
		key = tmp;
		tmp = swap;
	}
	return key;
}

/* key [k] = the k highest of score[n], at pos[n], the highest position first, by how far above the limit that was found for them. */
static void collect(uint64_t *key, const float *score, const int32_t *pos, int n, int k, struct limit l)
{
	for (int t = n - 1, found = 0; found < k; t--) {
		uint32_t u = bits_of(score[t]);
		key[found] = (uint64_t)(u - l.bits) << 32 | (uint32_t)pos[t];
		found += u > l.bits || (u == l.bits && l.n_ge-- <= k);	/* the lowest n_ge - k are left out */
	}
}

void rk_attn_topk(const rk_attn_kernels *kern, const float *score, int n, int k, int32_t *pos, uint64_t *tmp)
{
	struct limit l = { .next = 1u << 31, .n_ge = n };
	float *some = (float *)(tmp + 2 * (size_t)n);
	int32_t *at = (int32_t *)(some + n);

	if (k == 0)
		return;
	raise_limit(&l, kern, score, n, k, 2 * k);
	int n_some = kern->find_ge(some, at, score, n, l.bits);	/* few are left: the other bits are found among them */
	raise_limit(&l, kern, some, n_some, k, k);
	collect(tmp, some, at, n_some, k, l);
	const uint64_t *key = sort_by_score(tmp, tmp + n, k);	/* keeps the order of positions among equals */
	for (int i = 0; i < k; i++)
		pos[i] = (int32_t)(uint32_t)key[i];
}

static bool ranks_by_largest(const rk_policy *pol)
{
	return pol->score == RK_SCORE_ATTENTION && pol->group == RK_GROUP_MAX;
}

/* Heads of a KV head's group that count. */
static int heads_that_count(const rk_cpu *c, const rk_policy *pol)
{
	return pol->score == RK_SCORE_ATTENTION && pol->group == RK_GROUP_FIRST ? 1 : c->b.hp->n_head / c->b.hp->n_kv_head;
}

/* Mean and sum rank alike, so the mean is left a sum. */
void rk_attn_group(const rk_cpu *c, const rk_policy *pol, int kv, int n, float *out)
{
	const rk_attn_scratch *s = c->attn_scratch;
	int head = kv * (c->b.hp->n_head / c->b.hp->n_kv_head), n_head = heads_that_count(c, pol);
	const float *score = s->score + (size_t)head * (size_t)s->ld_pos;

	if (ranks_by_largest(pol)) {
		c->attn->largest_exp(out, score, s->ld_pos, n_head, n, s->max + head, s->log_sum + head);
		return;
	}
	memset(out, 0, (size_t)n * sizeof *out);
	for (int h = head; h < head + n_head; h++, score += s->ld_pos)
		c->attn->add_exp(out, score, n, s->max[h], s->inv_sum[h]);
}

/* The same from the probabilities of a window, prob [G][ld_pos]. */
static void group_window(const rk_cpu *c, const rk_policy *pol, const float *prob, int n, float *out)
{
	const rk_attn_scratch *s = c->attn_scratch;

	memcpy(out, prob, (size_t)n * sizeof *out);
	for (int g = 1; g < heads_that_count(c, pol); g++) {
		const float *row = prob + (size_t)g * (size_t)s->ld_pos;
		if (ranks_by_largest(pol))
			for (int t = 0; t < n; t++)
				out[t] = row[t] > out[t] ? row[t] : out[t];
		else
			for (int t = 0; t < n; t++)
				out[t] += row[t];
	}
}

/* out[t] = max of in[t-width/2 .. t+width/2] within [0, n). */
static void pool(float *out, const float *in, int n, int width)
{
	memcpy(out, in, (size_t)n * sizeof *out);
	for (int off = 1; off <= width / 2 && off < n; off++) {
		for (int t = 0; t < n - off; t++)
			out[t] = in[t + off] > out[t] ? in[t + off] : out[t];
		for (int t = off; t < n; t++)
			out[t] = in[t - off] > out[t] ? in[t - off] : out[t];
	}
}

/* The positions to keep, lowest score first; returns how many. */
static int rank(const rk_cpu *c, rk_attn_thread *t, const rk_lane_cache *lane, const float *score, int n)
{
	const rk_attn_kernels *kern = c->attn;
	const rk_policy *p = &lane->pol;
	int k = lane->budget < n ? lane->budget : n, recent = 0, top = 0;

	switch (p->score) {
	case RK_SCORE_ATTENTION:
		if (p->pool > 1)
			pool(t->pooled, score, n, p->pool);
		rk_attn_topk(kern, p->pool > 1 ? t->pooled : score, n, k, t->pos, t->key);
		break;
	case RK_SCORE_ACCUMULATED:
		recent = lane->budget / 2 < k ? lane->budget / 2 : k;
		rk_attn_topk(kern, score, n - recent, k - recent, t->pos, t->key);
		for (int i = 0; i < recent; i++)
			t->pos[k - recent + i] = n - recent + i;
		break;
	case RK_SCORE_POSITION:	/* in order of position: what leaves after the sinks is the oldest */
		top = p->sinks < k ? p->sinks : k;
		for (int i = 0; i < k; i++)
			t->pos[i] = i < top ? i : n - k + i;
		break;
	case RK_SCORE_NONE:
		assert(!"a lane without a score has no ring");
	}
	return k;
}

static void add(uint64_t *set, int32_t p)
{
	set[p >> 6] |= 1ull << (p & 63);
}

static bool has(const uint64_t *set, int32_t p)
{
	return set[p >> 6] >> (p & 63) & 1;
}

/* Share of pos[n] that the ring does not hold.  Its slot `next`, where used, was evicted last. */
static float churn(const rk_lane_cache *lane, uint64_t *set, size_t ring, const int32_t *held, const int32_t *pos,
                   int n)
{
	int count = lane->part.count[ring], fresh = 0;

	for (int i = 0; i < count; i++)
		if (i != lane->part.next[ring])
			add(set, held[i]);
	for (int i = 0; i < n; i++)
		fresh += !has(set, pos[i]);
	for (int i = 0; i < count; i++)
		set[held[i] >> 6] = 0;
	return (float)fresh / (float)n;
}

int rk_attn_oldest_after(const rk_lane_cache *lane, int slot)
{
	/* One slot is left for the new token. */
	int first = lane->pol.sinks < lane->budget ? lane->pol.sinks : lane->budget - 1;

	return slot + 1 < lane->budget ? slot + 1 : first;
}

/* One row of keys and values of position p. */
static const char *row_of(const char *prompt, const char *tail, int in_prompt, int32_t p, size_t bytes)
{
	return p < in_prompt ? prompt + (size_t)p * bytes : tail + (size_t)(p - in_prompt) * bytes;
}

/* dst [n] = the rows at pos.  They lie scattered, so they are asked for ahead. */
static void gather(char *dst, const char *prompt, const char *tail, int in_prompt, const int32_t *pos, int n,
                   size_t bytes)
{
	for (int i = 0; i < n; i++) {
		if (i + AHEAD < n) {
			const char *ahead = row_of(prompt, tail, in_prompt, pos[i + AHEAD], bytes);
			for (size_t at = 0; at < bytes; at += 64)
				__builtin_prefetch(ahead + at);
		}
		memcpy(dst + (size_t)i * bytes, row_of(prompt, tail, in_prompt, pos[i], bytes), bytes);
	}
}

float rk_attn_choose(rk_cpu *c, rk_attn_thread *t, int layer, rk_lane_cache *lane, int kv, const float *score, int n_pos)
{
	rk_partial *r = &lane->part;
	size_t ring = rk_row_at(c->b.hp, layer, kv, 1), base = rk_row_at(c->b.hp, layer, kv, r->cap);
	int n = rank(c, t, lane, score, n_pos);

	assert(n <= r->cap);
	float replaced = churn(lane, t->seen, ring, r->pos + base, t->pos, n);
	memcpy(r->pos + base, t->pos, (size_t)n * sizeof *t->pos);
	for (int i = 0; r->acc && i < n; i++)
		r->acc[base + (size_t)i] = score[t->pos[i]];
	r->count[ring] = n;
	r->next[ring] = lane->pol.evict == RK_EVICT_OLDEST ? rk_attn_oldest_after(lane, n - 1) : n;
	return replaced;
}

void rk_attn_gather_chunk(const rk_cpu *c, int layer, const rk_lane_cache *lane, int kv, int chunk, int n_pos)
{
	const rk_partial *r = &lane->part;
	int first = chunk * RK_ATTN_CHUNK, in_prompt = rk_attn_in_prompt(lane, n_pos), n = r->count[rk_row_at(c->b.hp, layer, kv, 1)] - first;
	size_t bytes = (size_t)c->b.hp->head_dim * c->b.kv_bytes, at = rk_row_at(c->b.hp, layer, kv, r->cap) + (size_t)first;
	rk_attn_span prompt = rk_attn_rows(c, lane->prompt->k, lane->prompt->v, layer, kv, lane->prompt->cap, in_prompt);
	rk_attn_span tail = rk_attn_rows(c, lane->tail.k, lane->tail.v, layer, kv, lane->tail.cap, n_pos - in_prompt);

	if (n > RK_ATTN_CHUNK)
		n = RK_ATTN_CHUNK;
	gather((char *)r->k + at * bytes, prompt.k, tail.k, in_prompt, r->pos + at, n, bytes);
	gather((char *)r->v + at * bytes, prompt.v, tail.v, in_prompt, r->pos + at, n, bytes);
}

struct gather {
	const rk_cpu *c;
	int layer, n_pos, n_piece;	/* n_piece: of a ring */
	const rk_lane_cache *lane;
};

static void gather_piece(void *ctx, int piece, int worker)
{
	const struct gather *a = ctx;

	(void)worker;
	rk_attn_gather_chunk(a->c, a->layer, a->lane, piece / a->n_piece, piece % a->n_piece, a->n_pos);
}

void rk_attn_gather(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos)
{
	struct gather a = { c, layer, n_pos, (lane->part.cap + RK_ATTN_CHUNK - 1) / RK_ATTN_CHUNK, lane };

	rk_team_run(c->team, c->b.hp->n_kv_head * a.n_piece, gather_piece, &a);
}

struct add_probabilities {
	rk_cpu *c;
	int n;
};

static void add_probabilities(void *ctx, int kv, int worker)
{
	const struct add_probabilities *a = ctx;
	rk_attn_scratch *s = a->c->attn_scratch;
	int group = a->c->b.hp->n_head / a->c->b.hp->n_kv_head;

	(void)worker;
	for (int h = kv * group; h < (kv + 1) * group; h++) {
		size_t row = (size_t)h * (size_t)s->ld_pos;
		a->c->attn->add_exp(s->mean + row, s->score + row, a->n, s->max[h], s->inv_sum[h]);
	}
}

/* s->mean [n_head][ld_pos] = probabilities of the last n_q queries q [n_q][n_head][head_dim], summed over them. */
static void sum_window(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos, const float *q, int n_q)
{
	rk_attn_scratch *s = c->attn_scratch;
	const rk_hparams *hp = c->b.hp;

	memset(s->mean, 0, (size_t)hp->n_head * (size_t)s->ld_pos * sizeof *s->mean);
	for (int j = 0; j < n_q; j++) {
		int n = n_pos - n_q + 1 + j;
		rk_attn_scale_queries(c, q + (size_t)j * (size_t)hp->n_head * (size_t)hp->head_dim);
		rk_attn_plan_full(c, layer, lane, n);
		rk_attn_run(c, NULL);
		rk_team_run(c->team, hp->n_kv_head, add_probabilities, &(struct add_probabilities){ c, n });
	}
}

struct select_head {
	rk_cpu *c;
	int layer;
	rk_lane_cache *lane;
	int n_pos;
	const float *colsum;
};

static void select_head(void *ctx, int kv, int worker)
{
	const struct select_head *a = ctx;
	rk_attn_scratch *s = a->c->attn_scratch;
	const rk_hparams *hp = a->c->b.hp;
	const rk_policy *p = &a->lane->pol;
	rk_attn_thread *t = &s->thread[worker];
	const float *score = NULL;

	if (p->score == RK_SCORE_ATTENTION) {
		group_window(a->c, p, s->mean + (size_t)(kv * (hp->n_head / hp->n_kv_head)) * (size_t)s->ld_pos, a->n_pos, t->grouped);
		score = t->grouped;
	} else if (p->score == RK_SCORE_ACCUMULATED) {
		score = a->colsum + (size_t)kv * (size_t)a->lane->prompt->cap;
	}
	rk_attn_choose(a->c, t, a->layer, a->lane, kv, score, a->n_pos);
}

void rk_cpu_select(rk_backend *b, int layer, rk_lane_cache *lane, int n_pos, const float *q_pre, const float *q, int n_q,
                   const float *colsum)
{
	rk_cpu *c = (rk_cpu *)b;
	const rk_hparams *hp = b->hp;
	const rk_policy *p = &lane->pol;
	size_t d = (size_t)hp->head_dim;

	if (p->score == RK_SCORE_NONE)
		return;
	assert(p->score != RK_SCORE_ACCUMULATED || colsum);
	if (p->score == RK_SCORE_ATTENTION)
		sum_window(c, layer, lane, n_pos, q, n_q);
	rk_team_run(c->team, hp->n_kv_head, select_head, &(struct select_head){ c, layer, lane, n_pos, colsum });
	if (lane->part.k)
		rk_attn_gather(c, layer, lane, n_pos);
	if (p->refresh == RK_REFRESH_QUERY && q_pre)	/* none when a ring is made anew in mid-session */
		rk_attn_compared(hp, p, rk_attn_reference(hp, layer, lane), q_pre, q + (size_t)(n_q - 1) * (size_t)hp->n_head * d);
}
