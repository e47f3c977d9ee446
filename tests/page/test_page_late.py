# SPDX-License-Identifier: MIT
"""A frame that ends while egress declares it late is answered once, whoever is first."""

import json
import subprocess

from tests.page.programs import built

ROUNDS, SECONDS = 100_000, 10


def test_late_or_admitted() -> None:
    done = subprocess.run(
        [built("page-late"), str(ROUNDS), str(SECONDS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    print(figures)
    assert all(number >= 100 for number in figures.values())  # each has won
