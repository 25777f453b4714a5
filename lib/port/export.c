/* export.c - memory for peers, registered apart from every pool */

#include "port/port.h"
#include "run/rcu.h"

#include <stdlib.h>

struct vbn_export {
	struct vbn_port *port;
	void *addr;
	size_t size;
	size_t mapped; /* 0: the caller's memory */
	uint32_t access;
	bool relaxed;
	struct export_key key;
};

static int register_call(void *arg)
{
	struct vbn_export *exported = arg;
	struct vbn_port *port = exported->port;
	int ret = port->driver->export_register(port, exported->addr, exported->size,
		exported->access, exported->relaxed, &exported->key);

	if (!ret)
		port->n_exports++;
	return ret;
}

static int unregister_call(void *arg)
{
	struct vbn_export *exported = arg;
	struct vbn_port *port = exported->port;

	port->driver->export_unregister(port, &exported->key);
	port->n_exports--;
	return 0;
}

static int check(const struct vbn_port *port, const struct vbn_export_conf *conf)
{
	if (!port->driver->export_register)
		return fail(EOPNOTSUPP,
			"export cannot be created: port %s has raw Ethernet alone, where no peer touches memory: take an RDMA device's port, or shm",
			port->info.name);
	if (!conf->size)
		return fail(EINVAL,
			"export on port %s has no size: name how many bytes peers may touch",
			port->info.name);
	if (conf->access & ~(uint32_t)VBN_ACCESS_BITS)
		return fail(EINVAL,
			"export on port %s: access %#x has bits that no enum vbn_access names",
			port->info.name, conf->access);
	return 0;
}

VBN_API int vbn_export_create(
	struct vbn_port *port, const struct vbn_export_conf *conf, struct vbn_export **result)
{
	static const struct vbn_export_conf defaults;
	struct vbn_export *exported;
	int ret;

	if (!port)
		return fail(EINVAL, "export cannot be created: it has no port: open one");
	if (!conf)
		conf = &defaults;
	ret = check(port, conf);
	if (ret)
		return ret;
	exported = calloc(1, sizeof(*exported));
	if (!exported)
		return -ENOMEM;
	exported->port = port;
	exported->addr = conf->addr;
	exported->size = conf->size;
	exported->access = conf->access;
	exported->relaxed = conf->relaxed_ordering == VBN_ON;
	if (!exported->addr)
		exported->addr = vbn__map_on_node(
			conf->size, conf->node.set ? (int)conf->node.value : -1, &exported->mapped);
	if (!exported->addr) { /* and has been said */
		ret = -ENOMEM;
		goto free_export;
	}
	ret = vbn__control_call(-1, register_call, exported);
	if (ret)
		goto unmap;
	*result = exported;
	return 0;

unmap:
	if (exported->mapped)
		vbn__unmap(exported->addr, exported->mapped);
free_export:
	free(exported);
	return ret;
}

VBN_API void vbn_export_destroy(struct vbn_export *exported)
{
	if (!exported)
		return;
	vbn__control_call(-1, unregister_call, exported);
	if (exported->port->driver->serves_exports && exported->port->n_queues)
		vbn__rcu_wait();
	if (exported->mapped)
		vbn__unmap(exported->addr, exported->mapped);
	free(exported);
}

VBN_API void *vbn_export_addr(const struct vbn_export *exported)
{
	return exported->addr;
}

VBN_API size_t vbn_export_size(const struct vbn_export *exported)
{
	return exported->size;
}

VBN_API struct vbn_remote vbn_export_remote(const struct vbn_export *exported, size_t offset)
{
	return (struct vbn_remote){
		.addr = (uint64_t)(uintptr_t)exported->addr + offset, .rkey = exported->key.rkey};
}

/* ---- handles: the layout that verbena/export.h documents ---- */

enum { HANDLE_VERSION = 1 };

static const uint8_t magic[4] = "VBNH";

static void put64(uint8_t *at, uint64_t value)
{
	__be64 wire = be64(value);

	memcpy(at, &wire, sizeof(wire));
}

static uint64_t get64(const uint8_t *at)
{
	__be64 wire;

	memcpy(&wire, at, sizeof(wire));
	return from_be64(wire);
}

VBN_API int vbn_export_handle(
	const struct vbn_export *exported, size_t offset, size_t len, struct vbn_handle *handle)
{
	struct vbn_remote remote = vbn_export_remote(exported, offset);
	__be32 rkey = be32(remote.rkey);
	uint8_t *at = handle->bytes;

	if (!len || offset > exported->size || len > exported->size - offset)
		return -ERANGE;
	memset(handle, 0, sizeof(*handle));
	memcpy(at, magic, sizeof(magic));
	at[4] = HANDLE_VERSION;
	at[5] = (uint8_t)exported->access;
	put64(at + 8, remote.addr);
	put64(at + 16, len);
	memcpy(at + 24, &rkey, sizeof(rkey));
	return 0;
}

VBN_API int vbn_handle_open(const struct vbn_handle *handle, struct vbn_region *region)
{
	const uint8_t *at = handle->bytes;
	__be32 rkey;

	if (memcmp(at, magic, sizeof(magic)) || at[4] != HANDLE_VERSION ||
		at[5] & ~VBN_ACCESS_BITS || at[6] || at[7] || at[28] || at[29] || at[30] || at[31])
		return -EINVAL;
	memcpy(&rkey, at + 24, sizeof(rkey));
	*region = (struct vbn_region){
		.remote = {.addr = get64(at + 8), .rkey = from_be32(rkey)},
		.len = get64(at + 16),
		.access = at[5],
	};
	/* A piece that is empty, or that passes the end of the address space. */
	if (!region->len || region->remote.addr > UINT64_MAX - (region->len - 1))
		return -EINVAL;
	return 0;
}
