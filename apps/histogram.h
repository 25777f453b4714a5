/* histogram.h - times in buckets whose width grows with the time: 64 to each power of two, so that a
 * percentile is at most 1.6 % too high
 *
 * Of one thread while it records; added up and read when it is done.
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include "cmd.h"

enum {
	HISTOGRAM_SUB = 64,
	HISTOGRAM_LOG2_SUB = 6,
	HISTOGRAM_POWERS = 40, /* 2^45 ns is ten hours: what is longer is counted there */
	HISTOGRAM_BUCKETS = HISTOGRAM_SUB * HISTOGRAM_POWERS,
};

struct histogram {
	uint64_t n, min, max;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* Below 64 each value has a bucket; above, the highest bit says the power, the next six which. */
static force_inline size_t histogram_bucket(uint64_t value)
{
	unsigned int power;
	size_t bucket;

	if (value < HISTOGRAM_SUB)
		return value;
	power = 63 - (unsigned int)__builtin_clzll(value) - HISTOGRAM_LOG2_SUB;
	bucket = (size_t)power * HISTOGRAM_SUB + (value >> power);
	return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The lowest value of a bucket. */
static inline uint64_t histogram_value(size_t bucket)
{
	size_t power = bucket / HISTOGRAM_SUB;

	if (power < 2)
		return bucket;
	return (uint64_t)(bucket - (power - 1) * HISTOGRAM_SUB) << (power - 1);
}

static force_inline void histogram_record(struct histogram *histogram, uint64_t value)
{
	histogram->buckets[histogram_bucket(value)]++;
	if (!histogram->n++ || value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
}

static inline void histogram_add(struct histogram *sum, const struct histogram *more)
{
	if (!more->n)
		return;
	if (!sum->n || more->min < sum->min)
		sum->min = more->min;
	if (more->max > sum->max)
		sum->max = more->max;
	sum->n += more->n;
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum->buckets[i] += more->buckets[i];
}

/* The least value that so many per cent of all are not above, as its bucket's highest. */
static inline uint64_t histogram_percentile(const struct histogram *histogram, double percent)
{
	double wanted = (double)histogram->n * percent / 100;
	uint64_t sum = 0, value;

	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		sum += histogram->buckets[i];
		if (!sum || (double)sum < wanted)
			continue;
		value = histogram_value(i + 1) - 1;
		return value > histogram->max    ? histogram->max
			: value < histogram->min ? histogram->min
						 : value;
	}
	return histogram->max;
}

#endif
