/* meet.h - how queues of two processes meet: a socket for each port, one connection to each process that
 * has a peer
 *
 * Everything here is the control thread's. One that waits for an answer serves others meanwhile, so
 * that two processes may wait for each other. The sockets are abstract: nothing of them is in a file
 * system, and they are gone with their process.
 */
#ifndef VBN_SHM_MEET_H
#define VBN_SHM_MEET_H

#include "drv/shm/lend.h"
#include "drv/shm/life.h"

#include <sys/un.h>

/* A descriptor that is watched. */
struct shm_source {
	int fd;
	void (*ready)(struct shm_source *source);
	struct shm_port *port;
	struct shm_source *next;
};

int vbn__shm_watch(struct shm_source *source);
void vbn__shm_source_close(struct shm_source *source);
/* What is ready within the time, one at most. */
void vbn__shm_serve_one(int timeout_ms);

/* A packet, with the one descriptor that came along, or -1; as recv(). */
ssize_t vbn__shm_receive(int socket, void *packet, size_t size, int *fds, int n_fds);

/* Whether the process at the other end is of a user that may. */
bool vbn__shm_peer_may(int fd, int *pid);

socklen_t vbn__shm_socket_name(uint64_t id, struct sockaddr_un *name);

/* The port of this process with that id, or NULL. */
struct shm_port *vbn__shm_find_port(uint64_t id);

/* What is answered to a request; client is NULL: it is of this process. With SHM_OK the queue's segment,
 * which is the asker's to write into from here on; `views` are what it lends. Else NULL. */
struct shm_segment *vbn__shm_answer(struct shm_port *port, const struct shm_request *request,
	struct shm_views *views, struct shm_reply *reply, const struct shm_source *client);
/* Nobody else will need its descriptor. */
void vbn__shm_close_fd(struct shm_segment *segment);

#endif
