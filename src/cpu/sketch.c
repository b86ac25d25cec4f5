/* sketch.c: low-bit sketches of the keys on the CPU: making them, and scoring them in plain C.
 *
 * Sketches are made from the keys as they are stored and the prompt's mean key, so they are a function of the caches alone: they
 * can be made late (a policy that is switched on) or again (a session that is read back).  After the rotation the elements of a
 * key are near to normally distributed, whatever the model; half-integer levels waste none on zero.  Rows are independent.
 * Layout: cache.h; scores: sketch.h.
 */
#include <math.h>
#include <string.h>
#include "cpu/cpu.h"

#define MAX_DIM 1024

void rk_sketch_rotate(float *x, int dim)
{
	float norm = 1 / sqrtf((float)dim);

	for (int half = 1; half < dim; half *= 2)
		for (int i = 0; i < dim; i += 2 * half)
			for (int j = i; j < i + half; j++) {
				float a = x[j], b = x[j + half];
				x[j] = a + b;
				x[j + half] = a - b;
			}
	for (int j = 0; j < dim; j++)
		x[j] *= norm;
}

void rk_sketch_query_make(rk_sketch_query *q, int dim)
{
	float max = 0;

	rk_sketch_rotate(q->x, dim);
	for (int j = 0; j < dim; j++)
		max = fabsf(q->x[j]) > max ? fabsf(q->x[j]) : max;
	float inv = max > 0 ? 127 / max : 0;
	q->half_step = max / 254;
	q->sum = 0;
	for (int j = 0; j < dim; j++) {
		q->q[j] = (int8_t)lrintf(q->x[j] * inv);
		q->sum += q->q[j];
	}
}

/* Bits `low` .. low+width-1 of element j of key t lie in one byte of vectors with `width` bits per element. */
static uint8_t *field(uint8_t *vectors, int t, int j, int width, int *shift)
{
	int per_byte = 8 / width, g = j / 4;

	*shift = g % per_byte * width;
	return vectors + 64 * (g / per_byte) + 4 * t + j % 4;
}

static void put(uint8_t *vectors, int t, int j, int width, unsigned u)
{
	int shift;
	uint8_t *byte = field(vectors, t, j, width, &shift);

	*byte = (uint8_t)((*byte & ~(((1u << width) - 1) << shift)) | u << shift);
}

static unsigned take(const uint8_t *vectors, int t, int j, int width)
{
	int shift;
	const uint8_t *byte = field((uint8_t *)vectors, t, j, width, &shift);

	return (unsigned)*byte >> shift & ((1u << width) - 1);
}

unsigned rk_sketch_code(const uint8_t *block, int t, int j, int dim, int bits)
{
	if (bits != 3)
		return take(block, t, j, bits);
	return take(block, t, j, 2) | take(block + 4 * dim, t, j, 1) << 2;
}

void rk_sketch_write(uint8_t *code, rk_half *scale, int t, const float *x, int dim, int bits)
{
	uint8_t *block = code + (size_t)(t / RK_SKETCH_BLOCK) * (size_t)(RK_SKETCH_BLOCK * dim * bits / 8);
	float max = 0, sum = 0, n_level = (float)(1 << bits);

	for (int j = 0; j < dim; j++) {
		float a = fabsf(x[j]);
		max = a > max ? a : max;
		sum += a;
	}
	scale[t] = rk_float_to_half(bits == 2 ? sum / (float)dim : max / (n_level / 2 - 0.5f));
	float s = rk_half_to_float(scale[t]), inv = s > 0 ? 1 / s : 0;
	for (int j = 0; j < dim; j++) {
		float u = rintf(x[j] * inv - 0.5f) + n_level / 2;
		unsigned c = (unsigned)(u > 0 ? u < n_level - 1 ? u : n_level - 1 : 0);	/* 0 if it is not a number */
		if (bits != 3) {
			put(block, t % RK_SKETCH_BLOCK, j, bits, c);
		} else {
			put(block, t % RK_SKETCH_BLOCK, j, 2, c & 3);
			put(block + 4 * dim, t % RK_SKETCH_BLOCK, j, 1, c >> 2);
		}
	}
}

struct key_mean {
	const rk_cpu *c;
	rk_store *st;
	int layer;
};

