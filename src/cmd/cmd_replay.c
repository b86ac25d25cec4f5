/* cmd_replay.c: `refreshkv replay`: a recorded session again, from its trace and with no model: on a terminal on the
 * screen, elsewhere the reply on stdout and the figures on stderr, both as `run` printed them.  Two traces of the same prompt
 * are lanes of one session, held against the first lane of the first. */
#include "cmd/cmd.h"

#include <stdlib.h>
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
	.name = "replay", .operands = "TRACE [TRACE]", .groups = groups, .min_operand = 1, .max_operand = 2,
	.doc = "Show a recorded session again, without the model; or two of the same prompt side by side.",
};

/* What one call shows: a trace, or two side by side. */
struct show {
	const struct opts *o;
	const rk_opt_list *files;
	rk_trace *t[2];
	rk_pair *pair;
	rk_record r[2];
};

/* ---- as text ---- */

static void print_divergence(const rk_lane_record *first, const rk_lane_record *l)
{
	char ours[120], theirs[120];
	int64_t at = rk_record_divergence(first, l);
	if (at < 0)
		printf("(never leaves 1, over %zu tokens)\n", l->n_token);
	else
		printf("(leaves 1 at token %lld: %s instead of %s)\n", (long long)at, rk_record_choice(l, (size_t)at, NULL, ours, sizeof ours),
		       rk_record_choice(first, (size_t)at, NULL, theirs, sizeof theirs));
}

/* One lane's text went out as it was read; several come one after the other, at the end. */
static int print_lanes(const struct show *s, rk_err *e)
{
	for (int k = 0, n = 1; k < s->files->n; k++)
		for (int i = 0; i < rk_trace_head(s->t[k])->n_lane; i++, n++) {
			const rk_lane_record *l = &s->r[k].lane[i];
			const char *file = s->t[1] ? s->files->v[k] : "", *spec = s->r[k].stats.lane[i].spec;
			if (rk_pair_n_lane(s->pair) > 1) {
				printf("--- %d: %s%s%s\n", n, file, s->t[1] ? ": " : "", spec);
				rk_out_text(l->text ? l->text : "", l->text_len);
			}
			rk_out_end_line(l->text, l->text_len);
			if (s->t[1] && n > 1)
				print_divergence(&s->r[0].lane[0], l);
		}
	return rk_out_flush(stdout, "standard output", e);
}

static int read_all(struct show *s, int k, rk_err *e)
{
	rk_event ev;
	const void *payload;
	int rc;
	while ((rc = rk_trace_next(s->t[k], &ev, &payload, e)) > 0) {
		if (rk_record_add(&s->r[k], &ev, payload, e))
			return -1;
		if (ev.type == RK_EV_ERROR)
			fprintf(stderr, "refreshkv: the recorded command failed: %.*s\n", (int)ev.size, (const char *)payload);
		if ((ev.type == RK_EV_TOKEN || ev.type == RK_EV_END) && rk_pair_n_lane(s->pair) == 1 && ev.size)
			rk_out_text(payload, ev.size);
	}
	return rc;
}

static int show_as_text(struct show *s, rk_err *e)
{
	int rc = 0;
	for (int k = 0; k < s->files->n && rc == 0; k++) {
		rk_record_init(&s->r[k]);
		rc = read_all(s, k, e);
	}
	if (rc == 0)
		rc = print_lanes(s, e);
	for (int k = 0; k < s->files->n; k++) {
		for (int i = 0; i < rk_trace_head(s->t[k])->n_lane && rc == 0 && !s->o->quiet; i++)
			rk_cmd_print_figures(&s->r[k], i);
		rk_cmd_trace_remarks(stderr, "refreshkv: ", "\n", s->t[k], s->files->v[k], s->r[k].stats.lost);
		rk_record_free(&s->r[k]);
	}
	if (s->t[1] && !rk_pair_same_prompt(s->pair))
		fprintf(stderr, "refreshkv: these traces do not say what their prompts were: they may differ\n");
	return rc;
}

/* ---- on the screen ---- */

/* What the traces lack, as the first note of the conversation; NULL: nothing.  The caller frees it. */
static char *remarks(const struct show *s)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	if (!f)
		return NULL;
	for (int i = 0; i < s->files->n; i++)	/* losses are notes where they were */
		rk_cmd_trace_remarks(f, "", ". ", s->t[i], s->files->v[i], 0);
	if (s->t[1] && !rk_pair_same_prompt(s->pair))
		fputs("These traces do not say what their prompts were: they may differ.", f);
	if (fclose(f) == 0 && len)
		return text;
	free(text);
	return NULL;
}

static int show_on_screen(struct show *s, rk_err *e)
{
	rk_app_cfg cfg = { 0 };
	rk_vocab vocab;
	rk_replay r;
	if (rk_screen_opts_apply(&s->o->screen, &cfg, e))
		return -1;
	if (rk_vocab_open(&vocab, rk_trace_head(s->t[0]), s->o->model, e))
		return -1;
	char *lead = remarks(s);
	cfg.lead = lead;
	rk_replay_init(&r, s->pair, s->o->speed, NULL);
	rk_replay_vocabulary(&r, vocab.tok);
	int status = rk_app_run(&r.feed, &cfg, e);
	free(lead);
	rk_vocab_close(&vocab);
	return status;
}

int rk_cmd_replay(int argc, char **argv, rk_err *e)
{
	struct opts o;
	rk_opt_list files;
	struct show s = { .o = &o, .files = &files };
	int rc = -1;
	switch (rk_opt_parse(&rk_cmd_replay_opt, argc, argv, &o, &files, e)) {
	case 1: rk_opt_help(&rk_cmd_replay_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	if (rk_trace_open(&s.t[0], files.v[0], e) || (files.n > 1 && rk_trace_open(&s.t[1], files.v[1], e)) ||
	    rk_pair_open(&s.pair, s.t[0], s.t[1], e))
		goto out;
	rc = isatty(STDOUT_FILENO) && !o.plain ? show_on_screen(&s, e) : show_as_text(&s, e);
out:
	rk_pair_close(s.pair);
	rk_trace_close(s.t[1]);
	rk_trace_close(s.t[0]);
	return rc;
}
