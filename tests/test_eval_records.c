/* test_eval_records.c: results files: resumed, refused, merged; and the sums over them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "eval/records.h"
#include "eval/summary.h"

static char path[3][64];

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		snprintf(path[i], sizeof path[i], "/tmp/test_eval_records.XXXXXX");
		int fd = mkstemp(path[i]);
		if (fd < 0)
			return -1;
		close(fd);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		unlink(path[i]);
	return 0;
}

/* shard 0: a whole run; else one of two. */
static json_t *header(int seed, int shard)
{
	return json_pack("{s:i, s:i, s:[s, s], s:[i, i], s:[s], s:[s], s:o}", "refreshkv_eval", 1, "seed", seed, "tasks", "b", "a",
	                 "lengths", 20, 10, "policies", "vanilla", "names", "vanilla", "shard", shard ? json_pack("[i, i]", shard, 2) : json_null());
}

static json_t *record(const char *task, int length, int index)
{
	return json_pack("{s:i, s:s, s:i, s:i, s:[]}", "group", 0, "task", task, "length", length, "index", index, "policies");
}

static void open_ok(rk_records *r, const char *p, json_t *h)
{
	rk_err e;
	if (rk_records_open(r, p, h, &e))
		fail_msg("%s", e.msg);
}

static void refused(const char *p, json_t *h, const char *a, const char *b)
{
	rk_records r;
	rk_err e;
	assert_int_equal(rk_records_open(&r, p, h, &e), -1);
	if (!strstr(e.msg, a) || !strstr(e.msg, b))
		fail_msg("'%s' does not say '%s' and '%s'", e.msg, a, b);
	rk_records_close(&r);
}

static char *slurp(const char *p)
{
	char *s = calloc(1, 1 << 16);
	FILE *f = fopen(p, "r");
	assert_true(fread(s, 1, (1 << 16) - 1, f) > 0);
	fclose(f);
	return s;
}

static void append_text(const char *p, const char *text)
{
	FILE *f = fopen(p, "a");
	fputs(text, f);
	fclose(f);
}

static void test_resume(void **state)
{
	rk_records r;
	rk_err e;
	(void)state;
	open_ok(&r, path[0], header(1, 0));
	assert_int_equal(rk_records_add(&r, record("a", 10, 0), &e), 0);
	refused(path[0], header(1, 0), "another run", path[0]);
	rk_records_close(&r);
	char *whole = slurp(path[0]);

	append_text(path[0], "{\"group\":0,\"task\":\"a\",\"len");	/* cut off in the middle of a record */
	open_ok(&r, path[0], header(1, 0));
	assert_ptr_equal(rk_records_find(&r, 0, "a", 10, 0), json_array_get(r.list, 0));
	assert_false(rk_records_find(&r, 0, "a", 10, 1) || rk_records_find(&r, 1, "a", 10, 0) || rk_records_find(&r, 0, "b", 10, 0));
	char *again = slurp(path[0]);
	assert_string_equal(again, whole);
	assert_int_equal(rk_records_add(&r, record("a", 10, 1), &e), 0);
	rk_records_close(&r);
	open_ok(&r, path[0], header(1, 0));
	assert_int_equal(json_array_size(r.list), 2);
	rk_records_close(&r);
	free(whole), free(again);
}

/* A run that was ended while it wrote the header. */
static void test_cut_header(void **state)
{
	rk_records r;
	(void)state;
	append_text(path[0], "{\"refreshkv_ev");
	open_ok(&r, path[0], header(1, 0));
	rk_records_close(&r);
	open_ok(&r, path[0], header(1, 0));
	rk_records_close(&r);
}

static void test_refused(void **state)
{
	rk_records r;
	json_t *h = header(1, 0);
	(void)state;
	open_ok(&r, path[0], header(1, 0));
	rk_records_close(&r);
	refused(path[0], header(2, 0), "seed 1", "is 2");
	json_object_set_new(h, "names", json_pack("[s]", "another name for it"));
	open_ok(&r, path[0], json_incref(h));	/* the same policies, typed otherwise */
	rk_records_close(&r);
	json_object_set_new(h, "data", json_string("x"));
	refused(path[0], h, "data", "absent");
	append_text(path[0], "[1]\n");
	refused(path[0], header(1, 0), ":2", "not an object");
	append_text(path[1], "{\"refreshkv_eval\":1,\n");
	refused(path[1], header(1, 0), ":1", "JSON");
	append_text(path[2], "{\"a\":1}\n");
	refused(path[2], header(1, 0), path[2], "not a results file");
}

