/* summary.c: see summary.h */
#include "eval/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const json_t *rk_eval_reply(const json_t *record, const char *spec, size_t *at)
{
	json_t *j;
	size_t i;

	json_array_foreach(json_object_get(record, "policies"), i, j) {
		const char *s = json_string_value(json_object_get(j, "policy"));
		if (s && !strcmp(s, spec)) {
			*at = i;
			return j;
		}
	}
	return NULL;
}

static double number(const json_t *j, const char *key)
{
	const json_t *v = json_object_get(j, key);

	return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static bool wanted(const json_t *rec, const char *task, int length, int index)
{
	const char *t = json_string_value(json_object_get(rec, "task"));

	return (!task || (t && !strcmp(t, task))) && (!length || number(rec, "length") == length) && (index < 0 || number(rec, "index") == index);
}

struct sums {
	double score, nll, kl, same, steps, layer_steps, full, bytes, bytes_vanilla;
	double *ms;		/* [n_ms] */
	int n, n_ms, n_token, n_kl, garbled;
};

static void add(struct sums *s, const json_t *rec, const json_t *reply, size_t at)
{
	json_t *nll = json_object_get(reply, "nll"), *v;
	double tokens = number(reply, "tokens"), kl = number(reply, "kl");
	size_t i;

	s->n++;
	s->score += number(reply, "score");
	json_array_foreach(nll, i, v)
		s->nll += json_number_value(v);
	s->n_token += (int)json_array_size(nll);
	if (isfinite(kl) && isfinite(tokens)) {
		s->kl += kl * tokens;
		s->same += number(reply, "same_top1") * tokens;
		s->n_kl += (int)tokens;
	}
	s->steps += number(reply, "steps");
	s->layer_steps += number(reply, "layer_steps");
	s->full += number(reply, "full_layer_steps");
	s->bytes += number(reply, "bytes_read");
	s->bytes_vanilla += number(reply, "bytes_vanilla");
	s->garbled += json_is_string(json_object_get(reply, "garbled"));
	v = json_array_get(json_object_get(json_object_get(rec, "timing"), "ms_per_token"), at);
	if (s->ms && json_is_number(v))
		s->ms[s->n_ms++] = json_number_value(v);
}

/* A baseline runs in every group, so that each has its own.  *group: the one to look at; -1: the first that has the policy, which
 * is left there. */
static struct sums sum(const json_t *list, const char *spec, json_int_t *group, const char *task, int length, int index)
{
	struct sums s = { .ms = malloc((json_array_size(list) + 1) * sizeof *s.ms) };
	json_t *rec;
	size_t i, at;

	json_array_foreach((json_t *)list, i, rec) {
		const json_t *reply = wanted(rec, task, length, index) ? rk_eval_reply(rec, spec, &at) : NULL;
		json_int_t g = json_integer_value(json_object_get(rec, "group"));
		if (reply && *group < 0)
			*group = g;
		if (reply && g == *group)
			add(&s, rec, reply, at);
	}
	return s;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	if (!n)
		return NAN;
	qsort(v, (size_t)n, sizeof *v, by_value);
	return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static double over(double a, double b)
{
	return b != 0 ? a / b : (double)NAN;
}

rk_eval_figures rk_eval_sum(const json_t *list, const char *spec, const char *base, const char *task, int length, int index)
{
	json_int_t group = -1;
	struct sums s = sum(list, spec, &group, task, length, index);
	struct sums b = sum(list, base, &group, task, length, index);	/* on the same examples, also before all of them are done */
	rk_eval_figures f = {
		.n = s.n, .garbled = s.garbled, .score = over(s.score, s.n), .ppl = s.n_token ? exp(s.nll / s.n_token) : (double)NAN,
		.kl = over(s.kl, s.n_kl), .same_top1 = over(s.same, s.n_kl), .stride = over(s.layer_steps, s.full),
		.ms = s.ms ? median(s.ms, s.n_ms) : (double)NAN, .bytes = over(s.bytes, s.steps), .bytes_vanilla = over(s.bytes_vanilla, s.steps),
	};

	f.ratio = s.n_token ? exp(s.nll / s.n_token - over(b.nll, b.n_token)) : over(f.score, over(b.score, b.n));
	free(s.ms);
	free(b.ms);
	return f;
}
