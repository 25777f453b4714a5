#!/usr/bin/env python3
"""dpdk_test.py - Debian's dpdk-testpmd, as it is, on the emulated device, against Linux over a veth pair

Usage: dpdk_test.py LIBVERBENA-VHCA.SO

The mlx5 PMD makes its queues by verbs and by DevX, and its flow rules by verbs' specs and by mlx5dv's matchers. On the
other end frames are sent and received by a packet socket, and pings by Linux itself. Each frame is accounted for and
compared byte by byte. All of it runs in a network namespace that lives as long as this process. Exits with 77 where
testpmd is not installed, or such a namespace cannot be made.
"""
import ctypes
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

SKIPPED = 77
PATIENCE_S = 60
NEAR, FAR = "vbn-dpdk0", "vbn-dpdk1"  # the device's end of the pair, and Linux's
LINUX, TESTPMD = "10.66.0.1", "10.66.0.2"
PROMPT = "testpmd> "
WINDOW = 64  # frames under way: less than a receive queue has WQEs
BURST = 600  # more than that, and less than what sockets have room for

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SOL_PACKET, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 23, 33

# How the PMD works, its argument, and whether DevX is there.
MODES = (("verbs", "dv_flow_en=0", "0"), ("matchers", "dv_flow_en=1", "0"), ("devx", "dv_flow_en=1", "1"))


class Wrong(Exception):
    """What a case found, in one sentence."""


def skip(reason):
    print(f"SKIP vhca_dpdk: {reason}")
    sys.exit(SKIPPED)


