/* model.c: see model.h.
 *
 * Loading is: what kind of file is this, hyper-parameters (each with a limit), then every tensor of the file must be
 * one that the forward pass reads, and every tensor that it reads must be there with the right shape.  A file that this
 * program would run wrongly (biases, experts, other rotations) is refused by name instead.  Nothing is converted:
 * weights are read where they lie in the mapped file.
 */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EMBD (1 << 16)
#define MAX_FF (1 << 18)
#define MAX_HEAD 1024
#define MAX_HEAD_DIM 256
#define MAX_CTX (1 << 24)
#define MAX_VOCAB (1 << 22)

#define FAIL(m, e, fmt, ...) rk_fail(e, RK_EMODEL, "%s: " fmt, rk_gguf_path((m)->file), ##__VA_ARGS__)

static bool str_is(rk_str s, const char *want)
{
	return s.len == strlen(want) && !memcmp(s.s, want, s.len);
}

/* Copies text of the file for a message or a label: bytes that are not printable ASCII become '?'. */
static void copy_label(char *to, size_t size, rk_str s)
{
	size_t n = s.len < size - 1 ? s.len : size - 1;
	for (size_t i = 0; i < n; i++)
		to[i] = s.s[i] >= ' ' && s.s[i] <= '~' ? s.s[i] : '?';
	to[n] = 0;
}

/* What kind of file */

/* "model-00002-of-00003.gguf": part and count from the name; false for other names. */
static bool part_of_name(const char *path, unsigned *part, unsigned *count)
{
	const char *dash = strrchr(path, '-');
	int end = 0;
	if (!dash || dash - path < 9)
		return false;
	return sscanf(dash - 9, "-%5u-of-%5u.gguf%n", part, count, &end) == 2 && end > 0 && !dash[-9 + end];
}

static int check_split(const rk_model *m, rk_err *e)
{
	uint32_t count = 0, part = 0;
	unsigned name_part, name_count;
	if (rk_gguf_u32(m->file, "split.count", &count, e) < 0 || rk_gguf_u32(m->file, "split.no", &part, e) < 0)
		return -1;
	part++;		/* split.no counts from 0, names from 1 */
	if (count <= 1 && part_of_name(rk_gguf_path(m->file), &name_part, &name_count)) {
		part = name_part;
		count = name_count;
	}
	if (count > 1)
		return FAIL(m, e, "part %u of a model split into %u files; the other parts are missing from it: join them "
			    "into one file first (llama-gguf-split --merge)", part, count);
	return 0;
}

static int check_kind(const rk_model *m, rk_err *e)
{
	rk_str arch;
	char label[64];
	int rc = rk_gguf_str(m->file, "general.architecture", &arch, e);
	if (rc < 0)
		return -1;
	if (rc > 0)
		return FAIL(m, e, "key 'general.architecture' is missing");
	copy_label(label, sizeof label, arch);
	if (!str_is(arch, "llama"))
		return FAIL(m, e, "architecture '%s' is not supported; 'llama' is", label);
	if (check_split(m, e))
		return -1;
	if (rk_gguf_n_tensor(m->file) == 0)
		return FAIL(m, e, "a vocabulary-only file: it has no weights");
	return 0;
}

/* Hyper-parameters */

/* An integer key in lo..hi.  Absent: *out keeps its value if `optional`, else an error. */
static int get_int(const rk_model *m, const char *key, bool optional, int lo, int hi, int *out, rk_err *e)
{
	uint32_t v;
	int rc = rk_gguf_u32(m->file, key, &v, e);
	if (rc < 0)
		return -1;
	if (rc > 0)
		return optional ? 0 : FAIL(m, e, "key '%s' is missing", key);
	if (v < (uint32_t)lo || v > (uint32_t)hi)
		return FAIL(m, e, "key '%s' is %u; %d to %d are allowed", key, v, lo, hi);
	*out = (int)v;
	return 0;
}

