#!/usr/bin/env python3
"""Checks who includes whom: layer_check.py <root of the tree>. The table is that of src/README.md."""

import re
import sys
from pathlib import Path

# Each layer with those it may include. A layer includes itself and what stands below it, nothing beside or above.
BELOW = {"core": []}
for _layer, _under in [("runtime", "core"), ("device", "runtime"), ("comm", "device"), ("grad", "comm"),
                       ("precision", "grad"), ("data", "grad"), ("metrics", "grad"), ("optim", "grad")]:
    BELOW[_layer] = BELOW[_under] + [_under]
_MIDDLE = BELOW["grad"] + ["grad", "precision", "data", "metrics", "optim"]
BELOW["checkpoint"] = BELOW["track"] = _MIDDLE
BELOW["accelerator"] = _MIDDLE + ["checkpoint", "track"]
# Built on the public headers alone, which proves that they suffice.
BELOW["trainer"] = []

# The layer that each public header belongs to: a layer includes the public headers of the layers it may include.
PUBLIC = {
    "core": ["error", "export", "source_location", "version", "fwd"],
    "runtime": ["process"],
    "device": ["device"],
    "comm": ["collectives", "comm_stats", "interop"],
    "grad": ["model", "gradients"],
    "precision": ["precision", "autocast", "grad_scaler"],
    "data": ["csv_dataset", "data", "data_generator", "data_options", "dataset_kinds", "dataset_ops", "digits",
             "foreign_loader", "json_dataset", "loader_binding", "loader_core", "loader_pass", "mnist", "numpy",
             "prefetcher", "running_statistics", "table", "tensor_dataset", "text_dataset", "to_device", "tree",
             "tree_agreement", "tree_archive", "tree_collectives", "tree_fields"],
    "metrics": ["metrics", "metrics_classes", "metrics_numbers"],
    "optim": ["accumulate", "averaging", "optimizer", "scheduler"],
    "checkpoint": ["checkpoint", "safetensors"],
    "track": ["progress", "tracking"],
    "accelerator": ["accelerator", "accelerator_options", "join", "prepare", "tree_methods"],
    "trainer": ["trainer", "accel"],
}
PUBLIC_LAYER = {name: layer for layer, names in PUBLIC.items() for name in names}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
EXTERNAL = re.compile(r"^(mpi\.h|nccl\.h|boost/|torch/csrc/distributed/|cuda|nlohmann/|CLI/)")
WHOLE_TORCH = {"torch/torch.h", "torch/types.h", "torch/all.h", "ATen/ATen.h"}
NO_TORCH = {"core", "runtime"}


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def public_name(name):
    match = re.fullmatch(r"accel/(?:detail/)?(\w+)\.hpp", name)
    return match and match.group(1)


def check_public(path):
    for kind, name in includes(path):
        if kind == '"' or re.match(r"^(%s)/" % "|".join(BELOW), name):
            yield f'"{name}": a public header includes no internal one'
        elif name in WHOLE_TORCH:
            yield f"<{name}>: costs every file of a user 7 to 17 s; include the narrow header"
        elif EXTERNAL.match(name) and path.name != "interop.hpp":
            yield f"<{name}>: only interop.hpp shows MPI, NCCL, c10d and other libraries to users"
    if path.stem not in PUBLIC_LAYER:
        yield "belongs to no layer; name it in PUBLIC of tests/support/layer_check.py"
    elif PUBLIC_LAYER[path.stem] != "trainer":
        yield from check_public_order(path)


# Public headers of a layer include those of the layers below: the umbrella and the trainer alone see everything.
def check_public_order(path):
    layer = PUBLIC_LAYER[path.stem]
    for _, name in includes(path):
        other = PUBLIC_LAYER.get(public_name(name) or "")
        if other and other != layer and other not in BELOW[layer]:
            yield f"<{name}> belongs to {other}, which stands above or beside {layer}"
        if TORCH.match(name) and layer in NO_TORCH:
            yield f"<{name}>: {layer} never includes torch"


def check_internal(path, layer):
    allowed = set(BELOW[layer]) | {layer}
    for kind, name in includes(path):
        other = name.split("/")[0]
        if kind == '"' and other not in BELOW:
            yield f'"{name}": internal includes begin with the layer, as in "core/message.hpp"'
        elif kind == '"' and other not in allowed:
            yield f'"{name}": {layer} may include {", ".join(sorted(allowed))}'
        elif kind == "<" and other in BELOW and (path.parents[1] / name).exists():
            yield f"<{name}>: internal headers are included in quotes"
        elif name in WHOLE_TORCH:
            yield f"<{name}>: costs 7 to 17 s of compile time; include the narrow header"
        elif TORCH.match(name) and layer in NO_TORCH:
            yield f"<{name}>: {layer} never includes torch"
        elif public_name(name) and layer != "trainer":
            owner = PUBLIC_LAYER.get(public_name(name))
            if owner not in allowed:
                yield f"<{name}> belongs to {owner or 'no layer'}, which stands above or beside {layer}"


# The programs of the accel tool start at once because they see no torch (its version header holds macros alone);
# accel-probe is the one that does.
def check_tool(path):
    probe = path.name.startswith("probe")
    for kind, name in includes(path):
        if probe:
            continue
        if kind == '"' and name.split("/")[0] in set(BELOW) - NO_TORCH:
            yield f'"{name}": the tool may include core and runtime'
        elif TORCH.match(name) and name != "torch/version.h":
            yield f"<{name}>: the tool links no torch; accel-probe (accel/probe*) does"


def check_user(path):
    for kind, name in includes(path):
        if kind == '"' and (name.split("/")[0] in BELOW or "src/" in name):
            yield f'"{name}": an example includes public headers only'


def cpp_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in {".hpp", ".cpp", ".h", ".cu"})


def main(root):
    found = []

    def note(path, complaints):
        found.extend(f"{path.relative_to(root)}: {text}" for text in complaints)

    for path in cpp_files(root / "include"):
        note(path, check_public(path))
    for layer in sorted(p.name for p in (root / "src").iterdir() if p.is_dir() and p.name != "cmake"):
        for path in cpp_files(root / "src" / layer):
            note(path, check_internal(path, layer) if layer in BELOW else [f"src/{layer} is no layer of the table"])
    for path in cpp_files(root / "accel"):
        note(path, check_tool(path))
    for path in cpp_files(root / "examples"):
        note(path, check_user(path))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
