/* matmul.c: quantised weights times n activations, for decoding and for prefill.
 *
 * Owns rk_lin_scratch.  Packed: rows of all matrices of the call are cut into pieces of PIECE rows, workers claim runs of
 * pieces and the packed weights are read once for every RK_MAX_ACT activations; these are 8-bit, or f32 when exact or the
 * weights are floats.  GEMM, where a prefill needs f32 products: tiles of TILE_ROWS rows are dequantised into the
 * thread's scratch and multiplied by oneDNN's sgemm.
 * Both cut the work independently of the number of threads, and each result is one sum in one order, so neither n nor
 * n_thread changes a bit.  Nothing is allocated here (oneDNN packs into its own memory).
 */
#include "cpu/cpu.h"

#include <assert.h>
#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 4			/* runs of pieces per worker: few enough to read far ahead, enough to even out a slow one */
#define PIECE 16		/* rows of a packed piece: some 6 KB of weights, far above the cost of finding it */
#define TILE_ROWS 144		/* a GEMM's tile: TILE_ROWS x TILE_COLS floats, 442 KB, stay in the L2 cache */
#define TILE_COLS 768		/* longer rows are summed in parts; a multiple of 256 */

/* oneDNN's sgemm gives a row of the result the same bits whatever the other rows, if it is called in these ways only
 * (measured with version 2.6 for its SSE4.1, AVX, AVX2 and AVX-512 kernels; test_lin checks the machine it runs on).
 * AVX-512: fewer than 16 rows take other kernels.  AVX2: rows go by 6, another kernel takes over where 1 to 3 are left,
 * and above 147 rows it cuts them in ways of its own. */
#define GEMM_MIN 16
#define GEMM_MAX 144

static int gemm_rows(int n)
{
	if (n < GEMM_MIN)
		return 0;
	if (n >= GEMM_MAX)
		return GEMM_MAX;
	return n % 6 >= 1 && n % 6 <= 3 ? n - n % 6 : n;
}

/* By integer products: w stays packed and x is rounded to 8 bits. */
static bool integer(const rk_cpu *c, const rk_tensor *w)
{
	return !c->b.exact && rk_type_block_len(w->type) > 1;
}

/* Piece `p` of the call's matrices, each cut into pieces of `rows` rows: which matrix, and its first row. */
static const rk_tensor *find_piece(const rk_tensor *const w[], int rows, int64_t p, int *j, int64_t *row0)
{
	for (*j = 0;; ++*j) {
		int64_t n = (w[*j]->n_row + rows - 1) / rows;
		if (p < n)
			break;
		p -= n;
	}
	*row0 = p * rows;
	return w[*j];
}

static int64_t count_pieces(const rk_tensor *const w[], int n_w, int rows)
{
	int64_t n = 0;
	for (int j = 0; j < n_w; j++)
		n += (w[j]->n_row + rows - 1) / rows;
	return n;
}

static const uint8_t *row_at(const rk_tensor *w, int64_t row)
{
	return (const uint8_t *)w->data + (size_t)row * rk_type_row_bytes(w->type, w->n_col);
}

/* y[i*n_row + r] for n_row rows from row0, in f32: each weight row is dequantised once for all n activations. */
static void dot_float(const rk_cpu *c, const rk_tensor *w, int64_t row0, int n_row, const float *x, int n, float *y,
                      float *row)
{
	for (int64_t r = row0; r < row0 + n_row; r++) {
		const float *wr = (const float *)row_at(w, r);
		if (w->type != RK_F32) {
			c->lin->dequant(w->type, wr, row, w->n_col);
			wr = row;
		}
		c->lin->dot_f32(wr, x, (int)w->n_col, n, y + r, (size_t)w->n_row);
	}
}

/* Rows i0 .. of the call's n as an rk_act: whole blocks of them lie one after another. */
static rk_act act_block(const rk_lin_scratch *s, int n_col, int n, int i0)
{
	const size_t at = (size_t)i0 * (size_t)n_col;
	return (rk_act){
		.q = s->q + at, .ds = s->ds + at / RK_GROUP * 2, .n_col = n_col, .n = n - i0 < RK_MAX_ACT ? n - i0 : RK_MAX_ACT,
	};
}

struct packed {
	rk_cpu *c;
	float *const *y;
	const rk_tensor *const *w;
	const float *x;	/* [n][n_col] */
	int n_col, n;
	int64_t n_piece;
	int n_run;	/* runs of pieces that the workers claim */
};

static void quantise_block(void *ctx, int block, int worker)
{
	const struct packed *p = ctx;
	(void)worker;
	rk_lin_scratch *s = p->c->lin_scratch;
	const size_t i0 = (size_t)block * RK_MAX_ACT, n_col = (size_t)p->n_col;
	const int n = act_block(s, p->n_col, p->n, (int)i0).n;
	for (int i = 0; i < n; i++)
		p->c->lin->quantise(p->x + (i0 + (size_t)i) * n_col, p->n_col, n, s->q + i0 * n_col + i * RK_GROUP,
		                    s->ds + i0 * n_col / RK_GROUP * 2 + 2 * i);
}

