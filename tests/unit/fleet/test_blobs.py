"""Unfinished uploads, when the disk is full or another request removes them."""

from __future__ import annotations

import contextlib
import pathlib
import resource
import signal
from collections.abc import Iterator

import pytest

from overnight.fleet import blobs
from overnight.model.control_plane import OffsetError

SHA = "ab" * 32


@contextlib.contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let no file grow beyond a size."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_of_a_piece_that_does_not_fit_on_the_disk_nothing_is_kept(
    tmp_path: pathlib.Path,
) -> None:
    store = blobs.Blobs(tmp_path)
    assert store.append("h", SHA, 0, b"12345") == 5
    with limited_files(10), pytest.raises(OSError, match="File too large"):
        store.append("h", SHA, 5, b"67890abcde")
    assert store.partial("h", SHA).read_bytes() == b"12345"
    assert store.append("h", SHA, 5, b"67890") == 10


def test_a_piece_of_an_upload_that_was_refused_meanwhile_begins_at_zero(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = blobs.Blobs(tmp_path)
    store.append("h", SHA, 0, b"12345")
    flock = blobs.fcntl.flock

    def refuse_first(file: object, how: int) -> None:
        store.discard("h", SHA)
        flock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(blobs.fcntl, "flock", refuse_first)
    with pytest.raises(OffsetError) as refused:
        store.append("h", SHA, 5, b"67890")
    assert refused.value.offset == 0
