"""Captures are read back from the store with nothing lost, added or moved."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import time

import captures
import numpy as np
import pytest

from overnight.model.selection import Selection
from overnight.queries import flame, heatmap
from overnight.store import capture, check, parquet, segments, writer

SECOND, NIGHT = captures.SECOND, captures.NIGHT
Sample = captures.Sample


def read_back(written: tuple[segments.Segment, ...]) -> collections.Counter[tuple[object, ...]]:
    """Every stored sample, with its task and stack spelled out."""
    samples: collections.Counter[tuple[object, ...]] = collections.Counter()
    for segment in written:
        rows = parquet.read(
            segment.path / "samples.parquet",
            ("time_us", "cpu", "task", "node", "event", "count", "period"),
        )
        nodes = parquet.read(segment.path / "nodes.parquet", ("frame", "up"))
        frames = parquet.read(segment.path / "frames.parquet", ("name", "module", "kind"))
        tasks = parquet.read(
            segment.path / "tasks.parquet", ("pid", "tid", "thread", "process", "unit")
        )
        assert (np.diff(rows["time_us"]) >= 0).all()
        for i in range(len(rows["node"])):
            node, path = int(rows["node"][i]), []
            while nodes["up"][node]:
                path.append(tuple(frames[n][nodes["frame"][node]] for n in frames))
                node -= int(nodes["up"][node])
            root = frames["name"][nodes["frame"][node]]
            task = tuple(tasks[n][rows["task"][i]] for n in tasks)
            assert root == (task[3] or task[2])
            samples[
                int(rows["time_us"][i]), int(rows["cpu"][i]), task, tuple(reversed(path)),
                int(rows["event"][i]), int(rows["count"][i]), int(rows["period"][i]),
            ] += 1  # fmt: skip
    return samples


def as_stored(samples: list[Sample]) -> collections.Counter[tuple[object, ...]]:
    return collections.Counter(
        (s.time_us, s.cpu, (s.pid, s.tid, s.thread, s.process, s.unit), s.path, s.event, s.count, s.period)
        for s in samples
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_every_sample_comes_back(tmp_path: pathlib.Path, seed: int) -> None:
    samples = captures.random_samples(
        seed, 200, begin=NIGHT + 7, end=NIGHT + 200 * SECOND, cores=(0, 3, -1), events=2
    )
    profile = captures.build(samples, events=("cpu-clock", "page-faults"))
    written = writer.write_capture(tmp_path, profile, segment_seconds=60)
    assert read_back(written) == as_stored(samples)
    assert check.check(segments.Catalogue(tmp_path)).problems == ()


def test_a_capture_is_split_on_the_clock(tmp_path: pathlib.Path) -> None:
    moments = (30, 119.9999999, 120, 239, 250, 370)
    profile = captures.build([Sample(NIGHT + round(at * SECOND)) for at in moments], lost=9)
    written = writer.write_capture(tmp_path, profile)
    spans = [
        ((s.begin_us * 1000 - NIGHT) / SECOND, (s.end_us * 1000 - NIGHT) / SECOND) for s in written
    ]
    assert spans == [(30, 120), (120, 240), (240, 360), (360, 370.000001)]
    assert [s.meta().samples for s in written] == [2, 2, 1, 1]
    assert [s.meta().lost for s in written] == [9, 0, 0, 0]


def test_a_piece_slightly_over_the_length_stays_whole(tmp_path: pathlib.Path) -> None:
    profile = captures.build([Sample(NIGHT), Sample(NIGHT + 179 * SECOND)])
    assert len(writer.write_capture(tmp_path, profile)) == 1


def test_losses_and_gaps_of_a_piece_without_samples_are_kept(tmp_path: pathlib.Path) -> None:
    gaps = (
        capture.Gap(NIGHT + SECOND, NIGHT + 2 * SECOND, "before all"),
        capture.Gap(NIGHT + 250 * SECOND, NIGHT + 350 * SECOND, "between"),
    )
    profile = captures.build(
        [Sample(NIGHT + 125 * SECOND), Sample(NIGHT + 500 * SECOND)], begin=NIGHT, lost=5, gaps=gaps
    )
    metas = [s.meta() for s in writer.write_capture(tmp_path, profile)]
    assert [meta.lost for meta in metas] == [5, 0]
    assert [gap[2] for meta in metas for gap in meta.gaps] == ["before all", "between"]


def test_losses_whose_time_is_known_go_to_their_segments(tmp_path: pathlib.Path) -> None:
    losses = tuple(
        capture.Loss(NIGHT + round(begin * SECOND), NIGHT + round(end * SECOND), count)
        for begin, end, count in ((1, 2, 3), (119, 120, 4), (119, 121, 5), (700, 800, 6))
    )
    profile = captures.build(
        [Sample(NIGHT + 5 * SECOND), Sample(NIGHT + 125 * SECOND), Sample(NIGHT + 500 * SECOND)],
        begin=NIGHT, lost=18, losses=losses,
    )  # fmt: skip
    metas = [segment.meta() for segment in writer.write_capture(tmp_path, profile)]
    assert [meta.lost for meta in metas] == [7, 5, 6]
    assert [len(meta.losses) for meta in metas] == [2, 1, 1]
    assert metas[1].losses == (((NIGHT + 119 * SECOND) // 1000, (NIGHT + 121 * SECOND) // 1000, 5),)


def test_a_hostile_span_is_split_quickly(tmp_path: pathlib.Path) -> None:
    profile = captures.build([Sample(0), Sample(1 << 62)])
    written = writer.write_capture(tmp_path, profile)
    assert [s.meta().samples for s in written] == [1, 1]
    assert segments.Catalogue(tmp_path).segments("alpha") == written


def test_samples_outside_the_stated_span_are_kept(tmp_path: pathlib.Path) -> None:
    samples = [Sample(NIGHT - 5), Sample(NIGHT + 300 * SECOND)]
    profile = captures.build(samples, begin=NIGHT, end=NIGHT + 200 * SECOND)
    assert read_back(writer.write_capture(tmp_path, profile)) == as_stored(samples)
    assert check.check(segments.Catalogue(tmp_path)).problems == ()


def test_the_last_sample_is_inside_its_segment(tmp_path: pathlib.Path) -> None:
    profile = captures.build([Sample(NIGHT), Sample(NIGHT + 2 * SECOND + 1)])
    source = captures.store(tmp_path, profile)
    extent = source.extent()
    assert flame.flame(source, extent).coverage.samples == 2
    on_core = flame.flame(source, extent, Selection(cores=(0,)))
    assert on_core.coverage.samples == 2  # from rows
    assert heatmap.by_core(source, extent).values[:, 0].tolist() == [1, 0, 1]
    assert heatmap.by_core(source, extent, mode="idle").values.sum() == 0


def test_the_same_capture_is_stored_once(tmp_path: pathlib.Path) -> None:
    profile = captures.build(captures.random_samples(1, 50, begin=NIGHT, end=NIGHT + 300 * SECOND))
    first = writer.write_capture(tmp_path, profile)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert writer.write_capture(tmp_path, profile) == first
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before


def test_untimed_captures_that_differ_only_in_names_are_both_stored(tmp_path: pathlib.Path) -> None:
    for name in ("parse", "write"):
        path = (captures.user(name),)
        profile = captures.build([Sample(NIGHT, path)], timed=False)
        writer.write_capture(tmp_path, profile)
    assert len(segments.Catalogue(tmp_path).segments("alpha")) == 2


def test_a_lost_race_against_the_same_capture_is_not_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = captures.build([Sample(NIGHT)])
    real = pathlib.Path.is_dir

    def is_dir_except_segments(path: pathlib.Path) -> bool:
        return real(path) and not segments.NAME.fullmatch(path.name)

    writer.write_capture(tmp_path, profile)
    monkeypatch.setattr(pathlib.Path, "is_dir", is_dir_except_segments)
    (segment,) = writer.write_capture(tmp_path, profile)
    monkeypatch.undo()
    assert [p.name for p in segment.path.parent.iterdir()] == [segment.path.name]


HOSTS = ["../../etc", "", ".", "..", "a/b", "x" * 300, "ö" * 120, "é1", "日本", "a\0b", "%", "%~", "%41",
         "%é", ".hidden", "a b\n", "\udc80", "A" * 255, "A" * 256, "\U0001f600"]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS, ids=ascii)
def test_a_hostile_host_name_stays_inside_and_maps_back(tmp_path: pathlib.Path, host: str) -> None:
    home = tmp_path / "deep" / "home"
    source = captures.store(home, captures.build([Sample(NIGHT)], host=host))
    assert source.catalogue.hosts() == (host,)
    (segment,) = source.catalogue.segments(host)
    assert segment.path.resolve().is_relative_to((home / "profiles" / "v1").resolve())
    assert segment.meta().host == host
    assert flame.flame(source, source.extent(), hosts=(host,)).coverage.samples == 1
    assert check.check(source.catalogue).problems == ()
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]


def test_host_names_do_not_share_a_folder(tmp_path: pathlib.Path) -> None:
    folders = {segments.host_folder(tmp_path, host).name.lower() for host in HOSTS}
    assert len(folders) == len(HOSTS)
    assert max(map(len, folders)) <= 255


def test_other_folders_are_not_hosts(tmp_path: pathlib.Path) -> None:
    for name in ("lost+found", "%zz", "a%", "%ff", f"abc%~{'0' * 32}"):
        (tmp_path / "profiles/v1" / name / "20261115").mkdir(parents=True)
    (tmp_path / "profiles/v1/web").mkdir()
    (tmp_path / "profiles/v1/web/README").touch()
    catalogue = segments.Catalogue(tmp_path)
    assert catalogue.hosts() == ("web",)
    assert catalogue.segments("web") == ()


NAMES = ["operator+(X, Y)", "a;b", "x\0y", "x\0", "", "</script>", "'; DROP TABLE", "\udcff!", "🦀",
         "n" * 5000, "tab\there", "NaN", "-1"]  # fmt: skip


def test_hostile_names_survive(tmp_path: pathlib.Path) -> None:
    samples = [
        Sample(NIGHT + i, (captures.user(name, name),), process=name or "p", thread=name, unit=name)
        for i, name in enumerate(NAMES)
    ]
    stored = read_back(writer.write_capture(tmp_path, captures.build(samples)))
    plain = [
        dataclasses.replace(s, path=((n, n, 0),), process=n or "p", thread=n, unit=n)
        for s in samples
        for n in [s.thread.encode("utf-8", "replace").decode()]
    ]
    assert stored == as_stored(plain)


def test_the_store_writes_after_a_lone_surrogate(tmp_path: pathlib.Path) -> None:
    source = captures.store(
        tmp_path,
        captures.build([Sample(NIGHT, (captures.user("\ud800"),))]),
        captures.build([Sample(NIGHT + SECOND)]),
    )
    assert flame.flame(source, source.extent()).coverage.samples == 2


def test_an_empty_capture(tmp_path: pathlib.Path) -> None:
    source = captures.store(tmp_path, captures.build([]))
    answer = flame.flame(source, source.extent())
    assert (answer.coverage.samples, answer.coverage.recorded_seconds) == (0, 1.0)
    assert answer.coverage.core_seconds == 2.0
    assert heatmap.by_core(source, source.extent()).values.tolist() == [[0, 0]]
    assert check.check(source.catalogue).problems == ()


def test_unknown_cores_count_but_have_no_capacity(tmp_path: pathlib.Path) -> None:
    samples = [Sample(NIGHT, cpu=-1, count=3), Sample(NIGHT + SECOND, cpu=-1)]
    source = captures.store(tmp_path, captures.build(samples, cores=()))
    result = heatmap.by_core(source, source.extent())
    assert (result.rows, result.values.tolist()) == (("-1",), [[3], [1]])
    assert (result.coverage.capacity, result.coverage.core_seconds) == (0, 0)


def test_a_core_that_the_capture_does_not_list_has_its_own_row(tmp_path: pathlib.Path) -> None:
    samples = [Sample(NIGHT, cpu=5), Sample(NIGHT, cpu=1), Sample(NIGHT, cpu=-1)]
    # A hostile number counts as unknown and takes no memory.
    samples += [Sample(NIGHT, cpu=1 << 30)]
    source = captures.store(tmp_path, captures.build(samples, cores=(0, 1)))
    result = heatmap.by_core(source, source.extent())
    assert result.rows == ("-1", "0", "1", "5")
    assert result.values.tolist() == [[2, 0, 1, 1]]


def test_counts_add_up_beyond_32_bits(tmp_path: pathlib.Path) -> None:
    most = (1 << 32) - 1
    samples = [Sample(NIGHT, count=most), Sample(NIGHT + 1, count=most)]
    source = captures.store(tmp_path, captures.build(samples))
    assert flame.flame(source, source.extent()).coverage.samples == 2 * most
    assert check.check(source.catalogue).problems == ()


def test_a_cell_of_the_sums_by_second_saturates(tmp_path: pathlib.Path) -> None:
    samples = [
        Sample(NIGHT, count=70_000),
        Sample(NIGHT, cpu=1, count=65_535),
        Sample(NIGHT + SECOND),
    ]
    source = captures.store(tmp_path, captures.build(samples))
    result = heatmap.by_core(source, source.extent())
    assert result.values.tolist() == [[65_535, 65_535], [1, 0]]
    assert check.check(source.catalogue).problems == ()


def test_events_are_never_added_up_and_periods_are_kept(tmp_path: pathlib.Path) -> None:
    samples = [Sample(NIGHT + i, event=i % 2, count=1 + i % 2, period=40 + i) for i in range(6)]
    profile = captures.build(samples, events=("cycles", "page-faults"))
    (segment,) = writer.write_capture(tmp_path, profile)
    assert segment.meta().samples == 3
    assert int(parquet.read(segment.path / "nodes.parquet", ("own",))["own"].sum()) == 3
    assert int(parquet.read(segment.path / "tasks.parquet", ("busy",))["busy"].sum()) == 3
    assert int(segment.seconds("busy", (1, 2)).sum()) == 3
    assert parquet.read(segment.path / "samples.parquet", ("period",))["period"].tolist() == [
        40, 41, 42, 43, 44, 45,
    ]  # fmt: skip
    source = captures.store(tmp_path)
    for event, expected in ((0, 3), (1, 6), (2, 0)):
        chosen = Selection(event=event)
        assert flame.flame(source, source.extent(), chosen).coverage.samples == expected


def test_sums_by_task_and_function(tmp_path: pathlib.Path) -> None:
    samples = captures.random_samples(5, 300, begin=NIGHT, end=NIGHT + 90 * SECOND)
    (segment,) = writer.write_capture(tmp_path, captures.build(samples))
    tasks = parquet.read(segment.path / "tasks.parquet", ("tid", "busy", "kernel", "idle"))
    for i, tid in enumerate(tasks["tid"].tolist()):
        task_samples = [s for s in samples if s.tid == tid]
        assert tasks["busy"][i] == sum(s.count for s in task_samples if not s.idle)
        assert tasks["kernel"][i] == sum(
            s.count for s in task_samples if not s.idle and s.in_kernel
        )
        assert tasks["idle"][i] == sum(s.count for s in task_samples if s.idle)
    frames = parquet.read(
        segment.path / "frames.parquet", ("name", "module", "kind", "own", "whole")
    )
    for i, frame in enumerate(
        zip(*(frames[n].tolist() for n in ("name", "module", "kind")), strict=True)
    ):
        if frame[2] == 2:
            continue
        busy = [s for s in samples if not s.idle and frame in s.path]
        assert frames["whole"][i] == sum(s.count for s in busy)
        assert frames["own"][i] == sum(s.count for s in busy if s.path[-1] == frame)


def test_an_untimed_profile_of_a_century_takes_little_space(tmp_path: pathlib.Path) -> None:
    profile = captures.build([Sample(NIGHT)], end=NIGHT + (1 << 61), timed=False)
    source = captures.store(tmp_path, profile)
    (segment,) = source.catalogue.segments("alpha")
    assert (segment.path / "seconds.npy").stat().st_size < 1000
    late = captures.window(NIGHT + (1 << 60), NIGHT + (1 << 60) + SECOND)
    assert source.touched(("alpha",), late) == (segment,)
    assert check.check(source.catalogue).problems == ()


def test_only_segments_that_overlap_are_touched(tmp_path: pathlib.Path) -> None:
    day = 86_400 * SECOND
    profiles = [
        captures.build([Sample(NIGHT + i * day // 2)], end=NIGHT + i * day // 2 + SECOND)
        for i in range(6)
    ]
    source = captures.store(tmp_path, *profiles)
    assert len(source.catalogue.segments("alpha")) == 6
    for i in range(6):
        begin = (NIGHT + i * day // 2) // 1000
        for low, high, expected in (
            (begin, begin + 1, 1),
            (begin - 1, begin, 0),
            (begin + 999_999, begin + 10**6, 1),
            (begin + 10**6, begin + 2 * 10**6, 0),
        ):
            assert len(source.catalogue.segments("alpha", low, high)) == expected
    assert len(source.catalogue.segments("alpha", -(10**18), 10**19)) == 6


def test_a_catalogue_lists_a_day_again_when_a_segment_came(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    list_day = segments._list_day
    monkeypatch.setattr(segments, "_list_day", lambda day: listed.append(day) or list_day(day))
    (first,) = writer.write_capture(tmp_path, captures.build([Sample(NIGHT)]))
    minute_ago = time.time() - 60
    os.utime(first.path.parent, (minute_ago, minute_ago))
    catalogue = segments.Catalogue(tmp_path)
    listed.clear()
    assert [catalogue.segments("alpha") for _ in range(3)] == [(first,)] * 3
    assert len(listed) == 1
    writer.write_capture(tmp_path, captures.build([Sample(NIGHT + SECOND)]))
    listed.clear()
    # It changed a moment ago, and may change again within the same tick of the clock.
    assert [len(catalogue.segments("alpha")) for _ in range(2)] == [2, 2]
    assert len(listed) == 2


def test_times_before_1970_are_read_back(tmp_path: pathlib.Path) -> None:
    source = captures.store(tmp_path, captures.build([Sample(-5 * SECOND), Sample(-SECOND)]))
    assert flame.flame(source, source.extent()).coverage.samples == 2


def test_an_unfinished_segment_does_not_change_the_others(tmp_path: pathlib.Path) -> None:
    source = captures.store(tmp_path, captures.build([Sample(NIGHT)]))
    (segment,) = source.catalogue.segments("alpha")
    half = segment.path.parent / ".new-abc"
    half.mkdir()
    (half / "samples.parquet").write_bytes(b"PAR1")
    assert flame.flame(source, source.extent()).coverage.samples == 1
    report = check.check(source.catalogue)
    assert (report.problems, report.unfinished) == ((), (str(half),))
    check.remove_unfinished(report)
    assert not half.exists()
    assert check.check(source.catalogue).unfinished == ()


def test_a_description_is_json_and_lists_all_files(tmp_path: pathlib.Path) -> None:
    (segment,) = writer.write_capture(tmp_path, captures.build([Sample(NIGHT)]), source="a.data")
    description = json.loads((segment.path / "segment.json").read_bytes())
    assert description["format"] == segments.FORMAT
    assert description["source"] == "a.data"
    assert set(description["files"]) | {"segment.json"} == {p.name for p in segment.path.iterdir()}
    assert segment.path.stat().st_mode & 0o777 == 0o700
