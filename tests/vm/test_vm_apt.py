"""Finding the host's Debian mirror."""

from __future__ import annotations

from pathlib import Path

import pytest

from vm import apt
from vm.apt import choose_mirror, host_sources, parse_sources, resolve_mirror_list, sources_list
from vm.errors import SetupError

DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
# in the middle
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def chosen(text: str, deb822: bool = False) -> str | None:
    source = choose_mirror(parse_sources(text, deb822))
    return source.uri if source else None


def test_deb822() -> None:
    source, security = parse_sources(DEB822, deb822=True)
    assert source.uri == "http://mirror.example/debian"
    assert source.suites == ("bookworm", "bookworm-updates")
    assert source.components == ("main", "contrib")
    assert not security.is_debian()
    assert chosen(DEB822, deb822=True) == "http://mirror.example/debian"


def test_one_line() -> None:
    text = "deb [arch=amd64 signed-by=/k.gpg] https://a.example/x trixie main contrib # why not\n"
    (source,) = parse_sources(text, deb822=False)
    assert (source.uri, source.suites) == ("https://a.example/x", ("trixie",))
    assert source.components == ("main", "contrib")
    assert source.options == {"arch": "amd64", "signed-by": "/k.gpg"}


@pytest.mark.parametrize(
    "line",
    [
        "# deb http://a.example/debian trixie main",
        "deb-src http://a.example/debian trixie main",
        "deb http://security.example/debian-security trixie-security main",
        "deb http://a.example/debian-security trixie/updates main",
        "deb https://pg.example/apt bookworm-pgdg main",
        "deb https://docker.example/linux/debian bookworm stable",
        "deb http://a.example/ubuntu noble main",
        "",
    ],
)
def test_not_a_debian_mirror(line: str) -> None:
    assert chosen(line) is None


def test_disabled_stanza_does_not_count() -> None:
    assert chosen("Enabled: no\n" + DEB822.partition("\n\n")[0], deb822=True) is None


@pytest.mark.parametrize("order", [1, -1])
def test_debian_is_preferred_to_those_who_use_its_suite_names(order: int) -> None:
    lines = [
        "deb https://vpn.example/stable/debian bookworm main",
        "deb http://mirror.example/debian bookworm main",
        "deb https://tool.example/deb stable main",
    ]
    assert chosen("\n".join(lines[::order])) == "http://mirror.example/debian"


def test_debians_key_tells_a_mirror_of_another_path() -> None:
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    text = (
        f"deb https://vpn.example/debian trixie main\ndeb [signed-by={key}] http://m/x trixie main"
    )
    assert chosen(text) == "http://m/x"


def test_files_are_read_in_both_styles(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://one.example/debian trixie main\n")
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/a.sources").write_text(DEB822)
    (tmp_path / "sources.list.d/b.list.disabled").write_text(
        "deb http://no.example/debian sid main"
    )
    uris = [source.uri for source in host_sources(tmp_path)]
    assert uris[:2] == ["http://one.example/debian", "http://mirror.example/debian"]
    assert len(uris) == 3


def test_mirror_list_file(tmp_path: Path) -> None:
    (tmp_path / "debian.list").write_text("# ours\nhttps://first.example/debian\tpriority:1\n")
    uri = f"mirror+file://{tmp_path}/debian.list"
    assert resolve_mirror_list(uri) == "https://first.example/debian"
    assert resolve_mirror_list("http://x.example/debian") == "http://x.example/debian"


def test_variable_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(apt.MIRROR_VARIABLE, "http://chosen.example/debian")
    first, second = sources_list(["trixie", "trixie-backports"]).splitlines()
    assert first.endswith("] http://chosen.example/debian trixie main")
    assert second.endswith("] http://chosen.example/debian trixie-backports main")


def test_no_mirror_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(apt.MIRROR_VARIABLE, raising=False)
    monkeypatch.setattr(apt, "ETC_APT", tmp_path)
    with pytest.raises(SetupError, match=f"Set {apt.MIRROR_VARIABLE}"):
        sources_list(["trixie"])


def test_trusted_mirror_stays_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(apt.MIRROR_VARIABLE, raising=False)
    monkeypatch.setattr(apt, "ETC_APT", tmp_path)
    (tmp_path / "sources.list").write_text("deb [trusted=yes] http://a.example/debian sid main\n")
    assert sources_list(["trixie"]) == "deb [trusted=yes] http://a.example/debian trixie main\n"
