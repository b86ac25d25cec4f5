/* predictions.c: see predictions.h */
#include "eval/predictions.h"

#include <math.h>
#include <string.h>
#include "eval/fold.h"
#include "eval/given.h"

int rk_predictions_write(FILE *f, const char *path, int index, const rk_example *x, const char *reply, int n_token, rk_err *e)
{
	json_t *answers = json_array();

	for (int i = 0; i < x->n_answer; i++)
		json_array_append_new(answers, json_string(x->answer[i]));
	json_t *row = json_pack("{s:i, s:s, s:s++, s:o, s:{}, s:i, s:i}", "index", index, "pred", reply, "input", x->context, x->question,
	                        x->prefix, "outputs", answers, "others", "truncation", -1, "length", n_token);
	if (!row)
		return rk_fail(e, RK_EFAIL, "%s: example %d: no memory, or a reply that is not UTF-8", path, index);
	int rc = json_dumpf(row, f, 0) || fputc('\n', f) == EOF || fflush(f);
	json_decref(row);
	return rc ? rk_fail(e, RK_EFAIL, "%s: cannot be written", path) : 0;
}

struct reading {
	const rk_task *task;
	rk_predictions *sum;
	double total;
};

static int score_row(void *arg, const json_t *row, rk_err *e)
{
	struct reading *s = arg;
	const char *pred = json_string_value(json_object_get(row, "pred"));
	const json_t *answers = json_object_get(row, "outputs"), *a;
	rk_example x = { 0 };
	json_t *detail = NULL;
	size_t i, len;
	int rc = 0;

	if (!pred)
		return rk_fail(e, RK_EFAIL, "no text \"pred\"");
	if (!json_is_array(answers) || json_array_size(answers) == 0)
		return rk_fail(e, RK_EFAIL, "no list \"outputs\" of right answers");
	json_array_foreach(answers, i, a) {
		if (!json_is_string(a))
			rc = rk_fail(e, RK_EFAIL, "\"outputs\": answer %zu is no text", i + 1);
		if (rc || (rc = rk_given_answer(&x, json_string_value(a), e)))
			break;
	}
	if (rc == 0) {
		s->total += s->task->score(&x, pred, &detail);
		s->sum->n++;
		rk_fold_strip(pred, &len);
		s->sum->n_null += len == 0;
	}
	json_decref(detail);
	rk_example_free(&x);
	return rc;
}

int rk_predictions_score(const rk_task *t, const char *path, rk_predictions *out, rk_err *e)
{
	struct reading s = { .task = t, .sum = out };

	*out = (rk_predictions){ .score = NAN };
	if (rk_given_jsonl(path, score_row, &s, e))
		return -1;
	if (out->n)
		out->score = s.total / out->n;
	return 0;
}
