/* test_model.c: loading tiny models of every shape and type, each refusal by name, and a whole model file truncated and
 * damaged byte by byte.
 *
 * Refusals are made by patching a good file in place: a key or tensor is found by its length-prefixed name.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aid_gguf.h"
#include "model/model.h"

static rk_model *load_good(const aid_tiny *opt, uint64_t seed)
{
	char path[32];
	rk_model *m;
	rk_err e;
	int fd = aid_tiny_memfd(opt, seed, path);
	if (rk_model_load(&m, path, &e))
		fail_msg("%s", e.msg);
	close(fd);
	return m;
}

static void expect_error_bytes(const uint8_t *p, size_t n, const char *want)
{
	char path[32];
	rk_model *m;
	rk_err e = { 0 };
	int fd = aid_memfd(p, n, path);
	if (rk_model_load(&m, path, &e) == 0)
		fail_msg("loaded, but expected: %s", want);
	close(fd);
	assert_null(m);
	assert_int_equal(e.code, RK_EMODEL);
	if (!strstr(e.msg, want) || strncmp(e.msg, path, strlen(path)))
		fail_msg("'%s' lacks '%s' or the path", e.msg, want);
}

static void expect_error(aid_gguf *w, const char *want)
{
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	expect_error_bytes(p, n, want);
	free(p);
	aid_gguf_free(w);
}

/* The first byte after a length-prefixed name: a key's type, a tensor's n_dims. */
static uint8_t *after_name(uint8_t *p, size_t n, const char *name)
{
	uint64_t len = strlen(name);
	for (uint8_t *at = p; at + 8 + len <= p + n; at++)
		if (!memcmp(at, &len, 8) && !memcmp(at + 8, name, len))
			return at + 8 + len;
	fail_msg("no '%s' in the file", name);
	abort();
}

static void defaults(void **state)
{
	rk_model *m = load_good(NULL, 1);
	const rk_hparams *hp = &m->hp;
	(void)state;
	assert_string_equal(m->name, "tiny");
	assert_int_equal(hp->n_layer, 3);
	assert_int_equal(hp->n_embd, 64);
	assert_int_equal(hp->n_head, 4);
	assert_int_equal(hp->n_kv_head, 2);
	assert_int_equal(hp->head_dim, 16);
	assert_int_equal(hp->n_ff, 128);
	assert_int_equal(hp->n_vocab, AID_TINY_N_VOCAB);
	assert_int_equal(hp->n_ctx_train, 4096);
	assert_true(hp->rms_eps == 1e-5f);
	assert_true(hp->rope_theta == 10000);
	assert_int_equal(hp->rope_dim, 16);
	assert_int_equal(hp->rope_scaling, RK_ROPE_PLAIN);
	for (int i = 0; i < 8; i++)
		assert_true(hp->rope_freq[i] == (float)pow(10000, -i / 8.0));
	assert_true(m->tied);
	assert_ptr_equal(m->w.output.data, m->w.tok_embd.data);
	assert_int_equal(m->w.layer[2].w_down.n_row, 64);
	assert_int_equal(m->w.layer[2].w_down.n_col, 128);
	assert_int_equal(m->w.layer[2].wk.n_row, 32);
	rk_model_free(m);
	rk_model_free(NULL);
}

