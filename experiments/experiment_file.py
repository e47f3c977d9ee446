"""An experiment as a TOML file: what it asks, what is varied, how often and how long.

A key of `[condition]` with a list of values is a factor: all combinations of the factors are run.
Several `[[condition]]` are run one beside the other. docs/experiments.md lists the keys.
"""

from __future__ import annotations

import difflib
import itertools
import math
import random
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from experiments import cases, handicap, llm
from experiments.errors import ExperimentError
from experiments.plan import (
    CLOSED,
    SLOTS,
    SSH,
    TRANSPORTS,
    VLLM,
    WAKE_POLICIES,
    Condition,
    Plan,
    Timing,
    numbered,
)

FOLDER = Path(__file__).parent
Check = Callable[[Any], Any]  # gives the value to use; raises ValueError(said, do)

SETTLING_SHARE = 2 / 3  # of the warm-up; in the rest system calls are counted
TOPOLOGIES = ("loopback", "veth", "bridge", "vxlan")


def whole(least: int, most: int) -> Check:
    """A whole number in that range."""

    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"is not a whole number from {least} to {most}",
                             f"take one from {least} to {most}")  # fmt: skip
        return value

    return check


def seconds(value: Any) -> float:
    """More than none."""
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError("is not a number of seconds above 0", "take one such as 4 or 0.5")
    return float(value)


def rate(value: Any) -> dict[str, float]:
    """The `rate`, or the `share` of saturation, of a condition."""
    if value == "closed":
        return {"rate": CLOSED}
    if type(value) is str and re.fullmatch(r"[1-9]\d{0,2}%", value):
        return {"share": int(value[:-1]) / 100}
    if type(value) not in (int, float) or not 0 < value <= 1e8:
        raise ValueError("is no number of requests a second",
                         'take a number above 0, "70%" of saturation, or "closed"')  # fmt: skip
    return {"rate": float(value)}


def inject(value: Any) -> dict[str, float]:
    """A handicap, or several."""
    listed = value if type(value) is list else [value]
    try:
        return handicap.parse(map(text, listed))
    except ValueError as error:
        raise ValueError(str(error.args[0]), 'take "cpu=+10%", "latency=+10%" or both') from None


def text(value: Any) -> str:
    """Some words."""
    if type(value) is not str or not value:
        raise ValueError("is not a text", 'write it in quotes, as in "text"')
    return value


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError("is neither true nor false", "take true or false")
    return value


def one_of(*choices: str) -> Check:
    """One of these words."""

    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"is none of {', '.join(choices)}", f"take {' or '.join(choices)}")
        return str(value)

    return check


def topology(value: Any) -> str:
    """One of ours, or a host to reach by ssh."""
    if type(value) is str and re.fullmatch(rf"{SSH}[^\s-]\S*", value):
        return value
    return str(one_of(*TOPOLOGIES, f"{SSH}HOST")(value))


def netem(value: Any) -> dict[str, Any]:
    """What happens to packets: parameters of topology.Netem."""
    from experiments.topology import Netem

    known = {one.name: type(one.default) for one in fields(Netem)}
    if type(value) is not dict:
        raise ValueError("is not a table", "write it as { delay_us = 5000, loss_percent = 1.0 }")
    for key, of in value.items():
        if key not in known:
            raise ValueError(f"has an unknown key {key!r}", f"take {', '.join(known)}")
        if type(of) is not known[key] and not (known[key] is float and type(of) is int):
            raise ValueError(f"has {key} = {of!r}, which is no {known[key].__name__}",
                             f"correct {key}")  # fmt: skip
    return value


TOP: Mapping[str, Check] = {
    "asks": text,
    "pairs": whole(1, 1000),
    "seed": whole(0, 2**31 - 1),
    "warmup_s": seconds,
    "measured_s": seconds,
    "exact": flag,
    "inject": inject,
}
CONDITION: Mapping[str, Check] = {
    "workload": text,
    "work": whole(1, 65536),
    "rate": rate,
    "connections": whole(1, 4096),
    "depth": whole(1, 24),
    "slots": whole(1, SLOTS),
    "wake_us": whole(1, 1_000_000),
    "wake_policy": one_of(*WAKE_POLICIES),
    "service_cpus": whole(0, 1024),
    "topology": topology,
    "congestion": text,
    "netem": netem,
}
TABLES = ("transports", "condition")


class Reader:
    """A file on its way to a plan. Every problem names the file, the key and a remedy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, said: str, do: str) -> NoReturn:
        """Raises ExperimentError."""
        raise ExperimentError(f"use the experiment {self.path}", said, do)

    def values(self) -> dict[str, Any]:
        """The file's, unchecked. Raises ExperimentError."""
        try:
            return tomllib.loads(self.path.read_text())
        except OSError as error:
            self.fail(str(error), "check the path; `bpf-gpu-server ab list` names those at hand")
        except ValueError as error:  # not TOML, or not UTF-8
            self.fail(f"it is not TOML: {error}", "correct it there")

    def known(self, values: Mapping[str, Any], known: list[str], where: str) -> None:
        """Raises ExperimentError for a key that is none."""
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                do = f"did you mean {near[0]}?" if near else f"take {', '.join(known)}"
                self.fail(f"unknown key {where}{key}", do)

    def checked(self, key: str, check: Check, value: Any) -> Any:
        """The value to use. Raises ExperimentError."""
        try:
            return check(value)
        except ValueError as error:
            said, do = error.args
            self.fail(f"{key} = {value!r} {said}", do)


