"""Attacks on root through a data home that another user can write. The other user is a number only."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import captures
import otherusers
import pytest

from overnight import errors
from overnight.app.audit import changes
from overnight.interfaces import cli
from overnight.model import process_identity
from overnight.sources import perf
from overnight.sources.perf import recovery
from overnight.undo import journal

pytestmark = pytest.mark.needs_root
JOB = "* * * * * root touch /tmp/owned\n"


@dataclasses.dataclass
class Attack:
    """A home of the attacker, and what root must not touch."""

    home: pathlib.Path
    root: pathlib.Path
    victim: subprocess.Popen[bytes]

    def give_to_attacker(self) -> None:
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, otherusers.STRANGER, otherusers.STRANGER, follow_symlinks=False)


@pytest.fixture
def attack(tmp_path: pathlib.Path) -> Iterator[Attack]:
    home, root = tmp_path / "home", tmp_path / "root"
    (root / "etc/cron.d").mkdir(parents=True)
    (home / "audit").mkdir(parents=True)
    (home / "spool").mkdir()
    step = changes.Step("preset", "/etc/cron.d/owned", JOB, "")
    changes._save(changes._record(root, home), root, [step])
    with subprocess.Popen(["sleep", "600"]) as victim:
        born = int(process_identity.read_start(victim.pid))
        name = str(perf.SegmentName("web-1", 10**18, "0123abcd")) + perf.WRITING
        current = recovery.Current(name, perf.Clock(0, 0), b"", victim.pid, born)
        recovery.write_current(home / "spool", current)
        try:
            yield Attack(home, root, victim)
        finally:
            victim.kill()


COMMANDS = (
    ["record", "--for", "1s"],
    ["store", "ingest"],
    ["store", "pin", "x", "--why", "y"],
    ["store", "check", "--clean"],
    ["age", "uptime"],
    ["load", "cpu", "--for", "1s"],
    ["pool", "list"],
    ["snapshot"],
    ["rehearse", "zombies", "--replay"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_of_root_writes_to_the_home_of_another_user(
    attack: Attack, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    attack.give_to_attacker()
    before = sorted(attack.home.rglob("*"))
    assert cli.main(["--home", str(attack.home), *words]) == errors.ExitCode.CANNOT
    message = capsys.readouterr().err
    assert f"belongs to user {otherusers.STRANGER}" in message
    assert f"chown -hR 0 {attack.home}" in message
    assert sorted(attack.home.rglob("*")) == before
    attack.victim.terminate()
    assert attack.victim.wait() == -signal.SIGTERM  # a SIGKILL before it would have come first


def test_the_agent_does_not_record_into_the_home_of_another_user(attack: Attack) -> None:
    attack.give_to_attacker()
    agent = [sys.executable, "-m", "overnight.agent", "--home", str(attack.home), "--for", "1"]
    done = subprocess.run(agent, capture_output=True, text=True, check=False)
    assert done.returncode == errors.ExitCode.CANNOT
    assert f"belongs to user {otherusers.STRANGER}" in done.stderr
    assert not (attack.home / "signals").exists()


def test_root_undoes_no_change_that_another_user_recorded(
    attack: Attack, capsys: pytest.CaptureFixture[str]
) -> None:
    attack.give_to_attacker()
    words = ["--home", str(attack.home), "audit", "--undo", "--root", str(attack.root), "--yes"]
    assert cli.main(words) == errors.ExitCode.CANNOT
    assert "belongs to user" in capsys.readouterr().err
    assert list((attack.root / "etc/cron.d").iterdir()) == []


def test_one_planted_file_in_a_home_of_root_is_found(
    attack: Attack, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = attack.home / "spool/current.json"
    os.chown(planted, otherusers.STRANGER, otherusers.STRANGER)
    assert cli.main(["--home", str(attack.home), "store", "ingest"]) == errors.ExitCode.CANNOT
    assert f"{planted} belongs to user" in capsys.readouterr().err


def test_a_link_of_another_user_to_a_home_of_root_is_refused(
    attack: Attack, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(attack.home)
    os.chown(tmp_path / "link", otherusers.STRANGER, -1, follow_symlinks=False)
    assert cli.main(["--home", str(tmp_path / "link"), "age", "uptime"]) == errors.ExitCode.CANNOT
    assert "belongs to user" in capsys.readouterr().err


EXCHANGE = """
import ctypes, os, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
home, evil = (os.fsencode(path) for path in sys.argv[2:])
print("ready", flush=True)
while True:
    ctypes.CDLL(None).renameat2(-100, home, -100, evil, 2)  # RENAME_EXCHANGE
