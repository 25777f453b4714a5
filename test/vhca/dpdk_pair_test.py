#!/usr/bin/env python3
"""dpdk_pair_test.py - dpdk-testpmd on one emulated device against verbena fwd, echo and pktgen on another

Usage: dpdk_pair_test.py LIBVERBENA-VHCA.SO VERBENA

Two processes, each with a device of its own, whose wires are the ends of a veth pair. Each frame is accounted for by both, and
compared byte by byte with what it must have become. What testpmd is to send by itself it reads from a capture, by its pcap
driver as its second port, which also writes down what comes back. All of it runs in a network namespace that lives as long
as this process. Exits with 77 where testpmd is not installed, or such a namespace cannot be made.
"""
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter

from dpdk import (FAR, MODES, NEAR, PATIENCE_S, STRIDES, Testpmd, Wrong, begin, checksum, mac_of, run_sessions, swapped,
                  udp_frame)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps"))
from packets import captured  # pylint: disable=wrong-import-position

VERBENA_IP = "10.66.0.8"  # of the second device; its MAC is made of it
VERBENA_MAC = b"\x02\0" + socket.inet_aton(VERBENA_IP)
SENT, RECEIVED = 2, 1  # directions in a capture
WINDOW = "64"


class Verbena:
    """A command of verbena's on the second device, which ends by itself or with the `with`."""

    def __init__(self, library, verbena, folder, *command, capture=True):
        self.capture = os.path.join(folder, f"{command[0]}.pcapng")
        arguments = [verbena, *command, "--device", "mlx5_0", "--json", "-", *(("--pcap", self.capture) if capture else ())]
        environment = dict(os.environ, LD_PRELOAD=library, VHCA_WIRE=f"packet:{FAR}", VHCA_ADDRESS=f"{VERBENA_IP}/24",
                           VHCA_STRICT="report")
        self.process = subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=Testpmd.end_with_parent)
        self.said, self.result = "", None

    def __enter__(self):
        for line in self.process.stderr:
            self.said += line
            if ": ready" in line:
                return self
        raise Wrong(f"verbena has ended: {self.said[-600:]}")

    def __exit__(self, kind, value, trace):
        if kind:
            self.process.kill()
        elif self.result is None:
            self.process.send_signal(signal.SIGTERM)
        if self.result is None:
            self.end(check=not kind)

    def end(self, check=True):
        """Its result; every frame is in it by its name."""
        try:
            out, said = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Wrong("verbena does not end") from None
        self.said += said
        if not check:
            return None
        if self.process.returncode or "vhca: rule" in self.said:
            raise Wrong(f"verbena ended with {self.process.returncode}: {self.said[-600:]} {out[:600]}")
        self.result = json.loads(out)
        capture = self.result["capture"]
        if not self.result["accounted"] or capture and capture["dropped"]:
            raise Wrong(f"verbena does not account for each frame: {out[:1200]}")
        return self.result

    def frames(self, direction):
        return [frame for _, which, frame in captured(self.capture)[0] if which == direction]


def same(found, due, what):
    """The same frames, in any order."""
    found, due = Counter(found), Counter(due)
    if found != due:
        missing, odd = list((due - found).elements()), list((found - due).elements())
        raise Wrong(f"{what}: {len(missing)} frames are missing, as {missing[0].hex() if missing else '-'}, and {len(odd)} were not "
                    f"due, as {odd[0].hex() if odd else '-'}")


def number_of(pmd, name, port=0):
    return pmd.number(f"show port stats {port}", name)


def equal(**counts):
    if len(set(counts.values())) != 1:
        raise Wrong(f"these are not equal: {counts}")


def device_of(process):
    """What the emulator says of a process's device."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(f"\0verbena-vhca/{process.pid}")
        asking.sendall(b"status\n")
        with asking.makefile() as answer:
            return json.load(answer)["devices"][0]


def dropped_by(interface):
    """Frames that the kernel has dropped on their way from the pair's other end, as it had no core to go on with them."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        return int(re.search(rf"{interface}:(.*)", file.read())[1].split()[3])


def no_room(process, interface=NEAR):
    """Frames that came while its engine had no core, until the kernel had no room for more."""
    return device_of(process)["wire_counters"].get("rx_socket_full", 0) + dropped_by(interface)


