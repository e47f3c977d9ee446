# SPDX-License-Identifier: MIT
"""A frame that ends while egress declares it late is answered once, whoever is first."""

import json
import subprocess

from tests.page.programs import built

ROUNDS = 100_000


def test_late_or_admitted() -> None:
    done = subprocess.run(
        [built("page-late"), str(ROUNDS)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    print(figures)
    assert figures["late"] + figures["in_time"] == ROUNDS
    assert all(figures.values())  # each has won
