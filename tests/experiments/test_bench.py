from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import __main__ as entry
from experiments import bench, bench_cost, bench_memory, bench_saturation
from experiments.bench_saturation import Turn
from experiments.errors import ExperimentError

ROOT = Path(__file__).resolve().parents[2]
WALL_US = 1e6


def turn(requests: int, cpu_us: float, idle_us: float = 0.0) -> Turn:
    return Turn(requests, requests / WALL_US * 1e6, cpu_us, idle_us, WALL_US)


def measured(ratio: float = 0.8, saturated: bool = True, **changes: float) -> dict[str, Any]:
    """A result of a run, which meets the targets unless changed."""
    values = {
        "supervisor": 30.0, "server": 12.0, "bpf_supervisor": 40.0, "epoll": 700, "bpf": 900,
        **changes,
    }  # fmt: skip
    mib = 1 << 20
    one = {"wire_to_page": 9000.0, "page_to_wire": 16000.0, "look": 2000.0}
    return {
        "saturation": {
            "by_depth": {
                "1": {"ratio": 0.9, "saturated": True},
                "8": {"ratio": ratio, "saturated": saturated},
            },
            "resident_bytes": {name: values[name] * mib for name in ("supervisor", "server")},
            "cpus": {"service": 1, "load": 0},
        },
        "cost_instructions": {
            "epoll": one,
            "bpf": {**one, "supervisor_resident_bytes": values["bpf_supervisor"] * mib},
        },
        "connection_bytes": {name: {"sum": values[name]} for name in ("epoll", "bpf")},
    }


def test_the_service_is_charged_for_what_its_cpu_idled() -> None:
    echo, epoll = [turn(100_000, 5e5)] * 3, [turn(100_000, 8e5, idle_us=2e5)] * 3
    figures = bench_saturation.figures(echo, epoll)
    assert figures["echo_per_cpu_second"] == pytest.approx(200_000)
    assert figures["epoll_per_cpu_second"] == pytest.approx(100_000)
    assert figures["ratio"] == pytest.approx(0.5)
    assert figures["wall_ratio"] == pytest.approx(1.0)


def test_an_echo_that_idles_is_not_saturated() -> None:
    epoll = [turn(100_000, 1e6)] * 3
    assert bench_saturation.figures([turn(100_000, 9e5, idle_us=1e5)] * 3, epoll)["saturated"]
    assert not bench_saturation.figures([turn(100_000, 8e5, idle_us=2e5)] * 3, epoll)["saturated"]


@pytest.mark.parametrize(("others", "limits"), [(True, [0.7, None]), (False, [0.7, 0.7])])
def test_a_target_needs_a_saturated_echo(others: bool, limits: list[float | None]) -> None:
    """Where none was saturated, all are judged."""
    result = measured(ratio=0.5, saturated=False)
    result["saturation"]["by_depth"]["1"]["saturated"] = others
    assert [line.limit for line in list(bench.figures(result))[:2]] == limits


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    epoll = [turn(n, 1e6) for n in (50_000, 80_000, 90_000)]
    assert bench_saturation.figures([turn(100_000, 1e6)] * 3, epoll)["ratio"] == pytest.approx(0.8)


def test_disturbed_rounds_do_not_count() -> None:
    disturbed = turn(10_000, 6e5)
    epoll = [disturbed, turn(80_000, 1e6), turn(80_000, 1e6), turn(80_000, 1e6)]
    echo = [turn(100_000, 1e6)] * 4
    assert bench_saturation.figures(echo, epoll)["ratio"] == pytest.approx(0.8)
    with pytest.raises(ExperimentError) as caught:
        bench_saturation.figures(echo, [disturbed, *epoll[:3]])
    assert "in 2 of 4 rounds the service had less than 70% of it" in caught.value.render()


def test_one_cpu_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3})
    with pytest.raises(ExperimentError, match="there is one CPU"):
        bench_saturation.Place.choose()
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {7, 2, 5})
    assert bench_saturation.Place.choose() == bench_saturation.Place(server=7, client=2)