# ---- verbena pktgen sends, testpmd sends back ----

def generate(n, *options):
    return ("pktgen", "--count", str(n), "--dst-mac", mac_of(NEAR).hex(":"), *options)


def pktgen(second, n, *options):
    """n frames; its result, what it has sent, and what has come."""
    with Verbena(*second, *generate(n, *options)) as generator:
        result = generator.end()
    return result, generator.frames(SENT), generator.frames(RECEIVED)


BACK = ("--verify", "--window", WINDOW)  # each frame comes back


def to_peer(frame):
    """With the MACs that testpmd gives to what it forwards: of its port 0, to a peer of that number."""
    return b"\x02\0\0\0\0\0" + mac_of(NEAR) + frame[12:]


def five_swapped(frame):
    return swapped(frame)[:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36] + frame[38:]


def bounce(name, expected, n=1000, size="60-1514"):
    """Each frame comes back, as what that mode makes of it."""
    def case(pmd, second):
        pmd.tell(f"set fwd {name}", "clear port stats all", "start")
        result, sent, came = pktgen(second, n, *BACK, "--size", size)
        pmd.tell("stop")
        same(came, map(expected, sent), name)
        equal(sent=len(sent), count=n, returned=result["returned"], received=result["received"],
              testpmd_received=number_of(pmd, "RX-packets"), testpmd_sent=number_of(pmd, "TX-packets"))
        equal(bytes=sum(map(len, sent)), received=number_of(pmd, "RX-bytes"), sent=number_of(pmd, "TX-bytes"))
        return f"{n} frames"
    return case


def queue_packets(pmd):
    text = pmd.tell("show port xstats 0")
    return [int(re.search(rf"rx_q{queue}_packets: (\d+)", text)[1]) for queue in (0, 1)]


def rss(pmd, second):
    pmd.tell("set fwd macswap", "clear port stats all", "start")
    _, sent, came = pktgen(second, 1000, *BACK, "--src-ip", "198.18.0.1-198.18.0.64")
    pmd.tell("stop")
    same(came, map(swapped, sent), "two queues")
    packets = queue_packets(pmd)
    if sum(packets) != len(sent) or min(packets) < len(sent) / 10:
        raise Wrong(f"queues had {packets} of {len(sent)} frames")
    return f"{packets[0]} and {packets[1]} frames"


def expect_shown(second, pmd):
    """`verbena vhca status` shows queues, tables and these rules."""
    shown = subprocess.run([second[1], "vhca", "status"], stdout=subprocess.PIPE, text=True, check=True).stdout
    own = shown.partition(f"process {pmd.process.pid}:")[2]
    for line in ("wq 0x.* READY|wq 0x.* RTR", "rqt 0x", "flow normal, .*: drop", "flow normal, .*: receive by .*, tag 0x", "raw frames came "):
        if not re.search(line, own):
            raise Wrong(f"verbena vhca status has no \"{line}\": {own[:3000]}")


def flow_rules(pmd, second):
    """Of frames to three ports in turn the first is dropped, the second marked, the third goes to another queue."""
    counts = pmd.name != "matchers"  # without DevX the PMD has no counters for its matchers
    for port, actions in (7, "drop"), (8, f"mark id 99 / {'count / ' if counts else ''}queue index 0"), (9, "queue index 1"):
        text = pmd.tell(f"flow create 0 ingress pattern eth / ipv4 / udp dst is {port} / end actions {actions} / end")
        if "created" not in text:
            raise Wrong(f"no rule for \"{actions}\": {text[-300:]}")
    expect_shown(second, pmd)
    pmd.tell("set fwd macswap", "clear port stats all", "start")
    result, sent, came = pktgen(second, 300, "--dport", "7-9", "--flows", "3", "--rate", "20k")
    pmd.tell("stop")
    same(came, [swapped(frame) for frame in sent if frame[37] != 7], "rte_flow")
    equal(sent=100 * 3, result=result["sent"], and_dropped=sum(queue_packets(pmd)) + 100)
    if queue_packets(pmd) != [100, 100]:
        raise Wrong(f"queues had {queue_packets(pmd)} frames, where each was to have 100")
    if counts:
        equal(marked=100, counted=pmd.number("flow query 0 1 count", "hits"))
    pmd.tell("flow flush 0")
    return "100 dropped, 100 marked, 100 to another queue"


