/* aid_ref_lin.c: see aid_ref_lin.h.  Weights come from rk_dequant_row, the definition of every format. */
#include "aid_ref_lin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t aid_u32(aid_rng *r)
{
	r->s ^= r->s >> 12;
	r->s ^= r->s << 25;
	r->s ^= r->s >> 27;
	return (uint32_t)(r->s * 0x2545f4914f6cdd1d >> 32);
}

float aid_uniform(aid_rng *r)
{
	return (float)(aid_u32(r) >> 8) * 0x1p-23f - 1.0f;
}

static rk_half half(aid_rng *r, float size)
{
	return rk_float_to_half(size * (1.25f + 0.75f * aid_uniform(r)));
}

/* Scales and minima that make weights of about unit size, in a block whose other bits are random. */
static void set_scales(aid_rng *r, enum rk_type t, uint8_t *block)
{
	rk_half d = 0, m = half(r, -1.0f);
	switch (t) {
	case RK_Q4_0: d = half(r, 1 / 8.0f); break;
	case RK_Q4_1: d = half(r, 1 / 8.0f); break;
	case RK_Q5_0: d = half(r, 1 / 16.0f); break;
	case RK_Q5_1: d = half(r, 1 / 16.0f); break;
	case RK_Q8_0: d = half(r, 1 / 127.0f); break;
	case RK_Q4_K: d = half(r, 1 / 500.0f); m = half(r, 1 / 63.0f); break;
	case RK_Q5_K: d = half(r, 1 / 1000.0f); m = half(r, 1 / 63.0f); break;
	case RK_Q6_K: d = half(r, 1 / 4000.0f); break;
	default: return;
	}
	if (t == RK_Q6_K)
		memcpy(block + offsetof(rk_block_q6_k, d), &d, sizeof d);
	else
		memcpy(block, &d, sizeof d);
	if (t == RK_Q4_1 || t == RK_Q5_1 || t == RK_Q4_K || t == RK_Q5_K)
		memcpy(block + 2, &m, sizeof m);
}

rk_tensor aid_tensor(aid_rng *r, enum rk_type t, int64_t n_row, int64_t n_col)
{
	size_t block = rk_type_block_bytes(t), bytes = (size_t)n_row * rk_type_row_bytes(t, n_col);
	uint8_t *p = malloc(bytes);
	for (size_t i = 0; p && i < bytes; i += block) {
		float f = aid_uniform(r);
		for (size_t j = 0; j < block; j++)
			p[i + j] = (uint8_t)aid_u32(r);
		if (t == RK_F32) {
			memcpy(p + i, &f, sizeof f);
		} else if (t == RK_F16) {
			rk_half h = rk_float_to_half(f);
			memcpy(p + i, &h, sizeof h);
		} else if (t == RK_BF16) {
			memcpy(p + i, (const char *)&f + 2, 2);
		} else {
			set_scales(r, t, p + i);
		}
	}
	return (rk_tensor){ .data = p, .type = t, .n_row = n_row, .n_col = n_col };
}

rk_model aid_model(int n_embd, int n_head, int n_kv_head, int head_dim, int rope_dim, int n_ff, rk_tensor tok_embd)
{
	rk_model m = {
		.hp = {
			.n_layer = 1, .n_embd = n_embd, .n_head = n_head, .n_kv_head = n_kv_head, .head_dim = head_dim,
			.n_ff = n_ff, .n_vocab = (int)tok_embd.n_row, .n_ctx_train = 2048, .rms_eps = 1e-5f,
			.rope_theta = 1e4f, .rope_dim = rope_dim,
		},
		.w = { .tok_embd = tok_embd, .output = tok_embd },
	};
	m.hp.rope_freq = calloc((size_t)rope_dim / 2 + 1, sizeof *m.hp.rope_freq);
	for (int j = 0; j < rope_dim / 2; j++)
		m.hp.rope_freq[j] = (float)pow(1e4, -2.0 * j / rope_dim);
	return m;
}

void aid_model_free(rk_model *m)
{
	free(m->hp.rope_freq);
	free((void *)m->w.tok_embd.data);
}

static const uint8_t *row_at(const rk_tensor *w, int64_t r)
{
	return (const uint8_t *)w->data + (size_t)r * rk_type_row_bytes(w->type, w->n_col);
}

void ref_matmul(double *y, double *mag, const rk_tensor *w, const float *x, int n)
{
	float *row = malloc((size_t)w->n_col * sizeof *row);
	for (int64_t r = 0; r < w->n_row; r++) {
		rk_dequant_row(w->type, row_at(w, r), row, w->n_col);
		for (int64_t i = 0; i < n; i++) {
			double s = 0, a = 0;
			for (int64_t j = 0; j < w->n_col; j++) {
				double p = (double)row[j] * (double)x[i * w->n_col + j];
				s += p;
				a += fabs(p);
			}
			y[i * w->n_row + r] = s;
			mag[i * w->n_row + r] = a;
		}
	}
	free(row);
}

