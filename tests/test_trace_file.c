/* test_trace_file.c: files of traces and the recorder that writes them: what goes in comes out, whatever happens to the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aid_trace.h"
#include "trace/recorder.h"

static size_t file_size(void)
{
	struct stat st;
	return stat(aid_path, &st) ? 0 : (size_t)st.st_size;
}
/* Pushes n random events (times ascending from now on, as an engine's are) and remembers them. */
struct memory {
	int n;
	rk_event *ev;
	char **payload;
};

static struct memory feed(rk_recorder *r, int n)
{
	struct memory m = { n, calloc((size_t)n, sizeof *m.ev), calloc((size_t)n, sizeof *m.payload) };
	char *payload = malloc(1 << 20);
	rk_err e;
	for (int i = 0; i < n; i++) {
		int type = i == 0 ? RK_EV_START : RK_EV_START + (int)aid_below(RK_EV_ERROR + 1);
		aid_random_event(&m.ev[i], payload, type);
		m.ev[i].t_ns = 0;	/* now */
		m.payload[i] = malloc(m.ev[i].size + 1);
		memcpy(m.payload[i], payload, m.ev[i].size);
		assert_int_equal(rk_recorder_push(r, &m.ev[i], payload, &e), 0);
	}
	free(payload);
	return m;
}

static void forget(struct memory *m)
{
	for (int i = 0; i < m->n; i++)
		free(m->payload[i]);
	free(m->payload);
	free(m->ev);
}

static void record(const char *name, int n, struct memory *m)
{
	rk_trace_header h = aid_header();
	rk_recorder *r;
	rk_err e;
	snprintf(aid_path, sizeof aid_path, "%s/%s", aid_dir, name);
	assert_int_equal(rk_recorder_open(&r, aid_path, false, true, &h, NULL, &e), 0);
	*m = feed(r, n);
	assert_int_equal(rk_recorder_close(r, &e), 0);
}

static void check_next(rk_trace *t, const struct memory *m, int i)
{
	rk_event ev;
	const void *payload;
	rk_err e;
	if (rk_trace_next(t, &ev, &payload, &e) != 1)
		fail_msg("event %d: %s", i, e.msg);
	ev.t_ns = m->ev[i].t_ns;
	aid_assert_same_event(&m->ev[i], m->payload[i], &ev, payload);
}

static void files_read_back(const char *name)
{
	struct memory m;
	rk_trace *t;
	rk_event ev;
	const void *payload;
	rk_err e;
	record(name, 3000, &m);
	if (rk_trace_open(&t, aid_path, &e))
		fail_msg("%s", e.msg);
	assert_false(rk_trace_cut(t));
	int64_t n_token = 0, last = -1;
	for (int i = 0; i < m.n; i++) {
		check_next(t, &m, i);
		n_token += m.ev[i].type == RK_EV_TOKEN && m.ev[i].lane == 0;
		assert_int_equal(rk_trace_tell(t), n_token);
	}
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_n_token(t), n_token);
	/* Seeking: forwards, backwards, over the ends. */
	for (int k = 0; k < 200; k++) {
		int64_t want = k % 3 == 0 ? n_token - 1 - k / 3 : (int64_t)aid_below((uint32_t)n_token), seen = 0;
		int i = 0;
		while (!(m.ev[i].type == RK_EV_TOKEN && m.ev[i].lane == 0 && seen++ == want))
			i++;
		assert_int_equal(rk_trace_seek(t, want, &e), 0);
		assert_int_equal(rk_trace_tell(t), want == 0 ? 0 : want);
		if (want > 0)
			for (int j = i; j < i + 5 && j < m.n; j++)
				check_next(t, &m, j);
	}
	assert_int_equal(rk_trace_seek(t, n_token, &e), 0);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_seek(t, INT64_MAX, &e), 0);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 0);
	assert_int_equal(rk_trace_seek(t, -5, &e), 0);
	check_next(t, &m, 0);
	/* Times ascend. */
	assert_int_equal(rk_trace_seek(t, 0, &e), 0);
	while (rk_trace_next(t, &ev, &payload, &e) == 1) {
		assert_true(ev.t_ns >= last);
		last = ev.t_ns;
	}
	assert_int_equal(rk_trace_duration_ns(t), last);
	rk_trace_close(t);
	forget(&m);
}

static void plain_files_read_back(void **state)
{
	(void)state;
	files_read_back("t.jsonl");
}

static void compressed_files_read_back(void **state)
{
	(void)state;
	files_read_back("t.jsonl.zst");
}

