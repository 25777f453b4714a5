#!/usr/bin/env python3
"""linux_test.py - the stack against Linux: usage: linux_test.py NET_STACK_HOST VERBENA tap|xdp|vhca [CASE…]

The stack's port is a TAP device, one end of a veth pair by AF_XDP, or raw queues of an emulated ConnectX whose wire is a TAP
device; Linux has the other end, nt0. Each case has namespaces of its own. After each, all that came and went must have a fate at
every layer: interface, driver, stack, sockets; and tshark must find nothing malformed and no wrong checksum in either direction.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HOST, VERBENA, PORT = sys.argv[1:4]
SKIPPED = 77
NEEDED = ["ip", "ping", "arping", "nc", "iperf", "traceroute", "tshark", "dumpcap", "nft", "bridge"]
PATIENCE = 20
SLOW_DEPTH = 128  # of the host's port 10
UDP = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.settimeout(0.5)
port, source = int(sys.argv[2]), sys.argv[3] or sys.argv[1]
for size in map(int, sys.argv[4:]):
    data = bytes(i * 7 & 255 for i in range(size))
    for attempt in range(40):
        s.sendto(data, (sys.argv[1], port))
        try:
            got = None
            while got is None or len(got) != size: # or an answer to what was sent before
                got, sender = s.recvfrom(70000)
        except (TimeoutError, ConnectionError):
            continue
        assert got == data and sender[0] == source, (len(got), sender)
        break
    else:
        sys.exit(f"no answer to {size} bytes")
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
FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(sum(s.sendto(b"f" * 200, (sys.argv[1], int(sys.argv[2]))) == 200 for i in range(int(sys.argv[3]))))
"""
# SIOCETHTOOL, ETHTOOL_STXCSUM: what Linux sends has its checksums when it leaves.
WHOLE_SUMS = """
import array, fcntl, socket, struct, sys
value = array.array("I", [0x17, 0])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8946, struct.pack("16sP16x", sys.argv[1].encode(), value.buffer_info()[0]))
"""


def run(*command, ns=None, check=True, text=None):
    where = ["ip", "netns", "exec", ns] if ns else []
    done = subprocess.run([*where, *command], capture_output=True, text=True, input=text, timeout=60, check=False)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)[:200]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_for(what, condition, told=lambda: ""):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what}: not within {PATIENCE} s {told()}")
        time.sleep(0.05)


