/* pktgen_loop.c - the loops of pktgen: frames made and sent at their rate, a file replayed in its time, and
 * the stamps of what comes back */
#include "pktgen.h"

#define WINDOW_PATIENCE (SECOND / 10)

/* ---- what comes back ---- */

static force_inline bool is_ours(
	const struct pktgen_worker *own, struct vbn_buf *buf, struct stamp *stamp)
{
	if (buf->len < own->pattern->least)
		return false;
	memcpy(stamp, buf->data + own->pattern->header_len, sizeof(*stamp));
	return stamp->run == own->pattern->run;
}

static void look_at(struct pktgen_worker *own, struct lane *lane, struct vbn_buf **bufs, int n)
{
	const uint64_t now = now_ns();
	uint64_t returned = 0;
	struct stamp stamp;

	for (int i = 0; i < n; i++) {
		if (!is_ours(own, bufs[i], &stamp))
			continue;
		returned++;
		histogram_record(&own->times, now > stamp.ns ? now - stamp.ns : 0);
	}
	vbn_count(&own->returned, returned);
	own->came_ns = returned ? now : own->came_ns;
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
			lane_failed(worker, lane);
		return 0;
	}
	if (lane->tap)
		capture_burst(lane->tap, lane->device, CAPTURE_RECEIVED, bufs, n);
	if (own->conf->replay) /* its frames have no stamps */
		vbn_count(&own->returned, (uint64_t)n);
	else
		look_at(own, lane, bufs, n);
	vbn_buf_free(bufs, n);
	return n;
}

/* ---- how many ---- */

/* What is due by the rate; more than two bursts late is not made up for. */
static int due(struct generator *gen, int burst, uint64_t now)
{
	double due = (double)(now - gen->pace_from_ns) * gen->per_ns - (double)gen->paced;

	if (due > 2 * burst) {
		gen->pace_from_ns = now;
		gen->paced = 0;
		due = burst;
	}
	return due < burst ? (int)due : burst;
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
	uint32_t out = vbn_queue_outstanding(gen->lane->queue);
	int64_t room = worker->run->conf.tx_depth - (int64_t)out;
	int n = gen->per_ns > 0 ? due(gen, worker->burst, now) : worker->burst;

	n = (uint64_t)n < left ? n : (int)left;
	if (own->conf->window) {
		int64_t window = window_room(own, now);

		room = window < room ? window : room;
	}
	return n < room ? n : (int)room;
}

/* ---- frames ---- */

static force_inline uint32_t frame_size(const struct pktgen_options *conf, struct generator *gen)
{
	const uint32_t first = (uint32_t)conf->size, last = (uint32_t)conf->last_size;

	if (first == last)
		return first;
	gen->random = gen->random * 1664525 + 1013904223;
	return first + (uint32_t)((uint64_t)gen->random * (last - first + 1) >> 32);
}

static force_inline void store16(uint8_t *to, uint32_t value)
{
	const uint16_t be = __builtin_bswap16((uint16_t)value);

	memcpy(to, __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? &be : &(uint16_t){(uint16_t)value},
		sizeof(be));
}

static force_inline void set_lengths(
	const struct pattern *pattern, const struct flow *flow, uint8_t *frame, uint32_t size)
{
	uint8_t *ip = frame + pattern->ip_at;
	uint32_t ip_len = size - pattern->ip_at, sum;

	store16(frame + pattern->udp_at + 4, size - pattern->udp_at);
	if (pattern->v6) {
		store16(ip + 4, size - pattern->udp_at);
		return;
	}
	store16(ip + 2, ip_len);
	sum = flow->ip_sum + ip_len;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	store16(ip + 10, ~sum & 0xffff);
}

static force_inline void make_frame(
	struct packet_worker *worker, struct generator *gen, struct vbn_buf *buf, uint64_t now)
{
	struct pktgen_worker *own = worker->own;
	const struct pattern *pattern = own->pattern;
	const struct flow *flow = &pattern->flows[gen->flow];
	const struct stamp stamp = {pattern->run, (uint16_t)worker->index, own->seq++, now};
	const uint32_t size = frame_size(own->conf, gen);

	if (++gen->flow == pattern->n_flows)
		gen->flow = 0;
	memcpy(buf->data, flow->bytes, MOST_HEADERS);
	memcpy(buf->data, gen->lane->peer, 6);
	memcpy(buf->data + 6, gen->lane->mac, 6);
	set_lengths(pattern, flow, buf->data, size);
	memcpy(buf->data + pattern->header_len, &stamp, sizeof(stamp));
	if (size > pattern->least)
		memset(buf->data + pattern->least, 0, size - pattern->least);
	buf->len = size;
	/* UDP over IPv4 may go without a checksum, over IPv6 not. */
	*vbn_buf_packet(buf) = (struct vbn_packet){.flags = pattern->v6 ? VBN_PACKET_TX_L4_CSUM : 0,
		.l2_len = (uint8_t)pattern->ip_at,
		.l3_len = (uint8_t)(pattern->udp_at - pattern->ip_at)};
}

/* Those that the queue has taken. What it has not is made anew. */
static int send(struct packet_worker *worker, struct generator *gen, struct vbn_buf **bufs, int n)
{
	struct lane *lane = gen->lane;
	int sent;

	if (lane->tap)
		capture_burst(lane->tap, lane->device, CAPTURE_SENT, bufs, n);
	sent = vbn_send(lane->queue, bufs, n);
	if (unlikely(sent < 0)) {
		lane_failed(worker, lane);
		sent = 0;
	}
	vbn_count(&gen->sent, (uint64_t)sent);
	((struct pktgen_worker *)worker->own)->sent += (uint64_t)sent;
	gen->paced += (uint64_t)sent;
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
	sent = send(worker, gen, bufs, n);
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
	const bool sends = may_send(worker);
	int did = 0;

	(void)vbn_worker;
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
	int most = how_many(worker, gen, now), n = 0;

	if (gen->per_ns > 0)
		return most < own->n_held ? most : own->n_held;
	while (n < own->n_held && n < most &&
		vbn_buf_packet(own->held[own->first_held + n])->time - own->first_time <=
			now - own->first_ns)
		n++;
	return n;
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
	if (n > 0)
		return;
	vbn_port_info(own->pattern->source, &info);
	if (n < 0 || !info.up)
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
	sent = send(worker, gen, own->held + own->first_held, n);
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
