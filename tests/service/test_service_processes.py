# SPDX-License-Identifier: MIT
"""How the supervisor starts its children."""

import signal
from pathlib import Path

from loader.processes import Child

MASK = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"


def test_held_signals_wait_from_the_first_moment_on(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    log = tmp_path / "log"
    child = Child("python", ["/usr/bin/python3", "-c", MASK], log, held=[signal.SIGTERM])
    try:
        assert child.wait(60)
        assert log.read_text().strip() == f"[{signal.SIGTERM!r}]"
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    finally:
        child.end(1)