def rxonly(pmd, second, n=5000, stopped=False):
    """As fast as they go: each is received, or missed, which the queues count; or the kernel had no room for it."""
    missed = no_room(pmd.process)
    pmd.tell("set fwd rxonly", "clear port stats all", "clear port xstats all", "start")
    if stopped:
        pmd.process.send_signal(signal.SIGSTOP)
    with Verbena(*second, *generate(n), capture=False) as generator:
        sent = generator.end()["sent"]
    pmd.process.send_signal(signal.SIGCONT)
    found, end = {}, time.monotonic() + PATIENCE_S
    while sum(found.values()) != sent and time.monotonic() < end:
        found = {name: number_of(pmd, name) for name in ("RX-packets", "RX-missed", "RX-errors")}
        found["no room"] = no_room(pmd.process) - missed
    pmd.tell("stop")
    text = pmd.tell("show port xstats 0")
    equal(missed=found["RX-missed"], xstats=int(re.search(r"rx_out_of_buffer: (\d+)", text)[1]))
    if sum(found.values()) != sent or generator.result["received"] or stopped and not found["no room"]:
        raise Wrong(f"of {sent} frames {found} were received, and {generator.result['received']} came back")
    return str(found)


def rxonly_stopped(pmd, second):
    """The emulator's process is stopped meanwhile: what its socket had room for is received, the rest has a name."""
    return rxonly(pmd, second, 20_000, True)


def until_idle(process, sent, dropped):
    """Waits for a forwarder to get all that was sent to it and to send on what it got; what came, and what there was no room for.
    What its send queue had no room for does not go on: where it has stood still for long it has done all that it will do."""
    end, still, before = time.monotonic() + PATIENCE_S, time.monotonic(), None
    while time.monotonic() < end:
        device = device_of(process)
        raw, lost = device["raw"], device["wire_counters"].get("rx_socket_full", 0) + dropped_by(FAR) - dropped
        now = raw["came"] + lost, device["counters"]["port_xmit_packets"]
        if now[0] == sent and (now[1] == raw["delivered"] or time.monotonic() - still > 2):
            break
        if now != before:
            still, before = time.monotonic(), now
        time.sleep(0.01)
    return now[0], lost


def flood(mode):
    """testpmd sends without end; what it has sent has come to the other, and what that has sent back has come here."""
    def case(pmd, second):
        pmd.tell(f"set fwd {mode}", "clear port stats all")
        missed, dropped = no_room(pmd.process), dropped_by(FAR)
        with Verbena(*second, "fwd", "macswap", "--tx-depth", "8192", capture=False) as command:
            pmd.tell("start")
            pmd.wait_for("show port stats 0", "TX-packets", 20_000)
            pmd.tell("stop", "set fwd rxonly", "start")
            sent = number_of(pmd, "TX-packets")
            came, lost = until_idle(command.process, sent, dropped)
        equal(testpmd_sent=sent, came=came, fwd_received=command.result["received"] + lost)
        back, end = -1, time.monotonic() + PATIENCE_S
        while back != command.result["sent"] and time.monotonic() < end:
            back = number_of(pmd, "RX-packets") + number_of(pmd, "RX-missed") + no_room(pmd.process) - missed
        pmd.tell("stop")
        equal(fwd_sent=command.result["sent"], came_back=back)
        return f"{sent} frames there, {back} back"
    return case


def csum(pmd, second):
    """Frames with wrong checksums come back with right ones, which the device has made."""
    frames = [[udp_frame(mac_of(NEAR), PEER, 60 + i * 37 % 1455, i, wrong_sums=wrong) for i in range(MANY)] for wrong in (True, False)]
    path = os.path.join(second[2], "sums.pcap")
    write_pcap(path, frames[0])
    pmd.tell("port stop 0", "csum set ip hw 0", "csum set udp hw 0", "port start 0", "set fwd csum", "clear port stats all", "start")
    with Verbena(*second, "pktgen", "--pcap-replay", path, "--rate", "5k") as command:
        result = command.end()
    pmd.tell("stop")
    same(command.frames(RECEIVED), map(to_peer, frames[1]), "csum")
    equal(sent=result["sent"], due=MANY, received=number_of(pmd, "RX-packets"), sent_back=number_of(pmd, "TX-packets"))
    pmd.tell("port stop 0", "csum set ip sw 0", "csum set udp sw 0", "port start 0")
    return f"{MANY} frames"


