/* test_tui_parts.c: canvas, editor, keys, themes, settings, key scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/embedded.h"
#include "tui/history.h"
#include "tui/input.h"
#include "tui/script.h"
#include "tui/settings.h"

static void type(rk_input *in, const char *s)
{
	int32_t cp;

	for (size_t i = 0, len = strlen(s); i < len;) {
		i += rk_char_next(s + i, len - i, &cp);
		assert_true(rk_input_key(in, RK_ACT_NONE, cp));
	}
}

static void editing(void **state)
{
	rk_input in = { 0 };

	(void)state;
	type(&in, "hello brave world");
	rk_input_key(&in, RK_ACT_DELETE_WORD, RK_CTRL('w'));
	assert_string_equal(in.text, "hello brave ");
	rk_input_key(&in, RK_ACT_LINE_START, RK_CTRL('a'));
	type(&in, "é");
	assert_string_equal(in.text, "éhello brave ");
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_BACKSPACE);
	assert_string_equal(in.text, "hello brave ");
	rk_input_key(&in, RK_ACT_LINE_END, RK_CTRL('e'));
	type(&in, "👩‍👧 e\xcc\x81");
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_BACKSPACE);	/* a letter with its accent goes as one */
	assert_string_equal(in.text, "hello brave 👩‍👧 ");
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_BACKSPACE);
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_BACKSPACE);	/* and so does a family */
	assert_string_equal(in.text, "hello brave ");
	rk_input_key(&in, RK_ACT_DELETE_TO_START, RK_CTRL('u'));
	assert_string_equal(in.text, "");
	rk_input_free(&in);
}

static void history(void **state)
{
	rk_input in = { 0 };

	(void)state;
	type(&in, "one");
	free(rk_input_take(&in));
	type(&in, "two");
	free(rk_input_take(&in));
	type(&in, "draft");
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_UP);
	assert_string_equal(in.text, "two");
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_UP);
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_UP);	/* no further */
	assert_string_equal(in.text, "one");
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_DOWN);
	rk_input_key(&in, RK_ACT_NONE, RK_KEY_DOWN);
	assert_string_equal(in.text, "draft");
	for (int i = 0; i < 2 * RK_HISTORY; i++) {
		char s[16];
		snprintf(s, sizeof s, "%d", i);
		rk_input_set(&in, s);
		free(rk_input_take(&in));
	}
	assert_int_equal(in.n_history, RK_HISTORY);
	assert_string_equal(in.history[RK_HISTORY - 1], "399");
	rk_input_free(&in);
}

static void a_huge_paste_is_cut_and_said_to_be(void **state)
{
	rk_input in = { 0 };
	char *big = malloc(RK_INPUT_MAX + 1);

	(void)state;
	memset(big, 'x', RK_INPUT_MAX + 1);
	rk_input_insert(&in, big, RK_INPUT_MAX + 1);
	assert_true(in.cut);
	assert_int_equal(in.len, 0);
	rk_input_insert(&in, big, RK_INPUT_MAX);
	assert_int_equal(in.len, RK_INPUT_MAX);
	free(big);
	rk_input_free(&in);
}

static const char *row(rk_canvas *c, char *out, size_t size)
{
	FILE *f = fmemopen(out, size, "w");

	rk_canvas_write(c, f);
	fclose(f);
	out[strcspn(out, "\n")] = '\0';
	return out;
}

static void wide_characters(void **state)
{
	rk_canvas c = { .utf8 = true };
	char out[200];
	rk_rect r = { 0, 0, 8, 1 };

	(void)state;
	assert_int_equal(rk_canvas_resize(&c, 8, 1, NULL), 0);
	assert_int_equal(rk_puts(&c, r, 0, 0, RK_ROLE_TEXT, "a漢b"), 4);
	assert_string_equal(row(&c, out, sizeof out), "a漢b");
	rk_puts(&c, r, 2, 0, RK_ROLE_TEXT, "x");	/* onto its right half */
	assert_string_equal(row(&c, out, sizeof out), "a xb");
	rk_puts(&c, r, 7, 0, RK_ROLE_TEXT, "漢");	/* half of it would be outside */
	assert_string_equal(row(&c, out, sizeof out), "a xb");
	rk_puts(&c, r, 4, 0, RK_ROLE_TEXT, "e\xcc\x81");
	assert_string_equal(row(&c, out, sizeof out), "a xbe\xcc\x81");
	rk_puts(&c, r, 0, 0, RK_ROLE_TEXT, "\x1b[31m\xff");	/* controls draw nothing, bad bytes U+FFFD */
	assert_string_equal(row(&c, out, sizeof out), "[31m\xef\xbf\xbd");
	rk_canvas_free(&c);
}

