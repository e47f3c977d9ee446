"""`python -m experiments`: epoll and bpf on the same load, and the report about it."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError, status_of
from experiments.plan import TRANSPORTS, WAKE_POLICIES, Condition, Plan, Timing, numbered


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 all well; 1 it could not run, or a request failed; 130 interrupted."""
    options = parser().parse_args(arguments)
    return status_of(lambda: int(options.run(options)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="experiments", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    condition, timing = Condition(), Timing()
    demo = commands.add_parser("demo", help="run both transports in turn, and report")
    add = demo.add_argument
    add("--pairs", type=positive, default=2, help="runs of each transport (%(default)s)")
    add("--rate", type=above_zero, default=condition.rate, help="requests a second (%(default)g)")
    add("--seconds", type=above_zero, default=timing.measured, help="measured (%(default)g)")
    add("--connections", type=positive, default=condition.connections, help="(%(default)s)")
    add("--workload", default=condition.workload, metavar="SPEC", help="(%(default)s)")
    add("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS),
        help="arms of a pair (all)")  # fmt: skip
    add("--seed", type=int, help="of order and arrivals (a new one each time)")
    add("--out", type=Path, default=Path("build/demo"), help="folder (%(default)s)")
    demo.set_defaults(run=run_demo)
    report = commands.add_parser("report", help="make the report again from raw data")
    report.add_argument("out", type=Path, help="folder that `demo` wrote")
    report.set_defaults(run=run_report)
    measure = commands.add_parser("measure", help="run a plan here, leave raw data (demo calls it)")
    measure.add_argument("raw", type=Path, help="folder with a plan.json")
    measure.set_defaults(run=run_measure)
    bench = commands.add_parser("bench", help="what the service costs: ratios, and counts")
    bench.add_argument("--out", type=Path, default=Path("build/bench.json"), help="(%(default)s)")
    bench.set_defaults(run=run_bench)
    cost = commands.add_parser("bench-cost", help="count instructions here (bench calls it)")
    cost.add_argument("raw", type=Path, help="folder with the requests")
    cost.set_defaults(run=run_bench_cost)
    exact = commands.add_parser("exact", help="instructions of a request at three rates")
    exact.add_argument("--out", type=Path, default=Path("build/exact.json"), help="(%(default)s)")
    exact.add_argument("--record", action="store_true", help="make the result the baseline")
    add_wake_policy(exact)
    exact.set_defaults(run=run_exact)
    runs = commands.add_parser("exact-runs", help="run them here (exact calls it)")
    runs.add_argument("raw", type=Path, help="folder with the requests")
    runs.add_argument("--pairs", type=positive, required=True, help="of loads, for each figure")
    add_wake_policy(runs)
    runs.set_defaults(run=run_exact_runs)
    add_chain(commands)
    costs = commands.add_parser("cost-runs", help="sample and count here (`bpf-gpu-server cost`)")
    costs.add_argument("raw", type=Path, help="folder with a plan.json")
    costs.set_defaults(run=run_cost_runs)
    add_calibrate(commands)
    return top


def add_calibrate(commands: Any) -> None:
    """The calibration, and its part in the VM."""
    calibrate = commands.add_parser("calibrate", help="A/A, and a handicap of known size")
    add = calibrate.add_argument
    add("--tries", type=positive, default=40, help="of each experiment (%(default)s)")
    add("--pairs", type=positive, default=5, help="of a try (%(default)s)")
    add("--transport", choices=TRANSPORTS, default="epoll", help="of all arms (%(default)s)")
    add("--inject", action="append", metavar="WHAT=+N%",
        help="a handicap: cpu=+10%% or latency=+10%% (both)")  # fmt: skip
    add("--seed", type=int, default=2026, help="of order and arrivals (%(default)s)")
    add("--out", type=Path, default=Path("build/calibrate.json"), help="(%(default)s)")
    calibrate.set_defaults(run=run_calibrate)
    runs = commands.add_parser("calibrate-runs", help="run it here (calibrate calls it)")
    runs.add_argument("raw", type=Path, help="folder with a calibration.json")
    runs.set_defaults(run=run_calibrate_runs)


def add_chain(commands: Any) -> None:
    """`chain`, and what it calls in the VM."""
    chain = commands.add_parser("chain", help="Linux 7.3 in a VM, the executor outside of it")
    chain.add_argument("--executor", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    chain.add_argument("--pack", type=Path, help="archive with the VM; without it, ours is used")
    chain.add_argument("--out", type=Path, default=Path("build/chain"), help="(%(default)s)")
    chain.set_defaults(run=run_chain)
    inside = commands.add_parser("chain-guest", help="service and load in the VM (chain calls it)")
    inside.add_argument("raw", type=Path, help="folder with the requests")
    inside.add_argument("workloads", nargs="+")
    inside.set_defaults(run=run_chain_guest)
    for verb, rate, requests in ((chain, 500.0, 2000), (inside, None, None)):
        verb.add_argument("--rate", type=above_zero, default=rate, help="requests a second")
        verb.add_argument("--requests", type=positive, default=requests, help="of each workload")


def positive(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def above_zero(text: str) -> float:
    """A number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def run_demo(options: argparse.Namespace) -> int:
    """Plan, runs, report."""
    from experiments import experiment, measure, place
    from experiments.experiment import RAW

    condition = Condition(
        workload=options.workload, rate=options.rate, connections=options.connections
    )
    timing = Timing(measured=options.seconds)
    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed
    plan = Plan(seed, options.pairs, tuple(options.transports), numbered([condition]), timing)
    raw = options.out / RAW
    where = place.find(plan.transports, plan.run_count() * measure.run_seconds(plan))
    print(f"{options.pairs} × {' and '.join(plan.arms)}, seed {seed}, {where.why}")
    where.check_sees(raw)
    experiment.prepare(raw, plan)
    experiment.run(plan, where, raw)
    return run_report(options)


def run_report(options: argparse.Namespace) -> int:
    """Tables, page and summary from raw data alone. Raises ExperimentError when a request failed:
    then the figures are no comparison."""
    from experiments import report
    from experiments.experiment import RAW
    from experiments.summary import failures_of

    summary = report.of_one(options.out)
    failures = failures_of(summary["runs"])
    if failures or summary["unmeasured"]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failures.items())
        said = [f"failures by kind: {kinds or 'none'}", *summary["unmeasured"]]
        raise ExperimentError(
            "have every request answered rightly", "\n".join(said),
            "busy: the machine could not keep up, take a lower --rate; else see service.log and "
            f"load.json of each run in {options.out / RAW}",
        )  # fmt: skip
    return 0


def run_measure(options: argparse.Namespace) -> int:
    """Raw data only: the VM has no plotting."""
    from experiments.measure import measure

    measure(options.raw)
    return 0


def run_bench(options: argparse.Namespace) -> int:
    """Status 1 when a target is not met."""
    from experiments import bench

    measured = bench.run(options.out.with_suffix(""))
    lines = bench.write(measured, options.out)
    bench.show(lines, measured)
    print(f"result: {options.out}")
    return 1 if any(line.met is False for line in lines) else 0


def run_bench_cost(options: argparse.Namespace) -> int:
    """Raw data only."""
    from experiments.bench_cost import measure

    measure(options.raw)
    return 0


def complain(problems: Sequence[str]) -> int:
    """Prints them; returns the exit status, 1 when there are any."""
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


def add_wake_policy(parser: argparse.ArgumentParser) -> None:
    """The option that exact and its runs share."""
    parser.add_argument(
        "--wake-policy", choices=WAKE_POLICIES, default=Condition.wake_policy,
        help="when services look for results (%(default)s)",
    )  # fmt: skip


def run_exact(options: argparse.Namespace) -> int:
    """Status 1 when figures do not repeat, or have moved from the baseline."""
    from experiments import exact

    policy: str = options.wake_policy
    runs = exact.run(options.out.with_suffix(""), wake_policy=policy)
    exact.write(runs, options.out)
    exact.show(runs)
    print(f"result: {options.out}")
    if options.record:
        exact.record(runs)
        return 0
    baseline: exact.Runs | None = None
    if policy == Condition.wake_policy:
        baseline = json.loads(exact.BASELINE.read_text())
    return complain(exact.problems(runs, baseline))


def run_cost_runs(options: argparse.Namespace) -> int:
    """Raw data only."""
    from experiments.cost.runs import measure

    measure(options.raw)
    return 0


def run_exact_runs(options: argparse.Namespace) -> int:
    """Raw data only."""
    from experiments.exact_runs import measure

    measure(options.raw, options.pairs, options.wake_policy)
    return 0


def run_calibrate(options: argparse.Namespace) -> int:
    """Status 1 when an experiment finds what is not there, or not what is."""
    from experiments import calibrate, handicap
    from experiments.calibrate_runs import Calibration

    try:
        handicaps = handicap.parse(options.inject or ("cpu=+10%", "latency=+10%"))
    except ValueError as error:
        do = "give, for instance, --inject cpu=+10%"
        raise ExperimentError("read --inject", str(error), do) from None
    plan = Calibration(options.seed, options.tries, options.pairs, handicaps, options.transport)
    result = calibrate.run(options.out.with_suffix(""), plan)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    calibrate.show(result)
    print(f"result: {options.out}")
    return complain(calibrate.problems(result))


def run_calibrate_runs(options: argparse.Namespace) -> int:
    """Raw data only."""
    from experiments.calibrate_runs import measure

    measure(options.raw)
    return 0


def run_chain(options: argparse.Namespace) -> int:
    """Status 1 when a reply was not the expected one."""
    from experiments import chain

    wanted = chain.Chain(
        options.executor, rate=options.rate, requests=options.requests, pack=options.pack
    )
    found = chain.run(wanted, options.out)
    print(json.dumps(found, indent=1))
    return 0 if found["verified"] == found["requests"] > 0 else 1


def run_chain_guest(options: argparse.Namespace) -> int:
    """Raw data only."""
    from experiments.chain_guest import serve

    serve(options.raw, options.workloads, options.rate, options.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