def icmpecho(pmd, second):
    """Pings from a capture that verbena pktgen sends are answered."""
    pings = [ping(i, size, mac_of(NEAR), PEER) for i, size in enumerate([0, 1, 8, 56, 57, 500, 1400, 1472] * 10)]
    path = os.path.join(second[2], "pings.pcap")
    write_pcap(path, pings)
    pmd.tell("set fwd icmpecho", "clear port stats all", "start")
    with Verbena(*second, "pktgen", "--pcap-replay", path, "--rate", "2k") as command:
        result = command.end()
    pmd.tell("stop")
    answers = command.frames(RECEIVED)
    same(map(what_is_said, answers), map(what_is_said, pings), "icmpecho")
    equal(sent=result["sent"], pings=len(pings), received=number_of(pmd, "RX-packets"), answered=number_of(pmd, "TX-packets"))
    return f"{len(pings)} pings"


# ---- testpmd replays a capture: its second port is one ----

def write_pcap(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            file.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)


def read_pcap(path):
    with open(path, "rb") as file:
        data = file.read()
    frames, at = [], 24
    while at + 16 <= len(data):
        size, = struct.unpack_from("<I", data, at + 8)
        frames.append(data[at + 16:at + 16 + size])
        at += 16 + size
    return frames


class Replay:
    """The folder with what the second port reads and writes; starting that port begins anew."""

    def __init__(self, folder):
        self.source, self.sink = os.path.join(folder, "source.pcap"), os.path.join(folder, "sink.pcap")
        write_pcap(self.source, [b"\0" * 60])

    def eal(self):
        return ("--vdev", f"net_pcap0,rx_pcap={self.source},tx_pcap={self.sink}")

    def run(self, pmd, frames, n_back):
        """Sends all; what has come back once there are so many."""
        write_pcap(self.source, frames)
        pmd.tell("port stop 1", "port start 1", "clear port stats all", "set fwd io", "start")
        if pmd.wait_for("show port stats 1", "TX-packets", n_back) > n_back:
            pmd.tell("stop", "port stop 1")
            raise Wrong(f"more than {n_back} frames came back: " + " ".join(f.hex() for f in read_pcap(self.sink) if f[12:14] != b"\x08\0"))
        pmd.tell("stop", "port stop 1")
        return read_pcap(self.sink)


MANY = 400  # less than testpmd's rings have room for, and verbena's


def datagrams(n=MANY, **what):
    """To the second device, of sizes from 60 to 1514 bytes."""
    return [udp_frame(VERBENA_MAC, mac_of(NEAR), 60 + i * 37 % 1455, i, **what) for i in range(n)]


def expect_replayed(pmd, frames, command, back, is_data=None):
    """What testpmd has sent the command has got, and the other way round: of a host, whose stack also says other things and at
    other times, the data."""
    equal(frames=len(frames), testpmd_read=number_of(pmd, "RX-packets", 1), testpmd_sent=number_of(pmd, "TX-packets"),
          received=command.result["received"])
    if is_data:
        same(filter(is_data, back), [frame.ljust(60, b"\0") for frame in command.frames(SENT) if is_data(frame)], "what was sent back")
    else:
        equal(sent=command.result["sent"], came=number_of(pmd, "RX-packets"), back=len(back))


def forwarder(mode, expected, *options):
    def case(pmd, second, replay):
        frames = datagrams()
        with Verbena(*second, "fwd", mode, *options) as command:
            back = replay.run(pmd, frames, len(frames))
        same(back, map(expected, frames), f"fwd {mode}")
        same(command.frames(RECEIVED), frames, f"fwd {mode} has received")
        expect_replayed(pmd, frames, command, back)
        return f"{len(frames)} frames"
    return case


# A host also speaks when it is not asked, to groups. Of it testpmd is to have what is for itself alone, so that answers can be
# counted.
def only_own(pmd):
    pmd.tell("set promisc 0 off", "set allmulti 0 off")
    text = pmd.tell("flow create 0 ingress pattern eth dst spec 01:00:00:00:00:00 dst mask 01:00:00:00:00:00 / end actions drop / end")
    if "created" not in text:
        raise Wrong(f"no rule for groups: {text[-300:]}")


