"""Can this kernel do what the `bpf` transport needs? Each question is tried, not looked up."""

from __future__ import annotations

import errno
import os
import platform
import resource
from collections.abc import Callable

from loader import syscalls
from loader.btf import KIND_FUNC, KIND_FWD, KIND_STRUCT, VMLINUX, KernelTypes
from loader.errors import LoaderError, errno_name
from loader.probes.answer import Answer, no, unknown, yes

NEWER_KERNEL = "run a newer kernel, or the VM: `bpf-gpu-server vm shell`"
PAGE_SIZE_LIMIT = 16 << 20  # bytes; the shared page is smaller
REFUSED = (errno.EPERM, errno.EACCES)


def attempt(what: str, make: Callable[[], int], remedy: str) -> Answer:
    """Makes a kernel object and closes it again."""
    try:
        os.close(make())
    except OSError as error:
        why = f"{what}: {errno_name(error.errno)}"
        if error.errno in REFUSED:
            return unknown(why, "ask again as root; the refusal hides the kernel's answer")
        return no(why, remedy)
    return yes(f"{what}: done")


def release() -> Answer:
    """Which kernel runs: for the reader, nothing depends on it."""
    return yes(f"{platform.system()} {platform.release()} on {platform.machine()}")


def btf() -> Answer:
    """Type information of the running kernel, for CO-RE relocations."""
    try:
        types = KernelTypes()
    except LoaderError as error:
        return no(error.said, error.do)
    if types.has("task_struct", KIND_STRUCT):
        return yes(f"{VMLINUX} was read")
    return no(f"{VMLINUX} has no task_struct", "boot the distribution's own kernel")


def sockmap() -> Answer:
    """A map of sockets, to which the ingress programs are attached."""
    return attempt(
        "create a sockhash of one entry",
        lambda: syscalls.bpf_map_create(syscalls.MAP_SOCKHASH, 8, 4, 1),
        "use a kernel with CONFIG_BPF_STREAM_PARSER=y",
    )


def sk_skb() -> Answer:
    """Programs that see the bytes of a socket before any reader."""
    load = syscalls.bpf_prog_load
    kind, attach = syscalls.PROG_SK_SKB, syscalls.ATTACH_SK_SKB_VERDICT
    return attempt(
        "load an sk_skb verdict program",
        lambda: load(kind, syscalls.bpf_return(0), attach),
        "use a kernel with CONFIG_BPF_STREAM_PARSER=y",
    )


def sock_ops() -> Answer:
    """Programs that see connections of a cgroup being established."""
    load = syscalls.bpf_prog_load
    kind, attach = syscalls.PROG_SOCK_OPS, syscalls.ATTACH_SOCK_OPS
    return attempt(
        "load a sock_ops program",
        lambda: load(kind, syscalls.bpf_return(1), attach),
        "use a kernel with CONFIG_CGROUP_BPF=y",
    )


def ringbuf_overwrite() -> Answer:
    """A ring buffer that is never full: its descriptor is the doorbell of a sleeping loop."""
    kind, flag = syscalls.MAP_RINGBUF, syscalls.BPF_F_RB_OVERWRITE
    size = os.sysconf("SC_PAGE_SIZE")
    return attempt(
        "create a ring buffer with BPF_F_RB_OVERWRITE",
        lambda: syscalls.bpf_map_create(kind, 0, 0, size, flag),
        NEWER_KERNEL,
    )


def page_map() -> Answer:
    """Memory for a mmapable map as large as the shared page."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = " and ".join("none" if n == resource.RLIM_INFINITY else f"{n >> 10} KiB"
                         for n in (soft, hard))  # fmt: skip
    answer = attempt(
        f"create a mmapable array of {PAGE_SIZE_LIMIT >> 20} MiB",
        lambda: syscalls.bpf_map_create(
            syscalls.MAP_ARRAY, 4, PAGE_SIZE_LIMIT, 1, syscalls.BPF_F_MMAPABLE
        ),
        "raise RLIMIT_MEMLOCK (`ulimit -l unlimited`) and the memory limit of the cgroup",
    )
    return Answer(answer.verdict, f"{answer.why}; RLIMIT_MEMLOCK is {limit}", answer.do)


def io_uring_bpf_ops() -> Answer:
    """An io_uring event loop as a BPF program, with the prototypes that loop.bpf.c declares."""
    try:
        types = KernelTypes()
    except LoaderError as error:
        return unknown(error.said, error.do)
    if not types.has("io_uring_bpf_ops", KIND_STRUCT):
        return no("no struct io_uring_bpf_ops in the kernel's types", NEWER_KERNEL)
    if not types.has("bpf_io_uring_submit_sqes", KIND_FUNC):
        return no("no kfunc bpf_io_uring_submit_sqes in the kernel's types", NEWER_KERNEL)
    if not types.has("iou_ctx", KIND_FWD, KIND_STRUCT):
        return no("the kfuncs take the context type of Linux 7.1, not struct iou_ctx", NEWER_KERNEL)
    return yes("struct io_uring_bpf_ops, its kfuncs and struct iou_ctx are in the kernel's types")
