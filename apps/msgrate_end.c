/* msgrate_end.c - an end: its queue, what it exports to its peer, the last look at it */
#include "msgrate.h"

#include <sched.h>
#include <stdlib.h>

#define ON_ITS_WAY (5 * SECOND)
#define MIN_DEPTH  16 /* of the ring that a one-way end does not use, or uses for credits */

/* ---- shapes ---- */

/* A direction that an end has not gets the least there is. */
uint32_t end_tx_depth(const struct run *run, const struct end *end)
{
	return end->sends || run->conf.tx_depth < MIN_DEPTH ? (uint32_t)run->conf.tx_depth
							    : MIN_DEPTH;
}

uint32_t end_rx_depth(const struct run *run, const struct end *end)
{
	bool used = end->receives && op_is_received((enum msg_op)run->conf.op);

	return used || run->conf.rx_depth < MIN_DEPTH ? (uint32_t)run->conf.rx_depth : MIN_DEPTH;
}

/* Slots of the target: one for each message that can be in flight; where the receiver looks at them
 * also for those that it has not looked at. */
static size_t n_slots(const struct run *run)
{
	const struct msgrate_options *conf = &run->conf;

	if (op_is_atomic((enum msg_op)conf->op))
		return 1;
	if (conf->op == OP_WRITE_IMM && conf->rx_depth > conf->tx_depth)
		return (size_t)conf->rx_depth;
	return (size_t)conf->tx_depth;
}

static uint32_t access_of(const enum msg_op op)
{
	return op_writes(op)       ? VBN_REMOTE_WRITE
		: op == OP_READ    ? VBN_REMOTE_READ
		: op_is_atomic(op) ? VBN_REMOTE_ATOMIC
				   : 0;
}

/* ---- making ---- */

/* What is read says which slot it is from. */
static void fill_slots(struct end *end)
{
	const struct run *run = end->side->run;
	size_t size = (size_t)run->conf.size;
	uint8_t *slots = vbn_export_addr(end->slots);

	for (size_t i = 0; i < n_slots(run); i++)
		pattern_fill(slots + i * slot_size(size), size, i, end->peer_stream);
}

static int create_slots(struct end *end)
{
	const struct run *run = end->side->run;
	struct vbn_export_conf conf = {
		.size = slot_size((size_t)run->conf.size) * n_slots(run),
		.access = access_of((enum msg_op)run->conf.op),
	};
	int err;

	if (!end->receives || !conf.access)
		return 0;
	err = vbn_export_create(run->port, &conf, &end->slots);
	if (!err)
		err = vbn_export_handle(end->slots, 0, conf.size, &end->handle);
	if (!err && run->conf.op == OP_READ && run->conf.verify)
		fill_slots(end);
	return err;
}

static int create_queue(struct end *end)
{
	struct run *run = end->side->run;
	const struct msgrate_options *options = &run->conf;
	struct vbn_queue_conf conf = {
		.transport = (enum vbn_transport)options->connection,
		.tx_depth = end_tx_depth(run, end),
		.rx_depth = end_rx_depth(run, end),
		.inline_size = {(uint32_t)options->inline_size, options->inline_given},
		.rx_pool = end->side->rx_pool,
		.tx_pool = end->side->tx_pool,
		.remote_access = end->receives ? access_of((enum msg_op)options->op) : 0,
		.context = end,
	};
	int err;

	conf.cq_mod = (uint32_t)options->cq_mod;
	if (conf.cq_mod > conf.tx_depth)
		conf.cq_mod = conf.tx_depth;
	err = vbn_queue_create(end->side->worker, run->port, &conf, &end->queue);
	if (err)
		return err;
	vbn_queue_address(end->queue, &end->address);
	__atomic_fetch_add(&run->n_made, 1, __ATOMIC_RELAXED);
	return 0;
}

static int create_burst(struct end *end)
{
	size_t n = (size_t)end->side->run->conf.post_list;

	end->held = calloc(n, sizeof(*end->held));
	end->imms = calloc(n, sizeof(*end->imms));
	end->atomics = calloc(n, sizeof(*end->atomics));
	if (!end->held || !end->imms || !end->atomics)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		end->atomics[i].value = 1;
	return 0;
}

int end_create(struct end *end)
{
	const struct run *run = end->side->run;
	bool credits =
		run->other && !run->conf.latency && op_is_received((enum msg_op)run->conf.op);
	int err;

	end->limit = UINT64_MAX;
	end->shut_at = UINT64_MAX;
	end->peer_sent = UINT64_MAX;
	end->slot_mask = (uint32_t)n_slots(run) - 1;
	/* The target of a write that is lost would look for it for ever. */
	end->may_lose =
		run->conf.latency && run->conf.connection != VBN_RC && run->conf.op != OP_WRITE;
	end->is_given = credits && end->sends;
	end->gives_credit = credits && end->receives;
	err = create_burst(end);
	if (!err)
		err = track_init(&end->track, (uint64_t)(run->conf.tx_depth + run->conf.rx_depth));
	if (!err)
		err = create_slots(end);
	return err ? err : create_queue(end);
}

