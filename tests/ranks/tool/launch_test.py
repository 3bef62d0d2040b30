#!/usr/bin/env python3
"""Checks `accel launch` from outside: exit codes, texts, signals, and that nothing is left behind.

usage: launch_test.py ACCEL CASE
"""
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time

TOOL = sys.argv[1]
# Ranks are shells: no MPI is needed to see how a launcher ends.
RANK = "$OMPI_COMM_WORLD_RANK"


def fail(what, output=""):
    sys.exit(f"{what}\n--- output\n{output}")


def expect(condition, what, output=""):
    if not condition:
        fail(what, output)


def launch(*words, ranks=2, limit=10, code=0, text=None, environment=None, **options):
    """Runs a job to its end; checks exit code, time and a pattern in what it printed."""
    start = time.monotonic()
    job = subprocess.run([TOOL, "launch", "-n", str(ranks), *words], capture_output=True, text=True, timeout=60,
                         env={**os.environ, **(environment or {})}, **options)
    seconds = time.monotonic() - start
    output = job.stdout + job.stderr
    expect(job.returncode == code, f"expected exit code {code}, found {job.returncode}", output)
    expect(seconds < limit, f"expected less than {limit} s, found {seconds:.1f}", output)
    if text:
        expect(re.search(text, output), f"expected a match of: {text}", output)
    return job


