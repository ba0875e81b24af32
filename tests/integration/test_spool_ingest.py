"""Raw segments are ingested; bad ones are reported and stay; budget and pins are respected."""

from __future__ import annotations

import gzip
import os
import pathlib
import shutil
import threading

import pytest

from overnight.agent import profiler as agent
from overnight.agent import spool
from overnight.app import spool_ingest, spool_paths
from overnight.interfaces import cli
from overnight.model.pins import Pin
from overnight.sources import perf
from overnight.store import segments

pytestmark = [pytest.mark.needs_root]
HOST = perf.read_identity().host


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A spool with three raw segments of this host."""
    home = tmp_path_factory.mktemp("recorded")
    folder = spool_paths.spool_folder(home)
    folder.mkdir()
    agent.run(
        agent.ProfilerOptions(folder, recorder="native", seconds=3.2, segment_seconds=1.0),
        threading.Event(),
    )
    return home


@pytest.fixture
def home(recorded: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(recorded, tmp_path / "home"))


def test_pending_segments_are_ingested_once(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = spool_ingest.find_pending(spool_paths.spool_folder(home))
    assert len(raw) >= 3
    assert cli.main(["--home", str(home), "store", "ingest"]) == 0
    assert "nothing left to ingest" in capsys.readouterr().out
    stored = segments.Catalogue(home).segments(HOST)
    assert len(stored) == len(raw)
    assert spool_ingest.find_pending(spool_paths.spool_folder(home)) == ()
    # A second ingest finds them already stored.
    (spool_paths.spool_folder(home) / spool_ingest.DONE).unlink()
    assert cli.main(["--home", str(home), "store", "ingest"]) == 0
    assert segments.Catalogue(home).segments(HOST) == stored


def test_a_bad_segment_is_reported_and_stays_and_the_others_are_ingested(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = spool_paths.spool_folder(home)
    first, second, *_ = spool_ingest.find_pending(folder)
    first.write_bytes(b"PERFILE2 and then nothing that makes sense" * 10)
    assert cli.main(["--home", str(home), "store", "ingest"]) == 1
    assert first.name in capsys.readouterr().out
    assert spool_ingest.find_pending(folder) == (first,)
    begins = [segment.begin_us for segment in segments.Catalogue(home).segments(HOST)]
    name = perf.parse_segment_name(second.name)
    assert name is not None
    assert name.start_ns // 1000 in begins


def test_gaps_are_stored_with_the_next_segment(home: pathlib.Path) -> None:
    folder = spool_paths.spool_folder(home)
    name = perf.parse_segment_name(spool_ingest.find_pending(folder)[1].name)
    assert name is not None
    gap = perf.Gap(name.start_ns - 300_000_000, name.start_ns - 100_000_000, "perf died")
    spool.Journal(folder / "gaps.jsonl").add(gap)
    assert list(spool_ingest.Ingester(home, 1 << 40, 0).run()) == []
    reasons = [
        why
        for segment in segments.Catalogue(home).segments(HOST)
        for _, _, why in segment.meta().gaps
    ]
    assert "perf died" in reasons


def test_over_budget_the_oldest_are_deleted_and_pins_stay(home: pathlib.Path) -> None:
    folder = spool_paths.spool_folder(home)
    raw = spool_ingest.find_pending(folder)
    pinned = perf.parse_segment_name(raw[1].name)
    assert pinned is not None
    store = spool.Spool(folder, 0, 0)
    store.pins.pin(
        Pin("event-1", pinned.start_ns + 400_000_000, pinned.start_ns + 500_000_000, "reset")
    )
    assert list(spool_ingest.Ingester(home, 1, keep_seconds=0.0).run()) == []
    stored = segments.Catalogue(home).segments(HOST)
    assert pinned.start_ns // 1000 in [segment.begin_us for segment in stored]
    assert len(stored) < len(raw)
    assert raw[1].exists()


def test_kernel_symbols_count_against_the_budget(home: pathlib.Path) -> None:
    folder, boot = spool_paths.spool_folder(home), perf.read_identity().boot
    symbols = spool_paths.kallsyms_file(folder, boot)
    symbols.touch()
    os.truncate(symbols, 100 << 20)
    assert list(spool_ingest.Ingester(home, 100 << 20, keep_seconds=0.0).run()) == []
    assert spool.Spool(folder, 0, 0).segments() == ()
    assert segments.Catalogue(home).segments(HOST) == ()
    assert symbols.exists()


def test_kernel_symbols_are_kept_as_long_as_segments_of_their_boot(home: pathlib.Path) -> None:
    folder, boot = spool_paths.spool_folder(home), perf.read_identity().boot
    first = spool_ingest.find_pending(folder)[0]
    first.rename(first.with_name(first.name.replace(boot[:8], "0123abcd")))
    needed, stale = (spool_paths.kallsyms_file(folder, name) for name in ("0123abcd", "89abcdef"))
    for path in (needed, stale):
        path.write_bytes(gzip.compress(b"ffffffff81000000 T _text\n"))
    assert list(spool_ingest.Ingester(home, 1 << 40, 0).run()) == []
    assert needed.exists()
    assert not stale.exists()


def test_the_last_hours_stay_with_any_budget(home: pathlib.Path) -> None:
    raw = spool_ingest.find_pending(spool_paths.spool_folder(home))
    assert list(spool_ingest.Ingester(home, 1, keep_seconds=3600.0).run()) == []
    assert all(path.exists() for path in raw)
    assert len(segments.Catalogue(home).segments(HOST)) == len(raw)


def test_kernel_names_of_an_earlier_boot_come_from_its_own_kallsyms(home: pathlib.Path) -> None:
    """After a reboot the kernel is at other addresses: symbols of this boot would be wrong."""
    folder = spool_paths.spool_folder(home)
    for path in spool_ingest.find_pending(folder):
        path.rename(path.with_name(path.name.replace(perf.read_identity().boot[:8], "0123abcd")))
    assert list(spool_ingest.Ingester(home, 1 << 40, 0).run()) == []
    (segment, *_) = segments.Catalogue(home).segments(HOST)
    assert any("kallsyms" in note for note in segment.meta().notes)
