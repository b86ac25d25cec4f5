/* weights.cuh: packed weights as they lie on the device, and how 8 of them are read.
 *
 * A matrix keeps the bytes of its GGUF blocks (src/model/quant.h), sorted into planes: all packed quants, then all high
 * bits, then all scales, each plane starting at a multiple of RK_PLANE_ALIGN.  So every lane loads aligned words and a
 * warp one contiguous run, where a block of 18 bytes would be read in halves.  rk_layout says which bytes of a block go
 * to which plane; the host sorts them once at upload.  F32, F16, BF16, Q4_K and Q5_K (144 and 176 bytes) have one
 * plane: the bytes of the file.
 *
 * rk_weights8 reads 8 consecutive weights of a group of 32.  The value is that of rk_dequant_row to the bit, except
 * that Q6_K and the
 * K types' d*scale products may be contracted into the final multiplication by the compiler.
 */
#ifndef RK_KERNELS_WEIGHTS_CUH
#define RK_KERNELS_WEIGHTS_CUH

#include "device.cuh"
#include "rk.h"

#define RK_PLANE_ALIGN 256
#define RK_MAX_PLANE 3

/* Bytes [at, at+len) of every block make plane i; len 0: no such plane. */
struct rk_layout { struct { int at, len; } plane[RK_MAX_PLANE]; };

inline rk_layout rk_layout_of(enum rk_type t)
{
	switch (t) {
	case RK_Q4_0: return { { { 2, 16 }, { 0, 2 } } };
	case RK_Q4_1: return { { { 4, 16 }, { 0, 4 } } };
	case RK_Q5_0: return { { { 6, 16 }, { 2, 4 }, { 0, 2 } } };
	case RK_Q5_1: return { { { 8, 16 }, { 4, 4 }, { 0, 4 } } };
	case RK_Q8_0: return { { { 2, 32 }, { 0, 2 } } };
	case RK_Q6_K: return { { { 0, 208 }, { 208, 2 } } };
	default: return { { { 0, (int)rk_type_block_bytes(t) } } };
	}
}

/* A matrix [n_row][n_col] as kernels see it. */
struct rk_matrix {
	const unsigned char *plane[RK_MAX_PLANE];
	int type;	/* enum rk_type */
	int n_row, n_col;
};

/* Bytes on the device, and the planes' addresses. */
inline size_t rk_matrix_place(rk_matrix *m, const rk_tensor *t)
{
	rk_layout l = rk_layout_of(t->type);
	size_t blocks = (size_t)t->n_row * (size_t)(t->n_col / rk_type_block_len(t->type)), at = 0;

	*m = rk_matrix{ {}, (int)t->type, (int)t->n_row, (int)t->n_col };
	for (int i = 0; i < RK_MAX_PLANE && l.plane[i].len; i++) {
		m->plane[i] = (const unsigned char *)t->data + at;
		at += (blocks * (size_t)l.plane[i].len + RK_PLANE_ALIGN - 1) / RK_PLANE_ALIGN * RK_PLANE_ALIGN;
	}
	return at;
}

/* A whole number below 2^23 as a float, without the quarter-rate conversion. */
__device__ __forceinline__ float rk_small(uint32_t u) { return __uint_as_float(0x4b000000u | u) - 8388608.0f; }

__device__ __forceinline__ uint32_t rk_byte(const uint32_t *w, int i) { return w[i / 4] >> (8 * (i % 4)) & 0xff; }

/* Nibble j (0..7) of a group whose 32 nibbles are the 16 bytes at qs: low ones are weights 0..15.  part: weights 8 part
 * .. 8 part + 7. */
__device__ __forceinline__ void rk_nibbles(uint32_t q[8], const unsigned char *qs, int part)
{
	uint2 u = *(const uint2 *)(qs + 8 * (part & 1));
	uint32_t w[2] = { u.x, u.y };
	for (int i = 0; i < 8; i++)
		q[i] = rk_byte(w, i) >> (4 * (part >> 1)) & 15;
}

/* 6-bit scale and minimum of group g of a Q4_K or Q5_K block; s: its 12 bytes. */
__device__ __forceinline__ void rk_scale_min(const unsigned char *s, int g, float *sc, float *mn)
{
	uint32_t a = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
	uint32_t b = g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) | (s[g] >> 6) << 4;
	*sc = rk_small(a);
	*mn = rk_small(b);
}

