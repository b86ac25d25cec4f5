/* fuzz_policy.c: hostile policy specs, policy files and YAML.
 *
 * The first byte chooses: a spec, the text of a policy file, or plain YAML.  Whatever parses must be one of the policies
 * that its canonical spec describes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/yaml.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_policy(const rk_policy *p)
{
	char spec[RK_SPEC_MAX], again[RK_SPEC_MAX];
	rk_policy q;
	rk_policy_spec(p, spec);
	if (rk_policy_parse(&q, spec, NULL))
		abort();
	rk_policy_spec(&q, again);
	if (strcmp(spec, again) || rk_policy_budget(p, 4096) != rk_policy_budget(&q, 4096))
		abort();
	if (p->k <= 0 || p->pool % 2 == 0 || p->window < 1 || p->qc < 1 || p->stride < 1 || !(p->s > -1 && p->s <= 2))
		abort();
}

static void fuzz_spec(const char *spec)
{
	rk_policy p;
	rk_err e;
	if (strchr(spec, '/') || strstr(spec, ".yaml"))
		return;		/* names a file of this machine */
	if (!rk_policy_parse(&p, spec, &e))
		check_policy(&p);
}

/* Policy files are read by path, so the text goes through a file in memory. */
static void fuzz_file(const char *text, size_t len)
{
	char path[32];
	rk_policy p;
	rk_err e;
	int fd = memfd_create("policy", 0);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!rk_policy_parse(&p, path, &e))
		check_policy(&p);
	close(fd);
}

static int take(void *arg, const char *key, const char *value, int line, rk_err *e)
{
	size_t *sum = arg;
	(void)e;
	if (!key[0] || line < 1)
		abort();
	*sum += strlen(key) + strlen(value);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	char *text = malloc(size);	/* the rest of the input and a NUL, so that ASan sees a step past either end */
	if (!text)
		abort();
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	size_t sum = 0;
	rk_err e;
	switch (data[0] % 3) {
	case 0:
		fuzz_spec(text);
		break;
	case 1:
		fuzz_file(text, size - 1);
		break;
	default:
		rk_yaml_read("input", text, size - 1, take, &sum, &e);
	}
	free(text);
	return 0;
}
