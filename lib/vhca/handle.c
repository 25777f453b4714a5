/* handle.c - a context's handles, its completion channels, its end */
#include "front.h"

#include "vhca/trap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- handles ---- */

int vhca_handle_add(struct vhca_context *context, void *object, uint32_t *number)
{
	struct vhca_handles *handles = context->handles;
	struct vhca_object **grown;
	uint32_t n;

	for (uint32_t i = handles->first_free; i < handles->n; i++) {
		if (handles->objects[i])
			continue;
		handles->objects[i] = object;
		handles->first_free = i + 1;
		*number = i + 1;
		return 0;
	}
	n = handles->n ? handles->n * 2 : 64;
	grown = n > 1u << 24 ? NULL
			     : reallocarray(handles->objects, n, sizeof(struct vhca_object *));
	if (!grown)
		return ENOMEM;
	memset(grown + handles->n, 0, (n - handles->n) * sizeof(struct vhca_object *));
	grown[handles->n] = object;
	*number = handles->n + 1;
	handles->first_free = handles->n + 1;
	handles->objects = grown;
	handles->n = n;
	return 0;
}

void *vhca_handle_find(struct vhca_context *context, uint32_t number, enum vhca_kind kind)
{
	const struct vhca_handles *handles = context->handles;
	struct vhca_object *object = number - 1 < handles->n ? handles->objects[number - 1] : NULL;

	return object && object->kind == kind ? object : NULL;
}

int vhca_handle_destroy(struct vhca_context *context, uint32_t number, enum vhca_kind kind)
{
	struct vhca_object *object = vhca_handle_find(context, number, kind);
	struct vhca_handles *handles = context->handles;
	int error;

	if (!object)
		return EINVAL;
	error = vhca_object_destroy(object);
	if (error)
		return error;
	handles->objects[number - 1] = NULL;
	handles->first_free = min(handles->first_free, number - 1);
	return 0;
}

int vhca_handles_need(struct vhca_context *context)
{
	struct vhca_handles *handles;

	if (context->handles)
		return 0;
	handles = calloc(1, sizeof(*handles));
	if (!handles)
		return ENOMEM;
	handles->async_fd = -1;
	context->handles = handles;
	return 0;
}

/* ---- completion channels ---- */

/* Between a channel's last close and its context's. Taken before a device's lock. */
static pthread_mutex_t channels_lock = PTHREAD_MUTEX_INITIALIZER;

void vhca_channels_sweep(struct vhca_context *context)
{
	struct vhca_channel_file **at = &context->handles->channels;

	while (*at) {
		struct vhca_channel_file *file = *at;

		if (!file->closed || vhca_object_destroy(&file->channel->object)) {
			at = &file->next;
			continue;
		}
		*at = file->next;
		free(file);
	}
}

void vhca_channel_close(struct vhca_channel_file *file)
{
	struct vhca_context *context;

	pthread_mutex_lock(&channels_lock);
	context = file->context;
	if (context) {
		vhca_lock(context->device);
		file->closed = true;
		vhca_channels_sweep(context);
		vhca_unlock(context->device);
	} else {
		free(file);
	}
	pthread_mutex_unlock(&channels_lock);
}

void vhca_channels_forked(void)
{
	pthread_mutex_init(&channels_lock, NULL);
}

int vhca_channel_make(struct vhca_context *context, int *program_fd)
{
	struct vhca_channel_file *file = calloc(1, sizeof(*file));
	int error;

	if (!file)
		return ENOMEM;
	error = vhca_channel_create(context, program_fd, &file->channel);
	if (error)
		goto no_channel;
	error = vhca_fd_is_channel(*program_fd, file);
	if (error)
		goto no_fd;
	file->context = context;
	file->next = context->handles->channels;
	context->handles->channels = file;
	return 0;

no_fd:
	close(*program_fd);
	vhca_object_destroy(&file->channel->object);
no_channel:
	free(file);
	return error;
}

int vhca_async_make(struct vhca_context *context, int *program_fd)
{
	struct vhca_handles *handles = context->handles;
	int error;

	if (handles->async_fd < 0) {
		error = vhca_async_create(context, program_fd);
		if (!error)
			handles->async_fd = fcntl(*program_fd, F_DUPFD_CLOEXEC, 0);
		return error;
	}
	*program_fd = fcntl(handles->async_fd, F_DUPFD_CLOEXEC, 0);
	return *program_fd < 0 ? errno : 0;
}

/* ---- the end of a context ---- */

void vhca_context_close(struct vhca_context *context)
{
	struct vhca_handles *handles = context->handles;
	struct vhca_channel_file *file;

	pthread_mutex_lock(&channels_lock);
	while (handles && (file = handles->channels)) {
		handles->channels = file->next;
		file->context = NULL;
		file->channel = NULL;
		if (file->closed)
			free(file);
	}
	pthread_mutex_unlock(&channels_lock);
	if (unlikely(vhca_trapped))
		vhca_trap_forget(context);
	vhca_context_destroy(context);
	vhca_status_stop();
	if (!handles)
		return;
	if (handles->async_fd >= 0)
		close(handles->async_fd);
	free(handles->objects);
	free(handles);
}
