/* status_json.c - the devices of the process and what lives on them, as JSON */
#include "vhca/status.h"

#include "vhca/doze.h"
#include "vhca/raw.h"
#include "vhca/steer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- text ---- */

static bool text_fits(struct vhca_text *text, size_t more)
{
	size_t room = max(text->room, (size_t)1024);
	char *grown;

	while (room < text->n + more)
		room *= 2;
	if (room == text->room)
		return true;
	grown = realloc(text->at, room);
	if (!grown) {
		text->failed = true;
		return false;
	}
	text->at = grown;
	text->room = room;
	return true;
}

void vhca_text_add(struct vhca_text *text, const char *fmt, ...)
{
	va_list args, again;
	int n;

	va_start(args, fmt);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, fmt, args);
	if (n >= 0 && text_fits(text, (size_t)n + 1)) {
		vsnprintf(text->at + text->n, (size_t)n + 1, fmt, again);
		text->n += (size_t)n;
	}
	va_end(again);
	va_end(args);
}

/* Between elements of a list; the first has none before it. */
static const char *comma(struct vhca_text *text)
{
	return text->n && text->at[text->n - 1] != '[' && text->at[text->n - 1] != '{' ? "," : "";
}

static void add_string(struct vhca_text *text, const char *string)
{
	vhca_text_add(text, "\"");
	for (; *string; string++) {
		unsigned char c = (unsigned char)*string;

		if (c == '"' || c == '\\')
			vhca_text_add(text, "\\%c", c);
		else if (c < 32 || c > 126)
			vhca_text_add(text, "\\u%04x", c);
		else
			vhca_text_add(text, "%c", c);
	}
	vhca_text_add(text, "\"");
}

/* ---- objects ---- */

typedef void add_fn(struct vhca_text *text, const struct vhca_object *object);

static const char *state_name(uint8_t state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	return state < ARRAY_SIZE(names) ? names[state] : "?";
}

static const char *type_name(uint8_t type)
{
	switch (type) {
	case IBV_QPT_RC: return "RC";
	case IBV_QPT_UC: return "UC";
	case IBV_QPT_UD: return "UD";
	case IBV_QPT_RAW_PACKET: return "RAW";
	default: return "?";
	}
}

static void add_gid_text(struct vhca_text *text, const uint8_t raw[16])
{
	char address[INET6_ADDRSTRLEN] = "";

	inet_ntop(AF_INET6, raw, address, sizeof(address));
	vhca_text_add(text, "\"%s\"", address);
}

static void add_qp(struct vhca_text *text, const struct vhca_object *object)
{
	const struct vhca_qp *qp = container_of(object, struct vhca_qp, object);

	vhca_text_add(text, "%s{\"number\":%u,\"type\":\"%s\",\"state\":\"%s\"", comma(text),
		qp->number, type_name(qp->type), state_name(qp->state));
	if ((qp->type == IBV_QPT_RC || qp->type == IBV_QPT_UC) && qp->state >= IBV_QPS_RTR) {
		vhca_text_add(text, ",\"peer\":%u,\"peer_gid\":", qp->set.dest_qp_num);
		add_gid_text(text, qp->set.ah_attr.grh.dgid.raw);
	}
	vhca_text_add(text, ",\"sq_size\":%u,\"sq_posted\":%u,\"sq_done\":%u",
		qp->attr.sq_wqe_count, qp->sq_pi, qp->sq_ci);
	vhca_text_add(text, ",\"rq_size\":%u,\"rq_posted\":%u,\"rq_done\":%u",
		qp->attr.rq_wqe_count, qp->rq_pi, qp->rq_ci);
	if (qp->send_cq)
		vhca_text_add(text, ",\"send_cq\":%u", qp->send_cq->number);
	if (qp->recv_cq)
		vhca_text_add(text, ",\"recv_cq\":%u", qp->recv_cq->number);
	if (qp->srq)
		vhca_text_add(text, ",\"srq\":%u", qp->srq->number);
	if (qp->wq)
		vhca_text_add(text, ",\"wq\":%u", qp->wq->queue.number);
	vhca_text_add(text, "}");
}

static void add_wq(struct vhca_text *text, const struct vhca_wq *wq)
{
	const struct vhca_qp *queue = &wq->queue;

	vhca_text_add(text,
		"%s{\"number\":%u,\"state\":\"%s\",\"size\":%u,\"posted\":%u,\"done\":%u,"
		"\"cq\":%u,\"frames\":%llu,\"bytes\":%llu,\"out_of_buffer\":%llu}",
		comma(text), queue->number, state_name(queue->state), queue->rq_mask + 1,
		queue->rq_pi, queue->rq_ci, queue->recv_cq->number,
		(unsigned long long)wq->received, (unsigned long long)wq->bytes,
		(unsigned long long)wq->out_of_buffer);
}

/* A raw QP's own as well. */
static void add_wqs(struct vhca_text *text, const struct vhca_device *device)
{
	const struct vhca_numbers *wqs = &device->tables->wqs;

	vhca_text_add(text, ",\"wqs\":[");
	for (uint32_t i = 0; i < wqs->n; i++)
		if (wqs->object[i])
			add_wq(text, wqs->object[i]);
	vhca_text_add(text, "]");
}

