/* common.c: what the commands share; see cmd.h.  Main thread, but for the signal handler, which only sets a flag and
 * asks the engine to stop (both are safe there). */
#include "cmd/cmd.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/paths.h"
#include "cmd/doc.h"
#include "cmd/out.h"
#include "trace/digest.h"

/* ---- option groups ---- */

const rk_opt rk_model_rows[] = {
	{ "model", 'm', RK_OPT_STR, offsetof(rk_model_opts, model), .metavar = "FILE",
	  .doc = "GGUF model file; without it the default model that `make model` fetches" },
	{ "chat-template", 0, RK_OPT_STR, offsetof(rk_model_opts, chat), .metavar = "NAME",
	  .doc = "chatml, llama3 or raw, where the file's own template is not recognised" },
	{ 0 }
};

const rk_opt rk_engine_rows[] = {
	{ "device", 0, RK_OPT_STR, offsetof(rk_engine_opts, device), .def = "auto", .metavar = "NAME",
	  .doc = "cpu, cuda:N, or auto: the first GPU of a program built with CUDA, else the CPU" },
	{ "threads", 't', RK_OPT_INT, offsetof(rk_engine_opts, threads), .def = "0", .min = 0, .max = 256,
	  .doc = "CPU threads; 0: one per available core.  Results do not depend on it" },
	{ "exact", 0, RK_OPT_FLAG, offsetof(rk_engine_opts, exact),
	  .doc = "32-bit activations and cache, to compare with a reference; slower" },
	{ "chunk", 0, RK_OPT_INT, offsetof(rk_engine_opts, chunk), .def = "512", .min = 1, .max = 8192, .metavar = "TOKENS",
	  .doc = "tokens of the prompt that are prefilled at once" },
	{ 0 }
};

const rk_opt rk_sampling_rows[] = {
	{ "n-new", 'n', RK_OPT_INT, offsetof(rk_sampling_opts, n_new), .def = "256", .min = 1, .max = 1 << 20, .metavar = "TOKENS",
	  .doc = "most tokens of the reply" },
	{ "temp", 0, RK_OPT_FLOAT, offsetof(rk_sampling_opts, temp), .def = "0", .min = 0, .max = 100,
	  .doc = "temperature; 0: always the most probable token" },
	{ "top-k", 0, RK_OPT_INT, offsetof(rk_sampling_opts, top_k), .def = "0", .min = 0, .max = 1 << 20,
	  .doc = "sample among the K most probable tokens; 0: off" },
	{ "top-p", 0, RK_OPT_FLOAT, offsetof(rk_sampling_opts, top_p), .def = "1", .max = 1, .above_min = true,
	  .doc = "sample among the fewest tokens whose probabilities reach P; 1: off" },
	{ "min-p", 0, RK_OPT_FLOAT, offsetof(rk_sampling_opts, min_p), .def = "0", .min = 0, .max = 1,
	  .doc = "drop tokens below P times the most probable one's probability; 0: off" },
	{ "seed", 0, RK_OPT_INT, offsetof(rk_sampling_opts, seed), .def = "0", .min = 0, .max = 2147483647,
	  .doc = "of the sampler; the same seed gives the same reply" },
	{ 0 }
};

const rk_opt rk_prompt_rows[] = {
	{ "file", 'f', RK_OPT_STR, offsetof(rk_prompt_opts, file), .metavar = "DOC",
	  .doc = "the document; -: standard input, which is also read without -f when it is a pipe or a file" },
	{ "prompt", 'p', RK_OPT_STR, offsetof(rk_prompt_opts, prompt), .metavar = "TEXT",
	  .doc = "the question; it follows the document after a blank line" },
	{ "system", 0, RK_OPT_STR, offsetof(rk_prompt_opts, system), .metavar = "TEXT",
	  .doc = "system message instead of the template's own" },
	{ "raw", 0, RK_OPT_FLAG, offsetof(rk_prompt_opts, raw),
	  .doc = "no chat template: the prompt is document and question as they stand, one right after the other, and names of control tokens are those tokens" },
	{ "ids", 0, RK_OPT_STR, offsetof(rk_prompt_opts, ids), .metavar = "FILE",
	  .doc = "the whole prompt as token ids (blanks between them, or a JSON array) instead of text" },
	{ "lossy", 0, RK_OPT_FLAG, offsetof(rk_prompt_opts, lossy),
	  .doc = "replace invalid UTF-8 and NUL bytes in the document by U+FFFD instead of refusing it" },
	{ "ctx", 'c', RK_OPT_INT, offsetof(rk_prompt_opts, ctx), .def = "0", .min = 0, .max = 1 << 24, .metavar = "TOKENS",
	  .doc = "longest prompt and reply together; 0: the model's training context" },
	{ 0 }
};

