#!/usr/bin/env python3
"""datapath_limits.py - runs mlx5_datapath, checks its JSON, and holds it to the limits of instructions per message

The limits are shares of what libmlx5's own call takes in the same run, so they carry over to another compiler or machine.
"""
import json
import subprocess
import sys
import tempfile

LIMITS = {
    ("post", "ibv_post_send"): 0.20,
    ("post", "ibv_wr"): 0.28,
    ("post_inline", "ibv_wr"): 0.75,
    ("reap", "ibv_poll_cq"): 0.40,
    ("reap_events", "ibv_poll_cq"): 0.60,
    ("receive_refill", "ibv_poll_cq+ibv_post_recv"): 0.30,
}
PEERS = {
    "post": {"ibv_post_send", "ibv_wr"},
    "post_inline": {"ibv_post_send", "ibv_wr"},
    "reap": {"ibv_poll_cq"},
    "reap_events": {"ibv_poll_cq"},
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
        limit = LIMITS.get((name, case["peer"]))
        ours, peer = case["ours_instructions"], case["peer_instructions"]
        if limit is not None and ours and peer and ours > limit * peer:
            complaints.append(f"{name}: {ours} instructions per message, {ours / peer:.2f} of the {peer} that {case['peer']} takes: "
                              f"the limit is {limit}")
    if found != PEERS:
        complaints.append(f"the cases are {found}, wanted {PEERS}")
    return complaints


def main():
    complaints = check(run(sys.argv[1])["cases"])
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