class Running:
    """A job whose ranks say `ready PID`, one file each, before they wait."""

    def __init__(self, script, ranks=2):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        ready = f'echo $$ > {self.path}/part.{RANK}; mv {self.path}/part.{RANK} {self.path}/ready.{RANK}; '
        # The rank says it is ready after its traps are set.
        script = script.replace("READY;", ready)
        self.job = subprocess.Popen([TOOL, "launch", "-n", str(ranks), "--", "bash", "-c", script],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wait_for(lambda: all((self.path / f"ready.{r}").exists() for r in range(ranks)), "all ranks to start")
        self.pids = [int((self.path / f"ready.{r}").read_text()) for r in range(ranks)]

    def wait_for(self, condition, what, limit=20):
        start = time.monotonic()
        while not condition():
            if time.monotonic() - start > limit:
                self.job.kill()
                fail(f"waited {limit} s for {what}", self.job.communicate()[1])
            time.sleep(0.01)

    def end(self, code=None, text=None, limit=8):
        start = time.monotonic()
        try:
            out, err = self.job.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.job.kill()
            fail("the job did not end within 30 s", self.job.communicate()[1])
        seconds = time.monotonic() - start
        output = out + err
        expect(code is None or self.job.returncode == code, f"expected exit code {code}, found {self.job.returncode}",
               output)
        expect(seconds < limit, f"expected less than {limit} s, found {seconds:.1f}", output)
        expect(text is None or re.search(text, output), f"expected a match of: {text}", output)
        self.wait_for(lambda: not any(alive(pid) for pid in self.pids), "the ranks to be gone", 5)
        return output


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


WAIT = "while :; do sleep 0.05; done"


def case_codes():
    launch("true")
    # Case 101 of the launcher: the code comes back, the rank is named, the other is ended.
    launch("--", "bash", "-c", f"[ {RANK} = 1 ] && exit 7; sleep 100", code=7, limit=3.5,
           text=r"accel launch: rank 1 \(pid \d+, host \S+\) exited with code 7; ending the job")
    launch("bash", "-c", "exit 3", ranks=1, code=3, limit=3.5, text=r"rank 0 \(pid .*exited with code 3")


def case_first_failure():
    job = launch("bash", "-c", f"[ {RANK} = 1 ] && exit 7; trap 'exit 9' TERM; {WAIT}", code=7, limit=3.5)
    expect(job.stderr.count("ending the job") == 1, "expected the first failure alone to be named", job.stderr)
    # A rank that will not go is ended.
    launch("bash", "-c", f"[ {RANK} = 1 ] && exit 7; trap '' TERM; {WAIT}", code=7, limit=3.5)


def case_killed():
    launch("bash", "-c", f"[ {RANK} = 0 ] && kill -9 $$; sleep 100", code=137, limit=3.5,
           text=r"rank 0 \(pid \d+, host \S+\) was killed by signal 9 \(Killed\); ending the job")


def case_signal():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Each rank gets it once, ends in its own way, and decides the code.
        job = Running(f"trap 'echo got {RANK}; exit 0' TERM INT HUP; READY; {WAIT}")
        job.job.send_signal(number)
        output = job.end(code=0)
        expect(sorted(re.findall(r"got (\d)", output)) == ["0", "1"], "expected one signal a rank", output)


def case_ignored_signal():
    job = Running(f"READY; {WAIT}")
    job.job.send_signal(signal.SIGTERM)
    job.end(code=143, text=r"rank \d .* was killed by signal 15 .* after the launcher passed on Terminated")


def case_second_signal():
    job = Running(f"trap '' TERM; trap 'echo first' INT; READY; {WAIT}")
    job.job.send_signal(signal.SIGINT)
    time.sleep(0.3)  # two signals at the same time would be one
    job.job.send_signal(signal.SIGINT)
    job.end(code=130, text="second signal: ending the job", limit=5)


def case_user_signal():
    job = Running(f"trap 'echo got {RANK}; got=1' USR1; READY; while [ -z $got ]; do sleep 0.05; done; exit 0")
    job.job.send_signal(signal.SIGUSR1)
    output = job.end(code=0)
    expect(sorted(re.findall(r"got (\d)", output)) == ["0", "1"], "expected one signal a rank", output)


def case_launcher_killed():
    job = Running(f"trap '' TERM; READY; {WAIT}")
    job.job.kill()
    job.end(code=-signal.SIGKILL)


def case_mpirun_killed():
    job = Running(f"trap '' TERM; READY; {WAIT}")
    children = pathlib.Path(f"/proc/{job.job.pid}/task/{job.job.pid}/children").read_text().split()
    expect(len(children) == 1, f"expected mpirun as the only child, found {children}")
    os.kill(int(children[0]), signal.SIGKILL)
    job.end(code=137)


def case_orphans():
    # What a failing rank started in the background goes with it.
    with tempfile.TemporaryDirectory() as folder:
        launch("bash", "-c", f"sleep 1000 & echo $! > {folder}/{RANK}; [ {RANK} = 1 ] && exit 7; wait", code=7)
        pids = [int(path.read_text()) for path in pathlib.Path(folder).iterdir()]
    expect(pids, "expected a rank to start something")
    start = time.monotonic()
    while any(alive(pid) for pid in pids):
        expect(time.monotonic() - start < 5, f"expected {pids} to be gone")
        time.sleep(0.01)


def case_input():
    job = launch("bash", "-c", f"[ {RANK} = 0 ] || exit 0; read a; read b; echo $a-$b", input="one\ntwo\n")
    expect(job.stdout == "one-two\n", "expected standard input at rank 0", job.stdout)


def case_terminal():
    # What is typed reaches rank 0 although mpirun is in the background, and Ctrl-C reaches each rank once.
    script = f"trap 'echo got {RANK}; exit 4' INT; echo ready; [ {RANK} = 0 ] && {{ read a; echo typed $a; }}; {WAIT}"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(TOOL, [TOOL, "launch", "-n", "2", "--", "bash", "-c", script])
    output = ""
    os.write(terminal, b"hello\n")
    interrupted = False
    while True:
        try:
            output += os.read(terminal, 4096).decode()
        except OSError:  # the other side is closed
            break
        if "typed hello" in output and output.count("ready") == 2 and not interrupted:
            interrupted = True
            os.write(terminal, b"\x03")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    expect(interrupted, "expected the line at rank 0", output)
    expect(status == 4, f"expected exit code 4, found {status}", output)
    expect(sorted(re.findall(r"got (\d)", output)) == ["0", "1"], "expected one signal a rank", output)


def case_variables():
    job = launch("-x", "GIVEN=two words", "-x", "FROM_HERE", "bash", "-c", "echo $GIVEN,$FROM_HERE,${ACCEL_LAUNCH_TOKEN-none}",
                 environment={"FROM_HERE": "x"})
    expect(job.stdout == "two words,x,none\n" * 2, "expected the variables at both ranks", job.stdout)


def case_threads():
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    cores = len(os.sched_getaffinity(0))
    job = subprocess.run([TOOL, "launch", "-n", "2", "bash", "-c", "echo $OMP_NUM_THREADS"], env=environment,
                         capture_output=True, text=True, timeout=60)
    expect(job.stdout == f"{max(1, cores // 2)}\n" * 2, "expected the cores to be shared out", job.stdout)
    job = launch("bash", "-c", "echo $OMP_NUM_THREADS", environment={"OMP_NUM_THREADS": "5"})
    expect(job.stdout == "5\n5\n", "expected a number that is set to stay", job.stdout)
    expect("OMP_NUM_THREADS as set" in job.stderr, "expected the summary to say so", job.stderr)


def case_timeout():
    launch("--timeout", "0.5", "sleep", "100", code=124, limit=5, text=r"the job did not end within 0\.5 s; ending the job")


def case_not_found():
    launch("no-such-program", code=127, text=r"expected a program, found no executable 'no-such-program'")


def case_not_executable():
    launch("/etc/passwd", code=127, text="found no executable '/etc/passwd'")


def case_no_mpirun():
    launch("true", code=1, environment={"ACCEL_MPIRUN": "/no/mpirun"}, text="expected Open MPI's mpirun, found no '/no/mpirun'")


def case_usage():
    for words in (["launch", "-n", "2"], ["launch", "true"], ["launch", "-n", "0", "true"], ["no-such-command"], []):
        job = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=60)
        expect(job.returncode == 2, f"{words}: expected exit code 2, found {job.returncode}", job.stderr)
        expect(job.stderr, f"{words}: expected a reason on stderr")


