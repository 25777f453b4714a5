/* duo_datagrams.c - what each driver's tests of datagrams expect alike: peers, whom a datagram came from,
 * where its network header goes, what is refused
 */
#include "duo.h"

static void one_datagram(struct vbn_queue *from, struct vbn_peer *to, struct vbn_queue *at)
{
	struct vbn_buf *buf = duo_buf(7, 100);

	vbn_buf_set_peer(buf, to);
	assert_int_equal(vbn_send_one(from, buf), 1);
	vbn_flush(from);
	duo_wait(at, 1);
	assert_int_equal(duo.events[0].op, VBN_OP_RECV);
	assert_int_equal(duo.events[0].len, 100);
	assert_int_equal(duo.events[0].buf->len, 100);
	duo_check(duo.events[0].buf->data, 7, 100);
}

/* Who sent is told by a comparison, and can be answered; the same peer asked for again is the same
 * one. */
void duo_peers(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_address address;
	struct vbn_peer *again, *source;
	struct vbn_buf *in;

	(void)state;
	duo_connect(&conf);
	vbn_queue_address(duo.b, &address);
	assert_int_equal(vbn_peer_create(duo.a, &address, &again), 0);
	assert_ptr_equal(again, duo.to_b);
	vbn_peer_release(again);
	one_datagram(duo.a, duo.to_b, duo.b);
	in = duo.events[0].buf;
	assert_true(vbn_buf_is_from(in, duo.to_a));
	assert_false(vbn_buf_is_from(in, duo.to_b));
	assert_int_equal(vbn_peer_from_buf(duo.b, in, &source), 0);
	vbn_buf_free(&in, 1);
	one_datagram(duo.b, source, duo.a);
	assert_true(vbn_buf_is_from(duo.events[0].buf, duo.to_b));
	vbn_buf_free(&duo.events[0].buf, 1);
	assert_int_equal(vbn_send_inline_to(duo.b, source, "few", 3), 1);
	vbn_flush(duo.b);
	duo_wait(duo.a, 1);
	assert_memory_equal(duo.events[0].buf->data, "few", 3);
	vbn_buf_free(&duo.events[0].buf, 1);
	vbn_peer_release(source);
	assert_int_equal(vbn_send_inline(duo.a, "x", 1), -EOPNOTSUPP);
}

/* A buf that was given no peer, or has come from one and goes back as it is, is refused: its handle
 * was once taken for an address. */
void duo_no_peer(void **state)
{
	static const uint32_t lens[] = {0, 10, 100}; /* as any, inline, and as a plain buf */
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_buf *buf;

	(void)state;
	conf.inline_size = (struct vbn_num)VBN_NUM(32);
	duo_connect(&conf);
	for (size_t i = 0; i < 3; i++) {
		for (int cookie = 0; cookie < 2; cookie++) {
			buf = duo_buf(7, lens[i]);
			buf->peer[0] = 0;
			if (cookie)
				vbn_buf_set_cookie(buf, NULL);
			assert_int_equal(vbn_send_one(duo.a, buf), -EINVAL);
			buf->peer[0] = 0xffffff;
			assert_int_equal(vbn_send_one(duo.a, buf), -EINVAL);
			vbn_buf_free(&buf, 1);
		}
	}
	one_datagram(duo.a, duo.to_b, duo.b);
	buf = duo.events[0].buf;
	assert_int_equal(vbn_send_one(duo.b, buf), -EINVAL);
	vbn_buf_set_peer(buf, duo.to_a);
	assert_int_equal(vbn_send_one(duo.b, buf), 1);
	vbn_flush(duo.b);
	duo_wait(duo.a, 1);
	vbn_buf_free(&duo.events[0].buf, 1);
}

/* With headroom for it, the network header costs a message no room and its data no alignment. */
void duo_headroom(void **state)
{
	struct vbn_pool_conf pool_conf = {.n_bufs = 4 * DUO_DEPTH, .headroom = VBN_NUM(64)};
	struct vbn_queue_conf conf = duo_conf(VBN_UD, DUO_OWN);
	struct vbn_port_info info;
	struct vbn_pool *pool;
	struct vbn_buf *buf;

	(void)state;
	vbn_port_info(duo.port, &info);
	pool_conf.data_size = info.mtu;
	assert_int_equal(vbn_pool_create(&pool_conf, &pool), 0);
	conf.rx_pool = pool;
	conf.tx_pool = duo.pool;
	duo_connect(&conf);
	buf = duo_buf(3, info.mtu);
	vbn_buf_set_peer(buf, duo.to_b);
	assert_int_equal(vbn_send_one(duo.a, buf), 1);
	buf = duo_buf(3, info.mtu); /* more than the path MTU */
	vbn_buf_append(buf, duo_buf(4, 1));
	vbn_buf_set_peer(buf, duo.to_b);
	assert_int_equal(vbn_send_one(duo.a, buf), -EMSGSIZE);
	vbn_buf_free(&buf, 1);
	vbn_flush(duo.a);
	duo_wait(duo.b, 1);
	buf = duo.events[0].buf;
	assert_int_equal(buf->len, info.mtu);
	assert_int_equal((uintptr_t)buf->data % 64, 0);
	assert_int_equal(vbn_buf_headroom(buf), 64);
	duo_check(buf->data, 3, info.mtu);
	vbn_buf_free(&buf, 1);
	duo_disconnect();
	vbn_pool_destroy(pool);
}

void duo_peer_misuse(void **state)
{
	struct vbn_queue_conf conf = duo_conf(VBN_RC, DUO_OWN);
	struct vbn_address rc;
	struct vbn_peer *peer;

	(void)state;
	duo_connect(&conf);
	vbn_queue_address(duo.a, &rc);
	assert_int_equal(vbn_peer_create(duo.a, &rc, &peer), -EINVAL);
	duo_disconnect();
	conf = duo_conf(VBN_UD, DUO_OWN);
	duo_connect(&conf);
	assert_int_equal(vbn_peer_create(duo.a, &rc, &peer), -EINVAL);
	assert_int_equal(vbn_queue_reset(duo.b), -EAGAIN);
	duo_reset(duo.b);
	assert_int_equal(vbn_queue_connect(duo.b, &rc), -EINVAL);
}