static void add_rqts(struct vhca_text *text, const struct vhca_device *device)
{
	const struct vhca_numbers *rqts = &device->tables->rqts;

	vhca_text_add(text, ",\"rqts\":[");
	for (uint32_t i = 0; i < rqts->n; i++) {
		const struct vhca_rqt *rqt = rqts->object[i];

		if (!rqt)
			continue;
		vhca_text_add(text, "%s{\"number\":%u,\"wqs\":[", comma(text), rqt->number);
		for (uint32_t at = 0; at < rqt->n; at++)
			vhca_text_add(text, "%s%u", comma(text), rqt->wq[at]->queue.number);
		vhca_text_add(text, "]}");
	}
	vhca_text_add(text, "]");
}

static const char *action_name(enum vhca_steer_action action)
{
	switch (action) {
	case VHCA_STEER_TO_TIR: return "receive";
	case VHCA_STEER_DROP: return "drop";
	default: return "host";
	}
}

/* How many bits of a frame's headers it looks at, where the fields would be too much to say. */
static uint32_t mask_bits(const struct vhca_match *mask)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(mask->words); i++)
		n += (uint32_t)__builtin_popcountll(mask->words[i]);
	return n;
}

static void add_flow(void *arg, const struct vhca_steer_attr *attr)
{
	static const char *const classes[] = {"normal", "multicast", "rest"};
	struct vhca_text *text = arg;

	vhca_text_add(text, "%s{\"class\":\"%s\",\"priority\":%u,\"bits\":%u,\"action\":\"%s\"",
		comma(text), classes[attr->class], attr->priority, mask_bits(&attr->mask),
		action_name(attr->action));
	if (attr->tir && attr->tir->attr.wq)
		vhca_text_add(text, ",\"wq\":%u", attr->tir->attr.wq->queue.number);
	if (attr->tir && attr->tir->attr.rqt)
		vhca_text_add(text, ",\"rqt\":%u", attr->tir->attr.rqt->number);
	if (attr->tagged)
		vhca_text_add(text, ",\"tag\":%u", attr->tag);
	if (attr->tally)
		vhca_text_add(text, ",\"packets\":%llu,\"bytes\":%llu",
			(unsigned long long)attr->tally->packets,
			(unsigned long long)attr->tally->bytes);
	vhca_text_add(text, "}");
}

static void add_flows(struct vhca_text *text, const struct vhca_device *device)
{
	vhca_text_add(text, ",\"flows\":[");
	vhca_steer_each(device, add_flow, text);
	vhca_text_add(text, "]");
}

static void add_cq(struct vhca_text *text, const struct vhca_object *object)
{
	const struct vhca_cq *cq = container_of(object, struct vhca_cq, object);

	vhca_text_add(text,
		"%s{\"number\":%u,\"entries\":%u,\"entry_bytes\":%u,\"written\":%u,\"armed\":%s,"
		"\"overrun\":%s}",
		comma(text), cq->number, cq->mask + 1, 1u << cq->log2_size, cq->pi,
		cq->arm == VHCA_UNARMED ? "false" : "true", cq->dead ? "true" : "false");
}

static void add_srq(struct vhca_text *text, const struct vhca_object *object)
{
	const struct vhca_srq *srq = container_of(object, struct vhca_srq, object);

	vhca_text_add(text, "%s{\"number\":%u,\"size\":%u,\"posted\":%u,\"taken\":%u}", comma(text),
		srq->number, srq->n_wqe, srq->posted, srq->taken);
}

static void add_mr(struct vhca_text *text, const struct vhca_object *object)
{
	const struct vhca_mr *mr = container_of(object, struct vhca_mr, object);

	vhca_text_add(text,
		"%s{\"key\":%u,\"address\":%llu,\"length\":%llu,\"access\":%u,\"pd\":%u}",
		comma(text), mr->key, (unsigned long long)mr->iova, (unsigned long long)mr->length,
		mr->access, mr->pd->pdn);
}

static void add_objects(struct vhca_text *text, const struct vhca_device *device, const char *name,
	enum vhca_kind kind, add_fn *add)
{
	vhca_text_add(text, ",\"%s\":[", name);
	for (const struct vhca_context *context = device->contexts; context;
		context = context->next)
		for (const struct vhca_object *object = context->objects; object;
			object = object->next)
			if (object->kind == kind)
				add(text, object);
	vhca_text_add(text, "]");
}

/* ---- devices ---- */

static void add_gids(struct vhca_text *text, const struct vhca_device *device)
{
	static const uint8_t none[16];

	vhca_text_add(text, ",\"gids\":[");
	for (int i = 0; i < VHCA_N_GIDS; i++) {
		const struct vhca_gid *gid = &device->gids[i];

		if (!memcmp(gid->raw, none, sizeof(none)))
			continue;
		vhca_text_add(text, "%s{\"index\":%d,\"gid\":", comma(text), i);
		add_gid_text(text, gid->raw);
		vhca_text_add(text, ",\"type\":\"%s\"", gid->type ? "v2" : "v1");
		if (gid->vlan)
			vhca_text_add(text, ",\"vlan\":%u", gid->vlan);
		vhca_text_add(text, "}");
	}
	vhca_text_add(text, "]");
}

