"""Runs every test where it can run, and accounts for every skip.

On this machine: all folders of tests/. Those marked `beside` run at the lowest priority beside the
others: how fast the machine is, is all the same to them. What needs Linux 7.3 runs in the VM as
well, unless this machine has it. A skip that expected_skips.toml does not name for the kind of
machine is a failure.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test"
# What runs in the VM: folders of tests/, each with a choice of tests (pytest's -k).
GUEST_RUNS = {"conformance": "bpf", "kernel": "", "service": "bpf or doctor"}
GUEST_LIMIT_S = 900
NOTHING_CHOSEN = 5  # pytest's status: of two runs over a folder, one may have nothing to do
AGAIN_AT_MOST = 5  # more failures than that are not the machine's


@dataclass
class Results:
    """What one machine's run came to; skips maps a reason to the tests skipped for it."""

    machine: str
    passed: int = 0
    failed: int = 0
    skips: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def read_results(machine: str, path: Path, status: int) -> Results:
    """Counts a junit file. A run that left none, or died after it, counts as a failure."""
    results = Results(machine)
    if path.exists():
        for case in ElementTree.parse(path).iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            skip = case.find("skipped")
            if skip is not None:
                reason = (skip.get("message") or "no reason").splitlines()[0]
                results.skips.setdefault(reason, []).append(name)
            elif case.find("failure") is not None or case.find("error") is not None:
                results.failed += 1
                results.failures.append(name)
            else:
                results.passed += 1
    if status not in (0, 1) or (status == 1 and not results.failed):
        results.failed += 1
        print(f"{machine}: the run itself failed with status {status}", file=sys.stderr)
    return results


def run_pytest(
    machine: str, name: str, prefix: list[str], arguments: list[str], output: TextIO = sys.stdout
) -> Results:
    """Runs pytest behind a prefix, and reads what came of it."""
    python = "python3" if machine == "guest" else sys.executable
    report = RESULTS / f"{machine}-{name}.xml"
    report.unlink(missing_ok=True)
    # A cache of its own for what failed: another run may be going on.
    command = [*prefix, python, "-m", "pytest", "-q", "--durations=8", f"--junitxml={report}"]
    command += ["-o", f"cache_dir={RESULTS / f'cache-{machine}-{name}'}", *arguments]
    print(f"== {machine}: {' '.join(arguments)}", file=output, flush=True)
    started = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, stdout=output, check=False).returncode
    if machine == "host" and status == NOTHING_CHOSEN:
        status = 0
    results = read_results(machine, report, status)
    if status == 1 and 0 < results.failed <= AGAIN_AT_MOST:
        again(command, report, results, output)
    print(f"== {machine}: {time.monotonic() - started:.0f} s", file=output, flush=True)
    return results


def again(command: list[str], report: Path, results: Results, output: TextIO) -> None:
    """Asks the tests that failed once more, alone: an emulated CPU on a busy host stands still for
    seconds. One that passes then is named as unsteady; one that fails again is a failure.
    """
    command = [*command, "--last-failed"]
    status = subprocess.run(command, cwd=ROOT, stdout=output, check=False).returncode
    second = read_results(results.machine, report, status)
    passed_now = set(results.failures) - set(second.failures)
    if second.passed and not second.failed:
        results.passed, results.failed = results.passed + results.failed, 0
    for name in sorted(passed_now):
        print(f"unsteady on {results.machine}: {name} failed, then passed", file=sys.stderr)


def run_host(folder: str) -> list[Results]:
    """This machine's runs over a folder."""
    beside = ["nice", "-n", "19"]
    with ThreadPoolExecutor(1) as pool, (RESULTS / "beside.log").open("w+") as log:
        second = pool.submit(run_pytest, "host", "beside", beside, ["-m", "beside", folder], log)
        first = run_pytest("host", "tests", [], ["-m", "not beside", folder])
        results = [first, second.result()]
        log.seek(0)
        print(log.read(), flush=True)
    return results


def run_guest(folder: str, choice: str) -> Results:
    """The VM's run over a folder."""
    vm = [sys.executable, "-m", "vm", "run", "--timeout", str(GUEST_LIMIT_S), "--"]
    return run_pytest("guest", Path(folder).name, vm, [folder, *(["-k", choice] if choice else [])])


def can_run_bpf() -> bool:
    """Whether this machine itself has what the bpf transport needs."""
    doctor = [sys.executable, "-m", "loader", "doctor", "--transport", "bpf", "--json"]
    return subprocess.run(doctor, cwd=ROOT, capture_output=True, check=False).returncode == 0


def unexpected_skips(results: Results) -> list[str]:
    """Reasons that expected_skips.toml does not list for this kind of machine."""
    expected = tomllib.loads((ROOT / "tests" / "expected_skips.toml").read_text())
    patterns = expected.get(results.machine, {}).get("reasons", [])
    if os.environ.get("TESTS_NO_SKIPS"):
        patterns = []
    return [
        reason
        for reason in results.skips
        if not any(fnmatch.fnmatch(reason, pattern) for pattern in patterns)
    ]


def print_skips(results: Results) -> None:
    for reason, names in sorted(results.skips.items()):
        print(f"skipped on {results.machine}: {len(names):3}  {reason}")


def main() -> int:
    """Returns 0 when everything passed or was skipped for an expected reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one folder of tests/")
    only = parser.parse_args().only
    RESULTS.mkdir(parents=True, exist_ok=True)
    all_results = run_host(f"tests/{only}" if only else "tests")
    if not can_run_bpf():
        all_results += [
            run_guest(f"tests/{folder}", choice)
            for folder, choice in GUEST_RUNS.items()
            if only in (None, folder)
        ]
    surprises = 0
    for results in all_results:
        print_skips(results)
        for reason in unexpected_skips(results):
            surprises += 1
            print(f"not expected on {results.machine}: {reason}", file=sys.stderr)
    passed = sum(results.passed for results in all_results)
    failed = sum(results.failed for results in all_results) + surprises
    skipped = sum(len(names) for results in all_results for names in results.skips.values())
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
