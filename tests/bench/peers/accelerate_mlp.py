#!/usr/bin/env python3
"""The training of `accel_bench throughput` with Hugging Face Accelerate (gloo): accelerate_mlp.py <steps> [<steps>...].

Run by torchrun, one thread a rank. Prints a line of JSON for each number of gradient accumulation steps.
"""

import json
import statistics
import sys
import time

import torch
from accelerate import Accelerator

BATCHES, BATCH, FEATURES, HIDDEN, CLASSES = 64, 32, 64, 64, 10
WARM_UP, BLOCKS, MICRO_BATCHES = 100, 7, 200


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    generator = torch.Generator().manual_seed(accelerator.process_index)
    batches = [(torch.randn(BATCH, FEATURES, generator=generator),
                torch.randint(CLASSES, (BATCH,), generator=generator)) for _ in range(BATCHES)]
    for steps in map(int, sys.argv[1:]):
        accelerator.free_memory()
        accelerator.gradient_accumulation_steps = steps
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES))
        model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))
        done = 0

        def train(count):
            nonlocal done
            for _ in range(count):
                features, classes = batches[done % BATCHES]
                done += 1
                with accelerator.accumulate(model):
                    loss = torch.nn.functional.cross_entropy(model(features), classes)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()

        train(WARM_UP)
        rates = []
        for _ in range(BLOCKS):
            accelerator.wait_for_everyone()
            start = time.perf_counter()
            train(MICRO_BATCHES)
            accelerator.wait_for_everyone()
            rates.append(MICRO_BATCHES / (time.perf_counter() - start))
        if accelerator.is_main_process:
            print(json.dumps({"name": f"n{steps}", "micro_batches_per_s": statistics.median(rates)}), flush=True)
    accelerator.end_training()


main()
