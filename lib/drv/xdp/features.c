/* features.c - whether an interface's driver has XDP and zero-copy: the kernel's "netdev" family of generic
 * netlink, which Linux has had since 6.3
 */

#include "drv/xdp/xdp.h"

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of linux/netdev.h, which is newer than many systems' headers. */
enum {
	NETDEV_GET = 1,        /* NETDEV_CMD_DEV_GET */
	NETDEV_INDEX = 1,      /* NETDEV_A_DEV_IFINDEX */
	NETDEV_FEATURES = 3,   /* NETDEV_A_DEV_XDP_FEATURES */
	ACT_BASIC = 1 << 0,    /* NETDEV_XDP_ACT_BASIC */
	ACT_REDIRECT = 1 << 1, /* NETDEV_XDP_ACT_REDIRECT */
	ACT_ZEROCOPY = 1 << 3, /* NETDEV_XDP_ACT_XSK_ZEROCOPY */
	ANSWER_BYTES = 8192,
	HEADERS = sizeof(struct nlmsghdr) + sizeof(struct genlmsghdr),
	ATTRIBUTE_HEAD = 4, /* NLA_HDRLEN */
};
static_assert(HEADERS == NLMSG_HDRLEN + GENL_HDRLEN, "neither is followed by a gap");
static_assert(sizeof(struct nlattr) == ATTRIBUTE_HEAD, "lengths of attributes are counted with it");

struct question {
	struct nlmsghdr header;
	struct genlmsghdr command;
	struct nlattr attribute;
	uint8_t value[16];
};

union answer {
	struct nlmsghdr header;
	uint8_t bytes[ANSWER_BYTES];
};

/* One message with one attribute, and its answer; false: there is none, or an error. */
static bool ask(int fd, uint16_t family, uint8_t command, uint16_t attribute, const void *value,
	uint16_t n, union answer *answer)
{
	struct question question = {
		.header = {.nlmsg_len = (uint32_t)(offsetof(struct question, value) +
				   round_up((size_t)n, 4)),
			.nlmsg_type = family,
			.nlmsg_flags = NLM_F_REQUEST},
		.command = {.cmd = command, .version = 1},
		.attribute = {.nla_len = (uint16_t)(ATTRIBUTE_HEAD + n), .nla_type = attribute}};
	ssize_t got;

	memcpy(question.value, value, n);
	if (send(fd, &question, question.header.nlmsg_len, 0) < 0)
		return false;
	got = recv(fd, answer, sizeof(*answer), 0);
	return got >= HEADERS && answer->header.nlmsg_type == family &&
		answer->header.nlmsg_len <= (size_t)got;
}

/* Its value; NULL: it is not there, or shorter. */
static const void *find(const union answer *answer, uint16_t type, size_t n)
{
	const size_t end = answer->header.nlmsg_len;

	for (size_t at = HEADERS; at + ATTRIBUTE_HEAD <= end;) {
		struct nlattr attribute;

		memcpy(&attribute, answer->bytes + at, sizeof(attribute));
		if (attribute.nla_len < ATTRIBUTE_HEAD || at + attribute.nla_len > end)
			return NULL;
		if ((attribute.nla_type & NLA_TYPE_MASK) == type)
			return attribute.nla_len >= ATTRIBUTE_HEAD + n
				? answer->bytes + at + ATTRIBUTE_HEAD
				: NULL;
		at += round_up((size_t)attribute.nla_len, 4);
	}
	return NULL;
}

static bool ask_features(int fd, int index, uint64_t *features)
{
	static const char name[] = "netdev";
	const uint32_t number = (uint32_t)index;
	const void *found;
	union answer answer;
	uint16_t family;

	if (!ask(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, name, sizeof(name),
		    &answer))
		return false;
	found = find(&answer, CTRL_ATTR_FAMILY_ID, sizeof(family));
	if (!found)
		return false;
	memcpy(&family, found, sizeof(family));
	if (!ask(fd, family, NETDEV_GET, NETDEV_INDEX, &number, sizeof(number), &answer))
		return false;
	found = find(&answer, NETDEV_FEATURES, sizeof(*features));
	if (found)
		memcpy(features, found, sizeof(*features));
	return found;
}

const char *vbn__xdp_words(int index)
{
	const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	uint64_t features = 0;
	bool known;

	if (fd < 0)
		return "";
	known = ask_features(fd, index, &features);
	close(fd);
	if (!known)
		return "";
	if ((features & (ACT_BASIC | ACT_REDIRECT)) != (ACT_BASIC | ACT_REDIRECT))
		return " generic";
	return features & ACT_ZEROCOPY ? " native zero-copy" : " native";
}
