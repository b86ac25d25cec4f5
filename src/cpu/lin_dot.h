/* lin_dot.h: packed weights times 8-bit activations, in 256-bit registers.
 *
 * A template, included after lin_unpack.h: lin_avx2.c gets its products by VPMADDUBSW, lin_avx512.c includes it with
 * VNNI enabled and gets VPDPBUSD.  Both are exact, so the two agree bit for bit.
 * Weights are read once, in order, and stay packed in memory: a group is unpacked in registers for all activations of
 * a tile.  Per group 8 integer lanes are scaled into 8 f32 sums, which are reduced once per row; the minimum terms
 * m * d * sum(q) of a type that has them are summed apart, one lane per activation.
 */
#define MAX_TILE (VW / 2)	/* activations whose (d, d sum) pairs fill a vector; their sums fit in the registers */

INLINE __m128 load_pair(const float *p)
{
	return _mm_castsi128_ps(_mm_loadl_epi64((const void *)p));
}

/* 8 lanes, each the sum of 4 products u[j] s[j]; u unsigned, |u s| <= 128 * 127 so that pairs fit in 16 bits. */
INLINE __m256i dot_bytes(__m256i u, __m256i s)
{
#ifdef __AVX512VNNI__
	return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, s);
#else
	return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
#endif
}

INLINE float sum8(__m256 v)
{
	__m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Vector of the pair in lanes 0 and 1, over and over. */
INLINE vf repeat_pair(__m128 pair)
{
#if VW == 16
	return (vf)_mm512_broadcastsd_pd(_mm_castps_pd(pair));
#else
	return (vf)_mm256_broadcastsd_pd(_mm_castps_pd(pair));
#endif
}

/* n_row rows of W, one after the other, times nt activations; n_act activations in all share the arrays. */
INLINE void dot_tile(const enum rk_type t, const int nt, const uint8_t *w, int n_row, int n_col, const int8_t *q,
                     const float *ds, int n_act, float *y, size_t ldy)
{
	const int per_block = groups_per_block(t), n_block = n_col / RK_GROUP / per_block;
	const __m256i halves = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
	for (int r = 0; r < n_row; r++) {
		const int8_t *qg = q;
		const float *dsg = ds;
		__m256 acc[MAX_TILE];
		vf min = vset(0);		/* odd lanes */
		__m128 min1 = _mm_setzero_ps();	/* the same where the tile is 1 */
#pragma GCC unroll 8
		for (int i = 0; i < nt; i++)
			acc[i] = _mm256_setzero_ps();
		for (int b = 0; b < n_block; b++, w += block_bytes(t)) {
			float s[16], scale[VW];
			unpack_scales(t, w, s);
#pragma GCC unroll 8
			for (int k = 0; k < per_block; k++, qg += RK_GROUP, dsg += 2 * n_act) {
				const __m256i wq = unpack_group(t, w, k), u = has_min(t) ? wq : _mm256_abs_epi8(wq);
				const __m128 dm = group_scales(t, w, s, k);
				const __m128 pair1 = _mm_mul_ps(dm, load_pair(dsg));
				const __m256 d16 = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(dm), halves);
				if (nt > 1 && t != RK_Q6_K) {
					vf p = repeat_pair(dm) * vload(dsg);
					vstore(scale, p);
					min += p;
				} else {
					min1 = _mm_add_ps(min1, pair1);
				}
#pragma GCC unroll 8
				for (int i = 0; i < nt; i++) {
					__m256i a = load32(qg + (size_t)i * (size_t)n_col), p;
					__m256 f;
					p = dot_bytes(u, has_min(t) ? a : _mm256_sign_epi8(a, wq));
					if (t == RK_Q6_K)
						f = _mm256_mul_ps(d16, _mm256_broadcast_ss(dsg + 2 * i));
					else
						f = nt == 1 ? _mm256_broadcastss_ps(pair1) : _mm256_broadcast_ss(scale + 2 * i);
					acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(p), f, acc[i]);
				}
			}
		}
#pragma GCC unroll 8
		for (int i = 0; i < nt; i++) {
			float minima = !has_min(t) ? 0 : nt == 1 ? min1[1] : min[2 * i + 1];
			y[(size_t)i * ldy + (size_t)r] = sum8(acc[i]) + minima;
		}
	}
}

INLINE void dot_type(const enum rk_type t, const uint8_t *w, int n_row, const rk_act *a, float *y, size_t ldy)
{
	const int n = a->n;
	for (int i = 0, nt; i < n; i += nt) {
		const int8_t *q = a->q + (size_t)i * (size_t)a->n_col;
		const float *ds = a->ds + 2 * i;
		float *yi = y + (size_t)i * ldy;
		if (MAX_TILE == 8 && n - i >= 8)
			dot_tile(t, nt = MAX_TILE, w, n_row, a->n_col, q, ds, n, yi, ldy);
		else if (n - i >= 4)
			dot_tile(t, nt = 4, w, n_row, a->n_col, q, ds, n, yi, ldy);
		else if (n - i >= 2)
			dot_tile(t, nt = 2, w, n_row, a->n_col, q, ds, n, yi, ldy);
		else
			dot_tile(t, nt = 1, w, n_row, a->n_col, q, ds, n, yi, ldy);
	}
}

static void dot_q8(enum rk_type t, const void *w, int n_row, const rk_act *a, float *y, size_t ldy)
{
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
