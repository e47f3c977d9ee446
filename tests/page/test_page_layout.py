# SPDX-License-Identifier: MIT
"""One layout for every compiler, one writer for every word."""

import re
import shutil
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_page import PAGE_SIZE_BYTES, constants, reading
from shared_page.reading import ffi
from tests.page.header_text import Structure, structures
from tests.page.programs import ROOT, built, driver

LAYOUT = structures(reading.HEADERS / "layout.h")
WIRE = structures(reading.HEADERS / "protocol.h")
ALL = LAYOUT | WIRE


def section_words(elf: Path, wanted: str) -> list[int]:
    """The 32-bit words of a section of a 64-bit little-endian object file."""
    data = elf.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * entry_size) for i in range(count)]
    for name, _, _, _, offset, size in headers:
        begin = headers[names_at][4] + name
        if data[begin : data.index(b"\0", begin)].decode() == wanted:
            return list(struct.unpack_from(f"<{size // 4}I", data, offset))
    raise AssertionError(f"{elf} has no section {wanted}")


def pairs(header: dict[str, Structure]) -> list[tuple[str, str]]:
    return [(name, member.name) for name, one in header.items() for member in one.members]


@pytest.mark.parametrize(
    ("listed", "header"), [("PAGE_FIELDS", LAYOUT), ("WIRE_FIELDS", WIRE)], ids=["page", "wire"]
)
def test_list_names_every_member_once(listed: str, header: dict[str, Structure]) -> None:
    assert reading.fields(listed) == pairs(header)
    assert len(pairs(header)) <= constants.LAYOUT_FIELDS_MAX


def test_header_text_sees_what_cffi_sees() -> None:
    for name, one in ALL.items():
        members = [member.name for member in one.members]
        assert members == [member for member, _ in ffi.typeof(f"struct {name}").fields]


@pytest.mark.parametrize("compiler", ["c11", "c++20", "bpf"])
def test_compilers_agree(compiler: str) -> None:
    if compiler == "bpf" and not shutil.which("clang-19"):
        pytest.skip("clang-19 is not installed; install the package clang-19")
    made = built(f"fields.{compiler}.o")
    assert section_words(made, ".page_fields") == reading.field_ends("PAGE_FIELDS")
    assert section_words(made, ".wire_fields") == reading.field_ends("WIRE_FIELDS")
    assert section_words(made, ".page_size") == [PAGE_SIZE_BYTES]


def test_nvrtc_agrees() -> None:
    """NVRTC needs no GPU; its PTX shows the array as bytes."""
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        pytest.skip("cuda-bindings is not installed; install the extra gpu of pyproject.toml")
    source = (
        '#include "shared_page/layout_fields.h"\n'
        'extern "C" __device__ const uint32_t fields[] = {PAGE_FIELDS(FIELD_END)};\n'
    )
    try:
        _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"fields.cu", 0, [], [])
    except RuntimeError as error:
        pytest.skip(f"libnvrtc cannot be loaded: {error}; install the package nvidia-cuda-nvrtc")
    options = [f"-I{ROOT}".encode(), b"-std=c++17"]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytes(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    found = re.search(rb"fields\[(\d+)\] = \{([\d, ]+)\}", ptx)
    assert found
    data = bytes(int(byte) for byte in found[2].split(b",")).ljust(int(found[1]), b"\0")
    assert list(memoryview(data).cast("I")) == reading.field_ends("PAGE_FIELDS")


def test_c_and_python_agree_on_the_hash() -> None:
    ends = reading.field_ends("PAGE_FIELDS")
    assert driver().drive_layout_hash() == reading.layout_hash(ends)
    for at in range(len(ends)):
        changed = [end + (i == at) for i, end in enumerate(ends)]
        assert reading.layout_hash(changed) != reading.layout_hash(ends)


@pytest.mark.parametrize("name", list(ALL))
def test_no_hidden_padding(name: str) -> None:
    kind: Any = ffi.typeof(f"struct {name}")
    end = 0
    for member, field in kind.fields:
        assert field.offset == end, f"padding before {member}"
        end += ffi.sizeof(field.type)
    assert end == ffi.sizeof(kind), "padding at the end"


def leaves(
    name: str, base: int = 0, marks: frozenset[str] = frozenset()
) -> Iterator[tuple[str, int, int, frozenset[str]]]:
    """(path, offset, bytes, writers named) of each word or array of words of a structure.

    An array of structures counts by its first element when its elements fill whole cache lines.
    """
    kind: Any = ffi.typeof(f"struct {name}")
    for member, (_, field) in zip(ALL[name].members, kind.fields, strict=True):
        named = marks | ALL[name].marks | member.marks
        path, offset = f"{name}.{member.name}", base + field.offset
        if not member.type.startswith("struct "):
            yield path, offset, ffi.sizeof(field.type), named
            continue
        inner = member.type.removeprefix("struct ")
        size = ffi.sizeof(f"struct {inner}")
        step = ffi.sizeof(field.type) if size % constants.CACHE_LINE == 0 else size
        for at in range(offset, offset + ffi.sizeof(field.type), step):
            yield from leaves(inner, at, named)


def test_every_word_has_one_writer() -> None:
    writers = {path: named for path, _, _, named in leaves("shared_page")}
    assert {path for path, named in writers.items() if len(named) != 1} == set()
    # Nothing of layout.h is out of reach of this test.
    assert {path.split(".")[0] for path in writers} | {"shared_page"} >= {
        name for name in LAYOUT if name not in ("connection_entry", "request_slot")
    }


def test_no_cache_line_has_two_writers() -> None:
    lines: defaultdict[int, set[str]] = defaultdict(set)
    for _, offset, size, named in leaves("shared_page"):
        first, last = offset // constants.CACHE_LINE, (offset + size - 1) // constants.CACHE_LINE
        for line in range(first, last + 1):
            lines[line] |= named - {"creator"}
    assert {line: named for line, named in lines.items() if len(named) > 1} == {}
    for whole in ("shared_page", "connection_entry", "request_slot"):
        assert ffi.sizeof(f"struct {whole}") % constants.CACHE_LINE == 0


def test_marks_are_read(tmp_path: Path) -> None:
    """The rule can fail: a missing and a doubled mark are both seen."""
    header = tmp_path / "bad.h"
    header.write_text(
        "/* [ingress] */\nstruct one {\n\tint a; /* [egress] */\n\tint b;\n};\n\n"
        "struct two {\n\t/* nobody */\n\tint c;\n\t/* [executor] */\n\tint d[SLOT_COUNT];\n};\n"
    )
    found = structures(header)
    marks = [(m.name, one.marks | m.marks) for one in found.values() for m in one.members]
    assert marks == [
        ("a", {"ingress", "egress"}),
        ("b", {"ingress"}),
        ("c", set()),
        ("d", {"executor"}),
    ]


def test_a_connection_costs_at_most_a_kibibyte() -> None:
    entry = ffi.sizeof("struct connection_entry")
    rings = ffi.sizeof("uint32_t") + ffi.sizeof("uint64_t")  # free_connection, attention
    assert entry + rings <= 1024
