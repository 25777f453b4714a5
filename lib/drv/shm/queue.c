/* queue.c - a queue over shared memory: its segment and tables, connect, reset, free; modes */

#include "drv/shm/lend.h"
#include "drv/shm/life.h"
#include "drv/shm/ud.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	RING_PER_RECEIVE = 256, /* bytes of ring for each receive of the depth */
	RING_MESSAGES =
		32, /* of the largest, so that both ends have some at a time, however few receives */
	RING_DEFAULT_MAX = 256 << 10,
	BOX_LOOKS_NS = 30,      /* no sooner again */
	RING_SHARED = 64 << 10, /* of a queue that receives from an SRQ: they are many */
};

/* ---- create ---- */

/* What only a NIC has cannot be insisted on. */
static int check_conf(const struct vbn_port *port, const struct vbn_queue_conf *conf)
{
	const struct technique more[] = {
		{"shared_cq = ON", conf->shared_cq == VBN_ON},
		{"doorbell_burst = OFF", conf->doorbell_burst == VBN_OFF},
		{"pace_kbit", conf->pace_kbit != 0},
	};
	const char *name = vbn__technique_wanted(conf, more, ARRAY_SIZE(more));

	if (conf->by_reference == VBN_ON && conf->transport == VBN_UD)
		return fail(ENOTSUP,
			"queue cannot be created: by_reference is on, and datagrams are copied: leave it to the library");
	if (conf->by_reference == VBN_ON && !conf->tx_pool->zone->lasting)
		return fail(ENOTSUP,
			"queue cannot be created: by_reference is on, and pool \"%s\" is of a zone that is not shared: make that with memfd = ON, on Linux 5.1 or later",
			conf->tx_pool->name);
	if (name)
		return fail(ENOTSUP,
			"queue cannot be created: port %s is shared memory, which has no %s: leave it to the library",
			port->info.name, name);
	return 0;
}

static uint32_t ring_size(const struct vbn_queue_conf *conf)
{
	const uint64_t by_depth = (uint64_t)conf->rx_depth * RING_PER_RECEIVE,
		       by_size = (uint64_t)conf->rx_pool->data_size * RING_MESSAGES,
		       size = max(by_depth, by_size);

	if (conf->srq)
		return RING_SHARED;
	if (size > RING_DEFAULT_MAX)
		return RING_DEFAULT_MAX;
	return (uint32_t)pow2_ceil(max(size, (uint64_t)SHM_RING_MIN));
}

/* A new one each time, so that who has the old one disturbs nobody. */
static int make_segment(struct shm_queue *sq, const struct vbn_queue_conf *conf)
{
	struct shm_segment *segment;
	int ret = vbn__shm_segment_make(ring_size(conf), -1, &segment);

	if (ret)
		return ret;
	if (sq->in)
		store_release(&segment_head(sq->in)->open, 0);
	vbn__shm_segment_put(sq->in);
	sq->in = segment;
	sq->rx.ring = segment_ring(segment);
	sq->rx.head = segment_head(segment);
	sq->rx.mask = segment->ring_size - 1;
	sq->rx.pos = sq->rx.told = sq->rx.burst = 0;
	return 0;
}

static int take_nonce(struct shm_queue *sq)
{
	if (getrandom(&sq->nonce, sizeof(sq->nonce), 0) != sizeof(sq->nonce))
		return fail(EIO, "queue cannot be created: the kernel gives no random bytes");
	return 0;
}

int vbn__shm_queue_renew(struct shm_queue *sq)
{
	return make_segment(sq, &sq->queue.conf);
}

