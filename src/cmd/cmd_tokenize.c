/* cmd_tokenize.c: `refreshkv tokenize`: text to token ids and back.  Loads the vocabulary only, not the weights. */
#include "cmd/cmd.h"

#include <stdlib.h>
#include <string.h>
#include "cmd/doc.h"
#include "cmd/out.h"

struct opts {
	rk_model_opts model;
	bool decode, no_special, bos, lossy;
};

static const rk_opt rows[] = {
	{ "decode", 'd', RK_OPT_FLAG, offsetof(struct opts, decode), .doc = "ids on standard input to text on standard output" },
	{ "no-special", 0, RK_OPT_FLAG, offsetof(struct opts, no_special),
	  .doc = "the names of special tokens are ordinary text, not those tokens" },
	{ "bos", 0, RK_OPT_FLAG, offsetof(struct opts, bos), .doc = "start with BOS, where the model wants one" },
	{ "lossy", 0, RK_OPT_FLAG, offsetof(struct opts, lossy), .doc = "replace invalid UTF-8 and NUL bytes by U+FFFD" },
	{ 0 }
};

static const rk_opt_group groups[] = {
	{ "Options", rows, 0 },
	{ "Model", rk_model_rows, offsetof(struct opts, model) },
	{ 0 }
};

const rk_opt_cmd rk_cmd_tokenize_opt = {
	.name = "tokenize", .operands = "", .groups = groups,
	.doc = "Turn the text on standard input into token ids, on one line; --decode: back.",
};

static int encode(const rk_tokenizer *t, const struct opts *o, rk_err *e)
{
	char *text;
	size_t len, n;
	int32_t *ids;
	if (rk_doc_read("-", o->lossy, &text, &len, e))
		return -1;
	unsigned flags = (o->no_special ? 0 : RK_TOK_SPECIAL) | (o->bos ? RK_TOK_BOS : 0);
	int rc = rk_tokenize(t, text, len, flags, &ids, &n, e);
	free(text);
	if (rc)
		return -1;
	for (size_t i = 0; i < n; i++)
		printf(i ? " %d" : "%d", ids[i]);
	putchar('\n');
	free(ids);
	return 0;
}

static int decode(const rk_tokenizer *t, rk_err *e)
{
	char *text;
	size_t len, n;
	int32_t *ids;
	if (rk_doc_read_bytes("-", &text, &len, e))
		return -1;
	int rc = rk_ids_parse("-", text, len, &ids, &n, e);
	free(text);
	if (rc)
		return -1;
	rc = rk_ids_check("-", ids, n, rk_tokenizer_n_vocab(t), e);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		size_t size;
		const char *bytes = rk_token_bytes(t, ids[i], &size);
		fwrite(bytes, 1, size, stdout);
	}
	free(ids);
	return rc;
}

int rk_cmd_tokenize(int argc, char **argv, rk_err *e)
{
	struct opts o;
	switch (rk_opt_parse(&rk_cmd_tokenize_opt, argc, argv, &o, NULL, e)) {
	case 1: rk_opt_help(&rk_cmd_tokenize_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	char buf[RK_PATH_MAX];
	const char *path;
	rk_gguf *g = NULL;
	rk_tokenizer *t = NULL;
	int rc = -1;
	if (rk_cmd_model_path(o.model.model, buf, &path, e) || rk_gguf_open(&g, path, e) || rk_tokenizer_init(&t, g, e))
		goto out;
	rc = o.decode ? decode(t, e) : encode(t, &o, e);
	if (rc == 0)
		rc = rk_out_flush(stdout, "standard output", e);
out:
	rk_tokenizer_free(t);
	rk_gguf_close(g);
	return rc;
}
