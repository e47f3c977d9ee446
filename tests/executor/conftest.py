from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from shared_page import SharedPage

from .driver import Transport
from .executors import EXECUTORS, Executor, Program


@pytest.fixture(params=sorted(EXECUTORS))
def program(request: pytest.FixtureRequest) -> Program:
    program = EXECUTORS[request.param]
    assert Path(program.command[0]).exists(), f"{program.command[0]} is missing: run make"
    return program


@pytest.fixture
def serving_program(program: Program) -> Program:
    """Skips where it cannot serve."""
    if program.missing:
        pytest.skip(program.missing)
    return program


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[SharedPage]:
    """A new page; indirect parametrization gives its number of connections."""
    with SharedPage.create_memfd(getattr(request, "param", 1100)) as page:
        yield page


@pytest.fixture
def transport(page: SharedPage) -> Transport:
    return Transport(page)


class Start(Protocol):
    def __call__(self, workloads: str, *options: str) -> Executor: ...


@pytest.fixture
def start(serving_program: Program, page: SharedPage) -> Iterator[Start]:
    """Starts executors on the page; they are gone when the test is."""
    running: list[Executor] = []

    def start(workloads: str, *options: str) -> Executor:
        running.append(Executor(serving_program, page, workloads, *options))
        return running[-1].ready()

    yield start
    for executor in running:
        executor.close()
