# SPDX-License-Identifier: MIT
"""The page and the wire are defined once; the README's path of a request leads to real files."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_page import reading
from tests.layout.sizes import ROOT, sources

HEADERS = [reading.HEADERS / name for name in ("layout.h", "protocol.h")]
STRUCTURES = re.findall(
    r"^struct (\w+) \{", "".join(header.read_text() for header in HEADERS), re.MULTILINE
)
#: where one may be written down again: to be compared with the headers
TESTS_OF_THE_LAYOUT = (ROOT / "tests" / "page", ROOT / "tests" / "layout")

_STRUCTURE = re.compile(rf"\bstruct\s+({'|'.join(STRUCTURES)})\s*\{{")
_CONSTANT = re.compile(
    rf"\b({'|'.join(reading.CONSTANTS)})\s*(?::\s*int\s*)?=\s*-?\d"
    rf"|#\s*define\s+({'|'.join(reading.CONSTANTS)})\s+[-(]?\d"
)
_PATH = re.compile(r"\b[\w.-]+/[\w./-]*\w\.(?:c|h|cpp|hpp|cu|py)\b")


def second_definitions(text: str) -> Iterator[str]:
    """The structures and constants of the headers that a text defines."""
    yield from (found[0].split("{")[0] for found in _STRUCTURE.finditer(text))
    yield from (found[0] for found in _CONSTANT.finditer(text))


def test_page_and_wire_are_defined_once() -> None:
    assert {"shared_page", "request_header", "order_entry"} <= set(STRUCTURES)
    again = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in sources()
        if path not in HEADERS
        and not any(path.is_relative_to(folder) for folder in TESTS_OF_THE_LAYOUT)
        for found in second_definitions(path.read_text())
    }
    assert again == set()


@pytest.mark.parametrize(
    "text",
    [
        "struct request_header {\n\tint x;\n};",
        "struct  shared_page\n{",
        "SLOT_COUNT = 1024",
        "PROTOCOL_MAGIC: int = 0x31524742",
        "#define REQUEST_MAX (4096)",
    ],
)
def test_a_second_definition_is_seen(text: str) -> None:
    assert list(second_definitions(text))


def test_uses_are_no_definitions() -> None:
    text = (
        "struct request_header header = {0};\nstruct shared_page *page;\n"
        "if (x == SLOT_COUNT) SLOT_COUNT_X = 1; y = SLOT_COUNT - 1;\n"
    )
    assert list(second_definitions(text)) == []


def request_path(readme: str) -> list[str]:
    """The files named in the section whose heading speaks of the path of a request, in order."""
    sections = re.split(r"^#+ +", readme, flags=re.MULTILINE)
    named = [one for one in sections if "path of a request" in one.split("\n")[0].lower()]
    return list(dict.fromkeys(_PATH.findall("\n".join(named))))


def test_readme_shows_the_path_of_a_request() -> None:
    readme: Path = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not written yet; write it")
    files = request_path(readme.read_text())
    assert 3 <= len(files) <= 8, f'the section "The path of a request" names {files}'
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_path_is_read_from_its_section() -> None:
    path = "## The path of a request\n`bpf/in.bpf.c` -> n/e.cpp, bpf/in.bpf.c\n"
    text = f"# X\na/b.c\n{path}# Y\nc/d.h\n"
    assert request_path(text) == ["bpf/in.bpf.c", "n/e.cpp"]
