/* cuda_backend.cu: opens a GPU: checks it, copies the weights, lays out the scratch; memory, copies and errors.
 *
 * Nothing is allocated after open but what the session asks for with alloc.  Engine thread only.  See cuda.h.
 */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rk_cuda_attn_decode_init(rk_cuda *c);
bool rk_cuda_attn_prefill_init(rk_cuda *c);
bool rk_cuda_attn_mma_init(rk_cuda *c);

/* ---- errors ---- */

bool rk_cuda_ok(rk_cuda *c, cudaError_t r, const char *call)
{
	if (r != cudaSuccess && c->error.code == RK_OK)
		rk_fail(&c->error, RK_EFAIL,
		        "GPU %d (%s): %s: %s; the text so far is kept, the model must be opened again", c->device,
		        c->b.device, call,
		        cudaGetErrorString(r));
	return r == cudaSuccess;
}

bool rk_cuda_blas_ok(rk_cuda *c, cublasStatus_t r, const char *call)
{
	if (r != CUBLAS_STATUS_SUCCESS && c->error.code == RK_OK)
		rk_fail(&c->error, RK_EFAIL, "GPU %d (%s): %s: %s", c->device, c->b.device, call,
		        cublasGetStatusString(r));
	return r == CUBLAS_STATUS_SUCCESS;
}

static int give_error(const rk_cuda *c, rk_err *e)
{
	if (e)
		*e = c->error;
	return -1;
}

/* ---- memory ---- */

static int device_malloc(rk_cuda *c, const char *what, size_t bytes, void **p, rk_err *e)
{
	bool model = p == &c->weights;
	cudaError_t r = cudaMalloc(p, bytes ? bytes : 1);
	size_t free = 0, total = 0;

	if (r == cudaSuccess)
		return 0;
	*p = NULL;
	cudaGetLastError();	/* not having the memory leaves the device usable */
	if (r != cudaErrorMemoryAllocation) {
		rk_cuda_ok(c, r, "cudaMalloc");
		return give_error(c, e);
	}
	cudaMemGetInfo(&free, &total);
	return rk_fail(e, RK_ENOMEM,
	               "GPU %d (%s): %s takes %.1f MB, %.1f of %.1f MB are free; %s", c->device, c->b.device, what,
	               (double)bytes / 1e6, (double)free / 1e6, (double)total / 1e6,
	               model ? "take a smaller model or --device cpu" : "lower --ctx, -n, --chunk or the number of lanes");
}

static int cuda_alloc(rk_backend *b, size_t bytes, void **p, rk_err *e)
{
	rk_cuda *c = (rk_cuda *)b;

	*p = NULL;
	if (!rk_cuda_alive(c))
		return give_error(c, e);
	rk_cuda_forget_graphs(c);
	if (device_malloc(c, "the session", bytes, p, e))
		return -1;
	if (rk_cuda_ok(c, cudaMemsetAsync(*p, 0, bytes ? bytes : 1, c->stream), "cudaMemsetAsync"))
		return 0;
	cudaFree(*p);
	*p = NULL;
	return give_error(c, e);
}

static void cuda_free(rk_backend *b, void *p, size_t bytes)
{
	(void)bytes;
	rk_cuda_forget_graphs((rk_cuda *)b);
	rk_cuda_ok((rk_cuda *)b, cudaFree(p), "cudaFree");
}

static uint64_t cuda_memory_left(rk_backend *b)
{
	rk_cuda *c = (rk_cuda *)b;
	size_t free = 0, total = 0;

	/* after an error the first allocation says what it was */
	return rk_cuda_alive(c) && rk_cuda_ok(c, cudaMemGetInfo(&free, &total), "cudaMemGetInfo") ? free : UINT64_MAX;
}

static void cuda_upload(rk_backend *b, void *dst, const void *src, size_t bytes)
{
	rk_cuda *c = (rk_cuda *)b;

	if (rk_cuda_alive(c))
		rk_cuda_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, c->stream), "copy to the GPU");
}

static void cuda_download(rk_backend *b, void *dst, const void *src, size_t bytes)
{
	rk_cuda *c = (rk_cuda *)b;

	if (!rk_cuda_alive(c) || !rk_cuda_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, c->stream),
	                                     "copy from the GPU") ||
	    !rk_cuda_ok(c, cudaStreamSynchronize(c->stream), "copy from the GPU"))
		memset(dst, 0, bytes);
}

