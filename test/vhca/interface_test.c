/* interface_test.c - a port that is an interface's: its MAC and addresses, those that come and go
 * meanwhile, and its gateway */

#include "../unit/vhca_ask.h"
#include "network.h"

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ibv_context *context;
static const uint8_t mac[6] = {2, 0x11, 0x22, 0x33, 0x44, 0x55};

static void run(const char *command)
{
	if (system(command))
		fail_msg("`%s` fails", command);
}

static int open_device(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	(void)state;
	assert_true(list && list[0]);
	assert_null(list[1]);
	context = ibv_open_device(list[0]);
	assert_non_null(context);
	ibv_free_device_list(list);
	return 0;
}

static int close_device(void **state)
{
	(void)state;
	return ibv_close_device(context);
}

/* The GID's index; -1: there is none. */
static int find_gid(const union ibv_gid *gid, uint32_t type)
{
	struct ibv_gid_entry entries[64];
	ssize_t n = ibv_query_gid_table(context, entries, 64, 0);

	assert_true(n >= 0);
	for (ssize_t i = 0; i < n; i++)
		if (!memcmp(entries[i].gid.raw, gid->raw, 16) && entries[i].gid_type == type)
			return (int)entries[i].gid_index;
	return -1;
}

static union ibv_gid ipv4_gid(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, a, b, c, d}};
}

/* Changes of the host's are told, and seen when they are. */
static void expect_change(const union ibv_gid *gid, bool there)
{
	double deadline = seconds() + 10;

	while (seconds() < deadline) {
		struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
		bool v1 = find_gid(gid, IBV_GID_TYPE_ROCE_V1) >= 0;
		bool v2 = find_gid(gid, IBV_GID_TYPE_ROCE_V2) >= 0;
		struct ibv_async_event event;

		if (v1 == there && v2 == there)
			break;
		if (poll(&fd, 1, 1000) != 1)
			continue;
		assert_int_equal(ibv_get_async_event(context, &event), 0);
		assert_int_equal(event.event_type, IBV_EVENT_GID_CHANGE);
		ibv_ack_async_event(&event);
	}
	assert_int_equal(find_gid(gid, IBV_GID_TYPE_ROCE_V1) >= 0, there);
	assert_int_equal(find_gid(gid, IBV_GID_TYPE_ROCE_V2) >= 0, there);
}

static void test_its_mac_and_addresses_are_the_ports(void **state)
{
	union ibv_gid link_local = {.raw = {0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff,
					    0xfe, mac[3], mac[4], mac[5]}};
	union ibv_gid first = ipv4_gid(10, 0, 0, 1);

	(void)state;
	assert_int_equal(find_gid(&link_local, IBV_GID_TYPE_ROCE_V1), 0);
	assert_int_equal(find_gid(&link_local, IBV_GID_TYPE_ROCE_V2), 1);
	assert_int_equal(find_gid(&first, IBV_GID_TYPE_ROCE_V1), 2);
	assert_int_equal(find_gid(&first, IBV_GID_TYPE_ROCE_V2), 3);
}

static void test_addresses_come_and_go(void **state)
{
	union ibv_gid first = ipv4_gid(10, 0, 0, 1), second = ipv4_gid(10, 5, 0, 1);
	union ibv_gid ipv6 = {.raw = {0xfd, [15] = 5}};

	(void)state;
	run("ip addr add 10.5.0.1/16 dev near");
	expect_change(&second, true);
	run("echo 0 >/proc/sys/net/ipv6/conf/near/disable_ipv6");
	run("ip addr add fd00::5/64 dev near nodad");
	expect_change(&ipv6, true);
	run("ip addr del 10.5.0.1/16 dev near");
	expect_change(&second, false);
	run("ip addr del fd00::5/64 dev near");
	expect_change(&ipv6, false);
	run("echo 1 >/proc/sys/net/ipv6/conf/near/disable_ipv6");
	run("ip addr add 10.6.0.1/16 dev far"); /* another interface's are none of it */
	assert_int_equal(find_gid(&first, IBV_GID_TYPE_ROCE_V2), 3);
	first = ipv4_gid(10, 6, 0, 1);
	assert_int_equal(find_gid(&first, IBV_GID_TYPE_ROCE_V2), -1);
}

