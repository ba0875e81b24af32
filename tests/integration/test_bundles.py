"""A bundle says the same as the home it was made of, and tells no secret."""

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
from overnight.model.selection import Window
from overnight.queries import case, signals
from overnight.store import check, loads, segments
from overnight.store.bundle import header
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model.event import Event

RESET = nights.RESET_S


@dataclasses.dataclass(frozen=True)
class Pair:
    """The home, the bundle of its last reset, and that opened."""

    home: pathlib.Path
    file: pathlib.Path
    opened: pathlib.Path
    told: Event
    made: bundles.Bundle


def pair_of(place: pathlib.Path, planted: nights.Secrets | None = None) -> Pair:
    told = nights.build(place / "home", planted)
    made = bundles.create(place / "home", told, place / "reset.overnight", now_us=7)
    bundles.open_into(made.file, place / "opened")
    return Pair(place / "home", made.file, place / "opened", told, made)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return pair_of(tmp_path_factory.mktemp("pair"))


def window(begin: float, end: float) -> Window:
    return Window(nights.us(begin), nights.us(end))


def windows(told: Event, home: pathlib.Path) -> dict[str, Window]:
    made = case.Case(home, told)
    return {
        "event": made.window,
        "baseline": made.baseline,
        "all of it": window(RESET - 900, RESET + 120),
        "a second": window(RESET - 3.2, RESET - 2.1),
    }


@pytest.mark.parametrize("which", ["event", "baseline", "all of it", "a second"])
def test_every_question_about_the_windows_has_the_same_answer(pair: Pair, which: str) -> None:
    over = windows(pair.told, pair.home)[which]
    answers = []
    for home in (pair.home, pair.opened):
        of = case.Case(home, pair.told)
        cores = of.cores(over)
        assert len(cores.begin_us) >= 2
        answers.append(
            nights.plain(
                {
                    "cores": cores,
                    "rates": signals.counter_rate(of.ring, of.host, "processes", over),
                    "births": signals.counter_rate(of.ring, of.host, "cgroup-births", over),
                    "events": of.events(over),
                    "gaps": of.ring.gaps(of.host, over.begin_us, over.end_us),
                    "signals": of.ring.signals(of.host, over.begin_us, over.end_us),
                    "processes": of.top(over),
                    "functions": of.top(over, kind="functions"),
                    "units": of.top(over, kind="units"),
                    "flame": of.flame(over),
                    "diff": of.diff(over, of.baseline),
                }
            )
        )
    assert answers[0] == answers[1]


@pytest.mark.parametrize("host", [nights.HOST, nights.OTHER])
def test_the_history_is_that_of_all_stored_time(pair: Pair, host: str) -> None:
    """Over a reboot, too, and of the hosts that nothing happened on."""
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
        found = (numbers, births.values, births.begin_us, facts, source.events(0, nights.EVER))
        assert source.problems == []
        answers.append(nights.plain(found))
    assert len(answers[0][0]) == 2 * nights.END_S // 60
    assert answers[0] == answers[1]


def test_an_opened_bundle_is_a_sound_data_home(pair: Pair) -> None:
    report = check.check(segments.Catalogue(pair.opened))
    assert report.problems == ()
    assert report.segments > 5
    assert reader.Reader(pair.opened).pins(nights.HOST) == reader.Reader(pair.home).pins(
        nights.HOST
    )


def test_seconds_outside_the_windows_are_not_there(pair: Pair) -> None:
    outside = window(4600, 4700)
    of = case.Case(pair.opened, pair.told)
    assert of.cores(outside).coverage.covered_seconds == 0
    assert not of.has_profile(window(5400, 5600))
    assert header.parse_header((pair.opened / "bundle.json").read_bytes()) == pair.made.header


@pytest.mark.parametrize("host", [nights.HOST, nights.OTHER])
def test_how_long_a_host_was_watched_stays(pair: Pair, host: str) -> None:
    """Exposure: what was left out of a bundle was watched all the same."""
    one, two = (reader.Reader(home) for home in (pair.home, pair.opened))
    assert one.extent(host) == two.extent(host)
    assert one.gaps(host) == two.gaps(host)


def test_segments_without_secrets_are_copied_byte_for_byte(pair: Pair) -> None:
    for segment in segments.Catalogue(pair.opened).segments(nights.HOST):
        for file in segment.path.iterdir():
            original = pair.home / segment.path.relative_to(pair.opened) / file.name
            assert file.read_bytes() == original.read_bytes()


