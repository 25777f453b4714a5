/* call.c - the connection of an iWARP queue: it calls its peer, or is called */

#include "drv/verbs/cm.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	RESOLVE_MS = 2000,
	PATIENCE_S = 10,  /* as long as a device waits for the answer to its call */
	CALL_MORE_S = 10, /* beyond it, until a call that the device forgot is given up */
};

/* What the ends tell each other in rdma_cm's private data. */
enum cm_reason {
	CM_CALL,     /* of a call, and of its being taken */
	CM_STRANGER, /* no queue here has this name, or it expects another peer */
	CM_LATE,     /* the queue was not connected in time, or ended */
};

struct cm_words {
	char magic[4]; /* "VBNI" */
	uint8_t version;
	uint8_t reason; /* enum cm_reason */
	uint8_t zero[2];
	uint8_t to[8]; /* tokens */
	uint8_t from[8];
};
static_assert(sizeof(struct cm_words) == 24, "what goes over the wire");

enum { CM_VERSION = 1 };

static const char magic[4] = "VBNI";

/* A call for a queue that is not to be connected yet. */
struct call_kept {
	struct rdma_cm_id *id;
	struct cm_words words;
	uint64_t deadline;
	struct call_kept *next;
};

/* ---- addresses ---- */

static void address_of(const struct link_name *name, struct sockaddr_storage *address)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

	memset(address, 0, sizeof(*address));
	if (!memcmp(name->ip, prefix, sizeof(prefix))) {
		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, name->ip + 12, 4);
		memcpy(&v4->sin_port, name->port, 2);
	} else {
		v6->sin6_family = AF_INET6;
		memcpy(&v6->sin6_addr, name->ip, 16);
		memcpy(&v6->sin6_port, name->port, 2);
	}
}

/* "10.0.0.1 port 4711" */
static const char *name_text(const struct link_name *name, char text[80])
{
	char ip[48];

	snprintf(text, 80, "%s port %u", vbn__rdma_gid_text(name->ip, ip),
		(uint32_t)name->port[0] << 8 | name->port[1]);
	return text;
}

/* ---- a link's state ---- */

static struct verbs_cm *cm_of(const struct verbs_queue *vq)
{
	return verbs_port(vq->queue.port)->cm;
}

static void link_up(struct verbs_queue *vq)
{
	count_add(&cm_of(vq)->counts[CM_TAKEN], 1);
	store_release(&vq->link->state, LINK_UP);
	queue_tell(&vq->queue, NEWS_LINK);
}

static printf_like(3, 4) void link_down(
	struct verbs_queue *vq, enum vbn_status status, const char *format, ...)
{
	struct verbs_link *link = vq->link;
	va_list args;

	if (link->state != LINK_TRYING && link->state != LINK_UP)
		return;
	count_add(&cm_of(vq)->counts[link->state == LINK_UP ? CM_CUT_OFF : CM_UNANSWERED], 1);
	va_start(args, format);
	vsnprintf(link->why, sizeof(link->why), format, args);
	va_end(args);
	link->status = status;
	store_release(&link->state, LINK_DOWN);
	queue_tell(&vq->queue, NEWS_LINK);
}

static uint64_t patience_ends(void)
{
	return clock_ns() + PATIENCE_S * 1000000000ull;
}

/* ---- what is said ---- */

static struct cm_words words_make(enum cm_reason reason, const uint8_t to[8], const uint8_t from[8])
{
	struct cm_words words = {.version = CM_VERSION, .reason = (uint8_t)reason};

	memcpy(words.magic, magic, sizeof(magic));
	memcpy(words.to, to, sizeof(words.to));
	memcpy(words.from, from, sizeof(words.from));
	return words;
}

/* False: it is not ours. A device may add zeros behind what was said. */
static bool words_read(const struct heard *heard, struct cm_words *words)
{
	if (heard->n_words < sizeof(*words))
		return false;
	memcpy(words, heard->words, sizeof(*words));
	return !memcmp(words->magic, magic, sizeof(magic)) && words->version == CM_VERSION;
}

