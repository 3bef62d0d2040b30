#!/usr/bin/env python3
"""Trains the digits on two ranks with a /dev/shm that is too small, or holds what killed processes left, in a mount
namespace of its own. Needs root; ends with 77 where that cannot be made.

usage: dev_shm.py PROGRAM LAUNCHER...     LAUNCHER ends where `-n RANKS program` follows
"""
import os
import re
import subprocess
import sys

NOTICE = r"shared memory: warning: gradients go through MPI, which is slower on one host: rank 0: cannot reserve"
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs /dev/shm && touch $2; shift 2; "$@"; code=$?; ls /dev/shm; exit $code'


def train(program, launcher, size, mode, left_behind="/dev/null"):
    done = subprocess.run(["unshare", "--mount", "sh", "-c", MOUNT, "sh", size, left_behind, "env",
                           f"ACCEL_SHARED_MEMORY={mode}", *launcher, "-n", "2", program, "--epochs", "1", "--limit", "60"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
    accuracy = re.search(r"test accuracy ([0-9.]+)", done.stdout)
    if done.returncode != 0 or not accuracy:
        sys.exit(f"{mode} in {size}: ended with {done.returncode}\n--- output\n{done.stdout}")
    return done.stdout, accuracy[1]


def main():
    program, launcher = sys.argv[1], sys.argv[2:]
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True,
                      check=False).returncode != 0:
        print("no mount namespace can be made here")
        sys.exit(77)
    # Anonymous memory needs no room in /dev/shm; files do, and say so where there is none; all train alike.
    by_mpi, wanted = train(program, launcher, "64m", "0")
    anonymous, a = train(program, launcher, "1m", "1")
    small, b = train(program, launcher, "1m", "posix")
    # What a process of this namespace left that is dead: no number is as large.
    roomy, c = train(program, launcher, "64m", "posix", f"/dev/shm/accel.{os.stat('/proc/self/ns/pid').st_ino}.2000000000.0")
    problems = [what for what, wrong in [
        ("results differ", not wanted == a == b == c),
        ("a notice without need", any(re.search(NOTICE, text) for text in (by_mpi, anonymous, roomy))),
        ("not exactly one notice where there is no room", len(re.findall(NOTICE, small)) != 1),
        ("files are left in /dev/shm", any(re.search(r"^accel\.", text, re.MULTILINE) for text in (small, roomy))),
    ] if wrong]
    if problems:
        sys.exit("\n---\n".join([*problems, by_mpi, anonymous, small, roomy]))
    print("as expected")


if __name__ == "__main__":
    main()
