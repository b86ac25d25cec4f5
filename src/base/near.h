/* near.h: the valid name that a mistyped word most resembles, for error messages.
 *
 * Pure functions over byte strings; safe from any thread.
 */
#ifndef RK_BASE_NEAR_H
#define RK_BASE_NEAR_H

#include <stddef.h>

/* The name of names[0..n) at the smallest edit distance from word (insert, delete, replace, swap neighbours), the
 * earlier one on a tie; NULL when none is near enough to be a likely slip. */
const char *rk_near(const char *word, const char *const *names, int n);

/* Writes "did you mean 'x'?", or "valid: a, b, c" when no name is near, cut to size.  Returns out. */
char *rk_near_hint(char *out, size_t size, const char *word, const char *const *names, int n);

#endif
