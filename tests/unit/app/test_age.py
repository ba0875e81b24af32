"""Arms, purges and undo of aged state, on file trees and undo journals of the test."""

from __future__ import annotations

import json
import pathlib

import pytest

from overnight import errors, sources
from overnight.app import age
from overnight.load import host_state as load
from overnight.sources.memorycgroups import parents
from overnight.store import arms
from overnight.undo import journal


@pytest.fixture(autouse=True)
def undo(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    return tmp_path / "undo"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "home"


@pytest.fixture
def host(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "host"
    (root / "proc/sys/vm").mkdir(parents=True)
    (root / "proc/sys/vm/drop_caches").write_text("0")
    (root / "proc/self").mkdir()
    (root / "proc/self/mountinfo").write_text("30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n")
    (root / "cg").mkdir()
    (root / "cg/cgroup.stat").write_text("nr_descendants 9\nnr_dying_descendants 7\n")
    return root


def make_aged(count: int = 100) -> load.Aged:
    return load.Aged(count, "/mine", 1, "dying")


@pytest.mark.parametrize(
    ("after", "below", "verified"),
    [
        (195, (), True),
        (194, (), False),
        (0, (parents.Parent("/mine", 96, 96, 96, 0, 0, counted=True),), True),
        (0, (parents.Parent("/mine", 3, 0, 3, 0, 100 * age.PAGE, counted=False),), True),
        (0, (parents.Parent("/mine", 90, 0, 90, 0, 90 * age.PAGE, counted=False),), False),
        (0, (parents.Parent("/other", 100, 100, 100, 0, 0, counted=True),), False),
    ],
    ids=["counted", "too few", "there", "held there", "held by too few", "elsewhere"],
)
def test_aging_is_verified_by_the_count(
    after: int, below: tuple[parents.Parent, ...], verified: bool
) -> None:
    report = age.Report(
        "x", "hot", {"dying": 100}, {"dying": after}, 100, make_aged(), dying_below=below
    )
    assert report.verified is verified


def test_uptime_is_noted_with_the_arm_of_the_host(home: pathlib.Path) -> None:
    assert age.note_uptime(home, arm="purged", text="after the drain").arm == "purged"
    assert age.note_uptime(home).arm == "purged"
    first, second = arms.read(home)
    assert (first.note, first.did, second.arm) == ("after the drain", "uptime", "purged")
    assert first.uptime_s > 0
    assert first.boot
    assert first.kernel


@pytest.mark.parametrize(("up", "arm"), [(60.0, "cold"), (604_800.0, "hot")])
def test_without_a_note_the_arm_follows_from_uptime(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch, up: float, arm: str
) -> None:
    monkeypatch.setattr(age.kernel, "read_uptime", lambda: up)
    assert age.note_uptime(home).arm == arm


def keep_run(undo: pathlib.Path, title: str = "age dentries 1") -> pathlib.Path:
    """Create a folder of a run beside its journal, named after the run, and keep it."""
    run_journal = journal.Journal(title, undo)
    target = undo.parent / run_journal.run
    run_journal.write("folder", target)
    target.mkdir()
    run_journal.keep()
    return target


def test_undo_removes_only_aged_state(home: pathlib.Path, undo: pathlib.Path) -> None:
    own = keep_run(undo)
    other = keep_run(undo, "rehearse zombies")
    report = age.undo(home)
    assert report.undone == (f"age dentries 1 ({own.name})",)
    assert any("dentry slab" in remark for remark in report.remarks)
    assert (own.exists(), other.exists(), report.verified) == (False, True, True)
    assert age.undo(home).undone == ()
    assert [(record.did, record.arm) for record in arms.read(home)] == [("undo", None)]


def test_undo_works_when_the_arm_cannot_be_noted(
    undo: pathlib.Path,
) -> None:
    own = keep_run(undo)
    report = age.undo(pathlib.Path("/proc/nowhere"))
    assert not own.exists()
    assert "cannot note the arm" in report.remarks[-1]


def test_undo_keeps_running_aging_and_lists_it(
    home: pathlib.Path, undo: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with journal.Journal("age dentries 1", undo) as run_journal:
        own = tmp_path / run_journal.run
        run_journal.write("folder", own)
        own.mkdir()
        report = age.undo(home)
        assert [(run.run, run.state) for run in report.runs] == [(run_journal.run, "running")]
        assert [run.state for run in age.list_states().runs] == ["running"]
        assert own.exists()


def test_a_purge_undoes_drops_caches_and_reports_what_remains(
    home: pathlib.Path, undo: pathlib.Path, host: pathlib.Path
) -> None:
    own = keep_run(undo)
    report = age.purge(home, root=host)
    assert (host / "proc/sys/vm/drop_caches").read_text() == "3"
    assert not own.exists()
    assert (report.arm, report.after["dying"], len(report.undone)) == ("purged", 7, 1)
    assert "7 memory cgroups are still dying" in report.remarks[0]
    assert arms.read(home)[-1].arm == "purged"


def test_a_purge_without_permission_changes_nothing(
    home: pathlib.Path, undo: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    own = keep_run(undo)
    with pytest.raises(errors.MissingPermissionError, match="cannot drop"):
        age.purge(home, root=tmp_path / "nowhere")
    assert arms.read(home) == ()
    assert own.exists()


class Kind:
    """Creates folders and counts them."""

    NAME = "folders"
    ABOUT = "folders"
    TAKES = frozenset({"rate"})

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place

    def age(self, request: load.Request, run_journal: journal.Journal) -> load.Aged:
        for i in range(request.count):
            folder = self.place / f"{run_journal.run}-{i}"
            run_journal.write("folder", folder)
            folder.mkdir(parents=True)
            if request.options.get("rate") == str(i):
                raise errors.CannotError("enough", why="why", todo="todo")
            if request.options.get("rate") == "stopped":
                request.stop.set()
        return load.Aged(request.count, str(self.place), 4096, "folders")

    def plan(self, request: load.Request) -> load.Aged:
        return load.Aged(0, str(self.place), 4096, "folders")

    def count(self, root: pathlib.Path = sources.ROOT) -> dict[str, int]:
        return {"folders": len(list(self.place.glob("*")))}

    def remains(self, root: pathlib.Path = sources.ROOT) -> str:
        return ""


@pytest.fixture
def kind(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Kind:
    folders = Kind(tmp_path / "folders")
    monkeypatch.setattr(age, "kinds", lambda: {"folders": folders})
    return folders


def test_aging_is_kept_counted_and_noted(home: pathlib.Path, kind: Kind) -> None:
    report = age.put_on_host(age.Request("folders", 3, home, note="for tonight"))
    assert (report.verified, report.arm, report.before, report.after) == (True, "hot", {"folders": 0}, {"folders": 3})  # fmt: skip
    assert [(run.what, run.state) for run in age.runs()] == [("age folders 3", "kept")]
    (noted,) = arms.read(home)
    assert (noted.run, noted.note, noted.counts) == (report.run, "for tonight", {"folders": 3})
    assert json.loads(json.dumps(report.as_json()))["made"] == 3
    assert age.undo(home).after == {"folders": 0}


@pytest.mark.parametrize(("rate", "error"), [("1", errors.CannotError), ("stopped", KeyboardInterrupt)])  # fmt: skip
def test_an_error_or_a_stop_leaves_nothing(
    home: pathlib.Path, kind: Kind, rate: str, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        age.put_on_host(age.Request("folders", 3, home, {"rate": rate}))
    assert (kind.count(), age.runs(), arms.read(home)) == ({"folders": 0}, (), ())


def test_unknown_options_and_kinds_are_refused(home: pathlib.Path, kind: Kind) -> None:
    with pytest.raises(errors.UsageError, match="does not take --under"):
        age.put_on_host(age.Request("folders", 3, home, {"under": "x"}))
    with pytest.raises(errors.UsageError, match="there is no state 'files'"):
        age.put_on_host(age.Request("files", 3, home))


def test_every_kind_implements_the_interface_and_is_documented() -> None:
    for name, kind in age.kinds().items():
        assert name == kind.NAME
        assert kind.ABOUT
        assert isinstance(kind.TAKES, frozenset)
        document = (pathlib.Path(__file__).parents[3] / "docs/age.md").read_text()
        assert f"| `{name}` |" in document
        assert all(isinstance(number, int) for number in kind.count().values())
        assert isinstance(kind.remains(), str)
        assert callable(kind.plan)
