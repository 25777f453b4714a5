/* rdma_words.c - what is said of a queue pair in words, whichever driver has it: what to do about
 * a status, how long the device tried, the modes of a connection */

#include "drv/rdma.h"

#include <stdio.h>

const char *vbn__rdma_remedy(enum vbn_status status)
{
	switch (status) {
	case VBN_LOCAL_LENGTH:
		return "a message was longer than the receive buf, or than the port's maximum: raise the rx pool's data_size";
	case VBN_LOCAL_QP:
		return "the device found the request not legal for this queue pair: report it, with this line";
	case VBN_LOCAL_PROTECTION:
		return "a segment is outside memory registered with this port: register its zone before sending from it";
	case VBN_FLUSHED:
		return "the queue pair was in the error state already: the peer or the port went, or it was moved there";
	case VBN_BAD_RESPONSE:
		return "the peer answered what the protocol does not allow: check its version";
	case VBN_LOCAL_ACCESS:
		return "the peer's access to memory here broke off: is an export gone?";
	case VBN_REMOTE_INVALID:
		return "the peer refused the request: a send longer than its receive bufs, a write, read or atomic that its queue's remote_access does not allow, or an atomic not on a multiple of 8";
	case VBN_REMOTE_ACCESS:
		return "the peer's export does not allow it: check remote address, length, rkey and remote_access there";
	case VBN_REMOTE_OPERATION:
		return "the peer could not carry it out: look at the error it reports";
	case VBN_RETRY_EXCEEDED:
		return "the peer did not answer: is it running, its port up, its address right, and do both ends have the same MTU and the way back?";
	case VBN_RNR_RETRY_EXCEEDED:
		return "the peer had no receive posted: it must receive faster, post more, or rnr_retry be raised (7 is for ever)";
	case VBN_REMOTE_ABORTED: return "the peer gave up: look at the error it reports";
	case VBN_CQ_ERROR:
		return "its completion queue overflowed or broke: reset the queue, or destroy it and make a new one";
	default: return "the device's manual has this code's meaning";
	}
}

char *vbn__rdma_patience(
	const struct vbn_queue_conf *conf, enum vbn_status status, char *text, size_t size)
{
	text[0] = '\0';
	if (status == VBN_RETRY_EXCEEDED)
		snprintf(text, size, " after %u %s of %.1f ms", conf->retry_count.value,
			conf->retry_count.value == 1 ? "retry" : "retries",
			(double)vbn__rdma_timeout_ns(conf->timeout.value) / 1e6);
	else if (status == VBN_RNR_RETRY_EXCEEDED)
		snprintf(text, size, " after %u %s", conf->rnr_retry.value,
			conf->rnr_retry.value == 1 ? "retry" : "retries");
	return text;
}

static const char *milliseconds(uint64_t ns, char *text, size_t size)
{
	snprintf(text, size, "%.2f ms", (double)ns / 1e6);
	return text;
}

static const char *asked(const struct vbn_num *number)
{
	return number->set ? vbn__mode_number(number->value, "") : "auto";
}

void vbn__rdma_queue_modes(const struct vbn_queue *queue, uint32_t mtu, struct mode_report *report)
{
	const struct vbn_queue_conf *conf = &queue->conf;
	char text[32];

	if (conf->transport == VBN_RC) {
		vbn__mode_add(report, "retry_timeout", asked(&conf->timeout),
			milliseconds(vbn__rdma_timeout_ns(conf->timeout.value), text, sizeof(text)),
			"%u retries%s", conf->retry_count.value,
			queue->port->max_retries < 7 ? ": this device takes 7 for \"for ever\""
						     : "");
		vbn__mode_add(report, "rnr_timer", asked(&conf->rnr_timer),
			milliseconds(
				vbn__rdma_rnr_timer_ns(conf->rnr_timer.value), text, sizeof(text)),
			"%s",
			conf->rnr_retry.value == 7 ? "retried for ever"
						   : "retried as rnr_retry says");
	}
	vbn__mode_add(report, "service_level", asked(&conf->service_level),
		vbn__mode_number(conf->service_level.value, ""),
		"the priority that switches may give it%s",
		conf->transport == VBN_UD ? "; a datagram has its peer's" : "");
	vbn__mode_add(report, "traffic_class", asked(&conf->traffic_class),
		vbn__mode_number(conf->traffic_class.value, ""), "DSCP %u, ECN %u%s",
		conf->traffic_class.value >> 2, conf->traffic_class.value & 3,
		conf->transport == VBN_UD ? "; a datagram has its peer's" : "");
	vbn__mode_add(report, "pacing",
		conf->pace_kbit ? vbn__mode_number(conf->pace_kbit, "kbit/s") : "off",
		conf->pace_kbit ? vbn__mode_number(conf->pace_kbit, "kbit/s") : "off", "%s",
		conf->pace_kbit ? "the device holds the queue to it"
				: "the device sends as fast as the port does");
	if (mtu)
		vbn__mode_add(report, "connection_mtu", "auto", vbn__mode_number(mtu, "B"),
			"the smaller of the two ends");
}
