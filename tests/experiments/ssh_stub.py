"""Instead of ssh: to the host `there`, which is this one, as a shell runs what it gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STUB = """#!/bin/sh
[ "$1 $2 $3" = "-o BatchMode=yes there" ] || { echo "ssh: no route to $3" >&2; exit 255; }
shift 3
export SSH_CONNECTION="ADDRESS 40000 192.0.2.8 22"
exec sh -c "cd / && $*"
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """`address`: this machine's, as that one sees it."""
    (folder / "ssh").write_text(STUB.replace("ADDRESS", address))
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
