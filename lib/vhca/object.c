/* object.c - PDs, MRs, CQs, QPs, SRQs, AHs, UARs, channels: create, modify, destroy, look up */

#include "vhca/device.h"

#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

uint64_t vhca_qp_generation = 1;

enum { FIRST_NUMBER = 64, N_NUMBERS = 1 << 24, MAX_CQE = 1 << 22, MAX_EVENTS = 4096 };

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

static int numbers_add(struct vhca_numbers *numbers, void *object, uint32_t *number)
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

static void numbers_remove(struct vhca_numbers *numbers, uint32_t number)
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
	device->tables = tables;
	return 0;
}

struct vhca_qp *vhca_find_qp(struct vhca_device *device, uint32_t number)
{
	return numbers_find(&device->tables->qps, number);
}

/* ---- what all objects share ---- */

static struct vhca_tables *tables_of(const struct vhca_object *object)
{
	return object->context->device->tables;
}

static void *object_new(struct vhca_context *context, enum vhca_kind kind, size_t size)
{
	struct vhca_object *object = aligned_alloc(CACHE_LINE, round_up(size, CACHE_LINE));

	if (!object)
		return NULL;
	memset(object, 0, size);
	object->kind = kind;
	object->context = context;
	return object;
}

static void object_link(struct vhca_object *object)
{
	struct vhca_context *context = object->context;

	object->next = context->objects;
	object->back = &context->objects;
	if (object->next)
		object->next->back = &object->next;
	context->objects = object;
}

static void object_free(struct vhca_object *object)
{
	*object->back = object->next;
	if (object->next)
		object->next->back = object->back;
	free(object);
}

/* ---- events: a pipe, and a log of what is in it, so that DESTROY can answer how many have been
 * read ---- */

struct vhca_events {
	int write_fd, read_fd;
	bool async;
	uint32_t n; /* events that the program had not read when last looked */
	struct vhca_counted *log[MAX_EVENTS];
};

union event {
	struct ib_uverbs_async_event_desc async;
	struct ib_uverbs_comp_event_desc completion;
};

static size_t event_size(const struct vhca_events *events)
{
	return events->async ? sizeof(struct ib_uverbs_async_event_desc)
			     : sizeof(struct ib_uverbs_comp_event_desc);
}

static int events_create(bool async, int *program_fd, struct vhca_events **result)
{
	struct vhca_events *events = calloc(1, sizeof(*events));
	int fds[2];

	if (!events)
		return ENOMEM;
	events->async = async;
	if (pipe2(fds, O_CLOEXEC))
		goto no_pipe;
	events->write_fd = fds[1];
	events->read_fd = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
	if (events->read_fd < 0 || fcntl(fds[1], F_SETFL, O_NONBLOCK))
		goto no_fd;
	*program_fd = fds[0];
	*result = events;
	return 0;

no_fd:
	if (events->read_fd >= 0)
		close(events->read_fd);
	close(fds[0]);
	close(fds[1]);
no_pipe:
	free(events);
	return errno;
}

void vhca_events_destroy(struct vhca_events *events)
{
	if (!events)
		return;
	close(events->write_fd);
	close(events->read_fd);
	free(events);
}

/* The first `n` of the log have been read. */
static void events_taken(struct vhca_events *events, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (events->log[i])
			events->log[i]->read++;
	events->n -= n;
	memmove(events->log, events->log + n, events->n * sizeof(events->log[0]));
}

static void events_look(struct vhca_events *events)
{
	int bytes = 0;

	if (ioctl(events->read_fd, FIONREAD, &bytes) || bytes < 0)
		return;
	if ((size_t)bytes / event_size(events) < events->n)
		events_taken(events, events->n - (uint32_t)((size_t)bytes / event_size(events)));
}

static void event_write(struct vhca_counted *counted, const union event *event)
{
	struct vhca_events *events = counted->events;

	if (!events)
		return;
	if (events->n == MAX_EVENTS)
		events_look(events);
	if (events->n == MAX_EVENTS || write(events->write_fd, event, event_size(events)) < 0)
		return; /* a program that never reads its events loses the newest */
	events->log[events->n++] = counted;
}

