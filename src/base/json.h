/* json.h: values for jansson that everything which writes JSON shares. */
#ifndef RK_BASE_JSON_H
#define RK_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

json_t *rk_json_real(double v);				/* null unless finite */
json_t *rk_json_text(const char *s, size_t len);	/* ill-formed UTF-8 becomes U+FFFD; NULL without memory */

#endif