class Net:
    """Namespaces with the stack's process and the Linux that it talks to: nt0 in `ns`; with a second port nt1 in `far`."""
    n_made = 0

    def __init__(self, options=(), mtu=1500, ports=1, sums=PORT == "tap", bridge=False):
        self.mtu, self.n_ports, self.bridge = mtu, ports, bridge
        Net.n_made += 1
        self.ns, self.far, self.own = (f"vbn-{os.getpid()}-{Net.n_made}-{end}" for end in ("linux", "far", "stack"))
        if PORT != "xdp":
            self.own = self.ns
        self.capture = tempfile.NamedTemporaryFile(suffix=".pcapng")
        self.watch = self.host = None
        self.options = [*(["--sums"] if sums else []), *options]

    # ---- making it ----

    def device(self, i):
        """The port's name; made where the stack does not make it itself."""
        if PORT == "xdp":
            run("ip", "link", "add", f"st{i}", "netns", self.own, "mtu", str(self.mtu), "type", "veth", "peer", "name", f"nt{i}",
                "netns", self.namespace(i), "mtu", str(self.mtu))
            if self.bridge:
                run("ip", "-n", self.own, "link", "add", "sb0", "type", "bridge", "mcast_snooping", "0")
                run("ip", "-n", self.own, "link", "set", f"st{i}", "master", "sb0", "up")
                return "xdp:sb0"
            return f"xdp:st{i}"
        if PORT == "vhca" and not i:
            self.ip("tuntap", "add", "nt0", "mode", "tap")
            self.ip("link", "set", "nt0", "mtu", str(self.mtu))
            return "mlx5_0"
        return f"tap:nt{i}"

    def namespace(self, i):
        return self.far if i else self.ns

    def start(self):
        addresses = ["10.9.0.2/24,fd09::2/64" if self.mtu >= 1280 else "10.9.0.2/24", "10.8.0.2/24,fd08::2/64"]
        devices = [word for i in range(self.n_ports) for word in (self.device(i), addresses[i])]
        emulated = [VERBENA, "vhca", "--wire", "tap:nt0", "--address", "10.99.0.9/24", "--"] if PORT == "vhca" else []
        mtu = [] if PORT == "xdp" else ["--mtu", str(self.mtu)]
        command = [*emulated, HOST, *self.options, *mtu, *devices]
        self.host = subprocess.Popen(["ip", "netns", "exec", self.own, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True)
        if self.host.stdout.readline() != "ready\n":
            sys.exit(f"{' '.join(command)} does not start")

    def link_up(self, i):
        """Linux's end."""
        ns = self.namespace(i)
        if i and PORT != "xdp":
            self.ip("link", "set", f"nt{i}", "netns", self.far)
        run(sys.executable, "-c", WHOLE_SUMS, f"nt{i}", ns=ns)
        for command in (f"addr add 10.{9 - i}.0.1/24 dev nt{i}", f"addr add fd0{9 - i}::1/64 dev nt{i} nodad", f"link set nt{i} up",
                        "link set lo up"):
            if self.mtu >= 1280 or "::" not in command:
                run("ip", "-n", ns, *command.split())

    def __enter__(self):
        try:
            for ns in {self.ns, self.far, self.own}:
                run("ip", "netns", "add", ns)
            if self.own != self.ns: # its kernel is to send nothing
                run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", ns=self.own)
            self.start()
            for i in range(self.n_ports):
                self.link_up(i)
            self.watch = subprocess.Popen(["ip", "netns", "exec", self.ns, "dumpcap", "-q", "-B", "16", "-i", "nt0", "-w", self.capture.name],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for line in self.watch.stderr:
                if line.startswith("File:"):
                    break
            return self
        except BaseException:
            self.close()
            raise

    # ---- using it ----

    def ip(self, *command):
        return run("ip", "-n", self.ns, *command)

    def run(self, *command, **options):
        return run(*command, ns=self.ns, **options)

    def python(self, program, *words):
        return self.run(sys.executable, "-c", program, *map(str, words))

    @contextlib.contextmanager
    def beside(self, *command):
        """A program of Linux's that is ended at the end."""
        process = subprocess.Popen(["ip", "netns", "exec", self.ns, "timeout", "60", *command], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)

    def wait_for_socket(self, port):
        wait_for(f"a socket on port {port}", lambda: f":{port:04X} " in self.run("cat", "/proc/net/udp"))

    def udp(self, to, *sizes, source="", port=7):
        self.python(UDP, to, port, source, *sizes)

    def ping(self, to, size, count=2):
        self.run("ping", "-q", "-c", str(count), "-i", "0.05", "-W", "5", "-s", str(size), to)

    def tell(self, line):
        self.host.stdin.write(line + "\n")
        self.host.stdin.flush()

    def count(self):
        self.tell("count")
        return json.loads(self.host.stdout.readline())

    # ---- what it comes to ----

    def interface(self, i):
        """What Linux says that its end has sent and received."""
        return json.loads(run("ip", "-n", self.namespace(i), "-j", "-s", "link", "show", f"nt{i}"))[0]["stats64"]

    def emulator(self):
        if PORT != "vhca":
            return None
        return json.loads(run(VERBENA, "vhca", "status", "--json", "-", ns=self.own))["processes"][0]["devices"][0]

    def unaccounted(self, counters, links, device):
        """(what, this many came, and so many have a fate) where the two differ."""
        c, sums = counters, []
        for i, (port, link) in enumerate(zip(c["ports"], links)):
            dropped = sum(count for name, count in port["queue_drops"].items() if name.startswith("rx_"))
            sums.append((f"sends of queue {i}", port["tx_messages"],
                         port["tx_done"] + port["tx_refused"] + port["tx_flushed"] + port["outstanding"]))
            if PORT != "vhca" or i:
                sums.append((f"interface {i} to queue", link["tx"]["packets"], port["rx_messages"] + dropped))
                gone = link["rx"]["packets"] + port["port_drops"].get("interface_tx_dropped", 0)
                sums.append((f"queue {i} to interface", port["tx_done"], min(max(port["tx_done"], gone), gone + link["rx"]["dropped"])))
        if device:
            raw, port = device["raw"], c["ports"][0]
            sums += [("wire to device", links[0]["tx"]["packets"], raw["came"]),
                     ("device", raw["came"], raw["host"] + raw["ruled_out"] + raw["too_long"] + raw["taken"]),
                     ("device to queues", raw["copies"], raw["delivered"] + raw["out_of_buffer"] + raw["failed"] + raw["not_ready"]),
                     ("out of buffer", raw["out_of_buffer"], port["port_drops"]["out_of_buffer"]),
                     ("device to queue", raw["delivered"], port["rx_messages"]),
                     ("queue to device", port["tx_done"], device["counters"]["port_xmit_packets"])]
        return [each for each in sums + [
            ("queues to stack", sum(port["rx_messages"] for port in c["ports"]), c["rx_frames"]),
            ("stack to queues", c["tx_frames"], sum(port["tx_messages"] for port in c["ports"])),
            ("received by the stack", c["received_missing"], 0),
            ("sent by the stack", c["sent_missing"], 0),
            ("stack to sockets", c["udp_received"] + c["udp_copied"], c["socket_received"]),
            ("sockets without room", c["drop_udp_full"], c["socket_dropped"]),
            ("sockets to their owner", c["socket_received"], c["seen_received"] + c["slow_received"]),
            ("owner to sockets", c["seen_sent"], c["socket_sent"]),
            ("sockets to stack", c["socket_sent"], c["udp_sent"])] if each[1] != each[2]]

    def finish(self):
        """The counters, once all that came and went has its fate; and what tshark says of it."""
        wrong, counters = [("", 0, 1)], {}

        def settled():
            nonlocal wrong, counters
            links, device = [self.interface(i) for i in range(self.n_ports)], self.emulator()
            counters = self.count()
            wrong = self.unaccounted(counters, links, device)
            return not wrong

        wait_for("all accounted for", settled, lambda: f"{wrong} { {k: v for k, v in counters.items() if v} }")
        self.check_capture()
        return counters

    def check_capture(self):
        wait_for("tshark's packets", lambda: os.path.getsize(self.capture.name) > 2000)
        time.sleep(0.3)
        self.watch.send_signal(signal.SIGINT)
        self.watch.communicate(timeout=PATIENCE)
        self.watch = None
        sums = [option for protocol in ("ip", "udp") for option in ("-o", f"{protocol}.check_checksum:TRUE")]
        # What an ICMP error quotes is cut by rule.
        bad = "(_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0 || " \
              "icmpv6.checksum.status == 0 || igmp.checksum.status == 0) && !(icmp.type == 3 || icmp.type == 11 || icmpv6.type < 5)"
        found = run("tshark", "-n", "-r", self.capture.name, *sums, "-Y", bad)
        if found.strip():
            sys.exit(f"tshark finds fault with what was sent:\n{found[:2000]}")

    @staticmethod
    def children(pid):
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                return [int(child) for child in file.read().split()]
        except OSError:
            return []

    def close(self):
        for process in self.watch, self.host:
            if process:
                for pid in self.children(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                process.terminate()
                try:
                    process.communicate(timeout=PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
        for ns in {self.ns, self.far, self.own}:
            run("ip", "netns", "del", ns, check=False)

    def __exit__(self, *failure):
        self.close()


TARGETS = "10.9.0.2", "fd09::2"


def case_ping():
    with Net() as net:
        for to in TARGETS:
            for size in (0, 1, 56, 1472, 1473, 2000, 9000, 40001, 65507 if "." in to else 65487):
                net.ping(to, size)
            net.run("ping", "-q", "-f", "-c", "1000", "-s", "1000", to)
        net.run("arping", "-c", "2", "-w", "10", "-I", "nt0", "10.9.0.2")
        counters = net.finish()
    assert counters["echo_answered"] >= 2036, counters
    assert counters["reassembled"] >= 20, counters


def case_udp():
    with Net() as net:
        for to in TARGETS:
            net.udp(to, 0, 1, 2, 17, 18, 19, 100, 1451, 1452, 1453, 1472, 1473, 20000, 65507 if "." in to else 65487)
            net.python(ORDER, to, "10.9.0.1" if "." in to else "fd09::1")
        counters = net.finish()
    assert counters["delivered"] >= 30 and counters["udp_sent"] >= 30, counters


def case_offload():
    """UDP's checksums are the port's: Linux would drop what is wrong. (What is captured has none yet, so nobody looks.)"""
    with Net(sums=False) as net:
        net.check_capture = lambda: None
        for to in TARGETS:
            net.udp(to, 0, 1, 2, 17, 18, 19, 100, 1451, 1472, 1473, 20000)
            net.python(ORDER, to, "10.9.0.1" if "." in to else "fd09::1")
        counters = net.finish()
    assert counters["udp_sent"] >= 24 and not counters["drop_l4_sum"], counters


def case_generic():
    """Where the program is to run behind the interface's driver; and where it must, as a bridge has no XDP of its own."""
    for bridge, options in (False, ["--generic"]), (True, []):
        with Net(options, bridge=bridge) as net:
            attached = run("ip", "-n", net.own, "-d", "link", "show", "sb0" if bridge else "st0")
            assert "xdpgeneric" in attached, attached
            for to in TARGETS:
                net.ping(to, 20000, 20)
                net.udp(to, 1, 1472, 30000)
            net.finish()


def case_programs():
    """nc and iperf, both ways: what Linux sends to port 5001 of the stack's comes back to Linux, and its answers likewise."""
    with Net(["--relay", "10.9.0.1:5002"]) as net:
        for to in TARGETS:
            with net.beside("nc", "-u", to, "7") as nc:
                nc.stdin.write("hello")
                nc.stdin.flush()
                assert nc.stdout.read(5) == "hello"
        with net.beside("nc", "-u", "-l", "10.9.0.1", "4001") as server, net.beside("nc", "-u", "10.9.0.2", "9") as nc:
            net.wait_for_socket(4001)
            nc.stdin.write("10.9.0.1:4001")
            nc.stdin.flush()
            assert server.stdout.read(1000) == "x" * 1000
        with net.beside("iperf", "-s", "-u", "-p", "5002"):
            net.wait_for_socket(5002)
            said = net.run("iperf", "-c", "10.9.0.2", "-u", "-p", "5001", "-b", "5M", "-l", "1000", "-n", "500000")
        lost, total = map(int, re.search(r"(\d+)/ *(\d+) \([0-9.e+-]+%\)", said).groups())
        assert lost < total / 2 and total >= 500, said # some are: on two cores, by whichever of four waits for one
        counters = net.finish()
    assert counters["udp_sent"] > 250, counters


def case_mtu():
    for mtu in (576, 1280, 3498) if PORT == "xdp" else (576, 1280, 4000, 9000):
        with Net(mtu=mtu) as net:
            for size in (mtu - 29, mtu - 28, mtu - 27, 10000, 65507):
                net.ping("10.9.0.2", size, 1)
            net.udp("10.9.0.2", 30000)
            if mtu >= 1280:
                net.ping("fd09::2", 30000, 1)
                net.udp("fd09::2", 30000)
            net.finish()


def case_router():
    with Net(["--forward", "--route", "10.7.0.0/16 via 10.8.0.1 mtu 1000", "--route", "fd07::/16 via fd08::1 mtu 1300"], ports=2) as net:
        for ns, other in ((net.ns, 8), (net.far, 9)):
            run("ip", "-n", ns, "route", "add", f"10.{other}.0.0/24", "via", f"10.{17 - other}.0.2")
            run("ip", "-n", ns, "-6", "route", "add", f"fd0{other}::/64", "via", f"fd0{17 - other}::2")
        run("ip", "-n", net.far, "addr", "add", "10.7.0.1/16", "dev", "lo")
        run("ip", "-n", net.far, "-6", "addr", "add", "fd07::1/16", "dev", "lo")
        net.ip("route", "add", "10.7.0.0/16", "via", "10.9.0.2")
        net.ip("-6", "route", "add", "fd07::/16", "via", "fd09::2")
        for to, own in ("10.8.0.1", "10.9.0.2"), ("fd08::1", "fd09::2"):
            net.ping(to, 1000)
            hops = net.run("traceroute", "-n", "-q", "1", "-w", "5", "-m", "5", to).splitlines()[1:]
            assert [hop.split()[1] for hop in hops] == [own, to], hops
            assert "exceeded" in net.run("ping", "-n", "-c", "1", "-W", "5", "-t", "1", to, check=False)
        # What may be cut is, as long as Linux does not know.
        net.run("ping", "-c", "2", "-i", "0.1", "-M", "dont", "-s", "1200", "10.7.0.1")
        # Too big: Linux is told, and remembers.
        assert "mtu = 1000" in net.run("ping", "-c", "1", "-M", "do", "-s", "1200", "10.7.0.1", check=False)
        wait_for("the path MTU", lambda: "mtu 1000" in net.ip("route", "get", "10.7.0.1"))
        net.run("ping", "-c", "1", "-W", "1", "-s", "1400", "fd07::1", check=False)
        wait_for("the path MTU", lambda: "mtu 1300" in net.ip("-6", "route", "get", "fd07::1"))
        # A neighbour that is not there.
        for to in "10.8.0.77", "fd08::77":
            assert "unreachable" in net.run("ping", "-n", "-c", "1", "-w", "10", to, check=False).lower()
        counters = net.finish()
    assert counters["forwarded"] > 10 and counters["drop_ttl"] >= 4 and counters["drop_too_big"] >= 2, counters
    assert counters["fragmented"] >= 1 and counters["neighbours_failed"] >= 2, counters


def case_trace():
    """The stack's own answers: a port that is closed, as many hops as it takes."""
    with Net() as net:
        for to in TARGETS:
            hops = net.run("traceroute", "-n", "-q", "2", "-w", "5", "-m", "5", to).splitlines()[1:]
            assert len(hops) == 1 and hops[0].split()[1] == to, hops
            net.run("ping", "-q", "-c", "1", "-W", "5", "-t", "1", to)
            net.udp(to, 10)
        counters = net.finish()
    assert counters["drop_no_port"] >= 4 and counters["icmp_sent"] >= 4, counters


def case_groups():
    """Linux's bridge sees who is a member, and who no longer."""
    with Net(["--group", "239.1.2.3", "--group", "ff05::123"]) as net:
        net.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "1", "mcast_querier", "1", "mcast_query_use_ifaddr", "0",
               "mcast_last_member_interval", "20", "mcast_last_member_count", "1")
        net.ip("addr", "flush", "dev", "nt0")
        net.ip("link", "set", "nt0", "master", "br0")
        net.ip("addr", "add", "10.9.0.1/24", "dev", "br0")
        net.ip("link", "set", "br0", "up")
        seen = lambda: [group in net.run("bridge", "mdb", "show", "dev", "br0") for group in ("239.1.2.3", "ff05::123")]
        for change, expected in ("leave", False), ("join", True):
            net.tell(change)
            wait_for(f"a {change}", lambda: seen() == [expected] * 2)
        net.ip("route", "add", "239.0.0.0/8", "dev", "br0")
        net.udp("239.1.2.3", 100, source="10.9.0.2")
        counters = net.finish()
    assert counters["delivered"] >= 1 and counters["reports_sent"] >= 6, counters


def case_neighbours():
    with Net() as net:
        net.udp("10.9.0.2", 10)
        for mac in "02:00:00:00:77:01", "02:00:00:00:77:02":
            net.ip("link", "set", "nt0", "address", mac)
            net.ip("addr", "replace", "fd09::1/64", "dev", "nt0", "nodad")
            net.udp("10.9.0.2", 10)
            net.udp("fd09::2", 10)
        # One that is not there.
        net.python("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                   "for port in range(30): s.sendto(b'10.9.0.77:1000', ('10.9.0.2', 9))")
        wait_for("its failure", lambda: net.count()["neighbours_failed"])
        net.udp("10.9.0.2", 10)
        # Linux takes the stack's address for itself: it is told, and the stack goes on.
        net.run("arping", "-c", "1", "-w", "3", "-D", "-I", "nt0", "10.9.0.2", check=False)
        net.udp("10.9.0.2", 10)
        counters = net.finish()
    assert counters["drop_tx_no_neighbour"] + counters["drop_tx_waiting"] == 30, counters
    assert counters["neighbours_changed"] >= 2, counters


def case_loss():
    with Net() as net:
        net.run("nft", "add", "table", "netdev", "t")
        net.run("nft", "add chain netdev t in { type filter hook ingress device nt0 priority 0; }")
        net.run("nft", "add rule netdev t in meta protocol { ip, ip6 } numgen random mod 10 < 2 drop")
        for to in TARGETS:
            said = net.run("ping", "-q", "-f", "-c", "100", "-s", "4000", "-W", "1", to, check=False)
            assert not re.search(r" (0|100)% packet loss", said), said
            net.udp(to, 4000)
        net.finish()


def case_overload():
    """More than is taken: by a socket that nobody reads; and by a port whose worker is elsewhere."""
    with Net() as net:
        net.udp("10.9.0.2", 10)
        before, sent = fates(net), -SLOW_DEPTH
        sent += int(net.python(FLOOD, "10.9.0.2", 10, 2000))
        wait_for("the datagrams' fates", lambda: fates(net) - before >= sent, lambda: f"{fates(net) - before} of {sent}")
        below = lost_below(net, net.count())
        net.tell("stall")
        assert net.host.stdout.readline() == "stalled\n"
        sent += int(net.python(FLOOD, "10.9.0.2", 10, 8000))
        wait_for("the datagrams' fates", lambda: fates(net) - before >= sent, lambda: f"{fates(net) - before} of {sent}")
        net.udp("10.9.0.2", 10, 20000)
        counters = net.finish()
        # Linux has its own chatter, which may be lost, too.
        assert sent <= fates(net) - before <= sent + 60, (sent, before, counters)
        assert lost_below(net, counters) > below, counters
    assert counters["drop_udp_full"] > 500, counters


def lost_below(net, counters):
    """By drivers, devices and the interface."""
    port = counters["ports"][0]
    drops = {**port["queue_drops"], **port["port_drops"]}
    lost = sum(count for name, count in drops.items() if name.startswith("rx_") or name == "out_of_buffer")
    return lost + (net.interface(0)["tx"]["dropped"] if PORT != "tap" else 0)


def fates(net):
    """How many datagrams the socket that nobody reads had no room for, and how many did not come so far."""
    counters = net.count()
    return counters["drop_udp_full"] + lost_below(net, counters)


CASES = ["ping", "udp", "offload", "generic", "programs", "mtu", "router", "trace", "groups", "neighbours", "loss", "overload"]
ONLY = {"offload": "tap", "generic": "xdp"}


def main():
    if os.geteuid():
        print(f"SKIP net_linux_{PORT}: needs root")
        return SKIPPED
    if missing := [tool for tool in NEEDED if not shutil.which(tool)]:
        print(f"SKIP net_linux_{PORT}: needs {' '.join(missing)}")
        return SKIPPED
    if PORT != "xdp" and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        print(f"SKIP net_linux_{PORT}: needs /dev/net/tun")
        return SKIPPED
    for name in sys.argv[4:] or CASES:
        if PORT != ONLY.get(name, PORT):
            continue
        start = time.monotonic()
        globals()[f"case_{name}"]()
        print(f"{name}: good, {time.monotonic() - start:.1f} s", flush=True)
    return 0


sys.exit(main())
