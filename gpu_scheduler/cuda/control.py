"""control.h for Python: its structures and constants, in the same cffi as the page's."""

from __future__ import annotations

from pathlib import Path

from shared_page.reading import declarations, ffi

SOURCES = Path(__file__).parent
_TEXT = declarations(SOURCES / "control.h")
ffi.cdef(_TEXT)


def _constants(enumeration: str) -> dict[str, int]:
    return dict(ffi.typeof(f"enum {enumeration}").relements)


LIMITS = _constants("executor_limits")
LANES_MAX = LIMITS["EXECUTOR_LANES"]
INSTANCES_MAX = LIMITS["INSTANCES_MAX"]
RESULT_AS_REQUEST = LIMITS["RESULT_AS_REQUEST"]
ENDINGS = _constants("executor_ending")
CONTROL_BYTES: int = ffi.sizeof("struct executor_control")
FLAGS_BYTES: int = ffi.sizeof("struct graph_flags")
