/* mma.h (emulation): 16 x 16 x 16 matrix products of a warp (nvcuda::wmma), f16 inputs, f32 sums.
 *
 * Lane l of a warp holds elements 8 l .. 8 l + 7 of each matrix in row-major order, which is as good as the hardware's
 * secret order: kernels may only rely on fragments of one kind agreeing with each other.
 */
#ifndef RK_EMU_MMA_H
#define RK_EMU_MMA_H

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <type_traits>

float *emu_warp_tile();	/* [2][256] shared by the lanes of a warp */
void emu_check_tile(const void *p, size_t ld_bytes);

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template<typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment {
	static_assert(M == 16 && N == 16 && K == 16);
	enum { num_elements = 8 };
	T x[8];
};

template<typename Use, typename T, typename Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout> &f, const T *p, unsigned ld)
{
	emu_check_tile(p, ld * sizeof(T));
	__syncwarp();
	for (unsigned i = 0; i < 8; i++) {
		unsigned e = emu_lane_id() * 8 + i, r = e / 16, c = e % 16;
		f.x[i] = std::is_same_v<Layout, col_major> ? p[c * ld + r] : p[r * ld + c];
	}
}

inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, float> &f, const float *p, unsigned ld, layout_t layout)
{
	fragment<accumulator, 16, 16, 16, float, row_major> g;
	(void)layout;
	load_matrix_sync(g, p, ld);
	for (int i = 0; i < 8; i++)
		f.x[i] = g.x[i];
}

inline void store_matrix_sync(float *p, const fragment<accumulator, 16, 16, 16, float> &f, unsigned ld, layout_t)
{
	emu_check_tile(p, ld * sizeof *p);
	__syncwarp();
	for (unsigned i = 0; i < 8; i++) {
		unsigned e = emu_lane_id() * 8 + i;
		p[e / 16 * ld + e % 16] = f.x[i];
	}
}

template<typename F, typename T> void fill_fragment(F &f, T v)
{
	for (auto &x : f.x)
		x = v;
}

template<typename LA, typename LB>
void mma_sync(fragment<accumulator, 16, 16, 16, float> &d, const fragment<matrix_a, 16, 16, 16, __half, LA> &a,
              const fragment<matrix_b, 16, 16, 16, __half, LB> &b, const fragment<accumulator, 16, 16, 16, float> &c)
{
	float *ta = emu_warp_tile(), *tb = ta + 256;
	unsigned first = emu_lane_id() * 8;
	for (unsigned i = 0; i < 8; i++) {
		ta[first + i] = __half2float(a.x[i]);
		tb[first + i] = __half2float(b.x[i]);
	}
	__syncwarp();
	for (unsigned i = 0; i < 8; i++) {
		unsigned r = (first + i) / 16, col = (first + i) % 16;
		float sum = c.x[i];
		for (unsigned k = 0; k < 16; k++)
			sum += ta[r * 16 + k] * tb[k * 16 + col];
		d.x[i] = sum;
	}
	__syncwarp();
}

}

#endif
