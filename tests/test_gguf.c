/* test_gguf.c: the GGUF reader on well-formed files, on each kind of damage by name, and on a small file truncated at
 * every length and damaged in every byte: an error that names the trouble or success, never a crash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "aid_gguf.h"
#include "model/gguf.h"

/* Opens the writer's file, which must be good, and frees the writer. */
static rk_gguf *open_good(aid_gguf *w)
{
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	char path[32];
	rk_gguf *g;
	rk_err e;
	int fd = aid_memfd(p, n, path);
	if (rk_gguf_open(&g, path, &e))
		fail_msg("%s", e.msg);
	assert_int_equal(rk_gguf_bytes(g), n);
	close(fd);
	free(p);
	aid_gguf_free(w);
	return g;
}

static void expect_error_bytes(const void *p, size_t n, const char *want)
{
	char path[32];
	rk_gguf *g;
	rk_err e = { 0 };
	int fd = aid_memfd(p, n, path);
	if (rk_gguf_open(&g, path, &e) == 0)
		fail_msg("opened, but expected: %s", want);
	assert_null(g);
	assert_int_equal(e.code, RK_EMODEL);
	if (!strstr(e.msg, want) || strncmp(e.msg, path, strlen(path)))
		fail_msg("'%s' lacks '%s' or the path", e.msg, want);
	close(fd);
}

static void expect_error(aid_gguf *w, const char *want)
{
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	expect_error_bytes(p, n, want);
	free(p);
	aid_gguf_free(w);
}

static void scalars(void **state)
{
	aid_gguf *w = aid_gguf_new();
	uint32_t u = 77;
	double f;
	bool b = false;
	rk_str s;
	rk_err e;
	(void)state;
	aid_gguf_scalar(w, "u8", AID_U8, &(uint8_t){ 200 }, 1);
	aid_gguf_scalar(w, "i16", AID_I16, &(int16_t){ 30000 }, 2);
	aid_gguf_scalar(w, "u16", AID_U16, &(uint16_t){ 60000 }, 2);
	aid_gguf_scalar(w, "i8", AID_I8, &(int8_t){ -3 }, 1);
	aid_gguf_scalar(w, "u64", AID_U64, &(uint64_t){ UINT32_MAX }, 8);
	aid_gguf_scalar(w, "u64 big", AID_U64, &(uint64_t){ 1ull << 32 }, 8);
	aid_gguf_scalar(w, "i64", AID_I64, &(int64_t){ -1 }, 8);
	aid_gguf_scalar(w, "f64", AID_F64, &(double){ 1e-300 }, 8);
	aid_gguf_u32(w, "u32", 4000000000u);
	aid_gguf_f32(w, "f32", 0.1f);
	aid_gguf_bool(w, "bool", true);
	aid_gguf_str(w, "str", "caf\u00e9");
	aid_gguf_str(w, "empty", "");
	rk_gguf *g = open_good(w);

	assert_int_equal(rk_gguf_u32(g, "absent", &u, &e), 1);
	assert_int_equal(u, 77);
	assert_int_equal(rk_gguf_u32(g, "u8", &u, &e), 0);
	assert_int_equal(u, 200);
	assert_int_equal(rk_gguf_u32(g, "i16", &u, &e), 0);
	assert_int_equal(u, 30000);
	assert_int_equal(rk_gguf_u32(g, "u16", &u, &e), 0);
	assert_int_equal(u, 60000);
	assert_int_equal(rk_gguf_u32(g, "u32", &u, &e), 0);
	assert_int_equal(u, 4000000000u);
	assert_int_equal(rk_gguf_u32(g, "u64", &u, &e), 0);
	assert_int_equal(u, UINT32_MAX);
	assert_int_equal(rk_gguf_u32(g, "u64 big", &u, &e), -1);
	assert_non_null(strstr(e.msg, "'u64 big' is 4294967296; 0 to 4294967295"));
	assert_int_equal(rk_gguf_u32(g, "i8", &u, &e), -1);
	assert_non_null(strstr(e.msg, "'i8' is -3;"));
	assert_int_equal(rk_gguf_u32(g, "i64", &u, &e), -1);
	assert_int_equal(rk_gguf_u32(g, "f32", &u, &e), -1);
	assert_non_null(strstr(e.msg, "'f32' is of type f32; an integer is needed"));

	assert_int_equal(rk_gguf_f64(g, "f32", &f, &e), 0);
	assert_true(f == (double)0.1f);
	assert_int_equal(rk_gguf_f64(g, "f64", &f, &e), 0);
	assert_true(f == 1e-300);
	assert_int_equal(rk_gguf_f64(g, "u32", &f, &e), -1);
	assert_int_equal(rk_gguf_bool(g, "bool", &b, &e), 0);
	assert_true(b);
	assert_int_equal(rk_gguf_bool(g, "u8", &b, &e), -1);
	assert_int_equal(rk_gguf_str(g, "str", &s, &e), 0);
	assert_int_equal(s.len, 5);
	assert_memory_equal(s.s, "caf\u00e9", 5);
	assert_int_equal(rk_gguf_str(g, "empty", &s, &e), 0);
	assert_int_equal(s.len, 0);
	assert_int_equal(rk_gguf_str(g, "u8", &s, &e), -1);
	assert_int_equal(rk_gguf_str(g, "st", &s, &e), 1);	/* a prefix is another key */
	rk_gguf_close(g);
}

