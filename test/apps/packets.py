"""packets.py - packet commands in tests: a network namespace of the test's own, frames by packet sockets, captures"""
import atexit
import ctypes
import errno
import os
import socket
import struct
import subprocess
import sys
import time

from command import SLOWER, read_until, run, start, strict_json, verbena

CLONE_NEWNET = 0x40000000
PACKET_OUTGOING = 4
KEYS = ("tool version mode devices seconds received sent drops msg_rate gbit_rate cycles_per_packet queues workers accounted").split()


def own_network(with_ipv6=False):
    """This process and its children get a network of their own, which is gone with them. Ends the test where it cannot be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK) or libc.unshare(CLONE_NEWNET):
        print(f"SKIP {os.path.basename(sys.argv[0])[:-3]}: needs root, to make a network namespace, and /dev/net/tun")
        sys.exit(77)
    # The kernel is to send nothing by itself.
    if not with_ipv6:
        subprocess.run(["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"], check=False, capture_output=True)
    ip("link", "set", "lo", "up")


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Wire:
    """An interface's end that is the kernel's: what is sent here, the command receives."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind((interface, 0))
        self.socket.settimeout(0.2)

    def send(self, frame):
        try:
            self.socket.send(frame)
        except OSError as error:
            if error.errno != errno.ENETDOWN:  # not up yet: a frame on a cable that is not plugged in
                raise

    def receive(self, wanted, seconds=20):
        """As many frames as are wanted that came in, or fewer when the time is over."""
        got, until = [], time.monotonic() + seconds * SLOWER
        while len(got) < wanted and time.monotonic() < until:
            try:
                frame, address = self.socket.recvfrom(65536)
            except TimeoutError:
                continue
            except OSError as error:
                if error.errno != errno.ENETDOWN:
                    raise
                continue
            if address[2] != PACKET_OUTGOING:
                got.append(frame)
        return got

    def close(self):
        self.socket.close()


def started(*args):
    """The command, once its queues are there."""
    process = start(*args)
    atexit.register(process.kill)  # where a test fails; of one that has ended it is nothing
    try:
        read_until(process.stderr, ": ready")
    except AssertionError:
        process.kill()
        raise
    return process


def ended(process):
    """(status, standard output, standard error) of one that ends."""
    out, err = process.communicate(timeout=60 * SLOWER)
    return process.returncode, out, err


def accounted(test, result):
    """Every frame that came is in what was sent, or in a drop by name."""
    test.assertEqual(result["received"], result["sent"] + sum(result["drops"].values()), result)
    test.assertTrue(result["accounted"])


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def udp4(payload, source_port=1000, port=7, source="10.1.0.1", to="10.1.0.2", macs=b"\x02\0\0\0\0\x22" b"\x02\0\0\0\0\x11"):
    """A frame with a UDP datagram that has no checksum of its own."""
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(to))
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return macs + b"\x08\0" + head + struct.pack("!HHHH", source_port, port, 8 + len(payload), 0) + payload


def blocks(path):
    """(type, body) of each of a pcapng file's blocks; lengths and their repetition are checked."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length % 4 or struct.unpack_from("<I", data, at + length - 4)[0] != length:
            raise AssertionError(f"{path}: a block at {at} has the length {length}")
        found.append((kind, data[at + 8:at + length - 4]))
        at += length
    return found


def options(body):
    found, at = {}, 0
    while at + 4 <= len(body):
        code, length = struct.unpack_from("<HH", body, at)
        if not code:
            break
        found[code] = body[at + 4:at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    return found


def captured(path):
    """(interface, direction, frame) of each packet; and of each interface's statistics (received, dropped, accepted)."""
    packets, statistics = [], []
    for kind, body in blocks(path):
        if kind == 6:
            interface, _, _, length, _ = struct.unpack_from("<IIIII", body)
            flags = options(body[20 + (length + 3) // 4 * 4:])[2]
            packets.append((interface, struct.unpack("<I", flags)[0] & 3, body[20:20 + length]))
        if kind == 5:
            found = options(body[12:])
            statistics.append(tuple(struct.unpack("<Q", found[code])[0] for code in (4, 5, 6)))
    return packets, statistics


def write_pcap(path, frames, gap_us=10):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            file.write(struct.pack("<IIII", 1000, number * gap_us, len(frame), len(frame)) + frame)


def read_pcap(path):
    """The frames of a file of this machine's byte order."""
    with open(path, "rb") as file:
        data = file.read()
    frames, at = [], 24
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        frames.append(data[at + 16:at + 16 + length])
        at += 16 + length
    return frames


__all__ = ["KEYS", "Wire", "accounted", "blocks", "captured", "checksum", "ended", "ip", "options", "own_network", "read_pcap", "run",
           "started", "strict_json", "udp4", "verbena", "write_pcap"]
