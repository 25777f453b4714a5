#!/usr/bin/env python3
"""vhca_test.py - running commands on the emulator: their status, the preload, and where a preload is refused"""
import json
import os
import shutil
import signal
import subprocess
import time

from command import CANNOT, DONE, USAGE, VERBENA, CommandTest, main, run, tempfile, verbena

# Programs of others may leak what they like.
os.environ["ASAN_OPTIONS"] = "detect_leaks=0"

STATIC = "int main(void) { return 0; }\n"


def preload_of(*options, **env):
    """LD_PRELOAD as the command sees it."""
    answer = verbena("vhca", *options, "--", "sh", "-c", "echo $LD_PRELOAD", **env)
    return answer.out.strip().split(":")


def library_of(program, name):
    """The path of the first library with this name in it that the program is linked with; "" where there is none."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return next((line.split()[2] for line in listed.splitlines() if name in line and "=>" in line), "")


class Status(CommandTest):
    def test_given_through(self):
        for status in (0, 1, 7, 255):
            self.status(verbena("vhca", "--", "sh", "-c", f"exit {status}"), status)

    def test_signal(self):
        self.status(verbena("vhca", "--", "sh", "-c", "kill -KILL $$"), 128 + 9)

    def test_streams(self):
        answer = verbena("vhca", "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((answer.out, answer.err), ("out\n", "err\n"))

    def test_arguments(self):
        answer = verbena("vhca", "--", "printf", "%s,", "--help", "--", "a b")
        self.assertEqual(answer.out, "--help,--,a b,")

    def test_not_found(self):
        for name in ("no-such-command", "/no/such/command", "/etc/passwd/command"):
            answer = verbena("vhca", "--", name)
            self.status(answer, 127)
            self.sentence(answer, name)

    def test_empty_name(self):
        answer = verbena("vhca", "--", "")
        self.status(answer, 127)
        self.sentence(answer, '""', "not empty")

    def test_not_executable(self):
        for name in ("/etc/passwd", "/etc"):
            answer = verbena("vhca", "--", name)
            self.status(answer, 126)
            self.sentence(answer, name)

    def test_script_without_interpreter_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script")
            with open(path, "w", encoding="utf-8") as file:
                file.write("exit 5\n")
            os.chmod(path, 0o755)
            self.status(verbena("vhca", "--", path), 5)


class Preload(CommandTest):
    def test_first_and_the_rest_left(self):
        """The emulator goes before what was there, and behind a sanitizer's runtime, which must stay first."""
        libc = library_of("/bin/sh", "libc.so")
        sanitizer = library_of(VERBENA, "san.so")
        entries = preload_of(LD_PRELOAD=":".join([sanitizer, libc] if "asan" in sanitizer else [libc]))
        if "asan" in sanitizer:
            self.assertEqual(entries.pop(0), sanitizer)
        self.assertEqual(len(entries), 2, entries)
        self.assertTrue(entries[0].endswith("/libverbena-vhca.so"), entries)
        self.assertEqual(entries[1], libc)

    def test_nested(self):
        """Given the command on the emulator, when it runs itself, then the emulator is there once."""
        answer = verbena("vhca", "--", VERBENA, "vhca", "--", "sh", "-c", "echo $LD_PRELOAD")
        self.status(answer, DONE)
        self.assertEqual(answer.out.count("libverbena-vhca.so"), 1, answer)

    def test_never_loops(self):
        """Given --device vhca on the emulator, then it is the one that is there."""
        answer = verbena("vhca", "--devices", "2", "--", VERBENA, "msgrate", "--device", "vhca", "--iters", "100")
        self.status(answer, DONE)

    def test_options_are_variables(self):
        answer = verbena("vhca", "--devices", "3", "--mtu", "512", "--node", "-1", "--seed", "7", "--strict", "error", "--fault",
                         "msg-drop=5,msg-alter=6", "--trap", "--devx", "--idle", "nap", "--", "env", VHCA_SEED="3", VHCA_PROFILE="connectx4lx",
                         VHCA_TRAP="0")
        for line in ("VHCA_DEVICES=3", "VHCA_MTU=512", "VHCA_NODE=-1", "VHCA_SEED=7", "VHCA_STRICT=error",
                     "VHCA_FAULT=msg-drop=5,msg-alter=6", "VHCA_PROFILE=connectx4lx", "VHCA_TRAP=1", "VHCA_DEVX=1", "VHCA_IDLE=nap"):
            self.assertIn(line, answer.out.splitlines())
        self.assertNotIn("VERBENA_", answer.out)

    def test_syndrome_in_hexadecimal(self):
        """With 0x before it, too."""
        self.status(verbena("vhca", "--fault", "syndrome=0x04@500", "--", "true"), DONE)

    def test_bad_variables(self):
        """A variable that is wrong is told as the option is that it mirrors; where the option is given it does not matter."""
        for name, text in (("VHCA_DEVICES", "17"), ("VHCA_MTU", "1024,1500"), ("VHCA_NODE", "x"), ("VHCA_PROFILE", "connectx9"),
                           ("VHCA_STRICT", "very"), ("VHCA_SEED", "-1"), ("VHCA_ADDRESS", "here"), ("VHCA_WIRE", "string"),
                           ("VHCA_SPEED", "7"), ("VHCA_FAULT", "msg-drop=0"), ("VHCA_TRAP", "yes"), ("VHCA_DEVX", "on"), ("VHCA_IDLE", "sleep")):
            answer = verbena("vhca", "--", "true", **{name: text})
            self.status(answer, 2)
            self.sentence(answer, name + " in the environment")
        self.status(verbena("vhca", "--mtu", "512", "--", "true", VHCA_MTU="1500"), DONE)
        self.status(verbena("vhca", "--", "true", VHCA_MTU=""), DONE)
        answer = verbena("vhca", "--", "env", VHCA_TRAP="0")
        self.assertIn("VHCA_TRAP=0", answer.out.splitlines())

    def test_unknown_variable(self):
        """Most likely a slip of the pen: it is told, and does no harm."""
        answer = verbena("vhca", "--", "true", VHCA_MUT="1024")
        self.status(answer, DONE)
        self.sentence(answer, "VHCA_MUT", "no effect")

    def test_devinfo(self):
        answer = verbena("vhca", "--", "ibv_devinfo", "-v")
        self.status(answer, DONE)
        for word in ("mlx5_0", "PORT_ACTIVE", "RoCE v2"):
            self.assertIn(word, answer.out)


