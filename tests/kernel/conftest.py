# SPDX-License-Identifier: MIT
"""Tests of the kernel path: root and a kernel that has it, and after each one nothing is left."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import pytest

from loader.errors import LoaderError
from loader.transports import require_features
from tests.kernel.left import Held, held, left
from tests.support.kernel_log import KernelLog
from tests.support.service import Options, Pool, Service

Start = Callable[..., Service]
FILES = 1 << 14


def check(before: Held, log: KernelLog) -> None:
    """The kernel holds what it held before, and its log has no fault."""
    more = left(before)
    faults = log.faults()
    assert not more, f"left: {more}"
    assert not faults, "\n".join(faults)


@pytest.fixture(scope="session", autouse=True)
def many_files() -> None:
    """Thousands of clients are thousands of descriptors of ours."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES), hard))


@pytest.fixture(scope="session", autouse=True)
def kernel() -> None:
    """Skips where the transport bpf cannot run, with what the probe said."""
    try:
        require_features("bpf")
    except LoaderError as error:
        pytest.skip(f"{error.tried}: {error.said}")


@pytest.fixture(scope="module")
def pool(kernel: None) -> Iterator[Pool]:
    """The service that a module's tests share: starting one takes seconds in a VM."""
    with KernelLog() as log:
        before = held()
        pool = Pool()
        yield pool
        pool.close()
        check(before, log)


@pytest.fixture(autouse=True)
def nothing_left(kernel: None, request: pytest.FixtureRequest) -> Iterator[KernelLog]:
    """Checks after each test. A shared service is there before and after it."""
    if "service" in request.fixturenames:
        request.getfixturevalue("pool").get(Options("bpf"))
    with KernelLog() as log:
        before = held()
        yield log
        check(before, log)


@pytest.fixture
def service(nothing_left: KernelLog, pool: Pool) -> Iterator[Service]:
    """The shared service; after the test its accounts balance."""
    service = pool.get(Options("bpf"))
    yield service
    try:
        service.settle()
    except AssertionError:
        pool.discard()
        raise


@pytest.fixture
def start(nothing_left: KernelLog) -> Iterator[Start]:
    """Starts services of a test's own: `start(max_connections=4096)`; they end content."""
    services: list[Service] = []

    def start_one(**options: object) -> Service:
        services.append(Service(Options("bpf", **options)))  # type: ignore[arg-type]
        return services[-1]

    yield start_one
    for service in services:
        try:
            service.settle()
        finally:
            service.stop()