static int cuda_sync(rk_backend *b, rk_err *e)
{
	rk_cuda *c = (rk_cuda *)b;

	if (rk_cuda_alive(c) && rk_cuda_ok(c, cudaGetLastError(), "launch of a kernel"))
		rk_cuda_ok(c, cudaStreamSynchronize(c->stream), "cudaStreamSynchronize");
	return rk_cuda_alive(c) ? 0 : give_error(c, e);
}

static void cuda_close(rk_backend *b)
{
	rk_cuda *c = (rk_cuda *)b;

	rk_cuda_forget_graphs(c);
	if (c->blas)
		cublasDestroy(c->blas);
	cudaFree(c->workspace);
	cudaFree(c->weights);
	cudaFree(c->scratch);
	cudaFree(c->step);
	cudaFree(c->out);
	cudaFreeHost(c->step_host);
	cudaFreeHost(c->out_host);
	cudaFreeHost(c->lse_host);
	cudaFreeHost(c->argmax_host);
	if (c->stream)
		cudaStreamDestroy(c->stream);
	free(c->row_pos);
	free(c->w.layer);
	free(c);
}

/* ---- weights ---- */

size_t rk_cuda_tensor_bytes(const rk_tensor *t)
{
	rk_matrix m;
	return rk_matrix_place(&m, t);
}

int rk_cuda_tensor_put(rk_cuda *c, void *dst, const rk_tensor *src, rk_err *e)
{
	rk_layout l = rk_layout_of(src->type);
	size_t block = rk_type_block_bytes(src->type),
		n = (size_t)src->n_row * (size_t)(src->n_col / rk_type_block_len(src->type));
	rk_tensor on_device = *src;
	rk_matrix m;

	on_device.data = dst;
	rk_matrix_place(&m, &on_device);
	for (int i = 0; i < RK_MAX_PLANE && l.plane[i].len; i++) {
		size_t len = (size_t)l.plane[i].len;
		unsigned char *plane = len == block ? NULL : (unsigned char *)malloc(n * len);
		if (len != block && !plane)
			return rk_fail(e, RK_ENOMEM, "weights: out of memory for %zu bytes", n * len);
		for (size_t j = 0; plane && j < n; j++)
			memcpy(plane + j * len, (const unsigned char *)src->data + j * block + l.plane[i].at, len);
		bool good = rk_cuda_ok(c, cudaMemcpyAsync((void *)m.plane[i], plane ? (const void *)plane : src->data,
		                                          n * len, cudaMemcpyHostToDevice, c->stream),
		                       "copy of the weights");
		free(plane);
		if (!good)
			return give_error(c, e);
	}
	return 0;
}

/* Calls fn for every matrix of the model and its copy. */
static int each_tensor(rk_cuda *c, const rk_weights *w,
                       int (*fn)(rk_cuda *c, const rk_tensor *t, rk_tensor *copy, size_t *at, rk_err *e), size_t *at,
                       rk_err *e)
{
	if (fn(c, &w->tok_embd, &c->w.tok_embd, at, e) || fn(c, &w->out_norm, &c->w.out_norm, at, e))
		return -1;
	if (w->output.data == w->tok_embd.data)
		c->w.output = c->w.tok_embd;
	else if (fn(c, &w->output, &c->w.output, at, e))
		return -1;
	for (int l = 0; l < c->b.hp->n_layer && w->layer; l++) {
		const rk_layer_weights *s = &w->layer[l];
		rk_layer_weights *d = &c->w.layer[l];
		if (fn(c, &s->attn_norm, &d->attn_norm, at, e) || fn(c, &s->wq, &d->wq, at, e) || fn(c, &s->wk, &d->wk, at, e) ||
		    fn(c, &s->wv, &d->wv, at, e) || fn(c, &s->wo, &d->wo, at, e) || fn(c, &s->ffn_norm, &d->ffn_norm, at, e) ||
		    fn(c, &s->w_gate, &d->w_gate, at, e) || fn(c, &s->w_up, &d->w_up, at, e) ||
		    fn(c, &s->w_down, &d->w_down, at, e))
			return -1;
	}
	return 0;
}

static int measure_tensor(rk_cuda *c, const rk_tensor *t, rk_tensor *copy, size_t *at, rk_err *e)
{
	(void)c;
	if (t->data && t->n_row > 1 && t->n_col % 32)
		return rk_fail(e, RK_EMODEL,
		               "GPU: tensor %.*s has rows of %lld weights, not a multiple of 32; "
		               "--device cpu can run it", (int)t->name.len, t->name.s,
		               (long long)t->n_col);
	*copy = *t;
	*at += t->data ? rk_cuda_tensor_bytes(t) : 0;
	return 0;
}