class Values(CommandTest):
    """Values that make no sense are refused before anything runs; those of each device are lists."""

    def test_a_value_for_each_device(self):
        answer = verbena("vhca", "--devices", "3", "--mtu", "1024,4096", "--profile", "connectx5,connectx4lx",
                         "--speed", "50,10", "--", "ibv_devinfo", "-v")
        self.status(answer, DONE)
        found = [line.split()[-1].strip("()") for line in answer.out.splitlines() if "active_mtu" in line]
        self.assertEqual(found, ["3", "5", "5"])
        found = [line.split()[-1] for line in answer.out.splitlines() if "vendor_part_id" in line]
        self.assertEqual(found, ["4119", "4117", "4117"])

    def test_refused(self):
        for option, value, word in (
                ("--mtu", "1000", "1024"), ("--mtu", "1024,", "1024"), ("--mtu", ",".join(["256"] * 17), "17 values"),
                ("--node", "1024", "1023"), ("--node", "x", "1023"), ("--profile", "connectx6", "connectx5"),
                ("--speed", "100,200", "200"), ("--wire", "string", "loopback"), ("--wire", "tap:", "tap:INTERFACE"),
                ("--fault", "loss=2", "loss=2"), ("--fault", "port-flap=soon", "port-flap=soon"),
                ("--fault", "msg-drop=1,torm", "torm"), ("--address", "here", "IPv4"),
                ("--fault", "msg-drop", "the number of a SEND"), ("--fault", "torn=1", "no value"), ("--fault", "msg-dropped=1", "no such"),
                ("--fault", "delay=999ns", "from 1us"), ("--fault", "port-flap=0.1us", "from 1us"), ("--fault", "delay=1000001", "million"),
                ("--seed", "9" * 23, "too large"), ("--seed", "-" + "9" * 23, "too small"),
                ("--wire", "packet:" + "x" * 16, "at most 15"), ("--mtu", "256,512", "1 device"),
                ("--address", "255.255.255.255", "no host"), ("--address", "224.0.0.1", "no host"), ("--address", "0.0.0.0", "no host"),
                ("--address", "ff02::1", "no host"), ("--address", "::", "no host")):
            with self.subTest(option=option, value=value):
                answer = verbena("vhca", option, value, "--", "echo", "ran")
                self.status(answer, USAGE)
                self.sentence(answer, option, word)
                self.assertEqual(answer.out, "")

    def test_faults_are_the_emulators(self):
        """Times under a millisecond and long lists were good for the command; the emulator ignored them, with a warning, and the
        program ran without its fault."""
        for faults in ("delay=1us,delay-cqe=100us", "port-flap=999999s,device-fatal=999999", "torn,loss=0.0,reorder=1",
                       ",".join(f"msg-drop={i}" for i in range(1000000, 1000100))):
            answer = verbena("vhca", "--fault", faults, "--", "ibv_devinfo")
            self.status(answer, DONE)
            self.assertEqual(answer.err, "")

    def test_a_file_that_cannot_be(self):
        for option in ("--trace", "--pcap"):
            answer = verbena("vhca", option, "/no/such/folder/file", "--", "true")
            self.status(answer, CANNOT)
            self.sentence(answer, "/no/such/folder/file")


