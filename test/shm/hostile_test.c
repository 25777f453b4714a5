/* hostile_test.c - a peer process that writes what it likes over every word that it shares, while this
 * one works: each time the queue fails and says so, nothing outside of what is exported changes, no
 * message is longer than its buf, every buf comes home, and the next queue works
 *
 * Each liar goes on until it is found out, and each is: whatever the words that it lies about, sooner
 * or later they say what cannot be. What could be true is no lie: queue_test.c has the words that
 * nobody reads, and those that only keep who wrote them waiting.
 *
 * SHM_SECONDS says for how long (2). Under AddressSanitizer nothing is read where it should not be.
 */

#include "two.h"

#include "drv/shm/lend.h"

#include <signal.h>
#include <sys/wait.h>

enum { GUARD = 4096, N_STATUSES = 32 };

/* ---- the liar ---- */

static uint64_t any64(unsigned int *seed)
{
	return (uint64_t)rand_r(seed) << 40 ^ (uint64_t)rand_r(seed) << 20 ^ (uint64_t)rand_r(seed);
}

static uint64_t plausible(unsigned int *seed)
{
	static const uint32_t lengths[] = {0, 1, 8, 64, 100, 2048, 4096, 9000, 9001, 16383, 16384,
		1 << 20, INT32_MAX, UINT32_MAX - 7, UINT32_MAX};
	uint32_t len = lengths[(size_t)rand_r(seed) % ARRAY_SIZE(lengths)];
	uint64_t header = record_header((enum shm_kind)(rand_r(seed) % (SHM_N_KINDS + 2)), len);

	if (rand_r(seed) % 8 == 0)
		header |= any64(seed) << 40;
	return header;
}

static uint64_t *word_of(struct shm_segment *segment, uint64_t which)
{
	return (uint64_t *)(void *)(segment->base + which % (segment->size / 8) * 8);
}

static uint64_t lie(unsigned int *seed)
{
	switch (rand_r(seed) % 4) {
	case 0: return any64(seed);
	case 1: return (uint64_t)rand_r(seed) % 64;
	case 2: return two.remote.addr + (uint64_t)rand_r(seed) % TWO_EXPORT;
	default: return plausible(seed);
	}
}

enum { ANYWHERE, RECORDS, HEADS, ONE_WORD, BOX, REFERENCES, N_WAYS };

static const char *const ways[N_WAYS] = {
	"anywhere", "records", "heads", "a word that changes", "the box", "references"};

static struct shm_ref some_ref(unsigned int *seed)
{
	static const uint32_t lengths[] = {0, 1, 100, 4096, 9000, 9001, SHM_REF_PIECE,
		SHM_REF_PIECE + 1, INT32_MAX, UINT32_MAX};
	const uint64_t size = two.pool->zone->size;
	const uint64_t offsets[] = {0, 64, size / 2, size - 100, size, size + 1, UINT64_MAX,
		UINT64_MAX - 8999, any64(seed)};

	return (struct shm_ref){.offset = offsets[(size_t)rand_r(seed) % ARRAY_SIZE(offsets)],
		.slot = rand_r(seed) % 4 ? 0 : (uint32_t)rand_r(seed) % (SHM_VIEWS + 2),
		.len = lengths[(size_t)rand_r(seed) % ARRAY_SIZE(lengths)]};
}

/* A message or a write that is somewhere else. */
static void refer(struct ring_writer *w, unsigned int *seed)
{
	const bool writes = rand_r(seed) % 2;
	const uint32_t n = (uint32_t)rand_r(seed) % (SHM_REFS + 2),
		       extra = writes ? sizeof(struct shm_write) : sizeof(struct shm_part);
	const uint32_t size = record_size(extra, n * (uint32_t)sizeof(struct shm_ref));
	const struct shm_write write = {
		.addr = two.remote.addr + (uint64_t)rand_r(seed) % TWO_EXPORT,
		.rkey = two.remote.rkey,
		.flags = (uint32_t)rand_r(seed) % 4};
	struct shm_part part = {.total = 4096 + (uint32_t)rand_r(seed) % 3 * 2452};
	uint8_t *at;

	if (((uint32_t)w->pos & w->mask) + size > w->mask)
		w->pos = 0;
	at = (uint8_t *)ring_word(w->ring, w->mask, w->pos);
	memcpy(at + SHM_WORD, writes ? (const void *)&write : &part, extra);
	for (uint32_t i = 0; i < n; i++) {
		const struct shm_ref ref = some_ref(seed);

		memcpy(at + SHM_WORD + extra + i * sizeof(ref), &ref, sizeof(ref));
	}
	store_release((uint64_t *)(void *)at,
		record_header(writes ? SHM_WRITE_REF : SHM_PART_REF,
			n * (uint32_t)sizeof(struct shm_ref)));
	w->pos += size;
}

