/* device.c - devices, their port and GIDs, and the contexts that programs open on them */

#include "vhca/device.h"
#include "vhca/devx.h"
#include "vhca/doze.h"
#include "vhca/pcap.h"
#include "vhca/trace.h"

#include <rdma/mlx5-abi.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct vhca_device devices[VHCA_MAX_DEVICES];
static int n_devices;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- addresses ---- */

/* An address of the options, or the one that is `index` further. */
static struct vhca_address address_of(const struct vhca_address *first, int index)
{
	struct vhca_address address = *first;
	uint32_t carry = (uint32_t)index;

	for (int i = 15; carry && i > 11; i--) {
		carry += address.raw[i];
		address.raw[i] = (uint8_t)carry;
		carry >>= 8;
	}
	return address;
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

void vhca_device_identify(struct vhca_device *device, const uint8_t mac[6], bool host)
{
	uint8_t local[16];

	link_local(mac, local);
	memcpy(&device->node_guid, local + 8, 8);
	device->node_guid = be64toh(device->node_guid);
	for (uint8_t type = 0; type < 2; type++) {
		device->gids[type] = (struct vhca_gid){.type = type, .host = host};
		memcpy(device->gids[type].raw, local, 16);
	}
}

static void set_address(struct vhca_device *device, uint32_t at, const struct vhca_address *address)
{
	for (uint8_t type = 0; type < 2; type++) {
		device->gids[at + type] = (struct vhca_gid){
			.type = type, .vlan = address->vlan, .prefix = address->prefix};
		memcpy(device->gids[at + type].raw, address->raw, 16);
	}
}

/* The first one is the port's, of which its MAC is made. */
static void set_first(struct vhca_device *device, const struct vhca_address *address)
{
	uint8_t mac[6];

	memcpy(device->address, address->raw, 16);
	port_mac(address->raw, mac);
	vhca_device_identify(device, mac, false);
	set_address(device, 2, address);
}

static void set_addresses(struct vhca_device *device, const struct vhca_options *options)
{
	for (uint32_t i = 0; i < options->n_addresses; i++) {
		struct vhca_address address = address_of(&options->addresses[i], device->index);

		if (i)
			set_address(device, 2 + 2 * i, &address);
		else
			set_first(device, &address);
	}
	for (uint32_t i = 0; i < options->n_gateways; i++)
		memcpy(device->gateways[i], options->gateways[i].raw, 16);
	device->n_gateways = options->n_gateways;
}

struct vhca_device *vhca_find_device(const uint8_t gid[16], uint16_t vlan)
{
	static const uint8_t empty_entry[16];

	if (!memcmp(gid, empty_entry, 16))
		return NULL;
	for (int d = 0; d < n_devices; d++)
		for (size_t i = 0; i < VHCA_N_GIDS; i++)
			if (!memcmp(devices[d].gids[i].raw, gid, 16) &&
				devices[d].gids[i].vlan == vlan)
				return &devices[d];
	return NULL;
}

struct vhca_device *vhca_find_peer_device(const struct vhca_qp *qp)
{
	const struct vhca_gid *source = &qp->object.context->device->gids[qp->sgid_index];

	return vhca_find_device(qp->set.ah_attr.grh.dgid.raw, source->vlan);
}

/* ---- devices ---- */

void vhca_device_address(const struct vhca_device *device, uint8_t address[16])
{
	memcpy(address, device->address, 16);
}

void vhca_device_move(struct vhca_device *device, const uint8_t address[16])
{
	struct vhca_address moved = {.prefix = 0};

	memcpy(moved.raw, address, 16);
	set_first(device, &moved);
}

static const struct vhca_wire_ops *const wires[] = {
	&vhca_wire_loopback, &vhca_wire_udp, &vhca_wire_tap, &vhca_wire_packet};

static bool is_named(const char *text, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(text, name, length) && (!text[length] || text[length] == ':');
}

/* A port that reaches no other process must not seem to be one of another's: it has an address that
 * follows from the number of its own, within 127.128.0.0/9. */
static void take_own_address(struct vhca_device *device)
{
	uint32_t number = (uint32_t)getpid() * VHCA_MAX_DEVICES + (uint32_t)device->index;
	uint8_t address[16] = {[10] = 0xff, [11] = 0xff, 127};

	address[13] = (uint8_t)(0x80 | number >> 16);
	address[14] = (uint8_t)(number >> 8);
	address[15] = (uint8_t)number;
	memset(device->gids, 0, sizeof(device->gids));
	vhca_device_move(device, address);
}

/* What cannot be had, after a sentence about it, leaves the device with the QPs of its process. */
static struct vhca_wire *make_wire(struct vhca_device *device, const char *text)
{
	const char *argument = strchr(text, ':');
	struct vhca_wire *wire = NULL;

	device->refused = 0;
	for (size_t i = 0; i < ARRAY_SIZE(wires); i++)
		if (is_named(text, wires[i]->name))
			wire = wires[i]->create(device, argument ? argument + 1 : "");
	if (!wire || (wire->ops == &vhca_wire_loopback && !vhca_address_asked()))
		take_own_address(device);
	return wire ? wire : vhca_wire_loopback.create(device, "");
}

static int make_device(int index, const struct vhca_options *options)
{
	struct vhca_device *device = &devices[index];

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
	set_addresses(device, options);
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
	vhca_doze_wake();
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
	error = have_wires() ? device->refused : ENOMEM;
	if (!error)
		error = vhca_engine_start();
	if (error)
		goto no_engine;
	start_clock(context);
	vhca_lock(device);
	context->next = device->contexts;
	device->contexts = context;
	vhca_doze_pages_changed();
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
	static const enum vhca_kind order[] = {VHCA_COUNTER_SET, VHCA_MATCHER, VHCA_UMEM, VHCA_QP,
		VHCA_TIR, VHCA_RQT, VHCA_WQ, VHCA_SRQ, VHCA_AH, VHCA_MW, VHCA_MR, VHCA_CQ,
		VHCA_CHANNEL, VHCA_UAR, VHCA_XRCD, VHCA_PD};
	struct vhca_device *device = context->device;

	vhca_lock(device);
	destroy_kind(context, VHCA_STEER_RULE);
	vhca_devx_end(context);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		destroy_kind(context, order[i]);
	for (struct vhca_context **link = &device->contexts; *link; link = &(*link)->next) {
		if (*link == context) {
			*link = context->next;
			break;
		}
	}
	vhca_events_destroy(context->async);
	vhca_doze_pages_changed();
	vhca_unlock(device);
	vhca_engine_stop();
	munmap(context->bar, VHCA_BAR_SIZE);
	close(context->bar_fd);
	free(context);
}
