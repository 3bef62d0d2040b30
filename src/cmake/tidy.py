#!/usr/bin/env python3
"""Runs clang-tidy on the project's own sources: tidy.py <build folder> <jobs>.

A file costs 10 to 20 s, nearly all of it for LibTorch's headers, so a file that passed is remembered by a hash of all
that decides the result: its text, the project headers it reaches, its compile command, the checks, the tool's version.
"""

import concurrent.futures
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "accel", "examples")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def project_headers(path, seen):
    """All project headers that `path` includes, directly or not."""
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        for folder in (ROOT / "include", ROOT / "src", ROOT, path.parent):
            header = folder / name
            if header.is_file() and header not in seen:
                seen.add(header)
                project_headers(header, seen)
    return seen


def compiler_arguments(command):
    """The compile command without the compiler, its launcher, and the output."""
    words = shlex.split(command)
    start = next(i for i, word in enumerate(words) if word.startswith("-") and i > 0 and "=" not in words[i - 1]
                 and Path(words[i - 1]).name.split("-")[0] in ("c++", "g++", "clang++"))
    return words[start:]


def key_of(source, command, salt):
    digest = hashlib.sha256(salt)
    digest.update(command.encode())
    for path in [source, *sorted(project_headers(source, set()))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def tidy(tool, source, arguments):
    words = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word in ("-o", "-c", "-MF", "-MT"):
            skip = True
        elif word not in ("-MD", "-Werror"):
            words.append(word)
    result = subprocess.run([tool, "--quiet", str(source), "--", *words, "-Wno-unknown-warning-option"],
                            capture_output=True, text=True, check=False, cwd=ROOT)
    return result.returncode, result.stdout + (result.stderr if result.returncode and not result.stdout else "")


def main(build, jobs):
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        sys.exit("clang-tidy 14: expected it to be installed, found none; run `make setup`")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    salt = version.encode() + (ROOT / ".clang-tidy").read_bytes() + Path(__file__).read_bytes()
    cache = ROOT / "build" / "lint-cache"
    cache.mkdir(parents=True, exist_ok=True)

    todo = {}
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    for entry in commands:
        source = Path(entry["file"]).resolve()
        if source.is_relative_to(ROOT) and source.relative_to(ROOT).parts[0] in FOLDERS:
            key = key_of(source, entry["command"], salt)
            if not (cache / key).exists():
                todo.setdefault(source, (key, compiler_arguments(entry["command"])))
    if todo:
        print(f"clang-tidy: {len(todo)} of {len(commands)} files are new or changed", flush=True)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(tidy, tool, source, arguments): (source, key)
                for source, (key, arguments) in sorted(todo.items())}
        for run in concurrent.futures.as_completed(runs):
            source, key = runs[run]
            code, text = run.result()
            if code == 0:
                (cache / key).touch()
            else:
                failed += 1
                print(f"{source.relative_to(ROOT)}\n{text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), int(sys.argv[2])))
