#!/usr/bin/env python3
"""shm_test.py - the message-rate and latency tests over same-host memory: in one process, and between two"""
import os
import re
import subprocess
import sys

from command import CANNOT, DONE, NO_PEER, SLOWER, USAGE, VERBENA, CommandTest, environment, main, read_until, strict_json, verbena

OPERATIONS = "send send-imm write write-imm read fetch-add cmp-swap".split()


def size_of(op):
    return [] if op in ("fetch-add", "cmp-swap") else ["--size", "700"]


class Shm(CommandTest):
    def right(self, result, messages):
        self.assertEqual(result["device"], "shm", result)
        for key in ("lost", "corrupt", "duplicate", "reordered", "failed_queues"):
            self.assertIn(result[key], (0, None), (key, result))
        self.assertEqual((result["messages"], result["sent"]), (messages, result["received"]), result)

    def ends(self, *args, listening=(), devices=("shm", "shm")):
        """What became of both: of the one that connects its answer, of the other one its status, output and error."""
        listener = subprocess.Popen([VERBENA, "msgrate", "--device", devices[0], "--listen", "127.0.0.1:0", "--json", "-",
                                     *listening], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        try:
            address = re.search(r"listening on (\S+)", read_until(listener.stderr, "listening on ")[-1]).group(1)
            answer = verbena("msgrate", "--device", devices[1], "--connect", address, "--json", "-", *args)
            out, err = listener.communicate(timeout=60 * SLOWER)
        finally:
            listener.kill()
        return answer, (listener.returncode, out, err)

    def pair(self, *args, **more):
        """The objects of both ends."""
        answer, (status, out, err) = self.ends(*args, **more)
        self.status(answer, DONE)
        self.assertEqual(status, DONE, err)
        return strict_json(answer.out), strict_json(out)

    def test_one_process(self):
        for op in OPERATIONS:
            with self.subTest(op=op):
                answer = verbena("msgrate", "--device", "shm", "--op", op, "--iters", "3000", "--verify", "--json", "-",
                                 *size_of(op))
                self.status(answer, DONE)
                self.right(strict_json(answer.out), 3000)

    def test_two_processes(self):
        for op in OPERATIONS:
            with self.subTest(op=op):
                for result in self.pair("--op", op, "--iters", "1000", "--queues", "3", "--verify", *size_of(op)):
                    self.right(result, 3000)

    def test_both_ways(self):
        for result in self.pair("--iters", "1000", "--bidirectional", "--connection", "uc", "--size", "20000", "--verify"):
            self.right(result, 2000)

    def test_latency(self):
        answer = verbena("latency", "--device", "shm", "--iters", "500", "--verify", "--json", "-")
        self.status(answer, DONE)
        self.right(strict_json(answer.out), 1000)

    def test_datagrams(self):
        """None is lost of what there is room for; a window of what the receiver has not taken sees to that."""
        for size, op in (("64", "send"), ("700", "send-imm"), ("4KiB", "send")):
            with self.subTest(size=size, op=op):
                answer = verbena("msgrate", "--device", "shm", "--connection", "ud", "--op", op, "--size", size, "--queues", "4",
                                 "--iters", "2000", "--verify", "--json", "-")
                self.status(answer, DONE)
                self.right(strict_json(answer.out), 8000)
                for result in self.pair("--connection", "ud", "--op", op, "--size", size, "--queues", "4", "--iters", "1000",
                                        "--verify"):
                    self.right(result, 4000)
        answer = verbena("latency", "--device", "shm", "--connection", "ud", "--iters", "500", "--verify", "--json", "-")
        self.status(answer, DONE)
        self.right(strict_json(answer.out), 1000)
        answer = verbena("msgrate", "--device", "shm", "--connection", "ud", "--size", "4097", "--iters", "10")
        self.assertEqual(answer.status, USAGE, answer)
        self.assertIn("datagrams of at most 4096", answer.err)

    def test_two_devices(self):
        """One end on shm, the other one not: both say so, and cannot run; it was said that one is on InfiniBand."""
        for devices in (("shm", "vhca"), ("vhca", "shm")):
            answer, (status, _, err) = self.ends("--iters", "10", devices=devices)
            self.assertEqual((answer.status, status), (CANNOT, CANNOT), (answer.err, err))
            for said in (answer.err, err):
                self.assertIn("give both --device shm, or neither", said)

    def test_the_reason_crosses(self):
        """Who connects and cannot run this tells the other one why."""
        answer, (status, _, err) = self.ends("--connection", "ud", "--size", "3GiB", "--iters", "10")
        self.assertNotEqual(answer.status, DONE)
        self.assertEqual(status, NO_PEER, err)
        self.assertIn("the connecting side cannot run this: ", err)
        self.assertIn(answer.err.split(": ", 1)[1].strip()[:60], err)

    def test_users(self):
        """A list of users that is none is refused: it let nobody in, without a word."""
        for bad in ("abc", "0,,1", "1000,", "-1", "0 1", "4294967296"):
            answer = verbena("msgrate", "--device", "shm", "--iters", "10", VBN_SHM_UIDS=bad)
            self.assertEqual(answer.status, USAGE, answer)
            self.sentence(answer, f'"{bad}"', "VBN_SHM_UIDS", "as 1000,1001")
        for good, words in (("1000,1001", "lists 1000,1001"), ("", "is not set")):
            answer = verbena("msgrate", "--device", "shm", "--iters", "10", "--json", "-", VBN_SHM_UIDS=good)
            self.status(answer, DONE)
            self.assertIn(words, strict_json(answer.out)["effective"]["peers"]["why"])

    def test_shared_core(self):
        """Who else is busy on a worker's core, and nowhere else, is told of, by a name that does nothing to a terminal."""
        core = min(os.sched_getaffinity(0))
        named = "open('/proc/self/comm', 'wb').write(b'\\x1b[7mbusy')"
        busy = subprocess.Popen([sys.executable, "-c", f"import os\n{named}\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"],
                                stdout=subprocess.PIPE)
        try:
            busy.stdout.readline()
            answer = verbena("msgrate", "--device", "shm", "--iters", "10", "--cores", str(core))
        finally:
            busy.kill()
            busy.communicate()
        self.status(answer, DONE)
        self.assertRegex(answer.err, rf"core {core} is shared: process \d+ \(")
        self.assertNotIn("\033", answer.err)

    def test_who_decides(self):
        """What the listener was given and what the other one asks for: it was called as asked."""
        core = str(min(os.sched_getaffinity(0)))
        for cores in (core, ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))):
            _, theirs = self.pair("--iters", "100", "--cores", core, listening=["--cores", cores])
            modes = theirs["effective"]
            self.assertEqual(modes["cores"]["requested"], cores)
            self.assertEqual((modes["cores"]["effective"], modes["workers"]["effective"]), (core, "1"))
            self.assertIn("process that connects asks for fewer" if cores != core else "as asked", modes["cores"]["why"])
            self.assertEqual(modes["queues"]["why"], "the process that connects decides")
            self.assertEqual(modes["one_worker"]["effective"], "off")

    def test_a_line_each_second(self):
        """It was one every two, and 0 where this end only sends."""
        for attempt in range(3):  # a machine that is kept busy may leave one out
            answer, (status, _, err) = self.ends("--duration", "2.1")
            self.assertEqual((answer.status, status), (DONE, DONE), err)
            lines = [re.findall(r"(\d) s  (\S+) .*msg/s", said) for said in (answer.err, err)]
            if all([second for second, _ in end] == ["1", "2"] for end in lines):
                break
        else:
            self.fail(f"{answer.err}\n{err}")
        self.assertNotEqual(lines[0][0][1], "0", answer.err)


if __name__ == "__main__":
    main()