const rk_opt rk_result_rows[] = {
	{ "json", 0, RK_OPT_STR, offsetof(rk_result_opts, json), .metavar = "FILE",
	  .doc = "write everything as JSON; -: to standard output, and the tables to stderr" },
	{ "csv", 0, RK_OPT_STR, offsetof(rk_result_opts, csv), .metavar = "FILE", .doc = "write the figures as CSV; -: as above" },
	{ "quiet", 'q', RK_OPT_FLAG, offsetof(rk_result_opts, quiet), .doc = "no progress on stderr" },
	{ 0 }
};

int rk_cmd_model_path(const char *model, char buf[RK_PATH_MAX], const char **path, rk_err *e)
{
	*path = model;
	if (model)
		return 0;
	if (rk_path_default_model(buf, e))
		return -1;
	*path = buf;
	if (access(buf, F_OK))
		return rk_fail(e, RK_EMODEL, "%s: no such file; `make model` fetches the default model, -m FILE names another", buf);
	return 0;
}

int rk_cmd_numbers(const char *what, const char *list, int min, int max, int *v, int cap, int *n, rk_err *e)
{
	*n = 0;
	for (const char *s = list;; s++) {
		char *end;
		long one = strtol(s, &end, 10);
		if (*s < '0' || *s > '9' || (*end && *end != ','))
			return rk_fail(e, RK_EUSAGE, "%s=%.64s is not a list of numbers such as 1024,4096", what, list);
		if (one < min || one > max)
			return rk_fail(e, RK_EUSAGE, "%s=%.64s is out of range: %d to %d", what, list, min, max);
		if (*n == cap)
			return rk_fail(e, RK_EUSAGE, "%s: more than %d numbers", what, cap);
		v[(*n)++] = (int)one;
		s = end;
		if (!*s)
			return 0;
	}
}

/* ---- prompts ---- */

int rk_prompt_read(rk_prompt *p, const rk_prompt_opts *o, rk_err *e)
{
	char *doc = NULL;
	size_t len = 0;
	const char *question = o->prompt ? o->prompt : "";
	const char *file = o->file ? o->file : !o->ids && rk_doc_on_stdin() ? "-" : NULL;
	*p = (rk_prompt){ .system = o->system };
	if (o->ids) {
		if (o->file || o->prompt || o->system)
			return rk_fail(e, RK_EUSAGE, "--ids is the whole prompt: it goes with neither -f, -p nor --system");
		if (rk_doc_read_bytes(o->ids, &doc, &len, e))
			return -1;
		int rc = rk_ids_parse(o->ids, doc, len, &p->ids, &p->n, e);
		free(doc);
		return rc;
	}
	if (!file && !question[0])
		return rk_fail(e, RK_EUSAGE, "nothing to answer: give a question with -p, a document with -f or on standard input");
	if (rk_doc_check("--prompt", question, strlen(question), e))
		return -1;
	if (o->system && rk_doc_check("--system", o->system, strlen(o->system), e))
		return -1;
	if (file && rk_doc_read(file, o->lossy, &doc, &len, e))
		return -1;
	if (doc)
		rk_digest(doc, len, p->document_sha256);
	const char *between = "";
	if (!o->raw && doc && question[0]) {
		while (len > 0 && (doc[len - 1] == '\n' || doc[len - 1] == '\r'))
			len--;
		between = RK_QUESTION_BREAK;
	}
	if (asprintf(&p->text, "%.*s%s%s", (int)len, doc ? doc : "", between, question) < 0) {
		p->text = NULL;
		free(doc);
		return rk_fail(e, RK_ENOMEM, "no memory for a prompt of %zu bytes", len);
	}
	free(doc);
	return 0;
}

void rk_prompt_free(rk_prompt *p)
{
	free(p->text);
	free(p->ids);
	*p = (rk_prompt){ 0 };
}

int rk_prompt_format(const rk_prompt *p, const rk_engine *g, char **text, int32_t **ids, size_t *n, rk_err *e)
{
	if (p->text)
		return rk_engine_format(g, p->system, p->text, text, NULL, ids, n, e);
	if (rk_ids_check("--ids", p->ids, p->n, rk_tokenizer_n_vocab(rk_engine_tokenizer(g)), e))
		return -1;
	*text = NULL;
	*n = p->n;
	*ids = malloc((p->n + 1) * sizeof **ids);
	if (!*ids)
		return rk_fail(e, RK_ENOMEM, "no memory for %zu token ids", p->n);
	memcpy(*ids, p->ids, p->n * sizeof **ids);
	return 0;
}