static void packed_run(void *ctx, int run, int worker)
{
	const struct packed *a = ctx;
	rk_lin_scratch *s = a->c->lin_scratch;
	for (int64_t p = a->n_piece * run / a->n_run; p < a->n_piece * (run + 1) / a->n_run; p++) {
		int j;
		int64_t r;
		const rk_tensor *t = find_piece(a->w, PIECE, p, &j, &r);
		const int rows = t->n_row - r < PIECE ? (int)(t->n_row - r) : PIECE;
		if (!integer(a->c, t)) {
			dot_float(a->c, t, r, rows, a->x, a->n, a->y[j], s->tile + (size_t)worker * s->tile_len);
			continue;
		}
		for (int i = 0; i < a->n; i += RK_MAX_ACT) {
			const rk_act act = act_block(s, a->n_col, a->n, i);
			a->c->lin->dot_q8(t->type, row_at(t, r), rows, &act, a->y[j] + (size_t)i * (size_t)t->n_row + r, (size_t)t->n_row);
		}
	}
}

static void packed(rk_cpu *c, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n)
{
	const int n_block = (n + RK_MAX_ACT - 1) / RK_MAX_ACT, most = RUNS * c->b.n_thread * n_block;
	struct packed p = { .c = c, .y = y, .w = w, .x = x, .n_col = (int)w[0]->n_col, .n = n, .n_piece = count_pieces(w, n_w, PIECE) };
	p.n_run = p.n_piece < most ? (int)p.n_piece : most;
	bool any = false;
	for (int j = 0; j < n_w; j++)
		any |= integer(c, w[j]);
	if (any)
		rk_team_run(c->team, n_block, quantise_block, &p);
	rk_team_run(c->team, p.n_run, packed_run, &p);
}

/* y[0..m)[ldy] (+)= x[m][ldx] tile^T, the tile [rows][cols] */
static void gemm(int m, int rows, int cols, const float *x, int64_t ldx, const float *tile, float *y, int64_t ldy,
                 bool add)
{
	dnnl_sgemm('N', 'T', m, rows, cols, 1, x, ldx, tile, cols, add ? 1 : 0, y, ldy);
}

/* Rows row0 .. row0+rows-1 of w times x, into those columns of y [n][n_row].  Rows of x that gemm_rows leaves over are
 * computed with others before them, or zeros behind: x_end = the last GEMM_MIN rows of x, or x and zeros when it has
 * fewer; y_end: scratch for their results. */
static void gemm_tile(const rk_cpu *c, const rk_tensor *w, int64_t row0, int rows, const float *x,
                      const float *x_end, int n, float *y, float *tile, float *y_end)
{
	const int64_t n_col = w->n_col, n_row = w->n_row;
	const size_t part_bytes = rk_type_row_bytes(w->type, TILE_COLS);
	int done = 0;
	for (int64_t k = 0; k < n_col; k += TILE_COLS) {
		const int cols = n_col - k < TILE_COLS ? (int)(n_col - k) : TILE_COLS;
		for (int r = 0; r < rows; r++)
			c->lin->dequant(w->type, row_at(w, row0 + r) + (size_t)(k / TILE_COLS) * part_bytes,
			                tile + (size_t)r * (size_t)cols, cols);
		done = 0;
		for (int m; (m = gemm_rows(n - done)); done += m)
			gemm(m, rows, cols, x + done * n_col + k, n_col, tile, y + done * n_row + row0, n_row, k > 0);
		if (done < n)
			gemm(GEMM_MIN, rows, cols, x_end + k, n_col, tile, y_end, TILE_ROWS, k > 0);
	}
	const int first = n < GEMM_MIN ? 0 : n - GEMM_MIN;	/* row of x at x_end */
	for (int i = done; i < n; i++)
		memcpy(y + i * n_row + row0, y_end + (i - first) * TILE_ROWS, (size_t)rows * sizeof *y);
}

struct by_gemm {
	rk_cpu *c;
	float *const *y;
	const rk_tensor *const *w;
	const float *x, *x_end;
	int n;
};

static void gemm_piece(void *ctx, int p, int worker)
{
	const struct by_gemm *a = ctx;
	rk_lin_scratch *s = a->c->lin_scratch;
	int j;
	int64_t r;
	const rk_tensor *t = find_piece(a->w, TILE_ROWS, p, &j, &r);
	const int rows = t->n_row - r < TILE_ROWS ? (int)(t->n_row - r) : TILE_ROWS;
	gemm_tile(a->c, t, r, rows, a->x, a->x_end, a->n, a->y[j], s->tile + (size_t)worker * s->tile_len,
	          s->y_pad + (size_t)worker * GEMM_MIN * TILE_ROWS);
}

