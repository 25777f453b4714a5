#!/usr/bin/env python3
"""sparse.py - sparse over what a build compiled: usage: sparse.py BUILD FOLDER…

sparse knows that big-endian types (__be32 and its kin) do not mix with numbers: a forgotten conversion is an error here.
Only what it says of types counts: it does not know every builtin and header of a current compiler.
"""
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys

FLAGS = ["-Wno-decl", "-Wno-non-pointer-null", "-D__CHECK_ENDIAN__", "-Wbitwise", "-Wcast-truncate",
         # Builtins that sparse lacks, or has for plain integers alone; in this form the types are still checked.
         "-D__atomic_load_n(from,order)=(*(from))", "-D__atomic_store_n(to,value,order)=((void)(*(to)=(value)))",
         "-D__builtin_ia32_rdtsc()=0ull"]
TYPES = re.compile(r"(warning|error): .*(restricted|incorrect type|different base types|truncates|different address spaces)")


def flags_of(entry):
    """The -I, -isystem, -D, -U and -std of a compiler's command line."""
    words = shlex.split(entry["command"])
    return [word for word in words if word.startswith(("-I", "-D", "-U", "-isystem", "-std"))]


def run(entry):
    command = ["sparse", *FLAGS, *flags_of(entry), entry["file"]]
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, timeout=120, check=False)
    return (done.stdout + done.stderr).splitlines()


def main():
    build, folders = pathlib.Path(sys.argv[1]).resolve(), [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    root = pathlib.Path.cwd()
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if any(folder in path.parents for folder in folders):
            entries[path] = entry
    complaints = set()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for lines in pool.map(run, entries.values()):
            for line in lines:
                name = (build / line.split(":")[0]).resolve()
                if root in name.parents and TYPES.search(line):
                    complaints.add(line)
    print(f"{len(entries)} files")
    for complaint in sorted(complaints):
        print(complaint)
    if not entries:
        print(f"nothing in {build} was compiled from {' '.join(map(str, folders))}")
    return 1 if complaints or not entries else 0


sys.exit(main())
