/* pktgen_loop.c - the loops of pktgen: frames made and sent at their rate, a file replayed in its time, and
 * the stamps of what comes back */
#include "pktgen.h"

#define WINDOW_PATIENCE (SECOND / 10)
#define LATE            0.01 /* seconds; more is not made up for */

/* ---- what comes back ---- */

static force_inline bool is_ours(
	const struct pktgen_worker *own, struct vbn_buf *buf, struct stamp *stamp)
{
	if (buf->len < own->pattern->least)
		return false;
	memcpy(stamp, buf->data + own->pattern->header_len, sizeof(*stamp));
	return stamp->run == own->pattern->run;
}

static void look_at(struct packet_worker *worker, struct lane *lane, struct vbn_buf **bufs, int n)
{
	struct pktgen_worker *own = worker->own;
	const uint64_t now = now_ns();
	uint64_t returned = 0, strangers = 0;
	struct stamp stamp;

	for (int i = 0; i < n; i++) {
		if (!is_ours(own, bufs[i], &stamp)) {
			strangers += !neighbour_take(worker, lane, bufs[i]);
			continue;
		}
		returned++;
		histogram_record(&own->times, now > stamp.ns ? now - stamp.ns : 0);
	}
	vbn_count(&own->returned, returned);
	own->came_ns = returned ? now : own->came_ns;
	vbn_count(&lane->drops[DROP_STRANGER], strangers);
}

/* A replay's frames have no stamps. */
static void look_for_known(
	struct packet_worker *worker, struct lane *lane, struct vbn_buf **bufs, int n)
{
	struct pktgen_worker *own = worker->own;
	uint64_t returned = 0;

	for (int i = 0; i < n; i++)
		returned += known_take(own->pattern->known, bufs[i]);
	vbn_count(&own->returned, returned);
	own->came_ns = returned ? now_ns() : own->came_ns;
	vbn_count(&lane->drops[DROP_STRANGER], (uint64_t)n - returned);
}

/* Completions of what was sent are taken in, too. */
static int receive(struct packet_worker *worker, struct lane *lane)
{
	struct pktgen_worker *own = worker->own;
	struct vbn_buf *bufs[MAX_BURST];
	int n = vbn_recv(lane->queue, bufs, worker->burst);

	if (n <= 0) {
		if (unlikely(n < 0) && lane->receives)
			lane_failed(lane);
		return 0;
	}
	if (lane->tap)
		capture_burst(lane->tap, lane->device, CAPTURE_RECEIVED, bufs, n);
	if (own->conf->replay)
		look_for_known(worker, lane, bufs, n);
	else
		look_at(worker, lane, bufs, n);
	vbn_buf_free(bufs, n);
	return n;
}

/* ---- how many ---- */

/* What is due by the rate, in frames; what is later than two bursts, and than some time, is not made up for. */
static int due(struct generator *gen, int burst, uint64_t now)
{
	double due, frames;

	if (!gen->pace_from_ns) /* the first one is due at once */
		gen->pace_from_ns = now - (uint64_t)(gen->each / gen->per_ns);
	due = (double)(now - gen->pace_from_ns) * gen->per_ns - (double)gen->paced;
	frames = due / gen->each;
	if (frames > 2 * burst && due > LATE * (double)SECOND * gen->per_ns) {
		gen->pace_from_ns = now;
		gen->paced = 0;
		frames = burst;
	}
	if (frames < 1)
		return 0; /* also where it is ahead, by what went at once */
	return frames < burst ? (int)frames : burst;
}

/* Frames that may be on their way beside those that are; what has not come back for so long does not count. */
static int64_t window_room(struct pktgen_worker *own, uint64_t now)
{
	const uint64_t gone = own->returned + own->given_up;
	const uint64_t out = own->sent > gone ? own->sent - gone : 0;

	if (out && now - own->came_ns > WINDOW_PATIENCE)
		own->given_up += out;
	else
		return own->conf->window - (int64_t)out;
	own->came_ns = now;
	return own->conf->window;
}

static int how_many(struct packet_worker *worker, struct generator *gen, uint64_t now)
{
	struct pktgen_worker *own = worker->own;
	const uint64_t left = gen->limit - gen->sent;
	int64_t room = lane_room(gen->lane);
	int n = gen->per_ns > 0 ? due(gen, worker->burst, now) : worker->burst;

	n = (uint64_t)n < left ? n : (int)left;
	if (own->conf->window) {
		int64_t window = window_room(own, now);

		room = window < room ? window : room;
	}
	return n < room ? n : (int)room;
}

/* ---- frames ---- */

/* Below n, by chance. */
static force_inline uint32_t draw(struct generator *gen, uint32_t n)
{
	gen->random = gen->random * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)gen->random * n >> 32);
}

static uint32_t draw_size(const struct size_mix *mix, struct generator *gen)
{
	const struct size_part *part = mix->parts;
	uint32_t at = mix->n > 1 ? draw(gen, mix->shares) : 0;

	for (; at >= part->share; part++)
		at -= part->share;
	return part->first +
		(part->last > part->first ? draw(gen, part->last - part->first + 1) : 0);
}

