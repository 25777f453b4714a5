#!/usr/bin/env python3
"""latency_test.py - one message at a time: what is printed, every operation, between processes"""
import re
import subprocess

from command import (DONE, LOST, MSGRATE_KEYS, MSGRATE_MORE_KEYS, SLOWER, USAGE, VERBENA, CommandTest, environment, main, read_until,
                     strict_json, verbena)
from pair_test import CONNECTING, DEVICE, LISTENING

PERCENTILES = "min p50 p90 p99 p99.9 p99.99 p99.999 max".split()


def measure(*args):
    answer = verbena("latency", "--device", "vhca", *args, "--json", "-")
    return answer, strict_json(answer.out) if answer.out else None


class Latency(CommandTest):
    def sound(self, answer, result):
        self.status(answer, DONE)
        self.keys(result, MSGRATE_KEYS + MSGRATE_MORE_KEYS + ["percentiles"])
        self.keys(result["percentiles"], PERCENTILES)
        times = list(result["percentiles"].values())
        self.assertEqual(times, sorted(times), answer)
        self.assertGreater(times[0], 0, answer)
        self.assertEqual((result["tool"], result["lost"], result["failed_queues"]), ("latency", 0, 0), answer)

    def test_operations(self):
        for connection, op in (("rc", "send"), ("rc", "send-imm"), ("rc", "write"), ("rc", "write-imm"), ("rc", "read"),
                               ("rc", "fetch-add"), ("rc", "cmp-swap"), ("uc", "write"), ("ud", "send")):
            with self.subTest(connection=connection, op=op):
                answer, result = measure("--connection", connection, "--op", op, "--iters", "500")
                self.sound(answer, result)
                # A send and its answer are two messages.
                self.assertEqual(result["sent"], 1000 if op.startswith(("send", "write")) else 500, answer)

    def test_round_the_slots(self):
        """Given more writes than the target has slots, many times, each is seen once."""
        answer, result = measure("--op", "write", "--iters", "5000", "--size", "1")
        self.sound(answer, result)
        self.assertEqual(result["sent"], 10000, answer)

    def test_verified(self):
        answer, result = measure("--iters", "500", "--verify", "--queues", "3")
        self.sound(answer, result)
        self.assertEqual((result["messages"], result["corrupt"], result["duplicate"]), (3000, 0, 0), answer)

    def test_lost(self):
        """One lost datagram, and the run sent no more; a lost write was not even counted."""
        for args, sent in ((["--connection", "ud", "--iters", "40"], 60), (["--connection", "uc", "--iters", "40"], 60),
                           (["--connection", "uc", "--op", "write", "--duration", "300ms"], 1)):
            answer = verbena("vhca", "--fault", "msg-drop=2", "--", VERBENA, "latency", "--json", "-", *args)
            self.status(answer, LOST)
            result = strict_json(answer.out)
            self.assertEqual(result["lost"], 1, answer)
            self.assertGreaterEqual(result["sent"], sent, answer)

    def test_table(self):
        answer = verbena("latency", "--device", "vhca", "--duration", "200ms", "--size", "64-128")
        self.status(answer, DONE)
        self.assertEqual(len(re.findall(r"^us, half of a round trip:  min \d", answer.out, re.M)), 2, answer)
        self.assertIn("#", answer.out)

    def test_usage(self):
        for args in (["--post-list", "2"], ["--tx-depth", "16"], ["--bidirectional"]):
            answer = verbena("latency", *args)
            self.status(answer, USAGE)
            self.sentence(answer, args[0], "unknown")
        answer = verbena("latency", "--op", "write", "--verify")
        self.status(answer, USAGE)
        self.sentence(answer, "--verify", "last byte")

    def test_two_processes(self):
        """Both ends print the percentiles of the one that asks."""
        def start(address, *args):
            return subprocess.Popen([VERBENA, "vhca", "--address", address, "--", VERBENA, "latency", "--device", DEVICE, *args],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
                                    stdin=subprocess.DEVNULL)

        for op in ("send", "write", "read"):
            listener = start(LISTENING, "--listen", "127.0.0.1:0", "--json", "-")
            address = re.search(r"listening on (\S+)", read_until(listener.stderr, "listening on ")[-1]).group(1)
            one = start(CONNECTING, "--connect", address, "--op", op, "--iters", "500", "--json", "-")
            (mine, said), (theirs, heard) = (process.communicate(timeout=60 * SLOWER) for process in (one, listener))
            self.assertEqual((one.returncode, listener.returncode), (DONE, DONE), said + heard)
            self.assertEqual(strict_json(mine)["percentiles"], strict_json(theirs)["percentiles"])
            self.assertGreater(strict_json(mine)["percentiles"]["min"], 0)


if __name__ == "__main__":
    main()