/* ---- connecting ---- */

/* The remote of each slot, and those of the first ones again: a burst from any slot is one piece of
 * the array. */
static int learn_slots(struct end *end)
{
	const struct run *run = end->side->run;
	size_t n = n_slots(run), more = (size_t)run->conf.post_list;
	size_t size = slot_size((size_t)run->conf.size);
	struct vbn_region region;

	if (!end->sends || !op_has_target((enum msg_op)run->conf.op))
		return 0;
	if (vbn_handle_open(&end->peer_handle, &region) || region.len < n * size) {
		say("the peer's memory cannot be used: what it says of it is no handle of %zu bytes; both "
		    "ends must be of one version of verbena",
			n * size);
		return -EPROTO;
	}
	end->remotes = calloc(n + more, sizeof(*end->remotes));
	if (!end->remotes)
		return -ENOMEM;
	for (size_t i = 0; i < n + more; i++)
		end->remotes[i] =
			(struct vbn_remote){region.remote.addr + i % n * size, region.remote.rkey};
	return 0;
}

int end_connect(struct end *end)
{
	int err;

	if (end->peer) {
		end->peer_address = end->peer->address;
		end->peer_handle = end->peer->handle;
	}
	if (end->side->run->conf.connection == VBN_UD)
		err = vbn_peer_create(end->queue, &end->peer_address, &end->datagram_peer);
	else
		err = 0;
	if (!err)
		err = vbn_queue_connect(end->queue, end->datagram_peer ? NULL : &end->peer_address);
	return err ? err : learn_slots(end);
}

/* ---- the end ---- */

void end_note(struct end *end)
{
	const struct run *run = end->side->run;

	vbn_queue_stats(end->queue, &end->stats);
	snprintf(end->error, sizeof(end->error), "%s", vbn_queue_error(end->queue));
	if (*end->error)
		end->failed = true;
	if (run->conf.op == OP_WRITE && end->sends)
		end->completed = end->stats.tx_done < end->sent ? end->stats.tx_done : end->sent;
	end->tally = (struct tally){
		.sent = end->sent,
		.completed = end->completed,
		.received = end->received,
		.warm = end->warm,
		.corrupt = end->track.corrupt,
		.duplicate = end->track.duplicate,
		.reordered = end->track.reordered,
		.swapped = end->swapped,
		.failed = end->failed,
	};
}

static bool slot_holds(const struct end *end, const uint8_t *slot, uint64_t message)
{
	uint64_t sequence;

	return pattern_check(
		       slot, (size_t)end->side->run->conf.size, end->peer_stream, &sequence) &&
		sequence == message;
}

/* Over iWARP a write that has completed may still be on its way. */
static bool slot_comes_to_hold(const struct end *end, const uint8_t *slot, uint64_t message)
{
	const uint64_t start = now_ns();

	while (!slot_holds(end, slot, message)) {
		if (now_ns() - start > ON_ITS_WAY)
			return false;
		sched_yield();
	}
	return true;
}

/* Each slot must hold the last message that went there. Those that writes which never completed may
 * have changed are left out; these are counted as lost. */
static void scan_slots(struct end *end)
{
	const struct run *run = end->side->run;
	const bool iwarp = run->port_info.link == VBN_LINK_IWARP;
	uint64_t sent = end->peer_tally.sent, n = n_slots(run);
	size_t size = slot_size((size_t)run->conf.size);
	const uint8_t *base = vbn_export_addr(end->slots);

	for (uint64_t i = sent > n ? sent - n : 0; i < end->peer_tally.completed; i++) {
		const uint8_t *slot = base + i % n * size;
		bool waits = iwarp && !end->tally.corrupt;

		end->tally.corrupt +=
			!(waits ? slot_comes_to_hold(end, slot, i) : slot_holds(end, slot, i));
	}
}

/* What the memory holds once the peer has all its answers: before, some are on their way. */
static void scan_atomic(struct end *end)
{
	uint64_t final;

	memcpy(&final, vbn_export_addr(end->slots), sizeof(final));
	end->tally.corrupt += final != end->peer_tally.swapped;
}

void end_scan(struct end *end)
{
	const struct run *run = end->side->run;

	if (!end->slots || !run->conf.verify)
		return;
	if (run->conf.op == OP_WRITE)
		scan_slots(end);
	else if (op_is_atomic((enum msg_op)run->conf.op) && !end->peer_tally.failed)
		scan_atomic(end);
}

void end_destroy(struct end *end)
{
	if (end->n_held)
		vbn_buf_free(end->held + end->first_held, end->n_held);
	end->n_held = 0;
	vbn_queue_destroy(end->queue);
	vbn_peer_release(end->datagram_peer);
	vbn_export_destroy(end->slots);
	end->slots = NULL;
	free(end->remotes);
	free(end->held);
	free(end->imms);
	free(end->atomics);
	free(end->track.seen);
}