class Trace(CommandTest):
    def test_a_long_name(self):
        """One beyond 255 characters began empty, and stayed so."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, *["x" * 100] * 3, "trace")
            os.makedirs(os.path.dirname(path))
            answer = verbena("vhca", "--trace", path, "--", "ibv_devinfo")
            self.status(answer, DONE)
            self.assertEqual(answer.err, "")
            self.assertGreater(os.path.getsize(path), 0)

    def test_lines_of_one_run(self):
        """Given an older trace, when a command runs elsewhere, then the file has its lines and no others."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace")
            for _ in range(2):
                answer = verbena("vhca", "--trace", path, "--", "sh", "-c", "cd / && ibv_devinfo -v")
                self.status(answer, DONE)
                with open(path, encoding="utf-8") as file:
                    lines = file.read().splitlines()
                self.assertEqual(sum(" method GET_CONTEXT: ok" in line for line in lines), 1, lines)
                self.assertTrue(all(" mlx5_0 " in line for line in lines), lines)


class Capture(CommandTest):
    def test_packets_of_two_processes(self):
        """Given two processes on a wire, when they exchange messages, then each capture has all packets, none malformed."""
        if not shutil.which("tshark") or not shutil.which("ibv_rc_pingpong"):
            print("SKIP vhca_capture: tshark or ibv_rc_pingpong is not installed")
            return
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("server", "client")]
            addresses = [f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}.{i}" for i in (1, 2)]
            command = ["ibv_rc_pingpong", "-g", "3", "-n", "10", "-s", "3000", "-p", str(20000 + os.getpid() % 10000)]
            options = [["vhca", "--wire", "udp", "--address", address, "--pcap", path, "--", *command]
                       for address, path in zip(addresses, paths)]
            with subprocess.Popen([VERBENA, *options[0]], stdout=subprocess.DEVNULL) as server:
                try:
                    answer = self.until_done(*options[1], "127.0.0.1")
                    self.status(answer, DONE)
                    self.assertEqual(server.wait(30), 0)
                finally:
                    server.kill()
            for path in paths:
                shown = subprocess.run(["tshark", "-n", "--disable-protocol", "rpcordma", "-r", path, "-T", "fields",
                                        "-e", "infiniband.bth.opcode", "-e", "frame.packet_flags_direction", "-e", "_ws.malformed"],
                                       capture_output=True, text=True, check=True).stdout.splitlines()
                packets = [line.split("\t") for line in shown]
                self.assertFalse([packet for packet in packets if packet[2:] != [""]], packets)
                opcodes = [int(packet[0], 0) for packet in packets]
                # 20 messages, each of a first, a middle and a last packet of 1024 bytes at most
                self.assertGreaterEqual(min(opcodes.count(0), opcodes.count(1), opcodes.count(2)), 20, opcodes)
                self.assertGreater(opcodes.count(17), 0)
                self.assertEqual({int(packet[1], 0) for packet in packets}, {1, 2})

    def until_done(self, *args):
        """The server may not listen yet."""
        for _ in range(50):
            answer = verbena(*args)
            if answer.status == DONE:
                break
            time.sleep(0.1)
        return answer

    def test_the_loopback_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "capture")
            answer = verbena("vhca", "--wire", "loopback", "--pcap", path, "--", "ibv_devinfo")
            self.status(answer, DONE)
            self.assertIn("no packets", answer.err)


