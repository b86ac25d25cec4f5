/* err.c: see err.h */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

int rk_fail(rk_err *e, enum rk_code code, const char *fmt, ...)
{
	if (!e)
		return -1;
	e->code = code;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	return -1;
}