static void numbers(void **state)
{
	char b[RK_FMT];

	(void)state;
	assert_string_equal(rk_fmt_real(b, NAN, 2), "n/a");
	assert_string_equal(rk_fmt_bytes(b, 98.4e6), "98.4 MB");
	assert_string_equal(rk_fmt_bytes(b, 999.6e3), "1.00 MB");
	assert_string_equal(rk_fmt_bytes(b, NAN), "n/a");
	assert_string_equal(rk_fmt_count(b, -1234567), "-1,234,567");
}

static void key_names(void **state)
{
	char name[16];

	(void)state;
	static const char *const names[] = { "a", "C-a", "M-x", "Tab", "Enter", "Space", "F10", "PgUp", "M-Enter", "?", "é" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_string_equal(rk_key_name(rk_key_parse(names[i]), name), names[i]);
	assert_int_equal(rk_key_parse("Entre"), RK_KEY_NONE);
	assert_int_equal(rk_key_parse("ab"), RK_KEY_NONE);
	assert_int_equal(rk_key_parse(""), RK_KEY_NONE);
}

static void key_conflicts(void **state)
{
	rk_keymap m;
	rk_err e;

	(void)state;
	rk_keymap_default(&m);
	assert_int_equal(rk_keymap_check(&m, &e), 0);
	assert_int_equal(rk_keymap_set(&m, "zoom", "q", &e), 0);
	assert_int_equal(rk_keymap_check(&m, &e), -1);
	assert_non_null(strstr(e.msg, "quit"));
	assert_non_null(strstr(e.msg, "zoom"));
	assert_int_equal(rk_keymap_set(&m, "zom", "Z", &e), -1);
	assert_non_null(strstr(e.msg, "zoom"));
	assert_int_equal(rk_keymap_set(&m, "zoom", "Z ctrl-z", &e), -1);
}

static int load(const char *text, rk_err *e)
{
	char path[] = "/tmp/refreshkv-settings-XXXXXX";
	rk_settings s;
	int fd = mkstemp(path);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	int rc = rk_settings_load(&s, path, e);
	unlink(path);
	return rc;
}

static void settings_name_file_and_line(void **state)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "theme: default\nmuose: true\n", ":2: unknown setting 'muose'" }, { "mouse: yes please\n", ":1: " },
		{ "theme: defualt\n", "did you mean 'default'" }, { "keys:\n  zoom: q\n", ":2: key q is claimed by both quit and zoom" },
		{ "keys:\n  quit: \"\"\n", "quit" }, { "policy: refreshvk\n", "refreshkv" },
	};
	rk_err e;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(load(bad[i].text, &e), -1);
		if (!strstr(e.msg, bad[i].says))
			fail_msg("%s: %s", bad[i].text, e.msg);
	}
	assert_int_equal(load("theme: mono\nmouse: false\nkeys:\n  zoom: Z\n  quit: Q\n", &e), 0);
}

static void the_annotated_file_is_the_default(void **state)
{
	rk_settings a, b;
	rk_err e;

	(void)state;
	rk_settings_default(&a, &e);
	assert_int_equal(rk_settings_load(&b, "configs/refreshkv.yaml", &e), 0);
	assert_memory_equal(&a.keys, &b.keys, sizeof a.keys);
	assert_memory_equal(&a.theme.role, &b.theme.role, sizeof a.theme.role);
	assert_true(a.mouse == b.mouse && a.ascii == b.ascii && a.shade == b.shade && a.shadow == b.shadow);
}