/* A moment of one way to lie. */
static void lie_so(int how, unsigned int *seed)
{
	struct shm_queue *sq = shm_queue(two.queue);
	struct ring_writer *w = &sq->tx.ring;

	switch (how) {
	case ANYWHERE:
		for (int i = 0; i < 2000; i++)
			store_once(word_of(i % 2 ? sq->out : sq->in, any64(seed)), lie(seed));
		break;
	case RECORDS: /* one behind the other */
		for (int i = 0; i < 50; i++) {
			const uint32_t size = record_size(40, (uint32_t)rand_r(seed) % 100);
			uint64_t *at = ring_word(w->ring, w->mask, w->pos);

			if (((uint32_t)w->pos & w->mask) + size > w->mask)
				w->pos = 0;
			for (uint32_t k = 1; k < 6; k++)
				store_once(&at[k], lie(seed));
			store_release(at, plausible(seed));
			w->pos += size;
		}
		break;
	case HEADS: /* what has been taken, and whether it is open */
		for (int i = 0; i < 200; i++) {
			store_once(&segment_head(sq->in)->taken, lie(seed));
			store_once(&segment_head(sq->out)->taken, lie(seed));
			if (i % 50 == 0)
				store_once(&segment_head(sq->in)->open, (uint32_t)rand_r(seed));
		}
		break;
	case REFERENCES: /* to memory that is lent, or nearly so; what they name changes meanwhile */
		for (int i = 0; i < 20; i++)
			refer(w, seed);
		break;
	case ONE_WORD: { /* that is now this, now that; what is taken is followed by the next one */
		uint64_t *at = ring_word(w->ring, w->mask, w->pos);

		for (int i = 0; i < 3000; i++)
			store_once(at, record_header(SHM_SEND, i % 2 ? 8 : TWO_DATA + 1));
		w->pos += record_size(0, 8);
		break;
	}
	default: /* the box: the message that is next is one of these */
		for (int i = 0; i < 500; i++)
			store_once(&sq->talk.box->word,
				box_word((uint16_t)(rand_r(seed) % 32),
					(uint32_t)rand_r(seed) % 300, lie(seed)));
		break;
	}
}

static int other_lies(void)
{
	unsigned int seed = (unsigned int)getpid();
	struct two_word word;

	two_is_other();
	while (two_hear(&word) && word.word) {
		two_connect();
		for (int k = 0; k < 10; k++)
			vbn_send_inline(two.queue, "some", 4);
		vbn_flush(two.queue);
		while (!two_may_hear()) /* until it is found out */
			lie_so((int)(word.word % N_WAYS), &seed);
		two_hear(&word);
		two_disconnect();
		two_say(&word);
	}
	return 0;
}

/* ---- who works on ---- */

static uint64_t count_of(enum shm_count which)
{
	return __atomic_load_n(&shm_port(two.port)->counts[which], __ATOMIC_RELAXED);
}

static void fill_guards(uint8_t *memory)
{
	memset(memory, 0x5c, GUARD);
	memset(memory + GUARD + TWO_EXPORT, 0x5c, GUARD);
}

static void check_guards(const uint8_t *memory)
{
	for (size_t i = 0; i < GUARD; i++)
		if (memory[i] != 0x5c || memory[GUARD + TWO_EXPORT + i] != 0x5c)
			unit_fail("byte %zu beside what is exported was written", i);
}

/* Lone messages, which give the turn away, so that this end looks into the box. */
static void work_lone(void)
{
	vbn_send_inline(two.queue, "lone", 4);
	vbn_flush(two.queue);
}

/* A read that is not answered keeps all that follows from waiting for what is taken, and then nobody
 * looks at that. */
static void work(uint64_t number, bool reads)
{
	struct vbn_buf *buf;
	struct vbn_remote at = {two.remote.addr, two.remote.rkey};
	int ret;

	if (vbn_buf_alloc(two.pool, &buf, 1) != 1)
		return;
	buf->len = (uint32_t)(number * 97 % 3000);
	if (number % 4 == 0)
		vbn_buf_set_cookie(buf, &two);
	if (reads && number % 5 == 0)
		ret = vbn_read_one(two.queue, buf, at);
	else if (number % 7 == 0)
		ret = vbn_write_one(two.queue, buf, at);
	else
		ret = vbn_send_one(two.queue, buf);
	if (ret != 1)
		vbn_buf_free(&buf, 1);
	vbn_flush(two.queue);
}

