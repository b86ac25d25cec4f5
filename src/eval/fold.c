/* fold.c: see fold.h */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "eval/fold.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

bool rk_fold_blank(int c)
{
	if (c < 0x80)
		return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
	return c == 0x85 || c == 0x2028 || c == 0x2029 || utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

/* The character at s and its bytes; a byte that is none is returned as it is. */
static int next_char(const char *s, int *c)
{
	utf8proc_int32_t cp;
	utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, -1, &cp);

	*c = n > 0 ? cp : (unsigned char)*s;
	return n > 0 ? (int)n : 1;
}

const char *rk_fold_strip(const char *s, size_t *len)
{
	const char *end = s;
	int c, n;

	while (*s && (n = next_char(s, &c), rk_fold_blank(c)))
		s += n;
	end = s;
	for (const char *p = s; *p; p += n) {
		n = next_char(p, &c);
		if (!rk_fold_blank(c))
			end = p + n;
	}
	*len = (size_t)(end - s);
	return s;
}

char *rk_fold_lower(const char *s)
{
	char *out;
	size_t size;
	FILE *f = open_memstream(&out, &size);

	if (!f)
		return NULL;
	for (int n, c; *s; s += n) {
		utf8proc_uint8_t b[4];
		n = next_char(s, &c);
		if (n == 1 && c >= 0x80)
			fputc(*s, f);
		else
			fwrite(b, 1, (size_t)utf8proc_encode_char(utf8proc_tolower(c), b), f);
	}
	if (fclose(f)) {
		free(out);
		return NULL;
	}
	return out;
}

static void drop_marks(char *s, const char *also)
{
	char *to = s;

	for (int n, c; *s; s += n) {
		n = next_char(s, &c);
		bool mark = c > ' ' && c < 0x7f && !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
		if (!mark && !(n > 1 && (size_t)n == strlen(also) && memcmp(s, also, (size_t)n) == 0)) {
			memmove(to, s, (size_t)n);
			to += n;
		}
	}
	*to = 0;
}

/* A copy with each match of the words made a blank. */
static char *drop_words(const char *s, const char *words)
{
	char pattern[256];
	int code;
	PCRE2_SIZE at, size = strlen(s) + 1;	/* a blank is no longer than a word */
	char *out = malloc(size);

	snprintf(pattern, sizeof pattern, "\\b(?:%s)\\b", words);
	pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
	int rc = out && re ? pcre2_substitute(re, (PCRE2_SPTR)s, PCRE2_ZERO_TERMINATED, 0, PCRE2_SUBSTITUTE_GLOBAL, NULL, NULL,
	                                      (PCRE2_SPTR)" ", 1, (PCRE2_UCHAR *)out, &size) : -1;
	pcre2_code_free(re);
	if (rc >= 0)
		return out;
	free(out);
	return NULL;
}

static void single_blanks(char *s)
{
	const char *from = s;
	char *to = s;
	bool gap = false;

	for (int n, c; *from; from += n) {
		n = next_char(from, &c);
		if (rk_fold_blank(c)) {
			gap = to > s;
			continue;
		}
		if (gap)
			*to++ = ' ';
		gap = false;
		memmove(to, from, (size_t)n);
		to += n;
	}
	*to = 0;
}

char *rk_fold_normal(const char *s, const char *also, const char *words)
{
	char *low = rk_fold_lower(s);

	if (!low)
		return NULL;
	drop_marks(low, also);
	char *out = drop_words(low, words);
	free(low);
	if (out)
		single_blanks(out);
	return out;
}
