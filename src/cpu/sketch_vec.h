/* sketch_vec.h: scores of sketches, written once over vectors of VW 32-bit lanes, a key per lane; meaning in sketch.h.
 *
 * A template: sketch_avx2.c and sketch_avx512.c define VW, vi and what differs on one vector (load, field, part_add, part_sum,
 * add_bytes, store_scores), and include it.  A vector holds four elements of VW keys, so nothing is ever summed across one,
 * and a block of keys is BLOCK vectors side by side: each four bytes of a query are spread over a vector once for all of them.
 */
#define BLOCK (RK_SKETCH_BLOCK / VW)
#define MAX_HEAD 4

INLINE int32_t four_of(const rk_sketch_query *q, int j)
{
	int32_t four;

	memcpy(&four, q->q + j, sizeof four);
	return four;
}

INLINE void set_zero(int n_head, vi x[MAX_HEAD][BLOCK])
{
	for (int h = 0; h < n_head; h++)
		for (int i = 0; i < BLOCK; i++)
			x[h][i] = (vi){ 0 };
}

/* sum[h][i] += elements j .. j+31 of the keys VW i and up of a block, times those of the query. */
INLINE void multiply_32(int n_head, int bits, vi sum[MAX_HEAD][BLOCK], const uint8_t *block, const rk_sketch_query *q, int j, int dim)
{
	const int low = bits == 3 ? 2 : bits, fields = 8 / low;
	const uint8_t *third = block + 4 * dim + 2 * j;	/* 3 bits: one vector of third bits for 32 elements */
	vi part[MAX_HEAD][BLOCK];

	set_zero(n_head, part);
	#pragma GCC unroll 8
	for (int g = 0; g < 8; g++) {
		const uint8_t *v = block + 2 * j * low + 64 * (g / fields);
		vi u[BLOCK];
		if (g % fields == 0)
			_mm_prefetch((const char *)v + RK_SKETCH_AHEAD, _MM_HINT_T0);
		for (int i = 0; i < BLOCK; i++) {
			u[i] = field(load(v + 4 * VW * i), g % fields * low, low, 0);
			if (bits == 3)
				u[i] |= field(load(third + 4 * VW * i), g, 1, 2);
		}
		for (int h = 0; h < n_head; h++)
			for (int i = 0; i < BLOCK; i++) {
				vi *to = bits == 8 ? &sum[h][i] : &part[h][i];
				*to = (bits == 8 ? add_bytes : part_add)(*to, u[i], four_of(q + h, j + 4 * g));
				__asm__("" : "+v"(*to));	/* gcc would add up as a tree, for which the registers do not suffice */
			}
	}
	for (int h = 0; bits != 8 && h < n_head; h++)
		for (int i = 0; i < BLOCK; i++)
			sum[h][i] = part_sum(sum[h][i], part[h][i]);
}

INLINE void score_heads(int n_head, int bits, float *s, int lds, const rk_sketch_query *q, const uint8_t *code,
                        const rk_half *scale, int n, int dim)
{
	for (int t = 0; t < n; t += RK_SKETCH_BLOCK, code += RK_SKETCH_BLOCK * dim * bits / 8) {
		vi sum[MAX_HEAD][BLOCK];
		set_zero(n_head, sum);
		for (int j = 0; j < dim; j += 32)
			multiply_32(n_head, bits, sum, code, q, j, dim);
		for (int h = 0; h < n_head; h++)
			for (int i = 0, at = t; i < BLOCK; i++, at += VW)
				store_scores(s + (size_t)h * (size_t)lds + at, sum[h][i], ((1 << bits) - 1) * q[h].sum, scale + at, q[h].half_step, n - at);
	}
}

INLINE void score_bits(int bits, float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code,
                       const rk_half *scale, int n, int dim)
{
	for (; n_head >= 4; n_head -= 4, q += 4, s += 4 * (size_t)lds)
		score_heads(4, bits, s, lds, q, code, scale, n, dim);
	if (n_head == 3)
		score_heads(3, bits, s, lds, q, code, scale, n, dim);
	else if (n_head == 2)
		score_heads(2, bits, s, lds, q, code, scale, n, dim);
	else if (n_head == 1)
		score_heads(1, bits, s, lds, q, code, scale, n, dim);
}

static void score(float *s, int lds, const rk_sketch_query *q, int n_head, const uint8_t *code, const rk_half *scale, int n,
                  int dim, int bits)
{
	switch (bits) {
	case 2:
		score_bits(2, s, lds, q, n_head, code, scale, n, dim);
		break;
	case 3:
		score_bits(3, s, lds, q, n_head, code, scale, n, dim);
		break;
	case 4:
		score_bits(4, s, lds, q, n_head, code, scale, n, dim);
		break;
	default:
		score_bits(8, s, lds, q, n_head, code, scale, n, dim);
	}
}
