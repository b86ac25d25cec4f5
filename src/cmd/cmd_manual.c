/* cmd_manual.c: `refreshkv manual`: the manual page, or with --completion the bash completion, made from the same tables as
 * the program itself: commands, options, keys, `:` commands.  docs/refreshkv.1 and configs/completion.bash are its output
 * (`make manual`), and a test says when they are out of date. */
#include "cmd/cmd.h"

#include <string.h>
#include "cmd/out.h"
#include "tui/app.h"

struct opts { bool completion; };

static const rk_opt rows[] = {
	{ "completion", 0, RK_OPT_FLAG, offsetof(struct opts, completion), .doc = "the completion for bash instead: source it, or install it" },
	{ 0 }
};

static const rk_opt_group groups[] = { { "Options", rows, 0 }, { 0 } };

const rk_opt_cmd rk_cmd_manual_opt = {
	.name = "manual", .operands = "", .groups = groups,
	.doc = "Print the manual page (`refreshkv manual | man -l -`) or the bash completion.",
};

/* ---- roff ---- */

/* Text in which nothing is a request or an escape; a line must not start with a dot or a quote. */
static void text(const char *s)
{
	if (*s == '.' || *s == '\'')
		fputs("\\&", stdout);
	for (; *s; s++)
		switch (*s) {
		case '\\': fputs("\\e", stdout); break;
		case '-': fputs("\\-", stdout); break;
		case '^': fputs("\\(ha", stdout); break;
		case '~': fputs("\\(ti", stdout); break;
		case '`': fputs("\\(ga", stdout); break;
		default: putchar(*s);
		}
}

static void item(const char *term, const char *doc)
{
	fputs(".TP\n.B ", stdout);
	text(term);
	putchar('\n');
	text(doc);
	putchar('\n');
}

static void option(const rk_opt *r)
{
	char range[200];
	fputs(".TP\n\\fB", stdout);
	if (r->letter)
		printf("\\-%c\\fR, \\fB", r->letter);
	text("--");
	text(r->name);
	fputs("\\fR", stdout);
	if (r->kind != RK_OPT_FLAG)
		printf(" \\fI%s\\fR", r->metavar ? r->metavar : r->kind == RK_OPT_ENUM ? "NAME" : "N");
	putchar('\n');
	text(r->doc);
	rk_opt_range(r, range, sizeof range);
	if (r->kind != RK_OPT_FLAG && (range[0] || r->def)) {
		fputs("\n(", stdout);
		text(range);
		if (r->def) {
			fputs(range[0] ? "; default " : "default ", stdout);
			text(r->def);
		}
		putchar(')');
	}
	putchar('\n');
}

static void command(const rk_opt_cmd *c)
{
	printf(".SS \"refreshkv %s", c->name);
	fputs(c->operands[0] ? " " : "", stdout);
	text(c->operands);
	fputs("\"\n", stdout);
	text(c->doc);
	putchar('\n');
	for (const rk_opt_group *g = c->groups; g->title; g++)
		for (const rk_opt *r = g->rows; r->name; r++)
			option(r);
}

static void keys(enum rk_place place)
{
	for (int a = 1; a < RK_N_ACTION; a++)
		if (rk_actions[a].place == place)
			item(rk_actions[a].keys, rk_actions[a].doc);
}

