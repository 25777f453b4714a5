#!/usr/bin/env python3
"""headers_cxx.py - each public header compiles by itself as C++ and as C, without warnings"""

import os
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77


def compile_header(compiler, language, include, header):
    flags = ["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", str(include)]
    flags.append("-std=c++11" if language == "c++" else "-std=c11")
    if header == "verbena.h":
        flags.append("-Wshadow")  # g++ means structs and functions of one name, too
    source = f"#include <{header}>\n#include <{header}>\nint unused;\n"
    done = subprocess.run([*compiler, *flags, "-"], input=source, text=True, capture_output=True)
    if done.returncode:
        print(f"{header} as {language} by {compiler[0]}:\n{done.stderr}")
    return done.returncode == 0


def main(include):
    include = pathlib.Path(include)
    headers = sorted(str(path.relative_to(include)) for path in include.rglob("*.h"))
    assert headers, f"no headers under {include}"
    languages = {"c": os.environ.get("CC", "cc"), "c++": os.environ.get("CXX", "c++")}
    good = True
    for language, compiler in languages.items():
        compiler = compiler.split()
        if not shutil.which(compiler[0]):
            print(f"SKIP headers_cxx: there is no {compiler[0]}")
            return SKIPPED
        for header in headers:
            good &= compile_header(compiler, language, include, header)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
