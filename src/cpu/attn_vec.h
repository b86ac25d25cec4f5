/* attn_vec.h: the attention kernels of attn.h, written once over vectors of VW f32 lanes.
 *
 * A template: attn_avx2.c and attn_avx512.c define VW, vf, MAX_HEAD, GEMM_VEC and the handful of functions on one vector
 * that differ (vset, vfma, vmax, load_row, store_row, sum_lanes, max_lanes, sums_of_4, exp2_vec) and include it.  Blocks are
 * always-inlined functions whose loop bounds are constants at the call, so that the accumulators live in registers: gemm
 * 6 rows x GEMM_VEC vectors, score 4 keys x up to MAX_HEAD heads, mix up to MAX_HEAD heads x MIX_VEC vectors.
 * load_row and store_row take how many elements there are, clipped to 0..VW; where that is VW by construction the
 * rest of them folds away.
 */
#define MIX_VEC 4
#define AHEAD 2048	/* bytes: 16 keys of 64 f16, which take about as long as memory takes to answer */
#define ROWS_AHEAD 16	/* scattered rows */

/* Rows of keys or values: one after the other from x on, or where row[t] says (x is not read then). */
typedef struct rows {
	const char *x;
	const char *const *row;
	int n;
	size_t bytes;	/* of a row */
} rows;

INLINE const char *row_at(rows r, int t)
{
	return r.row ? r.row[t] : r.x + (size_t)t * r.bytes;
}

/* Asks for bytes `from` .. `to` of a row that comes later: a chunk is read faster than the processor looks ahead by itself. */
INLINE void prefetch(rows r, int t, size_t from, size_t to)
{
	const char *x = !r.row ? r.x + (size_t)t * r.bytes + AHEAD : r.row[t + ROWS_AHEAD < r.n ? t + ROWS_AHEAD : r.n - 1];

	for (size_t at = from; at < to; at += 64)
		_mm_prefetch(x + at, _MM_HINT_T0);
}

static void load_v(float *vt, const void *v, int n, int d, int d_pad, bool f16)
{
	for (int t = 0; t < n; t++)
		for (int j = 0; j < d_pad; j += VW)
			store_row(vt + t * d_pad + j, load_row(v, (size_t)t * (size_t)d + (size_t)j, d - j, f16), VW);
	memset(vt + n * d_pad, 0, (size_t)(RK_ATTN_BLOCK - n) * (size_t)d_pad * sizeof *vt);
}

INLINE void gemm_block(int mr, int nv, float *c, int ldc, const float *scale, const float *a, int lda, const float *b,
                       int ldb, int k)
{
	vf acc[6][GEMM_VEC];

	for (int r = 0; r < mr; r++)
		for (int i = 0; i < nv; i++)
			acc[r][i] = scale ? (vf)(load_row(c, (size_t)(r * ldc + VW * i), VW, false) * vset(scale[r])) : vset(0);
	for (int t = 0; t < k; t++) {
		vf bv[GEMM_VEC];
		for (int i = 0; i < nv; i++)
			bv[i] = load_row(b, (size_t)t * (size_t)ldb + (size_t)(VW * i), VW, false);
		for (int r = 0; r < mr; r++) {
			vf av = vset(a[r * lda + t]);
			for (int i = 0; i < nv; i++)
				acc[r][i] = vfma(av, bv[i], acc[r][i]);
		}
	}
	for (int r = 0; r < mr; r++)
		for (int i = 0; i < nv; i++)
			store_row(c + r * ldc + VW * i, acc[r][i], VW);
}

INLINE void gemm_columns(int nv, float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
                         int m, int k)
{
	int r = 0;

	for (; r + 6 <= m; r += 6)
		gemm_block(6, nv, c + r * ldc, ldc, scale ? scale + r : NULL, a + r * lda, lda, b, ldb, k);
	for (; r < m; r++)
		gemm_block(1, nv, c + r * ldc, ldc, scale ? scale + r : NULL, a + r * lda, lda, b, ldb, k);
}

static void gemm(float *c, int ldc, const float *scale, const float *a, int lda, const float *b, int ldb,
                 int m, int n, int k)
{
	int j = 0;

	for (; j + GEMM_VEC * VW <= n; j += GEMM_VEC * VW)
		gemm_columns(GEMM_VEC, c + j, ldc, scale, a, lda, b + j, ldb, m, k);
	for (; j < n; j += VW)
		gemm_columns(1, c + j, ldc, scale, a, lda, b + j, ldb, m, k);
}