def test_of_the_snapshots_the_one_before_and_the_one_after(pair: Pair) -> None:
    taken = sorted(path.name for path in (pair.opened / "snapshots").rglob("*.json"))
    assert taken == [f"{nights.us(4000)}.json", f"{nights.us(7100)}.json"]


def test_the_same_home_gives_the_same_bytes(pair: Pair, tmp_path: pathlib.Path) -> None:
    again = bundles.create(pair.home, pair.told, tmp_path / "again", now_us=7)
    assert again.file.read_bytes() == pair.file.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def test_a_masked_home_gives_the_same_bytes(secret: Pair, tmp_path: pathlib.Path) -> None:
    again = bundles.create(secret.home, secret.told, tmp_path / "again", now_us=7)
    assert again.file.read_bytes() == secret.file.read_bytes()


def test_another_time_is_all_that_differs(pair: Pair, tmp_path: pathlib.Path) -> None:
    later = bundles.create(pair.home, pair.told, tmp_path / "later", now_us=8)
    assert dataclasses.replace(later.header, created_us=7) == pair.made.header
    assert later.bytes == pair.made.bytes


def test_a_bundle_of_a_bundle_is_the_same_evidence(pair: Pair, tmp_path: pathlib.Path) -> None:
    again = bundles.create(pair.opened, pair.told, tmp_path / "again", now_us=7)
    with bundles.open_temporarily(again.file) as twice:
        assert twice.home is not None
        one, two = (case.Case(home, pair.told) for home in (pair.opened, twice.home))
        assert nights.plain(one.cores(one.window)) == nights.plain(two.cores(two.window))
        assert nights.plain(one.flame(one.window)) == nights.plain(two.flame(two.window))


def test_cost_grows_with_the_window(pair: Pair, tmp_path: pathlib.Path) -> None:
    short = bundles.create(pair.home, pair.told, tmp_path / "short", before_s=60, after_s=10)
    assert short.bytes < pair.made.bytes / 2
    (span,) = short.header.windows
    assert span.end_us - span.begin_us == 70 * nights.SECOND_US