static bool same_token(const uint8_t a[8], const uint8_t b[8])
{
	return !memcmp(a, b, 8);
}

static struct rdma_conn_param conn_param(const struct verbs_queue *vq, const struct cm_words *words)
{
	const struct vbn_queue_conf *conf = &vq->queue.conf;

	return (struct rdma_conn_param){
		.private_data = words,
		.private_data_len = sizeof(*words),
		.responder_resources = (uint8_t)min(conf->max_peer_reads.value, 254u),
		.initiator_depth = (uint8_t)min(rdma_reads(conf, &vq->peer), 254u),
		.srq = conf->srq != NULL,
		.qp_num = vq->qp->qp_num,
	};
}

/* ---- being called ---- */

static void refuse(struct verbs_cm *cm, struct rdma_cm_id *id, const struct cm_words *asked,
	enum cm_reason reason)
{
	struct cm_words words = words_make(reason, asked->from, asked->to);

	count_add(&cm->counts[reason == CM_LATE ? CM_TOO_LATE : CM_STRANGERS], 1);
	rdma_reject(id, &words, sizeof(words));
	rdma_destroy_id(id);
}

static struct verbs_queue *find(const struct verbs_cm *cm, const uint8_t token[8])
{
	for (struct vbn_queue *queue = cm->port->rdma.port.queues; queue; queue = queue->next)
		if (same_token(verbs_queue(queue)->link->own.token, token))
			return verbs_queue(queue);
	return NULL;
}

static void take_call(struct verbs_queue *vq, struct rdma_cm_id *id)
{
	struct verbs_link *link = vq->link;
	struct cm_words words = words_make(CM_CALL, link->peer.token, link->own.token);
	struct rdma_conn_param param = conn_param(vq, &words);
	char text[80];

	id->context = vq;
	link->id = id;
	if (rdma_accept(id, &param))
		link_down(vq, VBN_RETRY_EXCEEDED,
			"the call of its peer at %s could not be taken (%s): has it given up? Reset both ends and connect them again",
			name_text(&link->peer, text), strerror(errno));
}

/* The peer that the queue expects, which is the one to call. */
static bool is_expected(const struct verbs_link *link, const struct cm_words *words)
{
	return link->state == LINK_TRYING && !link->id &&
		same_token(link->peer.token, words->from) &&
		memcmp(&link->peer, &link->own, sizeof(link->own)) < 0;
}

static bool keep_call(struct verbs_cm *cm, struct rdma_cm_id *id, const struct cm_words *words)
{
	struct call_kept *call;

	for (call = cm->kept; call; call = call->next)
		if (same_token(call->words.to, words->to))
			return false; /* one is enough: only who has the address can call */
	call = malloc(sizeof(*call));
	if (!call)
		return false;
	*call = (struct call_kept){
		.id = id, .words = *words, .deadline = patience_ends(), .next = cm->kept};
	cm->kept = call;
	vbn__cm_tick(cm, true);
	return true;
}

/* The kept call for this queue, taken out; NULL: there is none. */
static struct call_kept *kept_for(struct verbs_cm *cm, const uint8_t token[8])
{
	for (struct call_kept **at = &cm->kept; *at; at = &(*at)->next) {
		struct call_kept *call = *at;

		if (same_token(call->words.to, token)) {
			*at = call->next;
			return call;
		}
	}
	return NULL;
}

static void called(struct verbs_cm *cm, const struct heard *heard)
{
	struct cm_words words = {0};
	struct verbs_queue *vq = NULL;

	heard->id->context = NULL;
	if (words_read(heard, &words) && words.reason == CM_CALL)
		vq = find(cm, words.to);
	if (vq && is_expected(vq->link, &words))
		take_call(vq, heard->id);
	else if (!vq || vq->link->state != LINK_NONE || !keep_call(cm, heard->id, &words))
		refuse(cm, heard->id, &words, CM_STRANGER);
}

/* ---- calling ---- */

