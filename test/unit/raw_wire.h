/* raw_wire.h - two ports of the emulated device on one switch, queues on both, and frames: what tests of raw
 * Ethernet on mlx5 share
 *
 * VHCA_DEVICES=2 VHCA_WIRE=loopback. RAW_CQE_SIZE is that of all queues; RAW_STRIDING has all receive rings
 * in strides.
 */
#ifndef RAW_WIRE_H
#define RAW_WIRE_H

#include "drv/mlx5/cq.h"
#include "drv/mlx5/raw.h"

#include "unit.h"

#include <verbena.h>
#include <verbena/rx_group.h>

enum { BUFS = 2048, DEPTH = 64, STRIDES = 1024, DATA = 2048, HEADROOM = 64, MOST_RX = 3 };
enum { MTU = 9000, JUMBO = MTU + 18 };

struct wire {
	struct vbn_worker *worker;
	struct vbn_port *a, *b;
	struct vbn_pool *pool, *other;
	struct vbn_rx_group *group;
	struct vbn_queue *tx, *rx[MOST_RX];
	uint32_t n_rx;
	const char *log; /* of the test's file */
};
extern struct wire wire;

struct flow {
	uint8_t ip_version, protocol; /* 0: neither IPv4 nor IPv6 */
	uint16_t src_port, dst_port;
	uint8_t src, dst; /* last bytes of both addresses */
	uint8_t dst_mac[6];
};

extern const struct flow udp4;

/* A frame of this number in a form of its own: plain, kept, with a cookie, a chain, of another pool,
 * with a tag, with checksums. */
enum form { PLAIN, KEPT, COOKIE, CHAIN, FOREIGN, TAGGED, SUMMED, N_FORMS };

/* ---- the wire: whatever has happened, every buf is home when it closes ---- */

int open_wire(void **state);
int close_wire(void **state);

static inline int begin_test(void **state)
{
	const int ret = open_wire(state);

	unit_catch_log();
	wire.log = unit_log;
	return ret;
}

#define test(name) cmocka_unit_test_setup_teardown(name, begin_test, close_wire)

bool is_striding(void);

/* With other ports and pools: MTU, bytes of a buf. */
void reopen_wire(uint32_t frame_mtu, uint32_t data_size);

uint32_t cqe_size(void);
struct vbn_queue_conf conf_of(void);
void create_receivers(const struct vbn_queue_conf *asked, uint32_t n);
void connect_receivers(void);
void create_sender(const struct vbn_queue_conf *asked);
void connect_wire(const struct vbn_queue_conf *conf, uint32_t n);
void disconnect(void);
uint32_t add_rule(const struct vbn_rx_rule *rule);
uint32_t take_everything(void);
bool is_connectx5(void);
const char *mode(const struct vbn_queue *queue, const char *name);
struct vbn_queue_stats stats_of(const struct vbn_queue *queue);
uint64_t port_drops(const char *name);

/* ---- frames: of which flow and of which number, with a pattern behind ---- */

void put16(uint8_t *to, uint32_t value);
uint8_t pattern(uint64_t number, uint32_t at);
uint32_t put_frame(uint8_t *data, const struct flow *flow, uint64_t number, uint32_t len);
struct vbn_buf *frame_of(
	struct vbn_pool *pool, const struct flow *flow, uint64_t number, uint32_t len);
void check_frame(const struct vbn_buf *buf, const struct flow *flow, uint64_t number, uint32_t len);
uint32_t length_of(uint64_t number);
struct vbn_buf *formed(uint64_t number, enum form form);
void check_formed(struct vbn_buf *buf, uint64_t number, enum form form);

/* Neither IPv4 nor IPv6: all behind the type is of the number. */
struct vbn_buf *numbers(uint64_t number, uint32_t len);
void check_numbers(const struct vbn_buf *buf, uint64_t number, uint32_t len);

/* ---- sent and received, by whoever has 30 s of patience ---- */

void patience(uint64_t since);
void send_all(struct vbn_queue *queue, struct vbn_buf **bufs, int n);
void send_frame(struct vbn_buf *buf);
struct vbn_buf *look(uint32_t q);
struct vbn_buf *receive(uint32_t q);
void let_go(struct vbn_buf *buf);
void settle(void);

/* The queue that a frame of the flow has come to. */
uint32_t queue_of(const struct flow *flow);

/* n frames in bursts of 1 to 64, each looked at; no more under way than there are receives. */
int burst_of(uint64_t sent);
void stream(enum form (*form_of)(uint64_t), uint64_t n);

enum form all_plain(uint64_t number);
enum form all_summed(uint64_t number);
enum form in_turn(uint64_t number);
enum form in_runs(uint64_t number);

/* ---- the end of a queue ---- */

void expect_failed(struct vbn_queue *queue, enum vbn_status status, const char *words);
void reset(struct vbn_queue *queue);

/* ---- the groups: how many tests have failed ---- */

int striding_tests(void);
int long_tests(void);
int steering_tests(void);
int facts_tests(void);
int failure_tests(void);
int fault_tests(void);

#endif
