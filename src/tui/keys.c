/* keys.c: see keys.h */
#include "tui/keys.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include "base/near.h"
#include "tui/canvas.h"

#define P RK_IN_PANES
#define T RK_IN_TYPING

const rk_action_row rk_actions[RK_N_ACTION] = {
	[RK_ACT_NONE] = { "", P, "", "", "" },
	[RK_ACT_QUIT] = { "quit", P, "q F10 C-d", "quit", "leave the program" },
	[RK_ACT_HELP] = { "help", P, "? F1", "help", "these pages: keys and terms" },
	[RK_ACT_NEXT_PANE] = { "next-pane", P, "Tab", "pane", "go to the next pane" },
	[RK_ACT_PREV_PANE] = { "previous-pane", P, "BackTab", "", "go to the previous pane" },
	[RK_ACT_ZOOM] = { "zoom", P, "z", "zoom", "give the pane the whole screen, or take it back" },
	[RK_ACT_TYPE] = { "type", P, "i Enter", "ask", "type a question" },
	[RK_ACT_COMMAND] = { "command", P, ":", "command", "type a command; `:help` lists them" },
	[RK_ACT_SEARCH] = { "search", P, "/", "search", "search the conversation" },
	[RK_ACT_NEXT_MATCH] = { "next-match", P, "n", "", "go to the next match" },
	[RK_ACT_PREV_MATCH] = { "previous-match", P, "N", "", "go to the previous match" },
	[RK_ACT_STOP] = { "stop", P, "Esc", "stop", "stop the reply and keep its text; otherwise follow the newest token again" },
	[RK_ACT_PAUSE] = { "pause", P, "Space", "pause", "hold the reply before its next token, or go on" },
	[RK_ACT_STEP] = { "step", P, ".", "step", "while paused: let one token through" },
	[RK_ACT_SLOWER] = { "slower", P, "[", "slower", "halve the ceiling on tokens per second" },
	[RK_ACT_FASTER] = { "faster", P, "]", "faster", "double the ceiling on tokens per second" },
	[RK_ACT_EDIT_POLICY] = { "edit-policy", P, "p", "policy", "change K, QC, s and the rest while it runs" },
	[RK_ACT_LEFT] = { "left", P, "h Left", "", "move the cursor to the token before" },
	[RK_ACT_RIGHT] = { "right", P, "l Right", "", "move the cursor to the token after" },
	[RK_ACT_UP] = { "up", P, "k Up", "", "scroll up" },
	[RK_ACT_DOWN] = { "down", P, "j Down", "", "scroll down" },
	[RK_ACT_PAGE_UP] = { "page-up", P, "PgUp C-b", "", "scroll a page up" },
	[RK_ACT_PAGE_DOWN] = { "page-down", P, "PgDn C-f", "", "scroll a page down" },
	[RK_ACT_FIRST] = { "first", P, "g Home", "", "go to the beginning" },
	[RK_ACT_LAST] = { "last", P, "G End", "newest", "go to the newest token and follow it" },
	[RK_ACT_SHADE] = { "shade", P, "s", "shade", "shade tokens by the share of layers that took a full step, or not" },
	[RK_ACT_INSPECT] = { "inspect", P, "o", "inspect", "show the details of the token under the cursor, or hide them" },
	[RK_ACT_WIDER] = { "wider", P, "+", "wider", "timeline: fewer steps per column" },
	[RK_ACT_NARROWER] = { "narrower", P, "-", "narrower", "timeline: more steps per column" },
	[RK_ACT_COMPARE] = { "compare", P, "c", "compare", "show all lanes side by side, or one" },
	[RK_ACT_LANE] = { "lane", P, "v", "lane", "show the next lane in the panes" },
	[RK_ACT_REGENERATE] = { "regenerate", P, "r", "again", "answer the last question again" },
	[RK_ACT_EDIT_LAST] = { "edit-last", P, "e", "edit", "take the last question back and edit it" },
	[RK_ACT_THEME] = { "theme", P, "T", "theme", "go to the next theme" },
	[RK_ACT_TOUR] = { "tour", P, "t", "tour", "a guided tour of one partial and one full step" },
	[RK_ACT_MOUSE] = { "mouse", P, "m", "", "leave the mouse to the terminal, or take it (Shift-drag always selects)" },
	[RK_ACT_DUMP] = { "dump", P, "S", "", "write the screen to a text file" },
	[RK_ACT_SEND] = { "send", T, "Enter", "send", "send the question" },
	[RK_ACT_NEWLINE] = { "newline", T, "M-Enter C-j", "new line", "start a new line" },
	[RK_ACT_LINE_START] = { "line-start", T, "C-a Home", "", "go to the start of the line" },
	[RK_ACT_LINE_END] = { "line-end", T, "C-e End", "", "go to the end of the line" },
	[RK_ACT_DELETE_TO_START] = { "delete-to-start", T, "C-u", "", "delete to the start of the line" },
	[RK_ACT_DELETE_TO_END] = { "delete-to-end", T, "C-k", "", "delete to the end of the line" },
	[RK_ACT_DELETE_WORD] = { "delete-word", T, "C-w", "", "delete the word before the cursor" },
	[RK_ACT_LEAVE] = { "leave", T, "Esc", "stop, or leave", "stop the reply if one is running, else stop typing" },
	[RK_ACT_TYPE_NEXT_PANE] = { "leave-to-pane", T, "Tab", "panes", "stop typing and go to the panes" },
	[RK_ACT_TYPE_HELP] = { "help-while-typing", T, "F1", "help", "these pages: keys and terms" },
};