/* One line without its newline is somebody's file, and stays as it is. */
static void test_not_ours(void **state)
{
	static const char *const texts[] = { "{\"precious\": [1,2,3]}", "note", "{\"refreshkv\"", "{\"refreshkv_evil\":1" };
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		assert_int_equal(truncate(path[0], 0), 0);
		append_text(path[0], texts[i]);
		refused(path[0], header(1, 0), ":1", "not a results file");
		char *s = slurp(path[0]);
		assert_string_equal(s, texts[i]);
		free(s);
	}
}

/* Records come in the order of one run: tasks and lengths as the header lists them, whatever shard had which. */
static void test_merge(void **state)
{
	rk_records whole, a, b, all;
	rk_err e;
	const char *shards[] = { path[2], path[1] };
	(void)state;
	open_ok(&whole, path[0], header(1, 0));
	open_ok(&a, path[1], header(1, 1));
	open_ok(&b, path[2], header(1, 2));
	for (int i = 0, n = 0; i < 2; i++)
		for (int j = 0; j < 2; j++)
			for (int k = 0; k < 11; k++) {
				const char *task = i ? "a" : "b";
				int length = j ? 10 : 20;
				assert_int_equal(rk_records_add(&whole, record(task, length, k), &e), 0);
				assert_int_equal(rk_records_add(n++ % 3 ? &a : &b, record(task, length, k), &e), 0);
			}
	rk_records_close(&whole), rk_records_close(&a), rk_records_close(&b);
	assert_int_equal(rk_records_merge(&all, shards, 2, &e), 0);
	char *want = slurp(path[0]), *have = NULL;
	size_t size;
	FILE *f = open_memstream(&have, &size);
	assert_int_equal(rk_records_write(&all, f, &e), 0);
	fclose(f);
	assert_string_equal(have, want);
	const json_t *found = rk_records_find(&all, 0, "a", 10, 4);
	assert_int_equal(json_integer_value(json_object_get(found, "index")), 4);
	rk_records_close(&all);
	free(want), free(have);

	shards[0] = path[1];
	assert_int_equal(rk_records_merge(&all, shards, 2, &e), -1);
	assert_non_null(strstr(e.msg, "a second record"));
	rk_records_close(&all);
}

static void not_merged(const char *const *shards, int n, const char *says)
{
	rk_records r;
	rk_err e;
	assert_int_equal(rk_records_merge(&r, shards, n, &e), -1);
	if (!strstr(e.msg, says))
		fail_msg("'%s' does not say '%s'", e.msg, says);
	rk_records_close(&r);
}

/* Tables of a part would look whole. */
static void test_missing_shard(void **state)
{
	rk_records r;
	const char *shards[] = { path[0], path[1] };
	json_t *other = header(1, 2);
	(void)state;
	open_ok(&r, path[0], header(1, 1));
	rk_records_close(&r);
	json_object_set_new(other, "shard", json_pack("[i, i]", 1, 3));
	open_ok(&r, path[1], other);
	rk_records_close(&r);
	open_ok(&r, path[2], header(1, 0));
	rk_records_close(&r);
	not_merged(shards, 1, "1 of 2 shards missing, first shard 2");
	not_merged(shards + 1, 1, "2 of 3 shards missing, first shard 2");
	not_merged(shards, 2, "one of 3 shards, the files before it are of 2");
	shards[1] = path[2];
	not_merged(shards, 2, "one of 1 shards");
	assert_int_equal(truncate(path[1], 0), 0);
	open_ok(&r, path[1], header(5, 2));
	rk_records_close(&r);
	shards[1] = path[1];
	not_merged(shards, 2, "made with seed 5, the first shard with 1: shards of one run");
	assert_int_equal(truncate(path[0], 0), 0);
	append_text(path[0], "{\"refreshkv_eval\":1,\"shard\":[3,2]}\n");
	not_merged(shards, 1, "shard is not");
}

static json_t *costed(int group, int index, const char *spec, double score, const char *garbled, int full)
{
	return json_pack("{s:i, s:s, s:i, s:i, s:[{s:s, s:f, s:s?, s:i, s:i, s:i, s:i, s:i}], s:{s:[f]}}", "group", group, "task", "t",
	                 "length", 10, "index", index, "policies", "policy", spec, "score", score, "garbled", garbled, "steps", 10,
	                 "layer_steps", 30, "full_layer_steps", full, "bytes_read", 100 * (index + 1), "bytes_vanilla", 1000,
	                 "timing", "ms_per_token", 1.0 + index);
}