static int make_tables(struct shm_queue *sq, const struct vbn_queue_conf *conf)
{
	const uint32_t n_pending = (uint32_t)pow2_ceil(max(conf->max_peer_reads.value, 1u));
	struct shm_tx *tx = &sq->tx;
	struct shm_rx *rx = &sq->rx;

	tx->mask = conf->tx_depth - 1;
	tx->pool = conf->tx_pool;
	tx->plain = plain_word(conf->tx_pool);
	tx->slots = calloc(conf->tx_depth, sizeof(*tx->slots));
	tx->wqes = calloc(conf->tx_depth, sizeof(*tx->wqes));
	rx->pending = calloc(n_pending, sizeof(*rx->pending));
	rx->pending_mask = n_pending - 1;
	rx->bufs = conf->srq ? vbn__shm_srq_bufs(conf->srq) : &rx->own;
	rx->data_size = conf->rx_pool->data_size;
	rx->own.pool = conf->rx_pool;
	if (!conf->srq) {
		rx->own.depth = conf->rx_depth;
		rx->own.stack = calloc(conf->rx_depth, sizeof(struct vbn_buf *));
	}
	return tx->slots && tx->wqes && rx->pending && (conf->srq || rx->own.stack) ? 0 : -ENOMEM;
}

/* Accepts a half-made one; on the control thread. */
static void free_memory(struct shm_queue *sq)
{
	vbn__shm_ud_free(sq);
	vbn__shm_segment_put(sq->in);
	vbn__shm_segment_put(sq->out);
	vbn__shm_life_put(sq->life);
	vbn__shm_loans_put(sq->loans);
	free(sq->tx.slots);
	free(sq->tx.wqes);
	free(sq->rx.pending);
	free(sq->rx.own.stack);
	free(sq);
}

static uint32_t take_number(struct shm_port *port)
{
	for (;;) {
		const struct vbn_queue *at;

		port->next_number = (port->next_number + 1) & 0xffffff;
		for (at = port->port.queues; at && at->number != port->next_number; at = at->next)
			;
		if (!at && port->next_number)
			return port->next_number;
	}
}

int vbn__shm_queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue)
{
	struct shm_queue *sq;
	int ret = check_conf(port, conf);

	if (ret)
		return ret;
	sq = aligned_alloc(CACHE_LINE, round_up(sizeof(*sq), CACHE_LINE));
	if (!sq)
		return -ENOMEM;
	memset(sq, 0, sizeof(*sq));
	sq->queue.port = port;
	sq->queue.number = take_number(shm_port(port));
	sq->transport = conf->transport;
	ret = make_tables(sq, conf);
	if (!ret)
		ret = take_nonce(sq);
	if (!ret)
		ret = conf->transport == VBN_UD ? vbn__shm_ud_make(sq, conf, list->worker)
						: make_segment(sq, conf);
	if (ret) {
		free_memory(sq);
		return ret;
	}
	*queue = &sq->queue;
	return 0;
}

/* ---- connect ---- */

/* Its socket and the segment's nonce are where a device has its GID. */
void vbn__shm_queue_address(const struct vbn_queue *queue, struct vbn_address *wire)
{
	const struct shm_queue *sq = shm_queue(queue);
	struct address address = {.transport = queue->conf.transport,
		.link = VBN_LINK_HOST,
		.mtu = queue->port->mtu,
		.qpn = queue->number};

	if (sq->ud) {
		address.qkey = queue->conf.qkey.value;
	} else {
		address.reads = (uint8_t)queue->conf.max_reads.value;
		address.peer_reads = (uint8_t)queue->conf.max_peer_reads.value;
	}
	memcpy(address.gid, &shm_port(queue->port)->id, sizeof(uint64_t));
	memcpy(address.gid + sizeof(uint64_t), &sq->nonce, sizeof(uint64_t));
	vbn__address_pack(&address, wire);
}

int vbn__shm_queue_fill(struct vbn_queue *queue)
{
	struct shm_bufs *bufs = &shm_queue(queue)->rx.own;

	if (!vbn__shm_bufs_fill(bufs))
		return 0;
	return fail(ENOMEM,
		"queue %s/%u cannot post %u receives, but %u: pool \"%s\" has %u bufs left: make it larger",
		queue->port->info.name, queue->number, bufs->depth, bufs->n, bufs->pool->name,
		bufs->pool->n_free);
}

