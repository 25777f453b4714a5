/* vhca_status.c - `verbena vhca status`: what the emulated devices of this machine's processes are
 * doing
 *
 * Each process with an open device listens on an abstract unix socket, "@verbena-vhca/" and its
 * number, and answers its own user and root.
 */
#include "cmd.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_PREFIX "@verbena-vhca/"

enum { PATIENCE_S = 3, MAX_ANSWER = 256 << 20 };

struct status_options {
	const char *json;
};

static const struct option options[] = {
	{"json", "FILE", VALUE_TEXT, offsetof(struct status_options, json), 0, 0, NULL,
		"the answer as JSON too; - is standard output, in place of\nthe text"},
};

static const struct command command = {
	.name = "vhca status",
	.usage = "[options]",
	.summary =
		"Shows the emulated devices that processes of this machine have open: ports, GIDs, QPs, CQs, SRQs,\n"
		"receive WQs, their tables, flow rules, memory regions, counters, and how often a rule of the device's\n"
		"contract was broken. Asks the processes of this user, or as root of all, in this network namespace.\n"
		"One that does not answer within 3 seconds, because it is stopped or has no core, has a line that\n"
		"says so.",
	.more = "exit status: 0 also where there is none; 2 usage; 3 the processes cannot be listed.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* ---- asking ---- */

/* Whether the process at the other end may be believed: one of another user could say anything. */
static bool is_trusted(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
		(peer.uid == geteuid() || !geteuid());
}

static int connect_to(const char *name)
{
	struct timeval patience = {.tv_sec = PATIENCE_S};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s", name + 1);
	if (!connect(fd, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))))
		return fd;
	close(fd);
	return -1;
}

struct conversation {
	int fd;
	bool silent; /* nothing has come in time */
};

/* All that comes, as jansson asks for it. */
static size_t receive(void *buffer, size_t size, void *arg)
{
	struct conversation *with = arg;
	ssize_t n = recv(with->fd, buffer, size, 0);

	with->silent = n < 0 && errno == EAGAIN;
	return n < 0 ? (size_t)-1 : (size_t)n;
}

/* Who was asked. */
struct asked {
	json_t *processes; /* their answers */
	json_t *silent;    /* numbers of those that do not answer, or not in time */
	int refused;       /* how many are other users' */
};

static void ask(const char *name, struct asked *asked)
{
	static const char request[] = "status\n";
	struct conversation with = {.fd = connect_to(name)};
	json_t *answer = NULL;
	json_error_t error;

	if (with.fd < 0 && errno != EAGAIN)
		return; /* it is gone */
	if (with.fd < 0)
		with.silent = true;
	else if (!is_trusted(with.fd))
		asked->refused++;
	else if (send(with.fd, request, sizeof(request) - 1, MSG_NOSIGNAL) == sizeof(request) - 1)
		answer = json_load_callback(receive, &with, JSON_DISABLE_EOF_CHECK, &error);
	if (with.fd >= 0)
		close(with.fd);
	if (with.silent)
		json_array_append_new(
			asked->silent, json_integer(atoi(name + strlen(SOCKET_PREFIX))));
	if (json_is_object(answer))
		json_array_append(asked->processes, answer);
	json_decref(answer);
}

/* "ffff: 00000002 00000000 00010000 0001 01 1234 @name": the fourth word says that it listens. */
static bool listens_as(char *line, char **name)
{
	char *word, *rest = line;

	*name = strstr(line, SOCKET_PREFIX);
	if (!*name)
		return false;
	(*name)[strcspn(*name, "\n")] = '\0';
	for (int i = 0; i < 4; i++)
		word = strsep(&rest, " ");
	return word && !strcmp(word, "00010000");
}

static int ask_all(struct asked *asked)
{
	FILE *sockets = fopen("/proc/net/unix", "re");
	char *line = NULL, *name;
	size_t room = 0;

	if (!sockets)
		return cannot("/proc/net/unix: the processes cannot be listed: %s; mount /proc",
			strerror(errno));
	while (getline(&line, &room, sockets) > 0)
		if (listens_as(line, &name))
			ask(name, asked);
	free(line);
	fclose(sockets);
	return 0;
}

/* ---- the text ---- */

static long long number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* What a process says of itself goes to a terminal: nothing but printable characters. */
static const char *text(const json_t *object, const char *key)
{
	static char shown[4][256];
	static unsigned int turn;
	const char *value = json_string_value(json_object_get(object, key));
	char *to = shown[turn++ % ARRAY_SIZE(shown)];

	snprintf(to, sizeof(shown[0]), "%s", value ? value : "?");
	make_printable(to);
	return to;
}

static void print_qp(const json_t *qp)
{
	printf("    qp 0x%llx %s %s", number(qp, "number"), text(qp, "type"), text(qp, "state"));
	if (json_object_get(qp, "peer"))
		printf(" to 0x%llx at %s", number(qp, "peer"), text(qp, "peer_gid"));
	printf(", send %lld of %lld posted", number(qp, "sq_done"), number(qp, "sq_posted"));
	if (json_object_get(qp, "srq"))
		printf(", srq 0x%llx", number(qp, "srq"));
	else
		printf(", receive %lld of %lld posted", number(qp, "rq_done"),
			number(qp, "rq_posted"));
	printf(", cq 0x%llx and 0x%llx\n", number(qp, "send_cq"), number(qp, "recv_cq"));
}

static void print_cq(const json_t *cq)
{
	printf("    cq 0x%llx %lld of %lld bytes, %lld written%s%s\n", number(cq, "number"),
		number(cq, "entries"), number(cq, "entry_bytes"), number(cq, "written"),
		json_is_true(json_object_get(cq, "armed")) ? ", armed" : "",
		json_is_true(json_object_get(cq, "overrun")) ? ", overrun" : "");
}

