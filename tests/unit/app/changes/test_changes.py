"""Built-in changes against files of a fake host; tests/integration/test_changes_real.py has real ones."""

from __future__ import annotations

import errno
import pathlib
from collections.abc import Mapping

import pytest

from overnight import errors
from overnight.app import age, changes
from overnight.app.changes import __main__, cap_cpu, move_irq, reboot
from overnight.model import cgroups, host_changes
from overnight.undo import journal, settings


@pytest.fixture(autouse=True)
def undo(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    return tmp_path / "undo"


def apply(text: str, home: pathlib.Path, task: str = "t") -> str:
    builtin, _, target = text.partition(" ")
    return changes.apply(task, host_changes.parse(builtin, target), home)


def test_every_builtin_has_a_module() -> None:
    assert set(changes.kinds()) == set(host_changes.Builtin)


@pytest.fixture
def irqs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "proc/irq"
    for irq in (44, 45):
        (folder / str(irq)).mkdir(parents=True)
        (folder / str(irq) / "smp_affinity_list").write_text("0-3\n")
    monkeypatch.setattr(settings, "IRQS", folder)
    monkeypatch.setattr(move_irq, "_warn", lambda: "")
    return folder


def read(irqs: pathlib.Path) -> list[str]:
    return [path.read_text().strip() for path in sorted(irqs.glob("*/smp_affinity_list"))]


def test_an_interrupt_is_moved_and_moved_back(irqs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert apply("move-irq 45 2", tmp_path) == "moved interrupt 45 from cores 0-3 to core 2"
    assert read(irqs) == ["0-3", "2"]
    assert apply("move-irq 45 2", tmp_path, "other") == "interrupt 45 is already on core 2"
    assert apply("move-irq 45 1", tmp_path) == "task t has already made this change"
    assert changes.undo("other") == "nothing of task other is left to undo"
    assert read(irqs) == ["0-3", "2"]
    assert changes.undo("t").startswith("undone: change t move-irq 45 2")
    assert read(irqs) == ["0-3", "0-3"]


def test_both_interrupts_of_a_queue_are_moved(
    irqs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {
        f"eth0 {way}3": {"irq": irq, "interface": "eth0", "queue": 3}
        for way, irq in (("tx", 44), ("rx", 45))
    }
    monkeypatch.setattr(move_irq.interrupts, "open_queues", lambda _: lambda: facts)
    apply("move-irq eth0:3 1", tmp_path)
    assert read(irqs) == ["1", "1"]
    changes.undo("t")
    assert read(irqs) == ["0-3", "0-3"]
    with pytest.raises(errors.CannotError, match="no interrupt serves eth0:4"):
        apply("move-irq eth0:4 1", tmp_path)


def test_an_interrupt_that_the_kernel_keeps_is_refused_and_nothing_is_left(
    irqs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as managed:
        managed.setattr(pathlib.Path, "write_text", refuse)
        with pytest.raises(errors.CannotError) as refused:
            apply("move-irq 45 2", tmp_path)
    assert "the kernel manages" in refused.value.why
    with monkeypatch.context() as deaf:
        deaf.setattr(pathlib.Path, "write_text", lambda *_: 0)
        with pytest.raises(errors.CannotError, match="did not move"):
            apply("move-irq 45 2", tmp_path)
    with pytest.raises(errors.CannotError, match="cannot move interrupt 99"):
        apply("move-irq 99 2", tmp_path)
    assert read(irqs) == ["0-3", "0-3"]
    assert not journal.runs()


class Systemd:
    """A systemd whose units get the limits of their drop-ins at each reload."""

    def __init__(self, top: pathlib.Path) -> None:
        self.folder = top / "cpu/system.slice/ember.service"
        self.folder.mkdir(parents=True)
        (self.folder / "cpu.max").write_text("max 100000\n")
        self.drop_ins = top / "run"

    def __call__(self, *words: str) -> str:
        if words[0] == "show":
            values = {"Id": words[-1], "LoadState": "loaded", "ActiveState": "active", "ControlGroup": "/system.slice/ember.service"}  # fmt: skip
            return "".join(f"{name}={value}\n" for name, value in values.items())
        texts = [path.read_text() for path in self.drop_ins.glob("ember.service.d/*.conf")]
        quota = texts[-1].rpartition("=")[2].strip("%\n") + "000" if texts else "max"
        (self.folder / "cpu.max").write_text(f"{quota} 100000\n")
        return ""


def test_a_unit_is_limited_by_a_drop_in(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(tmp_path)
    systemd.drop_ins.mkdir()
    layout = cgroups.Layout("v2", None, None, cpu=tmp_path / "cpu", cpu_version=2)
    monkeypatch.setattr(settings, "DROP_INS", systemd.drop_ins)
    monkeypatch.setattr(settings, "systemctl", systemd)
    monkeypatch.setattr(cgroups, "read_layout", lambda: layout)
    monkeypatch.setattr(cap_cpu.mask_unit.systemd, "booted", lambda: True)
    assert apply("cap-cpu ember.service 30%", tmp_path).startswith("limited ")
    (drop_in,) = systemd.drop_ins.glob("*/*")
    assert drop_in.read_text() == "[Service]\nCPUQuota=30%\n"
    assert (systemd.folder / "cpu.max").read_text() == "30000 100000\n"
    assert "is already limited" in apply("cap-cpu ember.service 30%", tmp_path, "other")
    changes.undo("t")
    assert (systemd.folder / "cpu.max").read_text() == "max 100000\n"
    assert not list(systemd.drop_ins.iterdir())


def test_units_need_systemd(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cap_cpu.mask_unit.systemd, "booted", lambda: False)
    for text in ("mask-unit ember.service", "cap-cpu ember.service 5%", "reboot"):
        with pytest.raises(errors.CannotError) as refused:
            apply(text, tmp_path)
        assert refused.value.why == "systemd does not run this host"
    assert not journal.runs()


def test_a_host_that_stays_up_is_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(reboot.systemd, "booted", lambda: True)
    monkeypatch.setattr(reboot, "DOWN_SECONDS", 0.01)
    monkeypatch.setattr(settings, "systemctl", lambda *words: asked.append(words))
    with pytest.raises(errors.CannotError, match="did not reboot"):
        apply("reboot", tmp_path)
    assert asked == [("reboot", "--no-wall")]


def test_a_purge_states_what_it_freed_and_leaves_nothing_to_undo(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def purge(home: pathlib.Path, problems: tuple[str, ...] = ()) -> age.Report:
        assert home == tmp_path
        return age.Report("purge", "purged", {"dying": 18514}, {"dying": 12}, problems=problems)

    monkeypatch.setattr(age, "purge", purge)
    made = apply("purge", tmp_path)
    assert made == "dropped caches; dying memory cgroups 18,514 before, 12 now"
    assert changes.undo("t") == "nothing of task t is left to undo"
    monkeypatch.setattr(age, "purge", lambda home: purge(home, ("busy",)))
    with pytest.raises(errors.CannotError, match="busy"):
        apply("purge", tmp_path)


def test_a_change_that_is_being_made_is_not_undone(irqs: pathlib.Path) -> None:
    with journal.Journal("change t move-irq 45 2"):
        with pytest.raises(errors.CannotError, match="still being made"):
            changes.undo("t")
        assert changes.undo("t2") == "nothing of task t2 is left to undo"


def test_a_change_that_was_killed_halfway_is_made_again(
    irqs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = journal.Journal("change t move-irq 44 1")
    run.write_value(irqs / "44/smp_affinity_list", "0-3", "1")
    (irqs / "44/smp_affinity_list").write_text("1")
    monkeypatch.setattr(journal, "_is_alive", lambda _: False)
    apply("move-irq 45 2", tmp_path)
    assert read(irqs) == ["0-3", "2"]


def test_an_undo_that_fails_is_reported(
    irqs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply("move-irq 45 2", tmp_path)

    def fail(_: Mapping[str, str]) -> None:
        raise OSError("busy")

    with monkeypatch.context() as busy:
        busy.setitem(journal.operations.RESTORE, "value", fail)
        with pytest.raises(errors.CannotError, match="busy"):
            changes.undo("t")
    changes.undo("t")
    assert read(irqs) == ["0-3", "0-3"]


def test_the_child_process_prints_what_it_did(
    irqs: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(tmp_path)
    assert __main__.main([home, "apply", "t", "move-irq", "45", "2"]) == 0
    assert __main__.main([home, "undo", "t"]) == 0
    assert __main__.main([home, "apply", "t", "move-irq", "99", "2"]) == 3
    says = capsys.readouterr().out.splitlines()
    assert says[0].startswith("moved interrupt 45")
    assert says[1].startswith("undone: ")
    assert says[2].startswith("cannot move interrupt 99 to core 2: ")
