/* theme.c: see theme.h */
#include "tui/theme.h"

#include <stdlib.h>
#include <string.h>
#include "base/embedded.h"
#include "base/near.h"
#include "base/yaml.h"

static const char *const role_names[RK_N_ROLE] = {
	"text", "dim", "title", "focus", "rule", "key", "user", "note",
	"good", "warn", "error", "cursor", "match", "differs",
	"full", "partial", "check", "bar", "base",
	"sink", "prompt", "generated", "recent",
	"shade1", "shade2", "shade3", "shade4",
};

static const char *const color_names[16] = {
	"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
	"bright-black", "bright-red", "bright-green", "bright-yellow", "bright-blue", "bright-magenta", "bright-cyan", "bright-white",
};

static const int32_t basic[16] = {	/* as most terminals show them; only to find the nearest */
	0x000000, 0xcd0000, 0x00cd00, 0xcdcd00, 0x0000ee, 0xcd00cd, 0x00cdcd, 0xe5e5e5,
	0x7f7f7f, 0xff0000, 0x00ff00, 0xffff00, 0x5c5cff, 0xff00ff, 0x00ffff, 0xffffff,
};

const char *rk_role_name(enum rk_role role)
{
	return role_names[role];
}

static int parse_color(int32_t *c, const char *word, rk_err *e)
{
	char hint[200], *end;

	if (!strcmp(word, "default")) {
		*c = RK_COLOR_DEFAULT;
		return 0;
	}
	for (int i = 0; i < 16; i++)
		if (!strcmp(word, color_names[i])) {
			*c = RK_COLOR_NAMED + i;
			return 0;
		}
	if (word[0] == '#') {
		*c = (int32_t)strtol(word + 1, &end, 16);
		if (strlen(word) == 7 && strspn(word + 1, "0123456789abcdefABCDEF") == 6)
			return 0;
	}
	return rk_fail(e, RK_EUSAGE, "colour '%.40s': default, #rrggbb or a name; %s", word,
	               rk_near_hint(hint, sizeof hint, word, color_names, 16));
}

int rk_style_parse(rk_style *s, const char *text, rk_err *e)
{
	static const char *const attr[] = { "bold", "dim", "underline", "reverse" };
	char buf[128], *save = NULL;
	bool first = true, on = false;

	*s = (rk_style){ .fg = RK_COLOR_DEFAULT, .bg = RK_COLOR_DEFAULT };
	if (strlen(text) >= sizeof buf)
		return rk_fail(e, RK_EUSAGE, "a style of %zu characters: the limit is %zu", strlen(text), sizeof buf - 1);
	strcpy(buf, text);
	for (char *w = strtok_r(buf, " \t", &save); w; w = strtok_r(NULL, " \t", &save), first = false) {
		int a = 0;
		while (a < 4 && strcmp(w, attr[a]))
			a++;
		if (on) {
			if (parse_color(&s->bg, w, e))
				return -1;
			on = false;
		} else if (a < 4) {
			s->attr |= (uint8_t)(1 << a);
		} else if (!strcmp(w, "on")) {
			on = true;
		} else if (!first) {
			return rk_fail(e, RK_EUSAGE, "'%.40s': COLOUR [on COLOUR] [bold] [dim] [underline] [reverse]", w);
		} else if (parse_color(&s->fg, w, e)) {
			return -1;
		}
	}
	return on ? rk_fail(e, RK_EUSAGE, "a colour must follow 'on'") : 0;
}

static int on_line(void *arg, const char *key, const char *value, int line, rk_err *e)
{
	rk_theme *t = arg;
	char hint[400];

	(void)line;
	for (int i = 0; i < RK_N_ROLE; i++)
		if (!strcmp(key, role_names[i]))
			return rk_style_parse(&t->role[i], value, e);
	return rk_fail(e, RK_EUSAGE, "unknown role '%.40s'; %s", key, rk_near_hint(hint, sizeof hint, key, role_names, RK_N_ROLE));
}

/* The themes in the binary: "themes/NAME.yaml". */
static bool theme_name(const rk_embedded *f, char name[32])
{
	size_t len = strlen(f->name);

	if (strncmp(f->name, "themes/", 7) || len < 13 || len - 12 >= 32 || strcmp(f->name + len - 5, ".yaml"))
		return false;
	memcpy(name, f->name + 7, len - 12);
	name[len - 12] = '\0';
	return true;
}

#define MAX_THEME 32

static int list(char names[MAX_THEME][32])
{
	int n = 0;

	for (size_t i = 0; i < rk_embedded_count && n < MAX_THEME; i++)
		n += theme_name(&rk_embedded_files[i], names[n]);
	return n;
}

int rk_theme_load(rk_theme *t, const char *name, rk_err *e)
{
	char names[MAX_THEME][32], path[64], hint[300];
	const char *p[MAX_THEME];
	size_t len = strlen(name);
	rk_theme new = { 0 };

	for (int i = 0; i < RK_N_ROLE; i++)
		new.role[i] = (rk_style){ .fg = RK_COLOR_DEFAULT, .bg = RK_COLOR_DEFAULT };
	if (strchr(name, '/') || (len > 5 && !strcmp(name + len - 5, ".yaml"))) {
		const char *base = strrchr(name, '/');
		snprintf(new.name, sizeof new.name, "%.31s", base ? base + 1 : name);
		if (rk_yaml_load(name, on_line, &new, e))
			return -1;
		*t = new;
		return 0;
	}
	snprintf(path, sizeof path, "themes/%.40s.yaml", name);
	const rk_embedded *f = rk_embedded_find(path);
	if (!f) {
		int n = list(names);
		for (int i = 0; i < n; i++)
			p[i] = names[i];
		return rk_fail(e, RK_EUSAGE, "unknown theme '%.40s'; %s", name, rk_near_hint(hint, sizeof hint, name, p, n));
	}
	snprintf(new.name, sizeof new.name, "%.31s", name);
	if (rk_yaml_read(path, f->data, f->len, on_line, &new, e))
		return -1;
	*t = new;
	return 0;
}

const char *rk_theme_next(const char *name)
{
	static char names[MAX_THEME][32];
	int n = list(names), i = 0;

	while (i < n && strcmp(names[i], name))
		i++;
	return n ? names[i + 1 < n ? i + 1 : 0] : name;
}

static int distance(int32_t a, int32_t b)
{
	int r = (a >> 16 & 255) - (b >> 16 & 255), g = (a >> 8 & 255) - (b >> 8 & 255), l = (a & 255) - (b & 255);

	return 3 * r * r + 6 * g * g + l * l;	/* about how the eye weighs them */
}

static int32_t palette(int i)
{
	static const int level[6] = { 0, 95, 135, 175, 215, 255 };

	if (i < 16)
		return basic[i];
	if (i >= 232)
		return (8 + 10 * (i - 232)) * 0x10101;
	i -= 16;
	return level[i / 36] << 16 | level[i / 6 % 6] << 8 | level[i % 6];
}

int rk_color_nearest(int32_t rgb, int n_color)
{
	int from = n_color >= 256 ? 16 : 0, to = n_color >= 256 ? 256 : n_color, best = from;

	/* of 256 colours the first sixteen are whatever the user made of them */
	for (int i = from; i < to; i++)
		if (distance(rgb, palette(i)) < distance(rgb, palette(best)))
			best = i;
	return best;
}
