"""siw.py - tests on soft-iWARP, siw0 with itself: RC alone, connected by rdma_cm

What Verbena does there; a mixin of the guest's tests.
"""
import json
import os

VERBENA = os.environ.get("VERBENA", "verbena")
MESSAGES = os.environ.get("MESSAGES", "message_real_test")
CHANNELS = os.environ.get("CHANNELS", ".")
SMALL = "--device siw0 --tx-depth 16 --rx-depth 16 --warmup 0.02"

# Both ends of a run; the listening one's result, and then the other one's, is the last line of its output.
TWO = f"""
timeout -s KILL 100 {VERBENA} msgrate --device siw0 --listen 127.0.0.1:7471 --json - 2>/run/listener >/run/listened &
listener=$!
timeout -s KILL 90 {VERBENA} msgrate {SMALL} --connect 127.0.0.1:7471 --verify --json /run/connected {{}} || exit 1
wait $listener || {{{{ cat /run/listener; exit 1; }}}}
cat /run/listened /run/connected"""

# A peer that is killed while it receives.
KILLED = f"""
{VERBENA} msgrate --device siw0 --listen 127.0.0.1:7471 >/dev/null 2>&1 &
listener=$!
timeout -s KILL 90 {VERBENA} msgrate {SMALL} --connect 127.0.0.1:7471 --duration 60 >/run/connected 2>&1 &
connected=$!
for try in {{1..400}}; do
    rdma resource show cm_id | grep -q 'CONNECT ps' && break
    sleep 0.05
done
sleep 0.5
kill -KILL $listener
wait $connected
echo status $?
cat /run/connected"""


def documents(text):
    """The JSON objects that are in it, one behind the other."""
    decoder, found = json.JSONDecoder(), []
    at = text.find("{")
    while at >= 0:
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = text.find("{", end)
    return found


class Tests:
    """Mixed into a test of the guest: job(), succeeds() and the assertions are its."""
    job = None

    def results(self, job):
        """Those of its runs: nothing was lost, all was right."""
        self.succeeds(job)
        runs = [run for result in documents(job.out) for run in result.get("runs", [result])]
        for run in runs:
            self.assertGreater(run["messages"], 0, job)
            for what in "lost", "corrupt", "duplicate", "reordered", "failed_queues":
                self.assertFalse(run[what], f"{what} at size {run['size']}\n{job}")
        return runs

    def test_siw_messages(self):
        """Every operation that the device has, and what it has not refused; with a shared ring too; reset and connected again."""
        job = self.job(f"VBN_TEST_DEVICE=siw0 VBN_TEST_MESSAGES=20 {MESSAGES}", 300)
        self.succeeds(job)
        for transport in "rc", "rc with an SRQ":
            self.assertRegex(job.out, f"\n{transport}: 30 combinations", job)

    def test_siw_msgrate(self):
        """Every message checked, at every size."""
        for operation in "send", "write", "read":
            with self.subTest(operation):
                job = self.job(f"{VERBENA} msgrate {SMALL} --op {operation} --size 16-1MiB --iters 20 --verify --json -"
                                       " 2>/run/errors || { cat /run/errors; false; }", 300)
                runs = self.results(job)
                self.assertEqual([run["size"] for run in runs][-1], 1 << 20, job)
                self.assertEqual(runs[0]["driver"], "verbs")

    def test_siw_refused(self):
        """What iWARP has not the command says, and that it cannot run there."""
        for options in "--op send-imm", "--op write-imm", "--op fetch-add", "--op cmp-swap", "--connection ud", "--connection uc":
            with self.subTest(options):
                job = self.job(f"{VERBENA} msgrate {SMALL} {options} --iters 1")
                self.assertEqual(job.status, 3, job)
                self.assertIn("an iWARP one", job.out)

    def test_siw_devices(self):
        """The list says what it has."""
        job = self.job(f"{VERBENA} devices --json -")
        self.succeeds(job)
        siw = next(device for device in json.loads(job.out)["devices"] if device["name"] == "siw0")
        self.assertEqual((siw["link"], siw["capabilities"]), ("iwarp", ["rc", "send", "write", "read"]))

    def test_siw_two_processes(self):
        """Both ways at once, where each tells the other what it has received; and operations that the other does not see."""
        for options in "--bidirectional --queues 2 --iters 100", "--op write --iters 100", "--op read --iters 100":
            with self.subTest(options):
                self.assertEqual(len(self.results(self.job(TWO.format(options), 120))), 2)

    def test_siw_latency(self):
        job = self.job(f"{VERBENA} latency --device siw0 --iters 20 --json -", 60)
        self.results(job)

    def test_siw_peer_killed(self):
        """Then the end that is left says so, and ends."""
        job = self.job(KILLED, 120)
        self.assertRegex(job.out, "status [14]\n", job)
        self.assertRegex(job.out, "connection to .* has ended|connection has ended|is lost|was lost|ended", job)

    def test_siw_channels(self):
        """All that channels do, the death of a peer included."""
        for program in "channel_real_test", "channel_process_real_test":
            with self.subTest(program):
                self.succeeds(self.job(f"CHANNEL_PORT=siw0 CHANNEL_PATIENCE=5 {CHANNELS}/{program}", 300))
