/* device.c - devices, their port and GIDs, and the contexts that programs open on them */

#include "vhca/device.h"
#include "vhca/pcap.h"
#include "vhca/trace.h"

#include <arpa/inet.h>
#include <rdma/mlx5-abi.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct vhca_device devices[VHCA_MAX_DEVICES];
static int n_devices;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- addresses ---- */

/* The options' address, then `index` more; IPv4 is mapped into IPv6. */
static void port_address(const char *text, int index, uint8_t address[16])
{
	uint32_t carry = (uint32_t)index;

	memset(address, 0, 16);
	if (inet_pton(AF_INET, text, address + 12) == 1)
		address[10] = address[11] = 0xff;
	else if (inet_pton(AF_INET6, text, address) != 1)
		memcpy(address, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
	for (int i = 15; carry && i > 11; i--) {
		carry += address[i];
		address[i] = (uint8_t)carry;
		carry >>= 8;
	}
}

/* A locally administered MAC made of the address, so that each port of a network has its own. */
static void port_mac(const uint8_t address[16], uint8_t mac[6])
{
	mac[0] = 0x02;
	mac[1] = 0;
	memcpy(mac + 2, address + 12, 4);
	if (address[10] != 0xff)
		mac[1] = (uint8_t)(address[0] ^ address[3] ^ address[7] ^ address[11]);
}

static void link_local(const uint8_t mac[6], uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[0] = 0xfe;
	gid[1] = 0x80;
	gid[8] = mac[0] ^ 2;
	gid[9] = mac[1];
	gid[10] = mac[2];
	gid[11] = 0xff;
	gid[12] = 0xfe;
	memcpy(gid + 13, mac + 3, 3);
}

static void set_gids(struct vhca_device *device, const uint8_t address[16])
{
	uint8_t mac[6], local[16];

	memcpy(device->address, address, 16);
	port_mac(address, mac);
	link_local(mac, local);
	memcpy(&device->node_guid, local + 8, 8);
	device->node_guid = be64toh(device->node_guid);
	for (uint8_t i = 0; i < 4; i++) {
		memcpy(device->gids[i].raw, i < 2 ? local : address, 16);
		device->gids[i].type = i & 1;
	}
}

struct vhca_device *vhca_find_device(const uint8_t gid[16])
{
	static const uint8_t empty_entry[16];

	if (!memcmp(gid, empty_entry, 16))
		return NULL;
	for (int d = 0; d < n_devices; d++)
		for (size_t i = 0; i < VHCA_N_GIDS; i++)
			if (!memcmp(devices[d].gids[i].raw, gid, 16))
				return &devices[d];
	return NULL;
}

/* ---- devices ---- */

void vhca_device_address(const struct vhca_device *device, uint8_t address[16])
{
	memcpy(address, device->address, 16);
}

void vhca_device_move(struct vhca_device *device, const uint8_t address[16])
{
	set_gids(device, address);
}

static const struct vhca_wire_ops *const wires[] = {
	&vhca_wire_loopback, &vhca_wire_udp, &vhca_wire_tap, &vhca_wire_packet};

static bool is_named(const char *text, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(text, name, length) && (!text[length] || text[length] == ':');
}

/* What cannot be had, after a sentence about it, leaves the device with the QPs of its process. */
static struct vhca_wire *make_wire(struct vhca_device *device, const char *text)
{
	const char *argument = strchr(text, ':');
	struct vhca_wire *wire = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(wires); i++)
		if (is_named(text, wires[i]->name))
			wire = wires[i]->create(device, argument ? argument + 1 : "");
	return wire ? wire : vhca_wire_loopback.create(device, "");
}

static int make_device(int index, const struct vhca_options *options)
{
	struct vhca_device *device = &devices[index];
	uint8_t address[16];

	device->index = index;
	memcpy(device->name, "mlx5_00", 8);
	if (index < 10) {
		device->name[5] = (char)('0' + index);
		device->name[6] = 0;
	} else {
		device->name[5] = (char)('0' + index / 10);
		device->name[6] = (char)('0' + index % 10);
	}
	pthread_mutex_init(&device->lock, NULL);
	device->options = &options->device[index];
	device->facts = vhca_facts(device->options->profile);
	device->port_up = true;
	device->mtu = IBV_MTU_256;
	while (device->mtu < IBV_MTU_4096 && (128 << device->mtu) < device->options->mtu)
		device->mtu++;
	port_address(options->address, index, address);
	set_gids(device, address);
	if (vhca_tables_create(device))
		return -ENOMEM;
	device->wire = make_wire(device, options->wire);
	return device->wire ? 0 : -ENOMEM;
}

