/* port.c - the pcap driver's table, and its ports: a name taken apart into files */

#include "drv/pcap/pcap.h"

#include <stdlib.h>
#include <sys/stat.h>

enum { MIN_MTU = 68, MAX_MTU = 65000, DEFAULT_MTU = 1500 };

static void close_port(struct vbn_port *base)
{
	struct pcap_port *port = pcap_port(base);
	const int ret = vbn__pcap_writer_close(port->writer);

	if (ret)
		log_error(
			"port %s: the end of the file could not be written: %s: is the disk full?",
			base->info.name, strerror(-ret));
	vbn__pcap_reader_close(port->reader);
	free(port);
}

/* By whatever names. */
static bool is_one_file(const char *a, const char *b)
{
	struct stat of_a, of_b;

	if (!strcmp(a, b))
		return true;
	return !stat(a, &of_a) && !stat(b, &of_b) && S_ISREG(of_a.st_mode) &&
		of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* "FROM", ">TO", "FROM>TO" */
static int parse_name(struct pcap_port *port, const char *name)
{
	const char *arrow = strchr(name, '>');
	const size_t n = arrow ? (size_t)(arrow - name) : strlen(name);

	if (n >= sizeof(port->from) || (arrow && strlen(arrow + 1) >= sizeof(port->to)))
		return fail(ENAMETOOLONG, "port pcap:%.40s… cannot be opened: its name is too long",
			name);
	memcpy(port->from, name, n);
	if (!arrow)
		return 0;
	if (!arrow[1] || strchr(arrow + 1, '>'))
		return fail(EINVAL,
			"port pcap:%s cannot be opened: behind '>' stands one file, into which packets go",
			name);
	strcpy(port->to, arrow + 1);
	if (is_one_file(port->from, port->to))
		return fail(EINVAL,
			"port pcap:%s cannot be opened: the file that it reads is the one that it writes: take two",
			name);
	return 0;
}

static int open_files(struct pcap_port *port)
{
	int ret = 0;

	if (*port->from)
		ret = vbn__pcap_reader_open(port->from, &port->reader);
	if (!ret && *port->to)
		ret = vbn__pcap_writer_open(port->to, &port->writer);
	return ret;
}

static void fill_info(struct pcap_port *port, const char *name, const struct vbn_port_conf *conf)
{
	struct vbn_port_info *info = &port->port.info;

	vbn__frame_info(info, "pcap", name);
	info->max_queues = 1;
	info->max_gather = PCAP_GATHER;
	info->mtu = info->frame_mtu = conf->frame_mtu ? conf->frame_mtu : DEFAULT_MTU;
	info->max_message = info->frame_mtu + FRAME_HEADER + FRAME_TAG;
	memcpy(info->mac, (const uint8_t[]){2, 'V', 'B', 'N', 0, 1}, sizeof(info->mac));
}

static int open_port(
	const char *name, int number, const struct vbn_port_conf *conf, struct vbn_port **result)
{
	struct pcap_port *port;
	int ret = vbn__frame_port_check("pcap", name, number, conf);

	if (!ret && conf->frame_mtu && (conf->frame_mtu < MIN_MTU || conf->frame_mtu > MAX_MTU))
		ret = fail(EINVAL,
			"port pcap:%s cannot be opened: frame_mtu is %u and must be %d to %d", name,
			conf->frame_mtu, MIN_MTU, MAX_MTU);
	if (ret)
		return ret;
	port = calloc(1, sizeof(*port));
	if (!port)
		return -ENOMEM;
	port->port.driver = &vbn__driver_pcap;
	fill_info(port, name, conf);
	ret = parse_name(port, name);
	if (!ret)
		ret = open_files(port);
	if (ret) {
		close_port(&port->port);
		return ret;
	}
	*result = &port->port;
	return 0;
}

static void modes(const struct vbn_port *base, struct mode_report *report)
{
	const struct pcap_port *port = pcap_port(base);

	vbn__mode_add(report, "reads", "auto", port->reader ? "on" : "off", "%.150s", port->from);
	vbn__mode_add(report, "writes", "auto",
		!port->writer              ? "off"
			: port->writer->ng ? "pcapng"
					   : "pcap",
		"%.150s", port->to);
}

static int nothing(struct vbn_queue *queue)
{
	(void)queue;
	return 0;
}

static uint32_t none_posted(const struct vbn_queue *queue)
{
	(void)queue;
	return 0;
}

static void stop_nothing(struct vbn_queue *queue)
{
	(void)queue;
}

const struct driver vbn__driver_pcap = {
	.name = "pcap",
	FRAME_DRIVER,
	.owns_interface = true,
	.list = vbn__frame_nothing_to_list,
	.open = open_port,
	.close = close_port,
	.modes = modes,
	.queue_create = vbn__pcap_queue_create,
	.queue_fill = nothing,
	.queue_posted = none_posted,
	.queue_connect = vbn__pcap_queue_connect,
	.queue_fail = vbn__frame_nothing_to_end,
	.queue_news = vbn__pcap_queue_news,
	.queue_reset = vbn__pcap_queue_reset,
	.queue_stop = stop_nothing,
	.queue_free = vbn__pcap_queue_free,
	.queue_modes = vbn__pcap_queue_modes,
	.queue_drops = vbn__pcap_queue_drops,
};
