/* test_sampler.c: which tokens the sampler can draw, against a brute-force filter, and how often it draws them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "aid_gguf.h"
#include "engine/sampler.h"

#define N 60

static int32_t argmax_of(const float *x, int n)
{
	int32_t best = 0;
	for (int i = 1; i < n; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

static void random_logits(float x[N], uint64_t seed)
{
	for (int i = 0; i < N; i++)
		x[i] = 3 * aid_gaussian(&seed);
}

static void check_greedy(void **state)
{
	(void)state;
	rk_sampler s;
	float x[N];
	assert_int_equal(rk_sampler_init(&s, &(rk_sampling){ .temp = 0, .top_k = 5, .top_p = 0.5f, .seed = 1 }, N, NULL), 0);
	assert_null(s.cand);
	for (uint64_t seed = 0; seed < 20; seed++) {
		random_logits(x, seed);
		assert_int_equal(rk_sample(&s, x, N, argmax_of(x, N)), argmax_of(x, N));
	}
	rk_sampler_free(&s);
	rk_sampler_free(&s);
}

/* Tokens that may be drawn, straight from the definition: top-k, then top-p, then min-p; ids break ties upwards. */
static void brute_force(const float x[N], const rk_sampling *c, bool keep[N])
{
	double p[N], sum = 0, left = 0;
	float top = x[argmax_of(x, N)];
	memset(keep, 0, N * sizeof *keep);
	for (int i = 0; i < N; i++)
		sum += p[i] = exp((double)(x[i] - top));
	for (int i = 0; i < N; i++) {
		int ahead = 0;
		for (int j = 0; j < N; j++)
			ahead += x[j] > x[i] || (x[j] == x[i] && j < i);
		keep[i] = !c->top_k || ahead < c->top_k;
		left += keep[i] ? p[i] : 0;
	}
	if (c->top_p < 1) {
		bool in[N];
		memcpy(in, keep, sizeof in);
		for (int i = 0; i < N; i++) {
			double before = 0;	/* probability of all that come before i in order */
			for (int j = 0; j < N; j++)
				before += in[j] && (x[j] > x[i] || (x[j] == x[i] && j < i)) ? p[j] / left : 0;
			keep[i] = in[i] && before < (double)c->top_p;
		}
	}
	for (int i = 0; c->min_p > 0 && i < N; i++)
		keep[i] = keep[i] && p[i] >= (double)c->min_p * (1 - 1e-6);
}

/* At a high temperature every token that passes is drawn sooner or later, and no other ever is. */
static void check_filters(void **state)
{
	(void)state;
	static const rk_sampling cfg[] = {
		{ .top_k = 1, .top_p = 1 }, { .top_k = 7, .top_p = 1 }, { .top_k = N + 5, .top_p = 0.3f }, { .top_p = 0.9f },
		    { .top_p = 0.01f },
		{ .top_p = 1, .min_p = 0.1f }, { .top_p = 1, .min_p = 1 }, { .top_k = 10, .top_p = 0.7f, .min_p = 0.2f },
		{ .top_p = 0.6f, .min_p = 0.5f }, { .top_k = 4, .top_p = 0.99f },
	};
	for (size_t c = 0; c < sizeof cfg / sizeof *cfg; c++)
		for (uint64_t seed = 1; seed <= 5; seed++) {
			rk_sampling one = cfg[c];
			rk_sampler s;
			float x[N];
			bool keep[N], drawn[N] = { false };
			random_logits(x, seed);
			if (seed == 5)	/* ties */
				for (int i = 0; i < N; i++)
					x[i] = roundf(x[i]);
			one.temp = 50;
			one.seed = seed;
			assert_int_equal(rk_sampler_init(&s, &one, N, NULL), 0);
			brute_force(x, &one, keep);
			for (int i = 0; i < 2500; i++)	/* misses one of 60 with a probability of 60 e^-41 */
				drawn[rk_sample(&s, x, N, argmax_of(x, N))] = true;
			for (int i = 0; i < N; i++)
				if (drawn[i] != keep[i])
					fail_msg("top_k %d top_p %g min_p %g seed %d: token %d drawn %d, allowed %d", one.top_k, (double)one.top_p,
					    (double)one.min_p,
					         (int)seed, i, drawn[i], keep[i]);
			rk_sampler_free(&s);
		}
}

