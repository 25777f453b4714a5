/* doctor.c - `verbena doctor`: what a machine lacks for steady message rates, and what mends it */
#include "doctor.h"

struct doctor_options {
	const char *json, *root;
	int64_t purpose; /* an index of PURPOSES */
};

#define PURPOSES "msgrate packet"

static const struct option options[] = {
	{"for", "PURPOSE", VALUE_WORD, offsetof(struct doctor_options, purpose), 0, 0, PURPOSES,
		"msgrate or packet: what RDMA messages need, or what raw\npackets do (both; what packets alone need is then a\nwarning)"},
	{"root", "DIR", VALUE_TEXT, offsetof(struct doctor_options, root), 0, 0, NULL,
		"look at the sysfs, proc and dev below DIR instead of this\nmachine's"},
	{"json", "FILE", VALUE_TEXT, offsetof(struct doctor_options, json), 0, 0, NULL,
		"write one JSON object to FILE; - is standard output,\nwhich then has nothing else"},
};

static const struct command command = {
	.name = "doctor",
	.usage = "[options]",
	.summary =
		"Looks at what steady message rates rest on: memory that may be locked, huge pages, the NIC, its slot, node,\n"
		"ports and addresses, cores of one's own, frequency and sleep, limits of control groups and containers. It\n"
		"changes nothing and needs no root; what it may not read it says it skipped, and why.",
	.more = "Each check has a name, a status, what was found, what is wanted and, where they differ, the commands that\n"
		"mend it, a line each: in a shell (as root), in a systemd unit, for a container. ok is as wanted; warn costs messages or\n"
		"makes their rate unsteady; fail keeps them from going at all; skip could not be looked at.\n"
		"\n"
		"examples:\n"
		"  verbena doctor\n"
		"                           this machine, for all that Verbena does\n"
		"  verbena doctor --for msgrate --json - | jq -r '.checks[] | select(.status == \"fail\") | .fix' |\n"
		"      sed -n 's/^shell: //p'\n"
		"                           the commands that mend what fails, for a shell\n"
		"  verbena vhca -- verbena doctor\n"
		"                           with the emulated NIC in the place of a real one\n"
		"  docker run -v /:/host:ro IMAGE verbena doctor --root /host\n"
		"                           the host that a container is on\n"
		"\n"
		"exit status: 0 no check fails; 1 one does; 2 usage; 3 DIR cannot be read.\n",
	.options = options,
	.n_options = ARRAY_SIZE(options),
};

/* In the order in which they are told. */
static const struct checks *const subjects[] = {
	&nic_checks, &pci_checks, &memory_checks, &cpu_checks, &process_checks, &packet_checks};

static const char *status_name(enum finding_status status)
{
	static const char *const names[] = {"ok", "warn", "fail", "skip"};

	return names[status];
}

/* ---- telling ---- */

static json_t *finding_json(const struct check *check, const struct finding *finding)
{
	bool mends = finding->status == FINDING_WARN || finding->status == FINDING_FAIL;

	return json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", check->name, "status",
		status_name(finding->status), "found", finding->found, "wanted", finding->wanted,
		"fix", mends ? finding->fix : "");
}

/* "shell: …" as a row of two columns. */
static void print_fix(const char *line, int n)
{
	int where = (int)strcspn(line, ":");

	printf("      %-10.*s %.*s\n", where, line, n - where - 2, line + where + 2);
}

static void print_finding(const struct check *check, const struct finding *finding)
{
	printf("%-5s %-22s %s\n", status_name(finding->status), check->name, finding->found);
	if (finding->status != FINDING_WARN && finding->status != FINDING_FAIL)
		return;
	printf("      %-10s %s\n", "wanted", finding->wanted);
	for (const char *line = finding->fix; *line;) {
		size_t n = strcspn(line, "\n");

		print_fix(line, (int)n);
		line += n + (line[n] == '\n');
	}
	putchar('\n');
}

/* ---- running ---- */

#define MAX_CHECKS 64

struct report {
	json_t *list;
	bool prints;
	int n[4]; /* by status */
	/* What could not be looked at is told last: it is of least use. */
	const struct check *skipped[MAX_CHECKS];
	struct finding skips[MAX_CHECKS];
};

static void tell(struct report *report, const struct check *check, const struct finding *finding)
{
	const int n = report->n[FINDING_SKIP];

	if (finding->status == FINDING_SKIP && n < MAX_CHECKS) {
		report->skipped[n] = check;
		report->skips[n] = *finding;
	} else {
		print_finding(check, finding);
	}
}

static void tell_rest(const struct report *report)
{
	const int n = report->n[FINDING_SKIP];

	for (int i = 0; i < n && i < MAX_CHECKS; i++)
		print_finding(report->skipped[i], &report->skips[i]);
	printf("\n%d ok, %d warn, %d fail, %d skip\n", report->n[FINDING_OK],
		report->n[FINDING_WARN], report->n[FINDING_FAIL], n);
}

/* Without a purpose, what packets alone need is not missing to everybody. */
static void run_check(const struct machine *machine, const struct check *check,
	unsigned int purposes, struct report *report)
{
	struct finding finding = {0};
	json_t *object;

	if (!(check->purposes & purposes))
		return;
	check->fn(machine, &finding);
	if (purposes == FOR_ALL && check->purposes == FOR_PACKET && finding.status == FINDING_FAIL)
		finding.status = FINDING_WARN;
	if (report->prints)
		tell(report, check, &finding);
	report->n[finding.status]++;
	object = finding_json(check, &finding);
	if (object)
		json_array_append_new(report->list, object);
}

static int examine(struct machine *machine, unsigned int purposes, struct sink *sink)
{
	static struct report report;
	int status;

	report = (struct report){.list = json_array(), .prints = sink->file != stdout};
	machine_read(machine);
	for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
		for (size_t j = 0; j < subjects[i]->n; j++)
			run_check(machine, &subjects[i]->rows[j], purposes, &report);
	if (report.prints)
		tell_rest(&report);
	status = json_finish(sink, json_pack("{s:o}", "checks", report.list));
	if (status)
		return status;
	return report.n[FINDING_FAIL] ? STATUS_LOST : STATUS_DONE;
}

/* Of a directory that is no machine's nothing can be said. */
static int check_root(const struct root *root, const char *dir)
{
	if (root_has(root, "sys") || root_has(root, "proc"))
		return 0;
	return cannot(
		"%s cannot be looked at: it has neither a sys nor a proc; give --root a directory "
		"that has them",
		dir ? dir : "/");
}

int cmd_doctor(int argc, char **argv)
{
	static struct machine machine;
	struct doctor_options conf = {0};
	struct sink sink;
	uint64_t given;
	int err, status = options_parse(&command, argc, argv, &conf, &given, NULL);

	if (status != OPTIONS_OK)
		return status;
	err = root_open(&machine.root, conf.root);
	if (err)
		return cannot(
			"%s cannot be looked at: %s; give --root a directory that has a sys and a proc",
			conf.root, strerror(-err));
	status = check_root(&machine.root, conf.root);
	if (!status)
		status = json_open(&sink, conf.json);
	if (!status)
		status = examine(&machine,
			option_given(&command, given, "for") ? 1u << conf.purpose : FOR_ALL, &sink);
	root_close(&machine.root);
	return status;
}
