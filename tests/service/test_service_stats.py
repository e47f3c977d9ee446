"""`stats` and `load` against a running service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from loader.instance import read_state
from loader.page_reader import open_page
from tests.service.service import Service, cli

Start = Callable[..., Service]
GEMM = "gemm:m=4,k=16,n=15,work=1"


def test_counters(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    for number in range(3):
        service.ask(request_id=number)
    run = cli("stats", "--instance", service.instance, "--json")
    assert run.returncode == 0, run.stderr
    shown = json.loads(run.stdout)
    assert shown["transport"] == transport
    assert shown["port"] == service.state["port"]
    assert shown["counters"]["ingress"]["submit_tail"] == 3
    assert shown["counters"]["egress"]["replies"] == 3
    assert shown["counters"]["executor"]["completed"] == 3
    assert shown["counters"]["depth"]["queued"] == 0


def test_table(start: Start, root: None) -> None:
    service = start().require_ready()
    service.ask()
    run = cli("stats", "--instance", service.instance)
    assert run.returncode == 0, run.stderr
    assert re.search(r"egress +│ replies +│ +1 │", run.stdout)
    assert "a second" not in run.stdout


def test_watch(start: Start, root: None) -> None:
    service = start().require_ready()
    arguments = ["stats", "--instance", service.instance, "--watch", "0.05", "--count", "3"]
    run = cli(*arguments, "--json")
    assert run.returncode == 0, run.stderr
    times = [json.loads(line)["time"] for line in run.stdout.splitlines()]
    assert len(times) == 3
    assert times[2] - times[0] >= 0.1
    assert cli(*arguments).stdout.count("a second") == 2, "the first has nothing before it"


def test_watch_ends_with_the_service(start: Start, root: None) -> None:
    service = start().require_ready()
    state = read_state(service.instance)
    from loader.commands.stats import readings
    from loader.errors import LoaderError

    seen = readings(state, 0.01, None)
    next(seen)
    assert service.end() == 0
    with pytest.raises(LoaderError, match="has ended"):
        next(seen)


def test_the_page_is_mapped_for_reading_only(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    mappings = Path("/proc/self/maps").read_text().splitlines()
    with open_page(read_state(service.instance)) as page:
        assert page.counters()["ingress"]["submit_tail"] == 0
        new = set(Path("/proc/self/maps").read_text().splitlines()) - set(mappings)
        shared = [line for line in new if re.search(r"memfd:bpf-gpu-server|bpf-map", line)]
        assert [line.split()[1] for line in shared] == ["r--s"]


def test_load_checks_replies(start: Start, transport: str, root: None, tmp_path: Path) -> None:
    service = start("--workload", GEMM, transport=transport).require_ready()
    run = cli("load", "--instance", service.instance, "--closed", "--requests", "200",
              "--connections", "4", "--depth", "8", "--json", str(tmp_path / "result"))  # fmt: skip
    assert run.returncode in (0, 2), run.stderr  # 2: the machine is too busy to judge latency
    result = json.loads((tmp_path / "result").read_text())
    assert (result["sent"], result["verified"], result["failures"]) == (200, 200, {})
    assert "200 sent, 200 verified" in run.stdout


def test_load_sees_wrong_answers(start: Start, root: None) -> None:
    """Another matrix is asked for than is served."""
    service = start("--workload", GEMM).require_ready()
    run = cli("load", "--instance", service.instance, "--workload", "gemm:m=2,k=8,n=8",
              "--closed", "--requests", "20", "--json", "-")  # fmt: skip
    assert run.returncode == 2, run.stderr
    result = json.loads(run.stdout)
    assert result["verified"] == 0
    assert sum(result["failures"].values()) == 20


def test_load_of_nobody(root: None) -> None:
    run = cli("load", "--port", "9", "--workload", GEMM, "--requests", "1")
    assert run.returncode == 1
    assert "ECONNREFUSED" in run.stderr


def test_rate_and_closed_exclude_each_other(start: Start, root: None) -> None:
    service = start("--workload", GEMM).require_ready()
    run = cli("load", "--instance", service.instance, "--rate", "5", "--closed")
    assert run.returncode == 2
    assert "exclude each other" in run.stderr
