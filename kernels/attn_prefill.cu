/* attn_prefill.cu: causal attention of a chunk of queries, flash-style (arXiv 2205.14135, algorithm 1): no n x L matrix
 * exists.
 *
 * A row is a query and one head of the group, so that a tile of keys and values serves the whole group.  Tiles of keys
 * are counted from the start of each store; one that a row may not see leaves it unchanged to the bit, so a row's
 * result depends on its position only, not on tile or chunk.  f32 arithmetic on CUDA cores, for f32 caches and for head
 * sizes that attn_mma.cu does not have; the column sums of all.
 */
#include "attn.cuh"

#define ROWS 32
#define KEYS 32
#define THREADS 128	/* 4 per row */
#define PAD 4		/* floats behind a row in shared memory: rows start in other banks, still 16-byte aligned */

static size_t prefill_shared(int d)
{
	return ((size_t)(2 * ROWS + 2 * KEYS) * (size_t)(d + PAD) + ROWS * (KEYS + 1)) * sizeof(float);
}

/* tile [ROWS][d + PAD] = rows row0 .. of the queries, scaled; zero from n_row on. */
__device__ __forceinline__ static void load_queries(float *tile, const rk_dims &m, const rk_prefill_call &a, int kv,
                                                    int row0, int n_row)
{
	for (int i = (int)threadIdx.x; i < ROWS * m.d; i += THREADS) {
		int r = i / m.d, j = i % m.d;
		float x = row0 + r < n_row ? rk_row_of(m, (float *)a.q, kv, row0 + r)[j] : 0;
		tile[r * (m.d + PAD) + j] = x * rk_scale(m.d);
	}
}

/* tile [KEYS][d + PAD] = n rows of a cache, zero after them. */
template<typename T>
__device__ __forceinline__ static void load_rows(float *tile, const T *rows, int n, int d)
{
	for (int i = (int)threadIdx.x; i < KEYS * d / 8; i += THREADS) {
		int r = i / (d / 8), j = i % (d / 8) * 8;
		float x[8] = {};
		if (r < n)
			rk_get8(x, rows + (size_t)r * (size_t)d + j);
		for (int k = 0; k < 8; k++)
			tile[r * (d + PAD) + j + k] = x[k];
	}
}

__device__ __forceinline__ static float dot(const float *a, const float *b, int d)
{
	float sum = 0;

	for (int j = 0; j < d; j += 4) {
		float4 x = *(const float4 *)(a + j), y = *(const float4 *)(b + j);
		sum += x.x * y.x;
		sum += x.y * y.y;
		sum += x.z * y.z;
		sum += x.w * y.w;
	}
	return sum;
}

struct tiles { float *q, *o, *k, *v, *s; };
__device__ __forceinline__ static tiles tiles_of(int d)
{
	float *p = (float *)rk_shared();
	size_t row = (size_t)(d + PAD);

	return { p, p + ROWS * row, p + 2 * ROWS * row, p + (2 * ROWS + KEYS) * row, p + (2 * ROWS + 2 * KEYS) * row };
}

/* Adds the keys in t.k, t.v, of which this thread's row sees `see`, to the row's output; 4 threads share a row. */
__device__ __forceinline__ static void add_tile(const tiles &t, int d, int see, float *max, float *sum)
{
	int r = (int)threadIdx.x / 4, part = (int)threadIdx.x % 4;
	float m = -INFINITY, l = 0, *s = t.s + r * (KEYS + 1), *o = t.o + r * (d + PAD);

	for (int key = part; key < see; key += 4) {
		s[key] = dot(t.q + r * (d + PAD), t.k + key * (d + PAD), d);
		m = fmaxf(m, s[key]);
	}
	m = fmaxf(*max, rk_team_max(m, 4));
	for (int key = part; key < see; key += 4) {
		s[key] = rk_exp2(s[key] - m);
		l += s[key];
	}
	l = rk_team_sum(l, 4);
	__syncwarp();	/* the row's probabilities are read by its 4 threads, which are in one warp */
	if (see > 0) {
		float scale = rk_exp2(*max - m);
		*sum = *sum * scale + l;
		*max = m;
		for (int j = part; j < d; j += 4) {
			float acc = o[j] * scale;
			for (int key = 0; key < see; key++)
				acc += s[key] * t.v[key * (d + PAD) + j];
			o[j] = acc;
		}
	}
}

