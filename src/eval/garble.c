/* garble.c: see garble.h */
#include "eval/garble.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GRAM 16		/* bytes: three or four words, so that ordinary phrases that come again do not count for much */
#define SHORTEST 96
#define TAIL 512	/* a loop is never left: the end tells, while lists and searches that are right say much again over their length */

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Share of substrings of GRAM bytes that are distinct; 1 when memory ran out. */
static double distinct_share(const char *s, size_t len)
{
	size_t n = len - GRAM + 1, distinct = 0;
	uint64_t *hash = malloc(n * sizeof *hash);

	if (!hash)
		return 1;
	for (size_t i = 0; i < n; i++) {
		uint64_t h = 0xcbf29ce484222325u;	/* FNV-1a */
		for (size_t j = 0; j < GRAM; j++)
			h = (h ^ (unsigned char)s[i + j]) * 0x100000001b3u;
		hash[i] = h;
	}
	qsort(hash, n, sizeof *hash, by_value);
	for (size_t i = 0; i < n; i++)
		distinct += i == 0 || hash[i] != hash[i - 1];
	free(hash);
	return (double)distinct / (double)n;
}

const char *rk_garbled(const char *reply)
{
	size_t len = strlen(reply), blank = 0;

	while (isspace((unsigned char)reply[blank]))
		blank++;
	if (blank == len)
		return "empty";
	size_t tail = len < TAIL ? len : TAIL;
	return tail >= SHORTEST && distinct_share(reply + len - tail, tail) < 1.0 / 3 ? "repeats" : NULL;
}
