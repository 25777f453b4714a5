#!/usr/bin/env python3
"""stop_test.py - a run that is stopped by a signal prints what it has, is gone within a second, and leaves nothing behind"""
import os
import signal
import subprocess

from command import DONE, SLOWER, STOPPED, VERBENA, CommandTest, environment, main, read_until, start, strict_json, time, verbena

PLACES = ("/dev/shm", "/dev/hugepages", "/tmp", "/run", "/var/tmp")


def left_behind():
    """What has a name of ours, or lies where only shared memory does."""
    found = set()
    for place in PLACES:
        for name in os.listdir(place) if os.path.isdir(place) else []:
            if place.startswith("/dev") or any(word in name for word in ("verbena", "vhca", "vbn", "uverbs")):
                found.add(os.path.join(place, name))
    return found


def interrupt(process, number):
    """Sends the signal and waits for the end: (status, seconds, standard output, standard error)."""
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30 * SLOWER)
    return process.returncode, time.monotonic() - began, out, err


class Stop(CommandTest):
    def in_time(self, attempt):
        """A loaded machine may be slow once; a command that is slow is so each time. attempt() gives seconds."""
        took = []
        while len(took) < 3 and (not took or took[-1] >= 1 * SLOWER):
            took.append(attempt())
        self.assertLess(took[-1], 1 * SLOWER, f"seconds of each attempt: {took}")

    def stopped(self, number, *args):
        self.in_time(lambda: self.stop_once(number, *args))

    def stop_once(self, number, *args):
        before = left_behind()
        process = start("msgrate", "--duration", "60", "--json", "-", *args)
        read_until(process.stderr, "Gbit/s")
        status, seconds, out, _ = interrupt(process, number)
        self.assertEqual(status, STOPPED)
        result = strict_json(out)
        self.msgrate_keys(result)
        self.assertGreater(result["messages"], 0)
        self.assertTrue(result["stopped"])
        self.assertEqual((result["lost"], result["failed_queues"], result["errors"]), (0, 0, []))
        self.assertIn(result["corrupt"], (0, None))
        self.assertLess(result["seconds"], 30)
        self.assertEqual(left_behind() - before, set())
        return seconds

    def test_interrupt(self):
        self.stopped(signal.SIGINT, "--verify")

    def test_terminate(self):
        self.stopped(signal.SIGTERM)

    def test_many_queues(self):
        self.stopped(signal.SIGINT, "--queues", "16", "--bidirectional", "--verify")

    def test_large_messages(self):
        self.stopped(signal.SIGINT, "--size", "1MiB", "--verify")

    def test_two_workers(self):
        cores = sorted(os.sched_getaffinity(0))[:2]
        self.stopped(signal.SIGINT, "--verify", "--cores", ",".join(map(str, cores)))

    def test_paced(self):
        """With nothing in flight most of the time."""
        self.stopped(signal.SIGINT, "--rate", "100")

    def test_while_warming_up(self):
        """What was done before the window began is what there is to tell."""
        def attempt():
            process = start("msgrate", "--device", "vhca", "--warmup", "60", "--json", "-", "--verify")
            read_until(process.stderr, "requested")
            read_until(process.stderr, "rx_ring")
            status, seconds, out, _ = interrupt(process, signal.SIGINT)
            self.assertEqual(status, STOPPED)
            self.msgrate_keys(strict_json(out))
            return seconds

        self.in_time(attempt)

    def test_while_set_up(self):
        """Stopped before anything was sent: that is the result."""
        process = start("msgrate", "--device", "vhca", "--queues", "4096", "--json", "-")
        read_until(process.stderr, "setting up")
        status, seconds, out, _ = interrupt(process, signal.SIGINT)
        self.assertEqual(status, STOPPED)
        self.assertLess(seconds, 3 * SLOWER)  # thousands of queues are taken down
        result = strict_json(out)
        self.assertEqual((result["sent"], result["lost"], result["stopped"]), (0, 0, True))

    def stop_early(self, delay):
        process = start("msgrate", "--duration", "60", "--json", "-")
        time.sleep(delay * SLOWER)
        status, seconds, _, err = interrupt(process, signal.SIGINT)
        self.assertIn(status, (STOPPED, -signal.SIGINT), err)
        return seconds

    def test_at_once(self):
        """At any moment of its first steps, a signal ends it with the status of a stop or of the signal."""
        for delay in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05):
            self.in_time(lambda delay=delay: self.stop_early(delay))

    def test_ignored(self):
        """Given SIGINT ignored by who started it, as nohup does with SIGHUP, then it stays so."""
        process = subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$@"', "sh", VERBENA, "msgrate", "--device", "vhca", "--duration", "1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        read_until(process.stderr, "rx_ring")
        status, _, out, err = interrupt(process, signal.SIGINT)
        self.assertEqual(status, DONE, err)
        self.assertIn("messages in", out)

    def test_killed(self):
        """Not even a kill leaves anything, and the next run works."""
        before = left_behind()
        process = start("msgrate", "--device", "vhca", "--duration", "60")
        read_until(process.stderr, "Gbit/s")
        process.kill()
        process.communicate(timeout=30)
        self.assertEqual(left_behind() - before, set())
        self.status(verbena("msgrate", "--device", "vhca", "--iters", "1000"), DONE)


if __name__ == "__main__":
    main()
