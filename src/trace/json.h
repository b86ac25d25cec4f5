/* json.h: small steps between C values and jansson that header, events and exports share.
 *
 * put: a NULL that jansson returns for lack of memory is stored nowhere and makes put return -1.
 * take: checks type and range; the error names the key.
 */
#ifndef RK_TRACE_JSON_H
#define RK_TRACE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/json.h"

/* A float as the shortest decimal that reads back as the same float; null unless finite. */
json_t *rk_trace_real(float v);
/* Bit i of a mask of n bits is set where bit(ctx, i); hexadecimal, bit 0 the lowest of the last digit; NULL when none is. */
json_t *rk_trace_mask(int n, bool (*bit)(const void *ctx, int i), const void *ctx);

/* root as one compact line with its newline; takes root (which may be NULL) over. */
int rk_trace_dump(json_t *root, char **line, size_t *len, rk_err *e);

int rk_trace_take_int(const json_t *root, const char *key, int64_t min, int64_t max, int64_t *v, rk_err *e);
int rk_trace_take_float(const json_t *v, const char *key, float *out, rk_err *e);	/* null: NaN */
/* A string shorter than size, without NUL. */
int rk_trace_take_str(const json_t *root, const char *key, char *out, size_t size, rk_err *e);
/* Is v a policy in one line of fewer than RK_SPEC_MAX bytes?  Not one that names a file, which whoever parses it would open;
 * what a session writes never does. */
bool rk_trace_is_spec(const json_t *v);
#define RK_TRACE_SPEC "a policy in one line of fewer than %d bytes that names no file"	/* it takes RK_SPEC_MAX */
/* A mask of at most n bits into bit[0..n). */
int rk_trace_take_mask(const json_t *v, const char *key, int n, bool *bit, rk_err *e);

#endif