void vhca_event_async(struct vhca_counted *object, enum ibv_event_type type)
{
	union event event = {.async = {.element = object->element, .event_type = type}};

	event_write(object, &event);
}

void vhca_event_completion(struct vhca_cq *cq)
{
	union event event = {.completion = {.cq_handle = cq->completions.element}};

	event_write(&cq->completions, &event);
}

/* Moves all that is unread into another pipe, which cannot block even while the program reads too;
 * then back what is not of `counted`. */
static void events_sift(
	struct vhca_events *events, const struct vhca_counted *counted, const int scratch[2])
{
	size_t size = event_size(events);
	union event event;
	uint32_t unread, kept = 0;
	ssize_t moved;
	size_t bytes = 0;

	while ((moved = splice(events->read_fd, NULL, scratch[1], NULL, MAX_EVENTS * sizeof(event),
			SPLICE_F_NONBLOCK)) > 0)
		bytes += (size_t)moved;
	unread = (uint32_t)(bytes / size);
	if (unread > events->n)
		return;
	events_taken(events, events->n - unread);
	for (uint32_t i = 0; i < unread; i++) {
		if (read(scratch[0], &event, size) != (ssize_t)size)
			break;
		if (events->log[i] == counted)
			continue;
		if (write(events->write_fd, &event, size) == (ssize_t)size)
			events->log[kept++] = events->log[i];
	}
	events->n = kept;
}

/* Takes back what the program has not read; returns how many it has. */
static uint32_t events_end(struct vhca_counted *counted)
{
	struct vhca_events *events = counted->events;
	int scratch[2];

	if (!events)
		return counted->read;
	counted->events = NULL;
	events_look(events);
	for (uint32_t i = 0; i < events->n; i++) {
		if (events->log[i] != counted)
			continue;
		if (!pipe2(scratch, O_CLOEXEC)) {
			events_sift(events, counted, scratch);
			close(scratch[0]);
			close(scratch[1]);
		}
		break;
	}
	for (uint32_t i = 0; i < events->n; i++) /* only if there was no pipe to be had */
		if (events->log[i] == counted)
			events->log[i] = NULL;
	return counted->read;
}

int vhca_async_create(struct vhca_context *context, int *program_fd)
{
	if (context->async)
		return EBUSY;
	return events_create(true, program_fd, &context->async);
}

int vhca_channel_create(struct vhca_context *context, int *program_fd, struct vhca_channel **result)
{
	struct vhca_channel *channel = object_new(context, VHCA_CHANNEL, sizeof(*channel));
	int error;

	if (!channel)
		return ENOMEM;
	error = events_create(false, program_fd, &channel->events);
	if (error) {
		free(channel);
		return error;
	}
	object_link(&channel->object);
	*result = channel;
	return 0;
}

static void channel_destroy(struct vhca_channel *channel)
{
	vhca_events_destroy(channel->events);
	object_free(&channel->object);
}

/* ---- PD and AH ---- */

int vhca_pd_create(struct vhca_context *context, struct vhca_pd **result)
{
	struct vhca_pd *pd = object_new(context, VHCA_PD, sizeof(*pd));

	if (!pd)
		return ENOMEM;
	pd->pdn = ++context->device->tables->next_pdn & 0xffffff;
	object_link(&pd->object);
	*result = pd;
	return 0;
}

static bool gid_valid(const struct vhca_device *device, uint32_t index)
{
	static const uint8_t none[16];

	return index < VHCA_N_GIDS && memcmp(device->gids[index].raw, none, 16);
}

/* What RoCE asks of an address vector. */
static int address_check(
	const struct vhca_device *device, const struct ibv_ah_attr *attr, uint32_t sgid_index)
{
	if (attr->port_num != 1 || !attr->is_global)
		return EINVAL;
	return gid_valid(device, sgid_index) ? 0 : EINVAL;
}

