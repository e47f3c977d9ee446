"""`doctor`: the findings as a table or JSON, and whether the chosen parts can run here."""

from __future__ import annotations

import json
from typing import Any

from loader.features import Finding
from loader.probes.answer import Verdict

_COLOURS = {Verdict.YES: "green", Verdict.NO: "red", Verdict.UNKNOWN: "yellow"}


def can_run(findings: list[Finding]) -> bool:
    """Whether everything that is needed is known to be there."""
    return not any(finding.stands_in_the_way for finding in findings)


def as_json(findings: list[Finding], transport: str, executor: str) -> str:
    """`{"transport", "executor", "can_run", "capabilities": [{"name", "answer", ...}]}`."""
    rows: list[dict[str, Any]] = [
        {
            "name": finding.probe.name,
            "since": finding.probe.since,
            "needed": finding.needed,
            "answer": finding.answer.verdict.value,
            "why": finding.answer.why,
            "do": finding.answer.do,
        }
        for finding in findings
    ]
    result = {
        "transport": transport,
        "executor": executor,
        "can_run": can_run(findings),
        "capabilities": rows,
    }
    return json.dumps(result, indent=2)


def conclusion(findings: list[Finding], transport: str, executor: str) -> str:
    """One sentence: can it run, and if not, what is in the way."""
    if can_run(findings):
        return f"transport {transport} with executor {executor} can run here."
    names = ", ".join(f.probe.name for f in findings if f.stands_in_the_way)
    return f"transport {transport} with executor {executor} cannot run here: see {names}."


def print_table(findings: list[Finding], transport: str, executor: str) -> None:
    """The table for a terminal; plain lines where the package rich is missing."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        _print_plain(findings)
        print(conclusion(findings, transport, executor))
        return
    table = Table(title=f"* needed by transport {transport} or executor {executor}")
    table.add_column("capability", no_wrap=True)
    table.add_column("answer")
    table.add_column("why, and what to do", overflow="fold")
    for finding in findings:
        answer = finding.answer
        table.add_row(
            Text(finding.probe.name + "*" * finding.needed),
            Text(answer.verdict.value, style=_COLOURS[answer.verdict]),
            Text(_explanation(finding)),
        )
    console = Console()
    console.print(table)
    console.print(Text(conclusion(findings, transport, executor), style="bold"))


def _print_plain(findings: list[Finding]) -> None:
    for finding in findings:
        name = finding.probe.name + "*" * finding.needed
        first, *rest = _explanation(finding).splitlines()
        print(f"{name:22} {finding.answer.verdict.value:15} {first}")
        for line in rest:
            print(f"{'':38} {line}")


def _explanation(finding: Finding) -> str:
    """Why, and unless the answer is yes: since when it exists, and what to do."""
    answer, since = finding.answer, finding.probe.since
    if answer.verdict is Verdict.YES:
        return answer.why
    return f"{answer.why}{f' (since {since})' if since else ''}\n→ {answer.do}"
