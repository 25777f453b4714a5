#!/usr/bin/env python3
"""echo_test.py - verbena echo and fwd l3 against Linux at the other end of a TAP device: ping, UDP, fragments, routing"""
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

from command import CANNOT, DONE, SLOWER, VERBENA, CommandTest, main
from packets import Wire, captured, checksum, ended, ip, own_network, started, strict_json, udp4, verbena

SIZES = 1, 100, 1472, 1473, 5000, 40000


def device(name, *addresses):
    ip("tuntap", "add", "dev", name, "mode", "tap", "multi_queue")
    ip("link", "set", name, "up")
    for address in addresses:
        ip("addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))


def ask(family, address, data, port=7):
    """What comes back of a datagram; None: nothing, for a second."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2 * SLOWER)
        sock.connect((address, port))
        try:
            sock.send(data)
            return sock.recv(70000)
        except TimeoutError:
            return None


def asked(family, address, data):
    """The same, tried again for as long as a test may take: a datagram may be lost."""
    until = time.monotonic() + 20 * SLOWER
    while (answer := ask(family, address, data)) is None and time.monotonic() < until:
        pass
    return answer


def ping(family, address, size):
    """An echo request, and whether its answer is the same."""
    kinds = {socket.AF_INET: (socket.IPPROTO_ICMP, 8, 0, 20), socket.AF_INET6: (socket.IPPROTO_ICMPV6, 128, 129, 0)}
    protocol, request, reply, skip = kinds[family]
    body = random.randbytes(size)
    packet = struct.pack("!BBHHH", request, 0, 0, 7, size & 0xffff) + body
    if family == socket.AF_INET:
        packet = packet[:2] + struct.pack("!H", checksum(packet)) + packet[4:]
    until = time.monotonic() + 20 * SLOWER
    with socket.socket(family, socket.SOCK_RAW, protocol) as sock:
        sock.settimeout(2 * SLOWER)
        while time.monotonic() < until:
            sock.sendto(packet, (address, 0))
            try:
                while True:
                    answer = sock.recv(70000)[skip:]
                    if answer[0] == reply and answer[4:] == packet[4:]:
                        return True
            except TimeoutError:
                continue
    return False


def stop(test, process):
    process.send_signal(signal.SIGTERM)
    status, out, err = ended(process)
    test.assertEqual(status, DONE, err)
    result = strict_json(out)
    test.assertTrue(result["accounted"], result)
    # Every frame that came has its fate or is dropped by name.
    test.assertEqual(result["received"], sum(result["fates"].values()) + sum(
        n for name, n in result["drops"].items() if not name.startswith("tx_")), result)
    return result


class Echo(CommandTest):
    def test_linux(self):
        """Given addresses of both versions, then Linux gets ping and UDP answered, in fragments too, and the capture is clean."""
        device("host", "10.4.0.1/24", "fd04::1/64")
        self.answers(["echo", "--device", "tap:host"])

    def test_emulated(self):
        """The same on the emulated ConnectX, whose wire is a TAP device."""
        ip("tuntap", "add", "dev", "nic", "mode", "tap")
        self.addCleanup(ip, "link", "del", "nic")
        ip("link", "set", "nic", "up")
        ip("addr", "add", "10.4.0.1/24", "dev", "nic")
        ip("addr", "add", "fd04::1/64", "dev", "nic", "nodad")
        self.answers(["vhca", "--wire", "tap:nic", "--", VERBENA, "echo", "--device", "mlx5_0"])

    def answers(self, command):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "echo.pcapng")
            process = started(*command, "--ip", "10.4.0.2/24", "--ip", "fd04::2/64", "--pcap", path, "--json", "-")
            for family, address in (socket.AF_INET, "10.4.0.2"), (socket.AF_INET6, "fd04::2"):
                for size in SIZES:
                    data = random.randbytes(size)
                    self.assertEqual(asked(family, address, data), data, (address, size))
                for size in 56, 3000, 65507 if family == socket.AF_INET else 60000:
                    self.assertTrue(ping(family, address, size), (address, size))
            with self.assertRaises(ConnectionRefusedError):
                ask(socket.AF_INET, "10.4.0.2", b"nobody", 9)
            result = stop(self, process)
            packets, statistics = captured(path)
            self.assertEqual(sum(s[0] for s in statistics), len(packets) + result["capture"]["dropped"])
            self.assertEqual(len([p for p in packets if p[1] == 2]), result["sent"])
            if shutil.which("tshark"):
                wrong = "_ws.malformed or ip.checksum.status == 0 or udp.checksum.status == 0 or icmp.checksum.status == 0 or icmpv6.checksum.status == 0"
                found = subprocess.run(["tshark", "-r", path, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-Y", wrong],
                                       capture_output=True, text=True, check=False)
                self.assertEqual((found.returncode, found.stdout), (0, ""), found.stderr)
        self.assertGreaterEqual(result["replied"], 2 * len(SIZES))
        self.assertEqual(result["fates"]["delivered"], result["replied"])
        self.assertGreaterEqual(result["drops"]["no_port"], 1)

    def test_queues(self):
        """Given several queues, then whichever a flow comes by, it is answered."""
        device("many", "10.5.0.1/24")
        process = started("echo", "--device", "tap:many", "--ip", "10.5.0.2/24", "--queues", "4", "--port", "4000", "--json", "-")
        for number in range(40):
            until = time.monotonic() + 20 * SLOWER
            while ask(socket.AF_INET, "10.5.0.2", b"%d" % number, 4000) != b"%d" % number:
                self.assertLess(time.monotonic(), until)
        result = stop(self, process)
        self.assertEqual(len(result["queues"]), 4)
        self.assertGreaterEqual(result["replied"], 40)


    def test_devices(self):
        """Given an interface whose MTU is above the stack's, then it is that, and said; one without a MAC is refused by its name."""
        device("big", "10.5.1.1/24")
        ip("link", "set", "big", "mtu", "20000")
        process = started("echo", "--device", "tap:big", "--ip", "10.5.1.2/24", "--json", "-")
        self.assertEqual(asked(socket.AF_INET, "10.5.1.2", b"small"), b"small")
        result = stop(self, process)
        self.assertEqual([result["effective"]["ip_mtu"][key] for key in ("requested", "effective")], ["20000", "9216"])
        answer = verbena("echo", "--device", "xdp:lo", "--ip", "10.5.2.1/24")
        self.status(answer, CANNOT)
        self.assertIn("port xdp:lo", answer.err)
        self.assertNotIn("if0", answer.err)

    def test_before_it_was_there(self):
        """What the kernel sent while there was no queue yet is not of the run."""
        lost = []
        while len(lost) < 5 and (not lost or lost[-1]):  # after the queue has gone some may be lost, too
            process = started("fwd", "macswap", "--device", f"tap:fresh{len(lost)}", "--json", "-")
            process.send_signal(signal.SIGTERM)
            result = strict_json(ended(process)[1])
            lost.append(result["drops"]["rx_dropped_by_kernel"])
            self.assertEqual(result["received"], sum(queue["received"] for queue in result["queues"]) + lost[-1])
        self.assertEqual(lost[-1], 0, lost)


class Router(CommandTest):
    MACS = bytes.fromhex("020000000a01"), bytes.fromhex("020000000b01")

    def arp(self, operation, sender_mac, sender, target_mac, target):
        return (b"\xff" * 6 if operation == 1 else target_mac) + sender_mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, operation) + \
            sender_mac + socket.inet_aton(sender) + (b"\0" * 6 if operation == 1 else target_mac) + socket.inet_aton(target)

    def await_frame(self, wire, wanted):
        until = time.monotonic() + 20 * SLOWER
        while time.monotonic() < until:
            for frame in wire.receive(1, 0.5):
                if wanted(frame):
                    return frame
        raise AssertionError("the frame has not come")

    def test_forwards(self):
        """Given two networks and a route, then a packet goes on with a hop less; one whose hops are used up is told of."""
        device("la")
        device("lb")
        left, right = Wire("la"), Wire("lb")
        process = started("fwd", "l3", "--device", "tap:la", "--device", "tap:lb", "--ip", "10.6.0.1/24", "--ip", "10.7.0.1/24", "--route",
                          "10.8.0.0/16 via 10.7.0.9", "--json", "-")
        left.send(self.arp(1, self.MACS[0], "10.6.0.9", b"", "10.6.0.1"))
        answer = self.await_frame(left, lambda f: f[12:14] == b"\x08\x06" and f[20:22] == b"\0\x02" and f[:6] == self.MACS[0])
        router = answer[6:12]
        sent = udp4(b"across", source="10.6.0.9", to="10.8.1.2", macs=router + self.MACS[0])
        left.send(sent)
        question = self.await_frame(right, lambda f: f[12:14] == b"\x08\x06" and f[38:42] == socket.inet_aton("10.7.0.9"))
        right.send(self.arp(2, self.MACS[1], "10.7.0.9", question[6:12], "10.7.0.1"))
        came = self.await_frame(right, lambda f: f[12:14] == b"\x08\0")
        self.assertEqual((came[:6], came[6:12], came[22]), (self.MACS[1], question[6:12], 63))
        self.assertEqual((checksum(came[14:34]), came[34:]), (0, sent[34:]))
        dying = bytearray(sent)
        dying[22] = 1
        dying[24:26] = b"\0\0"
        dying[24:26] = struct.pack("!H", checksum(bytes(dying[14:34])))
        left.send(bytes(dying))
        told = self.await_frame(left, lambda f: f[12:14] == b"\x08\0" and f[23] == 1)
        self.assertEqual((told[34], told[26:30]), (11, socket.inet_aton("10.6.0.1")))
        result = stop(self, process)
        left.close()
        right.close()
        self.assertEqual((result["fates"]["forwarded"], result["drops"]["ttl"]), (1, 1))


own_network(with_ipv6=True)
main()
