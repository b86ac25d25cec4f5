/* attn.c: what decode and selection share: the scratch of attention, and one lane's attention over full cache or
 * ring.
 *
 * An attention is a list of jobs, one per KV head, cut into chunks of RK_ATTN_CHUNK positions counted from the start
 * of each span.  Workers take chunks; each leaves its maximum, sum and output, which are merged in chunk order.  So a
 * chunk's keys and values are read once for all heads of the group, and bits do not depend on who took what.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/cpu.h"

#define LOG2_E 1.44269504088896340736

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* Places an array at *at and moves on; NULL while only measuring (base NULL). */
static void *take(char *base, size_t *at, size_t n, size_t size)
{
	void *p = base ? base + *at : NULL;

	*at += round_up(n * size, 64);
	return p;
}

/* Lays out the scratch of s and of its n_thread threads (NULL while measuring) in one block; returns the bytes. */
static size_t layout(const rk_cpu *c, rk_attn_scratch *s, rk_attn_thread *thread, char *base)
{
	const rk_hparams *hp = c->b.hp;
	size_t d = (size_t)hp->head_dim, n_head = (size_t)hp->n_head, n_kv = (size_t)hp->n_kv_head, group = n_head / n_kv;
	size_t dim = (size_t)rk_sketch_dim(hp), d_pad = round_up(d, 16), ld_pos = round_up((size_t)c->cfg.max_pos, 64);
	size_t rows = (size_t)c->cfg.max_rows * n_head, at = 0;
	size_t items = n_kv * ((size_t)c->cfg.max_pos / RK_ATTN_CHUNK + 2);	/* prompt and tail may end in a short chunk */

	s->d_pad = (int)d_pad;
	s->ld_pos = (int)ld_pos;
	s->q_rows = take(base, &at, rows * d_pad, sizeof(float));
	s->row_max = take(base, &at, rows, sizeof(float));
	s->row_sum = take(base, &at, rows, sizeof(float));
	s->job = take(base, &at, n_kv + 1, sizeof(rk_attn_job));
	s->q = take(base, &at, n_head * d, sizeof(float));
	s->score = take(base, &at, n_head * ld_pos, sizeof(float));
	s->mean = take(base, &at, n_head * ld_pos, sizeof(float));
	s->max = take(base, &at, n_head, sizeof(float));
	s->inv_sum = take(base, &at, n_head, sizeof(float));
	s->part_max = take(base, &at, items * group, sizeof(float));
	s->part_sum = take(base, &at, items * group, sizeof(float));
	s->part_out = take(base, &at, items * group * d, sizeof(float));
	s->full = take(base, &at, n_head * d, sizeof(float));
	s->churn = take(base, &at, n_kv, sizeof(float));
	s->compared = take(base, &at, n_head * d, sizeof(float));
	s->sketch_q = take(base, &at, n_head, sizeof *s->sketch_q);
	for (size_t h = 0; h < n_head; h++) {
		float *x = take(base, &at, dim, sizeof(float));
		int8_t *q = take(base, &at, dim, sizeof(int8_t));
		if (base)
			s->sketch_q[h] = (rk_sketch_query){ .x = x, .q = q };
	}
	for (int i = 0; i < c->b.n_thread; i++) {
		rk_attn_thread t;
		t.kt = take(base, &at, d * RK_ATTN_BLOCK, sizeof(float));
		t.vt = take(base, &at, RK_ATTN_BLOCK * d_pad, sizeof(float));
		t.s = take(base, &at, RK_ATTN_ROWS * RK_ATTN_BLOCK, sizeof(float));
		t.o = take(base, &at, RK_ATTN_QUERIES * group * d_pad, sizeof(float));
		t.p = take(base, &at, group * RK_ATTN_CHUNK, sizeof(float));
		t.grouped = take(base, &at, ld_pos, sizeof(float));
		t.pooled = take(base, &at, ld_pos, sizeof(float));
		t.key = take(base, &at, 3 * ld_pos, sizeof(uint64_t));
		t.pos = take(base, &at, ld_pos, sizeof(int32_t));
		t.seen = take(base, &at, ld_pos / 64, sizeof(uint64_t));
		if (thread)
			thread[i] = t;
	}
	return at;
}

