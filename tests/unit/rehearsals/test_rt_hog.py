"""Real-time priority where the kernel grants it only in the root cgroup."""

from __future__ import annotations

import os
import pathlib

import pytest

from overnight.rehearsals import rt_hog


def test_it_moves_to_the_root_cgroup_after_a_refusal(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cgroup.procs"
    root.touch()
    requested: list[int] = []

    def ask(_: int, policy: int, param: os.sched_param) -> None:
        requested.append(param.sched_priority)
        assert policy == os.SCHED_FIFO
        if not root.read_text():
            raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", ask)
    # On v1 the first path is in a tmpfs, where writing would create a file and succeed. The second cannot be
    # written, like a cgroup in a container.
    rt_hog.become_realtime(50, (tmp_path / "tmpfs", tmp_path, root))
    assert requested == [50, 50]
    assert root.read_text() == str(os.getpid())
    assert not (tmp_path / "tmpfs").exists()


def test_a_refusal_everywhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", ask)
    with pytest.raises(SystemExit, match="refuses real-time priority"):
        rt_hog.become_realtime(50, ())


def test_nothing_is_moved_when_the_priority_is_granted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    root = tmp_path / "cgroup.procs"
    rt_hog.become_realtime(50, (root,))
    assert not root.exists()