static void add_counters(struct vhca_text *text, const struct vhca_counters *counters)
{
	vhca_text_add(text, ",\"counters\":{");
#define ADD_COUNTER(name_)                                        \
	vhca_text_add(text, "%s\"" #name_ "\":%llu", comma(text), \
		(unsigned long long)vhca_counter_shown(#name_, load_once(&counters->name_)));
	VHCA_PORT_COUNTERS(ADD_COUNTER)
	VHCA_HW_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
	vhca_text_add(text, "}");
}

static void add_raw_counters(struct vhca_text *text, const struct vhca_raw_counters *counters)
{
	vhca_text_add(text, ",\"raw\":{");
#define ADD_COUNTER(name_) \
	vhca_text_add(     \
		text, "%s\"" #name_ "\":%llu", comma(text), (unsigned long long)counters->name_);
	VHCA_RAW_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
	vhca_text_add(text, "}");
}

/* Those that are not 0: most are faults of peers. */
static void add_wire_counters(struct vhca_text *text, const struct vhca_wire *wire)
{
	const char *name;
	uint64_t value;

	vhca_text_add(text, ",\"wire_counters\":{");
	for (size_t i = 0; wire->ops->counter && (name = wire->ops->counter(wire, i, &value)); i++)
		if (value)
			vhca_text_add(text, "%s\"%s\":%llu", comma(text), name,
				(unsigned long long)value);
	vhca_text_add(text, "}");
}

static void add_device(struct vhca_text *text, struct vhca_device *device)
{
	int n_contexts = 0;

	vhca_lock(device);
	for (const struct vhca_context *context = device->contexts; context;
		context = context->next)
		n_contexts++;
	vhca_text_add(text,
		"%s{\"name\":\"%s\",\"profile\":\"%s\",\"wire\":\"%s\",\"state\":\"%s\",\"mtu\":%d,"
		"\"speed_gbit\":%d,\"node\":%d,\"contexts\":%d",
		comma(text), device->name, device->facts->name, device->wire->ops->name,
		device->fatal             ? "FATAL"
			: device->port_up ? "ACTIVE"
					  : "DOWN",
		128 << device->mtu, device->options->speed, device->options->node, n_contexts);
	add_gids(text, device);
	add_objects(text, device, "qps", VHCA_QP, add_qp);
	add_objects(text, device, "cqs", VHCA_CQ, add_cq);
	add_objects(text, device, "srqs", VHCA_SRQ, add_srq);
	add_objects(text, device, "mrs", VHCA_MR, add_mr);
	add_wqs(text, device);
	add_rqts(text, device);
	add_flows(text, device);
	add_counters(text, &device->counters);
	add_raw_counters(text, &device->raw);
	add_wire_counters(text, device->wire);
	vhca_unlock(device);
	vhca_text_add(text, "}");
}

static void add_rules(struct vhca_text *text)
{
	vhca_text_add(text, ",\"rules\":{");
	for (int i = 0; i < VHCA_N_RULES; i++) {
		const char *name;
		uint64_t n = vhca_rule_breaches((enum vhca_rule)i, &name);

		if (n)
			vhca_text_add(
				text, "%s\"%s\":%llu", comma(text), name, (unsigned long long)n);
	}
	vhca_text_add(text, "}");
}

/* How the engine idles: what was asked for, what holds, and why that is not the same. */
static void add_idle(struct vhca_text *text)
{
	const char *refused = vhca_doze_refused();

	vhca_text_add(text, ",\"idle\":{\"asked\":\"%s\",\"is\":\"%s\",\"dozes\":%llu",
		vhca_options()->doze ? "doze" : "nap", refused ? "nap" : "doze",
		(unsigned long long)vhca_doze_count());
	if (refused && vhca_options()->doze) {
		vhca_text_add(text, ",\"why\":");
		add_string(text, refused);
	}
	vhca_text_add(text, "}");
}

/* The program's command line, its arguments parted by blanks. */
static void command_line(char *line, size_t size)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, line, size - 1);

	if (fd >= 0)
		close(fd);
	n = max(n, (ssize_t)0);
	while (n && !line[n - 1])
		n--;
	for (ssize_t i = 0; i < n; i++)
		if (!line[i])
			line[i] = ' ';
	line[n] = '\0';
}

void vhca_status_json(struct vhca_text *text)
{
	char line[1024];

	command_line(line, sizeof(line));
	vhca_text_add(text, "{\"pid\":%d,\"command\":", getpid());
	add_string(text, line);
	vhca_text_add(text, ",\"version\":\"" VHCA_VERSION "\",\"devices\":[");
	for (int i = 0; i < vhca_n_devices(); i++)
		add_device(text, vhca_device(i));
	vhca_text_add(text, "]");
	add_idle(text);
	add_rules(text);
	vhca_text_add(text, "}\n");
}
