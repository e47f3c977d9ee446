"""The guest's first process: mount, run the one command of the job, report its status, power off.

The virtio-serial port `control` carries lines of text: first the job from the host, then `ready`
and `status N STDOUT_BYTES STDERR_BYTES` to it, and `signal N`, `resize ROWS COLUMNS`, `diagnose`
and `goodbye` from it. `stdin`, `stdout` and `stderr` are ports of their own, so nothing that the
command or the kernel prints can be mistaken for a status.

Runs on the guest's Python under an emulated CPU, where each import of json, socket, signal or
typing would cost a tenth of a second of every boot: none of them here. No wait has a time limit
here, either: under -icount idle time passes at once, and the host has a limit for everything.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MS_RDONLY, MS_BIND, MS_MOVE = 0x1, 0x1000, 0x2000
SYS_FINIT_MODULE = 313
RB_POWER_OFF = 0x4321FEDC
AF_INET, SOCK_DGRAM, SIOCSIFFLAGS, IFF_UP = 2, 2, 0x8914, 0x1
SIGKILL, SIGPIPE, SIGXFSZ = 9, 13, 25
POLL_INTERVAL_S = 0.002
PORTS = ("control", "stdin", "stdout", "stderr")

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """The result of a libc function. Raises OSError with its errno, and what it was for."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2), on a folder that is made if need be."""
    os.makedirs(target, exist_ok=True)
    names = (source.encode(), target.encode(), kind.encode())
    status = libc.mount(*names, ctypes.c_ulong(flags), data.encode() or None)
    check(status, f"mount {kind} {source} on {target}")


def load_module(path: str) -> None:
    """Load a plain module without dependencies; modprobe would take half a second to start."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    check(libc.syscall(SYS_FINIT_MODULE, file, b"", 0), f"finit_module {path}")
    os.close(file)


def enter_root() -> None:
    """Make / a tmpfs over the shared read-only root: what a VM writes ends with it."""
    overlay = f"/usr/lib/modules/{os.uname().release}/overlay.ko"
    mount("root", "/mnt", "tmpfs", 0, "mode=755")
    if os.path.exists(overlay):
        load_module(overlay)
        for name in ("upper", "work", "root"):
            os.mkdir(f"/mnt/{name}")
        folders = "lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work"
        mount("overlay", "/mnt/root", "overlay", 0, folders)
        os.chdir("/mnt/root")
    else:
        bind_root("/mnt")
        os.chdir("/mnt")
    mount(".", "/", "", MS_MOVE)
    os.chroot(".")
    os.chdir("/")


def bind_root(target: str) -> None:
    """Without overlayfs: a root in which the system's own folders are read only."""
    for name in os.listdir("/"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{target}/{name}")
        elif name in ("etc", "usr", "var"):
            mount(f"/{name}", f"{target}/{name}", "", MS_BIND)
    mount("tmp", f"{target}/var/tmp", "tmpfs", 0, "mode=1777")
    os.mkdir(f"{target}/root", 0o700)


def mount_filesystems() -> None:
    """The kernel's own file systems, and the usual tmpfs ones."""
    mount("proc", "/proc", "proc")
    mount("sys", "/sys", "sysfs")
    mount("dev", "/dev", "devtmpfs")
    mount("devpts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666")
    mount("shm", "/dev/shm", "tmpfs")
    mount("run", "/run", "tmpfs", 0, "mode=755")
    mount("tmp", "/tmp", "tmpfs", 0, "mode=1777")
    mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=700")
    mount("cgroup", "/sys/fs/cgroup", "cgroup2")
    mount("tracefs", "/sys/kernel/tracing", "tracefs")
    mount("debugfs", "/sys/kernel/debug", "debugfs")
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for standard in range(3):  # closed where the root has no /dev/console for the kernel to open
        os.dup2(null, standard)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"/dev/{name}")


