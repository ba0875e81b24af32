"""A source that cannot open a file for lack of descriptors never reports that the host lacks it."""

from __future__ import annotations

import errno
import pathlib
from typing import TYPE_CHECKING

import exhaustion
import pytest

from overnight import sources
from overnight.agent import signals
from overnight.sources.processes import membership, table

if TYPE_CHECKING:
    import fakehost

SIGNALS = signals.discover_signals()
ROOTS = ("fake", "real")


def poll(signal: sources.Signal | sources.FactSignal, root: pathlib.Path) -> object:
    """Return the rows, or the type or number of the error."""
    try:
        return signal.open(root)()
    except sources.NoDataError:
        return sources.NoDataError
    except OSError as error:
        return error.errno


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_a_lack_of_descriptors_is_not_an_absent_interface(
    signal: sources.Signal | sources.FactSignal, root: str, large: fakehost.FakeHost
) -> None:
    folder = large.root if root == "fake" else pathlib.Path("/")
    before = poll(signal, folder)
    with exhaustion.no_descriptors():
        during = poll(signal, folder)
    if before is not sources.NoDataError:
        assert during is not sources.NoDataError
        # What needs no new descriptor still has rows: as many as before, where the host is still.
        assert during == errno.EMFILE or root == "real" or during == before


def write_process(root: pathlib.Path, pid: int) -> None:
    fields = " ".join(["S", "1", *["0"] * 48])
    (root / f"proc/{pid}").mkdir(parents=True)
    (root / f"proc/{pid}/stat").write_text(f"{pid} (worker) {fields}\n")


def test_a_process_that_cannot_be_opened_has_not_ended(tmp_path: pathlib.Path) -> None:
    write_process(tmp_path, 7)
    processes = table.Table(tmp_path)
    processes.read()
    assert processes.states()[""][0] == 1
    write_process(tmp_path, 8)
    processes.full_scan()
    with exhaustion.no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        processes.read()
    processes.read()  # all of them, although the failed poll was to read all
    assert processes.states()[""][0] == 2
    processes.close()


def test_a_unit_that_cannot_be_read_is_not_an_unknown_one() -> None:
    with exhaustion.no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        membership.read_unit(1)
