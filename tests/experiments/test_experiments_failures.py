"""Arms that fail: one clear message, a status that is not 0, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import __main__ as entry
from experiments import experiment, generator, measure, place, programs
from experiments.errors import ExperimentError
from experiments.generator import Generator, Server
from experiments.hypervisor import kept
from experiments.place import Place
from experiments.plan import Condition, Plan, Timing, numbered
from experiments.service import RUNTIME, Service

ROOT = Path(__file__).resolve().parents[2]
QUICK = Timing(counting=0.1, settling=0.1, measured=0.5)

Event = tuple[str, float]


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    assert not list(RUNTIME.glob(f"experiment-{os.getpid()}*"))
    assert not list(Path("/sys/fs/cgroup").rglob(f"bpf-gpu-server.experiment-{os.getpid()}"))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    running = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children]
    assert not [words for words in running if b"serve" in words or b"load" in words]


def silent(phase: str, seconds: float) -> None:
    pass


def planned(raw: Path, plan: Plan) -> Path:
    raw.mkdir(parents=True)
    plan.write(raw)
    return raw


def test_a_service_that_cannot_start(tmp_path: Path, nothing_left: None) -> None:
    condition = Condition(workload="gemm:m=0,k=16,n=15,work=1")
    raw = planned(tmp_path / "raw", Plan(1, 1, ("epoll",), numbered([condition]), QUICK))
    with pytest.raises(ExperimentError) as caught:
        measure.measure(raw, silent, lambda run: None)
    assert caught.value.tried == "start the service with transport epoll"
    assert "m is '0'" in caught.value.said


def test_a_transport_that_the_machine_lacks(tmp_path: Path, nothing_left: None) -> None:
    with (
        pytest.raises(ExperimentError, match="start the service with transport telepathy"),
        Service("telepathy", Condition(), tmp_path / "service.log"),
    ):
        pass


def test_a_service_that_ends_on_its_own(tmp_path: Path, nothing_left: None) -> None:
    with (
        pytest.raises(ExperimentError, match="keep the service running") as caught,
        Service("epoll", Condition(), tmp_path / "service.log") as service,
    ):
        os.kill(service.state()["processes"]["server"]["pid"], signal.SIGKILL)
        service.wait(20.0)
        raise OSError("an account is gone")
    assert "SIGKILL" in caught.value.said
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_of_ours_stops_the_service(tmp_path: Path, nothing_left: None) -> None:
    with (
        pytest.raises(OSError, match="disk full"),
        Service("epoll", Condition(), tmp_path / "service.log") as service,
    ):
        assert json.loads(service.counters())["transport"] == "epoll"
        raise OSError("disk full")


def test_a_generator_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    fake = script(tmp_path / "load", "import sys; sys.exit('load: no memory')")
    monkeypatch.setattr(programs, "native_program", lambda name: fake)
    raw = planned(tmp_path / "raw", Plan(1, 1, ("epoll",), timing=QUICK))
    with pytest.raises(ExperimentError, match="run the load") as caught:
        measure.measure(raw, silent, lambda run: None)
    assert "no memory" in caught.value.said


def test_a_generator_that_does_not_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    fake = script(tmp_path / "load", "import time; time.sleep(60)")
    monkeypatch.setattr(programs, "native_program", lambda name: fake)
    monkeypatch.setattr(generator, "CONNECT_S", 0.5)
    load = Generator(Condition(), QUICK, 1, Server("127.0.0.1", 9), tmp_path / "cases.bin")
    with pytest.raises(ExperimentError, match="see the load begin"), load:
        load.wait_until_sending()
    assert load.ended(0)


def test_a_program_that_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BPF_GPU_SERVER_BUILD", str(tmp_path))
    with pytest.raises(ExperimentError, match="find the program load") as caught:
        programs.native_program("load")
    assert caught.value.do == "run `make`"


def test_requests_that_cannot_be_made(tmp_path: Path) -> None:
    points = numbered([Condition(workload="sudoku")])
    with pytest.raises(ExperimentError, match="make the requests") as caught:
        experiment.prepare(tmp_path / "raw", Plan(1, points=points))
    assert "sudoku" in caught.value.said


def test_a_folder_with_something_else_in_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ExperimentError, match="other files in it"):
        experiment.prepare(tmp_path, Plan(1))
    assert (tmp_path / "thesis.tex").exists()


def test_a_folder_that_the_vm_does_not_see(tmp_path: Path) -> None:
    where = Place(("vm",), "python3", 5.0, "", tmp_path / "project")
    where.check_sees(tmp_path / "project" / "build" / "demo")
    with pytest.raises(ExperimentError, match="sees only"):
        where.check_sees(tmp_path / "elsewhere")


def test_what_the_other_side_said_is_told(tmp_path: Path) -> None:
    error = ExperimentError("open the lid", "EPERM", "ask first").render()
    python = script(tmp_path / "python", f"import sys; print({error!r}, file=sys.stderr); exit(1)")
    with pytest.raises(ExperimentError) as caught:
        experiment.run(Plan(1), Place((), str(python), 0.0, ""), tmp_path)
    assert caught.value.render() == error


def test_a_lost_vm_is_told(tmp_path: Path) -> None:
    python = script(
        tmp_path / "python", "import sys; print('qemu: no', file=sys.stderr); exit(125)"
    )
    with pytest.raises(ExperimentError) as caught:
        experiment.run(Plan(1), Place((), str(python), 0.0, ""), tmp_path)
    assert "left with 125" in caught.value.said
    assert "qemu: no" in caught.value.said


def test_the_vm_says_what_takes_so_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import sys; print('vm: building', file=sys.stderr); print('noise', file=sys.stderr)"
    python = script(tmp_path / "python", text)
    experiment.run(Plan(1, pairs=1), Place((), str(python), 0.0, ""), tmp_path)
    shown = capsys.readouterr().err
    assert "vm: building" in shown
    assert "noise" not in shown


def test_the_demo_asks_for_what_its_options_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Place((), str(script(tmp_path / "python", "")), 0.0, "")
    monkeypatch.setattr(place, "find", lambda *of: nowhere)
    options = ["--workload", "empty", "--rate", "7", "--connections", "3", "--transports", "epoll"]
    assert entry.main(["demo", "--out", str(tmp_path / "out"), "--seed", "2", *options]) == 1
    plan = Plan.read(tmp_path / "out" / "raw")
    assert plan.points == numbered([Condition(workload="empty", rate=7, connections=3)])
    assert (plan.seed, plan.transports) == (2, ("epoll",))


def test_phases_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ['{"phase": "one", "seconds": 2}', "not an event", '{"phase": "two", "seconds": 3}']
    python = script(tmp_path / "python", f"print({chr(10).join(lines)!r})")
    experiment.run(Plan(1, pairs=1), Place((), str(python), 0.0, ""), tmp_path)
    shown = capsys.readouterr().err
    assert "one (" in shown
    assert "two (" in shown
    assert "event" not in shown


def test_marks_are_answered_with_the_cpu_of_the_vm(tmp_path: Path) -> None:
    """A process of that name burns CPU between two marks; it is a grandchild, as QEMU is."""
    busy = script(
        tmp_path / "qemu-system-fake",
        """
