/* main.c: finds the command, prints its error, and is the only place that exits.
 *
 * Exit status: 0; 1 failed run; 2 usage; 3 model; 4 memory (enum rk_code); 130 after Ctrl-C.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/near.h"
#include "cmd/cmd.h"
#include "cmd/out.h"

#define MAX_CMD 16

static void print_help(void)
{
	printf("refreshkv %s: answers questions about long documents with a language model on this machine, and shows what its\n"
	       "KV cache does under RefreshKV and rival policies.\n\n"
	       "Usage: refreshkv COMMAND [OPTION...]        `refreshkv COMMAND --help` lists its options\n"
	       "       cat DOC | refreshkv -p QUESTION      the same as `refreshkv run`\n\nCommands:\n", RK_VERSION);
	for (const rk_cmd *c = rk_cmds; c->opt; c++) {
		printf("  %-9s  ", c->opt->name);
		rk_opt_wrap(stdout, 13, 13, c->opt->doc);
	}
	printf("\nPolicies:\n");
	for (int i = 0; i < rk_policy_n_preset(); i++) {
		printf("  %-21s  ", rk_policy_preset_name(i));
		rk_opt_wrap(stdout, 25, 25, rk_policy_preset_doc(i));
	}
	printf("\nExit status: 0 done, 1 failed, 2 wrong usage, 3 model cannot be used, 4 not enough memory, 130 after Ctrl-C.\n");
}

static int unknown_command(const char *word, rk_err *e)
{
	const char *names[MAX_CMD];
	char hint[200];
	int n = 0;
	for (const rk_cmd *c = rk_cmds; c->opt && n < MAX_CMD; c++)
		names[n++] = c->opt->name;
	return rk_fail(e, RK_EUSAGE, "unknown command '%.64s'; %s", word, rk_near_hint(hint, sizeof hint, word, names, n));
}

static int dispatch(int argc, char **argv, rk_err *e)
{
	const char *word = argc > 1 ? argv[1] : NULL;
	if (word && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
		print_help();
		return rk_out_flush(stdout, "standard output", e);
	}
	if (word && !strcmp(word, "--version")) {
		printf("refreshkv %s\n", RK_VERSION);
		return rk_out_flush(stdout, "standard output", e);
	}
	for (const rk_cmd *c = rk_cmds; word && c->opt; c++)
		if (!strcmp(word, c->opt->name))
			return c->fn(argc - 1, argv + 1, e);
	if (word && word[0] != '-')
		return unknown_command(word, e);
	if (!word && isatty(STDIN_FILENO)) {
		if (isatty(STDOUT_FILENO))
			return rk_cmd_chat(argc, argv, e);
		print_help();
		return rk_out_flush(stdout, "standard output", e);
	}
	return rk_cmd_run(argc, argv, e);	/* options only, or text on standard input */
}

int main(int argc, char **argv)
{
	rk_err e = { 0 };
	signal(SIGPIPE, SIG_IGN);	/* a reader that goes away is a write error, met in rk_out_flush */
	int status = dispatch(argc, argv, &e);
	if (status >= 0)
		return status;
	if (e.msg[0])
		fprintf(stderr, "refreshkv: %s\n", e.msg);
	return e.code ? (int)e.code : RK_EFAIL;
}
