/* records.c: see records.h */
#include "eval/records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "trace/json.h"

#define SHOWN 80	/* characters of a value in a message */

/* ---- keys ---- */

#define RK_KEY 4200	/* texts are named by their paths */

static void key_of(char out[RK_KEY], int group, const char *task, int length, int index)
{
	snprintf(out, RK_KEY, "%d/%d/%d/%s", group, length, index, task);
}

static int record_key(const json_t *rec, char out[RK_KEY])
{
	int group, length, index;
	const char *task;

	if (json_unpack((json_t *)rec, "{s:i, s:s, s:i, s:i}", "group", &group, "task", &task, "length", &length, "index", &index))
		return -1;
	key_of(out, group, task, length, index);
	return 0;
}

const json_t *rk_records_find(const rk_records *r, int group, const char *task, int length, int index)
{
	char key[RK_KEY];

	key_of(key, group, task, length, index);
	const json_t *at = json_object_get(r->keys, key);
	return at ? json_array_get(r->list, (size_t)json_integer_value(at)) : NULL;
}

/* Takes rec over. */
static int keep(rk_records *r, json_t *rec, const char *name, size_t line, rk_err *e)
{
	char key[RK_KEY];
	int rc = -1;

	if (record_key(rec, key))
		rk_fail(e, RK_EFAIL, "%s:%zu: not a record: group, task, length or index is missing", name, line);
	else if (json_object_get(r->keys, key))
		rk_fail(e, RK_EFAIL, "%.200s:%zu: a second record of group/length/index/task %.200s", name, line, key);
	else if (json_object_set_new(r->keys, key, json_integer((json_int_t)json_array_size(r->list))) || json_array_append(r->list, rec))
		rk_fail(e, RK_ENOMEM, "no memory for a record");
	else
		rc = 0;
	json_decref(rec);
	return rc;
}

/* ---- headers ---- */

static int differs(const char *path, const char *key, const json_t *file, const json_t *run, bool merging, rk_err *e)
{
	char *a = file ? json_dumps(file, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	char *b = run ? json_dumps(run, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	rk_fail(e, RK_EUSAGE, "%.200s: made with %s %.*s, %s %.*s%s", path, key, SHOWN, a ? a : "absent", merging ? "the first shard with" :
	        "this is", SHOWN, b ? b : "absent", merging ? ": shards of one run differ in nothing" : ": another run needs another file");
	free(a);
	free(b);
	return -1;
}

/* `names` are the policies as they were typed, which tables show; `policies` says what they are. */
static int same_header(const char *path, const json_t *file, const json_t *run, bool merging, rk_err *e)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)run, key, v)
		if (strcmp(key, "names") && !json_equal(json_object_get(file, key), v))
			return differs(path, key, json_object_get(file, key), v, merging, e);
	json_object_foreach((json_t *)file, key, v)
		if (!json_object_get(run, key))
			return differs(path, key, v, NULL, merging, e);
	return 0;
}

/* ---- reading ---- */

/* Whether a first line without its newline can be what an interrupted run left of a header. */
static bool is_cut_header(const char *line, size_t len)
{
	static const char start[] = "{\"refreshkv_eval\":";

	return !memcmp(line, start, len < sizeof start - 1 ? len : sizeof start - 1);
}

static int not_ours(const char *path, rk_err *e)
{
	return rk_fail(e, RK_EFAIL, "%.200s:1: not a results file of refreshkv eval", path);
}

/* Reads a results file: header and records.  *end: bytes up to the end of the last whole line; a last line without its newline is
 * what an interrupted run left, and is passed over. */
static int load(rk_records *r, FILE *f, const char *path, json_t **header, off_t *end, rk_err *e)
{
	char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;
	int rc = 0;

	*header = NULL;
	for (*end = 0; rc == 0 && (len = getline(&line, &cap, f)) > 0 && line[len - 1] == '\n'; *end += len) {
		json_error_t why;
		json_t *j = json_loadb(line, (size_t)len, 0, &why);
		n++;
		if (!json_is_object(j)) {
			rc = rk_fail(e, RK_EFAIL, "%.200s:%zu: not JSON: %s", path, n, j ? "not an object" : why.text);
			json_decref(j);
		} else if (!*header) {
			*header = j;
			if (!json_is_integer(json_object_get(j, "refreshkv_eval")))
				rc = not_ours(path, e);
		} else {
			rc = keep(r, j, path, n, e);
		}
	}
	if (rc == 0 && !*header && len > 0 && !is_cut_header(line, (size_t)len))
		rc = not_ours(path, e);
	free(line);
	return rc == 0 && ferror(f) ? rk_fail(e, RK_EFAIL, "%.200s: cannot read: %s", path, strerror(errno)) : rc;
}

