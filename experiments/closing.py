"""What is given back at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Closed by the end of the block, however it is left."""

    @abstractmethod
    def close(self) -> None:
        """Gives everything back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