/* w[8] = weights 32 group + 8 part .. + 7 of the matrix, groups counted through all rows; part 0..3. */
template<int TYPE>
__device__ __forceinline__ void rk_weights8(float w[8], const rk_matrix &m, size_t group, int part)
{
	const unsigned char *p0 = m.plane[0], *p1 = m.plane[1], *p2 = m.plane[2];

	if (TYPE == RK_F32) {
		rk_get8(w, (const float *)p0 + group * 32 + 8 * part);
	} else if (TYPE == RK_F16) {
		rk_get8(w, (const uint16_t *)p0 + group * 32 + 8 * part);
	} else if (TYPE == RK_BF16) {
		uint4 u = *(const uint4 *)((const uint16_t *)p0 + group * 32 + 8 * part);
		uint32_t v[4] = { u.x, u.y, u.z, u.w };
		for (int i = 0; i < 4; i++) {
			w[2 * i] = __uint_as_float(v[i] << 16);
			w[2 * i + 1] = __uint_as_float(v[i] & 0xffff0000u);
		}
	} else if (TYPE == RK_Q4_0 || TYPE == RK_Q4_1 || TYPE == RK_Q5_0 || TYPE == RK_Q5_1) {
		constexpr bool five = TYPE == RK_Q5_0 || TYPE == RK_Q5_1, with_min = TYPE == RK_Q4_1 || TYPE == RK_Q5_1;
		uint32_t q[8], high = five ? *(const uint32_t *)(p1 + group * 4) >> (8 * part) : 0;
		const unsigned char *scales = five ? p2 : p1;
		float d, min = 0;
		rk_nibbles(q, p0 + group * 16, part);
		if (with_min) {
			uint32_t dm = *(const uint32_t *)(scales + group * 4);
			d = rk_half_bits(dm & 0xffff);
			min = rk_half_bits(dm >> 16);
		} else {
			d = rk_half_bits(*(const uint16_t *)(scales + group * 2));
		}
		for (int i = 0; i < 8; i++) {
			float v = rk_small(q[i] | (high >> i & 1) << 4);
			w[i] = with_min ? d * v + min : d * (v - (five ? 16.0f : 8.0f));
		}
	} else if (TYPE == RK_Q8_0) {
		uint2 u = *(const uint2 *)(p0 + group * 32 + 8 * part);
		/* offset by 128, so that bytes are unsigned */
		uint32_t v[2] = { u.x ^ 0x80808080u, u.y ^ 0x80808080u };
		float d = rk_half_bits(*(const uint16_t *)(p1 + group * 2));
		for (int i = 0; i < 8; i++)
			w[i] = d * (rk_small(rk_byte(v, i)) - 128.0f);
	} else if (TYPE == RK_Q4_K || TYPE == RK_Q5_K) {
		constexpr bool five = TYPE == RK_Q5_K;
		int g = (int)(group % 8);
		const unsigned char *b = p0 + group / 8 * (five ? 176 : 144), *qs = b + (five ? 48 : 16);
		uint32_t dm = *(const uint32_t *)b;
		uint2 u = *(const uint2 *)(qs + g / 2 * 32 + 8 * part),
			h = five ? *(const uint2 *)(b + 16 + 8 * part) : uint2{ 0, 0 };
		uint32_t lo[2] = { u.x, u.y }, hi[2] = { h.x, h.y };
		float sc, mn;
		rk_scale_min(b + 4, g, &sc, &mn);
		float d = rk_half_bits(dm & 0xffff) * sc, min = rk_half_bits(dm >> 16) * mn;
		for (int i = 0; i < 8; i++)
			w[i] = d * rk_small((rk_byte(lo, i) >> (g % 2 * 4) & 15) |
			                    (rk_byte(hi, i) >> g & 1) << 4) - min;
	} else {	/* RK_Q6_K: half h of the block, quarter r of the half */
		int g = (int)(group % 8), h = g / 4, r = g % 4;
		const unsigned char *b = p0 + group / 8 * 208;
		uint2 u = *(const uint2 *)(b + 64 * h + r % 2 * 32 + 8 * part),
			v = *(const uint2 *)(b + 128 + 32 * h + 8 * part);
		uint32_t lo[2] = { u.x, u.y }, hi[2] = { v.x, v.y };
		int sc = ((const signed char *)b)[192 + 8 * h + 2 * r + part / 2];
		float d = rk_half_bits(*(const uint16_t *)(p1 + group / 8 * 2)) * (float)sc;
		for (int i = 0; i < 8; i++)
			w[i] = d * (rk_small((rk_byte(lo, i) >> (r / 2 * 4) & 15) |
			                     (rk_byte(hi, i) >> (2 * r) & 3) << 4) - 32.0f);
	}
}

/* The statement with TYPE as a constant: RK_FOR_TYPE(w.type, RK_LAUNCH(kernel<TYPE>, ...)). */
#define RK_TYPE_CASE(t, ...) case t: { enum { TYPE = t }; __VA_ARGS__; break; }
#define RK_FOR_TYPE(type, ...) \
	switch (type) { \
	RK_TYPE_CASE(RK_F32, __VA_ARGS__) \
	RK_TYPE_CASE(RK_F16, __VA_ARGS__) \
	RK_TYPE_CASE(RK_BF16, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q4_0, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q4_1, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q5_0, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q5_1, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q8_0, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q4_K, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q5_K, __VA_ARGS__) \
	RK_TYPE_CASE(RK_Q6_K, __VA_ARGS__) \
	}

#endif
