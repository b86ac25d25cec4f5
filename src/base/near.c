/* near.c: see near.h */
#include "base/near.h"

#include <stdio.h>
#include <string.h>

#define MAX_WORD 48	/* longer words are not slips of our names */

/* Optimal string alignment distance; both words at most MAX_WORD bytes. */
static int distance(const char *a, int n, const char *b, int m)
{
	int before[MAX_WORD + 1], last[MAX_WORD + 1], row[MAX_WORD + 1];	/* rows i-2, i-1, i of the table */
	for (int j = 0; j <= m; j++)
		last[j] = j;
	for (int i = 1; i <= n; i++) {
		row[0] = i;
		for (int j = 1; j <= m; j++) {
			int d = last[j - 1] + (a[i - 1] != b[j - 1]);
			if (last[j] + 1 < d)
				d = last[j] + 1;
			if (row[j - 1] + 1 < d)
				d = row[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < d)
				d = before[j - 2] + 1;
			row[j] = d;
		}
		memcpy(before, last, sizeof last);
		memcpy(last, row, sizeof row);
	}
	return last[m];
}

const char *rk_near(const char *word, const char *const *names, int n)
{
	const char *best = NULL;
	size_t len = strlen(word);
	if (len > MAX_WORD)
		return NULL;
	int limit = 1 + (int)len / 4;	/* slips grow with the word: 1 in "s", 2 in "strid", 3 in "refreskv" */
	for (int i = 0; i < n; i++) {
		size_t m = strlen(names[i]);
		if (m > MAX_WORD)
			continue;
		int d = distance(word, (int)len, names[i], (int)m);
		/* A distance of the longer word's whole length shares nothing: "q" is no slip of "k". */
		if (d <= limit && (size_t)d < (len > m ? len : m)) {
			best = names[i];
			limit = d - 1;
		}
	}
	return best;
}

char *rk_near_hint(char *out, size_t size, const char *word, const char *const *names, int n)
{
	const char *near = rk_near(word, names, n);
	if (near) {
		snprintf(out, size, "did you mean '%s'?", near);
		return out;
	}
	int at = snprintf(out, size, "valid: ");
	for (int i = 0; i < n && at >= 0 && (size_t)at < size; i++)
		at += snprintf(out + at, size - (size_t)at, "%s%s", i ? ", " : "", names[i]);
	return out;
}