def run_command(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise OSError(f"\"{' '.join(command)}\" ended with {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def own_network():
    if LIBC.unshare(CLONE_NEWNET):
        raise OSError(f"a network namespace cannot be made here: {os.strerror(ctypes.get_errno())}")
    run_command("ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR)
    for name in NEAR, FAR:
        with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w", encoding="ascii") as file:
            file.write("1")  # else Linux sends frames of its own
        run_command("ip", "link", "set", name, "mtu", "9000", "up")
    run_command("ip", "addr", "add", f"{LINUX}/24", "dev", FAR)


def mac_of(name):
    with open("/proc/net/dev", encoding="ascii"):  # the namespace's own, where sysfs may be another's
        text = run_command("ip", "-o", "link", "show", name)
    return bytes.fromhex(re.search(r"link/ether ([0-9a-f:]+)", text)[1].replace(":", ""))


# ---- frames ----

def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def udp_frame(dest, source, size, number, port=4000, wrong_sums=False):
    """`size` bytes from the MAC on, with its number in the payload."""
    payload = struct.pack("!I", number) + random.Random(number).randbytes(size - 14 - 20 - 8 - 4)
    addresses = socket.inet_aton(f"10.66.1.{number % 250 + 1}") + socket.inet_aton(TESTPMD)
    length = 8 + len(payload)
    udp = struct.pack("!4H", 1024 + number % 5000, port, length, 0) + payload
    udp_sum = checksum(addresses + struct.pack("!2H", 17, length) + udp) or 0xffff
    udp = udp[:6] + struct.pack("!H", udp_sum ^ (0x5555 if wrong_sums else 0)) + udp[8:]
    ip = struct.pack("!2B3H2BH", 0x45, 0, 20 + length, number & 0xffff, 0x4000, 64, 17, 0) + addresses
    ip = ip[:10] + struct.pack("!H", checksum(ip) ^ (0x5555 if wrong_sums else 0)) + ip[12:]
    return dest + source + b"\x08\x00" + ip + udp


def swapped(frame):
    return frame[6:12] + frame[:6] + frame[12:]


class Peer:
    """The far end of the pair, by a packet socket."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.bind((FAR, 0))
        self.mac, self.near = mac_of(FAR), mac_of(NEAR)

    def drain(self):
        while select.select([self.socket], [], [], 0)[0]:
            self.socket.recv(65536)

    def receive(self, n):
        """So many frames of UDP; fewer only when patience ends."""
        frames, end = [], time.monotonic() + PATIENCE_S
        while len(frames) < n and time.monotonic() < end:
            if select.select([self.socket], [], [], 1)[0]:
                frame = self.socket.recv(65536)
                if frame[12:14] == b"\x08\x00" and frame[23] == 17:
                    frames.append(frame)
        return frames

    def frames(self, sizes, first=0, **what):
        return [udp_frame(self.near, self.mac, size, first + i, **what) for i, size in enumerate(sizes)]

    def exchange(self, frames, expected):
        """Sends all, a window at a time; what comes back must be what `expected` makes of them."""
        for at in range(0, len(frames), WINDOW):
            window = frames[at:at + WINDOW]
            for frame in window:
                self.socket.send(frame)
            back = self.receive(len(window))
            due = sorted(expected(frame) for frame in window)
            if sorted(back) != due:
                odd = next((frame for frame in back if frame not in due), b"")
                raise Wrong(f"{len(back)} of {len(window)} frames came back, one of which is {odd[:64].hex()} "
                            f"where {due[0][:64].hex()} was due")
        return len(frames)


# ---- testpmd ----

class Testpmd:
    """Started with options, told commands, and ended with the `with`."""

    def __init__(self, library, mode, arguments=(), options="", eal=()):
        name, device, devx = mode
        self.name, self.said = name, ""
        cores = sorted(os.sched_getaffinity(0))
        mask = ",".join(str(core) for core in cores)
        environment = dict(os.environ, LD_PRELOAD=library, VHCA_WIRE=f"packet:{NEAR}", VHCA_ADDRESS="10.66.0.9/24",
                           VHCA_DEVX=devx, VHCA_STRICT="report")
        command = ["dpdk-testpmd", "--no-huge", "-m", "320", "--no-telemetry", "--file-prefix", f"vbn{os.getpid()}",
                   "--lcores", f"0@({mask}),1@({mask})", "-a", f"00fe:01:00.0,{device}{options}", *eal,
                   "--", "-i", "--no-numa", "--total-num-mbufs=8192", *arguments]
        self.screen, its_screen = os.openpty()  # what goes to a terminal is written line by line
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=its_screen,
                                        stderr=its_screen, preexec_fn=self.end_with_parent)
        os.close(its_screen)

    @staticmethod
    def end_with_parent():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def __enter__(self):
        self.read(PROMPT)
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            self.process.kill()
        else:
            self.process.stdin.write(b"quit\n")
            self.process.stdin.flush()
            self.read("Bye...")
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Wrong("testpmd does not end") from None
        finally:
            os.close(self.screen)
        if kind:
            print(self.said[-4000:])
        elif self.process.returncode:
            raise Wrong(f"testpmd ended with {self.process.returncode}: {self.said[-300:]}")
        if "vhca: rule" in self.said:
            raise Wrong("a rule of the device's was broken: " + self.said[self.said.index("vhca: rule"):][:300])

    def read(self, until, after=""):
        """What it says up to there, behind the other."""
        text, end = "", time.monotonic() + PATIENCE_S
        while until not in text.partition(after)[2] if after else until not in text:
            if not select.select([self.screen], [], [], max(end - time.monotonic(), 0))[0]:
                raise Wrong(f"testpmd did not say \"{until}\" but: {text[-600:]}")
            try:
                piece = os.read(self.screen, 65536).decode(errors="replace")
            except OSError:  # nobody writes to it any more
                raise Wrong(f"testpmd has ended: {text[-1500:]}") from None
            text += piece
            self.said += piece
        return text

    def tell(self, *commands):
        """Each command in turn; what the last one says."""
        text = ""
        for command in commands:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
            text = self.read(PROMPT, after=command)
        return text

    def number(self, command, name):
        text = self.tell(command)
        found = re.search(rf"{name}:\s*(\d+)", text)
        if not found:
            raise Wrong(f"{command} says nothing of {name}: {text[-400:]}")
        return int(found[1])

    def wait_for(self, command, name, value):
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self.number(command, name)
            if found >= value or time.monotonic() > end:
                return found
            time.sleep(0.02)


SIZES = [60, 61, 64, 65, 127, 128, 200, 256, 511, 512, 1000, 1280, 1499, 1500, 1513, 1514]


def sizes(n):
    return [SIZES[i % len(SIZES)] for i in range(n)]


# ---- cases: each starts from stopped forwarding, and leaves it so ----

def forward(name, expected, n=800):
    def case(pmd, peer):
        pmd.tell(f"set fwd {name}", "start")
        done = peer.exchange(peer.frames(sizes(n)), expected)
        pmd.tell("stop")
        return f"{done} frames"
    return case


def rxonly(pmd, peer):
    """All that is sent is received, or missed: what no receive WQE was there for, which the queues count."""
    pmd.tell("set fwd rxonly", "clear port stats all", "start")
    sent, end = 0, time.monotonic() + PATIENCE_S
    frames = peer.frames(sizes(3000))
    while sent < len(frames):
        for frame in frames[sent:sent + BURST]:
            peer.socket.send(frame)
        sent += len(frames[sent:sent + BURST])
        found = [0]
        while sum(found) < sent and time.monotonic() < end:
            text = pmd.tell("show port stats 0")
            found = [int(re.search(rf"{name}:\s*(\d+)", text)[1]) for name in ("RX-packets", "RX-missed", "RX-errors")]
        if sum(found) != sent:
            raise Wrong(f"of {sent} frames {found[0]} were received, {found[1]} missed and {found[2]} errors")
    pmd.tell("stop")
    return f"{found[0]} received, {found[1]} missed"


def far_packets():
    text = run_command("ip", "-s", "-o", "link", "show", FAR)
    return int(re.search(r"RX:.*?\\\s*\d+\s+(\d+)", text)[1])


def txonly(pmd, peer):
    """More completions than a 16-bit index counts; what testpmd has sent is what has come to Linux."""
    before = far_packets()
    pmd.tell("set fwd txonly", "set txpkts 64", "clear port stats all", "start")
    pmd.wait_for("show port stats 0", "TX-packets", 150_000)
    pmd.tell("stop")
    sent = pmd.number("show port stats 0", "TX-packets")
    end = time.monotonic() + PATIENCE_S
    while far_packets() - before < sent and time.monotonic() < end:
        time.sleep(0.02)
    came = far_packets() - before
    peer.drain()
    if came != sent or sent < 150_000:
        raise Wrong(f"testpmd sent {sent} frames, and {came} came")
    return f"{sent} frames"


def icmpecho(pmd, peer):
    """Linux asks by ARP, and pings; its own stack looks at checksums."""
    pmd.tell("set fwd icmpecho", "start")
    answered = 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as ping:
        for number, size in enumerate([0, 8, 56, 57, 500, 1400, 1472] * 3):
            body = random.Random(number).randbytes(size)
            message = struct.pack("!2B3H", 8, 0, 0, 4711, number) + body
            message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
            ping.sendto(message, (TESTPMD, 0))
            while select.select([ping], [], [], PATIENCE_S)[0]:
                packet = ping.recv(65536)[20:]
                if packet[0] == 0 and packet[4:] == message[4:]:
                    answered += 1
                    break
            else:
                raise Wrong(f"ping {number} of {size} bytes was not answered")
    pmd.tell("stop")
    peer.drain()
    return f"{answered} pings"


def csum(pmd, peer):
    """Frames with wrong checksums come back with right ones, which the device has made."""
    pmd.tell("port stop 0", "csum set ip hw 0", "csum set udp hw 0", "port start 0", "set fwd csum", "start")
    n, first = 200, 5000
    right = {frame[42:46]: frame[14:] for frame in peer.frames(sizes(n), first)}
    for frame in peer.frames(sizes(n), first, wrong_sums=True):
        peer.socket.send(frame)
        back = peer.receive(1)
        if not back or back[0][14:] != right[frame[42:46]]:
            raise Wrong(f"{back[0][:64].hex() if back else 'nothing'} came back for {frame[:64].hex()}")
    pmd.tell("stop", "port stop 0", "csum set ip sw 0", "csum set udp sw 0", "port start 0")
    return f"{n} frames"


def queue_packets(pmd):
    text = pmd.tell("show port xstats 0")
    return [int(re.search(rf"rx_q{queue}_packets: (\d+)", text)[1]) for queue in (0, 1)]


def rss(pmd, peer):
    """Flows go to both queues, and no frame is lost between them."""
    pmd.tell("set fwd macswap", "clear port stats all", "start")
    n = peer.exchange(peer.frames(sizes(800), 9000), swapped)
    pmd.tell("stop")
    packets = queue_packets(pmd)
    if sum(packets) != n or min(packets) < n / 10:
        raise Wrong(f"queues had {packets} of {n} frames")
    return f"{packets[0]} and {packets[1]} frames"


UDP = "flow create 0 ingress pattern eth / ipv4 / udp dst is {} / end actions {} / end"


def flow_rules(pmd, peer):
    """Dropped, sent to a queue, marked and counted, by the port that a frame goes to."""
    counts = pmd.name != "matchers"  # without DevX the PMD has no counters for its matchers
    actions = ("drop", "queue index 1", f"mark id 4660 / {'count / ' if counts else ''}queue index 0")
    for port, action in zip((7, 8, 9), actions):
        text = pmd.tell(UDP.format(port, action))
        if "created" not in text:
            raise Wrong(f"no rule for \"{action}\": {text[-300:]}")
    pmd.tell("set fwd macswap", "clear port stats all", "start")
    for frame in peer.frames(sizes(100), 20000, port=7):
        peer.socket.send(frame)
    there = peer.exchange(peer.frames(sizes(100), 21000, port=8), swapped)  # nothing of the dropped among them
    packets = queue_packets(pmd)
    if packets != [0, there]:
        raise Wrong(f"queues had {packets} where all of {there} were queue 1's")
    pmd.tell("stop", "set fwd rxonly", "set verbose 1", "start")
    marked = 50
    for frame in peer.frames(sizes(marked), 22000, port=9):  # of many at once it prints only some
        peer.socket.send(frame)
        said = pmd.read("\n", after="RTE_MBUF_F_RX_FDIR_ID")
        if "FDIR matched ID=0x1234" not in said:
            raise Wrong(f"a frame was not marked: {said[-400:]}")
    pmd.tell("stop", "set verbose 0")
    if counts and pmd.number("flow query 0 2 count", "hits") != 50:
        raise Wrong("the rule's counter is not 50")
    pmd.tell("flow flush 0")
    return f"100 dropped, {there} to a queue, {marked} marked" + (" and counted" if counts else "")


COMMON = (("io", forward("io", lambda frame: frame)), ("macswap", forward("macswap", swapped)), ("rxonly", rxonly),
          ("txonly", txonly), ("icmpecho", icmpecho), ("two queues", rss), ("rte_flow", flow_rules), ("csum", csum))


def jumbo(pmd, peer):
    pmd.tell("set fwd macswap", "start")
    n = peer.exchange(peer.frames([9014, 60, 8000, 4096, 1514, 9013] * 20, 30000), swapped)
    pmd.tell("stop")
    return f"{n} frames to 9014 bytes"


TWO = ("--rxq=2", "--txq=2", "--rxd=512", "--txd=512")
STRIDES = ",mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=1"


def sessions():
    """The options of each start of testpmd, and what is done with it."""
    for mode in MODES:
        yield mode, TWO, "", COMMON
    for mode in MODES[0], MODES[2]:
        yield mode, ("--rxd=512",), STRIDES, (("strides and compressed CQEs", forward("macswap", swapped, 2000)),
                                              ("strides, rxonly", rxonly))
        yield mode, ("--max-pkt-len=9018", "--mbuf-size=10240"), "", (("jumbo", jumbo),)


def run_session(library, peer, mode, arguments, options, cases):
    failed = 0
    with Testpmd(library, mode, arguments, options) as pmd:
        for name, case in cases:
            peer.drain()
            result = case(pmd, peer)
            print(f"ok {mode[0]}, {name}: {result}", flush=True)
    if options and "MPRQ is requested but cannot be enabled" in pmd.said:
        raise Wrong("the PMD receives into no strides")
    return failed


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("dpdk-testpmd") or not shutil.which("ip"):
        skip("dpdk-testpmd or ip is not installed")
    if os.getuid():
        skip("needs root")
    try:
        own_network()
    except OSError as error:
        skip(str(error))
    peer, failed = Peer(), 0
    for session in sessions():
        try:
            run_session(sys.argv[1], peer, *session)
        except Wrong as wrong:
            print(f"FAILED {session[0][0]}{session[2]}: {wrong}", flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
