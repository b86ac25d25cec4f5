/* ruler_qa.c: RULER's questions over many documents (scripts/data/synthetic/qa.py): SQuAD 2.0 and HotpotQA as published.
 *
 * Example `index` asks the file's question of that number that has an answer.  The size is the number of documents: those that
 * answer it, then (SQuAD) others of the same article, then any, all in random order.
 */
#include "eval/ruler.h"

#include <stdlib.h>
#include <string.h>
#include "base/rng.h"

enum { RNG_OTHERS, RNG_ORDER };

struct qa {
	json_t *root;
	json_t *docs;		/* {text: number}, in the file's order: each text once */
	const char **doc;	/* [n_doc], borrowed from docs */
	int *order;		/* [n_doc] documents as a growing example takes them in */
	int n_doc, n_gold;
	const char *query;
	const json_t *answer;	/* SQuAD: [{"text"}], HotpotQA: a text */
};

static void qa_close(void *state)
{
	struct qa *s = state;

	if (s) {
		json_decref(s->docs);
		json_decref(s->root);
		free(s->doc);
		free(s->order);
	}
	free(s);
}

static int add_doc(struct qa *s, const char *text)
{
	if (json_object_get(s->docs, text))
		return 0;
	if (json_object_set_new(s->docs, text, json_integer(s->n_doc)))
		return -1;
	s->n_doc++;
	return 0;
}

static int doc_number(const struct qa *s, const char *text)
{
	return (int)json_integer_value(json_object_get(s->docs, text));
}

/* One text per paragraph of a HotpotQA question: title, newline, sentences. */
static char *hotpot_doc(const json_t *p)
{
	char *out = NULL;
	size_t size, i;
	const json_t *sentence, *all = json_array_get(p, 1);
	const char *title = json_string_value(json_array_get(p, 0));
	FILE *f = title && json_is_array(all) ? open_memstream(&out, &size) : NULL;

	if (!f)
		return NULL;
	fprintf(f, "%s\n", title);
	json_array_foreach(all, i, sentence)
		fputs(json_string_value(sentence) ? json_string_value(sentence) : "", f);
	if (fclose(f)) {
		free(out);
		return NULL;
	}
	return out;
}

/* Gathers documents; counts questions down in *left and notes in *found where the wanted one stands. */
static int read_squad(struct qa *s, int left, const json_t **found, const json_t **article)
{
	const json_t *data = json_object_get(s->root, "data"), *d, *p, *q;
	size_t i, k, m;

	if (!json_is_array(data))
		return -1;
	json_array_foreach(data, i, d) {
		const json_t *all = json_object_get(d, "paragraphs");
		if (!json_is_array(all))
			return -1;
		json_array_foreach(all, k, p) {
			const char *text = json_string_value(json_object_get(p, "context"));
			const json_t *qas = json_object_get(p, "qas");
			if (!text || !json_is_array(qas) || add_doc(s, text))
				return -1;
			json_array_foreach(qas, m, q) {
				if (json_is_true(json_object_get(q, "is_impossible")) || left-- != 0)
					continue;
				s->query = json_string_value(json_object_get(q, "question"));
				s->answer = json_object_get(q, "answers");
				if (!s->query || !json_is_array(s->answer))
					return -1;
				*found = p;
				*article = d;
			}
		}
	}
	return 0;
}

static int read_hotpot(struct qa *s, int index, const json_t **found)
{
	const json_t *d, *p;
	size_t i, k;

	if (!json_is_array(s->root))
		return -1;
	json_array_foreach(s->root, i, d) {
		const json_t *all = json_object_get(d, "context");
		if (!json_is_array(all))
			return -1;
		json_array_foreach(all, k, p) {
			char *text = hotpot_doc(p);
			int rc = text ? add_doc(s, text) : -1;
			free(text);
			if (rc)
				return -1;
		}
		if ((int)i != index)
			continue;
		s->query = json_string_value(json_object_get(d, "question"));
		s->answer = json_object_get(d, "answer");
		if (!s->query || !json_is_string(s->answer))
			return -1;
		*found = d;
	}
	return 0;
}

/* Puts document `number` at place `at` of the order, unless it stands before that already. */
static void put(struct qa *s, int *at, int number)
{
	for (int i = *at; i < s->n_doc; i++)
		if (s->order[i] == number) {
			s->order[i] = s->order[*at];
			s->order[(*at)++] = number;
			return;
		}
}