static void make_devices(void)
{
	const struct vhca_options *options = vhca_options();
	int n = min(options->n_devices, VHCA_MAX_DEVICES);

	vhca_fault_parse(options->fault);
	vhca_pcap_open();
	vhca_trace_open();
	for (int i = 0; i < n; i++) {
		if (make_device(i, options)) {
			log_error("vhca: device %d cannot be made: there is no memory for it", i);
			break;
		}
		n_devices = i + 1;
	}
}

int vhca_n_devices_made(void)
{
	return n_devices;
}

int vhca_n_devices(void)
{
	pthread_once(&once, make_devices);
	return n_devices;
}

struct vhca_device *vhca_device(int index)
{
	return index >= 0 && index < vhca_n_devices() ? &devices[index] : NULL;
}

void vhca_lock(struct vhca_device *device)
{
	__atomic_fetch_add(&device->commands_waiting, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&device->lock);
	__atomic_fetch_sub(&device->commands_waiting, 1, __ATOMIC_RELAXED);
}

void vhca_unlock(struct vhca_device *device)
{
	pthread_mutex_unlock(&device->lock);
}

/* ---- contexts ---- */

/* What mlx5dv_get_clock_info() reads: ticks become nanoseconds by mult and shift. */
static void start_clock(struct vhca_context *context)
{
	struct mlx5_ib_clock_info *info = (void *)(context->bar + VHCA_BAR_CLOCK_INFO);

	info->shift = 24;
	info->mult = (uint32_t)((1000000ull << info->shift) / VHCA_CLOCK_KHZ);
	info->mask = UINT64_MAX >> 23; /* 41 bits, as the device counts */
	info->cycles = vhca_clock() & info->mask;
	info->nsec = clock_ns();
	info->overflow_period = 1000000000ull;
}

/* In a child of fork that opens a device of its own. */
static bool have_wires(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool all = true;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_devices; i++) {
		if (!devices[i].wire)
			devices[i].wire = make_wire(&devices[i], vhca_options()->wire);
		all &= devices[i].wire != NULL;
	}
	pthread_mutex_unlock(&lock);
	return all;
}

int vhca_context_create(struct vhca_device *device, int memfd, struct vhca_context **result)
{
	struct vhca_context *context = calloc(1, sizeof(*context));
	int error;

	if (!context)
		return ENOMEM;
	context->device = device;
	context->bar_size = VHCA_BAR_SIZE;
	context->bar_fd = dup(memfd);
	if (context->bar_fd < 0) {
		error = errno;
		goto no_fd;
	}
	if (ftruncate(memfd, (off_t)VHCA_BAR_SIZE)) {
		error = errno;
		goto no_bar;
	}
	context->bar =
		mmap(NULL, VHCA_BAR_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, context->bar_fd, 0);
	if (context->bar == MAP_FAILED) {
		error = errno;
		goto no_bar;
	}
	error = have_wires() ? vhca_engine_start() : ENOMEM;
	if (error)
		goto no_engine;
	start_clock(context);
	vhca_lock(device);
	context->next = device->contexts;
	device->contexts = context;
	vhca_unlock(device);
	*result = context;
	return 0;

no_engine:
	munmap(context->bar, VHCA_BAR_SIZE);
no_bar:
	close(context->bar_fd);
no_fd:
	free(context);
	return error;
}

static void destroy_kind(struct vhca_context *context, enum vhca_kind kind)
{
	struct vhca_object *object = context->objects, *next;

	for (; object; object = next) {
		next = object->next;
		if (object->kind == kind)
			vhca_object_destroy(object);
	}
}

void vhca_context_destroy(struct vhca_context *context)
{
	/* What needs others goes before them. */
	static const enum vhca_kind order[] = {VHCA_QP, VHCA_SRQ, VHCA_AH, VHCA_MW, VHCA_MR,
		VHCA_CQ, VHCA_CHANNEL, VHCA_UAR, VHCA_XRCD, VHCA_PD};
	struct vhca_device *device = context->device;

	vhca_lock(device);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		destroy_kind(context, order[i]);
	for (struct vhca_context **link = &device->contexts; *link; link = &(*link)->next) {
		if (*link == context) {
			*link = context->next;
			break;
		}
	}
	vhca_events_destroy(context->async);
	vhca_unlock(device);
	vhca_engine_stop();
	munmap(context->bar, VHCA_BAR_SIZE);
	close(context->bar_fd);
	free(context);
}
