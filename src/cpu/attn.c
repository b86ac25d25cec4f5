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
	size_t items = 2 * n_kv * ((size_t)c->cfg.max_pos / RK_ATTN_CHUNK + 2);	/* of job and ring_job; prompt and tail may end in a short chunk */

	s->d_pad = (int)d_pad;
	s->ld_pos = (int)ld_pos;
	s->q_rows = take(base, &at, rows * d_pad, sizeof(float));
	s->row_max = take(base, &at, rows, sizeof(float));
	s->row_sum = take(base, &at, rows, sizeof(float));
	s->job = take(base, &at, n_kv + 1, sizeof(rk_attn_job));
	s->ring_job = take(base, &at, n_kv + 1, sizeof(rk_attn_job));
	s->q = take(base, &at, n_head * d, sizeof(float));
	s->score = take(base, &at, n_head * ld_pos, sizeof(float));
	s->mean = take(base, &at, n_head * ld_pos, sizeof(float));
	s->max = take(base, &at, n_head, sizeof(float));
	s->inv_sum = take(base, &at, n_head, sizeof(float));
	s->log_sum = take(base, &at, n_head, sizeof(float));
	s->part_max = take(base, &at, items * group, sizeof(float));
	s->part_sum = take(base, &at, items * group, sizeof(float));
	s->part_out = take(base, &at, items * group * d, sizeof(float));
	s->full = take(base, &at, n_head * d, sizeof(float));
	s->churn = take(base, &at, n_kv, sizeof(float));
	s->n_done = take(base, &at, n_kv, sizeof *s->n_done);
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
		t.k_row = take(base, &at, RK_ATTN_CHUNK, sizeof *t.k_row);
		t.v_row = take(base, &at, RK_ATTN_CHUNK, sizeof *t.v_row);
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

/* Adds the job of KV head kv: an item is a chunk of each span, or of the choice of their rows. */
static void add_job(const rk_cpu *c, rk_attn_job *jobs, int kv, rk_attn_job job)
{
	assert(job.n >= 1 && job.n <= c->cfg.max_pos);
	job.first_item = jobs[kv].first_item;
	jobs[kv] = job;
	jobs[kv + 1].first_item = job.first_item + (job.pos ? chunks(job.n) : chunks(job.span[0].n) + chunks(job.span[1].n));
}

int rk_attn_in_prompt(const rk_lane_cache *lane, int n_pos)
{
	return lane->keeps_full && lane->tail.pos0 < n_pos ? lane->tail.pos0 : n_pos;
}

/* span = the first n_pos rows of the full cache: those of the prompt, those of the tail. */
static void full_cache(const rk_cpu *c, int layer, int kv, const rk_lane_cache *lane, int n_pos, rk_attn_span span[2])
{
	const rk_store *a = lane->prompt, *b = &lane->tail;
	int n = rk_attn_in_prompt(lane, n_pos);

	assert((n == 0 || n <= a->cap) && n_pos - n <= b->cap);
	span[0] = rk_attn_rows(c, a->k, a->v, layer, kv, a->cap, n);
	span[1] = rk_attn_rows(c, b->k, b->v, layer, kv, b->cap, n_pos - n);
}

void rk_attn_plan_full(rk_cpu *c, int layer, const rk_lane_cache *lane, int n_pos)
{
	rk_attn_job *jobs = ((rk_attn_scratch *)c->attn_scratch)->job;

	jobs[0].first_item = 0;
	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++) {
		rk_attn_job job = { .n = n_pos };
		full_cache(c, layer, kv, lane, n_pos, job.span);
		add_job(c, jobs, kv, job);
	}
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

/* With sketches half of the steps choose anew, so a copy would be written about as often as it is read. */
bool rk_cpu_ring_copies(const rk_policy *pol, bool keeps_full)
{
	(void)keeps_full;
	return !pol->bits;
}

static void plan_ring(const rk_cpu *c, rk_attn_job *jobs, int kv, int layer, const rk_lane_cache *lane, int n)
{
	const rk_partial *r = &lane->part;
	rk_attn_job job = { .n = n };

	if (!r->k) {
		job.pos = r->pos + rk_row_at(c->b.hp, layer, kv, r->cap);
		full_cache(c, layer, kv, lane, lane->n_pos, job.span);
	} else {
		job.span[0] = rk_attn_rows(c, r->k, r->v, layer, kv, r->cap, n);
	}
	add_job(c, jobs, kv, job);
}

void rk_attn_plan_ring(rk_cpu *c, int layer, const rk_lane_cache *lane)
{
	rk_attn_job *jobs = ((rk_attn_scratch *)c->attn_scratch)->job;

	jobs[0].first_item = 0;
	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++)
		plan_ring(c, jobs, kv, layer, lane, lane->part.count[rk_row_at(c->b.hp, layer, kv, 1)]);
}

void rk_attn_plan_chosen(rk_cpu *c, int layer, const rk_lane_cache *lane)
{
	rk_attn_scratch *s = c->attn_scratch;
	int n = lane->budget < lane->n_pos ? lane->budget : lane->n_pos;

	s->ring_job[0].first_item = s->job[c->b.hp->n_kv_head].first_item;
	for (int kv = 0; kv < c->b.hp->n_kv_head; kv++)
		plan_ring(c, s->ring_job, kv, layer, lane, n);
}

