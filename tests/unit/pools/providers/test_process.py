"""Members that are processes: started once, found again, ended for certain."""

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
    made = process.create(tmp_path)
    yield made
    for owner in ("me", "you"):
        for machine in made.inventory(owner):
            made.terminate(machine.id)


def order(name: str = "m-1", owner: str = "me") -> pools.Order:
    # Nobody answers at port 9: the agent asks again and again.
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


def test_an_inventory_is_of_its_owner(provider: process.Processes) -> None:
    provider.launch(order("m-1", "me"))
    provider.launch(order("m-2", "you"))
    assert [m.id for m in provider.inventory("me")] == ["m-1"]
    assert [m.id for m in provider.inventory("you")] == ["m-2"]
    assert process.create(pathlib.Path("/nonexistent")).inventory("me") == []


def test_what_a_launch_left_that_was_killed_at_once_goes_after_a_day(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    place = tmp_path / "pools/machines/m-9"
    place.mkdir(parents=True)
    assert provider.inventory("me") == []
    assert place.exists()  # somebody may be at it
    os.utime(place, (0, 0))
    assert provider.inventory("me") == []
    assert not place.exists()


def test_an_end_is_an_end_and_twice_is_no_error(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order())
    provider.terminate(machine.id)
    assert provider.inventory("me") == []
    assert not pathlib.Path(f"/proc/{pid_of(machine)}").exists()
    assert list((tmp_path / "pools/machines").iterdir()) == []
    provider.terminate(machine.id)
    provider.terminate("m-never")


def test_one_that_was_killed_is_not_in_the_inventory(provider: process.Processes) -> None:
    machine = provider.launch(order())
    os.kill(pid_of(machine), signal.SIGKILL)
    until(lambda: provider.inventory("me") == [])
    again = provider.launch(order())
    assert pid_of(again) != pid_of(machine)


def test_a_number_that_is_used_again_is_not_ours(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order())
    place = tmp_path / "pools/machines" / machine.id
    until((place / "agent").exists)
    os.kill(pid_of(machine), signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        # As if the system had given its number to somebody else.
        (place / "process").write_text(f"{other.pid} 1")
        assert provider.inventory("me") == []
        provider.terminate(machine.id)
        assert other.poll() is None
        other.communicate(b"\n")


def test_a_launcher_that_was_killed_leaves_one_that_is_found(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order())
    place = tmp_path / "pools/machines" / machine.id
    until(lambda: (place / "agent").exists() and (place / "agent").read_text())
    (place / "process").unlink()  # it never came to writing that
    assert provider.inventory("me") == [machine]
    provider.terminate(machine.id)
    assert not pathlib.Path(f"/proc/{pid_of(machine)}").exists()


def test_one_that_will_not_end_is_ended_by_force(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    machine = provider.launch(order())
    # Once it has asked in vain it listens for SIGTERM; stopped, it cannot hear it.
    until((tmp_path / "pools/machines/m-1/log").read_text)
    os.kill(pid_of(machine), signal.SIGSTOP)
    provider.terminate(machine.id)
    assert provider.inventory("me") == []


def test_the_order_is_for_nobody_elses_eyes(
    provider: process.Processes, tmp_path: pathlib.Path
) -> None:
    provider.launch(order())
    written = tmp_path / "pools/machines/m-1/order.json"
    assert written.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "/etc"])
def test_names_that_lead_elsewhere_are_refused(provider: process.Processes, name: str) -> None:
    with pytest.raises(pools.ProviderError):
        provider.terminate(name)


def test_no_room_has_its_reason(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(pools.ProviderError) as caught:
        process.create(tmp_path).launch(order())
    assert caught.value.reason == "provider_quota_exceeded"