static void order_docs(struct qa *s, const json_t *found, const json_t *article, uint64_t rng)
{
	const json_t *p;
	size_t i;
	int at = 0;

	if (article) {
		put(s, &at, doc_number(s, json_string_value(json_object_get(found, "context"))));
		s->n_gold = at;
		json_array_foreach(json_object_get(article, "paragraphs"), i, p)
			put(s, &at, doc_number(s, json_string_value(json_object_get(p, "context"))));
	} else {
		json_array_foreach(json_object_get(found, "context"), i, p) {
			char *text = hotpot_doc(p);
			if (text)
				put(s, &at, doc_number(s, text));
			free(text);
		}
		s->n_gold = at;
	}
	rk_ruler_shuffle(s->order + s->n_gold, at - s->n_gold, &rng);
	rk_ruler_shuffle(s->order + at, s->n_doc - at, &rng);
}

static int load(rk_ruler *r, struct qa *s, rk_err *e)
{
	const rk_task *t = r->task;
	bool hotpot = ((const rk_qa *)r->spec->arg)->hotpot;
	const json_t *found = NULL, *article = NULL, *v;
	const char *text;
	char path[4096];
	int i = 0;

	if (!r->env->data_dir)
		return rk_fail(e, RK_EUSAGE, "needs --data DIR with %s in it: %s", t->file[0], t->url);
	snprintf(path, sizeof path, "%s/%s", r->env->data_dir, t->file[0]);
	if (rk_given_json(r->env->kept, path, &s->root, e)) {
		if (e && !s->root && strlen(e->msg) + strlen(t->url) + 16 < sizeof e->msg)
			sprintf(e->msg + strlen(e->msg), "; get it from %s", t->url);
		return -1;
	}
	if (hotpot ? read_hotpot(s, r->index, &found) : read_squad(s, r->index, &found, &article))
		return rk_fail(e, RK_EFAIL, "%s: is not %s as published at %s", path, hotpot ? "HotpotQA" : "SQuAD 2.0", t->url);
	if (!found)
		return 1;
	s->doc = malloc((size_t)s->n_doc * sizeof *s->doc);
	s->order = malloc((size_t)s->n_doc * sizeof *s->order);
	if (!s->doc || !s->order)
		return rk_fail(e, RK_ENOMEM, "%s: no memory for %d documents", path, s->n_doc);
	json_object_foreach(s->docs, text, v) {
		s->doc[json_integer_value(v)] = text;
		s->order[i] = i;
		i++;
	}
	order_docs(s, found, article, rk_ruler_rng(r, RNG_OTHERS));
	return 0;
}

static int qa_open(rk_ruler *r, rk_err *e)
{
	struct qa *s = r->state = calloc(1, sizeof *s);

	if (!s || !(s->docs = json_object()))
		return rk_fail(e, RK_ENOMEM, "no memory for an example");
	int rc = load(r, s, e);
	if (rc)
		return rc;
	r->field[1] = (rk_field){ "query", s->query };
	return 0;
}

static int qa_build(rk_ruler *r, int n, FILE *f, rk_example *x, rk_err *e)
{
	const struct qa *s = r->state;
	uint64_t rng = rk_ruler_rng(r, RNG_ORDER);
	const json_t *a;
	size_t k;

	if (n < s->n_gold)
		n = s->n_gold;	/* never without the documents that answer */
	int *number = malloc((size_t)n * sizeof *number);
	if (!number)
		return rk_fail(e, RK_ENOMEM, "no memory for %d documents", n);
	for (int i = 0; i < n; i++)	/* more documents than there are: again from the start */
		number[i] = s->order[i % s->n_doc];
	rk_ruler_shuffle(number, n, &rng);
	for (int i = 0; i < n; i++)
		fprintf(f, "%sDocument %d:\n%s", i ? "\n\n" : "", i + 1, s->doc[number[i]]);
	free(number);
	if (json_is_string(s->answer) && rk_given_answer(x, json_string_value(s->answer), e))
		return -1;
	json_array_foreach(s->answer, k, a) {
		const char *text = json_string_value(json_object_get(a, "text"));
		if (!text)
			return rk_fail(e, RK_EFAIL, "question %d: an answer without text", r->index);
		if (rk_given_answer(x, text, e))
			return -1;
	}
	x->data = json_pack("{s:i}", "size", n);
	return x->data ? 0 : rk_fail(e, RK_ENOMEM, "no memory for an example");
}

#define QA_TASK "Answer the question based on the given documents. Only give me the answer and do not output any other words.\n\n"

const rk_ruler_kind rk_ruler_qa = {
	.context = QA_TASK "The following are given documents.\n\n{context}\n\n",
	.question = QA_TASK "Question: {query}",
	.prefix = " Answer:",
	.max_new = 32, .least = 1, .open = qa_open, .build = qa_build, .close = qa_close,
};