def set_up_host(hostname: str) -> None:
    """Name, loopback interface, limits."""
    check(libc.sethostname(hostname.encode(), len(hostname)), "sethostname")
    probe = check(libc.socket(AF_INET, SOCK_DGRAM, 0), "socket")
    request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, "little") + bytes(22)  # struct ifreq
    fcntl.ioctl(probe, SIOCSIFFLAGS, request)
    os.close(probe)
    # The kernel starts init with a hard limit of 4096; these are the limits of a systemd service.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 524288))


def open_ports() -> dict[str, int]:
    """Descriptors of the virtio-serial ports by name, each known to be connected to the host."""
    base = "/sys/class/virtio-ports"
    ports: dict[str, int] = {}
    while len(ports) < len(PORTS):
        for device in os.listdir(base):
            try:
                with open(f"{base}/{device}/name") as file:
                    name = file.read().strip()
            except OSError:
                continue  # the name is announced after the port
            if name in PORTS and name not in ports:
                ports[name] = os.open(f"/dev/{device}", os.O_RDWR | os.O_CLOEXEC)
        time.sleep(POLL_INTERVAL_S)
    for descriptor in ports.values():
        wait_connected(descriptor)
    return ports


def wait_connected(descriptor: int) -> None:
    """A port that is not connected yet reads as end of file: wait until POLLHUP is gone."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while any(events & select.POLLHUP for _, events in poll.poll(0)):
        time.sleep(POLL_INTERVAL_S)


class Pump(threading.Thread):
    """Copies one descriptor to another until end of file, counting bytes; `at_end` comes last."""

    def __init__(self, source: int, sink: int, at_end: Callable[[], object] = int) -> None:
        super().__init__(daemon=True)
        self.source, self.sink, self.at_end = source, sink, at_end
        self.copied = 0

    def run(self) -> None:
        """Copy; the thread's body."""
        try:
            while data := os.read(self.source, 65536):
                while data:
                    written = os.write(self.sink, data)
                    self.copied += written
                    data = data[written:]
        except OSError:
            pass  # EIO: the last user of a pty has gone; EPIPE: the command closed its stdin
        self.at_end()


class Command:
    """The job's command as a child in a session of its own, with its streams pumped."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.ports = ports
        self.pid = 0
        self.terminal = -1
        self.outputs: dict[str, Pump] = {}

    def start(self, job: dict[str, Any]) -> None:
        """Connect the streams and start the command. Raises OSError when it cannot be."""
        os.environ["PATH"] = job["env"]["PATH"]  # posix_spawnp looks argv[0] up in ours
        os.chdir(job["cwd"])
        if job["terminal"]:
            actions, ends = self._on_terminal(*job["terminal"])
        else:
            actions, ends = self._on_pipes(job["stdin"])
        defaults = [SIGPIPE, SIGXFSZ]  # Python ignores these; the command must not
        try:
            self.pid = os.posix_spawnp(
                job["argv"][0],
                job["argv"],
                job["env"],
                file_actions=actions,
                setsid=True,
                setsigdef=defaults,
            )
        finally:
            for end in ends:
                os.close(end)

    def _on_pipes(self, has_stdin: bool) -> tuple[list[Any], list[int]]:
        if has_stdin:
            child, ours = os.pipe()
            Pump(self.ports["stdin"], ours, lambda: os.close(ours)).start()
        else:
            child = os.open("/dev/null", os.O_RDONLY)
        ends = [child]
        for name in ("stdout", "stderr"):
            source, child = os.pipe()
            self._pump_out(name, source)
            ends.append(child)
        return [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends)], ends

    def _on_terminal(self, rows: int, columns: int) -> tuple[list[Any], list[int]]:
        terminal, slave = os.openpty()
        self.terminal = terminal
        self.resize(rows, columns)
        end_of_file = b"\x04"
        Pump(self.ports["stdin"], terminal, lambda: os.write(terminal, end_of_file)).start()
        self._pump_out("stdout", terminal)
        # Opened after setsid, so that it becomes the controlling terminal.
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
        return actions, [slave]

    def _pump_out(self, name: str, source: int) -> None:
        self.outputs[name] = Pump(source, self.ports[name])
        self.outputs[name].start()

    def resize(self, rows: int, columns: int) -> None:
        """Give the command's terminal another size."""
        import termios

        if self.terminal >= 0:
            size = rows.to_bytes(2, "little") + columns.to_bytes(2, "little") + bytes(4)
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)

    def signal(self, number: int) -> None:
        """To the command's process group, while it runs."""
        if self.pid:
            libc.kill(-self.pid, number)  # ESRCH: it has just ended

    def wait(self) -> int:
        """Status in the shell's form; reaps orphans on the way and ends what the command left."""
        while True:
            pid, status = os.wait()
            if pid == self.pid:
                break
        self.pid = 0
        libc.kill(-1, SIGKILL)  # all but this process: closes what holds the pipes
        for pump in self.outputs.values():
            pump.join()
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def copied(self, name: str) -> int:
        """Bytes of an output that have gone to the host."""
        return self.outputs[name].copied if name in self.outputs else 0


