"""Workload specifications: `name:key=value,key=value`.

parameters.cpp reads the same text for the executor; tests/executor compares their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from shared_page import constants


class SpecError(ValueError):
    """What was tried, what is wrong with it, and what to do."""


@dataclass(frozen=True)
class Parameter:
    """A whole number from `least` to `most`; `missing` is its value when it is not given."""

    missing: int
    least: int
    most: int


@dataclass(frozen=True)
class Workload:
    """What a folder of this package says about its workload, without numpy.

    `check` raises SpecError for numbers that do not go together.
    """

    name: str
    kind: int
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    check: Callable[[Spec], None] = lambda spec: None
    streams: bool = False

    def common_parameters(self) -> dict[str, Parameter]:
        """What every workload can be told; see workload.hpp."""
        slots = constants.SLOT_COUNT
        common = {
            "delay_us": Parameter(0, 0, 10_000_000),
            "batch": Parameter(256 if self.streams else 16, 1, slots),
        }
        return common if self.streams else common | {"in_flight": Parameter(slots, 1, slots)}


@dataclass(frozen=True)
class Spec:
    """A specification that was understood. `text` is as it was written."""

    text: str
    workload: Workload
    numbers: Mapping[str, int]

    def __getitem__(self, parameter: str) -> int:
        return self.numbers[parameter]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What can be given, with ranges: the workload's own and the common ones."""
        return {**self.workload.parameters, **self.workload.common_parameters()}

    @property
    def name(self) -> str:
        """The workload's, which is its folder's."""
        return self.workload.name

    @property
    def kind(self) -> int:
        """enum request_kind"""
        return self.workload.kind

    def fail(self, said: str, remedy: str) -> NoReturn:
        """Raises SpecError: what is wrong, and what to do."""
        fail(self.text, said, remedy)

    def limit(self, what: str, formula: str, size: int, most: int, remedy: str) -> None:
        """Raises SpecError when `size` bytes, computed as `formula` says, are more than `most`."""
        if size > most:
            self.fail(f"{what} has {formula} = {size} bytes, {most} is the most", remedy)


def fail(text: str, said: str, remedy: str) -> NoReturn:
    """Raises SpecError about the specification `text`."""
    raise SpecError(f"reading workload '{text}': {said}. {remedy}.")


def parse(text: str, known: Callable[[], Mapping[str, Callable[[], Workload]]]) -> Spec:
    """Raises SpecError. `known()` has a loader for each workload's name."""
    name, _, rest = text.partition(":")
    given = _given(text, rest)
    loaders = known()
    if name not in loaders:
        fail(text, f"there is no workload '{name}'", f"Take one of {', '.join(sorted(loaders))}")
    workload = loaders[name]()
    numbers = _numbers(text, given, workload.parameters)
    workload.check(Spec(text, workload, numbers))
    common = workload.common_parameters()
    numbers |= _numbers(text, given, common)
    for key in sorted(given.keys() - numbers.keys()):
        known_keys = ", ".join(sorted(numbers))
        fail(text, f"{name} has no parameter '{key}'", f"Its parameters are {known_keys}")
    return Spec(text, workload, numbers)


def _given(text: str, rest: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in rest.removesuffix(",").split(",") if rest else []:
        key, equals, value = part.partition("=")
        if not equals:
            fail(text, f"'{part}' has no '='", "Write name:key=value,key=value")
        if key in given:
            fail(text, f"{key} is there twice", "Give it once")
        given[key] = value
    return given


def _numbers(
    text: str, given: Mapping[str, str], parameters: Mapping[str, Parameter]
) -> dict[str, int]:
    numbers = {}
    for key, parameter in parameters.items():
        value = given.get(key, str(parameter.missing))
        digits = value.isascii() and value.isdigit() and len(value) <= 10
        if not digits or not parameter.least <= int(value) <= parameter.most:
            remedy = f"Give a whole number from {parameter.least} to {parameter.most}"
            fail(text, f"{key} is '{value}'", remedy)
        numbers[key] = int(value)
    return numbers
