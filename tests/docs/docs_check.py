#!/usr/bin/env python3
"""Keeps the documents true: compiles their C++ blocks, runs their programs, follows their links.

  docs_check.py compile <root> <build folder> -- <compiler> <flag>...   all C++ blocks, as one translation unit
  docs_check.py extract <document> <output>                             the program of a document, for the build
  docs_check.py run <document> <ranks> -- <command>...                  its output against the one in the document
  docs_check.py links <root>                                            files and headings that links name
  docs_check.py diffs <root>                                            what documents say about differences of files

A fenced block says what it is: ```cpp is the inside of a function, with the names of prelude.hpp in sight;
```cpp declarations stands at global scope; ```cpp program is a whole file with a main. A block ```text ranks=2 is what
the program of the same document prints on two ranks. ```diff first second shows all lines in which two files of the
project differ. A row | `name` | ... | 12 | in examples/README.md ends with the number of lines in which
by_feature/name_bare.cpp and by_feature/name.cpp differ.
"""

import difflib
import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"^( *)```(.*)$")
INCLUDE = re.compile(r"^\s*#\s*include\s.*$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")


def documents(root):
    """All Markdown files of the project, without those of a build."""
    found = [p for p in root.rglob("*.md") if not {"build", ".git"} & set(p.relative_to(root).parts)]
    return sorted(found)


def blocks(document):
    """Yields (info string, number of the first line, text) of every fenced block."""
    info, first, indent, lines = None, 0, "", []
    for number, line in enumerate(document.read_text(encoding="utf-8").split("\n"), start=1):
        fence = FENCE.match(line)
        if fence and info is None:
            indent, info, first, lines = fence.group(1), fence.group(2).strip(), number + 1, []
        elif fence:
            yield info, first, "\n".join(lines)
            info = None
        elif info is not None:
            lines.append(line.removeprefix(indent))
    if info is not None:
        sys.exit(f"{document}:{first - 1}: expected an end of this block, found the end of the file")


def without_includes(text, includes):
    """Moves the includes of a block into `includes`; its lines keep their numbers."""
    for line in INCLUDE.findall(text):
        if line.strip() not in includes:
            includes.append(line.strip())
    return INCLUDE.sub("", text)


def translation_unit(root):
    """The text of one file that holds all C++ blocks, and their number."""
    includes, body, count = [], [], 0
    for document in documents(root):
        for info, first, text in blocks(document):
            if info.split()[:1] != ["cpp"]:
                continue
            kind = (info.split() + ["fragment"])[1]
            if kind not in ("fragment", "declarations", "program"):
                sys.exit(f"{document}:{first - 1}: expected cpp, cpp declarations or cpp program, found '{info}'")
            count += 1
            text = without_includes(text, includes)
            opening, closing = {
                "fragment": (f"namespace docs {{ void fragment_{count}() {{", "}}"),
                "declarations": ("", ""),
                "program": (f"namespace docs_program_{count} {{", "}"),
            }[kind]
            body.append(f'{opening}\n#line {first} "{document}"\n{text}\n{closing}\n')
    prelude = f'#include "{Path(__file__).resolve().parent / "prelude.hpp"}"\n'
    return prelude + "\n".join(includes) + "\n" + "".join(body), count


def compile_all(root, build, command):
    text, count = translation_unit(root)
    if count == 0:
        sys.exit("expected C++ blocks in the documents, found none")
    source = build / "docs_blocks.cpp"
    source.write_text(text, encoding="utf-8")
    result = subprocess.run([*command, str(source)], check=False)
    if result.returncode != 0:
        sys.exit(f"a C++ block of the documents does not compile; the unit is {source}")
    print(f"{count} C++ blocks compile")


def extract(document, output):
    programs = [(first, text) for info, first, text in blocks(document) if info.split() == ["cpp", "program"]]
    if len(programs) != 1:
        sys.exit(f"{document}: expected one block cpp program, found {len(programs)}")
    first, text = programs[0]
    output.write_text(f'#line {first} "{document}"\n{text}\n', encoding="utf-8")


def agree(expected, found):
    """Whole numbers are exact; numbers with a point may differ a little, as sums do between machines."""
    if NUMBER.sub("#", expected) != NUMBER.sub("#", found):
        return False
    for a, b in zip(NUMBER.findall(expected), NUMBER.findall(found)):
        if a != b and ("." not in a or abs(float(a) - float(b)) > 0.002 + 0.05 * abs(float(a))):
            return False
    return True


