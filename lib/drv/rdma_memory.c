/* rdma_memory.c - registering zones (local access) and exports (remote access) with an RDMA device
 */

#include "drv/rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* CAP_IPC_LOCK as it is in effect, whatever the process was configured to have. */
static bool may_lock_any_amount(void)
{
	unsigned long long effective = 0;
	char line[128];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	if (file)
		fclose(file);
	return effective & (1ull << 14);
}

static int register_failed(const struct vbn_port *port, const char *what, size_t size, int error)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (error == ENOMEM && limit.rlim_cur != RLIM_INFINITY && !may_lock_any_amount())
		return fail(error,
			"port %s cannot register %s of %zu KiB: registered memory counts against the memlock limit, which is %llu KiB: "
			"raise it with `ulimit -l unlimited` (shell), LimitMEMLOCK=infinity (systemd) or --ulimit memlock=-1 (container)",
			port->info.name, what, size >> 10,
			(unsigned long long)limit.rlim_cur >> 10);
	if (error == EFAULT)
		return fail(error,
			"port %s cannot register %s of %zu KiB: this process has not mapped all of it for writing: see that its address and size are right",
			port->info.name, what, size >> 10);
	return fail(error, "port %s cannot register %s of %zu KiB: %s", port->info.name, what,
		size >> 10, strerror(error));
}

int vbn__rdma_zone_register(
	struct vbn_port *port, struct vbn_zone *zone, struct zone_registration *registration)
{
	unsigned int flags = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_mr *mr;
	char what[64];

	/* An access flag that may be ignored: a device or kernel without it takes the rest. */
	flags |= port->relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0u;
	mr = ibv_reg_mr(rdma_port(port)->pd, zone->base, zone->size, flags);
	if (!mr) {
		snprintf(what, sizeof(what), "zone \"%s\"", zone->name);
		return register_failed(port, what, zone->size, errno);
	}
	registration->region = mr;
	registration->key = mr->lkey;
	registration->generation = vbn__zone_generation(zone);
	return 0;
}

void vbn__rdma_zone_unregister(struct vbn_port *port, struct zone_registration *registration)
{
	(void)port;
	if (registration->region)
		ibv_dereg_mr(registration->region);
	*registration = (struct zone_registration){0};
}

int vbn__rdma_export_register(struct vbn_port *port, void *addr, size_t size, uint32_t access,
	bool relaxed, struct export_key *key)
{
	unsigned int flags = IBV_ACCESS_LOCAL_WRITE; /* verbs want it wherever a peer may write */
	struct ibv_mr *mr;

	flags |= access & VBN_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u;
	flags |= access & VBN_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0u;
	flags |= access & VBN_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0u;
	flags |= relaxed ? IBV_ACCESS_RELAXED_ORDERING : 0u;
	mr = ibv_reg_mr(rdma_port(port)->pd, addr, size, flags);
	if (!mr)
		return register_failed(port, "an export", size, errno);
	*key = (struct export_key){.region = mr, .rkey = mr->rkey};
	return 0;
}

void vbn__rdma_export_unregister(struct vbn_port *port, struct export_key *key)
{
	(void)port;
	if (key->region)
		ibv_dereg_mr(key->region);
	*key = (struct export_key){0};
}
