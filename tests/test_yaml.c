/* test_yaml.c: the reader of flat YAML mappings (base/yaml.h) and the XDG paths (base/paths.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/paths.h"
#include "base/yaml.h"

/* What the callback saw, as "line:key=value;" each. */
static char seen[4096];

static int note(void *arg, const char *key, const char *value, int line, rk_err *e)
{
	const char *refuse = arg;
	if (refuse && !strcmp(refuse, key))
		return rk_fail(e, RK_EUSAGE, "%s is refused", key);
	size_t n = strlen(seen);
	snprintf(seen + n, sizeof seen - n, "%d:%s=%s;", line, key, value);
	return 0;
}

static int read_text(const char *text, const char *refuse, rk_err *e)
{
	seen[0] = '\0';
	*e = (rk_err){ 0 };
	return rk_yaml_read("f.yaml", text, strlen(text), note, (void *)refuse, e);
}

static void test_values(void **state)
{
	(void)state;
	rk_err e;
	const char *text = "# comment\na: 1\nb: 'two words'\n\nc:\n  d: 3  # why\n  e: \"x\"\nf: long\n  line\ng:\n";
	assert_int_equal(read_text(text, NULL, &e), 0);
	assert_string_equal(seen, "2:a=1;3:b=two words;6:c.d=3;7:c.e=x;8:f=long line;10:g=;");
	assert_int_equal(read_text("{a: 1, b: {c: 2}}", NULL, &e), 0);
	assert_string_equal(seen, "1:a=1;1:b.c=2;");
	assert_int_equal(read_text("", NULL, &e), 0);
	assert_int_equal(read_text("# nothing\n", NULL, &e), 0);
	assert_string_equal(seen, "");
}

static void test_errors(void **state)
{
	(void)state;
	static const struct { const char *text, *msg; } cases[] = {
		{ "a: 1\nb: 2\na: 3\n", "f.yaml:3: key 'a' is given twice" },
		{ "a:\n  b: 1\n  b: 2\n", "f.yaml:3: key 'a.b' is given twice" },
		{ "a:\n  b: 1\na:\n  c: 2\n", "f.yaml:3: key 'a' is given twice" },
		{ "a: &x 1\n", "f.yaml:1: anchors and tags are not supported" },
		{ "a: &x\n  b: 1\n", "f.yaml:1: anchors and tags are not supported" },
		{ "a: 1\nb: *x\n", "f.yaml:2: aliases are not supported" },
		{ "a: !!int 1\n", "f.yaml:1: anchors and tags are not supported" },
		{ "a: 1\nb: [1, 2]\n", "f.yaml:2: lists are not supported" },
		{ "- a\n", "f.yaml:1: lists are not supported" },
		{ "a:\n  b:\n    c: 1\n", "f.yaml:3: mappings may be nested one level deep only" },
		{ "? {a: 1}\n: 2\n", "f.yaml:1: a key must be plain text" },
		{ "just words\n", "f.yaml:1: expected 'key: value' lines" },
		{ "'': 1\n", "f.yaml:1: empty key" },
		{ "a: 1\n---\nb: 2\n", "f.yaml:2: more than one document" },
		{ "a: \"x\\0y\"\n", "f.yaml:1: a value holds a NUL byte" },
		{ "a: 1\nno: [\n", "f.yaml:2: lists are not supported" },
		{ "k1234567890123456789012345678901234567890123456789012345678901234567890: 1\n",
		  "f.yaml:1: key 'k123456789012345678901234567890123456789...' is longer than 63 bytes" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		rk_err e;
		assert_int_equal(read_text(cases[i].text, NULL, &e), -1);
		assert_string_equal(e.msg, cases[i].msg);
		assert_int_equal(e.code, RK_EUSAGE);
	}
}

/* libyaml's own complaints: the text is its, the line is ours to get right. */
static void test_not_yaml(void **state)
{
	(void)state;
	rk_err e;
	assert_int_equal(read_text("a: 1\nb: \"open\n", NULL, &e), -1);
	assert_memory_equal(e.msg, "f.yaml:3: ", 10);
	assert_int_equal(read_text("a: 1\n\tb: 2\n", NULL, &e), -1);
	assert_memory_equal(e.msg, "f.yaml:2: ", 10);
	assert_int_equal(read_text("a: 1\nb: 2\nc: \xff\n", NULL, &e), -1);
	assert_memory_equal(e.msg, "f.yaml:3: ", 10);
}

static void test_callback_error_gets_place(void **state)
{
	(void)state;
	rk_err e;
	assert_int_equal(read_text("a: 1\nb: 2\nc: 3\n", "b", &e), -1);
	assert_string_equal(e.msg, "f.yaml:2: b is refused");
	assert_string_equal(seen, "1:a=1;");
}

static void test_bounds(void **state)
{
	(void)state;
	static char text[RK_YAML_MAX_BYTES + 2];
	rk_err e;
	size_t n = 0;
	for (int i = 0; i <= RK_YAML_MAX_KEY; i++)
		n += (size_t)sprintf(text + n, "k%d: 1\n", i);
	assert_int_equal(read_text(text, NULL, &e), -1);
	assert_string_equal(e.msg, "f.yaml:257: more than 256 keys");

	memset(text, '#', RK_YAML_MAX_BYTES);
	text[RK_YAML_MAX_BYTES] = '\0';
	assert_int_equal(read_text(text, NULL, &e), 0);
	text[RK_YAML_MAX_BYTES] = '#';
	assert_int_equal(read_text(text, NULL, &e), -1);
	assert_string_equal(e.msg, "f.yaml: longer than 65536 bytes");
}

static void test_load(void **state)
{
	(void)state;
	char path[] = P_tmpdir "/rk-yaml-XXXXXX", want[128];
	rk_err e;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "a: 1\nb: 2\n", 10), 10);
	close(fd);
	seen[0] = '\0';
	assert_int_equal(rk_yaml_load(path, note, NULL, &e), 0);
	assert_string_equal(seen, "1:a=1;2:b=2;");
	unlink(path);
	assert_int_equal(rk_yaml_load(path, note, NULL, &e), -1);
	snprintf(want, sizeof want, "%s: cannot open: No such file or directory", path);
	assert_string_equal(e.msg, want);
	assert_int_equal(rk_yaml_load("/", note, NULL, &e), -1);	/* a directory opens but cannot be read */
	assert_string_equal(e.msg, "/: cannot read: Is a directory");
}

