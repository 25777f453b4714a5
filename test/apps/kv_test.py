#!/usr/bin/env python3
"""kv_test.py - the key-value example: every value right, with few keys and many, on a bad wire, between processes; who is
killed; strangers; its options"""
import os
import re
import signal
import socket
import subprocess
import unittest

from command import SLOWER, VERBENA, environment, main, read_until

KV = os.environ["KV"]
SERVER, CLIENTS = "127.0.0.21", ("127.0.0.22", "127.0.0.23")


def kv(*args, vhca=()):
    return subprocess.run([VERBENA, "vhca", *vhca, "--", KV, *args], capture_output=True, text=True, env=environment(),
                          stdin=subprocess.DEVNULL, timeout=60 * SLOWER)


def start(address, *args):
    return subprocess.Popen([VERBENA, "vhca", "--address", address, "--", KV, *args], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment(), stdin=subprocess.DEVNULL)


class Server:
    def __init__(self, *args):
        self.process = start(SERVER, "--listen", "127.0.0.1:0", *args)
        self.address = re.search(r"listening on (\S+)", read_until(self.process.stderr, "listening on ")[-1]).group(1)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=60 * SLOWER)
        return self.process.returncode, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Test(unittest.TestCase):
    def right(self, done, n_keys):
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"{n_keys} keys loaded, then ", done.stdout)
        self.assertRegex(done.stdout, r"\n[1-9]\d* values read, 0 of them wrong;")

    def finish(self, process):
        out, err = process.communicate(timeout=60 * SLOWER)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Store(Test):
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
        for bad, why in ((["--keys", "0"], "--keys is"), (["--keys", "1000000000"], "--keys is"), (["--seconds", "0"], "--seconds is"),
                         (["--seconds", "x"], "--seconds is"), (["more"], "options only"), (["--what"], "--what"),
                         (["--listen", ":0", "--connect", "127.0.0.1:1"], "--connect are")):
            done = kv(*bad)
            self.assertEqual(done.returncode, 2, (bad, done))
            own = [line for line in done.stderr.splitlines() if not line.startswith("verbena vhca: ")]
            self.assertIn(why, own[0])
            self.assertIn("usage: kv ", done.stderr)
        self.assertEqual(kv("--help").returncode, 0)

    def test_no_device(self):
        done = kv("--device", "mlx5_9")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(re.search(r'device "mlx5_9" does not exist', done.stderr), done)


class Pairs(Test):
    def test_two_clients(self):
        """Each has its own keys, and finds what it has put; the server tells each of them, and outlives both."""
        with Server() as server:
            clients = [start(address, "--connect", server.address, "--keys", "200", "--seconds", "0.2") for address in CLIENTS]
            for client in clients:
                self.right(self.finish(client), 200)
            status, said = server.end()
        self.assertEqual(status, 0, said)
        self.assertEqual(said.count("is served"), 2, said)

    def test_stranger(self):
        """What is no client is refused, and the next one is served."""
        with Server() as server:
            host, port = server.address.split(":")
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(b"GET key HTTP/1.1\r\n\r\n" * 4)
                stranger.settimeout(60)
                while stranger.recv(4096):
                    pass
            self.right(self.finish(start(CLIENTS[0], "--connect", server.address, "--keys", "100", "--seconds", "0.05")), 100)
            self.assertEqual(server.end()[0], 0)

    def test_full(self):
        """A table that has no room says so."""
        with Server("--keys", "1") as server:
            done = self.finish(start(CLIENTS[0], "--connect", server.address, "--keys", "1000"))
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("its table has no room", done.stderr)

    def test_server_killed(self):
        """The client ends with a reason."""
        with Server() as server:
            client = start(CLIENTS[0], "--connect", server.address, "--keys", "100", "--seconds", "600")
            read_until(server.process.stderr, "is served")
            server.process.kill()
            done = self.finish(client)
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stderr, "kv: .*(retry|is lost|does not let)")

    def test_client_killed(self):
        """The server notes it, and serves the next."""
        with Server() as server:
            client = start(CLIENTS[0], "--connect", server.address, "--keys", "100", "--seconds", "600")
            read_until(server.process.stderr, "is served")
            client.kill()
            client.communicate()
            read_until(server.process.stderr, "kv: 127.0.0.1:")
            self.right(self.finish(start(CLIENTS[1], "--connect", server.address, "--keys", "100", "--seconds", "0.05")), 100)
            self.assertEqual(server.end()[0], 0)


if __name__ == "__main__":
    main()
