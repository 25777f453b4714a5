#!/usr/bin/env python3
"""kv_test.py - the key-value example between processes: two clients of one server, strangers, who is killed"""
import os
import re
import signal
import socket
import subprocess
import unittest

from command import SLOWER, VERBENA, environment, main, read_until

KV = os.environ["KV"]
SERVER, CLIENTS = "127.0.0.21", ("127.0.0.22", "127.0.0.23")


def start(address, *args):
    return subprocess.Popen([VERBENA, "vhca", "--address", address, "--", KV, *args], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment(), stdin=subprocess.DEVNULL)


class Server:
    def __init__(self, *args):
        self.process = start(SERVER, "--listen", "127.0.0.1:0", *args)
        self.said = read_until(self.process.stderr, "listening on ")
        self.address = re.search(r"listening on (\S+)", self.said[-1]).group(1)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=30 * SLOWER)
        return self.process.returncode, "".join(self.said) + err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Pairs(unittest.TestCase):
    def finish(self, process, status=0):
        out, err = process.communicate(timeout=60 * SLOWER)
        self.assertEqual(process.returncode, status, (out, err))
        return out, err

    def right(self, out, n_keys):
        self.assertIn(f"{n_keys} keys loaded", out)
        self.assertRegex(out, r"\n[1-9]\d* values read, 0 of them wrong;")

    def test_two_clients(self):
        """Each has its own keys, and finds what it has put."""
        with Server() as server:
            clients = [start(address, "--connect", server.address, "--keys", "500", "--seconds", "0.3") for address in CLIENTS]
            for client in clients:
                self.right(self.finish(client)[0], 500)
            status, said = server.end()
        self.assertEqual(status, 0, said)
        puts = int(re.search(r"2 clients, (\d+) PUTs", said).group(1))
        self.assertGreaterEqual(puts, 1000, said)

    def test_stranger(self):
        """What is no client is refused, and the next one is served."""
        with Server() as server:
            host, port = server.address.split(":")
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(b"GET key HTTP/1.1\r\n\r\n" * 4)
                stranger.settimeout(30)
                while stranger.recv(4096):
                    pass
            out, _ = self.finish(start(CLIENTS[0], "--connect", server.address, "--keys", "100", "--seconds", "0.05"))
            self.right(out, 100)
            self.assertEqual(server.end()[0], 0)

    def test_full(self):
        """A table that has no room says so."""
        with Server("--keys", "1") as server:
            _, err = self.finish(start(CLIENTS[0], "--connect", server.address, "--keys", "1000"), 1)
            self.assertIn("the table is full", err)

    def test_server_killed(self):
        """The client ends with a reason."""
        with Server() as server:
            client = start(CLIENTS[0], "--connect", server.address, "--keys", "100", "--seconds", "60")
            read_until(server.process.stderr, "is served")
            server.process.kill()
            _, err = self.finish(client, 1)
            self.assertRegex(err, "kv: (.*retry|the server is lost)")

    def test_client_killed(self):
        """The server notes it, and serves the next."""
        with Server() as server:
            client = start(CLIENTS[0], "--connect", server.address, "--keys", "100", "--seconds", "60")
            read_until(server.process.stderr, "is served")
            client.kill()
            client.communicate()
            read_until(server.process.stderr, "it is lost")
            out, _ = self.finish(start(CLIENTS[1], "--connect", server.address, "--keys", "100", "--seconds", "0.05"))
            self.right(out, 100)
            self.assertEqual(server.end()[0], 0)


if __name__ == "__main__":
    main()
