#!/usr/bin/env python3
"""loop_limits.py - runs loop_bench and holds it to its limits of instructions; times are printed and not judged"""
import re
import subprocess
import sys

LIMITS = {
    "buf alloc, 64 at once": 12,
    "buf free, 64 at once": 10,
    "buf free, one at a time": 48,
    "buf free, another worker's": 28,
    "buf comes home": 45,
    "timer start": 120,
    "timer stop": 45,
    "timer dealt out and fired": 170,
    "idle iteration": 160,
    "ring, bursts of 64": 13,
    "ring, one at a time": 45,
}


def main():
    out = subprocess.run([sys.argv[1], "--rounds", "50"], check=True, capture_output=True, text=True, timeout=110).stdout
    print(out)
    counts = dict(re.findall(r"^(\S.*?)\s{2,}([\d.]+)\s", out, re.MULTILINE))
    if not counts:
        print("SKIP loop_limits: no instruction counts without valgrind")
        return 77
    complaints = []
    for name, limit in LIMITS.items():
        if name not in counts:
            complaints.append(f"{name}: not reported")
        elif float(counts[name]) > limit:
            complaints.append(f"{name}: {counts[name]} instructions, the limit is {limit}")
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


sys.exit(main())