static void arrays(void **state)
{
	static const char *const words[] = { "one", "", "three" };
	aid_gguf *w = aid_gguf_new();
	rk_str *s;
	int32_t *v;
	size_t n;
	rk_err e;
	(void)state;
	aid_gguf_str_array(w, "words", words, 3);
	aid_gguf_str_array(w, "no words", NULL, 0);
	aid_gguf_array(w, "i32", AID_I32, (int32_t[]){ -1, 7 }, 2, 8);
	aid_gguf_array(w, "u32", AID_U32, (uint32_t[]){ 1, 0x80000000u }, 2, 8);
	aid_gguf_array(w, "f64", AID_F64, (double[]){ 1, 2 }, 2, 16);
	rk_gguf *g = open_good(w);
	assert_int_equal(rk_gguf_str_array(g, "words", &s, &n, &e), 0);
	assert_int_equal(n, 3);
	assert_int_equal(s[1].len, 0);
	assert_memory_equal(s[2].s, "three", 5);
	free(s);
	assert_int_equal(rk_gguf_str_array(g, "no words", &s, &n, &e), 0);
	assert_int_equal(n, 0);
	free(s);
	assert_int_equal(rk_gguf_str_array(g, "i32", &s, &n, &e), -1);
	assert_non_null(strstr(e.msg, "'i32' is of type array of i32; array of string is needed"));
	assert_int_equal(rk_gguf_i32_array(g, "i32", &v, &n, &e), 0);
	assert_int_equal(n, 2);
	assert_int_equal(v[0], -1);
	assert_int_equal(v[1], 7);
	free(v);
	assert_int_equal(rk_gguf_i32_array(g, "u32", &v, &n, &e), -1);
	assert_non_null(strstr(e.msg, "element 1 is 2147483648"));
	assert_int_equal(rk_gguf_i32_array(g, "f64", &v, &n, &e), -1);
	assert_int_equal(rk_gguf_i32_array(g, "words", &v, &n, &e), -1);
	assert_int_equal(rk_gguf_i32_array(g, "absent", &v, &n, &e), 1);
	rk_gguf_close(g);
}

static void tensors(void **state)
{
	aid_gguf *w = aid_gguf_new();
	float v[64];
	(void)state;
	for (int i = 0; i < 64; i++)
		v[i] = (float)i;
	aid_gguf_version(w, 2);
	aid_gguf_alignment(w, 64);
	aid_gguf_matrix(w, "z vector", RK_F32, 1, 3, v);
	aid_gguf_matrix(w, "a matrix", RK_Q8_0, 2, 32, v);
	aid_gguf_tensor(w, "four", RK_F32, 4, (uint64_t[]){ 4, 2, 1, 1 }, v, 32);
	rk_gguf *g = open_good(w);
	assert_int_equal(rk_gguf_n_tensor(g), 3);
	const rk_tensor *t = rk_gguf_tensor_at(g, 0);	/* in the order of the file */
	assert_ptr_equal(t, rk_gguf_tensor(g, "z vector"));
	assert_int_equal(t->n_row, 1);
	assert_int_equal(t->n_col, 3);
	assert_memory_equal(t->data, v, 12);
	t = rk_gguf_tensor(g, "a matrix");
	assert_int_equal(t->type, RK_Q8_0);
	assert_int_equal(t->n_row, 2);
	assert_int_equal(t->n_col, 32);
	assert_int_equal((uintptr_t)t->data % 64, 0);
	assert_int_equal(((const rk_block_q8_0 *)t->data)[1].qs[31], 127);
	t = rk_gguf_tensor(g, "four");
	assert_int_equal(t->n_row, 2);
	assert_int_equal(t->n_col, 4);
	assert_null(rk_gguf_tensor(g, "a matri"));
	assert_null(rk_gguf_tensor(g, ""));
	rk_gguf_close(g);
	rk_gguf_close(NULL);
}

