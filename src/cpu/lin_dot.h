/* lin_dot.h: packed weights times 8-bit activations.
 *
 * A template, included after lin_unpack.h: lin_avx2.c gets its products by VPMADDUBSW, lin_avx512.c includes it with
 * VNNI enabled and gets VPDPBUSD.  Both are exact and both sum a row over its groups in the same order, so the two agree
 * bit for bit.
 * Weights are read once, in order, and stay packed in memory.  A tile is VW consecutive rows, one per lane: a group of 32
 * is unpacked and transposed in registers, once for all activations of the call, so that vector j holds weights 4j .. 4j+3
 * of every row.  An activation's four bytes are repeated over the lanes; eight products later each lane has its row's
 * sum, which is scaled and added in f32.  Nothing is ever summed across lanes.
 */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#define N_QUAD (RK_GROUP / 4)
#define PAIR_ACT 4	/* activations that share the loads of two tiles: their sums take 8 of the 16 registers */
#define AHEAD 6144	/* bytes from a tile to what is fetched while it is used */

#if VW == 16
#define VI(op) _mm512_##op
typedef __m512i vq;	/* 4 bytes of each of VW rows */
#else
#define VI(op) _mm256_##op
typedef __m256i vq;
#endif

INLINE __m128i load16(const void *p)
{
	return _mm_loadu_si128(p);
}

INLINE int load4(const void *p)
{
	int v;
	memcpy(&v, p, sizeof v);
	return v;
}

INLINE vq join(const __m128i part[VW / 4])
{
#if VW == 16
	__m512i v = _mm512_inserti32x4(_mm512_castsi128_si512(part[0]), part[1], 1);
	return _mm512_inserti32x4(_mm512_inserti32x4(v, part[2], 2), part[3], 3);
#else
	return _mm256_inserti128_si256(_mm256_castsi128_si256(part[0]), part[1], 1);
#endif
}

/* Lane r = the 4 bytes at p in row r. */
INLINE vq load_quads(const uint8_t *p, size_t stride)
{
	__m128i part[VW / 4];
#pragma GCC unroll 4
	for (int i = 0; i < VW / 4; i++, p += 4 * stride) {
		part[i] = _mm_loadu_si32(p);
		part[i] = _mm_insert_epi32(part[i], load4(p + stride), 1);
		part[i] = _mm_insert_epi32(part[i], load4(p + 2 * stride), 2);
		part[i] = _mm_insert_epi32(part[i], load4(p + 3 * stride), 3);
	}
	return join(part);
}

/* Lane r of q[j] = bytes 4j .. 4j+3 of the 16 at p in row r. */
INLINE void transpose16(const uint8_t *p, size_t stride, vq q[4])
{
	vq v[4];
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {	/* rows i, i+4, ... */
		__m128i part[VW / 4];
#pragma GCC unroll 4
		for (int k = 0; k < VW / 4; k++)
			part[k] = load16(p + (size_t)(i + 4 * k) * stride);
		v[i] = join(part);
	}
	vq a = VI(unpacklo_epi32)(v[0], v[1]), b = VI(unpackhi_epi32)(v[0], v[1]);
	vq c = VI(unpacklo_epi32)(v[2], v[3]), d = VI(unpackhi_epi32)(v[2], v[3]);
	q[0] = VI(unpacklo_epi64)(a, c);
	q[1] = VI(unpackhi_epi64)(a, c);
	q[2] = VI(unpacklo_epi64)(b, d);
	q[3] = VI(unpackhi_epi64)(b, d);
}

/* Lane r of q[j] = weights 4j .. 4j+3 of row r in group k, as unpack_group gives them. */
INLINE void unpack_tile(const enum rk_type t, const uint8_t *w, size_t stride, const int k, vq q[N_QUAD])
{
	if (t == RK_Q4_0 || t == RK_Q4_1) {	/* the same in fewer steps: both halves of the group lie in 16 bytes */
		const vq low = VI(set1_epi8)(15), off = VI(set1_epi8)(8);
		transpose16(w + block_bytes(t) - 16, stride, q);
#pragma GCC unroll 4
		for (int j = 0; j < 4; j++) {
			q[j + 4] = VI(srli_epi16)(q[j], 4) & low;
			q[j] &= low;
		}
#pragma GCC unroll 8
		for (int j = 0; t == RK_Q4_0 && j < N_QUAD; j++)
			q[j] = VI(sub_epi8)(q[j], off);
		return;
	}
	uint8_t bytes[VW][RK_GROUP];
	const uint8_t *p = w + block_bytes(t) - RK_GROUP;	/* a block of Q8_0 ends with the bytes themselves */
	if (t != RK_Q8_0) {
		for (int r = 0; r < VW; r++)
			_mm256_storeu_si256((void *)bytes[r], unpack_group(t, w + (size_t)r * stride, k));
		p = bytes[0];
		stride = RK_GROUP;
	}
	transpose16(p, stride, q);
	transpose16(p + 16, stride, q + 4);
}

