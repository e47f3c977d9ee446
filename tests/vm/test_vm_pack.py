"""What goes into an archive that boots elsewhere; tests/experiments/test_chain.py boots one."""

from __future__ import annotations

from pathlib import Path

import pytest

from vm.errors import SetupError
from vm.kernels import MODULES
from vm.pack import LOADER, PATHS, below, libraries, pack
from vm.root import Root, packed_root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A root's beginnings."""
    (tmp_path / "usr/lib/python/test").mkdir(parents=True)
    (tmp_path / "usr/lib/python/os.py").touch()
    (tmp_path / "usr/lib/python/test/all.py").touch()
    (tmp_path / "usr/lib/python/site.py").symlink_to("/etc/site.py")
    (tmp_path / "usr/lib/second").symlink_to("python/../third")
    (tmp_path / "usr/lib/third").symlink_to("python/os.py")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/site.py").touch()
    return tmp_path


def test_a_folder_with_what_its_links_point_to(folder: Path) -> None:
    found = {str(path) for path in below(folder, Path("usr/lib/python"))}
    names = ("usr/lib/python", "usr/lib/python/os.py", "usr/lib/python/site.py", "etc/site.py")
    assert found == set(names)


def test_a_link_to_a_link(folder: Path) -> None:
    found = [str(path) for path in below(folder, Path("usr/lib/second"))]
    assert found == ["usr/lib/second", "usr/lib/third", "usr/lib/python/os.py"]


@pytest.mark.parametrize("missing", ["usr/bin/none", "usr/lib/broken"])
def test_what_is_not_there_is_named(folder: Path, missing: str) -> None:
    (folder / "usr/lib/broken").symlink_to("nowhere")
    with pytest.raises(SetupError, match="ENOENT"):
        list(below(folder, Path(missing)))


@pytest.mark.root
def test_libraries_of_programs_and_of_their_libraries(root: Root) -> None:
    found = {path.name for path in libraries(root, [root.path / path for path in PATHS[:2]])}
    assert {"libc.so.6", "libglib-2.0.so.0", "libpcre2-8.so.0", "libseccomp.so.2"} <= found
    assert Path(LOADER).name in found
    assert not {path.name for path in libraries(root, [root.kernel])} - {Path(LOADER).name}


@pytest.mark.root
def test_a_failed_archive_leaves_nothing(root: Root, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="Packing usr/none"):
        pack(root, tmp_path / "pack.tar.xz", ["usr/none"], {})
    with pytest.raises(SetupError, match="it is not there"):
        pack(root, tmp_path / "pack.tar.xz", [], {"bin/load": tmp_path / "load"})
    assert not list(tmp_path.iterdir())


def test_a_packed_root_has_one_kernel(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there are 0 kernels"):
        packed_root(tmp_path)
    (tmp_path / MODULES / "7.3.4").mkdir(parents=True)
    assert packed_root(tmp_path).release == "7.3.4"
    (tmp_path / MODULES / "7.4.1").mkdir()
    with pytest.raises(SetupError, match="there are 2 kernels"):
        packed_root(tmp_path)
