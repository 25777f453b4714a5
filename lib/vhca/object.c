/* object.c - what all objects share: numbers, lists, ends; and PDs, AHs, MRs, UARs */

#include "vhca/devx.h"
#include "vhca/raw.h"

#include <stdlib.h>

enum { FIRST_NUMBER = 64, N_NUMBERS = 1 << 24 };

/* ---- numbers ---- */

static int numbers_grow(struct vhca_numbers *numbers)
{
	uint32_t n = max(numbers->n * 2, 1024u);
	void **object;

	if (n > N_NUMBERS)
		return ENOMEM;
	object = realloc(numbers->object, n * sizeof(*object));
	if (!object)
		return ENOMEM;
	memset(object + numbers->n, 0, (n - numbers->n) * sizeof(*object));
	numbers->object = object;
	numbers->n = n;
	return 0;
}

int vhca_number_add(struct vhca_numbers *numbers, void *object, uint32_t *number)
{
	uint32_t i;

	if (numbers->used + FIRST_NUMBER >= numbers->n / 2 && numbers_grow(numbers) &&
		numbers->used + FIRST_NUMBER >= numbers->n)
		return ENOMEM;
	for (i = max(numbers->next, (uint32_t)FIRST_NUMBER);; i++) {
		if (i >= numbers->n)
			i = FIRST_NUMBER;
		if (!numbers->object[i])
			break;
	}
	numbers->object[i] = object;
	numbers->used++;
	numbers->next = i + 1;
	*number = i;
	return 0;
}

void vhca_number_remove(struct vhca_numbers *numbers, uint32_t number)
{
	numbers->object[number] = NULL;
	numbers->used--;
}

static void *numbers_find(const struct vhca_numbers *numbers, uint32_t number)
{
	return number < numbers->n ? numbers->object[number] : NULL;
}

int vhca_tables_create(struct vhca_device *device)
{
	struct vhca_tables *tables = calloc(1, sizeof(*tables));

	if (!tables)
		return ENOMEM;
	vhca_list_init(&tables->pages);
	vhca_list_init(&tables->active);
	vhca_list_init(&tables->waiting);
	vhca_list_init(&tables->errored);
	vhca_list_init(&tables->unreported);
	vhca_list_init(&tables->sessions);
	vhca_list_init(&tables->moderated);
	vhca_list_init(&tables->steering);
	device->tables = tables;
	return 0;
}

struct vhca_qp *vhca_find_qp(struct vhca_device *device, uint32_t number)
{
	return numbers_find(&device->tables->qps, number);
}

struct vhca_cq *vhca_find_cq(struct vhca_device *device, uint32_t number)
{
	return numbers_find(&device->tables->cqs, number);
}

/* ---- what all objects share ---- */

void *vhca_object_new(struct vhca_context *context, enum vhca_kind kind, size_t size)
{
	struct vhca_object *object = aligned_alloc(CACHE_LINE, round_up(size, CACHE_LINE));

	if (!object)
		return NULL;
	memset(object, 0, size);
	object->kind = kind;
	object->context = context;
	return object;
}

void vhca_object_link(struct vhca_object *object)
{
	struct vhca_context *context = object->context;

	object->next = context->objects;
	object->back = &context->objects;
	if (object->next)
		object->next->back = &object->next;
	context->objects = object;
}

void vhca_object_free(struct vhca_object *object)
{
	*object->back = object->next;
	if (object->next)
		object->next->back = object->back;
	free(object);
}

/* ---- PD and AH ---- */

int vhca_pd_create(struct vhca_context *context, struct vhca_pd **result)
{
	struct vhca_pd *pd = vhca_object_new(context, VHCA_PD, sizeof(*pd));

	if (!pd)
		return ENOMEM;
	pd->pdn = ++context->device->tables->next_pdn & 0xffffff;
	vhca_object_link(&pd->object);
	*result = pd;
	return 0;
}

static bool gid_valid(const struct vhca_device *device, uint32_t index)
{
	static const uint8_t none[16];

	return index < VHCA_N_GIDS && memcmp(device->gids[index].raw, none, 16);
}

/* What RoCE asks of an address vector. */
int vhca_address_check(
	const struct vhca_device *device, const struct ibv_ah_attr *attr, uint32_t sgid_index)
{
	if (attr->port_num != 1 || !attr->is_global)
		return EINVAL;
	return gid_valid(device, sgid_index) ? 0 : EINVAL;
}

int vhca_ah_create(struct vhca_pd *pd, const struct ibv_ah_attr *attr, struct vhca_ah **result)
{
	struct vhca_context *context = pd->object.context;
	int error = vhca_address_check(context->device, attr, attr->grh.sgid_index);
	struct vhca_ah *ah;

	if (error)
		return error;
	ah = vhca_object_new(context, VHCA_AH, sizeof(*ah));
	if (!ah)
		return ENOMEM;
	ah->pd = pd;
	ah->attr = *attr;
	pd->object.refs++;
	vhca_object_link(&ah->object);
	*result = ah;
	return 0;
}

