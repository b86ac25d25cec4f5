/* test_event.c: the event ring: order and content of records, what happens when it is full, and waking the reader.
 *
 * Payloads are derived from the record's number, so that a reader can check each without knowing what came before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/event.h"

#define MAX_PAYLOAD 400

static rk_event_ring *ring_of(size_t n_event, size_t n_byte, bool wait)
{
	rk_event_ring *r;
	assert_int_equal(rk_event_ring_init(&r, n_event, n_byte, wait, NULL), 0);
	return r;
}

/* Sizes from 0 to max, all residues of the ring's size in turn. */
static size_t size_of(int i, size_t max)
{
	return (size_t)((unsigned)i * 2654435761u >> 7) % (max + 1);
}

static void push_number(rk_event_ring *r, int i, size_t max)
{
	rk_event ev = { .type = RK_EV_PREFILL, .lane = (int8_t)(i % 8), .index = i };
	char payload[MAX_PAYLOAD];
	size_t n = size_of(i, max);
	ev.prefill.done = ~i;
	for (size_t k = 0; k < n; k++)
		payload[k] = (char)(i + 7 * (int)k);
	rk_event_push(r, &ev, payload, n);
}

static int check_number(const rk_event *ev, const void *payload, size_t max)
{
	int i = ev->index;
	const char *p = payload;
	assert_int_equal(ev->type, RK_EV_PREFILL);
	assert_int_equal(ev->lane, i % 8);
	assert_int_equal(ev->prefill.done, ~i);
	assert_int_equal(ev->size, size_of(i, max));
	assert_int_equal((uintptr_t)payload % 8, 0);
	assert_true(ev->t_ns > 0);
	for (size_t k = 0; k < ev->size; k++)
		if (p[k] != (char)(i + 7 * (int)k))
			fail_msg("event %d: byte %zu of %u is wrong", i, k, ev->size);
	return i;
}

static bool readable(const rk_event_ring *r)
{
	struct pollfd p = { .fd = rk_event_fd(r), .events = POLLIN };
	return poll(&p, 1, 0) == 1;
}

static void check_order_and_payload(void **state)
{
	(void)state;
	rk_event_ring *r = ring_of(16, 1000, true);	/* 1024 bytes */
	rk_event ev;
	const void *payload;
	int pushed = 0, taken = 0;
	for (int round = 0; round < 20000; round++) {
		int n = 1 + (round % 3 ? round % 2 : 0);
		for (int k = 0; k < n; k++)
			push_number(r, pushed++, 100);
		for (; taken < pushed; taken++) {
			assert_int_equal(rk_event_next(r, &ev, &payload, 0), 1);
			assert_int_equal(check_number(&ev, payload, 100), taken);
		}
		assert_int_equal(rk_event_next(r, &ev, &payload, 0), 0);
	}
	assert_int_equal(rk_event_lost(r), 0);
	rk_event_ring_free(r);
}

/* A payload that was handed out is not overwritten before the next call, however much is pushed. */
static void check_payload_stays(void **state)
{
	(void)state;
	rk_event_ring *r = ring_of(4, 256, false);
	rk_event ev, old;
	const void *payload, *held;
	push_number(r, 1, 100);
	assert_int_equal(rk_event_next(r, &old, &held, 0), 1);
	for (int i = 2; i < 50; i++)
		push_number(r, i, 100);
	check_number(&old, held, 100);
	assert_int_equal(rk_event_next(r, &ev, &payload, 0), 1);
	assert_int_equal(check_number(&ev, payload, 100), 2);
	rk_event_ring_free(r);
}

/* Pushed = received + told as lost + lost since the last record that got through. */
static void check_gaps(void **state)
{
	(void)state;
	static const struct { size_t n_event, n_byte, max; } ring[] = { { 8, 1 << 16, 100 }, { 1024, 512, 200 }, { 2, 64,
	    8 }, { 2, 1024, 0 } };
	for (size_t c = 0; c < sizeof ring / sizeof *ring; c++) {
		rk_event_ring *r = ring_of(ring[c].n_event, ring[c].n_byte, false);
		rk_event ev;
		const void *payload;
		int64_t received = 0, told = 0, since = 0;
		int next = 0, pushed = 0;
		for (int round = 0; round < 300; round++) {
			for (int k = 0; k < 1 + round % 37; k++)
				push_number(r, pushed++, ring[c].max);
			for (int k = 0; k < 1 + round % 11 && rk_event_next(r, &ev, &payload, 0); k++) {
				if (ev.type == RK_EV_GAP) {
					assert_true(ev.gap.lost > 0);
					told += ev.gap.lost;
					since += ev.gap.lost;
					continue;
				}
				/* exactly the records that a gap tells of are missing before the next one */
				assert_int_equal(check_number(&ev, payload, ring[c].max), next + since);
				next = ev.index + 1;
				since = 0;
				received++;
			}
		}
		while (rk_event_next(r, &ev, &payload, 0)) {
			told += ev.type == RK_EV_GAP ? ev.gap.lost : 0;
			received += ev.type != RK_EV_GAP;
		}
		assert_true(told > 0);
		assert_int_equal(received + rk_event_lost(r), pushed);
		/* what is not told yet comes before the next record */
		int64_t untold = rk_event_lost(r) - told;
		push_number(r, pushed++, 0);
		if (untold) {
			assert_int_equal(rk_event_next(r, &ev, &payload, 0), 1);
			assert_int_equal(ev.type, RK_EV_GAP);
			assert_int_equal(ev.gap.lost, untold);
		}
		assert_int_equal(rk_event_next(r, &ev, &payload, 0), 1);
		rk_event_ring_free(r);
	}
}

