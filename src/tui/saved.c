/* saved.c: see saved.h */
#include "tui/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/paths.h"

#define FORMAT "refreshkv-session"
#define MAX_TURNS 4096

rk_said *rk_saved_turns(const rk_ui *ui, int *n, rk_err *e)
{
	const rk_view *v = &ui->view;
	size_t bytes = 0, len;

	for (int i = 0; i < v->n_item; i++) {
		rk_chat_text(v, &v->item[i], 0, &len);
		bytes += len + 1;
	}
	rk_said *out = malloc((size_t)(v->n_item + 1) * sizeof *out + bytes);
	if (!out) {
		rk_fail(e, RK_ENOMEM, "conversation: out of memory for %zu bytes", bytes);
		return NULL;
	}
	char *at = (char *)(out + v->n_item + 1);
	*n = 0;
	for (int i = 0; i < v->n_item; i++) {
		const rk_view_item *it = &v->item[i];
		if (it->kind == RK_ITEM_NOTE || (it->kind == RK_ITEM_REPLY && (!*n || out[*n - 1].reply)))
			continue;
		const char *s = rk_chat_text(v, it, 0, &len);
		memcpy(at, s, len);
		at[len] = '\0';
		if (it->kind == RK_ITEM_REPLY)
			out[*n - 1].reply = at;
		else
			out[(*n)++] = (rk_said){ .user = at };
		at += len + 1;
	}
	return out;
}

static int session_path(const char *name, char out[RK_PATH_MAX], rk_err *e)
{
	char file[128];

	if (strchr(name, '/')) {
		if (snprintf(out, RK_PATH_MAX, "%s", name) >= RK_PATH_MAX)
			return rk_fail(e, RK_EUSAGE, "session: the path is longer than %d bytes", RK_PATH_MAX - 1);
		return 0;
	}
	if (!name[0] || strlen(name) > 60 || name[0] == '.' ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != strlen(name))
		return rk_fail(e, RK_EUSAGE, "session '%.60s': 1 to 60 letters, digits, - _ and .", name);
	snprintf(file, sizeof file, "sessions/%s.json", name);
	return rk_path(out, RK_DIR_DATA, file, e);
}

static json_t *to_json(const rk_ui *ui, rk_err *e)
{
	int n;
	rk_said *turn = rk_saved_turns(ui, &n, e);
	const rk_feed_info *in = &ui->feed->info;

	if (!turn)
		return NULL;
	json_t *turns = json_array(), *policies = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(turns, json_pack("{s:s, s:s?}", "user", turn[i].user, "reply", turn[i].reply));
	for (int i = 0; i < ui->view.n_lane; i++)
		json_array_append_new(policies, json_string(ui->view.stats.lane[i].spec));
	free(turn);
	json_t *root = json_pack("{s:s, s:i, s:s, s:s, s:s, s:o, s:o}", "format", FORMAT, "version", 1, "model", in->model,
	                         "document", in->document, "document_id", in->document_id, "policies", policies, "turns", turns);
	if (!root)
		rk_fail(e, RK_ENOMEM, "conversation: out of memory");
	return root;
}

static int write_whole(const char *path, json_t *root, rk_err *e)
{
	char temp[RK_PATH_MAX + 8];

	snprintf(temp, sizeof temp, "%s.new", path);
	if (json_dump_file(root, temp, JSON_INDENT(1)) || rename(temp, path)) {
		int why = errno;
		unlink(temp);
		return rk_fail(e, RK_EFAIL, "%s: %s", path, strerror(why));
	}
	return 0;
}

