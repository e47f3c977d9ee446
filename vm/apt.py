"""The host's Debian mirror, and an apt of our own that asks it about suites of our choice."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from vm.errors import SetupError

MIRROR_VARIABLE = "BPF_GPU_SERVER_MIRROR"
ETC_APT = Path("/etc/apt")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_CODENAMES = "bullseye|bookworm|trixie|forky|duke|sid|oldstable|stable|testing|unstable"
_SUITE = re.compile(rf"(?:{_CODENAMES})(?:-updates|-backports|-proposed-updates)?/?")
# Settings of the host's apt that say how to reach a mirror, or that its clock cannot be trusted.
_CARRIED = re.compile(
    r"Acquire::(?:Check-Date|Check-Valid-Until|Retries|ForceIPv[46]|https?::(?:Proxy|Timeout|"
    r"Verify-Peer|CaInfo|No-Cache)[^ ]*) "
)


@dataclass(frozen=True)
class Source:
    """One `deb` line of the host: where, what, and how it is trusted."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)

    def is_debian(self) -> bool:
        """Whether this is Debian's own archive, not its security archive and not a third party's
        (those use Debian's suite names too, but other components, paths or keys)."""
        suites = any(_SUITE.fullmatch(suite) for suite in self.suites)
        return suites and "main" in self.components and "security" not in self.uri

    def confidence(self) -> int:
        """Rank among sources that look like Debian's archive: its key counts most."""
        path = urlsplit(self.uri).path.rstrip("/")
        debian_key = "debian-archive" in self.options.get("signed-by", "")
        updates = any(suite.endswith("-updates") for suite in self.suites)
        return 4 * debian_key + 2 * (path == "/debian") + updates


def parse_sources(text: str, deb822: bool) -> list[Source]:
    """The enabled `deb` sources of one file, in one-line or deb822 style."""
    return list(_parse_deb822(text) if deb822 else _parse_one_line(text))


def _parse_one_line(text: str) -> Iterator[Source]:
    pattern = re.compile(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)([^#]*)")
    for line in text.splitlines():
        if match := pattern.match(line):
            pairs = (option.partition("=") for option in (match[1] or "").split())
            options = {key.lower(): value for key, _, value in pairs}
            yield Source(match[2], (match[3],), tuple(match[4].split()), options)


def _parse_deb822(text: str) -> Iterator[Source]:
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", text):
        lines = re.sub(r"\n[ \t]+", " ", stanza).splitlines()  # continuation lines
        pairs = (line.partition(":") for line in lines if ":" in line)
        fields = {key.strip().lower(): value.strip() for key, _, value in pairs}
        if "deb" not in fields.get("types", "").split() or fields.get("enabled") == "no":
            continue
        suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
        for uri in fields.get("uris", "").split():
            yield Source(uri, tuple(suites), tuple(components), fields)


def choose_mirror(sources: Iterable[Source]) -> Source | None:
    """The source most surely a mirror of Debian; the first of equals."""
    candidates = [source for source in sources if source.is_debian()]
    return max(candidates, key=Source.confidence, default=None)


def host_sources(etc_apt: Path) -> list[Source]:
    """All sources of an apt configuration, in apt's order."""
    files = [etc_apt / "sources.list"]
    folder = etc_apt / "sources.list.d"
    files += sorted([*folder.glob("*.list"), *folder.glob("*.sources")])
    return [
        source
        for file in files
        if file.is_file()
        for source in parse_sources(file.read_text(errors="replace"), file.suffix == ".sources")
    ]


def resolve_mirror_list(uri: str) -> str:
    """Debian's cloud images name a file that lists mirrors: its first entry is the mirror."""
    if not uri.startswith("mirror+file:"):
        return uri
    lines = Path(urlsplit(uri).path).read_text().splitlines()
    return next(line.split()[0] for line in lines if line.strip() and not line.startswith("#"))


def sources_list(suites: Sequence[str]) -> str:
    """A sources.list for these suites on the host's mirror, or on $BPF_GPU_SERVER_MIRROR."""
    mirror, trust = os.environ.get(MIRROR_VARIABLE), f"signed-by={KEYRING}"
    if not mirror:
        source = choose_mirror(host_sources(ETC_APT))
        if source is None:
            raise SetupError(
                "Looking for a Debian mirror",
                "the host's apt configuration has none",
                f"Set {MIRROR_VARIABLE} to the address of one.",
            )
        mirror = resolve_mirror_list(source.uri)
        if source.options.get("trusted") == "yes":
            trust = "trusted=yes"
    return "".join(f"deb [{trust}] {mirror} {suite} main\n" for suite in suites)


def carried_options() -> list[str]:
    """The host's apt settings that also hold for the root's packages, as `Name "value"`."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    return [line.rstrip(";") for line in dump.stdout.splitlines() if _CARRIED.match(line)]


class Apt:
    """apt with configuration, sources and lists of its own under `folder`, for amd64 packages.

    Nothing of the host's is read but the settings of `carried_options`, nothing is changed.
    """

    def __init__(self, folder: Path, suites: Sequence[str]) -> None:
        self.folder = folder
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "sources.list").write_text(sources_list(suites))
        settings = {
            "Dir::Etc::Main": "/dev/null",
            "Dir::Etc::Parts": "/dev/null",
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State::Lists": folder / "lists",
            "Dir::State::Status": "/dev/null",
            "Dir::Cache": folder / "cache",
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "root",  # the user _apt may not be able to enter our folder
        }
        lines = [f'{name} "{value}"' for name, value in settings.items()] + carried_options()
        (folder / "apt.conf").write_text("".join(f"{line};\n" for line in lines))

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        environment = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf")}
        result = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise SetupError(
                f"Running `{' '.join(command)}` for the VM's suites",
                result.stderr.strip(),
                f"Check the mirror in the host's apt configuration, or set {MIRROR_VARIABLE}.",
            )
        return result.stdout

    def update(self) -> None:
        """Fetches the suites' lists. Raises SetupError."""
        # Without error-on=any an unreachable mirror is only a warning.
        self._run("apt-get", "-q", "update", "--error-on=any")

    def package_names(self, prefix: str) -> list[str]:
        """Names of the suites' packages that begin so."""
        return self._run("apt-cache", "pkgnames", prefix).split()

    def download(self, packages: Sequence[str], into: Path) -> list[Path]:
        """Fetches packages, checked against the lists; returns the files. Raises SetupError."""
        self._run("apt-get", "-q", "download", *packages, cwd=into)
        return sorted(into.glob("*.deb"))
