#!/usr/bin/env python3
"""Writes numpy_files.json: files as NumPy itself writes them, in hexadecimal digits, by name.

Run with the numpy of `make peers`: numpy_files.py > numpy_files.json
"""

import datetime
import io
import json
import sys
import zipfile

import numpy as np


def npy(array, version=None):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version)
    return buffer.getvalue()


def npz(save, **arrays):
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def files():
    grid = np.arange(6).reshape(2, 3)
    for dtype in ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
                  "float32", "float64"]:
        yield dtype, npy((grid % 2 if dtype == "bool" else grid + 1).astype(dtype))
    for dtype in ["complex64", "complex128"]:
        yield dtype, npy((grid + 1j * (grid + 0.5)).astype(dtype))
    yield "big_endian_float64", npy((grid + 0.25).astype(">f8"))
    yield "big_endian_complex64", npy((grid + 1j * (grid + 0.5)).astype(">c8"))
    yield "fortran", npy(np.asfortranarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4)))
    yield "no_dimensions", npy(np.float32(2.5))
    yield "no_rows", npy(np.zeros((0, 3), np.float32))
    yield "one_dimension", npy(np.arange(4, dtype=np.int16))
    yield "version_2", npy(np.arange(4, dtype=np.int16), version=(2, 0))
    yield "version_3", npy(np.arange(4, dtype=np.int16), version=(3, 0))
    yield "texts", npy(np.array(["a", "bc"]))
    yield "records", npy(np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f4")]))
    yield "dates", npy(np.array([datetime.date(2020, 1, 1)], dtype="datetime64[D]"))
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    y = np.arange(10, dtype=np.int64)
    yield "stored.npz", npz(np.savez, x=x, y=y)
    yield "deflated.npz", npz(np.savez_compressed, x=x, y=y)


def main():
    result = {"numpy": np.__version__, "files": {name: content.hex() for name, content in files()}}
    assert all(zipfile.is_zipfile(io.BytesIO(bytes.fromhex(h))) for n, h in result["files"].items() if ".npz" in n)
    json.dump(result, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
