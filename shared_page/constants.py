# SPDX-License-Identifier: MIT
"""The constants of protocol.h and layout.h as attributes: ``constants.KIND_GEMM``."""

from .reading import CONSTANTS, ENUMERATIONS


def __getattr__(name: str) -> int:
    try:
        return CONSTANTS[name]
    except KeyError:
        raise AttributeError(f"neither protocol.h nor layout.h has a constant {name}") from None


def __dir__() -> list[str]:
    return sorted(CONSTANTS)


def name_of(enumeration: str, value: int) -> str:
    """The constant's name, ``name_of("reply_status", 1) == "STATUS_BUSY"``; else the number."""
    for name, number in ENUMERATIONS[enumeration].items():
        if number == value:
            return name
    return str(value)
