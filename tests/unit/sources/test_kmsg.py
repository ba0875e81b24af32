from __future__ import annotations

import errno
import os
import pathlib

import pytest

from overnight.sources import kmsg


def test_no_device(tmp_path: pathlib.Path) -> None:
    error = kmsg.try_kmsg(tmp_path)
    assert error is not None
    assert error.errno == errno.ENOENT


def test_an_empty_log_is_readable(tmp_path: pathlib.Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    assert kmsg.try_kmsg(tmp_path) is None


@pytest.mark.needs_root
def test_the_log_of_this_host() -> None:
    assert kmsg.try_kmsg() is None
