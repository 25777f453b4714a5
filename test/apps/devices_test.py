#!/usr/bin/env python3
"""devices_test.py - the list of ports: with none, with emulated ones, as JSON"""
import ctypes
import os
import subprocess

from command import DEVICE_KEYS, DONE, INTERFACE_KEYS, VERBENA, CommandTest, main, strict_json, time, verbena


def listed(answer):
    """Ports that are no interfaces, and those that are."""
    devices = strict_json(answer.out)["devices"]
    interfaces = [device for device in devices if device["driver"] in ("tap", "xdp")]
    return [device for device in devices if device not in interfaces], interfaces


class Devices(CommandTest):
    def test_none(self):
        """Given no device, then the list has the same-host port alone, which is no failure, and the user learns how to have one."""
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            print("SKIP devices_none: this machine has RDMA devices")
            return
        answer = verbena("devices", "--json", "-")
        self.status(answer, DONE)
        self.assertEqual([device["name"] for device in listed(answer)[0]], ["shm"])
        self.sentence(answer, "verbena vhca -- verbena devices", "--device vhca")

    def test_emulated(self):
        answer = verbena("vhca", "--devices", "2", "--mtu", "2048", "--", VERBENA, "devices", "--json", "-")
        self.status(answer, DONE)
        devices, _ = listed(answer)
        self.assertEqual([device["name"] for device in devices], ["mlx5_0", "mlx5_1", "shm"], answer)
        for device in devices[:2]:
            self.keys(device, DEVICE_KEYS)
            self.assertEqual((device["driver"], device["state"], device["link"], device["mtu"]),
                             ("mlx5", "up", "ethernet", 2048))
            self.assertGreater(device["speed_gbit"], 0)
            self.assertTrue(any("127.0.0." in gid and "v2" in gid for gid in device["gids"]), device)
            self.assertIn("rc", device["capabilities"])

    def test_table(self):
        answer = verbena("vhca", "--", VERBENA, "devices")
        self.status(answer, DONE)
        for word in ("name", "driver", "mlx5_0", "mlx5", "up", "gid", "127.0.0."):
            self.assertIn(word, answer.out)
        # Memory has no rate of its own: it was 0.0.
        self.assertRegex(answer.out, r"(?m)^shm +shm +- +up +host +- +4096$")

    def test_interfaces(self):
        """Given interfaces of a namespace, then they are listed, and what there is to know of them; nothing of them changes."""
        clone_newnet = 0x40000000
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK) or ctypes.CDLL(None).unshare(clone_newnet):
            print("SKIP devices_interfaces: needs root, to make a network namespace, and /dev/net/tun")
            return
        for words in ("link add left mtu 3000 address 02:00:00:00:00:10 numrxqueues 4 numtxqueues 4 type veth peer name right",
                      "link set left up", "link set right up", "link add none type bridge",
                      "tuntap add tapped mode tap multi_queue"):
            if subprocess.run(["ip", *words.split()], check=False).returncode:
                print("SKIP devices_interfaces: needs veth pairs, with iproute2")
                return
        self.await_up("left", "right")
        before = subprocess.run(["ip", "link"], capture_output=True, check=True).stdout
        answer = verbena("devices", "--json", "-")
        self.status(answer, DONE)
        _, interfaces = listed(answer)
        names = [device["name"] for device in interfaces]
        self.assertEqual(sorted(name for name in names if name.startswith("tap:")), ["tap:tapped"])
        self.assertNotIn("xdp:lo", names)
        if any(name.startswith("xdp:") for name in names):
            self.look_at_xdp({device["name"]: device for device in interfaces})
        self.assertEqual(subprocess.run(["ip", "link"], capture_output=True, check=True).stdout, before)
        table = verbena("devices")
        self.assertRegex(table.out, r"(?m)^tap:tapped +tap +- +down +ethernet .* 1500\n    mac [0-9a-f:]{17}, 1 queue of tun\n    can send packet$")

    def await_up(self, *names):
        """The kernel tells of a carrier when it finds the time."""
        until = time.monotonic() + 30
        for name in names:
            while " state UP " not in subprocess.run(["ip", "link", "show", name], capture_output=True, text=True, check=True).stdout:
                self.assertLess(time.monotonic(), until, name)
                time.sleep(0.01)

    def look_at_xdp(self, interfaces):
        self.assertLessEqual({"xdp:left", "xdp:right", "xdp:none", "xdp:tapped"}, set(interfaces))
        left, none = interfaces["xdp:left"], interfaces["xdp:none"]
        self.keys(left, INTERFACE_KEYS)
        self.assertEqual([left[key] for key in ("state", "link", "mtu", "mac", "kernel_driver", "queues", "gids")],
                         ["up", "ethernet", 3000, "02:00:00:00:00:10", "veth", 4, []])
        self.assertEqual(none["state"], "down")
        for device, words in (left, ["native"]), (none, ["generic"]):
            self.assertEqual(device["capabilities"][:2], ["send", "packet"])
            self.assertIn(device["capabilities"][2:], (words, [])) # an older kernel does not say


if __name__ == "__main__":
    main()
