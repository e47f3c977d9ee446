"""Networks in namespaces: what they reach, what they refuse, and that nothing of them stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from experiments import topology
from experiments.errors import ExperimentError
from experiments.topology import MAKERS, TCP, Netem, Place, build, inside
from tests.experiments import ssh_stub

pytestmark = pytest.mark.beside

NAMESPACES = Path("/run/netns")
CONGESTION = TCP / "tcp_congestion_control"
HOLD = """
import sys, time
from experiments import topology
with topology.build("bridge"):
    print("made", flush=True)
    time.sleep(60)
"""


def ours(pid: int) -> list[str]:
    return sorted(name.name for name in NAMESPACES.glob(f"bgs-{pid}-*"))


def answer(place: Place) -> bytes:
    """What a client of the place gets from a server of the place."""
    with inside(place.server):
        listener = socket.create_server((place.address, 0))
    with listener, inside(place.client), socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"x" * 5000)
        return client.recv(5000, socket.MSG_WAITALL)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_client_reaches_the_server(kind: str) -> None:
    with build(kind, congestion="reno") as place:
        assert answer(place) == b"x" * 5000
        for prefix in (place.server_prefix, place.client_prefix):
            seen = subprocess.check_output([*prefix, "cat", CONGESTION], text=True)
            assert seen.strip() == "reno"
            mounted = subprocess.check_output([*prefix, "ls", "/sys/fs"], text=True)
            assert mounted.split() == sorted(os.listdir("/sys/fs"))
        assert ours(os.getpid())
    assert ours(os.getpid()) == []


def test_ctrl_c_while_a_network_is_made_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it may come in a destructor, and be lost there."""
    made = []

    def make(base: str) -> Place:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        made.append(MAKERS["bridge"](base))
        return made[0]

    monkeypatch.setitem(MAKERS, "veth", make)
    with pytest.raises(KeyboardInterrupt), build("veth"):
        pytest.fail("the block was entered")
    assert made
    assert ours(os.getpid()) == []


def test_networks_are_apart() -> None:
    with build("veth") as one, build("veth") as other:
        assert {one.server, one.client}.isdisjoint({other.server, other.client})
        assert answer(one) == answer(other)


def test_a_plain_loopback_is_here() -> None:
    with build("loopback") as place:
        assert place == Place((), (), "127.0.0.1")
        assert ours(os.getpid()) == []


def test_nothing_stays_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="in the block"), build("vxlan"):
        raise RuntimeError("in the block")
    with pytest.raises(ExperimentError) as caught, build("veth", congestion="of-no-kernel"):
        pass
    assert "this kernel has reno" in caught.value.said
    assert ours(os.getpid()) == []


@pytest.mark.parametrize(("sign", "stays"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
def test_nothing_stays_after_a_signal(sign: signal.Signals, stays: bool) -> None:
    """SIGKILL leaves what the next one removes; what a living process has is left alone."""
    with build("loopback", congestion="reno") as living:
        process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE)
        with process:
            assert process.stdout
            assert process.stdout.readline() == b"made\n"
            assert len(ours(process.pid)) == 3
            topology.sweep()
            assert len(ours(process.pid)) == 3
            process.send_signal(sign)
        assert process.returncode == (-sign if stays else 128 + sign)
        assert bool(ours(process.pid)) is stays
        topology.sweep()
        assert ours(process.pid) == []
        assert (NAMESPACES / living.server).exists()


def test_a_machine_wide_setting_is_put_back() -> None:
    setting = TCP / "tcp_allowed_congestion_control"
    before = setting.read_text()
    have = (TCP / "tcp_available_congestion_control").read_text().split()
    for algorithm in have:
        with build("loopback", congestion=algorithm) as place, inside(place.server):
            assert CONGESTION.read_text().strip() == algorithm
    assert setting.read_text() == before


@pytest.mark.parametrize(
    ("kind", "netem", "said"),
    [("ring", None, "there is none"), ("veth", Netem(on="left"), "not on 'left'")],
)
def test_a_wrong_word_is_refused(kind: str, netem: Netem | None, said: str) -> None:
    with pytest.raises(ExperimentError) as caught, build(kind, netem=netem):
        pass
    assert said in caught.value.said


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh_stub.install(tmp_path, monkeypatch, "192.0.2.7")


def test_a_client_on_another_machine(ssh: None) -> None:
    with build("ssh:there") as place:
        assert (place.server_prefix, place.address) == ((), "192.0.2.7")
        assert subprocess.check_output([*place.client_prefix, "echo", "7"]) == b"7\n"


@pytest.mark.parametrize(
    ("name", "netem", "said"),
    [("ssh:gone", None, "no route to gone"), ("ssh:there", Netem(delay_us=1), "both machines")],
)
def test_what_another_machine_cannot(ssh: None, name: str, netem: Netem | None, said: str) -> None:
    with pytest.raises(ExperimentError) as caught, build(name, netem=netem):
        pass
    assert said in caught.value.said
