#!/usr/bin/env python3
"""Writes the golden numbers of this folder: make.py [--peers <folder of the virtual environment>].

The same small training, by torch's DistributedDataParallel in a loop by hand and by Hugging Face Accelerate, on one and
two ranks; the two have to agree. Weights and data come from an integer generator that golden_ranks.cpp has as well, so
that trajectories.json holds results alone: the loss of every micro-batch on every rank, and the weights at the end. Run
it again where the pinned version of torch or accelerate changes.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FILE = Path(__file__).resolve().parent / "trajectories.json"
FEATURES, HIDDEN, CLASSES, BATCH = 8, 16, 4, 4

# (name, gradient accumulation steps, micro-batches of an epoch on a rank, epochs). The third has a short last window.
SHAPES = [("every_batch", 1, 10, 2), ("full_windows", 4, 8, 10), ("ragged_tail", 4, 10, 7)]
OPTIMIZERS = ["sgd", "adamw"]
RANKS = [1, 2]
FRAMEWORKS = ["ddp", "accelerate"]
AGREEMENT = 1e-6


class Generator:
    """Numbers that any language makes alike: 24 bits of a 64-bit linear congruential generator are a float exactly."""

    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 40

    def signed(self):
        return self.bits() / 2**23 - 1.0


def make_model(torch):
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES))
    generator = Generator(1)
    with torch.no_grad():
        for parameter in model.parameters():
            values = [generator.signed() / 2 for _ in range(parameter.numel())]
            parameter.copy_(torch.tensor(values).reshape(parameter.shape))
    return model


def make_data(torch, rows):
    generator = Generator(2)
    features, classes = [], []
    for _ in range(rows):
        features.append([generator.signed() for _ in range(FEATURES)])
        classes.append(generator.bits() % CLASSES)
    return torch.utils.data.TensorDataset(torch.tensor(features), torch.tensor(classes))


def make_optimizer(torch, name, model):
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)


def train_ddp(torch, optimizer_name, steps, batches, epochs):
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    net = make_model(torch)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = make_optimizer(torch, optimizer_name, model)
    data = make_data(torch, BATCH * batches * ranks)
    losses = []
    for _ in range(epochs):
        for index in range(batches):
            first = (index * ranks + rank) * BATCH
            features, classes = data[first:first + BATCH]
            closes = (index + 1) % steps == 0 or index + 1 == batches
            with contextlib.nullcontext() if closes else model.no_sync():
                loss = torch.nn.functional.cross_entropy(model(features), classes)
                (loss / steps).backward()
            losses.append(loss.item())
            if closes:
                optimizer.step()
                optimizer.zero_grad()
    return losses, net


def train_accelerate(torch, accelerator, optimizer_name, steps, batches, epochs):
    accelerator.free_memory()
    accelerator.gradient_accumulation_steps = steps
    net = make_model(torch)
    data = make_data(torch, BATCH * batches * accelerator.num_processes)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=False)
    model, optimizer, loader = accelerator.prepare(net, make_optimizer(torch, optimizer_name, net), loader)
    losses = []
    for _ in range(epochs):
        for features, classes in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(features), classes)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return losses, net


def work(framework, output):
    import torch
    torch.set_num_threads(1)
    if framework == "accelerate":
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")  # to collect results alone: one rank, not seen by it
    else:
        torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    runs = []
    for shape, steps, batches, epochs in SHAPES:
        for optimizer in OPTIMIZERS:
            if framework == "accelerate":
                losses, net = train_accelerate(torch, accelerator, optimizer, steps, batches, epochs)
            else:
                losses, net = train_ddp(torch, optimizer, steps, batches, epochs)
            of_all = [None] * ranks
            torch.distributed.all_gather_object(of_all, losses)
            weights = [value for parameter in net.parameters() for value in parameter.detach().flatten().tolist()]
            runs.append({"shape": shape, "optimizer": optimizer, "ranks": ranks, "gradient_accumulation_steps": steps,
                         "micro_batches": batches, "epochs": epochs, "losses": of_all, "weights": weights})
    if rank == 0:
        Path(output).write_text(json.dumps(runs), encoding="utf-8")
    torch.distributed.destroy_process_group()


def short(value):
    """Floats with the 8 digits that a comparison to 1e-5 can use at most."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, list):
        return [short(each) for each in value]
    return value


def numbers(run):
    return [loss for losses in run["losses"] for loss in losses] + run["weights"]


def check_agreement(by_framework):
    for runs in zip(*by_framework.values()):
        worst = max(abs(a - b) for a, b in zip(*map(numbers, runs), strict=True))
        name = f"{runs[0]['shape']}, {runs[0]['optimizer']}, {runs[0]['ranks']} ranks"
        if worst > AGREEMENT:
            sys.exit(f"make.py: {name}: expected {' and '.join(FRAMEWORKS)} to agree to {AGREEMENT}, found {worst}")


def write(runs, versions):
    lines = [json.dumps({key: short(value) for key, value in run.items()}, separators=(",", ":")) for run in runs]
    text = f'{{"versions": {json.dumps(versions)},\n"runs": [\n' + ",\n".join(lines) + "\n]}\n"
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE.name}: {len(runs)} runs, {FILE.stat().st_size} bytes")


def default_peers():
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return Path(os.environ.get("ACCEL_DEPS", f"{cache}/accel")) / "peers"


def main():
    parser = argparse.ArgumentParser(description="Writes the golden numbers of this folder.")
    parser.add_argument("--peers", type=Path, default=default_peers(), help="virtual environment; see `make peers`")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        return work(*args.work)
    python = args.peers / "bin" / "python"
    if not python.exists():
        sys.exit(f"make.py: expected Python with torch and accelerate in {args.peers}, found none; run `make peers`")
    probe = "import torch, accelerate, platform; " \
            "print(torch.__version__, accelerate.__version__, platform.python_version())"
    found = subprocess.check_output([python, "-c", probe], text=True).split()
    versions = dict(zip(["torch", "accelerate", "python"], found, strict=True))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
    by_framework = {framework: [] for framework in FRAMEWORKS}
    for framework, runs in by_framework.items():
        for ranks in RANKS:
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "runs.json"
                subprocess.run([python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
                                __file__, "--work", framework, str(output)], env=environment, check=True)
                runs += json.loads(output.read_text(encoding="utf-8"))
    check_agreement(by_framework)
    write(by_framework["accelerate"], versions)
    return None


if __name__ == "__main__":
    main()
