#!/usr/bin/env python3
"""Runs lost_in_backward in each of its ways and checks that every other rank names the lost one, within the time-out.

usage: lost_in_backward.py PROGRAM RANKS LAUNCHER...     LAUNCHER ends where `-n RANKS program` follows
"""
import re
import subprocess
import sys
import time

LIMIT_S = 20  # far above what is expected (1 to 3 s), far below a hang


def run(program, ranks, launcher, how, where):
    began = time.monotonic()
    # With recovery a rank that dies does not end the others: that is accel's to notice here.
    recovery = ["--enable-recovery"] if how == "kill" else []
    done = subprocess.run([*launcher, *recovery, "-n", str(ranks), program, how, where], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S * 3, check=False)
    took = time.monotonic() - began
    lost = ranks - 1
    said = {"stop": rf"no answer for 0\.7 s: rank {lost} \(process \d+\) did not arrive; it was here last [0-9.]+ s ago",
            "kill": rf"rank {lost} \(process \d+\) has ended"}
    for rank in range(ranks):
        if how == "throw":
            pattern = rf"fell on rank {rank}: fell" if rank == lost else rf"abandoned on rank {rank}: .*rank {lost}: fell"
        elif rank == lost:
            continue
        else:
            # Each names the lost one, by itself or with the words of the first that gave up.
            pattern = rf"caught on rank {rank}: .*({said[how]})"
        if not re.search(pattern, done.stdout):
            sys.exit(f"{how} {where}: rank {rank} does not say {pattern}\n--- output\n{done.stdout}")
    if took > LIMIT_S:
        sys.exit(f"{how} {where}: took {took:.1f} s\n--- output\n{done.stdout}")
    print(f"{how} {where}: {took:.1f} s")


def main():
    program, ranks, launcher = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    for how in ("stop", "kill", "throw"):
        for where in ("before", "first", "last"):
            if how == "throw" and where == "before":
                continue  # no backward, no round: the others' time-out, which "stop" covers
            run(program, ranks, launcher, how, where)


if __name__ == "__main__":
    main()