def run(document, ranks, command):
    texts = [text for info, _, text in blocks(document) if info.split() == ["text", f"ranks={ranks}"]]
    if len(texts) != 1:
        sys.exit(f"{document}: expected one block text ranks={ranks}, found {len(texts)}")
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    expected, found = texts[0].strip().split("\n"), result.stdout.strip().split("\n")
    if result.returncode != 0:
        sys.exit(f"expected the program to end with 0, found {result.returncode}")
    if len(expected) != len(found) or not all(agree(a, b) for a, b in zip(expected, found)):
        sys.exit("expected the output in the document:\n" + "\n".join(expected) + "\nfound:\n" + "\n".join(found))


def anchors(document):
    """Names of the headings, as they are made of their texts."""
    inside, names = False, set()
    for line in document.read_text(encoding="utf-8").split("\n"):
        inside ^= bool(FENCE.match(line))
        if not inside and line.startswith("#"):
            words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            names.add(words.replace(" ", "-"))
    return names


def outside_blocks(document):
    inside, lines = False, []
    for line in document.read_text(encoding="utf-8").split("\n"):
        fence = bool(FENCE.match(line))
        lines.append("" if inside or fence else re.sub(r"`[^`]*`", "", line))
        inside ^= fence
    return lines


def links(root):
    broken = []
    for document in documents(root):
        for number, line in enumerate(outside_blocks(document), start=1):
            for link in LINK.findall(line):
                if re.match(r"[a-z]+:", link):
                    continue
                name, _, anchor = link.partition("#")
                target = (document.parent / name).resolve() if name else document
                if not target.exists():
                    broken.append(f"{document.relative_to(root)}:{number}: no file {link}")
                elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                    broken.append(f"{document.relative_to(root)}:{number}: no heading {link}")
    print("\n".join(broken))
    return 1 if broken else 0


def changed_lines(first, second):
    """The lines that `diff` marks, each with its sign; blank ones left out."""
    texts = [path.read_text(encoding="utf-8").splitlines() for path in (first, second)]
    marked = difflib.unified_diff(*texts, lineterm="", n=0)
    return [line for line in marked if not line.startswith(("---", "+++", "@@")) and line[1:].strip()]


def wrong_blocks(root):
    for document in documents(root):
        for info, first, text in blocks(document):
            if info.split()[:1] != ["diff"]:
                continue
            before, after = (root / name for name in info.split()[1:])
            found = changed_lines(before, after)
            if [line for line in text.split("\n") if line.strip()] != found:
                yield f"{document.relative_to(root)}:{first}: expected the block\n" + "\n".join(found)


def wrong_rows(root):
    table, folder = root / "examples/README.md", root / "examples/by_feature"
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", table.read_text(encoding="utf-8"), re.MULTILINE))
    names = {path.name.removesuffix("_bare.cpp") for path in folder.glob("*_bare.cpp")}
    if not names or set(rows) != names:
        yield f"examples/README.md: expected a row for each of {sorted(names)}, found {sorted(rows)}"
    for name in sorted(names & set(rows)):
        count = len(changed_lines(folder / f"{name}_bare.cpp", folder / f"{name}.cpp"))
        if count != int(rows[name]):
            yield f"examples/README.md: {name}: expected {count} changed lines, found {rows[name]}"


def diffs(root):
    wrong = [*wrong_blocks(root), *wrong_rows(root)]
    print("\n".join(wrong))
    return 1 if wrong else 0


def main(words):
    command = []
    if "--" in words:
        words, command = words[:words.index("--")], words[words.index("--") + 1:]
    call, arguments = words[0], words[1:]
    if call == "compile":
        compile_all(Path(arguments[0]).resolve(), Path(arguments[1]), command)
    elif call == "extract":
        extract(Path(arguments[0]).resolve(), Path(arguments[1]))
    elif call == "run":
        run(Path(arguments[0]).resolve(), arguments[1], command)
    elif call == "diffs":
        return diffs(Path(arguments[0]).resolve())
    elif call == "links":
        return links(Path(arguments[0]).resolve())
    else:
        sys.exit(f"expected compile, extract, run, links or diffs, found '{call}'")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
