/* doctor_finding.c - what a check says: found, wanted, and the command that mends it */
#include "doctor.h"

#include <stdarg.h>

/* What files tell is anybody's, and a terminal and JSON take text alone. */
static void clean(char *text)
{
	for (; *text; text++)
		if ((*text < ' ' && *text != '\n') || *text > '~')
			*text = '?';
}

void found(struct finding *finding, enum finding_status status, const char *fmt, ...)
{
	va_list args;

	finding->status = status;
	va_start(args, fmt);
	vsnprintf(finding->found, sizeof(finding->found), fmt, args);
	va_end(args);
	clean(finding->found);
	if (!*finding->found)
		snprintf(finding->found, sizeof(finding->found), "nothing: the file is empty");
}

void skipped(struct finding *finding, const char *fmt, ...)
{
	va_list args;

	finding->status = FINDING_SKIP;
	va_start(args, fmt);
	vsnprintf(finding->found, sizeof(finding->found), fmt, args);
	va_end(args);
	clean(finding->found);
}

void wanted(struct finding *finding, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(finding->wanted, sizeof(finding->wanted), fmt, args);
	va_end(args);
	clean(finding->wanted);
}

static void add_fix(struct finding *finding, const char *where, const char *fmt, va_list args)
{
	size_t used = strlen(finding->fix), size = sizeof(finding->fix);
	char text[2560];

	vsnprintf(text, sizeof(text), fmt, args);
	clean(text);
	snprintf(finding->fix + used, size - used, "%s%s: %s", used ? "\n" : "", where, text);
}

void fix(struct finding *finding, const char *where, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	add_fix(finding, where, fmt, args);
	va_end(args);
}

void fix_boot(struct finding *finding, const char *name, const char *fmt, ...)
{
	char words[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(words, sizeof(words), fmt, args);
	va_end(args);
	fix(finding, "shell",
		"mkdir -p /etc/default/grub.d && echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX %s\"' > /etc/default/grub.d/verbena-%s.cfg && update-grub && grep -q '%s' /boot/grub/grub.cfg",
		words, name, words);
	fix(finding, "systemd",
		"grep -q '%s' /etc/kernel/cmdline || echo '%s' >> /etc/kernel/cmdline; kernel-install add $(uname -r) /boot/vmlinuz-$(uname -r) # where systemd-boot loads the kernel",
		words, words);
	fix(finding, "boot", "reboot, once for all checks that want words there");
	fix(finding, "container", "on its host, as above: a container has its host's kernel");
}
