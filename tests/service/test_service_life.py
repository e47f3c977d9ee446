"""A service from its first line to its last: serving, draining, leaving nothing."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loader import cgroups
from loader.page_reader import open_page
from loader.processes import Identity
from shared_page import constants
from shared_page.wire import pack_request
from tests.service.service import Service, receive, traces

Start = Callable[..., Service]
SLOW = "echo:delay_us=400000"


def test_serves_and_leaves_nothing(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    reply = service.ask(b"payload")
    assert (reply.status, reply.payload) == (constants.STATUS_OK, b"payload")
    children = [Identity(**one) for one in service.state["processes"].values()]
    assert traces(service.instance)
    assert service.end() == 0, service.output()
    assert not traces(service.instance)
    assert not any(child.runs() for child in children)


def test_serves_on_an_ipv6_address(start: Start, transport: str, root: None) -> None:
    service = start("--bind", "::1", transport=transport).require_ready()
    assert "[::1]:" in service.ready_line
    assert service.ask().payload == b"hello"


def test_prints_one_line_when_it_serves(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    pid, port = service.process.pid, service.state["port"]
    line = f"serving on 127.0.0.1:{port}, transport {transport}, executor cpu, pid {pid}\n"
    assert service.ready_line == line
    assert service.output() == line


def test_unprivileged_without_accounts(start: Start, nobody: None) -> None:
    service = start(nobody=True).require_ready()
    assert service.ask().payload == b"hello"
    assert service.state["cgroups"] == {"service": None, "executor": None}
    assert "no CPU accounts: could not make the cgroup" in service.output()
    assert Path(f"/proc/{service.process.pid}").stat().st_uid != 0
    assert service.end() == 0, service.output()
    assert service.home is not None
    assert list(service.home.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_drains(start: Start, transport: str, root: None, number: signal.Signals) -> None:
    service = start("--workload", SLOW, transport=transport).require_ready()
    with service.connect() as client:
        client.sendall(pack_request(constants.KIND_ECHO, 7, b"late"))
        wait_admitted(service, 1)
        service.process.send_signal(number)
        reply = receive(client)
        assert (reply.request_id, reply.payload) == (7, b"late")
        assert client.recv(1) == b"", "the connection goes on after the drain"
    assert service.process.wait(30) == 0, service.output()
    assert not traces(service.instance)


def test_ctrl_c_reaches_only_the_supervisor(start: Start, transport: str, root: None) -> None:
    """A terminal signals the whole process group; the executor must outlive the drain."""
    service = start("--workload", SLOW, transport=transport).require_ready()
    with service.connect() as client:
        client.sendall(pack_request(constants.KIND_ECHO, 1, b"late"))
        wait_admitted(service, 1)
        os.killpg(service.process.pid, signal.SIGINT)
        assert receive(client).payload == b"late"
    assert service.process.wait(30) == 0, service.output()


def test_drain_has_a_deadline(start: Start, transport: str, root: None) -> None:
    slow = "echo:delay_us=10000000"
    service = start("--workload", slow, "--drain-ms", "300", transport=transport).require_ready()
    with service.connect() as client:
        client.sendall(pack_request(constants.KIND_ECHO, 1))
        wait_admitted(service, 1)
        began = time.monotonic()
        assert service.end() == 1
        assert time.monotonic() - began < 15
    assert_three_parts(service.output(), "answer what was admitted|let the executor finish")
    assert not traces(service.instance)


def test_new_connections_are_refused_while_draining(start: Start, root: None) -> None:
    service = start("--workload", "echo:delay_us=1000000").require_ready()
    with service.connect() as client:
        client.sendall(pack_request(constants.KIND_ECHO, 1, b"x"))
        wait_admitted(service, 1)
        service.process.send_signal(signal.SIGTERM)
        wait_refused(service)
        assert receive(client).payload == b"x"


def test_two_instances_side_by_side(start: Start, root: None) -> None:
    one, other = start().require_ready(), start().require_ready()
    assert one.end() == 0
    assert other.ask().payload == b"hello"


def test_cgroups_hold_who_is_accounted(start: Start, transport: str, cgroup2: None) -> None:
    service = start(transport=transport).require_ready()
    groups = {name: Path(path) for name, path in service.state["cgroups"].items()}
    processes = {role: one["pid"] for role, one in service.state["processes"].items()}
    assert cgroups.members(groups["executor"]) == [processes["executor"]]
    serving = {service.process.pid, processes.get("server", service.process.pid)}
    assert set(cgroups.members(groups["service"])) == serving
    if transport == "bpf":
        tasks = {int(path.name) for path in Path(f"/proc/{service.process.pid}/task").iterdir()}
        assert service.state["loop_tid"] in tasks - {service.process.pid}


def test_supervisor_is_small_and_asleep(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    before = voluntary_switches(service.process.pid)
    for number in range(100):
        assert service.ask(request_id=number).request_id == number
    # One more is its first sleep, which may come after the line that says it is ready.
    assert voluntary_switches(service.process.pid) <= before + 1, "it took part in a request"
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    resident_kib = int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
    assert resident_kib < 80 * 1024


def test_supervisor_loads_no_numpy(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    assert "numpy" not in Path(f"/proc/{service.process.pid}/maps").read_text()


def test_capabilities_are_dropped(start: Start, transport: str, root: None) -> None:
    service = start(transport=transport).require_ready()
    assert capability_bits(service.process.pid, "CapEff") == {1}, "only CAP_DAC_OVERRIDE"
    assert capability_bits(service.process.pid, "CapBnd") == set()
    for one in service.state["processes"].values():
        for line in ("CapEff", "CapPrm", "CapBnd"):
            assert capability_bits(one["pid"], line) == set()


def test_planted_leaks_are_seen(root: None, tmp_path: Path) -> None:
    """The check itself can fail."""
    (tmp_path / "bpf-gpu-server" / "planted").mkdir(parents=True)
    assert traces("planted", tmp_path) == [str(tmp_path / "bpf-gpu-server" / "planted")]
    mount = cgroups.mount_point("cgroup2")
    if mount is not None:
        group = mount / "bpf-gpu-server.planted"
        group.mkdir()
        try:
            assert traces("planted") == [str(group)]
        finally:
            group.rmdir()


def wait_admitted(service: Service, count: int) -> None:
    """Until that many requests stand on the page."""
    deadline = time.monotonic() + 30
    with open_page(service.state) as page:
        while page.counters()["ingress"]["submit_tail"] < count:
            assert time.monotonic() < deadline, "the request was not admitted"
            time.sleep(0.002)


def wait_refused(service: Service) -> None:
    """Until nobody listens on the port."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            service.connect().close()
        except ConnectionError:
            return
        time.sleep(0.01)
    raise TimeoutError("connections were accepted all the time")


def assert_three_parts(text: str, tried: str) -> None:
    assert re.search(rf"error: could not ({tried}).*\n  said: .*\n(.*\n)*  do: ", text), text


def voluntary_switches(tid: int) -> int:
    """Of the main thread alone."""
    status = Path(f"/proc/{tid}/task/{tid}/status").read_text()
    return int(re.search(r"\bvoluntary_ctxt_switches:\s+(\d+)", status)[1])  # type: ignore[index]


def capability_bits(pid: int, line: str) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(re.search(rf"{line}:\s+([0-9a-f]+)", status)[1], 16)  # type: ignore[index]
    return {bit for bit in range(64) if mask >> bit & 1}