/* flash: out = softmax(q k^T / sqrt(d)) v over prompt (whole) and tail (causal).  Reference: ref_prefill.
 * q, out [n][n_head][d] f32, caches [n][d] f16 or f32.  grid: (tiles of ROWS rows, last first: it sees the most; n_kv);
 * block: 4 warps, 4 threads per row; shared: prefill_shared.  f32 sums in the order of the keys.  Reads each key once
 * per ROWS rows: 4 n L d flop per head against 2 L d bytes(T) per tile: bound by f32 arithmetic and shared memory. */
template<typename T>
__global__ void __launch_bounds__(THREADS) flash(rk_dims m, rk_prefill_call a, float *row_max, float *row_sum)
{
	int kv = (int)blockIdx.y, n_row = a.n * m.group, row0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS,
		row = row0 + (int)threadIdx.x / 4;
	int last = row0 + ROWS < n_row ? row0 + ROWS : n_row, part = (int)threadIdx.x % 4;
	float max = -INFINITY, sum = 0;
	tiles t = tiles_of(m.d);

	load_queries(t.q, m, a, kv, row0, n_row);
	for (int i = (int)threadIdx.x; i < ROWS * (m.d + PAD); i += THREADS)
		t.o[i] = 0;
	for (int causal = 0; causal < 2; causal++) {
		int n_key = causal ? a.tail_len + (last - 1) / m.group + 1 : a.n_prompt;
		int cap = causal ? a.tail_cap : a.prompt_cap;
		rk_span<T> s = rk_rows<T>(m, causal ? a.tk : a.pk, causal ? a.tv : a.pv, a.layer, kv, cap, n_key);
		for (int key0 = 0; key0 < n_key; key0 += KEYS) {
			int n = n_key - key0 < KEYS ? n_key - key0 : KEYS,
				see = causal ? a.tail_len + row / m.group + 1 - key0 : n;
			__syncthreads();
			load_rows(t.k, s.k + (size_t)key0 * (size_t)m.d, n, m.d);
			load_rows(t.v, s.v + (size_t)key0 * (size_t)m.d, n, m.d);
			__syncthreads();
			add_tile(t, m.d, row >= n_row || see < 0 ? 0 : see < n ? see : n, &max, &sum);
		}
	}
	__syncwarp();
	if (row >= n_row)
		return;
	float *out = rk_row_of(m, a.out, kv, row);
	for (int j = part; j < m.d; j += 4)
		out[j] = t.o[(row - row0) * (m.d + PAD) + j] / sum;
	if (part == 0) {
		row_max[(size_t)kv * (size_t)a.max_rows + (size_t)row] = max;
		row_sum[(size_t)kv * (size_t)a.max_rows + (size_t)row] = sum;
	}
}

/* sum_columns: colsum[kv][t] += sum over rows of p, once every row's maximum and sum are known.  Reference:
 * ref_prefill.
 * grid: (tiles of KEYS keys, n_kv); block: 4 warps: a key per lane, rows dealt to the warps and joined in order.
 * Computes all scores again: bound by f32 arithmetic. */