int rk_saved_write(const rk_ui *ui, const char *name, rk_err *e)
{
	char path[RK_PATH_MAX];
	json_t *root = NULL;

	if (session_path(name, path, e) || rk_path_make_dirs(path, e) || !(root = to_json(ui, e)))
		return -1;
	int rc = write_whole(path, root, e);
	json_decref(root);
	return rc;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void note_changes(rk_ui *ui, const json_t *root)
{
	const rk_feed_info *in = &ui->feed->info;

	const char *then = text_of(root, "document");

	if (strcmp(text_of(root, "document_id"), in->document_id) && then[0])
		rk_view_note(&ui->view, "the document (then %s) has changed since this conversation was saved", then);
	else if (strcmp(text_of(root, "document_id"), in->document_id))
		rk_view_note(&ui->view, "this conversation was saved without a document");
	if (strcmp(text_of(root, "model"), in->model))
		rk_view_note(&ui->view, "it was saved with another model: %s", text_of(root, "model"));
}

int rk_saved_read(rk_ui *ui, const char *name, rk_err *e)
{
	char path[RK_PATH_MAX];
	json_error_t je;

	if (session_path(name, path, e))
		return -1;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &je);
	if (!root)
		return rk_fail(e, RK_EFAIL, "%s:%d: %s; the file is left as it is", path, je.line < 0 ? 0 : je.line, je.text);
	const json_t *turns = json_object_get(root, "turns"), *turn;
	size_t i;
	int rc = 0;
	if (strcmp(text_of(root, "format"), FORMAT) || !json_is_array(turns) || json_array_size(turns) > MAX_TURNS)
		rc = rk_fail(e, RK_EFAIL, "%s: not a saved conversation of refreshkv; the file is left as it is", path);
	else if (json_integer_value(json_object_get(root, "version")) != 1)
		rc = rk_fail(e, RK_EFAIL, "%s: version %lld; this program reads version 1", path,
		             (long long)json_integer_value(json_object_get(root, "version")));
	if (rc == 0)
		json_array_foreach(turns, i, turn)
			if (!json_is_string(json_object_get(turn, "user")))
				rc = rk_fail(e, RK_EFAIL, "%s: turn %zu has no text of the user; the file is left as it is", path, i + 1);
	if (rc == 0) {
		json_array_foreach(turns, i, turn) {
			rk_view_say(&ui->view, RK_ITEM_USER, text_of(turn, "user"));
			if (json_is_string(json_object_get(turn, "reply")))
				rk_view_past_reply(&ui->view, text_of(turn, "reply"));
		}
		note_changes(ui, root);
		ui->from_past = json_array_size(turns) > 0;
	}
	json_decref(root);
	return rc;
}

/* Each lane's reply where there are several; one of lanes that are gone is under no policy. */
static void export_text(const rk_ui *ui, FILE *f, bool markdown)
{
	const rk_view *v = &ui->view;
	const rk_feed_info *in = &ui->feed->info;
	size_t len;

	fprintf(f, markdown ? "# %s\n\n- Model: %s\n" : "%s\nModel: %s\n", in->document[0] ? in->document : "Conversation", in->model);
	for (int i = 0; i < v->n_lane; i++)
		fprintf(f, markdown ? "- Policy: `%s`\n" : "Policy: %s\n", v->stats.lane[i].spec);
	for (int i = 0; i < v->n_item; i++) {
		const rk_view_item *it = &v->item[i];
		int n = it->kind == RK_ITEM_REPLY && !it->past && v->n_lane ? v->n_lane : 1;
		for (int lane = 0; lane < n; lane++) {
			const char *s = rk_chat_text(v, it, lane, &len);
			if (it->kind == RK_ITEM_NOTE)
				fprintf(f, markdown ? "\n*%.*s*\n" : "\n[%.*s]\n", (int)len, s);
			else if (it->kind == RK_ITEM_USER)
				fprintf(f, markdown ? "\n## %.*s\n" : "\n> %.*s\n", (int)len, s);
			else if (n > 1)
				fprintf(f, markdown ? "\n### %s\n\n%.*s\n" : "\n%s:\n%.*s\n", v->stats.lane[lane].spec, (int)len, s);
			else
				fprintf(f, "\n%.*s\n", (int)len, s);
		}
	}
}

int rk_saved_export(const rk_ui *ui, const char *path, rk_err *e)
{
	const char *dot = strrchr(path, '.');
	bool md = dot && !strcmp(dot, ".md"), js = dot && !strcmp(dot, ".json"), txt = dot && !strcmp(dot, ".txt");
	json_t *root = NULL;

	if (!md && !js && !txt)
		return rk_fail(e, RK_EUSAGE, "export %.80s: the name must end in .md, .json or .txt", path);
	if (js && !(root = to_json(ui, e)))
		return -1;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f) {
		json_decref(root);
		return rk_fail(e, RK_EFAIL, "%.200s: %s", path, strerror(errno));
	}
	if (js)
		json_dumpf(root, f, JSON_INDENT(1));
	else
		export_text(ui, f, md);
	json_decref(root);
	bool bad = ferror(f) != 0;
	if (fclose(f) || bad)
		return rk_fail(e, RK_EFAIL, "%.200s: %s", path, strerror(errno));
	return 0;
}
