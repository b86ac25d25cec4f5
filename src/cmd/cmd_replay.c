/* cmd_replay.c: `refreshkv replay`: a recorded session again, from its trace and with no model: on a terminal on the
 * screen, elsewhere the reply on stdout and the figures on stderr, both as `run` printed them. */
#include "cmd/cmd.h"

#include <unistd.h>
#include "cmd/out.h"
#include "cmd/replay_feed.h"
#include "cmd/screen_opts.h"
#include "cmd/vocab.h"

struct opts {
	rk_screen_opts screen;
	const char *model;
	bool quiet, plain;
	double speed;
};

static const rk_opt rows[] = {
	{ "quiet", 'q', RK_OPT_FLAG, offsetof(struct opts, quiet), .doc = "no figures on stderr" },
	{ "plain", 0, RK_OPT_FLAG, offsetof(struct opts, plain), .doc = "text and figures instead of the screen, also on a terminal" },
	{ "speed", 0, RK_OPT_DOUBLE, offsetof(struct opts, speed), .def = "1", .min = 0, .max = 1000, .metavar = "TIMES",
	  .doc = "on the screen: times the recorded pace; 0: at once" },
	{ "model", 'm', RK_OPT_STR, offsetof(struct opts, model), .metavar = "FILE",
	  .doc = "the recorded model, for the text of tokens that might have been chosen; without it the default model, if it is that" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Replay", rows, 0 },
	{ "Screen", rk_screen_rows, offsetof(struct opts, screen) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_replay_opt = {
	.name = "replay", .operands = "TRACE", .groups = groups, .min_operand = 1, .max_operand = 1,
	.doc = "Show a recorded session again, without the model.",
};

/* One lane's text goes out as it is read; several come one after the other, at the end. */
static int print_lanes(const rk_record *r, int n_lane, rk_err *e)
{
	for (int i = 0; i < n_lane; i++) {
		const rk_lane_record *l = &r->lane[i];
		if (n_lane > 1) {
			printf("--- %d: %s\n", i + 1, r->stats.lane[i].spec);
			rk_out_text(l->text ? l->text : "", l->text_len);
		}
		if (l->text_len && l->text[l->text_len - 1] != '\n')
			putchar('\n');
	}
	return rk_out_flush(stdout, "standard output", e);
}

static int play(rk_trace *t, rk_record *r, rk_err *e)
{
	rk_event ev;
	const void *payload;
	int rc;
	while ((rc = rk_trace_next(t, &ev, &payload, e)) > 0) {
		if (rk_record_add(r, &ev, payload, e))
			return -1;
		if (ev.type == RK_EV_ERROR)
			fprintf(stderr, "refreshkv: the recorded command failed: %.*s\n", (int)ev.size, (const char *)payload);
		if ((ev.type == RK_EV_TOKEN || ev.type == RK_EV_END) && rk_trace_head(t)->n_lane == 1 && ev.size)
			rk_out_text(payload, ev.size);
	}
	return rc;
}

static int play_on_screen(rk_trace *t, const struct opts *o, rk_err *e)
{
	rk_app_cfg cfg = { 0 };
	rk_vocab vocab;
	rk_replay r;
	if (rk_screen_opts_apply(&o->screen, &cfg, e))
		return -1;
	if (rk_vocab_open(&vocab, rk_trace_head(t), o->model, e))
		return -1;
	rk_replay_init(&r, t, o->speed, NULL);
	rk_replay_vocabulary(&r, vocab.tok);
	int status = rk_app_run(&r.feed, &cfg, e);
	rk_vocab_close(&vocab);
	return status;
}

int rk_cmd_replay(int argc, char **argv, rk_err *e)
{
	struct opts o;
	rk_opt_list files;
	rk_trace *t;
	rk_record r;
	switch (rk_opt_parse(&rk_cmd_replay_opt, argc, argv, &o, &files, e)) {
	case 1: rk_opt_help(&rk_cmd_replay_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	if (rk_trace_open(&t, files.v[0], e))
		return -1;
	if (isatty(STDOUT_FILENO) && !o.plain) {
		int status = play_on_screen(t, &o, e);
		rk_trace_close(t);
		return status;
	}
	rk_record_init(&r);
	int n_lane = rk_trace_head(t)->n_lane;
	int rc = play(t, &r, e);
	if (rc == 0)
		rc = print_lanes(&r, n_lane, e);
	for (int i = 0; i < n_lane && rc == 0 && !o.quiet; i++)
		rk_cmd_print_figures(&r, i);
	rk_cmd_trace_remarks(t, files.v[0], r.stats.lost);
	rk_record_free(&r);
	rk_trace_close(t);
	return rc;
}
