"""Which graphs are refused, by descriptions of graphs: no GPU is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from gpu_scheduler.cuda import GpuError
from gpu_scheduler.cuda.nodes import require_launchable

# A gemm, an fft with its scaling, and a decode step of torch, as describe() records them.
LAUNCHABLE = [
    {"Kernel": 3},
    {"Kernel": 3, "Memset": 1},
    {"Graph": 1, "Kernel": 1372, "Memcpy": 2},
]
REFUSED = [
    ({"Kernel": 2, "Host": 1}, "1 of its nodes are of kind Host", "host function"),
    (
        {"MemAlloc": 2, "Kernel": 1, "MemFree": 2},
        "2 of its nodes are of kind MemAlloc",
        "workspace",
    ),
    ({"Kernel": 1, "EventRecord": 1}, "kind EventRecord", "no events"),
    ({"Graph": 1, "Conditional": 1}, "kind Conditional", "into data"),
    ({"Kernel": 1, "ExtSemaphoreSignal": 1}, "kind ExtSemaphoreSignal", "without it"),
]


@pytest.mark.parametrize("kinds", LAUNCHABLE)
def test_graphs_that_the_gpu_can_launch(kinds: dict[str, int]) -> None:
    require_launchable(Counter(kinds), "test")


@pytest.mark.parametrize(("kinds", "said", "do"), REFUSED)
def test_graphs_that_it_cannot(kinds: dict[str, int], said: str, do: str) -> None:
    with pytest.raises(GpuError) as error:
        require_launchable(Counter(kinds), "mine")
    assert error.value.tried == "checking the graph of mine"
    assert said in error.value.said
    assert do in error.value.do


def test_an_empty_graph() -> None:
    with pytest.raises(GpuError, match="it is empty"):
        require_launchable(Counter(), "mine")
