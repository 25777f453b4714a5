#!/usr/bin/env python3
"""linux_test.py - the stack against Linux over TAP devices: usage: linux_test.py NET_STACK_HOST

Each case has namespaces of its own. After each, every frame that the stack received, and every packet that it was to send, must
have a fate; and tshark must find nothing malformed and no wrong checksum in what it sent.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HOST = sys.argv[1]
SKIPPED = 77
NEEDED = ["ip", "ping", "arping", "nc", "traceroute", "tshark", "nft", "bridge"]
PATIENCE = 20
UDP = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.settimeout(0.5)
size, port = int(sys.argv[2]), int(sys.argv[3])
data = bytes(i * 7 & 255 for i in range(size))
for attempt in range(40):
    s.sendto(data, (sys.argv[1], port))
    try:
        got, source = s.recvfrom(70000)
    except (TimeoutError, ConnectionError):
        continue
    assert got == data and source[0] == (sys.argv[4] if len(sys.argv) > 4 else sys.argv[1]), (len(got), source)
    sys.exit(0)
sys.exit("no answer")
"""
ORDER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.settimeout(0.5)
s.bind((sys.argv[2], 0))
port = s.getsockname()[1]
for attempt in range(40):
    s.sendto((f"[{sys.argv[2]}]:{port}" if ":" in sys.argv[2] else f"{sys.argv[2]}:{port}").encode(), (sys.argv[1], 9))
    try:
        got = s.recv(2000)
    except TimeoutError:
        continue
    assert got == b"x" * 1000, got
    sys.exit(0)
