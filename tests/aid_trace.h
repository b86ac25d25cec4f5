/* aid_trace.h: what the tests of traces share: random events that are reproducible, a header, and a folder of their own under
 * /tmp that is removed.
 */
#ifndef RK_TESTS_AID_TRACE_H
#define RK_TESTS_AID_TRACE_H

#include "trace/trace.h"

#define N_LAYER 30
#define N_KV 3
#define N_VOCAB 1000

extern char aid_dir[], aid_path[128];	/* the folder, and the file of the test that runs: aid_dir/t.jsonl, or what it sets */

/* For cmocka: of the group, of each test. */
int aid_make_dir(void **state);
int aid_remove_dir(void **state);
int aid_fresh(void **state);
int aid_clean(void **state);

uint32_t aid_below(uint32_t n);		/* a random number below n */
float aid_any_float(void);
bool aid_same_float(const void *a, const void *b);	/* the same bits, or two NaNs */
rk_trace_header aid_header(void);	/* two lanes: vanilla, refreshkv */
/* payload: room for 1 MB. */
void aid_random_event(rk_event *ev, char *payload, int type);
/* But for the sign and payload of NaNs, which nobody reads. */
void aid_assert_same_event(const rk_event *a, const void *pa, const rk_event *b, const void *pb);
void aid_write_file(const char *text, size_t n);	/* aid_path */

#endif
