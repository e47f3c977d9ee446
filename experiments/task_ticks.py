"""How often the tick found a thread in user mode and in the kernel: the taskstats interface.

/proc and cgroups show times that the kernel has adjusted: the exact run time, split by the ratio of
all ticks since the thread began (cputime_adjust() in kernel/sched/cputime.c). There a service that
once spent a second importing Python has user time for ever after, though it never again leaves the
kernel. taskstats has the ticks themselves (bacct_add_tsk() in kernel/tsacct.c), so their
differences say where the thread was during a measurement, give or take the chance of sampling.
"""

from __future__ import annotations

import os
import socket
import struct

from experiments.closing import Closing
from experiments.errors import ExperimentError

_GENERIC = 16  # NETLINK_GENERIC
_CONTROL = 16  # GENL_ID_CTRL
_REQUEST, _ERROR = 1, 2  # NLM_F_REQUEST, NLMSG_ERROR
_GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2  # CTRL_CMD_GETFAMILY and its attributes
_GET, _FOR_PID = 1, 1  # TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_PID
_ANSWER, _STATS = 4, 3  # TASKSTATS_TYPE_AGGR_PID, TASKSTATS_TYPE_STATS
_NESTED = 0x8000
_UTIME_AT = 152  # ac_utime in struct taskstats, ac_stime after it: an ABI that only grows
_REMEDY = "run as root (sudo), outside a container, on a kernel with CONFIG_TASKSTATS"


class TaskTicks(Closing):
    """A connection to the kernel's taskstats. Raises ExperimentError when there is none."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC)
        try:
            self._socket.settimeout(5.0)
            self._family = self._find_family()
        except BaseException:
            self._socket.close()
            raise

    def read(self, tid: int) -> tuple[float, float]:
        """µs worth of ticks in user mode and in the kernel. Raises OSError: ESRCH when it ended."""
        attribute = struct.pack("=HHI", 8, _FOR_PID, tid)
        answer = attributes(self._ask(self._family, _GET, attribute))[_ANSWER]
        user, system = struct.unpack_from("=QQ", attributes(answer)[_STATS], _UTIME_AT)
        return float(user), float(system)

    def _find_family(self) -> int:
        name = b"TASKSTATS\0".ljust(12, b"\0")
        attribute = struct.pack("=HH", 4 + len("TASKSTATS\0"), _FAMILY_NAME) + name
        try:
            answer = self._ask(_CONTROL, _GET_FAMILY, attribute)
        except OSError as error:
            raise ExperimentError(
                "find the kernel's taskstats", f"{os.strerror(error.errno or 0)}", _REMEDY
            ) from None
        return int.from_bytes(attributes(answer)[_FAMILY_ID], "little")

    def _ask(self, family: int, command: int, attribute: bytes) -> bytes:
        """Attributes of the answer. Raises OSError with the kernel's errno."""
        body = struct.pack("=BBH", command, 1, 0) + attribute
        self._socket.send(struct.pack("=IHHII", 16 + len(body), family, _REQUEST, 0, 0) + body)
        answer = self._socket.recv(65536)
        (kind,) = struct.unpack_from("=H", answer, 4)
        if kind == _ERROR:
            (number,) = struct.unpack_from("=i", answer, 16)
            raise OSError(-number, os.strerror(-number))
        return answer[20:]

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def attributes(data: bytes) -> dict[int, bytes]:
    """Netlink attributes by type."""
    found: dict[int, bytes] = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & ~_NESTED] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found
