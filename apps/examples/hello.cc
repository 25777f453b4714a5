/* hello.cc - hello.c in C++: whatever is made is ended where its name goes
 *
 * Takes C++14 or later, for the generic lambdas: the headers themselves do with C++11.
 *
 *     c++ -std=c++14 hello.cc $(pkg-config --cflags --libs verbena) && ./a.out [DEVICE]
 */
#include <cstdio>
#include <memory>
#include <verbena.h>

template <class T> using owned = std::unique_ptr<T, void (*)(T *)>;

/* What a function of the library makes; nothing where it fails, and the library has said why. */
template <class T, class make_fn> static owned<T> made(void (*end)(T *), const make_fn &make)
{
	T *raw = nullptr;

	return owned<T>(make(&raw) ? nullptr : raw, end);
}

static int hello(vbn_worker *worker, void *arg)
{
	auto port = static_cast<vbn_port *>(arg);
	vbn_pool_conf bufs = {};
	bufs.n_bufs = 256;
	bufs.data_size = 64;
	auto pool = made(vbn_pool_destroy, [&](auto p) { return vbn_pool_create(&bufs, p); });
	vbn_queue_conf conf = {};
	conf.tx_depth = conf.rx_depth = 64;
	conf.rx_pool = pool.get();
	auto make = [&](auto q) { return vbn_queue_create(worker, port, &conf, q); };
	auto a = made(vbn_queue_destroy, make), b = made(vbn_queue_destroy, make);
	vbn_address here, there;
	vbn_buf *buf;
	int n;

	if (!pool || !a || !b)
		return -1;
	vbn_queue_address(a.get(), &here);
	vbn_queue_address(b.get(), &there);
	if (vbn_queue_connect(a.get(), &there) || vbn_queue_connect(b.get(), &here))
		return -1;
	vbn_buf_alloc(pool.get(), &buf, 1);
	buf->len = (uint32_t)std::snprintf((char *)buf->data, 64, "hello over RDMA") + 1;
	vbn_send_one(a.get(), buf);
	while (!(n = vbn_recv(b.get(), &buf, 1)))
		vbn_worker_poll(worker);
	if (n < 0)
		return n;
	std::puts((char *)buf->data);
	vbn_buf_free(&buf, 1);
	vbn_stop();
	return 0; /* the queues go before the pool that their bufs are of */
}

int main(int argc, char **argv)
{
	vbn_run_conf run = {};
	run.cores = "0";
	if (vbn_init(&argc, &argv))
		return 1;
	const char *device = argc > 1 ? argv[1] : "mlx5_0";
	auto port = made(vbn_port_close, [&](auto p) { return vbn_port_open(device, nullptr, p); });
	return !port || vbn_run(&run, hello, port.get()) != 0;
}
