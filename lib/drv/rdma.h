/* rdma.h - what the drivers on libibverbs share: devices, GIDs, registration, the state machine of
 * queue pairs, async events
 *
 * Lives here: the control path of an RDMA device by plain verbs. May come in: libibverbs, run
 * (control thread). May touch it: the drivers mlx5 and verbs. Everything runs on the control
 * thread. A QP's context is its struct vbn_queue.
 */
#ifndef VBN_RDMA_H
#define VBN_RDMA_H

#include "drv/drv.h"

#include <infiniband/verbs.h>

struct rdma_port {
	struct vbn_port port;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr device;
	struct ibv_port_attr attr;
	struct ibv_gid_entry gid; /* the chosen one */
	char gid_why[96];
	bool gid_asked;
	uint64_t out_of_buffer; /* the device's counter when the port was opened */
	/* A CQ has failed: whether this queue of the port has its completions there. The driver's. */
	bool (*cq_failed)(struct vbn_queue *queue, const struct ibv_cq *cq);
};

static inline struct rdma_port *rdma_port(struct vbn_port *port)
{
	return container_of(port, struct rdma_port, port);
}

/* Every port of every RDMA device of a driver: driver_of says its name, or NULL where it has not the
 * device. `add`, where it is not NULL, says what the driver has beyond verbs. At most n are written; how
 * many. */
int vbn__rdma_list(const char *(*driver_of)(struct ibv_device *device),
	void (*add)(struct vbn_port_info *info, struct ibv_context *context),
	struct vbn_port_info *infos, int n);

/* Fills a zeroed rdma_port by name; open_device opens as the driver wants it and returns NULL with
 * errno set, or not. */
int vbn__rdma_open(struct rdma_port *port, const struct driver *driver, const char *name,
	int port_number, const struct vbn_port_conf *conf,
	bool (*accepts)(struct ibv_device *device),
	struct ibv_context *(*open_device)(struct ibv_device *device));

/* Of an iWARP device: whether it reads into memory that is registered for local access alone. iWARP
 * itself has the answer written by the peer, so that most devices want remote access there, and the
 * peer learns the key. */
bool vbn__rdma_reads_locally(const struct ibv_device_attr *device);

/* Every GID of the device that is valid: how many, or -errno; *table is freed by the caller. */
int vbn__rdma_read_gids(
	struct ibv_context *context, uint32_t port_number, struct ibv_gid_entry **table);

/* Follows the async events of an opened port until it is closed. */
int vbn__rdma_watch_events(struct rdma_port *port);

/* Accepts a half-opened port. */
void vbn__rdma_close(struct rdma_port *port);

void vbn__rdma_port_modes(const struct rdma_port *port, struct mode_report *report);
int vbn__rdma_gids(const char *name, int port_number, char (*gids)[80], int n);

int vbn__rdma_zone_register(
	struct vbn_port *port, struct vbn_zone *zone, struct zone_registration *registration);
void vbn__rdma_zone_unregister(struct vbn_port *port, struct zone_registration *registration);
int vbn__rdma_export_register(struct vbn_port *port, void *addr, size_t size, uint32_t access,
	bool relaxed, struct export_key *key);
void vbn__rdma_export_unregister(struct vbn_port *port, struct export_key *key);

/* The state machine of a queue pair: INIT when made; RTR and RTS once its receives are posted (peer
 * is NULL for UD; `mtu` comes back as what holds); ERR, RESET. */
int vbn__rdma_qp_init(struct rdma_port *port, struct ibv_qp *qp, const struct vbn_queue_conf *conf);
int vbn__rdma_qp_connect(struct rdma_port *port, struct ibv_qp *qp,
	const struct vbn_queue_conf *conf, uint32_t psn, const struct address *peer, uint32_t *mtu);
int vbn__rdma_qp_move(struct rdma_port *port, struct ibv_qp *qp, enum ibv_qp_state state);

/* Reads and atomics that a queue may have in flight towards this peer. */
static inline uint32_t rdma_reads(const struct vbn_queue_conf *conf, const struct address *peer)
{
	return min(conf->max_reads.value, (uint32_t)peer->peer_reads);
}

/* Packet pacing: 0, or -ENOTSUP where the device has none for the transport; and setting it on a
 * connected queue pair. Without pace_kbit they do nothing. */
int vbn__rdma_can_pace(struct rdma_port *port, const struct vbn_queue_conf *conf);
int vbn__rdma_pace(struct rdma_port *port, struct ibv_qp *qp, const struct vbn_queue_conf *conf);

/* The way to a peer, for an address handle or a connection. */
struct rdma_way {
	uint8_t service_level, traffic_class, hop_limit;
};
void vbn__rdma_fill_path(struct rdma_port *port, struct rdma_way way, const struct address *peer,
	struct ibv_ah_attr *path);

/* The address handle of a datagram peer: entry->address and the way are set; number and source are
 * filled in. `address` comes back as what the bytes say. */
int vbn__rdma_peer_create(struct peer_entry *entry, struct ibv_ah **ah, struct address *address);
/* Where a datagram came from: peer[0] of the buf is its QPN, peer[1] where its header is. */
void vbn__rdma_buf_source(const struct vbn_buf *buf, uint32_t *qpn, uint8_t gid[16]);

/* A peer's handle is an address above every QPN: a buf that was never given a peer, or has come from
 * one and still says so, is told from one that goes to a peer. */
static force_inline bool is_handle(uint64_t handle)
{
	return handle > 0xffffff;
}

/* This queue pair's own address, with the port's MTU and GID. */
void vbn__rdma_address(const struct rdma_port *port, const struct vbn_queue_conf *conf,
	uint32_t qpn, uint32_t psn, struct vbn_address *wire);

/* IBV_QPT_RC and its like. */
enum ibv_qp_type vbn__rdma_qp_type(enum vbn_transport transport);

/* 24 random bits to start a queue pair's sequence at. */
uint32_t vbn__rdma_random_psn(void);

/* The local ACK timeout and the minimum RNR NAK timer in nanoseconds; IBTA 1.4, table 45 and
 * section 9.7.6.1.3. */
uint64_t vbn__rdma_timeout_ns(uint32_t encoded);
uint64_t vbn__rdma_rnr_timer_ns(uint32_t encoded);

/* What a user can do about a status. */
const char *vbn__rdma_remedy(enum vbn_status status);
/* " after 7 retries of 67.1 ms", where that is the matter, else "". Returns text. */
char *vbn__rdma_patience(
	const struct vbn_queue_conf *conf, enum vbn_status status, char *text, size_t size);
/* Timers, retries and the path MTU of a queue. */
void vbn__rdma_queue_modes(const struct vbn_queue *queue, uint32_t mtu, struct mode_report *report);

/* "fe80::1" of a raw GID. text holds 48 bytes. */
char *vbn__rdma_gid_text(const uint8_t *raw, char *text);

#endif
