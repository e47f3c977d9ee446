# SPDX-License-Identifier: MIT
"""What the loop does for a request, counted on the page: nothing at idle, little under load.

Counts, not times: they hold on an emulated CPU as on a real one.
"""

from __future__ import annotations

import time

import pytest

from tests.kernel.generator import load
from tests.support.frames import echo, ok
from tests.support.service import Service

# What the loop, its timer and its ring count.
COUNTED = {
    "steps": "egress.steps",
    "wakes": "egress.doorbell_wakes",
    "sqes": "egress.submissions",
    "looks": "ingress.timer_looks",
    "doorbells": "ingress.doorbells",
    "finals": "egress.finals",
}
IDLE_S = 1.0
LOW_REQUESTS = 100


def counts(service: Service) -> dict[str, int]:
    return {name: service.counter(counter) for name, counter in COUNTED.items()}


def rises(service: Service, before: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in counts(service).items()}


@pytest.mark.parametrize("connections", [0, 100])
def test_idle_costs_nothing(service: Service, connections: int) -> None:
    """Not a step, not a look of the timer, not an SQE, however many connections are open."""
    clients = [service.connect() for _ in range(connections)]
    for client in clients:
        client.send(echo(1))
    for client in clients:
        client.expect(ok(1))
    time.sleep(0.2)  # what the replies cause: acknowledgements, the timer's last look
    before = counts(service)
    time.sleep(IDLE_S)
    assert not any(rises(service, before).values()), rises(service, before)


def test_a_stalled_executor_keeps_the_loop_asleep(service: Service) -> None:
    """The timer looks, since a result may come; the loop and its ring do nothing."""
    client = service.connect()
    with service.stalled():
        client.send(echo(1), echo(2))
        time.sleep(0.2)
        before = counts(service)
        time.sleep(IDLE_S)
        risen = rises(service, before)
    client.expect(ok(1), ok(2))
    assert risen.pop("looks") > 0
    assert not any(risen.values()), risen


def test_low_load(service: Service) -> None:
    """One request at a time: a doorbell, a step or two, one SEND. The connection's own SQEs are
    behind it."""
    client = service.connect()
    client.send(echo(0))
    client.expect(ok(0))
    time.sleep(0.2)
    before = counts(service)
    for number in range(LOW_REQUESTS):
        client.send(echo(number, bytes(256)))
        client.expect(ok(number, bytes(256)))
        time.sleep(0.003)
    risen = rises(service, before)
    assert risen["finals"] == LOW_REQUESTS
    assert risen["doorbells"] <= LOW_REQUESTS, risen
    assert risen["steps"] <= 2 * LOW_REQUESTS, risen
    assert risen["sqes"] <= 1.05 * LOW_REQUESTS, risen
    assert LOW_REQUESTS <= risen["looks"] <= 100 * LOW_REQUESTS, risen


@pytest.mark.parametrize(("connections", "depth", "steps"), [(16, 1, 1.0), (64, 8, 0.5)])
def test_under_load_requests_share_steps(
    service: Service, connections: int, depth: int, steps: float
) -> None:
    """Medium and high load: fewer steps than requests, no more SENDs than requests."""
    before = counts(service)
    result = load(
        service, "--closed", "--connections", str(connections), "--depth", str(depth),
        "--requests", str(40 * connections * depth),
    )  # fmt: skip
    risen = rises(service, before)
    own = 4 * connections  # accept, mark, poll, kick, close: once a connection
    assert risen["finals"] >= result["sent"]
    assert risen["steps"] - own < steps * risen["finals"], risen
    assert risen["doorbells"] <= risen["steps"] + 1, risen
    assert risen["sqes"] - 2 * own <= risen["finals"], risen
