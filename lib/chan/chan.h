/* chan.h - sessions and channels: what two processes say to each other to get connected, and ordered
 * messages with credits over a queue
 *
 * Lives here: the exchange over TCP, and channels. May come in: port, run, mem, base. May touch it:
 * apps and programs, by verbena/session.h and verbena/channel.h.
 *
 *   wire.[ch]            frames and greeting of a session, as bytes
 *   endpoint.[ch]        "ADDR:PORT"
 *   mailbox.h            orders between a worker and the control thread
 *   reactor.[ch]         sockets and deadlines on the control thread
 *   session*.c           sessions: state machine, bytes, listener; session_wait.c for who may wait
 *   handshake.[ch]       a channel's offer and answer, as bytes
 *   channel_wire.[ch]    a channel's headers, as bytes
 *   dial.c               the control thread's half of connecting a channel
 *   group.c              a worker's channels: memory, poll, modes
 *   connect.c            the worker's half of connecting
 *   step.c               a channel's queue made, connected, reset and ended by the control thread
 *   channel.c            a channel's life: open, failed, closed
 *   show.c               what can be seen of a channel from outside
 *   send.c receive.c     messages out and in
 *   credit.c             who may send how much; what is put off until there is room
 *   large.c landing.c    messages that are written to a place in landing memory
 *
 * Threads: what stands here is the group's worker's, but where it says "control". The two talk by
 * letters (control to worker) and orders (worker to control); neither waits for the other, but where
 * a driver's queues cannot be polled while one is made (vbn__queue_step_is_apart()), and when a group
 * is made or ends.
 */
#ifndef VBN_CHAN_H
#define VBN_CHAN_H

#include "chan/channel_wire.h"
#include "chan/handshake.h"
#include "chan/session.h"
#include "port/port.h"

#include <verbena/channel.h>

/* ---- connecting: dial.c is control's, connect.c the worker's ---- */

enum letter_kind {
	LETTER_SAID,  /* OFFER, ANSWER or READY has come, checked: its bytes */
	LETTER_OVER,  /* the session has ended: code, and why as text */
	LETTER_GONE,  /* the last one: the dial is the worker's to free */
	LETTER_N = 4, /* a listener's dial has two of the first */
};

/* What lies in a group's inbox: a letter, or a step of a queue that has been carried out. */
struct note {
	struct mail mail;
	bool of_queue;
};

/* To the worker. */
struct letter {
	struct note note;
	struct dial *dial;
	enum letter_kind kind;
	enum handshake_kind said;
	int code;
	uint32_t len;
	uint8_t bytes[HANDSHAKE_MAX];
};

enum dial_order_kind { ORDER_CONNECT, ORDER_SAY, ORDER_DONE, ORDER_N };

/* To the control thread. */
struct dial_order {
	struct reactor_order order;
	struct dial *dial;
	enum dial_order_kind kind;
};

/* One session of one handshake. Made by who begins it; freed by the worker when the last letter of
 * it has come. All its letters and orders are there from the start, so that none can fail. */
struct dial {
	struct vbn_channel_group *group;       /* constant */
	struct vbn_channel_listener *listener; /* that it came by; constant */
	/* the worker's */
	struct vbn_channel *channel;
	bool begun;               /* the control thread knows of it */
	bool done;                /* what still comes is of no interest */
	struct vbn_address queue; /* the peer's, once its terms are taken */
	/* control's */
	struct session *session;
	struct reactor_timer timer;
	int expected; /* enum handshake_kind; 0: nothing */
	bool over;
	struct dial *next, **at; /* in the group's list */
	struct letter letters[LETTER_N];
	int n_letters;
	/* written by the worker before it orders */
	struct dial_order orders[ORDER_N];
	struct endpoint endpoints[ENDPOINT_MAX];
	int n_endpoints;
	uint64_t patience_ns;
	uint8_t say[HANDSHAKE_MAX];
	uint32_t say_len;
	bool refuses, rejects; /* rejects: `say` goes before the reason */
	char reason[WIRE_MAX_REFUSE + 1];
};

struct listen_request {
	struct vbn_channel_listener *listener;
	struct endpoint endpoints[ENDPOINT_MAX];
	int n_endpoints;
};

struct vbn_channel_listener {
	struct vbn_channel_group *group;
	vbn_channel_accept_fn *accept;
	void *arg;
	struct session_listener *core; /* control's */
	bool ended;                    /* the worker's: takes nobody any more */
	char address[ENDPOINT_TEXT];
	struct vbn_channel_listener *next;
};

/* The worker's orders, each once; they do not wait. Connecting says the offer when it can. */
void vbn__dial_connect(struct dial *dial, const struct offer *offer);
void vbn__dial_say(struct dial *dial, const struct offer *offer);
/* No more of this handshake: in order, or with a reason for the peer, before which it is told what the
 * application has to say. */
