/* plan.c: see plan.h */
#include "engine/plan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "engine/session.h"

/* C_f of a lane's own tokens, and the queries that its refreshes compare with. */
static size_t tail_bytes(const rk_backend *b, int max_new)
{
	return rk_store_bytes(b->hp, max_new, b->kv_bytes) + rk_reference_bytes(b->hp);
}

void rk_plan_make(rk_plan *p, const rk_backend *b, size_t weight_bytes, const rk_session_cfg *cfg, int n_prompt, int max_new)
{
	*p = (rk_plan){ .n_prompt = n_prompt, .max_new = max_new, .n_lane = cfg->n_lane, .weights = weight_bytes };
	p->prompt_store = rk_store_bytes(b->hp, n_prompt, b->kv_bytes);
	p->activations = rk_act_bytes(b, cfg, n_prompt);
	p->backend = b->scratch_bytes;
	p->total = p->weights + p->prompt_store + p->activations + p->backend;
	unsigned shared = 1;	/* widths that the prompt's sketches have; none take no room */
	for (int i = 0; i < cfg->n_lane; i++) {
		const rk_policy *pol = &cfg->lane[i];
		if (pol->bits)
			p->sketch += rk_sketch_bytes(b->hp, max_new, pol->bits) + (shared == 1 ? rk_mean_bytes(b->hp) : 0) +
			             (shared & 1u << pol->bits ? 0 : rk_sketch_bytes(b->hp, n_prompt, pol->bits));
		shared |= 1u << pol->bits;
		bool keeps_full = cfg->keep_full || rk_policy_keeps_full(pol);
		if (keeps_full)
			p->tail[i] = tail_bytes(b, max_new);
		p->partial[i] = rk_partial_bytes(b->hp, rk_partial_cap(pol, n_prompt, max_new), b->ops->ring_copies(pol, keeps_full) ? b->kv_bytes : 0,
		                                 pol->score == RK_SCORE_ACCUMULATED);
		p->total += p->tail[i] + p->partial[i];
	}
	p->total += p->sketch;
	if (cfg->shadow)
		p->total += p->tail[cfg->n_lane] = tail_bytes(b, max_new);
}

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

static uint64_t memory_available(void)
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

int rk_plan_check(const rk_plan *p, rk_backend *b, rk_err *e)
{
	bool device = b->ops->memory_left;
	size_t held = p->weights + p->backend, need = device ? p->total - held : p->total;	/* a device holds these since it was opened */
	uint64_t have = device ? b->ops->memory_left(b) : memory_available();

	if (need <= have)
		return 0;
	return rk_fail(e, RK_ENOMEM, "not enough memory%s%s: this session needs %.1f MB (%.1f MB of it KV cache for %d + %d tokens), "
	               "%.1f MB are available; lower --ctx or -n, or use fewer lanes", device ? " on " : "", device ? b->device : "",
	               (double)need / 1e6, (double)(p->total - held - p->activations) / 1e6, p->n_prompt, p->max_new, (double)have / 1e6);
}
