/* station.h - a host of a few lines on a packet port: it answers ARP, echo requests and UDP; and Linux at
 * the other end, in a namespace of this process
 *
 * STATION_PORT says what the port is: "tap", or "xdp-native" and "xdp-generic", whose interface is one
 * end of a veth pair that has the other one in a second namespace.
 */
#ifndef TEST_NET_STATION_H
#define TEST_NET_STATION_H

#include "unit.h"

#include <netinet/in.h>
#include <verbena.h>

enum {
	ETH = 14,
	IP = 20,
	UDP = 8,
	UDP_HEADERS = ETH + IP + UDP,
	STATION_DEPTH = 256,
	MOST_QUEUES = 4,
};

#define STATION_ADDRESS 0x0a090002 /* 10.9.0.2; Linux is .1 */
#define LINUX_ADDRESS   0x0a090001

struct station {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_port_info info;
	struct vbn_rx_group *group;
	struct vbn_pool *pool;
	struct vbn_queue *queues[MOST_QUEUES];
	uint32_t n_queues;
	uint64_t received, answered;
	uint64_t by_queue[MOST_QUEUES];
};

/* Ahead of any thread: makes the namespaces and Linux's end, of that MTU. 0, or 77 after a line that says
 * why the tests are skipped. */
int station_network(uint32_t mtu);
bool station_is_tap(void);
bool station_is_generic(void);

/* Queues of the interface of the next one that is opened; 0: as many as it has itself. */
void station_channels(uint32_t n);
void station_open(struct station *station, uint32_t n_queues, const struct vbn_queue_conf *conf);
void station_close(struct station *station);
/* Resets all queues, healthy or not, and connects them again. What the first reset that is refused answers. */
int station_reset(struct station *station);
/* Linux's end after the interface was deleted: for tap, once the port has made it anew. */
void station_network_again(uint32_t n_queues);
/* One iteration: what has come is answered. How many came. */
int station_poll(struct station *station);
/* Until it is so, for 20 s. */
#define station_wait(station, condition)                                                      \
	do {                                                                                  \
		const double deadline_ = station_seconds() + 20;                              \
		while (!(condition)) {                                                        \
			station_poll(station);                                                \
			if (station_seconds() > deadline_)                                    \
				unit_fail("%s: %s does not come true", __func__, #condition); \
		}                                                                             \
	} while (0)
double station_seconds(void);

/* A socket of Linux's end, non-blocking. */
int linux_socket(int type, int protocol);
/* A UDP socket of Linux's, bound to that port (0: any). */
int linux_udp(uint16_t port);
/* A socket that sends frames from the far end of a veth pair. */
int linux_frames(void);
struct sockaddr_in station_address(uint16_t port);
/* The MAC of Linux's end; asked for by ARP, and so learnt by it. */
void linux_mac(uint8_t mac[6]);

/* A UDP packet from the station to Linux, in a buf of its pool: checksums are left to the driver. */
struct vbn_buf *station_udp(
	struct station *station, uint16_t port, const void *data, uint32_t size);

/* The sum of drops of the station's queues and port by names that begin so. */
uint64_t station_drops(const struct station *station, const char *prefix);
void station_print_drops(const struct station *station);

#endif
