/* channel_fixture.h - two groups of one worker on the emulated device, and what their channels have
 * told */
#ifndef CHANNEL_FIXTURE_H
#define CHANNEL_FIXTURE_H

#include "../unit/unit.h"

#include "chan/chan.h"

#include <sched.h>
#include <verbena.h>

/* Linked ahead of libibverbs; naming it keeps the linker from leaving it out. */
extern const char *vhca_present(void);

#define SECOND_NS (1000ull * 1000 * 1000)
#define LONG_NS   (60 * SECOND_NS)

enum { N_OPS = VBN_CHANNEL_FAILED + 1, N_BUFS = 1024, BUF_SIZE = 1024 };

/* What has been told of one channel. */
struct end {
	struct vbn_channel *channel;
	int seen[N_OPS];
	int order[16]; /* ops but MESSAGE, as they came */
	int n_order;
	uint64_t received, received_bytes, sent_number, unsent_number, resumed_at;
	struct vbn_channel_event held[512]; /* messages not released */
	int n_held;
	bool holds, echoes;
	char error[512];
	char told[HANDSHAKE_MAX_DATA]; /* with OPENED or FAILED */
	uint64_t told_len;
};

struct fixture {
	struct vbn_worker *worker;
	struct vbn_port *port;
	struct vbn_channel_group *here, *there; /* connects; listens */
	struct vbn_channel_listener *listener;
	struct vbn_pool *pool, *bare; /* with and without headroom */
	struct end a[4], b[4];        /* connecting; accepted */
	int n_b;
	int refuse;         /* errno of the accept function */
	const char *answer; /* what it says, or NULL */
	bool closing;
	char data[HANDSHAKE_MAX_DATA];
	size_t data_len;
	uint32_t pool_there, pool_here; /* bufs home in an idle group */
	uint32_t turn;
};
extern struct fixture f;

/* The device under test, CHANNEL_PORT; and a time, CHANNEL_PATIENCE times as long where the device or
 * the machine is slow. */
const char *port_name(void);
uint64_t patient(uint64_t ns);

/* Opens everything but groups; closes everything, and finds every buf at home. */
int fixture_open(void **state);
int fixture_close(void **state);

/* Makes both groups, `here`'s by the first conf. */
void make_groups(
	const struct vbn_channel_group_conf *here, const struct vbn_channel_group_conf *there);

/* Opens a[i] and b[i]; the next ones. */
void open_channel(int i);

/* One turn: both groups polled, for few or many events. */
void turn(void);

/* The next event of the group `here`, instead of what a turn does with it. */
void next_event_here(struct vbn_channel_event *event);

/* Turns until it holds. */
#define turn_until(condition)                                                              \
	do {                                                                               \
		uint64_t begin_ = clock_ns();                                              \
		while (!(condition)) {                                                     \
			turn();                                                            \
			if (clock_ns() - begin_ > LONG_NS)                                 \
				unit_fail("never: %s; the log: %s", #condition, unit_log); \
		}                                                                          \
	} while (0)

/* A message of a number, its bytes by that number. */
struct vbn_buf *new_message(struct vbn_pool *pool, uint64_t number, uint32_t len);
void fill(struct vbn_buf *buf, uint64_t number, uint64_t at);
void check_message(const struct vbn_channel_event *event);

/* Sends messages first to last, of `len` bytes each, whatever time it takes. */
void send_all(struct end *end, struct vbn_pool *pool, uint64_t first, uint64_t last, uint32_t len);

void release_held(struct end *end, int n);

#endif
