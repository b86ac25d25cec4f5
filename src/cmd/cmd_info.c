/* cmd_info.c: `refreshkv info`: what this program, this machine and a model are, and what a session would take. */
#include "cmd/cmd.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cmd/out.h"
#include "engine/plan.h"

struct opts {
	rk_model_opts model;
	rk_engine_opts engine;
	rk_opt_list policy;
	int ctx, n_new;
	bool json;
};

static const rk_opt rows[] = {
	{ "ctx", 'c', RK_OPT_INT, offsetof(struct opts, ctx), .def = "4096", .min = 2, .max = 1 << 24, .metavar = "TOKENS",
	  .doc = "plan for this many tokens, those of the reply included" },
	{ "n-new", 'n', RK_OPT_INT, offsetof(struct opts, n_new), .def = "256", .min = 1, .max = 1 << 20, .metavar = "TOKENS",
	  .doc = "tokens of the reply in the plan" },
	{ "policy", 0, RK_OPT_LIST, offsetof(struct opts, policy), .metavar = "SPEC",
	  .doc = "plan for these policies side by side; repeat it; without it: refreshkv" },
	{ "json", 0, RK_OPT_FLAG, offsetof(struct opts, json), .doc = "one JSON object instead of text" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Options", rows, 0 },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ "Engine", rk_engine_rows, offsetof(struct opts, engine) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_info_opt = {
	.name = "info", .operands = "", .groups = groups,
	.doc = "Show this build, its paths and policies; with -m a model's shape and the memory a session would take.",
};

/* All that is shown, gathered first, so that text and JSON say the same. */
struct facts {
	char device[64], isa[24];
	int n_thread;
	char dir[4][RK_PATH_MAX], default_model[RK_PATH_MAX];
	bool has_default;
	/* with a model */
	rk_model *m;
	rk_tokenizer *tok;
	rk_backend *b;
	rk_err tok_err, chat_err;	/* msg[0]: why tokenizer or chat template cannot be used */
	rk_chat_template chat;
	rk_session_cfg lanes;
	rk_plan plan;
};

static const char *const dir_name[] = { "config", "data", "cache", "state" };

/* ---- gathering ---- */

static int gather_machine(struct facts *f, const struct opts *o, rk_err *e)
{
	rk_backend_cfg cfg = { .device = o->engine.device, .n_thread = o->engine.threads, .exact = o->engine.exact };
	if (rk_backend_probe(&cfg, f->device, f->isa, &f->n_thread, e))
		return -1;
	for (int i = 0; i < 4; i++)
		if (rk_path(f->dir[i], (enum rk_dir)i, NULL, e))
			return -1;
	if (rk_path_default_model(f->default_model, e))
		return -1;
	f->has_default = access(f->default_model, R_OK) == 0;
	return 0;
}

static int gather_model(struct facts *f, const struct opts *o, rk_err *e)
{
	rk_opt_list policy = o->policy;
	if (policy.n == 0)
		policy.v[policy.n++] = "refreshkv";
	if (o->n_new >= o->ctx)
		return rk_fail(e, RK_EUSAGE, "-n %d leaves no room for a prompt in --ctx %d", o->n_new, o->ctx);
	if (rk_cmd_lanes(&f->lanes, &policy, e) || rk_model_load(&f->m, o->model.model, e))
		return -1;
	/* A model whose text side is not usable still has a shape: say what is wrong and go on. */
	if (rk_tokenizer_init(&f->tok, f->m->file, &f->tok_err))
		f->tok = NULL;
	if (rk_chat_detect(&f->chat, f->m->file, o->model.chat, &f->chat_err) == 0)
		f->chat_err.msg[0] = '\0';
	rk_backend_cfg cfg = {
		.device = o->engine.device, .n_thread = o->engine.threads, .exact = o->engine.exact,
		.max_pos = o->ctx,
		.max_rows = o->engine.chunk > RK_MAX_LANE ? o->engine.chunk : RK_MAX_LANE,
	};
	if (rk_backend_open(&f->b, f->m, &cfg, e))
		return -1;
	for (int i = 0; i < f->lanes.n_lane; i++)
		if (rk_policy_check_budget(&f->lanes.lane[i], o->ctx - o->n_new, e))
			return -1;
	f->lanes.chunk = o->engine.chunk;
	rk_plan_make(&f->plan, f->b, rk_gguf_bytes(f->m->file), &f->lanes, o->ctx - o->n_new, o->n_new);
	return 0;
}

/* Tensors of one element type. */
struct type_sum {
	enum rk_type type;
	int count;
	size_t bytes;
};

/* Sums over the file, in order of first appearance; returns the number of types, at most max. */
static int sum_types(const rk_gguf *g, struct type_sum *sum, int max)
{
	int n = 0;
	for (size_t i = 0; i < rk_gguf_n_tensor(g); i++) {
		const rk_tensor *t = rk_gguf_tensor_at(g, i);
		int j = 0;
		while (j < n && sum[j].type != t->type)
			j++;
		if (j == max)
			continue;
		if (j == n)
			sum[n++] = (struct type_sum){ .type = t->type };
		sum[j].count++;
		sum[j].bytes += (size_t)t->n_row * rk_type_row_bytes(t->type, t->n_col);
	}
	return n;
}

#define MAX_TYPES 16

/* ---- text ---- */

static void line(const char *label, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void line(const char *label, const char *fmt, ...)
{
	va_list ap;
	printf("%-15s ", label);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void print_machine(const struct facts *f)
{
	line("refreshkv", "%s, built by gcc %s", RK_VERSION, __VERSION__);
	line("device", "%s", f->device);
	line("instructions", "%s", f->isa);
	line("threads", "%d", f->n_thread);
	for (int i = 0; i < 4; i++)
		line(dir_name[i], "%s", f->dir[i]);
	line("default model", "%s%s", f->default_model, f->has_default ? "" : " (not there; `make model` fetches it)");
	for (int i = 0; i < rk_policy_n_preset(); i++) {
		printf("%-15s %-20s ", i ? "" : "policies", rk_policy_preset_name(i));
		rk_opt_wrap(stdout, 37, 37, rk_policy_preset_doc(i));
	}
}

static void print_shape(const struct facts *f)
{
	const rk_hparams *hp = &f->m->hp;
	char a[RK_NUM], b[RK_NUM], q[600];
	struct type_sum sum[MAX_TYPES];
	int n = sum_types(f->m->file, sum, MAX_TYPES);
	putchar('\n');
	line("model", "%s", rk_quote(q, sizeof q, f->m->name, strlen(f->m->name)));
	line("file", "%s, %s", rk_gguf_path(f->m->file), rk_num_bytes(a, (double)rk_gguf_bytes(f->m->file)));
	line("shape", "%d layers, width %d, %d heads, %d KV heads, head size %d, feed-forward %d", hp->n_layer, hp->n_embd, hp->n_head,
	     hp->n_kv_head, hp->head_dim, hp->n_ff);
	line("vocabulary", "%s tokens, output %s", rk_num_count(a, hp->n_vocab), f->m->tied ? "tied to the embeddings" : "of its own");
	line("context", "%s tokens in training", rk_num_count(a, hp->n_ctx_train));
	line("parameters", "%s, of which a step reads %s", rk_num_count(a, (int64_t)f->m->n_param),
	     rk_num_bytes(b, (double)f->m->weight_bytes));
	for (int i = 0; i < n; i++)
		line(i ? "" : "tensors", "%4d %-5s %10s", sum[i].count, rk_type_name(sum[i].type), rk_num_bytes(a, (double)sum[i].bytes));
	line("tokenizer", "%s", f->tok ? rk_tokenizer_pre(f->tok) : f->tok_err.msg);
	line("chat template", "%s", f->chat_err.msg[0] ? f->chat_err.msg : rk_chat_name(&f->chat));
}

static void print_plan(const struct facts *f)
{
	const rk_plan *p = &f->plan;
	char a[RK_NUM], b[RK_NUM], c[RK_NUM], spec[RK_SPEC_MAX];
	printf("\nmemory plan for a prompt of %s tokens and a reply of %s\n", rk_num_count(a, p->n_prompt), rk_num_count(b, p->max_new));
	line("weights", "%10s  mapped from the file", rk_num_bytes(a, (double)p->weights));
	line("prompt cache", "%10s  keys and values of the prompt, shared by all policies", rk_num_bytes(a, (double)p->prompt_store));
	if (p->sketch)
		line("sketches", "%10s  low-bit copies of the keys, for glances", rk_num_bytes(a, (double)p->sketch));
	for (int i = 0; i < p->n_lane; i++) {
		rk_policy_spec(&f->lanes.lane[i], spec);
		line("policy", "%10s  %s: own tokens %s, partial cache %s", rk_num_bytes(a, (double)(p->tail[i] + p->partial[i])), spec,
		     rk_num_bytes(b, (double)p->tail[i]), rk_num_bytes(c, (double)p->partial[i]));
	}
	line("activations", "%10s", rk_num_bytes(a, (double)p->activations));
	line("backend", "%10s  scratch", rk_num_bytes(a, (double)p->backend));
	line("total", "%10s", rk_num_bytes(a, (double)p->total));
}

/* ---- JSON ---- */

static json_t *presets_json(void)
{
	json_t *list = json_array();
	for (int i = 0; i < rk_policy_n_preset(); i++)
		json_array_append_new(list, json_pack("{s:s, s:s}", "name", rk_policy_preset_name(i), "doc", rk_policy_preset_doc(i)));
	return list;
}

static json_t *model_json(const struct facts *f)
{
	const rk_hparams *hp = &f->m->hp;
	struct type_sum sum[MAX_TYPES];
	int n = sum_types(f->m->file, sum, MAX_TYPES);
	json_t *types = json_object();
	for (int i = 0; i < n; i++)
		json_object_set_new(types, rk_type_name(sum[i].type),
		                    json_pack("{s:i, s:I}", "count", sum[i].count, "bytes", (json_int_t)sum[i].bytes));
	return json_pack("{s:o, s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:I, s:I, s:o, s:s?, s:s?}",
		"name", rk_json_text(f->m->name, strlen(f->m->name)), "file", rk_gguf_path(f->m->file),
		"file_bytes", (json_int_t)rk_gguf_bytes(f->m->file),
		"n_layer", hp->n_layer, "n_embd", hp->n_embd, "n_head", hp->n_head, "n_kv_head", hp->n_kv_head, "head_dim", hp->head_dim,
		"n_ff", hp->n_ff, "n_vocab", hp->n_vocab, "n_ctx_train", hp->n_ctx_train, "tied", f->m->tied,
		"n_param", (json_int_t)f->m->n_param, "weight_bytes_per_step", (json_int_t)f->m->weight_bytes, "tensors", types,
		"tokenizer", f->tok ? rk_tokenizer_pre(f->tok) : NULL,
		"chat_template", f->chat_err.msg[0] ? NULL : rk_chat_name(&f->chat));
}

static json_t *plan_json(const struct facts *f)
{
	const rk_plan *p = &f->plan;
	json_t *lanes = json_array();
	for (int i = 0; i < p->n_lane; i++) {
		char spec[RK_SPEC_MAX];
		rk_policy_spec(&f->lanes.lane[i], spec);
		json_array_append_new(lanes, json_pack("{s:s, s:I, s:I}", "policy", spec, "tail_bytes", (json_int_t)p->tail[i],
		                                       "partial_bytes", (json_int_t)p->partial[i]));
	}
	return json_pack("{s:i, s:i, s:I, s:I, s:I, s:o, s:I, s:I, s:I}", "n_prompt", p->n_prompt, "n_new", p->max_new,
		"weights_bytes", (json_int_t)p->weights, "prompt_cache_bytes", (json_int_t)p->prompt_store,
		"sketch_bytes", (json_int_t)p->sketch, "lanes", lanes,
		"activations_bytes", (json_int_t)p->activations, "backend_bytes", (json_int_t)p->backend,
		"total_bytes", (json_int_t)p->total);
}

static int print_json(const struct facts *f, rk_err *e)
{
	json_t *paths = json_object();
	for (int i = 0; i < 4; i++)
		json_object_set_new(paths, dir_name[i], rk_json_text(f->dir[i], strlen(f->dir[i])));
	json_object_set_new(paths, "default_model", rk_json_text(f->default_model, strlen(f->default_model)));
	json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:i, s:o, s:b, s:o}", "version", RK_VERSION, "compiler", "gcc " __VERSION__,
		"device", f->device, "isa", f->isa, "threads", f->n_thread, "paths", paths, "default_model_present", f->has_default,
		"presets", presets_json());
	if (root && f->m && (json_object_set_new(root, "model", model_json(f)) || json_object_set_new(root, "plan", plan_json(f)))) {
		json_decref(root);
		root = NULL;
	}
	int rc = rk_json_print(root, stdout, e);
	json_decref(root);
	return rc;
}

/* ---- the command ---- */

int rk_cmd_info(int argc, char **argv, rk_err *e)
{
	struct opts o;
	switch (rk_opt_parse(&rk_cmd_info_opt, argc, argv, &o, NULL, e)) {
	case 1: rk_opt_help(&rk_cmd_info_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	int rc = -1;
	struct facts *f = calloc(1, sizeof *f);
	if (!f)
		return rk_fail(e, RK_ENOMEM, "no memory");
	if (gather_machine(f, &o, e) || (o.model.model && gather_model(f, &o, e)))
		goto out;
	rc = 0;
	if (o.json) {
		rc = print_json(f, e);
	} else {
		print_machine(f);
		if (f->m) {
			print_shape(f);
			print_plan(f);
		}
	}
	if (rc == 0)
		rc = rk_out_flush(stdout, "standard output", e);
out:
	rk_backend_close(f->b);
	rk_tokenizer_free(f->tok);
	rk_model_free(f->m);
	free(f);
	return rc;
}
