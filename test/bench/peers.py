#!/usr/bin/env python3
"""peers.py - Verbena beside what one would use instead, on this machine: peers.py BUILD [--rounds N] [--json FILE] [--svg FILE]

Messages between two processes of one host: `verbena msgrate --device shm`, UCX over POSIX shared memory, two dpdk-testpmd over
memif, TCP and UNIX sockets. Within a process: the mlx5 data path beside libmlx5's own calls, pools and rings beside DPDK's and
Concurrency Kit's. Every round runs each contender once, one after the other, so that what else the machine does falls on all;
figures are medians over the rounds, ratios are medians of the rounds' own ratios. A contender that is not installed is named
and left out. BUILD is a build tree with benchmarks; a release build is the fair one.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from html import escape

CORES = sorted(os.sched_getaffinity(0))
FIRST, LAST = CORES[0], CORES[-1]
BURST = 32


class Failure(Exception):
    """A contender that did not do its run, with its own words."""


def text_of(argv, timeout, **env):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env={**os.environ, **env},
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Failure(f"{argv[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


@contextlib.contextmanager
def running(argv, **env):
    """A process in the background that is ended with the block; its output in a file."""
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **env}) as process:
        process.output = lambda: (out.seek(0), out.read())[1]
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def await_output(process, words, seconds=10):
    end = time.monotonic() + seconds
    while words not in process.output():
        if process.poll() is not None or time.monotonic() > end:
            raise Failure(f"{process.args[0]} did not say '{words}': {process.output().strip()[-300:]}")
        time.sleep(0.02)


def await_listener(process, port, seconds=10):
    """Its output is no help: it is buffered."""
    end = time.monotonic() + seconds
    wanted = re.compile(rf":{port:04X} \S+ 0A ")
    while not any(wanted.search(pathlib.Path("/proc/net", table).read_text("ascii")) for table in ("tcp", "tcp6")):
        if process.poll() is not None or time.monotonic() > end:
            raise Failure(f"{process.args[0]} does not listen: {process.output().strip()[-300:]}")
        time.sleep(0.02)


# ---- contenders: each answers messages a second, or half of a round trip in ns ----

class Verbena:
    name = "Verbena, shm"

    def __init__(self, build):
        self.program = os.path.join(build, "apps", "verbena")

    def available(self):
        return os.access(self.program, os.X_OK) or f"{self.program} is not built"

    def run(self, subcommand, *options):
        address = f"127.0.0.1:{free_port()}"
        device = ["--device", "shm"]
        with running([self.program, subcommand, *device, "--cores", str(FIRST), "--listen", address]) as listener:
            await_output(listener, "listening on")
            return json.loads(text_of([self.program, subcommand, *device, "--cores", str(LAST), "--connect", address,
                                       "--json", "-", *options], 60))

    def rate(self, size, seconds):
        return self.run("msgrate", "--size", str(size), "--post-list", str(BURST), "--duration", str(seconds))["msg_rate"]

    def latency(self, size, seconds):
        return self.run("latency", "--size", str(size), "--duration", str(seconds))["percentiles"]["p50"]


class Ucx:
    """One of ucx_perftest's tests over POSIX shared memory."""

    def __init__(self, api, rate_test, latency_test):
        self.name, self.rate_test, self.latency_test = f"UCX {api}, posix", rate_test, latency_test

    def available(self):
        return bool(shutil.which("ucx_perftest")) or "ucx_perftest is not installed (package ucx-utils)"

    def run(self, test, size, n):
        port = free_port()
        env = {"UCX_TLS": "posix,self"}
        with running(["ucx_perftest", "-c", str(FIRST), "-p", str(port)], **env) as server:
            await_listener(server, port)
            lines = text_of(["ucx_perftest", "127.0.0.1", "-p", str(port), "-t", test, "-s", str(size), "-n", str(n),
                             "-c", str(LAST), "-f"], 120, **env)
        return [float(word) for word in lines.strip().splitlines()[-1].split()]

    def rate(self, size, seconds):
        return self.run(self.rate_test, size, int(seconds * (1e6 if size <= 1024 else 2e5)))[-1]

    def latency(self, size, seconds):
        return self.run(self.latency_test, size, int(seconds * 2e5))[1] * 1000  # the median, us


