"""`bpf-gpu-server ab`: from a file to verdicts, interrupted and gone on with, confirmed."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from experiments import ab, experiment, measure
from experiments.errors import ExperimentError
from experiments.experiment_file import read
from experiments.place import Place
from experiments.plan import Condition, Plan, Run, numbered
from experiments.progress import Report
from experiments.report import with_verdicts
from experiments.summary import summarise
from experiments.verdicts import as_json, to_confirm
from loader.cli import cli
from tests.experiments import recorded

ROOT = Path(__file__).resolve().parents[2]
RATES = numbered(Condition(rate=rate) for rate in (10, 20, 30, 40))
FILE = """
asks = "Why?"
transports = ["epoll", "epoll"]
pairs = 1
seed = 3
warmup_s = 0.3
measured_s = 0.4
condition = { rate = 200, connections = 4 }
"""


def cheaper(run: Run) -> float:
    """At p02 bpf costs a fifth less; at p03 8 % less, short of the rule."""
    factor = {("p02", "bpf"): 0.8, ("p03", "bpf"): 0.92}.get((run.point, run.arm), 1.0)
    return recorded.VM_US * factor


@pytest.fixture
def out(tmp_path: Path) -> Path:
    recorded.record(tmp_path / "out" / "raw", Plan(11, 2, points=RATES, asks="Why?"), None, cheaper)
    return tmp_path / "out"


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["ab", *map(str, words)], standalone_mode=False)


def test_a_verdict_for_each_point(out: Path) -> None:
    verdicts = as_json(summarise(out / "raw"))
    assert [one["point"] for one in verdicts] == ["p01", "p02", "p03", "p04"]
    assert [one["advantage"] for one in verdicts] == [False, True, False, False]
    effect = verdicts[1]["effects"]["machine_cpu_us"]
    assert effect["estimate"] == pytest.approx(-0.2)
    assert verdicts[1]["means"]["bpf"]["machine_cpu_us"] == pytest.approx(1040, rel=1e-3)


def test_pairs_with_an_invalid_run_do_not_count(out: Path) -> None:
    for number, file in enumerate(sorted(out.glob("raw/*-p02-pair*-epoll/load.json"))):
        load = json.loads(file.read_text())
        file.write_text(json.dumps({**load, "valid": False, "invalid_reasons": [f"late {number}"]}))
    summary = summarise(out / "raw")
    assert [one["point"] for one in as_json(summary)] == ["p01", "p03", "p04"]
    shown = command("show", out)
    assert "At p02 there are fewer than 2 whole pairs of valid runs" in shown.output
    assert "late 1" in shown.output


def test_what_is_confirmed(out: Path) -> None:
    """The point with an advantage, and the two that came nearest to one: p03, and p01."""
    assert to_confirm(summarise(out / "raw")) == ["p01", "p02", "p03"]


def test_a_report_from_raw_data_alone(out: Path) -> None:
    for file in out.glob("raw/*-p01-pair?-epoll/load.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "failures": {"busy": 3}}))
    assert command("report", out).return_value == 0
    page = (out / "report.html").read_text()
    links = re.findall(r'a href="([^"]*)"', page)
    assert links == [f"points/{point}.html" for point in RATES]
    assert page.count("<svg") == 3
    for link in links:
        assert (out / link).read_text().count("<svg") == 2
    assert "bpf has the advantage over epoll" in page
    assert "<li>p01, epoll: 6 busy</li>" in page
    assert "machine CPU -10% or less with P99 +5% or less" in page
    shutil.rmtree(out / "points")
    assert command("report", out).return_value == 0
    assert (out / "report.html").read_text() == page


def test_a_confirmation_is_shown_beside(out: Path) -> None:
    points = {name: RATES[name] for name in ("p02", "p03")}
    confirm = Plan(12, 2, points=points, asks="Why?")
    recorded.record(out / "confirm" / "raw", confirm, None, lambda run: recorded.VM_US)
    command("report", out)
    page = (out / "report.html").read_text()
    assert "Run afterwards with seed 12" in page
    assert "At p02 no advantage is shown" in page


def test_a_handicap_and_whether_it_was_found(tmp_path: Path) -> None:
    """130 µs of CPU a request are 10 % of the VM's 1,300; 50 µs are that of P99, which stayed."""
    plan = Plan(5, 2, ("bpf", "bpf"), asks="Why?", inject={"cpu": 0.1, "latency": 0.1})
    raw = tmp_path / "raw"
    recorded.record(raw, plan, None, lambda run: recorded.VM_US * (1.1 if "2" in run.arm else 1))
    for folder in raw.glob("*-bpf2"):
        recorded.give_handicap(folder, 130, 50)
    (verdict,) = with_verdicts(tmp_path)["verdicts"]
    assert verdict["effects"]["machine_cpu_us"]["estimate"] == pytest.approx(0.10, abs=0.001)
    found = with_verdicts(tmp_path)["injected"]["p01"]
    assert found == {
        "machine_cpu_us": pytest.approx(0.10, abs=0.001),
        "p99_us": pytest.approx(0.10),
    }
    page = command("show", tmp_path).output
    assert "At p01 bpf2 had a handicap of +10.0% P99; the interval, +0.0%" in page
    assert "does not hold it" in page


