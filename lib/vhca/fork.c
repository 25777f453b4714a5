/* fork.c - what a child of fork() has of the emulation: none of its parent's devices
 *
 * As on hardware, objects belong to who made them. In the child their memory is its own copy, so that
 * nothing it does reaches the parent; the pages that it shares with the parent, the UARs, are taken
 * from it; a command on an inherited descriptor is refused. It may open devices of its own.
 */

#include "vhca/device.h"
#include "vhca/trap.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

bool vhca_fork_left_devices;

/* So that the child finds everything whole: no command and no sweep is under way. */
void vhca_fork_prepare(void)
{
	for (int i = 0; i < vhca_n_devices_made(); i++)
		vhca_lock(vhca_device(i));
}

void vhca_fork_parent(void)
{
	for (int i = vhca_n_devices_made() - 1; i >= 0; i--)
		vhca_unlock(vhca_device(i));
}

/* ---- the child ---- */

/* In place of what is shared: memory of its own, where doorbells go unheard. */
static void take_page(uintptr_t start, uintptr_t end)
{
	(void)mmap((void *)start, end - start, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* The program's mappings of a device file, wherever it has made them. */
static void take_pages(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t(*ranges)[2] = NULL, (*grown)[2];
	char line[512];
	size_t n = 0;

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (!strstr(line, "/memfd:infiniband/uverbs") ||
			sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		grown = realloc(ranges, (n + 1) * sizeof(*ranges));
		if (!grown)
			break;
		ranges = grown;
		ranges[n][0] = start;
		ranges[n++][1] = end;
	}
	for (size_t i = 0; i < n; i++)
		take_page(ranges[i][0], ranges[i][1]);
	free(ranges);
	if (maps)
		fclose(maps);
}

/* Lists stay where they can be found, so that nothing counts as leaked. */
struct left {
	struct left *next;
	struct vhca_context *contexts;
	struct vhca_tables *tables;
};

static struct left *left_over;

static void leave(struct vhca_device *device)
{
	struct left *left = malloc(sizeof(*left));

	if (left) {
		left->next = left_over;
		left->contexts = device->contexts;
		left->tables = device->tables;
		left_over = left;
	}
	for (struct vhca_context *context = device->contexts; context; context = context->next)
		close(context->bar_fd);
	device->contexts = NULL;
	if (vhca_tables_create(device))
		abort(); /* without memory for a few lists */
}

static void begin_anew(struct vhca_device *device)
{
	pthread_mutex_init(&device->lock, NULL);
	device->commands_waiting = 0;
	device->port_up = true;
	device->fatal = false;
	device->counters = (struct vhca_counters){.port_xmit_data = 0};
	if (device->wire) /* its sockets would keep the parent's address taken */
		device->wire->ops->destroy(device->wire);
	device->wire = NULL; /* until the child opens a device */
	leave(device);
}

void vhca_fork_child(void)
{
	for (int i = 0; i < vhca_n_devices_made(); i++)
		vhca_fork_left_devices |= vhca_device(i)->contexts != NULL;
	if (vhca_fork_left_devices)
		take_pages();
	for (int i = 0; i < vhca_n_devices_made(); i++)
		begin_anew(vhca_device(i));
	vhca_engine_forked();
	vhca_status_forked();
	vhca_trap_forked();
}
