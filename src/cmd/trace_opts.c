/* trace_opts.c: what --trace and its companions do, for the commands that can be recorded.  See cmd.h.  Main thread. */
#include "cmd/cmd.h"

#include <stdlib.h>
#include <string.h>

const rk_opt rk_trace_rows[] = {
	{ "trace", 0, RK_OPT_STR, offsetof(rk_trace_opts, path), .metavar = "FILE",
	  .doc = "record everything that happens as a trace (docs/TRACE.md), compressed where FILE ends in .zst; see replay, stats and export" },
	{ "trace-positions", 0, RK_OPT_FLAG, offsetof(rk_trace_opts, positions),
	  .doc = "record also which positions each selection kept; large" },
	{ "trace-prompt", 0, RK_OPT_FLAG, offsetof(rk_trace_opts, prompt), .doc = "record the prompt's token ids, not only their SHA-256 (run, compare)" },
	{ "trace-shadow", 0, RK_OPT_FLAG, offsetof(rk_trace_opts, shadow),
	  .doc = "score the first policy's tokens by full attention beside it, so that the trace holds the perplexity ratio; slower" },
	{ "force", 0, RK_OPT_FLAG, offsetof(rk_trace_opts, force), .doc = "overwrite a trace that exists" },
	{ 0 }
};

int rk_trace_opts_apply(const rk_trace_opts *o, rk_session_cfg *s, rk_err *e)
{
	if (!o->path && (o->positions || o->prompt || o->shadow || o->force))
		return rk_fail(e, RK_EUSAGE, "--trace-positions, --trace-prompt, --trace-shadow and --force need --trace FILE");
	s->positions = o->positions;
	s->shadow = o->shadow;
	return 0;
}

int rk_trace_opts_no_prompt(const rk_trace_opts *o, const char *command, rk_err *e)
{
	return !o->prompt ? 0 :
	       rk_fail(e, RK_EUSAGE, "--trace-prompt: %s has no one prompt that the trace's header could hold; run and compare have", command);
}

int rk_trace_opts_open(rk_recorder **r, const rk_trace_opts *o, const rk_engine *g, const rk_engine_cfg *cfg, const char *command,
                       enum rk_follow follow, const char *document_sha256, const int32_t *ids, size_t n, rk_err *e)
{
	rk_trace_header h;
	int rc = 0;

	*r = NULL;
	if (!o->path)
		return 0;
	rk_trace_header_fill(&h, g, cfg, command, follow);
	snprintf(h.document_sha256, sizeof h.document_sha256, "%s", document_sha256);
	if (ids)
		rc = rk_trace_header_prompt(&h, ids, n, o->prompt, e);
	if (rc == 0 && (rc = rk_recorder_open(r, o->path, o->force, !cfg->lossy_events, &h, rk_gguf_path(rk_engine_model(g)->file), e)) &&
	    e->code == RK_EUSAGE)
		rk_fail(e, RK_EUSAGE, "%s: exists; --force overwrites it", o->path);
	rk_trace_header_free(&h);
	return rc;
}

void rk_trace_opts_close(rk_recorder *r)
{
	rk_err e;

	if (rk_recorder_close(r, &e))
		fprintf(stderr, "refreshkv: %s\n", e.msg);
}

void rk_cmd_trace_remarks(FILE *f, const char *before, const char *after, const rk_trace *t, const char *path, int64_t lost)
{
	if (rk_trace_cut(t))
		fprintf(f, "%s%s: the end is missing: recording was killed, or is still running%s", before, path, after);
	if (rk_trace_head(t)->after)
		fprintf(f, "%s%s: recorded after %d tokens of the session%s", before, path, rk_trace_head(t)->after, after);
	if (rk_trace_no_start(t))
		fprintf(f, "%s%s: the start of the session was lost: its prompt and cache sizes are n/a%s", before, path, after);
	if (lost)
		fprintf(f, "%s%s: %lld events were lost while it was recorded%s", before, path, (long long)lost, after);
}