static void by_gemm(rk_cpu *c, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n)
{
	rk_lin_scratch *s = c->lin_scratch;
	const size_t n_col = (size_t)w[0]->n_col;
	const int64_t n_tile = count_pieces(w, n_w, TILE_ROWS);
	const float *x_end = s->x_pad;
	if (n >= GEMM_MIN) {
		x_end = x + (size_t)(n - GEMM_MIN) * n_col;
	} else {
		memcpy(s->x_pad, x, (size_t)n * n_col * sizeof *x);
		memset(s->x_pad + (size_t)n * n_col, 0, (size_t)(GEMM_MIN - n) * n_col * sizeof *x);
	}
	struct by_gemm a = { c, y, w, x, x_end, n };
	const int team = omp_get_max_threads();
	omp_set_num_threads(1);		/* of this thread, which is a worker too: oneDNN must not start a team of its own */
	rk_team_run(c->team, (int)n_tile, gemm_piece, &a);
	omp_set_num_threads(team);
}

void rk_cpu_matmul(rk_backend *b, float *const y[], const rk_tensor *const w[], int n_w, const float *x, int n,
                   enum rk_phase phase)
{
	rk_cpu *c = (rk_cpu *)b;
	assert(n >= 1 && n <= c->cfg.max_rows && n_w >= 1 && n_w <= RK_MAX_FUSED);
	for (int j = 0; j < n_w; j++)
		assert(w[j]->n_col == w[0]->n_col && w[j]->n_col <= ((rk_lin_scratch *)c->lin_scratch)->max_col);
	/* what oneDNN multiplies, and the others; plain C is an order of magnitude slower than its SSE4.1 kernels */
	const rk_tensor *part[2][RK_MAX_FUSED];
	float *out[2][RK_MAX_FUSED];
	int n_part[2] = { 0 };
	for (int j = 0; j < n_w; j++) {
		const int k = phase == RK_DECODE || (c->isa != RK_ISA_SCALAR && integer(c, w[j]));
		part[k][n_part[k]] = w[j];
		out[k][n_part[k]++] = y[j];
	}
	if (n_part[0])
		by_gemm(c, out[0], part[0], n_part[0], x, n);
	if (n_part[1])
		packed(c, out[1], part[1], n_part[1], x, n);
}

static void *take(rk_cpu *c, size_t bytes, rk_err *e)
{
	void *p = rk_cpu_alloc(bytes, e);
	c->b.scratch_bytes += p ? bytes : 0;
	return p;
}

int rk_cpu_lin_init(rk_cpu *c, rk_err *e)
{
	const rk_hparams *hp = c->b.hp;
	const size_t rows = (size_t)c->cfg.max_rows, team = (size_t)c->b.n_thread;
	rk_lin_scratch *s = calloc(1, sizeof *s);
	if (!s)
		return rk_fail(e, RK_ENOMEM, "cannot allocate %zu bytes", sizeof *s);
	c->lin_scratch = s;
	int col = hp->n_embd;
	if (col < hp->n_ff)
		col = hp->n_ff;
	if (col < hp->n_head * hp->head_dim)
		col = hp->n_head * hp->head_dim;
	s->max_col = (col + 255) / 256 * 256;
	const size_t max_col = (size_t)s->max_col, n_trig = (size_t)hp->rope_dim;
	s->tile_len = TILE_ROWS * (max_col < TILE_COLS ? max_col : TILE_COLS);
	if (s->tile_len < max_col)
		s->tile_len = max_col;	/* decode puts a whole row there */
	if (!(s->q = take(c, rows * max_col, e)) ||
	    !(s->ds = take(c, rows * max_col / RK_GROUP * 2 * sizeof *s->ds, e)) ||
	    !(s->tile = take(c, team * s->tile_len * sizeof *s->tile, e)) ||
	    !(s->x_pad = take(c, GEMM_MIN * max_col * sizeof *s->x_pad, e)) ||
	    !(s->y_pad = take(c, team * GEMM_MIN * TILE_ROWS * sizeof *s->y_pad, e)) ||
	    !(s->trig = take(c, rows * n_trig * sizeof *s->trig, e)) ||
	    !(s->trig_pos = take(c, rows * sizeof *s->trig_pos, e)))
		return -1;
	memset(s->trig_pos, 0xff, rows * sizeof *s->trig_pos);	/* -1: no position yet */
	return 0;
}

void rk_cpu_lin_free(rk_cpu *c)
{
	rk_lin_scratch *s = c->lin_scratch;
	if (!s)
		return;
	free(s->q);
	free(s->ds);
	free(s->tile);
	free(s->x_pad);
	free(s->y_pad);
	free(s->trig);
	free(s->trig_pos);
	free(s);
	c->lin_scratch = NULL;
}