/* One dominant token: whatever the filters, it stays. */
static void check_never_empty(void **state)
{
	(void)state;
	rk_sampler s;
	float x[4] = { -1000, 1000, -1000, -1000 };
	assert_int_equal(rk_sampler_init(&s, &(rk_sampling){ .temp = 1, .top_k = 1, .top_p = 0, .min_p = 1 }, 4, NULL), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(rk_sample(&s, x, 4, 1), 1);
	rk_sampler_free(&s);
}

/* A damaged model's logits may be anything: the result is still a token. */
static void check_logits_that_are_no_numbers(void **state)
{
	(void)state;
	rk_sampler s;
	float all_nan[3] = { NAN, NAN, NAN }, some[3] = { 1, NAN, 2 }, inf[3] = { 1, INFINITY, INFINITY },
	    none[3] = { -INFINITY, -INFINITY, -INFINITY };
	assert_int_equal(rk_sampler_init(&s, &(rk_sampling){ .temp = 1, .top_p = 0.9f, .min_p = 0.1f }, 3, NULL), 0);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(rk_sample(&s, all_nan, 3, 0), 0);
		assert_in_range(rk_sample(&s, some, 3, 2), 0, 2);
		assert_in_range(rk_sample(&s, inf, 3, 1), 1, 2);
		assert_in_range(rk_sample(&s, none, 3, 0), 0, 2);
	}
	rk_sampler_free(&s);
}

static void check_seeds(void **state)
{
	(void)state;
	rk_sampler a, b, c;
	float x[N];
	int same = 0;
	random_logits(x, 9);
	assert_int_equal(rk_sampler_init(&a, &(rk_sampling){ .temp = 2, .top_p = 1, .seed = 5 }, N, NULL), 0);
	assert_int_equal(rk_sampler_init(&b, &(rk_sampling){ .temp = 2, .top_p = 1, .seed = 5 }, N, NULL), 0);
	assert_int_equal(rk_sampler_init(&c, &(rk_sampling){ .temp = 2, .top_p = 1, .seed = 6 }, N, NULL), 0);
	for (int i = 0; i < 200; i++) {
		int32_t t = rk_sample(&a, x, N, argmax_of(x, N));
		assert_int_equal(rk_sample(&b, x, N, argmax_of(x, N)), t);
		same += rk_sample(&c, x, N, argmax_of(x, N)) == t;
	}
	assert_true(same < 100);	/* chance gives about 20 */
	rk_sampler_free(&a);
	rk_sampler_free(&b);
	rk_sampler_free(&c);
}

/* Chi-square against softmax(logits / temp) over the tokens that pass.  The seed is fixed, so that the outcome is:
 * 99.9 % of random seeds would pass. */
static void check_frequencies(void **state)
{
	(void)state;
	static const rk_sampling cfg[] = {
		{ .temp = 1, .top_p = 1, .top_k = 20 }, { .temp = 0.6f, .top_p = 1, .min_p = 0.02f }, { .temp = 2, .top_p = 0.9f },
	};
	static const int draws = 50000;
	for (size_t c = 0; c < sizeof cfg / sizeof *cfg; c++) {
		rk_sampling one = cfg[c];
		rk_sampler s;
		float x[N];
		bool keep[N];
		int count[N] = { 0 }, cells = 0;
		double sum = 0, chi = 0;
		random_logits(x, 77 + c);
		for (int i = 0; i < N; i++)
			x[i] /= 3;	/* many tokens that are drawn often */
		one.seed = 1234 + c;
		assert_int_equal(rk_sampler_init(&s, &one, N, NULL), 0);
		brute_force(x, &one, keep);
		for (int i = 0; i < draws; i++)
			count[rk_sample(&s, x, N, argmax_of(x, N))]++;
		for (int i = 0; i < N; i++)
			sum += keep[i] ? exp((double)x[i] / (double)one.temp) : 0;
		double rest = 0;
		int rest_count = 0;
		for (int i = 0; i < N; i++) {
			double want = keep[i] ? draws * exp((double)x[i] / (double)one.temp) / sum : 0;
			if (want < 5) {	/* too few for the statistic: one cell for all of them */
				rest += want;
				rest_count += count[i];
				continue;
			}
			chi += (count[i] - want) * (count[i] - want) / want;
			cells++;
		}
		if (rest >= 5) {
			chi += (rest_count - rest) * (rest_count - rest) / rest;
			cells++;
		}
		/* upper 0.1 % point, Wilson-Hilferty */
		double df = cells - 1, limit = df * pow(1 - 2 / (9 * df) + 3.0902 * sqrt(2 / (9 * df)), 3);
		print_message("chi-square %.1f over %d cells, limit %.1f\n", chi, cells, limit);
		assert_true(cells >= 15);
		assert_true(chi < limit);
		rk_sampler_free(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_greedy),
		cmocka_unit_test(check_filters),
		cmocka_unit_test(check_never_empty),
		cmocka_unit_test(check_logits_that_are_no_numbers),
		cmocka_unit_test(check_seeds),
		cmocka_unit_test(check_frequencies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
