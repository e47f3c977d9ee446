# SPDX-License-Identifier: MIT
"""Runs the fuzz targets for a time each: python -m tests.fuzz.run --seconds 60 [TARGET...]

What a target has learnt stays in build/fuzz/corpus/, so that the next run begins there; an input
that breaks something is kept in build/fuzz/findings/.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import seeds

FUZZ = Path(__file__).resolve().parents[2] / "build" / "fuzz"
INPUT_BYTES = 4096
INPUT_LIMIT_S = 20  # for one input; they take well under a millisecond
FINISHED = re.compile(r"^#(\d+)\s+DONE\s+cov: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What one target's run came to; `coverage` counts edges, `cpu_s` seconds of CPU."""

    target: str
    inputs: int
    coverage: int
    cpu_s: float
    broken: str

    def __str__(self) -> str:
        found = f", BROKEN: {self.broken}" if self.broken else ", nothing found"
        seen = f"{self.inputs} inputs, {self.coverage} edges, {self.cpu_s:.0f} s of CPU"
        return f"{self.target}: {seen}{found}"


def fuzz(target: str, seconds: int, folder: Path = FUZZ) -> Outcome:
    """Runs build/fuzz/TARGET with its seeds; corpus and findings go to `folder`."""
    corpus, findings = folder / "corpus" / target, folder / "findings"
    for made in (corpus, findings):
        made.mkdir(parents=True, exist_ok=True)
    seeds.write(target, folder / "seeds" / target)
    command = [
        str(FUZZ / target), str(corpus), str(folder / "seeds" / target),
        f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES}", f"-timeout={INPUT_LIMIT_S}",
        "-use_value_profile=1", f"-artifact_prefix={findings}/{target}-",
    ]  # fmt: skip
    before = os.times()
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    after = os.times()
    cpu_s = sum(after[2:4]) - sum(before[2:4])  # of children
    done = FINISHED.search(run.stderr)
    inputs, coverage = (int(done[1]), int(done[2])) if done else (0, 0)
    return Outcome(target, inputs, coverage, cpu_s, "" if run.returncode == 0 else why(run.stderr))


def why(output: str) -> str:
    """The line that says what was broken, and where the input is."""
    said = re.search(r"^(broken: .*|.*(?:ERROR|runtime error): .*)$", output, re.MULTILINE)
    kept = re.search(r"Test unit written to (\S+)", output)
    return f"{said[1] if said else output[-500:]} ({kept[1] if kept else 'no input kept'})"


def main() -> int:
    """Returns 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("targets", nargs="*", default=sorted(seeds.TARGETS))
    arguments = parser.parse_args()
    outcomes = []
    for target in arguments.targets:
        print(f"{target}: {arguments.seconds} s", flush=True)
        outcomes.append(fuzz(target, arguments.seconds))
        print(outcomes[-1], flush=True)
    return 1 if any(outcome.broken for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
