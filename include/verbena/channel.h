/* verbena/channel.h - channels: connected, flow-controlled, ordered message paths between processes
 *
 * A channel is opened by address, through a session (verbena/session.h) in which both ends agree on
 * a version, on sizes and on windows; its messages then go over an RC queue of its own. Each message
 * arrives once, whole and in order. A sender never has more under way than the receiver has posted
 * receives for, so that the device never has to say "receiver not ready".
 *
 * Messages up to the receiver's buf_size are sent into one buf of it. Larger ones are announced,
 * given a place in the receiver's landing memory, written there by RDMA, and handed over; meanwhile
 * the channel takes no other message.
 *
 * A group is a worker's channels on one port: their pools, rings and CQs, and the poll over them.
 * Everything here is used by that worker's thread. What waits for a peer waits on the control
 * thread, and so does what takes system calls: connecting, going on and closing return at once, and
 * vbn_channel_poll() waits for nothing, on ConnectX with shared rings. With rings of their own, and on
 * other devices, making and ending a channel's queue makes the worker wait for a control call, as
 * vbn_queue_create() does.
 *
 * Peers of a group are trusted with its landing memory: who has been given a place in it knows the
 * key of all of it.
 */
#ifndef VERBENA_CHANNEL_H
#define VERBENA_CHANNEL_H

#include <stddef.h>
#include <stdint.h>
#include <verbena/buf.h>
#include <verbena/mode.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VBN_CHANNEL_MAX_DATA \
	512 /* bytes that the application may give to either side's handshake */

struct vbn_channel;
struct vbn_channel_group;
struct vbn_channel_listener;
struct vbn_pool;
struct vbn_port;
struct vbn_worker;

struct vbn_channel_group_conf {
	uint32_t max_channels; /* pools and rings are made for so many; default 16 */
	uint32_t buf_size;     /* bytes of message that a received buf holds; default 4096 */
	uint32_t window;       /* messages of a peer that can be under way to here: a power of two,
				  16 to 32768; default 64 */
	uint32_t tx_depth;     /* of each channel's send ring; default 64 */
	uint32_t n_held;       /* received bufs that the application keeps at once without slowing
				  its peers; default 256 */

	/* The largest message taken, up to 2^40; default buf_size. Where it is more, landing_size
	 * bytes of exported memory are made for those under way or not released; default twice
	 * max_message. */
	uint64_t max_message;
	uint64_t landing_size;

	struct vbn_pool *tx_pool; /* where most sends come from; default: the received bufs' */

	/* One receive ring and one pair of CQs for all channels. AUTO: where the device has shared
	 * receive rings. */
	enum vbn_switch shared;

	/* A silent peer is asked for a sign of life after keepalive_ns (default 1 s), and given up
	 * when it has not answered for about give_up_ns (default 2 s). */
	uint64_t keepalive_ns, give_up_ns;

	uint64_t connect_ns; /* to find the listener, and to agree with it; default 5 s */

	/* A channel whose queue fails is connected again by the end that had connected it, for so
	 * long; until then both ends keep it. 0: it fails. Both ends should say so. */
	uint64_t resume_ns;
};

/* conf may be NULL. -EINVAL: conf out of range; -ENOMEM; -ENOTSUP: shared is ON, or resume_ns set, and
 * the port's driver has it not; -EPERM: not the worker's thread. */
int vbn_channel_group_create(struct vbn_worker *worker, struct vbn_port *port,
	const struct vbn_channel_group_conf *conf, struct vbn_channel_group **group);

/* Where received bufs come from, with headroom for a channel's header: n_held of them may be the
 * application's. */
struct vbn_pool *vbn_channel_group_pool(struct vbn_channel_group *group);

/* Ends its listeners and channels, too: their peers find out by themselves. Messages must have been
 * released. Where the worker ends first, they end with it, and what is left of the group is destroyed
 * by any thread. NULL is allowed. */
void vbn_channel_group_destroy(struct vbn_channel_group *group);

/* "channel_receives", "channel_landing", …: requested against effective. Writes at most n and
 * returns how many there are. */
int vbn_channel_group_modes(const struct vbn_channel_group *group, struct vbn_mode *modes, int n);

/* ---- connecting ---- */

/* A peer asks: `data` is what it gave to vbn_channel_connect(). 0 takes it, and the channel is the
 * application's from then on, to be sent into once VBN_CHANNEL_OPENED has come here, too; -errno
 * refuses it with that reason, and so does closing it. Called from within vbn_channel_poll(); may set
 * the channel's context, and say something with the answer (vbn_channel_answer()). */
typedef int vbn_channel_accept_fn(
	struct vbn_channel *channel, const void *data, size_t len, void *arg);

/* Addresses are those of sessions, as numbers. Errors as vbn_session_listen()'s. */
int vbn_channel_listen(struct vbn_channel_group *group, const char *address,
	vbn_channel_accept_fn *accept, void *arg, struct vbn_channel_listener **listener);