template<typename T>
__global__ void __launch_bounds__(THREADS) sum_columns(rk_dims m, rk_prefill_call a, const float *row_max,
                                                       const float *row_sum)
{
	int kv = (int)blockIdx.y, key0 = (int)blockIdx.x * KEYS, key = (int)threadIdx.x % KEYS,
		part = (int)threadIdx.x / KEYS;
	int n_row = a.n * m.group, n_key = a.tail_len + a.n, n = n_key - key0 < KEYS ? n_key - key0 : KEYS;
	float col = 0;
	tiles t = tiles_of(m.d);

	load_rows(t.k, rk_rows<T>(m, a.tk, a.tv, a.layer, kv, a.tail_cap, n_key).k + (size_t)key0 * (size_t)m.d, n,
	          m.d);
	for (int row0 = 0; row0 < n_row; row0 += ROWS) {
		__syncthreads();
		load_queries(t.q, m, a, kv, row0, n_row);
		__syncthreads();
		for (int r = part; r < ROWS && row0 + r < n_row; r += THREADS / KEYS) {
			size_t row = (size_t)kv * (size_t)a.max_rows + (size_t)(row0 + r);
			if (key >= n || key0 + key > a.tail_len + (row0 + r) / m.group)
				continue;
			float s = dot(t.q + r * (m.d + PAD), t.k + key * (m.d + PAD), m.d);
			col += rk_exp2(s - row_max[row]) / row_sum[row];
		}
	}
	t.s[threadIdx.x] = col;
	__syncthreads();
	if (part == 0 && key < n) {
		for (int i = 1; i < THREADS / KEYS; i++)
			col += t.s[i * KEYS + key];
		a.colsum[(size_t)kv * (size_t)a.tail_cap + (size_t)(key0 + key)] += col;
	}
}

template<typename T> static void prefill(rk_cuda *c, const rk_prefill_call &a)
{
	const rk_dims m = c->dims;
	unsigned n_tile = (unsigned)((a.n * m.group + ROWS - 1) / ROWS),
		n_block = (unsigned)((a.tail_len + a.n + KEYS - 1) / KEYS);

	if (sizeof(T) != 2 || !rk_cuda_flash_mma(c, a))
		RK_LAUNCH(flash<T>, dim3(n_tile, (unsigned)m.n_kv), THREADS, prefill_shared(m.d), c->stream, m, a,
		          c->s.row_max, c->s.row_sum);
	if (a.colsum)
		RK_LAUNCH(sum_columns<T>, dim3(n_block, (unsigned)m.n_kv), THREADS, prefill_shared(m.d), c->stream, m,
		          a, c->s.row_max, c->s.row_sum);
}

bool rk_cuda_attn_prefill_init(rk_cuda *c)
{
	int bytes = (int)prefill_shared(c->dims.d);
	const cudaFuncAttribute max = cudaFuncAttributeMaxDynamicSharedMemorySize;
	return rk_cuda_ok(c, cudaFuncSetAttribute(flash<float>, max, bytes), "cudaFuncSetAttribute") &&
	       rk_cuda_ok(c, cudaFuncSetAttribute(flash<uint16_t>, max, bytes), "cudaFuncSetAttribute") &&
	       rk_cuda_ok(c, cudaFuncSetAttribute(sum_columns<float>, max, bytes), "cudaFuncSetAttribute") &&
	       rk_cuda_ok(c, cudaFuncSetAttribute(sum_columns<uint16_t>, max, bytes), "cudaFuncSetAttribute");
}

void rk_cuda_attn_prefill(rk_backend *b, int layer, const rk_store *prompt, const rk_store *tail, int tail_len,
                          const float *q, int n,
                          float *out, float *colsum)
{
	rk_cuda *c = (rk_cuda *)b;
	rk_prefill_call a = {};

	if (!rk_cuda_alive(c))
		return;
	a.layer = layer;
	if (prompt) {
		a.n_prompt = prompt->len;
		a.prompt_cap = prompt->cap;
		a.pk = prompt->k;
		a.pv = prompt->v;
	}
	a.tail_len = tail_len;
	a.tail_cap = tail->cap;
	a.tk = tail->k;
	a.tv = tail->v;
	a.n = n;
	a.max_rows = c->cfg.max_rows * c->dims.group;
	a.q = q;
	a.out = out;
	a.colsum = colsum;
	if (b->kv_bytes == 4)
		prefill<float>(c, a);
	else
		prefill<uint16_t>(c, a);
}