static void ah_destroy(struct vhca_ah *ah)
{
	ah->pd->object.refs--;
	vhca_object_free(&ah->object);
}

/* ---- MR ---- */

enum {
	ACCESS_KNOWN = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB
};

static int access_check(uint32_t access)
{
	uint32_t writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (access & ~(uint32_t)(ACCESS_KNOWN | IBV_ACCESS_OPTIONAL_RANGE))
		return EINVAL;
	return (access & writes) && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

static int range_check(uint64_t start, uint64_t length, uint64_t iova)
{
	if (!length || start + length < start || iova + length < iova)
		return EINVAL;
	return (start ^ iova) & (VHCA_PAGE - 1) ? EINVAL : 0;
}

/* Pages are brought in as a real registration pins them, which takes time: the engine runs
 * meanwhile, and `keep` stays. Those on demand come when they are used. */
static int memory_bring_in(
	struct vhca_object *keep, uint64_t start, uint64_t length, uint32_t access)
{
	struct vhca_device *device = keep->context->device;
	int error;

	if (access & IBV_ACCESS_ON_DEMAND)
		return 0;

	keep->refs++;
	vhca_unlock(device);
	error = vhca_memory_check(
		start, length, access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	vhca_lock(device);
	keep->refs--;
	return error;
}

static int variants_fit(struct vhca_tables *tables, uint32_t before)
{
	uint8_t *variant;

	if (tables->variant && before == tables->keys.n)
		return 0;
	variant = realloc(tables->variant, tables->keys.n);
	if (!variant)
		return ENOMEM;
	memset(variant + before, 0, tables->keys.n - before);
	tables->variant = variant;
	return 0;
}

static int key_add(struct vhca_tables *tables, struct vhca_mr *mr)
{
	uint32_t before = tables->variant ? tables->keys.n : 0, index;
	int error = vhca_number_add(&tables->keys, mr, &index);

	if (error)
		return error;
	error = variants_fit(tables, before);
	if (error) {
		vhca_number_remove(&tables->keys, index);
		return error;
	}
	mr->key = index << 8 | ++tables->variant[index];
	return 0;
}

int vhca_mr_create(struct vhca_pd *pd, uint64_t start, uint64_t length, uint64_t iova,
	uint32_t access, struct vhca_mr **result)
{
	struct vhca_context *context = pd->object.context;
	int error = access_check(access);
	struct vhca_mr *mr;

	if (!error)
		error = range_check(start, length, iova);
	if (!error)
		error = memory_bring_in(&pd->object, start, length, access);
	if (error)
		return error;
	mr = vhca_object_new(context, VHCA_MR, sizeof(*mr));
	if (!mr)
		return ENOMEM;
	mr->pd = pd;
	mr->start = start;
	mr->length = length;
	mr->iova = iova;
	mr->access = access;
	error = key_add(context->device->tables, mr);
	if (error) {
		free(mr);
		return error;
	}
	pd->object.refs++;
	vhca_object_link(&mr->object);
	*result = mr;
	return 0;
}

int vhca_mr_rereg(struct vhca_mr *mr, uint32_t flags, struct vhca_pd *pd, uint64_t start,
	uint64_t length, uint64_t iova, uint32_t access)
{
	bool translation = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	struct vhca_tables *tables = vhca_tables_of(&mr->object);
	int error;

	if (!flags || flags & ~(uint32_t)IBV_REREG_MR_FLAGS_SUPPORTED)
		return EINVAL;
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = mr->access;
	if (!translation) {
		start = mr->start;
		length = mr->length;
		iova = mr->iova;
	}
	error = access_check(access);
	if (!error)
		error = range_check(start, length, iova);
	if (!error)
		error = memory_bring_in(&mr->object, start, length, access);
	if (error)
		return error;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mr->pd->object.refs--;
		mr->pd = pd;
		pd->object.refs++;
	}
	mr->start = start;
	mr->length = length;
	mr->iova = iova;
	mr->access = access;
	if (translation) /* the memory behind the old key is another: who still has it must be told
			  */
		mr->key = (mr->key & ~0xffu) | ++tables->variant[mr->key >> 8];
	return 0;
}

int vhca_mr_advise(struct vhca_pd *pd, uint32_t lkey, uint64_t addr, uint64_t length, bool writable)
{
	struct vhca_mr *mr = vhca_find_mr(vhca_tables_of(&pd->object), lkey);
	uint8_t *memory;

	if (!mr)
		return ENOENT;
	if (mr->pd != pd || (writable && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
		return EPERM;
	memory = vhca_mr_at(mr, addr, length);
	if (!(mr->access & IBV_ACCESS_ON_DEMAND) || !memory)
		return EINVAL;
	return memory_bring_in(
		&mr->object, (uintptr_t)memory, length, writable ? IBV_ACCESS_LOCAL_WRITE : 0);
}

static void mr_destroy(struct vhca_mr *mr)
{
	vhca_number_remove(&vhca_tables_of(&mr->object)->keys, mr->key >> 8);
	mr->pd->object.refs--;
	vhca_object_free(&mr->object);
}

cold uint8_t vhca_local_refused(
	struct vhca_qp *qp, uint32_t index, const struct mlx5_wqe_data_seg *seg, uint32_t need)
{
	uint32_t key = from_be32(seg->lkey);
	const struct vhca_mr *mr = vhca_find_mr(qp->tables, key);

	if (!mr)
		vhca_rule_report(VHCA_RULE_LKEY, qp, index, "lkey", key, VHCA_ANOTHER);
	else if (mr->pd != qp->pd)
		vhca_rule_report(
			VHCA_RULE_LKEY_PD, qp, index, "PD of the lkey", mr->pd->pdn, qp->pd->pdn);
	else if (need & ~mr->access)
		vhca_rule_report(VHCA_RULE_LKEY_ACCESS, qp, index, "access", mr->access, need);
	else
		vhca_rule_report(VHCA_RULE_LKEY_BOUNDS, qp, index, "addr", from_be64(seg->addr),
			VHCA_ANOTHER);
	return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
}

/* ---- UAR ---- */

int vhca_uar_create(struct vhca_context *context, struct vhca_uar **result)
{
	struct vhca_page *page;
	uint32_t i = 0;

	while (i < ARRAY_SIZE(context->uars_used) && !~context->uars_used[i])
		i++;
	if (i == ARRAY_SIZE(context->uars_used))
		return ENOMEM;
	page = vhca_object_new(context, VHCA_UAR, sizeof(*page));
	if (!page)
		return ENOMEM;
	page->uar.page = i * 64 + (uint32_t)__builtin_ctzll(~context->uars_used[i]);
	context->uars_used[i] |= 1ull << (page->uar.page % 64);
	page->registers = context->bar + (size_t)page->uar.page * VHCA_PAGE;
	memset(page->registers, 0, VHCA_PAGE);
	vhca_list_init(&page->qps);
	vhca_list_init(&page->cqs);
	vhca_list_add(&context->device->tables->pages, &page->link);
	vhca_object_link(&page->uar.object);
	*result = &page->uar;
	return 0;
}

static void uar_destroy(struct vhca_uar *uar)
{
	struct vhca_page *page = container_of(uar, struct vhca_page, uar);

	uar->object.context->uars_used[uar->page / 64] &= ~(1ull << (uar->page % 64));
	vhca_list_remove(&page->link);
	vhca_object_free(&uar->object);
}

struct vhca_page *vhca_page_find(struct vhca_context *context, uint32_t number)
{
	struct vhca_link *pages = &context->device->tables->pages;

	for (struct vhca_link *link = pages->next; link != pages; link = link->next) {
		struct vhca_page *page = container_of(link, struct vhca_page, link);

		if (page->uar.object.context == context && page->uar.page == number)
			return page;
	}
	return NULL;
}

/* ---- the end of any object ---- */

int vhca_object_destroy(struct vhca_object *object)
{
	if (object->refs)
		return EBUSY;
	if (object->kind == VHCA_DEVX && vhca_devx_in_use((struct vhca_devx *)(void *)object))
		return EBUSY;
	switch (object->kind) {
	case VHCA_MR: mr_destroy(container_of(object, struct vhca_mr, object)); break;
	case VHCA_CQ: vhca_cq_destroy(container_of(object, struct vhca_cq, object)); break;
	case VHCA_QP: vhca_qp_destroy(container_of(object, struct vhca_qp, object)); break;
	case VHCA_SRQ: vhca_srq_destroy(container_of(object, struct vhca_srq, object)); break;
	case VHCA_AH: ah_destroy(container_of(object, struct vhca_ah, object)); break;
	case VHCA_UAR: uar_destroy(container_of(object, struct vhca_uar, object)); break;
	case VHCA_CHANNEL:
		vhca_channel_destroy(container_of(object, struct vhca_channel, object));
		break;
	case VHCA_WQ: vhca_wq_destroy(container_of(object, struct vhca_wq, queue.object)); break;
	case VHCA_RQT: vhca_rqt_destroy(container_of(object, struct vhca_rqt, object)); break;
	case VHCA_TIR: vhca_tir_destroy(container_of(object, struct vhca_tir, object)); break;
	case VHCA_STEER_RULE:
		vhca_steer_rule_destroy((struct vhca_steer_rule *)(void *)object);
		break;
	case VHCA_DEVX: vhca_devx_destroy((struct vhca_devx *)(void *)object); break;
	case VHCA_PD:
	case VHCA_COUNTER_SET:
	case VHCA_MATCHER:
	case VHCA_UMEM:
	case VHCA_XRCD:
	case VHCA_MW: vhca_object_free(object); break;
	}
	return 0;
}
