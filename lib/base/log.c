/* log.c - sentences for a person, to standard error or to whoever asked for them */

#include "base/base.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int max_level = LOG_NOTICE;
static log_fn *sink;
static void *sink_arg;

void vbn__log_set(int level, log_fn *fn, void *arg)
{
	pthread_mutex_lock(&lock);
	max_level = level;
	sink = fn;
	sink_arg = arg;
	pthread_mutex_unlock(&lock);
}

void vbn__vlog(int level, const char *fmt, va_list args)
{
	static const char *const name[] = {"error: ", "warning: ", "", "", "debug: "};
	char sentence[1024];

	if (level > load_once(&max_level))
		return;
	vsnprintf(sentence, sizeof(sentence), fmt, args);
	pthread_mutex_lock(&lock);
	if (sink)
		sink(level, sentence, sink_arg);
	else
		fprintf(stderr, "verbena: %s%s\n", name[min(level, (int)LOG_DEBUG)], sentence);
	pthread_mutex_unlock(&lock);
}

void vbn__log(int level, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vbn__vlog(level, fmt, args);
	va_end(args);
}

int vbn__fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vbn__vlog(LOG_ERROR, fmt, args);
	va_end(args);
	return -code;
}
