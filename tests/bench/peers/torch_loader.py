#!/usr/bin/env python3
"""The data loading of `loader_bench samples` with torch.utils.data.DataLoader: torch_loader.py <digits file> <workers>.

One thread a process. Prints a line of JSON.
"""

import gzip
import json
import statistics
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class NormalisedDigits(Dataset):
    def __init__(self, file):
        with gzip.open(file, "rt", encoding="ascii") as lines:
            table = numpy.loadtxt(lines, delimiter=",", dtype=numpy.uint8)
        self.images = torch.from_numpy(table[:4000, :784].copy()).reshape(-1, 1, 28, 28)
        self.targets = torch.from_numpy(table[:4000, 784].astype(numpy.int64))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = self.images[index].to(torch.float32).div_(255.0).sub_(0.1307).div_(0.3081)
        return image, self.targets[index]


def main():
    torch.set_num_threads(1)
    workers = int(sys.argv[2])
    loader = DataLoader(NormalisedDigits(sys.argv[1]), batch_size=32, shuffle=True, num_workers=workers)
    rates, checksum = [], 0.0
    for epoch in range(4):
        start = time.perf_counter()
        samples = 0
        for images, targets in loader:
            samples += len(targets)
            checksum += float(images[0, 0, 0, 0])
        if epoch > 0:
            rates.append(samples / (time.perf_counter() - start))
    print(json.dumps({"workers": workers, "samples_per_s": statistics.median(rates), "checksum": checksum}))


main()
