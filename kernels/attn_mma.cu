/* attn_mma.cu: the attention of a prefill chunk on tensor cores, for f16 caches and the head sizes of the models in
 * use.
 *
 * The same algorithm and row order as attn_prefill.cu (arXiv 2205.14135).  Scaled queries and probabilities are rounded
 * to f16 for the products, sums are f32; maxima and sums of probabilities are taken from the f32 scores.
 */
#include "attn.cuh"

#include <mma.h>

#define ROWS 64		/* 16 per warp */
#define KEYS 64
#define WARPS 4
#define THREADS (WARPS * RK_WARP)
#define TILE 16		/* of the tensor cores */
#define LD_S (KEYS + 4)	/* floats per row of scores: rows start in other banks, 16 rows are a multiple of 32 bytes */
#define LD_P (KEYS + 8)	/* halves per row of probabilities */

using namespace nvcuda;
typedef wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, __half, wmma::row_major> frag_a;
typedef wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, __half, wmma::col_major> frag_kt;
typedef wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, __half, wmma::row_major> frag_v;
typedef wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> frag_sum;

/* Shared memory of a block. */
struct tiles {
	uint16_t *q, *k, *v;	/* [ROWS][D + 8], [KEYS][D + 8] x 2 */
	float *s;		/* [ROWS][LD_S] */
	uint16_t *p;		/* [ROWS][LD_P] */
	/* [16][16] the row number: how a lane learns which rows its elements of a sum belong to */
	float *index;
	float *scale;		/* [ROWS] what a row's output is multiplied by */
};
static constexpr size_t shared_bytes(int d)
{
	return ((size_t)(ROWS + 2 * KEYS) * (size_t)(d + 8) + ROWS * LD_P) * sizeof(uint16_t) +
	       (ROWS * LD_S + TILE * TILE + ROWS) * sizeof(float);
}
template<int D>
__device__ __forceinline__ static tiles tiles_of()
{
	unsigned char *p = (unsigned char *)rk_shared();
	tiles t;
	t.q = (uint16_t *)p, p += ROWS * (D + 8) * sizeof *t.q;
	t.k = (uint16_t *)p, p += KEYS * (D + 8) * sizeof *t.k;
	t.v = (uint16_t *)p, p += KEYS * (D + 8) * sizeof *t.v;
	t.s = (float *)p, p += ROWS * LD_S * sizeof *t.s;
	t.p = (uint16_t *)p, p += ROWS * LD_P * sizeof *t.p;
	t.index = (float *)p, p += TILE * TILE * sizeof *t.index;
	t.scale = (float *)p;
	return t;
}

template<int D>
__device__ __forceinline__ static void load_queries(const tiles &t, const rk_dims &m, const rk_prefill_call &a, int kv,
                                                    int row0, int n_row)
{
	for (int i = (int)threadIdx.x; i < ROWS * D; i += THREADS) {
		int r = i / D, j = i % D;
		float x = row0 + r < n_row ? rk_row_of(m, (float *)a.q, kv, row0 + r)[j] : 0;
		rk_put(t.q + r * (D + 8) + j, x * rk_scale(D));
	}
	for (int i = (int)threadIdx.x; i < TILE * TILE; i += THREADS)
		t.index[i] = (float)(i / TILE);
}

/* tile [KEYS][D + 8] = n rows of a cache, zero after them. */
template<int D>
__device__ __forceinline__ static void load_rows(uint16_t *tile, const uint16_t *rows, int n)
{
	for (int i = (int)threadIdx.x; i < KEYS * D / 8; i += THREADS) {
		int r = i / (D / 8), j = i % (D / 8) * 8;
		uint4 x = { 0, 0, 0, 0 };
		if (r < n)
			x = *(const uint4 *)(rows + (size_t)r * D + j);
		*(uint4 *)(tile + r * (D + 8) + j) = x;
	}
}

/* s [16][KEYS] = the warp's queries times all keys of the tile. */
template<int D>
__device__ __forceinline__ static void score(const tiles &t, int warp)
{
	for (int j = 0; j < KEYS; j += TILE) {
		frag_sum s;
		wmma::fill_fragment(s, 0.0f);
#pragma unroll
		for (int i = 0; i < D; i += TILE) {
			frag_a q;
			frag_kt k;
			wmma::load_matrix_sync(q, (const __half *)t.q + warp * TILE * (D + 8) + i, D + 8);
			wmma::load_matrix_sync(k, (const __half *)t.k + j * (D + 8) + i, D + 8);
			wmma::mma_sync(s, q, k, s);
		}
		wmma::store_matrix_sync(t.s + warp * TILE * LD_S + j, s, LD_S, wmma::mem_row_major);
	}
	__syncwarp();
}

/* Scores to probabilities in f16; two lanes share a row, of which `see` keys are visible. */
__device__ __forceinline__ static void softmax(const tiles &t, int row, int half, int see, float *max, float *sum)
{
	const float *s = t.s + row * LD_S;
	uint16_t *p = t.p + row * LD_P;
	float m = -INFINITY, l = 0, scale = 1;

	for (int key = half; key < see; key += 2)
		m = fmaxf(m, s[key]);
	m = fmaxf(*max, rk_team_max(m, 2));
	for (int key = half; key < KEYS; key += 2) {
		float x = key < see ? rk_exp2(s[key] - m) : 0;
		l += x;
		rk_put(p + key, x);
	}
	l = rk_team_sum(l, 2);
	if (see > 0) {
		scale = rk_exp2(*max - m);
		*sum = *sum * scale + l;
		*max = m;
	}
	if (half == 0)
		t.scale[row] = scale;
	__syncwarp();
}

