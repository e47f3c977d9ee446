"""What a request costs by layer, from the raw data of a run: a pure function of its folder.

A sample stands for a period of CPU time. The sampler's own interrupt is in the accounts, but in no
stack, so layers are shares of what service and client used in the window without a tool.

Samples make at most what the accounts have with the tool: where CPUs are always busy. They make at
least what these have without it: where threads run for much less than a period, then rest, so that
no further sample falls into what the interrupt prolongs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.accounts import Sample, parse, spent
from experiments.cost import layers
from experiments.cost.events import TO_IDLE
from experiments.cost.runs import SEEN, Asked
from experiments.records import answered_between, read_verified

WITHIN = 0.05  # samples to accounts
TOOL_WITHIN = 0.10  # of what service and client use
UNCLASSIFIED_WITHIN = 0.02
RECEIVING = "net_rx_action"
LOOKING = {"hrtimer_run_softirq", "bpf_timer_cb"}  # for results: of transport bpf
_OPPOSITE = {"service": "client", "client": "server"}
_OWN = {"service": "server", "client": "client", "idle": "idle"}
_RECEIVE = {"TCP receive", "socket read"}
_SEND = {"TCP send", "io_uring"}
_EITHER = {"driver, NAPI", "IP", "sockmap, BPF programs"}
SWITCH = "schedule_idle"
SIDES = ("server", "client", "idle", "other")
DIRECTIONS = ("receive", "between", "send")
ACCOUNTS = ("service", "client")  # that a request uses

Summary = dict[str, Any]


def side(group: str, stack: Sequence[str]) -> str:
    """Whom work is for: `server`, `client`, `idle` for an idle CPU's switches and interrupts, or
    `other`. Over loopback the kernel receives within
    the sender's call, so what the client's thread does there is the server's, and the reverse."""
    if RECEIVING in stack:
        return _OPPOSITE.get(group, "server")
    if not LOOKING.isdisjoint(stack):
        return "server"
    return _OWN.get(group, "other")


def direction(layer: str, stack: Sequence[str]) -> str:
    """`receive`, `send`, or what lies `between` and belongs to neither."""
    if layer in _RECEIVE or (layer in _EITHER and RECEIVING in stack):
        return "receive"
    if layer in _SEND or (layer in _EITHER and LOOKING.isdisjoint(stack)):
        return "send"
    return "between"


def summarise(folder: Path) -> dict[str, Summary]:
    """By transport. Raises OSError, or ValueError for a window without samples or requests."""
    asked = Asked.read(folder)
    return {name: _summary(asked, folder / name) for name in asked.transports}


def _summary(asked: Asked, folder: Path) -> Summary:
    seen = json.loads((folder / SEEN).read_text())
    records = read_verified(folder)
    cpus = json.loads((folder.parent / "environment.json").read_text())["cpus"]
    used: dict[str, Sample] = {}
    requests: dict[str, int] = {}
    for name, ends in seen["windows"].items():
        first, last = map(parse, ends)
        used[name] = spent(first, last, cpus)
        requests[name] = answered_between(records, first["at"], last["at"])
    of_request = {
        name: {account: used[name][account] * 1e3 / requests[name] for account in ACCOUNTS}
        for name in used
    }
    plain = sum(of_request["plain"].values())
    parts, busy, idle = sort_stacks(apportion(seen["stacks"], seen["counts"][TO_IDLE]))
    scale = plain / sum(busy[account] for account in ACCOUNTS)
    return {
        "requests": requests,
        "accounts": of_request["plain"],
        "tool": {name: sum(of_request[name].values()) - plain for name in ("sampled", "counted")},
        "parts": {
            of: {way: {layer: n * scale for layer, n in some.items()} for way, some in ways.items()}
            for of, ways in parts.items()
        },
        "sums": sums(busy, asked.period_ns / requests["sampled"], of_request),
        "samples": round(sum(busy.values())),
        "idle": idle * scale,
        "unclassified": unclassified(parts),
        "events": {
            event: {group: count / requests["counted"] for group, count in of.items()}
            for event, of in seen["counts"].items()
        },
    }


Stacks = Iterable[Sequence[Any]]  # rows as runs.folded() makes them; counts may be fractions
Parts = dict[str, dict[str, dict[str, float]]]  # side, direction, layer: samples


def apportion(stacks: Stacks, to_idle: Mapping[str, int]) -> Iterator[Sequence[Any]]:
    """Stacks with switches to an idle CPU given to those who left it so. Interrupts are off in a
    switch, so a sample of it comes when the idle task runs already; the accounts charge it to the
    one before, whose part is known by counting."""
    whole = sum(to_idle.values())
    for group, user, stack, count in stacks:
        if group != "idle" or SWITCH not in stack or not whole:
            yield group, user, stack, count
            continue
        for one, times in to_idle.items():
            yield one, user, stack, count * times / whole


def sort_stacks(stacks: Stacks) -> tuple[Parts, dict[str, float], float]:
    """The parts that stacks belong to, rest left out; samples by the group that ran; and how many
    of the server's the idle task ran, which no account has."""
    parts: Parts = {of: {way: defaultdict(float) for way in DIRECTIONS} for of in SIDES}
    busy: dict[str, float] = defaultdict(float)
    idle = 0.0
    for group, user, stack, count in stacks:
        if layers.rests(stack):
            continue
        layer = layers.classify(stack, user)
        whose = side(group, stack)
        parts[whose][direction(layer, stack)][layer] += count
        busy[group] += count
        idle += count if (group, whose) == ("idle", "server") else 0
    return parts, busy, idle


def sums(
    busy: dict[str, float], period_ns: float, accounts: dict[str, dict[str, float]]
) -> dict[str, tuple[float, float]]:
    """By account what samples make of it, with the tool's own and without: 1 where they agree.
    `period_ns` and accounts are of a request."""
    return {
        name: (
            busy[name] * period_ns / accounts["sampled"][name],
            busy[name] * period_ns / accounts["plain"][name],
        )
        for name in ACCOUNTS
    }


def unclassified(parts: Parts) -> float:
    """The share of the server's samples whose stack has no function of a layer."""
    every = parts["server"].values()
    unknown = sum(some.get(layers.UNKNOWN, 0.0) for some in every)
    return unknown / sum(sum(some.values()) for some in every)


def problems(found: dict[str, Summary]) -> list[str]:
    """In words: sums that miss their accounts, a tool that takes much, samples without a layer."""
    lines = []
    for name, of in found.items():
        for account, (most, least) in of["sums"].items():
            if most > 1 + WITHIN or least < 1 - WITHIN:
                said = f"{most:.1%} of the account {account} with the tool, {least:.1%} without"
                lines.append(f"{name}: samples make {said}")
        tool = of["tool"]["sampled"] / sum(of["accounts"].values())
        if tool > TOOL_WITHIN:
            lines.append(f"{name}: sampling took {tool:.1%} of what it measured")
        if of["unclassified"] > UNCLASSIFIED_WITHIN:
            lines.append(f"{name}: {of['unclassified']:.1%} of the server's samples have no layer")
    return lines


def total(ways: dict[str, dict[str, float]]) -> float:
    """Of one side, ns a request."""
    return sum(sum(some.values()) for some in ways.values())