/* A real key in lo..hi; a NaN is outside. */
static int get_real(const rk_model *m, const char *key, bool optional, double lo, double hi, double *out, rk_err *e)
{
	double v;
	int rc = rk_gguf_f64(m->file, key, &v, e);
	if (rc < 0)
		return -1;
	if (rc > 0)
		return optional ? 0 : FAIL(m, e, "key '%s' is missing", key);
	if (!(v >= lo && v <= hi))
		return FAIL(m, e, "key '%s' is %g; %g to %g are allowed", key, v, lo, hi);
	*out = v;
	return 0;
}

/* n_head, n_kv_head and head_dim, which is n_embd / n_head unless the file says otherwise. */
static int load_heads(rk_model *m, rk_err *e)
{
	rk_hparams *hp = &m->hp;
	if (get_int(m, "llama.attention.head_count", false, 1, MAX_HEAD, &hp->n_head, e))
		return -1;
	hp->n_kv_head = hp->n_head;
	if (get_int(m, "llama.attention.head_count_kv", true, 1, hp->n_head, &hp->n_kv_head, e))
		return -1;
	if (hp->n_head % hp->n_kv_head)
		return FAIL(m, e, "key 'llama.attention.head_count_kv' is %d, which does not divide the %d heads",
			    hp->n_kv_head, hp->n_head);
	if (get_int(m, "llama.attention.key_length", true, 1, MAX_HEAD_DIM, &hp->head_dim, e))
		return -1;
	if (hp->head_dim == 0 && hp->n_embd % hp->n_head)
		return FAIL(m, e, "key 'llama.attention.head_count' is %d, which does not divide the embedding length %d",
			    hp->n_head, hp->n_embd);
	if (hp->head_dim == 0)
		hp->head_dim = hp->n_embd / hp->n_head;
	if (hp->head_dim > MAX_HEAD_DIM || hp->head_dim % 2)
		return FAIL(m, e, "heads of %d elements; even numbers up to %d are allowed", hp->head_dim, MAX_HEAD_DIM);
	int value_dim = hp->head_dim;
	if (get_int(m, "llama.attention.value_length", true, 1, MAX_HEAD_DIM, &value_dim, e))
		return -1;
	if (value_dim != hp->head_dim)
		return FAIL(m, e, "key 'llama.attention.value_length' is %d, but keys have %d elements; they must be equal",
			    value_dim, hp->head_dim);
	return 0;
}

/* Divisors of the frequencies, [rope_dim/2] f32 (llama 3.1 and later); *div = NULL when the file has none. */
static int rope_divisors(const rk_model *m, const float **div, rk_err *e)
{
	const rk_tensor *t = rk_gguf_tensor(m->file, "rope_freqs.weight");
	*div = NULL;
	if (!t)
		return 0;
	if (t->type != RK_F32 || t->n_row != 1 || t->n_col != m->hp.rope_dim / 2)
		return FAIL(m, e, "tensor 'rope_freqs.weight' is %s, %lld x %lld; F32, 1 x %d is needed", rk_type_name(t->type),
			    (long long)t->n_row, (long long)t->n_col, m->hp.rope_dim / 2);
	*div = t->data;
	for (int64_t i = 0; i < t->n_col; i++)
		if (!((*div)[i] >= 1e-6f && (*div)[i] <= 1e6f))
			return FAIL(m, e, "tensor 'rope_freqs.weight': element %lld is %g; 1e-6 to 1e6 are allowed", (long long)i,
				    (double)(*div)[i]);
	return 0;
}

/* Linear scaling divides every frequency by one factor.  A factor without a type means linear, as in llama.cpp;
 * rope.scale_linear is the factor's name in old files. */
