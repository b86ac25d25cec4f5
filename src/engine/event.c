/* event.c: the event ring.  See event.h.
 *
 * head and tail are free-running counters, compared only by their unsigned difference; each is written by one side and
 * lies on its own cache line.  Payloads are contiguous in the byte ring (the end is skipped when one does not fit there).
 */
#include "engine/event.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"

#define PAYLOAD_ALIGN 8	/* payloads are read in place, and some are arrays of structs */

struct rk_event_ring {
	/* Written by the producer. */
	_Alignas(64) _Atomic uint64_t head;	/* records published */
	uint64_t byte_head;			/* bytes used, private to the producer */
	int64_t unsaid;				/* losses not yet told by a GAP record */
	/* Written by the consumer. */
	_Alignas(64) _Atomic uint64_t tail;	/* records released */
	_Atomic uint64_t byte_tail;		/* bytes released */
	bool held;				/* the record at tail was handed out and is released by the next call */
	/* Both. */
	_Alignas(64) _Atomic int64_t lost;
	_Atomic bool asleep;			/* the consumer is about to poll() */
	_Atomic bool closed;
	bool wait;
	int fd;
	size_t n_event, n_byte;
	rk_event *ev;				/* [n_event] */
	char *bytes;				/* [n_byte] */
};

static size_t pow2_at_least(size_t n)
{
	size_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

int rk_event_ring_init(rk_event_ring **out, size_t n_event, size_t n_byte, bool wait, rk_err *e)
{
	rk_event_ring *r = aligned_alloc(64, (sizeof *r + 63) / 64 * 64);

	if (!r)
		return rk_fail(e, RK_ENOMEM, "event ring: out of memory");
	memset(r, 0, sizeof *r);
	r->wait = wait;
	r->n_event = pow2_at_least(n_event);
	r->n_byte = pow2_at_least(n_byte);
	r->ev = calloc(r->n_event, sizeof *r->ev);
	r->bytes = malloc(r->n_byte);
	r->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!r->ev || !r->bytes || r->fd < 0) {
		rk_event_ring_free(r);
		return rk_fail(e, RK_ENOMEM, "event ring: out of memory or descriptors");
	}
	*out = r;
	return 0;
}

void rk_event_ring_free(rk_event_ring *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		close(r->fd);
	free(r->ev);
	free(r->bytes);
	free(r);
}

void rk_event_ring_close(rk_event_ring *r)
{
	atomic_store(&r->closed, true);
}

/* Stores the record if there is room for it and its payload. */
static bool try_push(rk_event_ring *r, const rk_event *ev, const void *payload, size_t size)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	/* acquire: the consumer's reads of the slot happened before it released it */
	if (head - atomic_load_explicit(&r->tail, memory_order_acquire) == r->n_event)
		return false;
	uint64_t at = (r->byte_head + PAYLOAD_ALIGN - 1) & ~(uint64_t)(PAYLOAD_ALIGN - 1);
	size_t off = at & (r->n_byte - 1);
	if (size > r->n_byte - off)
		at += r->n_byte - off;	/* payloads do not wrap */
	if (at + size - atomic_load_explicit(&r->byte_tail, memory_order_acquire) > r->n_byte)
		return false;
	rk_event *slot = &r->ev[head & (r->n_event - 1)];
	*slot = *ev;
	slot->size = (uint32_t)size;
	slot->at = at;
	if (size)
		memcpy(r->bytes + (at & (r->n_byte - 1)), payload, size);
	r->byte_head = at + size;
	/* release: publishes the record and its payload */
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
	return true;
}

static void wake(rk_event_ring *r)
{
	/* seq_cst against the consumer's store of asleep and its second look at head: one of the two sees the other */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_exchange(&r->asleep, false)) {
		uint64_t one = 1;
		ssize_t n = write(r->fd, &one, sizeof one);
		(void)n;	/* a full counter is readable all the same */
	}
}

void rk_event_push(rk_event_ring *r, const rk_event *ev, const void *payload, size_t size)
{
	rk_event e = *ev;
	bool fits = size <= r->n_byte / 2;	/* a larger one may not fit even an empty ring, where its middle is the end */

	if (!e.t_ns)	/* an event that is handed on keeps its time */
		e.t_ns = rk_clock_ns();
	for (;;) {
		if (r->unsaid) {
			rk_event gap = { .type = RK_EV_GAP, .lane = -1, .t_ns = e.t_ns, .gap.lost = r->unsaid };
			if (try_push(r, &gap, NULL, 0))
				r->unsaid = 0;
		}
		if (!r->unsaid && fits && try_push(r, &e, payload, size))
			break;
		if (!fits || !r->wait || atomic_load(&r->closed)) {
			r->unsaid++;
			atomic_fetch_add(&r->lost, 1);
			break;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);	/* the reader is behind: rare, and it has work to do */
	}
	wake(r);
}

int rk_event_next(rk_event_ring *r, rk_event *ev, const void **payload, int timeout_ms)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	int64_t until = timeout_ms >= 0 ? rk_clock_ns() + timeout_ms * 1000000LL : 0;

	if (r->held) {
		const rk_event *old = &r->ev[tail & (r->n_event - 1)];
		/* release: our reads of record and payload come before the producer's reuse of them */
		atomic_store_explicit(&r->byte_tail, old->at + old->size, memory_order_release);
		atomic_store_explicit(&r->tail, ++tail, memory_order_release);
		r->held = false;
	}
	/* acquire: the record is whole once head has passed it */
	while (atomic_load_explicit(&r->head, memory_order_acquire) == tail) {
		uint64_t n;
		/* An old wake-up is taken back here, or an outer poll() would never sleep again.  Before asleep is set, not
		 * after: the wake-up of a record that was read long ago may come this late, and taken back together with the
		 * flag that it cleared it would leave nobody to wake us. */
		ssize_t drained = read(r->fd, &n, sizeof n);
		(void)drained;	/* fails when there was none */
		atomic_store(&r->asleep, true);
		if (atomic_load(&r->head) != tail)
			continue;
		int left = timeout_ms < 0 ? -1 : (int)((until - rk_clock_ns() + 999999) / 1000000);
		if (timeout_ms >= 0 && left <= 0)
			return 0;	/* asleep stays set, so that rk_event_fd wakes an outer poll() */
		struct pollfd p = { .fd = r->fd, .events = POLLIN };
		poll(&p, 1, left);
	}
	*ev = r->ev[tail & (r->n_event - 1)];
	*payload = r->bytes + (ev->at & (r->n_byte - 1));
	r->held = true;
	return 1;
}

int64_t rk_event_lost(const rk_event_ring *r)
{
	return atomic_load(&r->lost);
}

int rk_event_fd(const rk_event_ring *r)
{
	return r->fd;
}