/* ---- what it sends ---- */

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t memory[256];

static void make_qp(void)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), 0);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	assert_true(pd && cq && mr && qp);
	assert_int_equal(ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void drop_qp(void)
{
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void send_to(union ibv_gid gid)
{
	struct ibv_ah_attr attr = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = gid, .sgid_index = 3, .hop_limit = 64}};
	struct ibv_sge sge = {(uintptr_t)memory, sizeof(memory), mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	double deadline = seconds() + 10;
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_wc wc;

	assert_non_null(ah);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0x77;
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	while (!ibv_poll_cq(cq, 1, &wc))
		assert_true(seconds() < deadline);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

/* Asks for whom, by the interface's own name, and sends there. */
static void expect_way(union ibv_gid to, const char hop[4])
{
	struct frame question, frame;

	forget_frames(true);
	send_to(to);
	question = wait_frame(false, TYPE_ARP, 0);
	assert_memory_equal(question.bytes + 6, mac, 6);
	assert_memory_equal(inside(&question) + 14, "\x0a\0\0\1", 4);
	assert_memory_equal(inside(&question) + 24, hop, 4);
	answer_arp(&question);
	frame = wait_frame(true, TYPE_IPV4, 0);
	assert_memory_equal(frame.bytes, nowhere, 6);
	assert_memory_equal(frame.bytes + 6, mac, 6);
	assert_memory_equal(inside(&frame) + 12, "\x0a\0\0\1", 4);
	assert_memory_equal(inside(&frame) + 16, to.raw + 12, 4);
}

/* The route is known when a frame goes its way: until then it is dropped. */
static void expect_route_to(union ibv_gid to)
{
	double deadline = seconds() + 10;
	bool asked = false;

	forget_frames(true);
	while (!asked && seconds() < deadline) {
		send_to(to);
		pthread_mutex_lock(&net.lock);
		asked = net.n > 0;
		pthread_mutex_unlock(&net.lock);
		usleep(2000);
	}
	assert_true(asked);
}

static void test_its_gateway_is_the_ports(void **state)
{
	struct frame question;

	(void)state;
	make_qp();
	expect_way(ipv4_gid(10, 0, 0, 9), "\x0a\0\0\x09");
	run("ip route add default via 10.0.0.254 dev near");
	expect_route_to(ipv4_gid(10, 99, 0, 1));
	question = wait_frame(false, TYPE_ARP, 0);
	assert_memory_equal(inside(&question) + 24, "\x0a\0\0\xfe", 4);
	answer_arp(&question);
	assert_memory_equal(wait_frame(true, TYPE_IPV4, 0).bytes, nowhere, 6);
	drop_qp();
}

/* A GID that was added by hand is not the host's to take away. */
static void test_others_stay(void **state)
{
	union ibv_gid by_hand = ipv4_gid(10, 0, 0, 77), other = ipv4_gid(10, 0, 3, 1);
	char answer[256];

	(void)state;
	vhca_ask("gid mlx5_0 add 10.0.0.77 v2", answer, sizeof(answer));
	assert_memory_equal(answer, "ok ", 3);
	run("ip addr add 10.0.3.1/24 dev near");
	expect_change(&other, true);
	assert_true(find_gid(&by_hand, IBV_GID_TYPE_ROCE_V2) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_its_mac_and_addresses_are_the_ports),
		cmocka_unit_test(test_addresses_come_and_go),
		cmocka_unit_test(test_its_gateway_is_the_ports),
		cmocka_unit_test(test_others_stay),
	};
	int failed = network_start();

	if (failed)
		return failed;
	if (system("ip link set near address 02:11:22:33:44:55 && ip addr add 10.0.0.1/24 dev near"))
		return 1;
	setenv("VHCA_WIRE", "packet:near", 1);
	setenv("VHCA_ADDRESS", "interface", 1);
	failed = cmocka_run_group_tests_name("interface", tests, open_device, close_device);
	network_stop();
	return failed;
}
