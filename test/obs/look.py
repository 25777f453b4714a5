"""look.py - starting a process to look at, and talking to its telemetry socket"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SUBJECT, VERBENA = os.environ.get("SUBJECT", ""), os.environ.get("VERBENA", "verbena")
PATIENCE = 60


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.02)
    return found


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.settimeout(PATIENCE)
        self.greeting = json.loads(self.socket.recv(1024))

    def hear(self):
        return json.loads(self.socket.recv(self.greeting["max_output_len"]))

    def ask(self, request):
        self.socket.send(request if isinstance(request, bytes) else request.encode())
        return self.hear()

    def value(self, request):
        return self.ask(request)[request.split(",")[0]]

    def close(self):
        self.socket.close()


class LookTest(unittest.TestCase):
    """Each test has a runtime directory of its own, and processes that end with it."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="verbena-obs-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("VHCA_")}
        self.env["RUNTIME_DIRECTORY"] = self.directory

    def path(self, instance=0, prefix="verbena"):
        return f"{self.directory}/dpdk/{prefix}/dpdk_telemetry.v2" + (f":{instance}" if instance else "")

    def sockets(self, prefix="verbena"):
        directory = os.path.dirname(self.path(prefix=prefix))
        return sorted(os.listdir(directory)) if os.path.isdir(directory) else []

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def start(self, *args, ready=True):
        process = subprocess.Popen([SUBJECT, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self.env)
        self.addCleanup(self.end, process)
        if ready and process.stdout.readline() != "ready\n":
            raise AssertionError(f"the subject did not start: {process.communicate()}")
        return process

    def finish(self, process):
        """Its standard input ends; what it left on standard error."""
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, err)
        return err


def main():
    unittest.main(argv=[sys.argv[0]], verbosity=1, warnings="ignore")  # clients close with their test