static void files_that_are_not_gguf(void **state)
{
	rk_gguf *g;
	rk_err e;
	(void)state;
	assert_int_equal(rk_gguf_open(&g, "/nonexistent/model.gguf", &e), -1);
	assert_non_null(strstr(e.msg, "/nonexistent/model.gguf: cannot open"));
	assert_int_equal(rk_gguf_open(&g, "/", &e), -1);
	assert_non_null(strstr(e.msg, "not a regular file"));
	expect_error_bytes("", 0, "empty");
	expect_error_bytes("GG", 2, "header: magic at byte 0 needs 4 bytes, 2 are left");
	expect_error_bytes("<!DOCTYPE html>", 15, "not a GGUF file: it starts with the bytes 3c 21 44 4f");
	expect_error_bytes("GGUF\0\0\0\3\0\0\0\0\0\0\0\1", 16, "big-endian");
	expect_error_bytes("FUGG\3\0\0\0\0\0\0\0\0\0\0\0", 16, "big-endian");
	expect_error_bytes("GGUF\1\0\0\0\0\0\0\0\0\0\0\0", 16, "version 1; versions 2 and 3");
	expect_error_bytes("GGUF\4\0\0\0\0\0\0\0\0\0\0\0", 16, "version 4");
}

/* A FIFO would block an ordinary open for ever. */
static void a_fifo_is_refused_at_once(void **state)
{
	char dir[] = P_tmpdir "/aid-XXXXXX", path[64];
	rk_gguf *g;
	rk_err e;
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(rk_gguf_open(&g, path, &e), -1);
	assert_non_null(strstr(e.msg, "not a regular file"));
	unlink(path);
	rmdir(dir);
}

static void damaged_keys(void **state)
{
	static const uint64_t huge[2] = { UINT64_MAX, 0 };
	aid_gguf *w;
	char name[65537];
	(void)state;
	aid_gguf_u32(w = aid_gguf_new(), "", 1);
	expect_error(w, "has 0 bytes; 1 to 65535");
	memset(name, 'k', sizeof name - 1);
	name[sizeof name - 1] = 0;
	aid_gguf_u32(w = aid_gguf_new(), name, 1);
	expect_error(w, "has 65536 bytes");
	aid_gguf_u32(w = aid_gguf_new(), "twice", 1);
	aid_gguf_f32(w, "other", 1);
	aid_gguf_u32(w, "twice", 2);
	expect_error(w, "key 'twice' occurs twice");
	aid_gguf_scalar(w = aid_gguf_new(), "odd", (enum aid_value)13, "1234", 4);
	expect_error(w, "key 'odd': unknown value type 13");
	aid_gguf_scalar(w = aid_gguf_new(), "flag", AID_BOOL, "\2", 1);
	expect_error(w, "key 'flag': bool with the value 2");
	aid_gguf_scalar(w = aid_gguf_new(), "long", AID_STR, huge, 8);
	expect_error(w, "long: value at byte");
	aid_gguf_array(w = aid_gguf_new(), "nest", AID_ARRAY, huge, 1, 16);
	expect_error(w, "key 'nest': array of arrays");
	aid_gguf_array(w = aid_gguf_new(), "what", (enum aid_value)99, huge, 1, 16);
	expect_error(w, "key 'what': array of an unknown type, which is not supported (element type 99)");
	aid_gguf_array(w = aid_gguf_new(), "many", AID_U64, huge, (size_t)1 << 61, 16);	/* x 8 overflows */
	expect_error(w, "key 'many': array of 2305843009213693952 elements");
	aid_gguf_array(w = aid_gguf_new(), "many", AID_STR, huge, SIZE_MAX, 16);
	expect_error(w, "key 'many': array of 18446744073709551615 elements");
	aid_gguf_array(w = aid_gguf_new(), "words", AID_STR, huge, 1, 16);
	expect_error(w, "words: array element at byte");
	aid_gguf_u32(w = aid_gguf_new(), "bell\a\nesc\033[31m", 1);
	aid_gguf_u32(w, "bell\a\nesc\033[31m", 1);
	expect_error(w, "key 'bell??esc?[31m' occurs twice");
}

