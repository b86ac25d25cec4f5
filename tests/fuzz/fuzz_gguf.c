/* fuzz_gguf.c: libFuzzer target: any bytes as a model file must load or give an error, within bounds.
 *
 *	clang -g -O1 -std=gnu11 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Isrc -Itests -o fuzz_gguf \
 *		tests/fuzz/fuzz_gguf.c tests/aid_gguf.c src/model/gguf.c src/model/quant.c src/model/model.c src/base/err.c -lm
 *	./fuzz_gguf -max_len=65536 CORPUS
 *
 * An input that starts with the byte 'T' is a list of edits (offset u16, byte) to a tiny model, so that without any
 * corpus the fuzzer is past the magic and the counts from the first run; any other input is the file itself.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aid_gguf.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint8_t *tiny;
static size_t tiny_bytes;

static void make_tiny(void)
{
	static const aid_tiny opt = { .n_layer = 1, .n_embd = 32, .n_head = 2, .n_kv_head = 1, .n_ff = 32, .type = RK_Q4_0 };
	aid_gguf *w = aid_tiny_gguf(&opt, 1);
	tiny = aid_gguf_bytes(w, &tiny_bytes);
	aid_gguf_free(w);
}

/* Reads what a run would read: the last row of every tensor. */
static void touch(const rk_gguf *g)
{
	for (size_t i = 0; i < rk_gguf_n_tensor(g); i++) {
		const rk_tensor *t = rk_gguf_tensor_at(g, i);
		size_t bytes = rk_type_row_bytes(t->type, t->n_col);
		float *row = malloc((size_t)t->n_col * sizeof *row);
		rk_dequant_row(t->type, (const char *)t->data + (size_t)(t->n_row - 1) * bytes, row, t->n_col);
		free(row);
	}
}

static void load(const uint8_t *data, size_t n)
{
	char path[32];
	rk_model *m;
	rk_gguf *g;
	rk_err e;
	int fd = aid_memfd(data, n, path);
	if (rk_gguf_open(&g, path, &e) == 0) {
		touch(g);
		rk_gguf_close(g);
	}
	if (rk_model_load(&m, path, &e) == 0)
		rk_model_free(m);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (!tiny)
		make_tiny();
	if (n == 0 || data[0] != 'T') {
		load(data, n);
		return 0;
	}
	uint8_t *copy = malloc(tiny_bytes);
	memcpy(copy, tiny, tiny_bytes);
	for (size_t i = 1; i + 3 <= n; i += 3)
		copy[(data[i] | data[i + 1] << 8) % tiny_bytes] = data[i + 2];
	load(copy, tiny_bytes);
	free(copy);
	return 0;
}
