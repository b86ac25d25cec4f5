/* aid_gguf.c: see aid_gguf.h */
#include "aid_gguf.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct buf { uint8_t *p; size_t n, cap; };

struct aid_gguf {
	uint32_t version, alignment;
	uint64_t n_key, n_tensor;
	struct buf key, entry, data;	/* the three parts of a file after its first 24 bytes */
};

static void die(const char *what)
{
	perror(what);
	abort();
}

static void put(struct buf *b, const void *p, size_t n)
{
	if (b->n + n > b->cap) {
		b->cap = 2 * b->cap + n;
		b->p = realloc(b->p, b->cap);
		if (!b->p)
			die("realloc");
	}
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
}

static void put_u32(struct buf *b, uint32_t v)
{
	put(b, &v, sizeof v);
}

static void put_u64(struct buf *b, uint64_t v)
{
	put(b, &v, sizeof v);
}

static void put_str(struct buf *b, const char *s)
{
	put_u64(b, strlen(s));
	put(b, s, strlen(s));
}

/* A wrong alignment is written as it is, but cannot be padded to. */
static void pad(const aid_gguf *w, struct buf *b, size_t from)
{
	static const uint8_t zero[64];
	uint32_t a = w->alignment && w->alignment <= sizeof zero ? w->alignment : 1;
	put(b, zero, (a - (from + b->n) % a) % a);
}

aid_gguf *aid_gguf_new(void)
{
	aid_gguf *w = calloc(1, sizeof *w);
	if (!w)
		die("calloc");
	w->version = 3;
	w->alignment = 32;
	return w;
}

void aid_gguf_free(aid_gguf *w)
{
	free(w->key.p);
	free(w->entry.p);
	free(w->data.p);
	free(w);
}

void aid_gguf_version(aid_gguf *w, uint32_t version)
{
	w->version = version;
}

void aid_gguf_alignment(aid_gguf *w, uint32_t alignment)
{
	w->alignment = alignment;
	aid_gguf_u32(w, "general.alignment", alignment);
}

void aid_gguf_scalar(aid_gguf *w, const char *key, enum aid_value type, const void *value, size_t bytes)
{
	put_str(&w->key, key);
	put_u32(&w->key, type);
	put(&w->key, value, bytes);
	w->n_key++;
}

void aid_gguf_u32(aid_gguf *w, const char *key, uint32_t v)
{
	aid_gguf_scalar(w, key, AID_U32, &v, sizeof v);
}

void aid_gguf_f32(aid_gguf *w, const char *key, float v)
{
	aid_gguf_scalar(w, key, AID_F32, &v, sizeof v);
}

void aid_gguf_bool(aid_gguf *w, const char *key, bool v)
{
	aid_gguf_scalar(w, key, AID_BOOL, &v, 1);
}

void aid_gguf_str(aid_gguf *w, const char *key, const char *v)
{
	aid_gguf_scalar(w, key, AID_STR, NULL, 0);
	put_str(&w->key, v);
}

void aid_gguf_array(aid_gguf *w, const char *key, enum aid_value elem, const void *v, size_t n, size_t bytes)
{
	aid_gguf_scalar(w, key, AID_ARRAY, NULL, 0);
	put_u32(&w->key, elem);
	put_u64(&w->key, n);
	put(&w->key, v, bytes);
}

void aid_gguf_str_array(aid_gguf *w, const char *key, const char *const *v, size_t n)
{
	aid_gguf_array(w, key, AID_STR, NULL, n, 0);
	for (size_t i = 0; i < n; i++)
		put_str(&w->key, v[i]);
}

void aid_gguf_tensor(aid_gguf *w, const char *name, enum rk_type type, int n_dim, const uint64_t *dim,
		     const void *data, size_t bytes)
{
	put_str(&w->entry, name);
	put_u32(&w->entry, (uint32_t)n_dim);
	for (int i = 0; i < n_dim; i++)
		put_u64(&w->entry, dim[i]);
	put_u32(&w->entry, type);
	put_u64(&w->entry, w->data.n);
	put(&w->data, data, bytes);
	pad(w, &w->data, 0);
	w->n_tensor++;
}

