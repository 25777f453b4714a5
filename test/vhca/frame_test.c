/* frame_test.c - what a port sends as Ethernet frames: VLAN tags, RoCEv1, addresses that come, and
 * gateways
 *
 * Two devices are behind the near end of network.h's link, and hear each other by what comes back.
 */

#include "network.h"

#include "vhca/route.h"

#include "../unit/vhca_ask.h"

#include <cmocka.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	BYTES = 8192,
	/* where the options' addresses are in the tables */
	GID_LINK_LOCAL_V1 = 0,
	GID_LINK_LOCAL_V2 = 1,
	GID_IPV4_V1 = 2,
	GID_IPV4_V2 = 3,
	GID_IPV6_V2 = 5,
	GID_VLAN_V1 = 6,
	GID_VLAN_V2 = 7,
	VLAN = 7,
	QKEY = 0x1234,
	GRH = 40,
};

/* ---- two devices ---- */

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory;
};

static struct end ends[2];

static void open_end(struct end *end, struct ibv_device *device)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_CVLAN};

	end->context = ibv_open_device(device);
	assert_non_null(end->context);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq_ex(end->context, &attr);
	end->memory = aligned_alloc(4096, BYTES);
	assert_true(end->pd && end->cq && end->memory);
	end->mr = ibv_reg_mr(
		end->pd, end->memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(end->mr);
}

static int open_ends(void **state)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	(void)state;
	assert_true(list && n == 2);
	for (int i = 0; i < 2; i++)
		open_end(&ends[i], list[i]);
	ibv_free_device_list(list);
	return 0;
}

static int close_ends(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		ibv_dereg_mr(ends[i].mr);
		ibv_destroy_cq(ibv_cq_ex_to_cq(ends[i].cq));
		ibv_dealloc_pd(ends[i].pd);
		ibv_close_device(ends[i].context);
		free(ends[i].memory);
	}
	return 0;
}

static void make_qp(struct end *end, enum ibv_qp_type type)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(end->cq);
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = type,
		.sq_sig_all = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	end->qp = ibv_create_qp(end->pd, &init);
	assert_non_null(end->qp);
	assert_int_equal(ibv_modify_qp(end->qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
		0);
}

static union ibv_gid gid_of(const struct end *end, int index)
{
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(end->context, 1, index, &gid), 0);
	return gid;
}

static struct ibv_ah_attr way_to(union ibv_gid gid, int source, uint8_t sl, uint8_t traffic_class)
{
	return (struct ibv_ah_attr){.is_global = 1,
		.port_num = 1,
		.sl = sl,
		.grh = {.dgid = gid,
			.sgid_index = (uint8_t)source,
			.hop_limit = 64,
			.traffic_class = traffic_class}};
}

static void to_ready(
	struct end *end, enum ibv_qp_type type, const struct ibv_ah_attr *way, uint32_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1};

	if (way)
		attr.ah_attr = *way;
	assert_int_equal(ibv_modify_qp(end->qp, &attr,
				 type == IBV_QPT_UD ? IBV_QP_STATE
						    : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1};
	assert_int_equal(
		ibv_modify_qp(end->qp, &attr,
			type == IBV_QPT_UD ? IBV_QP_STATE | IBV_QP_SQ_PSN
					   : IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

static void connect_ends(int index, uint8_t sl, uint8_t traffic_class)
{
	for (int i = 0; i < 2; i++)
		make_qp(&ends[i], IBV_QPT_RC);
	for (int i = 0; i < 2; i++) {
		struct ibv_ah_attr way = way_to(gid_of(&ends[!i], index), index, sl, traffic_class);

		to_ready(&ends[i], IBV_QPT_RC, &way, ends[!i].qp->qp_num);
	}
}

static void drop_qps(void)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(ends[i].qp), 0);
		ends[i].qp = NULL;
	}
}

