#!/usr/bin/env python3
"""pair_test.py - message-rate runs between two processes: what both print, every operation, peers that leave or are none"""
import json
import os
import re
import signal
import socket
import subprocess
import time

from command import (CANNOT, DONE, LOST, NO_PEER, SLOWER, STOPPED, VERBENA, CommandTest, environment, main, read_until,
                     strict_json)

CONNECTING, LISTENING = "127.0.0.4", "127.0.0.5"
DEVICE = os.environ.get("PAIR_DEVICE", "mlx5_0")


def under_vhca(address, *args, fault=None):
    faults = ["--fault", fault] if fault else []
    return [VERBENA, "vhca", "--address", address, *faults, "--", VERBENA, "msgrate", "--device", DEVICE, *args]


def start(address, *args, **more):
    return subprocess.Popen(under_vhca(address, *args, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(), stdin=subprocess.DEVNULL)


class Listener:
    def __init__(self, *args, **more):
        self.process = start(LISTENING, "--listen", "127.0.0.1:0", "--json", "-", *args, **more)
        self.said = read_until(self.process.stderr, "listening on ")
        self.address = re.search(r"listening on (\S+)", self.said[-1]).group(1)

    def end(self, timeout=60):
        out, err = self.process.communicate(timeout=timeout * SLOWER)
        self.said.append(err)
        return self.process.returncode, out, "".join(self.said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Pair(CommandTest):
    def finish(self, process, timeout=60):
        out, err = process.communicate(timeout=timeout * SLOWER)
        return process.returncode, out, err

    def pair(self, *args, listening=(), status=DONE, **more):
        """Both ends' objects."""
        with Listener(*listening) as listener:
            one = self.finish(start(CONNECTING, "--connect", listener.address, "--json", "-", *args, **more))
            other = listener.end()
        self.assertEqual((one[0], other[0]), (status, status), (one, other))
        return strict_json(one[1]), strict_json(other[1])

    def same(self, one, other):
        self.msgrate_keys(one)
        self.msgrate_keys(other)
        self.assertEqual((one["role"], other["role"]), ("connect", "listen"))
        for key in ("connection op size seconds messages sent received lost corrupt duplicate reordered failed_queues "
                    "msg_rate gbit_rate").split():
            self.assertEqual(one[key], other[key], key)

    def right(self, one, other, messages=None):
        self.same(one, other)
        for key in ("lost", "corrupt", "duplicate", "reordered", "failed_queues"):
            self.assertIn(one[key], (0, None), (key, one))
        self.assertEqual(one["sent"], one["received"], one)
        if messages:
            self.assertEqual(one["messages"], messages, one)

    def test_operations(self):
        """Every operation of every transport: all arrives, both ends print the same figures."""
        for connection, operations in (("rc", "send send-imm write write-imm read fetch-add cmp-swap"),
                                       ("uc", "send write-imm"), ("ud", "send send-imm")):
            for op in operations.split():
                with self.subTest(connection=connection, op=op):
                    one, other = self.pair("--connection", connection, "--op", op, "--iters", "3000", "--verify")
                    self.right(one, other, 3000)
                    self.assertEqual((one["connection"], one["op"]), (connection, op))

    def test_shapes(self):
        for args, messages in ((["--queues", "3"], 6000), (["--bidirectional"], 4000),
                               (["--bidirectional", "--op", "write"], 4000), (["--size", "100KiB", "--tx-depth", "16"], 2000),
                               (["--rx-depth", "4", "--post-list", "2"], 2000)):
            with self.subTest(args=args):
                one, other = self.pair("--iters", "2000", "--verify", *args)
                self.right(one, other, messages)

    def test_duration(self):
        """Given a time, the window is that of who counts, and it ends both."""
        one, other = self.pair("--duration", "500ms", "--verify")
        self.right(one, other)
        self.assertGreater(one["messages"], 100)
        self.assertAlmostEqual(one["msg_rate"], one["messages"] / one["seconds"], delta=one["msg_rate"] / 1e6)

    def test_sweep(self):
        """A run for each power of two, all of one session."""
        one, other = self.pair("--size", "100-1000", "--iters", "500", "--verify")
        self.assertEqual([run["size"] for run in one["runs"]], [100, 128, 256, 512, 1000])
        for mine, theirs in zip(one["runs"], other["runs"], strict=True):
            self.right(mine, theirs, 500)

    def test_keep(self):
        """Who keeps listening serves the next, until it is stopped, with all results."""
        with Listener("--keep") as listener:
            for size in ("64", "128"):
                one = self.finish(start(CONNECTING, "--connect", listener.address, "--iters", "500", "--size", size))
                self.assertEqual(one[0], DONE, one)
            listener.process.send_signal(signal.SIGTERM)
            status, out, said = listener.end()
        self.assertEqual(status, STOPPED, said)
        self.assertEqual([run["size"] for run in strict_json(out)["runs"]], [64, 128])

    def test_lost_messages(self):
        """Datagrams that the wire drops are counted, and are a failure unless they may be lost."""
        one, other = self.pair("--connection", "ud", "--iters", "5000", "--verify", fault="loss=0.02", status=LOST)
        self.same(one, other)
        self.assertGreater(one["lost"], 10, one)
        # Who connects decides that for both.
        self.pair("--connection", "ud", "--iters", "5000", "--allow-loss", fault="loss=0.02")
        self.pair("--connection", "ud", "--iters", "500", "--allow-loss", listening=["--allow-loss"])

    def test_atomics_sent_again(self):
        """The target looked at its memory while answers were still being asked for again, and found one too few."""
        for op in ("fetch-add", "cmp-swap"):
            one, other = self.pair("--op", op, "--iters", "2000", "--verify", fault="loss=0.02")
            self.right(one, other, 2000)

    def test_overtaken_writes(self):
        """A receiver that is kept from its core finds later messages in its slots: the sender took the ones before for lost.
        They were called corrupt."""
        with Listener() as listener:
            one = start(CONNECTING, "--connect", listener.address, "--connection", "uc", "--op", "write-imm", "--verify",
                        "--duration", "1.5", "--rx-depth", "64", "--tx-depth", "64", "--json", "-")
            read_until(one.stderr, "tx_ring")
            time.sleep(0.3)
            listener.process.send_signal(signal.SIGSTOP)
            time.sleep(0.7)  # the sender's patience is a third of that
            listener.process.send_signal(signal.SIGCONT)
            status, out, err = self.finish(one)
            self.assertIn(status, (DONE, LOST), err)  # unreliable: what finds no receive is lost
            listener.end()
        self.assertEqual(strict_json(out)["corrupt"], 0, out)

    def test_stopped_while_connecting(self):
        """A signal was not heard for the 5 s that connecting is tried, and the status was that of a peer that is not there."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        one = start(CONNECTING, "--connect", f"127.0.0.1:{port}")
        time.sleep(1)  # nothing is said while it is tried
        one.send_signal(signal.SIGTERM)
        status, _, err = self.finish(one)
        self.assertIn(status, (STOPPED, -signal.SIGTERM), err)

    def test_nobody(self):
        """Nobody listens: said after the time that connecting is tried."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        status, _, err = self.finish(start(CONNECTING, "--connect", f"127.0.0.1:{port}"))
        self.assertEqual(status, NO_PEER, err)
        self.assertIn(f"127.0.0.1:{port}", err)

    def test_unknown_name(self):
        """A host that nobody knows is not reached, which is no mistake of usage."""
        status, _, err = self.finish(start(CONNECTING, "--connect", "nosuch.invalid:7000"))
        self.assertEqual(status, NO_PEER, err)
        self.assertIn("write its number", err)

    def test_late_listener(self):
        """Who connects first waits for who listens."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        one = start(CONNECTING, "--connect", f"127.0.0.1:{port}", "--iters", "100", "--json", "-")
        other = start(LISTENING, "--listen", f"127.0.0.1:{port}")
        self.assertEqual((self.finish(one)[0], self.finish(other)[0]), (DONE, DONE))

    def test_not_an_address(self):
        for option in ("--connect", "--listen"):
            status, _, err = self.finish(start(CONNECTING, option, "127.0.0.1"))
            self.assertEqual(status, 2, err)
            self.assertIn("127.0.0.1", err)
        status, _, err = self.finish(start(CONNECTING, "--listen", "192.0.2.1:1"))
        self.assertEqual(status, CANNOT, err)

    def test_stranger(self):
        """Something else at the other end is refused with a reason, and the next is served."""
        with Listener() as listener:
            host, port = listener.address.split(":")
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
                stranger.settimeout(30)
                while stranger.recv(4096):
                    pass
            one = self.finish(start(CONNECTING, "--connect", listener.address, "--iters", "100"))
            self.assertEqual((one[0], listener.end()[0]), (DONE, DONE), one)

    def test_killed(self):
        """Whichever is killed in the middle: the other says so, with what it has, and does not hang."""
        for which in ("listening", "connecting"):
            with Listener() as listener:
                one = start(CONNECTING, "--connect", listener.address, "--duration", "60", "--json", "-")
                read_until(one.stderr, " msg/s")
                victim, survivor = (listener.process, one) if which == "listening" else (one, listener.process)
                victim.kill()
                status, out, err = self.finish(survivor, 30)
                victim.communicate()
                self.assertEqual(status, NO_PEER, err)
                result = strict_json(out)
                self.assertGreater(result["sent"] + result["received"], 0)
                # What the other one has sent or received is not known: it was counted as 0.
                self.assertEqual((result["lost"], result["duplicate"]), (None, None), out)
                # Nor is how many came, where the one that is gone has counted them: it was 0 in 0.000 s.
                self.assertGreater(result["seconds"], 0)
                self.assertEqual(result["messages"] is None, which == "listening", out)

    if DEVICE.startswith("verbs:"):  # once is enough for what takes so long
        def test_frozen(self):
            """A peer that is frozen, not dead, is given up in time: it took 43 s, and for a listener all the time there is."""
            with Listener() as listener:
                one = start(CONNECTING, "--connect", listener.address, "--connection", "ud", "--duration", "1", "--json", "-")
                read_until(one.stderr, "tx_ring")
                listener.process.send_signal(signal.SIGSTOP)
                status, out, err = self.finish(one, 60)
                self.assertEqual(status, NO_PEER, err)
                self.assertIn("the other process does not answer: it is stopped", err)
                self.assertIsNone(strict_json(out)["lost"])

        def test_waits_for_its_turn(self):
            """A second one that connects meanwhile is told that it waits."""
            with Listener("--keep") as listener:
                first = start(CONNECTING, "--connect", listener.address, "--duration", "4")
                read_until(first.stderr, "tx_ring")
                status, _, err = self.finish(start("127.0.0.6", "--connect", listener.address, "--iters", "10"))
                self.assertEqual((self.finish(first)[0], status), (DONE, DONE), err)
                self.assertIn("it serves another process", err)

    def test_stopped(self):
        """Who is stopped prints what it has; the other one ends in order."""
        with Listener() as listener:
            one = start(CONNECTING, "--connect", listener.address, "--duration", "60", "--json", "-")
            read_until(one.stderr, " msg/s")
            one.send_signal(signal.SIGINT)
            status, out, err = self.finish(one, 30)
            self.assertEqual(status, STOPPED, err)
            theirs, result, said = listener.end()
            self.assertEqual(theirs, DONE, said)
        one, other = json.loads(out), json.loads(result)
        self.assertEqual((one["sent"], one["received"]), (other["sent"], other["received"]))


if __name__ == "__main__":
    main()
