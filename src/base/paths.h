/* paths.h: where this user's files are, by the XDG base directory specification.
 *
 * $XDG_CONFIG_HOME, $XDG_DATA_HOME, $XDG_CACHE_HOME, $XDG_STATE_HOME where set and absolute (the specification ignores
 * relative ones), else ~/.config, ~/.local/share, ~/.cache, ~/.local/state; ~ is $HOME, else the passwd entry.  Only
 * rk_path_make_dirs touches the disk.  Reads the environment: call before other threads start.
 */
#ifndef RK_BASE_PATHS_H
#define RK_BASE_PATHS_H

#include "base/err.h"

#define RK_PATH_MAX 4096
#define RK_DEFAULT_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf"	/* the one place that names it; models/ has the manifest */

enum rk_dir { RK_DIR_CONFIG, RK_DIR_DATA, RK_DIR_CACHE, RK_DIR_STATE };

/* "<dir>/refreshkv" and, when name is not NULL, "/<name>".  Error: no home directory, or a path that is too long. */
int rk_path(char out[RK_PATH_MAX], enum rk_dir dir, const char *name, rk_err *e);

/* Makes the folders above a file that are missing, for this user only. */
int rk_path_make_dirs(const char *path, rk_err *e);

/* <cache>/models/RK_DEFAULT_MODEL */
int rk_path_default_model(char out[RK_PATH_MAX], rk_err *e);

#endif