/* The rows of n positions from t0 on that a job chose. */
static void find_rows(const rk_cpu *c, const rk_attn_job *job, int t0, int n, const char **k, const char **v)
{
	size_t bytes = (size_t)c->b.hp->head_dim * c->b.kv_bytes;

	for (int i = 0; i < n; i++) {
		int pos = job->pos[t0 + i], in_prompt = job->span[0].n, late = pos >= in_prompt;
		size_t at = (size_t)(late ? pos - in_prompt : pos) * bytes;
		k[i] = job->span[late].k + at;
		v[i] = job->span[late].v + at;
	}
}

/* s [G][ld_pos] = scores of the group of KV head kv for n positions of a span from t0 on, a multiple of RK_ATTN_CHUNK. */
static void score_span(rk_cpu *c, int kv, const rk_attn_span *span, int bits, int t0, int n, float *score)
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

int rk_attn_kv_of(const rk_attn_job *jobs, int item)
{
	int kv = 0;

	while (jobs[kv + 1].first_item <= item)
		kv++;
	return kv;
}

void rk_attn_chunk(rk_cpu *c, const rk_attn_job *jobs, int item, int worker, bool mix)
{
	rk_attn_scratch *s = c->attn_scratch;
	const rk_attn_kernels *k = c->attn;
	int d = c->b.hp->head_dim, group = c->b.hp->n_head / c->b.hp->n_kv_head, kv = rk_attn_kv_of(jobs, item);
	bool f16 = c->b.kv_bytes == 2;
	const rk_attn_job *job = &jobs[kv];
	int chunk = item - job->first_item, before = 0;	/* positions of the spans before this one */
	const rk_attn_span *span = &job->span[0];
	int in_span = job->pos ? job->n : span->n;
	if (chunk >= chunks(in_span)) {
		chunk -= chunks(in_span);
		before = in_span;
		span = &job->span[1];
		in_span = span->n;
	}
	int t0 = chunk * RK_ATTN_CHUNK, n = in_span - t0 < RK_ATTN_CHUNK ? in_span - t0 : RK_ATTN_CHUNK;
	size_t at = (size_t)t0 * (size_t)d * c->b.kv_bytes, first = (size_t)item * (size_t)group;
	float *score = s->score + (size_t)(kv * group) * (size_t)s->ld_pos + (size_t)(before + t0);
	const rk_attn_thread *t = &s->thread[worker];
	float *p = t->p;

	if (job->pos) {
		find_rows(c, job, t0, n, t->k_row, t->v_row);
		k->score_rows(score, s->ld_pos, s->q + kv * group * d, group, t->k_row, n, d, f16);
	} else {
		score_span(c, kv, span, job->bits, t0, n, score);
	}
	for (int g = 0; g < group; g++) {
		const float *row = score + (size_t)g * (size_t)s->ld_pos;
		float m = k->max(row, n);
		s->part_max[first + (size_t)g] = m;
		s->part_sum[first + (size_t)g] = k->exp_sum(p + g * RK_ATTN_CHUNK, row, n, m);
	}
	if (mix && job->pos)
		k->mix_rows(s->part_out + first * (size_t)d, p, RK_ATTN_CHUNK, group, t->v_row, n, d, f16);
	else if (mix)
		k->mix(s->part_out + first * (size_t)d, p, RK_ATTN_CHUNK, group, span->v + at, n, d, f16);
}

/* Merges the chunks of query head g of a job's group, in order. */
static void merge_head(rk_cpu *c, const rk_attn_job *job, int g, int head, float *out)
{
	rk_attn_scratch *s = c->attn_scratch;
	size_t group = (size_t)(c->b.hp->n_head / c->b.hp->n_kv_head), i0 = (size_t)job[0].first_item, i1 = (size_t)job[1].first_item;
	const float *part_max = s->part_max + g, *part_sum = s->part_sum + g;
	int d = c->b.hp->head_dim;
	float m = part_max[i0 * group], sum = 0;

	for (size_t i = i0 + 1; i < i1; i++)
		m = part_max[i * group] > m ? part_max[i * group] : m;
	for (size_t i = i0; i < i1; i++)
		sum += part_sum[i * group] * exp2f(part_max[i * group] - m);
	s->max[head] = m;
	s->inv_sum[head] = 1 / sum;
	s->log_sum[head] = log2f(sum);
	if (!out)
		return;
	out += (size_t)head * (size_t)d;
	memset(out, 0, (size_t)d * sizeof *out);
	for (size_t i = i0; i < i1; i++) {
		const float *part = s->part_out + (i * group + (size_t)g) * (size_t)d;
		float w = exp2f(part_max[i * group] - m) / sum;
		for (int j = 0; j < d; j++)
			out[j] += w * part[j];
	}
}

void rk_attn_merge(rk_cpu *c, const rk_attn_job *jobs, int kv, float *out)
{
	int group = c->b.hp->n_head / c->b.hp->n_kv_head;

	for (int g = 0; g < group; g++)
		merge_head(c, &jobs[kv], g, kv * group + g, out);
}

struct run {
	rk_cpu *c;
	bool mix;
};

static void run_chunk(void *ctx, int item, int worker)
{
	const struct run *r = ctx;

	rk_attn_chunk(r->c, ((rk_attn_scratch *)r->c->attn_scratch)->job, item, worker, r->mix);
}

void rk_attn_run(rk_cpu *c, float *out)
{
	const rk_attn_scratch *s = c->attn_scratch;
	int n_kv = c->b.hp->n_kv_head;

	rk_team_run(c->team, s->job[n_kv].first_item, run_chunk, &(struct run){ c, out != NULL });
	for (int kv = 0; kv < n_kv; kv++)	/* a few hundred additions each: not worth waking the team */
		rk_attn_merge(c, s->job, kv, out);
}
