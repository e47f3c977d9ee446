# SPDX-License-Identifier: MIT
"""No result is left standing: the timer stops when nothing is to come, and not a moment sooner."""

from __future__ import annotations

import pytest

from tests.kernel.conftest import Start
from tests.kernel.generator import load

REQUESTS = 2_000
ALONE = ("--closed", "--connections", "1", "--depth", "1")
PAIR = ("--closed", "--connections", "2", "--depth", "1")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("clients", [ALONE, PAIR], ids=["alone", "two"])
@pytest.mark.parametrize("policy", ["fixed", "adaptive"])
def test_one_request_after_another(start: Start, policy: str, clients: tuple[str, ...]) -> None:
    """A result that nobody looks for would stand until the next request, which never comes: each
    waits for the one before. A spinning executor and a short wait let results come at any moment
    of a look."""
    options = ("--wake-policy", policy, "--wake-us", "20", "--executor-poll", "spin")
    service = start(more=options)
    report = load(service, *clients, "--requests", str(REQUESTS))
    looks = service.counter("ingress.timer_looks")
    print(f"{looks / report['sent']:.2f} looks a request")