class ShowStatus(CommandTest):
    def test_a_process_and_its_devices(self):
        """Given a program with a device open, when it is asked, then it tells; when it is killed, nothing is left."""
        program = subprocess.Popen([VERBENA, "vhca", "--devices", "2", "--", "ibv_asyncwatch"], stdout=subprocess.PIPE)
        try:
            program.stdout.readline()  # it has opened its device
            answer = verbena("vhca", "status", "--json", "-")
            self.status(answer, DONE)
            mine = [found for found in json.loads(answer.out)["processes"] if found["pid"] == program.pid]
            self.assertEqual(len(mine), 1, answer.out)
            self.assertIn("ibv_asyncwatch", mine[0]["command"])
            device = mine[0]["devices"][0]
            self.assertEqual((device["name"], device["state"], device["mtu"], device["contexts"]),
                             ("mlx5_0", "ACTIVE", 1024, 1))
            self.assertEqual([gid["type"] for gid in device["gids"]], ["v1", "v2", "v1", "v2"])
            self.assertEqual(mine[0]["devices"][1]["contexts"], 0)
            self.assertIn("port_xmit_data", device["counters"])
            answer = verbena("vhca", "status")
            self.status(answer, DONE)
            self.assertIn(f"process {program.pid}: ibv_asyncwatch", answer.out)
            self.assertIn("mlx5_1 connectx5 on ", answer.out)
        finally:
            program.kill()
            program.wait()
            program.stdout.close()
        answer = verbena("vhca", "status", "--json", "-")
        self.status(answer, DONE)
        self.assertNotIn(program.pid, [found["pid"] for found in json.loads(answer.out)["processes"]])

    def test_a_process_that_is_stopped(self):
        """It was left out: "no process of yours has an emulated device open"."""
        with subprocess.Popen([VERBENA, "vhca", "--", "ibv_asyncwatch"], stdout=subprocess.PIPE) as program:
            try:
                program.stdout.readline()
                program.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, program.pid, os.WSTOPPED)
                answer = verbena("vhca", "status", "--json", "/dev/fd/2")
                self.status(answer, DONE)
                self.assertIn(f"process {program.pid} does not answer", answer.out)
                self.assertNotIn("no process of yours", answer.out)
                self.assertIn(program.pid, json.loads(answer.err)["silent"])
            finally:
                program.kill()

    def test_how_it_idles(self):
        """What was asked for, what holds, and why that is another: trapped pages are one reason."""
        for options, shown, holds in (((), ("idle: doze", "idle: nap, not doze: userfaultfd "), None),
                                      (("--idle", "nap"), ("idle: nap",), {"asked": "nap", "is": "nap", "dozes": 0}),
                                      (("--trap",), ("idle: nap, not doze: UAR pages are trapped",),
                                       {"asked": "doze", "is": "nap", "dozes": 0, "why": "UAR pages are trapped"})):
            with subprocess.Popen([VERBENA, "vhca", *options, "--", "ibv_asyncwatch"], stdout=subprocess.PIPE) as program:
                try:
                    program.stdout.readline()
                    answer = verbena("vhca", "status", "--json", "-")
                    found = next(found for found in json.loads(answer.out)["processes"] if found["pid"] == program.pid)
                    text = verbena("vhca", "status").out
                finally:
                    program.kill()
            if holds:
                self.assertEqual(found["idle"], holds)
            section = text[text.index(f"process {program.pid}: "):]
            line = next(line for line in section.splitlines() if line.startswith("  idle: ")).strip()
            self.assertTrue(line.startswith(shown), line)

    def test_other_users(self):
        """Given a process of root, when another user asks, then it is counted and not shown; nor does it answer by itself."""
        if os.geteuid() != 0:
            print("SKIP vhca_status_users: only root can be two users")
            return
        with subprocess.Popen([VERBENA, "vhca", "--", "ibv_asyncwatch"], stdout=subprocess.PIPE) as program:
            try:
                program.stdout.readline()
                shown = subprocess.run([VERBENA, "vhca", "status"], user=65534, group=65534, extra_groups=[],
                                       capture_output=True, text=True, check=False)
                if shown.returncode in (126, 127) or "cannot open shared object" in shown.stderr:
                    print("SKIP vhca_status_users: the command is in a folder that other users cannot read")
                    return
                self.assertEqual(shown.returncode, 0, shown)
                self.assertNotIn(f"process {program.pid}", shown.stdout)
                self.assertRegex(shown.stdout, r"\d+ of other users are not shown")
                asked = subprocess.run(["python3", "-c", "import socket, sys; s = socket.socket(socket.AF_UNIX);"
                                        f"s.connect('\\0verbena-vhca/{program.pid}');"
                                        "print(s.recv(4096).decode())"],
                                       user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False)
                self.assertIn("belongs to another user", asked.stdout + asked.stderr)
            finally:
                program.kill()

    def test_usage(self):
        answer = verbena("vhca", "status", "--devices", "2")
        self.status(answer, USAGE)
        self.sentence(answer, "--devices")