static void page(void)
{
	printf(".\\\" made by `refreshkv manual`\n.TH REFRESHKV 1 \"\" \"refreshkv %s\" \"User Commands\"\n"
	       ".SH NAME\nrefreshkv \\- chat about long documents and watch the KV cache\n"
	       ".SH SYNOPSIS\n.B refreshkv\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR...]\n.br\n.B refreshkv chat\n[\\fIDOC\\fR]\n"
	       ".SH DESCRIPTION\nAnswers questions about long documents with a language model on this machine, and shows what its KV cache does under\n"
	       "RefreshKV and rival policies. Without a command, on a terminal, it opens the screen of \\fBrefreshkv chat\\fR; with a document on\n"
	       "standard input or \\fB\\-p\\fR, it answers in plain text as \\fBrefreshkv run\\fR does.\n.SH COMMANDS\n", RK_VERSION);
	for (const rk_cmd *c = rk_cmds; c->opt; c++)
		command(c->opt);
	puts(".SH POLICIES\nA policy is a preset and parameters: \\fBrefreshkv:qc=10,s=0.9,k=0.125\\fR.");
	for (int i = 0; i < rk_policy_n_preset(); i++)
		item(rk_policy_preset_name(i), rk_policy_preset_doc(i));
	puts(".SH KEYS\nOutside the editor:");
	keys(RK_IN_PANES);
	item("0 to 9", RK_SEEK_DOC);
	puts(".PP\nWhile typing:");
	keys(RK_IN_TYPING);
	item("C-c", "Stop the reply; twice: leave the program.");
	item("C-z", "Suspend; the reply waits until fg.");
	puts(".SH \"COMMANDS OF THE SCREEN\"\nAfter a colon; a beginning is enough.");
	for (const rk_command_row *k = rk_commands; k->name; k++) {
		char term[80];
		snprintf(term, sizeof term, ":%s %s", k->name, k->args);
		item(term, k->doc);
	}
	puts(".SH \"KEY SCRIPTS\"\n\\fB\\-\\-keys\\fR \\fIFILE\\fR plays a file, one instruction a line; lines that start with # are passed over:\n"
	     ".TP\n\\fBkey\\fR \\fINAME\\fR...\npresses keys: \\fBkey Tab Tab z\\fR\n.TP\n\\fBtype\\fR \\fITEXT\\fR\ntypes the rest of the line\n"
	     ".TP\n\\fBpaste\\fR \\fITEXT\\fR\nthe same as a bracketed paste; \\en is a new line\n.TP\n\\fB:\\fR\\fICOMMAND\\fR\nruns a command, such as \\fB:dump\\fR \\fIFILE\\fR\n"
	     ".TP\n\\fBwait\\fR idle | reply | prefill | tokens \\fIN\\fR | \\fIMS\\fR\nwaits until the engine is in that state, for lane 0 to have N tokens, or some milliseconds\n"
	     ".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/refreshkv/refreshkv.yaml\nsettings; configs/refreshkv.yaml documents every key\n"
	     ".TP\n.I $XDG_DATA_HOME/refreshkv/sessions/\nconversations saved by :save\n.TP\n.I $XDG_STATE_HOME/refreshkv/history\nquestions typed in earlier runs, unless the setting history is false\n.TP\n.I $XDG_CACHE_HOME/refreshkv/models/\nmodels\n"
	     ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colours, unless \\-\\-color=always\n.TP\n.B COLORTERM\ntruecolor or 24bit: use 24-bit colours where the terminal database has them\n"
	     ".TP\n.B ESCDELAY\nmilliseconds to tell Esc from a function key (25)\n"
	     ".SH \"EXIT STATUS\"\n0 done, 1 failed, 2 wrong usage, 3 the model cannot be used, 4 not enough memory, 130 after Ctrl-C.");
}

/* ---- bash ---- */

static void words_of(const rk_opt_cmd *c)
{
	for (const rk_opt_group *g = c->groups; g->title; g++)
		for (const rk_opt *r = g->rows; r->name; r++)
			printf(" --%s", r->name);
	fputs(" --help", stdout);
}

static void completion(void)
{
	puts("# bash completion for refreshkv; made by `refreshkv manual --completion`\n_refreshkv()\n{\n"
	     "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n\tcase $prev in");
	fputs("\t--policy) words=\"", stdout);
	for (int i = 0; i < rk_policy_n_preset(); i++)
		printf(i ? " %s" : "%s", rk_policy_preset_name(i));
	puts("\" ;;\n\t--theme) words=\"default light mono high-contrast\" ;;\n\t--color) words=\"auto always never\" ;;\n"
	     "\t--chat-template) words=\"chatml llama3 raw\" ;;\n\tesac\n"
	     "\tif [[ -n $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return; fi\n"
	     "\tif [[ $cur != -* && $COMP_CWORD -gt 1 ]]; then COMPREPLY=($(compgen -f -- \"$cur\")); return; fi\n\tcase ${COMP_WORDS[1]} in");
	for (const rk_cmd *c = rk_cmds; c->opt; c++) {
		printf("\t%s) words=\"", c->opt->name);
		words_of(c->opt);
		puts("\" ;;");
	}
	fputs("\t*) words=\"--help --version", stdout);
	for (const rk_cmd *c = rk_cmds; c->opt; c++)
		printf(" %s", c->opt->name);
	puts("\" ;;\n\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o filenames -F _refreshkv refreshkv");
}

int rk_cmd_manual(int argc, char **argv, rk_err *e)
{
	struct opts o;
	switch (rk_opt_parse(&rk_cmd_manual_opt, argc, argv, &o, NULL, e)) {
	case 1: rk_opt_help(&rk_cmd_manual_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	if (o.completion)
		completion();
	else
		page();
	return rk_out_flush(stdout, "standard output", e);
}
