/* team.c: see team.h.
 *
 * One 64-bit word, `ticket`, holds the number of the running job (upper half) and its next unclaimed piece (lower half).  A
 * piece is claimed by a compare-and-swap of the whole word.  It succeeds only while that job has work left: before a job is
 * replaced its ticket is closed, and a worker that has seen the next job's n has seen the closing too.
 */
#include "cpu/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLOSED 0x7fffffffu	/* a next piece that no job has */
#define SPIN 4000	/* looks before a thread sleeps: some 50 us, the gaps between the operations of a step are shorter */

struct worker {
	rk_team *team;
	int index;
	pthread_t thread;
};

struct rk_team {
	int n_thread, n_started;
	struct worker *worker;			/* [n_thread]; 0 is the caller */
	_Alignas(64) _Atomic uint64_t ticket;
	_Atomic uint32_t job;			/* futex: changes with every job */
	_Atomic int sleepers;			/* workers that wait on `job` */
	_Atomic bool quit;
	_Atomic(rk_team_fn) fn;
	_Atomic(void *) ctx;
	_Atomic int n;
	_Alignas(64) _Atomic uint32_t done;	/* futex: pieces of the running job that are finished */
	_Atomic bool caller_sleeps;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Claims and does pieces of the running job until none is left. */
static void work(rk_team *t, int me)
{
	/* acquire: fn, ctx, n and the caller's data of the job whose ticket this is */
	uint64_t ticket = atomic_load_explicit(&t->ticket, memory_order_acquire);

	for (;;) {
		/* acquire: see the top of the file */
		int piece = (int)(uint32_t)ticket, n = atomic_load_explicit(&t->n, memory_order_acquire);
		rk_team_fn fn = atomic_load_explicit(&t->fn, memory_order_relaxed);
		void *ctx = atomic_load_explicit(&t->ctx, memory_order_relaxed);
		if (piece >= n)
			return;
		if (!atomic_compare_exchange_weak_explicit(&t->ticket, &ticket, ticket + 1, memory_order_acq_rel, memory_order_acquire))
			continue;
		fn(ctx, piece, me);
		ticket++;
		/* release: what the piece wrote, for the caller; seq_cst against its going to sleep */
		if (atomic_fetch_add(&t->done, 1) + 1 == (uint32_t)n && atomic_load(&t->caller_sleeps))
			futex_wake(&t->done);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	rk_team *t = w->team;
	uint32_t seen = 0;

	omp_set_num_threads(1);	/* oneDNN, called in a piece, must not start a team of its own */
	for (;;) {
		int spin = 0;
		while (atomic_load_explicit(&t->job, memory_order_acquire) == seen) {
			if (++spin < SPIN) {
				__builtin_ia32_pause();
				continue;
			}
			/* seq_cst, as the caller's change of job and look at sleepers: one of the two sees the other */
			atomic_fetch_add(&t->sleepers, 1);
			futex_wait(&t->job, seen);
			atomic_fetch_sub(&t->sleepers, 1);
			spin = 0;
		}
		seen = atomic_load(&t->job);
		if (atomic_load(&t->quit))
			return NULL;
		work(t, w->index);
	}
}

static void announce(rk_team *t)
{
	atomic_fetch_add(&t->job, 1);
	if (atomic_load(&t->sleepers))
		futex_wake(&t->job);
}

int rk_team_open(rk_team **out, int n_thread, rk_err *e)
{
	rk_team *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
	struct worker *w = calloc((size_t)n_thread, sizeof *w);

	if (!t || !w) {
		free(t);
		free(w);
		return rk_fail(e, RK_ENOMEM, "threads: out of memory for %d", n_thread);
	}
	*t = (rk_team){ .n_thread = n_thread, .n_started = 1, .worker = w };
	for (int i = 1; i < n_thread; i++) {
		w[i] = (struct worker){ .team = t, .index = i };
		if (pthread_create(&w[i].thread, NULL, worker_main, &w[i])) {
			rk_team_close(t);
			return rk_fail(e, RK_EFAIL, "threads: cannot start thread %d of %d; lower --threads", i + 1, n_thread);
		}
		t->n_started++;
	}
	*out = t;
	return 0;
}

void rk_team_close(rk_team *t)
{
	if (!t)
		return;
	atomic_store(&t->quit, true);
	announce(t);
	for (int i = 1; i < t->n_started; i++)
		pthread_join(t->worker[i].thread, NULL);
	free(t->worker);
	free(t);
}

void rk_team_run(rk_team *t, int n, rk_team_fn fn, void *ctx)
{
	if (n == 1 || t->n_thread == 1) {
		for (int i = 0; i < n; i++)
			fn(ctx, i, 0);
		return;
	}
	uint64_t number = (atomic_load_explicit(&t->ticket, memory_order_relaxed) >> 32) + 1;
	atomic_store_explicit(&t->ticket, number << 32 | CLOSED, memory_order_relaxed);
	atomic_store_explicit(&t->fn, fn, memory_order_relaxed);
	atomic_store_explicit(&t->ctx, ctx, memory_order_relaxed);
	atomic_store_explicit(&t->done, 0, memory_order_relaxed);
	/* release: who sees this n sees the closed ticket */
	atomic_store_explicit(&t->n, n, memory_order_release);
	/* release: all of the above, and what the caller wrote before */
	atomic_store_explicit(&t->ticket, number << 32, memory_order_release);
	announce(t);
	work(t, 0);
	for (int spin = 0;;) {
		/* acquire: what the other workers' pieces wrote */
		uint32_t done = atomic_load_explicit(&t->done, memory_order_acquire);
		if (done == (uint32_t)n)
			return;
		if (++spin < SPIN) {
			__builtin_ia32_pause();
			continue;
		}
		atomic_store(&t->caller_sleeps, true);
		done = atomic_load(&t->done);
		if (done != (uint32_t)n)
			futex_wait(&t->done, done);
		atomic_store(&t->caller_sleeps, false);
	}
}

void rk_team_wait(_Atomic int *n_done, int n)
{
	for (int spin = 1; atomic_load_explicit(n_done, memory_order_acquire) < n; spin++) {	/* acquire: what they wrote */
		__builtin_ia32_pause();
		if (spin % SPIN == 0)
			sched_yield();
	}
}