/* Every cut of a file can be read up to its last whole line. */
static void cut_files_read_to_the_last_line(void **state)
{
	(void)state;
	struct memory m;
	rk_event ev;
	const void *payload;
	rk_err e;
	for (int z = 0; z < 2; z++) {
		record(z ? "t.jsonl.zst" : "t.jsonl", 60, &m);
		for (size_t n = file_size(); n-- > 0; n -= n % 7) {
			rk_trace *t;
			assert_int_equal(truncate(aid_path, (off_t)n), 0);
			if (rk_trace_open(&t, aid_path, &e)) {
				assert_non_null(strstr(e.msg, "not a trace"));	/* the header is not whole */
				continue;
			}
			int i = 0, rc;
			while ((rc = rk_trace_next(t, &ev, &payload, &e)) == 1) {
				assert_int_equal(ev.type, m.ev[i].type);
				i++;
			}
			assert_int_equal(rc, 0);
			assert_true(z ? rk_trace_cut(t) : i < m.n);
			rk_trace_close(t);
		}
		aid_clean(NULL);
		forget(&m);
	}
}

static void damage_is_named_by_line(void **state)
{
	(void)state;
	rk_trace_header h = aid_header();
	char *line, want[256];
	size_t len;
	rk_event ev;
	const void *payload;
	rk_trace *t;
	rk_err e;
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	FILE *f = fopen(aid_path, "wb");
	fwrite(line, 1, len, f);
	free(line);
	fputs("{\"ev\":\"idle\",\"lane\":-1,\"t\":1}\nrubbish\n{\"lane\": 0, \"t\": 5, \"ev\": \"idle\"}\n", f);
	fclose(f);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), 0);
	assert_int_equal(rk_trace_duration_ns(t), 5);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 1);
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), -1);
	snprintf(want, sizeof want, "%s:3: not JSON", aid_path);
	assert_memory_equal(e.msg, want, strlen(want));
	assert_int_equal(rk_trace_next(t, &ev, &payload, &e), 1);	/* reading goes on behind it */
	assert_int_equal(ev.t_ns, 5);
	rk_trace_close(t);
}

static void endless_lines_are_refused(void **state)
{
	(void)state;
	rk_trace_header h = aid_header();
	char *line, want[200], *fill = malloc(1 << 20);
	size_t len;
	rk_trace *t;
	rk_err e;
	struct rusage before, after;
	memset(fill, 'x', 1 << 20);
	assert_int_equal(rk_trace_header_line(&h, &line, &len, &e), 0);
	FILE *f = fopen(aid_path, "wb");
	fwrite(line, 1, len, f);
	for (int i = 0; i < 100; i++)
		fwrite(fill, 1, 1 << 20, f);
	fputs("\n{\"ev\":\"idle\",\"lane\":-1,\"t\":1}\n", f);
	fclose(f);
	free(line);
	free(fill);
	getrusage(RUSAGE_SELF, &before);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), -1);
	getrusage(RUSAGE_SELF, &after);
	snprintf(want, sizeof want, "%s:2: a line of more than %u bytes", aid_path, RK_TRACE_MAX_LINE);
	assert_string_equal(e.msg, want);
	assert_true(after.ru_maxrss - before.ru_maxrss < 40 * 1024);
}

/* ---- the recorder ---- */

static void nothing_is_overwritten(void **state)
{
	(void)state;
	rk_trace_header h = aid_header();
	rk_recorder *r;
	rk_err e;
	aid_write_file("precious", 8);
	assert_int_equal(rk_recorder_open(&r, aid_path, false, true, &h, NULL, &e), -1);
	assert_int_equal(e.code, RK_EUSAGE);
	assert_non_null(strstr(e.msg, ": exists"));
	assert_int_equal(file_size(), 8);
	assert_int_equal(rk_recorder_open(&r, aid_path, true, true, &h, NULL, &e), 0);
	assert_int_equal(rk_recorder_close(r, &e), 0);
	assert_true(file_size() > 100);
	assert_int_equal(rk_recorder_open(&r, "/nonexistent/x", false, true, &h, NULL, &e), -1);
	assert_int_equal(e.code, RK_EFAIL);
}

/* A disk that is full after 20 kB: said once, nothing waits for ever, and the file ends with a whole line. */
static void write_errors_stop_the_recording_only(void **state)
{
	(void)state;
	for (int z = 0; z < 2; z++) {
		rk_trace_header h = aid_header();
		rk_recorder *r;
		rk_event ev;
		const void *got;
		rk_trace *t;
		rk_err e;
		char *payload = malloc(1 << 20);
		struct rlimit old, small;
		snprintf(aid_path, sizeof aid_path, "%s/t.jsonl%s", aid_dir, z ? ".zst" : "");
		getrlimit(RLIMIT_FSIZE, &old);
		small = (struct rlimit){ 20000, old.rlim_max };
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &small);
		assert_int_equal(rk_recorder_open(&r, aid_path, false, true, &h, NULL, &e), 0);
		int told = 0;
		for (int i = 0; i < 3000; i++) {
			aid_random_event(&ev, payload, i == 0 ? RK_EV_START : RK_EV_OCCUPANCY);
			if (rk_recorder_push(r, &ev, payload, &e)) {
				told++;
				assert_non_null(strstr(e.msg, "recording stopped: "));
				assert_non_null(strstr(e.msg, aid_path));
			}
		}
		if (rk_recorder_close(r, &e))
			told++;
		assert_int_equal(told, 1);
		setrlimit(RLIMIT_FSIZE, &old);
		assert_true(file_size() <= 20000);
		if (rk_trace_open(&t, aid_path, &e))
			fail_msg("%s", e.msg);
		assert_int_equal(rk_trace_cut(t), z);	/* the last frame of a compressed file has no end */
		int rc;
		while ((rc = rk_trace_next(t, &ev, &got, &e)) == 1)
			;
		assert_int_equal(rc, 0);
		rk_trace_close(t);
		aid_clean(NULL);
		free(payload);
	}
}