/* flash_mma: out = softmax(q k^T / sqrt(D)) v over prompt (whole) and tail (causal).  Reference: ref_prefill.
 * q, out [n][n_head][D] f32, caches [n][D] f16.  grid: (tiles of 64 rows, last first; n_kv); block: 4 warps of 16 rows;
 * shared: shared_bytes(D), 80 KB at D = 128: two blocks per SM of an A100.  f16 products, f32 sums; outputs stay in
 * fragments. 4 n L D flop per head; every tile of keys and values is read once per 64 rows and passes shared memory
 * once per warp: bound by shared memory at some 60 % of the tensor cores' rate. */
template<int D>
__global__ void __launch_bounds__(THREADS, 2) flash_mma(rk_dims m, rk_prefill_call a, float *row_max, float *row_sum)
{
	int kv = (int)blockIdx.y, warp = (int)threadIdx.x / RK_WARP, lane = (int)threadIdx.x % RK_WARP,
		n_row = a.n * m.group;
	int row0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, mine = warp * TILE + lane / 2, row = row0 + mine,
		last = row0 + ROWS < n_row ? row0 + ROWS : n_row;
	float max = -INFINITY, sum = 0;
	tiles t = tiles_of<D>();
	frag_sum out[D / TILE], index;

#pragma unroll
	for (int i = 0; i < D / TILE; i++)
		wmma::fill_fragment(out[i], 0.0f);
	load_queries<D>(t, m, a, kv, row0, n_row);
	__syncthreads();
	wmma::load_matrix_sync(index, t.index, TILE, wmma::mem_row_major);
	for (int causal = 0; causal < 2; causal++) {
		int n_key = causal ? a.tail_len + (last - 1) / m.group + 1 : a.n_prompt,
			cap = causal ? a.tail_cap : a.prompt_cap;
		rk_span<uint16_t> s = rk_rows<uint16_t>(m, causal ? a.tk : a.pk, causal ? a.tv : a.pv, a.layer, kv, cap,
		                                        n_key);
		for (int key0 = 0; key0 < n_key; key0 += KEYS) {
			int n = n_key - key0 < KEYS ? n_key - key0 : KEYS,
				see = causal ? a.tail_len + row / m.group + 1 - key0 : n;
			__syncthreads();
			load_rows<D>(t.k, s.k + (size_t)key0 * D, n);
			load_rows<D>(t.v, s.v + (size_t)key0 * D, n);
			__syncthreads();
			score<D>(t, warp);
			softmax(t, mine, lane % 2, row >= n_row || see < 0 ? 0 : see < n ? see : n, &max, &sum);
#pragma unroll
			for (int i = 0; i < D / TILE; i++) {
				for (int e = 0; e < frag_sum::num_elements; e++)
					out[i].x[e] *= t.scale[warp * TILE + (int)index.x[e]];
#pragma unroll
				for (int j = 0; j < KEYS; j += TILE) {
					frag_a p;
					frag_v v;
					wmma::load_matrix_sync(p, (const __half *)t.p + warp * TILE * LD_P + j, LD_P);
					wmma::load_matrix_sync(v, (const __half *)t.v + j * (D + 8) + i * TILE, D + 8);
					wmma::mma_sync(out[i], p, v, out[i]);
				}
			}
		}
	}
	/* Through the warp's own rows of scores to the rows of out, 16 columns at a time. */
#pragma unroll
	for (int i = 0; i < D / TILE; i++) {
		__syncwarp();
		wmma::store_matrix_sync(t.s + warp * TILE * LD_S, out[i], LD_S, wmma::mem_row_major);
		__syncwarp();
		for (int j = lane % 2; row < n_row && j < TILE; j += 2)
			rk_row_of(m, a.out, kv, row)[i * TILE + j] = t.s[mine * LD_S + j] / sum;
	}
	if (row < n_row && lane % 2 == 0) {
		row_max[(size_t)kv * (size_t)a.max_rows + (size_t)row] = max;
		row_sum[(size_t)kv * (size_t)a.max_rows + (size_t)row] = sum;
	}
}

template<int D> static void launch(rk_cuda *c, const rk_prefill_call &a)
{
	unsigned n_tile = (unsigned)((a.n * c->dims.group + ROWS - 1) / ROWS);

	RK_LAUNCH(flash_mma<D>, dim3(n_tile, (unsigned)c->dims.n_kv), THREADS, shared_bytes(D), c->stream, c->dims, a,
	          c->s.row_max, c->s.row_sum);
}

bool rk_cuda_flash_mma(rk_cuda *c, const rk_prefill_call &a)
{
	switch (c->dims.d) {
	case 64: launch<64>(c, a); return true;
	case 80: launch<80>(c, a); return true;
	case 96: launch<96>(c, a); return true;
	case 128: launch<128>(c, a); return true;
	default: return false;
	}
}

template<int D> static bool allow_shared(rk_cuda *c)
{
	return rk_cuda_ok(c, cudaFuncSetAttribute(flash_mma<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                                          (int)shared_bytes(D)), "cudaFuncSetAttribute");
}

bool rk_cuda_attn_mma_init(rk_cuda *c)
{
	return allow_shared<64>(c) && allow_shared<80>(c) && allow_shared<96>(c) && allow_shared<128>(c);
}
