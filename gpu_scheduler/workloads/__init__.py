"""Workloads: what the executors compute, and what their answers are compared with.

Each has a folder here: `NAME.cpp` for the CPU executor, `__init__.py` with its `WORKLOAD`, and
`reference.py`. Both registries find it there: to add one, add a folder.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from gpu_scheduler.workloads import case
from gpu_scheduler.workloads import spec as specs
from gpu_scheduler.workloads.case import Expected, Reference
from gpu_scheduler.workloads.spec import Spec, SpecError, Workload

__all__ = ["Expected", "Spec", "SpecError", "expect", "names", "parse_spec", "payloads"]
__all__ += ["reference", "write_cases"]


def names() -> list[str]:
    """The workloads there are, sorted."""
    return sorted(_loaders())


def parse_spec(text: str) -> Spec:
    """Reads `name:key=value,...`, as the executor does. Raises SpecError, for people."""
    return specs.parse(text, _loaders)


def payloads(spec: str | Spec, count: int, seed: int) -> list[bytes]:
    """Valid payloads; equal arguments give equal ones. Raises SpecError."""
    spec = _spec(spec)
    numbers = random.Random(f"{spec.name} {seed}")
    source = _reference(spec.name)
    return [source.payload(spec, numbers) for _ in range(count)]


def expect(spec: str | Spec, payload: bytes) -> Expected:
    """The answer to a valid payload, with its tolerance. Raises SpecError."""
    spec = _spec(spec)
    return _reference(spec.name).expect(spec, payload)


def reference(spec: str | Spec, payload: bytes) -> bytes:
    """The bytes of that answer alone: float32 values of one reply, or a stream's tokens."""
    return expect(spec, payload).result


def write_cases(path: Path | str, spec: str | Spec, count: int, seed: int) -> None:
    """Writes `count` requests with their answers, as `load --cases` reads them.

    Raises SpecError, and OSError when the file cannot be written.
    """
    spec = _spec(spec)
    drawn = payloads(spec, count, seed)
    case.write(Path(path), spec.kind, ((payload, expect(spec, payload)) for payload in drawn))


def _spec(spec: str | Spec) -> Spec:
    return parse_spec(spec) if isinstance(spec, str) else spec


def _load(name: str) -> Workload:
    return cast(Workload, importlib.import_module(f"{__name__}.{name}").WORKLOAD)


def _loaders() -> Mapping[str, Callable[[], Workload]]:
    folders = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
    return {name: functools.partial(_load, name) for name in folders}


def _reference(name: str) -> Reference:
    return cast(Reference, importlib.import_module(f"{__name__}.{name}.reference"))
