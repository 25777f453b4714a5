#!/usr/bin/env python3
"""programs_test.py - Debian's own RDMA programs on the emulated device, unmodified, between two processes

Usage: programs_test.py LIBVERBENA-VHCA.SO [PATTERN ...]

Each program runs twice, as server and as client, with a device each on the wire of RoCEv2 packets over UDP, or, of raw
Ethernet, on a packet socket each; both must end well. PATTERN (a regular expression) picks some. Prints what ran, and exits with 77 where nothing could.
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

GID_INDEX = "3"  # RoCE v2, the port's address
PATIENCE_S = 60
FIRST_PORT = 21000


def pingpongs():
    """ibv_*_pingpong with what its options ask of a device."""
    common = [[], ["-e"], ["-s", "1"], ["-s", "1024"], ["-n", "1500", "-s", "64"]]
    connected = common + [["-s", "65536"], ["-m", "256"], ["-m", "4096", "-s", "100000"], ["-r", "10"]]
    rc = connected + [["-c"], ["-c", "-e"], ["-t"], ["-N"], ["-N", "-c", "-s", "30000"], ["-o", "-c"], ["-O", "-c"],
                      ["-o", "-P"]]
    for transport, variants in (("rc", rc), ("uc", connected), ("ud", common + [["-r", "10"]]),
                                ("srq", connected + [["-q", "1"], ["-q", "30", "-r", "100"]])):
        for options in variants:
            if transport == "srq" and options == ["-r", "10"]:
                options = ["-r", "40"]  # it wants two for each of its QPs
            iterations = [] if "-n" in options else ["-n", "300"]
            port = ["VHCA_MTU=4096"] if "4096" in options else []  # none takes a path MTU above the port's
            yield [*port, f"ibv_{transport}_pingpong", "-g", GID_INDEX, *iterations, *options]


def perftests():
    """perftest's matrix: operation by transport, bandwidth and latency, by how completions and posts are made."""
    operations = {"send": ("RC", "UC", "UD"), "write": ("RC", "UC"), "read": ("RC",), "atomic": ("RC",)}
    for operation, transports in operations.items():
        for transport in transports:
            base = ["-F", "-x", GID_INDEX, "-c", transport] if operation in ("send", "write") else \
                ["-F", "-x", GID_INDEX]
            size = [] if operation == "atomic" else ["-s", "1000"]
            bandwidth = [f"ib_{operation}_bw", *base, "-n", "1000"]
            latency = [f"ib_{operation}_lat", *base, "-n", "500"]
            yield bandwidth + size
            yield bandwidth + size + ["-b"]
            yield bandwidth + size + ["-q", "16"]
            yield bandwidth + size + ["-Q", "16", "-t", "64"]
            yield [f"ib_{operation}_bw", *base, *size, "-n", "1024", "-l", "16", "-t", "64"]
            yield latency + size
            if operation != "write":
                yield latency + size + ["-e"]
            if operation in ("send", "write"):
                yield bandwidth + ["-s", "64", "-I", "64"]
                yield latency + ["-s", "64", "-I", "64"]
            if operation != "atomic":
                yield [f"ib_{operation}_bw", *base, "-n", "50", "-a"]
            if operation == "send":
                yield [f"ib_{operation}_lat", *base, "-n", "20", "-a"]
            if operation != "atomic" and transport != "UD":
                yield [f"ib_{operation}_bw", *base, "-n", "20", "-s", "1048576"]
            if operation == "send":
                yield bandwidth + size + ["-e"]
            if operation == "send" and transport == "RC":
                yield bandwidth + size + ["--use-srq"]
                yield bandwidth + size + ["--use-srq", "-q", "4"]
            if operation in ("read", "atomic"):
                yield bandwidth + size + ["-o", "1"]
                yield bandwidth + size + ["-o", "16"]


def lossy():
    """A wire that loses packets. A read of more than 64 packets goes out as several requests; one repeated from its middle
    once asked for more than the responder knew of, was dropped as from nowhere, and the read never ended."""
    for operation in ("read", "write", "send"):
        yield ["VHCA_FAULT=loss=0.01", f"ib_{operation}_bw", "-F", "-x", GID_INDEX, "-n", "20", "-s", "1048576", "-u", "14"]


def ucx():
    """ucx_perftest over each transport: UCX's mlx5 ones write WQEs and read CQEs themselves."""
    ucp = ("tag_lat", "tag_bw", "stream_lat", "stream_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_add",
           "ucp_fadd", "ucp_swap", "ucp_cswap")
    uct = {"rc": ("am_lat", "am_bw", "put_lat", "put_bw", "get", "fadd", "cswap"), "ud": ("am_lat", "am_bw")}
    for transport in ("rc", "ud"):
        for kind in ("verbs", "mlx5"):
            layers = f"rc_{kind},ud_{kind}" if transport == "rc" else f"ud_{kind}"
            common = [f"UCX_IB_GID_INDEX={GID_INDEX}", "UCX_NET_DEVICES=mlx5_0:1", f"UCX_TLS={layers}", "ucx_perftest"]
            for test in ucp:
                for size in ("8",) if "add" in test or "swap" in test else ("8", "1024", "100000"):
                    yield [*common, "-t", test, "-s", size, "-n", "200", "-w", "5"]
            for test in uct[transport]:
                data = ["-D", "bcopy"] if test == "get" else []
                yield [*common, "-d", "mlx5_0:1", "-x", f"{transport}_{kind}", "-t", test, *data, "-s", "8",
                       "-n", "500", "-w", "5"]


