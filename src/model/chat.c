/* chat.c: see chat.h.  A template is recognised by the markers it writes, never run.
 *
 * chatml: "<|im_start|>ROLE\nTEXT<|im_end|>\n" for each message, texts as they are.
 * llama3: "<|begin_of_text|>", then "<|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>" for each message,
 * white space (ASCII) trimmed from both ends of a text, as in Meta's template.  The lines with a knowledge cut-off and
 * today's date that Llama 3.1 and later put into a system message are left out.
 * raw: texts one after the other; a system message is set off by an empty line.
 * A system message of "" means none, also where the template has one of its own.
 */
#include "model/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE_KEY "tokenizer.chat_template"
#define CHOOSE "Choose with --chat-template chatml, llama3 or raw"
#define IM_START "<|im_start|>"
#define IM_END "<|im_end|>"
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define EOT "<|eot_id|>"

static const char *const names[] = {
	[RK_CHAT_RAW] = "raw", [RK_CHAT_CHATML] = "chatml", [RK_CHAT_LLAMA3] = "llama3",
};
#define N_NAME (sizeof names / sizeof names[0])

/* First match decides.  unsupported: a format that this program does not write, so that the error can name it. */
static const struct marker {
	const char *text;
	enum rk_chat kind;
	const char *unsupported;
} markers[] = {
	{ "<|im_sep|>", RK_CHAT_RAW, "phi4" },		/* has <|im_start|> too, but another layout */
	{ IM_START, RK_CHAT_CHATML, NULL },
	{ "<|start_header_id|>", RK_CHAT_LLAMA3, NULL },
	{ "<start_of_turn>", RK_CHAT_RAW, "gemma" },
	{ "[INST]", RK_CHAT_RAW, "mistral" },
	{ "<|end|>", RK_CHAT_RAW, "phi3" },		/* before zephyr: both write <|assistant|> */
	{ "<|assistant|>", RK_CHAT_RAW, "zephyr" },
	{ "<|START_OF_TURN_TOKEN|>", RK_CHAT_RAW, "command-r" },
	{ "<|start_of_role|>", RK_CHAT_RAW, "granite" },
	{ "<\xEF\xBD\x9C" "Assistant\xEF\xBD\x9C>", RK_CHAT_RAW, "deepseek" },
	{ "### Instruction", RK_CHAT_RAW, "alpaca" },
	{ "ASSISTANT:", RK_CHAT_RAW, "vicuna" },
};

/* ---- recognition --------------------------------------------------------------------------------------------- */

static const struct marker *find_marker(rk_str tmpl)
{
	for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++)
		if (memmem(tmpl.s, tmpl.len, markers[i].text, strlen(markers[i].text)))
			return &markers[i];
	return NULL;
}

static bool starts_with(const char *s, const char *end, const char *prefix)
{
	size_t n = strlen(prefix);
	return (size_t)(end - s) >= n && !memcmp(s, prefix, n);
}

/* Reads a literal of the template from s up to IM_END into out (up to cap bytes), undoing the escapes of a quoted one
 * (quote = 0: text outside of an expression).  Returns its length, which may exceed cap; -1: it is not all literal. */
static int64_t read_literal(const char *s, const char *end, char quote, char *out, size_t cap)
{
	size_t n = 0;
	for (; s < end; s++) {
		char c = *s;
		if (starts_with(s, end, IM_END))
			return (int64_t)n;
		if (c == (quote ? quote : '{'))
			return -1;
		if (quote && c == '\\' && s + 1 < end) {
			c = *++s;
			c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
		}
		if (n < cap)
			out[n] = c;
		n++;
	}
	return -1;
}

/* The system message that a chatml template writes by itself: literal text between its system header and IM_END, as in
 * SmolLM2's and Qwen2's.  "" when there is none. */
static int default_system(rk_chat_template *c, const rk_gguf *g, rk_str tmpl, rk_err *e)
{
	static const char header[] = IM_START "system";
	const char *end = tmpl.s + tmpl.len, *s = tmpl.s;

	while ((s = memmem(s, (size_t)(end - s), header, strlen(header)))) {
		char quote = s > tmpl.s && (s[-1] == '\'' || s[-1] == '"') ? s[-1] : 0;
		s += strlen(header);
		if (starts_with(s, end, "\n"))
			s += 1;
		else if (quote && starts_with(s, end, "\\n"))
			s += 2;
		else
			continue;
		int64_t n = read_literal(s, end, quote, c->system, sizeof c->system - 1);
		if (n >= (int64_t)sizeof c->system) {
			c->system[0] = 0;
			return rk_fail(e, RK_EMODEL, "%s: " TEMPLATE_KEY ": its default system message has %lld bytes, "
				"at most %zu; --chat-template chatml goes without it",
				rk_gguf_path(g), (long long)n, sizeof c->system - 1);
		}
		c->system[n > 0 ? n : 0] = 0;
		if (n > 0)
			return 0;
	}
	return 0;
}