def read_lines(port: int) -> Iterator[str]:
    """Lines from a port, which may arrive in parts."""
    buffer = b""
    while data := os.read(port, 65536):
        *lines, buffer = (buffer + data).split(b"\n")
        yield from (line.decode() for line in lines)


def follow_control(lines: Iterator[str], command: Command, goodbye: threading.Event) -> None:
    """Do what the host asks for while the command runs."""
    for line in lines:
        verb, *numbers = line.split()
        if verb == "signal":
            command.signal(int(numbers[0]))
        elif verb == "resize":
            command.resize(int(numbers[0]), int(numbers[1]))
        elif verb == "diagnose":
            for key in "wl":  # blocked tasks, busy CPUs
                with open("/proc/sysrq-trigger", "w") as trigger:
                    trigger.write(key)
        elif verb == "goodbye":
            goodbye.set()


def run_job(job: dict[str, Any], command: Command) -> tuple[int, int]:
    """Status of the job's command, and bytes written to stderr apart from the command's own."""
    try:
        for share in job["mounts"]:
            flags = MS_RDONLY if share["read_only"] else 0
            mount(share["tag"], share["path"], "virtiofs", flags)
        command.start(job)
        return command.wait(), 0
    except OSError as error:
        text = f"vm: cannot run {job['argv'][0]!r} in {job['cwd']}: {error}\n"
        written = os.write(command.ports["stderr"], text.encode())
        return (127 if isinstance(error, FileNotFoundError) else 126), written


def serve() -> None:
    """Everything between the start and the power-off."""
    enter_root()
    mount_filesystems()
    ports = open_ports()
    lines = read_lines(ports["control"])
    # A Python literal from our own host; `ast` would cost more than all the rest.
    job = eval(next(lines), {"__builtins__": {}})  # noqa: S307
    set_up_host(job["hostname"])
    os.write(ports["control"], b"ready\n")
    command, goodbye = Command(ports), threading.Event()
    threading.Thread(target=follow_control, args=(lines, command, goodbye), daemon=True).start()
    status, extra = run_job(job, command)
    os.sync()
    counts = f"{command.copied('stdout')} {command.copied('stderr') + extra}"
    os.write(ports["control"], f"status {status} {counts}\n".encode())
    # Ports are asynchronous: the host says when it has every byte, then the machine may go.
    goodbye.wait()


def main() -> None:
    """Whatever happens, power off; a failure of ours is told in the kernel log."""
    try:
        serve()
    except BaseException:
        import traceback

        for line in traceback.format_exc().splitlines():
            with open("/dev/kmsg", "w") as kernel_log:
                kernel_log.write(f"vm init: {line}\n")
    libc.reboot(RB_POWER_OFF)


if __name__ == "__main__":
    main()
