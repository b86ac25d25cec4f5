/* command.c: the commands behind `:`.  The table is also what the `?` overlay and the manual page show. */
#include <stdlib.h>
#include <string.h>
#include "base/near.h"
#include "tui/pane.h"
#include "tui/saved.h"

static void do_quit(rk_ui *ui, char *args) { (void)args; ui->quit = true; }
static void do_help(rk_ui *ui, char *args) { (void)args; rk_ui_act(ui, RK_ACT_HELP); }
static void do_tour(rk_ui *ui, char *args) { (void)args; rk_ui_act(ui, RK_ACT_TOUR); }
static void do_policy(rk_ui *ui, char *args) { rk_ui_set_policy(ui, args); }
static void do_again(rk_ui *ui, char *args) { (void)args; rk_ui_regenerate(ui, false); }
static void do_edit(rk_ui *ui, char *args) { (void)args; rk_ui_regenerate(ui, true); }
static void do_new(rk_ui *ui, char *args) { (void)args; rk_ui_new_session(ui); }
static void do_stop(rk_ui *ui, char *args) { (void)args; rk_ui_act(ui, RK_ACT_STOP); }
static void do_pause(rk_ui *ui, char *args) { (void)args; rk_ui_act(ui, RK_ACT_PAUSE); }
static void do_dump(rk_ui *ui, char *args) { rk_ui_dump(ui, args[0] ? args : NULL); }
static void do_shade(rk_ui *ui, char *args) { (void)args; rk_ui_act(ui, RK_ACT_SHADE); }
static void do_compare(rk_ui *ui, char *args) { (void)args; rk_ui_act(ui, RK_ACT_COMPARE); }

static void do_ask(rk_ui *ui, char *args)
{
	if (!ui->feed->ask || ui->view.phase != RK_PHASE_IDLE)
		rk_ui_complain(ui, "%s", ui->feed->ask ? "a reply is running; Esc stops it" : "a recording cannot be asked");
	else if (args[0])
		rk_ui_ask(ui, args);
}

static void do_set(rk_ui *ui, char *args)
{
	if (strchr(args, '='))
		rk_ui_set_policy(ui, args);
	else
		rk_ui_complain(ui, "set key=value[,key=value...]: k, qc, s, pool, group, attend, stride");
}

static void do_lane(rk_ui *ui, char *args)
{
	char *rest = args + strcspn(args, " ");

	rest += strspn(rest, " ");
	if (!strncmp(args, "add ", 4) && rest[0])
		rk_ui_add_lane(ui, rest);
	else if (!strncmp(args, "drop ", 5))
		rk_ui_drop_lane(ui, atoi(rest) - 1);
	else
		rk_ui_complain(ui, "lane add SPEC: another policy beside the others; lane drop N: one less");
}

static void do_theme(rk_ui *ui, char *args)
{
	rk_err e;

	if (!args[0])
		rk_ui_say(ui, "theme %s", ui->set.theme.name);
	else if (rk_theme_load(&ui->set.theme, args, &e))
		rk_ui_complain(ui, "%s", e.msg);
	else if (ui->screen.open)
		rk_screen_theme(&ui->screen, &ui->set.theme);
}

static void do_save(rk_ui *ui, char *args)
{
	rk_err e;

	if (args[0])
		snprintf(ui->session_name, sizeof ui->session_name, "%s", args);
	if (!ui->session_name[0])
		rk_ui_complain(ui, "save NAME: a name for this conversation");
	else if (rk_saved_write(ui, ui->session_name, &e))
		rk_ui_complain(ui, "%s", e.msg);
	else
		rk_ui_say(ui, "saved; `refreshkv chat --resume %s` comes back to it", ui->session_name);
}

static void do_export(rk_ui *ui, char *args)
{
	rk_err e;

	if (rk_saved_export(ui, args, &e))
		rk_ui_complain(ui, "%s", e.msg);
	else
		rk_ui_say(ui, "exported to %s", args);
}

