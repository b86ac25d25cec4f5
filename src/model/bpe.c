/* bpe.c: see bpe.h.  A linked list of symbols and a heap of the merges that could be made next.
 *
 * Merging changes the pairs on both sides, so an entry of the heap may be stale when it comes up.  Each symbol notes
 * the rank of the merge with its right neighbour; a rank belongs to one pair, so an entry whose rank agrees is fresh.
 */
#include "model/bpe.h"

#include <stdlib.h>

struct rk_symbol {
	int32_t id, prev, next;	/* prev, next: indexes, RK_NO_ID at the ends */
	int32_t rank;		/* of the merge with the next symbol; RK_NO_ID: there is none, or this symbol is gone */
};

size_t rk_bpe_table_size(size_t n)
{
	size_t size = 16;
	while (size / 4 * 3 < n)
		size *= 2;
	return size;
}

int rk_bpe_init(rk_bpe *b, size_t n_merge)
{
	size_t size = rk_bpe_table_size(n_merge);

	b->mask = size - 1;
	b->by_pair = malloc(size * sizeof *b->by_pair);
	b->whole = malloc((n_merge + 1) * sizeof *b->whole);
	if (!b->by_pair || !b->whole)
		return -1;
	for (size_t i = 0; i < size; i++)
		b->by_pair[i].rank = RK_NO_ID;
	return 0;
}

void rk_bpe_free(rk_bpe *b)
{
	free(b->by_pair);
	free(b->whole);
}

static struct rk_merge *slot_of_pair(const rk_bpe *b, int32_t left, int32_t right)
{
	/* Multiplicative hashing: the high half of the product depends on every bit of the pair. */
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
	for (size_t i = h >> 32; ; i++) {
		struct rk_merge *slot = &b->by_pair[i & b->mask];
		if (slot->rank == RK_NO_ID || (slot->left == left && slot->right == right))
			return slot;
	}
}

void rk_bpe_add(rk_bpe *b, int32_t rank, int32_t left, int32_t right, int32_t whole)
{
	struct rk_merge *slot = slot_of_pair(b, left, right);

	if (slot->rank == RK_NO_ID)
		*slot = (struct rk_merge){ left, right, rank };
	b->whole[rank] = whole;
}

/* The heap holds rank << 32 | index of the left symbol, so that the smallest is the best merge and the leftmost of its
 * rank. */
static void heap_push(rk_bpe_scratch *s, uint64_t v)
{
	size_t i = s->n_heap++;
	for (size_t up; i > 0 && s->heap[up = (i - 1) / 2] > v; i = up)
		s->heap[i] = s->heap[up];
	s->heap[i] = v;
}

static uint64_t heap_pop(rk_bpe_scratch *s)
{
	uint64_t top = s->heap[0], v = s->heap[--s->n_heap];
	size_t i = 0;
	for (size_t down; (down = 2 * i + 1) < s->n_heap; i = down) {
		down += down + 1 < s->n_heap && s->heap[down + 1] < s->heap[down];
		if (s->heap[down] >= v)
			break;
		s->heap[i] = s->heap[down];
	}
	s->heap[i] = v;
	return top;
}

/* Notes the merge of symbol i with its right neighbour, if there is one. */
static void offer(const rk_bpe *b, rk_bpe_scratch *s, int32_t i)
{
	struct rk_symbol *y = &s->sym[i];

	y->rank = y->next == RK_NO_ID ? RK_NO_ID : slot_of_pair(b, y->id, s->sym[y->next].id)->rank;
	if (y->rank != RK_NO_ID)
		heap_push(s, (uint64_t)y->rank << 32 | (uint32_t)i);
}

static int grow(rk_bpe_scratch *s, size_t n)
{
	if (n <= s->cap)
		return 0;
	rk_bpe_scratch_free(s);
	size_t cap = n < 128 ? 128 : n + n / 2;
	s->sym = malloc(cap * sizeof *s->sym);
	/* n - 1 pairs at first; each of the at most n - 1 merges takes one entry away and adds at most two */
	s->heap = malloc(2 * cap * sizeof *s->heap);
	if (!s->sym || !s->heap)
		return -1;
	s->cap = cap;
	return 0;
}

int64_t rk_bpe_merge(const rk_bpe *b, rk_bpe_scratch *s, int32_t *ids, int32_t n)
{
	if (n < 2)
		return n;
	if (grow(s, (size_t)n))
		return -1;
	s->n_heap = 0;
	for (int32_t i = 0; i < n; i++)
		s->sym[i] = (struct rk_symbol){ ids[i], i - 1, i + 1 < n ? i + 1 : RK_NO_ID, RK_NO_ID };
	for (int32_t i = 0; i < n; i++)
		offer(b, s, i);
	while (s->n_heap) {
		uint64_t top = heap_pop(s);
		int32_t at = (int32_t)(uint32_t)top, rank = (int32_t)(top >> 32);
		struct rk_symbol *left = &s->sym[at];
		if (left->rank != rank)
			continue;
		struct rk_symbol *right = &s->sym[left->next];
		left->id = b->whole[rank];
		left->next = right->next;
		right->rank = RK_NO_ID;
		if (left->next != RK_NO_ID)
			s->sym[left->next].prev = at;
		offer(b, s, at);
		if (left->prev != RK_NO_ID)
			offer(b, s, left->prev);
	}
	int64_t kept = 0;
	for (int32_t i = 0; i != RK_NO_ID; i = s->sym[i].next)
		ids[kept++] = s->sym[i].id;
	return kept;
}

void rk_bpe_scratch_free(rk_bpe_scratch *s)
{
	free(s->sym);
	free(s->heap);
	*s = (rk_bpe_scratch){ 0 };
}
