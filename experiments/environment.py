"""What an experiment ran on. Read where it ran, and on the host that reports it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.programs import SOURCE_ROOT

# They decide what the kernel charges to whom, and how fine it looks.
_ACCOUNTING = ("CONFIG_HZ", "CONFIG_IRQ_TIME_ACCOUNTING", "CONFIG_VIRT_CPU_ACCOUNTING_GEN")
_SYSCTLS = (
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/core/somaxconn",
    "net/core/busy_poll",
    "kernel/io_uring_disabled",
    "net/core/bpf_jit_enable",
    "kernel/bpf_stats_enabled",
    "kernel/sched_autogroup_enabled",
    "kernel/timer_migration",
)
# The VM runs under the QEMU of its own root folder, so its version is known inside.
_PACKAGES = ("qemu-system-x86", "libbpf1", "liburing2", "libc6")
_DISTRIBUTIONS = ("click", "cffi", "matplotlib", "numpy", "pyarrow", "rich", "scipy")


def cpus() -> int:
    """CPUs that are online."""
    return os.sysconf("SC_NPROCESSORS_ONLN")


def machine() -> dict[str, Any]:
    """The machine that this runs on: kernel, CPU, accelerator, settings."""
    model, flags = _cpu()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "distribution": _distribution(),
        "cpu": model,
        "cpus": cpus(),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "accelerator": accelerator(model, flags),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "accounting": _kernel_configuration(_ACCOUNTING),
        "sysctls": {name.replace("/", "."): _read(f"/proc/sys/{name}") for name in _SYSCTLS},
        "mitigations": _mitigations(),
        "python": platform.python_version(),
        "packages": _packages(),
    }


def host() -> dict[str, Any]:
    """The same for the machine that a report is made on, with versions and the git revision."""
    return {**machine(), "versions": _versions(), "revision": revision()}


def accelerator(model: str, flags: Iterable[str]) -> str:
    """What runs the machine's instructions."""
    if "TCG" in model:
        return "TCG (every instruction is emulated)"
    return "hardware virtualisation" if "hypervisor" in flags else "none (real hardware)"


def _cpu() -> tuple[str, list[str]]:
    text = _read("/proc/cpuinfo") or ""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields.get("model name", platform.machine()), fields.get("flags", "").split()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown"


def _kernel_configuration(names: Iterable[str]) -> dict[str, str]:
    release = platform.release()
    for place in (f"/lib/modules/{release}/config", f"/boot/config-{release}"):
        if text := _read(place):
            lines = dict(line.split("=", 1) for line in text.splitlines() if line[:1] == "C")
            return {name: lines.get(name, "n") for name in names}
    return dict.fromkeys(names, "unknown")


def _mitigations() -> dict[str, str]:
    folder = Path("/sys/devices/system/cpu/vulnerabilities")
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    states = {file.name: file.read_text().strip() for file in files}
    return {name: state for name, state in states.items() if state != "Not affected"}


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _packages() -> dict[str, str]:
    """Versions of Debian packages; none elsewhere."""
    found = _lines("dpkg-query", "--show", "--showformat=${Package} ${Version}\\n", *_PACKAGES)
    return dict(line.split() for line in found if len(line.split()) == 2)


def revision() -> str:
    """The project's git revision, and whether tracked files differ from it."""
    git = ("git", "-C", str(SOURCE_ROOT))
    commit = _lines(*git, "rev-parse", "--short=12", "HEAD")
    changed = _lines(*git, "status", "--porcelain", "--untracked-files=no")
    return "".join(commit[:1] or ["unknown"]) + (" with changes" if changed else "")


def _lines(*command: str) -> list[str]:
    """What a command prints; nothing where it cannot run. A status is of no interest."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None
