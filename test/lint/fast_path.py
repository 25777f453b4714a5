#!/usr/bin/env python3
"""fast_path.py - what the data path's machine code must not contain: usage: fast_path.py libverbena.a

Every function of the data path of the drivers mlx5 and shm lies in the section .text.fast. In there: no locked or exchanging instruction, no full fence,
no serialising instruction, no system call, and no call to libibverbs, libmlx5, an allocator, a lock or a log. And so that none is
forgotten: what such a function of these drivers calls of the library lies there, too, or is marked cold (a failure, a NOP).
"""
import platform
import re
import subprocess
import sys

SECTION = ".text.fast"
COLD = ".text.unlikely"
DRIVERS = ("drv_mlx5_", "drv_shm_")  # what the names of their objects begin with
# What a call may not reach. The verbs that are inline functions of verbs.h do not show here; test/apps makes those abort.
CALLS = re.compile(r"^(ibv_|mlx5dv_|pthread_|malloc|calloc|realloc|free|mmap|syscall|.*printf|vbn__log|vbn__fail|f?puts|fwrite)")
# sfence is a store fence for write-combining memory, and allowed.
INSTRUCTIONS = re.compile(r"^(lock\b|mfence|cpuid|xacquire|xrelease|syscall|sysenter|int\b|serialize)")


def exchanges_memory(instruction):
    """xchg with memory locks the bus with no prefix said; `xchg %ax,%ax` is a no-op."""
    return instruction.startswith("xchg") and "(" in instruction


def disassemble(archive):
    command = ["objdump", "--disassemble", "--reloc", "--no-show-raw-insn", f"--section={SECTION}", archive]
    # One member without the section makes objdump complain, and exit with 1: what counts is what it prints.
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def sections(archive):
    """The section of each function of the library."""
    command = ["objdump", "--syms", archive]
    found = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines():
        if symbol := re.match(r"^[0-9a-f]+ .{6}F (\S+)\s+[0-9a-f]+ (?:\.hidden )?(\S+)$", line):
            found[symbol[2]] = symbol[1]
    return found


def strays(function, target, where):
    """Of the driver's: a call that leaves the section for a function that is not cold."""
    section = target if target.startswith(".text") else where.get(target, "")
    if section.startswith(".text") and not section.startswith((SECTION, COLD)):
        return [f"{function} calls {target}, which is in {section}: mark it fast_path, or cold if it is"]
    return []


def main():
    if platform.machine() != "x86_64":
        print(f"SKIP fast_path: the rules are written for x86_64, this is {platform.machine()}")
        return 77
    where = sections(sys.argv[1])
    member, function, functions, faults = "", None, [], []
    for line in disassemble(sys.argv[1]):
        if object_file := re.match(r"^(?:.*/)?(\S+\.o):\s+file format", line):
            member = object_file[1]
        elif header := re.match(r"^[0-9a-f]+ <(.+)>:$", line):
            function = header[1]
            functions.append(function)
        elif reloc := re.match(r"^\s+[0-9a-f]+: R_X86_64_\S+\s+(\S+)", line):
            target = re.sub(r"[-+]0x[0-9a-f]+$", "", reloc[1])
            if CALLS.match(target):
                faults.append(f"{function} refers to {target}")
            if member.startswith(DRIVERS):
                faults += strays(function, target, where)
        elif instruction := re.match(r"^\s+[0-9a-f]+:\s+(.+)$", line):
            text = instruction[1].strip()
            if INSTRUCTIONS.match(text) or exchanges_memory(text):
                faults.append(f"{function} has `{text}`")
    print(f"{len(functions)} functions in {SECTION}: {' '.join(functions)}")
    if not functions:
        faults.append(f"no function is in {SECTION}: the data path has lost its mark, or {sys.argv[1]} is not the library")
    if not where:
        faults.append(f"{sys.argv[1]} has no symbols")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
