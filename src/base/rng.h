/* rng.h: pseudo-random numbers that are the same on every machine: splitmix64 (Steele, Lea, Flood 2014).
 *
 * The state is one 64-bit number of the caller's; every value of it is a good seed.  Not for secrets.  Pure functions.
 */
#ifndef RK_BASE_RNG_H
#define RK_BASE_RNG_H

#include <stdint.h>

static inline uint64_t rk_rng_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* State of stream `index` of a seed: streams of near indices and near seeds have nothing in common. */
static inline uint64_t rk_rng_stream(uint64_t seed, uint64_t index)
{
	uint64_t a = seed, b = index ^ 0x5851f42d4c957f2du;

	return rk_rng_next(&a) ^ rk_rng_next(&b) * 0xd1342543de82ef95u;
}

/* Uniform in [0, 1). */
static inline double rk_rng_unit(uint64_t *state)
{
	return (double)(rk_rng_next(state) >> 11) * 0x1p-53;
}

/* Uniform in [0, n), n >= 1: the few values that would favour some results are drawn again. */
static inline uint32_t rk_rng_below(uint64_t *state, uint32_t n)
{
	uint32_t reject = -n % n;	/* 2^32 mod n */

	for (;;) {
		uint64_t m = (uint64_t)(uint32_t)(rk_rng_next(state) >> 32) * n;
		if ((uint32_t)m >= reject)
			return (uint32_t)(m >> 32);
	}
}

/* Brings n of the `of` numbers in v to its front, chosen and ordered at random; n <= of. */
static inline void rk_rng_deal(uint64_t *state, int *v, int n, int of)
{
	for (int i = 0; i < n; i++) {
		int j = i + (int)rk_rng_below(state, (uint32_t)(of - i)), t = v[i];
		v[i] = v[j];
		v[j] = t;
	}
}

#endif
