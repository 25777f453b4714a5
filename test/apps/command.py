"""command.py - running the verbena command in tests, and what its answers must look like"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

VERBENA = os.environ.get("VERBENA", "verbena")

DONE, LOST, USAGE, CANNOT, NO_PEER, STOPPED = 0, 1, 2, 3, 4, 130

# The keys of msgrate's JSON object, in their order: scripts rely on them.
MSGRATE_KEYS = ("tool version role driver device requested_device connection op size seconds messages sent received "
                "lost corrupt duplicate reordered failed_queues msg_rate gbit_rate cycles_per_message "
                "first_message_seconds max_rss_bytes effective workers").split()
MSGRATE_MORE_KEYS = ["stopped", "errors"]  # behind those
WORKER_KEYS = "core node sent received msg_rate busy_share cycles_per_message".split()
DEVICE_KEYS = "name driver node state link speed_gbit mtu gids capabilities".split()
INTERFACE_KEYS = DEVICE_KEYS + "mac queues kernel_driver".split()

# A sanitizer slows everything down; what is measured against a clock is given more of it.
SLOWER = 5 if os.environ.get("SANITIZED") == "1" else 1


class Answer:
    """What a command left behind."""

    def __init__(self, argv, status, out, err):
        self.argv, self.status, self.out, self.err = argv, status, out, err

    def __str__(self):
        return f"$ {' '.join(self.argv)}\nstatus {self.status}\nout: {self.out}\nerr: {self.err}"


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith("VHCA_")}
    env.update(more)
    return env


def run(argv, timeout=60, **env):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout * SLOWER, env=environment(**env),
                          stdin=subprocess.DEVNULL, check=False)
    # As a shell tells the end by a signal.
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Answer([str(a) for a in argv], status, done.stdout, done.stderr)


def verbena(*args, **env):
    """timeout=S is the test's, all else goes into the environment."""
    return run([VERBENA, *args], **env)


def strict_json(text):
    """One object of JSON as the standard has it: no NaN, nothing behind it."""
    def refuse(word):
        raise ValueError(f"{word} is no JSON")
    return json.loads(text, parse_constant=refuse)


def start(*args, **env):
    return subprocess.Popen([VERBENA, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(**env), stdin=subprocess.DEVNULL)


def read_until(stream, text):
    """The lines of a stream up to the one that has the text; the test's own timeout bounds it."""
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"the stream ended without {text!r}: {lines}")


class CommandTest(unittest.TestCase):
    def status(self, answer, status):
        self.assertEqual(answer.status, status, answer)

    def sentence(self, answer, *words):
        """Standard error is one sentence, of the command, with these words."""
        # What the emulator notes is not of the command: another test may run on it at the same time. Nor is progress, of
        # which there is some where the machine has no time for this one.
        lines = [line for line in answer.err.splitlines()
                 if " has the address " not in line and " is shared with " not in line and not line.startswith("setting up: ")]
        self.assertEqual(len(lines), 1, answer)
        self.assertRegex(lines[0], r"^verbena( [a-z]+)?: .+", answer)
        for word in words:
            self.assertIn(word, lines[0], answer)

    def keys(self, found, expected):
        self.assertEqual(list(found), expected)

    def msgrate_keys(self, result):
        self.keys(result, MSGRATE_KEYS + MSGRATE_MORE_KEYS)


def main():
    unittest.main(argv=[sys.argv[0]], verbosity=1)
