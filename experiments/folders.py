"""Folders for raw data: ones that a VM sees, and that hold nothing of anybody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from experiments.errors import ExperimentError


def check_seen(folder: Path, shared: Path) -> None:
    """Raises ExperimentError for a folder that a VM which sees `shared` would not have."""
    if not folder.absolute().is_relative_to(shared):
        raise ExperimentError(
            f"use the folder {folder}", f"the VM sees only {shared}",
            "choose a folder below that with --out",
        )  # fmt: skip


def make_empty(folder: Path, mark: str) -> None:
    """Makes it, or removes what is in it if `mark`, a file of every experiment there, says that it
    is ours. Raises ExperimentError.
    """
    if folder.exists():
        if any(folder.iterdir()) and not (folder / mark).exists():
            raise ExperimentError(
                f"use the folder {folder}", f"it has other files in it, and no {mark}",
                "choose another folder with --out",
            )  # fmt: skip
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
