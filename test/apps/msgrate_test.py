#!/usr/bin/env python3
"""msgrate_test.py - message-rate runs: the result as scripts read it, faults told, limits of an ordinary user kept"""
import os
import shutil
import stat
import subprocess
import time
from html.parser import HTMLParser

from command import (CANNOT, DONE, LOST, SLOWER, USAGE, VERBENA, WORKER_KEYS, CommandTest, main, run, strict_json, tempfile,
                     verbena)

MIB = 1 << 20


def measure(*args, **env):
    """A run that prints JSON: the answer and the object."""
    answer = verbena("msgrate", *args, "--json", "-", **env)
    return answer, strict_json(answer.out) if answer.out else None


def under_fault(fault, *args):
    answer = verbena("vhca", "--fault", fault, "--", VERBENA, "msgrate", *args, "--json", "-")
    return answer, strict_json(answer.out)


class Result(CommandTest):
    def nothing_wrong(self, answer, result):
        self.status(answer, DONE)
        for key in ("lost", "failed_queues"):
            self.assertEqual(result[key], 0, answer)
        checked = result["effective"]["verify"]["effective"]
        for key in ("corrupt", "duplicate", "reordered"):
            known = checked == "each message" or (key == "corrupt" and checked != "off")
            self.assertEqual(result[key], 0 if known else None, answer)
        self.assertEqual((result["stopped"], result["errors"]), (False, []), answer)
        self.assertEqual(result["sent"], result["received"], answer)

    def test_default_device(self):
        """Given no NIC, when nothing names a device, then it runs on an mlx5 device and says which."""
        answer, result = measure("--duration", "500ms", "--verify")
        self.nothing_wrong(answer, result)
        self.assertEqual(result["driver"], "mlx5", answer)
        self.assertEqual(result["requested_device"], "auto")
        self.assertIn(f"using {'vhca' if 'vhca' in answer.err else result['device']}", answer.err)

    def test_keys(self):
        answer, result = measure("--device", "vhca", "--duration", "300ms", "--verify")
        self.nothing_wrong(answer, result)
        self.msgrate_keys(result)
        for worker in result["workers"]:
            self.keys(worker, WORKER_KEYS)
        for mode in result["effective"].values():
            self.keys(mode, ["requested", "effective", "why"])
        self.assertEqual((result["tool"], result["role"], result["connection"], result["op"], result["size"]),
                         ("msgrate", "both", "rc", "send", 64))
        self.assertEqual((result["device"], result["requested_device"]), ("mlx5_0", "vhca"))
        self.assertAlmostEqual(result["msg_rate"], result["messages"] / result["seconds"],
                               delta=result["msg_rate"] / 1e6)
        self.assertAlmostEqual(result["gbit_rate"], result["msg_rate"] * 64 * 8 / 1e9, delta=1e-6)
        self.assertEqual(sum(w["sent"] for w in result["workers"]), result["sent"])
        self.assertLessEqual(result["messages"], result["received"])

    def test_table_and_file(self):
        """Given a file for the JSON, then standard output has the table, and standard error the modes and a line each second."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "result.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write("x" * 100000)  # an older and longer result
            answer = verbena("msgrate", "--device", "vhca", "--duration", "1.1", "--json", path)
            self.status(answer, DONE)
            with open(path, encoding="utf-8") as file:
                self.msgrate_keys(strict_json(file.read()))
        for word in ("worker", "msg/s", "Gbit/s", "cycles/msg", "burst", "all"):
            self.assertIn(word, answer.out)
        for word in ("requested", "effective", "1 s  "):
            self.assertIn(word, answer.err)

    def test_iters(self):
        """Each queue sends as many as asked, no more; all of them count."""
        for args, messages in ((["--iters", "3k"], 3000), (["--iters", "1"], 1), (["--iters", "1000", "--queues", "3"], 3000),
                               (["--iters", "1000", "--queues", "2", "--bidirectional"], 4000),
                               (["--iters", "70k", "--op", "write"], 70000)):
            answer, result = measure("--device", "vhca", "--verify", *args)
            self.nothing_wrong(answer, result)
            self.assertEqual((result["messages"], result["sent"]), (messages, messages), answer)

    def test_iters_after_warmup(self):
        """The workers' figures are of the same window as the run's."""
        cores = sorted(os.sched_getaffinity(0))[:2]
        for args in (["--one-worker"], ["--cores", ",".join(map(str, cores))]):
            for op in ("send", "write"):
                answer, result = measure("--device", "vhca", "--iters", "2000", "--warmup", "50ms", "--op", op, *args)
                self.nothing_wrong(answer, result)
                self.assertEqual(result["messages"], 2000, answer)
                self.assertGreater(result["sent"], 2000, answer)
                for worker in result["workers"]:
                    self.assertAlmostEqual(worker["msg_rate"], result["msg_rate"], delta=result["msg_rate"] / 1e6, msg=answer)

    def test_writes_received(self):
        """A worker that is only written to has received what was written."""
        cores = sorted(os.sched_getaffinity(0))[:2]
        answer, result = measure("--device", "vhca", "--op", "write", "--iters", "1000", "--cores", ",".join(map(str, cores)))
        self.nothing_wrong(answer, result)
        self.assertEqual(sum(w["received"] for w in result["workers"]), result["received"], answer)

    def test_effective(self):
        """What was asked for and what held: all that decides what a run measures."""
        answer, result = measure("--device", "vhca", "--iters", "500", "--verify", "--queues", "2", "--bidirectional", "--one-worker",
                                 "--rate", "1M", "--tx-depth", "64")
        self.nothing_wrong(answer, result)
        modes = result["effective"]
        for name, requested, effective in (
                ("queues", "2", "2"), ("verify", "on", "each message"), ("bidirectional", "on", "on"), ("one_worker", "on", "on"),
                ("workers", "1", "1"), ("iters", "500", "500"), ("warmup", "auto", "0 s"), ("post_list", "auto", "64"),
                ("rate", "1000000 msg/s at most", "1000000 msg/s at most"), ("device", "vhca", "mlx5_0, emulated (vhca)")):
            self.assertEqual((modes[name]["requested"], modes[name]["effective"]), (requested, effective), name)
        self.assertGreater(float(modes["burst_size"]["effective"]), 0)
        answer, result = measure("--device", "vhca", "--duration", "200ms", "--op", "write", "--verify", "--tx-depth", "64")
        self.nothing_wrong(answer, result)
        modes = result["effective"]
        self.assertEqual(modes["verify"]["effective"], "last scan of 64 slots")
        self.assertEqual((modes["duration"]["requested"], modes["rate"]["requested"]), ("0.2 s", "unlimited"))
        answer, result = measure("--device", "vhca", "--iters", "500")
        self.assertEqual((modes["bidirectional"]["effective"], result["effective"]["verify"]["effective"]), ("off", "off"))

    def test_emulated_is_said(self):
        """On the emulator a run says so, whoever chose it."""
        for answer in (verbena("msgrate", "--device", "vhca", "--iters", "1"),
                       verbena("vhca", "--", VERBENA, "msgrate", "--iters", "1")):
            self.status(answer, DONE)
            self.assertIn("on mlx5_0, emulated (vhca), driver mlx5", answer.out)
            self.assertIn("mlx5_0, emulated (vhca)", answer.err)
            self.assertIn("\n1 message in ", answer.out)
            self.assertIn("corrupt not checked, duplicate not checked, reordered not checked", answer.out)
            self.assertIn("sent and received are of the whole run", answer.out)
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            print("SKIP msgrate_fallback: this machine has RDMA devices")
            return
        answer, result = measure("--iters", "1")
        self.assertEqual(result["effective"]["device"], {
            "requested": "auto", "effective": "mlx5_0, emulated (vhca)", "why": "there is no RDMA device on this machine"}, answer)

    def test_workers(self):
        """Two cores are two workers, of which one sends; one core, or --one-worker, has both ends."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            answer, result = measure("--device", "vhca", "--cores", f"{cores[0]},{cores[1]}", "--duration", "300ms", "--verify")
            self.nothing_wrong(answer, result)
            self.assertEqual([w["core"] for w in result["workers"]], cores[:2])
            self.assertEqual([w["sent"] > 0 for w in result["workers"]], [True, False])
            self.assertEqual([w["received"] > 0 for w in result["workers"]], [False, True])
        for args in (["--cores", str(cores[0])], ["--one-worker"]):
            answer, result = measure("--device", "vhca", *args, "--duration", "300ms", "--verify")
            self.nothing_wrong(answer, result)
            self.assertEqual(len(result["workers"]), 1)

    def test_sizes(self):
        for size, more in (("0", []), ("1", []), ("16", ["--verify"]), ("17", ["--verify"]), ("1000", ["--verify"]),
                           ("64KiB", ["--verify"]), ("1MiB", ["--verify", "--op", "write"]), ("0", ["--op", "write"])):
            answer, result = measure("--device", "vhca", "--size", size, "--iters", "300", *more)
            self.nothing_wrong(answer, result)
            self.assertEqual(result["messages"], 300, answer)

    def test_shapes(self):
        """Every number that a ring has, at its ends."""
        for args in (["--tx-depth", "1", "--rx-depth", "1"], ["--tx-depth", "32768", "--rx-depth", "32768"],
                     ["--post-list", "1"], ["--post-list", "1024"], ["--post-list", "7", "--cq-mod", "1"],
                     ["--cq-mod", "1024"], ["--inline-size", "64"], ["--inline-size", "0"], ["--mtu", "256", "--size", "1000"],
                     ["--gid-index", "1"], ["--queues", "50"]):
            answer, result = measure("--device", "vhca", "--iters", "5k", "--verify", *args)
            self.nothing_wrong(answer, result)
            self.assertEqual(result["messages"], result["sent"], answer)

    def test_memory(self):
        """Rings of large messages had 80 bufs whatever their size: 20 GiB for messages of 256 MiB."""
        for args in (["--size", "16MiB", "--iters", "2"], ["--size", "1MiB", "--queues", "16", "--iters", "1"]):
            answer, result = measure("--device", "vhca", *args)
            self.nothing_wrong(answer, result)
            self.assertLess(result["max_rss_bytes"], 400 * MIB, answer)

    def test_first_message_of_each(self):
        """A sweep's later runs counted the time to their first message from the start of the command."""
        began = time.monotonic()
        answer, result = measure("--device", "vhca", "--size", "64-512", "--duration", "200ms")
        took = time.monotonic() - began
        self.status(answer, DONE)
        self.assertLess(sum(run["first_message_seconds"] for run in result["runs"]), took, answer)

    def test_sweep_of_too_large(self):
        """Given a size that the port has not, a sweep does not begin."""
        answer = verbena("msgrate", "--device", "vhca", "--connection", "ud", "--size", "64-4KiB", "--json", "-")
        self.status(answer, USAGE)
        self.assertEqual(answer.out, "")
        self.assertIn("4096", answer.err)

    def test_rate_below_the_window(self):
        """The first message goes at once, however low the rate."""
        answer, result = measure("--device", "vhca", "--rate", "1", "--iters", "1")
        self.nothing_wrong(answer, result)
        answer, result = measure("--device", "vhca", "--rate", "1", "--duration", "300ms", "--warmup", "0")
        self.assertGreaterEqual(result["received"], 1, answer)

    def test_rate(self):
        answer, result = measure("--device", "vhca", "--rate", "20k", "--duration", "1", "--verify")
        self.nothing_wrong(answer, result)
        # At most: what a busy machine kept from going in time is not made up for.
        self.assertLess(result["msg_rate"], 20000 * 1.02, answer)
        self.assertGreater(result["msg_rate"], 1000 / SLOWER, answer)

    def test_setup_is_told(self):
        """A set-up that takes longer than a second says how far it is."""
        queues = 1500 // SLOWER
        answer, result = measure("--device", "vhca", "--queues", str(queues), "--iters", "1", timeout=120)
        self.nothing_wrong(answer, result)
        if result["first_message_seconds"] > 2.5:
            self.assertRegex(answer.err, rf"setting up: \d+ of {2 * queues} queues\b")

    def test_page_size(self):
        answer, result = measure("--device", "vhca", "--iters", "1000", "--vbn-page-size=plain")
        self.nothing_wrong(answer, result)
        self.assertIn("plain", [mode["effective"] for mode in result["effective"].values()])


