"""How an executor starts, stops, and dies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shared_page import SharedPage, constants, wire
from shared_page.frames import FRAME_BYTES, write_frames
from shared_page.page import PAGE_FRAMES
from shared_page.reading import ffi

from .conftest import Start
from .driver import ROOT, Transport, wait_until
from .executors import Executor, Program, refusal


@pytest.mark.parametrize("how", ["word", "SIGTERM", "SIGINT"])
def test_it_finishes_what_was_submitted(transport: Transport, start: Start, how: str) -> None:
    """Running, launched and waiting: all is answered, and only then it leaves, with status 0."""
    executor = start("echo:delay_us=200000,in_flight=2;toylm:batch=2,delay_us=1000")
    connections = transport.connect_many(30)
    for number, connection in enumerate(connections):
        if number % 2:
            connection.send(constants.KIND_TOYLM, wire.pack_generation([number], 20))
        else:
            connection.send(constants.KIND_ECHO, b"x")
    if how == "word":
        transport.page.request_stop()
    else:
        executor.process.send_signal(getattr(signal, how))
    assert executor.wait() == 0
    assert executor.errors() == ""
    assert transport.page.executor_state == constants.EXECUTOR_STOPPED
    for connection in connections:
        assert connection.answer().status == constants.STATUS_OK
    assert transport.settled()


def test_an_idle_one_leaves_at_once(transport: Transport, start: Start) -> None:
    executor = start("empty")
    began = time.monotonic()
    assert executor.terminate() == 0
    assert time.monotonic() - began < 1


def test_later_requests_are_the_successor_s(transport: Transport, start: Start) -> None:
    assert start("echo").terminate() == 0
    connection = transport.connect()
    connection.send(constants.KIND_ECHO, b"later")
    assert transport.page.executor_state == constants.EXECUTOR_STOPPED
    start("echo")
    assert connection.answer().payload == b"later"


def test_it_stops_although_requests_keep_coming(transport: Transport, start: Start) -> None:
    executor = start("echo:delay_us=20000,in_flight=1,batch=1")
    connections = transport.connect_many(500)
    for connection in connections[:3]:
        connection.send(constants.KIND_ECHO)
    executor.process.send_signal(signal.SIGTERM)
    rest = iter(connections[3:])

    def left() -> bool:
        next(rest).send(constants.KIND_ECHO)
        time.sleep(0.02)
        return executor.process.poll() is not None

    wait_until(left, "it to leave")
    assert executor.process.returncode == 0
    taken = transport.page.struct.executor.submit_head
    assert 3 <= taken < transport.page.struct.ingress.submit_tail
    start("echo")
    sent = sum(connection.sent for connection in connections)
    for connection in connections[:sent]:
        assert connection.answer().status == constants.STATUS_OK
    assert transport.settled()


def test_a_claim_that_is_never_filled_does_not_hold_it(transport: Transport, start: Start) -> None:
    """A transport that died between the claim of a place in the ring and its request."""
    executor = start("echo")
    transport.page.struct.ingress.submit_tail += 1
    assert executor.terminate() == 1
    assert "1 requests were claimed" in executor.errors()
    assert transport.page.executor_state == constants.EXECUTOR_FAILED


def test_it_dies_with_its_parent(serving_program: Program, page: SharedPage) -> None:
    command = [*serving_program.command, "--page-fd", str(page.fd), "--workloads", "empty"]
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({command!r}, pass_fds=[{page.fd}])\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
        "import os; os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        pass_fds=[page.fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        wait_until(lambda: page.executor_state == constants.EXECUTOR_READY, "it to be ready")
        assert _lives(pid)
    wait_until(lambda: not _lives(pid), "it to be gone")


def _lives(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_an_idle_one_mostly_sleeps(transport: Transport, start: Start) -> None:
    executor = start("empty")
    connection = transport.connect()
    connection.ask(constants.KIND_EMPTY)
    time.sleep(0.3)
    heartbeat = transport.page.struct.executor.heartbeat
    schedstat = Path(f"/proc/{executor.process.pid}/schedstat")
    ran_ns = int(schedstat.read_text().split()[0])
    time.sleep(1)
    assert int(schedstat.read_text().split()[0]) - ran_ns < 0.1e9
    assert 0 < transport.page.struct.executor.heartbeat - heartbeat < 3000


@pytest.mark.parametrize("program", ["cpu"], indirect=True)
@pytest.mark.parametrize("options", [("--poll", "spin"), ("--sleep-us", "1000")])
def test_other_ways_to_poll(transport: Transport, start: Start, options: tuple[str, ...]) -> None:
    start("echo", *options)
    assert transport.connect().ask(constants.KIND_ECHO, b"x").payload == b"x"


def test_a_page_of_another_layout(program: Program, page: SharedPage) -> None:
    page.struct.identity.layout_version += 1
    said = refusal(program, "--page-fd", str(page.fd), "--workloads", "empty", fd=page.fd)
    assert "layout_version" in said
    assert page.executor_state == constants.EXECUTOR_ABSENT


def test_it_serves_a_page_that_lies_about_in_frames(
    serving_program: Program, page: SharedPage, tmp_path: Path
) -> None:
    """As in the memory of a virtual machine."""
    content = bytes(ffi.buffer(page.struct)).ljust(PAGE_FRAMES * FRAME_BYTES, b"\0")
    frames = random.Random(3).sample(range(2 * PAGE_FRAMES), PAGE_FRAMES)
    write_frames(tmp_path / "frames", frames)
    with os.fdopen(os.memfd_create("memory"), "r+b", buffering=0) as memory:
        memory.truncate(2 * len(content))
        for number, frame in enumerate(frames):
            memory.seek(frame * FRAME_BYTES)
            memory.write(content[number * FRAME_BYTES :][:FRAME_BYTES])
        with SharedPage.attach(memory.fileno(), frames) as scattered:
            options = ("--page-frames", str(tmp_path / "frames"))
            executor = Executor(serving_program, scattered, "echo", *options).ready()
            try:
                answer = Transport(scattered).connect().ask(constants.KIND_ECHO, b"payload")
                assert answer.payload == b"payload"
                assert executor.terminate() == 0
            finally:
                executor.close()


def test_descriptors_that_are_no_page(program: Program) -> None:
    assert "EBADF" in refusal(program, "--page-fd", "99", "--workloads", "empty")
    fd = os.open(ROOT / "Makefile", os.O_RDWR)
    try:
        said = refusal(program, "--page-fd", str(fd), "--workloads", "empty", fd=fd)
    finally:
        os.close(fd)
    assert "map the page" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--page-fd is missing"),
        (["--page-fd", "3"], "--workloads is missing"),
        (["--page-fd", "x", "--workloads", "empty"], "--page-fd: 'x' is not usable"),
        (["--page-fd", "3", "--workloads"], "'--workloads' is not understood"),
        (
            ["--page-fd", "3", "--workloads", "empty", "--page-frames", "/dev/null/x"],
            "--page-frames",
        ),
        (["--bogus"], "'--bogus' is not understood"),
        (["--page-fd", "3", "--workloads", "empty", "extra"], "'extra' is not understood"),
    ],
)
def test_command_lines_that_are_refused(program: Program, options: list[str], words: str) -> None:
    assert words in refusal(program, *options)


@pytest.mark.parametrize("program", ["cpu"], indirect=True)
@pytest.mark.parametrize(
    ("options", "words"),
    [(["--sleep-us", "0"], "from 1 to 1000000"), (["--poll", "nap"], "Take spin or sleep")],
)
def test_ways_to_poll_that_are_refused(program: Program, options: list[str], words: str) -> None:
    assert words in refusal(program, "--page-fd", "3", "--workloads", "empty", *options)
