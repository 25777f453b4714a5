#!/usr/bin/env python3
"""packets.py - packet apps beside what one would use instead, over a veth pair: packets.py VERBENA UDP_ECHO [--rounds N] [--json FILE]

`verbena fwd macswap` on AF_XDP beside dpdk-testpmd's macswap with net_af_xdp, and `verbena echo` (UDP) beside a server by
recvmmsg and sendmmsg. `verbena pktgen` on the other end of the pair, on a core of its own, is the same for all: each frame that
comes back makes room for another one. Every round runs each contender once, one after the other, so that what else the machine
does falls on all; figures are medians over the rounds, ratios are medians of the rounds' own ratios. Needs root and two cores; a
contender that is not installed is named and left out. Exits with 1 where a ratio is below its target and --strict is given.
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

NEAR, FAR = f"vbnp{os.getpid()}a", f"vbnp{os.getpid()}b"  # namespaces
CORES = sorted(os.sched_getaffinity(0))
HERE, THERE = "10.99.0.1", "10.99.0.2"
PORT = 7
MAC_NEAR, MAC_FAR = "02:00:00:00:99:01", "02:00:00:00:99:02"
TARGETS = {"macswap": 0.95, "echo": 1.3}


class Failure(Exception):
    """A contender that did not do its run, with its own words."""


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def inside(namespace, *argv):
    return ["ip", "netns", "exec", namespace, *argv]


@contextlib.contextmanager
def network():
    """Two namespaces with a veth pair between; packets have their checksums when they leave."""
    try:
        for namespace in NEAR, FAR:
            ip("netns", "add", namespace)
        ip("-n", NEAR, "link", "add", "near", "address", MAC_NEAR, "type", "veth", "peer", "name", "far", "address", MAC_FAR, "netns", FAR)
        for namespace, name in (NEAR, "near"), (FAR, "far"):
            for kind in "all", "default":
                subprocess.run(inside(namespace, "sysctl", "-qw", f"net.ipv6.conf.{kind}.disable_ipv6=1"), check=False, capture_output=True)
            ip("-n", namespace, "link", "set", name, "up")
        if shutil.which("ethtool"):
            subprocess.run(inside(FAR, "ethtool", "-K", "far", "tx", "off"), check=False, capture_output=True)
        yield
    finally:
        for namespace in NEAR, FAR:
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


@contextlib.contextmanager
def running(argv, ready):
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT) as process:
        def output():
            out.seek(0)
            return out.read()
        try:
            end = time.monotonic() + 30
            while ready not in output():
                if process.poll() is not None or time.monotonic() > end:
                    raise Failure(f"{' '.join(argv[4:6])} did not say '{ready}': {output().strip()[-300:]}")
                time.sleep(0.02)
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def learn():
    """The stack at the far end learns who asks: by an ARP request, of a process in the near namespace."""
    mac = bytes.fromhex(MAC_NEAR.replace(":", ""))
    arp = b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac + socket.inet_aton(HERE) + b"\0" * 6 + socket.inet_aton(THERE)
    code = f"import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('near', 0)); s.send(bytes.fromhex('{arp.hex()}'))"
    subprocess.run(inside(NEAR, sys.executable, "-c", code), check=True, timeout=20)


def generate(verbena, seconds, window):
    """Frames a second that came back, once what is at the other end has warmed up."""
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run(
            inside(NEAR, verbena, "pktgen", "--device", "xdp:near", "--cores", str(CORES[0]), "--duration", str(seconds), "--window", str(window),
                   "--dst-mac", MAC_FAR, "--src-ip", HERE, "--dst-ip", THERE, "--dport", str(PORT), "--json", file.name),
            capture_output=True, text=True, timeout=seconds + 60, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Failure(f"pktgen ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        result = json.load(file)
    if not result["returned"]:
        raise Failure("nothing came back")
    return result["returned"] / result["seconds"]


def verbena_macswap(options):
    return inside(FAR, options.verbena, "fwd", "macswap", "--device", "xdp:far", "--cores", str(CORES[1])), ": ready"


def testpmd_macswap(_):
    return inside(FAR, "dpdk-testpmd", "-l", f"{CORES[0]},{CORES[1]}", "--no-huge", "--no-pci", "-m", "512", "--file-prefix", f"vbn{os.getpid()}",
                  "--vdev", "net_af_xdp0,iface=far", "--", "--forward-mode=macswap", "--auto-start", "--nb-cores=1",
                  "--total-num-mbufs=16384", "--stats-period=600"), "Throughput"


def verbena_echo(options):
    return inside(FAR, options.verbena, "echo", "--device", "xdp:far", "--ip", THERE + "/24", "--cores", str(CORES[1])), ": ready"


def socket_echo(options):
    return inside(FAR, "taskset", "-c", str(CORES[1]), options.udp_echo, str(PORT)), "listening"


def kernel_address(add):
    """The far end is the kernel's own, and knows its neighbour."""
    do = "add" if add else "del"
    ip("-n", FAR, "addr", do, THERE + "/24", "dev", "far")
    if add:
        ip("-n", FAR, "neigh", "replace", HERE, "lladdr", MAC_NEAR, "dev", "far")


