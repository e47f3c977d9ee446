# SPDX-License-Identifier: MIT
"""What of the kernel path works on which kernel: the table of docs/kernels.md.

python -m tests.kernel.matrix 6.12 7.1 7.3     boots each in the VM
python -m tests.kernel.matrix --here           this machine's kernel, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from loader import features, libbpf
from loader.errors import LoaderError
from loader.paths import bpf_object
from tests.run import ROOT
from tests.service.service import Service

SAID_MAX = 160


def ingress_loads() -> str:
    """ "yes", or why the sock_ops and sk_skb programs are refused."""
    with tempfile.TemporaryDirectory() as logs:
        try:
            programs = libbpf.BpfObject(bpf_object("ingress.bpf.o"))
            try:
                programs.set_constants(service_port=7373, wake_ns=60_000)
                programs.load(Path(logs))
                programs.run("prepare")
                programs.attach_verdict("admit", "sockets")
            finally:
                programs.close()
        except LoaderError as error:
            return f"{error.tried}: {error.said}"
    return "yes"


def missing() -> list[str]:
    """What `doctor` says that the transport bpf lacks."""
    found = []
    for probe in features.PROBES:
        if "bpf" in probe.needed_by and not probe.slow:
            answer = probe.ask()
            if features.Finding(probe, answer, needed=True).stands_in_the_way:
                found.append(f"{probe.name}: {answer.why}")
    return found


def serves() -> str:
    """ "yes", or what `serve --transport bpf` says."""
    service = Service(transport="bpf", instance="matrix")
    try:
        if not service.ready_line:
            return " ".join(line.strip() for line in service.output().splitlines()[:2])
        assert service.ask().payload == b"hello"
        assert service.end() == 0
    except (OSError, EOFError, AssertionError) as error:
        return f"{error!r}: {service.output()}"
    finally:
        service.close()
    return "yes"


def here() -> dict[str, str]:
    """The row of the running kernel."""
    return {
        "kernel": os.uname().release,
        "ingress": ingress_loads(),
        "doctor": "; ".join(missing()) or "nothing is missing",
        "serves": serves(),
    }


def boot(kernel: str) -> dict[str, str]:
    """The row of a kernel in the VM."""
    command = [sys.executable, "-m", "vm", "run", "--kernel", kernel, "--timeout", "300", "--"]
    command += ["python3", "-m", "tests.kernel.matrix", "--here"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for line in run.stdout.splitlines():
        if line.startswith("{"):
            row: dict[str, str] = json.loads(line)
            return row
    return {"kernel": kernel, "ingress": (run.stdout + run.stderr)[-300:]}


def main() -> None:
    """Prints rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--here", action="store_true")
    parser.add_argument("kernels", nargs="*")
    arguments = parser.parse_args()
    if arguments.here:
        return print(json.dumps(here()))
    for kernel in arguments.kernels:
        cells = (cell[:SAID_MAX].replace("\n", " ") for cell in boot(kernel).values())
        print("| " + " | ".join(cells) + " |", flush=True)
    return None


if __name__ == "__main__":
    main()
