#!/usr/bin/env python3
"""datapath_limits.py - runs mlx5_datapath, checks its JSON, and holds it to the limits of instructions per message

The limits are 1.5 times what a prototype with a side table took: 24 to post, 37 to reap and free.
"""
import json
import subprocess
import sys
import tempfile

LIMITS = {"post": 36, "reap": 55}
PEERS = {
    "post": {"ibv_post_send", "ibv_wr"},
    "post_inline": {"ibv_post_send", "ibv_wr"},
    "reap": {"ibv_poll_cq"},
    "receive_refill": {"ibv_poll_cq+ibv_post_recv"},
}
FIGURES = ("ours_instructions", "peer_instructions", "ours_ns", "peer_ns")


def run(program):
    with tempfile.NamedTemporaryFile(mode="r", suffix=".json") as out:
        subprocess.run([program, "--rounds", "200", "--json", out.name], check=True, timeout=240)
        return json.load(out)


def check(cases):
    complaints = []
    found = {name: set() for name in PEERS}
    for case in cases:
        name = case["name"]
        found.setdefault(name, set()).add(case["peer"])
        for figure in FIGURES:
            value = case[figure]
            if not isinstance(value, (int, float)) or value <= 0:
                complaints.append(f"{name}: {figure} is {value}, wanted a number above 0")
        limit = LIMITS.get(name)
        ours = case["ours_instructions"]
        if limit is not None and ours is not None and ours > limit:
            complaints.append(f"{name}: {ours} instructions per message, the limit is {limit}")
    if found != PEERS:
        complaints.append(f"the cases are {found}, wanted {PEERS}")
    return complaints


def main():
    complaints = check(run(sys.argv[1])["cases"])
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


sys.exit(main())
