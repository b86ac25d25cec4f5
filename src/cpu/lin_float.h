/* lin_float.h: the float kernels of lin.h, written once over vectors of VW lanes (GCC vector types).
 *
 * A template: lin_scalar.c, lin_avx2.c and lin_avx512.c define VW and VFMA(a, b, c) = a*b+c and include it.
 * Every sum has a fixed order: lane j takes elements j, j+VW, ..., lanes are added as a binary tree, and what is left
 * over at the end comes last.  So tables differ in the last bits, calls to one table do not.
 */
#ifndef VW
#error "define VW and VFMA first"
#endif

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * VW)));
typedef int32_t vi __attribute__((vector_size(4 * VW)));

INLINE vf vload(const float *p)
{
	vf v;
	memcpy(&v, p, sizeof v);
	return v;
}

INLINE void vstore(float *p, vf v)
{
	memcpy(p, &v, sizeof v);
}

INLINE vf vset(float f)
{
	return f - (vf){ 0 };	/* f itself, -0 too, so that a compiler leaves the subtraction out; + 0 it must keep */
}

/* b where mask is all ones, a where it is zero */
INLINE vf vselect(vi mask, vf a, vf b)
{
	return (vf)(((vi)a & ~mask) | ((vi)b & mask));
}

INLINE vf vmax(vf a, vf b)
{
	return vselect(b > a, a, b);
}

INLINE float vsum(vf v)
{
	float lane[VW];
	vstore(lane, v);
	for (int w = VW / 2; w; w /= 2)
		for (int j = 0; j < w; j++)
			lane[j] += lane[j + w];
	return lane[0];
}

INLINE float vmax_lane(vf v)
{
	float lane[VW];
	vstore(lane, v);
	for (int w = VW / 2; w; w /= 2)
		for (int j = 0; j < w; j++)
			lane[j] = lane[j + w] > lane[j] ? lane[j + w] : lane[j];
	return lane[0];
}

/* First `n` of VW lanes from p, the others `fill`: so that the end of an array goes through the same code. */
INLINE vf vload_part(const float *p, int n, float fill)
{
	float lane[VW];
	for (int j = 0; j < VW; j++)
		lane[j] = j < n ? p[j] : fill;
	return vload(lane);
}

/* exp(x) for x clamped to [-87, 88]: x = n ln 2 + r, |r| <= ln 2 / 2, and the Taylor series of exp(r) to r^7, whose
 * remainder is below 6e-9; the rounding of the Horner steps leaves a relative error below 2e-7 (tested). */
INLINE vf vexp(vf x)
{
	const vf magic = vset(0x1.8p23f);	/* adding it rounds to nearest and leaves the integer in the low bits */
	x = vselect(x < -87.0f, x, vset(-87.0f));
	x = vselect(x > 88.0f, x, vset(88.0f));
	vf shifted = VFMA(x, vset(0x1.715476p0f), magic);
	vf n = shifted - magic;
	vf r = VFMA(n, vset(-0x1.62e4p-1f), x);	/* ln 2 in two parts: the first has 14 bits, so n times it is exact */
	r = VFMA(n, vset(-0x1.7f7d1cp-20f), r);
	vf p = VFMA(r, vset(1.0f / 5040), vset(1.0f / 720));
	p = VFMA(p, r, vset(1.0f / 120));
	p = VFMA(p, r, vset(1.0f / 24));
	p = VFMA(p, r, vset(1.0f / 6));
	p = VFMA(p, r, vset(0.5f));
	p = VFMA(p, r, vset(1.0f));
	p = VFMA(p, r, vset(1.0f));
	vi scale = (((vi)shifted - (vi)magic) + 127) << 23;
	return p * (vf)scale;
}

static void quantise(const float *x, int n_col, int n, int8_t *q, float *ds)
{
	const vf magic = vset(0x1.8p23f);
	for (int k = 0; k < n_col; k += RK_GROUP, x += RK_GROUP, q += (size_t)n * RK_GROUP, ds += 2 * (size_t)n) {
		vf big = vset(0);
		for (int j = 0; j < RK_GROUP; j += VW)
			big = vmax(big, (vf)((vi)vload(x + j) & 0x7fffffff));
		float amax = vmax_lane(big), d = amax / 127.0f;
		/* a group so small that 127/amax might overflow is 0 */
		float inv = amax > 0x1p-100f ? 127.0f / amax : 0;
		int32_t r[RK_GROUP];
		uint32_t total = 0;	/* wraps where x is not finite */
		for (int j = 0; j < RK_GROUP; j += VW) {
			vi v = (vi)(vload(x + j) * inv + magic) - (vi)magic;
			memcpy(r + j, &v, sizeof v);
		}
		for (int j = 0; j < RK_GROUP; j++) {	/* loops that become packs and adds; a conversion of 8 lanes is made byte by byte */
			q[j] = (int8_t)r[j];
			total += (uint32_t)r[j];
		}
		ds[0] = d;
		ds[1] = d * (float)(int32_t)total;
	}
}

