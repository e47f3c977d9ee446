# SPDX-License-Identifier: MIT
"""Who can reach what: rights that are gone once the service serves, files of others, slots of
others. docs/security.md says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from loader.capabilities import KEPT, NUMBERS, effective
from shared_page import constants
from tests.support.frames import echo, empty, ok, pattern
from tests.support.service import ROOT, Service

NOBODY = 65534
BURST = constants.PIPELINE_DEPTH  # more at once may be TOO_MANY
SECRET = b"\xa5SECRET\x5a" * 512  # REQUEST_MAX bytes

# Tries to open each path, and the page, as whoever runs it; prints what it could.
PROBE = """
import json, os, sys
from loader import syscalls
opened = []
for path in sys.argv[1:]:
    for way in (lambda: os.open(path, os.O_RDONLY), lambda: syscalls.bpf_obj_get(path)):
        try:
            os.close(way())
            opened.append(path)
        except OSError:
            pass
print(json.dumps(opened))
"""


def test_rights_are_dropped(service: Service) -> None:
    """The loop's thread and the executor keep no capability, the supervisor what its end needs."""
    supervisor, executor = (
        service.state["supervisor"]["pid"],
        service.state["processes"]["executor"]["pid"],
    )
    assert effective(supervisor) == {NUMBERS[name] for name in KEPT}
    assert effective(executor) == set()
    loop = f"{supervisor}/task/{service.state['loop_tid']}"
    assert effective(loop) == set()


def openable(paths: list[str], **user: object) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *paths], cwd=ROOT, capture_output=True, text=True,
        check=True, **user,
    )  # type: ignore[call-overload]  # fmt: skip
    found = json.loads(run.stdout)
    assert isinstance(found, list)
    return found


def test_others_cannot_open_the_page(service: Service) -> None:
    """Neither the page nor the maps, nor the memory of the processes that map them."""
    pins = Path(service.state["page"]).parent
    executor = service.state["processes"]["executor"]["pid"]
    paths = [str(path) for path in pins.iterdir()]
    paths += [f"/proc/{pid}/mem" for pid in (service.state["supervisor"]["pid"], executor)]
    assert service.state["page"] in openable(paths), "root cannot either, so this tests nothing"
    as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    assert openable(paths, **as_nobody) == []
    assert os.stat(pins / "page").st_mode & 0o077 == 0


def test_no_byte_of_another_client(service: Service) -> None:
    """Every slot held another's request and reply; what is sent after that is only one's own."""
    victims = [service.connect() for _ in range(8)]
    for _ in range(5):
        for victim in victims:
            victim.send(*(echo(at, SECRET) for at in range(BURST)))
        for victim in victims:
            victim.expect(*(ok(at, SECRET) for at in range(BURST)))
    spy = service.connect()
    for turn in range(20):
        sizes = [(turn * 37 + at * 11) % 60 for at in range(BURST)]
        spy.send(*(echo(at, pattern(size)) for at, size in enumerate(sizes)))
        spy.expect(*(ok(at, pattern(size)) for at, size in enumerate(sizes)))
        spy.send(empty(1, pattern(9)))
        spy.expect(ok(1))
