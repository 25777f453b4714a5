/* bench.c - timing acts, waiting with an end to it, leaving with a sentence */
#include "bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void rest_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

struct patience patience_start(void)
{
	return (struct patience){now_ns() + 10000000000};
}

void patience_wait(const struct patience *patience, const char *what)
{
	if (now_ns() > patience->deadline_ns)
		die("waited 10 s for %s, and it did not come", what);
	rest_us(20);
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct spread spread_of(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), compare_doubles);
	return (struct spread){values[n / 2], values[n / 10], values[n - 1 - n / 10]};
}

double time_round(const struct act *act)
{
	struct patience patience = patience_start();

	for (;;) {
		uint64_t start, end;

		act->prepare();
		start = now_ns();
		act->call();
		end = now_ns();
		if (act->settle())
			return (double)(end - start) / BURST;
		patience_wait(&patience, "a whole burst to have landed");
	}
}

static double *rounds_of(int rounds)
{
	double *values = calloc((size_t)rounds, sizeof(*values));

	if (!values)
		die("no memory for %d rounds", rounds);
	return values;
}

struct spread time_rounds(const struct act *act, int rounds)
{
	double *values = rounds_of(rounds);
	struct spread spread;

	for (int i = 0; i < rounds; i++)
		values[i] = time_round(act);
	spread = spread_of(values, rounds);
	free(values);
	return spread;
}

void time_pair(const struct act *const pair[2], int rounds, double ns[2])
{
	double *values[2] = {rounds_of(rounds), rounds_of(rounds)};

	for (int round = 0; round < rounds; round++)
		for (int k = 0; k < 2; k++)
			values[k][round] = time_round(pair[k]);
	for (int k = 0; k < 2; k++) {
		ns[k] = spread_of(values[k], rounds).median;
		free(values[k]);
	}
}