static float max(const float *s, int n)
{
	vf m = vset(s[0]);
	int i = 0;

	for (; i + VW <= n; i += VW)
		m = vmax(m, load_row(s, (size_t)i, VW, false));
	float most = max_lanes(m);
	for (; i < n; i++)
		most = s[i] > most ? s[i] : most;
	return most;
}

static float exp_sum(float *p, const float *s, int n, float m)
{
	vf sum = vset(0);
	int i = 0;

	for (; i + VW <= n; i += VW) {
		vf e = exp2_vec(load_row(s, (size_t)i, VW, false) - vset(m));
		store_row(p + i, e, VW);
		sum += e;
	}
	if (i < n) {
		float rest[VW] = { 0 };
		store_row(p + i, exp2_vec(load_row(s, (size_t)i, n - i, false) - vset(m)), n - i);
		memcpy(rest, p + i, (size_t)(n - i) * sizeof *rest);
		sum += load_row(rest, 0, VW, false);
	}
	return sum_lanes(sum);
}

INLINE void add_exp_at(float *p, const float *s, int i, int n, float m, float w)
{
	vf e = exp2_vec(load_row(s, (size_t)i, n, false) - vset(m));

	store_row(p + i, vfma(e, vset(w), load_row(p, (size_t)i, n, false)), n);
}

static void add_exp(float *p, const float *s, int n, float m, float w)
{
	int i = 0;

	for (; i + VW <= n; i += VW)
		add_exp_at(p, s, i, VW, m, w);
	if (i < n)
		add_exp_at(p, s, i, n - i, m, w);
}

INLINE void largest_exp_at(float *p, const float *s, int lds, int n_head, int i, int n, const float *m, const float *l)
{
	vf x = load_row(s, (size_t)i, n, false) - vset(m[0]) - vset(l[0]);

	for (int h = 1; h < n_head; h++)
		x = vmax(x, load_row(s + (size_t)h * (size_t)lds, (size_t)i, n, false) - vset(m[h]) - vset(l[h]));
	store_row(p + i, exp2_vec(x), n);
}

static void largest_exp(float *p, const float *s, int lds, int n_head, int n, const float *m, const float *l)
{
	int i = 0;

	for (; i + VW <= n; i += VW)
		largest_exp_at(p, s, lds, n_head, i, VW, m, l);
	if (i < n)
		largest_exp_at(p, s, lds, n_head, i, n - i, m, l);
}

/* acc[h][r] += n elements from j on of q[h] times those of row[r]. */
INLINE void score_step(int n_head, vf acc[MAX_HEAD][4], const float *q, const char *const row[4], int j, int n, int d, bool f16)
{
	vf qv[MAX_HEAD];

	for (int h = 0; h < n_head; h++)
		qv[h] = load_row(q, (size_t)(h * d + j), n, false);
	for (int r = 0; r < 4; r++) {
		vf kv = load_row(row[r], (size_t)j, n, f16);
		for (int h = 0; h < n_head; h++)
			acc[h][r] = vfma(qv[h], kv, acc[h][r]);
	}
}

/* Four keys at a time; where fewer are left the last one stands in for the missing, so that every key takes the
 * same path. */
INLINE void score_heads(int n_head, float *s, int lds, const float *q, rows k, int d, bool f16)
{
	const int n = k.n;

	for (int t = 0; t < n; t += 4) {
		vf acc[MAX_HEAD][4];
		const char *row[4];
		int j = 0;
		for (int r = 0; r < 4; r++) {
			row[r] = row_at(k, t + r < n ? t + r : n - 1);
			prefetch(k, t + r, 0, k.bytes);
		}
		for (int h = 0; h < n_head; h++)
			for (int r = 0; r < 4; r++)
				acc[h][r] = vset(0);
		for (; j + VW <= d; j += VW)
			score_step(n_head, acc, q, row, j, VW, d, f16);
		if (j < d)
			score_step(n_head, acc, q, row, j, d - j, d, f16);
		for (int h = 0; h < n_head; h++) {
			__m128 sums = sums_of_4(acc[h]);
			float *to = s + (size_t)h * (size_t)lds + t;
			if (t + 4 <= n)	/* a masked store costs AMD's processors 12 cycles and more */
				_mm_storeu_ps(to, sums);
			else
				_mm_maskstore_ps(to, _mm_cmpgt_epi32(_mm_set1_epi32(n - t), _mm_setr_epi32(0, 1, 2, 3)), sums);
		}
	}
}

