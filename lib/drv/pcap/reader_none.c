/* reader_none.c - a capture file is not read, where the library was built without libpcap: a sentence */

#include "drv/pcap/pcap.h"

int vbn__pcap_reader_open(const char *file, struct pcap_reader **reader)
{
	(void)reader;
	return fail(EPROTONOSUPPORT,
		"port pcap:%s cannot be opened: this library was built without libpcap: install libpcap-dev, and build it anew",
		file);
}

void vbn__pcap_reader_close(struct pcap_reader *reader)
{
	(void)reader;
}

int vbn__pcap_reader_next(struct pcap_reader *reader, struct pcap_packet *packet, const char **why)
{
	(void)reader, (void)packet, (void)why;
	return 0;
}
