#!/usr/bin/env python3
"""doctor_test.py - `verbena doctor` on trees made here: names each planted fault, none in a good one, changes nothing, trusts no file"""
import os
import random
import re
import shutil

from command import CANNOT, DONE, LOST, USAGE, CommandTest, main, run, strict_json, tempfile, verbena

BDF = "0000:3b:00.0"
FUNCTION = f"sys/devices/pci0000:3a/0000:3a:00.0/{BDF}"
RDMA = f"{FUNCTION}/infiniband/mlx5_0"
PORT = f"{RDMA}/ports/1"
CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
V4_GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"
LOCAL_GID = "fe80:0000:0000:0000:0ac0:ebff:fe20:0001"
STATUSES = ("ok", "warn", "fail", "skip")
# No file tells: a driver is asked for the one, a firmware tool for the other.
NEVER_IN_A_TREE = {"pause-frames", "cqe-compression"}


class Link(str):
    """What a symbolic link points to."""


class Mode(int):
    """A file that is there, with these permissions."""


def config_space(relaxed_ordering):
    """256 bytes with a PCI Express capability at 0x60, behind another one."""
    space = bytearray(256)
    space[0x34] = 0x48
    space[0x48:0x4a] = 0x11, 0x60
    space[0x60:0x62] = 0x10, 0
    space[0x68] = 0x10 if relaxed_ordering else 0
    return bytes(space)