INLINE void dot_f32_tile(const int nt, const float *w, const float *x, int n_col, float *y, size_t ldy)
{
	vf acc[4][2];
	int k = 0;
	for (int i = 0; i < nt; i++)
		acc[i][0] = acc[i][1] = vset(0);
	for (; k + 2 * VW <= n_col; k += 2 * VW) {
		vf w0 = vload(w + k), w1 = vload(w + k + VW);
		for (int i = 0; i < nt; i++) {
			const float *xi = x + (size_t)i * (size_t)n_col + k;
			acc[i][0] = VFMA(w0, vload(xi), acc[i][0]);
			acc[i][1] = VFMA(w1, vload(xi + VW), acc[i][1]);
		}
	}
	for (int i = 0; i < nt; i++) {
		float s = vsum(acc[i][0] + acc[i][1]);
		for (int j = k; j < n_col; j++)
			s += w[j] * x[(size_t)i * (size_t)n_col + (size_t)j];
		y[(size_t)i * ldy] = s;
	}
}

static void dot_f32(const float *w, const float *x, int n_col, int n, float *y, size_t ldy)
{
	int i = 0;
	for (; i + 4 <= n; i += 4)
		dot_f32_tile(4, w, x + (size_t)i * (size_t)n_col, n_col, y + (size_t)i * ldy, ldy);
	for (; i < n; i++)
		dot_f32_tile(1, w, x + (size_t)i * (size_t)n_col, n_col, y + (size_t)i * ldy, ldy);
}

static void rmsnorm(float *y, const float *x, const float *w, int dim, float eps)
{
	vf acc = vset(0);
	int j = 0;
	for (; j + VW <= dim; j += VW) {
		vf v = vload(x + j);
		acc = VFMA(v, v, acc);
	}
	float sum = vsum(acc);
	for (; j < dim; j++)
		sum += x[j] * x[j];
	float scale = 1.0f / sqrtf(sum / (float)dim + eps);
	for (j = 0; j < dim; j++)
		y[j] = x[j] * scale * w[j];
}

static void silu_mul(float *y, const float *g, const float *u, size_t n)
{
	size_t j = 0;
	for (; j + VW <= n; j += VW) {
		vf v = vload(g + j);
		vstore(y + j, v / (1.0f + vexp(-v)) * vload(u + j));
	}
	if (j < n) {
		float lane[VW];
		vf v = vload_part(g + j, (int)(n - j), 0);
		vstore(lane, v / (1.0f + vexp(-v)) * vload_part(u + j, (int)(n - j), 0));
		memcpy(y + j, lane, (n - j) * sizeof *y);
	}
}

static void add(float *x, const float *y, size_t n)
{
	for (size_t j = 0; j < n; j++)
		x[j] += y[j];
}

/* Sums of at most this many vectors are kept in f32, their totals in double: the rounding of a vocabulary's worth of
 * additions would otherwise show in the fifth digit. */
#define LSE_PIECE (64 * VW)

static void logits_stats(const float *x, int n, float *lse, int32_t *argmax)
{
	vf top = vset(-INFINITY);
	int j = 0;
	for (; j + VW <= n; j += VW)
		top = vmax(top, vload(x + j));
	if (j < n)
		top = vmax(top, vload_part(x + j, n - j, -INFINITY));
	float max = vmax_lane(top);
	double sum = 0;
	for (int p = 0; p < n; p += LSE_PIECE) {
		int end = p + LSE_PIECE < n ? p + LSE_PIECE : n;
		vf acc = vset(0);
		for (j = p; j + VW <= end; j += VW)
			acc += vexp(vload(x + j) - max);
		if (j < end) {
			float lane[VW];
			vstore(lane, vexp(vload_part(x + j, end - j, max) - max));
			for (int i = 0; i < end - j; i++)
				sum += lane[i];
		}
		sum += vsum(acc);
	}
	*lse = (float)(max + log(sum));
	*argmax = 0;
	for (j = 0; j < n; j++)
		if (x[j] == max) {
			*argmax = j;
			break;
		}
}

static float expected_gap(const float *p, float p_lse, const float *q, int n)
{
	double sum = 0;
	for (int k = 0; k < n; k += LSE_PIECE) {
		int end = k + LSE_PIECE < n ? k + LSE_PIECE : n, j = k;
		vf acc = vset(0);
		for (; j + VW <= end; j += VW)
			acc += vexp(vload(p + j) - p_lse) * (vload(p + j) - vload(q + j));
		if (j < end) {
			vf a = vload_part(p + j, end - j, 0), b = vload_part(q + j, end - j, 0);
			acc += vexp(a - p_lse) * (a - b);	/* 0 beyond the end, where both are */
		}
		sum += (double)vsum(acc);
	}
	return (float)sum;
}
