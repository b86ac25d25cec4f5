/* test_embedded.c: the files inside the binary are those of the repository, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/embedded.h"

static void handbook_is_there(void **state)
{
	(void)state;
	const rk_embedded *f = rk_embedded_find("docs/handbook.md");
	assert_non_null(f);
	assert_memory_equal(f->data, "# ", 2);
	assert_int_equal(strlen(f->data), f->len);	/* text, ended by the NUL that len does not count */
}

static void every_preset_is_there(void **state)
{
	(void)state;
	static const char *const names[] = { "vanilla", "streamingllm", "h2o", "snapkv", "refreshkv", "refreshkv-fixed",
		"refreshkv-norefresh", "refreshkv-nofull", "refreshkv-dynamic", "glance" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[64];
		snprintf(path, sizeof path, "configs/policies/%s.yaml", names[i]);
		assert_non_null(rk_embedded_find(path));
	}
	assert_null(rk_embedded_find("configs/policies/none.yaml"));
	assert_null(rk_embedded_find(""));
}

static void names_ascend(void **state)
{
	(void)state;
	for (size_t i = 1; i < rk_embedded_count; i++)
		assert_true(strcmp(rk_embedded_files[i - 1].name, rk_embedded_files[i].name) < 0);
}

/* Runs where the repository is the working directory, as under `make test`. */
static void bytes_equal_the_files(void **state)
{
	(void)state;
	for (size_t i = 0; i < rk_embedded_count; i++) {
		const rk_embedded *e = &rk_embedded_files[i];
		FILE *f = fopen(e->name, "rb");
		if (!f)
			skip();
		char *buf = malloc(e->len + 1);
		assert_non_null(buf);
		size_t n = fread(buf, 1, e->len + 1, f);
		fclose(f);
		assert_int_equal(n, e->len);
		assert_memory_equal(buf, e->data, n);
		free(buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(handbook_is_there),
		cmocka_unit_test(every_preset_is_there),
		cmocka_unit_test(names_ascend),
		cmocka_unit_test(bytes_equal_the_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