uint32_t vbn__shm_queue_posted(const struct vbn_queue *queue)
{
	return shm_queue(queue)->rx.own.n;
}

static void ops_fill(struct shm_queue *sq)
{
	const bool fetches = sq->queue.conf.transport == VBN_RC && sq->tx.max_fetches;

	sq->ops = vbn__lacking_ops;
	vbn__shm_tx_ops(&sq->ops, fetches);
	vbn__shm_rx_ops(&sq->ops, sq->queue.conf.srq != NULL);
	sq->queue.connected_ops = &sq->ops;
}

/* Both ends come to the same of it. */
static void take_turns(struct shm_queue *sq, const struct address *peer)
{
	struct shm_segment *first = sq->in;
	uint64_t nonce;

	memcpy(&nonce, peer->gid + sizeof(uint64_t), sizeof(nonce));
	sq->talk.turn = sq->nonce < nonce;
	if (!sq->talk.turn)
		first = sq->out;
	sq->talk.box = &segment_head(first)->box;
	sq->talk.least = (uint32_t)(vbn__clock_hz() * BOX_LOOKS_NS / 1000000000);
	sq->talk.patience = 4 * sq->talk.least;
}

static bool is_lendable(const struct vbn_queue *queue)
{
	return queue->conf.tx_pool->zone->lasting || queue->conf.rx_pool->zone->lasting;
}

/* Where nothing can be lent a message of any length is copied as it comes. */
static void lend(struct shm_queue *sq)
{
	struct shm_tx *tx = &sq->tx;

	tx->ref_min = UINT32_MAX;
	tx->loans = NULL;
	if (sq->queue.conf.by_reference == VBN_OFF || !is_lendable(&sq->queue))
		return;
	tx->loans = sq->loans;
	tx->ref_min = SHM_REF_MIN;
	tx->longest = min(tx->longest, tx->ref_min - 1);
}

int vbn__shm_queue_connect(struct vbn_queue *queue, const struct address *peer)
{
	struct shm_queue *sq = shm_queue(queue);
	struct shm_tx *tx = &sq->tx;
	struct shm_terms terms;
	int ret;

	if (sq->ud) {
		vbn__shm_ud_connect(sq);
		return 0;
	}
	ret = vbn__shm_attach(sq, peer, &sq->out, &terms, &sq->process);
	if (ret)
		return ret;
	sq->peer = *peer;
	tx->peer = segment_head(sq->out);
	tx->ring = (struct ring_writer){.ring = segment_ring(sq->out),
		.end = terms.ring_size,
		.mask = terms.ring_size - 1,
		.piece = ring_piece(terms.ring_size)};
	tx->max_message = terms.max_message;
	tx->whole = tx->longest = min(tx->ring.piece, terms.max_message);
	lend(sq);
	tx->max_fetches = min(queue->conf.max_reads.value, (uint32_t)peer->peer_reads);
	sq->life = vbn__shm_life_of(sq->process);
	sq->rx.life = sq->life ? sq->life->word : &vbn__shm_deathless;
	take_turns(sq, peer);
	ops_fill(sq);
	return 0;
}

/* ---- fail and reset ---- */

int vbn__shm_queue_fail(struct vbn_queue *queue)
{
	const struct shm_queue *sq = shm_queue(queue);

	if (sq->in) /* who sends datagrams sees it when it is told what was taken */
		store_release(&segment_head(sq->in)->open, 0);
	return 0;
}

bool vbn__shm_queue_quiet(const struct vbn_queue *queue)
{
	const struct shm_queue *sq = shm_queue(queue);

	return sq->failure.reported && sq->tx.tail == sq->tx.head && !sq->rx.own.n;
}