static void test_sums(void **state)
{
	json_t *list = json_array();
	(void)state;
	for (int i = 0; i < 3; i++) {
		json_array_append_new(list, costed(0, i, "vanilla", 1, NULL, 30));
		json_array_append_new(list, costed(1, i, "vanilla", 0, NULL, 30));	/* the baseline of another group counts once */
		json_array_append_new(list, costed(1, i, "p", i == 1, i ? "repeats" : NULL, 2 * i));
	}
	rk_eval_figures p = rk_eval_sum(list, "p", "vanilla", NULL, 0, -1), v = rk_eval_sum(list, "vanilla", "vanilla", NULL, 0, -1);
	assert_int_equal(p.n, 3);
	assert_float_equal(v.score, 1, 0);
	assert_float_equal(p.score, (1.0 / 3), 1e-6);
	assert_float_equal(p.ratio, (1.0 / 3), 1e-6);
	assert_float_equal(p.stride, 15, 1e-6);	/* 90 layer steps, 6 of them full */
	assert_float_equal(p.bytes, 20, 1e-6);
	assert_float_equal(p.ms, 2, 1e-6);
	assert_int_equal(p.garbled, 2);
	assert_true(isnan(p.ppl) && isnan(p.kl));
	p = rk_eval_sum(list, "p", "vanilla", "t", 10, 0);
	assert_int_equal(p.n, 1);
	assert_true(isnan(p.stride));			/* no full step: not known */
	assert_int_equal(rk_eval_sum(list, "p", "vanilla", "u", 0, -1).n, 0);
	assert_true(isnan(rk_eval_sum(list, "p", "vanilla", NULL, 20, -1).score));
	json_decref(list);
}

/* A group that is not through yet is compared with the baseline on the examples that it has. */
static void test_ratio_of_a_part(void **state)
{
	json_t *list = json_array();
	(void)state;
	for (int i = 0; i < 3; i++)
		json_array_append_new(list, costed(0, i, "vanilla", i == 0, NULL, 30));
	json_array_append_new(list, costed(1, 0, "vanilla", 1, NULL, 30));
	json_array_append_new(list, costed(1, 0, "p", 1, NULL, 30));
	json_t *rec = json_array_get(list, 4);	/* one record per example, with both */
	json_array_insert(json_object_get(rec, "policies"), 0, json_array_get(json_object_get(json_array_get(list, 3), "policies"), 0));
	json_array_remove(list, 3);
	rk_eval_figures p = rk_eval_sum(list, "p", "vanilla", NULL, 0, -1), v = rk_eval_sum(list, "vanilla", "vanilla", NULL, 0, -1);
	assert_float_equal(p.ratio, 1, 1e-9);
	assert_int_equal(v.n, 3);
	json_decref(list);
}

static void test_sums_of_windows(void **state)
{
	json_t *list = json_pack("[{s:i, s:s, s:i, s:i, s:[{s:s, s:[f, f], s:i}, {s:s, s:[f, f], s:i, s:f, s:f}]}]", "group", 0, "task", "t",
		"length", 10, "index", 0, "policies", "policy", "vanilla", "nll", 1.0, 2.0, "tokens", 2,
		"policy", "p", "nll", 1.5, 2.5, "tokens", 2, "kl", 0.25, "same_top1", 0.5);
	rk_eval_figures p = rk_eval_sum(list, "p", "vanilla", NULL, 0, -1);
	(void)state;
	assert_float_equal(p.ppl, exp(2), 1e-6);
	assert_float_equal(p.ratio, exp(0.5), 1e-6);
	assert_float_equal(p.kl, 0.25, 1e-6);
	assert_float_equal(p.same_top1, 0.5, 1e-6);
	json_decref(list);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_resume, setup, teardown), cmocka_unit_test_setup_teardown(test_cut_header, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown), cmocka_unit_test_setup_teardown(test_merge, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown), cmocka_unit_test_setup_teardown(test_missing_shard, setup, teardown),
		cmocka_unit_test(test_ratio_of_a_part), cmocka_unit_test(test_sums), cmocka_unit_test(test_sums_of_windows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
