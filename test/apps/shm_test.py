#!/usr/bin/env python3
"""shm_test.py - the message-rate and latency tests over same-host memory: in one process, and between two"""
import re
import subprocess

from command import CANNOT, DONE, SLOWER, VERBENA, CommandTest, environment, main, read_until, strict_json, verbena

OPERATIONS = "send send-imm write write-imm read fetch-add cmp-swap".split()


def size_of(op):
    return [] if op in ("fetch-add", "cmp-swap") else ["--size", "700"]


class Shm(CommandTest):
    def right(self, result, messages):
        self.assertEqual(result["device"], "shm", result)
        for key in ("lost", "corrupt", "duplicate", "reordered", "failed_queues"):
            self.assertIn(result[key], (0, None), (key, result))
        self.assertEqual((result["messages"], result["sent"]), (messages, result["received"]), result)

    def pair(self, *args):
        """The objects of both ends."""
        listener = subprocess.Popen([VERBENA, "msgrate", "--device", "shm", "--listen", "127.0.0.1:0", "--json", "-"],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        try:
            address = re.search(r"listening on (\S+)", read_until(listener.stderr, "listening on ")[-1]).group(1)
            answer = verbena("msgrate", "--device", "shm", "--connect", address, "--json", "-", *args)
            out, err = listener.communicate(timeout=60 * SLOWER)
        finally:
            listener.kill()
        self.status(answer, DONE)
        self.assertEqual(listener.returncode, DONE, err)
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

    def test_what_there_is_not(self):
        answer = verbena("msgrate", "--device", "shm", "--connection", "ud", "--iters", "10")
        self.assertEqual(answer.status, CANNOT, answer)
        self.assertIn("has no ud", answer.err)


if __name__ == "__main__":
    main()
