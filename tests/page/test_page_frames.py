# SPDX-License-Identifier: MIT
"""A page whose frames lie about in a virtual machine: found, listed, put together again."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_page import PAGE_SIZE_BYTES, PageError, SharedPage
from shared_page.frames import FRAME_BYTES, map_frames, read_frames, write_frames
from shared_page.page import PAGE_FRAMES
from shared_page.reading import ffi
from tests.page.programs import driver

MEMORY_FRAMES = 4 * PAGE_FRAMES


@pytest.fixture
def memory() -> Iterator[int]:
    """Stands for the file of a machine's memory."""
    fd = os.memfd_create("memory")
    os.truncate(fd, MEMORY_FRAMES * FRAME_BYTES)
    yield fd
    os.close(fd)


@pytest.fixture
def scattered(memory: int) -> list[int]:
    """A page in it, in frames without any order."""
    frames = random.Random(7).sample(range(MEMORY_FRAMES), PAGE_FRAMES)
    with SharedPage.create_memfd(9) as page:
        content = bytes(ffi.buffer(page.struct)).ljust(PAGE_FRAMES * FRAME_BYTES, b"\0")
    for number, frame in enumerate(frames):
        piece = content[number * FRAME_BYTES :][:FRAME_BYTES]
        assert os.pwrite(memory, piece, frame * FRAME_BYTES) == FRAME_BYTES
    return frames


def attach_c(fd: int, frames: list[int]) -> tuple[Any, str]:
    """The page that page_attach_frames() of attach.h returns, and what it says."""
    error = ffi.new("char[300]")
    numbers = ffi.new("uint64_t[]", frames)
    page = driver().drive_attach_frames(fd, numbers, len(frames), error, len(error))
    said: Any = ffi.string(error)
    return page, said.decode()


def error_c(fd: int, frames: list[int]) -> str:
    page, said = attach_c(fd, frames)
    assert page == ffi.NULL
    return said


def error_python(fd: int, frames: list[int]) -> str:
    with pytest.raises(PageError) as error:
        SharedPage.attach(fd, frames)
    return str(error.value)


both = pytest.mark.parametrize("refusal", [error_c, error_python])
Refusal = Callable[[int, list[int]], str]


def test_c_and_python_see_one_page(memory: int, scattered: list[int]) -> None:
    mapped, said = attach_c(memory, scattered)
    assert not said
    with SharedPage.attach(memory, scattered) as page:
        page.struct.supervisor.stop = 1
        page.struct.slot[1023].result[4095] = 77
        assert mapped.supervisor.stop == 1
        assert mapped.slot[1023].result[4095] == 77
        mapped.executor.state = 3
        assert page.executor_state == 3
        assert bytes(ffi.buffer(mapped)) == bytes(ffi.buffer(page.struct))


@both
def test_a_list_that_is_not_whole(memory: int, scattered: list[int], refusal: Refusal) -> None:
    for frames in (scattered[:-1], [*scattered, 0]):
        assert "the list of its frames is not whole" in refusal(memory, frames)


@both
def test_a_frame_behind_the_end(memory: int, scattered: list[int], refusal: Refusal) -> None:
    scattered[5] = MEMORY_FRAMES
    assert "a frame lies behind its end" in refusal(memory, scattered)


@both
def test_frames_in_another_order(memory: int, scattered: list[int], refusal: Refusal) -> None:
    assert "page_identity.magic is " in refusal(memory, scattered[::-1])


@both
def test_a_descriptor_without_memory(scattered: list[int], refusal: Refusal) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    message = refusal(reader, scattered)
    os.close(reader)
    assert "a frame lies behind its end" in message
    assert "EBADF" in refusal(reader, scattered)


@pytest.mark.root
def test_the_kernel_says_which_frames() -> None:
    """Equal memory has equal frames, also seen through another mapping."""
    if os.geteuid():
        pytest.skip("needs uid 0: run as root or through sudo")
    with SharedPage.create_memfd(9) as page:
        frames = page.frames()
        assert len(set(frames)) == len(frames) == PAGE_FRAMES
        with SharedPage.attach(page.fd) as again:
            assert again.frames() == frames


def test_a_list_goes_through_a_file(tmp_path: Path) -> None:
    write_frames(tmp_path / "frames", [3, 1 << 40, 0])
    assert read_frames(tmp_path / "frames") == [3, 1 << 40, 0]
    assert (tmp_path / "frames").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["frames"]


def test_mapped_side_by_side(memory: int) -> None:
    os.pwrite(memory, b"second", 9 * FRAME_BYTES)
    with map_frames(memory, [3, 9]) as mapping:
        mapping[:5] = b"first"
        assert mapping[FRAME_BYTES : FRAME_BYTES + 6] == b"second"
    assert os.pread(memory, 5, 3 * FRAME_BYTES) == b"first"
    assert PAGE_SIZE_BYTES <= PAGE_FRAMES * FRAME_BYTES < PAGE_SIZE_BYTES + FRAME_BYTES
