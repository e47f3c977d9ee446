# SPDX-License-Identifier: MIT
"""`make soak MINUTES=30`: python -m tests.soak --minutes 30

In the project's VM where this machine cannot run the transport itself.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.run import ROOT, can_run_bpf
from tests.soak.soak import soak

BOOT_S = 600  # for the VM, the start and the end


def main() -> int:
    """Returns 0 when the accounts balance and nothing has grown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60
    if not can_run_bpf():
        limit = str(round(seconds + BOOT_S))
        vm = [sys.executable, "-m", "vm", "run", "--cpus", "2", "--timeout", limit, "--"]
        command = [*vm, "python3", "-m", "tests.soak", *sys.argv[1:]]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    outcome = soak(seconds, arguments.seed, lambda line: print(line, flush=True))
    print(f"{outcome.sent} requests of the generator, {outcome.busy} of them refused with BUSY")
    print(f"other clients: {outcome.lives}")
    for problem in outcome.problems:
        print(f"error: {problem}")
    print("accounts balance, nothing has grown" if not outcome.problems else "FAILED")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
