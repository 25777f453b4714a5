/* device_fuzz.c - an emulated device without its engine's thread: the target says when it runs */

/* The engine's own sweep, with nothing that starts a thread or waits for it. */
#define vhca_engine_start  unused_engine_start
#define vhca_engine_stop   unused_engine_stop
#define vhca_engine_settle unused_engine_settle
int unused_engine_start(void);
void unused_engine_stop(void);
#include "../../lib/vhca/engine.c"
#undef vhca_engine_start
#undef vhca_engine_stop
#undef vhca_engine_settle

#include "device_fuzz.h"

/* The names that the headers, too, were given another for. */
int vhca_engine_start(void);
void vhca_engine_stop(void);
void vhca_engine_settle(struct vhca_device *device);

#include <stdlib.h>
#include <sys/mman.h>

int vhca_engine_start(void)
{
	clock_init();
	engine.next_deadline = UINT64_MAX;
	return 0;
}

void vhca_engine_stop(void)
{
}

void vhca_engine_settle(struct vhca_device *device)
{
	vhca_unlock(device);
	fuzz_sweep();
	vhca_lock(device);
}

void fuzz_sweep(void)
{
	sweep(vhca_n_devices());
}

void fuzz_device_init(const char *wire)
{
	setenv("VHCA_WIRE", wire, 1);
	vbn__log_set(-1, NULL, NULL);
	fuzz_demand(vhca_n_devices() == 1);
}

struct vhca_context *fuzz_context(void)
{
	struct vhca_context *context = NULL;
	int fd = memfd_create("uar", MFD_CLOEXEC);

	fuzz_demand(fd >= 0 && !ftruncate(fd, VHCA_BAR_SIZE));
	fuzz_demand(!vhca_context_create(vhca_device(0), fd, &context));
	close(fd);
	return context;
}

void fuzz_demand(bool holds)
{
	if (!holds)
		abort();
}