sys.exit("nothing came")
"""


def run(*command, ns=None, check=True, text=None):
    where = ["ip", "netns", "exec", ns] if ns else []
    done = subprocess.run([*where, *command], capture_output=True, text=True, input=text, timeout=60, check=False)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)[:200]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what}: not within {PATIENCE} s")
        time.sleep(0.05)


class Net:
    """A namespace with the stack's process and the Linux that it talks to."""

    def __init__(self, name, options=(), mtu=1500, ports=1, sums=True):
        self.ns, self.far = f"vbn-{os.getpid()}-{name}", f"vbn-{os.getpid()}-{name}-far"
        self.capture = tempfile.NamedTemporaryFile(suffix=".pcapng")
        self.watch = self.host = None
        self.ports, self.mtu = ports, mtu
        addresses = ["10.9.0.2/24,fd09::2/64" if mtu >= 1280 else "10.9.0.2/24", "10.8.0.2/24,fd08::2/64"]
        devices = [argument for i in range(ports) for argument in (f"tap:nt{i}", addresses[i])]
        self.command = [HOST, *(["--sums"] if sums else []), "--mtu", str(mtu), *options, *devices]

    def __enter__(self):
        run("ip", "netns", "add", self.ns)
        run("ip", "netns", "add", self.far)
        self.host = subprocess.Popen(["ip", "netns", "exec", self.ns, *self.command], stdout=subprocess.PIPE, text=True)
        if self.host.stdout.readline() != "ready\n":
            sys.exit(f"{' '.join(self.command)} does not start")
        for i in range(self.ports):
            ns = self.far if i else self.ns
            if i:
                self.ip("link", "set", f"nt{i}", "netns", self.far)
            for command in (f"addr add 10.{9 - i}.0.1/24 dev nt{i}", f"addr add fd0{9 - i}::1/64 dev nt{i} nodad", f"link set nt{i} up", "link set lo up"):
                if self.mtu >= 1280 or "::" not in command:
                    run("ip", "-n", ns, *command.split())
        self.mac = json.loads(run("ip", "-j", "-n", self.ns, "link", "show", "nt0"))[0]["address"]
        self.watch = subprocess.Popen(["ip", "netns", "exec", self.ns, "tshark", "-q", "-i", "nt0", "-w", self.capture.name],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.watch.stderr:
            if "Capturing on" in line:
                break
        return self

    def ip(self, *command):
        return run("ip", "-n", self.ns, *command)

    def run(self, *command, **options):
        return run(*command, ns=self.ns, **options)

    def udp(self, to, size, source=None):
        self.run(sys.executable, "-c", UDP, to, str(size), "7", *([source] if source else []))

    def finish(self):
        """The stack's counters, at its end."""
        for process in self.host.pid, *self.children(self.host.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        out, _ = self.host.communicate(timeout=PATIENCE)
        self.host = None
        counters = json.loads(out.splitlines()[-1])
        if counters["received_missing"] or counters["sent_missing"]:
            sys.exit(f"frames without a fate: { {k: v for k, v in counters.items() if v} }")
        return counters

    @staticmethod
    def children(pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]

    def check_capture(self):
        time.sleep(0.3)
        self.watch.send_signal(signal.SIGINT)
        self.watch.wait(PATIENCE)
        self.watch = None
        sums = [option for protocol in ("ip", "udp") for option in ("-o", f"{protocol}.check_checksum:TRUE")]
        bad = "(_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0 || " \
              f"icmpv6.checksum.status == 0 || igmp.checksum.status == 0) && eth.src != {self.mac}"
        # What an ICMP error quotes is cut by rule.
        found = run("tshark", "-r", self.capture.name, *sums, "-Y", f"{bad} && !(icmp.type == 3 || icmp.type == 11 || icmpv6.type < 5)")
        if found.strip():
            sys.exit(f"tshark finds fault with what was sent:\n{found[:2000]}")
        seen = run("tshark", "-r", self.capture.name, "-Y", f"eth.src != {self.mac}")
        if not seen.strip():
            sys.exit("tshark has seen nothing that the stack sent")

    def __exit__(self, *failure):
        for process in self.watch, self.host:
            if process:
                for pid in self.children(process.pid):
                    os.kill(pid, signal.SIGTERM)
                process.terminate()
                process.wait(PATIENCE)
        for ns in self.ns, self.far:
            run("ip", "netns", "del", ns, check=False)


def ping(net, to, size, count=2):
    net.run("ping", "-q", "-c", str(count), "-i", "0.05", "-W", "5", "-s", str(size), to)


def case_ping():
    with Net("ping") as net:
        for size in (0, 1, 56, 1472, 1473, 2000, 9000, 40001, 65507):
            ping(net, "10.9.0.2", size)
            ping(net, "fd09::2", size)
        net.run("ping", "-q", "-f", "-c", "1000", "-s", "1000", "10.9.0.2")
        net.run("ping", "-q", "-f", "-c", "1000", "-s", "1000", "fd09::2")
        net.run("arping", "-c", "3", "-w", "10", "-I", "nt0", "10.9.0.2")
        net.check_capture()
        counters = net.finish()
    assert counters["echo_answered"] >= 2036, counters
    assert counters["reassembled"] >= 22, counters


def case_udp():
    with Net("udp") as net:
        for to in "10.9.0.2", "fd09::2":
            for size in (1, 100, 1472, 1473, 20000, 65507 if "." in to else 65487):
                net.udp(to, size)
            net.run(sys.executable, "-c", ORDER, to, "10.9.0.1" if "." in to else "fd09::1")
            assert net.run("nc", "-u", "-w", "1", to, "7", text="hello") == "hello"
        net.check_capture()
        counters = net.finish()
    assert counters["delivered"] > 12 and counters["udp_sent"] >= 14, counters


def case_offload():
    """UDP's checksums are the port's: Linux would drop what is wrong. (What is captured has none yet.)"""
    with Net("offload", sums=False) as net:
        for to in "10.9.0.2", "fd09::2":
            for size in (0, 1, 2, 17, 18, 19, 100, 1451, 1472, 1473, 20000):
                net.udp(to, size)
            net.run(sys.executable, "-c", ORDER, to, "10.9.0.1" if "." in to else "fd09::1")
        counters = net.finish()
    assert counters["udp_sent"] >= 24 and not counters["drop_l4_sum"], counters


def case_mtu():
    for mtu in 576, 1280, 4000, 9000:
        with Net(f"mtu{mtu}", mtu=mtu) as net:
            for size in (mtu - 29, mtu - 28, mtu - 27, 10000, 65507):
                ping(net, "10.9.0.2", size, 1)
            net.udp("10.9.0.2", 30000)
            if mtu >= 1280:
                ping(net, "fd09::2", 30000, 1)
                net.udp("fd09::2", 30000)
            net.check_capture()
            net.finish()


def case_router():
    with Net("router", ["--forward", "--route", "10.7.0.0/16 via 10.8.0.1 mtu 1000", "--route", "fd07::/16 via fd08::1 mtu 1300"], ports=2) as net:
        for ns, other in ((net.ns, 8), (net.far, 9)):
            run("ip", "-n", ns, "route", "add", f"10.{other}.0.0/24", "via", f"10.{17 - other}.0.2")
            run("ip", "-n", ns, "-6", "route", "add", f"fd0{other}::/64", "via", f"fd0{17 - other}::2")
        run("ip", "-n", net.far, "addr", "add", "10.7.0.1/16", "dev", "lo")
        run("ip", "-n", net.far, "-6", "addr", "add", "fd07::1/16", "dev", "lo")
        net.ip("route", "add", "10.7.0.0/16", "via", "10.9.0.2")
        net.ip("-6", "route", "add", "fd07::/16", "via", "fd09::2")
        for to in "10.8.0.1", "fd08::1":
            ping(net, to, 1000)
            hops = net.run("traceroute", "-n", "-q", "1", "-w", "5", "-m", "5", to).splitlines()[1:]
            assert len(hops) == 2 and hops[1].split()[1] == to, hops
            assert hops[0].split()[1] == ("10.9.0.2" if "." in to else "fd09::2"), hops
        # What may be cut is, as long as Linux does not know.
        net.run("ping", "-c", "2", "-i", "0.1", "-M", "dont", "-s", "1200", "10.7.0.1")
        # Too big: Linux is told, and remembers.
        assert "mtu = 1000" in net.run("ping", "-c", "1", "-M", "do", "-s", "1200", "10.7.0.1", check=False)
        wait_for("the path MTU", lambda: "mtu 1000" in net.ip("route", "get", "10.7.0.1"))
        net.run("ping", "-c", "1", "-s", "1400", "fd07::1", check=False)
        wait_for("the path MTU", lambda: "mtu 1300" in net.ip("-6", "route", "get", "fd07::1"))
        assert "unreachable" in net.run("ping", "-c", "1", "-w", "10", "10.8.0.77", check=False).lower()
        net.check_capture()
        counters = net.finish()
    assert counters["forwarded"] > 10 and counters["drop_ttl"] >= 2 and counters["drop_too_big"] >= 2, counters
    assert counters["fragmented"] >= 1, counters


def case_groups():
    with Net("groups", ["--group", "239.1.2.3", "--group", "ff05::123"]) as net:
        net.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "1", "mcast_querier", "1", "mcast_query_use_ifaddr", "0")
        net.ip("addr", "flush", "dev", "nt0")
        net.ip("link", "set", "nt0", "master", "br0")
        net.ip("addr", "add", "10.9.0.1/24", "dev", "br0")
        net.ip("link", "set", "br0", "up")
        seen = lambda: net.run("bridge", "mdb", "show", "dev", "br0")
        wait_for("the membership", lambda: "239.1.2.3" in seen() and "ff05::123" in seen())
        net.ip("route", "add", "239.0.0.0/8", "dev", "br0")
        net.udp("239.1.2.3", 100, "10.9.0.2")
        net.check_capture()
        counters = net.finish()
    assert counters["delivered"] >= 1 and counters["reports_sent"] >= 4, counters


def case_neighbours():
    with Net("neighbours") as net:
        net.udp("10.9.0.2", 10)
        for mac in "02:00:00:00:77:01", "02:00:00:00:77:02":
            net.ip("link", "set", "nt0", "address", mac)
            net.ip("addr", "replace", "fd09::1/64", "dev", "nt0", "nodad")
            net.udp("10.9.0.2", 10)
            net.udp("fd09::2", 10)
        # One that is not there.
        net.run(sys.executable, "-c", "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                "for port in range(30): s.sendto(b'10.9.0.77:1000', ('10.9.0.2', 9))")
        time.sleep(1.5)
        net.udp("10.9.0.2", 10)
        # Linux takes the stack's address for itself: it is told, and the stack goes on.
        net.run("arping", "-c", "1", "-w", "3", "-D", "-I", "nt0", "10.9.0.2", check=False)
        net.udp("10.9.0.2", 10)
        counters = net.finish()
    assert counters["drop_tx_no_neighbour"] + counters["drop_tx_waiting"] == 30, counters
    assert counters["neighbours_changed"] >= 2, counters


def case_loss():
    with Net("loss") as net:
        net.run("nft", "add", "table", "netdev", "t")
        net.run("nft", "add chain netdev t in { type filter hook ingress device nt0 priority 0; }")
        net.run("nft", "add rule netdev t in meta protocol ip numgen random mod 10 < 2 drop")
        lost = net.run("ping", "-q", "-f", "-c", "300", "-s", "4000", "-W", "1", "10.9.0.2", check=False)
        assert " 100% packet loss" not in lost, lost
        net.udp("10.9.0.2", 4000)
        net.check_capture()
        net.finish()


def main():
    if os.geteuid():
        print("SKIP net_linux: needs root")
        return SKIPPED
    if missing := [tool for tool in NEEDED if not shutil.which(tool)]:
        print(f"SKIP net_linux: needs {' '.join(missing)}")
        return SKIPPED
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        print("SKIP net_linux: needs /dev/net/tun")
        return SKIPPED
    for name in sys.argv[2:] or ["ping", "udp", "offload", "mtu", "router", "groups", "neighbours", "loss"]:
        start = time.monotonic()
        globals()[f"case_{name}"]()
        print(f"{name}: good, {time.monotonic() - start:.1f} s", flush=True)
    return 0


sys.exit(main())
