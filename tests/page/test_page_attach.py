# SPDX-License-Identifier: MIT
"""A page is refused unless it is whole and laid out as ours; the message names what differs."""

import ctypes
import mmap
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_page import PAGE_SIZE_BYTES, PageError, SharedPage, constants, reading
from shared_page.reading import ffi
from tests.page.programs import ROOT, driver

BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}
BPF_MAP_CREATE, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE = 0, 2, 1 << 10


@pytest.fixture
def page() -> Iterator[SharedPage]:
    with SharedPage.create_memfd(4096) as made:
        yield made


def attach_error_c(fd: int) -> str:
    """What page_attach() of attach.h says about the page, "" when it takes it."""
    error = ffi.new("char[300]")
    at = driver().drive_attach(fd, error, len(error))
    said: Any = ffi.string(error)
    assert (at == ffi.NULL) == bool(said)
    return str(said.decode())


def attach_error_python(fd: int) -> str:
    """The same, of SharedPage.attach()."""
    try:
        SharedPage.attach(fd).close()
    except PageError as error:
        return str(error)
    return ""


both = pytest.mark.parametrize("attach_error", [attach_error_c, attach_error_python])
AttachError = Callable[[int], str]


@both
def test_a_good_page_is_taken(page: SharedPage, attach_error: AttachError) -> None:
    assert attach_error(page.fd) == ""


@both
@pytest.mark.parametrize(
    "field", ["magic", "layout_version", "layout_fields", "size", "layout_hash"]
)
def test_a_wrong_identity_is_named(page: SharedPage, attach_error: AttachError, field: str) -> None:
    value = getattr(page.struct.identity, field)
    setattr(page.struct.identity, field, value + 1)
    message = attach_error(page.fd)
    assert f"page_identity.{field} is {value + 1:#x} there and {value:#x} here" in message
    setattr(page.struct.identity, field, value)
    assert attach_error(page.fd) == ""


@both
def test_each_changed_field_is_named(page: SharedPage, attach_error: AttachError) -> None:
    for at, (structure, member) in enumerate(reading.fields("PAGE_FIELDS")):
        page.struct.identity.layout_field[at] ^= 0x40
        assert f" {structure}.{member} is " in attach_error(page.fd)
        page.struct.identity.layout_field[at] ^= 0x40
    assert attach_error(page.fd) == ""


def test_both_say_the_same(page: SharedPage) -> None:
    page.struct.identity.layout_field[20] += 8
    message = attach_error_c(page.fd)
    assert "let a part built from the same sources" in message
    assert message == attach_error_python(page.fd)


@both
@pytest.mark.parametrize("size", [0, 1, 4096, PAGE_SIZE_BYTES - 1])
def test_a_truncated_memfd_is_refused(attach_error: AttachError, size: int) -> None:
    fd = os.memfd_create("short")
    try:
        os.truncate(fd, size)
        message = attach_error(fd)
    finally:
        os.close(fd)
    assert message.startswith(f"map the page (descriptor {fd}): it ")
    assert f"at least {PAGE_SIZE_BYTES} bytes" in message


@both
def test_what_is_no_memory_is_refused(attach_error: AttachError) -> None:
    fd = os.eventfd(0)
    assert ": ENODEV; pass the descriptor" in attach_error(fd)
    os.close(fd)
    assert ": EBADF; pass the descriptor" in attach_error(fd)


def bpf_array_map(size: int) -> int:
    """The descriptor of a mmapable array map of one value. Raises OSError."""
    number = BPF_SYSCALL.get(platform.machine())
    if number is None:
        pytest.skip(f"no bpf(2) number known for {platform.machine()}; add it to BPF_SYSCALL")
    fields = (BPF_MAP_TYPE_ARRAY, 4, size, 1, BPF_F_MMAPABLE)
    attributes = ctypes.create_string_buffer(struct.pack("<5I", *fields), 72)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, BPF_MAP_CREATE, attributes, len(attributes))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "bpf(BPF_MAP_CREATE)")
    return int(fd)