static int rope_factor(const rk_model *m, bool has_divisors, double *factor, rk_err *e)
{
	rk_str type = { "linear", 6 };
	char label[64];
	*factor = 1;
	if (rk_gguf_str(m->file, "llama.rope.scaling.type", &type, e) < 0)
		return -1;
	copy_label(label, sizeof label, type);
	if (str_is(type, "none"))
		return 0;
	if (str_is(type, "llama3"))	/* the factor has gone into the divisors */
		return has_divisors ? 0 :
		       FAIL(m, e, "rope scaling 'llama3' needs the tensor 'rope_freqs.weight', which is missing");
	if (!str_is(type, "linear"))
		return FAIL(m, e, "key 'llama.rope.scaling.type' is '%s'; none, linear and llama3 are supported", label);
	if (get_real(m, "llama.rope.scale_linear", true, 1e-3, 1e6, factor, e))
		return -1;
	return get_real(m, "llama.rope.scaling.factor", true, 1e-3, 1e6, factor, e);
}

static int load_rope(rk_model *m, rk_err *e)
{
	rk_hparams *hp = &m->hp;
	double theta = 10000, factor;
	const float *div;
	hp->rope_dim = hp->head_dim;
	if (get_real(m, "llama.rope.freq_base", true, 1, 1e12, &theta, e) ||
	    get_int(m, "llama.rope.dimension_count", true, 2, hp->head_dim, &hp->rope_dim, e))
		return -1;
	if (hp->rope_dim % 2)
		return FAIL(m, e, "key 'llama.rope.dimension_count' is %d; it must be even", hp->rope_dim);
	if (rope_divisors(m, &div, e) || rope_factor(m, div != NULL, &factor, e))
		return -1;
	hp->rope_theta = (float)theta;
	hp->rope_scaling = div ? RK_ROPE_LLAMA3 : factor != 1 ? RK_ROPE_LINEAR : RK_ROPE_PLAIN;
	hp->rope_freq = malloc((size_t)hp->rope_dim / 2 * sizeof *hp->rope_freq);
	if (!hp->rope_freq)
		return rk_fail(e, RK_ENOMEM, "%s: no memory for the rotation frequencies", rk_gguf_path(m->file));
	for (int i = 0; i < hp->rope_dim / 2; i++)	/* in double: an error here grows with the position */
		hp->rope_freq[i] = (float)(pow(theta, -2.0 * i / hp->rope_dim) / factor / (div ? (double)div[i] : 1));
	return 0;
}

static int load_hparams(rk_model *m, rk_err *e)
{
	rk_hparams *hp = &m->hp;
	int n_expert = 0;
	double eps = 0;
	if (get_int(m, "llama.block_count", false, 1, RK_MAX_LAYER, &hp->n_layer, e) ||
	    get_int(m, "llama.embedding_length", false, 1, MAX_EMBD, &hp->n_embd, e) ||
	    get_int(m, "llama.feed_forward_length", false, 1, MAX_FF, &hp->n_ff, e) ||
	    get_int(m, "llama.context_length", false, 1, MAX_CTX, &hp->n_ctx_train, e) ||
	    get_real(m, "llama.attention.layer_norm_rms_epsilon", false, 1e-12, 0.1, &eps, e) ||
	    get_int(m, "llama.expert_count", true, 0, INT32_MAX, &n_expert, e))
		return -1;
	if (n_expert)
		return FAIL(m, e, "key 'llama.expert_count' is %d: a mixture of experts, which is not supported", n_expert);
	hp->rms_eps = (float)eps;
	return load_heads(m, e) || load_rope(m, e) ? -1 : 0;
}

/* Weights */

/* One row per tensor of a layer: its name after "blk.N.", its place in rk_layer_weights, and its shape. */
enum dim { ONE, EMBD, HEADS, KV_HEADS, FF };

