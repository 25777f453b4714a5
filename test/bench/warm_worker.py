#!/usr/bin/env python3
"""warm_worker.py - once warm, a saturated worker makes no system call and takes no page fault: warm_worker.py VERBENA [OPTIONS]

Given a message-rate run with both ends on one worker, when the worker's thread has used half a second of its core, then the kernel
counts no page fault and no voluntary switch of it in a window, and strace sees no system call of it in the next.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

WORKER = "vbn-w0"
WARM_SECONDS = 0.5  # of processor time
WINDOW_SECONDS = 0.8
STOPPED = 130  # the exit status of a run that a signal ended
TICKS = 100  # of /proc's stat, a second: fixed by Linux's interface to user space

# A thread that does what a worker must not, to see that the check sees it.
SINNER = f"""
import ctypes, mmap, os
ctypes.CDLL(None).prctl(15, b"{WORKER}", 0, 0, 0)
while True:
    os.getppid()
    with mmap.mmap(-1, 1 << 20) as pages:
        pages[4096] = 1
    os.sched_yield()
"""


class Thread:
    """One thread by its folder in /proc."""

    def __init__(self, folder):
        self.folder = folder
        self.tid = folder.name

    def stat(self):
        """The fields of stat(5) from the third one on."""
        return (self.folder / "stat").read_text().rsplit(")", 1)[1].split()

    def cpu_seconds(self):
        fields = self.stat()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def faults(self):
        fields = self.stat()
        return int(fields[7]) + int(fields[9])

    def voluntary_switches(self):
        for line in (self.folder / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1])
        sys.exit("/proc has no voluntary_ctxt_switches")


def wait_for(what, condition, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    sys.exit(f"waited {seconds} s for {what}, and it did not come")


def find_worker(process):
    def look():
        if process.poll() is not None:
            sys.exit(f"the run ended with {process.returncode} before a worker was seen")
        for folder in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
            try:
                if (folder / "comm").read_text().strip() == WORKER:
                    return Thread(folder)
            except OSError:
                continue  # the thread has just ended
        return None

    return wait_for(f"a thread named {WORKER}", look)


def watch_faults(thread):
    """(page faults, voluntary switches) within a window; before anything traces the thread, for attaching stops it once"""
    faults, switches = thread.faults(), thread.voluntary_switches()
    time.sleep(WINDOW_SECONDS)
    return thread.faults() - faults, thread.voluntary_switches() - switches


def watch_calls(thread):
    """system calls within a window"""
    with tempfile.NamedTemporaryFile(mode="r") as trace, tempfile.NamedTemporaryFile(mode="r") as words:
        with open(words.name, "w") as errors:
            strace = subprocess.Popen(["strace", "-o", trace.name, "-p", thread.tid], stderr=errors)
        wait_for("strace to attach", lambda: "attached" in words.read() or strace.poll() is not None)
        if strace.poll() is not None:
            words.seek(0)
            print(f"SKIP warm-worker: strace may not attach here: {words.read().strip()}")
            sys.exit(77)
        time.sleep(WINDOW_SECONDS)
        strace.terminate()
        strace.wait(10)
        return [line for line in trace.read().splitlines() if "(" in line]


def watch_warm(process):
    thread = find_worker(process)
    wait_for("the thread to be warm", lambda: thread.cpu_seconds() >= WARM_SECONDS)
    faults, switches = watch_faults(thread)
    return watch_calls(thread), faults, switches


def check_the_check():
    process = subprocess.Popen([sys.executable, "-c", SINNER])
    try:
        calls, faults, _ = watch_warm(process)
    finally:
        process.kill()
        process.wait()
    if not calls or not faults:
        sys.exit(f"the check is blind: it saw {len(calls)} calls and {faults} faults of a thread that does both")
    print(f"of a thread that does both, the check saw {len(calls)} calls and {faults} faults")


def check_worker(verbena, *options):
    command = [verbena, "msgrate", "--one-worker", "--duration", "60", "--json", "-", *options]
    # A worker that others keep from its core for long finds the emulator asleep, and wakes it by a page fault.
    env = {**os.environ, "VHCA_IDLE": "nap"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        calls, faults, switches = watch_warm(process)
        process.send_signal(signal.SIGINT)  # it has been seen for long enough
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    run = json.loads(out)
    print(f"{run['messages']} messages; in the window: {len(calls)} system calls, {faults} page faults, "
          f"{switches} voluntary switches")
    for call in calls[:20]:
        print(call)
    return process.returncode == STOPPED and run["messages"] > 0 and run["lost"] == 0 and not (calls or faults or switches)


check_the_check()
sys.exit(0 if check_worker(*sys.argv[1:]) else 1)
