/* linear.cu: packed weights times activations: one pass over the weights for decoding, cuBLAS over dequantised tiles
 * for prefill.
 *
 * Decoding uses f32 activations against weights dequantised in registers, so it is at least as exact as the CPU's 8-bit
 * path.
 * A row of the result is one sum in one order whatever n is.  Of cuBLAS that is not promised: prefill rows may differ
 * in the last bits with n.
 */
#include "cuda.h"

#define WARPS 4
#define ROWS 2		/* rows of W per warp: each activation that is loaded is used twice */

/* The matrices of one call that have one type. */
struct fused {
	rk_matrix w[RK_MAX_FUSED];
	float *y[RK_MAX_FUSED];
	int first_block[RK_MAX_FUSED + 1];
};

/* matvec: y[b][r] = sum_j W[r][j] x[b][j].  Reference: ref_matmul.
 * x [n][n_col] f32, W packed [n_row][n_col], y [n][n_row] f32, n <= NB.
 * grid: rows / 8 over all matrices; block: 4 warps, 2 rows each; no shared memory: x stays in L1.
 * A lane takes 8 weights at a time, lanes side by side; f32 sums, joined by a butterfly: order fixed by n_col alone.
 * Reads W once, x once per SM: bound by memory bandwidth; 3.5 instructions per weight and activation (docs/CUDA.md). */
template<int TYPE, int NB>
__global__ void __launch_bounds__(WARPS * RK_WARP, NB > 4 ? 2 : 4) matvec(fused f, const float *x, int n)
{
	int j = 0, warp = threadIdx.x / RK_WARP, lane = threadIdx.x % RK_WARP;
	while ((int)blockIdx.x >= f.first_block[j + 1])
		j++;
	const rk_matrix &w = f.w[j];
	int row = (((int)blockIdx.x - f.first_block[j]) * WARPS + warp) * ROWS, n_part = w.n_col / 8;
	float acc[ROWS][NB] = {};

	if (row >= w.n_row)
		return;
#pragma unroll 2
	for (int p = lane; p < n_part; p += RK_WARP) {
		float v[ROWS][8];
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			int at = row + r < w.n_row ? row + r : row;
			rk_weights8<TYPE>(v[r], w, (size_t)at * (size_t)(w.n_col / 32) + (size_t)(p / 4), p % 4);
		}
#pragma unroll
		for (int b = 0; b < NB; b++) {
			float a[8];
			rk_get8(a, x + (size_t)(b < n ? b : n - 1) * (size_t)w.n_col + 8 * p);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
#pragma unroll
				for (int i = 0; i < 8; i++)
					acc[r][b] += v[r][i] * a[i];
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int b = 0; b < NB; b++) {
			float sum = rk_team_sum(acc[r][b]);
			if (lane == 0 && row + r < w.n_row && b < n)
				f.y[j][(size_t)b * (size_t)w.n_row + (size_t)(row + r)] = sum;
		}
}

template<int NB> static void launch_matvec(rk_cuda *c, const fused &f, int n_block, int type, const float *x, int n)
{
	RK_FOR_TYPE(type, RK_LAUNCH((matvec<TYPE, NB>), n_block, WARPS * RK_WARP, 0, c->stream, f, x, n))
}

/* The fewest sums in registers that do. */
static void run_matvec(rk_cuda *c, const fused &f, int n_block, int type, const float *x, int n)
{
	if (n == 1)
		launch_matvec<1>(c, f, n_block, type, x, n);
	else if (n == 2)
		launch_matvec<2>(c, f, n_block, type, x, n);
	else if (n <= 4)
		launch_matvec<4>(c, f, n_block, type, x, n);
	else
		launch_matvec<8>(c, f, n_block, type, x, n);
}

static void decode(rk_cuda *c, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n)
{
	for (int done = 0; done < n; done += RK_CUDA_MATVEC_ROWS) {
		int rows = n - done < RK_CUDA_MATVEC_ROWS ? n - done : RK_CUDA_MATVEC_ROWS;
		for (int j = 0; j < n_w;) {	/* neighbours of one type go together */
			fused f = {};
			int k = 0;
			for (; j < n_w && (k == 0 || w[j]->type == f.w[0].type); j++, k++) {
				rk_matrix_place(&f.w[k], w[j]);
				f.y[k] = y[j] + (size_t)done * (size_t)w[j]->n_row;
				f.first_block[k + 1] = f.first_block[k] +
					(int)((w[j]->n_row + WARPS * ROWS - 1) / (WARPS * ROWS));
			}
			for (int i = k + 1; i <= RK_MAX_FUSED; i++)
				f.first_block[i] = f.first_block[k];
			run_matvec(c, f, f.first_block[k], f.w[0].type, x + (size_t)done * (size_t)w[0]->n_col, rows);
		}
	}
}

