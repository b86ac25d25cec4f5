/* gguf.h: reader of GGUF v2/v3 files (ggml docs/gguf.md), little-endian.
 *
 * Owns: the read-only mapping and the index of keys and tensors.  Every count, length, offset and type is checked
 * against the bytes that are left before it is used; a damaged file costs an error, never more memory than its size.
 * Strings and arrays point into the mapping and live until rk_gguf_close.  Immutable after open, so shared by threads.
 */
#ifndef RK_MODEL_GGUF_H
#define RK_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "model/quant.h"

typedef struct rk_gguf rk_gguf;

typedef struct { const char *s; size_t len; } rk_str;	/* not NUL-terminated */

/* A named tensor: row-major, n_row rows of n_col weights (GGUF dims [n_col, n_row]); a vector has n_row = 1. */
typedef struct rk_tensor {
	const void *data;	/* NULL: absent */
	enum rk_type type;
	int64_t n_row, n_col;
	rk_str name;
} rk_tensor;

int rk_gguf_open(rk_gguf **g, const char *path, rk_err *e);
void rk_gguf_close(rk_gguf *g);	/* NULL is fine */
/* Puts a copy into the place of the mapped file, in huge pages, so that reading all of it costs no page walks.  Pointers into it stay
 * good.  false: it stays mapped, since it is small, would take more than half of the memory that is left (processes share a mapping, but no
 * copies), or there are no huge pages. */
bool rk_gguf_copy(rk_gguf *g);
const char *rk_gguf_path(const rk_gguf *g);
size_t rk_gguf_bytes(const rk_gguf *g);	/* of the file */

/* Scalars.  0 and *out set; 1 when the key is absent (*out untouched); -1 with e when it has another type or does
 * not fit.  Any integer type converts to i64/u32 when in range; f32 and f64 to double. */
int rk_gguf_u32(const rk_gguf *g, const char *key, uint32_t *out, rk_err *e);
int rk_gguf_f64(const rk_gguf *g, const char *key, double *out, rk_err *e);
int rk_gguf_bool(const rk_gguf *g, const char *key, bool *out, rk_err *e);
int rk_gguf_str(const rk_gguf *g, const char *key, rk_str *out, rk_err *e);
/* Arrays: strings into a freshly allocated table (the caller frees the table, not the strings); 32-bit ints likewise. */
int rk_gguf_str_array(const rk_gguf *g, const char *key, rk_str **out, size_t *n, rk_err *e);
int rk_gguf_i32_array(const rk_gguf *g, const char *key, int32_t **out, size_t *n, rk_err *e);

size_t rk_gguf_n_tensor(const rk_gguf *g);
const rk_tensor *rk_gguf_tensor_at(const rk_gguf *g, size_t i);
const rk_tensor *rk_gguf_tensor(const rk_gguf *g, const char *name);	/* NULL: absent */

#endif
