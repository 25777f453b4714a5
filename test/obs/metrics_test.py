#!/usr/bin/env python3
"""metrics_test.py - OpenMetrics over HTTP, read by Prometheus' own parser"""
import http.client
import re
import socket
import subprocess

from look import PATIENCE, LookTest, main, wait_for

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


class Metrics(LookTest):
    def start_with(self, address, *more):
        """The process, and where it says that it listens."""
        process = self.start(*more, f"--vbn-metrics={address}")
        line = process.stderr.readline()
        if "built without libmicrohttpd" in line or "libmicrohttpd.so" in line:
            print("SKIP metrics: needs libmicrohttpd")
            self.skipTest("no libmicrohttpd")
        found = re.search(r"metrics: at http://(.+):(\d+)/metrics", line)
        self.assertTrue(found, line)
        return process, found[1].strip("[]"), int(found[2])

    def get(self, host, port, path="/metrics", method="GET"):
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        self.addCleanup(connection.close)
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def families(self, text):
        if not text_string_to_metric_families:
            print("SKIP metrics_prometheus: python3-prometheus-client is not installed")
            self.skipTest("no prometheus_client")
        return {family.name: family for family in text_string_to_metric_families(text)}

    def test_prometheus(self):
        process, host, port = self.start_with(":0")
        self.assertEqual(host, "127.0.0.1")

        def received():
            text = self.get(host, port)[1]
            found = re.findall(r"^verbena_queue_rx_messages_total\{.*\} (\d+)$", text, re.M)
            return sum(map(int, found)) > 20
        wait_for("messages", received)
        answer, text = self.get(host, port)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Content-Type"],
                         "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertTrue(text.endswith("\n# EOF\n"))
        families = self.families(text)
        for name, kind, unit in (("verbena_worker_busy_cycles", "counter", "cycles"), ("verbena_queue_tx_bytes", "counter", "bytes"),
                                 ("verbena_pool_free_bufs", "gauge", "bufs"), ("verbena_queue", "info", ""),
                                 ("verbena_port_up", "gauge", ""), ("verbena_worker_messages", "counter", "messages"),
                                 ("verbena_subject_turns", "counter", ""), ("verbena_build", "info", "")):
            self.assertEqual((families[name].type, families[name].unit), (kind, unit), name)
        for family in families.values():
            for sample in family.samples:
                self.assertGreaterEqual(sample.value, 0)
        [pool] = families["verbena_pool_free_bufs"].samples
        self.assertRegex(pool.labels["pool"], r'^o"d\\d \?\n')
        self.assertEqual(len(families["verbena_queue"].samples), 2)
        self.assertEqual({sample.labels["worker"] for sample in families["verbena_queue"].samples}, {"0"})
        # each sample has its family's head, and no family comes twice
        types = re.findall(r"^# TYPE (\S+)", text, re.M)
        self.assertEqual(len(types), len(set(types)))
        again = self.families(self.get(host, port)[1])
        turns = "verbena_subject_turns"
        self.assertGreaterEqual(again[turns].samples[0].value, families[turns].samples[0].value)
        self.finish(process)

    def test_sums_alone(self):
        """Channels are told in sums, and no text that changes is a label."""
        process, host, port = self.start_with(":0", "more")
        families = self.families(self.get(host, port)[1])
        self.assertEqual(families["verbena_channels_opened"].type, "counter")
        self.assertEqual([name for name in families if name.startswith("verbena_channel_")], [])
        self.assertEqual(families["verbena_srq_posted"].type, "gauge")
        for sample in families["verbena_queue"].samples:
            self.assertNotIn("error", sample.labels)
        self.finish(process)

    def test_stuck(self):
        process, host, port = self.start_with(":0", "stuck")
        wait_for("a call that lasts", lambda: self.families(self.get(host, port)[1])["verbena_control_busy_ms"].samples[0].value > 0)
        self.finish(process)

    def test_http(self):
        process, host, port = self.start_with("127.0.0.1:0", "alone")
        for method, path, status in (("GET", "/", 200), ("HEAD", "/metrics", 200), ("GET", "/x", 404),
                                     ("POST", "/metrics", 405), ("DELETE", "/", 405)):
            answer, text = self.get(host, port, path, method)
            self.assertEqual(answer.status, status, (method, path))
            if method == "HEAD":
                self.assertEqual(text, "")
        self.finish(process)

    def test_hostile(self):
        """Clients that send half a request, nonsense, or nothing hold up nobody."""
        process, host, port = self.start_with("127.0.0.1:0", "alone")
        slow = []
        for begin in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n", b"\x16\x03\x01\x00\xff", b"\0" * 500,
                      b"GET /" + b"x" * 60000, b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000):
            client = socket.create_connection((host, port), timeout=PATIENCE)
            self.addCleanup(client.close)
            try:
                client.sendall(begin)
            except ConnectionError:
                pass  # it has seen enough
            slow.append(client)
        for _ in range(5):
            self.assertEqual(self.get(host, port)[0].status, 200)
        self.finish(process)

    def refused(self, address):
        process = self.start("alone", f"--vbn-metrics={address}", ready=False)
        err = process.communicate(timeout=PATIENCE)[1]
        self.assertEqual(process.returncode, 3, err)
        if "libmicrohttpd" in err:
            print("SKIP metrics: needs libmicrohttpd")
            self.skipTest("no libmicrohttpd")
        self.assertEqual(self.sockets(), [])
        return err

    def test_where_it_cannot_listen(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assertRegex(self.refused(f":{port}"), r"cannot be listened on: Address already in use; .*choose another")
        self.assertIn("give an address of this machine's", self.refused("192.0.2.1:9464"))
        for address in ("", "nonsense", "1.2.3.4", "127.0.0.1:", ":65536", ":-1", "[::1:1", "::1:9464", "localhost:1", "a" * 300):
            self.assertIn("not understood", self.refused(address), address)

    def test_one_thread(self):
        """It runs on the telemetry thread: no thread is started for it."""
        process, host, port = self.start_with(":0", "alone")
        self.get(host, port)
        tasks = subprocess.run(["ps", "-L", "-o", "comm=", "-p", str(process.pid)], capture_output=True, text=True, check=True)
        self.assertEqual(sorted(set(tasks.stdout.split()) - {"subject"}), ["vbn-control", "vbn-telemetry"])


if __name__ == "__main__":
    main()