static void test_paths(void **state)
{
	(void)state;
	static const char *const env[] = { "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME" };
	static const char *const under[] = { ".config", ".local/share", ".cache", ".local/state" };
	static char path[RK_PATH_MAX], want[RK_PATH_MAX], longest[RK_PATH_MAX + 8];
	rk_err e;
	setenv("HOME", "/home/me", 1);
	for (int i = 0; i < 4; i++) {
		unsetenv(env[i]);
		assert_int_equal(rk_path(path, (enum rk_dir)i, NULL, &e), 0);
		snprintf(want, sizeof want, "/home/me/%s/refreshkv", under[i]);
		assert_string_equal(path, want);
		setenv(env[i], "relative", 1);
		assert_int_equal(rk_path(path, (enum rk_dir)i, NULL, &e), 0);
		assert_string_equal(path, want);
		setenv(env[i], "/xdg", 1);
		assert_int_equal(rk_path(path, (enum rk_dir)i, "a/b", &e), 0);
		assert_string_equal(path, "/xdg/refreshkv/a/b");
	}
	assert_int_equal(rk_path_default_model(path, &e), 0);
	assert_string_equal(path, "/xdg/refreshkv/models/SmolLM2-135M-Instruct.Q4_1.gguf");

	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");	/* then the passwd entry's home */
	assert_int_equal(rk_path(path, RK_DIR_CACHE, NULL, &e), 0);
	assert_int_equal(path[0], '/');

	memset(longest, 'x', sizeof longest - 1);
	longest[0] = '/';
	setenv("XDG_CACHE_HOME", longest, 1);
	assert_int_equal(rk_path(path, RK_DIR_CACHE, NULL, &e), -1);
	assert_non_null(strstr(e.msg, "is too long: 4113 bytes, limit 4095"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values), cmocka_unit_test(test_errors), cmocka_unit_test(test_not_yaml),
		cmocka_unit_test(test_callback_error_gets_place), cmocka_unit_test(test_bounds), cmocka_unit_test(test_load),
		cmocka_unit_test(test_paths),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
