/* test_asciicast.c: the bytes of a screen as asciicast v2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "trace/asciicast.h"

static void asciicast_keeps_characters_whole(void **state)
{
	(void)state;
	rk_asciicast a;
	char *text;
	size_t len;
	rk_err e;
	FILE *f = open_memstream(&text, &len);
	assert_int_equal(rk_asciicast_begin(&a, f, 80, 24, "a \"title\"", 1700000000, &e), 0);
	assert_int_equal(rk_asciicast_write(&a, 1500000, "\x1b[1mh\xc3", 6, &e), 0);
	assert_int_equal(rk_asciicast_write(&a, 1000000, "\xa9!", 2, &e), 0);	/* time does not go back */
	assert_int_equal(rk_asciicast_resize(&a, 2000000000, 100, 30, &e), 0);
	assert_int_equal(rk_asciicast_write(&a, 3000000000, "\xf0\x9f", 2, &e), 0);
	assert_int_equal(rk_asciicast_end(&a, &e), 0);
	fclose(f);
	assert_string_equal(text,
		"{\"version\":2,\"width\":80,\"height\":24,\"title\":\"a \\\"title\\\"\",\"env\":{\"TERM\":\"xterm-256color\"},\"timestamp\":1700000000}\n"
		"[0.0015,\"o\",\"\\u001B[1mh\"]\n[0.0015,\"o\",\"\xc3\xa9!\"]\n[2.0,\"r\",\"100x30\"]\n[3.0,\"o\",\"\xef\xbf\xbd\"]\n");
	free(text);
}
int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(asciicast_keeps_characters_whole) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