static void print_srq(const json_t *srq)
{
	printf("    srq 0x%llx of %lld, taken %lld of %lld posted\n", number(srq, "number"),
		number(srq, "size"), number(srq, "taken"), number(srq, "posted"));
}

static void print_wq(const json_t *wq)
{
	printf("    wq 0x%llx %s, receive %lld of %lld posted, cq 0x%llx, %lld frames, %lld found no WQE\n",
		number(wq, "number"), text(wq, "state"), number(wq, "done"), number(wq, "posted"),
		number(wq, "cq"), number(wq, "frames"), number(wq, "out_of_buffer"));
}

/* A table names few queues, many times. */
static void print_rqt(const json_t *rqt)
{
	json_t *wqs = json_object_get(rqt, "wqs");
	size_t n = json_array_size(wqs);

	printf("    rqt 0x%llx of %zu, from wq 0x%llx to 0x%llx\n", number(rqt, "number"), n,
		(long long)json_integer_value(json_array_get(wqs, 0)),
		(long long)json_integer_value(json_array_get(wqs, n ? n - 1 : 0)));
}

static void print_flow(const json_t *flow)
{
	printf("    flow %s, priority %lld, of %lld bits: %s", text(flow, "class"),
		number(flow, "priority"), number(flow, "bits"), text(flow, "action"));
	if (json_object_get(flow, "wq"))
		printf(" by wq 0x%llx", number(flow, "wq"));
	if (json_object_get(flow, "rqt"))
		printf(" by rqt 0x%llx", number(flow, "rqt"));
	if (json_object_get(flow, "tag"))
		printf(", tag 0x%llx", number(flow, "tag"));
	if (json_object_get(flow, "packets"))
		printf(", %lld packets", number(flow, "packets"));
	printf("\n");
}

static void print_mr(const json_t *mr)
{
	printf("    mr 0x%llx %lld bytes at 0x%llx, access 0x%llx\n", number(mr, "key"),
		number(mr, "length"), number(mr, "address"), number(mr, "access"));
}

static void print_gid(const json_t *gid)
{
	printf("    gid %lld %s %s", number(gid, "index"), text(gid, "gid"), text(gid, "type"));
	if (json_object_get(gid, "vlan"))
		printf(" on VLAN %lld", number(gid, "vlan"));
	printf("\n");
}

/* Those that are not 0. */
static void print_counts(const char *title, json_t *counts)
{
	const char *key;
	json_t *value;
	bool any = false;

	json_object_foreach(counts, key, value)
	{
		if (!json_integer_value(value))
			continue;
		printf("%s%.64s %lld", any ? ", " : title, key,
			(long long)json_integer_value(value));
		any = true;
	}
	if (any)
		printf("\n");
}

static void print_device(const json_t *device)
{
	static const struct {
		const char *key;
		void (*print)(const json_t *object);
	} lists[] = {{"gids", print_gid}, {"qps", print_qp}, {"cqs", print_cq}, {"srqs", print_srq},
		{"wqs", print_wq}, {"rqts", print_rqt}, {"flows", print_flow}, {"mrs", print_mr}};

	printf("  %s %s on %s: %s, %lld Gbit/s, MTU %lld, %lld contexts\n", text(device, "name"),
		text(device, "profile"), text(device, "wire"), text(device, "state"),
		number(device, "speed_gbit"), number(device, "mtu"), number(device, "contexts"));
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		size_t at;
		json_t *object;

		json_array_foreach(json_object_get(device, lists[i].key), at, object) lists[i]
			.print(object);
	}
	print_counts("    counters ", json_object_get(device, "counters"));
	print_counts("    raw frames ", json_object_get(device, "raw"));
	print_counts("    wire ", json_object_get(device, "wire_counters"));
}

static void print_idle(const json_t *idle)
{
	if (json_object_get(idle, "why"))
		printf("  idle: %s, not %s: %s\n", text(idle, "is"), text(idle, "asked"),
			text(idle, "why"));
	else if (idle)
		printf("  idle: %s\n", text(idle, "is"));
}

static void print_process(const json_t *process)
{
	size_t at;
	json_t *device;

	printf("process %lld: %s\n", number(process, "pid"), text(process, "command"));
	json_array_foreach(json_object_get(process, "devices"), at, device) print_device(device);
	print_idle(json_object_get(process, "idle"));
	print_counts("  rules broken: ", json_object_get(process, "rules"));
}

static void print_all(const struct asked *asked)
{
	size_t at;
	json_t *process;

	json_array_foreach(asked->processes, at, process) print_process(process);
	json_array_foreach(asked->silent, at, process)
		printf("process %lld does not answer: it is stopped, or has no core\n",
			(long long)json_integer_value(process));
	if (!json_array_size(asked->processes) && !json_array_size(asked->silent))
		printf("no process of yours has an emulated device open\n");
	if (asked->refused)
		printf("%d of other users are not shown\n", asked->refused);
}

int cmd_vhca_status(int argc, char **argv)
{
	struct status_options conf = {0};
	struct asked asked = {.refused = 0};
	struct sink sink;
	uint64_t given;
	json_t *report;
	int status;

	status = options_parse(&command, argc, argv, &conf, &given, NULL);
	if (status != OPTIONS_OK)
		return status;
	status = json_open(&sink, conf.json);
	if (status)
		return status;
	asked.processes = json_array();
	asked.silent = json_array();
	status = ask_all(&asked);
	report = json_pack("{s:o,s:o}", "processes", asked.processes, "silent", asked.silent);
	if (status) {
		json_decref(report);
		sink_abandon(&sink);
		return status;
	}
	if (!conf.json || strcmp(conf.json, "-"))
		print_all(&asked);
	return json_finish(&sink, report);
}
