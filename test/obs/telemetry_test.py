#!/usr/bin/env python3
"""telemetry_test.py - the socket by DPDK's own client, its place, and clients that mean no good"""
import json
import os
import shutil
import socket
import stat
import subprocess

from look import PATIENCE, Client, LookTest, main, wait_for

KINDS = "channel channels control exchange pool port queue srq subject telemetry worker".split()
COMMANDS = sorted(["/", "/help", "/info", "/subject/echo"] +
                  [f"/verbena/{kind}/{verb}" for kind in KINDS for verb in ("all", "info", "list", "stats")])
WORKER_STATS = ("iterations idle_iterations busy_cycles total_cycles timers_fired posts_sent posts_run posts_waited "
                "bufs_sent_home bufs_came_home bufs_waited sleeps messages bytes").split()
QUEUE_INFO = "id name worker port transport tx_depth rx_depth".split()


class Protocol(LookTest):
    def dpdk(self, *args, say=""):
        client = shutil.which("dpdk-telemetry.py")
        if not client:
            print("SKIP telemetry_dpdk: dpdk-telemetry.py (package dpdk-dev) is not installed")
            self.skipTest("no dpdk-telemetry.py")
        done = subprocess.run(["/usr/bin/python3", client, *args], input=say, capture_output=True, text=True,
                              timeout=PATIENCE, env=self.env, check=False)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_dpdk_client(self):
        """Given DPDK's client, each command gets what it should, one line of JSON each."""
        process = self.start()
        asked = ["/", "/info", "/help,/verbena/worker/list", "/verbena/worker/list", "/verbena/worker/info,0",
                 "/verbena/worker/stats,0", "/verbena/queue/all", "/verbena/port/info,mlx5_0", "/verbena/pool/all",
                 "/subject/echo,four", "/verbena/subject/stats,it", "/ethdev/list", "/verbena/queue/stats,4294967295"]
        lines = self.dpdk("-f", "verbena", say="\n".join(asked) + "\n").splitlines()
        self.assertEqual(len(lines), len(asked), lines)
        answers = [json.loads(line) for line in lines]
        for request, answer in zip(asked, answers):
            self.assertEqual(next(iter(answer)), request.split(",")[0])
        values = [next(iter(answer.values())) for answer in answers]
        self.assertEqual(values[0], COMMANDS)
        self.assertEqual(values[1], {"version": "Verbena 0.1.0", "pid": process.pid, "max_output_len": 65536})
        self.assertEqual(list(values[2]), ["/verbena/worker/list"])
        self.assertEqual(values[3], [0])
        self.assertEqual((values[4]["id"], values[4]["name"]), (0, "0"))
        self.assertEqual(list(values[5]), WORKER_STATS)
        self.assertEqual([list(queue)[:len(QUEUE_INFO)] for queue in values[6]], [QUEUE_INFO] * 2)
        self.assertEqual([queue["worker"] for queue in values[6]], [0, 0])
        self.assertEqual(values[7]["driver"], "mlx5")
        self.assertTrue(values[8][0]["name"].startswith("o\"d\\d \xff\n"), values[8])
        self.assertEqual((values[8][0]["bufs"], values[9]), (512, {"length": 4}))
        self.assertEqual(list(values[10]), ["turns", "no_help"])
        self.assertEqual(answers[11], {"/ethdev/list": None, "error": answers[11]["error"]})
        self.assertIn("no queue 4294967295", answers[12]["error"])
        self.finish(process)

    def test_dpdk_finds_it(self):
        """Given two processes of one prefix and one of another, DPDK's client lists and reaches each."""
        one, two, other = self.start("alone"), self.start("alone"), self.start("alone", "--vbn-file-prefix=other")
        listed = self.dpdk("-l")
        self.assertIn("verbena\n- dpdk_telemetry.v2  # Connect with", listed)
        self.assertIn("- dpdk_telemetry.v2:1  #", listed)
        self.assertIn("other\n- dpdk_telemetry.v2  #", listed)
        for args, process in ((["-f", "verbena"], one), (["-f", "verbena", "-i", "1"], two), (["-f", "other"], other)):
            self.assertEqual(json.loads(self.dpdk(*args, say="/info\n"))["/info"]["pid"], process.pid)

    def test_counting(self):
        """What is counted grows as messages go, and workers' sums are their queues'."""
        self.start()
        client = Client(self.path())

        def sent():
            queues = client.value("/verbena/queue/all")
            return sum(queue["tx_messages"] for queue in queues), sum(queue["rx_messages"] for queue in queues)
        wait_for("messages", lambda: sent()[1] > 20)
        before = sent()
        worker = client.value("/verbena/worker/stats,0")
        after = sent()
        self.assertTrue(sum(before) <= worker["messages"] <= sum(after), (before, worker, after))
        self.assertEqual(client.value("/verbena/queue/all")[0]["connected"], 1)
        pool = client.value("/verbena/pool/all")[0]
        self.assertLess(pool["free_bufs"], pool["bufs"])


