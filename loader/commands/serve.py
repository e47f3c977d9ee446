"""`bpf-gpu-server serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loader.commands.config import read_config
from loader.options import TRANSPORTS, WAKE_POLICIES, ServeOptions

DEFAULT_WORKLOAD = "gemm:m=4,k=16,n=15,work=1"


@click.command("serve", short_help="Serve requests until Ctrl-C or SIGTERM.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=read_config,
    metavar="FILE",
    help="TOML file with any of these options, without the dashes; an option given here wins.",
)
@click.option(
    "--transport",
    type=click.Choice(TRANSPORTS),
    default="epoll",
    show_default=True,
    help="epoll: a native server. bpf: the kernel itself (Linux 7.3, root).",
)
@click.option(
    "--executor",
    default="cpu",
    show_default=True,
    metavar="cpu|cuda|due|external|FILE.py",
    help="What computes the replies: a FILE.py calls gpu_scheduler.cuda.serve_graphs(), due "
    "computes nothing, external is started by somebody else.",
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    default=[DEFAULT_WORKLOAD],
    show_default=True,
    metavar="SPEC",
    help="What is served, such as gemm:m=4,k=16,n=15 or fft:points=32,bins=30; "
    "give it again for more kinds.",
)
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on.",
)
@click.option(
    "--allow-remote",
    is_flag=True,
    help="Allow --bind with an address that other hosts can reach. Clients are not authenticated.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7373,
    show_default=True,
    help="TCP port; 0 takes a free one.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 4096),
    default=1024,
    show_default=True,
    help="Connections served at a time; more are refused.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 1024),
    default=1024,
    show_default=True,
    help="Requests held at a time, until their replies are sent; more are answered with BUSY.",
)
@click.option(
    "--wake-us",
    type=click.IntRange(1, 1_000_000),
    default=60,
    show_default=True,
    help="Microseconds between looks for results while requests are in flight.",
)
@click.option(
    "--wake-policy",
    type=click.Choice(WAKE_POLICIES),
    default="fixed",
    show_default=True,
    help="When to look: every --wake-us, or when the next result is expected.",
)
@click.option(
    "--drain-ms",
    type=click.IntRange(0, 3_600_000),
    default=5000,
    show_default=True,
    help="Milliseconds for answering what was admitted, after Ctrl-C or SIGTERM.",
)
@click.option(
    "--send-timeout-ms",
    type=click.IntRange(0, 3_600_000),
    default=30_000,
    show_default=True,
    help="Milliseconds until a peer that takes nothing of its replies is closed; 0: never.",
)
@click.option(
    "--request-timeout-ms",
    type=click.IntRange(0, 3_600_000),
    default=10_000,
    show_default=True,
    help="Milliseconds until a request without a result, or a stream without its next token, is "
    "answered with TIMEOUT; 0: never.",
)
@click.option(
    "--frame-timeout-ms",
    type=click.IntRange(0, 3_600_000),
    default=10_000,
    show_default=True,
    help="Milliseconds until a peer that does not finish its request is closed; 0: never.",
)
@click.option(
    "--instance",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Name of this service, for `stats` and for several at a time.",
)
@click.option(
    "--executor-poll",
    type=click.Choice(["spin", "sleep"]),
    help="How the executor waits for requests.",
)
@click.option(
    "--executor-sleep-us",
    type=click.IntRange(1, 1_000_000),
    help="Microseconds the executor sleeps between looks, with --executor-poll sleep.",
)
@click.option(
    "--page-frames",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --transport bpf and --executor external, in a virtual machine: write there which "
    "frames of its memory the page has, for an executor outside of it.",
)
@click.option(
    "--ready-fd",
    type=click.IntRange(0),
    metavar="FD",
    help="Descriptor on which the line `serving on ...` is written too; for scripts.",
)
def command(**options: Any) -> None:
    """Serves requests over TCP until Ctrl-C or SIGTERM; then answers what it admitted and leaves.

    Prints one line when clients can connect. Everything it makes (processes, cgroups, pinned maps,
    files) carries the instance's name and is removed at the end.
    """
    from loader.supervisor import serve

    serve(ServeOptions(**options))
