"""How the real-time process gets its priority, where the kernel gives it to the root cgroup alone."""

from __future__ import annotations

import os
import pathlib

import pytest

from overnight.rehearsals import rt_hog


def test_it_goes_to_the_root_cgroup_where_it_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cgroup.procs"
    root.touch()
    asked: list[int] = []

    def ask(_: int, policy: int, param: os.sched_param) -> None:
        asked.append(param.sched_priority)
        assert policy == os.SCHED_FIFO
        if not root.read_text():
            raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", ask)
    # On v1 the first path is in a tmpfs, where writing would create a file and succeed.
    rt_hog.become_realtime(50, (tmp_path / "tmpfs", root))
    assert asked == [50, 50]
    assert root.read_text() == str(os.getpid())
    assert not (tmp_path / "tmpfs").exists()


def test_it_says_so_where_it_is_refused_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", ask)
    with pytest.raises(SystemExit, match="refuses real-time priority"):
        rt_hog.become_realtime(50, ())


def test_where_it_is_given_nothing_is_moved(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    root = tmp_path / "cgroup.procs"
    rt_hog.become_realtime(50, (root,))
    assert not root.exists()