static void damaged_counts(void **state)
{
	uint8_t head[64] = "GGUF\3";
	(void)state;
	memcpy(head + 16, &(uint64_t){ UINT64_MAX }, 8);
	expect_error_bytes(head, sizeof head, "18446744073709551615 keys; the limit is 65536, and 40 bytes are left");
	memcpy(head + 16, &(uint64_t){ 3 }, 8);
	expect_error_bytes(head, sizeof head, "3 keys;");
	memcpy(head + 16, &(uint64_t){ 0 }, 8);
	memcpy(head + 8, &(uint64_t){ 1ull << 60 }, 8);
	expect_error_bytes(head, sizeof head, "1152921504606846976 tensors;");
}

static void wrong_alignment(void **state)
{
	static const uint32_t wrong[] = { 0, 1, 4, 24, 33, 1u << 21, 0x80000000u, UINT32_MAX };
	aid_gguf *w;
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		aid_gguf_alignment(w = aid_gguf_new(), wrong[i]);
		expect_error(w, "key 'general.alignment' is ");
	}
	aid_gguf_str(w = aid_gguf_new(), "general.alignment", "32");
	expect_error(w, "key 'general.alignment' is of type string");
}

static void damaged_tensors(void **state)
{
	static const uint8_t zero[256];
	static const struct { int n_dim; uint64_t dim[5]; unsigned type; const char *want; } cases[] = {
		{ 0, { 0 }, RK_F32, "tensor 't': n_dims is 0" },
		{ 5, { 1, 1, 1, 1, 1 }, RK_F32, "tensor 't': n_dims is 5" },
		{ 1, { 0 }, RK_F32, "tensor 't': dimension 1 is 0" },
		{ 2, { 4, UINT64_MAX }, RK_F32, "tensor 't': dimension 2 is 18446744073709551615" },
		{ 3, { 2, 2, 2 }, RK_F32, "only matrices and vectors" },
		{ 1, { 64 }, 23, "tensor 't': IQ4_XS is not supported (type number 23)" },
		{ 1, { 64 }, 4000000000u, "tensor 't': type 4000000000 is not supported" },
		{ 1, { 33 }, RK_Q4_1, "tensor 't': rows of 33 weights do not divide into Q4_1 blocks of 32" },
		{ 1, { 128 }, RK_Q4_K, "Q4_K blocks of 256" },
		{ 1, { 65 }, RK_F32, "tensor 't' (F32, 1 x 65) at offset 0 does not fit the 256 bytes" },
		{ 1, { INT64_MAX }, RK_F32, "does not fit" },		/* row bytes overflow */
		{ 2, { 1ull << 40, 1ull << 40 }, RK_F32, "does not fit" },	/* product overflows */
		{ 2, { 1ull << 32, 1ull << 32 }, RK_F16, "does not fit" },	/* bytes overflow to 0 mod 2^64 */
	};
	aid_gguf *w;
	char name[66];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		aid_gguf_tensor(w = aid_gguf_new(), "t", (enum rk_type)cases[i].type, cases[i].n_dim, cases[i].dim, zero,
				sizeof zero);
		expect_error(w, cases[i].want);
	}
	aid_gguf_tensor(w = aid_gguf_new(), "", RK_F32, 1, (uint64_t[]){ 64 }, zero, sizeof zero);
	expect_error(w, "has 0 bytes; 1 to 64");
	memset(name, 't', 65);
	name[65] = 0;
	aid_gguf_tensor(w = aid_gguf_new(), name, RK_F32, 1, (uint64_t[]){ 64 }, zero, sizeof zero);
	expect_error(w, "has 65 bytes; 1 to 64");
	w = aid_gguf_new();
	for (int i = 0; i < 2; i++)
		aid_gguf_tensor(w, "same", RK_F32, 1, (uint64_t[]){ 64 }, zero, sizeof zero);
	expect_error(w, "tensor 'same' occurs twice");
}