static const struct { int32_t key; const char *name; } named[] = {
	{ RK_KEY_TAB, "Tab" }, { RK_KEY_ENTER, "Enter" }, { RK_KEY_ESC, "Esc" }, { ' ', "Space" }, { RK_KEY_BACKSPACE, "Backspace" },
	{ RK_KEY_UP, "Up" }, { RK_KEY_DOWN, "Down" }, { RK_KEY_LEFT, "Left" }, { RK_KEY_RIGHT, "Right" }, { RK_KEY_PGUP, "PgUp" },
	{ RK_KEY_PGDN, "PgDn" }, { RK_KEY_HOME, "Home" }, { RK_KEY_END, "End" }, { RK_KEY_DELETE, "Delete" },
	{ RK_KEY_BACKTAB, "BackTab" }, { RK_KEY_F1, "F1" }, { RK_KEY_F2, "F2" }, { RK_KEY_F3, "F3" }, { RK_KEY_F4, "F4" },
	{ RK_KEY_F5, "F5" }, { RK_KEY_F6, "F6" }, { RK_KEY_F7, "F7" }, { RK_KEY_F8, "F8" }, { RK_KEY_F9, "F9" }, { RK_KEY_F10, "F10" },
};
#define N_NAMED (int)(sizeof named / sizeof *named)

int32_t rk_key_parse(const char *name)
{
	size_t len = strlen(name);
	int32_t cp;

	if (!strncmp(name, "M-", 2) && len > 2) {
		int32_t key = rk_key_parse(name + 2);
		return key ? key | RK_ALT : RK_KEY_NONE;
	}
	for (int i = 0; i < N_NAMED; i++)
		if (!strcmp(name, named[i].name))
			return named[i].key;
	if (!strncmp(name, "C-", 2) && len == 3 && name[2] >= 'a' && name[2] <= 'z')
		return RK_CTRL(name[2]);
	if (len && rk_char_next(name, len, &cp) == len && cp > ' ' && cp != 0xFFFD && cp != 127)
		return cp;
	return RK_KEY_NONE;
}

