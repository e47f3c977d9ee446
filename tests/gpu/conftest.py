from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpu_scheduler.cuda.device import NO_GPU, gpu_present, require_gpu
from shared_page import SharedPage
from tests.executor.driver import Transport


@pytest.fixture
def gpu() -> None:
    """Skips without one."""
    if not gpu_present():
        pytest.skip(NO_GPU)
    require_gpu()


@pytest.fixture
def page() -> Iterator[SharedPage]:
    with SharedPage.create_memfd(64) as page:
        yield page


@pytest.fixture
def transport(page: SharedPage) -> Transport:
    return Transport(page)
