"""Members that are processes: started once, found again, reliably ended."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from overnight import pools
from overnight.pools.providers import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def provider(tmp_path: pathlib.Path) -> Iterator[process.Processes]:
    processes = process.create(tmp_path)
    yield processes
    for owner in ("me", "you"):
        for machine in processes.inventory(owner):
            processes.terminate(machine.id)


def order(name: str = "m-1", owner: str = "me") -> pools.Order:
    # Nothing answers at port 9: the agent retries forever.
    return pools.Order(
        owner=owner, member_id=name, pool="ci", template="t", endpoint="http://127.0.0.1:9",
        token="5" * 64,
    )  # fmt: skip


def pid_of(machine: pools.Machine) -> int:
    return int(machine.address.partition("#")[2])


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_same_member_twice_is_the_same_process(provider: process.Processes) -> None:
    first = provider.launch(order())
    assert provider.launch(order()) == first
    assert pathlib.Path(f"/proc/{pid_of(first)}").exists()
    assert provider.inventory("me") == [first]


def test_the_console_is_the_end_of_the_log(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    provider.launch(order())
    [log] = tmp_path.rglob("log")
    log.write_bytes(b"first\n" + b"x" * process.CONSOLE_BYTES + b"\xff last\n")
    assert provider.console("m-1").endswith("x\N{REPLACEMENT CHARACTER} last\n")
    assert "first" not in provider.console("m-1")
    assert provider.console("m-9") == ""


def test_an_inventory_lists_the_machines_of_its_owner(provider: process.Processes) -> None:
    provider.launch(order("m-1", "me"))
    provider.launch(order("m-2", "you"))
    assert [m.id for m in provider.inventory("me")] == ["m-1"]
    assert [m.id for m in provider.inventory("you")] == ["m-2"]
    assert process.create(pathlib.Path("/nonexistent")).inventory("me") == []


def test_the_folder_of_a_killed_launch_is_removed_after_a_day(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    place = tmp_path / "pools/machines/m-9"
    place.mkdir(parents=True)
    assert provider.inventory("me") == []
    assert place.exists()  # a launch may be in progress
    os.utime(place, (0, 0))
    assert provider.inventory("me") == []
    assert not place.exists()


def test_terminate_ends_the_process_and_can_be_repeated(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order())
    provider.terminate(machine.id)
    assert provider.inventory("me") == []
    until(lambda: not pathlib.Path(f"/proc/{pid_of(machine)}").exists())  # init collects it
    assert list((tmp_path / "pools/machines").iterdir()) == []
    provider.terminate(machine.id)
    provider.terminate("m-never")


def test_a_killed_process_is_not_in_the_inventory(provider: process.Processes) -> None:
    machine = provider.launch(order())
    os.kill(pid_of(machine), signal.SIGKILL)
    until(lambda: provider.inventory("me") == [])
    again = provider.launch(order())
    assert pid_of(again) != pid_of(machine)


def test_a_reused_pid_is_not_ours(provider: process.Processes, tmp_path: pathlib.Path) -> None:
    machine = provider.launch(order())
    place = tmp_path / "pools/machines" / machine.id
    until((place / "agent").exists)
    os.kill(pid_of(machine), signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        # As if the system had reused its PID.
        (place / "process").write_text(f"{other.pid} 1")
        assert provider.inventory("me") == []
        provider.terminate(machine.id)
        assert other.poll() is None
        other.communicate(b"\n")


def test_a_process_of_a_killed_launcher_is_found(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order())
    place = tmp_path / "pools/machines" / machine.id
    until(lambda: (place / "agent").exists() and (place / "agent").read_text())
    (place / "process").unlink()  # the launcher was killed before it wrote this
    assert provider.inventory("me") == [machine]
    provider.terminate(machine.id)
    ended = pathlib.Path(f"/proc/{pid_of(machine)}")  # it may still be a zombie
    until(lambda: not ended.exists())


def test_a_process_that_ignores_sigterm_is_killed(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order())
    # The agent handles SIGTERM after its first failed request; stopped, it cannot react.
    until((tmp_path / "pools/machines/m-1/log").read_text)
    os.kill(pid_of(machine), signal.SIGSTOP)
    provider.terminate(machine.id)
    assert provider.inventory("me") == []


def test_only_the_owner_can_read_the_order(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    provider.launch(order())
    written = tmp_path / "pools/machines/m-1/order.json"
    assert written.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "/etc"])
def test_names_outside_the_folder_are_refused(provider: process.Processes, name: str) -> None:
    with pytest.raises(pools.ProviderError):
        provider.terminate(name)


def test_a_full_disk_is_a_quota_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(pools.ProviderError) as caught:
        process.create(tmp_path).launch(order())
    assert caught.value.reason == "provider_quota_exceeded"