static void themes(void **state)
{
	rk_theme t;
	rk_style st;
	rk_err e;
	int n = 0;

	(void)state;
	for (size_t i = 0; i < rk_embedded_count; i++) {
		char name[64];
		if (sscanf(rk_embedded_files[i].name, "themes/%60[^.].yaml", name) != 1)
			continue;
		n++;
		assert_int_equal(rk_theme_load(&t, name, &e), 0);
		for (int r = 0; r < RK_N_ROLE; r++) {	/* each theme says something about each role */
			char key[40];
			snprintf(key, sizeof key, "\n%s:", rk_role_name((enum rk_role)r));
			assert_non_null(strstr(rk_embedded_files[i].data, key));
		}
	}
	assert_int_equal(n, 4);
	assert_int_equal(rk_style_parse(&st, "#ff8000 on default bold underline", &e), 0);
	assert_int_equal(st.fg, 0xff8000);
	assert_int_equal(st.bg, RK_COLOR_DEFAULT);
	assert_int_equal(st.attr, RK_ATTR_BOLD | RK_ATTR_UNDERLINE);
	assert_int_equal(rk_style_parse(&st, "redd", &e), -1);
	assert_int_equal(rk_style_parse(&st, "#12345", &e), -1);
	assert_int_equal(rk_style_parse(&st, "red on", &e), -1);
	assert_int_equal(rk_style_parse(&st, "red blue", &e), -1);
	assert_int_equal(rk_color_nearest(0xffffff, 256), 231);
	assert_int_equal(rk_color_nearest(0x010101, 16), 0);
}

/* A file of the user's own in folders that are made for it. */
static void history_on_disk(void **state)
{
	char dir[] = "/tmp/refreshkv-history-XXXXXX", path[100], sub[80], long_one[RK_HISTORY_LINE + 2];
	rk_input in = { 0 };
	struct stat st;
	rk_err e;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(sub, sizeof sub, "%s/state", dir);
	snprintf(path, sizeof path, "%s/history", sub);
	assert_int_equal(rk_history_load(&in, path, &e), 0);	/* not there: an empty one */
	memset(long_one, 'x', sizeof long_one);
	long_one[sizeof long_one - 1] = '\0';
	assert_int_equal(rk_history_add(path, "two\nlines, a \\n and \\", &e), 0);
	assert_int_equal(rk_history_add(path, long_one, &e), 0);	/* not kept */
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	FILE *f = fopen(path, "a");
	fprintf(f, "%s\nbad \xff\n\nlast\ncut off", long_one);
	fclose(f);
	assert_int_equal(rk_history_load(&in, path, &e), 0);
	assert_int_equal(in.n_history, 2);
	assert_string_equal(in.history[0], "two\nlines, a \\n and \\");
	assert_string_equal(in.history[1], "last");
	rk_input_free(&in);

	for (int i = 0; i < 2 * RK_HISTORY; i++) {	/* grows beyond its bound, and is cut back by the next program */
		snprintf(long_one, sizeof long_one, "%04d%01000d", i, 0);
		assert_int_equal(rk_history_add(path, long_one, &e), 0);
	}
	in = (rk_input){ 0 };
	assert_int_equal(rk_history_load(&in, path, &e), 0);
	assert_int_equal(in.n_history, RK_HISTORY);
	assert_int_equal(strncmp(in.history[RK_HISTORY - 1], "0399", 4), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < RK_HISTORY_FILE && (st.st_mode & 0777) == 0600);
	rk_input_free(&in);

	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(rk_history_add(path, "x", &e), -1);
	assert_non_null(strstr(e.msg, path));
	rmdir(path);
	rmdir(sub);
	rmdir(dir);
}

static void scripts(void **state)
{
	char path[] = "/tmp/refreshkv-keys-XXXXXX";
	static const char text[] = "# comment\nkey Tab z\nwait idle\nwait forever\n";
	rk_script s;
	rk_err e;
	int fd = mkstemp(path);

	(void)state;
	assert_true(write(fd, text, sizeof text - 1) > 0);
	close(fd);
	assert_int_equal(rk_script_load(&s, path, &e), -1);
	assert_non_null(strstr(e.msg, ":4: wait 'forever'"));
	unlink(path);
	assert_int_equal(rk_script_load(&s, path, &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(editing), cmocka_unit_test(history), cmocka_unit_test(a_huge_paste_is_cut_and_said_to_be),
		cmocka_unit_test(wide_characters), cmocka_unit_test(numbers), cmocka_unit_test(key_names), cmocka_unit_test(key_conflicts),
		cmocka_unit_test(settings_name_file_and_line), cmocka_unit_test(the_annotated_file_is_the_default), cmocka_unit_test(themes),
		cmocka_unit_test(history_on_disk), cmocka_unit_test(scripts),
	};

	setenv("LC_ALL", "C.UTF-8", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
