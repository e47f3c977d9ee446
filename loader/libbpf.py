"""libbpf through cffi: open an object, set its constants, load, attach.

Only what the service needs. The verifier's log is kept when a load fails.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import cffi

from loader.errors import LoaderError, errno_name
from loader.shared_objects import open_library

ffi = cffi.FFI()
ffi.cdef(
    """
    struct bpf_object; struct bpf_map; struct bpf_program; struct bpf_link; struct btf;
    struct bpf_object_open_opts;
    typedef int (*libbpf_print_fn_t)(int level, const char *format, void *arguments);

    libbpf_print_fn_t libbpf_set_print(libbpf_print_fn_t fn);
    struct bpf_object *bpf_object__open_file(const char *path, const void *opts);
    int bpf_object__load(struct bpf_object *object);
    void bpf_object__close(struct bpf_object *object);
    struct btf *bpf_object__btf(const struct bpf_object *object);

    struct bpf_map *bpf_object__find_map_by_name(const struct bpf_object *object, const char *name);
    int bpf_map__fd(const struct bpf_map *map);
    uint32_t bpf_map__value_size(const struct bpf_map *map);
    int bpf_map__reuse_fd(struct bpf_map *map, int fd);
    void *bpf_map__initial_value(struct bpf_map *map, size_t *size);
    int bpf_map__pin(struct bpf_map *map, const char *path);
    struct bpf_link *bpf_map__attach_struct_ops(const struct bpf_map *map);

    struct bpf_program *bpf_object__find_program_by_name(
        const struct bpf_object *object, const char *name);
    int bpf_program__fd(const struct bpf_program *program);
    struct bpf_link *bpf_program__attach_cgroup(const struct bpf_program *program, int cgroup_fd);
    int bpf_program__set_log_buf(struct bpf_program *program, char *buffer, size_t size);
    struct bpf_program *bpf_object__next_program(
        const struct bpf_object *object, struct bpf_program *previous);
    const char *bpf_program__name(const struct bpf_program *program);
    int bpf_link__destroy(struct bpf_link *link);
    int bpf_prog_attach(int program_fd, int target_fd, int type, unsigned int flags);

    struct bpf_test_run_opts {
        size_t sz; const void *data_in; void *data_out; uint32_t data_size_in, data_size_out;
        const void *ctx_in; void *ctx_out; uint32_t ctx_size_in, ctx_size_out, retval; int repeat;
        uint32_t duration, flags, cpu, batch_size;
    };
    int bpf_prog_test_run_opts(int program_fd, struct bpf_test_run_opts *options);

    struct btf_type { uint32_t name_off; uint32_t info; uint32_t size; };
    struct btf_var_secinfo { uint32_t type; uint32_t offset; uint32_t size; };
    int btf__find_by_name_kind(const struct btf *btf, const char *name, uint32_t kind);
    const struct btf_type *btf__type_by_id(const struct btf *btf, uint32_t id);
    const char *btf__name_by_offset(const struct btf *btf, uint32_t offset);
    int vsnprintf(char *to, size_t size, const char *format, void *arguments);
    """
)

BPF_SK_SKB_VERDICT = 38  # enum bpf_attach_type, include/uapi/linux/bpf.h
BTF_KIND_DATASEC = 15
LOG_BYTES = 4 << 20

_messages: list[str] = []


@ffi.callback("libbpf_print_fn_t")
def _keep_message(level: int, text: Any, arguments: Any) -> int:
    """Keeps libbpf's warnings for the next error instead of printing them."""
    if level == 0:  # LIBBPF_WARN
        buffer = ffi.new("char[4096]")
        _libc.vsnprintf(buffer, 4096, text, arguments)
        _messages.append(ffi.string(buffer).decode(errors="replace").strip())
    return 0


_libc: Any = ffi.dlopen(None)


@functools.cache
def library() -> Any:
    """Returns libbpf, opened at first use. Raises LoaderError when it is not installed."""
    opened = open_library(ffi, "libbpf.so.1", "install it: apt-get install libbpf1")
    opened.libbpf_set_print(_keep_message)
    return opened


def verifier_says(log: str) -> str:
    """The last line of a verifier log that names a cause, not a statistic."""
    lines = [line for line in log.splitlines() if line.strip()]
    useful = [
        line
        for line in lines
        if not re.match(r"(processed \d|verification time|stack depth|insns processed)", line)
    ]
    return useful[-1].strip() if useful else ""