int rk_cpu_attn_init(rk_cpu *c, rk_err *e)
{
	rk_attn_scratch *s = calloc(1, sizeof *s);
	size_t bytes;

	if (!s)
		return rk_fail(e, RK_ENOMEM, "attention scratch: out of memory");
	c->attn_scratch = s;
	s->thread = calloc((size_t)c->b.n_thread, sizeof *s->thread);
	if (!s->thread) {
		rk_cpu_attn_free(c);
		return rk_fail(e, RK_ENOMEM, "attention scratch: out of memory for %d threads", c->b.n_thread);
	}
	bytes = layout(c, s, NULL, NULL);
	s->block = rk_cpu_alloc(bytes, e);
	if (!s->block) {
		rk_cpu_attn_free(c);
		return -1;
	}
	layout(c, s, s->thread, s->block);
	c->b.scratch_bytes += bytes;
	return 0;
}

void rk_cpu_attn_free(rk_cpu *c)
{
	rk_attn_scratch *s = c->attn_scratch;

	if (!s)
		return;
	free(s->block);
	free(s->thread);
	free(s);
	c->attn_scratch = NULL;
}

float rk_attn_scale(const rk_hparams *hp)
{
	return (float)(LOG2_E / sqrt((double)hp->head_dim));
}

void rk_attn_scale_queries(rk_cpu *c, const float *q)
{
	rk_attn_scratch *s = c->attn_scratch;
	float scale = rk_attn_scale(c->b.hp);

	for (int i = 0; i < c->b.hp->n_head * c->b.hp->head_dim; i++)
		s->q[i] = q[i] * scale;
}

void rk_attn_compared(const rk_hparams *hp, const rk_policy *p, float *out, const float *q_pre, const float *q)
{
	q = rk_policy_query_post(p) ? q : q_pre;
	if (rk_policy_query_cat(p)) {
		memcpy(out, q, (size_t)rk_query_len(hp, p) * sizeof *out);
		return;
	}
	for (int j = 0; j < hp->head_dim; j++) {
		float sum = 0;
		for (int h = 0; h < hp->n_head; h++)
			sum += q[h * hp->head_dim + j];
		out[j] = sum / (float)hp->n_head;
	}
}

float *rk_attn_reference(const rk_hparams *hp, int layer, const rk_lane_cache *lane)
{
	return lane->q_ref + (size_t)layer * (size_t)rk_query_len(hp, &lane->pol);
}

rk_attn_span rk_attn_rows(const rk_cpu *c, const void *k, const void *v, int layer, int kv, int cap, int n)
{
	size_t at = rk_row_at(c->b.hp, layer, kv, cap) * (size_t)c->b.hp->head_dim * c->b.kv_bytes;

	if (n == 0)
		return (rk_attn_span){ 0 };
	return (rk_attn_span){ .k = (const char *)k + at, .v = (const char *)v + at, .n = n };
}

static int chunks(int n)
{
	return (n + RK_ATTN_CHUNK - 1) / RK_ATTN_CHUNK;
}

static void add_job(rk_cpu *c, int kv, rk_attn_span a, rk_attn_span b)
{
	rk_attn_job *job = ((rk_attn_scratch *)c->attn_scratch)->job + kv;

	assert(a.n + b.n >= 1 && a.n + b.n <= c->cfg.max_pos);
	job->span[0] = a;
	job->span[1] = b;
	job->bits = 0;
	if (kv == 0)
		job->first_item = 0;
	job[1].first_item = job->first_item + chunks(a.n) + chunks(b.n);
}

int rk_attn_in_prompt(const rk_lane_cache *lane, int n_pos)
{
	return lane->keeps_full && lane->tail.pos0 < n_pos ? lane->tail.pos0 : n_pos;
}

