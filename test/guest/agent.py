"""agent.py - runs in the guest: commands of the host, each by a shell of its own; lines of JSON both ways on a virtio port

From the host: {"id": 1, "run": COMMAND, "in": FOLDER}, {"id": 1, "end": true}. To it: {"id": 1, "out": TEXT} as it comes,
then {"id": 1, "status": N}; first of all {"id": 0, "status": 0}.
"""
import glob
import json
import os
import signal
import subprocess
import threading


def port_named(name):
    for path in glob.glob("/sys/class/virtio-ports/*/name"):
        with open(path, encoding="ascii") as file:
            if file.read().strip() == name:
                return "/dev/" + path.split("/")[-2]
    raise SystemExit(f"no virtio port has the name {name}")


class Agent:
    def __init__(self, port):
        self.port, self.lock, self.running = port, threading.Lock(), {}

    def tell(self, number, **words):
        line = memoryview(json.dumps({"id": number, **words}).encode() + b"\n")
        with self.lock:
            while line:
                line = line[self.port.write(line):]

    def follow(self, number, process):
        for line in process.stdout:
            self.tell(number, out=line)
        self.tell(number, status=process.wait())

    def start(self, number, command, folder):
        process = subprocess.Popen(["/bin/bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, text=True,
                                   errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        self.running[number] = process
        threading.Thread(target=self.follow, args=(number, process), daemon=True).start()

    def serve(self):
        self.tell(0, status=0)
        for line in self.port:
            asked = json.loads(line)
            if "run" in asked:
                self.start(asked["id"], asked["run"], asked["in"])
            elif self.running[asked["id"]].poll() is None:
                os.killpg(self.running[asked["id"]].pid, signal.SIGKILL)


# Unbuffered, so that what is written is on its way. Reading ends when the host closes its side.
with open(port_named("agent"), "r+b", buffering=0) as file:
    Agent(file).serve()
