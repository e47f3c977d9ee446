"""The guest's root: a Debian 13 folder made by mmdebstrap once, with kernels unpacked into it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vm.apt import Apt, carried_options, sources_list
from vm.errors import SetupError
from vm.kernels import MODULES, add_kernel, installed, newest, offered_kernels, remove_tree

DEFAULT_KERNEL = "7.3"
SUITES = ("trixie", "trixie-backports")
PACKAGES = (
    *("python3", "python3-cffi", "python3-click", "python3-numpy", "python3-rich"),
    *("python3-bpfcc", "python3-pyroute2"),
    *("python3-hypothesis", "python3-pytest", "python3-pytest-timeout"),
    *("libbpf1", "libelf1t64", "libstdc++6", "liburing2", "zlib1g"),
    *("qemu-system-x86", "virtiofsd"),  # run on the host, see qemu.py
    *("bpftool", "ethtool", "iproute2", "iputils-ping", "kmod", "procps", "strace"),
)
MMDEBSTRAP_OPTIONS = (
    "--variant=apt",
    "--architectures=amd64",
    "--format=directory",
    '--aptopt=Apt::Install-Recommends "false"',
    '--aptopt=APT::Sandbox::User "root"',  # the user _apt may not be able to enter our folder
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
)
HOSTS = "127.0.0.1 localhost vm\n::1 localhost ip6-localhost\n"
PREPARATION = 2  # to be raised when what is done to a root or a kernel afterwards changes
INIT = Path(__file__).with_name("guest_init.py")
GUEST_INIT = "/vm/init.pyc"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Root:
    """A root folder with the kernel to boot in it. VMs share it read only."""

    path: Path
    release: str

    @property
    def kernel(self) -> Path:
        """What QEMU boots: the uncompressed kernel where there is one."""
        modules = self.path / MODULES / self.release
        uncompressed = modules / "vmlinux"
        return uncompressed if uncompressed.exists() else modules / "vmlinuz"


def project_folder() -> Path:
    """The checkout this package lies in, or the working directory when it is installed."""
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "pyproject.toml").exists() else Path.cwd()


def default_build_folder() -> Path:
    """Where roots, kernels' logs and the accelerator's probe are kept."""
    return project_folder() / "build" / "vm"


def print_progress(line: str) -> None:
    """A line for a person, on stderr."""
    print(f"vm: {line}", file=sys.stderr, flush=True)


def ensure_root(
    kernel: str = DEFAULT_KERNEL,
    *,
    build_folder: Path | None = None,
    progress: Progress = print_progress,
) -> Root:
    """The root with the newest kernel that `kernel` names, built or completed where needed.

    `kernel` is the beginning of a version ("7.3", "6.12") or a whole release. A kernel that is
    there already is taken without asking the mirror. Raises SetupError.
    """
    folder = build_folder or default_build_folder()
    path = folder / f"root-{recipe_hash()}"
    release = newest(installed(path), kernel)
    if release is None:
        require_root()
        folder.mkdir(parents=True, exist_ok=True)
        with lock(folder / "lock", progress):
            if not path.exists():
                build_base(path, progress)
            release = newest(installed(path), kernel)
            if release is None:
                release = add_kernel(path, kernel, Apt(folder / "apt", SUITES), progress)
    root = Root(path, release)
    install_init(root)
    return root


def packed_root(path: Path) -> Root:
    """The root of an archive that was unpacked, with the one kernel that is in it.

    Raises SetupError.
    """
    path = path.absolute()
    releases = installed(path)
    if len(releases) != 1:
        said = f"there are {len(releases)} kernels in {path / MODULES}"
        raise SetupError("Using a packed root", said, "Name the folder `root` of such an archive.")
    return Root(path, releases[0])


def list_kernels(build_folder: Path | None = None) -> list[str]:
    """Releases that `ensure_root` could add now, oldest first; asks the mirror."""
    folder = build_folder or default_build_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / "lock", print_progress):
        return offered_kernels(Apt(folder / "apt", SUITES))


def recipe_hash() -> str:
    """Changes with everything that goes into a root."""
    recipe = "\n".join([*SUITES, *PACKAGES, *MMDEBSTRAP_OPTIONS, HOSTS, str(PREPARATION)])
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def require_root() -> None:
    """Raises SetupError when we are not uid 0."""
    if os.geteuid():
        raise SetupError(
            "Preparing a VM",
            f"user {os.geteuid()} may not make or share a root folder (EPERM)",
            "Run it as root or through sudo.",
        )


@contextlib.contextmanager
def lock(path: Path, progress: Progress) -> Iterator[None]:
    """One builder at a time; the kernel drops the lock of a builder that died."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that prepares the root ({path})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_base(path: Path, progress: Progress) -> None:
    """Run mmdebstrap into a temporary name; the root gets its name when it is whole."""
    partial, log = path.with_suffix(".partial"), path.with_suffix(".log")
    remove_tree(partial)
    progress(f"building a Debian 13 root in {path} (once; a minute or so)")
    command = ["mmdebstrap", *MMDEBSTRAP_OPTIONS, f"--include={','.join(PACKAGES)}"]
    command += [f"--aptopt={option}" for option in carried_options()]
    command += [SUITES[0], str(partial), "-"]
    with log.open("w") as log_file:
        status = run_logged(command, sources_list(SUITES), log_file.write, progress)
    if status:
        errors = [line for line in log.read_text().splitlines() if line.startswith("E:")]
        raise SetupError(
            "Building the VM's root folder with mmdebstrap",
            "; ".join(errors[-3:]) or f"it ended with status {status}",
            f"Its output is in {log}.",
        )
    for name in ("etc/hostname", "etc/resolv.conf"):  # mmdebstrap copies the host's
        (partial / name).unlink(missing_ok=True)
    (partial / "etc/hosts").write_text(HOSTS)
    partial.rename(path)


def run_logged(
    command: Sequence[str], stdin: str, log: Callable[[str], object], progress: Progress
) -> int:
    """Run a command that takes a while: all it prints is logged, its headlines are shown."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError:
        raise SetupError(
            f"Running {command[0]}",
            "it is not installed (ENOENT)",
            f"Install it: `apt-get install {command[0]}`.",
        ) from None
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(stdin)
        process.stdin.close()
        for line in process.stdout:
            log(line)
            if line.startswith(("I: ", "E: ")):
                progress(line[3:].rstrip())
    return process.returncode


def install_init(root: Root) -> None:
    """Put the present guest_init.py into the root, compiled by the guest's Python: compiling it at
    each boot would take a fifth of a second under an emulated CPU."""
    content = INIT.read_bytes()
    target = root.path / GUEST_INIT.lstrip("/")
    source = target.with_suffix(".py")
    if source.exists() and source.read_bytes() == content:
        return
    source.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=source.parent, suffix=".py", delete=False) as file:
        file.write(content)
    inside = "/" + str(Path(file.name).relative_to(root.path))
    # py_compile writes under another name and renames: a booting VM sees the old or the new file.
    program = "import py_compile, sys; py_compile.compile(*sys.argv[1:], doraise=True)"
    subprocess.run(["chroot", root.path, "python3", "-c", program, inside, GUEST_INIT], check=True)
    os.rename(file.name, source)
