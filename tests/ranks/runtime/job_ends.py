#!/usr/bin/env python3
"""Runs ending.cpp in one of its cases and checks how the job ends: exit code, texts, time.

usage: job_ends.py PROGRAM RANKS owned|borrowed CASE LAUNCHER...     LAUNCHER ends where `-n RANKS program` follows
"""
import os
import re
import subprocess
import sys
import time

LIMIT_S = 15  # far above what is expected (1 to 3 s), far below a hang

NONZERO = "nonzero"
AT_1 = r"accel\[1/%d\] "

# case: (exit code with mpirun, exit code with accel launch, texts of accel itself)
OWNED = {
    "ok": (0, 0, []),
    "late": (0, 0, []),
    "fork": (0, 0, []),
    "closing": (0, 0, [r"closing the second\nclosing the first\n"]),
    "throw": (1, 1, [AT_1 + r"exit: error: uncaught .*Boom: no more data; ending the job"]),
    "throw_number": (1, 1, [AT_1 + r"exit: error: uncaught int; ending the job"]),
    "throw_in_thread": (1, 1, [AT_1 + r"exit: error: uncaught .*Boom: in a thread; ending the job"]),
    "status": (7, 7, [AT_1 + r"exit: error: main returned or exit\(\) was called with status 7; ending the job"]),
    "all_status": (9, 9, [r"exit: error: main returned or exit\(\) was called with status 9; ending the job"]),
    "early": (1, 1, [AT_1 + r"exit: error: ranks? 0.* did not come to the end of the program within 1 s"]),
    "unwinding": (1, 1, [AT_1 + r"exit: error: exit\(\) was called while an exception was on its way"]),
    "buffer": (3, 3, [r"printed before the end"]),
    "abort": (5, 5, [AT_1 + r"job_abort: error: enough"]),
    "silent": (1, 1, [r"all_reduce #118 \(26,214,400 bytes\): error: no answer for 0\.5 s.*; ending the job"]),
    "killed": (137, 137, []),
    "segfault": (139, 139, []),
    "_exit": (7, 7, []),
}
# A host program's job ends by its own rules, and accel says nothing.
BORROWED = {
    "ok": (0, 0, []),
    "closing": (0, 0, [r"closing the second\nclosing the first\n"]),
    "fork": (0, 0, []),
    "throw": (NONZERO, 134, []),
    "status": (7, 7, []),
    "killed": (137, 137, []),
    "_exit": (7, 7, []),
}
# Ends that accel launch sees itself.
NAMED = {
    "status": r"exited with code 7",
    "_exit": r"exited with code 7",
    "killed": r"was killed by signal 9 \(Killed\)",
    "segfault": r"was killed by signal 11 \(Segmentation fault\)",
}


def check(condition, what, output):
    if not condition:
        sys.exit(f"{what}\n--- output\n{output}")


def main():
    program, ranks, owner, case, *launcher = sys.argv[1:]
    tool = "launch" in launcher
    mpirun_code, launch_code, texts = (OWNED if owner == "owned" else BORROWED)[case]
    expected = launch_code if tool else mpirun_code
    command = [*launcher, "-n", ranks, program, owner, case]
    environment = dict(os.environ, ACCEL_EXIT_TIMEOUT="1" if case == "early" else "20")
    start = time.monotonic()
    job = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    seconds = time.monotonic() - start
    output = job.stdout + job.stderr

    if expected == NONZERO:
        check(job.returncode != 0, "expected an exit code that is not 0, found 0", output)
    else:
        check(job.returncode == expected, f"expected exit code {expected}, found {job.returncode}", output)
    check(seconds < LIMIT_S, f"expected less than {LIMIT_S} s, found {seconds:.1f}", output)
    for text in texts:
        pattern = text.replace("%d", ranks)
        check(re.search(pattern, output), f"expected a match of: {pattern}", output)
    if owner == "borrowed" or not texts:
        words = [line for line in job.stderr.splitlines() if "accel[" in line and "MPI provides" not in line]
        check(not words, "expected no word of accel but the notice of the thread level", output)
    if tool and case in NAMED and not (owner == "owned" and case == "status"):
        pattern = r"accel launch: rank 1 \(pid \d+, host \S+\) " + NAMED[case] + "; ending the job"
        check(re.search(pattern, output), f"expected a match of: {pattern}", output)
    print(f"{case} with {ranks} ranks, MPI {owner}: exit code {job.returncode} after {seconds:.1f} s")


main()