static int put_tensor(rk_cuda *c, const rk_tensor *t, rk_tensor *copy, size_t *at, rk_err *e)
{
	if (!t->data)
		return 0;
	copy->data = (char *)c->weights + *at;
	*at += rk_cuda_tensor_bytes(t);
	return rk_cuda_tensor_put(c, (void *)copy->data, t, e);
}

static int put_weights(rk_cuda *c, const rk_model *m, rk_err *e)
{
	size_t bytes = 0, at = 0, freq = (size_t)m->hp.rope_dim / 2 * sizeof(float);

	c->w.layer = (rk_layer_weights *)calloc((size_t)m->hp.n_layer, sizeof *c->w.layer);
	if (!c->w.layer)
		return rk_fail(e, RK_ENOMEM, "weights: out of memory for %d layers", m->hp.n_layer);
	if (each_tensor(c, &m->w, measure_tensor, &bytes, e) ||
	    device_malloc(c, "the model", bytes + freq, &c->weights, e) ||
	    each_tensor(c, &m->w, put_tensor, &at, e))
		return -1;
	c->rope_freq = (float *)((char *)c->weights + at);
	if (freq && !rk_cuda_ok(c, cudaMemcpyAsync(c->rope_freq, m->hp.rope_freq, freq, cudaMemcpyHostToDevice,
	                                           c->stream), "copy of the weights"))
		return give_error(c, e);
	c->b.w = &c->w;
	c->b.weights_held = true;
	return 0;
}

/* ---- scratch ---- */

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* Places an array at *at and moves on; NULL while only measuring (base NULL). */
template<typename T> static void take(T **p, char *base, size_t *at, size_t n)
{
	*p = base ? (T *)(base + *at) : NULL;
	*at += round_up(n * sizeof **p, RK_PLANE_ALIGN);
}

static size_t lay_out(rk_cuda *c, char *base)
{
	const rk_hparams *hp = c->b.hp;
	rk_scratch *s = &c->s;
	size_t n_head = (size_t)hp->n_head, n_kv = (size_t)hp->n_kv_head, d = (size_t)hp->head_dim,
		group = n_head / n_kv, at = 0;
	size_t rows = (size_t)c->cfg.max_rows, ld = round_up((size_t)c->cfg.max_pos + 1, RK_CUDA_CHUNK),
		chunk = ld / RK_CUDA_CHUNK + 1;
	size_t col = (size_t)(hp->n_ff > hp->n_embd ? hp->n_ff : hp->n_embd), tile;

	col = n_head * d > col ? n_head * d : col;
	s->ld = (int)ld;
	s->max_chunk = (int)chunk;	/* prompt and tail may both end in a short chunk */
	take(&s->score, base, &at, n_head * ld);
	take(&s->sum, base, &at, n_head * ld);
	take(&s->pooled, base, &at, n_kv * ld);
	take(&s->hist, base, &at, n_kv * RK_CUDA_BINS);
	take(&s->fill, base, &at, n_kv * RK_CUDA_BINS);
	take(&s->base, base, &at, n_kv * (RK_CUDA_BINS + 1));
	take(&s->key, base, &at, n_kv * ld);
	take(&s->n_key, base, &at, n_kv);
	take(&s->seen, base, &at, n_kv * ld / 32);
	take(&s->part_max, base, &at, n_kv * chunk * group);
	take(&s->part_sum, base, &at, n_kv * chunk * group);
	take(&s->part_out, base, &at, n_kv * chunk * group * d);
	take(&s->max, base, &at, n_head);
	take(&s->inv_sum, base, &at, n_head);
	take(&s->ring_out, base, &at, n_head * d);
	take(&s->compared, base, &at, n_head * d);
	take(&s->row_max, base, &at, n_head * rows);
	take(&s->row_sum, base, &at, n_head * rows);
	take(&s->trig, base, &at, rows * (size_t)hp->rope_dim);
	take(&s->row_pos, base, &at, rows);
	take(&s->row_id, base, &at, rows);
	take(&s->lse, base, &at, rows);
	take(&s->argmax, base, &at, rows);
	take(&s->x_half, base, &at, c->b.exact ? 0 : rows * col);
	tile = round_up(col, 32) * 4 * 32;	/* at least 32 rows of the widest matrix */
	take((char **)&s->tile, base, &at, tile > RK_CUDA_TILE_BYTES ? tile : RK_CUDA_TILE_BYTES);
	return at;
}