def good_tree():
    """A machine of two nodes of four cores, the second node's but one isolated, with a ConnectX-5 there: path to contents."""
    words = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 isolcpus=managed_irq,domain,5-7 nohz_full=5-7 rcu_nocbs=5-7 iommu=pt quiet"
    tree = {
        "proc/cmdline": words,
        "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\n"
                            "Max locked memory         unlimited            unlimited            bytes\n",
        "proc/self/status": "Name:\tverbena\nCapEff:\t0000008000003000\nCpus_allowed_list:\t0-7\n",
        "proc/self/cgroup": "0::/system.slice/verbena.service\n",
        "proc/self/uid_map": "         0          0 4294967295\n",
        "proc/sys/kernel/numa_balancing": "0",
        "sys/fs/cgroup/system.slice/cpu.max": "max 100000",
        "sys/fs/cgroup/system.slice/verbena.service/cpu.max": "max 100000",
        "sys/fs/cgroup/system.slice/verbena.service/hugetlb.2MB.max": "max",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        f"{CPU}/online": "0-7", f"{CPU}/isolated": "5-7", f"{CPU}/nohz_full": "5-7", f"{CPU}/smt/active": "0",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        f"{NODE}/node0/cpulist": "0-3", f"{NODE}/node1/cpulist": "4-7",
        f"sys/bus/pci/devices/{BDF}": Link(f"../../../../{FUNCTION}"),
        f"{FUNCTION}/vendor": "0x15b3", f"{FUNCTION}/class": "0x020000", f"{FUNCTION}/numa_node": "1",
        f"{FUNCTION}/current_link_width": "16", f"{FUNCTION}/max_link_width": "16",
        f"{FUNCTION}/current_link_speed": "16.0 GT/s PCIe", f"{FUNCTION}/max_link_speed": "16.0 GT/s PCIe",
        f"{FUNCTION}/config": config_space(True),
        f"{FUNCTION}/iommu_group": Link("../../../../kernel/iommu_groups/12"),
        "sys/kernel/iommu_groups/12/type": "identity",
        "sys/class/iommu/dmar0": Link("../../devices/virtual/iommu/dmar0"),
        # One as the kernel has them, one that is absolute: it must not lead out of the tree.
        "sys/class/infiniband/mlx5_0": Link(f"../../../{RDMA}"),
        "sys/class/infiniband_verbs/uverbs0": Link(f"/{FUNCTION}/infiniband_verbs/uverbs0"),
        f"{FUNCTION}/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
        f"{RDMA}/device": Link(f"../../../{BDF}"),
        f"{PORT}/state": "4: ACTIVE", f"{PORT}/rate": "100 Gb/sec (4X EDR)", f"{PORT}/link_layer": "Ethernet",
        f"{PORT}/gids/0": LOCAL_GID, f"{PORT}/gid_attrs/types/0": "IB/RoCE v1", f"{PORT}/gid_attrs/ndevs/0": "ens1f0",
        f"{PORT}/gids/1": LOCAL_GID, f"{PORT}/gid_attrs/types/1": "RoCE v2", f"{PORT}/gid_attrs/ndevs/1": "ens1f0",
        f"{PORT}/gids/2": V4_GID, f"{PORT}/gid_attrs/types/2": "IB/RoCE v1",
        f"{PORT}/gids/3": V4_GID, f"{PORT}/gid_attrs/types/3": "RoCE v2",
        f"{PORT}/gids/4": "0000:0000:0000:0000:0000:0000:0000:0000",
        f"{PORT}/hw_counters/out_of_sequence": "0", f"{PORT}/hw_counters/local_ack_timeout_err": "0",
        "sys/class/net/ens1f0/mtu": "9000",
        "dev/infiniband/uverbs0": Mode(0o666), "dev/net/tun": Mode(0o666), "dev/null": Mode(0o666),
        "proc/sys/net/core/bpf_jit_enable": "1",
        "usr/lib/x86_64-linux-gnu/libibverbs.so.1": Link("libibverbs.so.1.14.44.0"),
    }
    for module in ("mlx5_core", "mlx5_ib", "ib_uverbs"):
        tree[f"sys/module/{module}/refcnt"] = "1"
    for node in (0, 1):
        for size, pages in (("2048kB", "512"), ("1048576kB", "0")):
            for name in ("nr_hugepages", "free_hugepages"):
                tree[f"{NODE}/node{node}/hugepages/hugepages-{size}/{name}"] = pages
    for cpu in range(8):
        tree[f"{CPU}/cpu{cpu}/cpufreq/scaling_governor"] = "performance"
        tree[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = str(cpu)
        for state, latency, disabled in (("POLL", 0, 0), ("C1", 2, 0), ("C6", 133, 1)):
            place = f"{CPU}/cpu{cpu}/cpuidle/state{('POLL', 'C1', 'C6').index(state)}"
            tree |= {f"{place}/name": state, f"{place}/latency": str(latency), f"{place}/disable": str(disabled)}
    for number in (16, 40, 41):
        tree[f"proc/irq/{number}/smp_affinity_list"] = "0-4"
    return tree


GOOD = good_tree()


def without(*paths):
    """The files at and below these paths are not there."""
    return {path: None for path in paths}


def boot_without(word):
    line = GOOD["proc/cmdline"]
    return {"proc/cmdline": " ".join(part for part in line.split() if not part.startswith(word + "="))}


# The check that must name it, its status, and what is changed of the good tree.
FAULTS = [
    ("nic", "fail", without("sys/class/infiniband", "sys/class/infiniband_verbs")),
    ("nic", "warn", without("sys/class/infiniband", "sys/class/infiniband_verbs", "sys/bus/pci")),
    ("kernel-modules", "warn", without("sys/module/mlx5_ib")),
    ("kernel-modules", "warn", without("sys/module/ib_uverbs")),
    ("device-files", "fail", without("dev/infiniband")),
    ("device-files", "fail", {"dev/infiniband/uverbs0": Mode(0o600)}),
    ("port-state", "fail", {f"{PORT}/state": "1: DOWN"}),
    ("gid", "fail", without(*(f"{PORT}/gid_attrs/types/{i}" for i in (1, 3)))),
    ("gid", "warn", without(f"{PORT}/gid_attrs/types/3")),
    ("mtu", "warn", {"sys/class/net/ens1f0/mtu": "1500"}),
    ("losses", "warn", {f"{PORT}/hw_counters/out_of_sequence": "17"}),
    ("rdma-core", "fail", {"usr/lib/x86_64-linux-gnu/libibverbs.so.1": Link("libibverbs.so.1.11.32.0")}),
    ("nic-node", "warn", {f"{FUNCTION}/numa_node": "-1"}),
    ("nic-node", "warn", {"proc/self/status": "CapEff:\t0000008000003000\nCpus_allowed_list:\t0-3\n"}),
    ("pcie-width", "warn", {f"{FUNCTION}/current_link_width": "8"}),
    ("pcie-speed", "warn", {f"{FUNCTION}/current_link_speed": "8.0 GT/s PCIe"}),
    ("iommu", "warn", {"sys/kernel/iommu_groups/12/type": "DMA-FQ"}),
    ("iommu", "warn", without(f"{FUNCTION}/iommu_group") | boot_without("iommu")),
    ("relaxed-ordering", "warn", {f"{FUNCTION}/config": config_space(False)}),
    ("memlock", "fail", {"proc/self/limits": "Max locked memory         65536                65536                bytes\n"}),
    ("hugepages-2M", "warn", {f"{NODE}/node1/hugepages/hugepages-2048kB/free_hugepages": "3"}),
    ("hugepages-1G", "warn", {f"{NODE}/node1/hugepages/hugepages-1048576kB/nr_hugepages": "2"}),
    ("transparent-hugepages", "warn", {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}),
    ("transparent-hugepages", "warn", {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}),
    ("numa-balancing", "warn", {"proc/sys/kernel/numa_balancing": "1"}),
    ("isolcpus", "warn", {f"{CPU}/isolated": ""} | boot_without("isolcpus")),
    ("nohz_full", "warn", {f"{CPU}/nohz_full": "(null)"}),
    ("nohz_full", "warn", {f"{CPU}/nohz_full": "5"}),
    ("rcu_nocbs", "warn", boot_without("rcu_nocbs")),
    ("governor", "warn", {f"{CPU}/cpu6/cpufreq/scaling_governor": "powersave"}),
    ("c-states", "warn", {f"{CPU}/cpu6/cpuidle/state2/disable": "0"}),
    ("smt-siblings", "warn", {f"{CPU}/smt/active": "1", f"{CPU}/cpu6/topology/thread_siblings_list": "2,6"}),
    ("irq-affinity", "warn", {"proc/irq/41/smp_affinity_list": "0-7"}),
    ("clocksource", "warn", {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}),
    ("cpu-quota", "fail", {"sys/fs/cgroup/system.slice/cpu.max": "150000 100000"}),
    ("cpu-quota", "fail", without("sys/fs/cgroup/system.slice") | {
        "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n", "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "50000",
        "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000"}),
    ("cpuset", "warn", {"proc/self/status": "CapEff:\t0000008000003000\nCpus_allowed_list:\t6-7\n"}),
    ("hugepages-limit", "warn", {"sys/fs/cgroup/system.slice/verbena.service/hugetlb.2MB.max": "0"}),
    # The same where a tree has less to go by.
    ("kernel-modules", "warn", without("sys/module") | {"proc/modules": "mlx5_core 1 0 - Live 0x0\nib_uverbs 1 0 - Live 0x0"}),
    ("device-files", "fail", without("sys/class/infiniband_verbs", "dev/infiniband")),
    ("mtu", "warn", without(f"{PORT}/link_layer") | {"sys/class/net/ens1f0/mtu": "1500"}),
    ("iommu", "warn", without("sys/class/iommu", f"{FUNCTION}/iommu_group") | {
        "proc/cmdline": GOOD["proc/cmdline"].replace("iommu=pt", "intel_iommu=on")}),
    ("hugepages-2M", "warn", without(f"{NODE}/node0/hugepages", f"{NODE}/node1/hugepages") | {
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0", "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0"}),
    ("governor", "warn", without(f"{CPU}/online", "proc/self/status") | {f"{CPU}/cpu6/cpufreq/scaling_governor": "ondemand"}),
    ("smt-siblings", "warn", without(*(f"{CPU}/cpu{i}/topology" for i in range(8))) | {f"{CPU}/smt/active": "1"}),
    ("irq-affinity", "warn", without("proc/irq") | {"proc/irq/7/smp_affinity": "00000000,000000ff"}),
    ("cpuset", "warn", {"sys/fs/cgroup/system.slice/cpuset.cpus.effective": "6-7"}),
    ("capabilities", "warn", {"proc/self/status": "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-7\n"}),
    ("capabilities", "warn", {"proc/self/status": "CapEff:\t0000000000003000\nCpus_allowed_list:\t0-7\n"}),
    ("tun-device", "warn", without("dev/net")),
    ("tun-device", "warn", {"dev/net/tun": Mode(0o600)}),
    ("bpf-jit", "warn", {"proc/sys/net/core/bpf_jit_enable": "0"}),
]


def plant(tree, fault):
    """The tree with the fault: None removes what is at and below a path."""
    for path, contents in fault.items():
        if contents is None:
            tree = {name: value for name, value in tree.items() if name != path and not name.startswith(path + "/")}
        else:
            tree[path] = contents
    return tree


def write_file(folder, path, contents):
    place = os.path.join(folder, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if isinstance(contents, Link):
        os.symlink(contents, place)
        return
    with open(place, "wb") as file:
        file.write(contents if isinstance(contents, bytes) else b"" if isinstance(contents, Mode) else (contents + "\n").encode())
    if isinstance(contents, Mode):
        os.chmod(place, contents)


class Tree:
    """A tree on disk, of which only what differs is written anew."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.name = self.folder.name
        self.files = {}
        os.mkdir(os.path.join(self.name, "sys"))
        os.mkdir(os.path.join(self.name, "proc"))

    def become(self, files):
        for path in [path for path, contents in self.files.items() if path not in files or files[path] is not contents]:
            os.remove(os.path.join(self.name, path))
            del self.files[path]
            folder = os.path.dirname(path)
            while folder.count("/") and not os.listdir(os.path.join(self.name, folder)):
                os.rmdir(os.path.join(self.name, folder))
                folder = os.path.dirname(folder)
        for path, contents in files.items():
            if path not in self.files:
                write_file(self.name, path, contents)
                self.files[path] = contents


def listing(folder):
    """Everything below, with what would change if it were written to."""
    found = []
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            info = os.lstat(os.path.join(place, name))
            found.append((os.path.join(place, name), info.st_mode, info.st_size, info.st_mtime_ns))
    return sorted(found)


class Doctor(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.tree = Tree()
        cls.addClassCleanup(cls.tree.folder.cleanup)

    def examine(self, tree, *args):
        """The answer, and the checks by name."""
        self.tree.become(tree)
        before = listing(self.tree.name)
        answer = verbena("doctor", "--root", self.tree.name, "--json", "-", *args)
        self.assertEqual(listing(self.tree.name), before)
        checks = strict_json(answer.out)["checks"]
        for check in checks:
            self.keys(check, ["name", "status", "found", "wanted", "fix"])
            self.assertIn(check["status"], STATUSES)
            self.assertTrue(check["found"] and check["wanted"], check)
            self.assertEqual(bool(check["fix"]), check["status"] in ("warn", "fail"), check)
        by_name = {check["name"]: check for check in checks}
        self.assertEqual(len(by_name), len(checks))
        self.status(answer, LOST if any(check["status"] == "fail" for check in checks) else DONE)
        return answer, by_name

    def parses(self, fixes):
        """What is for a shell is a command, with its words behind a #."""
        for line in fixes.splitlines():
            where, command = line.split(": ", 1)
            if where == "shell":
                done = run(["bash", "-n", "-c", command])
                self.status(done, DONE)
                self.assertNotRegex(command.split(" # ")[0], r"; then (?!echo)|, and |reboot", command)

    def shell_of(self, name, fault):
        """The command that mends it."""
        _, checks = self.examine(plant(dict(GOOD), fault))
        self.assertIn(checks[name]["status"], ("warn", "fail"))
        return next(line for line in checks[name]["fix"].splitlines() if line.startswith("shell: "))[len("shell: "):]

    def test_pages_in_use(self):
        """Given pages that others use, then what is short comes on top of them: the pool was made smaller."""
        place = f"{NODE}/node1/hugepages/hugepages-2048kB"
        fault = {f"{place}/nr_hugepages": "512", f"{place}/free_hugepages": "3"}
        self.assertEqual(self.shell_of("hugepages-2M", fault), f"echo 573 > /{place}/nr_hugepages")
        fix = self.examine(plant(dict(GOOD), fault))[1]["hugepages-2M"]["fix"]
        self.assertIn(f"vm.nr_hugepages={512 + 512 + 2 * 61}'", fix)
        place = f"{NODE}/node1/hugepages/hugepages-1048576kB"
        self.assertEqual(self.shell_of("hugepages-1G", {f"{place}/nr_hugepages": "2"}), f"echo 3 > /{place}/nr_hugepages")

    def test_siblings(self):
        """Given siblings, then one thread of each core goes: with smt/control isolated ones went, too."""
        both = {f"{CPU}/smt/active": "1", f"{CPU}/cpu6/topology/thread_siblings_list": "2,6",
                f"{CPU}/cpu2/topology/thread_siblings_list": "2,6"}
        self.assertEqual(self.shell_of("smt-siblings", both), f"for i in 2; do echo 0 > /{CPU}/cpu$i/online; done")
        pair = {f"{CPU}/smt/active": "1"} | {f"{CPU}/cpu{i}/topology/thread_siblings_list": "6-7" for i in (6, 7)}
        self.assertEqual(self.shell_of("smt-siblings", pair),
                         f"for i in 7; do echo 0 > /{CPU}/cpu$i/online; done # of the isolated these go offline: 7")

    def test_what_mends_device_files(self):
        """A rule for udev gives rights to files that are there, no more."""
        self.assertEqual(self.shell_of("device-files", without("sys/class/infiniband_verbs", "dev/infiniband")), "modprobe ib_uverbs")
        self.assertIn("udevadm trigger", self.shell_of("device-files", without("dev/infiniband")))
        self.assertIn('MODE="0666"', self.shell_of("device-files", {"dev/infiniband/uverbs0": Mode(0o600)}))

    def test_words_for_the_kernel(self):
        """One command for the words that belong together, which is none to start the machine anew."""
        commands = {self.shell_of(name, fault) for name, fault in (
            ("isolcpus", {f"{CPU}/isolated": ""} | boot_without("isolcpus") | {f"{CPU}/nohz_full": "5"}),
            ("nohz_full", {f"{CPU}/isolated": ""} | boot_without("isolcpus") | {f"{CPU}/nohz_full": "5"}))}
        self.assertEqual(len(commands), 1)
        self.assertIn("nohz_full=5-7 rcu_nocbs=5-7", commands.pop())

    def test_clock(self):
        """Given a tsc that is to be had, then it is taken at once."""
        place = "sys/devices/system/clocksource/clocksource0"
        hpet = {f"{place}/current_clocksource": "hpet"}
        self.assertEqual(self.shell_of("clocksource", hpet | {f"{place}/available_clocksource": "tsc hpet acpi_pm"}),
                         f"echo tsc > /{place}/current_clocksource")
        self.assertIn("clocksource=tsc", self.shell_of("clocksource", hpet | {f"{place}/available_clocksource": "hpet acpi_pm"}))

    def test_few_cores(self):
        """Given a machine of two cores, then no mask gives a third."""
        few = {f"{CPU}/online": "0-1", f"{CPU}/isolated": "", "proc/self/status": "CapEff:\t0\nCpus_allowed_list:\t0-1\n"}
        self.assertIn("the machine has no more cores", self.shell_of("cpuset", few))
        self.assertIn("all that there are", self.examine(plant(dict(GOOD), few))[1]["cpuset"]["found"])

    def test_capabilities_of_a_process(self):
        """Those of a file would keep vhca out."""
        command = self.shell_of("capabilities", {"proc/self/status": "CapEff:\t0\nCpus_allowed_list:\t0-7\n"})
        self.assertIn("--ambient-caps", command)
        self.assertNotIn("setcap ", command.split(" # ")[0])

    def test_interface_that_is_not_known(self):
        tree = plant(dict(GOOD), without(*(f"{PORT}/gid_attrs/ndevs/{i}" for i in range(2))))
        self.assertIn("no Ethernet interface is known for mlx5_0", self.examine(tree)[1]["mtu"]["found"])
        tree = plant(dict(GOOD), without("sys/class/net"))
        self.assertIn("ens1f0, the interface of mlx5_0, is not to be seen here", self.examine(tree)[1]["mtu"]["found"])

    def test_root_is_told_nothing_of_sudo(self):
        tree = plant(dict(GOOD), {f"{FUNCTION}/config": b"\0" * 64})
        self.assertNotIn("sudo", self.examine(tree)[1]["relaxed-ordering"]["found"])

    def test_example_of_help(self):
        """The line for jq gives commands for a shell."""
        example = re.search(r"(?s)verbena (doctor --for msgrate --json - \| jq .*?)\n {20}", verbena("doctor", "--help").out).group(1)
        self.tree.become(plant(dict(GOOD), {f"{PORT}/state": "1: DOWN"}))
        if not shutil.which("jq"):
            self.skipTest("no jq")
        command = example.replace("doctor ", f'"$0" doctor --root {self.tree.name} ', 1)
        self.assertEqual(run(["bash", "-c", command, os.environ.get("VERBENA", "verbena")]).out.split(" #")[0], "ip link set dev ens1f0 up")

    def test_good(self):
        """Given a machine as it should be, then every check is ok, but for what no file tells."""
        answer, checks = self.examine(GOOD)
        self.status(answer, DONE)
        self.assertEqual({name for name, check in checks.items() if check["status"] != "ok"}, NEVER_IN_A_TREE, answer)

    def test_planted(self):
        """Given one fault, then its check names it, and the exit status says whether one fails. Each says how it is mended in a
        shell; and what a unit or a container has of its own for it."""
        self.assertGreaterEqual(len({name for name, _, _ in FAULTS}), 25)
        fixes = []
        for name, status, fault in FAULTS:
            with self.subTest(check=name, fault=list(fault)):
                answer, checks = self.examine(plant(dict(GOOD), fault))
                self.assertEqual(checks[name]["status"], status, answer)
                self.assertIn("shell: ", checks[name]["fix"])
                self.status(answer, LOST if status == "fail" else DONE)
                fixes.append(checks[name]["fix"])
                self.parses(checks[name]["fix"])
        self.assertGreater(sum("systemd: " in text for text in fixes), 20)
        self.assertGreater(sum("container: " in text for text in fixes), 20)
        memlock = next(text for text in fixes if "memlock" in text)
        for words in ("ulimit -l unlimited", "LimitMEMLOCK=infinity", "--ulimit memlock=-1"):
            self.assertIn(words, memlock)

    def test_purposes(self):
        """What raw packets need is a failure to them, a warning without a purpose, and nothing to messages."""
        tree = plant(dict(GOOD), {"proc/self/status": "CapEff:\t0\nCpus_allowed_list:\t0-7\n"})
        self.assertEqual(self.examine(tree)[1]["capabilities"]["status"], "warn")
        answer, checks = self.examine(tree, "--for", "packet")
        self.assertEqual((checks["capabilities"]["status"], "gid" in checks), ("fail", False), answer)
        self.assertLessEqual({"capabilities", "tun-device", "bpf-jit", "memlock", "hugepages-2M", "mtu", "isolcpus", "nic"}, set(checks))
        self.assertFalse({"capabilities", "tun-device", "bpf-jit"} & set(self.examine(tree, "--for", "msgrate")[1]))

    def test_empty(self):
        """Given a tree without anything, then nothing is made up."""
        _, checks = self.examine({"sys/x": ""})
        self.assertEqual({name: check["status"] for name, check in checks.items() if check["status"] != "skip"}, {})
        with tempfile.TemporaryDirectory() as nothing:
            answer = verbena("doctor", "--root", nothing)
            self.status(answer, CANNOT)
            self.sentence(answer, nothing, "neither a sys nor a proc")

    def test_no_way_out(self):
        """Given links that lead out of the tree, then what is there is not read."""
        tree = GOOD | {f"{CPU}/isolated": Link("../" * 20 + "etc/passwd"), "proc/cmdline": Link("/etc/passwd"),
                              "etc/passwd": "rcu_nocbs=5-7"}
        self.assertIn("5-7", self.examine(tree)[1]["rcu_nocbs"]["found"])
        loop = GOOD | {f"{CPU}/isolated": Link("isolated"), "proc/cmdline": Link("cmdline")}
        self.assertEqual(self.examine(loop)[1]["isolcpus"]["status"], "skip")

    def test_nonsense(self):
        """Given files of any bytes, of any length, or that are something else, then it says what it makes of them, and ends."""
        chance = random.Random(1)
        for trial in range(6):
            tree = dict(GOOD)
            for path, contents in tree.items():
                if not isinstance(contents, Link) and chance.random() < 0.5:
                    size = chance.choice((0, 1, 7, 64, 300, 5000, 20000))
                    tree[path] = chance.choice((chance.randbytes(size), b"9" * size, b"0-" * size, b"-1\n" * size, b",:=[" * size))
            with self.subTest(trial=trial):
                self.examine(tree)
        odd = Tree()
        self.addCleanup(odd.folder.cleanup)
        odd.become(plant(dict(GOOD), without("proc/cmdline", f"{CPU}/online")))
        os.mkfifo(os.path.join(odd.name, "proc/cmdline"))  # nobody writes there
        os.mkdir(os.path.join(odd.name, CPU, "online"))
        answer = verbena("doctor", "--root", odd.name, "--json", "-")
        self.assertIn(answer.status, (DONE, LOST), answer)
        strict_json(answer.out)

    def test_order(self):
        """What was looked at stands in its order, what could not be behind it, the counts at the end."""
        self.tree.become(plant(dict(GOOD), without("proc/self/limits") | {f"{PORT}/state": "1: DOWN"}))
        lines = verbena("doctor", "--root", self.tree.name).out.splitlines()
        statuses = [line.split()[0] for line in lines if line.startswith(tuple(status + " " for status in STATUSES))]
        first = statuses.index("skip")
        self.assertGreater(first, 20)
        self.assertEqual(set(statuses[first:]), {"skip"})
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in STATUSES)
        self.assertEqual((lines[-2], lines[-1]), ("", counts))

    def test_compression(self):
        """Given a NIC, it says how its firmware is asked."""
        found = self.examine(GOOD)[1]["cqe-compression"]["found"]
        self.assertIn(f"mlxconfig -d {BDF} query CQE_COMPRESSION", found)
        self.assertIn(f"devlink dev param show pci/{BDF} name cqe_compress_type", found)

    def test_this_machine(self):
        """As a table, whatever this machine is; and a fault is told with its command."""
        answer = verbena("doctor")
        self.assertIn(answer.status, (DONE, LOST), answer)
        self.assertRegex(answer.out, r"(?m)^(ok|warn|fail|skip) +memlock ")
        self.assertRegex(answer.out, r"(?m)^\d+ ok, \d+ warn, \d+ fail, \d+ skip$")
        self.tree.become(plant(dict(GOOD), {f"{PORT}/state": "1: DOWN"}))
        answer = verbena("doctor", "--root", self.tree.name)
        self.status(answer, LOST)
        self.assertRegex(answer.out, r"(?m)^fail +port-state +mlx5_0 1: DOWN\n +wanted .*\n +shell +ip link set dev ens1f0 up")

    def test_emulated(self):
        """Under vhca its device is what is looked at."""
        answer = verbena("vhca", "--", os.environ.get("VERBENA", "verbena"), "doctor", "--json", "-")
        checks = {check["name"]: check for check in strict_json(answer.out)["checks"]}
        self.assertEqual([checks[name]["status"] for name in ("nic", "device-files", "port-state", "gid")], ["ok"] * 4, answer)

    def test_usage(self):
        for args, status in ((["--for", "dinner"], USAGE), (["--root"], USAGE), (["x"], USAGE),
                             (["--root", "/nowhere"], CANNOT), (["--root", "/etc/passwd"], CANNOT)):
            answer = verbena("doctor", *args)
            self.status(answer, status)
            self.sentence(answer)


if __name__ == "__main__":
    main()
