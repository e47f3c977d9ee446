"""Looks names up in the kernel's type information, without libbpf, so that `doctor` always can."""

from __future__ import annotations

import struct
from pathlib import Path

from loader.errors import LoaderError

VMLINUX = Path("/sys/kernel/btf/vmlinux")
KIND_STRUCT, KIND_FWD, KIND_FUNC = 4, 7, 12


class KernelTypes:
    """The names of one BTF blob. Raises LoaderError when it cannot be read or is not BTF."""

    def __init__(self, path: Path = VMLINUX) -> None:
        tried = f"read the kernel's types in {path}"
        try:
            data = path.read_bytes()
        except OSError as error:
            remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y"
            raise LoaderError.from_os_error(tried, error, remedy) from None
        if len(data) < 24 or struct.unpack_from("=H", data)[0] != 0xEB9F:
            raise LoaderError(tried, "it does not begin with BTF's magic", "check the file")
        header, types, types_size, names, names_size = struct.unpack_from("=5I", data, 4)
        self._types = data[header + types : header + types + types_size]
        self._names = data[header + names : header + names + names_size]

    def has(self, name: str, *kinds: int) -> bool:
        """Whether a type or function of that name and one of these kinds exists.

        A record begins with its name's offset and a word with its kind. It is looked for as
        bytes: a walk from record to record takes seconds on an emulated CPU. Another word with the
        same value is the name of a member, say, and then no kind stands in the next word.
        """
        offset = self._names.find(b"\0" + name.encode() + b"\0") + 1
        if not offset:
            return False
        wanted = struct.pack("=I", offset)
        at = self._types.find(wanted)
        while at >= 0:
            if at % 4 == 0 and self._types[at + 7] & 0x7F in kinds:
                return True
            at = self._types.find(wanted, at + 1)
        return False
