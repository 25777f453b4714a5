/* port.c - what changes while programs run: the port's state, its GIDs, the death of a device */

#include "vhca/device.h"
#include "vhca/trace.h"

#include <stdlib.h>

static const char *name_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_PORT_ACTIVE: return "up";
	case IBV_EVENT_PORT_ERR: return "down";
	case IBV_EVENT_GID_CHANGE: return "has other GIDs";
	default: return "is dead with its device";
	}
}

/* Programs hear of it through every context of the device. The lock is held. */
static void tell(struct vhca_device *device, enum ibv_event_type type, uint64_t element)
{
	if (unlikely(vhca_trace_on))
		vhca_trace_port(device, name_of(type));
	for (struct vhca_context *context = device->contexts; context; context = context->next)
		vhca_event_context(context, type, element);
}

/* Whoever remembers where its peer was looks again. */
static void paths_changed(void)
{
	__atomic_fetch_add(&vhca_qp_generation, 1, __ATOMIC_RELAXED);
}

/* ---- the port ---- */

void vhca_port_set(struct vhca_device *device, bool up)
{
	vhca_lock(device);
	if (device->port_up != up && !device->fatal) {
		device->port_up = up;
		device->counters.link_downed += !up;
		paths_changed();
		tell(device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, 1);
	}
	vhca_unlock(device);
}

void vhca_device_fail(struct vhca_device *device)
{
	vhca_lock(device);
	if (!device->fatal) {
		device->fatal = true;
		device->port_up = false;
		paths_changed();
		tell(device, IBV_EVENT_DEVICE_FATAL, 0);
	}
	vhca_unlock(device);
}

/* ---- GIDs ---- */

/* As the kernel gives places: where the same GID of the same type is, or the first free one. */
static int find_place(const struct vhca_device *device, const struct vhca_gid *gid)
{
	int free_place = -1;

	for (int i = 0; i < VHCA_N_GIDS; i++) {
		const struct vhca_gid *there = &device->gids[i];

		if (!vhca_gid_is_empty(there) && !memcmp(there->raw, gid->raw, sizeof(gid->raw)) &&
			there->type == gid->type && there->vlan == gid->vlan)
			return i;
		if (free_place < 0 && vhca_gid_is_empty(there))
			free_place = i;
	}
	return free_place;
}

int vhca_gid_add(struct vhca_device *device, const struct vhca_gid *gid, int *index)
{
	int error = 0;

	if (vhca_gid_is_empty(gid) || gid->type > 1 || gid->vlan > 4094)
		return EINVAL;
	vhca_lock(device);
	*index = find_place(device, gid);
	if (*index < 0) {
		error = ENOSPC;
	} else if (!vhca_gid_is_empty(&device->gids[*index])) {
		error = EEXIST;
	} else {
		device->gids[*index] = *gid;
		paths_changed();
		tell(device, IBV_EVENT_GID_CHANGE, 1);
	}
	vhca_unlock(device);
	return error;
}

int vhca_gid_delete(struct vhca_device *device, int index)
{
	int error = 0;

	if (index < 0 || index >= VHCA_N_GIDS)
		return EINVAL;
	vhca_lock(device);
	if (vhca_gid_is_empty(&device->gids[index])) {
		error = ENOENT;
	} else {
		device->gids[index] = (struct vhca_gid){.type = 0};
		paths_changed();
		tell(device, IBV_EVENT_GID_CHANGE, 1);
	}
	vhca_unlock(device);
	return error;
}

/* ---- faults by the clock ---- */

/* Of all devices. 0: not asked for. */
static uint64_t flap_ns, fatal_ns;
static uint64_t next_flap, fatal_at; /* clock_ns(); 0: not begun */

/* "250us", "10ms", "1s", "1.5": seconds when bare. From 1us to a million seconds. */
bool vhca_parse_time(const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}};
	char *end;
	double value = strtod(text, &end);

	if (end == text || text[0] < '0' || text[0] > '9')
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].unit))
			continue;
		value *= units[i].ns;
		*ns = value >= 1e3 && value < 1e15 ? (uint64_t)value : 0;
		return *ns;
	}
	return false;
}

bool vhca_port_fault(const char *word)
{
	if (!strncmp(word, "port-flap=", 10))
		return vhca_parse_time(word + 10, &flap_ns);
	if (!strncmp(word, "device-fatal=", 13))
		return vhca_parse_time(word + 13, &fatal_ns);
	return false;
}

static void flap(void)
{
	for (int i = 0; i < vhca_n_devices(); i++)
		vhca_port_set(vhca_device(i), !vhca_device(i)->port_up);
}

static void fail_all(void)
{
	for (int i = 0; i < vhca_n_devices(); i++)
		vhca_device_fail(vhca_device(i));
}

int vhca_port_clock(void)
{
	uint64_t now = clock_ns(), next = UINT64_MAX;

	if (flap_ns && !next_flap)
		next_flap = now + flap_ns;
	if (fatal_ns && !fatal_at)
		fatal_at = now + fatal_ns;
	if (flap_ns && now >= next_flap) {
		flap();
		next_flap = now + flap_ns;
	}
	if (fatal_ns && now >= fatal_at) {
		fail_all();
		fatal_ns = 0;
	}
	if (flap_ns)
		next = next_flap;
	if (fatal_ns)
		next = min(next, fatal_at);
	if (next == UINT64_MAX)
		return -1;
	return (int)min((next - now + 999999) / 1000000, (uint64_t)1000);
}
