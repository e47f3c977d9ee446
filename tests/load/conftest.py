# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

from tests.load.generator import echo_cases


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Sixteen requests of 256 random bytes, to be echoed."""
    return echo_cases(tmp_path / "cases")
