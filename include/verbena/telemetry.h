/* verbena/telemetry.h - what can be seen of a process from outside, and what a program adds to it
 *
 * Each process listens, from vbn_init() to vbn_fini(), where DPDK's tools look for it, and speaks
 * their protocol: `dpdk-telemetry.py -f verbena`, and `verbena top`. The socket is
 * dpdk_telemetry.v2 in the directory dpdk/PREFIX of $RUNTIME_DIRECTORY, else of /var/run for root,
 * else of $XDG_RUNTIME_DIR, else of /tmp; the second process with that prefix has ":1" behind it,
 * and so on. It answers its own user and root. Where it cannot be had the process goes without, and
 * a sentence at the level VBN_LOG_INFO says why.
 *
 *   /                             all commands
 *   /help,COMMAND                 what one of them answers
 *   /info                         version, pid, max_output_len
 *   /verbena/KIND/list[,FROM]     the ids of all objects of a kind (from one on): workers, queues, …
 *   /verbena/KIND/info,ID         what an object is: its name, what it belongs to, its sizes
 *   /verbena/KIND/stats,ID        its counters, and what goes up and down
 *   /verbena/KIND/all[,FROM]      both of all of them
 *
 * KIND is "worker", "queue", "srq", "pool", "port", "channels" (a group of them), "channel" (each by
 * itself), "exchange", "control" (the control thread), "telemetry", and what else has counters
 * (vbn_counters_each()). ID is a number or the name; a worker's is its index. An answer is one
 * object of JSON, {"COMMAND": VALUE}: VALUE is null where there is none, and a second key "error"
 * then says why. What does not fit into max_output_len goes on with another one: "next" is its FROM.
 *
 * The same as metrics for Prometheus, in the OpenMetrics format over HTTP: --vbn-metrics (verbena/init.h).
 * A counter `tx_bytes` of kind "queue" is verbena_queue_tx_bytes_total there. Single channels and errors
 * in words are no part of it.
 *
 * None of it costs a worker anything: it stores its counters for itself, and who asks is answered on a
 * thread for that alone, which waits for no device: where the control thread is kept by one, "control"
 * tells for how long (busy_ms), and how many wait for it.
 */
#ifndef VERBENA_TELEMETRY_H
#define VERBENA_TELEMETRY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Answers a command of the program's own: writes one value of JSON, with its NUL, into at most `size`
 * bytes. `params` is what stands behind the first comma, "" where nothing does; any bytes but NUL,
 * from whoever may connect. 0, or -errno for the answer null. Called on the telemetry thread, which
 * answers everyone: do not block, and call nothing of the library but what "any thread" is said of and
 * reads. */
typedef int vbn_telemetry_fn(const char *params, char *json, size_t size, void *arg);

/* Adds a command: "/" and up to 54 letters, digits, "/", "_", "-"; help is one sentence. Both are copied.
 * Before vbn_init() too; it stays until it is removed. -EINVAL: no such name, or one that begins with
 * "/verbena/"; -EEXIST; -ENOSPC: 64 exist; -ENOMEM. Any thread. */
int vbn_telemetry_command(const char *command, const char *help, vbn_telemetry_fn *fn, void *arg);

/* fn is not called, nor running, once this has returned. Not from within fn. One that does not exist is
 * allowed. Any thread. */
void vbn_telemetry_remove(const char *command);

#ifdef __cplusplus
}
#endif

#endif
