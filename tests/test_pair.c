/* test_pair.c: two traces as one stream: in step, in one session, each lane in its place; and what does not go together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aid_trace.h"
#include "trace/pair.h"

/* A trace as a list of words: "s" a start, "3" the token of that index in lane 0, "b3" in lane 1, "e" an end, "i" idle, "g" a gap. */
static void add_word(FILE *f, const rk_trace_header *h, const char *word, int64_t t)
{
	static const char specs[] = "vanilla\nrefreshkv:qc=5\n";
	rk_event ev = { .type = RK_EV_IDLE, .lane = -1, .t_ns = t };
	const char *payload = NULL;
	char *line;
	size_t len;
	if (*word == 's') {
		ev.type = RK_EV_START;
		ev.start.n_prompt = 9;
		ev.start.n_lane = h->n_lane;
		ev.start.n_layer = N_LAYER;
		payload = specs;
		ev.size = h->n_lane == 2 ? (uint32_t)strlen(specs) : 8;
	} else if (*word == 'e') {
		ev.type = RK_EV_END;
		ev.lane = 0;
	} else if (*word == 'g') {
		ev.type = RK_EV_GAP;
		ev.gap.lost = 1;
	} else if (*word != 'i') {
		ev.type = RK_EV_TOKEN;
		ev.lane = *word == 'b';
		ev.index = atoi(word + (*word == 'b'));
		ev.token.kl = NAN;
		payload = "x";
		ev.size = 1;
	}
	assert_int_equal(rk_trace_event_line(h, &ev, payload, 0, &line, &len, NULL), 0);
	fwrite(line, 1, len, f);
	free(line);
}

