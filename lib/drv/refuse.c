/* refuse.c - the data path of a queue that takes nothing (not connected yet, or failed), what stands for
 * operations that a transport has not, and techniques that a driver has not */

#include "drv/drv.h"

/* One function of each shape, once for each answer. */
#define ANSWERS(name, answer)                                                                 \
	static int name##_bufs(struct vbn_queue *queue, struct vbn_buf **bufs, int n)         \
	{                                                                                     \
		(void)queue, (void)bufs, (void)n;                                             \
		return answer;                                                                \
	}                                                                                     \
	static int name##_imms(                                                               \
		struct vbn_queue *queue, struct vbn_buf **bufs, const uint32_t *imms, int n)  \
	{                                                                                     \
		(void)queue, (void)bufs, (void)imms, (void)n;                                 \
		return answer;                                                                \
	}                                                                                     \
	static int name##_bytes(struct vbn_queue *queue, const void *data, size_t len)        \
	{                                                                                     \
		(void)queue, (void)data, (void)len;                                           \
		return answer;                                                                \
	}                                                                                     \
	static int name##_bytes_imm(                                                          \
		struct vbn_queue *queue, const void *data, size_t len, uint32_t imm)          \
	{                                                                                     \
		(void)queue, (void)data, (void)len, (void)imm;                                \
		return answer;                                                                \
	}                                                                                     \
	static int name##_bytes_to(struct vbn_queue *queue, const struct vbn_peer *peer,      \
		const void *data, size_t len)                                                 \
	{                                                                                     \
		(void)queue, (void)peer, (void)data, (void)len;                               \
		return answer;                                                                \
	}                                                                                     \
	static int name##_remotes(struct vbn_queue *queue, struct vbn_buf **bufs,             \
		const struct vbn_remote *remotes, int n)                                      \
	{                                                                                     \
		(void)queue, (void)bufs, (void)remotes, (void)n;                              \
		return answer;                                                                \
	}                                                                                     \
	static int name##_remotes_imms(struct vbn_queue *queue, struct vbn_buf **bufs,        \
		const struct vbn_remote *remotes, const uint32_t *imms, int n)                \
	{                                                                                     \
		(void)queue, (void)bufs, (void)remotes, (void)imms, (void)n;                  \
		return answer;                                                                \
	}                                                                                     \
	static int name##_bytes_remote(struct vbn_queue *queue, const void *data, size_t len, \
		const struct vbn_remote *remote)                                              \
	{                                                                                     \
		(void)queue, (void)data, (void)len, (void)remote;                             \
		return answer;                                                                \
	}                                                                                     \
	static int name##_atomics(struct vbn_queue *queue, struct vbn_buf **bufs,             \
		const struct vbn_remote *remotes, const struct vbn_atomic *atomics, int n)    \
	{                                                                                     \
		(void)queue, (void)bufs, (void)remotes, (void)atomics, (void)n;               \
		return answer;                                                                \
	}

ANSWERS(refuse, queue->refusal)
ANSWERS(lack, -EOPNOTSUPP)

static void flush_nothing(struct vbn_queue *queue)
{
	(void)queue;
}

static int no_events(struct vbn_queue *queue, struct vbn_event *events, int n)
{
	(void)queue, (void)events, (void)n;
	return 0;
}

static uint32_t none_outstanding(const struct vbn_queue *queue)
{
	(void)queue;
	return 0;
}

#define TABLE(name)                                                                              \
	{                                                                                        \
		.send = name##_bufs, .send_imm = name##_imms, .send_inline = name##_bytes,       \
		.send_inline_imm = name##_bytes_imm, .send_inline_to = name##_bytes_to,          \
		.write = name##_remotes, .write_imm = name##_remotes_imms,                       \
		.write_inline = name##_bytes_remote, .read = name##_remotes,                     \
		.fetch_add = name##_atomics, .cmp_swap = name##_atomics, .flush = flush_nothing, \
		.recv = name##_bufs, .poll = no_events, .outstanding = none_outstanding,         \
	}

const struct queue_ops vbn__refusing_ops = TABLE(refuse);
const struct queue_ops vbn__lacking_ops = TABLE(lack);

static const char *first_wanted(const struct technique *techniques, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (techniques[i].wanted)
			return techniques[i].name;
	return NULL;
}

const char *vbn__technique_wanted(
	const struct vbn_queue_conf *conf, const struct technique *more, size_t n)
{
	const struct technique mlx5s[] = {
		{"templates", conf->templates == VBN_ON},
		{"blueflame", conf->blueflame == VBN_ON},
		{"own_uar", conf->own_uar == VBN_ON},
		{"scatter_to_cqe", conf->scatter_to_cqe == VBN_ON},
		{"cqe_compression", conf->cqe_compression == VBN_ON},
		{"cqe_size", conf->cqe_size != 0},
	};
	const char *name = first_wanted(mlx5s, ARRAY_SIZE(mlx5s));

	return name ? name : first_wanted(more, n);
}
