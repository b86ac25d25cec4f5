/* screen_opts.h: the options that chat, demo and replay share for the screen. */
#ifndef RK_CMD_SCREEN_OPTS_H
#define RK_CMD_SCREEN_OPTS_H

#include "base/opt.h"
#include "tui/app.h"

typedef struct rk_screen_opts {
	const char *config, *theme, *keys;
	enum rk_color_mode color;
	bool ascii, no_mouse;
} rk_screen_opts;

extern const rk_opt rk_screen_rows[];

/* The settings file, then what the options say over it; fills screen, keys and settings of *cfg. */
int rk_screen_opts_apply(const rk_screen_opts *o, rk_app_cfg *cfg, rk_err *e);

#endif
