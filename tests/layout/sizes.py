# SPDX-License-Identifier: MIT
"""Sizes of files and functions, against the house's limits: printed, and enforced.

    python tests/layout/sizes.py

A file's size is its lines. A function's is the lines from its name to its end, without the
docstring. Exit status 1 when a limit is broken; what is broken is then the last thing printed.
"""

import ast
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

C_SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")
SUFFIXES = (*C_SUFFIXES, ".py", ".sh", ".mk")

FILE_LINES, FILE_SHARE = 400, 0.95
BPF_FILE_MEDIAN = 150
FUNCTION_MEDIAN, FUNCTION_P90, FUNCTION_MAX = 15, 45, 80

#: macros with arguments that may stand before a function's name
NOT_NAMES = ("SEC",)

_BLANKED = re.compile(
    r"/\*.*?\*/|//[^\n]*"
    r'|R"(?P<d>\w*)\(.*?\)(?P=d)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)'(?:\\.|[^'\\\n])+'"
    r"|^[ \t]*\#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)|\[\[.*?\]\]|\balignas\([^)]*\)", re.DOTALL)
_CONTAINER = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b[^()]*$")
_CONSTRUCTOR_MEMBERS = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[\w>]\s*$", re.DOTALL)


@dataclass(frozen=True)
class Function:
    """A function and where it begins."""

    path: str
    line: int
    name: str
    lines: int


def sources() -> list[Path]:
    """Files of ours that a compiler, a shell or Python reads: tracked, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    named = (path for path in listed if path.endswith(SUFFIXES) or path == "Makefile")
    return sorted(ROOT / path for path in set(named) if (ROOT / path).is_file())


def functions(path: Path) -> list[Function]:
    """The functions of a C, C++ or Python file, inner ones of Python included."""
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    if path.suffix == ".py":
        return list(_python_functions(name, path.read_text()))
    if path.suffix in C_SUFFIXES:
        return list(_c_functions(name, path.read_text()))
    return []


def _python_functions(path: str, text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        first = node.body[0]
        if ast.get_docstring(node, clean=False) is not None:
            lines -= (first.end_lineno or first.lineno) - first.lineno + 1
        yield Function(path, node.lineno, node.name, lines)


def _c_functions(path: str, text: str) -> Iterator[Function]:
    """A scan of braces: good enough for code that clang-format has laid out."""
    text = _BLANKED.sub(lambda found: " " + "\n" * found[0].count("\n"), text)
    opened: list[str] = []  # what each open brace holds
    head = 0  # where the declaration begins that is being read
    for found in re.finditer("[{};]", text):
        at, within = found.start(), opened[-1] if opened else "scope"
        if found[0] == "{":
            opened.append(_held(text[head:at]) if within == "scope" else "code")
            if opened[-1] == "scope":
                head = at + 1
        elif found[0] == "}":
            if opened and opened.pop() == "function":
                yield _c_function(path, text, head, at)
            if within in ("function", "scope"):
                head = at + 1
        elif within == "scope":
            head = at + 1


def _held(head: str) -> str:
    """What the brace after head opens: a scope of declarations, a function, or a value."""
    head = _ATTRIBUTE.sub("", head).rstrip()
    if head.endswith("=") or _CONSTRUCTOR_MEMBERS.search(head):
        return "value"
    if _CONTAINER.search(head):
        return "scope"
    return "function" if ")" in head else "value"


def _c_function(path: str, text: str, head: int, end: int) -> Function:
    begin = head + len(text[head:end]) - len(text[head:end].lstrip())
    named = re.findall(r"(operator\W+?|[\w:~]+)\s*\(", _ATTRIBUTE.sub("", text[begin:end]))
    name = next((one for one in named if one not in NOT_NAMES), "?")
    return Function(path, text.count("\n", 0, begin) + 1, name, text.count("\n", begin, end) + 1)


def _percentile(values: list[int], share: float) -> int:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def table(files: dict[Path, int], found: list[Function]) -> str:
    """Files and functions of each top-level folder: how many, how long."""
    folders: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for path, lines in files.items():
        folders[path.relative_to(ROOT).parts[0]][0].append(lines)
        folders["all"][0].append(lines)
    for function in found:
        folders[Path(function.path).parts[0]][1].append(function.lines)
        folders["all"][1].append(function.lines)
    rows = [f"{'':14}  files  median   max  functions  median   p90   max"]
    for folder, (sizes, lengths) in sorted(folders.items()):
        row = f"{folder:14} {len(sizes):6} {statistics.median(sizes):7.0f} {max(sizes):5}"
        if lengths:
            row += f" {len(lengths):10} {statistics.median(lengths):7.0f}"
            row += f" {_percentile(lengths, 0.9):5} {max(lengths):5}"
        rows.append(row)
    return "\n".join(rows)


def broken(files: dict[Path, int], found: list[Function]) -> list[str]:
    """The limits that do not hold, each with what breaks it."""
    problems = []
    long = sorted(path for path, lines in files.items() if lines > FILE_LINES)
    if len(long) > (1 - FILE_SHARE) * len(files):
        named = ", ".join(f"{path.relative_to(ROOT)} ({files[path]})" for path in long)
        problems.append(
            f"more than {1 - FILE_SHARE:.0%} of the files over {FILE_LINES} lines: {named}"
        )
    bpf = [lines for path, lines in files.items() if path.is_relative_to(ROOT / "bpf")]
    if bpf and statistics.median(bpf) > BPF_FILE_MEDIAN:
        problems.append(f"the median file of bpf/ has over {BPF_FILE_MEDIAN} lines")
    lengths = [function.lines for function in found]
    if lengths and _percentile(lengths, 0.9) > FUNCTION_P90:
        problems.append(f"more than a tenth of the functions over {FUNCTION_P90} lines")
    problems += [
        f"{one.path}:{one.line}: {one.name}() has {one.lines} lines, over {FUNCTION_MAX}"
        for one in found
        if one.lines > FUNCTION_MAX
    ]
    return problems


def main() -> int:
    """Prints the figures; returns 1 when a limit is broken."""
    files = {path: len(path.read_text().splitlines()) for path in sources()}
    found = [function for path in files for function in functions(path)]
    print(table(files, found))
    if statistics.median(one.lines for one in found) > FUNCTION_MEDIAN:
        print(f"warning: the median function has over {FUNCTION_MEDIAN} lines")
    problems = broken(files, found)
    for problem in problems:
        print(f"error: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
