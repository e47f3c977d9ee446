"""`cost`: both transports under one load, where their CPU goes, in tables and pictures."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import place, remote
from experiments.cost import flame, page, shares, table
from experiments.cost.runs import PLAN, SEEN, Asked
from experiments.errors import ExperimentError
from experiments.progress import Bar

RAW, SUMMARY, PAGE = "raw", "cost.json", "cost.html"


def run(asked: Asked, out: Path) -> int:
    """Measures, on this host or else in the VM, which counts instructions; then reports.

    Status 1 when samples and accounts do not agree. Raises ExperimentError.
    """
    where = place.find(asked.transports)
    if where.shared:
        asked = replace(asked, exact=True)
        where = place.find(asked.transports, asked.expected_s(), exact=True)
    where.check_sees(out)
    raw = out / RAW
    if out.exists() and any(out.iterdir()) and not (raw / PLAN).exists():
        said = f"it has other files in it, and no {RAW}/{PLAN}"
        raise ExperimentError(f"use the folder {out}", said, "choose another folder with --out")
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    asked.write(raw)
    print(f"{' and '.join(asked.transports)}, {where.why}")
    command = [*where.prefix, where.python, "-m", "experiments", "cost-runs", str(raw.absolute())]
    with Bar(where.boot_s + asked.expected_s()) as bar:
        bar.phase("booting the VM" if where.boot_s else "starting", where.boot_s)
        remote.run(command, raw, bar)
    return report(out)


def report(out: Path) -> int:
    """Table, picture and flame graphs from raw data alone. Raises ExperimentError without it."""
    raw = out / RAW
    try:
        found = shares.summarise(raw)
    except (OSError, ValueError, ZeroDivisionError) as error:
        do = "run `bpf-gpu-server cost` without --again, or name its folder with --out"
        raise ExperimentError(f"read the raw data in {raw}", str(error), do) from None
    facts = describe(raw)
    flames = {}
    for name in found:
        stacks = json.loads((raw / name / SEEN).read_text())["stacks"]
        flames[name] = flame.render(stacks, f"{name}: samples by stack")
        (out / f"flame-{name}.svg").write_text(flames[name])
    (out / SUMMARY).write_text(json.dumps({"facts": facts, "costs": found}, indent=2) + "\n")
    (out / PAGE).write_text(page.render(found, flames, facts))
    table.show(found, facts["unit"])
    print(f"picture: {out / PAGE}\nsummary: {out / SUMMARY}")
    lines = shares.problems(found)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


def describe(raw: Path) -> dict[str, Any]:
    """What the figures were measured on, and their unit."""
    asked, machine = Asked.read(raw), json.loads((raw / "environment.json").read_text())
    return {
        "date": machine["date"], "kernel": machine["kernel"], "cpus": machine["cpus"],
        "where": machine["accelerator"], "rate": asked.rate, "connections": asked.connections,
        "unit": "instructions" if asked.exact else "ns of CPU time",
    }  # fmt: skip