/* ---- writing ---- */

static int append(int fd, const char *path, json_t *j, rk_err *e)
{
	char *line;
	size_t len, done = 0;

	if (rk_trace_dump(json_incref(j), &line, &len, e))
		return -1;
	while (done < len) {
		ssize_t n = write(fd, line + done, len - done);
		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	free(line);
	return done < len ? rk_fail(e, RK_EFAIL, "%.200s: cannot write: %s", path, strerror(errno)) : 0;
}

static int resume(rk_records *r, rk_err *e)
{
	json_t *header;
	off_t end;
	FILE *f = fdopen(dup(r->fd), "r");

	if (!f)
		return rk_fail(e, RK_EFAIL, "%.200s: %s", r->path, strerror(errno));
	int rc = load(r, f, r->path, &header, &end, e);
	fclose(f);
	if (rc == 0 && header)
		rc = same_header(r->path, header, r->header, false, e);
	if (rc == 0 && (ftruncate(r->fd, end) || lseek(r->fd, end, SEEK_SET) < 0))
		rc = rk_fail(e, RK_EFAIL, "%.200s: %s", r->path, strerror(errno));
	if (rc == 0 && !header)
		rc = append(r->fd, r->path, r->header, e);
	json_decref(header);
	return rc;
}

int rk_records_open(rk_records *r, const char *path, json_t *header, rk_err *e)
{
	*r = (rk_records){ .header = header, .list = json_array(), .keys = json_object(), .fd = -1, .path = path };
	if (!r->header || !r->list || !r->keys)
		return rk_fail(e, RK_ENOMEM, "no memory for results");
	if (!path)
		return 0;
	r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (r->fd < 0)
		return rk_fail(e, RK_EFAIL, "%.200s: cannot write: %s", path, strerror(errno));
	/* file systems of clusters may have no locks: then nothing tells two writers of one file apart */
	if (flock(r->fd, LOCK_EX | LOCK_NB) && errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK)
		return rk_fail(e, RK_EFAIL, "%.200s: %s", path, errno == EWOULDBLOCK ? "another run is writing it" : strerror(errno));
	return resume(r, e);
}

void rk_records_close(rk_records *r)
{
	if (r->fd >= 0)
		close(r->fd);
	json_decref(r->header);
	json_decref(r->list);
	json_decref(r->keys);
	*r = (rk_records){ .fd = -1 };
}

int rk_records_add(rk_records *r, json_t *record, rk_err *e)
{
	if (r->fd >= 0 && append(r->fd, r->path, record, e)) {
		json_decref(record);
		return -1;
	}
	return keep(r, record, r->path ? r->path : "results", json_array_size(r->list) + 2, e);
}

/* ---- shards ---- */

static json_int_t place_in(const json_t *list, const json_t *v)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_equal(json_array_get(list, i), v))
			return (json_int_t)i;
	return -1;
}

/* Order of a run: group, task, length, index. */
struct place { json_int_t at[4]; json_t *rec; };

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	for (int i = 0; i < 4; i++)
		if (x->at[i] != y->at[i])
			return x->at[i] < y->at[i] ? -1 : 1;
	return 0;
}

static int sort(rk_records *r, rk_err *e)
{
	size_t n = json_array_size(r->list);
	struct place *p = calloc(n + 1, sizeof *p);
	json_t *sorted = json_array();

	if (!p || !sorted) {
		free(p);
		json_decref(sorted);
		return rk_fail(e, RK_ENOMEM, "no memory to sort %zu records", n);
	}
	for (size_t i = 0; i < n; i++) {
		json_t *rec = json_array_get(r->list, i);
		p[i] = (struct place){ .rec = rec, .at = {
			json_integer_value(json_object_get(rec, "group")),
			place_in(json_object_get(r->header, "tasks"), json_object_get(rec, "task")),
			place_in(json_object_get(r->header, "lengths"), json_object_get(rec, "length")),
			json_integer_value(json_object_get(rec, "index")) } };
	}
	qsort(p, n, sizeof *p, by_place);
	for (size_t i = 0; i < n; i++) {
		char key[RK_KEY];
		record_key(p[i].rec, key);
		json_object_set_new(r->keys, key, json_integer((json_int_t)i));
		json_array_append(sorted, p[i].rec);
	}
	free(p);
	json_decref(r->list);
	r->list = sorted;
	return 0;
}

