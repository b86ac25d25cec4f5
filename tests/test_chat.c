/* test_chat.c: model/chat: recognition of templates by their text, and the text of each turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aid_gguf.h"
#include "model/chat.h"

#define SMOL_SYSTEM "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
/* Templates as the models' files have them, the middle of long ones left out. */
#define SMOL_HEAD "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}" \
	"{{ '<|im_start|>system\n"
#define SMOL_TAIL "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + " \
	"'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define SMOLLM2 SMOL_HEAD SMOL_SYSTEM SMOL_TAIL
#define QWEN25 "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + " \
	"'<|im_end|>\\n' }}{%- else %}{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. " \
	"You\\'re helpful.<|im_end|>\\n' }}{%- endif %}"
#define PLAIN_CHATML "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}" \
	"<|im_start|>assistant\n"
#define LLAMA3 "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + " \
	"message['content'] | trim + '<|eot_id|>' %}"

/* tmpl NULL: no key. */
static int detect(rk_chat_template *c, const char *tmpl, const char *name, rk_err *e)
{
	aid_gguf *w = aid_gguf_new();
	rk_gguf *g;
	char path[32];
	size_t size;

	aid_gguf_str(w, "general.architecture", "llama");
	if (tmpl)
		aid_gguf_str(w, "tokenizer.chat_template", tmpl);
	uint8_t *bytes = aid_gguf_bytes(w, &size);
	int fd = aid_memfd(bytes, size, path);
	assert_int_equal(rk_gguf_open(&g, path, e), 0);
	int rc = rk_chat_detect(c, g, name, e);
	rk_gguf_close(g);
	close(fd);
	free(bytes);
	aid_gguf_free(w);
	return rc;
}

static rk_chat_template must_detect(const char *tmpl, const char *name)
{
	rk_chat_template c;
	rk_err e = { 0 };
	if (detect(&c, tmpl, name, &e))
		fail_msg("%s", e.msg);
	return c;
}

