/* cmd_chat.c: `refreshkv chat [DOC]`: the screen over a live engine; also what a plain `refreshkv` on a terminal opens, and
 * what `refreshkv demo` hands over to. */
#include "cmd/cmd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/embedded.h"
#include "cmd/machine.h"
#include "cmd/doc.h"
#include "cmd/live.h"
#include "cmd/out.h"
#include "cmd/screen_opts.h"
#include "trace/digest.h"

struct opts {
	rk_model_opts model;
	rk_engine_opts engine;
	rk_sampling_opts sampling;
	rk_screen_opts screen;
	rk_trace_opts trace;
	rk_opt_list policy;
	const char *question, *system, *resume;
	int ctx;
	bool no_shadow, follow, lossy;
};

static const rk_opt rows[] = {
	{ "policy", 0, RK_OPT_LIST, offsetof(struct opts, policy), .metavar = "SPEC",
	  .doc = "KV-cache policy; repeat it (up to 4) to see policies side by side on the same question; without it: that of the "
	         "settings file, or refreshkv (demo: refreshkv:qc=1)" },
	{ "prompt", 'p', RK_OPT_STR, offsetof(struct opts, question), .metavar = "TEXT", .doc = "a first question, asked at once" },
	{ "system", 0, RK_OPT_STR, offsetof(struct opts, system), .metavar = "TEXT", .doc = "system message instead of the template's own" },
	{ "ctx", 'c', RK_OPT_INT, offsetof(struct opts, ctx), .def = "0", .min = 0, .max = 1 << 24, .metavar = "TOKENS",
	  .doc = "longest conversation; 0: the model's training context" },
	{ "follow", 0, RK_OPT_FLAG, offsetof(struct opts, follow),
	  .doc = "all lanes take the first lane's tokens, so that their figures are over the same text" },
	{ "no-shadow", 0, RK_OPT_FLAG, offsetof(struct opts, no_shadow),
	  .doc = "no vanilla shadow: faster, but no baseline for the perplexity ratio" },
	{ "lossy", 0, RK_OPT_FLAG, offsetof(struct opts, lossy),
	  .doc = "replace invalid UTF-8 and NUL bytes in the document by U+FFFD instead of refusing it" },
	{ "resume", 0, RK_OPT_STR, offsetof(struct opts, resume), .metavar = "NAME", .doc = "go on with a conversation saved by :save NAME" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Conversation", rows, 0 },
	{ "Screen", rk_screen_rows, offsetof(struct opts, screen) },
	{ "Sampling", rk_sampling_rows, offsetof(struct opts, sampling) },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ "Engine", rk_engine_rows, offsetof(struct opts, engine) },
	{ "Recording", rk_trace_rows, offsetof(struct opts, trace) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_chat_opt = {
	.name = "chat", .operands = "[DOC]", .groups = groups, .more = rk_policy_help, .max_operand = 1,
	.doc = "Chat about a document on the screen, and watch the cache.",
};

const rk_opt_cmd rk_cmd_demo_opt = {
	.name = "demo", .operands = "", .groups = groups, .more = rk_policy_help,
	.doc = "A demonstration on the screen: the handbook, a prepared question, and what the cache does; no typing needed.",
};

#define DEMO_QUESTION "Why does StreamingLLM keep the first four tokens?"
#define DEMO_POLICY "refreshkv:qc=1"	/* the default's qc=5 is blind for four steps of five, which costs much with a text that quotes */
#define DEMO_PACE 12			/* tokens per second: slow enough to watch */
#define DEMO_LEAD \
	"Demonstration. The model reads this program's handbook, then follows a prepared answer word by word (forced), so that RefreshKV and " \
	"full attention (vanilla) are judged on the same words.\n" \
	"Watch what a step reads (Speed), which layers look at everything again (Timeline, █), and what is lost by reading less " \
	"(Perplexity ratio; 1.00: nothing).\n" \
	"Then ask anything. Esc goes to the panes; there t is a tour, ? explains every key and word, and p changes the policy: qc=5 reads " \
	"less and loses more."

/* ---- what the screen talks about ---- */

struct session {
	struct opts o;
	rk_app_cfg app;
	char *document;
	const char *document_name;
	rk_engine_cfg cfg;
	rk_engine *g;
	rk_live live;
	char document_sha256[65];
	bool demo;
};

/* A document from standard input leaves the keyboard on /dev/tty; the screen sees to that. */
static int read_document(struct session *s, const rk_opt_list *operand, rk_err *e)
{
	size_t len;
	const char *path = operand->n ? operand->v[0] : rk_doc_on_stdin() ? "-" : NULL;

	if (s->demo) {
		const rk_embedded *f = rk_embedded_find("docs/handbook.md");
		s->document_name = "the handbook";
		s->document = strdup(f->data);
		if (!s->document)
			return rk_fail(e, RK_ENOMEM, "no memory for the handbook");
		rk_digest(s->document, strlen(s->document), s->document_sha256);
		return 0;
	}
	if (!path)
		return 0;
	const char *base = strrchr(path, '/');
	s->document_name = !strcmp(path, "-") ? "standard input" : base ? base + 1 : path;
	if (rk_doc_read(path, s->o.lossy, &s->document, &len, e))
		return -1;
	rk_digest(s->document, len, s->document_sha256);
	return 0;
}

static int read_settings(struct session *s, rk_err *e)
{
	struct opts *o = &s->o;
	rk_settings *set = &s->app.settings;

	if (rk_screen_opts_apply(&o->screen, &s->app, e))
		return -1;
	if (o->policy.n == 0)
		o->policy.v[o->policy.n++] = s->demo ? DEMO_POLICY : set->policy[0] ? set->policy : "refreshkv";
	if (o->policy.n > RK_LANES_SHOWN)
		return rk_fail(e, RK_EUSAGE, "--policy: %d policies, the screen shows up to %d side by side", o->policy.n, RK_LANES_SHOWN);
	return 0;
}

static int open_engine(struct session *s, rk_err *e)
{
	struct opts *o = &s->o;
	char buf[RK_PATH_MAX];
	const char *path;
	rk_engine_cfg *cfg = &s->cfg;

	if (rk_cmd_model_path(o->model.model, buf, &path, e))
		return -1;
	rk_cmd_engine_cfg(cfg, path, &o->model, &o->engine, &o->sampling);
	if (rk_trace_opts_apply(&o->trace, &cfg->session, e))
		return -1;
	cfg->session.n_ctx = o->ctx;
	cfg->session.keep_full = true;	/* policies can be switched live */
	cfg->session.shadow |= s->app.settings.shadow && !o->no_shadow;
	cfg->lossy_events = true;
	if (rk_cmd_lanes(&cfg->session, &o->policy, e) || rk_engine_open(&s->g, cfg, e))
		return -1;
	s->live.tape = (rk_tape){
		.g = s->g, .cfg = cfg, .command = s->demo ? "demo" : "chat", .follow = o->follow ? RK_FOLLOW_FIRST : RK_FOLLOW_NONE,
		.document_sha256 = s->document_sha256,
	};
	return rk_trace_opts_open(&s->live.tape.recorder, &o->trace, s->g, cfg, s->live.tape.command, s->live.tape.follow, s->document_sha256,
	                          NULL, 0, e);
}

static int run(struct session *s, rk_err *e)
{
	const struct opts *o = &s->o;
	const rk_embedded *answer = rk_embedded_find("docs/demo-answer.txt");

	s->live = (rk_live){
		.g = s->g, .tape = s->live.tape, .document = s->document, .system = o->system, .max_new = o->sampling.n_new,
		.follow = s->live.tape.follow, .forced = s->demo ? answer->data : NULL,
	};
	rk_live_init(&s->live, s->document_name, rk_machine_bandwidth(o->engine.threads), o->trace.path);
	s->app.resume = o->resume;
	s->app.first = s->demo ? DEMO_QUESTION : o->question;
	s->app.lead = s->demo ? DEMO_LEAD : NULL;
	s->app.pace = s->demo ? DEMO_PACE : 0;
	return rk_app_run(&s->live.feed, &s->app, e);
}

static int chat(const rk_opt_cmd *cmd, int argc, char **argv, bool demo, rk_err *e)
{
	struct session *s = calloc(1, sizeof *s);
	rk_opt_list operand = { 0 };
	int rc = -1;

	if (!s)
		return rk_fail(e, RK_ENOMEM, "no memory");
	s->demo = demo;
	switch (rk_opt_parse(cmd, argc, argv, &s->o, &operand, e)) {
	case 1:
		rk_opt_help(cmd, stdout);
		rc = rk_out_flush(stdout, "standard output", e);
		goto out;
	case -1: goto out;
	}
	if (rk_trace_opts_no_prompt(&s->o.trace, cmd->name, e))
		goto out;
	if (!isatty(STDOUT_FILENO)) {
		rk_fail(e, RK_EUSAGE, "%s draws on a terminal and standard output is none; `refreshkv run` answers in plain text", cmd->name);
		goto out;
	}
	if (read_settings(s, e) || read_document(s, &operand, e) || open_engine(s, e))
		goto out;
	rc = run(s, e);
out:
	rk_engine_close(s->g);
	rk_trace_opts_close(s->live.tape.recorder);
	free(s->document);
	free(s);
	return rc;
}

int rk_cmd_chat(int argc, char **argv, rk_err *e)
{
	return chat(&rk_cmd_chat_opt, argc, argv, false, e);
}

int rk_cmd_demo(int argc, char **argv, rk_err *e)
{
	return chat(&rk_cmd_demo_opt, argc, argv, true, e);
}