static void every_type_tied_and_untied(void **state)
{
	static const struct { enum rk_type type; float level; } cases[] = {	/* largest step relative to the row's maximum */
		{ RK_F32, 0 }, { RK_F16, 0x1p-10f }, { RK_Q8_0, 1.0f / 127 }, { RK_Q4_1, 2.0f / 15 }, { RK_Q4_0, 1.0f / 7 },
	};
	const size_t n_layer_param = 64 * (64 + 32 + 32 + 64 + 3 * 128), n_vocab_param = 64 * AID_TINY_N_VOCAB;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int untied = 0; untied <= 1; untied++) {
			enum rk_type type = cases[i].type;
			rk_model *m = load_good(&(aid_tiny){ .type = type, .untied = untied }, 1);
			rk_model *f32 = load_good(&(aid_tiny){ .untied = untied }, 1);
			float a[64], b[64], max = 0;
			size_t matrix = 3 * n_layer_param + n_vocab_param, vector = (2 * 3 + 1) * 64;
			assert_int_equal(m->tied, !untied);
			assert_int_equal(m->w.output.data == m->w.tok_embd.data, !untied);
			assert_int_equal(m->n_param, matrix + vector + (size_t)untied * n_vocab_param);
			/* untied, the output is read and the embedding table is not */
			assert_int_equal(m->weight_bytes, rk_type_row_bytes(type, (int64_t)matrix) + 4 * vector);
			rk_dequant_row(type, m->w.layer[1].wv.data, a, 64);
			rk_dequant_row(RK_F32, f32->w.layer[1].wv.data, b, 64);
			for (int j = 0; j < 64; j++)
				max = fmaxf(max, fabsf(b[j]));
			for (int j = 0; j < 64; j++)
				assert_true(fabsf(a[j] - b[j]) <= cases[i].level * max);
			rk_model_free(m);
			rk_model_free(f32);
		}
}

static void other_head_shapes(void **state)
{
	rk_model *m = load_good(&(aid_tiny){ .head_dim = 64, .n_head = 6, .n_kv_head = 1, .n_embd = 96, .n_layer = 1 }, 1);
	(void)state;
	assert_int_equal(m->hp.head_dim, 64);
	assert_int_equal(m->hp.rope_dim, 64);
	assert_int_equal(m->w.layer[0].wq.n_row, 384);
	assert_int_equal(m->w.layer[0].wk.n_row, 64);
	assert_int_equal(m->w.layer[0].wo.n_col, 384);
	rk_model_free(m);
	m = load_good(&(aid_tiny){ .n_head = 4, .n_kv_head = 4 }, 1);
	assert_int_equal(m->hp.n_kv_head, 4);
	rk_model_free(m);
}

static void rope_scaling(void **state)
{
	rk_model *m = load_good(&(aid_tiny){ .rope_factors = true, .rope_theta = 500000 }, 1);
	aid_gguf *w;
	(void)state;
	assert_int_equal(m->hp.rope_scaling, RK_ROPE_LLAMA3);
	for (int i = 0; i < 8; i++)
		assert_true(m->hp.rope_freq[i] == (float)(pow(500000, -i / 8.0) / (i < 4 ? 1 : 8)));
	rk_model_free(m);

	w = aid_tiny_gguf(NULL, 1);
	aid_gguf_str(w, "llama.rope.scaling.type", "linear");
	aid_gguf_f32(w, "llama.rope.scaling.factor", 4);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	char path[32];
	rk_err e;
	int fd = aid_memfd(p, n, path);
	assert_int_equal(rk_model_load(&m, path, &e), 0);
	assert_int_equal(m->hp.rope_scaling, RK_ROPE_LINEAR);
	for (int i = 0; i < 8; i++)
		assert_true(m->hp.rope_freq[i] == (float)(pow(10000, -i / 8.0) / 4));
	rk_model_free(m);
	close(fd);
	free(p);
	aid_gguf_free(w);

	aid_gguf_str(w = aid_tiny_gguf(NULL, 1), "llama.rope.scaling.type", "yarn");
	expect_error(w, "key 'llama.rope.scaling.type' is 'yarn'; none, linear and llama3 are supported");
	aid_gguf_str(w = aid_tiny_gguf(NULL, 1), "llama.rope.scaling.type", "llama3");
	expect_error(w, "needs the tensor 'rope_freqs.weight'");
	aid_gguf_f32(w = aid_tiny_gguf(NULL, 1), "llama.rope.scaling.factor", 0);
	expect_error(w, "key 'llama.rope.scaling.factor' is 0; 0.001 to 1e+06");
	aid_gguf_matrix(w = aid_tiny_gguf(NULL, 1), "rope_freqs.weight", RK_F32, 1, 4, (float[4]){ 1, 1, 1, 1 });
	expect_error(w, "tensor 'rope_freqs.weight' is F32, 1 x 4; F32, 1 x 8 is needed");
	aid_gguf_matrix(w = aid_tiny_gguf(NULL, 1), "rope_freqs.weight", RK_F32, 1, 8, (float[8]){ 1, 1, 0 });
	expect_error(w, "'rope_freqs.weight': element 2 is 0");
}