template<typename T> static bool pinned(rk_cuda *c, T **p, size_t n)
{
	return rk_cuda_ok(c, cudaMallocHost((void **)p, n * sizeof **p), "cudaMallocHost");
}

static int make_scratch(rk_cuda *c, rk_err *e)
{
	size_t bytes = lay_out(c, NULL), rows = (size_t)c->cfg.max_rows;

	if (device_malloc(c, "the scratch", bytes, &c->scratch, e) ||
	    device_malloc(c, "the scratch", RK_CUDA_WORKSPACE, &c->workspace, e) ||
	    device_malloc(c, "the scratch", sizeof *c->step, (void **)&c->step, e) ||
	    device_malloc(c, "the scratch", RK_CUDA_SLOT * sizeof *c->out, (void **)&c->out, e))
		return -1;
	lay_out(c, (char *)c->scratch);
	c->b.scratch_bytes = bytes + RK_CUDA_WORKSPACE;
	c->row_pos = (int32_t *)malloc(rows * sizeof *c->row_pos);
	if (!c->row_pos)
		return rk_fail(e, RK_ENOMEM, "scratch: out of memory for %zu rows", rows);
	memset(c->row_pos, 0xff, rows * sizeof *c->row_pos);
	if (!pinned(c, &c->step_host, 1) || !pinned(c, &c->out_host, RK_CUDA_SLOT) || !pinned(c, &c->lse_host, rows) ||
	    !pinned(c, &c->argmax_host, rows))
		return give_error(c, e);
	memset((void *)c->step_host, 0, sizeof *c->step_host);
	return 0;
}

/* ---- opening ---- */

/* Checks driver and devices: how many there are, or 0 with why. */
static int count_devices(char why[128])
{
	int n = 0, driver = 0, runtime = 0;
	cudaError_t r = cudaGetDeviceCount(&n);

	if (r == cudaSuccess && n > 0)
		return n;
	cudaGetLastError();
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (driver == 0)
		snprintf(why, 128, "no CUDA driver");
	else if (driver < runtime)
		snprintf(why, 128, "the driver is for CUDA %d.%d, %d.%d is needed", driver / 1000, driver % 1000 / 10,
		         runtime / 1000, runtime % 1000 / 10);
	else
		snprintf(why, 128, "%s", r == cudaSuccess ? "no CUDA device" : cudaGetErrorString(r));
	return 0;
}

/* Can GPU `device` run this program?  No: why says what is wrong, and *p is not filled in. */
static bool usable(int device, cudaDeviceProp *p, char why[128])
{
	int n = count_devices(why);

	if (n == 0)
		return false;
	if (device < 0 || device >= n)
		snprintf(why, 128, "this machine has %d (cuda:0 to cuda:%d)", n, n - 1);
	else if (cudaGetDeviceProperties(p, device) != cudaSuccess)
		snprintf(why, 128, "%s", cudaGetErrorString(cudaGetLastError()));
	else if (p->major < 8)
		snprintf(why, 128, "compute capability %d.%d, 8.0 is needed", p->major, p->minor);
	else
		return true;
	return false;
}

static int check_gpu(int device, cudaDeviceProp *p, rk_err *e)
{
	char why[128];

	return usable(device, p, why) ? 0 : rk_fail(e, RK_EUSAGE, "device cuda:%d: %s; --device cpu always works",
	                                            device, why);
}

bool rk_cuda_usable(char why[128])
{
	cudaDeviceProp p;

	return usable(0, &p, why);
}

int rk_cuda_probe(int device, char name[64], char isa[24], rk_err *e)
{
	cudaDeviceProp p;

	if (check_gpu(device, &p, e))
		return -1;
	snprintf(name, 64, "cuda:%d %.50s", device, p.name);
	snprintf(isa, 24, "sm_%d%d", p.major, p.minor);
	return 0;
}

/* The rows of a ring are as long as a burst of the memory, so where they lie does not matter. */
static bool cuda_ring_copies(const rk_policy *, bool keeps_full)
{
	return !keeps_full;
}