/* What group_scales gives of the rows of a K type's block: s[2k][r], s[2k+1][r]. */
INLINE void unpack_tile_scales(const enum rk_type t, const uint8_t *w, size_t stride, float s[16][VW])
{
	for (int r = 0; groups_per_block(t) > 1 && r < VW; r++) {
		float row[16];
		unpack_scales(t, w + (size_t)r * stride, row);
		for (int i = 0; i < 16; i++)
			s[i][r] = row[i];
	}
}

/* Lane r of d and m = group_scales of row r. */
INLINE void tile_scales(const enum rk_type t, const uint8_t *w, size_t stride, float s[16][VW], const int k, vf *d, vf *m)
{
	if (groups_per_block(t) > 1) {
		*d = vload(s[2 * k]);
		*m = vload(s[2 * k + 1]);
		return;
	}
	vq v = load_quads(w, stride), hi = VI(srli_epi32)(v, 16);
#if VW == 16
	*d = (vf)_mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
	*m = (vf)_mm512_cvtph_ps(_mm512_cvtepi32_epi16(hi));
#else
	v = _mm256_blend_epi16(v, _mm256_setzero_si256(), 0xaa);
	v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, hi), 0xd8);
	*d = (vf)_mm256_cvtph_ps(_mm256_castsi256_si128(v));
	*m = (vf)_mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
#endif
}

/* Sums of two products u a of type t that fit in 16 bits together: a power of two, so that it divides N_QUAD. */
INLINE int sums_in_16_bits(const enum rk_type t)
{
	switch (t) {
	case RK_Q8_0: return 1;			/* 2 * 128 * 127 < 2^15 */
	case RK_Q5_1: case RK_Q5_K: return 4;	/* 2 * 31 * 127 * 4 */
	case RK_Q6_K: return 4;			/* 2 * 32 * 127 * 4 */
	default: return 8;			/* 2 * 16 * 127 * 8 */
	}
}

/* Lane r = the products of quads j0 .. j0+n-1 of row r with those of a, summed.  q: the weights, u: their magnitudes. */
INLINE vq dot_quads(const enum rk_type t, const vq q[N_QUAD], const vq u[N_QUAD], const int8_t *a, const int j0, const int n)
{
	vq sum = { 0 }, part = { 0 };
	const int most = sums_in_16_bits(t);
#pragma GCC unroll 8
	for (int j = j0; j < j0 + n; j++) {
		vq x = VI(set1_epi32)(load4(a + 4 * j));
#if VW == 16
		if (!has_min(t))
			x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(q[j]), _mm512_setzero_si512(), x);
		sum = _mm512_dpbusd_epi32(sum, u[j], x);
		(void)part;
		(void)most;
#else
		if (!has_min(t))
			x = _mm256_sign_epi8(x, q[j]);
		x = _mm256_maddubs_epi16(u[j], x);
		part = j % most ? _mm256_add_epi16(part, x) : x;
		if (j % most == most - 1)
			sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
#endif
	}
	return sum;
}

INLINE vf to_float(vq v)
{
	return (vf)VI(cvtepi32_ps)(v);
}

/* y + the sums of a group times their scales; ds: those of the activation */
INLINE vf scale_sums(const enum rk_type t, vf sum, vf d, vf m, const float *ds, vf y)
{
	const vf da = vset(ds[0]);
	return has_min(t) ? y + VFMA(sum, d * da, m * ds[1]) : VFMA(sum, d * da, y);
}

/* VW rows of W, `stride` bytes apart, times all n activations; y[i] [VW]. */
INLINE void dot_tile(const enum rk_type t, const uint8_t *w, size_t stride, const rk_act *a, const int n, vf y[RK_MAX_ACT])
{
	const int per_block = groups_per_block(t), n_block = a->n_col / RK_GROUP / per_block;
	const int8_t *qg = a->q;
	const float *dsg = a->ds;
	const uint8_t *ahead = w + AHEAD;
	for (int i = 0; i < n; i++)
		y[i] = vset(0);
	for (int b = 0; b < n_block; b++, w += block_bytes(t)) {
		float s[16][VW];
		/* the rows side by side are no stream that hardware would recognise */
		for (size_t j = 0; j < VW * block_bytes(t); j += 64)
			_mm_prefetch((const void *)(ahead + j), _MM_HINT_T0);
		ahead += VW * block_bytes(t);
		unpack_tile_scales(t, w, stride, s);
#pragma GCC unroll 8
		for (int k = 0; k < per_block; k++, qg += n * RK_GROUP, dsg += 2 * n) {
			vq q[N_QUAD], u[N_QUAD];
			vf d, m;
			tile_scales(t, w, stride, s, k, &d, &m);
			unpack_tile(t, w, stride, k, q);
#pragma GCC unroll 8
			for (int j = 0; j < N_QUAD; j++)
				u[j] = has_min(t) ? q[j] : VI(abs_epi8)(q[j]);
			for (int i = 0; i < n; i++) {
				const int8_t *qi = qg + (size_t)i * RK_GROUP;
				vf da = vset(dsg[2 * i]);
				if (t == RK_Q6_K) {
					y[i] = VFMA(to_float(dot_quads(t, q, u, qi, 0, 4)), d * da, y[i]);
					y[i] = VFMA(to_float(dot_quads(t, q, u, qi, 4, 4)), m * da, y[i]);
				} else {
					y[i] = scale_sums(t, to_float(dot_quads(t, q, u, qi, 0, 8)), d, m, dsg + 2 * i, y[i]);
				}
			}
		}
	}
}

