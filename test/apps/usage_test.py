#!/usr/bin/env python3
"""usage_test.py - bad input gets one sentence and the right exit status; help and version are there"""
import os
import re

from command import CANNOT, DONE, SLOWER, USAGE, VERBENA, CommandTest, main, run, strict_json, tempfile, verbena


class Help(CommandTest):
    def test_help_teaches(self):
        for subcommand in ("msgrate", "devices", "doctor", "fwd", "echo", "pktgen", "vhca"):
            answer = verbena(subcommand, "--help")
            self.status(answer, DONE)
            for part in ("usage: verbena " + subcommand, "options:", "examples:", "exit status:"):
                self.assertIn(part, answer.out)
            self.assertEqual(answer.err, "")

    def test_version(self):
        answer = verbena("--version")
        self.status(answer, DONE)
        self.assertRegex(answer.out, r"^verbena \d+\.\d+\.\d+\n$")

    def test_help_as_a_word(self):
        self.assertEqual(verbena("help").out, verbena("--help").out)
        for subcommand in ("msgrate", "devices", "doctor", "fwd", "echo", "pktgen", "vhca"):
            self.assertEqual(verbena("help", subcommand).out, verbena(subcommand, "--help").out)
        for args, words in ((["help", "fly"], ['"fly"']), (["help", "msgrate", "x"], ['"x"', "help"]),
                            (["--version", "x"], ['"x"', "--version"]), (["--help", "x"], ['"x"', "--help"])):
            answer = verbena(*args)
            self.status(answer, USAGE)
            self.sentence(answer, *words)

    def test_short_option(self):
        for args in (["-h"], ["msgrate", "-h"], ["devices", "-h"], ["vhca", "-h"]):
            answer = verbena(*args)
            self.status(answer, USAGE)
            self.sentence(answer, '"-h"', "--help")

    def test_subcommands(self):
        self.status(verbena(), USAGE)
        self.status(verbena("--help"), DONE)
        answer = verbena("fly")
        self.status(answer, USAGE)
        self.assertIn('"fly"', answer.err)