static force_inline uint16_t be16(uint32_t value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap16((uint16_t)value)
							 : (uint16_t)value;
}

/* As a checksum's field has it. */
static force_inline uint16_t checksum(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

static force_inline void store16(uint8_t *to, uint16_t value)
{
	memcpy(to, &value, sizeof(value));
}

static force_inline void finish_ip(
	const struct pattern *pattern, const struct flow *flow, uint8_t *frame, uint32_t size)
{
	uint8_t *ip = frame + pattern->ip_at;
	const uint16_t len = be16(size - pattern->ip_at);

	if (pattern->length_at)
		store16(frame + pattern->length_at, be16(size - pattern->l4_at));
	if (pattern->v6) {
		store16(ip + 4, be16(size - pattern->l4_at));
		return;
	}
	store16(ip + 2, len);
	store16(ip + 10, checksum(flow->ip_sum + len));
}

static force_inline uint64_t stamp_sum(const struct stamp *stamp)
{
	uint64_t halves[2];
	uint16_t rest;

	memcpy(halves, stamp, sizeof(halves));
	memcpy(&rest, (const uint8_t *)stamp + sizeof(halves), sizeof(rest));
	return (uint32_t)halves[0] + (halves[0] >> 32) + (uint32_t)halves[1] + (halves[1] >> 32) +
		rest;
}

/* What is behind the stamp is 0, and adds nothing. */
static force_inline void finish_layer4(const struct pattern *pattern, const struct flow *flow,
	uint8_t *frame, uint32_t size, const struct stamp *stamp)
{
	uint64_t sum = flow->l4_sum + stamp_sum(stamp) +
		(uint64_t)pattern->csum_lengths * be16(size - pattern->l4_at);
	uint16_t field;

	if (pattern->seq_bytes) {
		const uint16_t high = be16(stamp->seq >> 16), low = be16(stamp->seq);

		if (pattern->seq_bytes == 4) {
			store16(frame + pattern->seq_at, high);
			sum += high;
		}
		store16(frame + pattern->seq_at + pattern->seq_bytes - 2, low);
		sum += low;
	}
	field = checksum(sum);
	/* UDP's 0 would say that there is none; for the others it is the same. */
	store16(frame + pattern->csum_at, field ? field : 0xffff);
}

static force_inline void make_frame(
	struct packet_worker *worker, struct generator *gen, struct vbn_buf *buf, uint64_t now)
{
	struct pktgen_worker *own = worker->own;
	const struct pattern *pattern = own->pattern;
	const struct flow *flow = &pattern->flows[gen->flow];
	const struct stamp stamp = {pattern->run, (uint16_t)worker->index, own->seq++, now};
	const uint32_t size = own->fixed_size ? own->fixed_size : draw_size(&own->conf->sizes, gen);

	if (++gen->flow == pattern->n_flows)
		gen->flow = 0;
	memcpy(buf->data, flow->bytes, MOST_HEADERS);
	memcpy(buf->data, gen->lane->peer, 6);
	memcpy(buf->data + 6, gen->lane->mac, 6);
	memcpy(buf->data + pattern->header_len, &stamp, sizeof(stamp));
	if (size > pattern->header_len + sizeof(stamp))
		memset(buf->data + pattern->header_len + sizeof(stamp), 0,
			size - pattern->header_len - sizeof(stamp));
	if (pattern->ip)
		finish_ip(pattern, flow, buf->data, size);
	else if (pattern->arp)
		memcpy(buf->data + pattern->ip_at + 8, gen->lane->mac, 6);
	if (pattern->csum_at)
		finish_layer4(pattern, flow, buf->data, size, &stamp);
	buf->len = size;
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = 0};
}

/* Of the pace. */
static uint64_t cost(const struct generator *gen, struct vbn_buf *const *bufs, int n)
{
	uint64_t bytes = 0;

	if (!gen->bits)
		return (uint64_t)n;
	for (int i = 0; i < n; i++)
		bytes += vbn_buf_total(bufs[i]) + ON_THE_WIRE;
	return 8 * bytes;
}

/* Not of the file's frames that the device cannot send. */
static bool is_fatal(const struct pktgen_worker *own, int err)
{
	return !own->conf->replay || (err != -EMSGSIZE && err != -EINVAL);
}

/* Those that the queue has taken, or its answer to the first. What it has not is made anew. */
static int send(struct packet_worker *worker, struct generator *gen, struct vbn_buf **bufs, int n,
	uint64_t now)
{
	struct lane *lane = gen->lane;
	uint64_t paced = gen->per_ns > 0 ? cost(gen, bufs, n) : 0;
	int sent;

	if (lane->tap)
		capture_burst(lane->tap, lane->device, CAPTURE_SENT, bufs, n);
	sent = vbn_send(lane->queue, bufs, n);
	if (unlikely(sent < 0)) {
		if (!is_fatal(worker->own, sent))
			return sent;
		lane_failed(lane);
		sent = 0;
	}
	gen->first_ns = gen->first_ns || !sent ? gen->first_ns : now;
	gen->last_ns = sent ? now : gen->last_ns;
	vbn_count(&gen->sent, (uint64_t)sent);
	vbn_count(&((struct pktgen_worker *)worker->own)->sent, (uint64_t)sent);
	gen->paced += sent == n ? paced : paced * (uint64_t)sent / (uint64_t)n;
	return sent;
}