class Objects(LookTest):
    def test_each_by_itself(self):
        """A shared receive ring, what a failed queue died of, channels one by one, the whole pool."""
        process = self.start("more")
        client = Client(self.path())

        srq, channels_srq = client.value("/verbena/srq/all")
        self.assertGreaterEqual(channels_srq["posted"], 64)  # a window, at least
        self.assertEqual((srq["port"], srq["depth"], srq["limit"], srq["queues"]), ("mlx5_0", 64, 16, 1))
        self.assertEqual((srq["no_buf"], srq["limits"]), (0, 0))
        self.assertGreaterEqual(srq["posted"], 16)

        def failed():
            return [queue for queue in client.value("/verbena/queue/all") if queue["failed"]]
        queue = wait_for("a failed queue", lambda: next((queue for queue in failed() if "WQE 0 (RDMA_WRITE" in queue["error"]), None))
        self.assertEqual(client.value(f"/verbena/queue/info,{queue['id']}")["error"], queue["error"])
        self.assertEqual({other["error"] for other in client.value("/verbena/queue/all") if not other["failed"]}, {""})

        def channels():
            return {channel["state"]: channel for channel in
                    (client.value(f"/verbena/channel/info,{number}") | client.value(f"/verbena/channel/stats,{number}")
                     for number in client.value("/verbena/channel/list"))}
        wait_for("channels, and one that failed", lambda: {"open", "failed"} == set(channels()))
        self.assertEqual(len(client.value("/verbena/channel/list")), 3)
        good, bad = channels()["open"], channels()["failed"]
        self.assertEqual((good["error"], good["open"], good["tx_messages"]), ("", 1, 0))
        self.assertRegex(good["peer"], r"^127\.0\.0\.1:\d+$")
        self.assertGreater(good["tx_credits"], 0)
        self.assertRegex(bad["error"], r"127\.0\.0\.1:1\b")
        self.assertEqual(bad["group"], client.value("/verbena/channels/all")[0]["name"])

        pool = client.value("/verbena/pool/all")[0]
        for key in ("zone", "page_bytes", "zone_bytes", "footprint_bytes", "buf_bytes", "headroom_bytes", "bufs", "free_bufs", "empty"):
            self.assertIn(key, pool)
        self.assertGreaterEqual(pool["footprint_bytes"], pool["bufs"] * pool["buf_bytes"])
        self.finish(process)

    def test_stuck(self):
        """Given a control thread that is kept in a call, then all is answered, and it is told for how long."""
        process = self.start("stuck")
        client = Client(self.path())

        def control():
            return client.value("/verbena/control/all")[0]
        wait_for("a call that lasts", lambda: control()["busy_ms"] >= 100)
        self.assertEqual(control()["waiting"], 1)
        self.assertEqual(len(client.value("/verbena/queue/all")), 2)
        self.finish(process)


