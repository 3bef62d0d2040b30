#!/usr/bin/env python3
"""Checks that files and functions stay small enough to read: size_check.py <root of the tree> [--verbose].

A file over its budget is split by concept. A function fits one screen; nine in ten are half of that.
"""

import re
import sys
from pathlib import Path

FILE_LINES = {"include": 250, "src": 400, "accel": 400, "examples": 400, "tests": 600}
FUNCTION_LINES = 60
FUNCTION_LINES_P90 = 30
# Tests list cases and examples show a whole program, so their functions are as long as they have to be.
FUNCTIONS_OF = {"include", "src", "accel"}

# Comments, strings and preprocessor lines hold braces that are no code; blanks of equal height replace them.
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
    r"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def code_only(text):
    return NOT_CODE.sub(lambda match: " " + "\n" * match.group(0).count("\n"), text)


def functions(text):
    """Yields (first line, number of lines) of every function body, with its signature."""
    code = code_only(text)
    depth = 0  # inside a function or an initializer; scopes do not count
    start = 0  # where the current declaration begins
    body = None
    for at, char in enumerate(code):
        if char == "{":
            head = code[start:at]
            if depth or not (SCOPE.search(head) and not re.search(r"\)[^()]*$", head)):
                if depth == 0 and ")" in head:
                    body = start + len(head) - len(head.lstrip())
                depth += 1
            else:
                start = at + 1
        elif char == "}":
            if depth:
                depth -= 1
                if depth == 0 and body is not None:
                    # A member initializer in braces is followed by the body, or by more initializers.
                    if not re.match(r"\s*[,{]", code[at + 1:at + 200]):
                        first = code.count("\n", 0, body) + 1
                        yield first, code.count("\n", 0, at) + 2 - first
                        body, start = None, at + 1
                elif depth == 0:
                    start = at + 1
            else:
                start = at + 1
        elif char == ";" and depth == 0:
            start = at + 1


def main(root, verbose):
    complaints, lengths, code_lines, comment_lines = [], [], 0, 0
    for top, budget in FILE_LINES.items():
        for path in sorted(p for p in (root / top).rglob("*") if p.suffix in {".hpp", ".cpp", ".cu"}):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(root)
            if text.count("\n") > budget:
                complaints.append(f"{name}: {text.count(chr(10))} lines, budget {budget}")
            if top not in FUNCTIONS_OF:
                continue
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            code_lines += len(lines)
            comment_lines += sum(line.startswith("//") for line in lines)
            for first, length in functions(text):
                lengths.append(length)
                if length > FUNCTION_LINES:
                    complaints.append(f"{name}:{first}: a function of {length} lines, budget {FUNCTION_LINES}")
    lengths.sort()
    p90 = lengths[len(lengths) * 9 // 10] if lengths else 0
    if p90 > FUNCTION_LINES_P90:
        complaints.append(f"nine in ten functions have up to {p90} lines, budget {FUNCTION_LINES_P90}")
    if verbose and lengths:
        print(f"{len(lengths)} functions, lines: median {lengths[len(lengths) // 2]}, p90 {p90}, max {lengths[-1]};"
              f" comment lines {100 * comment_lines // code_lines}%")
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), "--verbose" in sys.argv))
