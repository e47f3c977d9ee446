"""The integer hash of mix.hpp, for whole numbers and for numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """SplitMix64's finalizer; 64 bits in and out."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def mix_range(start: int, count: int) -> NDArray[np.uint64]:
    """mix(start), mix(start + 1), ...: shape (count,); sums wrap at 64 bits."""
    import numpy as np

    value = np.arange(count, dtype=np.uint64) + np.uint64(start)
    value += np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return value ^ value >> np.uint64(31)