static void wrong_hyper_parameters(void **state)
{
	static const struct { const char *key; uint32_t value; const char *want; } cases[] = {
		{ "llama.block_count", 0, "key 'llama.block_count' is 0; 1 to 256" },
		{ "llama.block_count", 257, "key 'llama.block_count' is 257; 1 to 256" },
		{ "llama.block_count", 4, "tensor 'blk.3.attn_norm.weight' is missing" },
		{ "llama.block_count", 2, "tensor 'blk.2.attn_norm.weight' is no part of a llama model of 2 layers" },
		{ "llama.embedding_length", 0, "key 'llama.embedding_length' is 0" },
		{ "llama.embedding_length", 0xffffffff, "key 'llama.embedding_length' is 4294967295; 1 to 65536" },
		{ "llama.embedding_length", 128, "tensor 'token_embd.weight' is 307 x 64; 307 x 128 is needed" },
		{ "llama.feed_forward_length", 0, "key 'llama.feed_forward_length' is 0" },
		{ "llama.feed_forward_length", 96, "tensor 'blk.0.ffn_gate.weight' is 128 x 64; 96 x 64 is needed" },
		{ "llama.context_length", 0, "key 'llama.context_length' is 0" },
		{ "llama.attention.head_count", 0, "key 'llama.attention.head_count' is 0; 1 to 1024" },
		{ "llama.attention.head_count", 6, "head_count' is 6, which does not divide the embedding length 64" },
		{ "llama.attention.head_count", 64, "heads of 1 elements; even numbers up to 256" },
		{ "llama.attention.head_count_kv", 0, "key 'llama.attention.head_count_kv' is 0; 1 to 4" },
		{ "llama.attention.head_count_kv", 3, "key 'llama.attention.head_count_kv' is 3, which does not divide the 4 heads" },
		{ "llama.attention.head_count_kv", 8, "key 'llama.attention.head_count_kv' is 8; 1 to 4" },
		{ "llama.attention.head_count_kv", 1, "tensor 'blk.0.attn_k.weight' is 32 x 64; 16 x 64 is needed" },
		{ "llama.attention.layer_norm_rms_epsilon", 0, "rms_epsilon' is 0; 1e-12 to 0.1" },
		{ "llama.attention.layer_norm_rms_epsilon", 0x7fc00000, "rms_epsilon' is nan" },
		{ "llama.rope.freq_base", 0x7f800000, "key 'llama.rope.freq_base' is inf; 1 to 1e+12" },
		{ "llama.rope.freq_base", 0xbf800000, "key 'llama.rope.freq_base' is -1" },
		{ "llama.rope.dimension_count", 0, "key 'llama.rope.dimension_count' is 0; 2 to 16" },
		{ "llama.rope.dimension_count", 15, "key 'llama.rope.dimension_count' is 15; it must be even" },
		{ "llama.rope.dimension_count", 18, "key 'llama.rope.dimension_count' is 18; 2 to 16" },
	};
	aid_gguf *w = aid_tiny_gguf(NULL, 1);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t *type = after_name(p, n, cases[i].key), saved[4];
		memcpy(saved, type + 4, 4);
		memcpy(type + 4, &cases[i].value, 4);
		expect_error_bytes(p, n, cases[i].want);
		memcpy(type + 4, saved, 4);
	}
	free(p);
	aid_gguf_free(w);
}

static void missing_keys_and_tensors(void **state)
{
	static const struct { const char *name; const char *want; } cases[] = {
		{ "general.architecture", "key 'general.architecture' is missing" },
		{ "llama.block_count", "key 'llama.block_count' is missing" },
		{ "llama.embedding_length", "key 'llama.embedding_length' is missing" },
		{ "llama.feed_forward_length", "key 'llama.feed_forward_length' is missing" },
		{ "llama.context_length", "key 'llama.context_length' is missing" },
		{ "llama.attention.head_count", "key 'llama.attention.head_count' is missing" },
		{ "llama.attention.layer_norm_rms_epsilon", "key 'llama.attention.layer_norm_rms_epsilon' is missing" },
		{ "token_embd.weight", "tensor 'token_embd.weighs' is no part" },
		{ "blk.1.ffn_up.weight", "tensor 'blk.1.ffn_up.weighs' is no part" },
	};
	aid_gguf *w = aid_tiny_gguf(NULL, 1);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t *last = after_name(p, n, cases[i].name) - 1;	/* another last letter is another name */
		(*last)--;
		expect_error_bytes(p, n, cases[i].want);
		(*last)++;
	}
	free(p);
	aid_gguf_free(w);
}

