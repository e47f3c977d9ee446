# SPDX-License-Identifier: MIT
"""The soak's short form: `make soak` is the long one."""

from __future__ import annotations

import mmap
import os

import pytest

from tests.soak.soak import grown, memory_kib, soak, unbalanced

SECONDS = float(os.environ.get("SOAK_SECONDS", "20"))
HUGE_PAGE = 2 << 20
MADV_COLLAPSE = 25  # Linux 6.1, include/uapi/asm-generic/mman-common.h


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 400)
def test_short_soak() -> None:
    outcome = soak(SECONDS, seed=7, say=print)
    assert not outcome.problems
    assert outcome.sent > 0
    assert len(outcome.lives) == 5, outcome.lives


def test_growth_is_seen() -> None:
    level = [{"supervisor_kib": 20_000, "pins": 3, "sockets": at} for at in range(20)]
    assert not grown(level)
    assert grown([{"pins": 3 + at // 10} for at in range(20)])
    assert grown([{"supervisor_kib": 20_000 + 200 * at} for at in range(20)])
    assert grown(level[:3])


def test_memory_is_what_a_process_asked_for() -> None:
    before = memory_kib(os.getpid())
    with mmap.mmap(-1, 4 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        asked = memory_kib(os.getpid())
        assert asked >= before + 4 * HUGE_PAGE // 1024
        for offset in range(0, len(area), HUGE_PAGE):
            area[offset] = 1
        # What khugepaged does to such an area by itself, sooner or later.
        area.madvise(MADV_COLLAPSE)
        assert memory_kib(os.getpid()) == asked


def test_an_account_that_does_not_balance_is_seen() -> None:
    ingress = dict.fromkeys(("free_connection_head", "frames_busy", "frames_bad", "submit_tail"), 0)
    words = ("connections_accepted", "connections_closed", "discarded", "finals", "replies")
    words += ("stale_results", "timeouts")
    egress = dict.fromkeys(words, 0) | {"free_connection_tail": 1100}
    executor = {"submit_head": 0, "completed": 0}
    counters = {"ingress": ingress, "egress": egress, "executor": executor, "depth": {"slots": 0}}
    assert not unbalanced(counters)
    for group, name in (("ingress", "submit_tail"), ("egress", "discarded"), ("depth", "slots")):
        broken = counters | {group: counters[group] | {name: 1}}
        assert unbalanced(broken), name
