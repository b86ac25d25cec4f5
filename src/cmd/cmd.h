/* cmd.h: the commands of the program, and what they share: option groups, opening an engine, Ctrl-C.
 *
 * A command parses its own argv (argv[0] is its name), prints its result on stdout and everything else on stderr, and
 * returns the exit status, or -1 with *e filled in; only main() prints errors and exits.  Everything here runs on the
 * main thread; the engine has its own.
 */
#ifndef RK_CMD_CMD_H
#define RK_CMD_CMD_H

#include "base/opt.h"
#include "base/paths.h"
#include "cmd/record.h"
#include "engine/engine.h"
#include "trace/recorder.h"

#define RK_EXIT_INTERRUPTED 130	/* 128 + SIGINT, as shells report it */

typedef int (*rk_cmd_fn)(int argc, char **argv, rk_err *e);

typedef struct rk_cmd {
	const rk_opt_cmd *opt;	/* name, one-line description, options */
	rk_cmd_fn fn;
} rk_cmd;

extern const rk_cmd rk_cmds[];	/* ends with opt = NULL */

extern const rk_opt_cmd rk_cmd_chat_opt, rk_cmd_demo_opt, rk_cmd_manual_opt;
extern const rk_opt_cmd rk_cmd_run_opt, rk_cmd_ppl_opt, rk_cmd_compare_opt, rk_cmd_bench_opt, rk_cmd_eval_opt;
extern const rk_opt_cmd rk_cmd_info_opt, rk_cmd_tokenize_opt;
extern const rk_opt_cmd rk_cmd_replay_opt, rk_cmd_stats_opt, rk_cmd_export_opt;
int rk_cmd_chat(int argc, char **argv, rk_err *e);
int rk_cmd_demo(int argc, char **argv, rk_err *e);
int rk_cmd_manual(int argc, char **argv, rk_err *e);
int rk_cmd_run(int argc, char **argv, rk_err *e);
int rk_cmd_ppl(int argc, char **argv, rk_err *e);
int rk_cmd_compare(int argc, char **argv, rk_err *e);
int rk_cmd_bench(int argc, char **argv, rk_err *e);
int rk_cmd_eval(int argc, char **argv, rk_err *e);
int rk_cmd_info(int argc, char **argv, rk_err *e);
int rk_cmd_tokenize(int argc, char **argv, rk_err *e);
int rk_cmd_replay(int argc, char **argv, rk_err *e);
int rk_cmd_stats(int argc, char **argv, rk_err *e);
int rk_cmd_export(int argc, char **argv, rk_err *e);

/* ---- option groups that commands embed (common.c) ---- */

typedef struct rk_model_opts {
	const char *model;	/* NULL: the default model */
	const char *chat;	/* NULL: recognise from the file */
} rk_model_opts;

typedef struct rk_engine_opts {
	const char *device;
	int threads, chunk;
	bool exact;
} rk_engine_opts;

typedef struct rk_sampling_opts {
	int n_new, top_k, seed;
	float temp, top_p, min_p;
} rk_sampling_opts;

typedef struct rk_prompt_opts {
	const char *file;	/* document; NULL: standard input where that is not a terminal */
	const char *prompt, *system;
	const char *ids;	/* the whole prompt as token ids instead */
	bool raw, lossy;
	int ctx;
} rk_prompt_opts;

typedef struct rk_trace_opts {
	const char *path;	/* NULL: nothing is recorded */
	bool positions, prompt, shadow, force;
} rk_trace_opts;

typedef struct rk_result_opts {	/* for rk_results_open, and no progress */
	const char *json, *csv;
	bool quiet;
} rk_result_opts;

extern const rk_opt rk_result_rows[];
extern const rk_opt rk_model_rows[], rk_engine_rows[], rk_sampling_rows[], rk_prompt_rows[], rk_trace_rows[];

/* Path of the model: the option or the default.  RK_EMODEL with what to do when it is not there.  buf backs the default. */
int rk_cmd_model_path(const char *model, char buf[RK_PATH_MAX], const char **path, rk_err *e);