/* The offset of the only tensor is the last 8 bytes before the padding. */
static void wrong_offsets(void **state)
{
	static const struct { uint64_t offset; const char *want; } cases[] = {
		{ 16, "offset 16 is not a multiple of the alignment 32" },
		{ 32, "at offset 32 does not fit" },
		{ 1ull << 63, "does not fit" },
		{ UINT64_MAX - 31, "does not fit" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		aid_gguf *w = aid_gguf_new();
		size_t n, at = 24 + 8 + 1 + 4 + 8 + 4;	/* header, name, n_dims, one dimension, type */
		aid_gguf_tensor(w, "t", RK_F32, 1, (uint64_t[]){ 8 }, (float[8]){ 0 }, 32);
		uint8_t *p = aid_gguf_bytes(w, &n);
		memcpy(p + at, &cases[i].offset, 8);
		expect_error_bytes(p, n, cases[i].want);
		free(p);
		aid_gguf_free(w);
	}
}

/* Opens bytes that may be damaged and, where that succeeds, reads everything that the file offers. */
static bool survives(const uint8_t *p, size_t n)
{
	static const char *const keys[] = { "u", "s", "w", "i", "b", "f" };
	char path[32];
	rk_gguf *g;
	rk_err e = { 0 };
	float row[64];
	int fd = aid_memfd(p, n, path), rc = rk_gguf_open(&g, path, &e);
	close(fd);
	if (rc) {
		assert_int_equal(rc, -1);
		assert_true(e.msg[0] && !strchr(e.msg, '\n'));
		return false;
	}
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		uint32_t u;
		double f;
		bool b;
		rk_str s, *table;
		int32_t *v;
		size_t len;
		rk_gguf_u32(g, keys[i], &u, &e);
		rk_gguf_f64(g, keys[i], &f, &e);
		rk_gguf_bool(g, keys[i], &b, &e);
		rk_gguf_str(g, keys[i], &s, &e);
		if (rk_gguf_str_array(g, keys[i], &table, &len, &e) == 0)
			free(table);
		if (rk_gguf_i32_array(g, keys[i], &v, &len, &e) == 0)
			free(v);
	}
	for (size_t i = 0; i < rk_gguf_n_tensor(g); i++) {
		const rk_tensor *t = rk_gguf_tensor_at(g, i);
		size_t bytes = rk_type_row_bytes(t->type, t->n_col);
		assert_true(t->n_col > 0 && t->n_row > 0);
		if (t->n_col <= 64)	/* the last row lies in the file */
			rk_dequant_row(t->type, (const char *)t->data + (size_t)(t->n_row - 1) * bytes, row, t->n_col);
	}
	rk_gguf_close(g);
	return true;
}

static uint8_t *small_file(size_t *n)
{
	static const char *const words[] = { "alpha", "b" };
	float v[64] = { 1, 2, 3 };
	aid_gguf *w = aid_gguf_new();
	aid_gguf_alignment(w, 32);
	aid_gguf_u32(w, "u", 5);
	aid_gguf_str(w, "s", "text");
	aid_gguf_str_array(w, "w", words, 2);
	aid_gguf_array(w, "i", AID_I32, (int32_t[]){ 1, 2, 3 }, 3, 12);
	aid_gguf_bool(w, "b", true);
	aid_gguf_f32(w, "f", 1.5f);
	aid_gguf_matrix(w, "m", RK_Q4_0, 2, 32, v);
	aid_gguf_matrix(w, "v", RK_F32, 1, 8, v);
	uint8_t *p = aid_gguf_bytes(w, n);
	aid_gguf_free(w);
	return p;
}

