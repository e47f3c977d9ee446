# SPDX-License-Identifier: MIT
"""Every test starts its own server, and one that was not ended by the test has to end well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.native.rig import Rig


@pytest.fixture
def start() -> Iterator[Callable[..., Rig]]:
    """Starts a server: `start("--wake-us", "100", max_connections=8)`."""
    rigs: list[Rig] = []

    def start_one(*options: str, **settings: Any) -> Rig:
        rigs.append(Rig(*options, **settings))
        return rigs[-1]

    yield start_one
    for rig in rigs:
        try:
            if rig.server.returncode is None:
                assert rig.server.poll() is None, "the server left by itself"
                for client in rig.clients:
                    client.close()
                assert rig.end() == (0, "")
        finally:
            rig.close()


@pytest.fixture
def rig(start: Callable[..., Rig]) -> Rig:
    """A server with an executor that answers at once."""
    one = start()
    one.start_executor()
    return one
