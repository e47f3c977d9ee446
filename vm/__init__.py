"""One call that runs a command under a Linux kernel of choice, in a VM with a Debian root.

    root = ensure_root("7.3")
    status = run(["uname", "-r"], root=root)

Knows nothing of the project around it. Needs root, and the packages in packages.txt.
"""

from vm.errors import SetupError, VmError, VmLost
from vm.kernel_log import kernel_log_faults
from vm.machine import run, shell
from vm.qemu import Share
from vm.root import DEFAULT_KERNEL, Root, ensure_root, list_kernels
from vm.session import Streams

__all__ = [
    "DEFAULT_KERNEL",
    "Root",
    "SetupError",
    "Share",
    "Streams",
    "VmError",
    "VmLost",
    "ensure_root",
    "kernel_log_faults",
    "list_kernels",
    "run",
    "shell",
]