static void check_large_payloads(void **state)
{
	(void)state;
	rk_event_ring *r = ring_of(8, 1024, true);
	rk_event ev = { .type = RK_EV_TOKEN }, got;
	const void *payload;
	static char big[1025];
	memset(big, 'x', sizeof big);
	/* half of the ring always fits, wherever its end is, without a reader at work */
	for (int i = 0; i < 100; i++) {
		rk_event_push(r, &ev, big, i % 2 ? 512 : (size_t)i);
		assert_int_equal(rk_event_next(r, &got, &payload, 0), 1);
		assert_int_equal(got.size, i % 2 ? 512 : i);
		assert_int_equal(rk_event_next(r, &got, &payload, 0), 0);
	}
	/* more than that is lost at once, also where the ring waits */
	rk_event_push(r, &ev, big, 513);
	rk_event_push(r, &ev, big, 1025);
	rk_event_push(r, &ev, NULL, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rk_event_next(r, &got, &payload, 0), 1);
		assert_int_equal(got.type, RK_EV_GAP);
		assert_int_equal(got.gap.lost, 1);
	}
	assert_int_equal(rk_event_next(r, &got, &payload, 0), 1);
	assert_int_equal(got.type, RK_EV_TOKEN);
	rk_event_ring_free(r);
}

/* A reader with its own poll() loop sleeps when nothing came, and is woken when something did. */
static void check_descriptor(void **state)
{
	(void)state;
	rk_event_ring *r = ring_of(8, 1024, false);
	rk_event ev;
	const void *payload;
	for (int round = 0; round < 50; round++) {
		assert_int_equal(rk_event_next(r, &ev, &payload, 0), 0);
		assert_false(readable(r));
		push_number(r, 2 * round, 10);
		assert_true(readable(r));
		push_number(r, 2 * round + 1, 10);
		assert_int_equal(rk_event_next(r, &ev, &payload, 0), 1);
		assert_int_equal(rk_event_next(r, &ev, &payload, 0), 1);
		assert_int_equal(check_number(&ev, payload, 10), 2 * round + 1);
	}
	rk_event_ring_free(r);
}

static void check_timeout(void **state)
{
	(void)state;
	rk_event_ring *r = ring_of(8, 1024, false);
	rk_event ev;
	const void *payload;
	assert_int_equal(rk_event_next(r, &ev, &payload, 0), 0);
	assert_int_equal(rk_event_next(r, &ev, &payload, 5), 0);
	push_number(r, 1, 10);
	assert_int_equal(rk_event_next(r, &ev, &payload, 5), 1);
	assert_int_equal(rk_event_next(r, &ev, &payload, 5), 0);
	rk_event_ring_free(r);
}

/* ---- two threads ---- */

typedef struct producer { rk_event_ring *r; int n; size_t max; int pause_every; } producer;

static void *produce(void *arg)
{
	const producer *p = arg;
	for (int i = 0; i < p->n; i++) {
		push_number(p->r, i, p->max);
		if (p->pause_every && i % p->pause_every == 0)
			usleep(300);	/* long enough for the reader to fall asleep */
	}
	return NULL;
}

/* Reads until the record `last` came; returns the records received, *told counts those of gaps. */
static int consume(rk_event_ring *r, int last, size_t max, int pause_every, int64_t *told)
{
	rk_event ev;
	const void *payload;
	int next = 0, received = 0;
	int64_t since = 0;
	*told = 0;
	while (next <= last) {
		assert_int_equal(rk_event_next(r, &ev, &payload, -1), 1);
		if (ev.type == RK_EV_GAP) {
			*told += ev.gap.lost;
			since += ev.gap.lost;
			continue;
		}
		assert_int_equal(check_number(&ev, payload, max), next + since);
		next = ev.index + 1;
		since = 0;
		received++;
		if (pause_every && received % pause_every == 0)
			usleep(200);
	}
	return received;
}

