/* screen_opts.c: see screen_opts.h */
#include "cmd/screen_opts.h"

static const char *const color_names[] = { "auto", "always", "never", NULL };

const rk_opt rk_screen_rows[] = {
	{ "color", 0, RK_OPT_ENUM, offsetof(rk_screen_opts, color), .def = "auto", .names = color_names,
	  .doc = "auto: what the terminal can, none where NO_COLOR is set" },
	{ "theme", 0, RK_OPT_STR, offsetof(rk_screen_opts, theme), .metavar = "NAME",
	  .doc = "default, light, mono, high-contrast, or a YAML file" },
	{ "ascii", 0, RK_OPT_FLAG, offsetof(rk_screen_opts, ascii), .doc = "draw with ASCII characters only" },
	{ "no-mouse", 0, RK_OPT_FLAG, offsetof(rk_screen_opts, no_mouse), .doc = "leave the mouse to the terminal" },
	{ "config", 0, RK_OPT_STR, offsetof(rk_screen_opts, config), .metavar = "FILE",
	  .doc = "settings file instead of the user's own; `refreshkv info` prints where that is" },
	{ "keys", 0, RK_OPT_STR, offsetof(rk_screen_opts, keys), .metavar = "FILE", .doc = "a key script that is played first; see refreshkv(1)" },
	{ 0 }
};

int rk_screen_opts_apply(const rk_screen_opts *o, rk_app_cfg *cfg, rk_err *e)
{
	rk_settings *s = &cfg->settings;

	if (rk_settings_load(s, o->config, e) || (o->theme && rk_theme_load(&s->theme, o->theme, e)))
		return -1;
	cfg->screen = (rk_screen_cfg){ .color = o->color, .mouse = s->mouse && !o->no_mouse, .ascii = s->ascii || o->ascii };
	cfg->keys = o->keys;
	return 0;
}