static void truncated_at_every_length(void **state)
{
	size_t n;
	uint8_t *p = small_file(&n);
	(void)state;
	assert_true(survives(p, n));
	for (size_t len = 0; len < n; len++)
		assert_false(survives(p, len));		/* the last byte belongs to the last tensor */
	free(p);
}

static void damaged_in_every_byte(void **state)
{
	static const uint8_t mask[] = { 0x01, 0x02, 0x10, 0x80, 0xff };
	size_t n;
	uint8_t *p = small_file(&n);
	(void)state;
	for (size_t at = 0; at < n; at++)
		for (size_t i = 0; i < sizeof mask; i++) {
			p[at] ^= mask[i];
			survives(p, n);
			p[at] ^= mask[i];
		}
	for (size_t at = 0; at + 8 <= n; at++) {	/* lengths and counts that overflow */
		uint8_t saved[8];
		memcpy(saved, p + at, 8);
		for (int v = 0; v < 3; v++) {
			memcpy(p + at, (uint64_t[]){ UINT64_MAX, 1ull << 63, UINT64_MAX - n } + v, 8);
			survives(p, n);
		}
		memcpy(p + at, saved, 8);
	}
	free(p);
}

/* 60 thousand keys and tensors: opening and looking up must not be quadratic. */
static void many_entries(void **state)
{
	enum { N = 60000 };
	aid_gguf *w = aid_gguf_new();
	char name[32];
	uint32_t u;
	rk_err e;
	(void)state;
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof name, "entry %d", i);
		aid_gguf_u32(w, name, (uint32_t)i);
		aid_gguf_tensor(w, name, RK_F32, 1, (uint64_t[]){ 1 }, &(float){ (float)i }, 4);
	}
	rk_gguf *g = open_good(w);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof name, "entry %d", i);
		assert_int_equal(rk_gguf_u32(g, name, &u, &e), 0);
		assert_int_equal(u, i);
		assert_true(*(const float *)rk_gguf_tensor(g, name)->data == (float)i);
	}
	rk_gguf_close(g);
}

/* A file of some huge pages and a part of one, with a key before the tensor: all pointers stay good, and so does the content when the file
 * changes.  A small file stays mapped. */
static void copied_in_place(void **state)
{
	enum { N = 1100000 };
	float *v = malloc(N * sizeof *v);
	aid_gguf *w = aid_gguf_new();
	rk_str name;
	size_t n;
	char path[32];
	rk_gguf *g;
	rk_err e;
	(void)state;
	for (int i = 0; i < N; i++)
		v[i] = (float)i;
	aid_gguf_str(w, "name", "something");
	aid_gguf_matrix(w, "large", RK_F32, 1, N, v);
	uint8_t *p = aid_gguf_bytes(w, &n);
	int fd = aid_memfd(p, n, path);
	assert_int_equal(rk_gguf_open(&g, path, &e), 0);
	assert_int_equal(rk_gguf_str(g, "name", &name, &e), 0);
	const rk_tensor *t = rk_gguf_tensor(g, "large");
	const void *at = t->data;
	if (rk_gguf_copy(g)) {
		assert_true(rk_gguf_copy(g));	/* once is enough */
		assert_int_equal(ftruncate(fd, 0), 0);
	}
	assert_ptr_equal(t->data, at);
	assert_memory_equal(at, v, N * sizeof *v);
	assert_memory_equal(name.s, "something", 9);
	rk_gguf_close(g);
	close(fd);
	free(p);
	free(v);
	aid_gguf_free(w);
	w = aid_gguf_new();
	aid_gguf_u32(w, "one", 1);
	g = open_good(w);
	assert_false(rk_gguf_copy(g));
	rk_gguf_close(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scalars),
		cmocka_unit_test(arrays),
		cmocka_unit_test(tensors),
		cmocka_unit_test(files_that_are_not_gguf),
		cmocka_unit_test(a_fifo_is_refused_at_once),
		cmocka_unit_test(damaged_keys),
		cmocka_unit_test(damaged_counts),
		cmocka_unit_test(wrong_alignment),
		cmocka_unit_test(damaged_tensors),
		cmocka_unit_test(wrong_offsets),
		cmocka_unit_test(truncated_at_every_length),
		cmocka_unit_test(damaged_in_every_byte),
		cmocka_unit_test(many_entries),
		cmocka_unit_test(copied_in_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
