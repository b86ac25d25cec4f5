/* test_cache.c: sizes of the caches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "aid_engine.h"
#include "cache/cache.h"

static const rk_hparams hp = { .n_layer = 30, .n_head = 9, .n_kv_head = 3, .head_dim = 64 };

static void check_store_bytes(void **state)
{
	(void)state;
	assert_int_equal(rk_store_bytes(&hp, 0, 2), 0);
	assert_int_equal(rk_store_bytes(&hp, 1, 2), 30 * 3 * 64 * 2 * 2);
	assert_int_equal(rk_store_bytes(&hp, 1024, 4), 30 * 3 * 64 * 2 * 4 * 1024);
	/* no 32-bit product on the way */
	assert_true(rk_store_bytes(&hp, 2000000, 4) == 30ull * 3 * 64 * 2 * 4 * 2000000);
}

static void check_partial_bytes(void **state)
{
	(void)state;
	size_t slots = 30 * 3 * 129, kv = slots * 64 * 2 * 2, rings = 30 * 3;
	assert_int_equal(rk_partial_bytes(&hp, 0, 2, true), 0);
	assert_int_equal(rk_partial_bytes(&hp, 129, 2, false), kv + 4 * slots + 8 * rings);
	assert_int_equal(rk_partial_bytes(&hp, 129, 2, true), kv + 8 * slots + 8 * rings);
	assert_int_equal(rk_partial_bytes(&hp, 129, 0, false), 4 * slots + 8 * rings);
	assert_true(rk_partial_bytes(&hp, 2000000, 4, true) == 30ull * 3 * 2000000 * (64 * 2 * 4 + 8) + 8 * rings);
}

static void check_partial_cap(void **state)
{
	(void)state;
	static const struct { const char *spec; int n_prompt, max_new, cap; } row[] = {
		{ "vanilla", 1024, 100, 0 },
		{ "refreshkv", 1024, 100, 129 },		/* K and the new token */
		{ "refreshkv:k=0.5", 1024, 100, 513 },
		{ "refreshkv-norefresh:k=64", 1024, 100, 65 },
		{ "h2o", 1024, 100, 129 },
		{ "streamingllm", 1024, 100, 128 },		/* the new token is one of the K */
		{ "snapkv", 1024, 100, 228 },			/* grows */
		{ "snapkv:k=4000", 1024, 100, 1124 },		/* all there can be */
		{ "refreshkv", 3, 100, 2 },			/* K is 1 at least */
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		rk_policy p = aid_policy(row[i].spec);
		if (rk_partial_cap(&p, row[i].n_prompt, row[i].max_new) != row[i].cap)
			fail_msg("%s: %d slots, expected %d", row[i].spec, rk_partial_cap(&p, row[i].n_prompt, row[i].max_new), row[i].cap);
	}
}

static void check_row_at(void **state)
{
	(void)state;
	assert_int_equal(rk_row_at(&hp, 0, 0, 100), 0);
	assert_int_equal(rk_row_at(&hp, 0, 1, 100), 100);
	assert_int_equal(rk_row_at(&hp, 29, 2, 100), 8900);
	assert_true(rk_row_at(&hp, 29, 2, 100000000) == 8900000000ull);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_store_bytes),
		cmocka_unit_test(check_partial_bytes),
		cmocka_unit_test(check_partial_cap),
		cmocka_unit_test(check_row_at),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