static void wrong_tensors(void **state)
{
	static const float v[64];
	aid_gguf *w = aid_tiny_gguf(NULL, 1);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	uint8_t *norm = after_name(p, n, "blk.1.attn_norm.weight"), *embd = after_name(p, n, "token_embd.weight");
	(void)state;
	norm[4 + 8] = RK_F16;		/* n_dims, one dimension, type */
	expect_error_bytes(p, n, "tensor 'blk.1.attn_norm.weight' is of type F16; F32 is needed");
	norm[4 + 8] = RK_F32;
	memcpy(embd + 4 + 8, &(uint64_t){ 306 }, 8);
	expect_error_bytes(p, n, "key 'tokenizer.ggml.tokens' has 307 tokens, but 'token_embd.weight' has 306 rows");
	free(p);
	aid_gguf_free(w);

	aid_gguf_matrix(w = aid_tiny_gguf(NULL, 1), "blk.0.attn_q.bias", RK_F32, 1, 64, v);
	expect_error(w, "tensor 'blk.0.attn_q.bias': biases are not supported");
	aid_gguf_matrix(w = aid_tiny_gguf(NULL, 1), "blk.0.attn_q_norm.weight", RK_F32, 1, 16, v);
	expect_error(w, "tensor 'blk.0.attn_q_norm.weight' is no part of a llama model");
	aid_gguf_matrix(w = aid_tiny_gguf(NULL, 1), "blk.00.attn_q.weight", RK_F32, 1, 16, v);
	expect_error(w, "tensor 'blk.00.attn_q.weight' is no part of a llama model");
	aid_gguf_matrix(w = aid_tiny_gguf(NULL, 1), "output.weight", RK_F32, 1, 64, v);
	expect_error(w, "tensor 'output.weight' is 1 x 64; 307 x 64 is needed");
}

static void models_that_are_not_supported(void **state)
{
	aid_gguf *w = aid_tiny_gguf(NULL, 1);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	(void)state;
	memcpy(after_name(p, n, "general.architecture") + 4 + 8, "qwen2", 5);
	expect_error_bytes(p, n, "architecture 'qwen2' is not supported; 'llama' is");
	free(p);
	aid_gguf_free(w);

	aid_gguf_u32(w = aid_tiny_gguf(NULL, 1), "llama.expert_count", 8);
	expect_error(w, "key 'llama.expert_count' is 8: a mixture of experts");
	aid_gguf_u32(w = aid_tiny_gguf(NULL, 1), "llama.attention.key_length", 300);
	expect_error(w, "key 'llama.attention.key_length' is 300; 1 to 256");
	aid_gguf_u32(w = aid_tiny_gguf(NULL, 1), "llama.attention.value_length", 8);
	expect_error(w, "key 'llama.attention.value_length' is 8, but keys have 16 elements");
	aid_gguf_str(w = aid_gguf_new(), "general.architecture", "llama");
	expect_error(w, "a vocabulary-only file: it has no weights");
}

static void split_files(void **state)
{
	char dir[] = P_tmpdir "/aid-XXXXXX", path[96];
	aid_gguf *w = aid_tiny_gguf(NULL, 1);
	rk_model *m;
	rk_err e;
	(void)state;
	aid_gguf_scalar(w, "split.no", AID_U16, &(uint16_t){ 1 }, 2);
	aid_gguf_scalar(w, "split.count", AID_U16, &(uint16_t){ 3 }, 2);
	expect_error(w, "part 2 of a model split into 3 files");

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/a-model-00001-of-00002.gguf", dir);
	aid_tiny_model(path, NULL, 1);
	assert_int_equal(rk_model_load(&m, path, &e), -1);
	assert_non_null(strstr(e.msg, "part 1 of a model split into 2 files"));
	unlink(path);
	snprintf(path, sizeof path, "%s/a-model-00001-of-00001.gguf", dir);
	aid_tiny_model(path, NULL, 1);
	assert_int_equal(rk_model_load(&m, path, &e), 0);
	rk_model_free(m);
	unlink(path);
	rmdir(dir);
}

