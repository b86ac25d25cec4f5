/* utf8.c: see utf8.h.  One function, next_char, knows the encoding; the others walk with it. */
#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum unit { WHOLE, ILL_FORMED, CUT_SHORT };	/* CUT_SHORT: well-formed so far, the buffer ends inside the character */

/* Looks at the character that starts at s (n >= 1 bytes left) and sets *adv to its length, or to the length of the
 * maximal subpart when it is not whole.  The range of the second byte is what rules out overlong forms (E0, F0),
 * surrogates (ED) and code points above U+10FFFF (F4): Unicode 15, table 3-7. */
static enum unit next_char(const uint8_t *s, size_t n, size_t *adv)
{
	uint8_t lead = s[0], lo = 0x80, hi = 0xBF;
	size_t len;

	*adv = 1;
	if (lead < 0x80)
		return WHOLE;
	if (lead >= 0xC2 && lead <= 0xDF)
		len = 2;
	else if (lead >= 0xE0 && lead <= 0xEF)
		len = 3;
	else if (lead >= 0xF0 && lead <= 0xF4)
		len = 4;
	else
		return ILL_FORMED;
	if (lead == 0xE0)
		lo = 0xA0;
	else if (lead == 0xED)
		hi = 0x9F;
	else if (lead == 0xF0)
		lo = 0x90;
	else if (lead == 0xF4)
		hi = 0x8F;
	for (size_t i = 1; i < len; i++, lo = 0x80, hi = 0xBF) {
		if (i == n)
			return CUT_SHORT;
		if (s[i] < lo || s[i] > hi)
			return ILL_FORMED;
		*adv = i + 1;
	}
	return WHOLE;
}

int rk_utf8_check(const char *s, size_t len, size_t *bad)
{
	for (size_t i = 0, adv; i < len; i += adv) {
		if (next_char((const uint8_t *)s + i, len - i, &adv) == WHOLE)
			continue;
		if (bad)
			*bad = i;
		return -1;
	}
	return 0;
}

size_t rk_utf8_complete(const char *s, size_t len)
{
	/* An unfinished character is a lead byte and up to two continuation bytes at the very end. */
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		size_t adv, at = len - back;
		if ((s[at] & 0xC0) == 0x80)
			continue;
		return next_char((const uint8_t *)s + at, back, &adv) == CUT_SHORT ? at : len;
	}
	return len;
}

int rk_utf8_lossy(const char *s, size_t len, char **out, size_t *out_len, rk_err *e)
{
	static const char mark[3] = "\xEF\xBF\xBD";
	const uint8_t *b = (const uint8_t *)s;

	/* Worst case: every byte becomes three. */
	char *o = len <= (SIZE_MAX - 1) / 3 ? malloc(3 * len + 1) : NULL;
	if (!o)
		return rk_fail(e, RK_ENOMEM, "no memory to show %zu bytes of text", len);
	size_t n = 0;
	for (size_t i = 0, adv; i < len; i += adv) {
		if (next_char(b + i, len - i, &adv) == WHOLE) {
			memcpy(o + n, b + i, adv);
			n += adv;
		} else {
			memcpy(o + n, mark, sizeof mark);
			n += sizeof mark;
		}
	}
	o[n] = 0;
	*out = o;
	*out_len = n;
	return 0;
}
