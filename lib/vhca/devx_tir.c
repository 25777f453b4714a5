/* devx_tir.c - DevX: indirection tables and TIRs, by the PRM's commands */

#include "vhca/devx_object.h"

#include <rdma/mlx5-abi.h>
#include <stdlib.h>

/* ---- indirection tables ---- */

/* The queues of a table, to be freed; NULL and an errno. */
static struct vhca_wq **read_table(
	const struct vhca_mailbox *mailbox, uint32_t most, uint32_t *n, int *error)
{
	struct vhca_wq **wqs;

	*error = EINVAL;
	*n = in_get32(mailbox, RQT_CONTEXT, RQTC_ACTUAL_SIZE);
	if (!*n || *n > most || in_get32(mailbox, RQT_CONTEXT, RQTC_LIST_TYPE))
		return NULL;
	wqs = calloc(*n, sizeof(struct vhca_wq *));
	*error = wqs ? 0 : ENOMEM;
	for (uint32_t i = 0; !*error && i < *n; i++) {
		uint32_t field = FIELD(RQT_CONTEXT + RQTC_LIST + 32 * i + 8, 24);

		wqs[i] = vhca_devx_find_rq(mailbox->context, in_get(mailbox, field));
		if (!wqs[i])
			*error = EINVAL;
	}
	return wqs;
}

int vhca_devx_create_rqt(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	uint32_t most = in_get32(mailbox, RQT_CONTEXT, RQTC_MAX_SIZE), n;
	struct vhca_rqt *rqt;
	struct vhca_wq **wqs;
	int error;

	if (most > 1u << VHCA_MAX_RQT)
		return EINVAL;
	wqs = read_table(mailbox, most, &n, &error);
	error = error ?: vhca_rqt_create(mailbox->context, wqs, n, &rqt);
	free(wqs);
	if (error)
		return error;
	devx->most = most;
	devx->of = &rqt->object;
	devx->id = rqt->number;
	return 0;
}

int vhca_devx_modify_rqt(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_rqt *rqt = container_of(devx->of, struct vhca_rqt, object);
	uint32_t n;
	int error;
	struct vhca_wq **wqs = read_table(mailbox, devx->most, &n, &error);

	error = error ?: vhca_rqt_modify(rqt, wqs, n);
	free(wqs);
	return error;
}

/* ---- TIRs ---- */

static uint32_t tirc(const struct vhca_mailbox *mailbox, uint32_t field)
{
	return in_get32(mailbox, TIR_CONTEXT, field);
}

static uint64_t hash_fields(const struct vhca_mailbox *mailbox)
{
	bool ipv6 = tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_L3));
	bool udp = tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_L4));
	uint32_t selected = tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_FIELDS));
	uint64_t fields = 0;

	if (selected & 1)
		fields |= ipv6 ? MLX5_RX_HASH_SRC_IPV6 : MLX5_RX_HASH_SRC_IPV4;
	if (selected & 2)
		fields |= ipv6 ? MLX5_RX_HASH_DST_IPV6 : MLX5_RX_HASH_DST_IPV4;
	if (selected & 4)
		fields |= udp ? MLX5_RX_HASH_SRC_PORT_UDP : MLX5_RX_HASH_SRC_PORT_TCP;
	if (selected & 8)
		fields |= udp ? MLX5_RX_HASH_DST_PORT_UDP : MLX5_RX_HASH_DST_PORT_TCP;
	return fields;
}

static int check_tir(const struct vhca_mailbox *mailbox)
{
	uint32_t hash = tirc(mailbox, TIRC_HASH);

	uint32_t domain = tirc(mailbox, TIRC_TRANSPORT_DOMAIN);

	if ((domain && !vhca_devx_find(mailbox->context, VHCA_DEVX_TRANSPORT_DOMAIN, domain)) ||
		tirc(mailbox, TIRC_DISPATCH) > 1)
		return EINVAL;
	if (tirc(mailbox, TIRC_LRO) || tirc(mailbox, TIRC_TUNNELED) ||
		tirc(mailbox, WITHIN(TIRC_INNER, SELECT_FIELDS)) ||
		tirc(mailbox, WITHIN(TIRC_OUTER, SELECT_FIELDS)) > 15 ||
		(hash != HASH_NONE && hash != HASH_TOEPLITZ))
		return EOPNOTSUPP;
	return 0;
}

int vhca_devx_create_tir(struct vhca_mailbox *mailbox, struct vhca_devx *devx)
{
	struct vhca_context *context = mailbox->context;
	struct vhca_tir_attr attr = {.symmetric = tirc(mailbox, TIRC_SYMMETRIC)};
	struct vhca_devx *domain = vhca_devx_find(
		context, VHCA_DEVX_TRANSPORT_DOMAIN, tirc(mailbox, TIRC_TRANSPORT_DOMAIN));
	struct vhca_tir *tir;
	int error = check_tir(mailbox);

	if (error)
		return error;
	if (tirc(mailbox, TIRC_DISPATCH))
		attr.rqt = vhca_devx_find_number(
			context, &context->device->tables->rqts, tirc(mailbox, TIRC_TABLE));
	else
		attr.wq = vhca_devx_find_rq(context, tirc(mailbox, TIRC_RQN));
	if (tirc(mailbox, TIRC_HASH) == HASH_TOEPLITZ)
		attr.fields = hash_fields(mailbox);
	for (uint32_t i = 0; i < VHCA_RSS_KEY; i++)
		attr.key[i] = (uint8_t)tirc(mailbox, FIELD(TIRC_KEY + 8 * i, 8));
	error = vhca_tir_create(context, &attr, &tir);
	if (error)
		return error;
	if (domain) /* that of number 0 is the device's */
		vhca_devx_hold(devx, &domain->object);
	devx->of = &tir->object;
	devx->id = tir->number;
	return 0;
}
