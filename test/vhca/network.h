/* network.h - the far end of a veth pair or a TAP, in a network namespace of this process: a thread there
 * keeps each frame that comes, and sends it back unless it is to be silent
 *
 * A device behind the near end is `packet:near`, or `tap:far`.
 */
#ifndef TEST_VHCA_NETWORK_H
#define TEST_VHCA_NETWORK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <stdbool.h>

enum {
	MAX_FRAMES = 512,
	FRAME = 2048,
	TYPE_IPV4 = 0x0800,
	TYPE_ARP = 0x0806,
	TYPE_VLAN = 0x8100,
	TYPE_IPV6 = 0x86dd,
	TYPE_ROCE = 0x8915,
};

struct frame {
	size_t size;
	uint8_t bytes[FRAME]; /* with its tag */
};

/* What has come since the last forget_frames(): under the lock. */
extern struct network {
	int fd;
	pthread_t thread;
	bool stop;
	bool silent; /* nothing is sent back */
	pthread_mutex_t lock;
	size_t n;
	struct frame frames[MAX_FRAMES];
} net;

/* Ahead of any thread. 0, or 77 after a line that says why the test is skipped. */
int network_start(void);
int network_start_tap(void);
/* Until the interface carries frames, which a TAP does when a device has it open. */
void network_wait(const char *name);
void network_stop(void);

void forget_frames(bool silent);
/* The `nth` frame of that type since then, RoCE or not; waits for it. */
struct frame wait_frame(bool roce, uint16_t type, size_t nth);
void inject(const struct frame *frame);

uint16_t word(const uint8_t *at);
void put_word(uint8_t *at, unsigned int value);
/* Priority and VLAN; 0: there is no tag. */
uint16_t tag_of(const struct frame *frame);
/* Behind the Ethernet header. */
const uint8_t *inside(const struct frame *frame);
uint16_t type_of(const struct frame *frame);
bool is_roce(const struct frame *frame);
/* The QP that a RoCE packet goes to. */
uint32_t qpn_of(const struct frame *frame);

/* A MAC that nobody has. */
extern const uint8_t nowhere[6];
/* Who asked is told that `nowhere` has the address. */
void answer_arp(const struct frame *question);

double seconds(void);

#endif