/* "N[,N...]" into v[0..*n), at most `cap` numbers from min to max; what names the option in errors. */
int rk_cmd_numbers(const char *what, const char *list, int min, int max, int *v, int cap, int *n, rk_err *e);

/* ---- prompts ---- */

/* Between the document and the question in a chat prompt; the document's own trailing newlines are dropped first.  With
 * --raw the two are simply joined: nothing is added or dropped. */
#define RK_QUESTION_BREAK "\n\n"

typedef struct rk_prompt {
	char *text;	/* the user's message, or the raw prompt; NULL when given as ids */
	char document_sha256[65];	/* "" without a document */
	const char *system;
	int32_t *ids;	/* [n] when given as ids */
	size_t n;
} rk_prompt;

/* Reads document and question.  RK_EUSAGE when there is neither. */
int rk_prompt_read(rk_prompt *p, const rk_prompt_opts *o, rk_err *e);
void rk_prompt_free(rk_prompt *p);
/* The prompt in tokens as the model will see it, and its text (NULL when given as ids); the caller frees both. */
int rk_prompt_format(const rk_prompt *p, const rk_engine *g, char **text, int32_t **ids, size_t *n, rk_err *e);

/* ---- engine ---- */

/* Fills cfg from the groups (sampling may be NULL: greedy).  Lanes and n_ctx are the command's own business. */
void rk_cmd_engine_cfg(rk_engine_cfg *cfg, const char *model_path, const rk_model_opts *m, const rk_engine_opts *o,
                       const rk_sampling_opts *s);
/* Parses specs into lanes.  The error names the limit when there are more than RK_MAX_LANE. */
int rk_cmd_lanes(rk_session_cfg *s, const rk_opt_list *specs, rk_err *e);

/* From here until the engine is closed: the first Ctrl-C stops what it does, the second ends the program. */
void rk_cmd_catch_interrupt(rk_engine *g);
void rk_cmd_release_interrupt(void);
bool rk_cmd_interrupted(void);

/* Called for each event after the record has taken it; payload is ev->size bytes, not NUL-terminated.  Non-zero, with the
 * reason in the e that rk_cmd_follow was given, stops the engine. */
typedef int (*rk_event_fn)(void *ctx, const rk_event *ev, const char *payload);

/* ---- recording (trace_opts.c) ---- */

/* What recording asks of the session: before the engine is opened. */
int rk_trace_opts_apply(const rk_trace_opts *o, rk_session_cfg *s, rk_err *e);
/* RK_EUSAGE for --trace-prompt, in commands that begin to record before there is a prompt, or have several. */
int rk_trace_opts_no_prompt(const rk_trace_opts *o, const char *command, rk_err *e);
/* Starts recording; *r = NULL when o->path is.  ids: the prompt, NULL where there are several. */
int rk_trace_opts_open(rk_recorder **r, const rk_trace_opts *o, const rk_engine *g, const rk_engine_cfg *cfg, const char *command,
                       enum rk_follow follow, const char *document_sha256, const int32_t *ids, size_t n, rk_err *e);
/* Ends it.  A failure is a message on stderr: the command's own result stands. */
void rk_trace_opts_close(rk_recorder *r);
/* What a trace lacks (its start or end, `lost` events), a sentence each between `before` and `after`. */
void rk_cmd_trace_remarks(FILE *f, const char *before, const char *after, const rk_trace *t, const char *path, int64_t lost);

/* What is told on stderr before a reply: a line of progress on a terminal, and with a reply to be read, where a policy keeps too
 * little for one. */
enum rk_tell { RK_TELL_NOTHING, RK_TELL_PROGRESS, RK_TELL_REPLY };

/* Follows the running command until RK_EV_IDLE.  trace (NULL: none) is fed every event.  fn may be NULL.  -1 with the
 * engine's error or fn's. */
int rk_cmd_follow(rk_engine *g, rk_record *rec, rk_recorder *trace, enum rk_tell tell, rk_event_fn fn, void *ctx, rk_err *e);

/* The figures of one lane's reply on stderr, one per line: what `run` prints, from a live session or a trace. */
void rk_cmd_print_figures(rk_record *r, int lane);

/* Highest resident set of this process so far, in bytes. */
int64_t rk_cmd_peak_rss(void);

#endif
