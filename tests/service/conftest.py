"""Services of a test are ended with it, and leave nothing behind unless the test says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loader import cgroups, paths
from loader.errors import LoaderError
from loader.instance import Instance
from tests.service.service import NOBODY, Service, cli, traces


def _require_programs() -> None:
    try:
        for name in ("server-epoll", "executor-cpu", "load"):
            paths.program(name)
    except LoaderError:
        pytest.skip("the programs are not built: run `make`")


def _sweep(instance: str) -> None:
    """For services that a test killed: as the next start would do it."""
    leftover = Instance(instance)
    leftover.lock()
    leftover.sweep()
    leftover.remove_runtime()


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    """Starts services: `start("--drain-ms", "100", transport="bpf")`."""
    _require_programs()
    services: list[Service] = []

    def start_one(*options: str, **settings: Any) -> Service:
        services.append(Service(*options, **settings))
        return services[-1]

    yield start_one
    for service in services:
        if service.process.poll() is None and service.ready_line:
            assert service.end() == 0, service.output()
        service.close()
    for service in services:
        if os.geteuid() == 0 and traces(service.instance):
            _sweep(service.instance)


@pytest.fixture(scope="session")
def bpf_runs() -> bool:
    """Whether this machine can run the transport bpf."""
    return cli("doctor", "--transport", "bpf").returncode == 0


@pytest.fixture(params=["epoll", "bpf"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport that can run here."""
    if request.param == "bpf" and not request.getfixturevalue("bpf_runs"):
        pytest.skip("transport bpf cannot run here: see `bpf-gpu-server doctor --transport bpf`")
    return str(request.param)


@pytest.fixture
def root() -> None:
    """For tests of what only root may do."""
    if os.geteuid() != 0:
        pytest.skip("not root: run the tests as root (sudo)")


@pytest.fixture
def cgroup2(root: None) -> None:
    """For tests of the accounts."""
    if cgroups.mount_point("cgroup2") is None:
        pytest.skip("no cgroup v2: mount it at /sys/fs/cgroup")


@pytest.fixture
def nobody(root: None) -> None:
    """For tests that become an unprivileged user."""
    tried = subprocess.run(
        [sys.executable, "-c", "import loader.paths as p; open(p.program('executor-cpu'), 'rb')"],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd=paths.SOURCE_ROOT, check=False,
        capture_output=True,
    )  # fmt: skip
    if tried.returncode:
        pytest.skip("user nobody may not enter the folder of Python or of the programs")
