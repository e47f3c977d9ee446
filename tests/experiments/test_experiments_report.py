"""Summary, table and page from raw data alone."""

from __future__ import annotations

import io
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from rich.console import Console

from experiments import __main__ as command
from experiments import environment, histograms, table
from experiments.errors import ExperimentError
from experiments.plan import Plan
from experiments.records import RECORD, answered_between, keep, latency_us, read, read_verified
from experiments.summary import of_point, summarise
from experiments.verdicts import figures
from tests.experiments import recorded

ROOT = Path(__file__).resolve().parents[2]
RUN_KEYS = {
    "transport", "pair", "workload", "sent", "verified", "failures", "throughput_rps",
    "latency_us", "cpu_us_per_request", "loop_user_us", "service_syscalls_after_start",
}  # fmt: skip


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    recorded.record(tmp_path / "out" / "raw", Plan(11, 2))
    return tmp_path / "out" / "raw"


def runs_of(raw: Path, transport: str) -> list[dict[str, Any]]:
    return [run for run in summarise(raw)["runs"] if run["transport"] == transport]


def test_shape_of_the_summary(raw: Path) -> None:
    summary = summarise(raw)
    assert summary["kernel"] == "7.3.4-test"
    assert sorted((run["pair"], run["transport"]) for run in summary["runs"]) == [
        (1, "bpf"), (1, "epoll"), (2, "bpf"), (2, "epoll"),
    ]  # fmt: skip
    for run in summary["runs"]:
        assert run.keys() >= RUN_KEYS
        assert set(run["latency_us"]) == {"p50", "p90", "p99", "p999", "max"}
        assert {"service_user", "service_system", "executor", "machine"} <= set(
            run["cpu_us_per_request"]
        )
    json.dumps(summary)


def test_counts_and_latency(raw: Path) -> None:
    for run in summarise(raw)["runs"]:
        assert (run["sent"], run["verified"], run["failures"]) == (4000, 4000, {})
        assert run["throughput_rps"] == 1000
        assert set(run["latency_us"].values()) == {500.0}


def test_cpu_per_request(raw: Path) -> None:
    """1,000 requests a second: a request costs as many µs as the account has ms a second."""
    for run in summarise(raw)["runs"]:
        expected = {"service_user": 20, "service_system": 80, "executor": 100, "machine": 750}
        expected |= {"client": 150, "observer": 5, "machine_by_tick": 800}
        expected["vm_on_host"] = 1300
        if run["transport"] == "bpf":
            expected["loop"] = 70
        assert run["cpu_us_per_request"] == pytest.approx(expected, rel=1e-3)
        assert run["accounted"]["seconds"] == pytest.approx(3.75)
        assert run["accounted"]["requests"] == 3750


def test_who_is_on_the_path(raw: Path) -> None:
    for run in runs_of(raw, "bpf"):
        assert (run["loop_user_us"], run["service_syscalls_after_start"]) == (0, 0)
    for run in runs_of(raw, "epoll"):
        assert (run["loop_user_us"], run["service_syscalls_after_start"]) == (None, 4321)


def test_counters_a_reply(raw: Path) -> None:
    counted = runs_of(raw, "bpf")[0]["counters_per_reply"]
    assert counted["loop_steps"] == 3
    assert counted["sqes"] == 2
    assert counted["executor_steps"] == 1
    assert counted["batches"] == 0.5


def test_failed_requests_are_not_verified_ones(tmp_path: Path) -> None:
    plan = Plan(11, 1)
    recorded.record(tmp_path / "raw", plan, {"busy": 400})
    for run in summarise(tmp_path / "raw")["runs"]:
        assert (run["verified"], run["failures"]) == (3600, {"busy": 400})
        # The first 400 had no right answer; the first sample is 150 ms into the measured time.
        assert run["accounted"]["requests"] == 3750 - 250


def test_failed_requests_fail_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.record(tmp_path / "raw", Plan(11, 1), {"wrong_payload": 2})
    assert command.main(["report", str(tmp_path)]) == 1
    assert "4 wrong_payload" in capsys.readouterr().err
    assert (tmp_path / "summary.json").exists()
    assert "wrong_payload" in (tmp_path / "report.html").read_text()