def test_all_recurrences_bring_their_windows(pair: Pair, tmp_path: pathlib.Path) -> None:
    assert pair.made.header.left_out == 1
    assert any("--all-recurrences" in note for note in pair.made.header.notes)
    made = bundles.create(pair.home, pair.told, tmp_path / "all", all_recurrences=True)
    assert (made.header.recurrences, made.header.left_out) == (1, 0)
    assert [(span.begin_us, span.end_us) for span in made.header.windows] == [
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
    return pair_of(tmp_path_factory.mktemp("secret"), PLANTED)


def test_no_secret_is_in_a_bundle(secret: Pair) -> None:
    told = nights.read_texts(secret.opened)
    for needle in ("Hunter2", "ghp_", "A1b2C3d4"):
        assert needle not in told
        assert needle.encode() not in secret.file.read_bytes()
        assert needle not in str(secret.made.as_json())


def test_the_secrets_are_where_a_bundle_looks(secret: Pair) -> None:
    """The test above fails without the scrubber: it is not for want of secrets that it passes."""
    told = nights.read_texts(secret.home)
    for value in dataclasses.astuple(PLANTED):
        assert value in told, value


def test_what_was_masked_is_counted(secret: Pair, pair: Pair) -> None:
    assert pair.made.header.masked == {}
    assert secret.made.header.masked == {
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


def test_a_masked_bundle_is_sound_and_says_the_same(secret: Pair) -> None:
    assert check.check(segments.Catalogue(secret.opened)).problems == ()
    one, two = (case.Case(home, secret.told) for home in (secret.home, secret.opened))
    over = one.window
    assert nights.plain(one.cores(over)) == nights.plain(two.cores(over))
    for kind in ("processes", "threads", "units", "functions"):
        rows = [
            [dataclasses.replace(row, name="") for row in of.top(over, kind=kind).rows]
            for of in (one, two)
        ]
        assert rows[0] == rows[1]
    (told,) = two.events(over)
    # What was one name is one name still, wherever it stood.
    assert two.top(over, kind="units").rows[0].name == told.unit
    assert two.top(over).rows[0].name == told.process


def test_the_store_itself_is_not_changed(secret: Pair, tmp_path: pathlib.Path) -> None:
    """Segments are linked, not copied, where that is possible: masking writes new files."""
    shutil.copytree(secret.home, tmp_path / "home")
    before = {p: p.read_bytes() for p in (tmp_path / "home").rglob("*") if p.is_file()}
    bundles.create(tmp_path / "home", secret.told, tmp_path / "home" / "x.overnight")
    (tmp_path / "home" / "x.overnight").unlink()
    assert {p: p.read_bytes() for p in (tmp_path / "home").rglob("*") if p.is_file()} == before


def test_a_damaged_segment_is_left_out_and_said(pair: Pair, tmp_path: pathlib.Path) -> None:
    shutil.copytree(pair.home, tmp_path / "home")
    found = segments.Catalogue(tmp_path / "home").segments(
        nights.HOST, nights.us(RESET - 30), nights.us(RESET)
    )
    (found[0].path / "tasks.parquet").write_bytes(b"PAR1 no more PAR1")
    made = bundles.create(tmp_path / "home", pair.told, tmp_path / "x")
    assert any(found[0].path.name in note for note in made.header.notes)
    with bundles.open_temporarily(made.file) as opened:
        assert opened.home is not None
        assert check.check(segments.Catalogue(opened.home)).problems == ()


def test_a_place_that_cannot_be_written_leaves_nothing(pair: Pair, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="cannot be written"):
        bundles.create(pair.home, pair.told, tmp_path / "absent" / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(errors.CannotError, match="cannot be written"):
        bundles.create(pair.home, pair.told, tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_event_that_is_not_kept(pair: Pair) -> None:
    assert events.find_event(pair.home, pair.told.id) == pair.told
    for absent in ("net.driver_reset-ffffffff", ""):
        with pytest.raises(errors.CannotError, match="no event"):
            events.find_event(pair.home, absent)


def test_a_made_up_night_gives_the_same_evidence(tmp_path: pathlib.Path) -> None:
    """What the agent itself recorded of a host: every signal, facts, folded events."""
    truth = scenarios.build("reference", tmp_path / "home", seed=5, cores=4, minutes=20.0)
    assert truth.event is not None
    made = bundles.create(truth.home, truth.event, tmp_path / "x", all_recurrences=True)
    with bundles.open_temporarily(made.file) as opened:
        assert opened.home is not None
        cases = [case.Case(home, truth.event) for home in (truth.home, opened.home)]
        for over in (cases[0].window, cases[0].baseline):
            # Of the small ring's larger blocks more signals touch a window; they have no number in it.
            said = [of.ring.signals(of.host, over.begin_us, over.end_us) for of in cases]
            assert len(said[0]) > 12
            for signal in {**said[0], **said[1]}:
                numbers = [_numbers(of, signal, over) for of in cases]
                assert numbers[0] == numbers[1]
        assert cases[0].recurrences == cases[1].recurrences
        for name in ("host", "nic-queues", "units"):
            at = truth.event.time_us
            one, two = (of.ring.facts(of.host, name, at - 10**8, at) for of in cases)
            assert one == two
            assert one.state
        assert nights.plain(cases[0].flame(cases[0].window)) == nights.plain(
            cases[1].flame(cases[1].window)
        )
        assert made.header.masked == {}


def _numbers(of: case.Case, signal: str, over: Window) -> dict[object, int]:
    return {
        (time_us, key, column): number
        for frame in of.ring.numbers(of.host, signal, over.begin_us, over.end_us)
        for key in frame.keys
        for column in frame.columns
        for time_us, number in zip(*frame.series(key, column), strict=True)
    }


def test_loads_of_the_windows_are_in_a_bundle_without_secrets(
    pair: Pair, tmp_path: pathlib.Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(pair.home, home)
    at = pair.told.time_us
    for begin, name in ((at - 60_000_000, "--token Hunter2Load"), (at - 86_400_000_000, "old")):
        book = loads.LoadWriter(home, pair.told.host, "trials", (1,), begin, {"name": name})
        book.second({"us": begin + 1_000_000, "values": {"cpu": 0.6}})
        said = {"status": "not constant", "says": "cpu CV 12 %", "crossed": ["cpu CV 12 %"]}
        book.verdict(begin + 90_000_000, said, ended=True)
        book.close()
    made = bundles.create(home, pair.told, tmp_path / "with-load", now_us=7)
    with bundles.open_temporarily(made.file) as there:
        assert there.home is not None
        (one,) = loads.read_loads(there.home)
        assert one == loads.read_loads(home)[-1]
        assert case.Case(there.home, pair.told).loads() == (one,)
        texts = [path.read_text() for path in (there.home / "loads").rglob("*.jsonl")]
        assert "Hunter2" not in "".join(texts)
    assert made.header.masked == {"loads": 1}
