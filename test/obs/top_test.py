#!/usr/bin/env python3
"""top_test.py - verbena top: lines, JSON, and the screen on a terminal of the test's own"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from look import PATIENCE, VERBENA, LookTest, main


def resize(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Screen:
    """A terminal that knows what top writes: a frame from its first line on, and nothing but styles in between."""

    def __init__(self, test, *args, rows=24, columns=80, **env):
        self.master, slave = pty.openpty()
        resize(self.master, rows, columns)
        self.process = subprocess.Popen([VERBENA, "top", *args], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        env={**test.env, "TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
        os.close(slave)
        self.test, self.bytes = test, b""
        test.addCleanup(self.close)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def read(self):
        ready, _, _ = select.select([self.master], [], [], 0.1)
        if not ready:
            return False
        try:
            more = os.read(self.master, 65536)
        except OSError:  # the other side has closed it
            return False
        self.bytes += more
        return bool(more)

    def frames(self):
        """Whole ones, as lists of lines."""
        found = self.bytes.decode(errors="replace").split("\033[H")[1:]
        return [re.sub(r"\033\[[0-9;?]*[a-zA-Z]|\r", "", frame.split("\033[J")[0]).split("\n")
                for frame in found if "\033[J" in frame]

    def wait(self, what, condition):
        """Forgets all frames but the one that has it."""
        end = time.monotonic() + PATIENCE
        while True:
            for frame in self.frames():
                if condition(frame):
                    self.bytes = b""
                    return frame
            if time.monotonic() > end:
                last = "\n".join(self.frames()[-1]) if self.frames() else self.bytes
                self.test.fail(f"{what}: not within {PATIENCE} s; on the screen is\n{last}")
            self.read()

    def shows(self, text):
        return self.wait(text, lambda frame: any(text in line for line in frame))

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self, status):
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        while self.read():
            pass
        self.test.assertEqual(self.process.poll(), status, self.bytes)
        # the cursor is back, and so is what was on the screen before
        self.test.assertIn(b"\033[?25h\033[?1049l", self.bytes)


class Top(LookTest):
    def run_top(self, *args):
        return subprocess.run([VERBENA, "top", *args], capture_output=True, text=True, timeout=PATIENCE, env=self.env,
                              stdin=subprocess.DEVNULL, check=False)

    def test_nobody(self):
        for args in ([], ["--count", "1"], ["--json", "-"], ["--prefix", "no_such"], ["--pid", "1"]):
            done = self.run_top(*args)
            self.assertEqual((done.returncode, done.stdout), (4, ""), done)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for args in (["--count", "0"], ["--interval", "1us"], ["--prefix", "a/b"], ["more"], ["--wat"]):
            self.assertEqual(self.run_top(*args).returncode, 2, args)

    def test_lines(self):
        """Given no terminal, a line for each worker and interval, and 0 at the end."""
        process = self.start()
        other = self.start("alone", "--vbn-file-prefix=other")
        done = self.run_top("--count", "2", "--interval", "100ms")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        head, *lines = done.stdout.splitlines()
        self.assertEqual(head.split()[:5], ["time", "pid", "worker", "core", "busy"])
        self.assertEqual(sorted(int(line.split()[1]) for line in lines), sorted([process.pid, other.pid] * 2))
        only = self.run_top("--count", "1", "--interval", "100ms", "--prefix", "other").stdout.splitlines()
        self.assertEqual([line.split()[1] for line in only[1:]], [str(other.pid)])

    def test_json(self):
        process = self.start()
        done = self.run_top("--json", "-", "--interval", "200ms")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(list(result), ["tool", "version", "processes"])
        [it] = result["processes"]
        self.assertEqual(list(it), "pid name prefix seconds answers workers queues pools ports channels drops control".split())
        self.assertEqual((it["pid"], it["name"], it["prefix"], it["answers"]), (process.pid, "subject", "verbena", True))
        [worker] = it["workers"]
        self.assertTrue(0 <= worker["busy_share"] <= 1 and worker["msg_rate"] > 0, worker)
        self.assertEqual(len(it["queues"]), 2)
        self.assertGreater(sum(queue["tx_rate"] for queue in it["queues"]), 0)
        self.assertEqual(it["ports"][0]["name"], "mlx5_0")
        self.assertEqual(set(it["drops"].values()), {0})
        self.assertEqual(it["control"], {"kept_seconds": 0.0, "waiting": 0})

    def test_a_device_keeps_the_control_thread(self):
        """Lines and the screen say so, and go on."""
        process = self.start("stuck")
        screen = Screen(self, "--interval", "200ms")
        screen.wait("the sentence", lambda lines: f"{process.pid}: a device keeps its control thread" in lines[2])
        done = self.run_top("--count", "1", "--interval", "100ms")
        self.assertRegex(done.stdout, rf"(?m)^# .* {process.pid}: a device keeps its control thread, \d+ s, 1 calls wait$")
        self.assertRegex(done.stdout, rf"(?m)^\S+ +{process.pid} +0 ")

    def test_the_process_ends(self):
        """When what was followed has ended, so does it: 0, or 4 where so many intervals were asked for."""
        for count, status in ((["--count", "1000"], 4), ([], 0)):
            process = self.start("alone")
            top = subprocess.Popen([VERBENA, "top", "--interval", "100ms", *count], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.env, stdin=subprocess.DEVNULL)
            top.stdout.readline()
            self.finish(process)
            top.communicate(timeout=PATIENCE)
            self.assertEqual(top.returncode, status)

    def test_says_who_has_ended(self):
        """A line tells of a process that is gone: it vanished without a word."""
        stays, goes = self.start("alone"), self.start("alone", "--vbn-file-prefix=other")
        top = subprocess.Popen([VERBENA, "top", "--interval", "100ms"], stdout=subprocess.PIPE, text=True, env=self.env,
                               stdin=subprocess.DEVNULL)
        self.addCleanup(self.end, top)
        lines = iter(top.stdout.readline, "")
        next(line for line in lines if f" {goes.pid} " in line)
        self.finish(goes)
        told = next(line for line in lines if "ended" in line)
        self.assertRegex(told, rf"^# \d\d:\d\d:\d\d {goes.pid} has ended$")
        self.assertTrue(next(line for line in lines if f" {stays.pid} " in line))
        top.send_signal(signal.SIGTERM)

    def test_another_takes_its_place(self):
        """Given that the one there is ends and another starts, which gets its socket's name, between two looks, then that one is shown."""
        goes = self.start("alone")
        top = subprocess.Popen([VERBENA, "top", "--interval", "100ms"], stdout=subprocess.PIPE, text=True, env=self.env,
                               stdin=subprocess.DEVNULL)
        self.addCleanup(self.end, top)
        lines = iter(top.stdout.readline, "")
        next(line for line in lines if f" {goes.pid} " in line)
        top.send_signal(signal.SIGSTOP)
        self.finish(goes)
        comes = self.start("alone")
        top.send_signal(signal.SIGCONT)
        self.assertIn(f" {goes.pid} has ended", next(line for line in lines if "ended" in line))
        self.assertTrue(next(line for line in lines if f" {comes.pid} " in line))
        top.send_signal(signal.SIGTERM)

    def test_absent(self):
        """Why a process that was asked for says nothing."""
        off = self.start("alone", "--vbn-telemetry=off")
        gone = subprocess.Popen(["true"])
        gone.wait()
        for pid, word in ((off.pid, "--vbn-telemetry=off"), (gone.pid, "is not there"), (os.getpid(), "uses no Verbena")):
            done = self.run_top("--pid", str(pid))
            self.assertEqual(done.returncode, 4, done)
            self.assertIn(word, done.stderr)

    def test_full(self):
        """What cannot be written is told by the cause that it has: it was Input/output error."""
        self.start("alone")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([VERBENA, "top", "--count", "1", "--interval", "100ms"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=PATIENCE, env=self.env, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("No space left on device", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_background(self):
        """In the background it prints lines, and SIGTERM ends it: it was stopped for good where it set up the terminal."""
        self.start("alone")
        pid, master = pty.fork()
        if not pid:  # the terminal's session: its child in a group of its own has not the terminal
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            top = subprocess.Popen([VERBENA, "top", "--interval", "100ms"], process_group=0, env={**self.env, "TERM": "xterm"})
            signal.sigwait([signal.SIGUSR1])
            top.terminate()
            top.send_signal(signal.SIGCONT)
            os._exit(top.wait() & 255)
        self.addCleanup(os.close, master)
        said, end = b"", time.monotonic() + PATIENCE
        while b"cyc/msg" not in said:
            self.assertLess(time.monotonic(), end, said)
            if select.select([master], [], [], 0.1)[0]:
                said += os.read(master, 4096)
        os.kill(pid, signal.SIGUSR1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, said)
        self.assertNotIn(b"\033", said)

    def test_signal(self):
        self.start("alone")
        for number in (signal.SIGTERM, signal.SIGINT):
            top = subprocess.Popen([VERBENA, "top", "--interval", "30"], stdout=subprocess.PIPE, text=True, env=self.env,
                                   stdin=subprocess.DEVNULL)
            # its connection tells that it runs
            self.wait_for_client(top)
            top.send_signal(number)
            top.communicate(timeout=PATIENCE)
            self.assertEqual(top.returncode, 0)

    def wait_for_client(self, top):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            links = [os.readlink(f"/proc/{top.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{top.pid}/fd")]
            if any(link.startswith("socket:") for link in links):
                return
            time.sleep(0.02)
        self.fail("top connects to nobody")

    def test_screen(self):
        """The screen in 80x24, key by key."""
        one, two = self.start(), self.start("alone", "--vbn-file-prefix=other")
        screen = Screen(self, "--interval", "200ms")
        frame = screen.wait("both workers", lambda lines: str(one.pid) in "".join(lines[4:6]) and str(two.pid) in "".join(lines[4:6]))
        self.assertEqual(len(frame), 24)
        self.assertTrue(all(len(line) <= 80 for line in frame), frame)
        self.assertIn("2 processes", frame[0])
        self.assertRegex(frame[3], r"^WORKER +PID +CORE +BUSY +MSG/Sv +B/S +BURST/S +/BURST +CYC/MSG$")
        self.assertIn("q quit", frame[23])
        screen.wait("a sparkline", lambda lines: re.search("[▁▂▃▄▅▆▇█]", lines[4] + lines[5]))
        screen.press("2")
        frame = screen.wait("queues", lambda lines: lines[3].startswith("QUEUE") and "mlx5_0/" in lines[4])
        self.assertIn(" rc ", frame[4])
        screen.press("n")
        screen.shows("QUEUE^")
        screen.press("r")
        screen.shows("QUEUEv")
        screen.press("3")
        screen.shows("POOL")
        screen.press("\t")
        screen.shows("100.0 G")
        screen.press("1s")
        screen.shows("B/Sv")
        screen.press("n\033[B")  # the second line: its process alone
        screen.shows(f"subject, process {max(one.pid, two.pid)}")
        screen.press("\r")
        screen.wait("one process", lambda lines: f"process {max(one.pid, two.pid)} only" in lines[0] and lines[5].strip() == "")
        screen.press("\r")
        screen.shows("2 processes")
        screen.press("p")
        screen.shows("PAUSED")
        screen.press("p")
        screen.wait("no pause", lambda lines: "PAUSED" not in lines[0])
        screen.press("?")
        screen.shows("follow the process of that line alone")
        screen.press("?")
        screen.shows("WORKER")
        self.finish(two)
        screen.wait("one process", lambda lines: lines[0].rstrip().endswith("1 process"))
        screen.press("q")
        screen.end(0)

    def test_what_failed(self):
        """Channels one by one; of a red line, picked, its error; on a wide terminal beside it, with its program."""
        self.start("more")
        screen = Screen(self, "--interval", "200ms")
        screen.press("5")
        frame = screen.wait("channels", lambda lines: lines[3].startswith("CHANNEL") and any(" open " in line for line in lines))
        self.assertTrue(all(len(line) <= 80 for line in frame), frame)
        screen.wait("one that failed", lambda lines: any(re.search(r"127\.0\.0\.1:1 +failed", line) for line in lines))
        wide = Screen(self, "--interval", "200ms", rows=50, columns=200)
        wide.press("2")
        wide.wait("the error", lambda lines: lines[3].endswith("PROGRAM") and any("subject          queue mlx5_0/" in line for line in lines))
        screen.press("2n")
        for _ in range(2):  # behind the two that work
            screen.press("j")
        screen.wait("the picked one's error", lambda lines: lines[2].startswith(" queue mlx5_0/66 failed"))

    def test_sizes(self):
        """Any size will do, and a change of it is seen at once."""
        self.start()
        screen = Screen(self, "--interval", "200ms")
        screen.shows("WORKER")
        for rows, columns in ((10, 40), (3, 10), (1, 1), (50, 200)):
            resize(screen.master, rows, columns)
            screen.process.send_signal(signal.SIGWINCH)
            frame = screen.wait(f"{rows}x{columns}", lambda lines, r=rows, c=columns: len(lines) <= max(r, 1) and all(len(line) <= c for line in lines))
            self.assertTrue(frame)
        screen.shows("WORKER")
        screen.process.send_signal(signal.SIGTERM)
        screen.end(0)

    def test_waits(self):
        """Given nobody, the screen waits; who comes is seen, without UTF-8 and colours where those are not to be had."""
        screen = Screen(self, "--interval", "200ms", LC_ALL="C", NO_COLOR="1")
        screen.shows("waiting for a process")
        process = self.start()
        screen.shows(str(process.pid))
        screen.wait("a bar", lambda lines: re.search(r"%\s+[.:=+*#@-]+\s", lines[4] if len(lines) > 4 else ""))
        screen.press("x\033[1;5Cq")  # a key and a sequence that it does not know
        screen.end(0)
        self.assertNotIn(b"\033[3", screen.bytes)


if __name__ == "__main__":
    main()