class Place(LookTest):
    def pid_at(self, path):
        client = Client(path)
        client.close()
        return client.greeting["pid"]

    def test_only_its_user(self):
        self.start("alone")
        self.assertEqual(stat.S_IMODE(os.stat(self.path()).st_mode), 0o600)
        for directory in (os.path.dirname(self.path()), f"{self.directory}/dpdk"):
            self.assertEqual(stat.S_IMODE(os.stat(directory).st_mode), 0o700)

    def test_left_behind(self):
        """A process that ends leaves nothing, whether it says goodbye or not; a killed one's name is taken over."""
        for mode in ("alone", "abandon"):
            self.finish(self.start(mode))
            self.assertEqual(self.sockets(), [], mode)
        first, second = self.start("alone"), self.start("alone")
        first.kill()
        first.wait()
        self.assertEqual(self.sockets(), ["dpdk_telemetry.v2", "dpdk_telemetry.v2:1"])
        third = self.start("alone")
        self.assertEqual(self.pid_at(self.path()), third.pid)
        self.assertEqual(self.pid_at(self.path(1)), second.pid)
        self.finish(third)
        self.assertEqual(self.sockets(), ["dpdk_telemetry.v2:1"])

    def test_many_at_once(self):
        """Given many that start at once over the remains of killed ones, each has a name of its own."""
        killed = [self.start("alone") for _ in range(3)]
        for process in killed:
            process.kill()
            process.wait()
        started = [self.start("alone", ready=False) for _ in range(8)]
        for process in started:
            self.assertEqual(process.stdout.readline(), "ready\n")
        self.assertEqual(sorted(self.pid_at(self.path(i)) for i in range(8)), sorted(p.pid for p in started))

    def test_none_to_be_had(self):
        """Where there is no place, auto goes without and on says why; off has none."""
        self.env["RUNTIME_DIRECTORY"] = f"{self.directory}/not/there"
        self.assertEqual(self.finish(self.start("alone")), "")
        err = self.finish(self.start("alone", "--vbn-log=info"))
        self.assertIn("telemetry: goes without: ", err)
        self.assertIn("No such file or directory", err)
        insists = self.start("alone", "--vbn-telemetry=on", ready=False)
        err = insists.communicate(timeout=PATIENCE)[1]
        self.assertEqual(insists.returncode, 3, err)
        self.assertRegex(err, r"^verbena: error: telemetry: cannot be had: .*not/there/dpdk cannot be made: .*; set RUNTIME_DIRECTORY")
        self.env["RUNTIME_DIRECTORY"] = self.directory + "/" + "long" * 30
        os.mkdir(self.env["RUNTIME_DIRECTORY"])
        self.assertIn("too long", self.finish(self.start("alone", "--vbn-log=info")))
        self.env["RUNTIME_DIRECTORY"] = self.directory
        self.finish(self.start("alone", "--vbn-telemetry=off"))
        self.assertEqual(self.sockets(), [])


class Hostile(LookTest):
    def setUp(self):
        super().setUp()
        self.process = self.start("alone")

    def tearDown(self):
        """Whatever was done to it: it answers, and ends in order."""
        self.assertEqual(Client(self.path()).value("/verbena/worker/list"), [0])
        self.finish(self.process)

    def test_bytes(self):
        client = Client(self.path())
        for request in (b"\0", b"\xff" * 900, b"," * 500, b"/verbena/queue/stats," + b"9" * 900, b"/" * 1024, b"\n",
                        b"/help," + b"\"" * 900, b"x" * 1025, b"y" * 60000):
            self.assertIn("error", client.ask(request), request[:30])
        self.assertEqual(client.value("/verbena/worker/list"), [0])

    def test_cut_off(self):
        """Clients that leave in the middle of things."""
        for _ in range(50):
            client = Client(self.path())
            client.socket.send(b"/")
            client.close()
        for _ in range(50):
            silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            silent.connect(self.path())
            silent.close()

    def test_never_reading(self):
        """One that asks and never reads is left alone; its answers are there when it does."""
        client, others = Client(self.path()), Client(self.path())
        client.socket.setblocking(False)
        n = 0
        try:
            while n < 100000:
                client.socket.send(b"/")
                n += 1
        except BlockingIOError:
            pass
        self.assertLess(n, 100000)
        for _ in range(20):
            self.assertEqual(others.value("/verbena/worker/list"), [0])
        client.socket.settimeout(PATIENCE)
        for _ in range(n):
            self.assertIn("/info", client.hear()["/"])

    def test_many(self):
        """Where there are too many the one that was silent for longest goes; who asks stays."""
        active = Client(self.path())
        crowd = []
        for _ in range(60):
            crowd.append(Client(self.path()))
            self.assertEqual(active.value("/verbena/worker/list"), [0])
        telemetry = active.value("/verbena/telemetry/all")[0]
        self.assertEqual(telemetry["clients"], 61)
        self.assertEqual(telemetry["clients_dropped"], 61 - 16)
        self.assertEqual(crowd[0].socket.recv(100), b"")
        self.assertEqual(crowd[-1].value("/verbena/worker/list"), [0])


if __name__ == "__main__":
    main()
