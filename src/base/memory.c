/* memory.c: see memory.h */
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* First unsigned number after `key` in a small file of /proc or /sys; UINT64_MAX when there is none ("max"). */
static uint64_t number_in(const char *path, const char *key)
{
	char buf[4096];
	FILE *f = fopen(path, "re");
	uint64_t v = UINT64_MAX;

	if (!f)
		return v;
	size_t n = fread(buf, 1, sizeof buf - 1, f);
	fclose(f);
	buf[n] = 0;
	const char *at = strstr(buf, key);
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
	char buf[64] = "";
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");

	if (!f)
		return false;
	size_t n = fread(buf, 1, sizeof buf - 1, f);
	fclose(f);
	buf[n] = 0;
	return n && !strstr(buf, "[never]");
}
