"""Blocks, files, facts, events and gaps, as a writer stores them."""

from __future__ import annotations

import os
import pathlib
import threading

import pytest
import rings

from overnight import errors
from overnight.model.event import Event
from overnight.store.ring import blocks, check, layout, open_block, reader


def test_blocks_and_files_begin_when_they_are_due(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path, block_seconds=600)
    for second in range(0, 8000, 10):
        writer.numbers("cpu", rings.COLUMNS, rings.at(second), rings.rows_of(second))
        writer.tick(rings.at(second))
    assert rings.open_files(tmp_path)
    writer.close()
    assert rings.open_files(tmp_path) == []
    lengths = []
    for path in rings.ring_files(tmp_path):
        with path.open("rb") as file:
            file_blocks = list(blocks.blocks_of(path, file.fileno()))
        lengths.append([(b.head.end_us - b.head.begin_us) / 1e6 for b in file_blocks])
    assert lengths == [[590.0] * 6, [590.0] * 6, [590.0, 190.0]]
    assert rings.everything(reader.Reader(tmp_path)) == {
        at: v
        for at, v in rings.expected_numbers(range(8000)).items()
        if (at[0] - rings.us(0)) % 10_000_000 == 0
    }


def test_a_window_reads_only_the_files_near_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = rings.open_writer(tmp_path)
    for second in range(0, 8 * 3600, 60):
        writer.numbers("cpu", rings.COLUMNS, rings.at(second), rings.rows_of(second))
        writer.tick(rings.at(second))
    writer.close()
    opened: list[pathlib.Path] = []
    real = blocks.blocks_of
    monkeypatch.setattr(blocks, "blocks_of", lambda path, fd: opened.append(path) or real(path, fd))
    begin = rings.us(6 * 3600)
    numbers = rings.everything(reader.Reader(tmp_path), begin_us=begin, end_us=begin + 120_000_000)
    assert sorted({at for at, _, _ in numbers}) == [begin, begin + 60_000_000]
    assert len(rings.ring_files(tmp_path)) == 8
    assert len(opened) <= 3


def test_a_reader_sees_every_reading_while_the_ring_is_written(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path, block_seconds=7)
    source = reader.Reader(tmp_path)
    for second in range(40):
        rings.record(writer, range(second, second + 1))
        assert rings.everything(source) == rings.expected_numbers(range(second + 1))
    writer.close()
    assert source.problems == []


def test_a_host_has_only_one_writer(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    with pytest.raises(errors.CannotError, match="already being recorded"):
        rings.open_writer(tmp_path)
    writer.close()
    rings.open_writer(tmp_path).close()


def test_the_next_writer_packs_the_open_block(tmp_path: pathlib.Path) -> None:
    first = rings.open_writer(tmp_path)
    rings.record(first, range(30))
    first._lock = _forget(first._lock)  # as if it had been killed
    second = rings.open_writer(tmp_path)
    rings.record(second, range(30, 60))
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(60))
    second.close()
    assert rings.open_files(tmp_path) == []
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(60))
    assert check.check(tmp_path).problems == ()


def _forget(descriptor: int) -> int:
    os.close(descriptor)
    return -1


def test_a_packed_block_whose_open_block_still_exists_is_read_once(
    tmp_path: pathlib.Path,
) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(30))
    (path,) = rings.open_files(tmp_path)
    open_block = path.read_bytes()
    writer.close()
    path.write_bytes(open_block)
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(30))
    rings.open_writer(tmp_path).close()
    assert rings.open_files(tmp_path) == []
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(30))


def test_a_partial_block_is_cut_off_and_packed_again(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(30))
    (path,) = rings.open_files(tmp_path)
    open_block = path.read_bytes()
    writer.close()
    (ring,) = rings.ring_files(tmp_path)
    for kept in (10, len(ring.read_bytes()) // 2):
        whole = ring.read_bytes()
        ring.write_bytes(whole[:kept])
        path.write_bytes(open_block)
        assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(30))
        rings.open_writer(tmp_path).close()
        assert ring.read_bytes() == whole
    assert check.check(tmp_path).problems == ()