def measure(case, contender, options):
    kernel = contender is socket_echo
    if kernel:
        kernel_address(True)
    try:
        with running(*contender(options)):
            if case == "echo" and not kernel:
                learn()
            generate(options.verbena, 0.2, options.window)
            return generate(options.verbena, options.seconds, options.window)
    finally:
        if kernel:
            kernel_address(False)


CASES = {"macswap": {"verbena": verbena_macswap, "dpdk-testpmd": testpmd_macswap},
         "echo": {"verbena": verbena_echo, "recvmmsg": socket_echo}}


def rounds(options):
    figures = {case: {name: [] for name in contenders} for case, contenders in CASES.items()}
    left_out = {}
    for _ in range(options.rounds):
        for case, contenders in CASES.items():
            for name, contender in contenders.items():
                if name == "dpdk-testpmd" and not shutil.which(name):
                    left_out[name] = "it is not installed"
                    continue
                with network():
                    figures[case][name].append(measure(case, contender, options))
    return figures, left_out


def summary(figures):
    for case, found in figures.items():
        ours, (peer, theirs) = found["verbena"], next((n, f) for n, f in found.items() if n != "verbena")
        ratio = statistics.median(a / b for a, b in zip(ours, theirs)) if theirs else None
        yield {"case": case, "peer": peer, "ours": statistics.median(ours), "theirs": statistics.median(theirs) if theirs else None,
               "ratio": ratio, "target": TARGETS[case], "rounds": {"verbena": ours, peer: theirs}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("verbena")
    parser.add_argument("udp_echo")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--json")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    if os.geteuid() or len(CORES) < 2:
        print("SKIP packets_bench: needs root, to make network namespaces, and two cores")
        sys.exit(77)
    try:
        figures, left_out = rounds(options)
    except FileNotFoundError as error:
        print(f"SKIP packets_bench: {error.filename} is not installed")
        sys.exit(77)
    except (Failure, subprocess.CalledProcessError) as error:
        print(f"packets: {error} {getattr(error, 'stderr', '') or ''}", file=sys.stderr)
        sys.exit(1)
    results = list(summary(figures))
    print(f"{'64-byte frames over a veth pair':32} {'verbena':>12} {'peer':>12} {'ratio':>6} {'target':>6}")
    for r in results:
        theirs = f"{r['theirs']:12,.0f}" if r["theirs"] else f"{'-':>12}"
        print(f"{r['case'] + ' beside ' + r['peer']:32} {r['ours']:12,.0f} {theirs} {r['ratio'] or 0:6.2f} {r['target']:6.2f}")
    for name, why in left_out.items():
        print(f"{name} is left out: {why}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"cases": results, "left_out": left_out}, file, indent=2)
    sys.exit(options.strict and any(r["ratio"] and r["ratio"] < r["target"] for r in results))


main()
