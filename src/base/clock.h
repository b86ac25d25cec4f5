/* clock.h: the monotonic clock, which intervals and the times of events are taken from.  Any thread. */
#ifndef RK_BASE_CLOCK_H
#define RK_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some fixed moment. */
static inline int64_t rk_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#endif
