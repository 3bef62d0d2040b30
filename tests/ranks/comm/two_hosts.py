#!/usr/bin/env python3
"""Runs two_hosts_ranks on two hosts that are network namespaces of this machine, with a virtual cable between them, and
counts what goes over the cable. Needs root; ends with 77 where namespaces cannot be made.

usage: two_hosts.py PROGRAM MPIRUN
"""
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

TAG = f"accel{os.getpid()}"
HOSTS = {f"{TAG}a": "10.231.77.1", f"{TAG}b": "10.231.77.2"}
BYTES = 4 << 20  # of one reduction
TIMES = 20


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def set_up():
    a, b = HOSTS
    for name in HOSTS:
        ip("netns", "add", name)
    ip("link", "add", "wire", "netns", a, "type", "veth", "peer", "name", "wire", "netns", b)
    for name, address in HOSTS.items():
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire")
        ip("-n", name, "link", "set", "wire", "up")
        ip("-n", name, "link", "set", "lo", "up")


def tear_down():
    for name in HOSTS:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def sent():
    """Bytes that the first host has sent over the cable."""
    counter = "/sys/class/net/wire/statistics/tx_bytes"
    return int(ip("netns", "exec", next(iter(HOSTS)), "cat", counter))


def write_agent(folder):
    """In place of ssh: a command on one of the hosts, under a host name of its own."""
    cases = "\n".join(f"{address}) host={name} ;;" for name, address in HOSTS.items())
    agent = folder / "agent"
    agent.write_text(f"""#!/bin/sh
case $1 in
{cases}
esac
shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
""", encoding="ascii")
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    return agent


def run(mpirun, agent, program, *words, ranks=4):
    first = next(iter(HOSTS))
    hosts = ",".join(f"{address}:{slots}" for address, slots in zip(HOSTS.values(), (2, ranks - 2), strict=True))
    variables = [word for name in ("OMP_NUM_THREADS", "ACCEL_SHARED_MEMORY") if name in os.environ
                 for word in ("-x", name)]
    inner = [mpirun, "-n", str(ranks), "--host", hosts, "--map-by", "slot", "--bind-to", "none", *variables,
             "--mca", "plm_rsh_agent", str(agent), "--mca", "btl", "tcp,self,vader",
             "--mca", "btl_tcp_if_include", "wire", "--mca", "oob_tcp_if_include", "wire",
             "--mca", "mpi_yield_when_idle", "1", program, *words]
    done = subprocess.run(["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c", f"hostname {first}; exec \"$@\"",
                           "sh", *inner], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                          check=False)
    if done.returncode != 0 or "as expected" not in done.stdout:
        sys.exit(f"ended with {done.returncode}\n--- output\n{done.stdout}")


def main():
    program, mpirun = sys.argv[1:3]
    try:
        set_up()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        tear_down()
        print(f"no network namespaces can be made here: {error}")
        sys.exit(77)
    try:
        with tempfile.TemporaryDirectory() as folder:
            agent = write_agent(Path(folder))
            run(mpirun, agent, program)
            run(mpirun, agent, program, ranks=3)
            before = sent()
            run(mpirun, agent, program, "1")
            little = sent() - before
            before = sent()
            run(mpirun, agent, program, str(TIMES + 1))
            much = sent() - before
    finally:
        tear_down()
    copies = (much - little) / TIMES / BYTES
    print(f"a reduction sends {copies:.2f} copies of the gradients over the cable")
    if not os.environ.get("ACCEL_SHARED_MEMORY") == "0" and not 0.9 < copies < 1.2:
        sys.exit("expected one copy")


if __name__ == "__main__":
    main()
