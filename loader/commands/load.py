"""`bpf-gpu-server load`."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click

from loader import paths
from loader.errors import LoaderError
from loader.instance import read_state


@click.command("load", short_help="Send requests, check every reply, show the latency.")
@click.option(
    "--instance",
    default="default",
    show_default=True,
    metavar="NAME",
    help="The running service to load; gives port and workload.",
)
@click.option("--host", metavar="ADDRESS", help="Address of a server elsewhere, with --port.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port, instead of the instance's.")
@click.option("--workload", metavar="SPEC", help="What to ask for; the service must serve it.")
@click.option(
    "--cases",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Requests and expected replies, instead of --workload.",
)
@click.option(
    "--case-count",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Different requests of --workload.",
)
@click.option(
    "--connections", type=click.IntRange(1), default=16, show_default=True, help="Connections."
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="R",
    help="Open loop: requests a second, sent on schedule whatever the server does. [default: 1000]",
)
@click.option("--closed", is_flag=True, help="Closed loop: the next request after the reply.")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant"]),
    default="poisson",
    show_default=True,
    help="Gaps of the open loop.",
)
@click.option("--depth", type=click.IntRange(1), help="Most unanswered requests of a connection.")
@click.option(
    "--warmup",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds before measuring begins.",
)
@click.option(
    "--duration",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Seconds to measure. [default: 5]",
)
@click.option("--requests", type=click.IntRange(1), metavar="N", help="Or requests to measure.")
@click.option("--timeout", type=click.FloatRange(0), help="Seconds to wait for the last replies.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of schedule and requests.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep the result; - prints it instead of the table.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep a record of every request.",
)
def command(
    instance: str, host: str | None, port: int | None, workload: str | None, cases: Path | None,
    case_count: int, json_file: Path | None, **options: Any,
) -> int:  # fmt: skip
    """Sends requests to a running service, compares every reply with the expected one, and shows
    throughput, failures, and latency from the time at which each request should have been sent.

    The exit status is 0 when all replies were right and the run is valid, 2 when not, and 1 when
    it could not run.
    """
    state = {} if port else read_state(instance)
    with tempfile.TemporaryDirectory(prefix="bpf-gpu-server-load-") as folder:
        if cases is None:
            cases = Path(folder) / "cases"
            served = state.get("workloads", [None])[0]
            write_cases(cases, workload or served, case_count, options["seed"])
        result_file = Path(folder) / "result.json"
        arguments = ["--host", host or state.get("address", "127.0.0.1")]
        arguments += ["--port", str(port or state["port"]), "--cases", str(cases)]
        arguments += [*generator_arguments(options), "--json", str(result_file)]
        status = subprocess.run([paths.program("load"), *arguments], check=False).returncode
        if not result_file.exists():
            return status or 1
        text = result_file.read_text()
    if str(json_file) == "-":
        print(text, end="")
        return status
    if json_file:
        json_file.write_text(text)
    print_summary(json.loads(text))
    return status


def write_cases(path: Path, workload: str | None, count: int, seed: int) -> None:
    """The requests and what numpy says the replies are. Raises LoaderError."""
    if workload is None:
        raise LoaderError(
            "choose requests", "with --port, the workload that is served is not known",
            "add --workload SPEC, the one that the server was started with",
        )  # fmt: skip
    from gpu_scheduler import workloads

    try:
        workloads.write_cases(path, workload, count, seed)
    except workloads.SpecError as error:
        tried, remedy = f"make requests of workload {workload}", "correct --workload"
        raise LoaderError(tried, str(error), remedy) from None


def generator_arguments(options: dict[str, Any]) -> list[str]:
    """The generator's form of the options; those not given are left to it."""
    given = {**options}
    if given.pop("closed"):
        if given["rate"]:
            raise click.UsageError("--rate and --closed exclude each other")
        given["arrivals"] = None
        arguments = ["--closed"]
    else:
        arguments = ["--rate", str(given["rate"] or 1000.0)]
    del given["rate"]
    if not given["requests"] and not given["duration"]:
        given["duration"] = 5.0
    for name, value in given.items():
        if value is not None:
            arguments += [f"--{name}", str(value)]
    return arguments


def print_summary(result: dict[str, Any]) -> None:
    """The result for a reader."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, title="load", title_justify="left")
    latency = result["latency_us"]
    failures = ", ".join(f"{n:,} {kind}" for kind, n in result["failures"].items()) or "none"
    rows = [
        ("requests", f"{result['sent']:,} sent, {result['verified']:,} verified"),
        ("failures", failures),
        ("throughput", f"{result['throughput_rps']:,.0f} verified replies a second"),
        *((name, f"{latency[key]:,.0f} µs") for name, key in LATENCIES),
        ("generator", f"late by {result['own_lag_us']['p99']:,.0f} µs at P99, "
                      f"busiest thread {result['cpu']['busiest_thread_share']:.0%} busy"),
        ("valid", "yes" if result["valid"] else "no: " + "; ".join(result["invalid_reasons"])),
    ]  # fmt: skip
    for row in rows:
        table.add_row(*row)
    Console().print(table)


LATENCIES = (
    ("latency, median", "p50"),
    ("latency, P90", "p90"),
    ("latency, P99", "p99"),
    ("latency, P99.9", "p999"),
    ("latency, maximum", "max"),
)
