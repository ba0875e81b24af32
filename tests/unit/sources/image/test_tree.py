from __future__ import annotations

import os
import pathlib
import socket

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.sources.image import tree as trees


@pytest.fixture
def image(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "outside").write_text("outside")
    root = tmp_path / "image"
    (root / "etc/deep/er").mkdir(parents=True)
    (root / "etc/file").write_text("inside")
    return root


@pytest.mark.parametrize(
    "target",
    [
        "/etc/file",
        "../" * 40 + "etc/file",
        "deep/../file",
        "./file",
        "//etc//file",
        "deep/er/../../file",
    ],
)
def test_links_are_followed_inside_the_root(image: pathlib.Path, target: str) -> None:
    (image / "etc/link").symlink_to(target)
    tree = trees.Tree(image)
    assert tree.read("/etc/link") == b"inside"
    assert tree.resolve("/etc/link") == "/etc/file"
    assert tree.link("/etc/link") == target


def test_links_do_not_lead_outside_the_root(image: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (image / "absolute").symlink_to(tmp_path / "outside")
    (image / "climbing").symlink_to("../outside")
    (image / "folder").symlink_to(tmp_path)
    tree = trees.Tree(image)
    for path in ("/absolute", "/climbing", "/folder/outside", "/../outside", "/etc/../../outside"):
        with pytest.raises(OSError):  # noqa: PT011 - the kernel chooses the error
            tree.read(path)
        assert tree.stat(path) is None


def test_a_loop_of_links_is_an_error(image: pathlib.Path) -> None:
    (image / "a").symlink_to("b")
    (image / "b").symlink_to("a")
    (image / "self").symlink_to("self/x")
    tree = trees.Tree(image)
    for path in ("/a", "/self", "/a/b/c"):
        with pytest.raises(OSError, match="symbolic links"):
            tree.read(path)
        assert tree.resolve(path) is None


def test_only_plain_files_are_opened(image: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(image / "fifo")
    tree = trees.Tree(image)
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(image)  # a socket's path may have 107 characters
        listening.bind("socket")
        for path in ("/fifo", "/etc", "/socket", "/"):
            with pytest.raises(trees.NotPlainError):
                tree.read(path)


def test_a_file_larger_than_the_limit_is_refused(image: pathlib.Path) -> None:
    (image / "huge").touch()
    os.truncate(image / "huge", 1 << 40)
    with pytest.raises(trees.TooLargeError, match="larger than 1048576 bytes"):
        trees.Tree(image).read("/huge")
    assert trees.Tree(image).line("/huge") == ""
    (image / "exact").write_bytes(b"x" * 10)
    assert trees.Tree(image).read("/exact", 10) == b"x" * 10
    with pytest.raises(trees.TooLargeError):
        trees.Tree(image).read("/exact", 9)


def test_a_folder_is_created_inside_the_root_despite_links(
    image: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (image / "etc/systemd").symlink_to(tmp_path / "elsewhere")
    tree = trees.Tree(image)
    with pytest.raises(FileNotFoundError), tree.folder("/etc/systemd/system"):
        pass
    (image / "etc/systemd").unlink()
    (image / "etc/systemd").symlink_to("/srv")
    with tree.folder("/etc/systemd/system") as opened:
        os.close(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=opened))
    assert (image / "srv/system/x").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_no_descriptor_is_left_open(image: pathlib.Path) -> None:
    tree = trees.Tree(image)
    (image / "a").symlink_to("a")
    before = len(list(pathlib.Path("/proc/self/fd").iterdir()))
    for path in ("/etc/file", "/a", "/etc/deep/../../..", "/nothing/there", "/etc/file/x"):
        tree.stat(path)
        tree.resolve(path)
        tree.line(path)
    tree.entries("/etc")
    assert len(list(pathlib.Path("/proc/self/fd").iterdir())) == before


names = st.sampled_from(["a", "b", "..", ".", "", "c"])


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    links=st.dictionaries(
        st.sampled_from(["a", "b", "d/a", "d/b"]), st.lists(names, max_size=6), max_size=4
    ),
    components=st.lists(names, max_size=6),
    absolute=st.booleans(),
)
def test_a_path_stays_inside_the_root_with_any_links(
    tmp_path_factory: pytest.TempPathFactory,
    links: dict[str, list[str]],
    components: list[str],
    absolute: bool,
) -> None:
    root = tmp_path_factory.mktemp("image")
    (root / "d").mkdir()
    (root / "c").write_text("c")
    (root / "d/c").write_text("d")
    for name, steps in links.items():
        (root / name).symlink_to(("/" if absolute else "") + "/".join(steps) or ".")
    resolved = trees.Tree(root).resolve("/" + "/".join(components))
    if resolved not in (None, "/"):
        assert ".." not in resolved.split("/")
        inside = root / resolved.lstrip("/")
        assert not inside.is_symlink()
        assert inside.parent.resolve().is_relative_to(root.resolve())
