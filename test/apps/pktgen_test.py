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
from packets import KEYS, Wire, checksum, ended, ip, own_network, started, strict_json, udp4, verbena


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
            with open(path, "wb") as file:
                file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
                for number, frame in enumerate(sent):
                    file.write(struct.pack("<IIII", 1000, number * 30000, len(frame), len(frame)) + frame)
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

    def test_usage(self):
        for args, words in (
                (["--dst-ip", "10.0.0"], ["--dst-ip", "no address"]), (["--dst-ip", "10.0.0.9-10.0.0.1"], ["--dst-ip", "lower"]),
                (["--dst-ip", "fd00::1", "--src-ip", "10.0.0.1"], ["--src-ip", "--dst-ip", "contradict"]),
                (["--sport", "70000"], ["--sport", "65535"]), (["--dport", "9-1"], ["--dport"]), (["--size", "59"], ["--size", "from 60"]),
                (["--dst-mac", "02:"], ["--dst-mac", "no MAC"]), (["--size", "64", "--dst-ip", "fd00::1"], ["--size", "at least"]),
                (["--window", "9", "--cores", "0,1"], ["--window", "--cores", "contradict"]),
                (["--pcap-replay", "x", "--size", "64"], ["--pcap-replay", "--size", "contradict"])):
            answer = verbena("pktgen", "--device", "tap:none", *args)
            self.status(answer, USAGE)
            self.sentence(answer, *words)
        self.assertNotIn("none", [name for _, name in socket.if_nameindex()])


own_network()
main()
