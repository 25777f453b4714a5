/* pcap.h - the driver for capture files: packets come from one, or go into one, or both
 *
 * Lives here: ports that are files, each with one queue. May come in: libpcap, which reads; files. May
 * touch it: port, through struct driver.
 *
 *   port.c         the driver's table, open
 *   queue.c        a port's queue: send, receive, create, free; modes
 *   reader.c       a file that is read, by libpcap: pcap and pcapng, of any time resolution
 *   reader_none.c  says what is missing, where the library was built without libpcap
 *   writer.c       a file that is written: pcap of nanoseconds, or pcapng
 *
 * A file is read and written by buffered calls on the worker's thread, some of which are system calls. That
 * is a file's nature.
 */
#ifndef VBN_PCAP_H
#define VBN_PCAP_H

#include "drv/frame_queue.h"

enum { PCAP_GATHER = 16 };

/* ---- a file that is read ---- */

struct pcap_reader;

struct pcap_packet {
	const uint8_t *data; /* until the next one */
	uint32_t len, cut;   /* bytes of it in the file, and that the file has not */
	uint64_t time;       /* ns since 1970 */
};

/* 0, or -errno with a sentence. */
int vbn__pcap_reader_open(const char *file, struct pcap_reader **reader);
/* NULL is allowed. */
void vbn__pcap_reader_close(struct pcap_reader *reader);
/* 1, 0 at the end, -EBADMSG: the file is damaged here, as `why` says. */
int vbn__pcap_reader_next(struct pcap_reader *reader, struct pcap_packet *packet, const char **why);

/* ---- a file that is written ---- */

struct pcap_writer {
	int fd;
	bool ng;
	size_t at, n; /* of `room`, what is not in the file yet */
	uint8_t room[256 << 10];
};

/* 0, or -errno with a sentence. */
int vbn__pcap_writer_open(const char *file, struct pcap_writer **writer);
/* NULL is allowed; what is buffered is written. 0 or -errno. */
int vbn__pcap_writer_close(struct pcap_writer *writer);
/* A buf or chain. 0, or -errno of the file: then it is not there, all before it is or will be, and what comes
 * next is tried anew. */
int vbn__pcap_writer_put(struct pcap_writer *writer, const struct vbn_buf *buf, uint64_t time);

/* ---- ports and queues ---- */

struct pcap_port {
	struct vbn_port port;
	struct pcap_reader *reader; /* NULL: nothing is read */
	struct pcap_writer *writer; /* NULL: nothing is written */
	char from[1024], to[1024];
};

static inline struct pcap_port *pcap_port(const struct vbn_port *port)
{
	return container_of((struct vbn_port *)(uintptr_t)port, struct pcap_port, port);
}

struct pcap_queue {
	struct frame_queue fq;
	struct vbn_buf **staged cache_aligned; /* tx_depth, from tail to head, running freely */
	uint32_t head, tail, mask;
	struct pcap_port *port;
	struct vbn_pool *pool;
	uint64_t cut; /* packets that the file has not whole */
	bool ended;
};

static force_inline struct pcap_queue *pcap_queue(const struct vbn_queue *queue)
{
	return container_of(frame_queue(queue), struct pcap_queue, fq);
}

extern const struct driver vbn__driver_pcap;

/* queue.c */
int vbn__pcap_queue_create(struct vbn_port *port, struct queue_list *list,
	const struct vbn_queue_conf *conf, struct vbn_queue **queue);
int vbn__pcap_queue_connect(struct vbn_queue *queue, const struct address *peer);
void vbn__pcap_queue_news(struct vbn_queue *queue, uint32_t news);
int vbn__pcap_queue_reset(struct vbn_queue *queue);
void vbn__pcap_queue_free(struct vbn_queue *queue);
void vbn__pcap_queue_modes(const struct vbn_queue *queue, struct mode_report *report);
void vbn__pcap_queue_drops(const struct vbn_queue *queue, struct drop_list *list);

#endif
