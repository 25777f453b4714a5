#!/usr/bin/env python3
"""kv_test.py - the key-value example: every value right, with few keys and many, on a bad wire; its options"""
import os
import re
import subprocess
import unittest

from command import SLOWER, VERBENA, environment, main

KV = os.environ["KV"]


def kv(*args, vhca=()):
    return subprocess.run([VERBENA, "vhca", *vhca, "--", KV, *args], capture_output=True, text=True, env=environment(),
                          stdin=subprocess.DEVNULL, timeout=60 * SLOWER)


class Store(unittest.TestCase):
    def right(self, done, n_keys):
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"{n_keys} keys loaded, then ", done.stdout)
        self.assertRegex(done.stdout, r"\n[1-9]\d* values read, 0 of them wrong;")

    def test_one_key(self):
        """Every operation under way is of the same key: GETs find what was stored before they began, or newer."""
        self.right(kv("--keys", "1", "--seconds", "0.1"), 1)

    def test_many_keys(self):
        """More than a run's mix touches; buckets are chosen so that none is full."""
        self.right(kv("--keys", "20000", "--seconds", "0.05"), 20000)

    def test_loss(self):
        """Packets lost and reordered: what is read is right all the same."""
        self.right(kv("--keys", "100", "--seconds", "0.1", vhca=("--fault", "loss=0.01,reorder=0.01")), 100)

    def test_options(self):
        for bad in (["--keys", "0"], ["--keys", "1000000000"], ["--seconds", "0"], ["--seconds", "x"], ["more"], ["--what"]):
            done = kv(*bad)
            self.assertEqual(done.returncode, 2, (bad, done))
            self.assertIn("usage: kv ", done.stderr)
        self.assertEqual(kv("--help").returncode, 0)

    def test_no_device(self):
        done = kv("--device", "mlx5_9")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(re.search(r'device "mlx5_9" does not exist', done.stderr), done)


if __name__ == "__main__":
    main()