static void stop_recording(rk_ui *ui)
{
	char path[RK_PATH_MAX];
	rk_err e;

	snprintf(path, sizeof path, "%s", ui->feed->recording);
	if (ui->feed->stop_recording(ui->feed->ctx, &e))
		rk_ui_complain(ui, "%s", e.msg);
	else
		rk_ui_say(ui, "recorded; `refreshkv replay %s` shows it again", path);
}

static void record(rk_ui *ui, const char *path, bool force)
{
	rk_feed *f = ui->feed;
	rk_err e;
	int after;

	if (!f->record)
		rk_ui_complain(ui, "a recording cannot be recorded");
	else if (!path[0] && f->recording)
		rk_ui_say(ui, "recording to %s; `:record stop` ends it", f->recording);
	else if (!path[0] || (!f->recording && !strcmp(path, "stop")))
		rk_ui_complain(ui, "nothing is recorded; record FILE begins, compressed where FILE ends in .zst");
	else if (!strcmp(path, "stop"))
		stop_recording(ui);
	else if (f->recording)
		rk_ui_complain(ui, "recording to %s already; `:record stop` ends it", f->recording);
	else if (f->record(f->ctx, path, force, &after, &e))
		rk_ui_complain(ui, "%s%s", e.msg, e.code == RK_EUSAGE ? "; `:record! FILE` overwrites it" : "");
	else if (after)
		rk_ui_say(ui, "recording to %s, after %d token%s of this session", path, after, after == 1 ? "" : "s");
	else
		rk_ui_say(ui, "recording to %s", path);
}

static void do_record(rk_ui *ui, char *args) { record(ui, args, false); }
static void do_record_over(rk_ui *ui, char *args) { record(ui, args, true); }

static void do_pace(rk_ui *ui, char *args)
{
	char *end;
	float v = strtof(args, &end);

	if (end == args || *end || !(v >= 0 && v <= 10000)) {
		rk_ui_complain(ui, "pace N: tokens per second, 0 to 10000; 0: as fast as it goes");
		return;
	}
	rk_ui_pace(ui, v);
}

static void do_goto(rk_ui *ui, char *args)
{
	int64_t last = ui->view.lane[ui->lane].n_token - 1, n = atoll(args) - 1;

	if (n < 0 || n > last) {
		rk_ui_complain(ui, "goto N: a token, 1 to %lld", (long long)last + 1);
		return;
	}
	ui->cursor = n;
	rk_ui_show_cursor(ui);
}

void rk_ui_seek(rk_ui *ui, const char *where)
{
	char *end;
	double v = strtod(where, &end);
	rk_feed *f = ui->feed;
	rk_err e;
	int rc;

	if (!f->seek) {
		rk_ui_complain(ui, "only a recording can be sought in");
		return;
	}
	if (where[0] == '/' && where[1]) {
		rc = f->find(f->ctx, where + 1, &e);
	} else if (end == where || (*end && strcmp(end, "%")) || !(v >= 0 && v <= 100)) {
		rk_ui_complain(ui, "seek P: percent of the recording, 0 to 100; seek /TEXT: to the next token with which TEXT is complete");
		return;
	} else {
		rc = f->seek(f->ctx, v / 100, &e);
	}
	if (rc < 0 || rk_view_restart(&ui->view, &e))
		rk_ui_complain(ui, "%s", e.msg);
	else if (where[0] == '/' && rc == 0)
		rk_ui_complain(ui, "%s does not come in the rest of the recording", where + 1);
	if (rc >= 0 && ui->lead)
		rk_view_say(&ui->view, RK_ITEM_NOTE, ui->lead);
	ui->cursor = ui->top = -1;
}

static void do_seek(rk_ui *ui, char *args) { rk_ui_seek(ui, args); }

