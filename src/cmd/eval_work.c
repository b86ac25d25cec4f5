/* eval_work.c: see eval_work.h */
#include "cmd/eval_work.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/utf8.h"
#include "cmd/doc.h"
#include "cmd/eval_report.h"
#include "eval/runner.h"

#define TTY_COLUMNS 79		/* of the line of progress on a terminal that does not say how wide it is */
#define TTY_NS 200000000	/* between two lines of progress there: sums over all records are not for free */
#define PROGRESS_NS 15000000000	/* between two lines of progress where stderr is no terminal */

void rk_eval_work_init(rk_eval_work *w, const rk_eval_plan *plan, rk_records *records)
{
	*w = (rk_eval_work){ .plan = plan, .records = records, .open_group = -1 };
}

void rk_eval_work_close(rk_eval_work *w)
{
	rk_engine_close(w->g);
	rk_given_drop(&w->kept);
	for (int i = 0; i < RK_EVAL_MAX_TASK; i++)
		rk_text_free(&w->text[i]);
}

static int read_texts(rk_eval_work *w, rk_err *e)
{
	for (int i = 0; i < w->plan->n_task && w->plan->ppl; i++) {
		char *text;
		size_t len;
		if (rk_doc_read(w->plan->task_name[i], false, &text, &len, e))
			return -1;
		rk_text_free(&w->text[i]);
		int rc = rk_text_init(&w->text[i], w->plan->task_name[i], rk_engine_tokenizer(w->g), text, len, e);
		free(text);
		for (int k = 0; k < w->plan->n_offset * w->plan->n_length && rc == 0; k++)
			rc = rk_text_check(&w->text[i], (size_t)w->plan->offset[k % w->plan->n_offset], w->plan->length[k / w->plan->n_offset], w->plan->o->eval, e);
		if (rc)
			return -1;
	}
	return 0;
}

static int check_lengths(const rk_eval_work *w, rk_err *e)
{
	int most = rk_engine_model(w->g)->hp.n_ctx_train;

	for (int i = 0; i < w->plan->n_length; i++) {
		int need = rk_eval_plan_ctx(w->plan, w->plan->length[i]);
		if (need > most)
			return rk_fail(e, RK_EUSAGE, "--length %d: %d tokens with what is scored, the model's context holds %d", w->plan->length[i], need, most);
	}
	return 0;
}

int rk_eval_work_open(rk_eval_work *w, int group, rk_err *e)
{
	rk_engine_cfg cfg;

	if (w->open_group == group)
		return 0;
	rk_cmd_release_interrupt();
	rk_engine_close(w->g);
	w->g = NULL;
	w->open_group = -1;
	rk_cmd_engine_cfg(&cfg, w->plan->model_path, &w->plan->o->model, &w->plan->o->engine, NULL);
	cfg.raw = w->plan->ppl;
	cfg.one_turn = true;
	for (int i = 0; i < w->plan->n_length; i++) {
		int need = rk_eval_plan_ctx(w->plan, w->plan->length[i]);
		if (!w->plan->length[i])
			need = INT_MAX;		/* the task's own size: whatever the model holds */
		cfg.session.n_ctx = need > cfg.session.n_ctx ? need : cfg.session.n_ctx;
	}
	if (cfg.session.n_ctx == INT_MAX)
		cfg.session.n_ctx = 0;
	rk_eval_plan_lanes(w->plan, group, &cfg.session);
	if (rk_engine_open(&w->g, &cfg, e) || check_lengths(w, e) || read_texts(w, e))
		return -1;
	w->open_group = group;
	rk_cmd_catch_interrupt(w->g);
	return 0;
}

int rk_eval_work_example(rk_eval_work *w, int task, int length, int index, rk_example *x, rk_err *e)
{
	rk_runner r = { .g = w->g, .after = w->plan->o->question == RK_QUESTION_AFTER };
	rk_task_env env = { .seed = (uint64_t)w->plan->o->seed, .length = length, .count = rk_runner_count, .ctx = &r, .kept = &w->kept,
	                    .data_dir = w->plan->o->data, .haystack = w->plan->o->haystack };
	rk_err why;

	int rc = w->plan->task[task]->make(w->plan->task[task], &env, index, x, &why);
	if (rc >= 0)
		return rc;
	rk_example_free(x);
	return index == 0 ? rk_fail(e, why.code, "%s: %s", w->plan->task_name[task], why.msg) :	/* what the first lacks all of them lack */
	       rk_fail(e, why.code, "%s, example %d: %s", w->plan->task_name[task], index, why.msg);
}

static int make_window(rk_eval_work *w, int task, int length, int index, json_t **record, rk_err *e)
{
	rk_runner r = { .g = w->g };
	int32_t *ids;

	if (rk_text_window(&w->text[task], (size_t)w->plan->offset[index], length, w->plan->o->eval, &ids, e))
		return -1;
	int rc = rk_runner_window(&r, ids, length, w->plan->o->eval, record, e);
	free(ids);
	return rc > 0 ? 2 : rc;
}

/* 1 when there is no such example, 2 when interrupted. */
static int make_record(rk_eval_work *w, int task, int length, int index, json_t **record, rk_err *e)
{
	rk_runner r = { .g = w->g, .after = w->plan->o->question == RK_QUESTION_AFTER };
	rk_example x = { 0 };

	if (w->plan->ppl)
		return make_window(w, task, length, index, record, e);
	int rc = rk_eval_work_example(w, task, length, index, &x, e);
	if (rc == 0 && rk_cmd_interrupted())
		rc = 2;
	if (rc == 0) {
		rc = rk_runner_example(&r, w->plan->task[task], &x, record, e);
		rc = rc > 0 ? 2 : rc;
	}
	rk_example_free(&x);
	return rc;
}