void vbn__dial_reject(struct dial *dial, const struct offer *reject, const char *reason);
void vbn__dial_done(struct dial *dial, const char *reason);

/* The worker waits for these. Ending a group makes every dial of it GONE. */
int vbn__dial_listen(struct listen_request *request);
void vbn__dial_unlisten(struct vbn_channel_listener *listener);
void vbn__dial_end_group(struct vbn_channel_group *group);
/* Every order that has been given is carried out. */
void vbn__dial_settle(void);

/* ---- a channel ---- */

enum channel_state {
	CHANNEL_DIALING,   /* waits for its queue, and the peer's answer; or to be resumed */
	CHANNEL_ANSWERING, /* waits for its queue, and the peer to be ready */
	CHANNEL_OPEN,
	CHANNEL_RESTING, /* broken, the other end is to dial, or this one presently */
	CHANNEL_CLOSED_,
	CHANNEL_FAILED_,
	CHANNEL_LEAVING, /* given back by the application: ends when the device is done with it */
	CHANNEL_GONE,    /* ends when its queue has */
};

/* What is put off until there is room; each is tried once a poll. */
enum channel_todo {
	TODO_CREDIT = 1 << 0,
	TODO_PLACE = 1 << 1,
	TODO_LARGE = 1 << 2,
	TODO_END = 1 << 3,
	TODO_CLOSE = 1 << 4,
	TODO_READY = 1 << 5, /* the application waits to send */
	TODO_REST = 1 << 6,  /* broken: the old queue has to get quiet; new: a ring needs room */
	TODO_LEAVE = 1 << 7,
};

/* Events that no queue yields, in the order in which they are given. */
enum channel_news {
	NEWS_OPENED = 1 << 0,
	NEWS_RESUMED = 1 << 1,
	NEWS_READY = 1 << 2,
	NEWS_ENDED = 1 << 3,
	NEWS_CLOSED = 1 << 4,
	NEWS_BROKEN = 1 << 5,
	NEWS_FAILED = 1 << 6,
	NEWS_LARGE = 1 << 7, /* all of a large message is back; before the others */
};

struct place;

/* A large message going out: a chain taken apart. */
struct large_out {
	struct vbn_buf *head, *at;             /* at: the first segment that is not staged */
	uint32_t n_segments, n_staged, n_back; /* staged; and back from the device */
	uint64_t number, size, offset;
	struct vbn_remote to;
	uint8_t flags;               /* of head, as the application gave it */
	bool placed, landed, failed; /* landed: the peer has been told; failed: a write has */
};

/* What keeps the next message from being sent or received as most are. */
enum channel_flag {
	FLAG_ENDS = 1 << 0,       /* the application sends nothing more */
	FLAG_LARGE_OUT = 1 << 1,  /* a large message is going out: `out` */
	FLAG_PEER_ENDED = 1 << 2, /* the peer sends nothing more */
	FLAG_LARGE_IN = 1 << 3,   /* a large message is coming in: `in_size` */
};

#define NO_RING UINT16_MAX /* the queue's own */

struct vbn_channel {
	/* line 0: all that a message reads and writes here */
	struct vbn_queue *queue;
	struct vbn_channel_group *group;
	uint64_t sent_messages, received_messages;
	uint32_t sent, limit; /* sends, and up to where the peer allows them */
	uint32_t received, granted,
		told;           /* sends of the peer; what it may, and knows that it may */
	uint32_t peer_buf_size; /* bytes of message that go into one buf there */
	uint16_t peer_window;
	uint16_t ring; /* which of the group's, or NO_RING */
	uint8_t state; /* enum channel_state */
	uint8_t todo;  /* enum channel_todo; listed where not 0 */
	uint8_t news;  /* enum channel_news; listed where not 0 */
	uint8_t flags; /* enum channel_flag */
	/* line 1 */
	bool hungry cache_aligned; /* listed: not granted a whole window */
	bool end_sent;             /* the peer has been told that this end has ended */
	bool was_open, dials, goes_on;
	bool in_todo, in_news;
	struct vbn_channel *next_todo, *next_news, *next_hungry;
	struct large_out *out;
	struct place *in;   /* where the peer's large message goes, or will */
	uint64_t in_size;   /* 0: none is announced */
	uint64_t heard_at;  /* group ticks */
	uint32_t heard;     /* `received` then */
	uint64_t delivered; /* messages that the peer is known to have received */
	uint64_t peer_max_message;
	void *context;
	/* connecting and failing */
	struct step *step; /* of the queue, under way */
	struct dial *dial;
	struct letter *resume; /* the peer's offer to go on, until the old queue is quiet */
	uint64_t resume_until; /* clock_ns() */
	uint64_t dial_at;      /* the next try; 0: none */
	uint64_t leave_until;
	char *address;   /* that it connects to */
	uint8_t *answer; /* what the end that listens says, to be sent or received */
	uint32_t answer_len;
	char *error; /* exchanged where others may look: vbn__counters_exchange() */
	struct counter_set counters;
	struct vbn_channel *next, **at; /* all of the group */
	uint8_t name[CHANNEL_NAME_BYTES];
	char peer[ENDPOINT_TEXT];
};
static_assert(offsetof(struct vbn_channel, hungry) == CACHE_LINE, "a message touches one line");
static_assert(HANDSHAKE_MAX_DATA == VBN_CHANNEL_MAX_DATA, "one bound by two names");
static_assert(HANDSHAKE_MAX_WINDOW <= UINT16_MAX, "a window fits its field");

