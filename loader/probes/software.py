"""Programs and libraries: what is installed, loaded or run to make sure."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import shutil
import subprocess
import sys

from loader import paths
from loader.errors import LoaderError
from loader.probes.answer import Answer, no, unknown, yes

TIMEOUT_S = 120


def program(*names: str) -> Answer:
    """Native programs of this project."""
    try:
        return yes(", ".join(str(paths.program(name)) for name in names))
    except LoaderError as error:
        return no(error.said, error.do)


def bpf_objects() -> Answer:
    """The compiled BPF programs."""
    try:
        return yes(", ".join(str(paths.bpf_object(f"{n}.bpf.o")) for n in ("ingress", "loop")))
    except LoaderError as error:
        return no(error.said, error.do)


def clang() -> Answer:
    """A clang that compiles for BPF; needed to build, not to serve."""
    remedy = "apt-get install clang-19 (only needed to build)"
    for name in ("clang-19", "clang"):
        if path := shutil.which(name):
            command = [path, "-target", "bpf", "-x", "c", "-c", "-o", "/dev/null", "-"]
            try:
                run = subprocess.run(
                    command, input=b"int a;", capture_output=True, timeout=TIMEOUT_S, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return unknown(f"{path}: {error}", remedy)
            if run.returncode:
                return no(f"{path} -target bpf: {run.stderr.decode().strip()[:200]}", remedy)
            version = subprocess.run([path, "-dumpversion"], capture_output=True, check=False)
            return yes(f"{path} {version.stdout.decode().strip()} compiled for BPF")
    return no("neither clang-19 nor clang is on PATH", remedy)


def libbpf() -> Answer:
    """The library that loads the BPF objects."""
    try:
        library = ctypes.CDLL("libbpf.so.1")
        library.libbpf_version_string.restype = ctypes.c_char_p
        return yes(f"libbpf {library.libbpf_version_string().decode()}")
    except (OSError, AttributeError) as error:
        return no(str(error), "apt-get install libbpf1")


def liburing_ffi() -> Answer:
    """The library that sets rings up; its -ffi form has the inline functions as symbols."""
    try:
        library = ctypes.CDLL("liburing-ffi.so.2")
        return yes(
            f"liburing-ffi {library.io_uring_major_version()}.{library.io_uring_minor_version()}"
        )
    except (OSError, AttributeError) as error:
        return no(str(error), "apt-get install liburing2 (Debian 13), or liburing 2.4 or newer")


def package(name: str, remedy: str) -> Answer:
    """A Python package of the service itself, imported."""
    from importlib import metadata

    try:
        module = importlib.import_module(name)
        version = getattr(module, "__version__", None) or metadata.version(name)
    except Exception as error:  # a broken package may raise anything
        return no(f"import {name}: {type(error).__name__}: {error}", remedy)
    return yes(f"{name} {version}")


def gpu_package(name: str, remedy: str) -> Answer:
    """A Python package with native code of a driver: it may take this process with it."""
    if importlib.util.find_spec(name) is None:
        return no(f"{name} is not installed for {sys.executable}", remedy)
    code = f"import {name}; print({name}.__version__)"
    try:
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return unknown(f"import {name}: {error}", remedy)
    if run.returncode:
        last = run.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return no(f"import {name}: status {run.returncode} {''.join(last)}", remedy)
    return yes(f"{name} {run.stdout.decode().strip()}")


def gpu() -> Answer:
    """A CUDA device that the driver can open."""
    remedy = "install the NVIDIA driver and, in a container, pass the device in; or --executor cpu"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return no(str(error), remedy)
    count, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(128)
    for call, arguments in (
        ("cuInit", (0,)),
        ("cuDriverGetVersion", (ctypes.byref(version),)),
        ("cuDeviceGetCount", (ctypes.byref(count),)),
        ("cuDeviceGetName", (name, 128, 0)),
    ):
        if code := getattr(driver, call)(*arguments):
            return no(f"{call}: CUDA error {code}", remedy)
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return yes(f"{count.value} x {name.value.decode()}, driver for CUDA {cuda}")
