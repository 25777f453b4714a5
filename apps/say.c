/* say.c - sentences for the user on standard error: this command's own and the library's, each once
 */
#include "cmd.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *speaker;
static bool line_open;     /* a live line stands on the terminal without its end */
static bool library_error; /* the library has said why something failed */
static char failure[256];  /* the last sentence about one */

void say_as(const char *subcommand)
{
	speaker = subcommand;
}

/* With the lock held. */
static void write_sentence(const char *fmt, va_list args)
{
	char text[1024];

	vsnprintf(text, sizeof(text), fmt, args);
	fprintf(stderr, "%sverbena%s%s: %s\n", line_open ? "\n" : "", speaker ? " " : "",
		speaker ? speaker : "", text);
	line_open = false;
}

static void vsay(const char *fmt, va_list args)
{
	pthread_mutex_lock(&lock);
	write_sentence(fmt, args);
	pthread_mutex_unlock(&lock);
}

void say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsay(fmt, args);
	va_end(args);
}

static void note_failure(const char *fmt, va_list args)
{
	pthread_mutex_lock(&lock);
	vsnprintf(failure, sizeof(failure), fmt, args);
	pthread_mutex_unlock(&lock);
}

static void vfail(const char *fmt, va_list args)
{
	va_list again;

	va_copy(again, args);
	vsay(fmt, args);
	note_failure(fmt, again);
	va_end(again);
}

const char *last_failure(void)
{
	return failure;
}

int usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfail(fmt, args);
	va_end(args);
	return STATUS_USAGE;
}

int cannot(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfail(fmt, args);
	va_end(args);
	return STATUS_CANNOT;
}

void say_live(const char *fmt, ...)
{
	bool terminal = isatty(STDERR_FILENO);
	char text[256] = "";
	va_list args;

	if (fmt) {
		va_start(args, fmt);
		vsnprintf(text, sizeof(text), fmt, args);
		va_end(args);
	}
	pthread_mutex_lock(&lock);
	if (fmt && terminal)
		fprintf(stderr, "\r%s\033[K", text);
	else if (fmt)
		fprintf(stderr, "%s\n", text);
	else if (line_open)
		fputc('\n', stderr);
	line_open = fmt && terminal;
	pthread_mutex_unlock(&lock);
}

/* ---- the standard streams ---- */

int streams_open(void)
{
	/* What a help text or a table takes, so that the end knows why it could not be written. */
	static char buffer[1 << 16];

	if (!isatty(STDOUT_FILENO))
		setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		if (fd == STDOUT_FILENO)
			return cannot_write("standard output", EBADF);
		/* The lowest that is free is this one: those below are open by now. */
		if (open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
			return cannot(
				"standard streams are closed and /dev/null cannot be opened: %s; "
				"redirect them",
				strerror(errno));
	}
	return 0;
}

int cannot_write(const char *what, int err)
{
	const char *remedy = "see that it can be written to";

	if (err == EBADF)
		return cannot("%s cannot be written to: it is closed; redirect it to a file or to "
			      "/dev/null",
			what);
	if (err == ENOSPC || err == EDQUOT)
		remedy = "make room there";
	else if (err == EFBIG)
		remedy = "raise ulimit -f";
	return cannot("%s could not be written whole: %s; %s", what, strerror(err), remedy);
}

int output_check(int err)
{
	static bool told;

	errno = 0;
	if (!fflush(stdout) && !ferror(stdout) && !err)
		return 0;
	if (!told)
		cannot_write("standard output", err ? err : errno ? errno : EIO);
	told = true;
	return STATUS_CANNOT;
}

const char *plural(uint64_t n, const char *noun, char text[64])
{
	snprintf(text, 64, "%llu %s%s", (unsigned long long)n, noun, n == 1 ? "" : "s");
	return text;
}

/* ---- the library's ---- */

static void say_locked(const char *fmt, ...) printf_like(1, 2);
static void say_locked(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	write_sentence(fmt, args);
	va_end(args);
}

void say_library(int level, const char *sentence, void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	if (level != VBN_LOG_ERROR || !library_error)
		say_locked("%s", sentence);
	if (level == VBN_LOG_ERROR && !library_error)
		snprintf(failure, sizeof(failure), "%s", sentence);
	library_error |= level == VBN_LOG_ERROR;
	pthread_mutex_unlock(&lock);
}

void make_printable(char *text)
{
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 32 || (unsigned char)*c > 126)
			*c = '?';
}

void say_library_again(void)
{
	pthread_mutex_lock(&lock);
	library_error = false;
	pthread_mutex_unlock(&lock);
}

int library_failed(int err, const char *what)
{
	bool told;

	pthread_mutex_lock(&lock);
	told = library_error;
	pthread_mutex_unlock(&lock);
	if (!told)
		say("%s: %s", what, strerror(-err));
	return err == -EINVAL || err == -EMSGSIZE ? STATUS_USAGE : STATUS_CANNOT;
}
