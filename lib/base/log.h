/* log.h - one sentence for a person: what, which action, why, what to do about it; never on a fast
 * path */
#ifndef VBN_LOG_H
#define VBN_LOG_H

#include <stdarg.h>

/* The same numbers as enum vbn_log_level in verbena/init.h. */
enum log_level { LOG_ERROR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG };

typedef void log_fn(int level, const char *sentence, void *arg);

/* Hands each sentence up to `level` to fn; NULL is standard error with "verbena: " before it. Any
 * thread. */
void vbn__log_set(int level, log_fn *fn, void *arg);

void vbn__log(int level, const char *fmt, ...) printf_like(2, 3);
void vbn__vlog(int level, const char *fmt, va_list args);

/* Logs the sentence as an error and returns -code, so that a function can say why and leave in one
 * line. */
int vbn__fail(int code, const char *fmt, ...) printf_like(2, 3);

#define log_error(...)   vbn__log(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) vbn__log(LOG_WARNING, __VA_ARGS__)
#define log_notice(...)  vbn__log(LOG_NOTICE, __VA_ARGS__)
#define log_info(...)    vbn__log(LOG_INFO, __VA_ARGS__)
#define log_debug(...)   vbn__log(LOG_DEBUG, __VA_ARGS__)
#define fail(code, ...)  vbn__fail(code, __VA_ARGS__)

#endif
