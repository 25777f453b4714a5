/* verbena.h - the public API of Verbena, a poll-mode user-space network stack on RDMA
 *
 * Conventions that hold for every function here, unless its comment says otherwise:
 *
 *   result   0 or a count, or -errno. Nothing sets a global error. A function that fails outside
 *            the data path has also logged one sentence (object, action, cause, remedy): see
 *            vbn_log_to(). Data-path functions never log.
 *   config   a config struct is valid when zeroed. A switch is VBN_AUTO (0), VBN_ON or VBN_OFF. A
 *            number is 0 for the default where 0 makes no sense as a value, and a struct vbn_num
 *            where it does.
 *   threads  a worker's objects (queues, pools) are used by that worker's thread alone. "Any
 *            thread" is said where it holds.
 *   order    vbn_init() comes first: what a device has part in answers -ESHUTDOWN before it, and
 *            after vbn_fini(). Destroy in the reverse order of creation: queues, pools, exports,
 *            workers, ports.
 *   units    sizes in bytes, times in nanoseconds, byte order of the host.
 *
 * A program: vbn_init(), vbn_port_open(), vbn_run() with a set-up function that makes each worker's
 * pools and queues and gives the worker something to poll: examples/hello.c, forty lines, in
 * the source's apps and in share/doc/verbena of an installation.
 */
#ifndef VERBENA_H
#define VERBENA_H

/* A struct and a function of one name, as stat's, shadow nothing, whatever a C++ compiler says. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"

#include <verbena/buf.h>
#include <verbena/channel.h>
#include <verbena/counter.h>
#include <verbena/export.h>
#include <verbena/init.h>
#include <verbena/mode.h>
#include <verbena/net.h>
#include <verbena/packet.h>
#include <verbena/peer.h>
#include <verbena/pool.h>
#include <verbena/port.h>
#include <verbena/queue.h>
#include <verbena/ring.h>
#include <verbena/rx_group.h>
#include <verbena/session.h>
#include <verbena/srq.h>
#include <verbena/telemetry.h>
#include <verbena/timer.h>
#include <verbena/udp.h>
#include <verbena/worker.h>
#include <verbena/zone.h>

#pragma GCC diagnostic pop

#endif