/* Of one KV head. */
static void key_mean_head(void *ctx, int kv, int worker)
{
	const struct key_mean *a = ctx;
	const rk_attn_scratch *s = a->c->attn_scratch;
	int d = a->c->b.hp->head_dim, n = a->st->len;
	const char *k = rk_attn_rows(a->c, a->st->k, a->st->v, a->layer, kv, a->st->cap, n).k;
	float *rows = s->thread[worker].vt, *mean = a->st->mean + rk_row_at(a->c->b.hp, a->layer, kv, d);
	double sum[MAX_DIM] = { 0 };

	for (int t = 0; t < n; t += RK_ATTN_BLOCK) {
		int m = n - t < RK_ATTN_BLOCK ? n - t : RK_ATTN_BLOCK;
		a->c->attn->load_v(rows, k + (size_t)t * (size_t)d * a->c->b.kv_bytes, m, d, s->d_pad, a->c->b.kv_bytes == sizeof(rk_half));
		for (int i = 0; i < m; i++)
			for (int j = 0; j < d; j++)
				sum[j] += (double)rows[i * s->d_pad + j];
	}
	for (int j = 0; j < d; j++)
		mean[j] = (float)(sum[j] / n);
}

void rk_cpu_key_mean(rk_backend *b, rk_store *st, int layer)
{
	struct key_mean a = { (rk_cpu *)b, st, layer };

	rk_team_run(a.c->team, b->hp->n_kv_head, key_mean_head, &a);
}

struct sketch {
	const rk_cpu *c;
	rk_store *st;
	int layer, at;
};

/* All KV heads of one position. */
static void sketch_row(void *ctx, int i, int worker)
{
	const struct sketch *a = ctx;
	const rk_hparams *hp = a->c->b.hp;
	int d = hp->head_dim, dim = rk_sketch_dim(hp), t = a->at + i;
	float x[MAX_DIM];

	(void)worker;
	for (int kv = 0; kv < hp->n_kv_head; kv++) {
		size_t row = (rk_row_at(hp, a->layer, kv, a->st->cap) + (size_t)t) * (size_t)d;
		const float *mean = a->st->mean + rk_row_at(hp, a->layer, kv, d);
		for (int j = 0; j < d; j++)
			x[j] = (a->c->b.kv_bytes == sizeof(rk_half) ? rk_half_to_float(((const rk_half *)a->st->k)[row + (size_t)j])
			                                             : ((const float *)a->st->k)[row + (size_t)j]) - mean[j];
		memset(x + d, 0, (size_t)(dim - d) * sizeof *x);
		rk_sketch_rotate(x, dim);
		for (int bits = 0; bits <= RK_SKETCH_MAX_BITS; bits++) {
			if (!a->st->sketch[bits])
				continue;
			rk_sketch_rows r = rk_sketch_at(hp, a->st, a->layer, kv, bits);
			rk_sketch_write(r.code, r.scale, t, x, dim, bits);
		}
	}
}

void rk_cpu_sketch(rk_backend *b, rk_store *st, int layer, int at, int n)
{
	struct sketch a = { (rk_cpu *)b, st, layer, at };

	if (n > RK_MAX_LANE)
		rk_team_run(a.c->team, n, sketch_row, &a);
	else
		for (int i = 0; i < n; i++)
			sketch_row(&a, i, 0);
}

void rk_sketch_score_scalar(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                            const rk_half *scale, int n, int dim, int bits)
{
	for (int t = 0; t < n; t++) {
		const uint8_t *block = code + (size_t)(t / RK_SKETCH_BLOCK) * (size_t)(RK_SKETCH_BLOCK * dim * bits / 8);
		unsigned u[MAX_DIM];
		for (int j = 0; j < dim; j++)
			u[j] = rk_sketch_code(block, t % RK_SKETCH_BLOCK, j, dim, bits);
		for (int h = 0; h < n_head; h++) {
			int32_t sum = 0;
			for (int j = 0; j < dim; j++)
				sum += q[h].q[j] * (int)u[j];
			sum = 2 * sum - ((1 << bits) - 1) * q[h].sum;
			s[(size_t)h * (size_t)lds + (size_t)t] = (float)sum * (rk_half_to_float(scale[t]) * q[h].half_step);
		}
	}
}

void rk_sketch_score_exact(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                           const rk_half *scale, int n, int dim, int bits)
{
	float middle = (float)((1 << bits) - 1) / 2;

	for (int t = 0; t < n; t++) {
		const uint8_t *block = code + (size_t)(t / RK_SKETCH_BLOCK) * (size_t)(RK_SKETCH_BLOCK * dim * bits / 8);
		for (int h = 0; h < n_head; h++) {
			float sum = 0;
			for (int j = 0; j < dim; j++)
				sum += q[h].x[j] * ((float)rk_sketch_code(block, t % RK_SKETCH_BLOCK, j, dim, bits) - middle);
			s[(size_t)h * (size_t)lds + (size_t)t] = sum * rk_half_to_float(scale[t]);
		}
	}
}