cold void vbn__shm_queue_news(struct vbn_queue *queue, uint32_t news)
{
	struct shm_queue *sq = shm_queue(queue);

	if (sq->ud)
		vbn__shm_ud_news(sq);
	if (!queue->connected || queue->failed || !(news & NEWS_QP))
		return;
	if (!sq->ud)
		vbn__shm_progress(sq); /* what the peer has said before */
	if (load_once(&sq->gone))
		vbn__shm_fail(sq, VBN_REMOTE_ABORTED,
			"its process has ended: see why, and connect to the one that takes its place");
	else
		vbn__shm_fail(sq, VBN_FLUSHED, "the queue was reset at this end");
}

/* Who has ended its queue before is told of as such, by who has something to say to it. */
cold void vbn__shm_peer_died(struct shm_queue *sq)
{
	sq->rx.life = &vbn__shm_deathless;
	if (!load_once(&sq->tx.peer->open))
		return;
	store_once(&sq->gone, 1);
	vbn__shm_queue_news(&sq->queue, NEWS_QP);
}

/* All its bufs have been given back: it is quiet, or was never connected. */
int vbn__shm_queue_reset(struct vbn_queue *queue)
{
	struct shm_queue *sq = shm_queue(queue);
	struct shm_tx *tx = &sq->tx;

	vbn__shm_segment_put(sq->out);
	vbn__shm_detach(shm_port(queue->port), sq->process);
	vbn__shm_life_put(sq->life);
	vbn__shm_loans_put(sq->loans);
	sq->out = NULL;
	sq->process = NULL;
	sq->life = NULL;
	sq->loans = tx->loans = NULL;
	tx->head = tx->put = tx->rung = tx->done = tx->tail = 0;
	tx->n_wqes = tx->n_fetches = tx->fetch = 0;
	tx->waiting = tx->lent = 0;
	sq->rx.pending_head = sq->rx.pending_tail = 0;
	sq->rx.write_len = 0;
	sq->failure = (struct shm_failure){0};
	memset(&sq->talk, 0, sizeof(sq->talk));
	sq->gone = 0;
	__atomic_store_n(&queue->news, 0, __ATOMIC_RELAXED);
	if (take_nonce(sq))
		return -EIO;
	if (sq->ud) {
		vbn__shm_ud_end(sq);
		return 0;
	}
	return make_segment(sq, &queue->conf);
}

/* ---- end ---- */

void vbn__shm_queue_stop(struct vbn_queue *queue)
{
	struct shm_queue *sq = shm_queue(queue);

	if (sq->in)
		store_release(&segment_head(sq->in)->open, 0);
	if (sq->ud)
		vbn__shm_ud_end(sq);
	vbn__shm_detach(shm_port(queue->port), sq->process);
	sq->process = NULL;
}

static int free_call(void *arg)
{
	free_memory(arg);
	return 0;
}

void vbn__shm_queue_free(struct vbn_queue *queue)
{
	struct shm_queue *sq = shm_queue(queue);
	struct shm_tx *tx = &sq->tx;

	if (sq->in && queue->connected)
		shm_count(shm_port(queue->port), SHM_UNREAD, vbn__shm_rx_unread(sq));
	for (; tx->tail != tx->head; tx->tail++) {
		struct shm_wqe *wqe = &tx->wqes[tx->tail & tx->mask];

		if (tx->slots[tx->tail & tx->mask] != SLOT_WQE || !wqe->buf)
			continue;
		vbn__buf_debug_done(wqe->buf);
		vbn_buf_free(&wqe->buf, 1);
	}
	if (sq->rx.part)
		pool_push(sq->rx.bufs->pool, sq->rx.part);
	vbn__shm_bufs_drop(&sq->rx.own);
	vbn__control_call(-1, free_call, sq);
}

/* ---- modes ---- */