INLINE void score_any(float *s, int lds, const float *q, int n_head, rows k, int d, bool f16)
{
	switch (n_head) {
	case 1:
		score_heads(1, s, lds, q, k, d, f16);
		break;
	case 2:
		score_heads(2, s, lds, q, k, d, f16);
		break;
	case 3:
		score_heads(3, s, lds, q, k, d, f16);
		break;
	default:
		score_heads(MAX_HEAD, s, lds, q, k, d, f16);
	}
}

/* More than MAX_HEAD heads take several passes over keys that the first pass has brought into the cache. */
INLINE void score_group(float *s, int lds, const float *q, int n_head, const void *x, const char *const *row, int n, int d, bool f16)
{
	for (int h = 0; h < n_head; h += MAX_HEAD) {
		float *sh = s + (size_t)h * (size_t)lds;
		if (f16)
			score_any(sh, lds, q + h * d, n_head - h, (rows){ x, row, n, (size_t)d * 2 }, d, true);
		else
			score_any(sh, lds, q + h * d, n_head - h, (rows){ x, row, n, (size_t)d * 4 }, d, false);
	}
}

static void score(float *s, int lds, const float *q, int n_head, const void *k, int n, int d, bool f16)
{
	score_group(s, lds, q, n_head, k, NULL, n, d, f16);
}

static void score_rows(float *s, int lds, const float *q, int n_head, const char *const *k, int n, int d, bool f16)
{
	score_group(s, lds, q, n_head, NULL, k, n, d, f16);
}

/* Columns j and up of o: nv vectors, of the last one `last` elements. */
INLINE void mix_block(int n_head, int nv, float *o, const float *p, int ldp, rows v, int d, int j, int last, bool f16)
{
	const size_t size = f16 ? 2 : 4;
	vf acc[MAX_HEAD][MIX_VEC];

	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < nv; i++)
			acc[h][i] = vset(0);
	for (int t = 0; t < v.n; t++) {
		const char *row = row_at(v, t);
		vf pv[MAX_HEAD];
		prefetch(v, t, (size_t)j * size, (size_t)j * size + 64);
		for (int h = 0; h < n_head; h++)
			pv[h] = vset(p[(size_t)h * (size_t)ldp + (size_t)t]);
		for (int i = 0; i < nv; i++) {
			vf vv = load_row(row, (size_t)(j + VW * i), i == nv - 1 ? last : VW, f16);
			for (int h = 0; h < n_head; h++)
				acc[h][i] = vfma(pv[h], vv, acc[h][i]);
		}
	}
	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < nv; i++)
			store_row(o + h * d + j + VW * i, acc[h][i], i == nv - 1 ? last : VW);
}

INLINE void mix_heads(int n_head, float *o, const float *p, int ldp, rows v, int d, bool f16)
{
	int j = 0;

	for (; j + MIX_VEC * VW <= d; j += MIX_VEC * VW)
		mix_block(n_head, MIX_VEC, o, p, ldp, v, d, j, VW, f16);
	for (; j < d; j += VW)
		mix_block(n_head, 1, o, p, ldp, v, d, j, d - j, f16);
}

INLINE void mix_any(float *o, const float *p, int ldp, int n_head, rows v, int d, bool f16)
{
	switch (n_head) {
	case 1:
		mix_heads(1, o, p, ldp, v, d, f16);
		break;
	case 2:
		mix_heads(2, o, p, ldp, v, d, f16);
		break;
	case 3:
		mix_heads(3, o, p, ldp, v, d, f16);
		break;
	default:
		mix_heads(MAX_HEAD, o, p, ldp, v, d, f16);
	}
}

INLINE void mix_group(float *o, const float *p, int ldp, int n_head, const void *x, const char *const *row, int n, int d, bool f16)
{
	for (int h = 0; h < n_head; h += MAX_HEAD) {
		const float *ph = p + (size_t)h * (size_t)ldp;
		if (f16)
			mix_any(o + h * d, ph, ldp, n_head - h, (rows){ x, row, n, (size_t)d * 2 }, d, true);
		else
			mix_any(o + h * d, ph, ldp, n_head - h, (rows){ x, row, n, (size_t)d * 4 }, d, false);
	}
}

static void mix(float *o, const float *p, int ldp, int n_head, const void *v, int n, int d, bool f16)
{
	mix_group(o, p, ldp, n_head, v, NULL, n, d, f16);
}

static void mix_rows(float *o, const float *p, int ldp, int n_head, const char *const *v, int n, int d, bool f16)
{
	mix_group(o, p, ldp, n_head, NULL, v, n, d, f16);
}