def case_dry_run():
    # Options after the program's name are the program's.
    job = launch("--dry-run", "sh", "-n", "5", "a b", environment={"OMP_NUM_THREADS": "1"})
    expect(job.stdout.endswith(f" {TOOL} rank -- sh -n 5 'a b'\n"), "expected the command", job.stdout)
    expect("mpirun --quiet -n 2 " in job.stdout, "expected mpirun", job.stdout)
    job = launch("--dry-run", "--mpirun-arg=--tag-output", "--mpirun-arg", "--nolocal", "--hosts", "a:2,b:2", "prog")
    expect(re.search("--bind-to none --host a:2,b:2 -x .* --tag-output --nolocal .* rank -- prog\n", job.stdout),
           "expected hosts and words for mpirun", job.stdout)
    job = launch("--dry-run", "prog", "--", "-x")
    expect(job.stdout.endswith(" rank -- prog -- -x\n"), "expected the program's own dashes", job.stdout)


def case_finishing_ranks():
    # A rank that ends well leaves the others alone.
    job = launch("bash", "-c", f"[ {RANK} = 0 ] && exit 0; sleep 0.5; echo done", ranks=2)
    expect(job.stdout == "done\n", "expected rank 1 to finish", job.stdout + job.stderr)


def run(*words):
    start = time.monotonic()
    job = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=60)
    expect(job.returncode == 0, f"expected exit code 0, found {job.returncode}", job.stderr)
    expect(time.monotonic() - start < 5, "expected an answer at once")
    return job.stdout


def case_help():
    text = run("--help")
    expect("launch" in text and "env" in text, "expected the subcommands", text)
    expect(not re.search(r"^\s+rank\b", text, re.M), "expected the inner subcommand to be hidden", text)


def case_version():
    version = run("--version")
    expect(re.fullmatch(r"\d+\.\d+\.\d+\n", version), "expected a version", version)


def case_env():
    text = run("env")
    for name in ("accel", "LibTorch", "MPI", "build", "compiler", "system", "host", "cores", "memory", "nvidia driver",
                 "OMP_NUM_THREADS"):
        expect(re.search(rf"^{name}: +\S", text, re.M), f"expected a value of {name}", text)


globals()[f"case_{sys.argv[2]}"]()
