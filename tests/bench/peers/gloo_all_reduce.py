#!/usr/bin/env python3
"""Sums of float32 tensors over ranks by gloo: gloo_all_reduce.py <MiB> [<MiB>...]. Run by torchrun, one thread a rank.

Prints a line of JSON for each size: the median time of one call, on the slower rank.
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for mib in map(int, sys.argv[1:]):
        tensor = torch.ones(mib * 2**20 // 4)
        times = []
        for call in range(3 + 15):
            tensor.fill_(1.0)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            if call >= 3:
                times.append(time.perf_counter() - start)
        slower = torch.tensor([statistics.median(times)], dtype=torch.float64)
        dist.all_reduce(slower, op=dist.ReduceOp.MAX)
        assert tensor[0].item() == dist.get_world_size()
        if dist.get_rank() == 0:
            print(json.dumps({"mib": mib, "ms": slower.item() * 1e3}), flush=True)
    dist.destroy_process_group()


main()
