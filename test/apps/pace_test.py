#!/usr/bin/env python3
"""pace_test.py - verbena pktgen in time: its rates, its live table, and what it asks of its neighbours"""
import os
import pty
import re
import signal
import socket
import struct
import subprocess

from command import DONE, NO_PEER, VERBENA, CommandTest, environment, main, start
from packets import Wire, ended, ip, own_network, run, started, strict_json, verbena


def device(name):
    ip("tuntap", "add", "dev", name, "mode", "tap", "multi_queue")
    ip("link", "set", name, "up")
    return Wire(name)


class Pace(CommandTest):
    def result(self, process, status=DONE):
        found, out, err = ended(process)
        self.assertEqual(found, status, err)
        return strict_json(out)

    def test_rate(self):
        """Frames, and bits with what is around a frame on the wire, go one after the other as the rate has it; never are they more."""
        wire = device("paced")
        for rate, size, per_second in ("2kpps", "64", 2000), ("10Mbit", "601", 2000), ("0.001Gbit", "76", 1250):
            gaps, attempts = [], 0
            # What else there is is what a busy machine makes up for.
            while sum(abs(gap - 1) < 0.04 for gap in gaps) < 60:
                attempts += 1
                self.assertLess(attempts, 9, (rate, sorted(gaps)))
                process = start("pktgen", "--device", "tap:paced", "--rate", rate, "--size", size, "--count", "250", "--json", "-")
                times = [struct.unpack_from("=Q", frame, 52)[0] for frame in wire.receive(250)]
                result = self.result(process)
                self.assertEqual((len(times), result["sent"]), (250, 250))
                self.assertLess(250 / per_second * 0.95, result["seconds"])
                gaps += [(late - early) / 1e9 * per_second for early, late in zip(times, times[1:])]
        wire.close()

    def test_neighbours(self):
        """Who asks for its addresses is answered; it asks who has another one, and sends there; where nobody has it that is said."""
        wire = device("near")
        mac, asked = bytes.fromhex("020000000077"), []
        process = start("pktgen", "--device", "tap:near", "--src-ip", "10.9.0.1-10.9.0.3", "--dst-ip", "10.9.0.9", "--resolve", "--count", "40",
                        "--rate", "100", "--json", "-")
        while not asked:
            asked = [f for f in wire.receive(1) if f[12:14] == b"\x08\x06" and f[38:42] == socket.inet_aton("10.9.0.9")]
        ours = asked[0][6:12]
        arp = b"\x08\x06" + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + mac + socket.inet_aton("10.9.0.9") + ours + socket.inet_aton("10.9.0.1")
        wire.send(ours + mac + arp)
        first = wire.receive(1)[0]
        self.assertEqual(first[:6], mac)
        question = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + socket.inet_aton("10.9.0.9") + bytes(6)
        for address in "10.9.0.3", "10.9.0.4":
            wire.send(b"\xff" * 6 + mac + b"\x08\x06" + question + socket.inet_aton(address))
        frames = wire.receive(40)  # 39 and the answer
        result = self.result(process)
        answers = [f for f in frames if f[12:14] == b"\x08\x06"]
        self.assertEqual([f[:6] + f[20:32] + f[38:42] for f in answers],
                         [mac + b"\0\x02" + ours + socket.inet_aton("10.9.0.3") + socket.inet_aton("10.9.0.9")])
        self.assertEqual((result["sent"], result["drops"]["stranger"]), (40 + result["neighbours"]["sent"], 1))
        self.assertTrue(result["accounted"])
        answer = verbena("pktgen", "--device", "tap:near", "--src-ip", "fd00::1", "--dst-ip", "fd00::9", "--resolve")
        self.status(answer, NO_PEER)
        self.assertIn("fd00::9 is not known", answer.err)
        self.assertEqual({f[:6] for f in wire.receive(3)}, {bytes.fromhex("3333ff000009")})
        wire.close()

    def test_cores(self):
        """Given a core on which another command polls, then one takes another core; where there is no other it says whose it is."""
        first = started("fwd", "io", "--device", "tap:polls", "--json", "-")
        second = verbena("pktgen", "--device", "tap:too", "--count", "1", "--json", "-")
        self.status(second, DONE)
        first.send_signal(signal.SIGTERM)
        here, there = (strict_json(text)["workers"][0]["core"] for text in (ended(first)[1], second.out))
        self.assertTrue(here != there or f"core {there} is shared with" in second.err, second)
        core = min(os.sched_getaffinity(0))
        first = started("fwd", "io", "--device", "tap:polls", "--cores", str(core))
        second = run(["taskset", "-c", str(core), VERBENA, "pktgen", "--device", "tap:too", "--count", "1", "--json", "-"])
        self.status(second, DONE)
        self.assertRegex(second.err, rf"core {core} is shared with .+ \(process \d+\).*--cores")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(ended(first)[0], DONE)

    def test_live(self):
        """While it runs a terminal has a table, a line for each queue; a file has a line each second, and no colours."""
        args = ["--rate", "1k", "--duration", "1.3", "--queues", "2"]
        plain = start("pktgen", "--device", "tap:file", *args)
        ours, theirs = pty.openpty()
        with subprocess.Popen([VERBENA, "pktgen", "--device", "tap:screen", *args], stdout=subprocess.DEVNULL, stderr=theirs,
                              stdin=subprocess.DEVNULL, env=environment()) as process:
            os.close(theirs)
            shown = b""
            try:
                while got := os.read(ours, 4096):
                    shown += got
            except OSError:  # its end, on Linux
                pass
        os.close(ours)
        status, _, err = ended(plain)
        self.assertEqual((process.returncode, status), (DONE, DONE))
        table = re.search(rb"worker +device +queue +received +sent *\r\n(?:.*tap:screen +[01] .*\r\n){2}", shown)
        self.assertTrue(table, shown)
        self.assertRegex(err, r"\n +1\.\d s +received +0 .* sent +[1-9]\d* ")
        self.assertNotIn("\033", err)


own_network()
main()