const char *vbn_channel_listener_address(const struct vbn_channel_listener *listener);
void vbn_channel_unlisten(struct vbn_channel_listener *listener);

/* Within an accept function: up to VBN_CHANNEL_MAX_DATA bytes, copied, for the end that connects,
 * whether the answer is yes or no; they come with VBN_CHANNEL_OPENED or VBN_CHANNEL_FAILED there. Given
 * again, they replace the former ones. A peer whose release knows version 1 of channels alone gets no
 * data with a refusal. -EINVAL: too many, or not within the accept function; -ENOMEM. */
int vbn_channel_answer(struct vbn_channel *channel, const void *data, size_t len);

/* Begins to connect, with up to VBN_CHANNEL_MAX_DATA bytes, copied, for the peer's accept function; the
 * channel is the application's at once. VBN_CHANNEL_OPENED or VBN_CHANNEL_FAILED tells how it went.
 * -EINVAL, -ENOMEM, -ENOSPC: the group has max_channels. */
int vbn_channel_connect(struct vbn_channel_group *group, const char *address, const void *data,
	size_t len, struct vbn_channel **channel);

/* Ends the channel, whatever its state, and gives it back; there are no more events of it. Those that
 * a poll has given already are to be released and no more: their channel is gone. One that is open is
 * broken off: the peer's fails with that reason. NULL is allowed. */
void vbn_channel_close(struct vbn_channel *channel);

void vbn_channel_set_context(struct vbn_channel *channel, void *context);
void *vbn_channel_context(const struct vbn_channel *channel);
struct vbn_channel_group *vbn_channel_group_of(const struct vbn_channel *channel);

/* Why it failed, "" while it has not; where the peer is; the largest message that it takes, and the
 * largest that goes into one of its bufs (0 until it is open). Valid while the channel is. */
const char *vbn_channel_error(const struct vbn_channel *channel);
const char *vbn_channel_peer(const struct vbn_channel *channel);
uint64_t vbn_channel_max_message(const struct vbn_channel *channel);
uint32_t vbn_channel_buf_size(const struct vbn_channel *channel);

/* ---- messages: no locks, no system calls, no logs ---- */

/* Stages messages, each one buf or chain. Takes as many as it returns and leaves the rest: where the
 * peer's window or the send ring is full, or a large message under way; VBN_CHANNEL_READY tells when
 * it is worth trying again. Messages are numbered from 1 as they are taken.
 *
 * Where a message is an answer, keep what is not taken until READY, in its order: bufs received count
 * as held (n_held) until then.
 *
 * A buf costs least with 16 bytes of headroom, where the channel's header goes. Bufs are freed or
 * come back (KEEP, cookie) as those of vbn_send(). -ENOTCONN: not open yet, or not again; -EPIPE:
 * failed, closed, or ended here; -EMSGSIZE: the first is larger than the peer takes; -EINVAL: it has
 * more than 7 segments, or one of a zone that the port does not know (vbn_port_register). */
int vbn_channel_send(struct vbn_channel *channel, struct vbn_buf **bufs, int n);

/* Nothing more will be sent: the peer gets VBN_CHANNEL_ENDED behind the last message. */
void vbn_channel_end(struct vbn_channel *channel);

enum vbn_channel_op {
	VBN_CHANNEL_OPENED, /* data, len: what the end that listens gave with its answer, at the end
				that connects; valid as long as the channel */
	VBN_CHANNEL_MESSAGE, /* data, len, number, and buf where it came in one; to be released */
	VBN_CHANNEL_SENT,    /* buf and cookie are back: message `number` is in the peer's memory */
	VBN_CHANNEL_UNSENT,  /* buf and cookie are back: it may or may not be there, see RESUMED */
	VBN_CHANNEL_READY,   /* vbn_channel_send() takes messages again */
	VBN_CHANNEL_ENDED,   /* the peer sends nothing more */
	VBN_CHANNEL_CLOSED,  /* both ends have ended it, and everything has arrived */
	VBN_CHANNEL_BROKEN,  /* it has failed and is to be resumed: nothing can be sent */
	VBN_CHANNEL_RESUMED, /* connected again; the peer has received the messages up to `number`,
				and none behind it: send those again, they are numbered from
				number + 1 */
	VBN_CHANNEL_FAILED,  /* for good: vbn_channel_error() says why; `number` messages had been
				taken; data, len as of OPENED, where the peer's application refused */
};

struct vbn_channel_event {
	struct vbn_channel *channel;
	struct vbn_buf *buf;
	void *cookie;
	uint8_t *data;
	uint64_t len;
	uint64_t number;
	void *place; /* the library's: where a large message lies */
	uint8_t op;  /* enum vbn_channel_op */
};

/* Fills up to n events, each channel's in order. Returns how many. */
int vbn_channel_poll(struct vbn_channel_group *group, struct vbn_channel_event *events, int n);

/* Gives the memory of a message back, its buf or its place. A buf may be freed or sent instead. */
void vbn_channel_release(const struct vbn_channel_event *event);

#ifdef __cplusplus
}
#endif

#endif
