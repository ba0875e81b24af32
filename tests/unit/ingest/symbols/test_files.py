from __future__ import annotations

import errno
import os
import pathlib

import pytest

from overnight import errors
from overnight.ingest.symbols import files

USER, STRANGER = 4001, 4002
REAL, FORGED = b"1000 10 real", b"1000 10 forged"


def add_process(root: pathlib.Path, pid: int, *, inside: int | None = None, uid: int = 0) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    # Started by a stranger, as a set-user-ID program is: only the file-system uid decides.
    ids = f"Uid:\t{STRANGER}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}"
    nested = "" if inside is None else f"\t{inside}"
    (folder / "status").write_text(f"Name:\tnode\n{ids}{nested}\nThreads:\t1\n")


def write_map(path: pathlib.Path, text: bytes, owner: int = 0, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    path.chmod(mode)
    os.chown(path, owner, owner)


def refuse_openat2(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "_openat2", refuse)


@pytest.fixture(params=[None, errno.ENOSYS, errno.EPERM], ids=["openat2", "old kernel", "seccomp"])
def live(request, tmp_path, monkeypatch) -> files.LiveFiles:
    if request.param is not None:
        refuse_openat2(monkeypatch, request.param)
    return files.LiveFiles(root=tmp_path)


@pytest.mark.needs_root
@pytest.mark.parametrize("owner", [0, USER])
def test_root_and_the_user_of_a_process_may_write_its_map(live, owner) -> None:
    add_process(live.root, 7, uid=USER)
    write_map(live.root / "tmp/perf-7.map", REAL, owner)
    assert live.perf_map(7) == REAL


@pytest.mark.needs_root
@pytest.mark.parametrize("uid", [0, USER, None], ids=["of root", "of a user", "that has ended"])
def test_a_map_that_another_user_planted_is_refused(live, uid) -> None:
    if uid is not None:
        add_process(live.root, 7, uid=uid)
    write_map(live.root / "tmp/perf-7.map", FORGED, STRANGER)
    with pytest.raises(errors.DamagedFileError, match=f"uid {STRANGER} owns it"):
        live.perf_map(7)


@pytest.mark.needs_root
def test_a_map_that_everybody_may_write_is_refused(live) -> None:
    add_process(live.root, 7)
    write_map(live.root / "tmp/perf-7.map", FORGED, mode=0o666)
    with pytest.raises(errors.DamagedFileError, match="every user may write it"):
        live.perf_map(7)


@pytest.mark.needs_root
def test_the_file_that_was_opened_is_checked_not_the_one_before(live, monkeypatch) -> None:
    add_process(live.root, 7)
    path = live.root / "tmp/perf-7.map"
    write_map(path, REAL)
    opened = files._open_in_root

    def replace_then_open(root: pathlib.Path, relative: str, flags: int) -> int:
        path.unlink()
        write_map(path, FORGED, STRANGER)
        return opened(root, relative, flags)

    monkeypatch.setattr(files, "_open_in_root", replace_then_open)
    with pytest.raises(errors.DamagedFileError):
        live.perf_map(7)


def test_links_and_pipes_in_place_of_a_map_are_refused(live) -> None:
    add_process(live.root, 7, uid=os.geteuid())
    (live.root / "tmp").mkdir()
    (live.root / "tmp/other").write_bytes(FORGED)
    link = live.root / "tmp/perf-7.map"
    link.symlink_to("other")
    assert live.perf_map(7) is None
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(errors.DamagedFileError, match="not a regular file"):
        live.perf_map(7)


def test_a_container_cannot_lead_out_of_its_root(live, elf_maker, symbol) -> None:
    add_process(live.root, 900, inside=7, uid=os.geteuid())
    inside, outside = live.root / "proc/900/root", live.root / "host"
    inside.mkdir()
    outside.mkdir()
    (outside / "perf-7.map").write_bytes(FORGED)
    (outside / "app").write_bytes(elf_maker([symbol("secret", 0x1000)]))
    for target in (outside, pathlib.Path("../../../host")):
        for name in ("tmp", "srv"):
            (inside / name).unlink(missing_ok=True)
            (inside / name).symlink_to(target)
        assert live.perf_map(900) is None
        assert live.find("/srv/app", 900) is None
    assert live.find("/../../../host/app", 900) is None


def test_an_absolute_link_in_a_container_means_its_own_root(tmp_path) -> None:
    add_process(tmp_path, 900, inside=7, uid=os.geteuid())
    inside = tmp_path / "proc/900/root"
    (inside / "var/tmp").mkdir(parents=True)
    (inside / "var/tmp/perf-7.map").write_bytes(REAL)
    (inside / "tmp").symlink_to("/var/tmp")
    assert files.LiveFiles(root=tmp_path).perf_map(900) == REAL


def test_a_pid_of_a_container_is_not_looked_up_on_the_host(live) -> None:
    add_process(live.root, 900, inside=7, uid=os.geteuid())
    (live.root / "tmp").mkdir()
    (live.root / "tmp/perf-7.map").write_bytes(FORGED)
    assert live.perf_map(900) is None
    (live.root / "tmp/perf-900.map").write_bytes(REAL)
    assert live.perf_map(900) == REAL