#if VW == 8
/* Do two tiles at a time gain?  Where all products of a group add up in one register of 16 bits, and blocks are groups. */
INLINE bool in_pairs(const enum rk_type t)
{
	return sums_in_16_bits(t) == N_QUAD && groups_per_block(t) == 1;
}

/* A group of VW rows: lane r of q[j] = weights 4j .. 4j+3 of row r; d and m: from tile_scales. */
typedef struct tile {
	vq q[N_QUAD];
	vf d, m;
} tile;

/* y[k][i] += tile k times activation i of PAIR_ACT.  A load of weights serves 4 products and one of activations 2, where with one
 * tile each product has its own.  In assembly where the compiler would reorder the sums, and spill. */
INLINE void multiply_pair(const enum rk_type t, const tile w[2], const int8_t *x, const float *ds, vf *const y[2])
{
	vq sum[PAIR_ACT][2];
#pragma GCC unroll 8
	for (int j = 0; j < N_QUAD; j++) {
		vq q[2] = { w[0].q[j], w[1].q[j] };
		__asm__ volatile("" : "+x"(q[0]), "+x"(q[1]));
#pragma GCC unroll 4
		for (int i = 0; i < PAIR_ACT; i++) {
			const vq a = _mm256_set1_epi32(load4(x + i * RK_GROUP + 4 * j));
#pragma GCC unroll 2
			for (int k = 0; k < 2; k++) {
				vq p = has_min(t) ? _mm256_maddubs_epi16(q[k], a) : _mm256_maddubs_epi16(_mm256_abs_epi8(q[k]), _mm256_sign_epi8(a, q[k]));
				if (j == 0)
					sum[i][k] = p;
				else
					__asm__ volatile("vpaddw %1, %0, %0" : "+x"(sum[i][k]) : "x"(p));
			}
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < PAIR_ACT; i++)
#pragma GCC unroll 2
		for (int k = 0; k < 2; k++) {
			const vf s = to_float(_mm256_madd_epi16(sum[i][k], _mm256_set1_epi16(1)));
			y[k][i] = scale_sums(t, s, w[k].d, w[k].m, ds + 2 * i, y[k][i]);
		}
}

/* What dot_tile() does, with two tiles of a type that is in_pairs, one after the other in W. */
INLINE void dot_pair(const enum rk_type t, const uint8_t *w, size_t stride, const rk_act *a, vf y[2][RK_MAX_ACT])
{
	const int n = a->n, n_group = a->n_col / RK_GROUP;
	const int8_t *x = a->q;
	const float *ds = a->ds;
	const uint8_t *ahead = w + AHEAD;
	for (int i = 0; i < n; i++)
		y[0][i] = y[1][i] = vset(0);
	for (int g = 0; g < n_group; g++, w += block_bytes(t), x += n * RK_GROUP, ds += 2 * n) {
		tile group[2];
		for (size_t j = 0; j < 2 * VW * block_bytes(t); j += 64)
			_mm_prefetch((const void *)(ahead + j), _MM_HINT_T0);
		ahead += 2 * VW * block_bytes(t);
#pragma GCC unroll 2
		for (int k = 0; k < 2; k++) {
			tile_scales(t, w + (size_t)k * VW * stride, stride, NULL, 0, &group[k].d, &group[k].m);
			unpack_tile(t, w + (size_t)k * VW * stride, stride, 0, group[k].q);
		}
		for (int i = 0; i + PAIR_ACT <= n; i += PAIR_ACT)
			multiply_pair(t, group, x + i * RK_GROUP, ds + 2 * i, (vf *[]){ y[0] + i, y[1] + i });
		for (int i = n / PAIR_ACT * PAIR_ACT; i < n; i++)
#pragma GCC unroll 2
			for (int k = 0; k < 2; k++) {
				vq u[N_QUAD];
#pragma GCC unroll 8
				for (int j = 0; j < N_QUAD; j++)
					u[j] = has_min(t) ? group[k].q[j] : VI(abs_epi8)(group[k].q[j]);
				const vf s = to_float(dot_quads(t, group[k].q, u, x + i * RK_GROUP, 0, N_QUAD));
				y[k][i] = scale_sums(t, s, group[k].d, group[k].m, ds + 2 * i, y[k][i]);
			}
	}
}

/* What dot_tiles() does, with the two tiles at w. */
INLINE void dot_two_tiles(const enum rk_type t, const uint8_t *w, size_t stride, const rk_act *a, float *y, size_t ldy)
{
	vf sum[2][RK_MAX_ACT];
	dot_pair(t, w, stride, a, sum);
	for (int i = 0; i < a->n; i++) {
		vstore(y + (size_t)i * ldy, sum[0][i]);
		vstore(y + (size_t)i * ldy + VW, sum[1][i]);
	}
}
#endif

/* Every activation times the tile at w.  n_row: rows that count, VW or (stride 0) 1. */
INLINE void dot_tiles(const enum rk_type t, const uint8_t *w, size_t stride, int n_row, const rk_act *a, float *y, size_t ldy)
{
	vf sum[RK_MAX_ACT];
	if (a->n == 1 && groups_per_block(t) == 1)	/* the sum in a register: 12-20 % faster; K types would compile for long */
		dot_tile(t, w, stride, a, 1, sum);
	else
		dot_tile(t, w, stride, a, a->n, sum);
	for (int i = 0; i < a->n; i++)
		memcpy(y + (size_t)i * ldy, &sum[i], (size_t)n_row * sizeof *y);
}

INLINE void dot_type(const enum rk_type t, const uint8_t *w, int n_row, const rk_act *a, float *y, size_t ldy)
{
	const size_t row_bytes = (size_t)(a->n_col / RK_GROUP / groups_per_block(t)) * block_bytes(t);
	int r = 0;
#if VW == 8
	for (; in_pairs(t) && a->n >= PAIR_ACT && r + 2 * VW <= n_row; r += 2 * VW)
		dot_two_tiles(t, w + (size_t)r * row_bytes, row_bytes, a, y + r, ldy);
#endif
	for (; r + VW <= n_row; r += VW)
		dot_tiles(t, w + (size_t)r * row_bytes, row_bytes, VW, a, y + r, ldy);
	if (r < n_row && n_row >= VW) {		/* the last tile takes some rows again */
		r = n_row - VW;
		dot_tiles(t, w + (size_t)r * row_bytes, row_bytes, VW, a, y + r, ldy);
		return;
	}
	for (; r < n_row; r++)			/* fewer rows than lanes: one row in all of them */
		dot_tiles(t, w + (size_t)r * row_bytes, 0, 1, a, y + r, ldy);
}

/* AddressSanitizer checks a vector's load by calls that take longer than the work: its build leaves them out here (Makefile)
 * and asks once for everything that is read. */
static void check_reads(enum rk_type t, const void *w, int n_row, const rk_act *a)
{
#ifdef __SANITIZE_ADDRESS__
	const size_t n = (size_t)a->n_col * (size_t)a->n;
	const void *bad = __asan_region_is_poisoned((void *)w, (size_t)n_row * rk_type_row_bytes(t, a->n_col));
	bad = bad ? bad : __asan_region_is_poisoned((void *)a->q, n);
	bad = bad ? bad : __asan_region_is_poisoned((void *)a->ds, n / RK_GROUP * 2 * sizeof *a->ds);
	if (bad)
		__asan_report_error(__builtin_return_address(0), __builtin_frame_address(0), __builtin_frame_address(0), (void *)bad, 0, 1);
#else
	(void)t, (void)w, (void)n_row, (void)a;
#endif
}

static void dot_q8(enum rk_type t, const void *w, int n_row, const rk_act *a, float *y, size_t ldy)
{
	check_reads(t, w, n_row, a);
	switch (t) {
	case RK_Q4_0: dot_type(RK_Q4_0, w, n_row, a, y, ldy); break;
	case RK_Q4_1: dot_type(RK_Q4_1, w, n_row, a, y, ldy); break;
	case RK_Q5_0: dot_type(RK_Q5_0, w, n_row, a, y, ldy); break;
	case RK_Q5_1: dot_type(RK_Q5_1, w, n_row, a, y, ldy); break;
	case RK_Q8_0: dot_type(RK_Q8_0, w, n_row, a, y, ldy); break;
	case RK_Q4_K: dot_type(RK_Q4_K, w, n_row, a, y, ldy); break;
	case RK_Q5_K: dot_type(RK_Q5_K, w, n_row, a, y, ldy); break;
	case RK_Q6_K: dot_type(RK_Q6_K, w, n_row, a, y, ldy); break;
	default: __builtin_unreachable();	/* the callers pass quantised types only */
	}
}
