/* pointwise.cu: the operations that touch each element once: norm, RoPE, cache append, SiLU, sums, statistics of
 * logits.
 *
 * All are bound by memory, and in a decode step by their launch: a few microseconds of an SM each.  f32 throughout.
 */
#include "cuda.h"

#include <math.h>

#define THREADS 256

/* rmsnorm: y = x / sqrt(mean(x^2) + eps) * w.  Reference: ref_rmsnorm.  x, y [n][dim], w [dim] f32.
 * One block per row; f32 partial sums per thread, joined in order; reads x twice (the second time from L1). */
__global__ void rmsnorm(float *y, const float *x, const float *w, int dim, float eps)
{
	float *part = (float *)rk_shared(), sum = 0;

	x += (size_t)blockIdx.x * (size_t)dim;
	y += (size_t)blockIdx.x * (size_t)dim;
	for (int j = (int)threadIdx.x; j < dim; j += (int)blockDim.x)
		sum += x[j] * x[j];
	sum = rk_block_sum(sum, part);
	float scale = 1.0f / sqrtf(sum / (float)dim + eps);
	for (int j = (int)threadIdx.x; j < dim; j += (int)blockDim.x)
		y[j] = x[j] * scale * w[j];
}

void rk_cuda_rmsnorm(rk_backend *b, float *y, const float *x, const rk_tensor *w, int n, int dim, float eps)
{
	rk_cuda *c = (rk_cuda *)b;

	if (rk_cuda_alive(c))
		RK_LAUNCH(rmsnorm, n, THREADS, THREADS / RK_WARP * sizeof(float), c->stream, y, x,
		          (const float *)w->data, dim, eps);
}

/* rope_table: trig[i][j] = cos, sin of pos[i] freq[j].  One block per row.  In double precision, as on the CPU: at
 * position 100,000 the fastest angle has lost 17 bits to whole turns.  Once per step or chunk; all layers use it. */
__global__ void rope_table(float *trig, const int32_t *pos, const float *freq, int n_pair)
{
	for (int j = (int)threadIdx.x; j < n_pair; j += (int)blockDim.x) {
		double angle = (double)pos[blockIdx.x] * (double)freq[j];
		float *t = trig + ((size_t)blockIdx.x * (size_t)n_pair + (size_t)j) * 2;
		t[0] = (float)cos(angle);
		t[1] = (float)sin(angle);
	}
}

void rk_cuda_rope_table(rk_cuda *c, const int32_t *pos_dev, int n)
{
	if (rk_cuda_alive(c))
		RK_LAUNCH(rope_table, n, 64, 0, c->stream, c->s.trig, pos_dev, c->rope_freq, c->b.hp->rope_dim / 2);
}

/* rope: interleaved pairs of each head rotated by trig[row].  Reference: ref_rope.  x, out [n][n_head][d]; one block
 * per row. */
__global__ void rope(float *out, const float *x, const float *trig, int n_head, int d, int rope_dim)
{
	size_t row = (size_t)blockIdx.x * (size_t)(n_head * d);

	trig += (size_t)blockIdx.x * (size_t)rope_dim;
	for (int p = (int)threadIdx.x; p < n_head * d / 2; p += (int)blockDim.x) {
		int j = 2 * p % d;
		float a = x[row + 2 * p], b = x[row + 2 * p + 1];
		float cs = j < rope_dim ? trig[j] : 1, sn = j < rope_dim ? trig[j + 1] : 0;
		out[row + 2 * p] = a * cs - b * sn;
		out[row + 2 * p + 1] = a * sn + b * cs;
	}
}

void rk_cuda_rope(rk_backend *b, float *out, const float *x, const int32_t *pos, int n, int n_head)
{
	rk_cuda *c = (rk_cuda *)b;
	size_t bytes = (size_t)n * sizeof *pos;

	if (!rk_cuda_alive(c))
		return;
	if (!c->n_step && memcmp(c->row_pos, pos, bytes)) {
		memcpy(c->row_pos, pos, bytes);
		if (!rk_cuda_ok(c, cudaMemcpyAsync(c->s.row_pos, pos, bytes, cudaMemcpyHostToDevice, c->stream),
		                "copy of positions"))
			return;
		rk_cuda_rope_table(c, c->s.row_pos, n);
	}
	RK_LAUNCH(rope, n, THREADS, 0, c->stream, out, x, c->s.trig, n_head, b->hp->head_dim, b->hp->rope_dim);
}

/* kv_append: k, v [n][n_kv][d] f32 to elements at .. of [n_kv][cap][d] f16 or f32.  One block per row. */
template<typename T>
__global__ void kv_append(T *dk, T *dv, int cap, int at, const float *k, const float *v, int n_kv, int d)
{
	size_t row = (size_t)blockIdx.x * (size_t)(n_kv * d);

	for (int i = (int)threadIdx.x; i < n_kv * d; i += (int)blockDim.x) {
		size_t to = ((size_t)(i / d) * (size_t)cap + (size_t)(at + (int)blockIdx.x)) * (size_t)d +
			(size_t)(i % d);
		rk_put(dk + to, k[row + (size_t)i]);
		rk_put(dv + to, v[row + (size_t)i]);
	}
}