def test_failed_warm_up_fails_the_command_too(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next(raw.glob("*/load.json"))
    load = json.loads(file.read_text())
    load["warmup"]["failures"] = {"reset": 1}
    file.write_text(json.dumps(load))
    assert command.main(["report", str(raw.parent)]) == 1
    assert "1 reset" in capsys.readouterr().err


def test_report_is_made_again(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["report", str(raw.parent)]) == 0
    first = (raw.parent / "report.html").read_text()
    (raw.parent / "report.html").unlink()
    assert command.main(["report", str(raw.parent)]) == 0
    assert (raw.parent / "report.html").read_text() == first
    assert "report.html" in capsys.readouterr().out


def test_page_is_whole_and_needs_nothing_else(raw: Path) -> None:
    command.main(["report", str(raw.parent)])
    page = (raw.parent / "report.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 2
    assert not re.findall(r"(?:src|href)\s*=\s*\"(?!#)[^\"]*\"", page)
    assert "@import" not in page
    for text in ("7.3.4-test", "QEMU TCG", "6.12-host", "0123456789ab", "Seed 11", "--seed",
                 "emulated", "On loopback", "server-epoll 4,321"):  # fmt: skip
        assert text in page, text


def test_histograms_have_the_runs_of_all_pairs(raw: Path) -> None:
    logs = histograms.write(summarise(raw), raw.parent)
    assert sorted(log.name for log in logs) == ["latency-bpf.hlog", "latency-epoll.hlog"]
    for log in logs:
        assert "corrected: 8000 values, 0 above the range, maximum 500000" in log.read_text()


def test_page_escapes_what_it_shows(raw: Path) -> None:
    file = raw / "host.json"
    file.write_text(json.dumps({**recorded.HOST, "distribution": "<script>alert(1)</script>"}))
    command.main(["report", str(raw.parent)])
    assert "<script>" not in (raw.parent / "report.html").read_text()


def test_table_compares_the_means(raw: Path) -> None:
    summary = of_point(summarise(raw), "p01")
    for run in summary["runs"]:
        run["latency_us"]["p99"] = 400.0 if run["transport"] == "epoll" else 300.0
    text = io.StringIO()
    table.show(summary, Console(file=text, width=150))
    (line,) = [line for line in text.getvalue().splitlines() if "P99," in line]
    assert "-25%" in line
    assert "CPU is emulated" in text.getvalue()


def test_report_without_a_vm(raw: Path) -> None:
    for file in raw.glob("*/hypervisor.json"):
        file.unlink()
    summary = of_point(summarise(raw), "p01")
    assert all("vm_on_host" not in run["cpu_us_per_request"] for run in summary["runs"])
    text = io.StringIO()
    table.show(summary, Console(file=text, width=150))
    assert "compare the CPU of the whole machine" in text.getvalue()
    assert "lacks the latter here (they were not timed)" in " ".join(text.getvalue().split())
    assert "on its host" not in text.getvalue()
    assert command.main(["report", str(raw.parent)]) == 0


def test_the_machine_at_ticks(raw: Path) -> None:
    """Of a second of each of 2 CPUs: 300 ms user, 400 system, 1,200 idle; the rest is none's."""
    for run in summarise(raw)["runs"]:
        expected = {"user": 0.15, "system": 0.2, "idle": 0.6, "irq": 0, "softirq": 0, "steal": 0}
        assert run["machine_at_ticks"] == pytest.approx(expected, abs=0.01)
    text = io.StringIO()
    table.show(of_point(summarise(raw), "p01"), Console(file=text, width=150))
    assert "machine at ticks: steal" in text.getvalue()


def test_a_kernel_that_accounts_interrupts_apart(raw: Path) -> None:
    machine = json.loads((raw / "environment.json").read_text())
    machine["accounting"] = {"CONFIG_IRQ_TIME_ACCOUNTING": "y"}
    recorded.write(raw / "environment.json", machine)
    for file in raw.glob("*/run.json"):
        timed = {"idle_interrupts": {"seconds": 0.5, "us": 20_000}}
        recorded.write(file, json.loads(file.read_text()) | timed)
    for run in summarise(raw)["runs"]:
        assert "idle_interrupts" not in run["cpu_us_per_request"]
        assert run["idle_interrupts_unknown"] == ""
    for file in raw.glob("*/hypervisor.json"):
        file.unlink()
    text = io.StringIO()
    table.show(of_point(summarise(raw), "p01"), Console(file=text, width=150))
    assert "accounts interrupts apart" in text.getvalue()


def test_a_load_with_another_clock(raw: Path) -> None:
    """That is 7 s behind; what it used, its own result says."""
    before = [run["accounted"] for run in summarise(raw)["runs"]]
    for folder in raw.glob("0*"):
        for name, more in (
            ("load.json", {"measured_from_monotonic_ns": int((recorded.START_S - 7) * 1e9),
                           "cpu": {"total_s": 0.4}}),
            ("run.json", {"clock_ahead_ns": 7_000_000_000}),
        ):  # fmt: skip
            recorded.write(folder / name, json.loads((folder / name).read_text()) | more)
        samples = json.loads((folder / "samples.json").read_text())
        for sample in samples:
            del sample["client"]
        recorded.write(folder / "samples.json", samples)
        records = np.frombuffer((folder / "records.bin").read_bytes(), RECORD).copy()
        for name in ("intended_ns", "sent_ns", "done_ns"):
            records[name] -= 7_000_000_000
        records.tofile(folder / "records.bin")
    runs = summarise(raw)["runs"]
    assert [run["accounted"] for run in runs] == before
    assert {run["cpu_us_per_request"]["client"] for run in runs} == {100.0}


def test_interrupts_of_idle_cpus_are_the_machines(raw: Path) -> None:
    """20 ms in half a second of the warm-up: 40 µs for each of 1,000 requests a second."""
    for file in raw.glob("*/run.json"):
        timed = {"idle_interrupts": {"seconds": 0.5, "us": 20_000}}
        recorded.write(file, json.loads(file.read_text()) | timed)
        (file.parent / "hypervisor.json").unlink()
    summary = of_point(summarise(raw), "p01")
    for run in summary["runs"]:
        assert run["cpu_us_per_request"]["idle_interrupts"] == pytest.approx(40, rel=1e-3)
        assert figures(run)["machine_cpu_us"] == pytest.approx(750 + 40, rel=1e-3)
    text = io.StringIO()
    table.show(summary, Console(file=text, width=150))
    assert "with these, which were timed in the warm-up" in " ".join(text.getvalue().split())
    assert "and interrupts of idle CPUs" in text.getvalue()


def test_table_with_one_transport(tmp_path: Path) -> None:
    recorded.record(tmp_path / "raw", Plan(11, 1, ("epoll",)))
    text = io.StringIO()
    table.show(of_point(summarise(tmp_path / "raw"), "p01"), Console(file=text, width=150))
    assert "bpf" not in text.getvalue()


@pytest.mark.parametrize("file", ["load.json", "samples.json", "records.bin", "counters.json"])
def test_missing_raw_data(raw: Path, file: str) -> None:
    next(raw.glob(f"*/{file}")).unlink()
    with pytest.raises(ExperimentError) as caught:
        summarise(raw)
    assert file.replace("records.bin", "requests.parquet") in caught.value.said


def test_runs_that_are_missing_are_said_to_be(raw: Path) -> None:
    next(raw.glob("*/run.json")).unlink()
    summary = of_point(summarise(raw), "p01")
    assert (len(summary["runs"]), summary["runs_missing"]) == (3, 1)
    assert "Runs that are missing, since the experiment has not ended: 1." in table.caveats(summary)
    for file in raw.glob("*/run.json"):
        file.unlink()
    with pytest.raises(ExperimentError, match="no run is complete"):
        summarise(raw)


def test_a_run_that_fell_behind_has_no_figures(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All replies came, but after the accounts had been read; or these were read too late."""
    late, unread = sorted(raw.glob("*/samples.json"))[:2]
    samples = json.loads(late.read_text())
    late.write_text(json.dumps([{**one, "at": one["at"] - 1e12} for one in samples]))
    unread.write_text(json.dumps(samples[:1]))
    summary = summarise(raw)
    assert [run["number"] for run in summary["runs"]] == [3, 4]
    assert len(summary["unmeasured"]) == 2
    assert command.main(["report", str(raw.parent)]) == 1
    assert "has no figures: its accounts were not read twice" in capsys.readouterr().err


def test_records_are_the_same_as_parquet(raw: Path) -> None:
    before = summarise(raw)
    folder = next(raw.glob("*/records.bin")).parent
    records = read(folder)
    for file in raw.glob("*/records.bin"):
        keep(file.parent)
    assert not list(raw.glob("*/records.bin"))
    assert (read(folder) == records).all()
    assert summarise(raw) == before
    names = parquet.read_table(folder / "requests.parquet").column_names
    assert tuple(names) == RECORD.names
    keep(folder)


def test_torn_records(raw: Path) -> None:
    file = next(raw.glob("*/records.bin"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ExperimentError, match="raw data"):
        summarise(raw)
    with pytest.raises(ValueError, match="multiple"):
        keep(file.parent)


def test_records_are_as_the_generator_defines_them() -> None:
    header = (ROOT / "native/load/request_log.hpp").read_text()
    body = re.search(r"struct Record \{(.*?)\};", header, re.DOTALL)
    assert body
    members = re.findall(r"uint(\d+)_t (\w+);", body[1])
    assert [(name, int(bits) // 8) for bits, name in members] == [
        (name, RECORD[name].itemsize) for name in RECORD.names or ()
    ]


def test_latency_is_sorted_and_of_verified_requests(tmp_path: Path) -> None:
    records = np.zeros(3, RECORD)
    records["intended_ns"] = 1000, 2000, 3000
    records["done_ns"] = 9000, 4000, 5000
    records["status"] = 0, 0, 6 << 8
    records.tofile(tmp_path / "records.bin")
    verified = read_verified(tmp_path)
    assert latency_us(verified).tolist() == [2.0, 8.0]
    assert answered_between(verified, 4, 9) == 1  # after 4 µs, up to 9 µs


def test_environment_says_what_runs_the_instructions() -> None:
    assert environment.accelerator("QEMU TCG CPU version 2.5+", ["hypervisor"]).startswith("TCG")
    assert environment.accelerator("AMD EPYC", ["hypervisor"]) == "hardware virtualisation"
    assert environment.accelerator("AMD EPYC", ["sse2"]) == "none (real hardware)"


def test_environment_of_this_machine() -> None:
    here = environment.host()
    assert here["kernel"] == platform.release()
    assert here["cpus"] == os.cpu_count()
    assert re.fullmatch(r"unknown|[0-9a-f]{12}( with changes)?", here["revision"])
    json.dumps(here)