static rk_trace *a_trace(const char *name, const rk_trace_header *h, const char *words, int64_t step_ns)
{
	char path[160], list[200], *line, *save = NULL;
	size_t len;
	rk_trace *t;
	rk_err e;
	int64_t at = 0;
	snprintf(path, sizeof path, "%s/%s", aid_dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(rk_trace_header_line(h, &line, &len, &e), 0);
	fwrite(line, 1, len, f);
	free(line);
	for (char *w = strtok_r(strcpy(list, words), " ", &save); w; w = strtok_r(NULL, " ", &save))
		add_word(f, h, w, at += step_ns);
	fclose(f);
	if (rk_trace_open(&t, path, &e))
		fail_msg("%s", e.msg);
	unlink(path);
	return t;
}

static rk_trace_header one_lane(void)
{
	rk_trace_header h = aid_header();
	h.n_lane = 1;
	strcpy(h.prompt_sha256, h.model_sha256);
	return h;
}

/* All of the pair as words: a capital letter is the lane, A the first. */
static void told(rk_pair *p, char *out)
{
	rk_event ev;
	const void *payload;
	rk_err e;
	int64_t last = 0;
	*out = '\0';
	while (rk_pair_next(p, &ev, &payload, &e) > 0) {
		out += strlen(out);
		assert_true(ev.t_ns >= last);
		last = ev.t_ns;
		switch (ev.type) {
		case RK_EV_START: sprintf(out, "s%d ", ev.start.n_lane); break;
		case RK_EV_TOKEN: sprintf(out, "%c%d ", 'A' + ev.lane, ev.index); break;
		case RK_EV_END: sprintf(out, "%ce ", 'A' + ev.lane); break;
		case RK_EV_GAP: strcpy(out, "g "); break;
		default: strcpy(out, "i ");
		}
	}
}

static void check_pair(const rk_trace_header *ha, const char *a, const rk_trace_header *hb, const char *b, const char *want)
{
	char out[400];
	rk_pair *p;
	rk_err e;
	rk_trace *ta = a_trace("a", ha, a, 1000), *tb = b ? a_trace("b", hb, b, 300) : NULL;
	if (rk_pair_open(&p, ta, tb, &e))
		fail_msg("%s", e.msg);
	for (int i = 0; i < 2; i++) {
		told(p, out);
		assert_string_equal(out, want);
		assert_int_equal(rk_pair_rewind(p, &e), 0);
	}
	rk_pair_close(p);
	rk_trace_close(ta);
	rk_trace_close(tb);
}

static void two_go_in_step(void **state)
{
	(void)state;
	rk_trace_header one = one_lane(), two = one_lane();
	two.n_lane = 2;
	check_pair(&one, "s 0 1 2 e i", NULL, NULL, "s1 A0 A1 A2 Ae i ");
	check_pair(&one, "s 0 1 2 e i", &one, "s 0 1 2 e i", "s2 A0 B0 A1 B1 A2 Ae B2 Be i i ");
	/* The shorter reply waits for the longer one before the next begins. */
	check_pair(&one, "s 0 e i 0 1 e i", &one, "s 0 1 2 e i 0 e i", "s2 A0 Ae B0 B1 B2 Be i i A0 B0 Be A1 Ae i i ");
	/* Lanes of the second come behind those of the first; one that goes on after lane 0's end goes in step too. */
	check_pair(&two, "s 0 b0 e b1 i", &one, "s 0 1 e i", "s3 A0 B0 Ae C0 B1 C1 Ce i i ");
	/* Sessions: one has ended after the first. */
	check_pair(&one, "s 0 i s 0 i", &one, "s 0 1 i", "s2 A0 B0 B1 i i s2 A0 i ");
	check_pair(&one, "s 0 i", &one, "g s 0 i s 0 i", "g s2 A0 B0 i i s2 B0 i ");
	/* A start that was lost, and a trace with nothing in it. */
	check_pair(&one, "0 1 i", &one, "s 0 i", "s2 A0 B0 A1 i i ");
	check_pair(&one, "s 0 i", &one, "", "s2 A0 i ");
	check_pair(&two, "", &one, "s 0 i", "s3 C0 i ");
}

static void what_differs_is_refused(void **state)
{
	(void)state;
	rk_trace_header a = one_lane(), b = one_lane();
	rk_trace *ta = a_trace("a", &a, "s 0 i", 1), *tb;
	rk_pair *p;
	rk_err e;
	b.prompt_sha256[0] = 'f';
	tb = a_trace("b", &b, "s 0 i", 1);
	assert_int_equal(rk_pair_open(&p, ta, tb, &e), -1);
	assert_non_null(strstr(e.msg, "different prompts"));
	rk_trace_close(tb);
	b = one_lane();
	b.after = 3;
	tb = a_trace("b", &b, "s 0 i", 1);
	assert_int_equal(rk_pair_open(&p, ta, tb, &e), -1);
	assert_non_null(strstr(e.msg, "different tokens of their sessions (0 and 3)"));
	rk_trace_close(tb);
	b = one_lane();
	b.n_vocab = 999;
	tb = a_trace("b", &b, "s 0 i", 1);
	assert_int_equal(rk_pair_open(&p, ta, tb, &e), -1);
	assert_non_null(strstr(e.msg, "numbers of tokens (1000 and 999)"));
	rk_trace_close(tb);
	/* Prompts that are not known may go together, and that is told. */
	b = one_lane();
	b.prompt_sha256[0] = '\0';
	tb = a_trace("b", &b, "s 0 i", 1);
	assert_int_equal(rk_pair_open(&p, ta, tb, &e), 0);
	assert_false(rk_pair_same_prompt(p));
	rk_pair_close(p);
	rk_trace_close(tb);
	rk_trace_close(ta);
}

static void lanes_that_the_header_has_not_are_errors(void **state)
{
	(void)state;
	rk_trace_header h = one_lane();
	rk_trace *a = a_trace("a", &h, "s 0 i", 1), *b = a_trace("b", &h, "s b0 0 i", 1);
	const void *payload;
	rk_event ev;
	rk_pair *p;
	rk_err e;
	int rc, n_bad = 0;
	assert_int_equal(rk_pair_open(&p, a, b, &e), 0);
	while ((rc = rk_pair_next(p, &ev, &payload, &e)))
		if (rc < 0) {
			n_bad++;
			assert_non_null(strstr(e.msg, "an event of lane 1"));
		} else {
			assert_true(ev.lane < 2);
		}
	assert_int_equal(n_bad, 1);
	rk_pair_close(p);
	rk_trace_close(a);
	rk_trace_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_go_in_step), cmocka_unit_test(what_differs_is_refused), cmocka_unit_test(lanes_that_the_header_has_not_are_errors),
	};
	return cmocka_run_group_tests(tests, aid_make_dir, aid_remove_dir);
}