struct shards {
	int n;			/* 0: none yet */
	unsigned char *have;	/* [n] */
};

/* Notes which shard the header is of.  A file that is no shard is the first of one. */
static int note_shard(struct shards *s, const char *path, const json_t *header, rk_err *e)
{
	json_t *v = json_object_get(header, "shard");
	int i = 1, n = 1;

	if (json_is_array(v) && (json_unpack(v, "[i, i]", &i, &n) || i < 1 || i > n || n > RK_SHARD_MAX))
		return rk_fail(e, RK_EFAIL, "%.200s:1: shard is not [I, N] with I from 1 to N and N up to %d", path, RK_SHARD_MAX);
	if (s->n && s->n != n)
		return rk_fail(e, RK_EUSAGE, "%.200s: one of %d shards, the files before it are of %d", path, n, s->n);
	if (!s->n && !(s->have = calloc((size_t)n, 1)))
		return rk_fail(e, RK_ENOMEM, "no memory for %d shards", n);
	s->n = n;
	s->have[i - 1] = 1;
	return 0;
}

static int check_shards(const struct shards *s, rk_err *e)
{
	int missing = 0, first = 0;

	for (int i = s->n; i > 0; i--)
		if (!s->have[i - 1]) {
			first = i;
			missing++;
		}
	return missing ? rk_fail(e, RK_EUSAGE, "eval merge: %d of %d shards missing, first shard %d", missing, s->n, first) : 0;
}

static int merge_one(rk_records *r, struct shards *s, const char *path, rk_err *e)
{
	json_t *header;
	off_t end;
	FILE *f = fopen(path, "re");

	if (!f)
		return rk_fail(e, RK_EFAIL, "%.200s: cannot read: %s", path, strerror(errno));
	int rc = load(r, f, path, &header, &end, e);
	fclose(f);
	if (rc == 0 && !header)
		rc = not_ours(path, e);
	if (rc == 0)
		rc = note_shard(s, path, header, e);
	if (rc == 0) {
		json_object_set_new(header, "shard", json_null());
		if (!r->header)
			r->header = json_incref(header);
		else
			rc = same_header(path, header, r->header, true, e);
	}
	json_decref(header);
	return rc;
}

int rk_records_merge(rk_records *r, const char *const *path, int n, rk_err *e)
{
	*r = (rk_records){ .list = json_array(), .keys = json_object(), .fd = -1 };
	if (!r->list || !r->keys)
		return rk_fail(e, RK_ENOMEM, "no memory for results");
	struct shards s = { 0 };
	int rc = 0;
	for (int i = 0; i < n && rc == 0; i++)
		rc = merge_one(r, &s, path[i], e);
	if (rc == 0)
		rc = check_shards(&s, e);
	free(s.have);
	return rc ? rc : sort(r, e);
}

int rk_records_write(const rk_records *r, FILE *f, rk_err *e)
{
	size_t n = json_array_size(r->list);

	for (size_t i = 0; i <= n; i++) {
		char *line;
		size_t len;
		if (rk_trace_dump(json_incref(i ? json_array_get(r->list, i - 1) : r->header), &line, &len, e))
			return -1;
		fwrite(line, 1, len, f);
		free(line);
	}
	return 0;
}

/* ---- the header ---- */

const char *rk_records_text(const rk_records *r, const char *key, size_t i)
{
	const char *s = json_string_value(json_array_get(json_object_get(r->header, key), i));

	return s ? s : "";
}

int rk_records_count(const rk_records *r, const char *key)
{
	return (int)json_array_size(json_object_get(r->header, key));
}

const char *rk_records_baseline(const rk_records *r)
{
	return rk_records_text(r, "policies", (size_t)json_integer_value(json_object_get(r->header, "baseline")));
}

bool rk_records_suite_is(const rk_records *r, const char *name)
{
	const char *s = json_string_value(json_object_get(r->header, "suite"));

	return s && !strcmp(s, name);
}