static int cannot_call(const struct verbs_queue *vq, const char *verb)
{
	char text[80];

	return fail(errno, "queue %s/%u cannot be connected: %s of its peer's address, %s: %s",
		vq->queue.port->info.name, vq->queue.number, verb, name_text(&vq->link->peer, text),
		strerror(errno));
}

static int start_call(struct verbs_queue *vq)
{
	struct verbs_cm *cm = cm_of(vq);
	struct verbs_link *link = vq->link;
	struct sockaddr_storage from = cm->address, to;

	address_of(&link->peer, &to);
	if (from.ss_family != to.ss_family)
		return fail(EAFNOSUPPORT,
			"queue %s/%u cannot be connected: one end has an IPv4 address and the other IPv6: give both interfaces addresses of the same kind",
			vq->queue.port->info.name, vq->queue.number);
	if (rdma_create_id(cm->channel, &link->id, vq, RDMA_PS_TCP)) {
		link->id = NULL;
		return cannot_call(vq, "rdma_create_id");
	}
	if (rdma_resolve_addr(
		    link->id, (struct sockaddr *)&from, (struct sockaddr *)&to, RESOLVE_MS)) {
		int ret = cannot_call(vq, "rdma_resolve_addr");

		rdma_destroy_id(link->id);
		link->id = NULL;
		return ret;
	}
	return 0;
}

static void call(struct verbs_queue *vq)
{
	struct verbs_link *link = vq->link;
	struct cm_words words = words_make(CM_CALL, link->peer.token, link->own.token);
	struct rdma_conn_param param = conn_param(vq, &words);
	char text[80];

	if (!vbn__cm_is_here(cm_of(vq), link->id))
		link_down(vq, VBN_RETRY_EXCEEDED,
			"the way to its peer at %s leads through another device: check the host's routes",
			name_text(&link->peer, text));
	else if (rdma_connect(link->id, &param))
		link_down(vq, VBN_RETRY_EXCEEDED,
			"its peer at %s does not take the connection (%s): is its process running, and the way there open?",
			name_text(&link->peer, text), strerror(errno));
}

/* ---- what comes of a connection ---- */

static void answered(struct verbs_queue *vq, const struct heard *heard)
{
	struct verbs_link *link = vq->link;
	const bool called_by_us = memcmp(&link->own, &link->peer, sizeof(link->own)) < 0;
	struct cm_words words;
	char text[80];

	if (called_by_us &&
		(!words_read(heard, &words) || !same_token(words.to, link->own.token) ||
			!same_token(words.from, link->peer.token)))
		link_down(vq, VBN_REMOTE_INVALID,
			"who took the call at %s is not the queue of that address: exchange addresses of this run",
			name_text(&link->peer, text));
	else if (link->state == LINK_TRYING)
		link_up(vq);
}

static void rejected(struct verbs_queue *vq, const struct heard *heard)
{
	struct cm_words words = {0};
	const bool ours = words_read(heard, &words);
	char text[80];

	link_down(vq, VBN_REMOTE_ABORTED, "its peer at %s refused the connection: %s",
		name_text(&vq->link->peer, text),
		!ours ? "nobody of ours answers there: exchange addresses of this run"
			: words.reason == CM_LATE
			? "its end was not connected in time: both ends must call vbn_queue_connect() within 10 s"
			: "no queue there has the address, or it was connected to another peer: exchange addresses of this run");
}

/* Status is the kernel's: an errno, negated. */
static void broke_off(struct verbs_queue *vq, const struct heard *heard)
{
	const int error = heard->status < 0 ? -heard->status : heard->status;
	char text[80];

	link_down(vq, VBN_RETRY_EXCEEDED,
		"no connection to its peer at %s came about (%s, %s): both ends must call vbn_queue_connect() within 10 s, and the way between them be open",
		name_text(&vq->link->peer, text), rdma_event_str(heard->type),
		error ? strerror(error) : "no more is known");
}

