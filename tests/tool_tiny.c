/* tool_tiny.c: writes a tiny random model for the command-line tests.
 *
 *	tool_tiny OUT.gguf [seed=N] [n_ctx=N] [n_layer=N] [type=f32|f16|q8_0|q4_0|q4_1]
 *
 * Same arguments, same bytes (aid_gguf.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "aid_gguf.h"

static int number(const char *arg, const char *key, int *out)
{
	size_t n = strlen(key);
	if (strncmp(arg, key, n) || arg[n] != '=')
		return 0;
	*out = atoi(arg + n + 1);
	return 1;
}

static int type(const char *arg, enum rk_type *out)
{
	static const struct { const char *name; enum rk_type type; } known[] = {
		{ "type=f32", RK_F32 }, { "type=f16", RK_F16 }, { "type=q8_0", RK_Q8_0 }, { "type=q4_0", RK_Q4_0 }, { "type=q4_1", RK_Q4_1 },
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(arg, known[i].name)) {
			*out = known[i].type;
			return 1;
		}
	return 0;
}

int main(int argc, char **argv)
{
	aid_tiny opt = { 0 };
	int seed = 1;
	for (int i = 2; i < argc; i++)
		if (!number(argv[i], "seed", &seed) && !number(argv[i], "n_ctx", &opt.n_ctx) && !number(argv[i], "n_layer", &opt.n_layer) &&
		    !type(argv[i], &opt.type)) {
			fprintf(stderr, "tool_tiny: unknown argument %s\n", argv[i]);
			return 2;
		}
	if (argc < 2) {
		fprintf(stderr, "usage: tool_tiny OUT.gguf [key=value...]\n");
		return 2;
	}
	aid_tiny_model(argv[1], &opt, (uint64_t)seed);
	return 0;
}