/* ---- engine ---- */

void rk_cmd_engine_cfg(rk_engine_cfg *cfg, const char *model_path, const rk_model_opts *m, const rk_engine_opts *o,
                       const rk_sampling_opts *s)
{
	*cfg = (rk_engine_cfg){
		.model_path = model_path,
		.chat_template = m->chat,
		.backend = { .device = o->device, .n_thread = o->threads, .exact = o->exact },
		.session = { .chunk = o->chunk },
		.sampling = { .top_p = 1 },
	};
	if (s)
		cfg->sampling = (rk_sampling){ .temp = s->temp, .top_k = s->top_k, .top_p = s->top_p, .min_p = s->min_p,
		                               .seed = (uint64_t)s->seed };
}

int rk_cmd_lanes(rk_session_cfg *s, const rk_opt_list *specs, rk_err *e)
{
	if (specs->n > RK_MAX_LANE)
		return rk_fail(e, RK_EUSAGE, "--policy: %d policies, the limit of one run is %d", specs->n, RK_MAX_LANE);
	for (int i = 0; i < specs->n; i++)
		if (rk_policy_parse(&s->lane[i], specs->v[i], e))
			return -1;
	s->n_lane = specs->n;
	return 0;
}

static rk_engine *volatile stoppable;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
	if (stoppable)
		rk_engine_stop(stoppable);
}

void rk_cmd_catch_interrupt(rk_engine *g)
{
	/* SA_RESETHAND: the second Ctrl-C finds the default action. */
	struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART | SA_RESETHAND };
	stoppable = g;
	sigaction(SIGINT, &sa, NULL);
}

void rk_cmd_release_interrupt(void)
{
	signal(SIGINT, SIG_DFL);
	stoppable = NULL;
}

bool rk_cmd_interrupted(void)
{
	return interrupted;
}

static void clear_progress(void)
{
	fprintf(stderr, "\r%60s\r", "");
}

/* One line that is rewritten in place with a carriage return: no escapes, and nothing at all where it would pile up.
 * Returns whether it is still there. */
static bool show_progress(const rk_event *ev)
{
	double rate = ev->prefill.done ? 1e9 * ev->prefill.done / (double)ev->prefill.ns : (double)NAN;
	char done[RK_NUM], total[RK_NUM], speed[RK_NUM];
	if (ev->prefill.done == ev->prefill.total) {
		clear_progress();
		return false;
	}
	fprintf(stderr, "\rprefill %s of %s tokens, %s tok/s ", rk_num_count(done, ev->prefill.done),
	        rk_num_count(total, ev->prefill.total), rk_num_real(speed, rate, 0));
	return true;
}

static void tell_remark(const rk_stats *s)
{
	char remark[RK_REMARK_MAX];

	rk_stats_remark(s, remark);
	if (remark[0])
		fprintf(stderr, "refreshkv: %s\n", remark);
}

int rk_cmd_follow(rk_engine *g, rk_record *rec, rk_recorder *trace, enum rk_tell tell, rk_event_fn fn, void *ctx, rk_err *e)
{
	rk_event ev;
	const void *payload;
	rk_err trouble;
	int rc = 0;
	bool shown = false;
	do {
		rk_event_next(rk_engine_events(g), &ev, &payload, -1);
		if (rk_recorder_push(trace, &ev, payload, &trouble))
			fprintf(stderr, "refreshkv: %s\n", trouble.msg);
		/* After a failure of ours the engine is stopped, and its last events are read and dropped. */
		if (rc == 0 && (rk_record_add(rec, &ev, payload, e) || (fn && fn(ctx, &ev, payload)))) {
			rk_engine_stop(g);
			rc = -1;
		}
		if (ev.type == RK_EV_START && tell == RK_TELL_REPLY && rc == 0)
			tell_remark(&rec->stats);
		if (ev.type == RK_EV_PREFILL && tell != RK_TELL_NOTHING && isatty(STDERR_FILENO))
			shown = show_progress(&ev);
		if (ev.type == RK_EV_ERROR && ev.lane < 0 && rc == 0)
			rc = rk_fail(e, ev.error.code, "%.*s", (int)ev.size, (const char *)payload);
	} while (ev.type != RK_EV_IDLE);
	if (shown)	/* the prefill failed or was cancelled */
		clear_progress();
	return rc;
}

int64_t rk_cmd_peak_rss(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (int64_t)u.ru_maxrss * 1024;
}
