#!/usr/bin/env python3
"""dpdk_test.py - dpdk-testpmd on the emulated device, against Linux over a veth pair

Usage: dpdk_test.py LIBVERBENA-VHCA.SO

On the other end frames are sent and received by a packet socket, and pings by Linux itself. Each frame is accounted for
and compared byte by byte. All of it runs in a network namespace that lives as long as this process. Exits with 77 where
testpmd is not installed, or such a namespace cannot be made.
"""
import random
import re
import select
import socket
import struct
import sys
import time

from dpdk import (BURST, FAR, MODES, NEAR, PATIENCE_S, STRIDES, TESTPMD, Peer, Wrong, begin, checksum, run_command, run_sessions, swapped, tagged)

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


def expect_said(pmd, command, reason):
    text = pmd.tell(command)
    if reason not in text:
        raise Wrong(f"\"{command}\" is not refused by \"{reason}\", but: {text[-300:]}")


def vlan_filter(pmd, peer):
    """Of two VLANs the port is told of one."""
    pmd.tell("set promisc 0 off", "vlan set filter on 0", "rx_vlan add 5 0", "set fwd macswap", "start")
    frames = [tagged(frame, 5 + i % 2) for i, frame in enumerate(peer.frames(sizes(100), 40000))]
    peer.exchange(frames, lambda frame: swapped(frame) if frame[15] == 5 else None)
    pmd.tell("stop", "rx_vlan rm 5 0", "vlan set filter off 0", "set promisc 0 on")
    return f"{len(frames) // 2} of {len(frames)} frames"


def vlan_strip(pmd, peer):
    """A tag comes beside its frame; of two, the first. More than one tag the device does not take."""
    pmd.tell("vlan set strip on 0", "set fwd macswap", "start")
    frames = [tagged(frame, 0x6000 + i) for i, frame in enumerate(peer.frames(sizes(100), 41000))]
    done = peer.exchange(frames, lambda frame: swapped(frame[:12] + frame[16:]))
    pmd.tell("stop", "vlan set strip off 0")
    expect_said(pmd, "vlan set qinq_strip on 0", "must be within Rx offloads capabilities")
    expect_said(pmd, "vlan set extend on 0", "must be within Rx offloads capabilities")
    return f"{done} frames"


def vlan_insert(pmd, peer):
    pmd.tell("port stop 0", "tx_vlan set 0 7", "port start 0", "set fwd macswap", "start")
    done = peer.exchange(peer.frames(sizes(100), 42000), lambda frame: tagged(swapped(frame), 7))
    pmd.tell("stop", "port stop 0", "tx_vlan reset 0")
    expect_said(pmd, "tso set 1400 0", "TSO is not supported")
    pmd.tell("port start 0")
    return f"{done} frames"


UDP = "flow create 0 ingress pattern eth / ipv4 / udp dst is {} / end actions {} / end"


def flow_rules(pmd, peer):
    """Dropped, sent to a queue, marked and counted, by the port that a frame goes to."""
    counts = pmd.name != "matchers"  # without DevX the PMD has no counters for its matchers
    if not counts:
        expect_said(pmd, UDP.format(6, "count / queue index 0"), "count action not supported")
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
          ("txonly", txonly), ("icmpecho", icmpecho), ("two queues", rss), ("rte_flow", flow_rules), ("csum", csum),
          ("VLAN filter", vlan_filter), ("VLAN strip", vlan_strip), ("VLAN insert", vlan_insert))


def jumbo(pmd, peer):
    pmd.tell("set fwd macswap", "start")
    for mtu in 5000, 9000:  # the PMD sets that of the network device
        pmd.tell(f"port config mtu 0 {mtu}")
        if f"mtu {mtu} " not in run_command("ip", "link", "show", NEAR):
            raise Wrong(f"the interface has no MTU of {mtu}")
    n = peer.exchange(peer.frames([9014, 60, 8000, 4096, 1514, 9013] * 20, 30000), swapped)
    pmd.tell("stop")
    return f"{n} frames to 9014 bytes"


TWO = ("--rxq=2", "--txq=2", "--rxd=512", "--txd=512")


def sessions():
    """The options of each start of testpmd, and what is done with it."""
    for mode in MODES:
        yield mode, TWO, "", COMMON
    for mode in MODES[0], MODES[2]:
        yield mode, ("--rxd=512",), STRIDES, (("strides and compressed CQEs", forward("macswap", swapped, 2000)),
                                              ("strides, rxonly", rxonly))
        yield mode, ("--max-pkt-len=9018", "--mbuf-size=10240"), "", (("jumbo", jumbo),)


def main():
    library, = begin(1)
    peer = Peer()

    def run_case(case, pmd):
        peer.drain()
        return case(pmd, peer)

    return run_sessions(library, run_case, sessions())


if __name__ == "__main__":
    sys.exit(main())
