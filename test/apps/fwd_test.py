#!/usr/bin/env python3
"""fwd_test.py - verbena fwd between TAP devices whose other end is Linux's: bytes compared, frames counted, captures read"""
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

from command import CANNOT, DONE, SLOWER, STOPPED, USAGE, VERBENA, WORKER_KEYS, CommandTest, environment, main
from packets import KEYS, Wire, accounted, captured, ended, ip, own_network, read_pcap, started, strict_json, udp4, verbena, write_pcap

FRAMES = 200


def frames(seed):
    """Of all sizes, each with a number of its own."""
    random.seed(seed)
    return [udp4(b"%08d" % i + random.randbytes(random.randrange(10, 1400))) for i in range(FRAMES)]


def through(wire_in, wire_out, sent):
    """What comes out of a device while frames are sent into one, a few at a time so that no ring is full."""
    came = []
    for at in range(0, len(sent), 20):
        for frame in sent[at:at + 20]:
            wire_in.send(frame)
        came += wire_out.receive(len(sent[at:at + 20]))
    return came


class Forward(CommandTest):
    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        status, out, err = ended(process)
        self.assertEqual(status, DONE, err)
        return strict_json(out)

    def test_macswap(self):
        """Given frames of all sizes, when they come back, then their MACs are swapped and all else is as it was."""
        self.swapped("swap", "fwd", "macswap", "--device", "tap:swap")

    def test_macswap_emulated(self):
        """The same on the emulated ConnectX, whose wire is a TAP device."""
        ip("tuntap", "add", "dev", "nic", "mode", "tap")
        ip("link", "set", "nic", "up")
        self.swapped("nic", "vhca", "--wire", "tap:nic", "--", VERBENA, "fwd", "macswap", "--device", "mlx5_0")

    def swapped(self, name, *command):
        process = started(*command, "--json", "-")
        wire = Wire(name)
        sent = frames(1)
        came = through(wire, wire, sent)
        result = self.stop(process)
        wire.close()
        self.assertEqual(sorted(came), sorted(f[6:12] + f[:6] + f[12:] for f in sent))
        self.assertEqual(list(result)[:len(KEYS)], KEYS)
        self.assertEqual([key.replace("packet", "message") for key in result["workers"][0]], WORKER_KEYS)  # as msgrate's
        self.assertEqual((result["sent"], result["mode"]), (FRAMES, "macswap"))
        accounted(self, result)
        self.assertEqual(sum(queue["received"] for queue in result["queues"]), FRAMES)

    def test_across(self):
        """Given two devices, then what comes by one goes out by the other, both ways; --eth-peer's MACs with mac."""
        for mode, head in (("io", None), ("mac", bytes.fromhex("02aabbccdd01"))):
            with self.subTest(mode):
                peers = ["--eth-peer", "02:aa:bb:cc:dd:00", "--eth-peer", "02:aa:bb:cc:dd:01"] if head else []
                process = started("fwd", mode, "--device", "tap:left", "--device", "tap:right", "--queues", "2", *peers,
                                  "--json", "-")
                left, right = Wire("left"), Wire("right")
                sent = frames(2)
                there, back = through(left, right, sent), through(right, left, sent)
                result = self.stop(process)
                left.close()
                right.close()
                if head:
                    self.assertEqual({frame[:6] for frame in there}, {head})
                    self.assertEqual({frame[:6] for frame in back}, {head[:5] + b"\0"})
                    self.assertEqual(len({frame[6:12] for frame in there + back}), 2)
                skip = 12 if head else 0
                for came in there, back:
                    self.assertEqual(sorted(f[skip:] for f in came), sorted(f[skip:] for f in sent))
                self.assertEqual((result["sent"], len(result["queues"])), (2 * FRAMES, 4))
                accounted(self, result)

    def test_file(self):
        """Given a file, then what is in it is in the other one, and the end of the file is that of the run."""
        sent = frames(3)
        with tempfile.TemporaryDirectory() as folder:
            there, back = (os.path.join(folder, name) for name in ("in.pcap", "out.pcap"))
            write_pcap(there, sent)
            for mode, depth in ("io", "1024"), ("macswap", "4"):
                for devices in [f"pcap:{there}", f"pcap:>{back}"], [f"pcap:{there}>{back}"]:
                    with self.subTest(mode=mode, devices=len(devices)):
                        answer = verbena("fwd", mode, *[a for d in devices for a in ("--device", d)], "--tx-depth", depth, "--json", "-")
                        self.status(answer, DONE)
                        result = strict_json(answer.out)
                        self.assertEqual((result["received"], result["sent"], result["stopped"]), (FRAMES, FRAMES, False))
                        accounted(self, result)
                        came = read_pcap(back)
                        self.assertEqual(came, [f[6:12] + f[:6] + f[12:] for f in sent] if mode == "macswap" else sent)
            answer = verbena("echo", "--device", f"pcap:{there}>{back}", "--ip", "10.1.0.2/24", "--json", "-")
            self.status(answer, DONE)
            self.assertEqual(strict_json(answer.out)["received"], FRAMES)
            answer = verbena("fwd", "io", "--device", f"pcap:>{back}")
            self.status(answer, USAGE)
            self.sentence(answer, "pcap:>", "brings no frames")
            for command in ["fwd", "io"], ["pktgen"], ["echo", "--ip", "10.1.0.2/24"]:
                answer = verbena(*command, "--device", f"pcap:{there}")
                self.status(answer, USAGE)
                self.sentence(answer, there, "takes no frames")
            answer = verbena("pktgen", "--device", f"pcap:>{back}", "--count", "100", "--size", "60-900", "--json", "-")
            self.status(answer, DONE)
            self.assertEqual((strict_json(answer.out)["sent"], len(read_pcap(back))), (100, 100))

    def test_answers_to_a_file(self):
        """Given a router whose one device is a file that is only read, then what is for that one is dropped by name."""
        question = b"\xff" * 6 + b"\x02\0\0\0\0\x11" + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + b"\x02\0\0\0\0\x11" + \
            socket.inet_aton("10.1.0.9") + bytes(6) + socket.inet_aton("10.1.0.1")
        with tempfile.TemporaryDirectory() as folder:
            there, back = (os.path.join(folder, name) for name in ("in.pcap", "out.pcap"))
            write_pcap(there, [question])
            answer = verbena("fwd", "l3", "--device", f"pcap:{there}", "--device", f"pcap:>{back}", "--ip", "10.1.0.1/24", "--ip", "10.2.0.1/24",
                             "--json", "-")
            self.status(answer, DONE)
            drops = strict_json(answer.out)["drops"]
            self.assertGreater(drops["tx_refused"], 0, drops)
            self.assertEqual(drops["tx_full"], 0, drops)
            answer = verbena("pktgen", "--device", f"pcap:>{back}", "--device", f"pcap:{there}", "--count", "1")
            self.status(answer, USAGE)
            self.sentence(answer, "takes no frames")

    def test_one_file(self):
        """Given a file to read that is to be written, too, by whatever name, or one for two to write, then 2, and it is as it was."""
        with tempfile.TemporaryDirectory() as folder:
            there, link, new = (os.path.join(folder, name) for name in ("in.pcap", "link.pcap", "new.pcap"))
            write_pcap(there, frames(4))
            os.symlink(there, link)
            size = os.path.getsize(there)
            for args in (["fwd", "io", "--device", f"pcap:{there}", "--device", f"pcap:>{link}"], ["fwd", "io", "--device", f"pcap:{there}>{link}"],
                         ["fwd", "io", "--device", f"pcap:{there}>{new}", "--pcap", link + ",udp"],
                         ["fwd", "io", "--device", f"pcap:{there}>{new}", "--pcap", new], ["echo", "--device", f"pcap:{there}>{new}", "--json", link],
                         ["pktgen", "--device", "tap:none", "--pcap-replay", there, "--pcap", link],
                         ["pktgen", "--device", "tap:none", "--pcap-replay", there, "--json", there]):
                answer = verbena(*args, *(["--ip", "10.1.0.2/24"] if args[0] == "echo" else []))
                self.status(answer, USAGE)
                self.sentence(answer, "option", "write")
                self.assertEqual((os.path.getsize(there), os.path.exists(new)), (size, False))

    def test_capture(self):
        """Given a filter, then the file has what it lets through, both ways, and counts that add up."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.pcapng")
            process = started("fwd", "macswap", "--device", "tap:seen", "--json", "-", "--pcap", path + ",udp port 9")
            wire = Wire("seen")
            sent = [udp4(b"%08d" % i, port=9 if i % 4 == 0 else 7) for i in range(FRAMES)]
            through(wire, wire, sent)
            result = self.stop(process)
            wire.close()
            packets, statistics = captured(path)
        matching = [frame for frame in sent if frame[36:38] == b"\0\x09"]
        self.assertEqual([p[2] for p in packets if p[1] == 1], matching)
        self.assertEqual([p[2] for p in packets if p[1] == 2], [f[6:12] + f[:6] + f[12:] for f in matching])
        self.assertEqual(statistics, [(2 * FRAMES, 0, 2 * len(matching))])
        self.assertEqual([result["capture"][key] for key in ("written", "filtered", "dropped")],
                         [2 * len(matching), 2 * (FRAMES - len(matching)), 0])
        accounted(self, result)

    def test_capture_full(self):
        """Given a file that has no room, then the frames go on, and the end says so."""
        process = started("fwd", "macswap", "--device", "tap:full", "--json", "-", "--pcap", "/dev/full")
        wire = Wire("full")
        came = through(wire, wire, [udp4(b"%08d" % i) for i in range(20)])
        wire.close()
        process.send_signal(signal.SIGTERM)
        status, out, err = ended(process)
        self.assertEqual((status, len(came)), (CANNOT, 20), err)
        self.assertIn("/dev/full could not be written whole", err)
        result = strict_json(out)
        self.assertEqual(result["sent"], 20)
        capture = result["capture"]
        self.assertEqual([capture[key] for key in ("written", "filtered", "dropped", "drops")], [0, 0, 40, {"too_fast": 0, "write_failed": 40}])

    def test_capture_slow(self):
        """Given a pipe that nobody empties, then the frames go on, what is not captured is counted, and the end does not wait."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            answer = verbena("fwd", "macswap", "--device", "tap:slow", "--pcap", path)
            self.status(answer, CANNOT)
            self.assertIn("nobody reads that pipe", answer.err)
            for args in ["--json", path], ["--device", f"pcap:>{path}"]:
                answer = verbena("fwd", "macswap", "--device", "tap:slow", *args)
                self.status(answer, CANNOT)
                self.assertIn("nobody reads", answer.err)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            process = started("fwd", "macswap", "--device", "tap:slow", "--json", "-", "--pcap", path)
            wire = Wire("slow")
            sent = [udp4(b"%04d" % i * 50) for i in range(3000)]
            came = through(wire, wire, sent)
            wire.close()
            process.send_signal(signal.SIGTERM)
            status, out, err = ended(process)
            os.close(reader)
        result = strict_json(out)
        self.assertEqual((status, len(came)), (CANNOT, 3000), err)
        self.assertIn("takes nothing", err)
        accounted(self, result)
        self.assertGreater(result["capture"]["dropped"], 1000)
        self.assertEqual(sum(result["capture"][key] for key in ("written", "filtered", "dropped")), 6000)

    def test_capture_off(self):
        """A loop that captures nothing has not an instruction for it: those that do, call for it, the others name it nowhere."""
        if not shutil.which("objdump"):
            self.skipTest("objdump is not installed")
        code = subprocess.run(["objdump", "--disassemble", "--no-show-raw-insn", "--section=.text", VERBENA], capture_output=True, text=True,
                              check=True).stdout
        loops = {name: body for name, body in re.findall(r"^[0-9a-f]+ <((?:io|mac|macswap)_[0-3])>:\n((?:.+\n)+)", code, re.M)}
        self.assertEqual(len(loops), 12, list(loops))
        self.assertEqual({name for name, body in loops.items() if "capture_burst" in body}, {name for name in loops if name[-1] in "13"})

    def test_stopped_early(self):
        """Given a signal as soon as it is listened for, whatever is not there yet, then what there is of a result is told."""
        for args, status in (["fwd", "io"], DONE), (["echo", "--ip", "10.1.0.2/24"], DONE), (["pktgen"], STOPPED):
            process = subprocess.Popen([VERBENA, *args, "--device", "tap:early", "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, env=environment())
            listens = False
            while not listens and process.poll() is None:
                with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
                    listens = any(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1 for line in file if line.startswith("SigCgt"))
            process.send_signal(signal.SIGTERM)
            found, out, err = ended(process)
            self.assertEqual((found, strict_json(out)["stopped"]), (status, True), err)

    def test_example(self):
        """l2fwd.c: frames go across, their MACs set."""
        process = subprocess.Popen([os.environ["L2FWD"], "tap:la", "tap:lb"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            until = time.monotonic() + 20 * SLOWER
            while not {"la", "lb"} <= {name for _, name in socket.if_nameindex()} and time.monotonic() < until:
                time.sleep(0.01)
            left, right = Wire("la"), Wire("lb")
            sent, came = udp4(b"over"), []
            while not came and time.monotonic() < until:  # its queues may not be there yet
                left.send(sent)
                came = right.receive(1, 0.2)
        finally:
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60 * SLOWER)
        left.close()
        right.close()
        self.assertEqual([f[:6] + f[12:] for f in came[:1]], [bytes.fromhex("020000000000") + sent[12:]])
        self.assertRegex(out, "received [1-9][0-9]*, dropped 0\n.*")
        self.assertEqual(process.returncode, DONE)

    def test_gone(self):
        """Given a name that the kernel does not take, or no rights to a port, then one sentence and 3."""
        answer = verbena("fwd", "io", "--device", "tap:a-name-that-is-too-long")
        self.assertNotEqual(answer.status, DONE, answer)
        self.sentence(answer, "tap:a-name-that-is-too-long")
        answer = verbena("fwd", "io", "--device", "shm")
        self.status(answer, CANNOT)
        self.sentence(answer, "shm", "raw Ethernet")


own_network()
main()
