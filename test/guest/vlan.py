"""vlan.py - tests of the stack on VLANs with the guest's Linux, which has VLAN 7 on its NIC; a mixin of the guest's tests

The stack runs here, its port on the bridge: untagged it is 10.88.0.5 and fd88::5, with tag 7 10.89.0.5 and fd89::5.
"""
import contextlib
import json
import os
import subprocess
import time

VERBENA = os.environ.get("VERBENA", "verbena")
STACK = os.environ.get("STACK", "net_stack_host")
PLAIN, TAGGED = ("10.88.0.5", "fd88::5"), ("10.89.0.5", "fd89::5")
ADDRESSES = ",".join(address + ("/64" if ":" in address else "/24") for address in PLAIN)
OPTIONS = "--vlan 7 " + ",".join(address + ("/64" if ":" in address else "/24") for address in TAGGED)

# To each address datagrams of many sizes to the echo, and 1,000 bytes asked for at a port of the guest's.
UDP = """
import socket, sys
def opened(family, address=None):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(2)
    if address:
        s.bind((address, 0))
    return s
def answer(s, data, to, expected):
    for attempt in range(10):
        s.sendto(data, to)
        try:
            got = s.recv(65536)
            while len(got) != len(expected): # an answer to what was sent before
                got = s.recv(65536)
        except TimeoutError:
            continue
        assert got == expected, len(got)
        return
    sys.exit(f"no answer to {len(data)} bytes")
for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = opened(family)
    for size in 1, 100, 1452, 1472, 1473, 9000:
        data = bytes(i * 7 & 255 for i in range(size))
        answer(s, data, (address, 7), data)
    s.connect((address, 9))
    own = s.getsockname()[0]
    s = opened(family, own)
    to = f"[{own}]" if ":" in own else own
    answer(s, f"{to}:{s.getsockname()[1]}".encode(), (address, 9), b"x" * 1000)
"""


class Stack:
    """The program, and what it has counted."""

    def __init__(self, command):
        self.process = subprocess.Popen(["/bin/bash", "-c", f"exec {command}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise AssertionError(f"{command} does not start: {line}")

    def count(self):
        self.process.stdin.write("count\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.communicate()


class Tests:
    """succeeds(), job() and capture, a file, are the test's."""
    job = capture = None

    @contextlib.contextmanager
    def stack(self, command):
        before = self.frames("")
        stack = Stack(command)
        self.succeeds(self.job("ip addr replace fd88::2/64 dev eth0 nodad; ip addr replace fd89::2/64 dev eth0.7 nodad; ip neigh flush all"))
        try:
            yield stack
            counters = self.settled(stack)
        finally:
            stack.end()
        self.assertGreaterEqual(counters["echo_answered"], 4, counters)
        self.assertEqual(self.frames("eth.type == 0x8100 and vlan.id == 7 and (ip.addr == 10.88.0.5 or ipv6.addr == fd88::5)"), 0)
        self.assertEqual(self.frames("not vlan and (ip.addr == 10.89.0.5 or ipv6.addr == fd89::5 or arp.dst.proto_ipv4 == 10.89.0.5)"), 0)
        self.assertGreater(self.frames(""), before)
        # What an ICMP error quotes is cut by rule.
        self.assertEqual(self.frames("(ip.addr == 10.88.0.0/15 or ipv6) and not udp.port == 4791 and not icmp.type == 3 and not icmpv6.type < 5 and "
                                     "(_ws.malformed or ip.checksum.status == 0 or udp.checksum.status == 0 or icmp.checksum.status == 0 "
                                     "or icmpv6.checksum.status == 0)"), 0)

    def frames(self, which):
        """How many of what passed the guest's NIC are of those."""
        sums = [word for protocol in ("ip", "udp") for word in ("-o", f"{protocol}.check_checksum:TRUE")]
        done = subprocess.run(["tshark", "-n", "-r", self.capture, *sums, "-Y", which, "-T", "fields", "-e", "frame.number"], text=True,
                              capture_output=True, check=False)
        if done.returncode: # the last frame may be on its way into the file
            self.assertIn("cut short", done.stderr)
        return len(done.stdout.splitlines())

    def settled(self, stack):
        """The counters, once all that came and went has its fate."""
        deadline = time.monotonic() + 20
        while True:
            counters = stack.count()
            port = counters["ports"][0]
            wrong = [counters["received_missing"], counters["sent_missing"], port["rx_messages"] - counters["rx_frames"],
                     port["tx_messages"] - counters["tx_frames"],
                     port["tx_messages"] - port["tx_done"] - port["tx_refused"] - port["tx_flushed"] - port["outstanding"]]
            if not any(wrong):
                return counters
            self.assertLess(time.monotonic(), deadline, counters)

    def talk(self):
        """By every address, whole and in fragments."""
        addresses = " ".join(PLAIN + TAGGED)
        self.succeeds(self.job(f"for to in {addresses}; do for size in 56 1472 1473 9000; do "
                               "ping -q -n -c 2 -i 0.05 -W 10 -s $size $to || exit 1; done; done"))
        self.succeeds(self.job(f"python3 -c '{UDP}' {addresses}"))

    def test_wire_stack_vlan(self):
        """Untagged, and tagged, at one port: each where it belongs, whatever its priority."""
        with self.stack(f"{STACK} {OPTIONS} tap:stack {ADDRESSES}") as stack:
            self.talk()
            self.succeeds(self.job("ip link set eth0.7 type vlan egress-qos-map 0:5 && ping -q -n -c 2 -i 0.2 -W 10 10.89.0.5"))
            self.assertGreater(self.frames("vlan.id == 7 and vlan.priority == 5 and icmp"), 1)
            self.assertEqual(stack.count()["drop_vlan"], 0)
            # One that the stack has not, and an address of another one's.
            self.succeeds(self.job("ip link add link eth0 name eth0.8 type vlan id 8 && ip addr add 10.90.0.2/24 dev eth0.8 && "
                                   "ip link set eth0.8 up && ip route add 10.89.0.5/32 dev eth0.8"))
            self.assertNotEqual(self.job("ping -q -n -c 1 -W 2 10.89.0.5").status, 0)
            self.succeeds(self.job("ip link del eth0.8 && ip link set eth0.7 type vlan egress-qos-map 0:0 && "
                                   "ping -q -n -c 1 -W 10 10.89.0.5"))
            self.assertGreater(stack.count()["drop_vlan"], 0)

    def test_wire_stack_vlan_vhca(self):
        """The same at raw queues of the emulated ConnectX."""
        with self.stack(f"{VERBENA} vhca --wire tap:vhca --address 10.88.0.9/24 -- {STACK} {OPTIONS} mlx5_0 {ADDRESSES}"):
            self.talk()
