/* memory.c: see memory.h */
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The beginning of a file of /proc or /sys, empty where it cannot be read. */
struct text { char s[4096]; };

static struct text text_of(const char *path)
{
	struct text t = { "" };
	FILE *f = fopen(path, "re");

	if (f) {
		t.s[fread(t.s, 1, sizeof t.s - 1, f)] = 0;
		fclose(f);
	}
	return t;
}

/* First unsigned number after `key` in a small file of /proc or /sys; UINT64_MAX when there is none ("max"). */
static uint64_t number_in(const char *path, const char *key)
{
	struct text t = text_of(path);
	uint64_t v = UINT64_MAX;
	const char *at = strstr(t.s, key);

	if (at && sscanf(at + strlen(key), "%" SCNu64, &v) != 1)
		v = UINT64_MAX;
	return v;
}

uint64_t rk_memory_left(void)
{
	uint64_t kib = number_in("/proc/meminfo", "MemAvailable:"), best = kib == UINT64_MAX ? kib : kib * 1024;
	uint64_t max = number_in("/sys/fs/cgroup/memory.max", ""), used = number_in("/sys/fs/cgroup/memory.current", "");
	uint64_t cached = number_in("/sys/fs/cgroup/memory.stat", "\nfile ");	/* counted as used, and given up on demand */
	struct rlimit as;

	if (max != UINT64_MAX && used != UINT64_MAX) {
		used -= cached < used ? cached : 0;
		uint64_t left = max > used ? max - used : 0;
		best = left < best ? left : best;
	}
	if (!getrlimit(RLIMIT_AS, &as) && as.rlim_cur != RLIM_INFINITY) {
		uint64_t pages = number_in("/proc/self/statm", "");	/* address space taken already */
		uint64_t taken = pages == UINT64_MAX ? 0 : pages * (uint64_t)sysconf(_SC_PAGESIZE);
		uint64_t left = as.rlim_cur > taken ? as.rlim_cur - taken : 0;
		if (left < best)
			best = left;
	}
	return best;
}

bool rk_huge_pages(void)
{
	struct text t = text_of("/sys/kernel/mm/transparent_hugepage/enabled");

	return t.s[0] && !strstr(t.s, "[never]");
}
