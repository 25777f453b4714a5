/* msgrate_latency.c - what `verbena latency` makes of its times: percentiles, a drawing */
#include "msgrate.h"

#include <stdlib.h>

static const struct {
	const char *name;
	double percent;
} points[N_PERCENTILES] = {{"min", 0}, {"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9},
	{"p99.99", 99.99}, {"p99.999", 99.999}, {"max", 100}};

/* There and back again; a read or an atomic is one operation that is answered. */
static bool is_half(const struct run *run)
{
	return op_is_received((enum msg_op)run->conf.op) || run->conf.op == OP_WRITE;
}

void times_sum(const struct run *run, struct histogram *sum)
{
	*sum = (struct histogram){0};
	for (int i = 0; i < run->n_sides; i++)
		if (run->sides[i].times)
			histogram_add(sum, run->sides[i].times);
}

void percentiles_take(const struct run *run, uint64_t percentiles[N_PERCENTILES])
{
	static struct histogram sum;
	uint64_t part = is_half(run) ? 2 : 1;

	if (run->other && !run->other->leads) {
		memcpy(percentiles, run->other->percentiles, sizeof(run->other->percentiles));
		return;
	}
	times_sum(run, &sum);
	for (size_t i = 0; i < N_PERCENTILES; i++)
		percentiles[i] = !sum.n ? 0
			: i == 0        ? sum.min / part
			: i == N_PERCENTILES - 1
			? sum.max / part
			: histogram_percentile(&sum, points[i].percent) / part;
}

/* ---- the drawing: a bar for each doubling, a quarter of one where all are near each other ---- */

#define BAR 50

struct drawing {
	const struct histogram *sum;
	uint64_t part; /* of a round trip */
	double step;   /* of one bar's times to the next one's */
};

static uint64_t count_between(const struct histogram *sum, double low, double high)
{
	uint64_t count = 0;

	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		double value = (double)histogram_value(i);

		if (value >= low && value < high)
			count += sum->buckets[i];
	}
	return count;
}

static void draw_bar(const struct drawing *drawing, double low, double high)
{
	static const char bar[BAR + 1] = "##################################################";
	uint64_t count = count_between(drawing->sum, low, high);
	double share = (double)count / (double)drawing->sum->n;
	int length = (int)(share * BAR + 0.5);

	printf("%9.2f us %7.3f %% %.*s%s\n", low / (double)drawing->part / 1e3, share * 100, length,
		bar, count && !length ? "." : "");
}

static void draw(const struct run *run)
{
	static struct histogram sum;
	struct drawing drawing = {&sum, is_half(run) ? 2 : 1, 2};
	double low, end;

	times_sum(run, &sum);
	if (!sum.n)
		return;
	if (histogram_percentile(&sum, 99.9) < 8 * sum.min)
		drawing.step = 1.19; /* 2^(1/4) */
	end = (double)sum.max;
	puts("\n     from    share");
	for (low = (double)histogram_value(histogram_bucket(sum.min)); low <= end;
		low *= drawing.step)
		draw_bar(&drawing, low, low * drawing.step);
}

void percentiles_print(const struct run *run, const uint64_t percentiles[N_PERCENTILES])
{
	printf("\nus, %s:", is_half(run) ? "half of a round trip" : "of an operation");
	for (size_t i = 0; i < N_PERCENTILES; i++)
		printf("  %s %.2f", points[i].name, (double)percentiles[i] / 1e3);
	putchar('\n');
	draw(run);
}

json_t *percentiles_json(const uint64_t percentiles[N_PERCENTILES])
{
	json_t *map = json_object();

	for (size_t i = 0; i < N_PERCENTILES; i++)
		json_object_set_new(map, points[i].name, json_integer((json_int_t)percentiles[i]));
	return map;
}
