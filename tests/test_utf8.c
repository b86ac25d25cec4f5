/* test_utf8.c: base/utf8 against the well-formedness table, exhaustively where that is cheap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

static void check_accepts_every_scalar_value(void **state)
{
	(void)state;
	for (int32_t c = 0; c <= 0x10FFFF; c++) {
		utf8proc_uint8_t b[4];
		size_t n, bad;
		if (c >= 0xD800 && c <= 0xDFFF)
			continue;
		n = (size_t)utf8proc_encode_char(c, b);
		if (rk_utf8_check((char *)b, n, NULL))
			fail_msg("U+%04X refused", (unsigned)c);
		for (size_t k = 1; k < n; k++) {
			/* every proper prefix is refused as text, and held back while it may still be completed */
			assert_int_equal(rk_utf8_check((char *)b, k, &bad), -1);
			assert_int_equal(bad, 0);
			assert_int_equal(rk_utf8_complete((char *)b, k), 0);
		}
		assert_int_equal(rk_utf8_complete((char *)b, n), n);
	}
}

/* utf8proc is the independent opinion: every pair of bytes, then two continuation bytes. */
static void check_agrees_with_utf8proc(void **state)
{
	(void)state;
	for (int first = 0; first < 256; first++)
		for (int second = 0; second < 256; second++)
			for (int third = 0x7F; third <= 0xC0; third++) {
				char b[4] = { (char)first, (char)second, (char)third, (char)0x80 };
				size_t bad = 4, at = 0;
				utf8proc_int32_t c;
				while (at < 4) {
					utf8proc_ssize_t k = utf8proc_iterate((utf8proc_uint8_t *)b + at, (utf8proc_ssize_t)(4 - at), &c);
					if (k < 0)
						break;
					at += (size_t)k;
				}
				int rc = rk_utf8_check(b, 4, &bad);
				assert_int_equal(rc, at == 4 ? 0 : -1);
				assert_int_equal(bad, at);
			}
}

static void check_names_the_offset(void **state)
{
	static const struct { const char *s; size_t bad; } cases[] = {
		{ "\x80", 0 },
		{ "abc\xFF", 3 },
		{ "caf\xC3\xA9 \xC0\xAF", 6 },		/* overlong '/' */
		{ "x\xE0\x80\x80", 1 },			/* overlong U+0000 */
		{ "xy\xED\xA0\x80", 2 },		/* surrogate U+D800 */
		{ "\xF4\x90\x80\x80", 0 },		/* U+110000 */
		{ "\xF0\x9F\x98\x8A\xF0\x9F\x98", 4 },	/* truncated at the end */
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		size_t bad = 99;
		assert_int_equal(rk_utf8_check(cases[i].s, strlen(cases[i].s), &bad), -1);
		assert_int_equal(bad, cases[i].bad);
	}
	assert_int_equal(rk_utf8_check("", 0, NULL), 0);
	assert_int_equal(rk_utf8_check("a\0b", 3, NULL), 0);
}

static void complete_holds_back_only_what_can_be_completed(void **state)
{
	static const struct { const char *s; size_t keep; } cases[] = {
		{ "", 0 },
		{ "abc", 3 },
		{ "abc\xF0", 3 },
		{ "abc\xF0\x9F", 3 },
		{ "abc\xF0\x9F\x98", 3 },
		{ "abc\xF0\x9F\x98\x8A", 7 },
		{ "\xC3", 0 },
		{ "\xE4\xB8", 0 },
		{ "\xFF", 1 },			/* can never be completed: passes through */
		{ "a\x80", 2 },
		{ "\x80\x80\x80\x80", 4 },
		{ "\xE0\x80", 2 },		/* overlong already */
		{ "\xED\xA0", 2 },		/* surrogate already */
		{ "\xF4\x90", 2 },
		{ "\xF5", 1 },
		{ "\xC3\xA9\x80", 3 },
		{ "\xF0\x9F\x98\x8A\x80", 5 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		if (rk_utf8_complete(cases[i].s, strlen(cases[i].s)) != cases[i].keep)
			fail_msg("case %zu", i);
}

static void lossy_marks_each_maximal_subpart(void **state)
{
#define M "\xEF\xBF\xBD"
	static const struct { const char *s, *want; } cases[] = {
		{ "plain", "plain" },
		{ "caf\xC3\xA9", "caf\xC3\xA9" },
		{ "a\xFF" "b", "a" M "b" },
		{ "\xF0\x9F\x98", M },					/* one subpart, one mark */
		{ "\xF0\x9F\x98x", M "x" },
		{ "\xF0\x80\x80\x41", M M M "A" },			/* table 3-8: F0 80 is no prefix */
		{ "\xC0\xAF\xE0\x80\xBF", M M M M M },			/* table 3-8 */
		{ "\xED\xA0\x80\xED\xBF\xBF", M M M M M M },		/* table 3-9 */
		{ "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", M M M M "A" },/* table 3-11 */
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *out;
		size_t n;
		assert_int_equal(rk_utf8_lossy(cases[i].s, strlen(cases[i].s), &out, &n, NULL), 0);
		assert_string_equal(out, cases[i].want);
		assert_int_equal(n, strlen(cases[i].want));
		assert_int_equal(rk_utf8_check(out, n, NULL), 0);
		free(out);
	}
#undef M
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_accepts_every_scalar_value),
		cmocka_unit_test(check_agrees_with_utf8proc),
		cmocka_unit_test(check_names_the_offset),
		cmocka_unit_test(complete_holds_back_only_what_can_be_completed),
		cmocka_unit_test(lossy_marks_each_maximal_subpart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