static const struct layer_tensor {
	const char *name;
	size_t at;
	enum dim n_row, n_col;
} layer_tensors[] = {
	{ "attn_norm.weight", offsetof(rk_layer_weights, attn_norm), ONE, EMBD },
	{ "attn_q.weight", offsetof(rk_layer_weights, wq), HEADS, EMBD },
	{ "attn_k.weight", offsetof(rk_layer_weights, wk), KV_HEADS, EMBD },
	{ "attn_v.weight", offsetof(rk_layer_weights, wv), KV_HEADS, EMBD },
	{ "attn_output.weight", offsetof(rk_layer_weights, wo), EMBD, HEADS },
	{ "ffn_norm.weight", offsetof(rk_layer_weights, ffn_norm), ONE, EMBD },
	{ "ffn_gate.weight", offsetof(rk_layer_weights, w_gate), FF, EMBD },
	{ "ffn_up.weight", offsetof(rk_layer_weights, w_up), FF, EMBD },
	{ "ffn_down.weight", offsetof(rk_layer_weights, w_down), EMBD, FF },
};
#define N_LAYER_TENSOR (sizeof layer_tensors / sizeof *layer_tensors)

static void layer_tensor_name(char *out, size_t size, int layer, size_t i)
{
	snprintf(out, size, "blk.%d.%s", layer, layer_tensors[i].name);
}

static int64_t extent(const rk_hparams *hp, enum dim d)
{
	switch (d) {
	case EMBD:
		return hp->n_embd;
	case HEADS:
		return (int64_t)hp->n_head * hp->head_dim;
	case KV_HEADS:
		return (int64_t)hp->n_kv_head * hp->head_dim;
	case FF:
		return hp->n_ff;
	default:
		return 1;
	}
}

/* Binds a tensor by name; n_row < 0: any number of rows.  Vectors (n_row 1) are norms, which must be F32. */
static int bind(rk_model *m, const char *name, int64_t n_row, int64_t n_col, rk_tensor *to, rk_err *e)
{
	const rk_tensor *t = rk_gguf_tensor(m->file, name);
	if (!t)
		return FAIL(m, e, "tensor '%s' is missing", name);
	if (t->n_col != n_col || (n_row >= 0 && t->n_row != n_row))
		return FAIL(m, e, "tensor '%s' is %lld x %lld; %lld x %lld is needed", name, (long long)t->n_row,
			    (long long)t->n_col, (long long)(n_row < 0 ? t->n_row : n_row), (long long)n_col);
	if (n_row == 1 && t->type != RK_F32)
		return FAIL(m, e, "tensor '%s' is of type %s; F32 is needed", name, rk_type_name(t->type));
	*to = *t;
	return 0;
}

/* Is this a tensor that load_weights binds, or load_rope reads? */
static bool is_known(const rk_model *m, const char *name)
{
	static const char *const global[] = {
		"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"
	};
	int layer;
	char want[64];
	for (size_t i = 0; i < sizeof global / sizeof *global; i++)
		if (!strcmp(name, global[i]))
			return true;
	if (sscanf(name, "blk.%4d.", &layer) != 1 || layer >= m->hp.n_layer)
		return false;
	for (size_t i = 0; i < N_LAYER_TENSOR; i++) {
		layer_tensor_name(want, sizeof want, layer, i);
		if (!strcmp(name, want))
			return true;
	}
	return false;
}

/* A tensor that the forward pass would leave out means that its result would be wrong. */
static int check_unknown(const rk_model *m, rk_err *e)
{
	char name[96];
	for (size_t i = 0; i < rk_gguf_n_tensor(m->file); i++) {
		copy_label(name, sizeof name, rk_gguf_tensor_at(m->file, i)->name);
		size_t n = strlen(name);
		if (n > 5 && !strcmp(name + n - 5, ".bias"))
			return FAIL(m, e, "tensor '%s': biases are not supported", name);
		if (!is_known(m, name))
			return FAIL(m, e, "tensor '%s' is no part of a llama model of %d layers", name, m->hp.n_layer);
	}
	return 0;
}