def test_facts_are_stored_when_they_change(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path, block_seconds=600)
    for second in range(0, 9000, 60):
        facts: dict[str, dict[str, object]] = {
            "a.service": {"state": "active", "restarts": second // 3000}
        }
        if second < 6000:
            facts["b.service"] = {"state": "failed"}
        writer.facts("units", rings.at(second), facts)  # type: ignore[arg-type]
        writer.numbers("cpu", rings.COLUMNS, rings.at(second), rings.rows_of(second))
        writer.tick(rings.at(second))
    for _ in range(2):
        source = reader.Reader(tmp_path)
        before = source.facts(rings.HOST, "units", rings.us(-1))
        assert (before.state, before.changes) == (None, ())
        early = source.facts(rings.HOST, "units", rings.us(2000))
        assert early.state == {
            "a.service": {"state": "active", "restarts": 0},
            "b.service": {"state": "failed"},
        }
        late = source.facts(rings.HOST, "units", rings.us(5000), rings.us(9000))
        assert [(change.time_us, change.key, change.after) for change in late.changes] == [
            (rings.us(6000), "a.service", {"state": "active", "restarts": 2}),
            (rings.us(6000), "b.service", None),
        ]
        # The later files do not depend on the first.
        path = rings.ring_files(tmp_path)[0]
        hidden = path.rename(path.with_suffix(".hidden"))
        alone = source.facts(rings.HOST, "units", rings.us(8999)).state
        assert alone == {"a.service": {"state": "active", "restarts": 2}}
        hidden.rename(path)
        writer.close()


def _event(time_us: int, **more: object) -> Event:
    return Event(time_us, **{"kind": "net.driver_reset", "id": "x", **more})  # type: ignore[arg-type]


def test_the_last_record_of_an_event_counts(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    month = 31 * 86400
    writer.event(_event(rings.us(0), id="a", text="first"))
    writer.event(_event(rings.us(0), id="a", text="second", until_us=rings.us(50), fields={"n": 1}))
    writer.event(_event(rings.us(20), id="b", kind="cpu.core_pinned", core=39))
    writer.event(_event(rings.us(3 * month), id="c"))
    source = reader.Reader(tmp_path)
    events = source.events(0, rings.EVER)
    assert [event.text for event in events] == ["second", "", ""]
    assert events[0].fields == {"n": 1}
    assert [event.id for event in source.events(rings.us(10), rings.us(30))] == ["a", "b"]
    assert [event.id for event in source.events(0, rings.EVER, kinds=["cpu."])] == ["b"]
    assert [event.id for event in source.events(0, rings.EVER, kinds=["net.driver_reset"])] == [
        "a",
        "c",
    ]
    assert source.events(0, rings.EVER, hosts=["other"]) == ()
    folder = writer.folder
    assert len(list(folder.glob("events-*.jsonl"))) == 2
    with next(iter(sorted(folder.glob("events-*.jsonl")))).open("ab") as file:
        file.write(b'{"time_us": "soon"}\n\xff\xfe{[\n{"time_us": 5')  # cut off
    writer.event(_event(rings.us(21), id="d"))
    assert [event.id for event in source.events(0, rings.us(40))] == ["a", "b", "d"]
    assert len(source.problems) == 3
    writer.close()


def test_gaps(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    writer.note_gap(rings.us(10), rings.us(20), "the agent was stopped")
    writer.close()
    source = reader.Reader(tmp_path)
    gap = reader.Gap(rings.us(10), rings.us(20), "the agent was stopped")
    assert source.gaps(rings.HOST) == (gap,)
    assert source.gaps(rings.HOST, rings.us(19), rings.us(90)) == (gap,)
    assert source.gaps(rings.HOST, rings.us(21), rings.us(90)) == ()
    assert source.gaps("nobody") == ()


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "signals").write_text("a file")
    with pytest.raises(errors.MissingPermissionError):
        rings.open_writer(tmp_path)


def test_an_open_block_without_readings_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """The writer was killed right after it began the block."""
    rings.open_writer(tmp_path).close()
    path = layout.host_folder(tmp_path, rings.HOST) / f"{rings.BEGIN_US}-1a2b3c4d.open"
    for left in (b"", open_block.head_record(rings.HOST, rings.BOOT, rings.BEGIN_US, full=True)):
        path.write_bytes(left)
        assert check.check(tmp_path).problems == ()
        assert reader.Reader(tmp_path).extent(rings.HOST) is None
        rings.open_writer(tmp_path).close()
        assert not path.exists()
        assert rings.ring_files(tmp_path) == []


def test_an_open_block_is_deleted_only_after_its_packed_block_is_synced(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(30))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        writer.close()
    assert len(rings.open_files(tmp_path)) == len(rings.ring_files(tmp_path)) == 1
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(30))
    rings.open_writer(tmp_path).close()
    assert rings.open_files(tmp_path) == []
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(30))


def test_blocks_are_packed_when_no_thread_can_be_started(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    writer = rings.open_writer(tmp_path, block_seconds=10)
    rings.record(writer, range(30))
    writer.close()
    assert rings.open_files(tmp_path) == []
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(30))
