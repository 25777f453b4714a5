#!/usr/bin/env python3
"""readme.py - the README's example is apps/examples/hello.c to the letter, and that one is built and run by the tests"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
code = re.search(r"^```c\n(.*?)^```$", (root / "README.md").read_text(), re.M | re.S).group(1)
if code != (root / "apps/examples/hello.c").read_text():
    sys.exit("README.md: its example is not apps/examples/hello.c: copy the file there")
