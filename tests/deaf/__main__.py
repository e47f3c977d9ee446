# SPDX-License-Identifier: MIT
"""`make deaf`: whether a hundred peers that ask and never read delay the others.

In the VM under --icount, where a nanosecond is an instruction, and with results that fall due
instead of an executor (docs/page.md): so the latencies repeat, however busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from experiments.cases import write_due
from loader.options import TRANSPORTS
from shared_page import constants
from shared_page.wire import pack_request
from tests.support.client import Client
from tests.support.service import ROOT, Options, Service

PEERS, STEP = 100, 4
RATE, REQUESTS, CONNECTIONS, SEED = 5000, 4000, 64, 5
ROUNDS = 3
TARGET = 1.10
LIMIT_S = 1500
# How much the kernel keeps of what a peer does not read (tcp(7)); by default megabytes.
SEND_BUFFERS = Path("/proc/sys/net/ipv4/tcp_wmem")
OPTIONS = ("--executor", "due", "--send-timeout-ms", "3600000", "--request-timeout-ms", "10000")
ASKS = pack_request(constants.KIND_GEMM, 1, bytes(256)) * STEP


def main() -> int:
    """Returns 0 when the ratio is within the target for every transport."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--here", action="store_true", help="in the VM already")
    if not parser.parse_args().here:
        vm = [sys.executable, "-m", "vm", "run", "--icount", "--timeout", str(LIMIT_S), "--"]
        command = [*vm, "python3", "-m", "tests.deaf", "--here"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    SEND_BUFFERS.write_text("4096 16384 16384")
    ratios = [compare(transport) for transport in TRANSPORTS]
    return 0 if max(ratios) <= TARGET else 1


def compare(transport: str) -> float:
    """Prints, and returns, P99 of the others beside deaf peers, by P99 without them."""
    service = Service(Options(transport, workloads=("due:service_us=20",), more=OPTIONS))
    alone, beside = [], []
    try:
        p99_us(service)  # programs are read, slots touched
        for _ in range(ROUNDS):
            alone.append(p99_us(service))
            peers = deafen(service)
            held = service.counter("depth.slots")
            beside.append(p99_us(service))
            for peer in peers:
                peer.close()
            service.settle()
    finally:
        service.stop()
    ratio = median(beside) / median(alone)
    print(
        f"{transport}: P99 {median(alone):.0f} us alone, {median(beside):.0f} us beside {PEERS} "
        f"peers that never read and hold {held} slots: ratio {ratio:.3f}",
        flush=True,
    )
    return ratio


def deafen(service: Service) -> list[Client]:
    """Peers that ask until the service can send none of them a reply, and more once it cannot."""
    peers = [service.connect(receive_buffer=4096) for _ in range(PEERS)]
    stuck = 0
    while stuck < 3:
        answered = service.counter("egress.replies") + PEERS * STEP
        for peer in peers:
            peer.send(ASKS)
        stuck += not service.reaches("egress.replies", answered, 0.2)
    assert service.counter("depth.slots") >= PEERS, "there are peers that got all replies"
    return peers


def p99_us(service: Service) -> float:
    """Of the others, all of whose requests are answered rightly: none gets BUSY."""
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases"
        write_due(cases, 16, SEED)
        host, port = service.address
        command = [
            str(ROOT / "build/bin/load"), "--host", host, "--port", str(port),
            "--cases", str(cases), "--connections", str(CONNECTIONS), "--rate", str(RATE),
            "--arrivals", "poisson", "--seed", str(SEED), "--requests", str(REQUESTS),
        ]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(run.stdout)
    assert report["verified"] == REQUESTS, report["failures"]
    return float(report["latency_us"]["p99"])


if __name__ == "__main__":
    sys.exit(main())
