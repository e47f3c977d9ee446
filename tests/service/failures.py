"""A table of failures: how each one is brought about, and the three parts that it must show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loader.instance import PROJECT


@dataclass
class Case:
    """A command line that fails. In the texts, {folder} is the test's own folder."""

    name: str
    arguments: str
    tried: str
    said: str
    do: str
    files: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    nobody: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


CONFIG = "use the configuration {folder}/c.toml"
HELP = "correct the file; `bpf-gpu-server serve --help` lists the options"
SERVE = "serve --port 0 --instance {instance} "
SHELL = "#!/bin/sh\n"

CASES = [
    Case("frames of a page that may move", SERVE + "--executor external --page-frames {folder}/f",
         "write the page's frames", "only a BPF map stays where it is, and only an external *",
         "leave --page-frames out, or add --transport bpf --executor external"),
    Case("a public address", SERVE + "--bind 0.0.0.0", "bind to 0.0.0.0",
         "it is not a loopback address, and clients are not authenticated",
         "bind to 127.0.0.1 or ::1, or add --allow-remote if any host may send requests"),
    Case("a name for an address", SERVE + "--bind example", "bind to example",
         "it is not an IP address",
         "give --bind an IPv4 or IPv6 address, such as 127.0.0.1 or ::1"),
    Case("an address of another machine", SERVE + "--bind 192.0.2.1 --allow-remote",
         "bind to 192.0.2.1 port 0", "EADDRNOTAVAIL (Cannot assign requested address)",
         "give --bind an address of this machine; `ip address` shows them"),
    Case("a bad instance name", "serve --instance a.b", "use the instance name 'a.b'",
         "it is not letters, digits, - and _, 48 at most, beginning with a letter or digit",
         "choose another --instance"),
    Case("an unknown workload", SERVE + "--workload chess", "start the executor",
         "executor left with status 1: executor-cpu: *there is no workload 'chess'*",
         "correct --workload: see `serve --help`"),
    Case("a bad workload parameter", SERVE + "--workload gemm:m=x", "start the executor",
         "executor left with status 1: executor-cpu: *m is 'x'*",
         "correct --workload: see `serve --help`"),
    Case("no configuration file", "serve --config {folder}/none",
         "read the configuration {folder}/none",
         "ENOENT (No such file or directory)", "check the path of --config"),
    Case("a configuration that is no TOML", "serve --config {folder}/c.toml", CONFIG,
         "Invalid value (at line 1, column 8)", HELP, {"c.toml": "port = = 1"}),
    Case("an unknown key", "serve --config {folder}/c.toml", CONFIG,
         "unknown key 'prot', did you mean 'port'?", HELP, {"c.toml": "prot = 1"}),
    Case("a key of the wrong type", "serve --config {folder}/c.toml", CONFIG,
         "port = '1' is not of type int", HELP, {"c.toml": 'port = "1"'}),
    Case("a fraction for a port", "serve --config {folder}/c.toml", CONFIG,
         "port = 1.5 is not of type int", HELP, {"c.toml": "port = 1.5"}),
    Case("a key out of range", "serve --config {folder}/c.toml", CONFIG,
         "port: 70000 is not in the range 0<=x<=65535.", HELP, {"c.toml": "port = 70000"}),
    Case("a key that is no choice", "serve --config {folder}/c.toml", CONFIG,
         "transport: 'tcp' is not one of 'epoll', 'bpf'.", HELP, {"c.toml": 'transport = "tcp"'}),
    Case("programs that are not built", SERVE, "find bin/server-epoll",
         "ENOENT (No such file or directory) in {folder}/build",
         "run `make` in the source folder, or set BPF_GPU_SERVER_BUILD to a folder *",
         programs={"nothing": ""}),
    Case("an executor that is no program", SERVE, "start executor",
         "ENOEXEC (Exec format error): {folder}/build/bin/executor-cpu",
         "run `make` again; `file` shows what kind of program it is",
         programs={"server-epoll": SHELL, "executor-cpu": "?"}),
    Case("an executor that leaves at once", SERVE, "start the executor",
         "executor left with status 3: out of luck", "correct --workload: see `serve --help`",
         programs={"server-epoll": SHELL, "executor-cpu": SHELL + "echo out of luck; exit 3"}),
    Case("an executor that crashes", SERVE, "start the executor",
         "executor was ended by SIGSEGV", "correct --workload: see `serve --help`",
         programs={"server-epoll": SHELL, "executor-cpu": SHELL + "kill -SEGV $$"}),
    Case("a server that leaves at once", SERVE, "go on serving",
         "server-epoll left with status 4: no page", "start again; if it happens again, report *",
         programs={"server-epoll": SHELL + "echo no page; exit 4", "executor-cpu": "built"}),
    Case("no running instance", "stats --instance nobody-there",
         "find the running instance nobody-there", "no state.json of a living supervisor in *",
         "start it with `bpf-gpu-server serve`, or name another one with --instance"),
    Case("load of an unknown workload", "load --port 9 --workload chess",
         "make requests of workload chess", "*there is no workload 'chess'*", "correct --workload"),
    Case("load of a port without a workload", "load --port 9", "choose requests",
         "with --port, the workload that is served is not known",
         "add --workload SPEC, the one that the server was started with"),
    Case("a port that needs root", "serve --port 80 --instance {instance}",
         "bind to 127.0.0.1 port 80", "EACCES (Permission denied)",
         "ports below 1024 need root: choose another --port", nobody=True),
    Case("too few descriptors", SERVE, "raise the limit of open files to 1088",
         "EPERM: the hard limit is 200",
         "raise it (`ulimit -Hn 1088` as root), or give a smaller --max-connections",
         nobody=True, settings={"limit": 200}),
    Case("the kernel path without rights", SERVE + "--transport bpf",
         "start transport bpf, which needs CAP_BPF", "CAP_BPF is not in the effective set",
         "run as root (sudo), or grant CAP_BPF; `bpf-gpu-server doctor --transport bpf` shows *",
         nobody=True),
    Case("a runtime folder of somebody else", SERVE, "use {folder}/" + PROJECT,
         "it is not a folder of user 65534",
         "remove it, or set XDG_RUNTIME_DIR to a folder of yours",
         nobody=True, settings={"foreign": True}),
]  # fmt: skip