static void templates_are_recognised(void **state)
{
	static const struct { const char *tmpl, *name, *want, *system; } cases[] = {
		{ SMOLLM2, NULL, "chatml", SMOL_SYSTEM },
		{ QWEN25, NULL, "chatml", "You are Qwen, created by Alibaba Cloud. You're helpful." },
		{ PLAIN_CHATML, NULL, "chatml", "" },
		{ "<|im_start|>system\nBe brief.<|im_end|>\n" PLAIN_CHATML, NULL, "chatml", "Be brief." },
		{ "<|im_start|>system\n{{ x }}<|im_end|>\n" PLAIN_CHATML, NULL, "chatml", "" },
		{ "{{ '<|im_start|>system\n", NULL, "chatml", "" },
		{ "{{ '<|im_start|>system\\", NULL, "chatml", "" },
		{ "{{ '<|im_start|>system", NULL, "chatml", "" },
		{ "{{ '<|im_start|>system\nnever closed", NULL, "chatml", "" },
		{ LLAMA3, NULL, "llama3", "" },
		{ SMOLLM2, "chatml", "chatml", SMOL_SYSTEM },	/* naming what the file has changes nothing */
		{ SMOLLM2, "raw", "raw", "" },
		{ SMOLLM2, "llama3", "llama3", "" },
		{ LLAMA3, "chatml", "chatml", "" },
		{ NULL, "chatml", "chatml", "" },
		{ "[INST]", "llama3", "llama3", "" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		rk_chat_template c = must_detect(cases[i].tmpl, cases[i].name);
		assert_string_equal(rk_chat_name(&c), cases[i].want);
		assert_string_equal(c.system, cases[i].system);
	}
}

static void others_are_refused_by_name(void **state)
{
	static const struct { const char *tmpl, *name, *why; enum rk_code code; } cases[] = {
		{ NULL, NULL, "no tokenizer.chat_template", RK_EMODEL },
		{ "", NULL, "unknown kind", RK_EMODEL },
		{ "{{ messages }}", NULL, "unknown kind", RK_EMODEL },
		{ "<start_of_turn>user", NULL, "\"gemma\"", RK_EMODEL },
		{ "[INST] {{ x }} [/INST]", NULL, "\"mistral\"", RK_EMODEL },
		{ "<|user|>\n{{ x }}<|end|>\n<|assistant|>\n", NULL, "\"phi3\"", RK_EMODEL },
		{ "<|user|>\n{{ x }}</s>\n<|assistant|>\n", NULL, "\"zephyr\"", RK_EMODEL },
		{ "<|im_start|>user<|im_sep|>{{ x }}<|im_end|>", NULL, "\"phi4\"", RK_EMODEL },
		{ SMOLLM2, "ChatML", "--chat-template ChatML", RK_EUSAGE },
		{ SMOLLM2, "", "--chat-template ", RK_EUSAGE },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		rk_chat_template c;
		rk_err e = { 0 };
		assert_int_equal(detect(&c, cases[i].tmpl, cases[i].name, &e), -1);
		assert_int_equal(e.code, cases[i].code);
		if (!strstr(e.msg, cases[i].why) || !strstr(e.msg, "--chat-template") || !strstr(e.msg, "chatml, llama3") ||
				!strstr(e.msg, "raw"))
			fail_msg("\"%s\" lacks \"%s\" or the flag", e.msg, cases[i].why);
	}
}

static void default_system_fits_or_is_refused(void **state)
{
	(void)state;
	rk_chat_template c;
	for (size_t n = 254; n <= 257; n++) {
		char message[300] = "", tmpl[2000];
		rk_err e = { 0 };
		memset(message, 'm', n);
		strcat(strcat(strcpy(tmpl, SMOL_HEAD), message), SMOL_TAIL);
		int rc = detect(&c, tmpl, NULL, &e);
		assert_int_equal(rc, n <= 255 ? 0 : -1);
		if (rc == 0)
			assert_string_equal(c.system, message);
		else
			assert_non_null(strstr(e.msg, "at most 255"));
		c = must_detect(tmpl, "chatml");	/* the way out that the error names */
		assert_string_equal(c.system, n <= 255 ? message : "");
	}
}

static void expect_turn(const rk_chat_template *c, const char *system, const char *user, bool first, bool closed,
	const char *want)
{
	char *text;
	rk_err e = { 0 };
	if (rk_chat_turn(c, system, user, first, closed, &text, NULL, &e))
		fail_msg("%s", e.msg);
	assert_string_equal(text, want);
	free(text);
}

static void chatml_turns(void **state)
{
	(void)state;
	rk_chat_template c = must_detect(SMOLLM2, NULL), plain = must_detect(PLAIN_CHATML, NULL);
#define U "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
	expect_turn(&c, NULL, "U", true, false, "<|im_start|>system\n" SMOL_SYSTEM "<|im_end|>\n" U);
	expect_turn(&c, "S", "U", true, false, "<|im_start|>system\nS<|im_end|>\n" U);
	expect_turn(&c, "", "U", true, false, U);	/* "" = none */
	expect_turn(&plain, NULL, "U", true, false, U);
	expect_turn(&c, NULL, "U", false, true, "\n" U);		/* <|im_end|> is in the cache */
	expect_turn(&c, NULL, "U", false, false, "<|im_end|>\n" U);	/* the reply was cut short */
	expect_turn(&c, "S", "U", false, true, "\n" U);
	expect_turn(&plain, NULL, " U%s\n", true, false, "<|im_start|>user\n U%s\n<|im_end|>\n<|im_start|>assistant\n");
#undef U
}

static void llama3_turns(void **state)
{
	(void)state;
	rk_chat_template c = must_detect(LLAMA3, NULL);
#define H(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define U H("user") "U<|eot_id|>" H("assistant")
	expect_turn(&c, NULL, "U", true, false, "<|begin_of_text|>" U);
	expect_turn(&c, "S", "U", true, false, "<|begin_of_text|>" H("system") "S<|eot_id|>" U);
	expect_turn(&c, " S\n", "\t U \r\n", true, false, "<|begin_of_text|>" H("system") "S<|eot_id|>" U);
	expect_turn(&c, NULL, "U", false, true, U);
	expect_turn(&c, NULL, "U", false, false, "<|eot_id|>" U);
	expect_turn(&c, NULL, " \n", true, false, "<|begin_of_text|>" H("user") "<|eot_id|>" H("assistant"));
#undef U
#undef H
}

static void raw_turns(void **state)
{
	(void)state;
	rk_chat_template c = must_detect(NULL, "raw");
	expect_turn(&c, NULL, " as it is \n", true, false, " as it is \n");
	expect_turn(&c, "S", "U", true, false, "S\n\nU");
	expect_turn(&c, "S", "U", false, false, "U");
	expect_turn(&c, NULL, "", true, false, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(templates_are_recognised),
		cmocka_unit_test(others_are_refused_by_name),
		cmocka_unit_test(default_system_fits_or_is_refused),
		cmocka_unit_test(chatml_turns),
		cmocka_unit_test(llama3_turns),
		cmocka_unit_test(raw_turns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