class Refused(CommandTest):
    """Where the dynamic linker would leave the preload out without a word, there is a sentence instead."""

    def refused(self, path, word):
        answer = verbena("vhca", "--", path)
        self.status(answer, 126)
        self.sentence(answer, path, word)

    def build(self, folder, *flags):
        path = os.path.join(folder, "program")
        source = path + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write(STATIC)
        subprocess.run(["cc", *flags, "-o", path, source], check=True)
        return path

    def test_static(self):
        with tempfile.TemporaryDirectory() as folder:
            for flag in ("-static", "-static-pie"):
                self.refused(self.build(folder, flag), "static")
            script = os.path.join(folder, "script")
            with open(script, "w", encoding="utf-8") as file:
                file.write(f"#!{folder}/program\n")
            os.chmod(script, 0o755)
            answer = verbena("vhca", "--", script)
            self.status(answer, 126)
            self.sentence(answer, "static")

    def test_dynamic(self):
        with tempfile.TemporaryDirectory() as folder:
            self.status(verbena("vhca", "--", self.build(folder)), DONE)

    def test_set_id(self):
        """Of another user: the kernel then starts it in secure mode."""
        if os.geteuid() != 0:
            print("SKIP vhca_set_id: only root can give a file to another user")
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            shutil.copy("/bin/true", path)
            os.chown(path, 65534, 65534)
            os.chmod(path, 0o4755)
            self.refused(path, "set-id")
            os.chmod(path, 0o2755)
            self.refused(path, "set-id")
            os.chmod(path, 0o755)
            self.status(verbena("vhca", "--", path), DONE)

    def test_sanitizer(self):
        """A program with ASan's runtime gets it ahead of the emulator."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.build(folder, "-fsanitize=address")
            answer = verbena("vhca", "--", path)
            self.status(answer, DONE)
            self.assertIn("libasan", answer.err)

    def test_damaged(self):
        """Given a file that says it is a program and is cut at any place, then there is a status, not a crash."""
        with open("/bin/true", "rb") as file:
            whole = file.read()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            for size in (4, 5, 16, 20, 63, 64, 65, 100, 600, 1000, 5000, len(whole) // 2):
                with open(path, "wb") as file:
                    file.write(whole[:size])
                os.chmod(path, 0o755)
                answer = run([VERBENA, "vhca", "--", path])
                self.assertNotIn(answer.status, (0, -11, 128 + 6), answer)
                if size >= 16:
                    self.status(answer, 126)
                    self.sentence(answer, "cut short")


if __name__ == "__main__":
    main()
