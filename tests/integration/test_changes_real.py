"""Built-in changes on real systems: units and reboots of a machine, cgroups of this host."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import changedhost
import machines
import pytest

from overnight import errors
from overnight.app import changes
from overnight.model import cgroups, host_changes
from overnight.undo import journal

pytestmark = pytest.mark.together
UNITS = {
    "ember-scout.service": machines.unit("exec sleep 1000"),
    "ember-idle.service": machines.unit("exec sleep 1000", wanted=False),
    "ember-self.service": changedhost.service(
        f"{changedhost.PYTHON} -m overnight.app.changes {changedhost.HOME} apply x mask-unit ember-self.service > {changedhost.HOME}/self.txt || true",
        "Type=oneshot",
    ),
}
RUNS = {"LoadState": "loaded", "ActiveState": "active"}
MASKED = {"LoadState": "masked", "ActiveState": "inactive"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[changedhost.Host]:
    with changedhost.booted(tmp_path_factory.mktemp("host"), UNITS) as booted:
        yield booted


def until_runs(host: changedhost.Host, unit: str) -> None:
    deadline = time.monotonic() + 20
    while host.unit(unit) != RUNS:
        assert time.monotonic() < deadline, host.unit(unit)
        time.sleep(0.05)


@pytest.mark.needs_nspawn
def test_a_unit_of_etc_is_masked_and_undone(host: changedhost.Host) -> None:
    assert host.change("apply", "t1", "mask-unit", "ember-scout.service") == "masked ember-scout.service, and stopped it"  # fmt: skip
    assert host.unit("ember-scout.service") == MASKED
    again = host.change("apply", "t2", "mask-unit", "ember-scout.service")
    assert again == "ember-scout.service is already masked and does not run"
    assert host.change("undo", "t2") == "nothing of task t2 is left to undo"
    assert host.unit("ember-scout.service") == MASKED
    assert host.change("undo", "t1").startswith("undone: change t1 mask-unit ember-scout.service")
    until_runs(host, "ember-scout.service")
    assert not host.machine.path("/run/systemd/system.control").exists()


@pytest.mark.needs_nspawn
def test_a_unit_that_did_not_run_is_not_started(host: changedhost.Host) -> None:
    assert "did not run" in host.change("apply", "idle", "mask-unit", "ember-idle.service")
    host.change("undo", "idle")
    assert host.unit("ember-idle.service") == {"LoadState": "loaded", "ActiveState": "inactive"}


@pytest.mark.needs_nspawn
def test_units_that_cannot_be_undone_are_refused(host: changedhost.Host) -> None:
    assert "unit ember-none.service does not exist" in host.change("apply", "x", "mask-unit", "ember-none.service")  # fmt: skip
    assert "is another name of ember-scout.service" in host.change("apply", "x", "mask-unit", "ember-alias.service")  # fmt: skip
    host.machine.run("systemctl", "start", "ember-self.service")
    own = host.machine.path(f"{changedhost.HOME}/self.txt").read_text()
    assert "ember-self.service contains overnight itself" in own
    assert host.unit("ember-scout.service") == RUNS


@pytest.mark.needs_nspawn
def test_kill_9_before_every_step_is_undone(host: changedhost.Host) -> None:
    words = (changedhost.HOME, "apply", "k", "mask-unit", "ember-scout.service")
    codes = []
    while not codes or codes[-1] != 0:
        done = host.python("-c", changedhost.KILLED, str(len(codes)), *words)
        codes.append(done.returncode)
        host.change("undo", "k")
        until_runs(host, "ember-scout.service")
        assert host.change("undo", "k") == "nothing of task k is left to undo"
    assert len(codes) > 8
    assert set(codes[:-1]) == {-signal.SIGKILL}


@pytest.mark.needs_nspawn
def test_tasks_change_the_host_and_undo_it(host: changedhost.Host) -> None:
    mask = {"name": "mask-ember", "target": "ember-scout.service"}
    states = host.ask(("change", mask), ids=("c1",))
    assert states["c1"]["state"] == "done", states
    assert host.unit("ember-scout.service") == MASKED
    assert host.ask(("undo", {"task": "c1"}), ids=("u1",))["u1"]["state"] == "done"
    until_runs(host, "ember-scout.service")


@pytest.mark.needs_nspawn
def test_an_agent_that_was_killed_undoes_it_later(host: changedhost.Host) -> None:
    mask = {"name": "mask-ember", "target": "ember-scout.service"}
    for count, seconds in enumerate((0.05, 0.3, 3.0)):
        host.ask(("change", mask), ids=(f"k{count}",), kill=seconds)
        assert host.ask(("undo", {}), ids=(f"v{count}",))[f"v{count}"]["state"] == "done"
        until_runs(host, "ember-scout.service")


@pytest.mark.needs_nspawn
def test_a_reboot_is_verified_and_undoes_what_ends_with_a_boot(tmp_path: pathlib.Path) -> None:
    mask = {"name": "mask-ember", "target": "ember-scout.service"}
    with changedhost.booted(tmp_path, UNITS) as before:
        assert before.ask(("change", mask), ids=("m1",))["m1"]["state"] == "done"
        assert before.reboot("r1") == 133  # the machine asked nspawn for a reboot
    with changedhost.booted(tmp_path, UNITS) as after:
        assert after.ask(("undo", {}), ids=("u1",))["u1"]["state"] == "done"
        state = (tmp_path / "home/uplink/tasks/r1/state.json").read_text()
        boot = after.machine.run("cat", "/proc/sys/kernel/random/boot_id").strip()
        assert f'"rebooted, boot {boot}"' in state
        assert '"done"' in state
        until_runs(after, "ember-scout.service")
        assert not list((tmp_path / "undo").iterdir())


@pytest.mark.needs_nspawn
def test_a_limit_of_a_unit_without_effect_is_refused_and_undone(host: changedhost.Host) -> None:
    says = host.change("apply", "cap", "cap-cpu", "ember-idle.service", "30%")
    assert says.startswith("ember-idle.service was not limited: the kernel shows no such limit")
    assert not host.machine.path("/run/systemd/system/ember-idle.service.d").exists()
    assert host.change("undo", "cap") == "nothing of task cap is left to undo"


LAYOUT = cgroups.read_layout()
LIMIT = "cpu.max" if LAYOUT.cpu_version == 2 else "cpu.cfs_quota_us"


@pytest.fixture
def cgroup(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """Yield an empty cgroup of this host with a CPU limit."""
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    with journal.Journal("a cgroup of a test", tmp_path / "own") as run:
        folder = pathlib.Path(str(LAYOUT.cpu)) / f"{run.run}-capped"
        run.write("cgroup", folder)
        folder.mkdir()
        if not (folder / LIMIT).exists():
            pytest.skip("the cpu controller is not enabled for new cgroups")
        yield folder
    assert not run.problems


def run_change(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.needs_root
def test_a_cgroup_is_limited_and_undone_after_kill_9_before_every_step(
    cgroup: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    home, name = str(tmp_path / "home"), f"/{cgroup.name}"
    before, codes = (cgroup / LIMIT).read_text(), []
    while not codes or codes[-1] != 0:
        words = (str(len(codes)), home, "apply", "cap", "cap-cpu", name, "30%")
        codes.append(run_change("-c", changedhost.KILLED, *words).returncode)
        if codes[-1] == 0:
            assert (cgroup / LIMIT).read_text().split()[0] == "30000"
            again = changes.apply("other", host_changes.parse("cap-cpu", f"{name} 30%"), tmp_path)
            assert again == f"{name} is already limited to 30 % of a core"
        changes.undo("cap")
        assert (cgroup / LIMIT).read_text() == before
    assert codes[:-1] == [-signal.SIGKILL] * 4  # before journal, its line, value and its being kept
    assert not journal.runs()


@pytest.mark.needs_root
def test_a_limit_that_somebody_has_changed_since_is_left(
    cgroup: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    changes.apply("1", host_changes.parse("cap-cpu", f"/{cgroup.name} 30%"), tmp_path)
    (cgroup / LIMIT).write_text("20000")
    changes.undo("1")
    assert (cgroup / LIMIT).read_text().split()[0] == "20000"
    changes.apply("2", host_changes.parse("cap-cpu", f"/{cgroup.name} 30%"), tmp_path)
    cgroup.rmdir()  # with the cgroup, its limit is gone
    assert changes.undo("2").startswith("undone")
    with pytest.raises(errors.CannotError, match="cannot limit"):
        changes.apply("3", host_changes.parse("cap-cpu", f"/{cgroup.name} 30%"), tmp_path)
    assert not journal.runs()