/* A label must not carry control bytes to the terminal, and a file without general.name is called by its own name. */
static void names(void **state)
{
	aid_gguf *w = aid_tiny_gguf(NULL, 1);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	char path[32];
	rk_model *m;
	rk_err e;
	(void)state;
	uint8_t *type = after_name(p, n, "general.name");
	memcpy(type + 4 + 8, "\033[2J", 4);
	int fd = aid_memfd(p, n, path);
	assert_int_equal(rk_model_load(&m, path, &e), 0);
	assert_string_equal(m->name, "?[2J");
	rk_model_free(m);
	close(fd);
	type[-1]--;
	fd = aid_memfd(p, n, path);
	assert_int_equal(rk_model_load(&m, path, &e), 0);
	assert_string_equal(m->name, strrchr(path, '/') + 1);
	rk_model_free(m);
	close(fd);
	free(p);
	aid_gguf_free(w);
}

/* Loads a file that may be damaged; where that succeeds, reads the last row of some matrices. */
static bool survives(const char *path)
{
	rk_model *m;
	rk_err e = { 0 };
	if (rk_model_load(&m, path, &e)) {
		assert_true(e.msg[0] && !strchr(e.msg, '\n'));
		return false;
	}
	const rk_weights *w = &m->w;
	const rk_tensor *t[] = { &w->tok_embd, &w->output, &w->layer[0].wq, &w->layer[m->hp.n_layer - 1].w_down };
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		size_t bytes = rk_type_row_bytes(t[i]->type, t[i]->n_col);
		float *row = malloc((size_t)t[i]->n_col * sizeof *row);
		rk_dequant_row(t[i]->type, (const char *)t[i]->data + (size_t)(t[i]->n_row - 1) * bytes, row, t[i]->n_col);
		free(row);
	}
	rk_model_free(m);
	return true;
}

static const aid_tiny smallest = {
	.n_layer = 1, .n_embd = 32, .n_head = 2, .n_kv_head = 1, .n_ff = 32, .type = RK_Q4_0, .untied = true
};

static void truncated_at_every_length(void **state)
{
	char path[32];
	int fd = aid_tiny_memfd(&smallest, 1, path);
	off_t n = lseek(fd, 0, SEEK_END);
	(void)state;
	assert_true(survives(path));
	for (off_t len = n - 32; len >= 0; len--) {	/* the last 31 bytes may be padding */
		assert_int_equal(ftruncate(fd, len), 0);
		assert_false(survives(path));
	}
	close(fd);
}

static void damaged_in_every_byte(void **state)
{
	static const uint8_t mask[] = { 0x01, 0x80, 0xff };
	aid_gguf *w = aid_tiny_gguf(&smallest, 1);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	size_t header = (size_t)(after_name(p, n, "output.weight") - p) + 64;
	char path[32];
	int fd = aid_memfd(p, n, path);
	(void)state;
	for (size_t at = 0; at < header; at++) {
		for (size_t i = 0; i < sizeof mask; i++) {
			assert_int_equal(pwrite(fd, &(uint8_t){ p[at] ^ mask[i] }, 1, (off_t)at), 1);
			survives(path);
		}
		assert_int_equal(pwrite(fd, p + at, 1, (off_t)at), 1);
	}
	close(fd);
	free(p);
	aid_gguf_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(every_type_tied_and_untied),
		cmocka_unit_test(other_head_shapes),
		cmocka_unit_test(rope_scaling),
		cmocka_unit_test(wrong_hyper_parameters),
		cmocka_unit_test(missing_keys_and_tensors),
		cmocka_unit_test(wrong_tensors),
		cmocka_unit_test(models_that_are_not_supported),
		cmocka_unit_test(split_files),
		cmocka_unit_test(names),
		cmocka_unit_test(truncated_at_every_length),
		cmocka_unit_test(damaged_in_every_byte),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