class Page(HTMLParser):
    """What a page is made of, and whether every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.titles, self.n_lines, self.outside = [], [], 0, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.outside += [value for name, value in attrs if name in ("src", "href")]
        self.n_lines += tag == "polyline"
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.n_lines += tag == "polyline"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)


class Report(CommandTest):
    """--report: one page that needs nothing else, with a chart of what was run."""

    def page(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.html")
            answer = verbena(*args, "--device", "vhca", "--report", path)
            self.status(answer, DONE)
            with open(path, encoding="utf-8") as file:
                page = Page(file.read())
        self.assertEqual((page.open, page.outside), ([], []))
        return page

    def test_one(self):
        page = self.page("msgrate", "--duration", "300ms")
        self.assertEqual(page.titles, ["The run and the machine", "Messages per second over time, 64 bytes",
                                       "Latency by percentile, 64 bytes", "Runs", "Modes"])
        self.assertEqual(page.n_lines, 2)

    def test_sweep(self):
        page = self.page("msgrate", "--iters", "3000", "--size", "64-256", "--op", "write", "--verify")
        self.assertEqual(page.titles[:4], ["The runs and the machine", "Messages per second by size", "Gbit/s by size", "Runs"])
        self.assertIn("Latency by percentile, 64 bytes", page.titles)

    def test_latency(self):
        page = self.page("latency", "--iters", "1000", "--size", "8-32")
        self.assertIn("Median latency by size", page.titles)

    def test_standard_output(self):
        """It made a file of that name."""
        answer = verbena("msgrate", "--report", "-")
        self.status(answer, USAGE)
        self.sentence(answer, "--report", "FILE.html")

    def test_no_place(self):
        answer = verbena("msgrate", "--report", "/nowhere/report.html")
        self.status(answer, CANNOT)
        self.assertIn("/nowhere/report.html", answer.err)


class Faults(CommandTest):
    """Given one message of many that the device drops, doubles or alters, then the run says so and exits with 1."""

    def faulty(self, fault, counts, *args):
        answer, result = under_fault(fault, "--verify", "--iters", "5000", *args)
        self.status(answer, LOST)
        expected = dict.fromkeys(("lost", "corrupt", "duplicate", "reordered", "failed_queues"), 0) | counts
        self.assertEqual({key: result[key] for key in expected}, expected, answer)
        return result

    def test_dropped(self):
        result = self.faulty("msg-drop=3000", {"lost": 1})
        self.assertEqual(result["sent"] - result["received"], 1)

    def test_last_dropped(self):
        self.faulty("msg-drop=5000", {"lost": 1})

    def test_doubled(self):
        result = self.faulty("msg-double=3000", {"duplicate": 1})
        self.assertEqual(result["messages"], 5000)

    def test_altered(self):
        self.faulty("msg-alter=3000", {"corrupt": 1})
        self.faulty("msg-alter=3000", {"corrupt": 1}, "--size", "16")
        self.faulty("msg-alter=1", {"corrupt": 1}, "--size", "999")

    def test_many(self):
        self.faulty("msg-drop=10,msg-drop=20,msg-double=30,msg-alter=4000,msg-drop=4500", {"lost": 3, "duplicate": 1, "corrupt": 1})

    def test_more_lost_than_the_receiver_has_receives(self):
        """What is lost does not count as on its way to the receiver for ever, so the run still ends."""
        faults = ",".join(f"msg-drop={i}" for i in range(100, 107))
        self.faulty(faults, {"lost": 7}, "--rx-depth", "4", "--tx-depth", "4", "--post-list", "2", "--cq-mod", "2")

    def test_unverified(self):
        """Counts alone tell a loss and a double."""
        for fault, key in (("msg-drop=100", "lost"), ("msg-double=100", "duplicate")):
            answer, result = under_fault(fault, "--iters", "1000")
            self.status(answer, LOST)
            self.assertEqual(result[key], 1, answer)

    def test_failed_queue(self):
        """Given a WQE that fails, then its queue has failed, in words, and the others go on."""
        answer, result = under_fault("syndrome=13@900", "--verify", "--iters", "2000", "--queues", "3")
        self.status(answer, LOST)
        self.assertEqual(result["failed_queues"], 1, answer)
        self.assertGreaterEqual(result["messages"], 4000, answer)
        self.assertEqual(result["lost"], result["sent"] - result["received"], answer)
        self.assertEqual(answer.err.count("remote access"), 1, answer)
        self.assertEqual(len(result["errors"]), 1, answer)
        self.assertIn("remote access", result["errors"][0])

    def test_failed_device(self):
        """Who only received by vbn_recv() never heard that the device had failed."""
        for op in ("send", "read"):
            answer, result = under_fault("device-fatal=2s", "--duration", "60", "--op", op)
            self.status(answer, LOST)
            self.assertEqual(result["failed_queues"], 2, answer)
            self.assertIn("fatal", result["errors"][0])

    def test_a_long_error(self):
        """It was cut at 255 characters, within a word."""
        answer, result = under_fault("syndrome=15@5", "--iters", "1000", "--op", "write")
        self.status(answer, LOST)
        self.assertGreater(len(result["errors"][0]), 255)
        self.assertTrue(result["errors"][0].endswith("the way back?"), answer)


def as_nobody(folder, *args):
    """The command without privileges, 64 KiB of locked memory; a copy, because a build tree need not be nobody's to read."""
    source = os.path.dirname(os.path.dirname(VERBENA))
    for path in ("apps/verbena", "lib/libverbena.so.0", "lib/vhca/libverbena-vhca.so"):
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(source, path), target)
    for place, _, _ in os.walk(folder):
        os.chmod(place, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    command = ["sh", "-c", 'ulimit -l 64 && exec "$@"', "sh", os.path.join(folder, "apps/verbena"), *args]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", *command]
    return run(command)


class OrdinaryUser(CommandTest):
    def test_without_privileges(self):
        """No root, 64 KiB of locked memory: it runs, within 200 MiB and a second to the first message."""
        with tempfile.TemporaryDirectory() as folder:
            answer = as_nobody(folder, "msgrate", "--duration", "500ms", "--verify", "--json", "-")
        self.status(answer, DONE)
        result = strict_json(answer.out)
        self.assertEqual((result["driver"], result["lost"], result["corrupt"]), ("mlx5", 0, 0), answer)
        self.assertGreater(result["messages"], 1000, answer)
        self.assertLess(result["max_rss_bytes"], 200 * MIB * SLOWER, answer)
        self.assertLess(result["first_message_seconds"], 1 * SLOWER, answer)

    def test_twice(self):
        """A second run finds everything as the first one did."""
        for _ in range(2):
            self.status(verbena("msgrate", "--device", "vhca", "--iters", "1000"), DONE)

    def test_two_at_once(self):
        command = [VERBENA, "msgrate", "--device", "vhca", "--iters", "100k", "--verify"]
        both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
        self.assertEqual([one.wait(60 * SLOWER) for one in both], [DONE, DONE])


if __name__ == "__main__":
    main()
