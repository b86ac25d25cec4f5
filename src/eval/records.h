/* records.h: the results file of an evaluation: JSON lines, a header that holds every parameter, then one record per example.
 *
 * A record is written whole, as one line, as soon as it is known.  Opening an existing file goes on with it: records that are there
 * need not be made again, a last line that was cut off is dropped, and a header that differs in any key is refused by name.
 * Keys of a record: group, task, length, index.  Single thread; a file has one writer (it is locked).
 */
#ifndef RK_EVAL_RECORDS_H
#define RK_EVAL_RECORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/err.h"

typedef struct rk_records {
	json_t *header, *list;	/* an object; an array of records in the file's order */
	json_t *keys;		/* object: key of each record to its place in list */
	int fd;			/* -1: none, records stay in memory */
	const char *path;	/* borrowed */
} rk_records;

/* path NULL: in memory.  Takes header over, also on error.  rk_records_close in any case. */
int rk_records_open(rk_records *r, const char *path, json_t *header, rk_err *e);
void rk_records_close(rk_records *r);

/* NULL: not there. */
const json_t *rk_records_find(const rk_records *r, int group, const char *task, int length, int index);
/* Writes the record and takes it over, also on error. */
int rk_records_add(rk_records *r, json_t *record, rk_err *e);

#define RK_SHARD_MAX (1 << 20)
/* Reads all shards (in any order) into one set of records, in the order in which one run would have written them.  The shards'
 * headers must be equal but for `shard`, which goes, and `names`, of which the first counts; a shard that is missing and a record
 * that two of them hold are errors. */
int rk_records_merge(rk_records *r, const char *const *path, int n, rk_err *e);
/* All of r as a results file. */
int rk_records_write(const rk_records *r, FILE *f, rk_err *e);

/* What the header says: entry i of the list `key` ("" where there is none), how many entries it has, the baseline's spec, the suite. */
const char *rk_records_text(const rk_records *r, const char *key, size_t i);
int rk_records_count(const rk_records *r, const char *key);
const char *rk_records_baseline(const rk_records *r);
bool rk_records_suite_is(const rk_records *r, const char *name);

#endif