int rk_chat_detect(rk_chat_template *c, const rk_gguf *g, const char *name, rk_err *e)
{
	rk_str tmpl = { "", 0 };
	int has = rk_gguf_str(g, TEMPLATE_KEY, &tmpl, e);
	const struct marker *m = has == 0 ? find_marker(tmpl) : NULL;

	*c = (rk_chat_template){ .kind = RK_CHAT_RAW };
	if (name) {
		size_t i = 0;
		while (i < N_NAME && strcmp(name, names[i]))
			i++;
		if (i == N_NAME)
			return rk_fail(e, RK_EUSAGE, "--chat-template %s: not known (chatml, llama3, raw)", name);
		c->kind = (enum rk_chat)i;
		/* Naming what the file has anyway must not lose the file's default; one that does not fit is no error. */
		if (c->kind == RK_CHAT_CHATML && m && m->kind == RK_CHAT_CHATML)
			default_system(c, g, tmpl, NULL);
		return 0;
	}
	if (has < 0)
		return -1;
	if (has > 0)
		return rk_fail(e, RK_EMODEL, "%s: no " TEMPLATE_KEY ": not a chat model?  " CHOOSE, rk_gguf_path(g));
	if (!m)
		return rk_fail(e, RK_EMODEL, "%s: " TEMPLATE_KEY " is of an unknown kind.  " CHOOSE, rk_gguf_path(g));
	if (m->unsupported)
		return rk_fail(e, RK_EMODEL, "%s: " TEMPLATE_KEY " is of the kind \"%s\", which is not supported.  " CHOOSE,
			rk_gguf_path(g), m->unsupported);
	c->kind = m->kind;
	return c->kind == RK_CHAT_CHATML ? default_system(c, g, tmpl, e) : 0;
}

const char *rk_chat_name(const rk_chat_template *c)
{
	return names[c->kind];
}

/* ---- formatting ---------------------------------------------------------------------------------------------- */

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static rk_str trimmed(const char *s)
{
	size_t n = strlen(s);

	while (n && is_space(s[n - 1]))
		n--;
	while (n && is_space(*s)) {
		s++;
		n--;
	}
	return (rk_str){ s, n };
}

static rk_stretch say(FILE *f, rk_str s)
{
	long at = ftell(f);

	fwrite(s.s, 1, s.len, f);
	return (rk_stretch){ (size_t)at, s.len };
}

int rk_chat_turn(const rk_chat_template *c, const char *system, const char *user, bool first, bool closed, char **out, rk_stretch said[2],
                 rk_err *e)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	rk_stretch where[2] = { 0 };	/* of system and user */

	*out = NULL;
	if (!f)
		goto fail;
	if (!system)
		system = c->system;
	bool with_system = first && *system;
	switch (c->kind) {
	case RK_CHAT_RAW:
		fprintf(f, "%s%s%s", with_system ? system : "", with_system ? "\n\n" : "", user);
		break;
	case RK_CHAT_CHATML:
		if (!first)
			fprintf(f, "%s\n", closed ? "" : IM_END);
		if (with_system) {
			fputs(IM_START "system\n", f);
			where[0] = say(f, (rk_str){ system, strlen(system) });
			fputs(IM_END "\n", f);
		}
		fputs(IM_START "user\n", f);
		where[1] = say(f, (rk_str){ user, strlen(user) });
		fputs(IM_END "\n" IM_START "assistant\n", f);
		break;
	case RK_CHAT_LLAMA3: {
		rk_str s = trimmed(system), u = trimmed(user);
		fputs(first ? "<|begin_of_text|>" : closed ? "" : EOT, f);
		if (with_system) {
			fputs(HEADER("system"), f);
			where[0] = say(f, s);
			fputs(EOT, f);
		}
		fputs(HEADER("user"), f);
		where[1] = say(f, u);
		fputs(EOT HEADER("assistant"), f);
		break;
	}
	}
	int bad = ferror(f);
	if (fclose(f) == 0 && !bad) {
		*out = text;
		if (said)
			memcpy(said, where, sizeof where);
		return 0;
	}
fail:
	free(text);
	return rk_fail(e, RK_ENOMEM, "no memory to format a message of %zu bytes", strlen(user));
}
