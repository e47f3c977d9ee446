"""Command lines of QEMU and virtiofsd, each unusual option with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vm.root import GUEST_INIT, Root
from vm.tsc import host_tsc_khz

PORTS = ("control", "stdin", "stdout", "stderr")


@dataclass(frozen=True)
class Share:
    """A host folder seen in the guest, at the same path unless `guest_path` says otherwise."""

    host_path: Path
    guest_path: Path | None = None
    read_only: bool = False

    @property
    def mount_point(self) -> Path:
        """The path in the guest."""
        return self.guest_path or self.host_path.absolute()


@dataclass(frozen=True)
class Machine:
    """The virtual hardware; `accelerator` is "tcg" or "kvm"."""

    cpus: int = 2
    memory_mib: int = 2048
    icount: bool = False
    accelerator: str = "tcg"
    guest_ram_file: Path | None = None


def from_root(root: Root, program: str) -> list[str]:
    """Start a program of the root on the host, with the root's libraries.

    Not the host's QEMU: 7.2 (Debian 12) can run code of a guest that another vCPU has just
    patched. Seen on a busy host: one boot in fifteen ended in `Oops: int3` at a static key. QEMU
    translates under the page's lock since 8.1 ("accel/tcg: Always lock pages before translation").
    And so every host has the same VM.
    """
    libraries = root.path / "usr/lib/x86_64-linux-gnu"
    loader = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
    return [*loader, "--inhibit-cache", "--argv0", Path(program).name, str(root.path / program)]


def kernel_command_line(machine: Machine) -> str:
    """The guest kernel's parameters."""
    words = [
        "console=ttyS0",
        "root=root rootfstype=virtiofs ro",  # root= is the share's tag; init makes / writable
        "panic=-1",  # reboot at once, which -no-reboot turns into the end of QEMU
        "no_timer_check",  # the IO-APIC timer check fails, and panics, when the host is busy
        # An emulated CPU on a busy host stands still for seconds: the default limits (20 s, 21 s)
        # would report lockups and stalls that are the host's. Real ones still come.
        "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120",
        # For the same reason the clocksource watchdog would drop the TSC in the middle of a run,
        # and every later clock read would be a device access.
        "tsc=nowatchdog",
    ]
    if machine.accelerator == "tcg" and not machine.icount and (khz := host_tsc_khz()):
        words.append(f"tsc_early_khz={khz}")  # not to be measured at boot, see tsc.py
    if machine.icount:
        # Instructions are to be those of what was started. khugepaged (every 10 s, 15 to 40 million
        # of them) and DAMON's sampling are the kernel's own, and would fall into any window.
        words.append("transparent_hugepage=never damon_stat.enabled=N")
    words.append(f"init=/usr/bin/python3 -- -IS {GUEST_INIT}")
    return " ".join(words)


def qemu_command(
    machine: Machine, root: Root, console_log: Path, ports: dict[str, int], shares: dict[str, int]
) -> list[str]:
    """`ports` and `shares` map a name or tag to a connected socket that QEMU inherits."""
    memory = f"id=ram,share=on,size={machine.memory_mib}M"
    if machine.guest_ram_file:
        memory = f"memory-backend-file,mem-path={machine.guest_ram_file},{memory}"
    else:
        memory = f"memory-backend-memfd,{memory}"
    command = [
        *from_root(root, "usr/bin/qemu-system-x86_64"),
        *("-L", f"{root.path}/usr/share/qemu", "-L", f"{root.path}/usr/share/seabios"),
        *("-nodefaults", "-no-user-config", "-display", "none"),  # nothing that was not asked for
        # "pc": RAM below 3 GiB lies in a guest_ram_file at its physical address. vhost-user needs
        # RAM that another process can map, hence share=on; a memfd knows no limit of /dev/shm.
        *("-machine", "pc,memory-backend=ram", "-object", memory, "-m", f"{machine.memory_mib}M"),
        *accelerator_options(machine),
        "-no-reboot",  # a panicking guest ends
        *("-kernel", str(root.kernel), "-append", kernel_command_line(machine)),
        *("-chardev", f"file,id=console,path={console_log}", "-serial", "chardev:console"),
        *("-device", "virtio-serial-pci"),
    ]
    for name, descriptor in ports.items():
        command += ["-chardev", f"socket,id={name},fd={descriptor}"]
        command += ["-device", f"virtserialport,chardev={name},name={name}"]
    for tag, descriptor in shares.items():
        command += ["-chardev", f"socket,id=fs-{tag},fd={descriptor}"]
        command += ["-device", f"vhost-user-fs-pci,chardev=fs-{tag},tag={tag}"]
    return command


def accelerator_options(machine: Machine) -> list[str]:
    """QEMU's options for how the guest's CPUs are run."""
    if machine.icount:
        # One guest instruction is one guest nanosecond (shift=0), and idle time is skipped rather
        # than slept (sleep=off). Several vCPUs would take turns on the one clock: one only.
        clock = ["-icount", "shift=0,sleep=off"]
        return ["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1", *clock]
    # thread=multi: one host thread for each vCPU; TCG would else run all of them on one.
    accelerator = "tcg,thread=multi" if machine.accelerator == "tcg" else machine.accelerator
    return ["-accel", accelerator, "-cpu", "max", "-smp", str(machine.cpus)]


def virtiofsd_command(root: Root, share: Share, cache: str, listener: int) -> list[str]:
    """Serve one folder on a listening socket that virtiofsd inherits.

    `cache` is "always" for a folder that nobody changes, "auto" where the host may write too.
    """
    return [
        *from_root(root, "usr/libexec/virtiofsd"),
        *(f"--fd={listener}", f"--shared-dir={share.host_path}", f"--cache={cache}"),
        # chroot, not namespaces: works in containers, and needs no second process.
        "--sandbox=chroot",
        # The guest is as trusted as we are, and a host's kernel may be without filters.
        "--seccomp=none",
        "--log-level=error",
        *(["--readonly"] if share.read_only else []),
    ]
