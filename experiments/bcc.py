"""BCC, where it is: programs compiled against the running kernel's headers."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from experiments.errors import ExperimentError

DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"


def compiled(text: str, what: str) -> Any:
    """BCC's object of a program. Raises ExperimentError, could not `what`, where BCC does not
    work."""
    try:
        return _module().BPF(text=text.encode())
    except ModuleNotFoundError as error:
        raise ExperimentError(what, str(error), "apt-get install python3-bpfcc") from None
    except Exception as error:  # BCC raises Exception itself
        do = "install the headers of the running kernel, and python3-bpfcc of 0.31 or later"
        raise ExperimentError(what, f"{error}", do) from None


def _module() -> Any:
    """No package index has it, only Debian, whose packages a virtual environment does not see.
    Raises ModuleNotFoundError."""
    try:
        return importlib.import_module("bcc")
    except ModuleNotFoundError:
        sys.path.append(DEBIAN_PACKAGES)
        return importlib.import_module("bcc")