/* dequant: out = rows row0 .. of W, n_part parts of 8 weights.  Reference: rk_dequant_row.
 * out [rows][n_col] f16 or f32; one thread per part; bound by memory: packed bytes read, 2 or 4 bytes per weight
 * written. */
template<int TYPE, typename T>
__global__ void dequant(rk_matrix w, int row0, size_t n_part, T *out)
{
	size_t p = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	float v[8];

	if (p >= n_part)
		return;
	rk_weights8<TYPE>(v, w, (size_t)row0 * (size_t)(w.n_col / 32) + p / 4, (int)(p % 4));
	for (int i = 0; i < 8; i++)
		rk_put(out + 8 * p + i, v[i]);
}

/* to_half: y = x in f16, n values.  One thread per value; memory bound. */
__global__ void to_half(uint16_t *y, const float *x, size_t n)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		rk_put(y + i, x[i]);
}

static unsigned blocks_of(size_t n, unsigned threads)
{
	return (unsigned)((n + threads - 1) / threads);
}

/* y [n][n_row] = x [n][n_col] W^T by tiles of W.  In cuBLAS's column-major terms: C = op(A)^T B with A the tile, B the
 * activations. */
static void prefill(rk_cuda *c, float *y, const rk_tensor *t, const float *x, int n)
{
	bool exact = c->b.exact;
	size_t element = exact ? sizeof(float) : sizeof(uint16_t), n_col = (size_t)t->n_col;
	int tile = (int)(RK_CUDA_TILE_BYTES / (element * n_col));
	cudaDataType_t type = exact ? CUDA_R_32F : CUDA_R_16F;
	float one = 1, zero = 0;
	rk_matrix w;

	rk_matrix_place(&w, t);
	for (int row = 0; row < w.n_row; row += tile) {
		int rows = w.n_row - row < tile ? w.n_row - row : tile;
		size_t n_part = (size_t)rows * n_col / 8;
		if (exact)
			RK_FOR_TYPE(w.type, RK_LAUNCH((dequant<TYPE, float>), blocks_of(n_part, 256), 256, 0, c->stream,
			                              w, row, n_part, (float *)c->s.tile))
		else
			RK_FOR_TYPE(w.type, RK_LAUNCH((dequant<TYPE, uint16_t>), blocks_of(n_part, 256), 256, 0,
			                              c->stream, w, row, n_part, (uint16_t *)c->s.tile))
		if (!rk_cuda_blas_ok(c, cublasGemmEx(c->blas, CUBLAS_OP_T, CUBLAS_OP_N, rows, n, w.n_col, &one,
		                                     c->s.tile, type, w.n_col,
		                                     exact ? (const void *)x : (const void *)c->s.x_half, type, w.n_col,
		                                     &zero, y + row, CUDA_R_32F, w.n_row,
		                                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT), "cublasGemmEx"))
			return;
	}
}

void rk_cuda_matmul(rk_backend *b, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n,
                    enum rk_phase phase)
{
	rk_cuda *c = (rk_cuda *)b;

	if (!rk_cuda_alive(c))
		return;
	if (phase == RK_DECODE || n <= RK_CUDA_MATVEC_ROWS) {
		decode(c, y, w, n_w, x, n);
		return;
	}
	if (!b->exact) {
		size_t len = (size_t)n * (size_t)w[0]->n_col;
		RK_LAUNCH(to_half, blocks_of(len, 256), 256, 0, c->stream, c->s.x_half, x, len);
	}
	for (int j = 0; j < n_w; j++)
		prefill(c, y[j], w[j], x, n);
}

/* embed: x[i] = row ids[i] of the table.  Reference: ref_embed.  One block per row, one thread per 8 weights. */
template<int TYPE>
__global__ void embed(rk_matrix w, float *x, const int32_t *ids)
{
	size_t row = (size_t)ids[blockIdx.x];

	for (int p = (int)threadIdx.x; p < w.n_col / 8; p += (int)blockDim.x)
		rk_weights8<TYPE>(x + (size_t)blockIdx.x * (size_t)w.n_col + 8 * p, w,
		                  row * (size_t)(w.n_col / 32) + (size_t)(p / 4), p % 4);
}

void rk_cuda_embed(rk_backend *b, float *x, const int32_t *ids, int n)
{
	rk_cuda *c = (rk_cuda *)b;
	const int32_t *at = c->n_step ? c->step->ids : c->s.row_id;
	rk_matrix w;

	if (!rk_cuda_alive(c))
		return;
	if (!c->n_step && !rk_cuda_ok(c, cudaMemcpyAsync(c->s.row_id, ids, (size_t)n * sizeof *ids,
	                                                 cudaMemcpyHostToDevice, c->stream), "copy of token ids"))
		return;
	rk_matrix_place(&w, &b->w->tok_embd);
	RK_FOR_TYPE(w.type, RK_LAUNCH(embed<TYPE>, n, 128, 0, c->stream, w, x, at))
}
