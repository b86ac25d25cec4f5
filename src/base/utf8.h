/* utf8.h: validity of UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
 *
 * Text enters the program through rk_utf8_check; bytes that a model produces pass through rk_utf8_complete, because a
 * character may be split over tokens, and reach the screen through rk_utf8_lossy.  Pure functions, any thread.
 */
#ifndef RK_BASE_UTF8_H
#define RK_BASE_UTF8_H

#include <stddef.h>
#include "base/err.h"

/* 0: valid; -1: *bad (may be NULL) is the offset of the first byte of the first ill-formed sequence. */
int rk_utf8_check(const char *s, size_t len, size_t *bad);

/* Length of the longest prefix that does not end inside a character.  Only bytes that a later byte can still turn into
 * a valid character are held back: at most 3, and never an ill-formed one. */
size_t rk_utf8_complete(const char *s, size_t len);

/* A copy in which each maximal ill-formed subpart (Unicode 15, section 3.9, table 3-8) is one U+FFFD.  *out is
 * allocated and NUL-terminated beyond *out_len; free() it. */
int rk_utf8_lossy(const char *s, size_t len, char **out, size_t *out_len, rk_err *e);

#endif
