# SPDX-License-Identifier: MIT
"""What `cost` is made of, on the kernel that it is for: samples have layers, events are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cost import layers, shares
from experiments.cost.events import Events
from experiments.cost.runs import difference, folded
from experiments.cost.samples import Sampler
from experiments.cost.symbols import Symbols
from tests.kernel.generator import Load
from tests.support.frames import echo, ok
from tests.support.service import Service

REQUESTS = 300
PERIOD_NS = 99_991


def processes(service: Service) -> list[int]:
    cgroup = Path(service.state["cgroups"]["service"])
    return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]


def running(service: Service) -> Load:
    """One request a segment: each connection waits for its reply."""
    return Load(service, "--closed", "--depth", "1", "--requests", str(REQUESTS))


def test_samples_have_layers(service: Service) -> None:
    with Sampler(PERIOD_NS) as sampler:
        load = running(service)
        sampler.start()
        assert load.result()["verified"] == REQUESTS
        sampler.stop()
        groups = {"service": processes(service), "client": [load.process.pid]}
        stacks = folded(sampler, Symbols(), groups)
    parts, _, _ = shares.sort_stacks(stacks)
    assert shares.unclassified(parts) < shares.UNCLASSIFIED_WITHIN
    seen = {layer for way in parts["server"].values() for layer in way}
    assert seen >= {"driver, NAPI", "IP", "TCP receive", "sockmap, BPF programs", "io_uring"}
    assert seen >= {"TCP send", "scheduling, wake-ups", "timers"}
    assert layers.USER in parts["client"]["between"]


@pytest.mark.timeout(400)  # clang compiles, on an emulated CPU
def test_events_are_counted(service: Service) -> None:
    with Events() as events:
        before = events.counts()
        events.attach({"service": processes(service)})
        assert running(service).result()["verified"] == REQUESTS
        events.detach()
        after = events.counts()
        counted = difference(before, after)
        verdicts = sum(counted["sockmap verdicts"].values())
        assert REQUESTS <= verdicts <= sum(counted["segments received"].values())
        assert counted["io_uring completions"]["service"] >= REQUESTS / 2
        assert counted["system calls"]["other"] >= REQUESTS / 2
        client = service.connect()
        client.send(echo(1))
        client.expect(ok(1))
        assert events.counts() == after, "it counts though it is detached"
