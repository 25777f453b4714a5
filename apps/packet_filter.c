/* packet_filter.c - the filter of --pcap, compiled and run by libpcap
 *
 * That is loaded when a filter is asked for: it brings a dozen libraries with it, which no other run needs.
 */
#include "packet_filter.h"
#include "cmd.h"

#ifdef VBN_HAVE_LIBPCAP

#include <dlfcn.h>
#include <pcap/pcap.h>
#include <stdlib.h>

/* Debian's name for libpcap.so.1. */
#define VBN_LIBPCAP "libpcap.so.0.8"

#define FUNCTIONS(is)                                                                        \
	is(pcap_open_dead) is(pcap_compile) is(pcap_geterr) is(pcap_close) is(pcap_freecode) \
		is(pcap_offline_filter)
#define DECLARE(name)  static __typeof__(name) *libpcap_##name;
#define FIND(name)     *(void **)&libpcap_##name = dlsym(library, #name);
#define IS_THERE(name) libpcap_##name &&

FUNCTIONS(DECLARE)

struct filter {
	struct bpf_program program;
};

static bool libpcap_load(void)
{
	void *library = dlopen(VBN_LIBPCAP, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		library = dlopen("libpcap.so.1", RTLD_NOW | RTLD_LOCAL); /* elsewhere */
	if (!library)
		return false;
	FUNCTIONS(FIND)
	return FUNCTIONS(IS_THERE) true;
}

static int compile(struct filter *filter, const char *expression, uint32_t snaplen)
{
	pcap_t *dead = libpcap_pcap_open_dead(DLT_EN10MB, (int)snaplen);
	int status = 0;

	if (!dead)
		return cannot("the filter of --pcap cannot be compiled: there is no memory");
	if (libpcap_pcap_compile(dead, &filter->program, expression, 1, PCAP_NETMASK_UNKNOWN))
		status = usage_error(
			"option --pcap has the filter \"%.80s\", which is no expression: %s; see man pcap-filter",
			expression, libpcap_pcap_geterr(dead));
	libpcap_pcap_close(dead);
	return status;
}

int filter_compile(struct filter **result, const char *expression, uint32_t snaplen)
{
	struct filter *filter;
	int status;

	if (!libpcap_load())
		return cannot("option --pcap cannot have a filter: " VBN_LIBPCAP
			      " cannot be loaded: %s; install libpcap0.8, or leave the filter out",
			dlerror());
	filter = calloc(1, sizeof(*filter));
	if (!filter)
		return cannot("the filter of --pcap cannot be compiled: there is no memory");
	status = compile(filter, expression, snaplen);
	if (status)
		free(filter);
	else
		*result = filter;
	return status;
}

bool filter_matches(
	const struct filter *filter, const uint8_t *bytes, uint32_t captured, uint32_t original)
{
	const struct pcap_pkthdr header = {.caplen = captured, .len = original};

	return !filter || libpcap_pcap_offline_filter(&filter->program, &header, bytes);
}

void filter_free(struct filter *filter)
{
	if (!filter)
		return;
	libpcap_pcap_freecode(&filter->program);
	free(filter);
}

#else

int filter_compile(struct filter **filter, const char *expression, uint32_t snaplen)
{
	(void)filter, (void)snaplen;
	return cannot(
		"option --pcap cannot have a filter: verbena was built without libpcap; leave \",%.80s\" out, or build it with libpcap-dev",
		expression);
}

bool filter_matches(
	const struct filter *filter, const uint8_t *bytes, uint32_t captured, uint32_t original)
{
	(void)filter, (void)bytes, (void)captured, (void)original;
	return true;
}

void filter_free(struct filter *filter)
{
	(void)filter;
}

#endif
