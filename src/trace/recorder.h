/* recorder.h: writes a trace on a thread of its own, fed by whoever reads the event stream.
 *
 * The queue is an event ring: its reader is the recorder's thread, which hashes the model, turns events into lines and
 * writes them, at most 50 ms late.  With `wait` the feeder waits for a recorder that is behind (batch commands); without,
 * events are dropped and told by a gap.  A write error ends the recording, not the session: the file keeps its whole
 * lines.  Killed at any moment, it leaves a readable trace.
 */
#ifndef RK_TRACE_RECORDER_H
#define RK_TRACE_RECORDER_H

#include "trace/trace.h"

typedef struct rk_recorder rk_recorder;

/* path: compressed when it ends in .zst.  An existing file is an error (RK_EUSAGE) without `force`.  The header is copied;
 * where it has no digest of the model, model_path (NULL: none) is hashed for it on the recorder's thread; without `wait` closing breaks
 * that off, and the digest stays unknown. */
int rk_recorder_open(rk_recorder **r, const char *path, bool force, bool wait, const rk_trace_header *h, const char *model_path,
                     rk_err *e);
/* The model's digest, for the header of a next recording; "" while it is not known. */
const char *rk_recorder_model(const rk_recorder *r);
/* Hands a copy of the event over.  Fine with r = NULL, which records nothing.  -1, once, when recording has stopped because of a
 * write error: to be shown, not to be failed on; later calls do nothing. */
int rk_recorder_push(rk_recorder *r, const rk_event *ev, const void *payload, rk_err *e);
/* Writes what is queued, closes the file, frees.  -1 with a write error that was not told yet.  NULL is fine. */
int rk_recorder_close(rk_recorder *r, rk_err *e);

#endif