class Memif:
    """One testpmd sends, the other one receives. Frames have no less than 64 bytes."""
    name = "dpdk-testpmd, memif"
    latency = None

    def available(self):
        return bool(shutil.which("dpdk-testpmd")) or "dpdk-testpmd is not installed (package dpdk-dev)"

    def testpmd(self, path, role, core, *options):
        # The main thread of testpmd only sleeps; the forwarding one has the core.
        return ["dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", f"--file-prefix=bench-{os.getpid()}-{role}",
                "--lcores", f"0@({','.join(map(str, CORES))}),1@{core}",
                f"--vdev=net_memif0,role={role},socket-abstract=no,socket={path},rsize=11,bsize=2048", "--",
                "--auto-start", "--stats-period=1", "--total-num-mbufs=16384", f"--burst={BURST}", *options]

    def rate(self, size, seconds):
        if size > 2048:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "memif")
            with running(self.testpmd(path, "server", FIRST, "--forward-mode=rxonly")) as receiver:
                await_output(receiver, "Port statistics")
                with running(self.testpmd(path, "client", LAST, "--forward-mode=txonly", f"--txpkts={max(size, 64)}")) as sender:
                    await_output(sender, "Port statistics")
                    before = len(receiver.output())
                    time.sleep(seconds + 2.5)
                    rates = re.findall(r"Rx-pps:\s+(\d+)", receiver.output()[before:])
        if not rates or not any(map(int, rates)):
            raise Failure("dpdk-testpmd received nothing over memif")
        return float(max(map(int, rates)))


class Sockets:
    def __init__(self, build, kind, name):
        self.name, self.kind = name, kind
        self.program = os.path.join(build, "test", "bench", "sockets")

    def available(self):
        return os.access(self.program, os.X_OK) or f"{self.program} is not built"

    def rate(self, size, seconds):
        return float(text_of([self.program, self.kind, "rate", str(size), str(seconds)], 60))

    def latency(self, size, seconds):
        return float(text_of([self.program, self.kind, "latency", str(size), str(seconds)], 60))


def contenders(build):
    return [Verbena(build), Ucx("tag", "tag_bw", "tag_lat"), Ucx("am", "ucp_am_bw", "ucp_am_lat"),
            Ucx("stream", "stream_bw", "stream_lat"), Memif(), Sockets(build, "tcp", "TCP, loopback"),
            Sockets(build, "unix", "UNIX stream")]


# ---- rounds ----

def say(text):
    print(text, file=sys.stderr, flush=True)


def compare(act, them, size, args):
    """The figures of each in every round, ours first. One that fails is left out from then on, with its reason."""
    rows = {one.name: [] for one in them if getattr(one, act)}
    for number in range(args.rounds):
        for one in them:
            if one.name not in rows:
                continue
            try:
                value = getattr(one, act)(size, args.seconds)
            except (Failure, subprocess.TimeoutExpired, ValueError, KeyError, IndexError) as reason:
                say(f"{one.name}: left out of {act}, {size} B: {reason}")
                value = None
            if value is None:
                del rows[one.name]
            else:
                rows[one.name].append(value)
                say(f"round {number + 1} of {args.rounds}: {act} {size} B, {one.name}: {value:,.0f}")
    return rows


def summary(rows, ours, higher_is_better):
    """name: (median, median of the rounds' ratios of ours to it, above 1 where ours is better)"""
    result = {}
    for name, values in rows.items():
        ratios = [a / b if higher_is_better else b / a for a, b in zip(rows.get(ours, []), values)]
        result[name] = {"median": statistics.median(values), "low": min(values), "high": max(values),
                        "ours_is_better_by": statistics.median(ratios) if ratios else None}
    return result


def within_process(build):
    """What the other benchmarks print, as they print it: they interleave by themselves."""
    cases = None
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        text_of([os.path.join(build, "test", "bench", "mlx5_datapath"), "--json", file.name], 300)
        cases = json.load(file)["cases"]
    loop = text_of([os.path.join(build, "test", "bench", "loop_bench"), "--rounds", "500"], 300)
    lists = [{"name": name, "instructions": None if count == "-" else float(count), "ns": float(ns)}
             for name, count, ns in re.findall(r"^(\S.*?)\s{2,}([\d.]+|-)\s+([\d.]+) \(", loop, re.MULTILINE)]
    return cases, lists