void vbn__cm_hear(struct verbs_cm *cm, const struct heard *heard)
{
	struct verbs_queue *vq = heard->id->context;
	char text[80];

	if (heard->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		called(cm, heard);
		return;
	}
	if (!vq)
		return; /* the listener, or a call that is kept: nothing can be done about it */
	switch (heard->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(heard->id, RESOLVE_MS))
			broke_off(vq,
				&(struct heard){
					RDMA_CM_EVENT_ROUTE_ERROR, -errno, heard->id, {0}, 0});
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED: call(vq); return;
	case RDMA_CM_EVENT_ESTABLISHED: answered(vq, heard); return;
	case RDMA_CM_EVENT_REJECTED: rejected(vq, heard); return;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE: broke_off(vq, heard); return;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		link_down(vq, VBN_REMOTE_ABORTED,
			"its connection to %s has ended: the peer's queue or process is gone, or one end broke a rule (a message without a receive posted for it, or an access that is not allowed)",
			name_text(&vq->link->peer, text));
		return;
	default:
		log_debug(
			"port %s: %s", cm->port->rdma.port.info.name, rdma_event_str(heard->type));
	}
}

/* ---- time ---- */

static bool look_at_kept(struct verbs_cm *cm, uint64_t now)
{
	for (struct call_kept **at = &cm->kept; *at;) {
		struct call_kept *call = *at;

		if (now < call->deadline) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		refuse(cm, call->id, &call->words, CM_LATE);
		free(call);
	}
	return cm->kept;
}

/* Of a call that this end makes the device says how it went. */
static bool look_at_queues(struct verbs_cm *cm, uint64_t now)
{
	bool waiting = false;
	char text[80];

	for (struct vbn_queue *queue = cm->port->rdma.port.queues; queue; queue = queue->next) {
		struct verbs_queue *vq = verbs_queue(queue);

		if (vq->link->state != LINK_TRYING)
			continue;
		if (now >= vq->link->deadline)
			link_down(vq, VBN_RETRY_EXCEEDED,
				"its peer at %s did not call within %d s: both ends must call vbn_queue_connect() within that time",
				name_text(&vq->link->peer, text), PATIENCE_S);
		else
			waiting = true;
	}
	return waiting;
}

bool vbn__cm_look(struct verbs_cm *cm, uint64_t now)
{
	const bool kept = look_at_kept(cm, now);

	return look_at_queues(cm, now) || kept;
}

void vbn__cm_drop_kept(struct verbs_cm *cm)
{
	while (cm->kept) {
		struct call_kept *call = cm->kept;

		cm->kept = call->next;
		rdma_destroy_id(call->id);
		free(call);
	}
}

/* ---- a queue's ---- */

int vbn__cm_connect(struct verbs_queue *vq)
{
	struct verbs_cm *cm = cm_of(vq);
	struct verbs_link *link = vq->link;
	const int order = memcmp(&link->own, &link->peer, sizeof(link->own));
	struct call_kept *call;
	int ret = 0;

	if (!order)
		return fail(EINVAL,
			"queue %s/%u cannot be connected to itself: iWARP connects two ends",
			vq->queue.port->info.name, vq->queue.number);
	if (order < 0)
		ret = start_call(vq);
	if (ret)
		return ret;
	link->deadline = patience_ends() + (order < 0 ? CALL_MORE_S * 1000000000ull : 0);
	store_release(&link->state, LINK_TRYING);
	call = kept_for(cm, link->own.token);
	if (call && is_expected(link, &call->words))
		take_call(vq, call->id);
	else if (call)
		refuse(cm, call->id, &call->words, CM_STRANGER);
	free(call);
	vbn__cm_tick(cm, true);
	return 0;
}

void vbn__cm_end(struct verbs_queue *vq)
{
	struct verbs_cm *cm = cm_of(vq);
	struct verbs_link *link = vq->link;
	struct call_kept *call = kept_for(cm, link->own.token);

	if (call)
		refuse(cm, call->id, &call->words, CM_LATE);
	free(call);
	if (link->id)
		rdma_destroy_id(link->id);
	link->id = NULL;
	store_release(&link->state, LINK_NONE);
}
