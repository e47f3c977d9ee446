# SPDX-License-Identifier: MIT
"""Dependencies point one way: every part knows the page, and no part knows another."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.layout.sizes import C_SUFFIXES, ROOT, sources

#: folder -> folders it may include or import; tests/ may use all, and nobody tests/
ALLOWED = {
    "shared_page": {"shared_page"},
    "bpf": {"bpf", "shared_page"},
    "native": {"native", "shared_page"},
    "gpu_scheduler": {"gpu_scheduler", "shared_page"},
    "vm": {"vm"},
    "experiments": {"experiments"},
    "loader": {"loader", "shared_page", "gpu_scheduler", "vm"},
}
#: file -> folders that it alone may import too, and not before its command is called: an
#: experiment runs the command line, and is a command of it
LAZY = {
    "loader/commands/ab.py": {"experiments"},
    "loader/commands/cost.py": {"experiments"},
}
#: where a quoted include is looked for, beside the including file's own folder
INCLUDE_FOLDERS = (ROOT, ROOT / "bpf" / "include")

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def used_by_c(path: Path, text: str) -> Iterator[str]:
    """The top-level folder of each quoted include; a file that is not ours counts as itself."""
    for name in _INCLUDE.findall(text):
        places = [(folder / name).resolve() for folder in (path.parent, *INCLUDE_FOLDERS)]
        found = next((place for place in places if place.is_file()), None)
        yield found.relative_to(ROOT).parts[0] if found else f"{name} (found nowhere)"


def used_by_python(text: str, at_start: bool = False) -> Iterator[str]:
    """The first name of each absolute import, wherever in the file it stands, or of those that
    importing the file makes."""
    tree = ast.parse(text)
    for node in tree.body if at_start else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def used(path: Path, text: str) -> set[str]:
    """The folders of ours, and the includes found nowhere, that a file depends on."""
    if path.suffix in C_SUFFIXES:
        return set(used_by_c(path, text))
    ours = {*ALLOWED, "tests", "bpf"}
    return ours & set(used_by_python(text)) if path.suffix == ".py" else set()


@pytest.mark.parametrize("folder", list(ALLOWED))
def test_a_part_uses_only_what_it_may(folder: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)} uses {other}"
        for path in sources()
        if path.is_relative_to(ROOT / folder)
        for other in used(path, path.read_text()) - ALLOWED[folder]
        if other not in LAZY.get(str(path.relative_to(ROOT)), set())
    }
    assert wrong == set()


@pytest.mark.parametrize("file", list(LAZY))
def test_lazy_imports_are_lazy(file: str) -> None:
    text = (ROOT / file).read_text()
    assert set(used_by_python(text)) >= LAZY[file]
    assert not set(used_by_python(text, at_start=True)) & LAZY[file]


def test_every_folder_has_a_rule() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in sources() if path.parent != ROOT}
    assert {one for one in folders if not one.startswith(".")} - {"tests"} <= set(ALLOWED)


def test_a_wrong_dependency_is_seen() -> None:
    native, bpf = ROOT / "native" / "epoll" / "x.cpp", ROOT / "bpf" / "x.bpf.c"
    assert used(native, '#include "shared_page/layout.h"\n# include "bpf/include/ring.h"\n') == {
        "shared_page",
        "bpf",
    }
    assert used(bpf, '#include <linux/in.h>\n#include "ring.h"\n#include "nowhere.h"\n') == {
        "bpf",
        "nowhere.h (found nowhere)",
    }
    text = "import os\nfrom . import errors\nimport loader.cli\ndef f():\n    from tests import x\n"
    assert used(ROOT / "experiments" / "x.py", text) == {"loader", "tests"}