def test_a_request_costs_what_more_requests_cost_more() -> None:
    few, many = bench_cost.REQUESTS
    pairs = [5e6 + few * 9000, 5e6 + many * 9000] * 2 + [5e6, 99e6]  # one was disturbed
    assert bench_cost.difference(pairs) == pytest.approx(9000)


def test_page_memory_of_a_connection() -> None:
    from shared_page.reading import ffi

    # The page's arrays that have an element for each connection, divided by their number.
    page = ffi.new("struct shared_page *")
    arrays = (page.connection, page.attention, page.free_connection)
    whole = sum(ffi.sizeof(array) for array in arrays) / len(page.connection)
    assert bench_memory.page_bytes() == whole
    assert len(page.connection) == bench_memory.MANY


def test_variables_of_an_object_file(tmp_path: Path) -> None:
    source = tmp_path / "tables.c"
    source.write_text(
        "int first[100]; static char second[7] = {1}; extern int elsewhere;\n"
        "int function(void) { return first[0] + second[1] + elsewhere; }\n"
        "char *use(void) { return second; }\n"
    )
    subprocess.run(["gcc", "-c", source, "-o", tmp_path / "tables.o"], check=True)
    found = dict(bench_memory.variables((tmp_path / "tables.o").read_bytes()))
    assert found == {"first": 400, "second": 7}


def test_the_loop_keeps_a_table_entry_for_each_connection() -> None:
    assert 100 < bench_memory.loop_bytes() < 1024


@pytest.mark.root
def test_memory_of_a_connection_of_the_native_server(tmp_path: Path) -> None:
    assert 64 <= bench_memory.epoll_bytes(tmp_path) < 256  # native/epoll's struct has 64


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, []),
        ({"ratio": 0.69}, ["throughput of epoll to a bare echo, 8 unanswered a connection"]),
        ({"supervisor": 81.0}, ["memory of the supervisor, epoll"]),
        ({"bpf_supervisor": 81.0}, ["memory of the supervisor, bpf"]),
        ({"server": 16.5}, ["memory of the native server"]),
        ({"bpf": 1025}, ["memory of a connection, bpf"]),
        ({"epoll": 1025}, ["memory of a connection, epoll"]),
    ],
)
def test_status_says_whether_the_targets_hold(
    changes: dict[str, float],
    missed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "run", lambda raw: measured(**changes))
    out = tmp_path / "bench.json"
    assert entry.main(["bench", "--out", str(out)]) == bool(missed)
    result = json.loads(out.read_text())
    assert [line["name"] for line in result["figures"] if line["met"] is False] == missed
    assert ("NO" in capsys.readouterr().out) == bool(missed)
    without_target = [line["name"] for line in result["figures"] if line["limit"] is None]
    assert len(without_target) == 6  # costs, which are measured and not judged


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(150)
def test_saturation_of_both_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one, on a machine that may be busy: what is checked is that both arms worked."""
    monkeypatch.setattr(bench_saturation, "ROUNDS", 1)
    monkeypatch.setattr(bench_saturation, "ROUNDS_LEAST", 0)
    monkeypatch.setattr(bench_saturation, "UNDISTURBED", 0.0)
    monkeypatch.setattr(bench_saturation, "MEASURED_S", 0.3)
    phases: list[str] = []
    result = bench_saturation.compare(tmp_path, lambda phase, seconds: phases.append(phase))
    assert phases == ["saturation, round 1 of 1"]
    for depth in ("1", "8"):
        figures = result["by_depth"][depth]
        assert 0.05 < figures["ratio"] < 1.5
        assert figures["rounds"]["echo"][0]["requests"] > 1000
        assert figures["rounds"]["epoll"][0]["requests"] > 1000
    assert set(result["resident_bytes"]) == {"echo", "supervisor", "server", "executor"}
    assert result["resident_bytes"]["server"] < 16 << 20


def test_costs_are_counted_in_the_vm() -> None:
    command = bench.guest_command(Path("build/bench"))
    assert command[0] == sys.executable
    assert "--icount" in command
    assert command[-1] == str(Path("build/bench").absolute())