def test_list_and_show(out: Path) -> None:
    next(out.glob("raw/*-p04-pair2-bpf/run.json")).unlink()
    listed = command("list", out).output
    assert "p01: 10/s\n    4 of 4 runs" in listed
    assert "p04: 40/s\n    3 of 4 runs" in listed
    shown = command("show", out, "p02").output
    assert "latency P99, µs" in shown
    assert "-20%" in shown


@pytest.mark.parametrize(
    ("words", "said", "do"),
    [
        (("report", "{}/none"), "FileNotFoundError", "name a folder that `bpf-gpu-server ab run`"),
        (("show", "{}/out", "p9"), "has p01, p02, p03, p04", "name one of these"),
        (("confirm", "{}/out"), "1 of its runs are missing", "go on with it first"),
        (("run", "{}/why.toml", "--out", "{}/out"), "with 15 complete runs", "with --resume"),
        (("run", "{}/why.toml", "--out", "{}/out", "--resume"), "pairs", "put them back"),
        (("run", "{}/far.toml", "--out", "{}/o"), "no network there", "without --exact"),
        (("run", "{}/many.toml", "--out", "{}/o"), "condition.service_cpus = 64", "leave one"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, out: Path, words: tuple[str, ...], said: str, do: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    next(out.glob("raw/*-p04-pair2-bpf/run.json")).unlink()
    (tmp_path / "why.toml").write_text(FILE)
    far = FILE.replace("rate", 'topology = "ssh:there", rate')
    (tmp_path / "far.toml").write_text(f"exact = true\n{far}")
    (tmp_path / "many.toml").write_text(FILE.replace("rate", "service_cpus = 64, rate"))
    result = command(*(word.format(tmp_path) for word in words))
    assert result.return_value == 1
    assert said in result.stderr
    assert do in result.stderr


def test_nothing_to_confirm(tmp_path: Path) -> None:
    recorded.record(tmp_path / "raw", Plan(11, 1))
    assert command("confirm", tmp_path).return_value == 1
    assert not (tmp_path / "confirm").exists()


class Recorder:
    """Instead of measuring: records runs, and is interrupted after some."""

    def __init__(self, runs: int) -> None:
        self.left, self.ran = runs, list[str]()

    def __call__(
        self, plan: Plan, run: Run, folder: Path, idle: object, report: Report, mark: object
    ) -> None:
        if not self.left:
            (folder / "records.bin").write_bytes(b"half")
            raise KeyboardInterrupt
        self.left -= 1
        self.ran.append(run.name)
        folder.rmdir()
        recorded.record_run(folder, plan, run, {})


@pytest.mark.root
def test_complete_runs_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(5, 2, points=RATES)
    raw = tmp_path / "raw"
    experiment.prepare(raw, plan)
    first, second = Recorder(5), Recorder(100)
    monkeypatch.setattr(measure, "measure_run", first)
    with pytest.raises(KeyboardInterrupt):
        measure.measure(raw, lambda *of: None, lambda run: None)
    assert len(experiment.left(raw, plan)) == 11
    monkeypatch.setattr(measure, "measure_run", second)
    measure.measure(raw, lambda *of: None, lambda run: None)
    assert first.ran + second.ran == [run.name for run in plan.runs()]
    assert len(summarise(raw)["runs"]) == 16


@pytest.mark.root
def test_on_another_machine_it_is_not_gone_on_with(tmp_path: Path) -> None:
    experiment.prepare(tmp_path / "raw", Plan(5))
    recorded.write(tmp_path / "raw" / "environment.json",
                   {"architecture": "x", **recorded.MACHINE})  # fmt: skip
    with pytest.raises(ExperimentError, match=r"kernel was 7\.3\.4-test, is "):
        measure.measure(tmp_path / "raw", lambda *of: None, lambda run: None)


def test_one_whose_preparing_was_interrupted_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "raw"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(experiment.cases, "write", interrupt)
        experiment.prepare(raw, Plan(5))
    assert not experiment.begun(raw)
    experiment.prepare(raw, Plan(6))
    assert experiment.begun(raw)
    assert experiment.read_plan(raw).seed == 6


def interrupt(*of: object) -> None:
    raise KeyboardInterrupt


def test_another_seed_is_the_same_experiment(tmp_path: Path) -> None:
    plan = Plan(5)
    experiment.prepare(tmp_path / "raw", plan)
    assert experiment.check_the_same(tmp_path / "raw", replace(plan, seed=6)) == plan


def test_confirming_takes_a_new_seed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[Plan, Path]] = []
    reported: list[Path] = []

    def instead(plan: Plan, folder: Path, resume: bool, of: str) -> None:
        begun.append((plan, folder))

    monkeypatch.setattr(ab, "run_plan", instead)
    monkeypatch.setattr(ab, "of_points", reported.append)
    assert command("confirm", out).return_value == 0
    ((plan, folder),) = begun
    assert list(plan.points) == ["p01", "p02", "p03"]
    assert plan.points["p02"] == RATES["p02"]
    assert plan.seed != 11
    assert folder == out / "confirm"
    assert reported == [out]


def test_instructions_are_counted_in_the_vm(tmp_path: Path) -> None:
    where: Place = ab.place.find(["epoll"], 1000, exact=True)
    assert "--icount" in where.prefix
    assert where.prefix[where.prefix.index("--timeout") + 1] == "4000"
    assert where.cpus == 1


@pytest.mark.root
@pytest.mark.slow
def test_a_real_one_interrupted_and_gone_on_with(tmp_path: Path) -> None:
    """epoll against epoll, on this host, between namespaces, at a share of what it sustains."""
    file, out = tmp_path / "why.toml", tmp_path / "out"
    file.write_text(FILE.replace("rate = 200", 'rate = "5%", topology = "veth", service_cpus = 1'))
    words = [sys.executable, "-m", "loader", "ab", "run", str(file), "--out", str(out)]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if line.startswith("run 2 of 2"):
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert "interrupted; what ran was stopped" in said
    assert "1 of 2 runs are complete: the same command with --resume goes on" in said
    assert process.returncode == 130
    plan = read(file)
    (first, second) = plan.runs()
    assert experiment.left(out / "raw", plan) == [second]
    before = (out / "raw" / first.name / "run.json").read_text()
    done = subprocess.run(
        [*words, "--resume"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "run 1 of 2" not in done.stderr
    assert (out / "raw" / first.name / "run.json").read_text() == before
    runs = summarise(out / "raw")["runs"]
    assert [run["arm"] for run in runs] == [first.arm, second.arm]
    assert {run["transport"] for run in runs} == {"epoll"}
    assert runs[0]["sent"] == runs[1]["sent"] == runs[0]["verified"] == runs[1]["verified"] > 40
    assert len(list(out.glob("raw/*/requests.parquet"))) == 2
    (saturation,) = json.loads((out / "raw" / "saturation.json").read_text())
    assert {run["rate"] for run in runs} == {round(0.05 * saturation["throughput_rps"], 1)}
    for run in runs:
        assert all(command[0] == "nsenter" for command in run["commands"].values())
        assert all("taskset" in command for command in run["commands"].values())
    assert (out / "report.html").exists()