static int tty_columns(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1 : TTY_COLUMNS;
}

/* One line: rewritten in place on a terminal, now and then elsewhere. */
static void show_progress(rk_eval_work *w)
{
	bool tty = isatty(STDERR_FILENO);
	int64_t now = rk_clock_ns();
	char line[700], running[600];
	size_t at = 0;

	if (w->plan->o->quiet || (w->shown_ns && now - w->shown_ns < (tty ? TTY_NS : PROGRESS_NS)))
		return;
	w->shown_ns = now;
	double left = (double)(now - w->start_ns) * 1e-9 / (double)w->made * (double)(w->total - w->done);
	rk_eval_running(w->records, running, sizeof running);
	at += (size_t)snprintf(line, sizeof line, "%ld/%ld, %.0f %s left; ", w->done, w->total, left < 90 ? left : left / 60,
	                       left < 90 ? "s" : "min");
	snprintf(line + at, sizeof line - at, "%s", running);
	int wide = tty_columns(), len = (int)strlen(line);
	if (tty)
		fprintf(stderr, "\r%.*s\033[K", (int)rk_utf8_complete(line, (size_t)(len < wide ? len : wide)), line);
	else
		fprintf(stderr, "%s\n", line);
}

/* One item.  Results as in make_record. */
static int run_item(rk_eval_work *w, int group, int task, int length, int index, rk_err *e)
{
	json_t *record, *own;

	if (rk_eval_work_open(w, group, e))
		return -1;
	if (rk_cmd_interrupted())
		return 2;
	int rc = make_record(w, task, length, index, &own, e);
	if (rc)
		return rc;
	record = json_pack("{s:i, s:s, s:i, s:i}", "group", group, "task", w->plan->task_name[task], "length", length, "index", index);
	if (!record || json_object_update(record, own)) {
		json_decref(own);
		return rk_fail(e, RK_ENOMEM, "no memory for a record");
	}
	json_decref(own);
	if (rk_records_add(w->records, record, e))
		return -1;
	w->done++;
	w->made++;
	show_progress(w);
	return 0;
}

static bool is_mine(const rk_eval_work *w, long ordinal)
{
	return ordinal % w->plan->n_shard == w->plan->shard;
}

/* All examples of one task and length; *ordinal counts the items of the whole run. */
static int run_cell(rk_eval_work *w, int group, int task, int length, long *ordinal, rk_err *e)
{
	int n = rk_eval_plan_n(w->plan, task);
	long first = *ordinal;

	*ordinal += n;
	for (int i = 0; i < n; i++) {
		if (!is_mine(w, first + i) || rk_records_find(w->records, group, w->plan->task_name[task], length, i))
			continue;
		int rc = run_item(w, group, task, length, i, e);
		if (rc == 1) {	/* the task has no more */
			for (; i < n; i++)
				w->total -= is_mine(w, first + i);
			return 0;
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* Makes one example, and sees that the context holds it.  Results as in make_record. */
static int try_example(rk_eval_work *w, int task, int length, int index, rk_err *e)
{
	rk_runner r = { .g = w->g };
	rk_example x = { 0 };
	int most = rk_engine_n_ctx(w->g), rc = rk_cmd_interrupted() ? 2 : rk_eval_work_example(w, task, length, index, &x, e);

	if (rc == 0) {
		int n = rk_runner_count(&r, &x, e);
		if (n < 0 || n + x.max_new > most)
			rc = n < 0 ? -1 : rk_fail(e, RK_EUSAGE, "%s, example %d: prompt and reply take %d tokens, %d of them for the reply; the context "
			                          "holds %d", w->plan->task_name[task], index, n + x.max_new, x.max_new, most);
	}
	rk_example_free(&x);
	return rc;
}

/* The first example of every task, and of those that come from files, where each has a size of its own, all that are to be run: what
 * is missing or does not fit is noticed before hours of work.  0, -1, or 2 when interrupted. */
static int try_tasks(rk_eval_work *w, rk_err *e)
{
	long ordinal = 0;

	if (w->plan->ppl || w->done == w->total)
		return 0;
	if (rk_eval_work_open(w, 0, e))
		return -1;
	for (int t = 0; t < w->plan->n_task; t++)
		for (int l = 0; l < w->plan->n_length; l++) {
			int n = rk_eval_plan_n(w->plan, t), length = w->plan->length[l], rc = 0;
			for (int i = 0; i < n && rc == 0; i++)
				if (i == 0 || (w->plan->task[t]->file[0] && is_mine(w, ordinal + i) &&
				               !rk_records_find(w->records, 0, w->plan->task_name[t], length, i)))
					rc = try_example(w, t, length, i, e);
			if (rc < 0 || rc == 2)
				return rc;
			ordinal += n;
		}
	return 0;
}

int rk_eval_work_run(rk_eval_work *w, rk_err *e)
{
	long n = 0, ordinal = 0;
	int rc = 0;

	for (int t = 0; t < w->plan->n_task; t++)
		n += (long)w->plan->n_group * w->plan->n_length * rk_eval_plan_n(w->plan, t);
	for (long i = 0; i < n; i++)
		w->total += is_mine(w, i);
	w->done = (long)json_array_size(w->records->list);
	rc = try_tasks(w, e);
	if (rc)
		return rc;
	w->start_ns = rk_clock_ns();
	for (int g = 0; g < w->plan->n_group; g++)
		for (int t = 0; t < w->plan->n_task; t++)
			for (int l = 0; l < w->plan->n_length && !rc; l++)
				rc = run_cell(w, g, t, w->plan->length[l], &ordinal, e);
	if (!w->plan->o->quiet && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	return rc;
}
