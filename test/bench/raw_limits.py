#!/usr/bin/env python3
"""raw_limits.py - runs raw_datapath, checks its JSON, and holds it to the limits of instructions per packet"""
import json
import subprocess
import sys
import tempfile

CASES = {("send", "ibv_post_send"): 0.25, ("send_single", "ibv_post_send"): 0.25,
         ("receive_refill", "ibv_poll_cq+ibv_post_wq_recv"): 0.25}
# Each technique at most this share of doing without it. Compression and striding spare PCIe, not instructions: they must not cost much.
TECHNIQUES = {"multi_packet": 1.0, "tx_checksum": 0.5, "cqe_compression": 1.4, "striding": 1.5, "striding+cqe_compression": 1.6}
MACSWAP = 120


def run(program):
    with tempfile.NamedTemporaryFile(mode="r", suffix=".json") as out:
        subprocess.run([program, "--rounds", "100", "--json", out.name], check=True, timeout=240)
        return json.load(out)


def too_many(what, ours, other, limit):
    if not ours or not other or ours <= 0 or other <= 0:
        return [f"{what}: {ours} and {other} instructions, wanted numbers above 0"]
    if ours > limit * other:
        return [f"{what}: {ours} instructions per packet, {ours / other:.2f} of {other}: the limit is {limit}"]
    return []


def check(report):
    complaints = []
    cases = {(case["name"], case["peer"]): case for case in report["cases"]}
    techniques = {technique["name"]: technique for technique in report["techniques"]}
    for key, limit in CASES.items():
        complaints += too_many(key[0], cases[key]["ours_instructions"], cases[key]["peer_instructions"], limit)
    for name, limit in TECHNIQUES.items():
        complaints += too_many(name, techniques[name]["on_instructions"], techniques[name]["off_instructions"], limit)
    complaints += too_many("macswap", report["macswap"]["ours_instructions"], 1, MACSWAP)
    return complaints


def main():
    complaints = check(run(sys.argv[1]))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
