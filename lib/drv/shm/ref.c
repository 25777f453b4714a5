/* ref.c - large messages by reference: the sender names bytes of a zone that it has lent, the receiver
 * fetches them from there */

#include "drv/shm/lend.h"

/* ---- the sender ---- */

static force_inline const struct vbn_buf *next_of(const struct vbn_buf *buf)
{
	return buf->flags & VBN_BUF_CHAIN ? buf->next : NULL;
}

fast_path bool vbn__shm_is_lent(const struct shm_loans *loans, const struct vbn_buf *buf)
{
	for (; buf; buf = next_of(buf))
		if (!load_acquire(&loans->of[buf->pool->zone_id].slot))
			return false;
	return true;
}

fast_path uint32_t vbn__shm_name(const struct shm_loans *loans, const struct vbn_buf *buf,
	uint32_t skip, uint32_t len, struct shm_ref refs[SHM_REFS])
{
	uint32_t n = 0;

	for (; len; buf = buf->next) {
		const struct shm_loan *loan = &loans->of[buf->pool->zone_id];
		const uint32_t here = buf->len > skip ? min(buf->len - skip, len) : 0;

		if (here)
			refs[n++] = (struct shm_ref){
				.offset = (uint64_t)(buf->data + skip - loan->base),
				.slot = loan->slot - 1,
				.len = here};
		len -= here;
		skip -= min(skip, buf->len);
	}
	return n;
}

/* ---- the receiver ---- */

/* The bytes of one; NULL: they are not lent. */
static fast_path const uint8_t *find(const struct shm_views *views, const struct shm_ref *ref)
{
	const struct shm_view *view;

	if (!views || ref->slot >= SHM_VIEWS)
		return NULL;
	view = rcu_read(&views->at[ref->slot]);
	if (!view || ref->offset > view->size || ref->len > view->size - ref->offset)
		return NULL;
	return view->base + ref->offset;
}

/* Each ref is copied out of the ring before it is looked at. */
fast_path bool vbn__shm_borrow(const struct shm_queue *sq, const uint8_t *refs, uint32_t size,
	struct shm_borrowed *borrowed)
{
	const struct shm_views *views = load_acquire(&sq->in->views);

	*borrowed = (struct shm_borrowed){.n = size / sizeof(struct shm_ref)};
	if (size % sizeof(struct shm_ref) || borrowed->n > SHM_REFS)
		return false;
	for (uint32_t i = 0; i < borrowed->n; i++) {
		struct shm_ref ref;

		memcpy(&ref, refs + i * sizeof(ref), sizeof(ref));
		borrowed->from[i] = find(views, &ref);
		borrowed->len[i] = ref.len;
		if (!borrowed->from[i] || ref.len > SHM_REF_PIECE - borrowed->total)
			return false;
		borrowed->total += ref.len;
	}
	return borrowed->total > 0;
}

fast_path bool vbn__shm_fetch(
	const struct shm_queue *sq, const struct shm_borrowed *borrowed, uint8_t *to)
{
	for (uint32_t i = 0; i < borrowed->n; i++) {
		memcpy(to, borrowed->from[i], borrowed->len[i]);
		to += borrowed->len[i];
	}
	/* Pairs with fail_queue(): who has its bufs back has closed before. */
	copied_before_check();
	return load_once(&sq->tx.peer->open);
}
