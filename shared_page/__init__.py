# SPDX-License-Identifier: MIT
"""The page that transport and executor share, and the wire protocol, read from their headers.

``layout.h`` and ``protocol.h`` are the only definitions; ``docs/page.md`` and ``docs/protocol.md``
explain them.
"""

from . import constants
from .page import PAGE_SIZE_BYTES, PageError, SharedPage

__all__ = ["PAGE_SIZE_BYTES", "PageError", "SharedPage", "constants"]
