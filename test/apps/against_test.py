#!/usr/bin/env python3
"""against_test.py - verbena pktgen against verbena fwd and echo, over AF_XDP on a veth, a TAP device, and two emulated ConnectX: all that
goes comes back, or is a drop by name on one side"""
import signal
import subprocess
import time

from command import DONE, LOST, SLOWER, STOPPED, VERBENA, CommandTest, main, start, strict_json
from packets import accounted, ended, ip, own_network, started, verbena

MAC = "02:00:00:00:05:02"
ROUTER = ["--ip", "10.5.0.1/24", "--route", "10.8.0.0/16 via 10.5.0.9"]
HOST = ["--ip", "10.5.0.1/24", "--ip", "fd05::1/64"]


def vhca(wire):
    return ["vhca", "--wire", "packet:" + wire, "--", VERBENA]


class Against(CommandTest):
    @classmethod
    def setUpClass(cls):
        ip("link", "add", "here", "type", "veth", "peer", "name", "there", "address", MAC)
        for name in "here", "there":
            ip("link", "set", name, "up")

    def generate(self, device, args, count=300, before=()):
        """(the JSON of a generator's run, its sentences); of `before` what it is run by."""
        answer = verbena(*before, "pktgen", "--device", device, "--count", str(count), "--rate", "20kpps", "--size", "imix", "--verify",
                         "--json", "-", *args)
        self.assertIn(answer.status, (DONE, LOST), answer)
        result = strict_json(answer.out)
        self.assertEqual(answer.status, LOST if result["lost"] else DONE, answer)
        self.assertTrue(result["accounted"])
        return result

    def all_come_back(self, *args, **more):
        """A machine that is busy may lose some on the way, which is told: then once more."""
        for _ in range(5):
            result = self.generate(*args, **more)
            if not result["lost"]:
                break
        self.assertEqual((result["lost"], result["returned"]), (0, result["sent"] - result["neighbours"]["sent"]), result)
        times = list(result["percentiles"].values())
        self.assertTrue(0 < times[0] and times == sorted(times), times)

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        status, out, err = ended(process)
        self.assertEqual(status, DONE, err)
        return strict_json(out)

    def forwarded(self, mode, here, there, args=(), own=(), before=((), ())):
        process = started(*before[1], "fwd", mode, "--device", there, *own, "--json", "-")
        self.all_come_back(here, args, before=before[0])
        result = self.stop(process)
        self.assertGreaterEqual(result["sent"], 300)
        accounted(self, result)

    def test_veth(self):
        """AF_XDP on both ends of a veth pair, of each mode."""
        self.forwarded("io", "xdp:here", "xdp:there")
        self.forwarded("mac", "xdp:here", "xdp:there", ["--protocol", "tcp-syn"], ["--eth-peer", "02:00:00:00:00:77"])
        self.forwarded("macswap", "xdp:here", "xdp:there", ["--protocol", "ethernet"])

    def test_router(self):
        """l3: the route leads back to the generator, which is asked for its MAC."""
        process = started("fwd", "l3", "--device", "xdp:there", *ROUTER, "--json", "-")
        args = ["--src-ip", "10.5.0.9", "--dst-ip", "10.8.0.1-10.8.0.200", "--dst-mac", MAC]
        self.generate("xdp:here", args, count=3)
        self.all_come_back("xdp:here", args)
        result = self.stop(process)
        self.assertTrue(result["accounted"])
        self.assertGreaterEqual(result["fates"]["forwarded"], 300)

    def test_tap(self):
        """A TAP device on one end, AF_XDP on the kernel's of it."""
        ip("tuntap", "add", "dev", "tap5", "mode", "tap", "multi_queue")
        ip("link", "set", "tap5", "up")
        self.forwarded("macswap", "xdp:tap5", "tap:tap5")

    def test_emulated(self):
        """Two emulated ConnectX, each of a process of its own, on the ends of the veth pair."""
        self.forwarded("macswap", "mlx5_0", "mlx5_0", before=(vhca("here"), vhca("there")))

    def test_echo(self):
        """UDP and ping of both versions come back; where nobody listens they do not, and are a drop by name over there."""
        process = started("echo", "--device", "xdp:there", *HOST, "--json", "-")
        for version in ["--src-ip", "10.5.0.9", "--dst-ip", "10.5.0.1"], ["--src-ip", "fd05::9", "--dst-ip", "fd05::1"]:
            self.all_come_back("xdp:here", version + ["--resolve", "--dport", "7", "--flows", "9"])
            self.all_come_back("xdp:here", version + ["--resolve", "--protocol", "icmp"])
        result = self.generate("xdp:here", version + ["--resolve", "--dport", "9"], count=40)
        self.assertEqual((result["lost"], result["returned"]), (40, 0))
        result = self.stop(process)
        self.assertTrue(result["accounted"])
        self.assertEqual(result["received"], sum(result["fates"].values()) + sum(
            n for name, n in result["drops"].items() if not name.startswith("tx_")), result)
        self.assertGreaterEqual(result["drops"]["no_port"], 1)
        self.assertGreaterEqual(result["replied"], 600)


    def test_stopped(self):
        """Whenever a signal comes, a command ends soon, and the interface is as it was."""
        commands = (["pktgen", "--device", "xdp:here", "--duration", "60"],
                    ["fwd", "macswap", "--device", "xdp:here", "--device", "tap:brief", "--rx-depth", "4096", "--tx-depth", "4096"])
        for command in commands:
            for delay in 0.02, 0.1, 0.3:
                took = []
                # A loaded machine may be slow once; a command that is slow is so each time.
                while len(took) < 3 and (not took or took[-1] > 2 * SLOWER):
                    process = start(*command)
                    time.sleep(delay * SLOWER)
                    began = time.monotonic()
                    process.send_signal(signal.SIGTERM)
                    status, _, err = ended(process)
                    took.append(time.monotonic() - began)
                    self.assertIn(status, (DONE, STOPPED, -signal.SIGTERM), err)
                self.assertLess(took[-1], 2 * SLOWER, (command, delay, took))
                shown = subprocess.run(["ip", "-d", "link", "show"], capture_output=True, text=True, check=True).stdout
                self.assertNotIn("xdp", shown)
                self.assertNotIn("PROMISC", shown)
                self.assertNotIn("brief", shown)


own_network()
main()
