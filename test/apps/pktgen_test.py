#!/usr/bin/env python3
"""pktgen_test.py - verbena pktgen on a TAP device whose other end is here: each frame looked at, some sent back"""
import os
import signal
import socket
import struct
import tempfile
import threading
import time

from command import DONE, LOST, SLOWER, STOPPED, USAGE, CommandTest, main, start
from packets import KEYS, Wire, checksum, ended, ip, own_network, started, strict_json, udp4, verbena, write_pcap


def device(name):
    """A TAP device that is there before the command, with its other end open."""
    ip("tuntap", "add", "dev", name, "mode", "tap", "multi_queue")
    ip("link", "set", name, "up")
    return Wire(name)


def reflect(wire, n, left_out=()):
    """Sends back what comes, but for some of it."""
    for number in range(n):
        for frame in wire.receive(1):
            if number not in left_out:
                wire.send(frame[6:12] + frame[:6] + frame[12:])


class Generate(CommandTest):
    def result(self, process, status=DONE):
        found, out, err = ended(process)
        self.assertEqual(found, status, err)
        return strict_json(out)

    def test_frames(self):
        """Given sizes and ranges, then each frame is whole, and each flow has its share."""
        wire = device("made")
        process = start("pktgen", "--device", "tap:made", "--count", "400", "--rate", "20k", "--size", "60-1400",
                        "--dst-mac", "02:aa:bb:cc:dd:ee", "--dst-ip", "10.3.0.1-10.3.0.8", "--src-ip", "10.2.0.1", "--dport", "1000-1007",
                        "--json", "-")
        frames = wire.receive(400)
        result = self.result(process)
        wire.close()
        self.assertEqual((len(frames), result["sent"], result["returned"], result["lost"]), (400, 400, 0, None))
        self.assertEqual(list(result)[:len(KEYS)], KEYS)
        self.assertTrue(result["accounted"])
        flows = {}
        for frame in frames:
            self.assertEqual(frame[:6] + frame[12:14], bytes.fromhex("02aabbccddee0800"))
            self.assertEqual((checksum(frame[14:34]), struct.unpack_from("!H", frame, 16)[0]), (0, len(frame) - 14))
            self.assertEqual(struct.unpack_from("!H", frame, 38)[0], len(frame) - 34)
            self.assertTrue(60 <= len(frame) <= 1400)
            flows[frame[26:38]] = flows.get(frame[26:38], 0) + 1
        self.assertEqual(sorted(flows.values()), [50] * 8)
        self.assertGreater(len({len(frame) for frame in frames}), 100)
        self.assertEqual({(f[7], struct.unpack_from("!H", f, 10)[0]) for f in flows}, {(i, 999 + i) for i in range(1, 9)})

    def payload_sum(self, frame):
        """Of an IP packet's fourth layer with its pseudo header: 0 where its checksum is right."""
        if frame[12:14] == b"\x08\0":
            protocol, body, addresses = frame[23], frame[34:], frame[26:34]
        else:
            protocol, body, addresses = frame[20], frame[54:], frame[22:54]
        pseudo = b"" if protocol == 1 else addresses + struct.pack("!II", len(body), protocol)
        return protocol, checksum(pseudo + body)

    def test_protocols(self):
        """Of each protocol its headers, with checksums that are right, whatever the size."""
        wire = device("kinds")
        v6 = ["--src-ip", "fd00::1", "--dst-ip", "fd00::2"]
        for protocol, args, number, least in (
                ("tcp", [], 6, 72), ("tcp-syn", v6, 6, 92), ("icmp", [], 1, 64), ("icmp", v6, 58, 80), ("udp", v6, 17, 80),
                ("arp", [], None, 64), ("ethernet", [], None, 64)):
            with self.subTest(protocol, v6=bool(args)):
                process = start("pktgen", "--device", "tap:kinds", "--count", "12", "--rate", "20kpps", "--protocol", protocol, *args,
                                "--size", f"{least},{least + 1}-900", "--json", "-", *(["--flows", "3"] if protocol != "ethernet" else []))
                frames = wire.receive(12)
                result = self.result(process)
                self.assertEqual((len(frames), result["sent"], result["mode"]), (12, 12, protocol))
                at = 54 if args else 34
                for frame in frames:
                    self.assertTrue(least <= len(frame) <= 900)
                    if number:
                        self.assertEqual(self.payload_sum(frame), (number, 0), frame.hex())
                if number == 6:
                    self.assertEqual({frame[at + 13] for frame in frames}, {2 if protocol == "tcp-syn" else 0x18})
                    self.assertEqual([struct.unpack_from("!I", frame, at + 4)[0] for frame in frames], list(range(12)))
                elif protocol == "icmp":
                    self.assertEqual({frame[at] for frame in frames}, {128 if args else 8})
                    self.assertEqual([struct.unpack_from("!HH", frame, at + 4) for frame in frames], [(1024 + i % 3, i) for i in range(12)])
                elif protocol == "arp":
                    self.assertEqual({frame[:6] + frame[12:22] for frame in frames}, {b"\xff" * 6 + bytes.fromhex("08060001080006040001")})
                    self.assertEqual([frame[6:12] + socket.inet_aton(f"198.18.0.{1 + i % 3}") for i, frame in enumerate(frames)],
                                     [frame[22:32] for frame in frames])
                elif protocol == "ethernet":
                    self.assertEqual({frame[:6] + frame[12:14] for frame in frames}, {bytes.fromhex("02000000000088b5")})
        wire.close()

    def sizes(self, wire, *args):
        process = start("pktgen", "--device", "tap:sizes", "--count", "240", "--rate", "40k", "--json", "-", *args)
        found = [len(frame) for frame in wire.receive(240)]
        self.result(process)
        return found

    def test_sizes(self):
        """Sizes by their shares, and by chance that a seed repeats."""
        wire = device("sizes")
        found = self.sizes(wire, "--size", "imix", "--seed", "1")
        counts = [found.count(size) for size in (60, 590, 1514)]
        self.assertEqual(sum(counts), 240)
        self.assertTrue(counts[0] > counts[1] > counts[2] > 0, counts)
        self.assertEqual(found, self.sizes(wire, "--size", "60:7,590:4,1514:1", "--seed", "1"))
        self.assertNotEqual(found, self.sizes(wire, "--size", "imix", "--seed", "2"))
        wire.close()

    def test_v6_and_tag(self):
        """Over IPv6 UDP has a checksum; a tag is in the frame."""
        wire = device("six")
        process = start("pktgen", "--device", "tap:six", "--count", "50", "--rate", "10k", "--dst-ip", "fd00::9", "--flows", "5", "--vlan", "7",
                        "--size", "100", "--json", "-")
        wire.socket.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA: the kernel takes tags out of frames
        frames, tags, until = [], set(), time.monotonic() + 20 * SLOWER
        while len(frames) < 50 and time.monotonic() < until:
            try:
                frame, aux, _, address = wire.socket.recvmsg(2048, 256)
            except TimeoutError:
                continue
            if address[2] == 4:
                continue
            frames.append(frame)
            tags |= {struct.unpack_from("=IIIHHHH", data)[5] for _, _, data in aux}
        self.assertEqual(self.result(process)["sent"], 50)
        wire.close()
        self.assertEqual(tags, {7})
        for frame in frames:
            self.assertEqual(len(frame), 96)
            self.assertNotEqual(frame[60:62], b"\0\0")  # left to the kernel, which fills it in where the frame leaves the host
        self.assertEqual(len({frame[54:58] for frame in frames}), 5)

    def test_what_comes_back(self):
        """Given that all of it comes back, then 0 and its times; given that some does not, then 1 and how many."""
        for name, left_out, status in ("whole", (), DONE), ("part", (5, 50, 99), LOST):
            with self.subTest(name):
                wire = device(name)
                process = start("pktgen", "--device", "tap:" + name, "--count", "100", "--rate", "2k", "--verify", "--json", "-")
                back = threading.Thread(target=reflect, args=(wire, 100, left_out))
                back.start()
                result = self.result(process, status)
                back.join()
                wire.close()
                self.assertEqual((result["sent"], result["returned"], result["lost"]), (100, 100 - len(left_out), len(left_out)))
                times = list(result["percentiles"].values())
                self.assertEqual(times, sorted(times))
                self.assertGreater(times[0], 0)

    def test_window(self):
        """Given a window and nobody who sends back, then no more go until those are given up; with somebody all go."""
        wire = device("shut")
        answer = verbena("pktgen", "--device", "tap:shut", "--window", "5", "--duration", "50ms", "--json", "-")
        self.status(answer, DONE)
        self.assertEqual(strict_json(answer.out)["sent"] % 5, 0)
        self.assertEqual(strict_json(answer.out)["sent"], len(wire.receive(1000, 0.3)))
        wire.close()
        wire = device("open")
        process = start("pktgen", "--device", "tap:open", "--window", "4", "--count", "100", "--verify", "--json", "-")
        reflect(wire, 100)
        result = self.result(process)
        wire.close()
        self.assertEqual((result["sent"], result["returned"]), (100, 100))

    def test_strangers(self):
        """What is not of this run is a drop by name."""
        wire = device("others")
        process = started("pktgen", "--device", "tap:others", "--duration", "60", "--rate", "1k", "--json", "-")
        for number in range(20):
            wire.send(udp4(b"%08d" % number))
        wire.receive(50)
        process.send_signal(signal.SIGTERM)
        result = self.result(process, STOPPED)
        wire.close()
        self.assertEqual((result["drops"]["stranger"], result["received"], result["returned"]), (20, 20, 0))
        self.assertTrue(result["accounted"])

    def test_replay(self):
        """Given a capture of frames 30 ms apart, then they go as they are, in that time; with a rate in less."""
        sent = [udp4(b"%08d" % i * (i + 1)) for i in range(10)]
        wire = device("again")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "in.pcap")
            write_pcap(path, sent, 30000)
            times = []
            for rate in [], ["--rate", "1k"]:
                process = start("pktgen", "--device", "tap:again", "--pcap-replay", path, *rate, "--json", "-")
                self.assertEqual(wire.receive(len(sent)), sent)
                result = self.result(process)
                self.assertEqual((result["sent"], result["percentiles"]), (len(sent), None))
                times.append(result["seconds"])
        wire.close()
        self.assertGreaterEqual(times[0], 0.27)
        self.assertLess(times[1], times[0] + 0.27 * (SLOWER - 1))

    def test_replay_comes_back(self):
        """Given a replay, then what is equal to what it sent comes back, each once, whatever its MACs; anything else is a stranger."""
        sent = [udp4(b"%08d" % i * (i % 7 + 1)) for i in range(40)]
        wire = device("known")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "in.pcap")
            write_pcap(path, sent + sent[:5] + [b"\x22" * 1700])
            for left_out, status in ((), DONE), ((3,), LOST):
                process = start("pktgen", "--device", "tap:known", "--pcap-replay", path, "--rate", "500", "--verify", "--json", "-")
                for number, frame in enumerate(wire.receive(45)):
                    wire.send(udp4(b"other%d" % number))
                    if number not in left_out:
                        wire.send(frame[6:12] + frame[:6] + frame[12:])
                    if number == 20:
                        wire.send(frame)
                result = self.result(process, status)
                self.assertEqual((result["sent"], result["returned"], result["lost"]), (45, 45 - len(left_out), len(left_out)))
                self.assertEqual((result["drops"]["stranger"], result["replay"]["not_sent"]), (46, {"not_sendable": 1}))
                self.assertEqual((result["rate"]["wanted"], result["rate"]["unit"]), (500, "frames"))
            with open(path, "r+b") as file:
                file.truncate(os.path.getsize(path) // 2)
            answer = verbena("pktgen", "--device", "tap:known", "--pcap-replay", path, "--json", "-")
            self.status(answer, LOST)
            self.assertIn("damaged", answer.err)
            self.assertEqual(strict_json(answer.out)["sent"], strict_json(answer.out)["replay"]["frames"])
        wire.close()

    def test_span(self):
        """Given few frames, then its time is that of sending them, without what is waited for; a rate that is not reached is told."""
        with tempfile.TemporaryDirectory() as folder:
            args = ["pktgen", "--device", "pcap:>" + os.path.join(folder, "out.pcap"), "--size", "1500"]
            took = []
            while len(took) < 9 and (not took or took[-1] > 0.01):
                took.append(strict_json(verbena(*args, "--count", "32", "--json", "-").out)["seconds"])
            self.assertLess(took[-1], 0.01, took)
            answer = verbena(*args, "--count", "20k", "--rate", "1G")
            self.status(answer, DONE)
            self.assertRegex(answer.out, r"\nrate: .*/s of the 1\.00 G/s that --rate asks for: missed, ")
            rate = strict_json(verbena(*args, "--count", "20", "--rate", "500", "--json", "-").out)["rate"]
            self.assertEqual(rate["missed"], rate["sent"] < 0.97 * rate["wanted"], rate)
            self.assertLess(rate["sent"], 501)

    def test_usage(self):
        for args, words in (
                (["--dst-ip", "10.0.0"], ["--dst-ip", "no address"]), (["--dst-ip", "10.0.0.9-10.0.0.1"], ["--dst-ip", "lower"]),
                (["--dst-ip", "fd00::1", "--src-ip", "10.0.0.1"], ["--src-ip", "--dst-ip", "contradict"]),
                (["--sport", "70000"], ["--sport", "65535"]), (["--dport", "9-1"], ["--dport"]), (["--size", "59"], ["--size", "from 60"]),
                (["--dst-mac", "02:"], ["--dst-mac", "no MAC"]), (["--size", "64", "--dst-ip", "fd00::1"], ["--size", "at least"]),
                (["--window", "9", "--cores", "0,1"], ["--window", "--cores", "contradict"]),
                (["--rate", "5Mbits"], ["--rate", "unit"]), (["--rate", "0bit"], ["--rate", "too small"]), (["--size", "imax"], ["--size", "not a number"]),
                (["--size", "64:0"], ["--size", "share"]), (["--size", "64,", "--seed", "1"], ["--size", "not a number"]),
                (["--size", "70-69"], ["--size", "ends before"]), (["--size", "60", "--protocol", "tcp"], ["--size", "at least", "72"]),
                (["--protocol", "sctp"], ["--protocol", "tcp-syn"]), (["--protocol", "arp", "--dst-ip", "fd00::1"], ["--protocol", "arp", "IPv4"]),
                (["--protocol", "icmp", "--dport", "1"], ["--protocol icmp", "--dport", "contradict"]), (["--resolve"], ["--resolve", "--dst-ip"]),
                (["--resolve", "--dst-ip", "10.0.0.1", "--dst-mac", "02:00:00:00:00:01"], ["--resolve", "--dst-mac", "contradict"]),
                (["--protocol", "ethernet", "--flows", "2"], ["--protocol ethernet", "--flows", "contradict"]),
                (["--pcap-replay", "x", "--size", "64"], ["--pcap-replay", "--size", "contradict"])):
            answer = verbena("pktgen", "--device", "tap:none", *args)
            self.status(answer, USAGE)
            self.sentence(answer, *words)
        self.assertNotIn("none", [name for _, name in socket.if_nameindex()])


own_network()
main()
