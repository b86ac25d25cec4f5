/* yaml.c: see yaml.h */
#include "base/yaml.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define MAX_NAME 64	/* bytes of a key, section and dot included */

typedef struct reader {
	const char *file;
	yaml_parser_t parser;
	int n_doc;				/* documents begun */
	int depth;				/* open mappings */
	char section[MAX_NAME];			/* "" at the top level */
	char key[MAX_NAME];			/* that waits for its value, section included; "" when a key comes next */
	int n_key;
	char seen[RK_YAML_MAX_KEY][MAX_NAME];	/* keys so far, sections too, for the check of duplicates */
	rk_yaml_fn fn;
	void *arg;
} reader;

static int fail_at(const reader *r, int line, const char *what, rk_err *e)
{
	return rk_fail(e, RK_EUSAGE, "%.200s:%d: %s", r->file, line, what);
}

/* A scalar where a key is due. */
static int take_key(reader *r, const char *text, int line, rk_err *e)
{
	char msg[160];
	if (!text[0])
		return fail_at(r, line, "empty key", e);
	int n = snprintf(r->key, sizeof r->key, "%s%s%s", r->section, r->section[0] ? "." : "", text);
	if (n >= MAX_NAME) {
		snprintf(msg, sizeof msg, "key '%.40s...' is longer than %d bytes", text, MAX_NAME - 1);
		return fail_at(r, line, msg, e);
	}
	for (int i = 0; i < r->n_key; i++)
		if (!strcmp(r->seen[i], r->key)) {
			snprintf(msg, sizeof msg, "key '%s' is given twice", r->key);
			return fail_at(r, line, msg, e);
		}
	if (r->n_key == RK_YAML_MAX_KEY) {
		snprintf(msg, sizeof msg, "more than %d keys", RK_YAML_MAX_KEY);
		return fail_at(r, line, msg, e);
	}
	memcpy(r->seen[r->n_key++], r->key, sizeof r->key);
	return 0;
}

static int take_scalar(reader *r, const yaml_event_t *ev, int line, rk_err *e)
{
	const char *text = (const char *)ev->data.scalar.value;
	if (ev->data.scalar.anchor || ev->data.scalar.tag)
		return fail_at(r, line, "anchors and tags are not supported", e);
	if (r->depth == 0)
		return fail_at(r, line, "expected 'key: value' lines", e);
	if (strlen(text) != ev->data.scalar.length)
		return fail_at(r, line, "a value holds a NUL byte", e);
	if (!r->key[0])
		return take_key(r, text, line, e);

	rk_err why = { RK_EUSAGE, "" };
	if (r->fn(r->arg, r->key, text, line, &why))
		return fail_at(r, line, why.msg, e);
	r->key[0] = '\0';
	return 0;
}

static int open_mapping(reader *r, const yaml_event_t *ev, int line, rk_err *e)
{
	if (ev->data.mapping_start.anchor || ev->data.mapping_start.tag)
		return fail_at(r, line, "anchors and tags are not supported", e);
	if (r->depth > 0 && !r->key[0])
		return fail_at(r, line, "a key must be plain text", e);
	if (r->depth == 2)
		return fail_at(r, line, "mappings may be nested one level deep only", e);
	r->depth++;
	memcpy(r->section, r->key, sizeof r->section);	/* "" for the outermost */
	r->key[0] = '\0';
	return 0;
}

/* One event.  *done is set at the end of the stream. */
static int take_event(reader *r, const yaml_event_t *ev, bool *done, rk_err *e)
{
	int line = (int)ev->start_mark.line + 1;
	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		return take_scalar(r, ev, line, e);
	case YAML_MAPPING_START_EVENT:
		return open_mapping(r, ev, line, e);
	case YAML_MAPPING_END_EVENT:
		r->depth--;
		r->section[0] = r->key[0] = '\0';
		return 0;
	case YAML_SEQUENCE_START_EVENT:
		return fail_at(r, line, "lists are not supported", e);
	case YAML_ALIAS_EVENT:
		return fail_at(r, line, "aliases are not supported", e);
	case YAML_DOCUMENT_START_EVENT:
		return r->n_doc++ ? fail_at(r, line, "more than one document", e) : 0;
	case YAML_STREAM_END_EVENT:
		*done = true;
		return 0;
	default:
		return 0;
	}
}

/* libyaml's own complaint.  Its reader, which checks the encoding, knows an offset but no line. */
static int not_yaml(const reader *r, const char *text, size_t len, rk_err *e)
{
	int line = (int)r->parser.problem_mark.line + 1;
	if (r->parser.error == YAML_READER_ERROR) {
		line = 1;
		for (size_t i = 0; i < len && i < r->parser.problem_offset; i++)
			line += text[i] == '\n';
	}
	return fail_at(r, line, r->parser.problem ? r->parser.problem : "not valid YAML", e);
}

int rk_yaml_read(const char *file, const char *text, size_t len, rk_yaml_fn fn, void *arg, rk_err *e)
{
	if (len > RK_YAML_MAX_BYTES)
		return rk_fail(e, RK_EUSAGE, "%.200s: longer than %d bytes", file, RK_YAML_MAX_BYTES);
	reader *r = calloc(1, sizeof *r);
	if (!r || !yaml_parser_initialize(&r->parser)) {
		free(r);
		return rk_fail(e, RK_EFAIL, "%.200s: no memory to read it", file);
	}
	r->file = file;
	r->fn = fn;
	r->arg = arg;
	yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, len);

	int rc = 0;
	for (bool done = false; !done && rc == 0;) {
		yaml_event_t ev;
		if (yaml_parser_parse(&r->parser, &ev)) {
			rc = take_event(r, &ev, &done, e);
			yaml_event_delete(&ev);
		} else {
			rc = not_yaml(r, text, len, e);
		}
	}
	yaml_parser_delete(&r->parser);
	free(r);
	return rc;
}

int rk_yaml_load(const char *path, rk_yaml_fn fn, void *arg, rk_err *e)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return rk_fail(e, RK_EUSAGE, "%.200s: cannot open: %s", path, strerror(errno));
	int rc = -1;
	char *text = malloc(RK_YAML_MAX_BYTES + 1);	/* one more tells a longer file */
	size_t n = text ? fread(text, 1, RK_YAML_MAX_BYTES + 1, f) : 0;
	if (!text)
		rk_fail(e, RK_EFAIL, "%.200s: no memory to read it", path);
	else if (ferror(f))
		rk_fail(e, RK_EUSAGE, "%.200s: cannot read: %s", path, strerror(errno));
	else
		rc = rk_yaml_read(path, text, n, fn, arg, e);
	free(text);
	fclose(f);
	return rc;
}