@both
def test_a_bpf_map_is_a_page(attach_error: AttachError) -> None:
    try:
        fd, short = bpf_array_map(PAGE_SIZE_BYTES), bpf_array_map(PAGE_SIZE_BYTES - mmap.PAGESIZE)
    except PermissionError:
        pytest.skip("a BPF map cannot be created: EPERM; run as root or with CAP_BPF")
    try:
        assert "page_identity.magic is 0 there" in attach_error(fd).replace("0x0", "0")
        SharedPage.initialise(fd, 9)
        assert attach_error(fd) == ""
        assert ": EINVAL; pass the descriptor" in attach_error(short)
    finally:
        os.close(fd)
        os.close(short)


def test_c_and_python_initialise_alike(page: SharedPage) -> None:
    bare = mmap.mmap(-1, PAGE_SIZE_BYTES)
    view = ffi.from_buffer("struct shared_page *", bare, require_writable=True)
    driver().drive_initialise(view, 4096)
    assert bytes(ffi.buffer(page.struct)) == bytes(bare)
    ffi.release(view)
    bare.close()


def test_a_page_in_use_is_not_initialised_again(page: SharedPage) -> None:
    with pytest.raises(PageError, match="its memory is in use"):
        SharedPage.initialise(page.fd, 1)


@pytest.mark.parametrize("wrong", [0, -1, 4097])
def test_connections_out_of_range(wrong: int) -> None:
    with pytest.raises(ValueError, match="has room for 1 to 4096"):
        SharedPage.create_memfd(wrong)


@pytest.mark.parametrize("wrong", [0, 1025])
def test_slots_out_of_range(wrong: int) -> None:
    with pytest.raises(ValueError, match="the page has room for 1 to 1024"):
        SharedPage.create_memfd(1, wrong)


def test_slots_that_are_never_free_are_not_in_use() -> None:
    with SharedPage.create_memfd(1, 3) as page:
        assert page.struct.identity.max_slots == page.struct.egress.free_slot_tail == 3
        assert page.counters()["depth"]["slots"] == 0


def test_the_memfd_keeps_its_size(page: SharedPage) -> None:
    for size in (0, PAGE_SIZE_BYTES + 1):
        with pytest.raises(PermissionError):
            os.truncate(page.fd, size)


def test_numpy_views_the_same_memory(page: SharedPage) -> None:
    view = page.as_numpy()
    page.struct.slot[7].executor.status = constants.STATUS_CANCELLED
    assert view["slot"]["executor"]["status"][7] == constants.STATUS_CANCELLED
    view["connection"]["order"]["request_id"][4095, 31] = 1 << 63
    assert page.struct.connection[4095].order[31].request_id == 1 << 63
    assert view.nbytes == PAGE_SIZE_BYTES
    assert list(view["free_slot"]) == list(range(constants.SLOT_COUNT))
    with pytest.raises(BufferError):  # the array still refers to the mapping
        page._memory.close()


def test_counters_and_depths() -> None:
    with SharedPage.create_memfd(5) as page:
        page.struct.ingress.submit_tail = 9
        page.struct.ingress.free_connection_head = 2
        page.struct.ingress.free_slot_head = 11
        page.struct.executor.submit_head = 6
        page.struct.egress.finals = 4
        page.struct.egress.free_slot_tail += 3
        counters = page.counters()
        assert counters["depth"] == {"queued": 3, "in_flight": 5, "slots": 8, "connections": 2}
        assert counters["ingress"]["submit_tail"] == 9
        assert not {name for group in counters.values() for name in group if "pad" in name}
        assert page.executor_state == constants.EXECUTOR_ABSENT
        page.request_stop()
        assert page.struct.supervisor.stop == 1


def test_headers_travel_with_the_package_and_numpy_stays_out(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "shared_page", tmp_path / "shared_page")
    code = (
        "import sys, shared_page\n"
        "page = shared_page.SharedPage.create_memfd(1)\n"
        "print(shared_page.__file__, 'numpy' in sys.modules)\n"
        "print(*[line for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert shown[:2] == [str(tmp_path / "shared_page" / "__init__.py"), "False"]
    assert int(shown[3]) < 40 * 1024, "KiB, of the supervisor's 80 MiB"
