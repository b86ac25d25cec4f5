/* yaml.h: reads the YAML that this program uses: a flat mapping of scalars, with at most one level of nesting.
 *
 * Policies, themes and settings.  A nested key is reported as "section.key".  Sequences, deeper mappings, duplicate keys,
 * anchors, aliases, tags and further documents are errors that name file and line, and sizes are bounded, so that a
 * hostile file costs an error.  A wrapper over libyaml's event parser; no state, safe from any thread.
 */
#ifndef RK_BASE_YAML_H
#define RK_BASE_YAML_H

#include <stddef.h>
#include "base/err.h"

#define RK_YAML_MAX_BYTES 65536
#define RK_YAML_MAX_KEY 256

/* Called for each scalar, in file order.  key and value are valid during the call only.  An error stops the reading and
 * gets "file:line: " in front of its message, so the callback need not say where. */
typedef int (*rk_yaml_fn)(void *arg, const char *key, const char *value, int line, rk_err *e);

/* file: the name that errors use.  All errors are RK_EUSAGE. */
int rk_yaml_read(const char *file, const char *text, size_t len, rk_yaml_fn fn, void *arg, rk_err *e);
int rk_yaml_load(const char *path, rk_yaml_fn fn, void *arg, rk_err *e);

#endif
