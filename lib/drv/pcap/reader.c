/* reader.c - a capture file that is read, by libpcap */

#include "drv/pcap/pcap.h"

#include <pcap/pcap.h>
#include <stdlib.h>
#include <unistd.h>

struct pcap_reader {
	pcap_t *pcap;
};

int vbn__pcap_reader_open(const char *file, struct pcap_reader **result)
{
	char why[PCAP_ERRBUF_SIZE] = "";
	struct pcap_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return -ENOMEM;
	if (access(file, R_OK)) {
		const int error = errno;

		free(reader);
		return fail(error, "port pcap:%s cannot be opened: %s", file, strerror(error));
	}
	reader->pcap =
		pcap_open_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, why);
	if (!reader->pcap) {
		free(reader);
		return fail(EINVAL,
			"port pcap:%s cannot be opened: it is no capture file: %s: give it one that tcpdump or wireshark has written",
			file, why);
	}
	if (pcap_datalink(reader->pcap) != DLT_EN10MB) {
		const int link = pcap_datalink(reader->pcap);

		vbn__pcap_reader_close(reader);
		return fail(EINVAL,
			"port pcap:%s cannot be opened: its packets are not Ethernet's but of link type %d: capture on an Ethernet interface",
			file, link);
	}
	*result = reader;
	return 0;
}

void vbn__pcap_reader_close(struct pcap_reader *reader)
{
	if (!reader)
		return;
	pcap_close(reader->pcap);
	free(reader);
}

/* Of a file that was opened so, tv_usec is nanoseconds. */
int vbn__pcap_reader_next(struct pcap_reader *reader, struct pcap_packet *packet, const char **why)
{
	struct pcap_pkthdr *header;

	switch (pcap_next_ex(reader->pcap, &header, &packet->data)) {
	case 1:
		packet->len = header->caplen;
		packet->cut = header->len > header->caplen ? header->len - header->caplen : 0;
		packet->time =
			(uint64_t)header->ts.tv_sec * 1000000000 + (uint64_t)header->ts.tv_usec;
		return 1;
	case PCAP_ERROR_BREAK: return 0;
	default: *why = pcap_geterr(reader->pcap); return -EBADMSG;
	}
}
