/* fuzz_trace.c: hostile traces, read to the end, sought in, summed up and exported in every format.
 *
 * The first byte chooses whether the rest is a whole file or follows a valid header, so that the events are reached.  What
 * was read once must be read again in the same way after a seek, and beside itself.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "trace/export.h"
#include "trace/pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char header[] =
	"{\"schema\":\"refreshkv-trace\",\"version\":1,\"model\":{\"n_layer\":3,\"n_head\":4,\"n_kv_head\":2,\"head_dim\":16,\"n_vocab\":307},"
	"\"engine\":{\"threads\":1,\"exact\":false},\"context\":4096,\"chunk\":512,\"shadow\":true,\"positions\":true,"
	"\"policies\":[\"vanilla\",\"refreshkv:qc=5\"],\"follow\":\"first\","
	"\"sampling\":{\"temp\":0.0,\"top_k\":0,\"top_p\":1.0,\"min_p\":0.0,\"seed\":0}}\n";

/* Reads to the end; returns how many events there were.  Lines that are not events are passed over. */
static int read_all(rk_trace *t, rk_stats *s)
{
	rk_event ev;
	const void *payload;
	rk_err e;
	int n = 0, rc, bad = 0;
	while ((rc = rk_trace_next(t, &ev, &payload, &e)) && bad < 1000) {
		if (rc < 0) {
			bad++;
			continue;
		}
		n++;
		if (ev.size && !payload)
			abort();
		if (s)
			rk_stats_add(s, &ev, payload, &e);
	}
	return n;
}

/* The trace beside itself: lanes stay below their number, and the second reading is the first one. */
static void look_beside(const char *path, rk_trace *t)
{
	const void *payload;
	rk_trace *other;
	rk_pair *p;
	rk_event ev;
	rk_err e;
	int n[2] = { 0 };
	if (rk_trace_open(&other, path, &e))
		abort();
	if (rk_pair_open(&p, t, other, &e) == 0) {
		for (int i = 0; i < 2; i++) {
			if (rk_pair_rewind(p, &e))
				abort();
			for (int rc, bad = 0; (rc = rk_pair_next(p, &ev, &payload, &e)) && bad < 1000; bad += rc < 0, n[i] += rc > 0)
				if (rc > 0 && ev.lane >= rk_pair_n_lane(p))
					abort();
		}
		if (n[0] != n[1])
			abort();
		rk_pair_close(p);
	}
	rk_trace_close(other);
}

static void look_at(rk_trace *t)
{
	rk_stats s;
	rk_err e;
	FILE *f = fopen("/dev/null", "w");
	if (!f)
		abort();
	rk_stats_init(&s);
	int n = read_all(t, &s);
	rk_stats_free(&s);
	int64_t n_token = rk_trace_n_token(t);
	rk_trace_seek(t, n_token / 2, &e);
	read_all(t, NULL);
	if (rk_trace_seek(t, 0, &e) == 0 && read_all(t, NULL) != n)
		abort();
	rk_export_csv(t, &(rk_csv_files){ f, f, f }, &e);
	rk_export_chrome(t, f, &e);
	rk_export_html(t, f, &e);
	for (int i = 0; i < RK_N_PANE; i++)
		rk_export_svg(t, (enum rk_pane)i, f, &e);
	fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32];
	rk_trace *t;
	rk_err e;
	int fd = memfd_create("trace", 0);
	if (fd < 0 || size == 0)
		return 0;
	if ((data[0] & 1) && write(fd, header, sizeof header - 1) != sizeof header - 1)
		abort();
	if (write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (rk_trace_open(&t, path, &e) == 0) {
		look_at(t);
		look_beside(path, t);
		rk_trace_close(t);
	} else if (!e.msg[0]) {
		abort();
	}
	close(fd);
	return 0;
}
