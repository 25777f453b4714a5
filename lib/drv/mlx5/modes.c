/* modes.c - what was asked of an mlx5 queue, and what it has */

#include "drv/mlx5/mini.h"
#include "drv/mlx5/queue.h"

static const char *asked_count(uint32_t number, const char *unit)
{
	return number ? vbn__mode_number(number, unit) : "auto";
}

static const char *asked(const struct vbn_num *number, const char *unit)
{
	return number->set ? vbn__mode_number(number->value, unit) : "auto";
}

static const char *on_off(bool on)
{
	return on ? "on" : "off";
}

static void ring_modes(const struct mlx5_queue *mq, struct mode_report *report)
{
	const struct vbn_queue_conf *conf = &mq->queue.asked;

	vbn__mode_add(report, "tx_ring", asked_count(conf->tx_depth, ""),
		vbn__mode_number(mq->sq.mask + 1ull, "WQEBBs"),
		"of 64 bytes: a plain send takes %s", conf->transport == VBN_UD ? "two" : "one");
	vbn__mode_add(report, "rx_ring", asked_count(conf->rx_depth, ""),
		vbn__mode_number(mq->rq->depth, "receives"), "%s, kept full from pool \"%s\"",
		mq->rq->linked ? "shared with others" : "of its own", mq->rq->pool->name);
	vbn__mode_add(report, "shared_cq", vbn__mode_switch(conf->shared_cq),
		on_off(mq->queue.grouped), "%s",
		mq->queue.grouped ? "a completion finds its queue by QPN"
				  : "the queue has its completion queues to itself");
	vbn__mode_add(report, "cq_mod", asked_count(conf->cq_mod, ""),
		vbn__mode_number(mq->sq.cq_mod, ""),
		"at most so many WQEs to a completion; sooner where none is on its way");
}

static void prefetch_mode(const struct mlx5_queue *mq, struct mode_report *report)
{
	const bool wanted = mq->queue.grouped ? mq->group->prefetch : mq->prefetch;
	const char *why = mq->recv_cq->session
		? "compressed completions lie side by side, and the CPU fetches them by itself"
		: mq->queue.grouped
		? "the CQE and the buf header to come next, of all queues that share the CQ"
		: "the CQE and the buf header to come next";

	vbn__mode_add(report, "prefetch", vbn__mode_switch(mq->queue.asked.prefetch),
		on_off(wanted && !mq->recv_cq->session), "%s", why);
}

static void technique_modes(const struct mlx5_queue *mq, struct mode_report *report)
{
	const struct vbn_queue_conf *conf = &mq->queue.asked;
	const struct session *session = mq->recv_cq->session;

	vbn__mode_add(report, "inline", asked(&conf->inline_size, "B"),
		mq->sq.inline_size ? vbn__mode_number(mq->sq.inline_size, "B") : "off",
		"bufs up to this are copied into the WQE; vbn_send_inline() takes up to %u B",
		mq->sq.max_inline);
	vbn__mode_add(report, "doorbell", vbn__mode_switch(conf->doorbell_burst),
		conf->doorbell_burst == VBN_OFF ? "one a message, no lock" : "one a flush, no lock",
		"a 64-bit store to the queue's register");
	vbn__mode_add(report, "templates", vbn__mode_switch(conf->templates),
		on_off(conf->templates != VBN_OFF), "%s",
		conf->templates == VBN_OFF
			? "each WQE is worked out by itself"
			: "of a plain buf's WQE only what differs is worked out");
	vbn__mode_add(report, "blueflame", vbn__mode_switch(conf->blueflame), on_off(mq->blueflame),
		"%s",
		mq->blueflame ? "a lone WQE of 64 bytes goes with its doorbell"
			      : "the device fetches every WQE");
	vbn__mode_add(report, "own_uar", vbn__mode_switch(conf->own_uar), on_off(mq->own_uar), "%s",
		mq->own_uar ? "the doorbell register is this worker's"
			    : "the doorbell register is one that libmlx5 gives to several queues");
	vbn__mode_add(report, "cqe_size", asked_count(conf->cqe_size, "B"),
		vbn__mode_number(mq->cqe_size, "B"), "%s",
		conf->cqe_size ? "as asked for" : "as libmlx5 made the queue");
	vbn__mode_add(report, "cqe_compression", vbn__mode_switch(conf->cqe_compression),
		session ? session->decoder->name : "off", "%s",
		session ? "of receives, read by the decoder for this CPU, and of sends, whose newest says it all"
			: "it spares PCIe bandwidth: ask for it where that is short");
	vbn__mode_add(report, "scatter_to_cqe", vbn__mode_switch(conf->scatter_to_cqe),
		!mq->scatter_to_cqe                      ? "off"
			: conf->scatter_to_cqe == VBN_ON ? "on"
							 : "decoded",
		"%s",
		!mq->scatter_to_cqe ? "received bytes belong in bufs"
			: conf->scatter_to_cqe == VBN_ON
			? "small messages come in their CQE, and are copied"
			: "the device would not turn it off");
	prefetch_mode(mq, report);
}

void vbn__mlx5_queue_modes(const struct vbn_queue *queue, struct mode_report *report)
{
	const struct mlx5_queue *mq = container_of(queue, const struct mlx5_queue, queue);

	technique_modes(mq, report);
	ring_modes(mq, report);
	vbn__rdma_queue_modes(queue, mq->mtu, report);
}