static int generate(struct packet_worker *worker, struct generator *gen)
{
	struct vbn_buf *bufs[MAX_BURST];
	const uint64_t now = now_ns();
	int n = how_many(worker, gen, now), sent;

	if (n <= 0 || vbn_buf_alloc(worker->pool, bufs, n) < 0)
		return 0;
	for (int i = 0; i < n; i++)
		make_frame(worker, gen, bufs[i], now);
	sent = send(worker, gen, bufs, n, now);
	if (unlikely(gen->sent == gen->limit))
		gen->last_ns = now_ns(); /* a burst may be all there is */
	vbn_buf_free(bufs + sent, n - sent);
	return sent;
}

/* ---- the loops ---- */

/* Not before all workers are there, nor once the time is over. */
static bool may_send(const struct packet_worker *worker)
{
	return load_once(&worker->run->start_ns) && !load_once(&worker->run->winding_down) &&
		!vbn_worker_stopping(worker->worker);
}

int pktgen_loop(struct vbn_worker *vbn_worker, void *arg)
{
	struct packet_worker *worker = arg;
	struct pktgen_worker *own = worker->own;
	bool sends = may_send(worker);
	int did = 0;

	(void)vbn_worker;
	if (unlikely(own->waits) && sends)
		sends = neighbours_found(worker);
	for (int i = 0; i < worker->n_lanes; i++) {
		did += receive(worker, &worker->lanes[i]);
		if (sends && own->generators[i].sends)
			did += generate(worker, &own->generators[i]);
	}
	return did;
}

/* Frames of the file whose time has come, or that the rate lets go. */
static int replay_due(struct packet_worker *worker, struct generator *gen, uint64_t now)
{
	struct pktgen_worker *own = worker->own;
	int most, n = 0;

	if (gen->bits && own->n_held)
		gen->each = (double)cost(gen, own->held + own->first_held, 1);
	most = how_many(worker, gen, now);
	if (gen->per_ns > 0)
		return most < own->n_held ? most : own->n_held;
	while (n < own->n_held && n < most &&
		vbn_buf_packet(own->held[own->first_held + n])->time - own->first_time <=
			now - own->first_ns)
		n++;
	return n;
}

/* Whatever of the file is still to come does not. */
static void replay_stop(struct pktgen_worker *own, const char *why)
{
	snprintf(own->trouble, sizeof(own->trouble), "%s", why);
	store_once(&own->ended, true);
}

static void note_read(struct pktgen_worker *own)
{
	own->n_read += (uint64_t)own->n_held;
	for (int i = 0; i < own->n_held; i++)
		if (known_add(own->pattern->known, own->held[i]))
			replay_stop(own,
				"there is no memory for knowing the frames again when they come back: free some, or replay a shorter file");
}

static void replay_read(struct packet_worker *worker, uint64_t now)
{
	struct pktgen_worker *own = worker->own;
	int n = vbn_recv(own->source, own->held, worker->burst);
	struct vbn_port_info info;

	own->first_held = 0;
	own->n_held = n > 0 ? n : 0;
	if (own->n_held && !own->first_ns) {
		own->first_ns = now;
		own->first_time = vbn_buf_packet(own->held[0])->time;
	}
	if (n > 0) {
		note_read(own);
		return;
	}
	vbn_port_info(own->pattern->source, &info);
	if (n < 0)
		replay_stop(own, vbn_queue_error(own->source));
	else if (!info.up)
		store_once(&own->ended, true);
}

static int replay(struct packet_worker *worker, struct generator *gen)
{
	struct pktgen_worker *own = worker->own;
	const uint64_t now = now_ns();
	int n, sent;

	if (!own->n_held && !own->ended)
		replay_read(worker, now);
	n = replay_due(worker, gen, now);
	if (n <= 0)
		return 0;
	for (int i = 0; i < n; i++)
		vbn_buf_packet(own->held[own->first_held + i])->flags = 0;
	sent = send(worker, gen, own->held + own->first_held, n, now);
	gen->last_ns = sent > 0 ? now_ns() : gen->last_ns;
	if (unlikely(sent < 0)) {
		drops_add(&own->not_sent, drop_names[DROP_NOT_SENDABLE], 1);
		vbn_buf_free(own->held + own->first_held, 1);
		sent = 1;
	}
	own->first_held += sent;
	own->n_held -= sent;
	return sent;
}

int pktgen_replay_loop(struct vbn_worker *vbn_worker, void *arg)
{
	struct packet_worker *worker = arg;
	struct pktgen_worker *own = worker->own;
	int did = 0;

	(void)vbn_worker;
	for (int i = 0; i < worker->n_lanes; i++)
		did += receive(worker, &worker->lanes[i]);
	if (own->source && may_send(worker))
		did += replay(worker, &own->generators[0]);
	return did;
}
