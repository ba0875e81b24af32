"""A bundle answers queries like the home it was created from, and has no secrets."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import TYPE_CHECKING

import nights
import pytest

import scenarios
from overnight import errors
from overnight.app import bundles, events
from overnight.model.instrument import Reading
from overnight.model.selection import Window
from overnight.queries import case, signals, top
from overnight.store import check, loads, readings, segments
from overnight.store.bundle import header
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model.event import Event

RESET = nights.RESET_S


@dataclasses.dataclass(frozen=True)
class Pair:
    """A home, the bundle of its last reset, and the home of the opened bundle."""

    home: pathlib.Path
    file: pathlib.Path
    opened: pathlib.Path
    event: Event
    bundle: bundles.Bundle


def make_pair(folder: pathlib.Path, planted: nights.Secrets | None = None) -> Pair:
    event = nights.build(folder / "home", planted)
    bundle = bundles.create(folder / "home", event, folder / "reset.overnight", now_us=7)
    bundles.open_into(bundle.file, folder / "opened")
    return Pair(folder / "home", bundle.file, folder / "opened", event, bundle)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


def window(begin: float, end: float) -> Window:
    return Window(nights.us(begin), nights.us(end))


def make_windows(event: Event, home: pathlib.Path) -> dict[str, Window]:
    incident = case.Case(home, event)
    return {
        "event": incident.window,
        "baseline": incident.baseline,
        "all of it": window(RESET - 900, RESET + 120),
        "a second": window(RESET - 3.2, RESET - 2.1),
    }


@pytest.mark.parametrize("which", ["event", "baseline", "all of it", "a second"])
def test_queries_of_the_windows_are_the_same(pair: Pair, which: str) -> None:
    span = make_windows(pair.event, pair.home)[which]
    answers = []
    for home in (pair.home, pair.opened):
        incident = case.Case(home, pair.event)
        cores = incident.cores(span)
        assert len(cores.begin_us) >= 2
        answers.append(
            nights.plain(
                {
                    "cores": cores,
                    "rates": signals.counter_rate(incident.ring, incident.host, "processes", span),
                    "births": signals.counter_rate(
                        incident.ring, incident.host, "cgroup-births", span
                    ),
                    "events": incident.events(span),
                    "gaps": incident.ring.gaps(incident.host, span.begin_us, span.end_us),
                    "signals": incident.ring.signals(incident.host, span.begin_us, span.end_us),
                    "processes": incident.top(span),
                    "functions": rank(incident, span, "functions"),
                    "units": rank(incident, span, "units"),
                    "flame": incident.flame(span),
                    "diff": incident.diff(span, incident.baseline),
                }
            )
        )
    assert answers[0] == answers[1]


def rank(incident: case.Case, span: Window, kind: str) -> top.Top:
    return top.top(incident.profiles, span, hosts=(incident.host,), kind=kind)


@pytest.mark.parametrize("host", [nights.HOST, nights.OTHER])
def test_the_history_covers_all_stored_time(pair: Pair, host: str) -> None:
    """Also across a reboot, and for hosts without an event."""
    answers = []
    for home in (pair.home, pair.opened):
        source = reader.Reader(home)
        census = [
            frame.series("", column)
            for frame in source.numbers(host, "memory-cgroups", 0, nights.EVER)
            for column in frame.columns
        ]
        numbers = sorted((t, n) for times, some in census for t, n in zip(times, some, strict=True))
        births = signals.counter_rate(source, host, "cgroup-births", window(0, nights.END_S))
        facts = {
            f"{name} {second}": source.facts(host, name, nights.us(second), nights.us(second + 700))
            for name in ("host", "nic-queues")
            for second in range(5, nights.END_S, 333)
        }
        history = (numbers, births.values, births.begin_us, facts, source.events(0, nights.EVER))
        assert source.problems == []
        answers.append(nights.plain(history))
    assert len(answers[0][0]) == 2 * nights.END_S // 60
    assert answers[0] == answers[1]


def test_an_opened_bundle_is_a_valid_data_home(pair: Pair) -> None:
    report = check.check(segments.Catalogue(pair.opened))
    assert report.problems == ()
    assert report.segments > 5
    assert reader.Reader(pair.opened).pins(nights.HOST) == reader.Reader(pair.home).pins(
        nights.HOST
    )


def test_seconds_outside_the_windows_are_left_out(pair: Pair) -> None:
    outside = window(4600, 4700)
    incident = case.Case(pair.opened, pair.event)
    assert incident.cores(outside).coverage.covered_seconds == 0
    assert not incident.has_profile(window(5400, 5600))
    assert header.parse_header((pair.opened / "bundle.json").read_bytes()) == pair.bundle.header


@pytest.mark.parametrize("host", [nights.HOST, nights.OTHER])
def test_the_watched_time_of_a_host_is_the_same(pair: Pair, host: str) -> None:
    """Exposure counts all watched time, also time whose data is not in the bundle."""
    original, opened = (reader.Reader(home) for home in (pair.home, pair.opened))
    assert original.extent(host) == opened.extent(host)
    assert original.gaps(host) == opened.gaps(host)


def test_segments_without_secrets_are_copied_byte_for_byte(pair: Pair) -> None:
    for segment in segments.Catalogue(pair.opened).segments(nights.HOST):
        for file in segment.path.iterdir():
            original = pair.home / segment.path.relative_to(pair.opened) / file.name
            assert file.read_bytes() == original.read_bytes()


def test_the_snapshots_before_and_after_the_event_are_included(pair: Pair) -> None:
    names = sorted(path.name for path in (pair.opened / "snapshots").rglob("*.json"))
    assert names == [f"{nights.us(4000)}.json", f"{nights.us(7100)}.json"]


def test_the_same_home_gives_the_same_bytes(pair: Pair, tmp_path: pathlib.Path) -> None:
    again = bundles.create(pair.home, pair.event, tmp_path / "again", now_us=7)
    assert again.file.read_bytes() == pair.file.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def test_a_masked_home_gives_the_same_bytes(secret: Pair, tmp_path: pathlib.Path) -> None:
    again = bundles.create(secret.home, secret.event, tmp_path / "again", now_us=7)
    assert again.file.read_bytes() == secret.file.read_bytes()


def test_only_the_creation_time_differs(pair: Pair, tmp_path: pathlib.Path) -> None:
    later = bundles.create(pair.home, pair.event, tmp_path / "later", now_us=8)
    assert dataclasses.replace(later.header, created_us=7) == pair.bundle.header
    assert later.bytes == pair.bundle.bytes


def test_a_bundle_of_a_bundle_has_the_same_evidence(pair: Pair, tmp_path: pathlib.Path) -> None:
    again = bundles.create(pair.opened, pair.event, tmp_path / "again", now_us=7)
    with bundles.open_temporarily(again.file) as twice:
        assert twice.home is not None
        first, second = (case.Case(home, pair.event) for home in (pair.opened, twice.home))
        assert nights.plain(first.cores(first.window)) == nights.plain(second.cores(second.window))
        assert nights.plain(first.flame(first.window)) == nights.plain(second.flame(second.window))


def test_size_grows_with_the_window(pair: Pair, tmp_path: pathlib.Path) -> None:
    short = bundles.create(pair.home, pair.event, tmp_path / "short", before_s=60, after_s=10)
    assert short.bytes < pair.bundle.bytes / 2
    (span,) = short.header.windows
    assert span.end_us - span.begin_us == 70 * nights.SECOND_US


def test_all_recurrences_include_their_windows(pair: Pair, tmp_path: pathlib.Path) -> None:
    assert pair.bundle.header.left_out == 1
    assert any("--all-recurrences" in note for note in pair.bundle.header.notes)
    bundle = bundles.create(pair.home, pair.event, tmp_path / "all", all_recurrences=True)
    assert (bundle.header.recurrences, bundle.header.left_out) == (1, 0)
    assert [(span.begin_us, span.end_us) for span in bundle.header.windows] == [
        (nights.us(second - 900), nights.us(second + 120)) for second in (nights.EARLIER_S, RESET)
    ]


TOKEN = "ghp_A1b2C3d4E5f6G7h8J9k0"
PLANTED = nights.Secrets(
    process=f"run {TOKEN}p",
    thread=f"t {TOKEN}t",
    unit=f"job@{TOKEN}u.service",
    cgroup=f"/system.slice/job-{TOKEN}c.service",
    text="fetch: password=Hunter2Text from https://me:Hunter2Url@example.org/ failed",
    field="token=Hunter2Field",
    fact=f"image-{TOKEN}f",
    gap="disk of db.password=Hunter2Gap was full",
    pin="ask --token Hunter2Pin",
    note="perf --api-key Hunter2Note",
    function=f"call_{TOKEN}n",
    snapshot="secret=Hunter2Snap",
)


@pytest.fixture(scope="session")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("secret"), PLANTED)


def test_no_secret_is_in_a_bundle(secret: Pair) -> None:
    text = nights.read_texts(secret.opened)
    for needle in ("Hunter2", "ghp_", "A1b2C3d4"):
        assert needle not in text
        assert needle.encode() not in secret.file.read_bytes()
        assert needle not in str(secret.bundle.as_json())


def test_every_planted_secret_is_in_the_home(secret: Pair) -> None:
    """Without the scrubber, the test above fails: the home has every planted secret."""
    text = nights.read_texts(secret.home)
    for value in dataclasses.astuple(PLANTED):
        assert value in text, value


def test_masked_values_are_counted(secret: Pair, pair: Pair) -> None:
    assert pair.bundle.header.masked == {}
    assert secret.bundle.header.masked == {
        "event fields": 1,
        "event texts": 1,
        "facts": 2,
        "function names": 1,
        "gaps": 1,
        "keys of signals": 2,
        "notes of segments": 1,
        "pins": 1,
        "process names": 1,
        "snapshots": 1,
        "thread names": 1,
        "unit names": 1,
    }


def test_a_masked_bundle_is_valid_and_has_the_same_numbers(secret: Pair) -> None:
    assert check.check(segments.Catalogue(secret.opened)).problems == ()
    original, opened = (case.Case(home, secret.event) for home in (secret.home, secret.opened))
    span = original.window
    assert nights.plain(original.cores(span)) == nights.plain(opened.cores(span))
    for kind in ("processes", "threads", "units", "functions"):
        rows = [
            [dataclasses.replace(row, name="") for row in rank(incident, span, kind).rows]
            for incident in (original, opened)
        ]
        assert rows[0] == rows[1]
    (event,) = opened.events(span)
    # The same name has the same mask everywhere.
    assert rank(opened, span, "units").rows[0].name == event.unit
    assert opened.top(span).rows[0].name == event.process


def test_the_store_is_not_changed(secret: Pair, tmp_path: pathlib.Path) -> None:
    """Segments are linked, not copied, where that is possible: masking writes new files."""
    shutil.copytree(secret.home, tmp_path / "home")
    before = {p: p.read_bytes() for p in (tmp_path / "home").rglob("*") if p.is_file()}
    bundles.create(tmp_path / "home", secret.event, tmp_path / "home" / "x.overnight")
    (tmp_path / "home" / "x.overnight").unlink()
    assert {p: p.read_bytes() for p in (tmp_path / "home").rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", ["samples.parquet", "tasks.parquet", "seconds.npy"])
def test_a_damaged_segment_is_left_out_and_noted(
    pair: Pair, tmp_path: pathlib.Path, name: str
) -> None:
    shutil.copytree(pair.home, tmp_path / "home")
    damaged = segments.Catalogue(tmp_path / "home").segments(
        nights.HOST, nights.us(RESET - 30), nights.us(RESET)
    )
    data = bytearray((damaged[0].path / name).read_bytes())
    data[len(data) // 2] ^= 1  # as long as before
    (damaged[0].path / name).unlink()
    (damaged[0].path / name).write_bytes(data)
    bundle = bundles.create(tmp_path / "home", pair.event, tmp_path / "x")
    (note,) = (note for note in bundle.header.notes if damaged[0].path.name in note)
    lost = f"120 s with about {damaged[0].meta().samples:,} samples"
    assert f"{lost}: {name} has changed since it was written" in note
    with bundles.open_temporarily(bundle.file) as opened:
        assert opened.home is not None
        assert check.check(segments.Catalogue(opened.home)).problems == ()


def test_an_unwritable_target_is_an_error_and_leaves_nothing(
    pair: Pair, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(errors.CannotError, match="cannot be written"):
        bundles.create(pair.home, pair.event, tmp_path / "absent" / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(errors.CannotError, match="cannot be written"):
        bundles.create(pair.home, pair.event, tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_unknown_event_is_an_error(pair: Pair) -> None:
    assert events.find_event(pair.home, pair.event.id) == pair.event
    for absent in ("net.driver_reset-ffffffff", ""):
        with pytest.raises(errors.CannotError, match="no event"):
            events.find_event(pair.home, absent)


def test_a_simulated_night_has_the_same_evidence(tmp_path: pathlib.Path) -> None:
    """With every signal that the agent records, facts and folded events."""
    truth = scenarios.build("reference", tmp_path / "home", seed=5, cores=4, minutes=20.0)
    assert truth.event is not None
    bundle = bundles.create(truth.home, truth.event, tmp_path / "x", all_recurrences=True)
    with bundles.open_temporarily(bundle.file) as opened:
        assert opened.home is not None
        cases = [case.Case(home, truth.event) for home in (truth.home, opened.home)]
        for span in (cases[0].window, cases[0].baseline):
            # The blocks of the small ring are larger, so more signals touch a window, without numbers in it.
            recorded = [
                incident.ring.signals(incident.host, span.begin_us, span.end_us)
                for incident in cases
            ]
            assert len(recorded[0]) > 12
            for signal in {**recorded[0], **recorded[1]}:
                numbers = [_numbers(incident, signal, span) for incident in cases]
                assert numbers[0] == numbers[1]
        assert cases[0].recurrences == cases[1].recurrences
        for name in ("host", "nic-queues", "units"):
            at = truth.event.time_us
            original, copied = (
                incident.ring.facts(incident.host, name, at - 10**8, at) for incident in cases
            )
            assert original == copied
            assert original.state
        assert nights.plain(cases[0].flame(cases[0].window)) == nights.plain(
            cases[1].flame(cases[1].window)
        )
        assert bundle.header.masked == {}


def _numbers(incident: case.Case, signal: str, span: Window) -> dict[object, int]:
    return {
        (time_us, key, column): number
        for frame in incident.ring.numbers(incident.host, signal, span.begin_us, span.end_us)
        for key in frame.keys
        for column in frame.columns
        for time_us, number in zip(*frame.series(key, column), strict=True)
    }


def test_loads_of_the_windows_are_in_a_bundle_without_secrets(
    pair: Pair, tmp_path: pathlib.Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(pair.home, home)
    at = pair.event.time_us
    for begin, name in ((at - 60_000_000, "--token Hunter2Load"), (at - 86_400_000_000, "old")):
        load_writer = loads.LoadWriter(home, pair.event.host, "trials", (1,), begin, {"name": name})
        load_writer.second({"us": begin + 1_000_000, "values": {"cpu": 0.6}})
        verdict = {"status": "not constant", "says": "cpu CV 12 %", "crossed": ["cpu CV 12 %"]}
        load_writer.verdict(begin + 90_000_000, verdict, ended=True)
        load_writer.close()
    bundle = bundles.create(home, pair.event, tmp_path / "with-load", now_us=7)
    with bundles.open_temporarily(bundle.file) as opened:
        assert opened.home is not None
        (load,) = loads.read_loads(opened.home)
        assert load == loads.read_loads(home)[-1]
        assert case.Case(opened.home, pair.event).loads() == (load,)
        texts = [path.read_text() for path in (opened.home / "loads").rglob("*.jsonl")]
        assert "Hunter2" not in "".join(texts)
    assert bundle.header.masked == {"loads": 1}


def test_readings_of_the_windows_are_in_a_bundle_without_secrets(
    pair: Pair, tmp_path: pathlib.Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(pair.home, home)
    at = pair.event.time_us
    near = Reading(at - 5_000_000, "line", subject="talk", text="--token Hunter2Reading")
    waits = Reading(at - 4_000_000, "run-queue", 3, values={"count": 4.0, "max_us": 9e5})
    old = Reading(at - 80_000_000_000, "line", subject="talk", text="long before")
    writer = readings.ReadingWriter(home, pair.event.host, "talk", "", at - 86_400_000_000)
    writer.add([old, near, waits])
    writer.close()
    bundle = bundles.create(home, pair.event, tmp_path / "with-readings", now_us=7)
    with bundles.open_temporarily(bundle.file) as opened:
        assert opened.home is not None
        incident = case.Case(opened.home, pair.event)
        assert incident.readings(incident.window, "run-queue") == (waits,)
        (line,) = incident.readings(incident.window, "line")
        assert "Hunter2" not in line.text
        assert [found.instrument for found in incident.recordings(incident.window)] == ["talk"]
        texts = [path.read_text() for path in (opened.home / "instruments").rglob("*.jsonl")]
        assert "Hunter2" not in "".join(texts)
        assert "long before" not in "".join(texts)
    assert bundle.header.masked == {"instruments": 1}