/* m of each weight d q + m of a row: the row with every q = 0.  Zero for the types without a minimum. */
static void row_minima(enum rk_type t, const uint8_t *src, float *m, int64_t n)
{
	uint8_t block[sizeof(rk_block_q6_k)];
	int len = rk_type_block_len(t);
	size_t bytes = rk_type_block_bytes(t), head;	/* bytes before the first quant */
	switch (t) {
	case RK_Q4_1: head = offsetof(rk_block_q4_1, qs); break;
	case RK_Q5_1: head = offsetof(rk_block_q5_1, qh); break;
	case RK_Q4_K: head = offsetof(rk_block_q4_k, qs); break;
	case RK_Q5_K: head = offsetof(rk_block_q5_k, qh); break;
	default:
		memset(m, 0, (size_t)n * sizeof *m);
		return;
	}
	for (int64_t j = 0; j < n; j += len, src += bytes) {
		memset(block, 0, sizeof block);
		memcpy(block, src, head);
		rk_dequant_row(t, block, m + j, len);
	}
}

/* xq = d q, half = d / 2 of each element of a row */
static void quantise_row(const float *x, double *xq, double *half_step, int64_t n)
{
	for (int64_t g = 0; g < n; g += 32) {
		float big = 0;
		for (int j = 0; j < 32; j++)
			big = fmaxf(big, fabsf(x[g + j]));
		float d = big / 127.0f, inv = big > 0 ? 127.0f / big : 0;
		for (int j = 0; j < 32; j++) {
			xq[g + j] = (double)d * (double)rintf(x[g + j] * inv);
			half_step[g + j] = d / 2;
		}
	}
}

void ref_matmul_q8(double *y, double *mag, double *quant, const rk_tensor *w, const float *x, int n)
{
	const int64_t n_col = w->n_col;
	float *row = malloc((size_t)n_col * sizeof *row), *min = malloc((size_t)n_col * sizeof *min);
	double *xq = malloc((size_t)n_col * sizeof *xq), *half_step = malloc((size_t)n_col * sizeof *half_step);
	for (int64_t i = 0; i < n; i++) {
		quantise_row(x + i * n_col, xq, half_step, n_col);
		for (int64_t r = 0; r < w->n_row; r++) {
			double s = 0, a = 0, q = 0;
			rk_dequant_row(w->type, row_at(w, r), row, n_col);
			row_minima(w->type, row_at(w, r), min, n_col);
			for (int64_t j = 0; j < n_col; j++) {
				s += (double)row[j] * xq[j];
				a += (fabs((double)row[j] - (double)min[j]) + fabs((double)min[j])) * fabs(xq[j]);
				q += fabs((double)row[j]) * half_step[j];
			}
			y[i * w->n_row + r] = s;
			mag[i * w->n_row + r] = a;
			quant[i * w->n_row + r] = q;
		}
	}
	free(row);
	free(min);
	free(xq);
	free(half_step);
}

void ref_embed(double *x, const rk_tensor *w, const int32_t *ids, int n)
{
	float *row = malloc((size_t)w->n_col * sizeof *row);
	for (int i = 0; i < n; i++) {
		rk_dequant_row(w->type, row_at(w, ids[i]), row, w->n_col);
		for (int64_t j = 0; j < w->n_col; j++)
			x[i * w->n_col + j] = (double)row[j];
	}
	free(row);
}

void ref_rmsnorm(double *y, const float *x, const float *w, int n, int dim, double eps)
{
	for (int i = 0; i < n; i++, x += dim, y += dim) {
		double s = 0;
		for (int j = 0; j < dim; j++)
			s += (double)x[j] * (double)x[j];
		for (int j = 0; j < dim; j++)
			y[j] = (double)x[j] / sqrt(s / dim + eps) * (double)w[j];
	}
}

void ref_rope(double *out, const float *x, const int32_t *pos, int n, int n_head, const rk_hparams *hp)
{
	for (int i = 0; i < n * n_head; i++, x += hp->head_dim, out += hp->head_dim)
		for (int j = 0; j < hp->head_dim; j++) {
			if (j >= hp->rope_dim) {
				out[j] = (double)x[j];
				continue;
			}
			double angle = (double)pos[i / n_head] * (double)hp->rope_freq[j / 2];
			double other = j % 2 ? (double)x[j - 1] : -(double)x[j + 1];
			out[j] = (double)x[j] * cos(angle) + other * sin(angle);
		}
}

void ref_silu_mul(double *y, const float *gate, const float *up, int n)
{
	for (int j = 0; j < n; j++)
		y[j] = (double)gate[j] / (1 + exp(-(double)gate[j])) * (double)up[j];
}

void ref_logits_stats(const float *x, int n_vocab, double *lse, int32_t *argmax)
{
	double s = 0;
	*argmax = 0;
	for (int j = 1; j < n_vocab; j++)
		if (x[j] > x[*argmax])
			*argmax = j;
	for (int j = 0; j < n_vocab; j++)
		s += exp((double)x[j] - (double)x[*argmax]);
	*lse = (double)x[*argmax] + log(s);
}
