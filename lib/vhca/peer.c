/* peer.c - how much waits in the sockets of peers on this host: by the kernel's socket diagnosis */

#include "vhca/peer.h"

#include "vhca/packet.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ASK_EVERY = 64 * 1024, NOT_TOLD = -2 };

#define ATTRIBUTE_HEADER sizeof(struct nlattr)

static_assert(SK_MEMINFO_RMEM_ALLOC == 0 && SK_MEMINFO_RCVBUF == 1, "the first two words of it");

struct question {
	struct nlmsghdr header;
	struct inet_diag_req_v2 request;
};

static bool ask(struct vhca_peers *peers, const uint8_t address[16])
{
	bool ipv4 = vhca_is_ipv4(address);
	struct question question = {
		.header = {.nlmsg_len = sizeof(question),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST},
		.request = {.sdiag_family = ipv4 ? AF_INET : AF_INET6,
			.sdiag_protocol = IPPROTO_UDP,
			.idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
			.idiag_states = ~0u,
			/* for UDP the kernel takes these two the other way round */
			.id = {.idiag_dport = be16(VHCA_ROCE_PORT),
				.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};

	memcpy(question.request.id.idiag_dst, ipv4 ? address + 12 : address, ipv4 ? 4 : 16);
	return send(peers->fd, &question, sizeof(question), MSG_DONTWAIT) > 0;
}

static enum vhca_backlog backlog_of(const uint8_t *attributes, size_t left)
{
	while (left >= ATTRIBUTE_HEADER) {
		struct nlattr attribute;
		uint32_t words[2];
		size_t step;

		memcpy(&attribute, attributes, sizeof(attribute));
		step = round_up(attribute.nla_len, 4);
		if (attribute.nla_len < ATTRIBUTE_HEADER || step > left)
			return VHCA_BACKLOG_NONE;
		if (attribute.nla_type == INET_DIAG_SKMEMINFO &&
			attribute.nla_len >= ATTRIBUTE_HEADER + sizeof(words)) {
			memcpy(words, attributes + ATTRIBUTE_HEADER, sizeof(words));
			return words[0] > words[1] / 2 ? VHCA_BACKLOG_FULL
				: words[0]             ? VHCA_BACKLOG_SOME
						       : VHCA_BACKLOG_NONE;
		}
		attributes += step;
		left -= step;
	}
	return VHCA_BACKLOG_NONE;
}

static enum vhca_backlog answer(struct vhca_peers *peers)
{
	union {
		struct nlmsghdr header;
		uint8_t bytes[1024];
	} reply;
	ssize_t n = recv(peers->fd, &reply, sizeof(reply), MSG_DONTWAIT);
	size_t length = n > 0 ? (size_t)n : 0;
	size_t headers = (size_t)NLMSG_SPACE(sizeof(struct inet_diag_msg));

	if (length < headers || reply.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return VHCA_BACKLOG_NONE;
	return backlog_of(reply.bytes + headers, length - headers);
}

enum vhca_backlog vhca_peer_backlog(struct vhca_peers *peers, const uint8_t address[16])
{
	if (peers->fd == -1) {
		peers->fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
		if (peers->fd < 0)
			peers->fd = NOT_TOLD;
	}
	return peers->fd >= 0 && ask(peers, address) ? answer(peers) : VHCA_BACKLOG_NONE;
}

static struct vhca_peer *find(struct vhca_peers *peers, const uint8_t address[16])
{
	struct vhca_peer *peer;

	for (uint32_t i = 0; i < VHCA_N_PEERS; i++)
		if (!memcmp(peers->peer[i].address, address, 16))
			return &peers->peer[i];
	peer = &peers->peer[peers->next++ % VHCA_N_PEERS];
	*peer = (struct vhca_peer){.sent = ASK_EVERY};
	memcpy(peer->address, address, 16);
	return peer;
}

bool vhca_peer_full(struct vhca_peers *peers, const uint8_t address[16], uint32_t bytes)
{
	struct vhca_peer *peer = find(peers, address);

	peer->sent += bytes;
	if (!peer->full && peer->sent < ASK_EVERY)
		return false;
	peer->sent = 0;
	peer->full = vhca_peer_backlog(peers, address) == VHCA_BACKLOG_FULL;
	return peer->full;
}

void vhca_peers_end(struct vhca_peers *peers)
{
	if (peers->fd >= 0)
		close(peers->fd);
}
