/* json.c: see json.h */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include "base/utf8.h"

json_t *rk_json_real(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

json_t *rk_json_text(const char *s, size_t len)
{
	char *clean;
	size_t n;

	if (len == 0)
		return json_string("");
	if (rk_utf8_lossy(s, len, &clean, &n, NULL))
		return NULL;
	json_t *j = json_stringn(clean, n);
	free(clean);
	return j;
}