/* Killed without warning, a recording can be read up to the last 50 ms. */
static void kill_leaves_a_readable_trace(void **state)
{
	(void)state;
	for (int z = 0; z < 2; z++) {
		snprintf(aid_path, sizeof aid_path, "%s/t.jsonl%s", aid_dir, z ? ".zst" : "");
		pid_t child = fork();
		if (child == 0) {
			rk_trace_header h = aid_header();
			rk_recorder *r;
			rk_event ev;
			char *payload = malloc(1 << 20);
			if (rk_recorder_open(&r, aid_path, false, true, &h, NULL, NULL))
				_exit(1);
			for (int i = 0; ; i++) {
				aid_random_event(&ev, payload, i == 0 ? RK_EV_START : RK_EV_STEP);
				rk_recorder_push(r, &ev, payload, NULL);
				usleep(1000);
			}
		}
		usleep(400000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		rk_trace *t;
		rk_event ev;
		const void *payload;
		rk_err e;
		int n = 0, rc;
		if (rk_trace_open(&t, aid_path, &e))
			fail_msg("%s", e.msg);
		while ((rc = rk_trace_next(t, &ev, &payload, &e)) == 1)
			n++;
		assert_int_equal(rc, 0);
		assert_true(n > 20);
		rk_trace_close(t);
		aid_clean(NULL);
	}
}

/* A recorder that may not hold up its feeder loses events, and the trace says how many. */
static void losses_are_gaps(void **state)
{
	(void)state;
	rk_trace_header h = aid_header();
	rk_recorder *r;
	rk_trace *t;
	rk_event ev;
	const void *payload;
	rk_err e;
	const int n = 60000;
	char *bytes = malloc(1 << 20);
	assert_int_equal(rk_recorder_open(&r, aid_path, false, false, &h, NULL, &e), 0);
	aid_random_event(&ev, bytes, RK_EV_OCCUPANCY);
	for (int i = 0; i < n; i++)
		rk_recorder_push(r, &ev, bytes, &e);
	assert_int_equal(rk_recorder_close(r, &e), 0);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), 0);
	int64_t kept = 0, lost = 0;
	while (rk_trace_next(t, &ev, &payload, &e) == 1)
		if (ev.type == RK_EV_GAP)
			lost += ev.gap.lost;
		else if (ev.type != RK_EV_START)	/* the reader's */
			kept++;
	assert_true(lost > 0);
	assert_true(kept > 0);
	assert_int_equal(kept + lost, n);
	rk_trace_close(t);
	free(bytes);
}

/* Whoever ends a recording on the screen does not wait for the model's digest: of this one there is no end. */
static void a_digest_is_broken_off(void **state)
{
	rk_trace_header h = aid_header();
	rk_recorder *r;
	rk_trace *t;
	rk_err e;

	(void)state;
	h.model_sha256[0] = '\0';
	assert_int_equal(rk_recorder_open(&r, aid_path, true, false, &h, "/dev/zero", &e), 0);
	assert_int_equal(rk_recorder_close(r, &e), 0);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), 0);
	assert_string_equal(rk_trace_head(t)->model_sha256, "");
	rk_trace_close(t);
}

/* A model that was hashed once is not hashed again: of this one there is no end. */
static void a_digest_is_made_once(void **state)
{
	rk_trace_header h = aid_header();
	rk_recorder *r;
	rk_trace *t;
	rk_err e;

	(void)state;
	assert_int_equal(rk_recorder_open(&r, aid_path, true, false, &h, "/dev/zero", &e), 0);
	assert_string_equal(rk_recorder_model(r), h.model_sha256);
	assert_int_equal(rk_recorder_close(r, &e), 0);
	assert_int_equal(rk_trace_open(&t, aid_path, &e), 0);
	assert_string_equal(rk_trace_head(t)->model_sha256, h.model_sha256);
	rk_trace_close(t);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, aid_fresh, aid_clean)
	const struct CMUnitTest tests[] = {
		T(plain_files_read_back), T(compressed_files_read_back), T(cut_files_read_to_the_last_line), T(damage_is_named_by_line),
		T(endless_lines_are_refused), T(nothing_is_overwritten), T(write_errors_stop_the_recording_only), T(kill_leaves_a_readable_trace),
		T(losses_are_gaps), T(a_digest_is_broken_off), T(a_digest_is_made_once),
	};
	return cmocka_run_group_tests(tests, aid_make_dir, aid_remove_dir);
}
