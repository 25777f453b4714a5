#!/usr/bin/env python3
"""kept_test.py - a receiver that is kept from its core for longer than anything takes to arrive

Once in some hundred runs on a busy machine a UC run lost a burst: the sender, whose messages had all been carried out, took them
for lost where the receiver had just not looked, and sent more than it had receives for. Here the receiving worker is stopped as a
debugger would.
"""
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import unittest

from command import SLOWER, CommandTest, start

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
WALL = 0x40000000  # waitpid() of threads, too


def ptrace(request, thread):
    if LIBC.ptrace(request, thread, None, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def threads(pid):
    """Names and numbers of a process's threads."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            with open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as file:
                found[file.read().strip()] = int(task)
    return found


class Kept(CommandTest):
    def keep(self, device, connection):
        """Given a run of two workers, when the receiving one is stopped for a while, then nothing is lost."""
        process = start("msgrate", "--device", device, "--connection", connection, "--cores", self.cores, "--duration", str(1.4 * SLOWER),
                        "--warmup", "0", "--verify", "--json", "-")
        deadline = time.monotonic() + 30 * SLOWER
        while "vbn-w1" not in threads(process.pid):
            self.assertIsNone(process.poll(), "it ended before it had begun")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        time.sleep(0.3 * SLOWER)  # messages go by now, or the stop comes early, which proves less
        receiver = threads(process.pid)["vbn-w1"]
        ptrace(PTRACE_SEIZE, receiver)
        ptrace(PTRACE_INTERRUPT, receiver)
        os.waitpid(receiver, WALL)
        time.sleep(0.5)
        ptrace(PTRACE_DETACH, receiver)
        out, err = process.communicate(timeout=60 * SLOWER)
        run = json.loads(out)
        self.assertEqual((process.returncode, run["lost"], run["failed_queues"]), (0, 0, 0), err + out)
        self.assertGreater(run["messages"], 0)

    def setUp(self):
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            print("SKIP kept_receiver: two workers need two cores")
            self.skipTest("one core")
        self.cores = f"{allowed[0]},{allowed[1]}"

    def test_uc_mlx5(self):
        self.keep("vhca", "uc")

    def test_ud_mlx5(self):
        self.keep("vhca", "ud")


def may_trace():
    """Whether a thread of a child may be stopped here."""
    child = os.fork()
    if not child:
        signal.pause()
    try:
        ptrace(PTRACE_SEIZE, child)
        return True
    except OSError as reason:
        print(f"SKIP kept_receiver: no thread may be traced here: {reason}")
        return False
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, WALL)


if __name__ == "__main__":
    if not may_trace():
        sys.exit(77)
    unittest.main(verbosity=2)
