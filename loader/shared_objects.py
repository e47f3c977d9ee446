"""Shared objects of other projects, called through cffi."""

from __future__ import annotations

from typing import Any

import cffi

from loader.errors import LoaderError


def open_library(ffi: cffi.FFI, name: str, do: str) -> Any:
    """A library with the declarations of ffi. Raises LoaderError, with remedy `do`, without it."""
    try:
        return ffi.dlopen(name)
    except OSError as error:
        raise LoaderError(f"open {name}", str(error), do) from error
