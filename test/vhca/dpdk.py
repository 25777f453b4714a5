#!/usr/bin/env python3
"""dpdk.py - Debian's dpdk-testpmd, as it is, in tests: a network namespace with a veth pair, frames, testpmd told commands

The mlx5 PMD makes its queues by verbs and by DevX, and its flow rules by verbs' specs and by mlx5dv's matchers.
"""
import ctypes
import functools
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
PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 8, 1 << 4

# How the PMD works, its argument, and whether DevX is there.
STRIDES = ",mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=1"  # what a device is asked for
MODES = (("verbs", "dv_flow_en=0", "0"), ("matchers", "dv_flow_en=1", "0"), ("devx", "dv_flow_en=1", "1"))


class Wrong(Exception):
    """What a case found, in one sentence."""


def skip(reason):
    print(f"SKIP vhca_{os.path.basename(sys.argv[0])[:-len('_test.py')]}: {reason}")
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


@functools.cache
def mac_of(name):
    text = run_command("ip", "-o", "link", "show", name)  # sysfs may be another namespace's
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


def tagged(frame, tci):
    return frame[:12] + struct.pack("!2H", 0x8100, tci) + frame[12:]


def is_udp(frame):
    at = 16 if frame[12:14] == b"\x81\0" else 12
    return frame[at:at + 2] == b"\x08\x00" and frame[at + 11] == 17


class Peer:
    """The far end of the pair, by a packet socket."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.bind((FAR, 0))
        self.mac, self.near = mac_of(FAR), mac_of(NEAR)

    def drain(self):
        while select.select([self.socket], [], [], 0)[0]:
            self.socket.recv(65536)

    def take(self):
        """The next frame, with its tag, which the kernel tells of beside it."""
        frame, beside, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(20))
        for level, kind, data in beside:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA) and len(data) >= 20:
                status, tci = struct.unpack_from("I", data)[0], struct.unpack_from("H", data, 16)[0]
                frame = tagged(frame, tci) if status & TP_STATUS_VLAN_VALID else frame
        return frame

    def receive(self, n):
        """So many frames of UDP; fewer only when patience ends."""
        frames, end = [], time.monotonic() + PATIENCE_S
        while len(frames) < n and time.monotonic() < end:
            if select.select([self.socket], [], [], 1)[0]:
                frame = self.take()
                if is_udp(frame):
                    frames.append(frame)
        return frames

    def frames(self, sizes, first=0, **what):
        return [udp_frame(self.near, self.mac, size, first + i, **what) for i, size in enumerate(sizes)]

    def exchange(self, frames, expected):
        """Sends all, a window at a time; what comes back must be what `expected` makes of them: of some, nothing."""
        for at in range(0, len(frames), WINDOW):
            window = frames[at:at + WINDOW]
            for frame in window:
                self.socket.send(frame)
            due = sorted(filter(None, map(expected, window)))
            back = self.receive(len(due))
            if sorted(back) != due:
                odd = next((frame for frame in back if frame not in due), b"")
                raise Wrong(f"{len(back)} of {len(due)} frames came back, one of which is {odd[:64].hex()} "
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
            print(self.said[-2500:])
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


# ---- sessions: one start of testpmd each ----

def begin(n_arguments):
    """The arguments, and a network of this process's own; ends the test where there cannot be any."""
    if len(sys.argv) != 1 + n_arguments:
        print(sys.modules["__main__"].__doc__, file=sys.stderr)
        sys.exit(2)
    if not shutil.which("dpdk-testpmd") or not shutil.which("ip"):
        skip("dpdk-testpmd or ip is not installed")
    if os.getuid():
        skip("needs root")
    try:
        own_network()
    except OSError as error:
        skip(str(error))
    return sys.argv[1:]


def run_session(library, run_case, mode, arguments, options, cases, eal=()):
    with Testpmd(library, mode, arguments, options, eal) as pmd:
        for name, case in cases:
            at = time.monotonic()
            result = run_case(case, pmd)
            print(f"ok {mode[0]}, {name}: {result} ({time.monotonic() - at:.1f} s)", flush=True)
    if "mprq_en" in options and "MPRQ is requested but cannot be enabled" in pmd.said:
        raise Wrong("the PMD receives into no strides")


def run_sessions(library, run_case, sessions):
    """Each of (mode, testpmd's arguments, the device's, cases, the EAL's if any); the exit status."""
    failed = 0
    for session in sessions:
        try:
            run_session(library, run_case, *session)
        except Wrong as wrong:
            print(f"FAILED {session[0][0]}{session[2]}: {wrong}", flush=True)
            failed += 1
    return 1 if failed else 0
