/* packet_pcapng.c - blocks of the pcapng draft (IETF opsawg), and a file that is written without waiting for
 * ever */
#include "packet_pcapng.h"
#include "cmd.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define PATIENCE 500000000u /* ns that a reader may take nothing, once all is over */

enum { LINKTYPE_ETHERNET = 1, BLOCK_PACKET = 6 };

/* ---- the file ---- */

int pcapng_open(struct pcapng *file, const char *path, const bool *over)
{
	file->over = over;
	file->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
	return file->fd < 0 ? errno : 0;
}

/* Of a pipe that is full. False: it is not waited any longer. */
static bool await_reader(struct pcapng *file, uint64_t since)
{
	struct pollfd out = {.fd = file->fd, .events = POLLOUT};

	if (__atomic_load_n(file->over, __ATOMIC_RELAXED) && now_ns() - since > PATIENCE)
		return false;
	poll(&out, 1, 20);
	return true;
}

/* Of the blocks in the buffer those that are in the file: its first n bytes. */
static void count_packets(struct pcapng *file, size_t n)
{
	uint32_t head[3]; /* type, length; of a packet its interface */

	for (size_t at = 0; at + sizeof(head) <= n; at += head[1]) {
		memcpy(head, file->out + at, sizeof(head));
		if (head[0] == BLOCK_PACKET && at + head[1] <= n)
			file->written[head[2]]++;
	}
}

void pcapng_flush(struct pcapng *file)
{
	uint64_t since = now_ns();
	size_t at = 0;

	while (at < file->n_out && !file->error) {
		ssize_t n = write(file->fd, file->out + at, file->n_out - at);

		if (n > 0) {
			at += (size_t)n;
			since = now_ns();
		} else if (n < 0 && errno == EAGAIN) {
			file->error = await_reader(file, since) ? 0 : ETIMEDOUT;
		} else if (n < 0 && errno != EINTR) {
			file->error = errno;
		}
	}
	count_packets(file, at);
	file->n_out = 0;
}

/* Of a block. */
static void make_room(struct pcapng *file, size_t n)
{
	if (file->n_out + n > sizeof(file->out))
		pcapng_flush(file);
}

static void write_bytes(struct pcapng *file, const void *bytes, size_t n)
{
	memcpy(file->out + file->n_out, bytes, n);
	file->n_out += n;
}

int pcapng_close(struct pcapng *file)
{
	int error;

	if (file->fd < 0)
		return 0;
	pcapng_flush(file);
	error = file->error;
	if (close(file->fd) && !error)
		error = errno;
	file->fd = -1;
	return error;
}

/* ---- blocks: a body is put together, and padded ---- */

struct block {
	uint8_t bytes[1024];
	size_t n;
};

static void put(struct block *block, const void *bytes, size_t n)
{
	static const uint8_t pad[4];

	memcpy(block->bytes + block->n, bytes, n);
	memcpy(block->bytes + block->n + n, pad, -n & 3);
	block->n += (n + 3) & ~(size_t)3;
}

static void put_option(struct block *block, uint16_t code, const void *value, size_t n)
{
	const uint16_t head[2] = {code, (uint16_t)n};

	put(block, head, sizeof(head));
	put(block, value, n);
}

static void put_count(struct block *block, uint16_t code, uint64_t value)
{
	put_option(block, code, &value, sizeof(value));
}

/* Times are two halves, the higher one first. */
static void put_time(struct block *block, uint16_t code, uint64_t ns)
{
	const uint32_t halves[2] = {(uint32_t)(ns >> 32), (uint32_t)ns};

	put_option(block, code, halves, sizeof(halves));
}

static void write_block(struct pcapng *file, uint32_t type, struct block *block)
{
	uint32_t length = (uint32_t)(block->n + 12);
	const uint32_t head[2] = {type, length};

	make_room(file, length);
	write_bytes(file, head, sizeof(head));
	write_bytes(file, block->bytes, block->n);
	write_bytes(file, &length, sizeof(length));
}

void pcapng_section(struct pcapng *file)
{
	struct block block = {.n = 0};
	const uint32_t start[4] = {
		0x1a2b3c4d, 1, 0xffffffff, 0xffffffff}; /* version 1.0, no length */
	static const char *const program = "verbena";

	put(&block, start, sizeof(start));
	put_option(&block, 4, program, strlen(program));
	put_option(&block, 0, "", 0);
	write_block(file, 0x0a0d0d0a, &block);
}

void pcapng_interface(struct pcapng *file, const struct pcapng_interface *interface)
{
	struct block block = {.n = 0};
	const uint32_t start[2] = {LINKTYPE_ETHERNET, interface->snaplen};
	const uint8_t nanoseconds = 9;

	put(&block, start, sizeof(start));
	put_option(&block, 2, interface->name, strlen(interface->name));
	put_option(&block, 6, interface->mac, 6);
	put_option(&block, 9, &nanoseconds, 1);
	if (interface->filter) {
		uint8_t text[512] = {0}; /* 0: the text of libpcap */
		size_t n = strlen(interface->filter);

		n = n < sizeof(text) - 1 ? n : sizeof(text) - 1;
		memcpy(text + 1, interface->filter, n);
		put_option(&block, 11, text, n + 1);
	}
	put_option(&block, 0, "", 0);
	write_block(file, 1, &block);
}

void pcapng_statistics(
	struct pcapng *file, uint32_t interface, const struct pcapng_statistics *statistics)
{
	const uint64_t now = statistics->to_ns;
	struct block block = {.n = 0};
	const uint32_t start[3] = {interface, (uint32_t)(now >> 32), (uint32_t)now};

	put(&block, start, sizeof(start));
	put_time(&block, 2, statistics->from_ns);
	put_time(&block, 3, now);
	put_count(&block, 4, statistics->received);
	put_count(&block, 5, statistics->dropped);
	put_count(&block, 6, statistics->accepted);
	put_count(&block, 8, statistics->written);
	put_option(&block, 0, "", 0);
	write_block(file, 5, &block);
}

void pcapng_packet(struct pcapng *file, const struct pcapng_packet *packet)
{
	static const uint8_t pad[4];
	const uint32_t n_pad = -packet->captured & 3, length = 32 + packet->captured + n_pad + 12;
	const uint32_t head[7] = {BLOCK_PACKET, length, packet->interface,
		(uint32_t)(packet->ns >> 32), (uint32_t)packet->ns, packet->captured,
		packet->original};
	const struct {
		uint16_t code, length;
		uint32_t flags, end, total;
	} tail = {2, 4, packet->direction, 0, length};

	static_assert(sizeof(head) + sizeof(tail) == 32 + 12, "with what is around the bytes");
	static_assert(PCAPNG_BUFFER > 65536 + sizeof(head) + sizeof(tail), "room for any packet");
	make_room(file, length);
	write_bytes(file, head, sizeof(head));
	write_bytes(file, packet->bytes, packet->captured);
	write_bytes(file, pad, n_pad);
	write_bytes(file, &tail, sizeof(tail));
}