/* What is handed out is whole, whatever the peer says of it. */
static void check_event(const struct vbn_event *event, int way)
{
	const bool is_message = event->op == VBN_OP_RECV;

	assert_true(event->queue == two.queue);
	if (event->buf)
		assert_in_range(event->buf->len, 0, TWO_DATA);
	if (is_message)
		assert_int_equal(event->len, event->buf->len);
	if (is_message && way == ONE_WORD) /* never the one word's length with the other's leave */
		assert_true(event->len == 4 || event->len == 8);
	if (is_message && way == BOX)
		assert_in_range(event->len, 0, SHM_BOX_DATA);
}

/* How the queue came to its end: its status. */
static enum vbn_status until_failed(int way)
{
	const uint64_t since = clock_ns();
	enum vbn_status status = VBN_OK;
	uint64_t number = 0;

	while (status == VBN_OK) {
		struct vbn_event events[16];
		int n;

		if (way == BOX)
			work_lone();
		else
			work(number++, way != HEADS);
		n = vbn_poll(two.worker, events, 16);
		for (int i = 0; i < n; i++) {
			check_event(&events[i], way);
			if (events[i].op == VBN_OP_FAILED)
				status = (enum vbn_status)events[i].status;
			if (events[i].buf)
				vbn_buf_free(&events[i].buf, 1);
		}
		if (clock_ns() - since > 60 * SECOND_NS)
			unit_fail("who lies so was not found out in a minute: %s", ways[way]);
	}
	return status;
}

static void report(uint64_t ends[N_WAYS][N_STATUSES])
{
	for (int way = 0; way < N_WAYS; way++) {
		printf("%s:", ways[way]);
		for (int i = 0; i < N_STATUSES; i++)
			if (ends[way][i])
				printf(" %llu %s;", (unsigned long long)ends[way][i],
					vbn_status_text((enum vbn_status)i));
		printf("\n");
	}
}

static void test_liar(void **state)
{
	const char *asked = getenv("SHM_SECONDS");
	const uint64_t end = clock_ns() + (asked ? strtoull(asked, NULL, 10) : 2) * SECOND_NS;
	static uint8_t memory[2 * GUARD + TWO_EXPORT];
	struct vbn_export_conf conf = {.addr = memory + GUARD,
		.size = TWO_EXPORT,
		.access = VBN_REMOTE_WRITE | VBN_REMOTE_READ | VBN_REMOTE_ATOMIC};
	static uint64_t ends[N_WAYS][N_STATUSES];
	uint64_t rounds;

	(void)state;
	fill_guards(memory);
	vbn_export_destroy(two.exported);
	assert_int_equal(vbn_export_create(two.port, &conf, &two.exported), 0);
	two_start("lies");
	/* each way at least once, on a busy machine, too */
	for (rounds = 0; clock_ns() < end || rounds < 2 * N_WAYS; rounds++) {
		struct two_word word = {.word = N_WAYS + rounds};
		const int way = (int)(rounds % N_WAYS);
		const uint64_t faults = count_of(SHM_FAULTS);
		enum vbn_status status;
		struct vbn_event event;

		two_say(&word);
		two_connect();
		status = until_failed(way);
		ends[way][status]++;
		assert_int_equal(count_of(SHM_FAULTS) - faults, status == VBN_BAD_RESPONSE);
		two_say(&word);
		while (vbn_poll(two.worker, &event, 1)) {
			check_event(&event, way);
			vbn_buf_free(&event.buf, event.buf != NULL);
		}
		two_disconnect();
		assert_int_equal(vbn_pool_available(two.pool), TWO_BUFS);
		check_guards(memory);
		assert_true(two_hear(&word)); /* the liar is still there */
	}
	two_say(&(struct two_word){.word = 0});
	assert_int_equal(two_wait(), 0);
	report(ends);
	vbn_export_destroy(two.exported);
	two.exported = NULL;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_liar, two_open, two_close),
	};

	(void)argv;
	signal(SIGPIPE, SIG_IGN);
	two_pool_conf.memfd = VBN_ON;
	if (argc > 1)
		return other_lies();
	return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
