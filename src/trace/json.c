/* json.c: see json.h */
#include "trace/json.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "policy/policy.h"

json_t *rk_trace_real(float v)
{
	char digits[32];

	if (!isfinite(v))
		return json_null();
	/* 9 digits tell any two floats apart, most need 8 or 9; fewer than 6 are printed by %g without trailing zeros. */
	for (int p = 6; ; p++) {
		snprintf(digits, sizeof digits, "%.*g", p, (double)v);
		double d = strtod(digits, NULL);
		if (p == 9 || (float)d == v)
			return json_real(d);	/* rk_trace_dump prints 9 digits: these again */
	}
}

json_t *rk_trace_mask(int n, bool (*bit)(const void *ctx, int i), const void *ctx)
{
	static const char hex[] = "0123456789abcdef";
	int n_digit = (n + 3) / 4;
	char out[256];
	bool any = false;

	for (int d = 0; d < n_digit && d < (int)sizeof out; d++) {
		unsigned v = 0;
		for (int b = 0; b < 4 && 4 * d + b < n; b++)
			v |= (unsigned)bit(ctx, 4 * d + b) << b;
		out[n_digit - 1 - d] = hex[v];
		any |= v != 0;
	}
	return any ? json_stringn(out, (size_t)n_digit) : NULL;
}

int rk_trace_dump(json_t *root, char **line, size_t *len, rk_err *e)
{
	char *s = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	size_t n = s ? strlen(s) : 0;	/* a NUL in a text is written as an escape */
	char *out = s ? realloc(s, n + 2) : NULL;

	json_decref(root);
	if (!out) {
		free(s);
		return rk_fail(e, RK_ENOMEM, "no memory for a line of JSON");
	}
	memcpy(out + n, "\n", 2);
	*line = out;
	*len = n + 1;
	return 0;
}

int rk_trace_take_int(const json_t *root, const char *key, int64_t min, int64_t max, int64_t *v, rk_err *e)
{
	const json_t *j = json_object_get(root, key);

	if (!json_is_integer(j))
		return rk_fail(e, RK_EFAIL, "\"%s\" %s", key, j ? "is not an integer" : "is missing");
	*v = json_integer_value(j);
	if (*v < min || *v > max)
		return rk_fail(e, RK_EFAIL, "\"%s\" is %lld, not in %lld to %lld", key, (long long)*v, (long long)min, (long long)max);
	return 0;
}

int rk_trace_take_float(const json_t *v, const char *key, float *out, rk_err *e)
{
	double d = json_is_null(v) ? (double)NAN : json_number_value(v);

	if (!json_is_null(v) && (!json_is_number(v) || fabs(d) > (double)FLT_MAX))
		return rk_fail(e, RK_EFAIL, "\"%s\" is not a number that fits, or null", key);
	*out = (float)d;
	return 0;
}

int rk_trace_take_str(const json_t *root, const char *key, char *out, size_t size, rk_err *e)
{
	const json_t *j = json_object_get(root, key);
	size_t n = json_string_length(j);

	if (!json_is_string(j) || n >= size || strlen(json_string_value(j)) != n)
		return rk_fail(e, RK_EFAIL, "\"%s\" %s", key, !j ? "is missing" : "is not a text of fewer than the allowed bytes");
	memcpy(out, json_string_value(j), n + 1);
	return 0;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool rk_trace_is_spec(const json_t *v)
{
	const char *s = json_string_value(v);

	return s && json_string_length(v) < RK_SPEC_MAX && !strchr(s, '\n') && !rk_policy_is_file(s);
}

int rk_trace_take_mask(const json_t *v, const char *key, int n, bool *bit, rk_err *e)
{
	const char *s = json_string_value(v);
	int len = (int)json_string_length(v);

	memset(bit, 0, (size_t)n * sizeof *bit);
	if (!s || len != (n + 3) / 4)
		return rk_fail(e, RK_EFAIL, "\"%s\" is not a mask of %d hexadecimal digits", key, (n + 3) / 4);
	for (int d = 0; d < len; d++) {
		int x = digit(s[len - 1 - d]);
		for (int b = 0; b < 4; b++) {
			if (x >= 0 && (x >> b & 1) == 0)
				continue;
			if (x < 0 || 4 * d + b >= n)
				return rk_fail(e, RK_EFAIL, "\"%s\" is not a mask of %d layers", key, n);
			bit[4 * d + b] = true;
		}
	}
	return 0;
}
