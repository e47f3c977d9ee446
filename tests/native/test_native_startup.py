# SPDX-License-Identifier: MIT
"""What server-epoll and echo-epoll say when they cannot start: one line of three parts."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from loader import paths
from shared_page import SharedPage


class Descriptors:
    """Some that serve, and some that do not."""

    def __init__(self) -> None:
        self.page = SharedPage.create_memfd(4)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.unbound = socket.socket()
        self.empty = os.memfd_create("empty")
        self.other = SharedPage.create_memfd(4)
        self.other.struct.identity.layout_version = 99

    def named(self) -> dict[str, int]:
        return {
            "PAGE": self.page.fd,
            "LISTENER": self.listener.fileno(),
            "UNBOUND": self.unbound.fileno(),
            "EMPTY": self.empty,
            "OTHER": self.other.fd,
        }

    def close(self) -> None:
        for one in (self.page, self.listener, self.unbound, self.other):
            one.close()
        os.close(self.empty)


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    opened = Descriptors()
    yield opened
    opened.close()


CASES = [
    ("", "--page-fd is missing"),
    ("--page-fd PAGE", "--listen-fd is missing"),
    ("--page-fd PAGE --listen-fd", "the value is missing"),
    ("--page-fd=PAGE --listen-fd=LISTENER --port=1", "'--port' is no option"),
    ("PAGE", "is no option"),
    ("--page-fd PAGE --listen-fd LISTENER --wake-us 0", "'0' is not usable"),
    ("--page-fd PAGE --listen-fd LISTENER --wake-us 60us", "'60us' is not usable"),
    ("--page-fd PAGE --listen-fd LISTENER --drain-ms -1", "'-1' is not usable"),
    ("--page-fd 900 --listen-fd LISTENER", "EBADF"),
    ("--page-fd EMPTY --listen-fd LISTENER", "too short"),
    ("--page-fd OTHER --listen-fd LISTENER", "page_identity.layout_version is 0x63"),
    ("--page-fd PAGE --listen-fd 900", "EBADF"),
    ("--page-fd PAGE --listen-fd EMPTY", "ENOTSOCK"),
    ("--page-fd PAGE --listen-fd UNBOUND", "EINVAL"),
]


@pytest.mark.parametrize(("arguments", "said"), CASES)
def test_server_refuses(descriptors: Descriptors, arguments: str, said: str) -> None:
    named = descriptors.named()
    for name, fd in named.items():
        arguments = arguments.replace(name, str(fd))
    result = subprocess.run(
        [paths.program("server-epoll"), *arguments.split()],
        pass_fds=list(named.values()), check=False, capture_output=True, text=True, timeout=10,
    )  # fmt: skip
    assert result.returncode == 1
    assert said in result.stderr
    assert result.stderr.startswith("server-epoll: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize("program", ["server-epoll", "echo-epoll"])
def test_help(program: str) -> None:
    result = subprocess.run(
        [paths.program(program), "--help"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("usage: ")
    assert "(required)" in result.stdout


def test_echo_on_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = subprocess.run(
            [paths.program("echo-epoll"), "--port", port],
            check=False, capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    assert result.returncode == 1
    assert "EADDRINUSE" in result.stderr
