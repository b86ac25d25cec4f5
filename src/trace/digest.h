/* digest.h: SHA-256 in hexadecimal: which model, document and prompt a trace is of. */
#ifndef RK_TRACE_DIGEST_H
#define RK_TRACE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

void rk_digest(const void *data, size_t n, char out[65]);
/* stop (NULL: never): once true, -1 soon; gigabytes take their time. */
int rk_digest_file(const char *path, char out[65], const _Atomic bool *stop, rk_err *e);

#endif
