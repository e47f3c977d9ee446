"""Each test runs against each transport, and leaves the service as it found it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loader.errors import LoaderError
from loader.options import TRANSPORTS
from loader.transports import require_features
from tests.support.service import Options, Pool, Service

FOLDER = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "service(**options): options of the service under test")
    config.addinivalue_line("markers", "ends_service: the test asks the service to leave")


def options_of(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("service")
    return dict(marker.kwargs) if marker else {}


def transport_of(item: pytest.Item) -> int:
    """Its place in the list; tests of none come first."""
    name = item.callspec.params.get("transport") if hasattr(item, "callspec") else None
    return TRANSPORTS.index(name) + 1 if name else 0


def ends_service(item: pytest.Item) -> bool:
    return item.get_closest_marker("ends_service") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a service follow each other: starting one takes seconds in a VM."""
    ours = [item for item in items if FOLDER in item.path.parents]
    ours.sort(key=lambda item: (transport_of(item), str(options_of(item)), ends_service(item)))
    order = iter(ours)
    items[:] = [next(order) if FOLDER in item.path.parents else item for item in items]


@pytest.fixture(scope="session", autouse=True)
def many_files() -> None:
    """A thousand clients are a thousand descriptors of ours."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


@pytest.fixture(scope="session", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """A transport's name; one that cannot run here is skipped, with what the probe said."""
    name = str(request.param)
    try:
        require_features(name)
    except LoaderError as error:
        pytest.skip(f"{error.tried}: {error.said}")
    return name


@pytest.fixture(scope="session")
def pool(transport: str) -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def service(request: pytest.FixtureRequest, pool: Pool, transport: str) -> Iterator[Service]:
    """A running service, with the options of the marker `service`.

    After the test its accounts must balance, no socket may be left, and the kernel's log must be
    clean.
    """
    service = pool.get(Options(transport, **options_of(request.node)))
    yield service
    try:
        if ends_service(request.node):
            pool.close()
        else:
            service.settle()
    except AssertionError:
        pool.discard()
        raise