static const char *reference_why(const struct shm_queue *sq)
{
	const struct vbn_pool *pool = sq->queue.conf.tx_pool;

	if (sq->queue.conf.by_reference == VBN_OFF)
		return "asked for";
	if (!pool->zone->lasting)
		return pool->zone->memfd < 0
			? "tx_pool's zone is not shared: memfd = ON makes it so"
			: "this kernel does not keep others from writing a zone";
	if (!sq->loans)
		return "not connected yet";
	return load_acquire(&sq->loans->of[pool->zone_id].slot)
		? "copied once, by the receiver, out of tx_pool's zone"
		: "the peer has not mapped tx_pool's zone: it does so behind the connect, or says why not";
}

static void report_reference(const struct shm_queue *sq, struct mode_report *report)
{
	const struct vbn_pool *pool = sq->queue.conf.tx_pool;
	const bool holds = sq->tx.loans && load_acquire(&sq->tx.loans->of[pool->zone_id].slot) != 0;

	vbn__mode_add(report, "by_reference", vbn__mode_switch(sq->queue.asked.by_reference),
		holds ? vbn__mode_number(SHM_REF_MIN, "B and more") : "off", "%s",
		reference_why(sq));
}

static void report_sleep(const struct vbn_queue *queue, struct mode_report *report)
{
	enum vbn_switch asked;
	const char *why;
	bool sleeps = vbn__worker_sleeps(queue->list->worker, &asked, &why);

	if (shm_queue(queue)->ud) {
		sleeps = false;
		why = "who sends datagrams wakes nobody: a worker that receives some polls on";
	}
	vbn__mode_add(report, "sleep", vbn__mode_switch(asked), sleeps ? "on" : "off", "%s", why);
}

void vbn__shm_queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	const struct shm_queue *sq = shm_queue(queue);
	const struct vbn_queue_conf *conf = &queue->conf, *asked = &queue->asked;

	vbn__mode_add(report, "inline",
		conf->inline_size.set ? vbn__mode_number(conf->inline_size.value, "B") : "auto",
		"on", "every message is copied into the ring; vbn_send_inline() takes up to %d B",
		SHM_MAX_INLINE);
	vbn__mode_add(report, "tx_ring",
		asked->tx_depth ? vbn__mode_number(asked->tx_depth, "") : "auto",
		vbn__mode_number(sq->tx.mask + 1ull, "messages"), "%s",
		sq->ud            ? "what finds no room in its peer's ring is dropped"
			: sq->out ? "and as many bytes as the peer's ring takes"
				  : "not connected yet");
	vbn__mode_add(report, "rx_ring",
		asked->rx_depth ? vbn__mode_number(asked->rx_depth, "") : "auto",
		vbn__mode_number(sq->ud  ? UD_RING
				: sq->in ? sq->in->ring_size
					 : 0,
			"B"),
		"%s%u bufs of pool \"%s\" are kept for it, %s",
		sq->ud ? "for each that sends to it, up to 128; " : "", sq->rx.bufs->depth,
		sq->rx.bufs->pool->name, sq->rx.bufs->srq ? "shared with others" : "its own");
	if (!sq->ud)
		vbn__mode_add(report, "ring_pages", vbn__shm_pages_asked(),
			sq->in ? sq->in->pages : "none", "%s", sq->in ? sq->in->why : "");
	vbn__mode_add(report, "shared_cq", vbn__mode_switch(asked->shared_cq), "off",
		"each queue is polled by itself");
	vbn__mode_add(report, "doorbell", vbn__mode_switch(asked->doorbell_burst), "one a flush",
		"one store shows a burst; the peer polls");
	report_sleep(queue, report);
	if (sq->ud)
		return;
	vbn__mode_add(report, "box", "auto", vbn__mode_number(SHM_BOX_DATA, "B"),
		"a lone message up to this goes by lines that both ends write by turns");
	report_reference(sq, report);
	vbn__mode_add(report, "one_sided", "auto", "by the peer's poll",
		"writes, reads and atomics are carried out when their target polls its queue");
}
