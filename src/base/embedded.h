/* embedded.h: the files that travel inside the binary: policy presets and the handbook.
 *
 * The Makefile decides which files those are (EMBEDDED, a wildcard over configs/policies/), so that a new preset needs
 * no code.  A file is named by its path in the repository: "configs/policies/h2o.yaml", "docs/handbook.md".
 * Read-only and there for the life of the program; safe from any thread.
 */
#ifndef RK_BASE_EMBEDDED_H
#define RK_BASE_EMBEDDED_H

#include <stddef.h>

typedef struct rk_embedded {
	const char *name;
	const char *data;	/* len bytes as in the file, then a NUL that len does not count */
	size_t len;
} rk_embedded;

/* In order of name.  The table is laid out by embedded_data.S. */
extern const rk_embedded rk_embedded_files[];
extern const size_t rk_embedded_count;

const rk_embedded *rk_embedded_find(const char *name);	/* NULL: no such file */

#endif