def all_again(pmd):
    pmd.tell("flow flush 0", "set allmulti 0 on", "set promisc 0 on")


PEER = b"\x02\xaa\0\0\0\x01"
HOST = "10.66.2.2"  # whom testpmd's frames are of, where the second device has 10.66.2.1


def arp(source_mac, source, dest, opcode=1, dest_mac=b"\0" * 6):
    frame = (dest_mac if opcode == 2 else b"\xff" * 6) + source_mac + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x0800, 6, 4, opcode)
    return frame + source_mac + socket.inet_aton(source) + dest_mac + socket.inet_aton(dest) + b"\0" * 18


def routed(frame):
    """With one hop less, and from the router to the host."""
    ip = frame[14:22] + bytes([frame[22] - 1]) + frame[23:24] + b"\0\0" + frame[26:34]
    return mac_of(NEAR) + VERBENA_MAC + frame[12:14] + ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + frame[34:]


def router(pmd, second, replay):
    """The router learns of the host by what it asks, and sends everything on to it."""
    frames = datagrams()
    sent = [arp(mac_of(NEAR), HOST, "10.66.2.1"), *frames]
    only_own(pmd)
    with Verbena(*second, "fwd", "l3", "--ip", "10.66.2.1/24", "--route", f"10.66.0.0/24 via {HOST}") as command:
        back = replay.run(pmd, sent, len(sent))
    all_again(pmd)
    same([frame for frame in back if frame[12:14] == b"\x08\0"], map(routed, frames), "fwd l3")
    same([frame for frame in back if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2"],
         [arp(VERBENA_MAC, "10.66.2.1", HOST, 2, mac_of(NEAR))], "ARP of fwd l3")
    expect_replayed(pmd, sent, command, back, lambda frame: frame[12:14] == b"\x08\0")
    return f"{len(frames)} frames"


# ---- a host that echoes ----

def ipv4(protocol, body, dest=VERBENA_MAC, source=None):
    head = struct.pack("!2B3H2BH", 0x45, 0, 20 + len(body), 7, 0, 64, protocol, 0)
    head += socket.inet_aton(HOST) + socket.inet_aton("10.66.2.1")
    frame = dest + (source or mac_of(NEAR)) + b"\x08\0" + head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body
    return frame.ljust(60, b"\0")


def summed(body, at, pseudo=b""):
    return body[:at] + struct.pack("!H", checksum(pseudo + body)) + body[at + 2:]


def ping(number, size, *macs):
    return ipv4(1, summed(struct.pack("!2B3H", 8, 0, 0, 4711, number) + random.Random(number).randbytes(size), 2), *macs)


IP6_HOST, IP6_ECHO = socket.inet_pton(socket.AF_INET6, "fd66::2"), socket.inet_pton(socket.AF_INET6, "fd66::1")


def icmp6(dest_mac, dest, kind, body, hops=64):
    message = struct.pack("!2BH", kind, 0, 0) + body
    pseudo = IP6_HOST + dest + struct.pack("!2I", len(message), 58)
    head = struct.pack("!IHBB", 6 << 28, len(message), 58, hops) + IP6_HOST + dest
    return dest_mac + mac_of(NEAR) + b"\x86\xdd" + head + summed(message, 2, pseudo)


def ping6(number, size):
    return icmp6(VERBENA_MAC, IP6_ECHO, 128, struct.pack("!2H", 4711, number) + random.Random(number).randbytes(size))


def solicitation():
    group = b"\xff\2" + b"\0" * 9 + b"\1\xff" + IP6_ECHO[13:]
    return icmp6(b"\x33\x33" + group[12:], group, 135, b"\0" * 4 + IP6_ECHO + b"\1\1" + mac_of(NEAR), hops=255)


def udp(number, size):
    body = struct.pack("!4H", 1024 + number, 7, 8 + size, 0) + random.Random(number).randbytes(size)
    pseudo = socket.inet_aton(HOST) + socket.inet_aton("10.66.2.1") + struct.pack("!2H", 17, len(body))
    return ipv4(17, summed(body, 6, pseudo))


def what_is_said(frame):
    """Of a ping, an answer to one, or a datagram: all that must be the same in both; its checksums are looked at."""
    if frame[12:14] == b"\x08\0":
        end = 14 + struct.unpack_from("!H", frame, 16)[0]
        ip, body, ends = frame[14:34], frame[34:end], sorted((frame[26:30], frame[30:34]))
        pseudo = frame[26:34] + struct.pack("!2H", frame[23], len(body)) if frame[23] == 17 else b""
        right = checksum(ip) == 0 and checksum(pseudo + body) == 0
        said = body[8:] if frame[23] == 17 else body[4:]
        ports = sorted((body[:2], body[2:4])) if frame[23] == 17 else []
        return (right, frame[23], *ends, *ports, said)
    body = frame[54:]
    right = checksum(frame[22:54] + struct.pack("!2I", len(body), frame[20]) + body) == 0
    return (right, frame[20], *sorted((frame[22:38], frame[38:54])), body[4:])


def is_echo(frame):
    kind = frame[12:14]
    return kind == b"\x08\0" or (kind == b"\x86\xdd" and frame[54] in (128, 129))


def echo(pmd, second, replay):
    """Pings of both versions and datagrams are answered, each with all that was in it."""
    asked = [make(i, size) for make in (ping, ping6, udp) for i, size in enumerate([0, 1, 8, 56, 57, 500, 1400, 1450] * 10)]
    sent = [arp(mac_of(NEAR), HOST, "10.66.2.1"), solicitation(), *asked]
    only_own(pmd)
    with Verbena(*second, "echo", "--ip", "10.66.2.1/24", "--ip", "fd66::1/64") as command:
        back = replay.run(pmd, sent, len(sent))
    all_again(pmd)
    answers = [frame for frame in back if is_echo(frame)]
    same(map(what_is_said, answers), map(what_is_said, asked), "echo")
    if {frame[:12] for frame in answers} != {mac_of(NEAR) + VERBENA_MAC}:
        raise Wrong("answers have other MACs than those of who asked and who was asked")
    expect_replayed(pmd, sent, command, back, is_echo)
    return f"{len(asked)} pings and datagrams"


REPLAYS = [("fwd io", forwarder("io", lambda frame: frame)), ("fwd macswap", forwarder("macswap", swapped)),
           ("fwd mac", forwarder("mac", lambda frame: PEER + VERBENA_MAC + frame[12:], "--eth-peer", PEER.hex(":"))),
           ("fwd l3", router), ("echo", echo)]


def main():
    library, verbena = begin(2)
    with tempfile.TemporaryDirectory() as folder:
        second, replay = (library, verbena, folder), Replay(folder)

        def run_case(case, pmd):
            return case(pmd, second, replay) if case in dict(REPLAYS).values() else case(pmd, second)

        return run_sessions(library, run_case, sessions(replay))


OWN = [("two queues", rss), ("rte_flow", flow_rules), ("rxonly", rxonly), ("rxonly, stopped", rxonly_stopped), ("txonly", flood("txonly")), ("flowgen", flood("flowgen")),
       ("icmpecho", icmpecho)]
ALL = [("pktgen, io", bounce("io", lambda frame: frame)), ("pktgen, mac", bounce("mac", to_peer)),
           ("pktgen, macswap", bounce("macswap", swapped)), ("pktgen, 5tswap", bounce("5tswap", five_swapped)),
           ("pktgen, csum", csum)]
RINGS = ("--rxd=1024", "--txd=1024")


def sessions(replay):
    for mode in MODES:
        yield mode, (*RINGS, "--rxq=2", "--txq=2"), "", OWN[:2] if mode is MODES[1] else OWN + ALL
    for mode in MODES[0], MODES[2]:
        yield mode, (*RINGS, "--no-flush-rx"), "", REPLAYS, replay.eal()
        yield mode, RINGS, STRIDES, [("strides and compressed CQEs", bounce("macswap", swapped, 2000)), ("strides, rxonly", rxonly)]
        yield mode, ("--max-pkt-len=9018", "--mbuf-size=10240"), "", [("jumbo", bounce("macswap", swapped, 300, "60-9014"))]


if __name__ == "__main__":
    sys.exit(main())
