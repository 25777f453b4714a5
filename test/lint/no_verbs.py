#!/usr/bin/env python3
"""no_verbs.py - the data path runs with every posting and polling verb made to abort:
no_verbs.py VERBENA FORBID_VERBS.so RAW_PACKET_TEST

Given a library that makes ibv_post_*, ibv_poll_cq, ibv_start_poll and ibv_wr_* abort, a verified run delivers all its messages,
and the tests of raw Ethernet pass, striding and not; and a program of libibverbs' own that posts by verbs does abort, so the
library does what it says.
"""
import os
import re
import subprocess
import sys


def run(guard, *command, **more):
    environment = dict(os.environ, LD_PRELOAD=guard, **more)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    print(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-2000:]}")
    return done


def main(verbena, guard, raw):
    complaints = []
    for op in ("send", "write"):
        done = run(guard, verbena, "msgrate", "--duration", "300ms", "--verify", "--op", op)
        guarded = re.findall(r"forbid_verbs guarded (\d+)", done.stderr)
        if done.returncode:
            complaints.append(f"{op}: exit status {done.returncode}, wanted 0")
        if not any(int(number) for number in guarded):
            complaints.append(f"{op}: no context was guarded")
    for striding in {}, {"RAW_STRIDING": "1"}:
        done = run(guard, raw, VHCA_DEVICES="2", VHCA_WIRE="loopback", **striding)
        if done.returncode or not re.search(r"forbid_verbs guarded [1-9]", done.stderr):
            complaints.append(f"raw Ethernet {striding}: exit status {done.returncode}, wanted 0 and a guard")
    done = run(guard, verbena, "vhca", "--", "timeout", "10", "ibv_rc_pingpong", "-g", "0")
    if "forbidden: ibv_post_recv" not in done.stderr:
        complaints.append("ibv_rc_pingpong posted and was not stopped: the guard guards nothing")
    print("\n".join(complaints))
    return 1 if complaints else 0


sys.exit(main(*sys.argv[1:]))
