/* script.c: see script.h */
#include "tui/script.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (1 << 20)

static const char *const waits[] = { "idle", "reply", "prefill", "tokens" };

static int check_wait(const char *arg, rk_err *e)
{
	char *end;

	for (int i = 0; i < 3; i++)
		if (!strcmp(arg, waits[i]))
			return 0;
	if (!strncmp(arg, "tokens ", 7))
		arg += 7;
	if (strtol(arg, &end, 10) >= 0 && end > arg && !*end)
		return 0;
	return rk_fail(e, RK_EUSAGE, "wait '%.40s': idle, reply, prefill, tokens N, or milliseconds", arg);
}

static int check_keys(const char *arg, rk_err *e)
{
	char buf[256], *save = NULL;

	snprintf(buf, sizeof buf, "%s", arg);
	for (char *w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save))
		if (!rk_key_parse(w) && strcmp(w, "C-c"))
			return rk_fail(e, RK_EUSAGE, "unknown key '%.40s'", w);
	return 0;
}

static int check_line(const char *s, rk_err *e)
{
	if (s[0] == ':' || !strncmp(s, "type ", 5) || !strncmp(s, "paste ", 6))
		return 0;
	if (!strncmp(s, "key ", 4))
		return check_keys(s + 4, e);
	if (!strncmp(s, "wait ", 5))
		return check_wait(s + 5, e);
	return rk_fail(e, RK_EUSAGE, "'%.40s': key, type, paste, wait, or a command after ':'", s);
}

int rk_script_load(rk_script *s, const char *path, rk_err *e)
{
	FILE *f = fopen(path, "re");
	rk_err why;

	*s = (rk_script){ 0 };
	if (!f)
		return rk_fail(e, RK_EUSAGE, "%s: %s", path, strerror(errno));
	s->text = malloc(MAX_BYTES + 1);
	size_t len = s->text ? fread(s->text, 1, MAX_BYTES, f) : 0;
	fclose(f);
	s->line = s->text ? malloc((len + 1) * sizeof *s->line) : NULL;
	if (!s->line) {
		rk_script_free(s);
		return rk_fail(e, RK_ENOMEM, "%s: out of memory", path);
	}
	s->text[len] = '\0';
	int number = 1;
	for (char *p = s->text, *nl; *p; p = nl + 1, number++) {
		if (!(nl = strchr(p, '\n')))
			nl = p + strlen(p) - 1;
		else
			*nl = '\0';
		if (*p == '\0' || *p == '#')
			continue;
		if (check_line(p, &why)) {
			rk_script_free(s);
			return rk_fail(e, RK_EUSAGE, "%s:%d: %s", path, number, why.msg);
		}
		s->line[s->n++] = p;
	}
	return 0;
}

void rk_script_free(rk_script *s)
{
	free(s->text);
	free(s->line);
	*s = (rk_script){ 0 };
}

static bool came_true(rk_script *s, const rk_ui *ui, const char *arg)
{
	static const enum rk_view_phase phase[] = { RK_PHASE_IDLE, RK_PHASE_REPLY, RK_PHASE_PREFILL };

	for (int i = 0; i < 3; i++)
		if (!strcmp(arg, waits[i]))
			return ui->view.phase == phase[i];
	if (!strncmp(arg, "tokens ", 7))
		return ui->view.lane[0].n_token >= atol(arg + 7);
	if (!s->until_ns)
		s->until_ns = ui->now_ns + atol(arg) * 1000000;
	if (ui->now_ns < s->until_ns)
		return false;
	s->until_ns = 0;
	return true;
}

static void press(rk_ui *ui, const char *s, bool names)
{
	char buf[256], *save = NULL;
	int32_t cp;

	if (names) {
		snprintf(buf, sizeof buf, "%s", s);
		for (char *w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save))
			rk_ui_key(ui, rk_key_parse(w));
		return;
	}
	for (size_t i = 0, len = strlen(s); i < len;) {
		i += rk_char_next(s + i, len - i, &cp);
		if (cp == '\\' && s[i] == 'n') {
			cp = RK_KEY_ENTER;
			i++;
		}
		rk_ui_key(ui, cp);
	}
}

bool rk_script_run(rk_script *s, rk_ui *ui)
{
	if (s->at >= s->n || ui->quit)
		return false;
	const char *l = s->line[s->at];
	if (!strncmp(l, "wait ", 5)) {
		if (!came_true(s, ui, l + 5))
			return false;
	} else if (l[0] == ':') {
		rk_ui_command(ui, l + 1);
	} else if (!strncmp(l, "key ", 4)) {
		press(ui, l + 4, true);
	} else if (!strncmp(l, "type ", 5)) {
		press(ui, l + 5, false);
	} else {
		rk_ui_key(ui, RK_KEY_PASTE_BEGIN);
		press(ui, l + 6, false);
		rk_ui_key(ui, RK_KEY_PASTE_END);
	}
	s->at++;
	ui->dirty = true;
	return true;
}