static void check_slow_reader_loses_nothing(void **state)
{
	(void)state;
	producer p = { .r = ring_of(8, 2048, true), .n = 5000, .max = 300 };
	pthread_t t;
	int64_t told;
	assert_int_equal(pthread_create(&t, NULL, produce, &p), 0);
	assert_int_equal(consume(p.r, p.n - 1, p.max, 100, &told), p.n);
	pthread_join(t, NULL);
	assert_int_equal(told, 0);
	assert_int_equal(rk_event_lost(p.r), 0);
	rk_event_ring_free(p.r);
}

/* The reader sleeps in rk_event_next and is woken for every few records. */
static void check_wakes_sleeper(void **state)
{
	(void)state;
	producer p = { .r = ring_of(1024, 1 << 16, true), .n = 300, .max = 20, .pause_every = 3 };
	pthread_t t;
	int64_t told;
	assert_int_equal(pthread_create(&t, NULL, produce, &p), 0);
	assert_int_equal(consume(p.r, p.n - 1, p.max, 0, &told), p.n);
	pthread_join(t, NULL);
	rk_event_ring_free(p.r);
}

static void check_stress(void **state)
{
	(void)state;
	producer p = { .r = ring_of(256, 1 << 13, true), .n = 1000000, .max = 40 };
	pthread_t t;
	int64_t told;
	assert_int_equal(pthread_create(&t, NULL, produce, &p), 0);
	assert_int_equal(consume(p.r, p.n - 1, p.max, 0, &told), p.n);
	pthread_join(t, NULL);
	assert_int_equal(rk_event_lost(p.r), 0);
	rk_event_ring_free(p.r);
}

static void *produce_then_close(void *arg)
{
	const producer *p = arg;
	produce(arg);
	/* the losses of the end are told with the last record, for which there is room by and by */
	rk_event last = { .type = RK_EV_IDLE };
	for (int64_t lost = -1; lost != rk_event_lost(p->r); usleep(1000)) {
		lost = rk_event_lost(p->r);
		rk_event_push(p->r, &last, NULL, 0);
	}
	return NULL;
}

static void check_lossy_stress(void **state)
{
	(void)state;
	producer p = { .r = ring_of(64, 1 << 12, false), .n = 200000, .max = 60 };
	rk_event ev;
	const void *payload;
	pthread_t t;
	int next = 0;
	int64_t received = 0, told = 0, since = 0, idle = 0;
	assert_int_equal(pthread_create(&t, NULL, produce_then_close, &p), 0);
	while (!idle) {
		assert_int_equal(rk_event_next(p.r, &ev, &payload, -1), 1);
		if (ev.type == RK_EV_GAP) {
			told += ev.gap.lost;
			since += ev.gap.lost;
		} else if (ev.type == RK_EV_IDLE) {
			idle++;
		} else {
			assert_int_equal(check_number(&ev, payload, p.max), next + since);
			next = ev.index + 1;
			since = 0;
			received++;
			if (received % 500 == 0)
				usleep(100);
		}
	}
	while (rk_event_next(p.r, &ev, &payload, 50))
		told += ev.type == RK_EV_GAP ? ev.gap.lost : 0;
	pthread_join(t, NULL);
	while (rk_event_next(p.r, &ev, &payload, 0))
		told += ev.type == RK_EV_GAP ? ev.gap.lost : 0;
	assert_true(received > 0);
	assert_int_equal(told, rk_event_lost(p.r));
	rk_event_ring_free(p.r);
}

/* A producer that waits for room gives up when the reader goes away. */
static void check_close_releases_producer(void **state)
{
	(void)state;
	producer p = { .r = ring_of(4, 1024, true), .n = 100, .max = 10 };
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, produce, &p), 0);
	usleep(1000);
	rk_event_ring_close(p.r);
	pthread_join(t, NULL);
	assert_int_equal(rk_event_lost(p.r), p.n - 4);
	rk_event_ring_free(p.r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_order_and_payload),
		cmocka_unit_test(check_payload_stays),
		cmocka_unit_test(check_gaps),
		cmocka_unit_test(check_large_payloads),
		cmocka_unit_test(check_descriptor),
		cmocka_unit_test(check_timeout),
		cmocka_unit_test(check_slow_reader_loses_nothing),
		cmocka_unit_test(check_wakes_sleeper),
		cmocka_unit_test(check_stress),
		cmocka_unit_test(check_lossy_stress),
		cmocka_unit_test(check_close_releases_producer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