enum group_count {
	COUNT_OPENED_CHANNELS,
	COUNT_CLOSED,
	COUNT_FAILED,
	COUNT_RESUMED,
	COUNT_REFUSED_HERE,
	COUNT_FAULTS,
	COUNT_DROPPED,
	COUNT_CREDITS,
	COUNT_LARGE_SENT,
	COUNT_LARGE_RECEIVED,
	COUNT_PROBES,
	COUNT_GROUP_N
};

struct landing {
	struct vbn_export *exported;
	struct place *first; /* by offset */
	uint64_t size, used;
};

enum {
	POLL_BATCH = 32, /* events of queues that are taken at a time */
	GROUP_HELD = 12, /* the most that one of them leads to */
	TICK_BATCH = 64, /* channels that are looked at in one poll for signs of life */
};

/* A shared receive ring, and what has been promised of it: sends that peers may still make. */
struct ring {
	struct vbn_srq *srq;
	uint32_t promised, n_channels, max_channels;
	bool generous; /* receives are posted for all that is promised, and was when events were
			  last taken: who has received may be granted as much again */
};

struct vbn_channel_group {
	struct queue_list *queues;
	struct ring *rings; /* NULL: each channel has one of its own */
	uint32_t n_rings;
	bool ending;
	uint32_t window;       /* of each channel here */
	uint32_t credit_batch; /* a limit is told when it has risen by so much */
	struct vbn_channel *todo, *news, *hungry;
	uint64_t tick_cycles, next_tick, ticks;
	struct vbn_channel *ticking; /* the next one to look for signs of life */
	struct mailbox inbox;        /* letters */
	int n_held, first_held;      /* of `held` */
	uint64_t counts[COUNT_GROUP_N];
	/* control path */
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_channel_group_conf conf, asked;
	struct vbn_queue_conf queue_conf;
	struct vbn_pool *rx_pool, *header_pool;
	struct landing landing;
	struct vbn_channel *channels;
	struct vbn_channel *asking; /* which the application is asked about */
	uint32_t n_channels;
	uint32_t n_gone; /* of them, those that the application has no more */
	struct vbn_channel_listener *listeners;
	struct dial *dials; /* control's */
	struct counter_set counters;
	char name[32];
	/* events that the caller had no room for */
	struct vbn_channel_event held[POLL_BATCH * GROUP_HELD];
};

static force_inline struct ring *channel_ring(const struct vbn_channel *channel)
{
	return channel->ring == NO_RING ? NULL : &channel->group->rings[channel->ring];
}

static inline void group_count(struct vbn_channel_group *group, enum group_count which)
{
	count_add(&group->counts[which], 1);
}

/* Where events go: to the caller, and from the first one that it has no room for to `held`. */
struct sink {
	struct vbn_channel_event *events;
	int n, room;
};

static force_inline struct vbn_channel_event *sink_next(
	struct sink *sink, struct vbn_channel_group *group)
{
	return likely(sink->n < sink->room) ? &sink->events[sink->n++]
					    : &group->held[group->n_held++];
}

static inline struct vbn_channel_event *sink_event(
	struct sink *sink, struct vbn_channel *channel, enum vbn_channel_op op)
{
	struct vbn_channel_event *event = sink_next(sink, channel->group);

	*event = (struct vbn_channel_event){.channel = channel, .op = (uint8_t)op};
	return event;
}

/* channel.c */
struct vbn_channel *vbn__channel_new(struct vbn_channel_group *group);
/* Ends it, and frees it once its queue has ended. */
void vbn__channel_free(struct vbn_channel *channel);
/* Credits and sequences of a queue that is new or has been reset. */
void vbn__channel_start_credits(struct vbn_channel *channel);
void vbn__channel_opened(struct vbn_channel *channel);
/* For good, with the reason. */
void vbn__channel_failed(struct vbn_channel *channel, const char *fmt, ...) printf_like(2, 3);
/* The peer has broken the rules. */
void vbn__channel_faulty(struct vbn_channel *channel, enum channel_fault fault);
/* The queue has failed: closed, to be resumed, or failed. */
void vbn__channel_broken(struct vbn_channel *channel, const char *why);
bool vbn__channel_try_close(struct vbn_channel *channel);
/* True: it has left and is freed. */
bool vbn__channel_try_leave(struct vbn_channel *channel);

