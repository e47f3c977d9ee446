"""What a connection costs in memory of ours: its entry on the page, and what the transport keeps.

The kernel's part is not ours and not counted: the socket, epoll's item or the ring's fixed file,
the sockmap's psock. It is much more, and about the same for both.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from experiments import programs
from experiments.plan import Condition
from experiments.service import Service

FEW, MANY = 1024, 4096  # --max-connections
LOOP = "loop.bpf.o"
SHARED = "shared_page"
_OBJECT = 1  # STT_OBJECT


def connection_bytes(folder: Path) -> dict[str, dict[str, float]]:
    """Bytes for each connection, by transport: on the page, private, and both. Raises
    ExperimentError."""
    page = page_bytes()
    private = {"epoll": epoll_bytes(folder), "bpf": loop_bytes()}
    return {
        transport: {"page": page, "private": own, "sum": page + own}
        for transport, own in private.items()
    }


def page_bytes() -> float:
    """The entry, and a place in the rings of free entries and of notices."""
    program = "from shared_page.reading import ffi; print(ffi.sizeof('struct connection_entry'))"
    entry = programs.output_of([sys.executable, "-c", program], "read the page's layout")
    return int(entry) + 8 + 4


def epoll_bytes(folder: Path) -> float:
    """What the server has more of its own when it may serve more; its tables are filled at
    the start. Raises ExperimentError."""
    sizes = []
    for connections in (FEW, MANY):
        condition = Condition(workload="empty", connections=connections)
        with Service("epoll", condition, folder / "service.log") as service:
            server = int(service.state()["processes"]["server"]["pid"])
            sizes.append(resident_bytes(server, "RssAnon"))
    return (sizes[1] - sizes[0]) / (MANY - FEW)


def loop_bytes() -> float:
    """The tables in the loop's object; all have a place for each of the `MANY` connections."""
    file = programs.native_program("server-epoll").parents[1] / "bpf" / LOOP
    tables = {name: size for name, size in variables(file.read_bytes()) if name != SHARED}
    return sum(tables.values()) / MANY


def resident_bytes(pid: int, kind: str = "VmRSS") -> int:
    """Memory of a process that is in RAM now, as its status file says."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{kind}:"))
    return int(line.split()[1]) * 1024


def variables(elf: bytes) -> Iterator[tuple[str, int]]:
    """Name and size of each variable that a 64-bit object file defines."""
    (sections_at,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", elf, sections_at + i * size) for i in range(count)
    ]
    (symbols,) = (section for section in sections if section[1] == 2)  # SHT_SYMTAB
    names_at = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], symbols[9]):
        name, info, _, section, _, length = struct.unpack_from("<IBBHQQ", elf, at)
        if info & 15 == _OBJECT and section:
            begin = names_at + name
            yield elf[begin : elf.index(0, begin)].decode(), length
