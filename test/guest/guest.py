#!/usr/bin/python3 -B
"""guest.py - boots a Debian kernel under QEMU, with soft-RoCE and soft-iWARP, and runs commands in it

    guest.py [--tap IF] -- COMMAND...     by hand: its output, and its status as ours

The guest sees the host's files, read-only: what it writes is forgotten. An emulated CPU is many times slower than the host's:
build on the host, and time nothing in the guest.
"""
import argparse
import contextlib
import ctypes
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
QEMU = "qemu-system-x86_64"
BOOT_SECONDS = 120

# Nothing a test does not need: each probe of a device that is not there takes an emulated CPU long. Two NUMA nodes with two
# CPUs each; the NIC is behind a PCI host bridge of node 1.
MACHINE = """-nodefaults -no-user-config -display none -no-reboot -smp 4,sockets=2,cores=2 -m 1280
    -object memory-backend-ram,id=memory0,size=640M -numa node,nodeid=0,cpus=0-1,memdev=memory0
    -object memory-backend-ram,id=memory1,size=640M -numa node,nodeid=1,cpus=2-3,memdev=memory1
    -numa dist,src=0,dst=1,val=21
    -accel tcg,thread=multi,tb-size=256 -cpu max -machine q35,usb=off,smbus=off,sata=off,graphics=off,hpet=off,vmport=off
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap
    -device virtio-9p-pci,fsdev=host,mount_tag=host
    -device virtio-serial-pci -device virtserialport,chardev=agent,name=agent
    -device pxb-pcie,id=far,bus=pcie.0,bus_nr=64,numa_node=1 -device pcie-root-port,id=far_slot,bus=far,chassis=1""".split()
KERNEL_LINE = ("console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr audit=0 apparmor=0 random.trust_cpu=on "
               "no_timer_check tsc=reliable cryptomgr.notests")


class Unavailable(Exception):
    """The guest cannot run here; says what to install."""


class Failed(Exception):
    """The guest, or a command in it, did not do what was waited for."""


def prepare():
    """The cache with the kernel, filled where it is empty."""
    if not shutil.which(QEMU):
        raise Unavailable(f"no {QEMU}: install the package qemu-system-x86")
    done = subprocess.run([os.path.join(HERE, "kernel")], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 77:
        raise Unavailable(done.stdout.strip())
    if done.returncode:
        raise Failed(f"{HERE}/kernel ended with status {done.returncode}")
    return done.stdout.strip()


def die_with_parent():
    """A killed test leaves no QEMU behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Job:
    """A command in the guest: what it has said so far, and its status once it has ended."""

    def __init__(self, guest, number, command):
        self.guest, self.number, self.command = guest, number, command
        self.out, self.status, self.show = "", None, False

    def wait(self, seconds=60):
        self.guest.until(lambda: self.status is not None, seconds, self.command)
        return self

    def end(self):
        if self.status is None:
            self.guest.tell(self.number, end=True)
            self.wait(10)

    def __str__(self):
        return f"guest$ {self.command}\nstatus {self.status}\n{self.out}"


class Guest:
    """A booted guest, a context manager. With a TAP it has a NIC with an address, both as `ip address` writes them."""

    def __init__(self, cache, tap=None, address="10.88.0.2/24", pcap=None):
        self.jobs, self.unread = {}, b""
        self.folder = tempfile.TemporaryDirectory(prefix="guest-")
        self.console = os.path.join(self.folder.name, "console")
        self.port, theirs = socket.socketpair()
        command = [QEMU, *MACHINE, "-kernel", f"{cache}/vmlinux", "-initrd", f"{cache}/initrd",
                   "-append", f"{KERNEL_LINE} guest_nic={address}",
                   "-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console",
                   "-chardev", f"socket,id=agent,fd={theirs.fileno()}"]
        command += ["-netdev", f"tap,id=nic,ifname={tap},script=no,downscript=no,vhost=off,vnet_hdr=off" if tap else
                    "user,id=nic,restrict=on", "-device", "virtio-net-pci,netdev=nic,mac=52:54:00:00:00:02,bus=far_slot,romfile="]
        if pcap:
            command += ["-object", f"filter-dump,id=pcap,netdev=nic,file={pcap}"]
        with theirs:
            self.qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                                         preexec_fn=die_with_parent)
        self.jobs[0] = Job(self, 0, "the boot")

    def __enter__(self):
        try:
            self.jobs[0].wait(BOOT_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.qemu.kill()
        self.qemu.wait()
        self.port.close()
        self.folder.cleanup()

    def tell(self, number, **words):
        self.port.sendall(json.dumps({"id": number, **words}).encode() + b"\n")

    def start(self, command, show=False):
        """Starts a shell command in the guest, in the folder we are in."""
        job = Job(self, len(self.jobs), command)
        job.show = show
        self.jobs[job.number] = job
        self.tell(job.number, run=command, **{"in": os.getcwd()})
        return job

    def run(self, command, seconds=60):
        return self.start(command).wait(seconds)

    def until(self, condition, seconds, what):
        """Takes in what the guest says until the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            ready, _, _ = select.select([self.port], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise Failed(f"{what}: not done after {seconds} s\n{self.last_words()}")
            self.listen(what)

    def listen(self, what):
        data = self.port.recv(65536)
        if not data:
            raise Failed(f"{what}: the guest ended\n{self.last_words()}")
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            words = json.loads(line)
            job = self.jobs[words["id"]]
            job.status = words.get("status", job.status)
            job.out += words.get("out", "")
            if job.show:
                print(words.get("out", ""), end="", flush=True)

    def console_lines(self):
        with open(self.console, encoding="utf-8", errors="replace") as file:
            return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", file.read()).splitlines()

    def complaints(self):
        """What the guest's kernel found wrong with itself."""
        return [line for line in self.console_lines()
                if re.search(r"BUG:|WARNING: CPU|Oops|general protection|Kernel panic", line)]

    def last_words(self):
        running = [str(job) for job in self.jobs.values() if job.number and job.status is None]
        return "\n".join([*running, "guest's console:", *self.console_lines()[-30:]])


def main():
    parser = argparse.ArgumentParser(description="Runs a command in a guest with soft-RoCE and soft-iWARP devices.")
    parser.add_argument("--tap", metavar="IF", help="a TAP for the guest's NIC, rxe2 is on it")
    parser.add_argument("--address", metavar="IP/LEN", default="10.88.0.2/24", help="the NIC's (%(default)s)")
    parser.add_argument("--timeout", metavar="S", type=float, default=600)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    try:
        with Guest(prepare(), asked.tap, asked.address) as guest:
            status = guest.start(shlex.join(asked.command), show=True).wait(asked.timeout).status
            for line in guest.complaints():
                print(f"guest's kernel: {line}", file=sys.stderr)
            sys.exit(status if status >= 0 else 128 - status)
    except (Unavailable, Failed) as reason:
        print(f"guest: {reason}", file=sys.stderr)
        sys.exit(77 if isinstance(reason, Unavailable) else 125)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
    sys.exit(130)
