/* paths.c: see paths.h */
#include "base/paths.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct { const char *env, *under_home; } dirs[] = {
	[RK_DIR_CONFIG] = { "XDG_CONFIG_HOME", ".config" },
	[RK_DIR_DATA] = { "XDG_DATA_HOME", ".local/share" },
	[RK_DIR_CACHE] = { "XDG_CACHE_HOME", ".cache" },
	[RK_DIR_STATE] = { "XDG_STATE_HOME", ".local/state" },
};

static const char *home(void)
{
	const char *h = getenv("HOME");
	if (h && h[0] == '/')
		return h;
	const struct passwd *pw = getpwuid(getuid());
	return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

int rk_path(char out[RK_PATH_MAX], enum rk_dir dir, const char *name, rk_err *e)
{
	const char *base = getenv(dirs[dir].env);
	const char *under = "";
	if (!base || base[0] != '/') {
		base = home();
		under = dirs[dir].under_home;
		if (!base)
			return rk_fail(e, RK_EFAIL, "no home directory: set HOME or %s to an absolute path", dirs[dir].env);
	}
	int n = snprintf(out, RK_PATH_MAX, "%s%s%s/refreshkv%s%s", base, under[0] ? "/" : "", under, name ? "/" : "",
	                 name ? name : "");
	if (n < 0 || n >= RK_PATH_MAX)
		return rk_fail(e, RK_EFAIL, "path under %.64s... is too long: %d bytes, limit %d", base, n, RK_PATH_MAX - 1);
	return 0;
}

int rk_path_make_dirs(const char *path, rk_err *e)
{
	char dir[RK_PATH_MAX];

	if (strlen(path) >= sizeof dir)
		return rk_fail(e, RK_EFAIL, "path %.64s... is too long: limit %d bytes", path, RK_PATH_MAX - 1);
	for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(dir, sizeof dir, "%.*s", (int)(p - path), path);
		if (mkdir(dir, 0700) && errno != EEXIST)
			return rk_fail(e, RK_EFAIL, "%s: cannot make the folder: %s", dir, strerror(errno));
	}
	return 0;
}

int rk_path_default_model(char out[RK_PATH_MAX], rk_err *e)
{
	return rk_path(out, RK_DIR_CACHE, "models/" RK_DEFAULT_MODEL, e);
}
