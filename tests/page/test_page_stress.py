# SPDX-License-Identifier: MIT
"""Ten million requests through a page that two processes share, none lost, doubled or torn.

PAGE_STRESS_REQUESTS sets another number; the ten million take ten seconds of two idle cores.
"""

import json
import os
import subprocess

import pytest

from tests.page.programs import built

REQUESTS = int(os.environ.get("PAGE_STRESS_REQUESTS", "10000000"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_million_requests() -> None:
    done = subprocess.run(
        [built("page-stress"), str(REQUESTS)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    print(figures)
    assert figures["requests"] >= REQUESTS
    # It has met what it is to be safe against: full queues, cancels, connections lost in between.
    assert all(figures[name] for name in ("busy", "cancelled", "discarded", "stale", "tokens"))


@pytest.mark.timeout(300)
def test_no_data_race() -> None:
    """Both sides in one process, under ThreadSanitizer, which knows release and acquire."""
    run = [str(built("page-stress-tsan")), "100000", "3", "thread"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer cannot map its shadow; lower vm.mmap_rnd_bits to 28")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["requests"] >= 100000