class BpfObject:
    """A compiled object file on its way into the kernel: open, set, load, attach, close."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lib = library()
        self._links: list[Any] = []
        self._logs: dict[str, Any] = {}
        self._object = self._lib.bpf_object__open_file(str(path).encode(), ffi.NULL)
        if not self._object:
            self._fail("open the BPF object", "build it: make build")

    def _fail(
        self,
        tried: str,
        do: str,
        code: int | None = None,
        log: str = "",
        kept: Path | None = None,
    ) -> NoReturn:
        number = ffi.errno if code is None else abs(code)
        said = errno_name(number)
        cause = verifier_says(log)
        if cause:
            said += f"; the verifier: {cause}"
        elif _messages:
            said += f"; {_messages[0]}"  # the rest follows from it
        _messages.clear()
        raise LoaderError(f"{tried} {self.path.name}", said, do, kept)

    def map(self, name: str) -> Any:
        """The map of that name. Raises LoaderError when the object has none."""
        found = self._lib.bpf_object__find_map_by_name(self._object, name.encode())
        if not found:
            self._fail(f"find the map {name} in", "rebuild: make clean build", errno.ENOENT)
        return found

    def map_fd(self, name: str) -> int:
        """The descriptor of a loaded map; it stays the object's."""
        return int(self._lib.bpf_map__fd(self.map(name)))

    def value_bytes(self, name: str) -> int:
        """The size of one value of a map."""
        return int(self._lib.bpf_map__value_size(self.map(name)))

    def initial_value(self, name: str) -> Any:
        """The bytes a map will have at load, writable until then."""
        size = ffi.new("size_t *")
        value = self._lib.bpf_map__initial_value(self.map(name), size)
        if not value:
            self._fail(f"read the initial value of {name} in", "report this", errno.EINVAL)
        return ffi.buffer(value, size[0])

    def set_constants(self, **values: int) -> None:
        """Sets `const volatile` globals; the verifier then takes them for constants."""
        data = self.initial_value(".rodata")
        places = dict(self._section(".rodata"))
        for name, value in values.items():
            offset, size = places[name]
            mask = (1 << 8 * size) - 1
            data[offset : offset + size] = (value & mask).to_bytes(size, "little")

    def _section(self, section: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Name, offset and size of each variable of a data section, from its BTF."""
        btf = self._lib.bpf_object__btf(self._object)
        number = self._lib.btf__find_by_name_kind(btf, section.encode(), BTF_KIND_DATASEC)
        kind = self._lib.btf__type_by_id(btf, number)
        variables = ffi.cast("struct btf_var_secinfo *", kind + 1)
        for i in range(kind.info & 0xFFFF):
            variable = self._lib.btf__type_by_id(btf, variables[i].type)
            name = ffi.string(self._lib.btf__name_by_offset(btf, variable.name_off)).decode()
            yield name, (variables[i].offset, variables[i].size)

    def reuse_map(self, name: str, fd: int) -> None:
        """Makes the object use a map that exists already."""
        code = self._lib.bpf_map__reuse_fd(self.map(name), fd)
        if code:
            self._fail(f"reuse the map {name} in", "rebuild: make clean build", code)

    def load(self, log_folder: Path) -> None:
        """Loads all programs. On refusal the verifier's log is kept in log_folder."""
        self._prepare_logs()
        code = self._lib.bpf_object__load(self._object)
        if not code:
            return
        text = "\n".join(
            ffi.string(buffer).decode(errors="replace") for buffer in self._logs.values()
        )
        kept = log_folder / f"{self.path.stem}.verifier.log"
        kept.write_text("\n".join([*_messages, text]))
        advice = {
            errno.EPERM: "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
        }.get(-code, "see `bpf-gpu-server doctor --transport bpf`")
        self._fail("load", advice, code, text, kept)

    def _prepare_logs(self) -> None:
        program = self._lib.bpf_object__next_program(self._object, ffi.NULL)
        while program:
            name = ffi.string(self._lib.bpf_program__name(program)).decode()
            # Filled by libbpf only when a first load without a log was refused.
            self._logs[name] = ffi.new("char[]", LOG_BYTES)
            self._lib.bpf_program__set_log_buf(program, self._logs[name], LOG_BYTES)
            program = self._lib.bpf_object__next_program(self._object, program)

    def pin_map(self, name: str, path: Path) -> None:
        """Pins a map; who pins removes it."""
        code = self._lib.bpf_map__pin(self.map(name), str(path).encode())
        if code:
            self._fail(f"pin the map {name} at {path} from", "mount bpffs there", code)

    def attach_cgroup(self, program: str, cgroup: Path) -> None:
        """Attaches a program to a cgroup until close()."""
        fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._keep_link(
                self._lib.bpf_program__attach_cgroup(self._program(program), fd),
                f"attach {program} to the cgroup {cgroup} from",
            )
        finally:
            os.close(fd)

    def attach_verdict(self, program: str, sockmap: str) -> None:
        """Makes a program the verdict of the sockets in a sockmap, as long as that lives."""
        code = self._lib.bpf_prog_attach(
            self._lib.bpf_program__fd(self._program(program)),
            self.map_fd(sockmap),
            BPF_SK_SKB_VERDICT,
            0,
        )
        if code:
            self._fail(f"attach {program} to {sockmap} from", "run as root", code)

    def run(self, program: str) -> None:
        """Runs a `syscall` program once."""
        options = ffi.new("struct bpf_test_run_opts *")
        options.sz = ffi.sizeof(options[0])
        fd = self._lib.bpf_program__fd(self._program(program))
        code = self._lib.bpf_prog_test_run_opts(fd, options)
        if code or options.retval:
            self._fail(f"run {program} of", "report this", code or errno.EINVAL)

    def attach_struct_ops(self, name: str) -> None:
        """Attaches a struct_ops map until close()."""
        self._keep_link(self._lib.bpf_map__attach_struct_ops(self.map(name)), f"attach {name} from")

    def _program(self, name: str) -> Any:
        return self._lib.bpf_object__find_program_by_name(self._object, name.encode())

    def _keep_link(self, link: Any, tried: str) -> None:
        if not link:
            self._fail(tried, "see `bpf-gpu-server doctor --transport bpf`")
        self._links.append(link)

    def detach(self) -> None:
        """Detaches everything that was attached through a link."""
        while self._links:
            self._lib.bpf_link__destroy(self._links.pop())

    def close(self) -> None:
        """Detaches and forgets; what is pinned stays."""
        self.detach()
        if self._object:
            self._lib.bpf_object__close(self._object)
            self._object = ffi.NULL