int vhca_ah_create(struct vhca_pd *pd, const struct ibv_ah_attr *attr, struct vhca_ah **result)
{
	struct vhca_context *context = pd->object.context;
	int error = address_check(context->device, attr, attr->grh.sgid_index);
	struct vhca_ah *ah;

	if (error)
		return error;
	ah = object_new(context, VHCA_AH, sizeof(*ah));
	if (!ah)
		return ENOMEM;
	ah->pd = pd;
	ah->attr = *attr;
	pd->object.refs++;
	object_link(&ah->object);
	*result = ah;
	return 0;
}

static void ah_destroy(struct vhca_ah *ah)
{
	ah->pd->object.refs--;
	object_free(&ah->object);
}

/* ---- MR ---- */

enum {
	ACCESS_KNOWN = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_HUGETLB
};

static int access_check(uint32_t access)
{
	uint32_t writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (access & IBV_ACCESS_ON_DEMAND)
		return EOPNOTSUPP;
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
 * meanwhile, and `keep` stays. */
static int memory_bring_in(
	struct vhca_object *keep, uint64_t start, uint64_t length, uint32_t access)
{
	struct vhca_device *device = keep->context->device;
	int error;

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
	int error = numbers_add(&tables->keys, mr, &index);

	if (error)
		return error;
	error = variants_fit(tables, before);
	if (error) {
		numbers_remove(&tables->keys, index);
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
	mr = object_new(context, VHCA_MR, sizeof(*mr));
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
	object_link(&mr->object);
	*result = mr;
	return 0;
}

int vhca_mr_rereg(struct vhca_mr *mr, uint32_t flags, struct vhca_pd *pd, uint64_t start,
	uint64_t length, uint64_t iova, uint32_t access)
{
	bool translation = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	struct vhca_tables *tables = tables_of(&mr->object);
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

static void mr_destroy(struct vhca_mr *mr)
{
	numbers_remove(&tables_of(&mr->object)->keys, mr->key >> 8);
	mr->pd->object.refs--;
	object_free(&mr->object);
}

uint8_t vhca_local_access(struct vhca_qp *qp, uint32_t index, const struct mlx5_wqe_data_seg *seg,
	uint32_t length, uint32_t need, struct vhca_sge *sge)
{
	uint32_t key = from_be32(seg->lkey);
	uint64_t addr = from_be64(seg->addr);
	const struct vhca_mr *mr = vhca_find_mr(tables_of(&qp->object), key);

	if (unlikely(!mr || mr->pd != qp->pd)) {
		vhca_rule_report(VHCA_RULE_LKEY, qp, index, "lkey", key, mr ? qp->pd->pdn : 0);
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	}
	if (unlikely(need & ~mr->access)) {
		vhca_rule_report(VHCA_RULE_LKEY_ACCESS, qp, index, "access", mr->access, need);
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	}
	sge->addr = vhca_mr_at(mr, addr, length);
	sge->length = length;
	if (unlikely(!sge->addr)) {
		vhca_rule_report(VHCA_RULE_LKEY_BOUNDS, qp, index, "addr", addr, mr->iova);
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	}
	return 0;
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
	page = object_new(context, VHCA_UAR, sizeof(*page));
	if (!page)
		return ENOMEM;
	page->uar.page = i * 64 + (uint32_t)__builtin_ctzll(~context->uars_used[i]);
	context->uars_used[i] |= 1ull << (page->uar.page % 64);
	page->registers = context->bar + (size_t)page->uar.page * VHCA_PAGE;
	memset(page->registers, 0, VHCA_PAGE);
	vhca_list_init(&page->qps);
	vhca_list_init(&page->cqs);
	vhca_list_add(&context->device->tables->pages, &page->link);
	object_link(&page->uar.object);
	*result = &page->uar;
	return 0;
}

static void uar_destroy(struct vhca_uar *uar)
{
	struct vhca_page *page = container_of(uar, struct vhca_page, uar);

	uar->object.context->uars_used[uar->page / 64] &= ~(1ull << (uar->page % 64));
	vhca_list_remove(&page->link);
	object_free(&uar->object);
}

static struct vhca_page *page_find(struct vhca_context *context, uint32_t number)
{
	struct vhca_link *pages = &context->device->tables->pages;

	for (struct vhca_link *link = pages->next; link != pages; link = link->next) {
		struct vhca_page *page = container_of(link, struct vhca_page, link);

		if (page->uar.object.context == context && page->uar.page == number)
			return page;
	}
	return NULL;
}

/* ---- CQ ---- */

static void counted_init(struct vhca_counted *counted, struct vhca_events *events, uint64_t element)
{
	*counted = (struct vhca_counted){.events = events, .element = element};
}

static int cq_check(const struct vhca_cq_attr *attr)
{
	if (!is_pow2(attr->n_cqe) || attr->n_cqe > MAX_CQE)
		return EINVAL;
	if (attr->cqe_size != 64 && attr->cqe_size != 128)
		return EINVAL;
	if (!attr->buf || attr->buf % 64 || attr->db % 8)
		return EINVAL;
	if (vhca_memory_check(attr->buf, (uint64_t)attr->n_cqe * attr->cqe_size, true))
		return EFAULT;
	return vhca_memory_check(attr->db, 8, true);
}

int vhca_cq_create(
	struct vhca_context *context, const struct vhca_cq_attr *attr, struct vhca_cq **result)
{
	struct vhca_page *page = page_find(context, attr->uar_page);
	struct vhca_cq *cq;
	int error = page ? cq_check(attr) : EINVAL;

	if (error)
		return error;
	cq = object_new(context, VHCA_CQ, sizeof(*cq));
	if (!cq)
		return ENOMEM;
	error = numbers_add(&context->device->tables->cqs, cq, &cq->number);
	if (error) {
		free(cq);
		return error;
	}
	cq->buf = vhca_pointer(attr->buf);
	cq->mask = attr->n_cqe - 1;
	cq->log2_size = log2_floor(attr->cqe_size);
	cq->db = vhca_pointer(attr->db);
	cq->ignore_overrun = attr->ignore_overrun;
	cq->arm_seen = ~0u; /* 0 is a record that arms */
	cq->channel = attr->channel;
	if (cq->channel)
		cq->channel->object.refs++;
	counted_init(&cq->completions, cq->channel ? cq->channel->events : NULL, attr->user_handle);
	counted_init(&cq->async, context->async, attr->user_handle);
	cq->attr = *attr;
	cq->page = page;
	page->uar.object.refs++;
	vhca_list_add(&page->cqs, &cq->on_page);
	object_link(&cq->object);
	*result = cq;
	return 0;
}

int vhca_cq_resize(struct vhca_cq *cq, uint64_t buf, uint32_t n_cqe, uint32_t cqe_size)
{
	struct vhca_cq_attr attr = cq->attr;
	int error;

	attr.buf = buf;
	attr.n_cqe = n_cqe;
	attr.cqe_size = cqe_size;
	error = cq_check(&attr);
	if (error)
		return error;
	cq->ci = cq->pi - ((cq->pi - vhca_record_read(&cq->db[0])) & 0xffffff);
	if (cq->pi - cq->ci >
		min(n_cqe, cq->mask)) /* the old ring must have room for the CQE that ends it */
		return EINVAL;
	vhca_cqe_resize(cq);
	cq->buf = vhca_pointer(buf);
	cq->mask = n_cqe - 1;
	cq->log2_size = log2_floor(cqe_size);
	cq->attr = attr;
	return 0;
}

static void cq_destroy(struct vhca_cq *cq)
{
	events_end(&cq->completions);
	events_end(&cq->async);
	if (cq->channel)
		cq->channel->object.refs--;
	numbers_remove(&tables_of(&cq->object)->cqs, cq->number);
	cq->page->uar.object.refs--;
	vhca_list_remove(&cq->on_page);
	object_free(&cq->object);
}

uint32_t vhca_cq_number(const struct vhca_cq *cq)
{
	return cq->number;
}

uint32_t vhca_cq_events(struct vhca_cq *cq, uint32_t *async)
{
	*async = events_end(&cq->async);
	return events_end(&cq->completions);
}

/* ---- SRQ ---- */

/* Room for the link and the data segments, as libmlx5 lays a WQE out. */
static uint32_t srq_log2_stride(uint32_t max_sge)
{
	return log2_floor(pow2_ceil(max(32u, VHCA_SEGMENT * (1 + max_sge))));
}

int vhca_srq_create(
	struct vhca_context *context, const struct vhca_srq_attr *attr, struct vhca_srq **result)
{
	uint32_t log2_stride = srq_log2_stride(min(attr->max_sge, VHCA_MAX_SGE));
	uint32_t n_wqe = (uint32_t)pow2_ceil(attr->max_wr + 1ull);
	struct vhca_srq *srq;
	int error;

	if (attr->max_wr > VHCA_MAX_QUEUE || attr->max_sge > 31 || !attr->buf || attr->db % 4)
		return EINVAL;
	error = vhca_memory_check(attr->buf, (uint64_t)n_wqe << log2_stride, true);
	if (!error)
		error = vhca_memory_check(attr->db, 4, true);
	if (error)
		return error;
	srq = object_new(context, VHCA_SRQ, sizeof(*srq));
	if (!srq)
		return ENOMEM;
	error = numbers_add(&context->device->tables->srqs, srq, &srq->number);
	if (error) {
		free(srq);
		return error;
	}
	srq->buf = vhca_pointer(attr->buf);
	srq->db = vhca_pointer(attr->db);
	srq->log2_stride = log2_stride;
	srq->n_wqe = n_wqe;
	srq->limit = attr->limit;
	srq->attr = *attr;
	counted_init(&srq->async, context->async, attr->user_handle);
	attr->pd->object.refs++;
	object_link(&srq->object);
	*result = srq;
	return 0;
}

static void srq_destroy(struct vhca_srq *srq)
{
	events_end(&srq->async);
	numbers_remove(&tables_of(&srq->object)->srqs, srq->number);
	srq->attr.pd->object.refs--;
	object_free(&srq->object);
}

uint32_t vhca_srq_number(const struct vhca_srq *srq)
{
	return srq->number;
}

uint32_t vhca_srq_events(struct vhca_srq *srq)
{
	return events_end(&srq->async);
}

int vhca_srq_modify(struct vhca_srq *srq, uint32_t limit)
{
	if (limit >= srq->n_wqe)
		return EINVAL;
	srq->limit = limit;
	return 0;
}

void vhca_srq_query(
	const struct vhca_srq *srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit)
{
	*max_wr = srq->n_wqe - 1;
	*max_sge = srq->attr.max_sge;
	*limit = srq->limit;
}

/* ---- QP ---- */

static bool type_known(uint8_t type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

static bool ring_size_fits(uint32_t n)
{
	return !n || (is_pow2(n) && n <= VHCA_MAX_QUEUE);
}

static uint64_t rq_bytes(const struct vhca_qp_attr *attr)
{
	return (uint64_t)attr->rq_wqe_count << attr->rq_wqe_shift;
}

static int qp_check(const struct vhca_qp_attr *attr)
{
	uint64_t bytes;

	if (!type_known(attr->type))
		return EOPNOTSUPP;
	if (!ring_size_fits(attr->sq_wqe_count) || !ring_size_fits(attr->rq_wqe_count))
		return EINVAL;
	if (attr->rq_wqe_count && (attr->srq || attr->rq_wqe_shift < 4 || attr->rq_wqe_shift > 10))
		return EINVAL;
	if ((attr->sq_wqe_count && !attr->send_cq) || (attr->rq_wqe_count && !attr->recv_cq) ||
		attr->db % 8)
		return EINVAL;
	bytes = rq_bytes(attr) + (uint64_t)attr->sq_wqe_count * MLX5_SEND_WQE_BB;
	if (bytes && (!attr->buf || attr->buf % 16))
		return EINVAL;
	if (bytes && vhca_memory_check(attr->buf, bytes, true))
		return EFAULT;
	return vhca_memory_check(attr->db, 8, true);
}

static void qp_refs(struct vhca_qp *qp, uint32_t by)
{
	qp->pd->object.refs += by;
	qp->page->uar.object.refs += by;
	if (qp->send_cq)
		qp->send_cq->object.refs += by;
	if (qp->recv_cq)
		qp->recv_cq->object.refs += by;
	if (qp->srq)
		qp->srq->object.refs += by;
}

/* As the kernel's driver sets it up: only connected transports, and as much as a CQE has room for.
 */
static uint8_t cqe_scatter(const struct vhca_qp_attr *attr)
{
	if (!(attr->flags & MLX5_QP_FLAG_SCATTER_CQE) || attr->type == IBV_QPT_UD || !attr->recv_cq)
		return 0;
	return attr->recv_cq->log2_size == 7 ? 64 : 32;
}

static void qp_init(struct vhca_qp *qp, const struct vhca_qp_attr *attr, struct vhca_page *page)
{
	qp->attr = *attr;
	qp->page = page;
	qp->pd = attr->pd;
	qp->type = attr->type;
	qp->state = IBV_QPS_RESET;
	qp->uidx = attr->uidx & 0xffffff;
	qp->rq = vhca_pointer(attr->buf);
	qp->sq = qp->rq + rq_bytes(attr);
	qp->sq_mask = attr->sq_wqe_count ? attr->sq_wqe_count - 1 : 0;
	qp->rq_mask = attr->rq_wqe_count ? attr->rq_wqe_count - 1 : 0;
	qp->log2_rq_stride = attr->rq_wqe_shift;
	qp->rq_first = attr->flags & MLX5_QP_FLAG_SIGNATURE ? 1 : 0;
	qp->db = vhca_pointer(attr->db);
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->cqe_scatter = cqe_scatter(attr);
	counted_init(&qp->async, qp->object.context->async, attr->user_handle);
	vhca_list_init(&qp->in_active);
	vhca_list_init(&qp->in_waiting);
	vhca_list_init(&qp->in_errored);
	vhca_list_add(&page->qps, &qp->on_page);
}

int vhca_qp_create(
	struct vhca_context *context, const struct vhca_qp_attr *attr, struct vhca_qp **result)
{
	struct vhca_page *page = page_find(context, attr->uar_page);
	int error = page ? qp_check(attr) : EINVAL;
	struct vhca_qp *qp;

	if (error)
		return error;
	qp = object_new(context, VHCA_QP, sizeof(*qp));
	if (!qp)
		return ENOMEM;
	error = numbers_add(&context->device->tables->qps, qp, &qp->number);
	if (error) {
		free(qp);
		return error;
	}
	qp_init(qp, attr, page);
	qp_refs(qp, 1);
	vhca_qp_generation++;
	object_link(&qp->object);
	*result = qp;
	return 0;
}

/* Out of every list of the engine. */
static void qp_quiet(struct vhca_qp *qp)
{
	vhca_qp_wait_cancel(qp);
	vhca_qp_deactivate(qp);
	vhca_list_remove(&qp->in_errored);
}

static void qp_destroy(struct vhca_qp *qp)
{
	events_end(&qp->async);
	qp_quiet(qp);
	vhca_list_remove(&qp->on_page);
	numbers_remove(&tables_of(&qp->object)->qps, qp->number);
	qp_refs(qp, (uint32_t)-1);
	vhca_qp_generation++;
	object_free(&qp->object);
}

uint32_t vhca_qp_number(const struct vhca_qp *qp)
{
	return qp->number;
}

uint32_t vhca_qp_events(struct vhca_qp *qp)
{
	return events_end(&qp->async);
}

/* ---- QP states: the verbs' table of transitions, and of what each must and may set ---- */

enum { RC, UC, UD, N_TYPES };

struct transition {
	uint8_t from, to;
	uint32_t required[N_TYPES], optional[N_TYPES];
};

#define IDENTITY (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define PATH     (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define MIGRATE  (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RUNNING  (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | MIGRATE)

static const struct transition transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_RESET, {0}, {0}},
	{IBV_QPS_RESET, IBV_QPS_INIT,
		{IDENTITY | IBV_QP_ACCESS_FLAGS, IDENTITY | IBV_QP_ACCESS_FLAGS,
			IDENTITY | IBV_QP_QKEY},
		{0}},
	{IBV_QPS_INIT, IBV_QPS_INIT, {0},
		{IDENTITY | IBV_QP_ACCESS_FLAGS, IDENTITY | IBV_QP_ACCESS_FLAGS,
			IDENTITY | IBV_QP_QKEY}},
	{IBV_QPS_INIT, IBV_QPS_RTR,
		{PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, PATH, 0},
		{IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
			IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
			IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
	{IBV_QPS_RTR, IBV_QPS_RTS,
		{IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC,
			IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
		{RUNNING | IBV_QP_MIN_RNR_TIMER, RUNNING, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_RTS, IBV_QPS_RTS, {0},
		{RUNNING | IBV_QP_MIN_RNR_TIMER, RUNNING, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_RTS, IBV_QPS_SQD, {0},
		{IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY,
			IBV_QP_EN_SQD_ASYNC_NOTIFY}},
	{IBV_QPS_SQD, IBV_QPS_RTS, {0},
		{RUNNING | IBV_QP_MIN_RNR_TIMER, RUNNING, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_SQD, IBV_QPS_SQD, {0},
		{IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | MIGRATE |
				IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER,
			IBV_QP_AV | MIGRATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
			IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
	{IBV_QPS_SQE, IBV_QPS_RTS, {0},
		{0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_ERR, IBV_QPS_ERR, {0}, {0}},
};

static int type_column(uint8_t type)
{
	return type == IBV_QPT_RC ? RC : type == IBV_QPT_UC ? UC : UD;
}

static int transition_check(uint8_t type, uint8_t from, uint8_t to, uint32_t mask)
{
	int column = type_column(type);

	mask &= ~(uint32_t)IBV_QP_STATE;
	if (from != IBV_QPS_RESET && (to == IBV_QPS_RESET || to == IBV_QPS_ERR))
		return mask ? EINVAL : 0;
	for (size_t i = 0; i < ARRAY_SIZE(transitions); i++) {
		const struct transition *t = &transitions[i];

		if (t->from != from || t->to != to)
			continue;
		if ((mask & t->required[column]) != t->required[column])
			return EINVAL;
		return mask & ~(t->required[column] | t->optional[column]) ? EINVAL : 0;
	}
	return EINVAL;
}

static int ranges_check(const struct vhca_device *device, const struct ibv_qp_attr *attr,
	uint32_t mask, uint32_t sgid_index)
{
	if (mask & IBV_QP_PORT && attr->port_num != 1)
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU &&
		(attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > VHCA_MAX_RD_ATOMIC)
		return EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > VHCA_MAX_RD_ATOMIC)
		return EINVAL;
	if (mask & IBV_QP_ALT_PATH)
		return EINVAL; /* RoCE has none */
	return mask & IBV_QP_AV ? address_check(device, &attr->ah_attr, sgid_index) : 0;
}

static void take_path(
	struct vhca_qp *qp, const struct ibv_qp_attr *attr, uint32_t mask, uint32_t sgid_index)
{
	if (mask & IBV_QP_AV) {
		qp->set.ah_attr = attr->ah_attr;
		qp->sgid_index = sgid_index;
	}
	if (mask & IBV_QP_PATH_MTU)
		qp->set.path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		qp->set.dest_qp_num = attr->dest_qp_num & 0xffffff;
	if (mask & IBV_QP_RQ_PSN)
		qp->set.rq_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		qp->set.sq_psn = attr->sq_psn & 0xffffff;
	if (mask & IBV_QP_PKEY_INDEX)
		qp->set.pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		qp->set.port_num = attr->port_num;
	if (mask & IBV_QP_PATH_MIG_STATE)
		qp->set.path_mig_state = attr->path_mig_state;
}

static void take_limits(struct vhca_qp *qp, const struct ibv_qp_attr *attr, uint32_t mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->access = qp->set.qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_QKEY)
		qp->set.qkey = attr->qkey;
	if (mask & IBV_QP_TIMEOUT)
		qp->set.timeout = attr->timeout & 31;
	if (mask & IBV_QP_RETRY_CNT)
		qp->set.retry_cnt = attr->retry_cnt & 7;
	if (mask & IBV_QP_RNR_RETRY)
		qp->set.rnr_retry = attr->rnr_retry & 7;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		qp->set.min_rnr_timer = attr->min_rnr_timer & 31;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->set.max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->set.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		qp->set.en_sqd_async_notify = attr->en_sqd_async_notify;
}

static void qp_reset(struct vhca_qp *qp)
{
	qp_quiet(qp);
	qp->state = IBV_QPS_RESET;
	qp->sq_ci = qp->sq_pi = 0;
	qp->rq_ci = qp->rq_pi = 0;
	qp->rnr_tries = qp->transport_tries = 0;
	qp->access = 0;
	memset(&qp->set, 0, sizeof(qp->set));
	memset(qp->reports, 0, sizeof(qp->reports));
}

void vhca_qp_fail(struct vhca_qp *qp)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	vhca_qp_generation++;
	vhca_qp_wait_cancel(qp);
	if (qp->attr.sq_wqe_count) {
		qp->sq_pi = (uint16_t)vhca_record_read(&qp->db[1]);
		vhca_qp_activate(qp);
	}
	if (qp->attr.rq_wqe_count)
		vhca_list_add(&tables_of(&qp->object)->errored, &qp->in_errored);
	if (qp->srq)
		vhca_event_async(&qp->async, IBV_EVENT_QP_LAST_WQE_REACHED);
}

static void enter_state(struct vhca_qp *qp, uint8_t to)
{
	uint8_t from = qp->state;

	if (to == IBV_QPS_RESET)
		qp_reset(qp);
	else if (to == IBV_QPS_ERR)
		vhca_qp_fail(qp);
	else
		qp->state = to;
	if (from == IBV_QPS_RTS && to == IBV_QPS_SQD && qp->set.en_sqd_async_notify)
		vhca_event_async(&qp->async, IBV_EVENT_SQ_DRAINED);
	if (to == IBV_QPS_RTS && (from == IBV_QPS_SQD || from == IBV_QPS_SQE))
		vhca_qp_activate(qp); /* goes on with what it had */
	vhca_qp_generation++;
}

int vhca_qp_modify(
	struct vhca_qp *qp, const struct ibv_qp_attr *attr, uint32_t mask, uint32_t av_sgid_index)
{
	uint8_t to = mask & IBV_QP_STATE ? (uint8_t)attr->qp_state : qp->state;
	int error;

	if ((mask & IBV_QP_STATE && attr->qp_state > IBV_QPS_ERR) ||
		(mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state))
		return EINVAL;
	error = transition_check(qp->type, qp->state, to, mask);
	if (!error)
		error = ranges_check(qp->object.context->device, attr, mask, av_sgid_index);
	if (error)
		return error;
	take_path(qp, attr, mask, av_sgid_index);
	take_limits(qp, attr, mask);
	enter_state(qp, to);
	return 0;
}

void vhca_qp_query(struct vhca_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	*attr = qp->set;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = (struct ibv_qp_cap){
		.max_send_wr = qp->attr.max_send_wr,
		.max_recv_wr = qp->attr.max_recv_wr,
		.max_send_sge = qp->attr.max_send_sge,
		.max_recv_sge = qp->attr.max_recv_sge,
		.max_inline_data = qp->attr.max_inline,
	};
	*init = (struct ibv_qp_init_attr){
		.cap = attr->cap,
		.qp_type = qp->type,
		.sq_sig_all = qp->attr.signal_all,
	};
}

/* ---- the end of any object ---- */

int vhca_object_destroy(struct vhca_object *object)
{
	if (object->refs)
		return EBUSY;
	switch (object->kind) {
	case VHCA_MR: mr_destroy(container_of(object, struct vhca_mr, object)); break;
	case VHCA_CQ: cq_destroy(container_of(object, struct vhca_cq, object)); break;
	case VHCA_QP: qp_destroy(container_of(object, struct vhca_qp, object)); break;
	case VHCA_SRQ: srq_destroy(container_of(object, struct vhca_srq, object)); break;
	case VHCA_AH: ah_destroy(container_of(object, struct vhca_ah, object)); break;
	case VHCA_UAR: uar_destroy(container_of(object, struct vhca_uar, object)); break;
	case VHCA_CHANNEL:
		channel_destroy(container_of(object, struct vhca_channel, object));
		break;
	case VHCA_PD:
	case VHCA_XRCD:
	case VHCA_MW: object_free(object); break;
	}
	return 0;
}