static void do_pane(rk_ui *ui, char *args)
{
	const char *names[RK_N_PANE];
	char hint[200];

	for (int i = 0; i < RK_N_PANE; i++) {
		names[i] = rk_panes[i]->name;
		if (!strcmp(args, names[i])) {
			ui->focus = (enum rk_pane_id)i;
			ui->typing = false;
			return;
		}
	}
	rk_ui_complain(ui, "pane NAME: %s", rk_near_hint(hint, sizeof hint, args, names, RK_N_PANE));
}

static void do_zoom(rk_ui *ui, char *args)
{
	if (args[0])
		do_pane(ui, args);
	ui->zoomed = args[0] ? true : !ui->zoomed;
}

const rk_command_row rk_commands[] = {
	{ "ask", "TEXT", "send a question", do_ask },
	{ "policy", "SPEC", "switch the lane to a policy: refreshkv:qc=10,s=0.9, snapkv, streamingllm, vanilla, ...", do_policy },
	{ "set", "KEY=VALUE,...", "change parameters of the lane's policy: k, qc, s, pool, group, attend, stride", do_set },
	{ "again", "", "answer the last question again", do_again },
	{ "edit", "", "take the last question back and edit it", do_edit },
	{ "new", "", "forget the conversation and start over", do_new },
	{ "stop", "", "stop the reply", do_stop },
	{ "pause", "", "hold the reply, or go on", do_pause },
	{ "pace", "N", "at most N tokens per second; 0: as fast as it goes", do_pace },
	{ "goto", "N", "put the cursor on the N-th token", do_goto },
	{ "seek", "P | /TEXT", "of a recording: go to P percent, or on to the token with which TEXT is complete", do_seek },
	{ "pane", "NAME", "go to a pane: chat, stride, timeline, occupancy, ratio, speed", do_pane },
	{ "zoom", "[NAME]", "give a pane the whole screen, or take it back", do_zoom },
	{ "compare", "", "all lanes side by side, or one", do_compare },
	{ "lane", "add SPEC | drop N", "a policy more or less side by side; the prompt is read again, and the last question answered", do_lane },
	{ "shade", "", "shade tokens by full layers, or not", do_shade },
	{ "theme", "NAME", "default, light, mono, high-contrast, or a YAML file", do_theme },
	{ "save", "[NAME]", "save the conversation, to come back to it with --resume NAME", do_save },
	{ "export", "FILE", "write the conversation as .md, .json or .txt", do_export },
	{ "record", "FILE | stop", "record from here on as a trace for replay, stats and export; stop: end that", do_record },
	{ "record!", "FILE", "the same, over a FILE that exists", do_record_over },
	{ "dump", "[FILE]", "write the screen to a text file", do_dump },
	{ "tour", "", "a guided tour of one partial and one full step", do_tour },
	{ "help", "", "keys, commands and words", do_help },
	{ "quit", "", "leave the program", do_quit },
	{ 0 }
};

#define MAX_COMMANDS 64

void rk_ui_command(rk_ui *ui, const char *line)
{
	const char *names[MAX_COMMANDS];
	char word[64], hint[300], *args;
	int n = 0;

	while (*line == ' ')
		line++;
	size_t len = strcspn(line, " ");
	if (!len)
		return;
	snprintf(word, sizeof word, "%.*s", (int)(len < 60 ? len : 60), line);
	args = strdup(line + len + strspn(line + len, " "));
	if (!args)
		return;
	for (size_t end = strlen(args); end > 0 && args[end - 1] == ' ';)
		args[--end] = '\0';
	const rk_command_row *hit = NULL;
	for (const rk_command_row *k = rk_commands; k->name; k++) {
		names[n++] = k->name;
		if (!strcmp(k->name, word) || (!hit && !strncmp(k->name, word, strlen(word))))
			hit = k;	/* a beginning is enough; the first one in the table counts */
		if (hit == k && !strcmp(k->name, word))
			break;
	}
	ui->dirty = true;
	if (hit)
		hit->fn(ui, args);
	else
		rk_ui_complain(ui, "no command '%s'; %s", word, rk_near_hint(hint, sizeof hint, word, names, n));
	free(args);
}
