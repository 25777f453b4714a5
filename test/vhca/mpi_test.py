#!/usr/bin/env python3
"""mpi_test.py - Debian's Open MPI over UCX on the emulated device, unmodified: three ranks that check their data

Usage: mpi_test.py LIBVERBENA-VHCA.SO MPI_CHECK.C [PATTERN ...]

Each rank is a process with a device of its own on the wire of RoCEv2 packets over UDP. There is no other way between
them: UCX has one network device and no shared memory, and Open MPI has nothing but UCX. PATTERN (a regular expression)
picks some of the transports. Exits with 77 where there is no Open MPI, or none with UCX.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

GID_INDEX = "3"  # RoCE v2, the port's address
RANKS = 3
PATIENCE_S = 60
LAYERS = ("rc_mlx5,ud_mlx5", "rc_verbs,ud_verbs", "ud_mlx5", "ud_verbs")  # rc's connections are made over ud
VERDICT = f"mpi_check: {RANKS} ranks, all data as it should be"


def skip(reason):
    print(f"SKIP vhca_mpi: {reason}")
    sys.exit(77)


def run(command, environment=None):
    """Its status, None where it was too late, and what it said. A late mpirun is asked first: it ends its ranks."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as process:
        try:
            said = process.communicate(timeout=PATIENCE_S)[0]
            return process.returncode, said
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            said = process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0]
        return None, said


def build(source, program):
    status, said = run(["mpicc", "-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", program, source])
    if status != 0:
        sys.exit(f"mpi_test: mpicc cannot build {source}\n{said}")


def has_ucx():
    status, said = run(["ompi_info", "--parsable"])
    return status == 0 and re.search(r"^mca:pml:ucx:", said, re.M)


def mpirun(library, program, layers):
    """Only the ranks have the device: mpirun itself needs none."""
    ranks = {"LD_PRELOAD": library, "UCX_TLS": layers, "UCX_NET_DEVICES": "mlx5_0:1", "UCX_IB_GID_INDEX": GID_INDEX,
             "UCX_LOG_LEVEL": "info"}
    command = ["mpirun", "-np", str(RANKS), "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    # isolated: one host, so no ssh is looked for.
    for framework, component in (("plm", "isolated"), ("pml", "ucx"), ("osc", "ucx"), ("btl", "self")):
        command += ["--mca", framework, component]
    for name, value in ranks.items():
        command += ["-x", f"{name}={value}"]
    return [*command, program]


def what_went_wrong(layers, status, said):
    """'' where all is well. UCX says which transport it took for messages and for one-sided access."""
    if status is None:
        return f"still running after {PATIENCE_S} s"
    if status:
        return f"mpirun ended with {status}"
    if VERDICT not in said:
        return f"no rank said `{VERDICT}`"
    wanted = f"({layers.split(',')[0]}/mlx5_0:1)"
    taken = set(re.findall(r"\b(?:tag|am|rma|rma_am|amo|amo_am)(\([^)]*\))", said))
    if taken != {wanted}:
        return f"messages went over {sorted(taken)}, not over {wanted} alone"
    return ""


def main():
    library, source = map(os.path.realpath, sys.argv[1:3])
    patterns = [re.compile(pattern) for pattern in sys.argv[3:]]
    if not os.path.exists(library):
        sys.exit(f"mpi_test: no library \"{library}\": give the path of libverbena-vhca.so")
    for name, package in (("mpicc", "libopenmpi-dev"), ("mpirun", "openmpi-bin"), ("ompi_info", "openmpi-bin")):
        if not shutil.which(name):
            skip(f"there is no {name}, which Debian has in {package}")
    if not has_ucx():
        skip("this Open MPI has no UCX")
    passed, failed = 0, []
    # The path of mpirun's sockets must be short, and nothing may be left behind.
    with tempfile.TemporaryDirectory(prefix="mpi", dir="/tmp") as work:
        program = os.path.join(work, "mpi_check")
        build(source, program)
        environment = dict(os.environ, TMPDIR=work)
        environment.pop("LD_PRELOAD", None)
        for layers in LAYERS:
            if not all(pattern.search(layers) for pattern in patterns):
                continue
            start = time.monotonic()
            status, said = run(mpirun(library, program, layers), environment)
            wrong = what_went_wrong(layers, status, said)
            print(f"{'FAILED' if wrong else 'ok':6} {time.monotonic() - start:6.2f} s  UCX_TLS={layers}", flush=True)
            if wrong:
                failed.append(layers)
                print(f"{wrong}\n{said}", flush=True)
            passed += not wrong
    print(f"mpi_test: {passed} of {passed + len(failed)} passed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