/* The tokenizer's vocabulary must fit the embedding table, or a token id would read past its end. */
static int check_vocab(const rk_model *m, rk_err *e)
{
	rk_str *tokens;
	size_t n;
	int rc = rk_gguf_str_array(m->file, "tokenizer.ggml.tokens", &tokens, &n, e);
	if (rc)
		return rc < 0 ? -1 : 0;
	free(tokens);
	if (n > (size_t)m->hp.n_vocab)
		return FAIL(m, e, "key 'tokenizer.ggml.tokens' has %zu tokens, but 'token_embd.weight' has %d rows", n,
			    m->hp.n_vocab);
	return 0;
}

static void count(rk_model *m, const rk_tensor *t, bool read_per_step)
{
	m->n_param += (size_t)t->n_row * (size_t)t->n_col;
	if (read_per_step)
		m->weight_bytes += (size_t)t->n_row * rk_type_row_bytes(t->type, t->n_col);
}

static int load_layer(rk_model *m, int layer, rk_err *e)
{
	char name[64];
	for (size_t i = 0; i < N_LAYER_TENSOR; i++) {
		const struct layer_tensor *lt = &layer_tensors[i];
		rk_tensor *to = (rk_tensor *)((char *)&m->w.layer[layer] + lt->at);
		layer_tensor_name(name, sizeof name, layer, i);
		if (bind(m, name, extent(&m->hp, lt->n_row), extent(&m->hp, lt->n_col), to, e))
			return -1;
		count(m, to, true);
	}
	return 0;
}

static int load_weights(rk_model *m, rk_err *e)
{
	rk_weights *w = &m->w;
	int n_embd = m->hp.n_embd;
	if (check_unknown(m, e) || bind(m, "token_embd.weight", -1, n_embd, &w->tok_embd, e) ||
	    bind(m, "output_norm.weight", 1, n_embd, &w->out_norm, e))
		return -1;
	if (w->tok_embd.n_row > MAX_VOCAB)
		return FAIL(m, e, "tensor 'token_embd.weight' has %lld rows; the limit is %d", (long long)w->tok_embd.n_row,
			    MAX_VOCAB);
	m->hp.n_vocab = (int)w->tok_embd.n_row;
	m->tied = !rk_gguf_tensor(m->file, "output.weight");
	w->output = w->tok_embd;
	if (check_vocab(m, e) || (!m->tied && bind(m, "output.weight", m->hp.n_vocab, n_embd, &w->output, e)))
		return -1;
	count(m, &w->tok_embd, m->tied);
	count(m, &w->out_norm, true);
	if (!m->tied)
		count(m, &w->output, true);
	w->layer = calloc((size_t)m->hp.n_layer, sizeof *w->layer);
	if (!w->layer)
		return rk_fail(e, RK_ENOMEM, "%s: no memory for a table of %d layers", rk_gguf_path(m->file), m->hp.n_layer);
	for (int l = 0; l < m->hp.n_layer; l++)
		if (load_layer(m, l, e))
			return -1;
	return 0;
}

static int load_name(rk_model *m, rk_err *e)
{
	const char *path = rk_gguf_path(m->file), *slash = strrchr(path, '/');
	rk_str name = { "", 0 };
	if (rk_gguf_str(m->file, "general.name", &name, e) < 0)
		return -1;
	if (name.len == 0) {
		name.s = slash ? slash + 1 : path;
		name.len = strlen(name.s);
	}
	copy_label(m->name, sizeof m->name, name);
	return 0;
}

int rk_model_load(rk_model **out, const char *path, rk_err *e)
{
	rk_model *m = calloc(1, sizeof *m);
	*out = NULL;
	if (!m)
		return rk_fail(e, RK_ENOMEM, "%s: no memory to open it", path);
	if (rk_gguf_open(&m->file, path, e) || check_kind(m, e) || load_name(m, e) || load_hparams(m, e) ||
	    load_weights(m, e)) {
		rk_model_free(m);
		return -1;
	}
	*out = m;
	return 0;
}

void rk_model_free(rk_model *m)
{
	if (!m)
		return;
	free(m->hp.rope_freq);
	free(m->w.layer);
	rk_gguf_close(m->file);
	free(m);
}