void aid_gguf_matrix(aid_gguf *w, const char *name, enum rk_type type, int64_t n_row, int64_t n_col, const float *v)
{
	size_t row = rk_type_row_bytes(type, n_col);
	uint8_t *data = malloc(row * (size_t)n_row);
	if (!data)
		die("malloc");
	for (int64_t r = 0; r < n_row; r++)
		aid_quantize_row(type, v + r * n_col, data + (size_t)r * row, n_col);
	aid_gguf_tensor(w, name, type, n_row == 1 ? 1 : 2, (uint64_t[]){ (uint64_t)n_col, (uint64_t)n_row }, data,
			row * (size_t)n_row);
	free(data);
}

uint8_t *aid_gguf_bytes(const aid_gguf *w, size_t *n)
{
	struct buf b = { 0 };
	put(&b, "GGUF", 4);
	put_u32(&b, w->version);
	put_u64(&b, w->n_tensor);
	put_u64(&b, w->n_key);
	put(&b, w->key.p, w->key.n);
	put(&b, w->entry.p, w->entry.n);
	if (w->data.n)
		pad(w, &b, 0);
	put(&b, w->data.p, w->data.n);
	*n = b.n;
	return b.p;
}

void aid_gguf_write(const aid_gguf *w, const char *path)
{
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(p, 1, n, f) != n || fclose(f))
		die(path);
	free(p);
}