"""


@pytest.fixture(params=["owner", "acl"])
def exchanged(request: pytest.FixtureRequest) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """Yield a home of root, and a root. Another user exchanges the home with one of theirs all the time.

    The folder above it belongs to them, or to root with an access control list that lets them write.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        base = pathlib.Path(name)
        base.chmod(0o755)
        (base / "root/etc/cron.d").mkdir(parents=True)
        (base / "theirs/home/audit").mkdir(parents=True)
        (base / "theirs/home").chmod(0o700)
        evil = base / "theirs/evil"
        (evil / "audit").mkdir(parents=True)
        step = changes.Step("preset", "/etc/cron.d/owned", JOB, "")
        changes._save(changes._record(base / "root", evil), base / "root", [step])
        for path in (evil, *evil.rglob("*")):
            os.chown(path, otherusers.STRANGER, otherusers.STRANGER)
        if request.param == "owner":
            os.chown(base / "theirs", otherusers.STRANGER, otherusers.STRANGER)
        else:
            otherusers.allow(base / "theirs")
        home = base / "theirs/home"
        command = [sys.executable, "-c", EXCHANGE, str(otherusers.STRANGER), str(home), str(evil)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == b"ready\n"
            try:
                yield home, base / "root"
            finally:
                attacker.kill()


def test_a_home_below_a_folder_of_another_user_is_refused_while_they_exchange_it(
    exchanged: tuple[pathlib.Path, pathlib.Path], request: pytest.FixtureRequest
) -> None:
    """Between check and use they put a home of theirs in its place, with a record of changes to undo."""
    home, root = exchanged
    messages = set()
    for _ in range(300):
        with pytest.raises(errors.OvernightError) as refused:
            changes.undo(root, home)
        messages.add(str(refused.value))
        assert list((root / "etc/cron.d").iterdir()) == []
    how = "is writable by those in its access control list"
    if request.node.callspec.params["exchanged"] == "owner":
        how = f"belongs to user {otherusers.STRANGER}"
    assert messages == {f"refusing to use the data home {home}: {home.parent} {how}"}


def test_root_writes_no_journal_below_a_folder_of_another_user(
    exchanged: tuple[pathlib.Path, pathlib.Path],
) -> None:
    home, _ = exchanged
    with pytest.raises(errors.CannotError, match="is not private"):
        journal.Journal("a test", home.parent / "undo")


def test_a_linked_spool_does_not_redirect_what_root_writes(
    attack: Attack, tmp_path: pathlib.Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (attack.home / "spool").rename(elsewhere)
    (attack.home / "spool").symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir())
    words = ["record", "--for", "1s", "--profiles-only"]
    assert cli.main(["--home", str(attack.home), *words]) == errors.ExitCode.CANNOT
    assert sorted(elsewhere.iterdir()) == before
    attack.victim.terminate()
    assert attack.victim.wait() == -signal.SIGTERM  # a SIGKILL before it would have come first


def test_another_users_home_can_be_read(attack: Attack, capsys: pytest.CaptureFixture[str]) -> None:
    """A recorder need not run as root: root, and readers, may look at what it stored."""
    captures.store(attack.home, captures.build([captures.Sample(captures.NIGHT)]))
    attack.give_to_attacker()
    assert cli.main(["--home", str(attack.home), "top"]) == 0
    assert "app" in capsys.readouterr().out


def test_a_journal_that_another_user_left_in_the_old_place_is_not_undone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OVERNIGHT_UNDO", raising=False)
    monkeypatch.setattr(journal, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = tmp_path / "overnight-undo-0"
    planted = journal.Journal("planted", place)
    target = tmp_path / planted.run
    target.touch()
    planted.write("file", target)
    planted.keep()
    assert [left.what for left in journal.runs()] == ["planted"]
    os.chown(place, otherusers.STRANGER, otherusers.STRANGER)
    assert journal.clean(kept=True) == ([], [])
    assert target.exists()