void rk_attn_plan_full(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos)
{
	const rk_store *a = lane->prompt, *b = &lane->tail;
	int n = rk_attn_in_prompt(lane, n_pos);

	assert((n == 0 || n <= a->cap) && n_pos - n <= b->cap);
	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++)
		add_job(c, kv, rk_attn_rows(c, a->k, a->v, layer, kv, a->cap, n),
		        rk_attn_rows(c, b->k, b->v, layer, kv, b->cap, n_pos - n));
}

void rk_attn_plan_glance(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos)
{
	rk_attn_scratch *s = c->attn_scratch;
	const rk_hparams *hp = c->b.hp;
	int d = hp->head_dim, dim = rk_sketch_dim(hp), bits = lane->pol.bits;

	for (int h = 0; h < hp->n_head; h++) {
		memcpy(s->sketch_q[h].x, s->q + h * d, (size_t)d * sizeof *s->q);
		memset(s->sketch_q[h].x + d, 0, (size_t)(dim - d) * sizeof *s->q);
		rk_sketch_query_make(&s->sketch_q[h], dim);
	}
	rk_attn_plan_full(c, layer, lane, n_pos);
	for (int kv = 0; kv < hp->n_kv_head; kv++) {
		rk_attn_job *job = &s->job[kv];
		job->bits = bits;
		job->span[0].sketch = rk_sketch_at(hp, lane->prompt, layer, kv, bits);
		job->span[1].sketch = rk_sketch_at(hp, &lane->tail, layer, kv, bits);
	}
}

void rk_attn_plan_ring(rk_cpu *c, int layer, const rk_lane_cache *lane)
{
	const rk_partial *r = &lane->part;

	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++) {
		int n = r->count[rk_row_at(c->b.hp, layer, kv, 1)];
		add_job(c, kv, rk_attn_rows(c, r->k, r->v, layer, kv, r->cap, n), (rk_attn_span){ 0 });
	}
}

/* s [G][ld_pos] = scores of the group of KV head kv for n positions of a span from t0 on, a multiple of RK_ATTN_CHUNK. */
static void score_rows(rk_cpu *c, int kv, const rk_attn_span *span, int bits, int t0, int n, float *score)
{
	rk_attn_scratch *s = c->attn_scratch;
	int d = c->b.hp->head_dim, dim = rk_sketch_dim(c->b.hp), group = c->b.hp->n_head / c->b.hp->n_kv_head;

	if (!bits) {
		c->attn->score(score, s->ld_pos, s->q + kv * group * d, group,
		               span->k + (size_t)t0 * (size_t)d * c->b.kv_bytes, n, d, c->b.kv_bytes == 2);
		return;
	}
	_Static_assert(RK_ATTN_CHUNK % RK_SKETCH_BLOCK == 0, "a chunk begins with a block");
	(c->b.exact ? rk_sketch_score_exact : c->attn->sketch)(score, s->ld_pos, s->sketch_q + kv * group, group,
		span->sketch.code + (size_t)t0 * (size_t)(dim * bits / 8), span->sketch.scale + t0, n, dim, bits);
}

struct run {
	rk_cpu *c;
	float *out;	/* NULL: only scores are asked for */
	const rk_lane_cache *chosen;	/* its rings are gathered chunk by chunk; NULL: what is attended is there */
	int layer;
};

