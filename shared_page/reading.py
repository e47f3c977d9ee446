# SPDX-License-Identifier: MIT
"""The headers of this folder, read by cffi: no size, offset or constant is written twice.

Reading means the preprocessor's part (comments, directives, the branches of names that are not
defined) and then cffi's own parser in ABI mode, so no compiler is needed where the page is used.
"""

import re
from pathlib import Path

from cffi import FFI

HEADERS = Path(__file__).parent

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_FIELD = re.compile(r"FIELD\((\w+), (\w+)\)")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def declarations(header: Path) -> str:
    """The C declarations of a header: no comments, no directives, no names defined."""
    kept: list[str] = []
    taken = [True]  # of the conditionals around this line, whether their branch is read
    text = _COMMENT.sub("", header.read_text()).replace("\\\n", " ")
    for line in text.splitlines():
        directive = line.split()[:1]
        if directive in (["#ifdef"], ["#if"]):
            taken.append(False)
        elif directive == ["#ifndef"]:
            taken.append(True)
        elif directive == ["#else"]:
            taken[-1] = not taken[-1]
        elif directive == ["#endif"]:
            taken.pop()
        elif all(taken) and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept)


def fields(listed: str) -> list[tuple[str, str]]:
    """(structure, member) of each entry of PAGE_FIELDS or WIRE_FIELDS in layout_fields.h."""
    text = (HEADERS / "layout_fields.h").read_text()
    return _FIELD.findall(text.split(f"#define {listed}(FIELD)")[1].split("\n\n")[0])


def field_ends(listed: str) -> list[int]:
    """Where each of these members ends, in bytes from the start of its structure."""
    return [_field_end(*entry) for entry in fields(listed)]


def _field_end(structure: str, member: str) -> int:
    field = dict(ffi.typeof(f"struct {structure}").fields)[member]
    return int(field.offset) + int(ffi.sizeof(field.type))


def layout_hash(ends: list[int]) -> int:
    """FNV-1a, 64 bits, over the ends as little-endian 32-bit words."""
    value = _FNV_OFFSET
    for byte in b"".join(end.to_bytes(4, "little") for end in ends):
        value = (value ^ byte) * _FNV_PRIME % (1 << 64)
    return value


def _enumerations(text: str) -> dict[str, dict[str, int]]:
    names = re.findall(r"\benum (\w+) \{", text)
    return {name: dict(ffi.typeof(f"enum {name}").relements) for name in names}


ffi = FFI()
_TEXT = declarations(HEADERS / "protocol.h") + declarations(HEADERS / "layout.h")
ffi.cdef(_TEXT)

#: enumeration -> its constants by name
ENUMERATIONS = _enumerations(_TEXT)
#: every constant of both headers by name
CONSTANTS = {name: value for enum in ENUMERATIONS.values() for name, value in enum.items()}
