"""Everything a transport or an executor may need of a machine, as a table of probes.

A probe has a name, the version or commit in which the thing appeared (for the reader: nothing here
compares versions), and an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from loader.options import TRANSPORTS
from loader.probes import io_uring, kernel, rights, software
from loader.probes.answer import Answer, Verdict, unknown


@dataclass(frozen=True)
class Probe:
    """`needed_by` names transports and executors that cannot run without it."""

    name: str
    since: str
    attempt: Callable[[], Answer]
    needed_by: tuple[str, ...] = ()
    slow: bool = False  # starts programs; `serve` does not wait for it

    def ask(self) -> Answer:
        """The answer; a probe that fails by itself could not tell."""
        try:
            return self.attempt()
        except Exception as error:  # whatever it is, the other probes go on
            return unknown(f"{type(error).__name__}: {error}", "report it: the probe failed")


@dataclass(frozen=True)
class Finding:
    """A probe's answer, and whether the chosen transport and executor need it."""

    probe: Probe
    answer: Answer
    needed: bool

    @property
    def stands_in_the_way(self) -> bool:
        """Needed, and not known to be there."""
        return self.needed and self.answer.verdict is not Verdict.YES


def _package(name: str, remedy: str, *needed_by: str) -> Probe:
    return Probe(name, "", partial(software.package, name, remedy), needed_by, True)


PIP = "pip install 'bpf-gpu-server[gpu]'"

PROBES = (
    Probe("kernel", "", kernel.release),
    Probe("CAP_BPF", "Linux 5.8, 2c78ee898d8f", partial(rights.capability, "CAP_BPF"), ("bpf",)),
    Probe("CAP_NET_ADMIN", "Linux 2.2", partial(rights.capability, "CAP_NET_ADMIN"), ("bpf",)),
    Probe("CAP_PERFMON", "Linux 5.8, 980737282232",
          partial(rights.capability, "CAP_PERFMON"), ("bpf",)),
    Probe("CAP_SYS_ADMIN", "Linux 2.2", partial(rights.capability, "CAP_SYS_ADMIN")),
    Probe("BTF", "Linux 5.4, 341dfcf8d78e", kernel.btf, ("bpf",)),
    Probe("io_uring BPF ops", "Linux 7.1, d0e437b76bd3", kernel.io_uring_bpf_ops, ("bpf",)),
    Probe("sockmap", "Linux 4.18, 81110384441a", kernel.sockmap, ("bpf",)),
    Probe("sk_skb programs", "Linux 4.14, b005fd189cec", kernel.sk_skb, ("bpf",)),
    Probe("sock_ops programs", "Linux 4.13, 40304b2a1567", kernel.sock_ops, ("bpf",)),
    Probe("memlock, mmapable map", "Linux 5.5, fc9702273e2e", kernel.page_map, ("bpf",)),
    Probe("ringbuf overwrite", "Linux 6.19, feeaf1346f80", kernel.ringbuf_overwrite, ("bpf",)),
    Probe("io_uring", "Linux 5.1, 2b188cc1bb85", io_uring.setup, ("bpf",)),
    Probe("io_uring sysctl", "Linux 6.6, 76d3ccecfa18", io_uring.sysctl, ("bpf",)),
    Probe("io_uring flags", "Linux 6.6, 2af89abda7d9", io_uring.flags, ("bpf",)),
    Probe("cgroup v2", "Linux 4.5, 67e9c74b8a87", rights.cgroup2, ("bpf",)),
    Probe("bpffs", "Linux 4.4, b2197755b263", rights.bpffs, ("bpf",)),
    Probe("clang", "", software.clang),
    Probe("libbpf", "", software.libbpf, ("bpf",)),
    Probe("liburing-ffi", "liburing 2.4", software.liburing_ffi, ("bpf",)),
    Probe("BPF objects", "", software.bpf_objects, ("bpf",)),
    Probe("server-epoll", "", partial(software.program, "server-epoll"), ("epoll",)),
    Probe("executor-cpu", "", partial(software.program, "executor-cpu"), ("cpu",)),
    Probe("load generator", "", partial(software.program, "load")),
    _package("cffi", "apt-get install python3-cffi, or pip install cffi", *TRANSPORTS),
    _package("click", "apt-get install python3-click, or pip install click", *TRANSPORTS),
    _package("rich", "apt-get install python3-rich, or pip install rich"),
    _package("numpy", "apt-get install python3-numpy, or pip install numpy (for `load`)"),
    Probe("GPU", "", software.gpu, ("cuda",)),
    Probe("cupy", "", partial(software.gpu_package, "cupy", PIP), ("cuda",), slow=True),
    Probe("torch", "", partial(software.gpu_package, "torch", PIP), slow=True),
)  # fmt: skip


def examine(transport: str, executor: str, probes: Iterable[Probe] = PROBES) -> list[Finding]:
    """Asks all probes, in order."""
    chosen = {transport, executor}
    return [Finding(p, p.ask(), not chosen.isdisjoint(p.needed_by)) for p in probes]