/* Scores and sums of one chunk and, where asked for, its output. */
static void run_chunk(void *ctx, int item, int worker)
{
	const struct run *r = ctx;
	rk_cpu *c = r->c;
	rk_attn_scratch *s = c->attn_scratch;
	const rk_attn_kernels *k = c->attn;
	int d = c->b.hp->head_dim, group = c->b.hp->n_head / c->b.hp->n_kv_head, kv = 0;
	bool f16 = c->b.kv_bytes == 2;

	while (s->job[kv + 1].first_item <= item)
		kv++;
	const rk_attn_job *job = &s->job[kv];
	if (r->chosen)
		rk_attn_gather_chunk(c, r->layer, r->chosen, kv, item - job->first_item, r->chosen->n_pos);
	int chunk = item - job->first_item, before = 0;	/* positions of the spans before this one */
	const rk_attn_span *span = &job->span[0];
	if (chunk >= chunks(span->n)) {
		chunk -= chunks(span->n);
		before = span->n;
		span = &job->span[1];
	}
	int t0 = chunk * RK_ATTN_CHUNK, n = span->n - t0 < RK_ATTN_CHUNK ? span->n - t0 : RK_ATTN_CHUNK;
	size_t at = (size_t)t0 * (size_t)d * c->b.kv_bytes, first = (size_t)item * (size_t)group;
	float *score = s->score + (size_t)(kv * group) * (size_t)s->ld_pos + (size_t)(before + t0);
	float *p = s->thread[worker].p;

	score_rows(c, kv, span, job->bits, t0, n, score);
	for (int g = 0; g < group; g++) {
		const float *row = score + (size_t)g * (size_t)s->ld_pos;
		float m = k->max(row, n);
		s->part_max[first + (size_t)g] = m;
		s->part_sum[first + (size_t)g] = k->exp_sum(p + g * RK_ATTN_CHUNK, row, n, m);
	}
	if (r->out)
		k->mix(s->part_out + first * (size_t)d, p, RK_ATTN_CHUNK, group, span->v + at, n, d, f16);
}

/* Merges the chunks of one query head in order. */
static void merge_head(rk_cpu *c, int head, float *out)
{
	rk_attn_scratch *s = c->attn_scratch;
	int d = c->b.hp->head_dim, group = c->b.hp->n_head / c->b.hp->n_kv_head, kv = head / group;
	size_t i0 = (size_t)s->job[kv].first_item, i1 = (size_t)s->job[kv + 1].first_item, g = (size_t)(head % group);
	float m = s->part_max[i0 * (size_t)group + g], sum = 0;

	for (size_t i = i0 + 1; i < i1; i++)
		m = fmaxf(m, s->part_max[i * (size_t)group + g]);
	for (size_t i = i0; i < i1; i++)
		sum += s->part_sum[i * (size_t)group + g] * exp2f(s->part_max[i * (size_t)group + g] - m);
	s->max[head] = m;
	s->inv_sum[head] = 1 / sum;
	if (!out)
		return;
	out += (size_t)head * (size_t)d;
	memset(out, 0, (size_t)d * sizeof *out);
	for (size_t i = i0; i < i1; i++) {
		const float *part = s->part_out + (i * (size_t)group + g) * (size_t)d;
		float w = exp2f(s->part_max[i * (size_t)group + g] - m) / sum;
		for (int j = 0; j < d; j++)
			out[j] += w * part[j];
	}
}

static void run_all(struct run *r)
{
	rk_cpu *c = r->c;
	const rk_attn_scratch *s = c->attn_scratch;

	rk_team_run(c->team, s->job[c->b.hp->n_kv_head].first_item, run_chunk, r);
	for (int h = 0; h < c->b.hp->n_head; h++)	/* a few hundred additions each: not worth waking the team */
		merge_head(c, h, r->out);
}

void rk_attn_run(rk_cpu *c, float *out)
{
	run_all(&(struct run){ .c = c, .out = out });
}

void rk_attn_run_chosen(rk_cpu *c, int layer, const rk_lane_cache *lane, float *out)
{
	run_all(&(struct run){ .c = c, .out = out, .chosen = lane, .layer = layer });
}

struct probabilities {
	rk_cpu *c;
	int n;
};

static void probabilities_of(void *ctx, int head, int worker)
{
	const struct probabilities *a = ctx;
	rk_attn_scratch *s = a->c->attn_scratch;
	float *row = s->score + (size_t)head * (size_t)s->ld_pos, w = s->inv_sum[head];

	(void)worker;
	a->c->attn->exp_sum(row, row, a->n, s->max[head]);
	for (int t = 0; t < a->n; t++)
		row[t] *= w;
}

void rk_attn_probabilities(rk_cpu *c, int n)
{
	rk_team_run(c->team, c->b.hp->n_head, probabilities_of, &(struct probabilities){ c, n });
}