int aid_memfd(const void *bytes, size_t n, char path[32])
{
	int fd = memfd_create("aid", MFD_CLOEXEC);
	if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
		die("memfd");
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

/* Quantisers */

static void quantize_q8_0(const float *x, rk_block_q8_0 *b)
{
	float max = 0;
	for (int j = 0; j < RK_QK; j++)
		max = fmaxf(max, fabsf(x[j]));
	b->d = rk_float_to_half(max / 127);
	float d = rk_half_to_float(b->d);
	for (int j = 0; j < RK_QK; j++)
		b->qs[j] = (int8_t)(d > 0 ? fmaxf(-127, fminf(127, rintf(x[j] / d))) : 0);
}

/* 16 levels of width d from m upwards; low nibbles are weights 0..15. */
static void quantize_nibbles(const float *x, float d, float m, uint8_t qs[16])
{
	for (int j = 0; j < RK_QK; j++) {
		float q = d > 0 ? fmaxf(0, fminf(15, rintf((x[j] - m) / d))) : 0;
		qs[j % 16] = (uint8_t)(j < 16 ? q : qs[j % 16] | (int)q << 4);
	}
}

static void quantize_q4(const float *x, rk_block_q4_0 *b0, rk_block_q4_1 *b1)
{
	float lo = x[0], hi = x[0];
	for (int j = 1; j < RK_QK; j++) {
		lo = fminf(lo, x[j]);
		hi = fmaxf(hi, x[j]);
	}
	if (b0) {	/* symmetric: -8 d .. 7 d */
		b0->d = rk_float_to_half(fmaxf(hi / 7, -lo / 8));
		quantize_nibbles(x, rk_half_to_float(b0->d), -8 * rk_half_to_float(b0->d), b0->qs);
	} else {
		b1->d = rk_float_to_half((hi - lo) / 15);
		b1->m = rk_float_to_half(lo);
		quantize_nibbles(x, rk_half_to_float(b1->d), rk_half_to_float(b1->m), b1->qs);
	}
}

void aid_quantize_row(enum rk_type type, const float *src, void *dst, int64_t n)
{
	int len = rk_type_block_len(type);
	uint32_t bits;
	assert(len && n % len == 0);
	for (int64_t i = 0; i < n / len; i++) {
		const float *x = src + i * len;
		void *to = (char *)dst + (size_t)i * rk_type_block_bytes(type);
		switch (type) {
		case RK_F32:
			memcpy(to, x, sizeof *x);
			break;
		case RK_F16:
			*(rk_half *)to = rk_float_to_half(*x);
			break;
		case RK_BF16:	/* nearest, ties to even */
			memcpy(&bits, x, sizeof bits);
			*(uint16_t *)to = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
			break;
		case RK_Q8_0:
			quantize_q8_0(x, to);
			break;
		case RK_Q4_0:
			quantize_q4(x, to, NULL);
			break;
		case RK_Q4_1:
			quantize_q4(x, NULL, to);
			break;
		default:
			fprintf(stderr, "aid_quantize_row: no quantiser for %s\n", rk_type_name(type));
			abort();
		}
	}
}

/* splitmix64 */
double aid_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

float aid_gaussian(uint64_t *state)
{
	double sum = -6;
	for (int i = 0; i < 12; i++)
		sum += aid_random(state);
	return (float)sum;
}

/* The tiny model */

static const char *const merges[AID_TINY_N_MERGE] = {	/* "\u0120" is how the alphabet writes a space */
	"\u0120 t", "\u0120 a", "h e", "i n", "r e", "o n", "e r", "\u0120t he", "\u0120 s", "a t", "\u0120 o", "e n",
	"\u0120 c", "e s", "\u0120 w", "n d", "i t", "o r", "i s", "a l", "\u0120 \u0120", "in g", "a n", "e d",
	"\u0120 b", "o u", "\u0120a nd", "\u0120 f", "\u0120 p", "\u0120o f", "\u0120 in", "\u0120t o", "l e", "a s",
	"r o", "\u0120 m",
	"\u0120 d", "a r", "l l", "i c", "\u0120 h", "\u0120 he", "s t", "v e", "l d", "l o", "\u0120w or", "\u010a \u010a",
};

static const char chatml[] =
	"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
	"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* GPT-2's alphabet: a byte that prints stands for itself, the others for U+0100 and up in order. */
static void byte_token(int byte, char out[3])
{
	static const uint8_t range[3][2] = { { 33, 126 }, { 161, 172 }, { 174, 255 } };
	int c = 256;
	for (int b = 0; b <= byte; b++) {
		bool prints = false;
		for (int r = 0; r < 3; r++)
			prints |= b >= range[r][0] && b <= range[r][1];
		if (b == byte && prints)
			c = b;
		else if (b < byte)
			c += !prints;
	}
	if (c < 128)
		memcpy(out, (char[]){ (char)c, 0 }, 2);
	else
		memcpy(out, (char[]){ (char)(0xc0 | c >> 6), (char)(0x80 | (c & 63)), 0 }, 3);
}

static void put_tokenizer(aid_gguf *w)
{
	static char text[AID_TINY_N_VOCAB][16];
	const char *token[AID_TINY_N_VOCAB] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
	int32_t type[AID_TINY_N_VOCAB] = { 3, 3, 3 };	/* control; 1: normal */
	for (int i = 3; i < AID_TINY_N_VOCAB; i++) {
		token[i] = text[i];
		type[i] = 1;
		if (i < 3 + 256) {
			byte_token(i - 3, text[i]);
		} else {
			const char *m = merges[i - 3 - 256], *space = strchr(m, ' ');
			snprintf(text[i], sizeof text[i], "%.*s%s", (int)(space - m), m, space + 1);
		}
	}
	aid_gguf_str(w, "tokenizer.ggml.model", "gpt2");
	aid_gguf_str(w, "tokenizer.ggml.pre", "smollm");
	aid_gguf_str_array(w, "tokenizer.ggml.tokens", token, AID_TINY_N_VOCAB);
	aid_gguf_array(w, "tokenizer.ggml.token_type", AID_I32, type, AID_TINY_N_VOCAB, sizeof type);
	aid_gguf_str_array(w, "tokenizer.ggml.merges", merges, AID_TINY_N_MERGE);
	aid_gguf_u32(w, "tokenizer.ggml.bos_token_id", 1);
	aid_gguf_u32(w, "tokenizer.ggml.eos_token_id", 2);
	aid_gguf_u32(w, "tokenizer.ggml.unknown_token_id", 0);
	aid_gguf_u32(w, "tokenizer.ggml.padding_token_id", 2);
	aid_gguf_bool(w, "tokenizer.ggml.add_bos_token", false);
	aid_gguf_bool(w, "tokenizer.ggml.add_space_prefix", false);
	aid_gguf_str(w, "tokenizer.chat_template", chatml);
}

static void put_hparams(aid_gguf *w, const aid_tiny *o)
{
	aid_gguf_str(w, "general.architecture", "llama");
	aid_gguf_str(w, "general.name", "tiny");
	aid_gguf_u32(w, "llama.block_count", (uint32_t)o->n_layer);
	aid_gguf_u32(w, "llama.context_length", (uint32_t)o->n_ctx);
	aid_gguf_u32(w, "llama.embedding_length", (uint32_t)o->n_embd);
	aid_gguf_u32(w, "llama.feed_forward_length", (uint32_t)o->n_ff);
	aid_gguf_u32(w, "llama.attention.head_count", (uint32_t)o->n_head);
	aid_gguf_u32(w, "llama.attention.head_count_kv", (uint32_t)o->n_kv_head);
	if (o->head_dim * o->n_head != o->n_embd) {
		aid_gguf_u32(w, "llama.attention.key_length", (uint32_t)o->head_dim);
		aid_gguf_u32(w, "llama.attention.value_length", (uint32_t)o->head_dim);
	}
	aid_gguf_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	aid_gguf_u32(w, "llama.rope.dimension_count", (uint32_t)o->head_dim);
	aid_gguf_f32(w, "llama.rope.freq_base", o->rope_theta);
}

/* A matrix of normal numbers of standard deviation gain / sqrt(n_col), so that an input of unit size gives an output
 * of size gain. */
static void put_matrix(aid_gguf *w, const char *name, enum rk_type type, int n_row, int n_col, float gain,
		       uint64_t *rng)
{
	float *v = malloc(sizeof *v * (size_t)n_row * (size_t)n_col), sd = gain / sqrtf((float)n_col);
	if (!v)
		die("malloc");
	for (int i = 0; i < n_row * n_col; i++)
		v[i] = sd * aid_gaussian(rng);
	aid_gguf_matrix(w, name, type, n_row, n_col, v);
	free(v);
}

/* Embeddings or output rows: a part that all tokens share and one of their own, which the control tokens lack, so that
 * their logits are never the highest and greedy text goes on. */
static void put_vocab(aid_gguf *w, const char *name, const aid_tiny *o, float gain, float common, uint64_t *rng)
{
	int n = o->n_embd;
	float *v = malloc(sizeof *v * AID_TINY_N_VOCAB * (size_t)n), sd = gain / sqrtf((float)n);
	if (!v)
		die("malloc");
	for (int j = 0; j < n; j++)
		v[j] = sd * common * aid_gaussian(rng);
	for (int i = n; i < AID_TINY_N_VOCAB * n; i++)
		v[i] = i < 3 * n ? v[i % n] : v[i % n] + sd * sqrtf(1 - common * common) * aid_gaussian(rng);
	aid_gguf_matrix(w, name, o->type, AID_TINY_N_VOCAB, n, v);
	free(v);
}

/* Norm weights near 1. */
static void put_norm(aid_gguf *w, const char *name, int n, uint64_t *rng)
{
	float *v = malloc(sizeof *v * (size_t)n);
	if (!v)
		die("malloc");
	for (int i = 0; i < n; i++)
		v[i] = 1 + 0.1f * aid_gaussian(rng);
	aid_gguf_matrix(w, name, RK_F32, 1, n, v);
	free(v);
}

static void put_layer(aid_gguf *w, const aid_tiny *o, int layer, uint64_t *rng)
{
	int d = o->n_embd, q = o->n_head * o->head_dim, kv = o->n_kv_head * o->head_dim;
	char name[64];
#define NAME(suffix) (snprintf(name, sizeof name, "blk.%d." suffix ".weight", layer), name)
	put_norm(w, NAME("attn_norm"), d, rng);
	put_matrix(w, NAME("attn_q"), o->type, q, d, 1.7f, rng);
	put_matrix(w, NAME("attn_k"), o->type, kv, d, 1.7f, rng);
	put_matrix(w, NAME("attn_v"), o->type, kv, d, 2, rng);
	put_matrix(w, NAME("attn_output"), o->type, d, q, 2, rng);
	put_norm(w, NAME("ffn_norm"), d, rng);
	put_matrix(w, NAME("ffn_gate"), o->type, o->n_ff, d, 1.5f, rng);
	put_matrix(w, NAME("ffn_up"), o->type, o->n_ff, d, 1.5f, rng);
	put_matrix(w, NAME("ffn_down"), o->type, d, o->n_ff, 1, rng);
#undef NAME
}

static aid_tiny with_defaults(const aid_tiny *opt)
{
	aid_tiny o = opt ? *opt : (aid_tiny){ 0 };
	o.n_layer = o.n_layer ? o.n_layer : 3;
	o.n_embd = o.n_embd ? o.n_embd : 64;
	o.n_head = o.n_head ? o.n_head : 4;
	o.n_kv_head = o.n_kv_head ? o.n_kv_head : 2;
	o.head_dim = o.head_dim ? o.head_dim : o.n_embd / o.n_head;
	o.n_ff = o.n_ff ? o.n_ff : 128;
	o.n_ctx = o.n_ctx ? o.n_ctx : 4096;
	o.rope_theta = o.rope_theta > 0 ? o.rope_theta : 10000;
	return o;
}

aid_gguf *aid_tiny_gguf(const aid_tiny *opt, uint64_t seed)
{
	aid_tiny o = with_defaults(opt);
	aid_gguf *w = aid_gguf_new();
	uint64_t rng = seed;
	put_hparams(w, &o);
	put_tokenizer(w);
	/* Tied, an embedding row is also an output row, and a logit is its product with an input of size sqrt(n_embd). */
	put_vocab(w, "token_embd.weight", &o, 2, 0.5f, &rng);
	put_norm(w, "output_norm.weight", o.n_embd, &rng);
	for (int l = 0; l < o.n_layer; l++)
		put_layer(w, &o, l, &rng);
	if (o.untied)
		put_vocab(w, "output.weight", &o, 2, 0, &rng);
	if (o.rope_factors) {	/* low frequencies slowed down, as llama 3.1 does */
		float f[128];
		for (int i = 0; i < o.head_dim / 2; i++)
			f[i] = i < o.head_dim / 4 ? 1 : 8;
		aid_gguf_matrix(w, "rope_freqs.weight", RK_F32, 1, o.head_dim / 2, f);
	}
	return w;
}

void aid_tiny_model(const char *path, const aid_tiny *opt, uint64_t seed)
{
	aid_gguf *w = aid_tiny_gguf(opt, seed);
	aid_gguf_write(w, path);
	aid_gguf_free(w);
}

int aid_tiny_memfd(const aid_tiny *opt, uint64_t seed, char path[32])
{
	aid_gguf *w = aid_tiny_gguf(opt, seed);
	size_t n;
	uint8_t *p = aid_gguf_bytes(w, &n);
	int fd = aid_memfd(p, n, path);
	free(p);
	aid_gguf_free(w);
	return fd;
}
