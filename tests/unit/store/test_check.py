"""Every kind of damage is found and reported."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
from collections.abc import Callable

import captures
import numpy as np
import pytest
import rings

from overnight import errors
from overnight.model.selection import Selection, Window
from overnight.queries import diff, flame, heatmap, reader, top, view
from overnight.store import check, parquet, parquet_writer, segments

NIGHT, SECOND = captures.NIGHT, captures.SECOND
FILES = ("samples.parquet", "nodes.parquet", "frames.parquet", "tasks.parquet", "seconds.npy")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    home = tmp_path_factory.mktemp("pristine")
    samples = captures.random_samples(1, 200, begin=NIGHT, end=NIGHT + 20 * SECOND)
    captures.store(home, captures.build(samples))
    return home


@pytest.fixture
def home(pristine: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(pristine, tmp_path / "home")
    return tmp_path / "home"


def segment_of(home: pathlib.Path) -> segments.Segment:
    (segment,) = segments.Catalogue(home).segments("alpha")
    return segment


def find_problems(home: pathlib.Path) -> tuple[check.Problem, ...]:
    problems = check.check(segments.Catalogue(home)).problems
    assert all(problem.todo and problem.path.startswith(str(home)) for problem in problems)
    return problems


def ask_everything(home: pathlib.Path) -> None:
    """Run every query; each must answer or raise an OvernightError."""
    whole = Window(NIGHT // 1000, (NIGHT + 20 * SECOND) // 1000)
    part = Window(NIGHT // 1000 + 1, (NIGHT + 9 * SECOND) // 1000)
    filtered = Selection(process="n", function="a")
    questions: tuple[Callable[[reader.Reader], object], ...] = (
        lambda source: flame.flame(source, whole),
        lambda source: flame.flame(source, part, reverse=True),
        lambda source: heatmap.by_core(source, whole),
        lambda source: heatmap.by_offset(source, part, filtered),
        lambda source: top.top(source, whole, kind="threads"),
        lambda source: diff.diff(source, whole, part),
        lambda source: view.view(source, whole, "alpha"),
    )
    for question in questions:
        with contextlib.suppress(errors.OvernightError):
            question(reader.Reader(segments.Catalogue(home)))


def test_a_clean_store_has_no_problem(home: pathlib.Path) -> None:
    progress: list[tuple[int, int]] = []
    report = check.check(segments.Catalogue(home), lambda done, all_: progress.append((done, all_)))
    assert (report.problems, report.unfinished, report.segments) == ((), (), 1)
    assert report.samples == segment_of(home).meta().samples
    assert report.bytes == sum((segment_of(home).path / name).stat().st_size for name in FILES)
    assert progress == [(0, 1)]
    assert report.as_json()["schema"] == "overnight.store-check/1"


def test_a_missing_store_has_no_problem(tmp_path: pathlib.Path) -> None:
    assert check.check(segments.Catalogue(tmp_path)) == check.Report(0, 0, 0, (), ())


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found(home: pathlib.Path, name: str) -> None:
    path = segment_of(home).path / name
    good = path.read_bytes()
    chance = random.Random(name)
    for _ in range(8):
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        problems = find_problems(home)
        assert (str(path), "has changed since it was written") in [
            (problem.path, problem.what) for problem in problems
        ]
        ask_everything(home)


def test_a_flipped_bit_of_the_description_is_found(home: pathlib.Path) -> None:
    path = segment_of(home).path / "segment.json"
    good = path.read_bytes()
    meant = json.loads(good)
    chance = random.Random(2)
    for _ in range(40):
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        try:
            harmless = json.loads(bytes(bad)) == meant  # one kind of space replaced by another
        except ValueError:
            harmless = False
        assert bool(find_problems(home)) != harmless
        ask_everything(home)


@pytest.mark.parametrize("name", [*FILES, "segment.json"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_file_cut_short_is_found(home: pathlib.Path, name: str, kept: float) -> None:
    path = segment_of(home).path / name
    good = path.read_bytes()
    path.write_bytes(good[: int(len(good) * kept)])
    assert any(name in problem.path or name in problem.what for problem in find_problems(home))
    ask_everything(home)


@pytest.mark.parametrize("name", [*FILES, "segment.json"])
def test_a_missing_file_is_named(home: pathlib.Path, name: str) -> None:
    (segment_of(home).path / name).unlink()
    assert any(name in problem.path or name in problem.what for problem in find_problems(home))
    ask_everything(home)


def rewrite(home: pathlib.Path, name: str = "", change: object = None, **fields: object) -> None:
    """Change a file and all checksums, so that only the content shows the change."""
    segment = segment_of(home)
    if name:
        path = segment.path / name
        columns = parquet.query(f"SELECT * FROM {parquet.table(path)}")
        change(columns)  # type: ignore[operator]
        path.unlink()
        parquet_writer.write(path, columns)
    meta = segment.meta()
    files = dict(meta.files)
    for file in FILES:
        data = (segment.path / file).read_bytes()
        files[file] = (len(data), hashlib.blake2b(data, digest_size=16).hexdigest())
    description = dataclasses.replace(meta, files=files, **fields).as_json()  # type: ignore[arg-type]
    (segment.path / "segment.json").write_text(json.dumps(description))


def setting(column: str, place: int, value: int) -> Callable[[parquet.Columns], None]:
    def change(columns: parquet.Columns) -> None:
        columns[column] = columns[column].copy()
        columns[column][place] = value

    return change


CONTRADICTIONS = {
    "node": ("samples.parquet", setting("node", 3, 10**6), "missing stack"),
    "task": ("samples.parquet", setting("task", 3, 10**6), "missing task"),
    "count": ("samples.parquet", setting("count", 3, 10**6), "samples instead of"),
    "order": ("samples.parquet", setting("time_us", 0, NIGHT // 1000 + 10**7), "not ordered by time"),
    "time": ("samples.parquet", setting("time_us", -1, NIGHT // 1000 + 10**9), "outside of the time"),
    "frame": ("nodes.parquet", setting("frame", 0, 10**6), "missing function"),
    "up": ("nodes.parquet", setting("up", 1, 10**6), "a stack has no root"),
    "size": ("nodes.parquet", setting("size", 0, 10**6), "a stack has no root"),
    "own": ("nodes.parquet", setting("own", 0, 10**6), "sums and samples differ"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_files_that_contradict_each_other_are_found(home: pathlib.Path, kind: str) -> None:
    name, change, what = CONTRADICTIONS[kind]
    rewrite(home, name, change)
    assert any(what in problem.what for problem in find_problems(home))
    ask_everything(home)


def test_wrong_counts_in_the_description_are_found(home: pathlib.Path) -> None:
    samples = segment_of(home).meta().samples
    rewrite(home, samples=samples + 1)
    assert f"has {samples} samples instead of {samples + 1}" in {
        p.what for p in find_problems(home)
    }


def test_a_description_of_another_segment_is_found(home: pathlib.Path) -> None:
    rewrite(home, begin_us=5)
    assert "belongs to another segment" in "".join(p.what for p in find_problems(home))
    ask_everything(home)


def test_incomplete_sums_by_second_are_found(home: pathlib.Path) -> None:
    path = segment_of(home).path / "seconds.npy"
    plane = np.load(path)
    plane[0] = 0
    np.save(path, plane)
    rewrite(home)
    assert [p.what for p in find_problems(home)] == ["sums by second and samples differ"]


def test_a_description_that_leaves_files_out_is_found(home: pathlib.Path) -> None:
    segment = segment_of(home)
    description = json.loads((segment.path / "segment.json").read_bytes())
    del description["files"]["nodes.parquet"]
    description["digest"] = segments.description_digest(description)
    (segment.path / "segment.json").write_text(json.dumps(description))
    assert "is incomplete" in [p.what for p in find_problems(home)]


def test_a_segment_of_a_newer_overnight_is_reported_and_not_read(home: pathlib.Path) -> None:
    path = segment_of(home).path / "segment.json"
    path.write_text(json.dumps({"format": "overnight.segment/2"}))
    (problem,) = find_problems(home)
    assert "overnight.segment/2" in problem.what
    assert "newer" in problem.todo
    ask_everything(home)


HOSTILE = ["", "[]", "3", "null", '"x"', "{", "[" * 100_000, '{"format": []}',
           '{"format": "overnight.segment/1"}', "\ufeff{}", "NaN"]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_descriptions(home: pathlib.Path, text: str) -> None:
    (segment_of(home).path / "segment.json").write_text(text)
    assert len(find_problems(home)) == 1
    ask_everything(home)


@pytest.mark.parametrize(
    ("field", "value"),
    [("cores", 3), ("cores", ["x"]), ("cores", [0, 40_000]), ("cores", [0, -7]), ("cores", list(range(10**5))), ("gaps", [[1]]), ("files", []),
     ("samples", "many"), ("end_us", 10**18), ("frequency", None), ("begin_us", -(10**18)),
     ("events", None), ("timed", "no")],
)  # fmt: skip
def test_hostile_fields(home: pathlib.Path, field: str, value: object) -> None:
    path = segment_of(home).path / "segment.json"
    description = {**json.loads(path.read_bytes()), field: value}
    path.write_text(json.dumps({**description, "digest": segments.description_digest(description)}))
    if field != "timed":
        assert find_problems(home)
    ask_everything(home)


def test_damage_in_one_segment_does_not_hide_damage_in_another(home: pathlib.Path) -> None:
    captures.store(home, captures.build([captures.Sample(NIGHT + 60 * SECOND)]))
    for segment in segments.Catalogue(home).segments("alpha"):
        (segment.path / "seconds.npy").write_bytes(b"")
    assert (
        len({pathlib.Path(p.path).name for p in find_problems(home) if p.path.endswith(".npy")})
        == 1
    )
    assert len({p.path for p in find_problems(home) if p.path.endswith(".npy")}) == 2


def test_a_segment_that_is_being_written_is_not_unfinished(tmp_path: pathlib.Path) -> None:
    """A live writer's folder is locked; one without a lock was left by a writer that died."""
    folder = tmp_path / "profiles" / segments.VERSION / "host/20261115"
    alive, dead = folder / ".new-alive", folder / ".new-dead"
    alive.mkdir(parents=True)
    dead.mkdir()
    descriptor = os.open(alive, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        report = check.check(segments.Catalogue(tmp_path))
        check.remove_unfinished(report)
    finally:
        os.close(descriptor)
    assert report.unfinished == (str(dead),)
    assert alive.is_dir()
    assert not dead.exists()


def test_signals_are_checked_too(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(50))
    writer.close()
    report = check.check(segments.Catalogue(tmp_path))
    assert (report.blocks, report.looks, report.problems) == (1, 50, ())
    (path,) = rings.ring_files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (problem,) = check.check(segments.Catalogue(tmp_path)).problems
    assert problem.path == str(path)
    assert "changed since it was written" in problem.what
