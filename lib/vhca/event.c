/* event.c - completion and async events: a pipe, and a log of what is in it
 *
 * The log is there so that DESTROY can answer how many of an object's events the program has read,
 * as the kernel does.
 */

#include "vhca/device.h"

#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MAX_EVENTS = 4096 };

struct vhca_events {
	int write_fd, read_fd;
	bool async;
	uint32_t n; /* events that the program had not read when last looked */
	struct vhca_counted *log[MAX_EVENTS];
};

union event {
	struct ib_uverbs_async_event_desc async;
	struct ib_uverbs_comp_event_desc completion;
};

static size_t event_size(const struct vhca_events *events)
{
	return events->async ? sizeof(struct ib_uverbs_async_event_desc)
			     : sizeof(struct ib_uverbs_comp_event_desc);
}

static int events_create(bool async, int *program_fd, struct vhca_events **result)
{
	struct vhca_events *events = calloc(1, sizeof(*events));
	int fds[2];

	if (!events)
		return ENOMEM;
	events->async = async;
	if (pipe2(fds, O_CLOEXEC))
		goto no_pipe;
	events->write_fd = fds[1];
	events->read_fd = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
	if (events->read_fd < 0 || fcntl(fds[1], F_SETFL, O_NONBLOCK))
		goto no_fd;
	*program_fd = fds[0];
	*result = events;
	return 0;

no_fd:
	if (events->read_fd >= 0)
		close(events->read_fd);
	close(fds[0]);
	close(fds[1]);
no_pipe:
	free(events);
	return errno;
}

void vhca_events_destroy(struct vhca_events *events)
{
	if (!events)
		return;
	close(events->write_fd);
	close(events->read_fd);
	free(events);
}

/* The first `n` of the log have been read. */
static void events_taken(struct vhca_events *events, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (events->log[i])
			events->log[i]->read++;
	events->n -= n;
	memmove(events->log, events->log + n, events->n * sizeof(events->log[0]));
}

static void events_look(struct vhca_events *events)
{
	int bytes = 0;

	if (ioctl(events->read_fd, FIONREAD, &bytes) || bytes < 0)
		return;
	if ((size_t)bytes / event_size(events) < events->n)
		events_taken(events, events->n - (uint32_t)((size_t)bytes / event_size(events)));
}

/* `counted` is NULL for what is not about an object. */
static void event_write(
	struct vhca_events *events, struct vhca_counted *counted, const union event *event)
{
	if (!events)
		return;
	if (events->n == MAX_EVENTS)
		events_look(events);
	if (events->n == MAX_EVENTS || write(events->write_fd, event, event_size(events)) < 0)
		return; /* a program that never reads its events loses the newest */
	events->log[events->n++] = counted;
}

void vhca_event_async(struct vhca_counted *object, enum ibv_event_type type)
{
	union event event = {.async = {.element = object->element, .event_type = type}};

	event_write(object->events, object, &event);
}

void vhca_event_context(struct vhca_context *context, enum ibv_event_type type, uint64_t element)
{
	union event event = {.async = {.element = element, .event_type = type}};

	event_write(context->async, NULL, &event);
}

void vhca_event_completion(struct vhca_cq *cq)
{
	union event event = {.completion = {.cq_handle = cq->completions.element}};

	event_write(cq->completions.events, &cq->completions, &event);
}

/* Moves all that is unread into another pipe, which cannot block even while the program reads too;
 * then back what is not of `counted`. */
static void events_sift(
	struct vhca_events *events, const struct vhca_counted *counted, const int scratch[2])
{
	size_t size = event_size(events);
	union event event;
	uint32_t unread, kept = 0;
	ssize_t moved;
	size_t bytes = 0;

	while ((moved = splice(events->read_fd, NULL, scratch[1], NULL, MAX_EVENTS * sizeof(event),
			SPLICE_F_NONBLOCK)) > 0)
		bytes += (size_t)moved;
	unread = (uint32_t)(bytes / size);
	if (unread > events->n)
		return;
	events_taken(events, events->n - unread);
	for (uint32_t i = 0; i < unread; i++) {
		if (read(scratch[0], &event, size) != (ssize_t)size)
			break;
		if (events->log[i] == counted)
			continue;
		if (write(events->write_fd, &event, size) == (ssize_t)size)
			events->log[kept++] = events->log[i];
	}
	events->n = kept;
}

/* Takes back what the program has not read; returns how many it has. */
uint32_t vhca_events_end(struct vhca_counted *counted)
{
	struct vhca_events *events = counted->events;
	int scratch[2];

	if (!events)
		return counted->read;
	counted->events = NULL;
	events_look(events);
	for (uint32_t i = 0; i < events->n; i++) {
		if (events->log[i] != counted)
			continue;
		if (!pipe2(scratch, O_CLOEXEC)) {
			events_sift(events, counted, scratch);
			close(scratch[0]);
			close(scratch[1]);
		}
		break;
	}
	for (uint32_t i = 0; i < events->n; i++) /* only if there was no pipe to be had */
		if (events->log[i] == counted)
			events->log[i] = NULL;
	return counted->read;
}

bool vhca_events_unread(const struct vhca_counted *counted)
{
	struct vhca_events *events = counted->events;

	if (!events)
		return false;
	events_look(events);
	for (uint32_t i = 0; i < events->n; i++)
		if (events->log[i] == counted)
			return true;
	return false;
}

int vhca_async_create(struct vhca_context *context, int *program_fd)
{
	if (context->async)
		return EBUSY;
	return events_create(true, program_fd, &context->async);
}

int vhca_channel_create(struct vhca_context *context, int *program_fd, struct vhca_channel **result)
{
	struct vhca_channel *channel = vhca_object_new(context, VHCA_CHANNEL, sizeof(*channel));
	int error;

	if (!channel)
		return ENOMEM;
	error = events_create(false, program_fd, &channel->events);
	if (error) {
		free(channel);
		return error;
	}
	vhca_object_link(&channel->object);
	*result = channel;
	return 0;
}

void vhca_channel_destroy(struct vhca_channel *channel)
{
	vhca_events_destroy(channel->events);
	vhca_object_free(&channel->object);
}
