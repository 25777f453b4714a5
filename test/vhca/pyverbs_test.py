#!/usr/bin/env python3
"""pyverbs_test.py - rdma-core's own Python tests on the emulated device, held against pyverbs_tests.txt

Usage: pyverbs_test.py LIBVERBENA-VHCA.SO [TESTS-DIRECTORY]

All of them are run. One that is listed must pass, unless the list has a reason why it may be skipped; a skip that is
not listed is a failure as well. Prints the counts. Exits with 77 where the tests or pyverbs are not installed.
"""
import collections
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
PYTHON = "/usr/bin/python3"  # the one that Debian's pyverbs is for
AT_LEAST = 110
PATIENCE_S = 300

# Runs in a directory that has the tests, with the emulated device preloaded.
RUNNER = """
import json, sys, unittest
sys.path.insert(0, "tests")
from args_parser import parser
from importlib.machinery import SourceFileLoader
class Result(unittest.TextTestResult):
    outcome = {}
    def addSuccess(self, test): super().addSuccess(test); self.outcome[test.id()] = ["ok", ""]
    def addSkip(self, test, why): super().addSkip(test, why); self.outcome[test.id()] = ["skip", str(why)]
    def addFailure(self, test, error): super().addFailure(test, error); self.outcome[test.id()] = ["fail", ""]
    addError = addFailure
sys.argv = sys.argv[:1]
parser.parse_args()
tests = SourceFileLoader("tests", "tests/__init__.py").load_module()
suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
unittest.TextTestRunner(stream=open("log", "w"), verbosity=2, resultclass=Result).run(suite)
json.dump(Result.outcome, open("outcome", "w"))
"""


def read_list():
    """Test to the reason why it may be skipped; None where it must pass."""
    listed = {}
    with open(os.path.join(HERE, "pyverbs_tests.txt"), encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line and not line.startswith("#"):
                name, _, reason = line.partition(": ")
                listed[name] = reason or None
    return listed


def copy_tests(source, work):
    target = os.path.join(work, "tests")
    shutil.copytree(source, target)
    for name in os.listdir(target):
        if name.endswith(".gz"):
            path = os.path.join(target, name)
            with gzip.open(path) as packed, open(path[:-3], "wb") as plain:
                shutil.copyfileobj(packed, plain)
            os.remove(path)


def run(library, work):
    environment = dict(os.environ, LD_PRELOAD=library, PYTHONDONTWRITEBYTECODE="1")
    with open(os.path.join(work, "output"), "wb") as output:
        done = subprocess.run([PYTHON, "-W", "ignore", "-c", RUNNER], cwd=work, env=environment, stdout=output,
                              stderr=output, timeout=PATIENCE_S, check=False)
    try:
        with open(os.path.join(work, "outcome"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        with open(os.path.join(work, "output"), encoding="utf-8", errors="replace") as file:
            print(file.read())
        sys.exit(f"pyverbs_test: the tests ended with status {done.returncode} and without a result")


def complaints(listed, outcome):
    """Sentences about what is not as the list has it."""
    for name, reason in sorted(listed.items()):
        if name not in outcome:
            yield f"{name} is listed and has not run"
        elif outcome[name][0] == "skip" and not reason:
            yield f"{name} was skipped: {outcome[name][1]}"
    for name, (what, why) in sorted(outcome.items()):
        if what == "fail":
            yield f"{name} failed"
        elif name not in listed:
            yield f"{name} is not on the list: {what} {why}"


def main():
    library = os.path.realpath(sys.argv[1])
    source = sys.argv[2] if len(sys.argv) > 2 else "/usr/share/doc/rdma-core/tests"
    if not os.path.exists(library):
        sys.exit(f"pyverbs_test: no library \"{library}\": give the path of libverbena-vhca.so")
    if not os.path.isdir(source) or subprocess.run([PYTHON, "-c", "import pyverbs.device"],
                                                   stderr=subprocess.DEVNULL, check=False).returncode:
        print("pyverbs_test: skipped: rdma-core's tests or pyverbs are missing: install rdma-core and python3-pyverbs")
        sys.exit(77)
    listed = read_list()
    with tempfile.TemporaryDirectory() as work:
        copy_tests(source, work)
        outcome = run(library, work)
        wrong = list(complaints(listed, outcome))
        if wrong:
            with open(os.path.join(work, "log"), encoding="utf-8") as file:
                print(file.read())
    counts = collections.Counter(what for what, _ in outcome.values())
    reasons = collections.Counter(re.sub(r" \(.*", "", listed[name] or "") for name, (what, _) in outcome.items()
                                  if what == "skip" and name in listed)
    for sentence in wrong:
        print(f"pyverbs_test: {sentence}")
    for reason, count in reasons.most_common():
        print(f"{count:4} skipped: {reason}")
    print(f"pyverbs_test: of {len(outcome)} tests {counts['ok']} passed, {counts['fail']} failed and "
          f"{counts['skip']} were skipped")
    sys.exit(1 if wrong or counts["ok"] < AT_LEAST else 0)


if __name__ == "__main__":
    main()