/* show.c */
void vbn__channel_show(struct vbn_channel *channel);

/* step.c: steps of a channel's queue, one at a time; 0, or -errno where a step cannot be begun. What
 * comes of it is told by the functions of connect.c below. */
int vbn__channel_make_queue(struct vbn_channel *channel);
int vbn__channel_connect_queue(struct vbn_channel *channel, const struct vbn_address *peer);
/* -EAGAIN: it is under way, or waits for the queue to get quiet. */
int vbn__channel_reset_queue(struct vbn_channel *channel);
void vbn__channel_end_queue(struct vbn_channel *channel);
void vbn__channel_stepped(struct note *note);

/* connect.c */
void vbn__channel_made(struct vbn_channel *channel, int error);
void vbn__channel_connected(struct vbn_channel *channel, int error);
void vbn__channel_reset(struct vbn_channel *channel, int error);
void vbn__letters_take(struct vbn_channel_group *group);
/* A broken channel: resets its queue, and connects it again. True: nothing more to wait for. */
bool vbn__channel_rest(struct vbn_channel *channel);
/* The dial, if any, is of no interest any more. */
void vbn__channel_hang_up(struct vbn_channel *channel, const char *reason);

/* send.c */
/* False: there is no room. Uses the reserve. */
bool vbn__channel_say(
	struct vbn_channel *channel, enum channel_type type, const void *body, uint32_t len);
/* A buf has come back. */
void vbn__channel_returned(
	struct vbn_channel *channel, const struct vbn_event *event, struct sink *sink);

static inline int channel_room(const struct vbn_channel *channel)
{
	return (int)(channel->limit - channel->sent) - CHANNEL_RESERVE;
}

/* receive.c */
/* Takes events of the group's queues and says what they mean, or gives one channel's news. False:
 * there is nothing more. */
bool vbn__group_collect(struct vbn_channel_group *group, struct sink *sink);

/* credit.c */
void vbn__channel_put_off(struct vbn_channel *channel, enum channel_todo todo);
void vbn__channel_tell(struct vbn_channel *channel, enum channel_news news);
/* At most 4 events. */
void vbn__channel_give_news(struct vbn_channel *channel, struct sink *sink);
/* It has received, and is to be granted as much again when there is. */
void vbn__channel_is_hungry(struct vbn_channel *channel);
void vbn__channel_unlist(struct vbn_channel *channel);
/* Before what was taken from the queues is looked at. */
void vbn__group_look_at_rings(struct vbn_channel_group *group);
void vbn__group_grant(struct vbn_channel_group *group);
void vbn__group_do(struct vbn_channel_group *group);
/* Looks for signs of life of some more. */
void vbn__group_tick(struct vbn_channel_group *group);

/* It has received, and is granted as much again. Where the ring is generous that is at once: what
 * has been received was promised, and the receive for it has been posted again, so that promising it
 * again keeps the balance. */
static force_inline void channel_wants(struct vbn_channel *channel)
{
	const struct ring *ring = channel_ring(channel);

	if (unlikely(!ring || !ring->generous)) {
		vbn__channel_is_hungry(channel);
		return;
	}
	channel->granted++;
	if (unlikely(channel->granted - channel->told >= channel->group->credit_batch))
		vbn__channel_put_off(channel, TODO_CREDIT);
}

/* large.c */
int vbn__large_begin(struct vbn_channel *channel, struct vbn_buf *buf);
/* True: all is staged. */
bool vbn__large_stage(struct vbn_channel *channel);
/* True: the peer has been told. */
bool vbn__large_place(struct vbn_channel *channel);
/* A segment has come back; `buf` and `number` of the event, where the last one has. */
void vbn__large_returned(
	struct vbn_channel *channel, const struct vbn_event *event, struct sink *sink);
/* Returns it once the device has none of it: as sent, or not. */
void vbn__large_settle(struct vbn_channel *channel, struct sink *sink);
/* Frees what the device does not have. */
void vbn__large_free(struct vbn_channel *channel);

/* landing.c */
int vbn__landing_create(struct vbn_channel_group *group);
void vbn__landing_destroy(struct landing *landing);
struct place *vbn__landing_take(struct landing *landing, uint64_t size);
void vbn__landing_give(struct place *place);
struct vbn_remote vbn__place_remote(const struct place *place);
uint8_t *vbn__place_data(const struct place *place);

#endif
