/* verbena/init.h - starting and ending the library, and where its sentences go */
#ifndef VERBENA_INIT_H
#define VERBENA_INIT_H

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
const char *vbn_version(void);

enum vbn_log_level { VBN_LOG_ERROR, VBN_LOG_WARNING, VBN_LOG_NOTICE, VBN_LOG_INFO, VBN_LOG_DEBUG };

/* `sentence` has no line end and is valid during the call. Called under a lock: do not log from it.
 */
typedef void vbn_log_fn(int level, const char *sentence, void *arg);

/* Hands every sentence of up to `level` to fn; NULL restores standard error at VBN_LOG_NOTICE's
 * level or the one given. Any thread, also before vbn_init(). */
void vbn_log_to(int level, vbn_log_fn *fn, void *arg);

/* Reads the topology, takes the library's own options out of argv, and starts the control thread.
 * Both may be NULL.
 *
 *   --vbn-page-size=SIZE   plain, transparent, 2M or 1G: what zones are made of unless their conf
 *                          says; where there are no such pages, the next smaller ones, and the
 *                          mode page_size says why (default: 2M)
 *   --vbn-log=LEVEL        error, warning, notice, info, debug
 *   --vbn-telemetry=SWITCH auto, on, off: the socket of verbena/telemetry.h; auto goes without where
 *                          it cannot be had (default: auto)
 *   --vbn-file-prefix=NAME the directory that it is in (default: verbena)
 *   --vbn-metrics=ADDR:PORT  the same as OpenMetrics, at http://ADDR:PORT/metrics, for Prometheus;
 *                          ":PORT" is on the loopback address, port 0 any that is free, and a notice
 *                          says which (default: none)
 *
 * They end at "--"; the last of a kind holds. Where the call fails nothing is taken out.
 * -EINVAL: an unknown --vbn- option or value. -EALREADY: called before. -EAGAIN, -ENOMEM: no thread
 * could be started. The caller's thread is the only one that may call vbn_init() and vbn_fini(). */
int vbn_init(int *argc, char ***argv);

/* Stops the control thread and reports leaks of bufs in debug builds. Ports, zones and attached
 * workers must be gone. */
void vbn_fini(void);

#ifdef __cplusplus
}
#endif

#endif
