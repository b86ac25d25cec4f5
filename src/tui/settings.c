/* settings.c: see settings.h */
#include "tui/settings.h"

#include <string.h>
#include <unistd.h>
#include "base/near.h"
#include "base/opt.h"
#include "base/paths.h"
#include "base/yaml.h"
#include "policy/policy.h"

static const rk_opt rows[] = {
	{ "mouse", 0, RK_OPT_FLAG, offsetof(rk_settings, mouse), .def = "true" },
	{ "ascii", 0, RK_OPT_FLAG, offsetof(rk_settings, ascii), .def = "false" },
	{ "shade", 0, RK_OPT_FLAG, offsetof(rk_settings, shade), .def = "true" },
	{ "shadow", 0, RK_OPT_FLAG, offsetof(rk_settings, shadow), .def = "true" },
	{ "history", 0, RK_OPT_FLAG, offsetof(rk_settings, history), .def = "true" },
	{ 0 }
};

void rk_settings_default(rk_settings *s, rk_err *e)
{
	*s = (rk_settings){ .mouse = true, .shade = true, .shadow = true, .history = true };
	rk_keymap_default(&s->keys);
	rk_theme_load(&s->theme, "default", e);
}

static int on_line(void *arg, const char *key, const char *value, int line, rk_err *e)
{
	static const char *const names[] = { "theme", "policy", "mouse", "ascii", "shade", "shadow", "history", "keys" };
	rk_settings *s = arg;
	rk_policy ignored;
	char hint[200];

	(void)line;
	if (!strncmp(key, "keys.", 5))
		return rk_keymap_set(&s->keys, key + 5, value, e) || rk_keymap_check(&s->keys, e) ? -1 : 0;
	if (!strcmp(key, "theme"))
		return rk_theme_load(&s->theme, value, e);
	if (!strcmp(key, "policy")) {
		if (rk_policy_parse(&ignored, value, e))
			return -1;
		snprintf(s->policy, sizeof s->policy, "%s", value);
		return 0;
	}
	for (const rk_opt *r = rows; r->name; r++)
		if (!strcmp(key, r->name))
			return rk_opt_value_set(r, s, r->name, value, e);
	return rk_fail(e, RK_EUSAGE, "unknown setting '%.64s'; %s", key, rk_near_hint(hint, sizeof hint, key, names, (int)(sizeof names / sizeof *names)));
}

int rk_settings_load(rk_settings *s, const char *path, rk_err *e)
{
	char own[RK_PATH_MAX];

	rk_settings_default(s, e);
	if (!path) {
		if (rk_path(own, RK_DIR_CONFIG, "refreshkv.yaml", e))
			return -1;
		if (access(own, F_OK))
			return 0;
		path = own;
	}
	return rk_yaml_load(path, on_line, s, e);
}
