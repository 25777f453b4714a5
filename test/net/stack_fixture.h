/* stack_fixture.h - a net with no device: frames are handed in, and what it sends is looked at, each
 * frame's lengths and sums by code of the test's own
 */
#ifndef TEST_NET_STACK_FIXTURE_H
#define TEST_NET_STACK_FIXTURE_H

#include "unit.h"

#include <verbena.h>

enum { ETH = 14, IP4 = 20, IP6 = 40, UDP = 8, MOST_SENT = 4096, FRAME = 2048, POOL = 2048 };

extern const uint8_t our_mac[6], peer_mac[6];
#define OUR4   "10.0.0.2"
#define PEER4  "10.0.0.1"
#define OUR6   "fd00::2"
#define PEER6  "fd00::1"
#define FAR4   "192.168.9.9" /* by way of the peer */
#define OTHER4 "10.1.0.7"    /* on the second interface's subnet */

struct stack {
	struct vbn_net *net;
	struct vbn_net_end *end;
	struct vbn_net_end *second; /* link 1 */
	struct vbn_pool *pool;
	uint64_t now;
	uint32_t n_sent;
	bool deaf;      /* the output takes nothing */
	uint16_t flags; /* what the device says of each frame that comes: enum vbn_packet_flag */
	uint16_t
		vlan; /* frames are tagged on their way in, and found without their tags in `sent` */
	struct sent {
		uint32_t len, link;
		uint8_t bytes[10240];
	} * sent;
};

/* A host, or with `forward` a router, with OUR4 and OUR6 on link 0 and 10.1.0.2/16, fd01::2/64 on link 1.
 * What conf does not say is set to what makes tests short. */
void stack_open(struct stack *stack, const struct vbn_net_conf *conf, uint32_t mtu);
/* The same on a VLAN, which takes all that comes the longer way. */
void stack_open_tagged(
	struct stack *stack, const struct vbn_net_conf *conf, uint32_t mtu, uint16_t vlan);
/* All bufs must be home, and every frame accounted for. */
void stack_close(struct stack *stack);
void stack_check(struct stack *stack);
/* Time goes on, by steps of 10 ms. */
void stack_pass(struct stack *stack, uint64_t ms);
/* Forgets what has been sent. */
void stack_clear(struct stack *stack);

uint64_t stack_counter(const struct stack *stack, const char *name);
#define assert_counted(stack, name, n) assert_int_equal(stack_counter(stack, name), n)

/* A frame to the first interface, or the second. */
void stack_input(struct stack *stack, const void *frame, size_t len);
void stack_input_second(struct stack *stack, const void *frame, size_t len);
/* The peer's MAC becomes known for an address. */
void stack_know(struct stack *stack, const char *ip);

/* ---- frames from the peer: what is written, in bytes ---- */

struct frame {
	uint32_t len;
	uint8_t bytes[66000];
};

struct ip_fields {
	const char *from, *to;
	uint8_t protocol, ttl; /* ttl 0: 64 */
	uint16_t id, fragment; /* IPv4's, as it is on the wire */
	uint8_t n_options;     /* IPv4: of `options`, a multiple of 4 */
	const uint8_t *options;
};
void frame_ether(struct frame *frame, const uint8_t to[6], uint16_t type);
void frame_add(struct frame *frame, const void *bytes, size_t n);
void frame_ip(struct frame *frame, const struct ip_fields *fields, const void *payload, size_t n);
void frame_udp(struct frame *frame, const char *from, const char *to, uint16_t from_port,
	uint16_t to_port, const void *payload, size_t n);
void frame_echo(struct frame *frame, const char *from, const char *to, uint16_t sequence, size_t n);
void frame_arp(struct frame *frame, uint16_t operation, const uint8_t sender_mac[6],
	const char *sender, const uint8_t target_mac[6], const char *target);
/* A neighbour solicitation (135) or advertisement (136). */
void frame_nd(struct frame *frame, uint8_t type, const char *from, const char *to,
	const char *target, uint32_t flags, const uint8_t *mac);
/* The transport's sum over addresses as texts; 0xffff where its field is right. */
uint16_t frame_sum(
	const char *from, const char *to, uint8_t protocol, const uint8_t *bytes, size_t n);

/* Of the bytes alone. */
uint16_t frame_sum_plain(const uint8_t *bytes, size_t n);

uint16_t get16(const uint8_t *at);
uint32_t get32(const uint8_t *at);
void put16(uint8_t *at, uint16_t value);

/* What has been sent of this ethertype (and IP protocol, if above 0), the n-th, from 0; NULL. */
const struct sent *stack_sent(const struct stack *stack, uint16_t type, int protocol, uint32_t n);

#endif
