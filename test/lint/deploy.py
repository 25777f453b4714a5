#!/usr/bin/env python3
"""deploy.py - what an installation brings besides programs is right: deploy.py SOURCE BUILD VERBENA

Manual pages have each option that --help has, and no fault in their source; bash completes subcommands, options and values;
systemd finds nothing to say about the unit.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, VERBENA = map(os.path.abspath, sys.argv[1:4])  # meson may name them from where the test begins
DEPLOY = os.path.join(SOURCE, "apps", "deploy")
SUBCOMMANDS = "msgrate", "latency", "devices", "doctor", "fwd", "echo", "pktgen", "top", "vhca"


def output(argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, **more)


def help_options(*words):
    return set(re.findall(r"^  (--[a-z0-9-]+)", output([VERBENA, *words, "--help"]).stdout, re.MULTILINE))


class ManualPages(unittest.TestCase):
    def pages(self):
        pages = glob.glob(os.path.join(BUILD, "apps", "deploy", "*.[137]"))
        self.assertGreater(len(pages), 20)
        return pages

    def test_each_option_has_its_entry(self):
        for words in *([name] for name in SUBCOMMANDS), ["vhca", "status"]:
            with open(os.path.join(BUILD, "apps", "deploy", "-".join(["verbena", *words]) + ".1"), encoding="utf-8") as file:
                page = file.read().replace("\\-", "-")
            for option in help_options(*words):
                self.assertRegex(page, rf'(?m)^\.B "{option}\b' , f"verbena {' '.join(words)}")

    def test_each_subcommand_has_a_page(self):
        listed = set(re.findall(r"^  verbena ([a-z]+)  ", output([VERBENA, "--help"]).stdout, re.MULTILINE)) - {"help"}
        found = {re.sub(r".*verbena-(\w+)\.1", r"\1", page) for page in self.pages() if re.search(r"verbena-\w+\.1$", page)}
        self.assertEqual(listed, found)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_sources_have_no_fault(self):
        for page in self.pages():
            said = output(["groff", "-man", "-Tutf8", "-ww", "-z", page]).stderr
            self.assertEqual([line for line in said.splitlines() if "cannot adjust line" not in line
                              and "can't break line" not in line], [], page)


    def test_each_public_function_has_its_words(self):
        """What a header declares stands in its page, and of its comments the words, without the marks."""
        for header in glob.glob(os.path.join(SOURCE, "include", "verbena", "*.h")):
            with open(header, encoding="utf-8") as file:
                declared = set(re.findall(r"(?m)^[a-z][\w *]*?\b(vbn_[a-z]\w*)\(", file.read()))
            page = os.path.join(BUILD, "apps", "deploy", f"verbena_{os.path.basename(header)[:-2]}.3")
            with open(page, encoding="utf-8") as file:
                text = file.read()
            for name in declared:
                self.assertRegex(text, rf"\b{name}\b", page)
            self.assertNotRegex(text, r"/\*|\*/|(?m:^ \*)", page)

    def test_names(self):
        """The first line of each tells what it is for, and is no example."""
        for words, purpose in (("verbena", "network stack"), ("verbena-doctor", "this machine lacks"), ("verbena-top", "live counters"),
                               ("verbena-msgrate", "messages per second"), ("verbena-vhca-status", "emulated devices")):
            with open(os.path.join(BUILD, "apps", "deploy", words + ".1"), encoding="utf-8") as file:
                name = file.read().replace("\\-", "-").split(".SH NAME\n")[1].split("\n")[0]
            self.assertIn(purpose, name)
            self.assertNotIn("verbena vhca", name)

    @unittest.skipUnless(shutil.which("man"), "no man")
    def test_man_has_nothing_to_warn_of(self):
        for columns in "80", "120":
            done = subprocess.run(["man", "--warnings", "-l", *self.pages()], env={**os.environ, "MANWIDTH": columns, "MANPAGER": "cat",
                                  "LC_ALL": "C.UTF-8"}, capture_output=True, text=True, timeout=60, check=True)
            self.assertEqual(done.stderr, "")
            self.assertIn("SEE ALSO", done.stdout)


class Completion(unittest.TestCase):
    def complete(self, *words):
        script = (f"source {DEPLOY}/completion.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _verbena; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        return output(["bash", "-c", script, "-", VERBENA, *words]).stdout.split()

    def test_subcommands(self):
        self.assertEqual(set(self.complete("")) & set(SUBCOMMANDS), set(SUBCOMMANDS))
        self.assertEqual(self.complete("msg"), ["msgrate"])

    def test_options_are_those_of_help(self):
        for name in SUBCOMMANDS:
            self.assertEqual(set(self.complete(name, "--")), help_options(name))

    def test_values(self):
        self.assertEqual(self.complete("msgrate", "--connection", ""), ["rc", "uc", "ud"])
        self.assertEqual(self.complete("msgrate", "--op", "wr"), ["write", "write-imm"])
        self.assertEqual(self.complete("vhca", "--strict", ""), ["abort", "error", "report"])
        self.assertIn("vhca", self.complete("msgrate", "--device", "v"))
        # The list's own heading was taken for a device, and words of a help text for purposes.
        self.assertNotIn("name", self.complete("msgrate", "--device", ""))
        self.assertEqual(self.complete("doctor", "--for", ""), ["msgrate", "packet"])
        self.assertEqual(self.complete("msgrate", "--op", "=", "cm"), ["cmp-swap"])
        self.assertEqual(self.complete("pktgen", "--protocol", ""), ["arp", "ethernet", "icmp", "tcp", "tcp-syn", "udp"])
        self.assertEqual(self.complete("fwd", "mac"), ["mac", "macswap"])

    def test_what_has_no_list(self):
        """Options were offered as the values of others."""
        self.assertEqual(self.complete("msgrate", "--cores", ""), [])
        self.assertEqual(self.complete("msgrate", "--connect", "--"), [])
        faults = self.complete("vhca", "--fault", "")
        self.assertTrue({"msg-drop=", "syndrome=", "torn", "loss=", "port-flap="} < set(faults), faults)
        self.assertFalse([word for word in faults if word != "torn" and not word.endswith("=")])

    def test_help(self):
        self.assertEqual(self.complete("--"), ["--help", "--version"])
        self.assertEqual(self.complete("help", "la"), ["latency"])
        self.assertEqual(self.complete("help", "latency", ""), [])
        self.assertEqual(self.complete("vhca", "status", "--j"), ["--json"])
        self.assertEqual(self.complete("vhca", "st"), ["status"])

    def test_options_of_the_library(self):
        told = subprocess.run([VERBENA, "msgrate", "--vbn-no-such=1"], capture_output=True, text=True, check=False).stderr
        there = set(re.findall(r"--vbn-[a-z-]+=(?=[A-Z])", told))
        self.assertGreater(len(there), 3, told)
        self.assertEqual(set(self.complete("msgrate", "--vbn")), there)
        self.assertEqual(self.complete("msgrate", "--vbn-telemetry", "=", "o"), ["off", "on"])

    def test_the_command_behind_two_dashes(self):
        found = self.complete("vhca", "--", "bas")
        self.assertEqual(found.count("bash"), 1)
        self.assertEqual(self.complete("vhca", "--", VERBENA, "ms"), ["msgrate"])
        self.assertEqual(self.complete("vhca", "--devices", "2", "--", VERBENA, "msgrate", "--op", "wr"), ["write", "write-imm"])


class Unit(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_systemd_has_nothing_to_say(self):
        with open(os.path.join(BUILD, "apps", "deploy", "verbena@.service"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("@bindir@", text)
        with tempfile.TemporaryDirectory() as folder:
            unit = os.path.join(folder, "verbena@7471.service")
            with open(unit, "w", encoding="utf-8") as file:
                file.write(re.sub(r"ExecStart=\S+", "ExecStart=" + VERBENA, text))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