static void post_receive(struct end *end)
{
	struct ibv_sge sge = {(uintptr_t)end->memory, BYTES, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

struct completion {
	enum ibv_wc_status status;
	uint32_t length;
	uint16_t vlan;
	uint8_t sl;
};

/* False: none came in that time. */
static bool wait_completion(struct end *end, double time, struct completion *completion)
{
	struct ibv_poll_cq_attr attr = {0};
	double deadline = seconds() + time;
	int error;

	while ((error = ibv_start_poll(end->cq, &attr)) == ENOENT)
		if (seconds() > deadline)
			return false;
	assert_int_equal(error, 0);
	completion->status = end->cq->status;
	completion->length = ibv_wc_read_byte_len(end->cq);
	completion->vlan = ibv_wc_read_cvlan(end->cq);
	completion->sl = ibv_wc_read_sl(end->cq);
	ibv_end_poll(end->cq);
	return true;
}

static struct completion expect_completion(struct end *end)
{
	struct completion completion;

	if (!wait_completion(end, 20, &completion))
		fail_msg("nothing completes");
	assert_string_equal(ibv_wc_status_str(completion.status), "success");
	return completion;
}

static void post_send(struct end *end, uint32_t length, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_sge sge = {(uintptr_t)end->memory, length, end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
			   *bad;

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = QKEY;
	}
	assert_int_equal(ibv_post_send(end->qp, &wr, &bad), 0);
}

/* One message of three packets goes over, and all frames of it are of that kind. Of a pair before, a
 * frame may still come that was sent again. */
static void expect_frames(int gid, uint8_t sl, uint8_t traffic_class, uint16_t type, uint16_t tag)
{
	size_t n_roce = 0;

	forget_frames(false);
	connect_ends(gid, sl, traffic_class);
	for (size_t i = 0; i < BYTES; i++)
		ends[0].memory[i] = (uint8_t)(i * 7 + (unsigned int)gid);
	memset(ends[1].memory, 0, BYTES);
	post_receive(&ends[1]);
	post_send(&ends[0], 2500, NULL, 0);
	expect_completion(&ends[0]);
	assert_int_equal(expect_completion(&ends[1]).length, 2500);
	assert_memory_equal(ends[1].memory, ends[0].memory, 2500);
	pthread_mutex_lock(&net.lock);
	for (size_t i = 0; i < net.n; i++) {
		const struct frame *frame = &net.frames[i];
		const uint8_t *ip = inside(frame);

		if (!is_roce(frame)) {
			assert_int_equal(tag_of(frame) & 0xfff, tag & 0xfff);
			continue;
		}
		if (qpn_of(frame) != ends[0].qp->qp_num && qpn_of(frame) != ends[1].qp->qp_num)
			continue;
		n_roce++;
		assert_int_equal(type_of(frame), type);
		assert_int_equal(tag_of(frame), tag);
		assert_int_equal(type == TYPE_IPV4 ? ip[1] : (uint8_t)(ip[0] << 4 | ip[1] >> 4),
			traffic_class);
	}
	pthread_mutex_unlock(&net.lock);
	assert_true(n_roce >= 4); /* and what acknowledges */
	drop_qps();
}

/* ---- what a GID makes of a frame ---- */

static void test_a_plain_gid_is_sent_untagged(void **state)
{
	(void)state;
	expect_frames(GID_IPV4_V2, 5, 0x68, TYPE_IPV4, 0);
	expect_frames(GID_IPV6_V2, 5, 0x68, TYPE_IPV6, 0);
	expect_frames(GID_LINK_LOCAL_V2, 0, 0, TYPE_IPV6, 0);
}

static void test_a_vlan_is_a_tag_with_the_priority(void **state)
{
	(void)state;
	expect_frames(GID_VLAN_V2, 5, 0x10, TYPE_IPV4, 5 << 13 | VLAN);
	expect_frames(GID_VLAN_V2, 0, 0, TYPE_IPV4, VLAN);
	expect_frames(GID_VLAN_V1, 3, 0x20, TYPE_ROCE, 3 << 13 | VLAN);
}

static void test_version_1_is_another_ethertype(void **state)
{
	(void)state;
	expect_frames(GID_LINK_LOCAL_V1, 0, 0x44, TYPE_ROCE, 0);
	expect_frames(GID_IPV4_V1, 0, 0, TYPE_ROCE, 0);
}

/* ---- datagrams ---- */

static struct ibv_ah *make_way(struct end *from, union ibv_gid gid, int index, uint8_t sl)
{
	struct ibv_ah_attr attr = way_to(gid, index, sl, 0);
	struct ibv_ah *ah = ibv_create_ah(from->pd, &attr);

	assert_non_null(ah);
	return ah;
}

static void make_datagram_qps(void)
{
	for (int i = 0; i < 2; i++) {
		make_qp(&ends[i], IBV_QPT_UD);
		to_ready(&ends[i], IBV_QPT_UD, NULL, 0);
	}
}

static void expect_datagram(int gid, uint8_t kind, uint16_t tag, uint8_t sl)
{
	struct ibv_ah *ah = make_way(&ends[0], gid_of(&ends[1], gid), gid, sl);
	struct completion completion;

	post_receive(&ends[1]);
	post_send(&ends[0], 100, ah, ends[1].qp->qp_num);
	expect_completion(&ends[0]);
	completion = expect_completion(&ends[1]);
	assert_int_equal(completion.length, GRH + 100);
	assert_int_equal(completion.vlan, tag);
	assert_int_equal(completion.sl, kind); /* what a device tells there on Ethernet */
	assert_memory_equal(ends[1].memory + GRH, ends[0].memory, 100);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void test_a_cqe_tells_of_the_tag(void **state)
{
	enum { V1, V2_IPV6, V2_IPV4 };

	(void)state;
	forget_frames(false);
	make_datagram_qps();
	expect_datagram(GID_VLAN_V2, V2_IPV4, 6 << 13 | VLAN, 6);
	expect_datagram(GID_VLAN_V1, V1, VLAN, 0);
	expect_datagram(GID_IPV4_V2, V2_IPV4, 0, 6);
	expect_datagram(GID_IPV6_V2, V2_IPV6, 0, 0);
	drop_qps();
}

/* What the two devices together have counted by that name. */
static unsigned long counted(const char *name)
{
	static char status[1 << 16];
	unsigned long sum = 0;
	char key[64];

	vhca_ask("status", status, sizeof(status));
	snprintf(key, sizeof(key), "\"%s\":", name);
	for (const char *at = status; (at = strstr(at, key)); at += strlen(key))
		sum += strtoul(at + strlen(key), NULL, 10);
	return sum;
}

static void expect_counted(const char *name, unsigned long wanted)
{
	double deadline = seconds() + 10;

	while (counted(name) < wanted && seconds() < deadline)
		usleep(1000);
	assert_int_equal(counted(name), wanted);
}

/* The tag is not in the ICRC, so that a frame can be moved to another VLAN. */
static void test_frames_of_other_vlans_are_not_received(void **state)
{
	struct completion completion;
	struct frame frame, other;
	unsigned long before;
	struct ibv_ah *ah;

	(void)state;
	make_datagram_qps();
	forget_frames(false);
	expect_datagram(GID_VLAN_V2, 2, VLAN, 0); /* and the MAC is known now */
	forget_frames(true);
	ah = make_way(&ends[0], gid_of(&ends[1], GID_VLAN_V2), GID_VLAN_V2, 0);
	post_receive(&ends[1]);
	post_send(&ends[0], 100, ah, ends[1].qp->qp_num);
	expect_completion(&ends[0]);
	frame = wait_frame(true, TYPE_IPV4, 0);

	before = counted("rx_vlan");
	other = frame;
	put_word(other.bytes + 14, VLAN + 1);
	inject(&other);
	expect_counted("rx_vlan", before + 1);
	other = frame;
	memmove(other.bytes + 12, other.bytes + 16, other.size - 16);
	other.size -= 4;
	inject(&other);
	expect_counted("rx_vlan", before + 2);
	assert_false(wait_completion(&ends[1], 0.02, &completion));

	put_word(frame.bytes + 14, 4 << 13 | VLAN); /* of its own VLAN, of any priority */
	inject(&frame);
	assert_int_equal(expect_completion(&ends[1]).vlan, 4 << 13 | VLAN);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	drop_qps();
}

/* ---- P_Keys ---- */

/* The frame of the other partition, with an ICRC that is right. */
static void inject_of_partition(const struct frame *frame, uint16_t pkey)
{
	struct frame other = *frame;
	uint8_t *ip = other.bytes + (inside(frame) - frame->bytes), *bth = ip + 28;
	size_t size = (size_t)(word(ip + 2) - 28 - VHCA_ICRC_BYTES);

	put_word(bth + 2, pkey);
	vhca_icrc_write(vhca_icrc_of_headers(ip, 28), bth, size);
	inject(&other);
}

static void test_packets_of_other_partitions_are_not_received(void **state)
{
	struct completion completion;
	struct frame frame;
	unsigned long before;
	struct ibv_ah *ah;

	(void)state;
	make_datagram_qps();
	forget_frames(false);
	expect_datagram(GID_IPV4_V2, 2, 0, 0);
	forget_frames(true);
	ah = make_way(&ends[0], gid_of(&ends[1], GID_IPV4_V2), GID_IPV4_V2, 0);
	post_receive(&ends[1]);
	post_send(&ends[0], 100, ah, ends[1].qp->qp_num);
	expect_completion(&ends[0]);
	frame = wait_frame(true, TYPE_IPV4, 0);
	before = counted("rx_pkey");
	inject_of_partition(&frame, 0x8001);
	expect_counted("rx_pkey", before + 1);
	assert_false(wait_completion(&ends[1], 0.02, &completion));
	inject_of_partition(&frame, 0x7fff); /* a limited member of ours */
	expect_completion(&ends[1]);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	drop_qps();
}

/* ---- ways ---- */

static union ibv_gid ipv4_gid(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, a, b, c, d}};
}

static void expect_gateway(int gid, union ibv_gid to, const char gateway[4], uint16_t tag)
{
	struct ibv_ah *ah = make_way(&ends[0], to, gid, 0);
	struct frame question, frame;

	forget_frames(true);
	post_send(&ends[0], 100, ah, 0x123);
	expect_completion(&ends[0]);
	question = wait_frame(false, TYPE_ARP, 0);
	assert_memory_equal(inside(&question) + 24, gateway, 4);
	assert_memory_equal(inside(&question) + 14, gid_of(&ends[0], gid).raw + 12, 4);
	assert_int_equal(tag_of(&question), tag);
	answer_arp(&question);
	frame = wait_frame(true, TYPE_IPV4, 0);
	assert_memory_equal(frame.bytes, nowhere, 6);
	assert_memory_equal(inside(&frame) + 16, to.raw + 12, 4);
	assert_int_equal(tag_of(&frame), tag);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void test_what_is_beyond_the_link_goes_by_the_gateway(void **state)
{
	struct completion completion;
	struct ibv_ah *ah;

	(void)state;
	make_datagram_qps();
	expect_gateway(GID_IPV4_V2, ipv4_gid(10, 99, 0, 1), "\x0a\0\0\xfe", 0);
	expect_gateway(GID_VLAN_V2, ipv4_gid(10, 99, 0, 1), "\x0a\x07\0\xfd", VLAN);
	/* RoCEv1 has no way out of its link */
	ah = make_way(&ends[0], ipv4_gid(10, 99, 0, 1), GID_IPV4_V1, 0);
	forget_frames(true);
	post_send(&ends[0], 100, ah, 0x123);
	expect_completion(&ends[0]);
	assert_false(wait_completion(&ends[1], 0.02, &completion));
	pthread_mutex_lock(&net.lock);
	assert_int_equal(net.n, 0);
	pthread_mutex_unlock(&net.lock);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	drop_qps();
}

/* ---- addresses that come and go ---- */

static void ask_who_has(uint16_t tag, const char address[4])
{
	struct frame question = {.size = 42};
	uint8_t *arp = question.bytes + 14;

	memset(question.bytes, 0xff, 6);
	memcpy(question.bytes + 6, nowhere, 6);
	if (tag) {
		put_word(question.bytes + 12, TYPE_VLAN);
		put_word(question.bytes + 14, tag);
		question.size += 4;
		arp += 4;
	}
	put_word(arp - 2, TYPE_ARP);
	memcpy(arp, "\0\1\x08\0\6\4\0\1", 8);
	memcpy(arp + 8, nowhere, 6);
	memcpy(arp + 14, "\x0a\0\0\x63", 4);
	memcpy(arp + 24, address, 4);
	inject(&question);
}

static void expect_answer(uint16_t tag, const char address[4])
{
	struct frame answer;

	forget_frames(true);
	ask_who_has(tag, address);
	answer = wait_frame(false, TYPE_ARP, 0);
	assert_int_equal(tag_of(&answer), tag);
	assert_int_equal(word(inside(&answer) + 6), 2);
	assert_memory_equal(inside(&answer) + 14, address, 4);
	assert_memory_equal(answer.bytes, nowhere, 6);
}

/* Answers come in the order of the questions. */
static void expect_no_answer(uint16_t tag, const char address[4])
{
	struct frame answer;

	forget_frames(true);
	ask_who_has(tag, address);
	ask_who_has(0, "\x0a\0\0\1");
	answer = wait_frame(false, TYPE_ARP, 0);
	assert_memory_equal(inside(&answer) + 14, "\x0a\0\0\1", 4);
}

static void expect_told(const char *line, const char *wanted)
{
	char answer[256];

	vhca_ask(line, answer, sizeof(answer));
	assert_string_equal(answer, wanted);
}

static void test_gids_are_addresses_of_the_link(void **state)
{
	(void)state;
	expect_answer(0, "\x0a\0\0\1");
	expect_answer(VLAN, "\x0a\7\0\1");
	expect_no_answer(0, "\x0a\7\0\1");
	expect_no_answer(VLAN, "\x0a\0\0\1");
	expect_no_answer(0, "\x0a\0\0\x50");
	expect_told("gid mlx5_0 add 10.0.0.80 v2", "ok 8\n");
	expect_told("gid mlx5_0 add 10.0.0.80 v2 9", "ok 9\n");
	expect_answer(0, "\x0a\0\0\x50");
	expect_answer(9, "\x0a\0\0\x50");
	expect_told("gid mlx5_0 del 8", "ok\n");
	expect_no_answer(0, "\x0a\0\0\x50");
	expect_answer(9, "\x0a\0\0\x50");
	expect_told("gid mlx5_0 del 9", "ok\n");
}

/* ---- what others make of the frames ---- */

static void write_pcap(const char *path)
{
	static const uint32_t head[] = {0xa1b2c3d4, 4 << 16 | 2, 0, 0, 65535, 1};
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fwrite(head, sizeof(head), 1, file);
	for (size_t i = 0; i < net.n; i++) {
		uint32_t record[] = {
			0, 0, (uint32_t)net.frames[i].size, (uint32_t)net.frames[i].size};

		fwrite(record, sizeof(record), 1, file);
		fwrite(net.frames[i].bytes, net.frames[i].size, 1, file);
	}
	assert_int_equal(fclose(file), 0);
}

static void expect_shown(const char *path, const char *filter, const char *wanted)
{
	char command[512], line[256] = "";
	FILE *tshark;

	snprintf(command, sizeof(command),
		"tshark -n -r %s -Y '%s' -T fields -E separator=, -e eth.type -e vlan.id "
		"-e vlan.priority -e infiniband.bth.opcode 2>/dev/null",
		path, filter);
	tshark = popen(command, "r");
	assert_non_null(tshark);
	if (wanted)
		assert_non_null(fgets(line, sizeof(line), tshark));
	else
		assert_null(fgets(line, sizeof(line), tshark));
	while (wanted && fgets(command, sizeof(command), tshark))
		;
	pclose(tshark);
	assert_string_equal(line, wanted ? wanted : "");
}

static void test_tshark_decodes_them(void **state)
{
	char path[64];

	(void)state;
	if (system("command -v tshark >/dev/null"))
		skip();
	snprintf(path, sizeof(path), "/tmp/vhca-frame-test.%d", getpid());
	expect_frames(GID_VLAN_V1, 3, 0, TYPE_ROCE, 3 << 13 | VLAN);
	write_pcap(path);
	expect_shown(path, "infiniband", "0x8100,7,3,0\n");
	expect_shown(path, "_ws.malformed", NULL);
	expect_shown(path, "eth and not infiniband and not arp", NULL);
	expect_frames(GID_VLAN_V2, 5, 0, TYPE_IPV4, 5 << 13 | VLAN);
	write_pcap(path);
	expect_shown(path, "infiniband", "0x8100,7,5,0\n");
	expect_shown(path, "_ws.malformed", NULL);
	unlink(path);
}

/* The path MTU was the one that was asked for, though no such frame fits the interface: sends ended
 * in "retry exceeded". */
static void test_the_mtu_is_the_interfaces(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_port_attr port;

	(void)state;
	assert_non_null(list);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(context);
	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	assert_int_equal(port.active_mtu, IBV_MTU_1024);
	assert_int_equal(ibv_close_device(context), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_mtu_is_the_interfaces),
		cmocka_unit_test(test_a_plain_gid_is_sent_untagged),
		cmocka_unit_test(test_a_vlan_is_a_tag_with_the_priority),
		cmocka_unit_test(test_version_1_is_another_ethertype),
		cmocka_unit_test(test_a_cqe_tells_of_the_tag),
		cmocka_unit_test(test_frames_of_other_vlans_are_not_received),
		cmocka_unit_test(test_packets_of_other_partitions_are_not_received),
		cmocka_unit_test(test_what_is_beyond_the_link_goes_by_the_gateway),
		cmocka_unit_test(test_gids_are_addresses_of_the_link),
		cmocka_unit_test(test_tshark_decodes_them),
	};
	int failed = network_start();

	if (failed)
		return failed;
	setenv("VHCA_DEVICES", "2", 1);
	setenv("VHCA_MTU", "4096", 1); /* more than the interface's frames hold */
	setenv("VHCA_WIRE", "packet:near", 1);
	setenv("VHCA_ADDRESS", "10.0.0.1/24,fd00::1/64,10.7.0.1/24@7", 1);
	setenv("VHCA_GATEWAY", "10.7.0.253,10.0.0.254", 1);
	setenv("VHCA_FAULT", "loss=0", 1); /* within the process by packets too */
	failed = cmocka_run_group_tests_name("frame", tests, open_ends, close_ends);
	network_stop();
	return failed;
}