class Output(CommandTest):
    """Given a standard output that cannot be written to, then there is a sentence, and no success."""

    COMMANDS = (["--help"], ["--version"], ["help"], ["msgrate", "--help"], ["devices", "--json", "-"],
                ["msgrate", "--device", "vhca", "--iters", "1000"],
                ["msgrate", "--device", "vhca", "--iters", "1000", "--json", "-"])

    def through_shell(self, redirection, command):
        return run(["sh", "-c", f'"$@" {redirection}', "sh", VERBENA, *command])

    def told(self, answer, *words):
        self.status(answer, CANNOT)
        told = [line for line in answer.err.splitlines() if "standard output" in line]
        self.assertEqual(len(told), 1, answer)
        for word in words:
            self.assertIn(word, told[0], answer)

    def test_full(self):
        for command in self.COMMANDS:
            self.told(self.through_shell(">/dev/full", command), "No space left", "make room")

    def test_closed(self):
        for command in self.COMMANDS:
            self.told(self.through_shell(">&-", command), "is closed", "redirect it")

    def test_full_file(self):
        answer = verbena("devices", "--json", "/dev/full")
        self.status(answer, CANNOT)
        self.assertIn("/dev/full could not be written whole: No space left on device; make room there", answer.err)

    def test_closed_standard_error(self):
        """Given no standard error, then the sentences do not end up in the file that gets its number."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "result.json")
            answer = self.through_shell("2>&- <&-", ["msgrate", "--device", "vhca", "--iters", "1000", "--json", path])
            self.status(answer, DONE)
            with open(path, encoding="utf-8") as file:
                strict_json(file.read())


class Options(CommandTest):
    """Known before any device is looked for."""

    def refused(self, *args, words=()):
        answer = verbena(*args)
        self.status(answer, USAGE)
        self.sentence(answer, *words)

    def test_unknown(self):
        self.refused("msgrate", "--fly", words=["--fly", "unknown"])
        self.refused("devices", "--fly", words=["--fly", "unknown"])
        self.refused("vhca", "--fly", "--", "true", words=["--fly", "unknown"])

    def test_no_abbreviations(self):
        self.refused("msgrate", "--dur", "1", words=["--dur ", "unknown"])
        self.refused("msgrate", "--connec", "[::1]:4000", words=["--connec ", "unknown"])

    def test_sizes(self):
        for size, word in (("4096-64", "ends before it begins"), ("64-", "not a number"), ("64-x", "not a number"),
                           ("1-2-3", "unit"), ("-64", "too small")):
            self.refused("msgrate", "--size", size, words=["--size", word])

    def test_operations(self):
        """What a transport has not is refused with what has it."""
        for connection, op, word in (("ud", "write", "only sent"), ("ud", "read", "only sent"), ("uc", "read", "--connection rc"),
                                     ("uc", "fetch-add", "--connection rc")):
            self.refused("msgrate", "--connection", connection, "--op", op, words=["contradict", word])
        self.refused("msgrate", "--op", "cmp-swap", "--size", "16", words=["--size", "8 bytes"])
        self.refused("msgrate", "--allow-loss", words=["--allow-loss", "uc and ud"])
        self.refused("msgrate", "--connection", "xrc", words=["--connection", '"xrc"', "rc or uc or ud"])

    def test_roles(self):
        self.refused("msgrate", "--listen", ":1", "--connect", ":1", words=["--listen", "--connect", "contradict"])
        self.refused("msgrate", "--listen", ":1", "--one-worker", words=["--one-worker", "contradict"])
        self.refused("msgrate", "--keep", words=["--keep", "--listen"])
        for option in (["--op", "send"], ["--size", "64"], ["--duration", "1"], ["--verify"]):
            self.refused("msgrate", "--listen", ":1", *option, words=["--listen", option[0], "connects decides"])

    def test_values(self):
        self.refused("msgrate", "--queues", words=["--queues", "no value"])
        self.refused("msgrate", "--queues", "--verify", words=["--queues", "no value"])
        self.refused("msgrate", "--queues", "none", words=["--queues", '"none"', "not a number"])
        self.refused("msgrate", "--queues", "0", words=["--queues", "too small", "from 1"])
        self.refused("msgrate", "--queues", "-1", words=["--queues", "too small"])
        self.refused("msgrate", "--queues", "1e3", words=["--queues", "unit"])
        self.refused("msgrate", "--duration", "0", words=["--duration", "too small"])
        self.refused("msgrate", "--duration", "nan", words=["--duration", "not a number"])
        self.refused("msgrate", "--duration", "5m", words=["--duration", "unit"])
        self.refused("msgrate", "--size", "64K", words=["--size", "KiB"])
        self.refused("msgrate", "--size", "3K", words=["--size", "KiB, MiB, GiB are units"])
        self.refused("msgrate", "--tx-depth", "1k", words=["--tx-depth", "unit", "without a unit"])
        self.refused("msgrate", "--duration", "5min", words=["--duration", "us, ms, s are units"])
        self.refused("msgrate", "--size", "0.3", words=["--size", "fraction"])
        self.refused("msgrate", "--size", "99999999999999999999GiB", words=["--size"])
        self.refused("msgrate", "--mtu", "1500", words=["--mtu", "power of two", "256", "4096"])
        self.refused("msgrate", "--device", "", words=["--device", "empty"])
        self.refused("msgrate", "--verify=yes", words=["--verify", "no value"])
        self.refused("msgrate", "here", words=['"here"'])

    def test_depths(self):
        for option in ("--tx-depth", "--rx-depth", "--cq-mod"):
            self.refused("msgrate", option, "100", words=[option, '"100"', "power of two"])

    def test_contradictions(self):
        self.refused("msgrate", "--duration", "1", "--iters", "5", words=["--duration", "--iters", "contradict"])
        self.refused("msgrate", "--iters", "5", "--iters", "6", words=["--iters", "twice"])
        self.refused("msgrate", "--verify", "--size", "15", words=["--size", "--verify", "16"])

    def test_cores(self):
        for text in ("0-", "a", "-1", "0,", ",0", "2-1", "0 1", "99999999999999999999"):
            self.refused("msgrate", "--cores", text, words=["--cores", text])
        core = min(os.sched_getaffinity(0))
        self.refused("msgrate", "--cores", f"{core},{core}", words=[f"core {core} twice"])
        self.refused("msgrate", "--cores", f"{core},{core}-{core}", words=["twice"])

    def test_core_not_allowed(self):
        core = max(os.sched_getaffinity(0)) + 1
        for text in (core, 1023, 99999):
            answer = verbena("msgrate", "--cores", str(text))
            self.status(answer, CANNOT)
            self.sentence(answer, f"core {text}", "may not use")

    def test_packets(self):
        self.refused("fwd", words=["mode is missing", "macswap"])
        self.refused("fwd", "--device", "tap:a", words=["mode is missing"])
        self.refused("fwd", "fly", "--device", "tap:a", words=['"fly"', "io or mac or macswap or l3"])
        self.refused("fwd", "io", words=["--device is missing", "tap:"])
        self.refused("fwd", "io", "--device", "tap:a", "--device", "tap:a", words=["tap:a twice"])
        self.refused("fwd", "io", "--device", "a", "--device", "b", "--device", "c", words=["--device", "more than 2 times"])
        self.refused("fwd", "io", "--device", "tap:a", "--burst", "513", words=["--burst", "from 1 to 512"])
        self.refused("fwd", "io", "--device", "tap:a", "--eth-peer", "02:00:00:00:00:01", words=["--eth-peer", "fwd mac"])
        self.refused("fwd", "mac", "--device", "tap:a", "--eth-peer", "02:00:00:00:00", words=["--eth-peer", "no MAC"])

    def test_every_packet_option(self):
        """Each option that --help lists has a value of its kind, and one, but for flags: else a sentence that names it, and nothing is opened."""
        anything = {"json", "pcap", "pcap-replay", "device", "route", "ip"}  # texts that are judged later
        for command in ["fwd", "mac"], ["echo", "--ip", "10.0.0.1/24"], ["pktgen"]:
            options = re.findall(r"^  --([a-z-]+)( [^ ]+)? ", verbena(command[0], "--help").out, re.M)
            self.assertGreater(len(options), 12)
            for name, value in options:
                option = "--" + name
                wrong = ([[option], [option + "="]] if value else [[option + "=1"]]) if name != "help" else []
                wrong += [[option, "?!"]] if value and name not in anything else []
                for args in wrong:
                    self.refused(*command, "--device", "tap:never", *args, words=[option])

    def test_addresses(self):
        for command in ["echo"], ["fwd", "l3"]:
            self.refused(*command, "--device", "tap:a", words=["--ip is missing", "10.0.0.2/24"])
            for text in ("10.0.0.1", "10.0.0.1/33", "fd00::1/129", "10.0.0/24", "10.0.0.1/", "10.0.0.1/24,", "x" * 99):
                self.refused(*command, "--device", "tap:a", "--ip", text, words=["--ip", "no address with its prefix"])
        self.refused("fwd", "io", "--device", "tap:a", "--ip", "10.0.0.1/24", words=["--ip", "fwd l3"])
        self.refused("fwd", "l3", "--device", "tap:a", "--eth-peer", "02:00:00:00:00:01", words=["--eth-peer", "fwd mac"])

    def test_vhca(self):
        for args, words in (
                (["--devices", "17"], ["--devices", "from 1 to 16"]),
                (["--mtu", "1500"], ["--mtu", "4096"]),
                (["--node", "-2"], ["--node"]),
                (["--address", "here"], ["--address", "here"]),
                (["--wire", "string"], ["--wire", "loopback"]),
                (["--profile", "connectx9"], ["--profile", "connectx5 or connectx4lx"]),
                (["--strict", "very"], ["--strict", "report or error or abort"]),
                (["--fault", "loss=1.1"], ["--fault", "loss=1.1"]),
                (["--fault", "msg-drop=0"], ["--fault", "msg-drop=0"]),
                (["--seed", "x"], ["--seed"])):
            self.refused("vhca", *args, "--", "true", words=words)
        for fault, word in (("fly", "no such fault"), ("msg-drop=0", "number of a SEND, from 1"), ("syndrome=04", "behind an @"),
                            ("syndrome=0x00@5", "not 0"), ("loss=2", "from 0 to 1"), ("delay=0", "a time from 1us"),
                            ("torn=1", "takes no value")):
            self.refused("vhca", "--fault", "msg-drop=1," + fault, "--", "true", words=["--fault", f'"{fault}"', word])
        self.refused("vhca", words=["no command", "--"])
        self.refused("vhca", "--", words=["no command"])
        self.refused("vhca", "true", words=["behind --"])


class Limits(CommandTest):
    """Known once the port is open."""

    def refused(self, status, *args, words=()):
        answer = verbena("msgrate", "--device", "vhca", "--duration", "100ms", *args)
        self.status(answer, status)
        self.sentence(answer, *words)

    def test_unknown_device(self):
        answer = verbena("msgrate", "--device", "mlx5_99")
        self.status(answer, CANNOT)
        self.sentence(answer, "mlx5_99", "verbena devices")

    def test_size(self):
        self.refused(USAGE, "--size", "3GiB", words=["--size", "at most 1073741824"])

    def test_depths(self):
        self.refused(USAGE, "--tx-depth", "1048576", words=["--tx-depth", "1048576", "at most"])
        self.refused(USAGE, "--rx-depth", "1048576", words=["--rx-depth", "1048576", "at most"])

    def test_ring_too_small(self):
        """A value out of its range, the port's included, is 2; one that another ring has no room for is 3."""
        self.refused(CANNOT, "--tx-depth", "16", "--post-list", "17", words=["--post-list", "16"])
        self.refused(CANNOT, "--tx-depth", "16", "--cq-mod", "32", words=["--cq-mod", "16"])

    def test_memory(self):
        self.refused(CANNOT, "--size", "1GiB", "--tx-depth", "32768", words=["less"])

    def test_port(self):
        self.refused(USAGE, "--mtu", "4096", words=["4096", "1024"])
        self.refused(USAGE, "--gid-index", "250", words=["250"])
        self.refused(USAGE, "--inline-size", "961", words=["--inline-size", "from 0 to 960"])

    def test_descriptors(self):
        """Given too few descriptors, then that is what is said, not that there is no device."""
        for limit in (11, 14):
            answer = run(["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", VERBENA, "msgrate", "--device", "vhca", "--iters", "1"])
            self.status(answer, CANNOT)
            self.sentence(answer, "file descriptors", "ulimit -n")

    def test_address_space(self):
        """Given too little of it for a port, or for the messages, then that is what is said."""
        for limit, more, word in ((44000, [], "address space"), (300000, ["--size", "1MiB", "--tx-depth", "256"], "mmap")):
            if SLOWER > 1:  # a sanitizer takes terabytes of it
                continue
            answer = run(["sh", "-c", f'ulimit -v {limit} && exec "$@"', "sh", VERBENA, "msgrate", "--device", "vhca", "--iters", "1",
                          *more])
            self.status(answer, CANNOT)
            self.sentence(answer, word, "ulimit -v")

    def test_json_path(self):
        self.refused(CANNOT, "--json", "/nowhere/at/all.json", words=["/nowhere/at/all.json"])

    def test_library_options(self):
        self.refused(USAGE, "--vbn-page-size=3M", words=["--vbn-page-size=3M"])


if __name__ == "__main__":
    main()