# ---- what is shown ----

def tables(result):
    """Markdown."""
    yield "Messages between two processes, two cores, bursts of 32: millions a second, and how many times that Verbena carries"
    yield ""
    sizes = list(result["rate"])
    names = list(dict.fromkeys(name for size in sizes for name in result["rate"][size]))
    yield "| | " + " | ".join(f"{size} B" for size in sizes) + " |"
    yield "|---" * (len(sizes) + 1) + "|"
    for name in names:
        yield f"| {name} | " + " | ".join(cell(result["rate"][size].get(name), 1e6) for size in sizes) + " |"
    yield ""
    yield "Half of a round trip, in microseconds, and how many times Verbena's that is"
    yield ""
    yield "| | 64 B |"
    yield "|---|---|"
    for name, one in result["latency"].items():
        yield f"| {name} | {cell(one, 1e3)} |"
    if result.get("datapath"):
        yield ""
        yield "| mlx5 | peer | instructions, ours | theirs | ns, ours | theirs |"
        yield "|---|---|---|---|---|---|"
        for case in result["datapath"]:
            yield (f"| {case['name']} | {case['peer']} | {number(case['ours_instructions'])} | {number(case['peer_instructions'])} | "
                   f"{number(case['ours_ns'])} | {number(case['peer_ns'])} |")
    if result.get("lists"):
        yield ""
        yield "| pools, rings | instructions an item | ns |"
        yield "|---|---|---|"
        for case in result["lists"]:
            yield f"| {case['name']} | {number(case['instructions'])} | {number(case['ns'])} |"


def number(value):
    return "–" if value is None else f"{value:.1f}"


def cell(one, unit):
    if not one:
        return "–"
    ratio = one["ours_is_better_by"]
    return f"{one['median'] / unit:.2f}" + ("" if ratio is None or ratio == 1 else f" (×{ratio:.1f})")


def svg(result):
    """A bar for each contender and size, on one scale of a kind."""
    groups = [(f"million messages a second, {size} B", rows, 1e6) for size, rows in result["rate"].items()]
    groups.append(("half of a round trip in microseconds, 64 B: shorter is better", result["latency"], 1e3))
    lines, y = [], 24
    for title, rows, unit in groups:
        lines.append(f'<text x="8" y="{y}" font-weight="bold">{escape(title)}</text>')
        y += 10
        most = max((one["median"] for one in rows.values()), default=1)
        for name, one in rows.items():
            width = max(1, 420 * one["median"] / most)
            colour = "#2f6f4f" if name == Verbena.name else "#9aa5b1"
            lines.append(f'<text x="170" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
                         f'<rect x="178" y="{y + 1}" width="{width:.1f}" height="15" rx="2" fill="{colour}"/>'
                         f'<text x="{184 + width:.1f}" y="{y + 13}">{one["median"] / unit:.2f}</text>')
            y += 20
        y += 24
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{y}" viewBox="0 0 680 {y}" font-family="sans-serif" '
            f'font-size="12"><rect width="680" height="{y}" fill="white"/>{"".join(lines)}</svg>\n')


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--sizes", default="8,64,8192")
    parser.add_argument("--no-process", action="store_true", help="leave out what is compared within a process")
    parser.add_argument("--json")
    parser.add_argument("--svg")
    args = parser.parse_args()
    them = []
    for one in contenders(args.build):
        why = one.available()
        if why is True:
            them.append(one)
        else:
            say(f"{one.name}: left out: {why}")
    result = {"machine": {"cores": [FIRST, LAST]}, "rounds": args.rounds, "rate": {}}
    for size in map(int, args.sizes.split(",")):
        result["rate"][size] = summary(compare("rate", them, size, args), Verbena.name, True)
    result["latency"] = summary(compare("latency", them, 64, args), Verbena.name, False)
    if not args.no_process:
        result["datapath"], result["lists"] = within_process(args.build)
    print("\n".join(tables(result)))
    if args.json:
        write(args.json, json.dumps(result, indent=1) + "\n")
    if args.svg:
        write(args.svg, svg(result))
    return 0 if result["rate"] and Verbena.name in next(iter(result["rate"].values())) else 1


sys.exit(main())
