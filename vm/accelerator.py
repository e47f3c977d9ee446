"""KVM only where it has been seen to boot a kernel: /dev/kvm exists on machines where it cannot."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from vm.errors import VmLost

PROBE_LIMIT_S = 15.0


def choose_accelerator(cache: Path, key: str, probe: Callable[[], int]) -> str:
    """ "kvm" if `probe`, a small run under KVM, ends with status 0, else "tcg".

    The answer is kept in `cache` until the host boots another kernel or `key` changes.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = {"host": [boot, key]}
    try:
        stored = json.loads(cache.read_text())
        if stored["host"] == known["host"]:
            return str(stored["accelerator"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never probed, or cut short
    try:
        answer, said = ("kvm" if probe() == 0 else "tcg"), "the probe's command ended"
    except VmLost as error:
        answer, said = "tcg", error.said
    cache.parent.mkdir(parents=True, exist_ok=True)
    partial = cache.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({**known, "accelerator": answer, "said": said}, indent=1))
    partial.rename(cache)
    return answer
