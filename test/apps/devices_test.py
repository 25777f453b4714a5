#!/usr/bin/env python3
"""devices_test.py - the list of ports: with none, with emulated ones, as JSON"""
import os

from command import DEVICE_KEYS, DONE, VERBENA, CommandTest, main, strict_json, verbena


class Devices(CommandTest):
    def test_none(self):
        """Given no device, then the list has the same-host port alone, which is no failure, and the user learns how to have one."""
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            print("SKIP devices_none: this machine has RDMA devices")
            return
        answer = verbena("devices", "--json", "-")
        self.status(answer, DONE)
        self.assertEqual([device["name"] for device in strict_json(answer.out)["devices"]], ["shm"])
        self.sentence(answer, "verbena vhca -- verbena devices", "--device vhca")

    def test_emulated(self):
        answer = verbena("vhca", "--devices", "2", "--mtu", "2048", "--", VERBENA, "devices", "--json", "-")
        self.status(answer, DONE)
        devices = strict_json(answer.out)["devices"]
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


if __name__ == "__main__":
    main()