import json, time
for burn in (0, 0.3):
    end = time.process_time() + burn
    while time.process_time() < end:
        pass
    print(json.dumps({"mark": "01-run"}), flush=True)
    time.sleep(0.3)
""",
    )
    python = script(tmp_path / "python", f"import subprocess; subprocess.run([{str(busy)!r}])")
    (tmp_path / "01-run").mkdir()
    experiment.run(Plan(1, pairs=1), Place((), str(python), 0.0, ""), tmp_path)
    first, second = kept(tmp_path / "01-run")
    assert 0.25e6 < second - first < 0.4e6


def test_marks_without_a_vm(tmp_path: Path) -> None:
    python = script(tmp_path / "python", """print('{"mark": "01-run"}')""")
    experiment.run(Plan(1, pairs=1), Place((), str(python), 0.0, ""), tmp_path)
    assert kept(tmp_path / "01-run") == []


def test_an_interrupt_stops_the_other_side_first(tmp_path: Path) -> None:
    """Ctrl-C reaches the process that runs the plan, and its clean-up is waited for."""
    body = f"""
import pathlib, signal, sys, time
def stop(number, frame):
    time.sleep(0.5)
    pathlib.Path({str(tmp_path / "cleaned")!r}).touch()
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
print('{{"phase": "running", "seconds": 1}}', flush=True)
time.sleep(60)
"""
    python = script(tmp_path / "python", body)
    program = "import sys; from experiments import __main__, place; "
    program += f"place.find = lambda *of: place.Place((), {str(python)!r}, 0.0, ''); "
    program += f"sys.exit(__main__.main(['demo', '--out', {str(tmp_path / 'out')!r}]))"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if "running" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == "interrupted; what ran was stopped\n"
    assert (tmp_path / "cleaned").exists()
