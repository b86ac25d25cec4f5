/* digest.c: see digest.h */
#include "trace/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void finish(struct sha256_ctx *c, char out[65])
{
	uint8_t d[SHA256_DIGEST_SIZE];

	sha256_digest(c, sizeof d, d);
	for (size_t i = 0; i < sizeof d; i++)
		snprintf(out + 2 * i, 3, "%02x", d[i]);
}

void rk_digest(const void *data, size_t n, char out[65])
{
	struct sha256_ctx c;

	sha256_init(&c);
	if (n)
		sha256_update(&c, n, data);
	finish(&c, out);
}

int rk_digest_file(const char *path, char out[65], const _Atomic bool *stop, rk_err *e)
{
	struct sha256_ctx c;
	uint8_t buf[1 << 16];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	sha256_init(&c);
	while (fd >= 0 && ((n = read(fd, buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR)))
		if (n > 0 && !(stop && atomic_load(stop)))
			sha256_update(&c, (size_t)n, buf);
		else if (n > 0)
			break;
	if (n > 0)
		rk_fail(e, RK_EFAIL, "%s: stopped", path);
	else if (n < 0)
		rk_fail(e, RK_EFAIL, "%s: cannot read: %s", path, strerror(errno));
	else
		finish(&c, out);
	if (fd >= 0)
		close(fd);
	return n ? -1 : 0;
}