static rk_backend_ops cuda_ops()
{
	rk_backend_ops o = {};
	o.alloc = cuda_alloc;
	o.free = cuda_free;
	o.memory_left = cuda_memory_left;
	o.upload = cuda_upload;
	o.download = cuda_download;
	o.sync = cuda_sync;
	o.close = cuda_close;
	o.ring_copies = cuda_ring_copies;
	o.embed = rk_cuda_embed;
	o.rmsnorm = rk_cuda_rmsnorm;
	o.matmul = rk_cuda_matmul;
	o.rope = rk_cuda_rope;
	o.kv_append = rk_cuda_kv_append;
	o.key_mean = rk_cuda_key_mean;
	o.sketch = rk_cuda_sketch;
	o.attn_prefill = rk_cuda_attn_prefill;
	o.select = rk_cuda_select;
	o.attn_decode = rk_cuda_attn_decode;
	o.silu_mul = rk_cuda_silu_mul;
	o.add = rk_cuda_add;
	o.logits_stats = rk_cuda_logits_stats;
	o.logits_kl = rk_cuda_logits_kl;
	o.step_begin = rk_cuda_step_begin;
	o.step_end = rk_cuda_step_end;
	return o;
}

static int check_model(const rk_model *m, const rk_backend_cfg *cfg, rk_err *e)
{
	if (m->hp.head_dim % 8 || m->hp.head_dim > RK_CUDA_MAX_DIM)
		return rk_fail(e, RK_EMODEL, "GPU: heads of %d, not a multiple of 8 up to %d; --device cpu can run it",
		               m->hp.head_dim, RK_CUDA_MAX_DIM);
	if (cfg->max_rows < RK_MAX_LANE)
		return rk_fail(e, RK_EUSAGE, "prefill chunk: %d rows, at least %d are needed", cfg->max_rows,
		               RK_MAX_LANE);
	return 0;
}

int rk_cuda_open(rk_backend **b, const rk_model *m, const rk_backend_cfg *cfg, int device, rk_err *e)
{
	static const rk_backend_ops ops = cuda_ops();
	cudaDeviceProp p;

	*b = NULL;
	if (check_gpu(device, &p, e) || check_model(m, cfg, e))
		return -1;
	rk_cuda *c = (rk_cuda *)calloc(1, sizeof *c);
	if (!c)
		return rk_fail(e, RK_ENOMEM, "cannot allocate %zu bytes", sizeof *c);
	c->cfg = *cfg;
	c->device = device;
	c->n_sm = p.multiProcessorCount;
	c->dims = rk_dims{ m->hp.n_head, m->hp.n_kv_head, m->hp.n_head / m->hp.n_kv_head, m->hp.head_dim };
	c->b.ops = &ops;
	c->b.hp = &m->hp;
	c->b.exact = cfg->exact;
	c->b.kv_bytes = cfg->exact ? 4 : 2;
	c->b.n_thread = 1;
	snprintf(c->b.device, sizeof c->b.device, "cuda:%d %.50s", device, p.name);
	snprintf(c->b.isa, sizeof c->b.isa, "sm_%d%d", p.major, p.minor);
	if (!rk_cuda_ok(c, cudaSetDevice(device), "cudaSetDevice") ||
	    !rk_cuda_ok(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "cudaStreamCreate") ||
	    !rk_cuda_blas_ok(c, cublasCreate(&c->blas), "cublasCreate") ||
	    !rk_cuda_blas_ok(c, cublasSetStream(c->blas, c->stream), "cublasSetStream")) {
		give_error(c, e);
		cuda_close(&c->b);
		return -1;
	}
	if (put_weights(c, m, e) || make_scratch(c, e))
		goto fail;
	if (!rk_cuda_blas_ok(c, cublasSetWorkspace(c->blas, c->workspace, RK_CUDA_WORKSPACE), "cublasSetWorkspace") ||
	    !rk_cuda_ok(c, cudaMemsetAsync(c->s.hist, 0, (size_t)c->dims.n_kv * RK_CUDA_BINS * sizeof(int), c->stream), "cudaMemsetAsync") ||
	    !rk_cuda_attn_decode_init(c) || !rk_cuda_attn_prefill_init(c) || !rk_cuda_attn_mma_init(c) ||
	    !rk_cuda_ok(c, cudaStreamSynchronize(c->stream), "copy of the weights")) {
		give_error(c, e);
		goto fail;
	}
	*b = &c->b;
	return 0;
fail:
	cuda_close(&c->b);
	return -1;
}