template<typename T> static void append(rk_cuda *c, rk_store *st, int layer, int at, const float *k, const float *v,
                                        int n)
{
	size_t base = rk_row_at(c->b.hp, layer, 0, st->cap) * (size_t)c->dims.d;

	RK_LAUNCH(kv_append<T>, n, THREADS, 0, c->stream, (T *)st->k + base, (T *)st->v + base, st->cap, at, k, v,
	          c->dims.n_kv, c->dims.d);
}

void rk_cuda_kv_append(rk_backend *b, rk_store *st, int layer, int at, const float *k, const float *v, int n)
{
	rk_cuda *c = (rk_cuda *)b;

	if (!rk_cuda_alive(c) || rk_cuda_stepping(c, st))
		return;
	if (b->kv_bytes == 4)
		append<float>(c, st, layer, at, k, v, n);
	else
		append<uint16_t>(c, st, layer, at, k, v, n);
}

/* silu_mul: y = g / (1 + exp(-g)) u.  Reference: ref_silu_mul.  One thread per element. */
__global__ void silu_mul(float *y, const float *g, const float *u, size_t n)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		y[i] = g[i] / (1.0f + expf(-g[i])) * u[i];
}

/* add: x += y. */
__global__ void add(float *x, const float *y, size_t n)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		x[i] += y[i];
}

void rk_cuda_silu_mul(rk_backend *b, float *y, const float *gate, const float *up, int n, int dim)
{
	rk_cuda *c = (rk_cuda *)b;
	size_t len = (size_t)n * (size_t)dim;

	if (rk_cuda_alive(c))
		RK_LAUNCH(silu_mul, (unsigned)((len + THREADS - 1) / THREADS), THREADS, 0, c->stream, y, gate, up, len);
}

void rk_cuda_add(rk_backend *b, float *x, const float *y, int n, int dim)
{
	rk_cuda *c = (rk_cuda *)b;
	size_t len = (size_t)n * (size_t)dim;

	if (rk_cuda_alive(c))
		RK_LAUNCH(add, (unsigned)((len + THREADS - 1) / THREADS), THREADS, 0, c->stream, x, y, len);
}

/* logits_stats: lse = log sum exp x, argmax = the lowest index of the largest x.  Reference: ref_logits_stats.
 * x [n][n_vocab] f32; one block per row; f32 partial sums per thread.  Reads x twice, the second time from L2. */
__global__ void logits_stats(const float *x, int n_vocab, float *lse, int32_t *argmax)
{
	float *part = (float *)rk_shared(), max = -INFINITY, sum = 0;
	int at = 0;

	x += (size_t)blockIdx.x * (size_t)n_vocab;
	for (int j = (int)threadIdx.x; j < n_vocab; j += (int)blockDim.x)
		if (x[j] > max) {
			max = x[j];
			at = j;
		}
	float top = rk_block_max(max, part);
	float low = -rk_block_max(max == top ? (float)-at : -INFINITY, part);	/* indices below 2^24 are exact */
	for (int j = (int)threadIdx.x; j < n_vocab; j += (int)blockDim.x)
		sum += expf(x[j] - top);
	sum = rk_block_sum(sum, part);
	if (threadIdx.x == 0) {
		lse[blockIdx.x] = top + logf(sum);
		argmax[blockIdx.x] = (int32_t)low;
	}
}

void rk_cuda_logits_stats(rk_backend *b, const float *logits, int n, float *lse, int32_t *argmax)
{
	rk_cuda *c = (rk_cuda *)b;
	size_t rows = (size_t)n;

	/* after an error the caller finds no garbage, and sync says what went wrong */
	memset(lse, 0, rows * sizeof *lse);
	memset(argmax, 0, rows * sizeof *argmax);
	if (!rk_cuda_alive(c))
		return;
	RK_LAUNCH(logits_stats, n, 1024, 1024 / RK_WARP * sizeof(float), c->stream, logits, b->hp->n_vocab, c->s.lse,
	          c->s.argmax);
	if (!rk_cuda_ok(c, cudaMemcpyAsync(c->lse_host, c->s.lse, rows * sizeof *lse, cudaMemcpyDeviceToHost,
	                                   c->stream), "copy of lse") ||
	    !rk_cuda_ok(c, cudaMemcpyAsync(c->argmax_host, c->s.argmax, rows * sizeof *argmax, cudaMemcpyDeviceToHost,
	                                   c->stream), "copy of argmax") ||
	    !rk_cuda_ok(c, cudaStreamSynchronize(c->stream), "logits_stats"))
		return;
	memcpy(lse, c->lse_host, rows * sizeof *lse);
	memcpy(argmax, c->argmax_host, rows * sizeof *argmax);
}

/* Both rows are on the host by the time anyone asks. */
float rk_cuda_logits_kl(rk_backend *b, const float *p, float p_lse, const float *q, float q_lse)
{
	double sum = 0;

	for (int j = 0; j < b->hp->n_vocab; j++) {
		float lp = p[j] - p_lse;
		sum += (double)expf(lp) * (double)(lp - (q[j] - q_lse));
	}
	return sum > 0 ? (float)sum : 0;
}
