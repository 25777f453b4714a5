#!/usr/bin/env python3
"""drop_test.py - two processes over UDP while the kernel's packet filter drops packets between them

Usage: drop_test.py VHCA_WIRE_TEST

wire_test's all_operations is the traffic: every operation in mixed sizes, each byte, the order and the effect of each
atomic checked. It runs in a network namespace that lives as long as this process: nothing needs to be undone. Exits
with 77 where such a namespace or nftables cannot be had.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77
ROCE_PORT = 4791
PATIENCE_S = 130

RANDOM_MESSAGES = 200_000
OPCODE_MESSAGES = 40_000
EACH = 97  # of an opcode's packets one is dropped

# RC's opcodes, the first byte of the base transport header, in the order of the architecture's table from 0.
OPCODES = ("SEND first", "SEND middle", "SEND last", "SEND last with immediate", "SEND only",
           "SEND only with immediate", "WRITE first", "WRITE middle", "WRITE last", "WRITE last with immediate",
           "WRITE only", "WRITE only with immediate", "READ request", "READ response first", "READ response middle",
           "READ response last", "READ response only", "ACK", "ATOMIC ACK", "CMP_SWAP", "FETCH_ADD")

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG = 1


def skip(reason):
    print(f"SKIP vhca_drop: {reason}")
    sys.exit(SKIPPED)


def run_command(*command, text=None):
    """What it printed, or an exception that has what it complained of."""
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise OSError(f"\"{' '.join(command)}\" ended with {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def own_network():
    """Puts this process into a network namespace of its own, in which it may do all."""
    user, group = os.getuid(), os.getgid()
    if LIBC.unshare(CLONE_NEWNET | (CLONE_NEWUSER if user else 0)):
        raise OSError(f"a network namespace cannot be made here: {os.strerror(ctypes.get_errno())}")
    if user:
        for name, text in ("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1"):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def drop_rule(match, which):
    """Of the packets that match, some; the first counter has all that match, the second those that were dropped."""
    return f"udp dport {ROCE_PORT} {match} counter {which} counter drop"


def random_rule():
    return drop_rule("", "numgen random mod 100 < 1")


def opcode_rules():
    """One for each opcode; the last counts packets whose opcode this test does not know."""
    return [*(drop_rule(f"@th,64,8 {opcode:#04x}", f"numgen inc mod {EACH} 0") for opcode in range(len(OPCODES))),
            f"udp dport {ROCE_PORT} @th,64,8 >= {len(OPCODES):#04x} counter"]


def install(rules):
    """In front of the sockets: a drop on the way out would be an error of the sender's call."""
    lines = "".join(f"\t\t{rule}\n" for rule in rules)
    run_command("nft", "-f", "-", text="flush ruleset\ntable inet lossy {\n\tchain arriving {\n"
                "\t\ttype filter hook prerouting priority 0;\n" + lines + "\t}\n}\n")


def counters():
    """Of each rule in turn, the packets that each of its counters has."""
    listed = json.loads(run_command("nft", "-j", "list", "ruleset"))["nftables"]
    return [[part["counter"]["packets"] for part in entry["rule"]["expr"] if "counter" in part]
            for entry in listed if "rule" in entry]


def end_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def exchange(program, n_messages):
    """'' or what went wrong. The program ends with this process, and its two sides with it."""
    start = time.monotonic()
    environment = dict(os.environ, VHCA_TEST_MESSAGES=str(n_messages))
    with subprocess.Popen([program, "all_operations"], env=environment, preexec_fn=end_with_parent,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        try:
            said = process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return f"still running after {PATIENCE_S} s\n{process.communicate()[0]}"
    print(f"{n_messages} messages in {time.monotonic() - start:.1f} s")
    return "" if process.returncode == 0 else f"the program ended with {process.returncode}\n{said}"


def drop_at_random(program):
    """One packet of a hundred, whichever."""
    install([random_rule()])
    wrong = exchange(program, RANDOM_MESSAGES)
    seen, dropped = counters()[0]
    print(f"{dropped} of {seen} packets dropped at random")
    if wrong:
        return wrong
    if seen < RANDOM_MESSAGES or not 0.008 < dropped / seen < 0.012:
        return f"{dropped} of {seen} packets dropped where one in a hundred, of {RANDOM_MESSAGES} at least, was due"
    return ""


def drop_each_opcode(program):
    """Some packets of each opcode."""
    install(opcode_rules())
    wrong = exchange(program, OPCODE_MESSAGES)
    *known, (unknown,) = counters()
    for opcode, (seen, dropped) in enumerate(known):
        print(f"{dropped:6} of {seen:6} dropped: 0x{opcode:02x} {OPCODES[opcode]}")
    if wrong:
        return wrong
    missed = [name for name, (_, dropped) in zip(OPCODES, known) if not dropped]
    if missed:
        return f"none was dropped of: {', '.join(missed)}"
    if unknown:
        return f"{unknown} packets had an opcode that is none of the {len(OPCODES)} above"
    return ""


def main():
    if len(sys.argv) != 2 or not os.path.exists(sys.argv[1]):
        sys.exit("drop_test: name the program that makes the traffic, vhca_wire_test of this build")
    for tool in ("ip", "nft"):
        if not shutil.which(tool):
            skip(f"there is no {tool}: install iproute2 and nftables")
    try:
        own_network()
        # What a sender leaves to the kernel to cut is cut ahead of the filter, so that it sees each packet.
        run_command("ip", "link", "set", "lo", "up", "gso_max_segs", "1")
        install([random_rule(), *opcode_rules()])
        counters()
    except OSError as error:
        skip(error)
    n_failed = 0
    for test in (drop_at_random, drop_each_opcode):
        wrong = test(os.path.realpath(sys.argv[1]))
        print(f"FAILED: {test.__name__}: {wrong}" if wrong else f"ok: {test.__name__}", flush=True)
        n_failed += bool(wrong)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