char *rk_key_name(int32_t key, char out[16])
{
	if (key & RK_ALT) {
		char rest[16];
		snprintf(out, 16, "M-%.12s", rk_key_name(key & ~RK_ALT, rest));
		return out;
	}
	for (int i = 0; i < N_NAMED; i++)
		if (named[i].key == key)
			return strcpy(out, named[i].name);
	if (key < ' ')
		snprintf(out, 16, "C-%c", key + 'a' - 1);
	else
		out[utf8proc_encode_char(key, (utf8proc_uint8_t *)out)] = '\0';
	return out;
}

void rk_keymap_default(rk_keymap *m)
{
	*m = (rk_keymap){ 0 };
	for (int a = 1; a < RK_N_ACTION; a++)
		rk_keymap_set(m, rk_actions[a].name, rk_actions[a].keys, NULL);
}

int rk_keymap_set(rk_keymap *m, const char *action, const char *keys, rk_err *e)
{
	const char *names[RK_N_ACTION];
	char hint[300], buf[128], *save = NULL;
	int a = 1, n = 0;

	while (a < RK_N_ACTION && strcmp(rk_actions[a].name, action))
		a++;
	if (a == RK_N_ACTION) {
		for (int i = 1; i < RK_N_ACTION; i++)
			names[i - 1] = rk_actions[i].name;
		return rk_fail(e, RK_EUSAGE, "unknown action '%.40s'; %s", action, rk_near_hint(hint, sizeof hint, action, names, RK_N_ACTION - 1));
	}
	if (strlen(keys) >= sizeof buf)
		return rk_fail(e, RK_EUSAGE, "keys of %s: longer than %zu characters", action, sizeof buf - 1);
	int32_t key[RK_KEYS_PER_ACTION] = { 0 };
	for (char *w = strtok_r(strcpy(buf, keys), " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		if (n == RK_KEYS_PER_ACTION)
			return rk_fail(e, RK_EUSAGE, "keys of %s: more than %d", action, RK_KEYS_PER_ACTION);
		if (!(key[n++] = rk_key_parse(w)))
			return rk_fail(e, RK_EUSAGE, "keys of %s: unknown key '%.40s'; a character, C-a, M-a, Tab, Enter, Esc, Space, PgUp, F1, ...", action, w);
	}
	memcpy(m->key[a], key, sizeof key);
	return 0;
}

int rk_keymap_check(const rk_keymap *m, rk_err *e)
{
	char name[16];

	for (int a = 1; a < RK_N_ACTION; a++)
		for (int i = 0; i < RK_KEYS_PER_ACTION && m->key[a][i]; i++)
			for (int b = 1; b < a; b++)
				for (int k = 0; k < RK_KEYS_PER_ACTION && rk_actions[b].place == rk_actions[a].place; k++)
					if (m->key[b][k] == m->key[a][i])
						return rk_fail(e, RK_EUSAGE, "key %s is claimed by both %s and %s", rk_key_name(m->key[a][i], name),
						               rk_actions[b].name, rk_actions[a].name);
	if (!m->key[RK_ACT_QUIT][0])
		return rk_fail(e, RK_EUSAGE, "no key is left for quit");
	return 0;
}

enum rk_action rk_keymap_find(const rk_keymap *m, enum rk_place place, int32_t key)
{
	for (int a = 1; a < RK_N_ACTION; a++)
		for (int i = 0; rk_actions[a].place == place && i < RK_KEYS_PER_ACTION && m->key[a][i]; i++)
			if (m->key[a][i] == key)
				return (enum rk_action)a;
	return RK_ACT_NONE;
}

char *rk_keymap_names(const rk_keymap *m, enum rk_action a, char *out, int size)
{
	char name[16];
	int n = 0;

	out[0] = '\0';
	for (int i = 0; i < RK_KEYS_PER_ACTION && m->key[a][i] && n < size; i++)
		n += snprintf(out + n, (size_t)(size - n), "%s%s", i ? " " : "", rk_key_name(m->key[a][i], name));
	return out;
}
