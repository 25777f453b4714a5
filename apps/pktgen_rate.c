/* pktgen_rate.c - what a run's pace came to: from its first frame to its last, and against what was asked for */
#include "chart.h"
#include "pktgen.h"

#define MISSED 0.03 /* of a rate, and more, is told */

/* Of a frame at a pace. */
static uint64_t gap_ns(const struct generator *gen)
{
	double gap = gen->per_ns > 0 ? gen->each / gen->per_ns : 0;

	return gap < (double)SECOND ? (uint64_t)gap : (uint64_t)SECOND;
}

void pktgen_span(const struct packet_run *run, uint64_t *first, uint64_t *last)
{
	*first = *last = 0;
	for (int w = 0; w < run->n_workers; w++) {
		const struct pktgen_worker *own = run->workers[w].own;

		for (int i = 0; own && own->generators && i < run->workers[w].n_lanes; i++) {
			const struct generator *gen = &own->generators[i];
			uint64_t end = gen->last_ns + gap_ns(gen);

			if (!gen->first_ns)
				continue;
			*first = *first && *first < gen->first_ns ? *first : gen->first_ns;
			*last = *last > end ? *last : end;
		}
	}
}

/* A second, in frames, or in bits with what is around them on a wire. */
static double rate_of(const struct packet_run *run, bool bits)
{
	const double seconds = run_seconds(run);
	double sum = 0;

	for (int w = 0; w < run->n_workers; w++)
		for (int i = 0; i < run->workers[w].n_lanes; i++) {
			const struct vbn_queue_stats *stats = &run->workers[w].lanes[i].stats;

			sum += !bits ? (double)stats->tx_messages
				     : 8 *
					((double)stats->tx_bytes +
						ON_THE_WIRE * (double)stats->tx_messages);
		}
	return seconds > 0 ? sum / seconds : 0;
}

static bool is_missed(const struct rate *rate, double sent)
{
	return sent < (double)rate->n * (1 - MISSED);
}

json_t *rate_json(const struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;
	const struct rate *rate = &conf->rate;
	double sent = rate_of(run, rate->bits);

	if (!rate->n)
		return json_null();
	return json_pack("{s:I, s:o, s:s, s:b}", "wanted", (json_int_t)rate->n, "sent",
		json_number(sent), "unit", rate->bits ? "bits" : "frames", "missed",
		is_missed(rate, sent));
}

void rate_print(const struct packet_run *run)
{
	const struct pktgen_options *conf = run->own;
	const struct rate *rate = &conf->rate;
	const char *unit = rate->bits ? "bit/s" : "/s";
	double sent = rate_of(run, rate->bits);
	char is[32], wanted[32];

	if (!rate->n)
		return;
	printf("rate: %s%s of the %s%s that --rate asks for", human_number(sent, is), unit,
		human_number((double)rate->n, wanted), unit);
	if (!is_missed(rate, sent))
		puts("");
	else if (conf->window)
		puts(": missed, as --window lets no more go, or the device or this core is too slow");
	else
		puts(": missed, as the device or this core is too slow; give more --cores, or a lower rate");
}
