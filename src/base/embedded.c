/* embedded.c: see embedded.h */
#include "base/embedded.h"

#include <string.h>

const rk_embedded *rk_embedded_find(const char *name)
{
	for (size_t i = 0; i < rk_embedded_count; i++)
		if (!strcmp(rk_embedded_files[i].name, name))
			return &rk_embedded_files[i];
	return NULL;
}