def read(path: Path, exact: bool = False, injected: Sequence[str] = ()) -> Plan:
    """The plan of a file, with a new seed where it names none; `exact` as if the file said so, and
    `injected` in place of what it says. Raises ExperimentError."""
    reader = Reader(path)
    values = reader.values()
    reader.known(values, [*TOP, *TABLES], "")
    top = {key: reader.checked(key, check, values[key]) for key, check in TOP.items()
           if key in values}  # fmt: skip
    if "asks" not in top:
        reader.fail("the key asks is missing", 'say what it asks, as in asks = "Does ...?"')
    conditions = tuple(read_conditions(reader, values.get("condition", {})))
    check_workloads(reader, conditions)
    transports = read_transports(reader, values.get("transports", list(TRANSPORTS)))
    for one in conditions:
        check_served(reader, transports, one)
    if injected:
        top["inject"] = reader.checked("inject", inject, list(injected))
    plan = Plan(
        seed=top.get("seed", random.SystemRandom().getrandbits(31)),
        pairs=top.get("pairs", 5),
        transports=transports,
        points=numbered(conditions),
        timing=read_timing(top),
        asks=top["asks"],
        exact=exact or top.get("exact", False),
        inject=top.get("inject", {}),
    )
    check_handicap(reader, plan)
    return plan


def check_handicap(reader: Reader, plan: Plan) -> None:
    """Raises ExperimentError for a handicap that no arm can have."""
    if plan.inject and len(plan.transports) < 2:
        reader.fail("inject gives one of two arms a handicap", "name two transports, or one twice")
    closed = any(one.rate == CLOSED and not one.share for one in plan.points.values())
    if "latency" in plan.inject and closed:
        reader.fail("inject = latency sends late what was due, and in a closed loop nothing is due",
                    "take a rate, or inject cpu")  # fmt: skip


def read_timing(top: Mapping[str, Any]) -> Timing:
    """The defaults, but for what is given."""
    missing = Timing()
    warmup = top.get("warmup_s", missing.warmup)
    settling = warmup * SETTLING_SHARE
    return Timing(warmup - settling, settling, top.get("measured_s", missing.measured))


def read_transports(reader: Reader, value: Any) -> tuple[str, ...]:
    """Arms; the same one twice asks how far two equal arms lie apart."""
    if type(value) is not list or not value:
        reader.fail(f"transports = {value!r} is not a list", 'write ["epoll", "bpf"]')
    check = one_of(*TRANSPORTS, VLLM)
    return tuple(reader.checked("transports", check, one) for one in value)


def read_conditions(reader: Reader, tables: Any) -> list[Condition]:
    """Every combination of every table. Raises ExperimentError."""
    listed = tables if type(tables) is list else [tables]
    if not listed or not all(type(table) is dict for table in listed):
        reader.fail("condition is not a table", "write [condition], or [[condition]] for several")
    found = [one for table in listed for one in combinations(reader, table)]
    for one in found:
        if found.count(one) > 1:
            reader.fail(f"two points are the same: {one}", "remove the value that is there twice")
    return found


def combinations(reader: Reader, table: Mapping[str, Any]) -> Iterator[Condition]:
    """The conditions of a table, a later key's values in turn for each of an earlier one's."""
    reader.known(table, list(CONDITION), "condition.")
    choices = []
    for key, value in table.items():
        listed = value if type(value) is list else [value]
        if not listed:
            reader.fail(f"condition.{key} has no value", "give one, or remove the key")
        choices.append([reader.checked(f"condition.{key}", CONDITION[key], one) for one in listed])
    for chosen in itertools.product(*choices):
        values = dict(zip(table, chosen, strict=True))
        work = values.pop("work", None)
        if work is not None:
            spec = values.get("workload", Condition.workload.rpartition(",work=")[0])
            values["workload"] = f"{spec}{',' if ':' in spec else ':'}work={work}"
        rate = values.pop("rate", {})
        one = Condition(**values, **rate)
        # A share is one of what a closed loop comes to, with as much depth as there is room for.
        depth = 1 if one.share else one.depth if one.rate == CLOSED else 0
        if one.connections * depth > one.slots:
            reader.fail(
                f"condition.depth = {depth} on {one.connections} connections in a closed loop: "
                f"more requests than the {one.slots} that the service holds",
                f"take depth = {one.slots // one.connections} or less"
                if one.connections <= one.slots
                else f"take connections = {one.slots} or fewer",
            )
        if one.topology.startswith(SSH) and (one.congestion or one.netem):
            reader.fail(
                f"condition.topology = {one.topology!r} with netem or congestion, which would "
                "change the networks of both machines",
                "set them up there, and leave them out here",
            )
        yield one


def check_served(reader: Reader, transports: tuple[str, ...], one: Condition) -> None:
    """Raises ExperimentError for an arm that cannot do what a condition asks for."""
    served = one.workload.startswith(llm.LLM)
    if served and (others := [name for name in transports if name != VLLM]):
        reader.fail(
            f"condition.workload = {one.workload!r}: {others[0]} does not serve llm yet",
            'take transports = ["vllm"], or workload = "toylm"',
        )
    if VLLM not in transports:
        return
    if not served:
        reader.fail(f"condition.workload = {one.workload!r}: vllm serves llm only",
                    'take workload = "llm:model=NAME"')  # fmt: skip
    if one.depth != 1:
        said = f"condition.depth = {one.depth}: HTTP has one request at a time on a connection"
        reader.fail(said, "take depth = 1, for all arms")
    if one.topology != "loopback" or one.congestion or one.netem:
        reader.fail("vllm is reached over this machine's loopback only",
                    "leave out topology, congestion and netem")  # fmt: skip


def check_workloads(reader: Reader, conditions: Iterable[Condition]) -> None:
    """Raises ExperimentError for a workload that no executor knows."""
    specs = sorted({one.workload for one in conditions})
    for spec, said in cases.wrong(specs).items():
        reader.fail(f"condition.workload = {spec!r}: {said}", "correct workload, or work")
