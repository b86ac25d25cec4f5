/* bpe.h: byte-pair merging of token ids: which two neighbours become which third, and in what order.
 *
 * A merge is known by its rank, its place in the file: the lower rank goes first, of equal ranks the leftmost.  The
 * table is read-only once filled, so shared by threads; each thread brings its own scratch.
 */
#ifndef RK_MODEL_BPE_H
#define RK_MODEL_BPE_H

#include <stddef.h>
#include <stdint.h>

#define RK_NO_ID (-1)

typedef struct rk_bpe {
	struct rk_merge { int32_t left, right, rank; } *by_pair;	/* [mask + 1] open addressing; rank RK_NO_ID: empty */
	size_t mask;
	int32_t *whole;		/* [n_merge] by rank: the id that the merge makes */
} rk_bpe;

/* Zeroed before the first use; grows to the longest piece and stays, until rk_bpe_scratch_free. */
typedef struct rk_bpe_scratch {
	struct rk_symbol *sym;	/* [cap] */
	uint64_t *heap;		/* [2 * cap] */
	size_t n_heap, cap;
} rk_bpe_scratch;

/* Slots of an open-addressing table for n entries: a power of two, at most 3/4 full. */
size_t rk_bpe_table_size(size_t n);

int rk_bpe_init(rk_bpe *b, size_t n_merge);	/* -1: no memory; free it all the same */
void rk_bpe_free(rk_bpe *b);
/* Each rank in [0, n_merge) once, ascending.  A pair that is already there keeps its better rank. */
void rk_bpe_add(rk_bpe *b, int32_t rank, int32_t left, int32_t right, int32_t whole);

/* Merges ids[0..n) in place until no merge applies, in O(n log n).  Returns the new length, -1: no memory. */
int64_t rk_bpe_merge(const rk_bpe *b, rk_bpe_scratch *s, int32_t *ids, int32_t n);
void rk_bpe_scratch_free(rk_bpe_scratch *s);

#endif