SERVER_MAC, CLIENT_MAC = "02:00:0a:09:00:01", "02:00:0a:09:00:02"


def raw_ethernet():
    """perftest's raw Ethernet, which has no connection but the wire."""
    udp = ["-J", "10.9.0.1", "-j", "10.9.0.2", "-K", "7000", "-k", "7001"]
    for options in (["-s", "64"], ["-s", "1500"], ["-s", "256", *udp], ["-s", "256", *udp, "--tcp"],
                    ["-s", "512", "--promiscuous"]):
        yield ["raw_ethernet_bw", "-D", "1", *options]
    yield ["raw_ethernet_lat", "-n", "200", "-s", "64"]
    yield ["raw_ethernet_lat", "-n", "200", "-s", "1000", *udp]


def program_of(command):
    """The environment is in front, as in a shell."""
    return next(word for word in command if "=" not in word)


def listens(port):
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[3] == "0A" and fields[1].endswith(f":{port:04X}"):
                    return True
    return False


def free_port(port):
    while True:
        port += 1
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue


def end(process):
    if process.poll() is None:
        process.kill()
    return process.communicate()[0]


def run_pair(library, command, port):
    """'' or what went wrong."""
    at = command.index(program_of(command))
    environment = dict(os.environ, LD_PRELOAD=library, **dict(word.split("=", 1) for word in command[:at]))
    command = [*command[at:], "-p", str(port)]

    def start(*more):
        return subprocess.Popen([*command, *more], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace")

    server = start()
    deadline = time.monotonic() + PATIENCE_S
    while server.poll() is None and not listens(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    client = start("127.0.0.1")
    late = False
    for process in (client, server):
        try:
            process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
    said = f"server:\n{end(server)}client:\n{end(client)}"
    if late:
        return f"still running after {PATIENCE_S} s\n{said}"
    if client.returncode or server.returncode:
        return f"the client ended with {client.returncode}, the server with {server.returncode}\n{said}"
    return ""


def in_own_network(script, *arguments):
    """A shell's script, in a network namespace with the two ends of a wire, near and far."""
    wire = "ip link set lo up && ip link add near type veth peer name far && ip link set near up && ip link set far up"
    return subprocess.Popen(["unshare", "-n", "sh", "-c", f"{wire} && {script}", "sh", *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace")


def have_networks():
    return shutil.which("unshare") and not end_well(in_own_network("true"))


def end_well(process):
    try:
        said = process.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return "still running\n" + process.communicate()[0]
    return "" if not process.returncode else f"ended with {process.returncode}\n{said}"


def run_raw(library, command):
    """The server is asked for when its queue receives, which its trace tells; what is lost before or meanwhile is
    lost, as on a network, so that a latency test may want another try."""
    with tempfile.TemporaryDirectory() as work:
        script = """
trace=$1 library=$2; shift 2
VHCA_TRACE=$trace VHCA_WIRE=packet:near VHCA_ADDRESS=10.9.0.1 LD_PRELOAD=$library timeout 20 "$@" \
  --server -d mlx5_0 -B %s -E %s & server=$!
n=0
while ! grep -q "to state 2" "$trace" 2>/dev/null && [ $n -lt 400 ]; do n=$((n + 1)); sleep 0.05; done
sleep 0.5
VHCA_WIRE=packet:far VHCA_ADDRESS=10.9.0.2 LD_PRELOAD=$library timeout 20 "$@" \
  --client -d mlx5_0 -B %s -E %s || exit
wait $server
""" % (SERVER_MAC, CLIENT_MAC, CLIENT_MAC, SERVER_MAC)
        return end_well(in_own_network(script, os.path.join(work, "trace"), library, *command))


def run(library, command, port):
    if not program_of(command).startswith("raw_"):
        return run_pair(library, command, port)
    wrong = "not tried"
    for _ in range(3):
        wrong = wrong and run_raw(library, command)
    return wrong


def main():
    library = os.path.realpath(sys.argv[1])
    patterns = [re.compile(pattern) for pattern in sys.argv[2:]]
    if not os.path.exists(library):
        sys.exit(f"programs_test: no library \"{library}\": give the path of libverbena-vhca.so")
    raw = raw_ethernet() if have_networks() else []
    commands = [command for command in [*pingpongs(), *perftests(), *lossy(), *ucx(), *raw]
                if all(pattern.search(" ".join(command)) for pattern in patterns)]
    missing = sorted({name for name in map(program_of, commands) if not shutil.which(name)})
    port, passed, failed = FIRST_PORT, 0, []
    for command in commands:
        if program_of(command) in missing:
            continue
        port = free_port(port)
        start = time.monotonic()
        wrong = run(library, command, port)
        text = " ".join(command)
        print(f"{'FAILED' if wrong else 'ok':6} {time.monotonic() - start:6.2f} s  {text}", flush=True)
        if wrong:
            failed.append(text)
            print(wrong, flush=True)
        passed += not wrong
    for name in missing:
        print(f"not installed: {name}")
    print(f"programs_test: {passed} of {passed + len(failed)} passed")
    for text in failed:
        print(f"failed: {text}")
    if not passed and not failed:
        print("programs_test: skipped: install ibverbs-utils, perftest and ucx-utils")
        sys.exit(77)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
