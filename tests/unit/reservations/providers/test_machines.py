"""Machines of reservations, and the agent inside one: without booting any. tests/integration boots them."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import tarfile

import pytest

from overnight import errors, pools, reservations
from overnight.model import times
from overnight.model.reservation import AgentTasks, Lease, Order
from overnight.pools.providers import nspawn as pool_machines
from overnight.reservations.providers import _machine_agent, nspawn

S = 1_000_000
NOW = 1_800_000_000 * S
LEASE = Lease("r-aaaaaaaaaaaa", "ada", NOW + 3600 * S, NOW + 7200 * S, "night 4")
OTHER = dataclasses.replace(LEASE, id="r-bbbbbbbbbbbb", owner="")
HOST, SECOND = "overnight-h-000000000001", "overnight-h-000000000002"
ORDER = Order(provider="nspawn", count=2)


@pytest.fixture
def machines(tmp_path: pathlib.Path) -> nspawn.Nspawn:
    return nspawn.Nspawn(reservations.Settings(home=tmp_path))


def runs(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """Say that a machine runs there, or none."""
    machine = address and pools.Machine(id="x", member_id="x", address=address)
    monkeypatch.setattr(pool_machines, "find_machine", lambda place: machine)


def place_of(tmp_path: pathlib.Path, host: str, lease: Lease = LEASE) -> pathlib.Path:
    return tmp_path / "pools/nspawn/members" / lease.id / host.removeprefix("overnight-")


def test_a_machine_belongs_to_one_lease(machines: nspawn.Nspawn) -> None:
    machines.claim(HOST, ORDER, LEASE)
    machines.claim(HOST, ORDER, LEASE)
    with pytest.raises(reservations.TakenError, match=f"{HOST} belongs to {LEASE.id}"):
        machines.claim(HOST, ORDER, OTHER)
    machines.claim(SECOND, ORDER, OTHER)
    held = {each.host: each for each in machines.list_held(ORDER)}
    assert {name: (each.id, each.lease, each.claimed) for name, each in held.items()} == {
        HOST: (LEASE.id, LEASE, True), SECOND: (OTHER.id, OTHER, True),
    }  # fmt: skip
    assert all(abs((each.since_us or 0) - times.now_us()) < 60 * S for each in held.values())
    first, second, *new = machines.list_hosts(dataclasses.replace(ORDER, instance_type="2G"))
    assert [(host.name, host.taken) for host in (first, second)] == [(HOST, "ada"), (SECOND, OTHER.id)]  # fmt: skip
    assert [(host.taken, host.instance_type) for host in new] == [("", "2G")] * 2
    assert len({host.name for host in new}) == 2
    for host in new:
        machines.claim(host.name, ORDER, LEASE)


@pytest.mark.parametrize(
    ("host", "lease_id"),
    [("web-1", LEASE.id), ("overnight-h-1", LEASE.id), (f"{HOST}/..", LEASE.id), (HOST, ".."), (HOST, "r-1")],
)  # fmt: skip
def test_no_folder_but_that_of_a_machine_is_touched(
    machines: nspawn.Nspawn, host: str, lease_id: str
) -> None:
    with pytest.raises(errors.UsageError):
        machines.claim(host, ORDER, dataclasses.replace(LEASE, id=lease_id))
    with pytest.raises(errors.UsageError):
        machines.release(host, ORDER, lease_id)


def test_a_lease_is_renewed_only_while_its_machine_runs(
    machines: nspawn.Nspawn, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = dataclasses.replace(LEASE, until_us=LEASE.until_us + S)
    runs(monkeypatch, "host#7")
    assert not machines.renew(HOST, ORDER, later)  # never claimed
    machines.claim(HOST, ORDER, LEASE)
    assert machines.renew(HOST, ORDER, later)
    assert [each.lease for each in machines.list_held(ORDER)] == [later]
    runs(monkeypatch, None)
    assert not machines.renew(HOST, ORDER, LEASE)
    assert [each.lease for each in machines.list_held(ORDER)] == [later]
    (place_of(tmp_path, HOST) / nspawn.FILE).unlink()
    runs(monkeypatch, "host#7")
    assert not machines.renew(HOST, ORDER, LEASE)
    assert [each.claimed for each in machines.list_held(ORDER)] == [False]


@pytest.mark.parametrize(
    ("state", "allow", "empty"),
    [
        ("", False, False),
        ("starting", True, False),
        ("running", False, True),
        ("degraded", True, True),
        ("degraded", False, None),
    ],
)
def test_a_machine_is_ready_when_its_units_are(
    machines: nspawn.Nspawn,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    allow: bool,
    empty: bool | None,
) -> None:
    def run_inside(leader: int, *command: str, check: bool = True) -> str:
        assert leader == 7
        return "a.service x\nb.service y\n" if "--failed" in command else state

    monkeypatch.setattr(_machine_agent, "run_inside", run_inside)
    runs(monkeypatch, "host#7")
    machines.claim(HOST, ORDER, LEASE)
    order, said = dataclasses.replace(ORDER, allow_unhealthy=allow), list[str]()
    if empty is None:
        with pytest.raises(reservations.PlatformError, match="have failed") as caught:
            machines.empty(HOST, order, LEASE, said.append)
        assert (caught.value.why, caught.value.retry) == ("a.service, b.service", False)
    else:
        assert machines.empty(HOST, order, LEASE, said.append) is empty
        assert said == ([] if empty else [f"booting ({state or 'no systemd yet'})"])
    assert (place_of(tmp_path, HOST) / nspawn.BOOTED).exists() is bool(empty)


def test_a_machine_that_has_ended_is_said_to_and_not_booted_again(
    machines: nspawn.Nspawn, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, None)
    machines.claim(HOST, ORDER, LEASE)
    place = place_of(tmp_path, HOST)
    (place / "log").write_text("no init in the template\n")
    with pytest.raises(reservations.PlatformError, match="ended while it booted") as caught:
        machines.empty(HOST, ORDER, LEASE, print)
    assert (caught.value.why, caught.value.retry) == ("no init in the template", False)
    (place / nspawn.BOOTED).touch()
    with pytest.raises(reservations.PlatformError, match="has ended") as caught:
        machines.mark(HOST, ORDER, LEASE)
    assert not caught.value.retry


# the agent


class Inside:
    """Notes the commands that are run in the machine, and unpacks what it gets."""

    def __init__(self, active: str = "inactive", lease_id: str = LEASE.id) -> None:
        self.active, self.lease_id = active, lease_id
        self.commands: list[tuple[str, ...]] = []
        self.files: dict[str, tuple[int, bytes]] = {}

    def __call__(self, leader: int, *command: str, given: bytes = b"", check: bool = True) -> str:
        assert leader == 7
        self.commands.append(command)
        if given:
            with tarfile.open(fileobj=io.BytesIO(given)) as archive:
                for entry in archive.getmembers():
                    content = archive.extractfile(entry)
                    assert content is not None
                    self.files[entry.name] = (entry.mode, content.read())
        answers = {"uname": "m-1", "cat": self.lease_id, "systemctl": self.active}
        return answers.get(command[0], "")


@pytest.mark.parametrize("server", ["", "https://centre"])
def test_an_agent_in_a_machine_records_until_the_cap_and_reports_only_to_a_server(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    inside = Inside()
    monkeypatch.setattr(_machine_agent, "run_inside", inside)
    monkeypatch.setattr(times, "now_us", lambda: NOW)
    monkeypatch.setattr(_machine_agent, "PARTS", ("__init__.py",))
    setup = reservations.AgentSetup(server=server, token="s3cret", tasks=AgentTasks())
    _machine_agent.start(7, LEASE, setup)
    units = _machine_agent.UNITS if server else _machine_agent.UNITS[:1]
    assert inside.commands[-1] == ("systemctl", "start", *units)
    folder = _machine_agent.UNIT_FOLDER.lstrip("/")
    written = {name: text.decode() for name, (_, text) in inside.files.items() if name.startswith(folder)}  # fmt: skip
    assert {*written} == {f"{folder}/{unit}" for unit in units}
    assert all("RuntimeMaxSec=7200\n" in text for text in written.values())
    assert all("s3cret" not in text for text in written.values())
    assert inside.files["opt/overnight-agent/lease"] == (0o644, LEASE.id.encode())
    options = inside.files.get("opt/overnight-agent/uplink.json")
    assert (options is not None) is bool(server)
    if options is not None:
        mode, text = options
        given = json.loads(text)
        assert mode == 0o600
        assert (given["server"], given["token"], given["host"]) == (server, "s3cret", "m-1")


def test_an_agent_in_a_machine_is_started_once_and_ended_by_its_lease_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = reservations.AgentSetup(server="")
    running = Inside("active")
    monkeypatch.setattr(_machine_agent, "run_inside", running)
    _machine_agent.start(7, LEASE, setup)
    assert [command[:2] for command in running.commands] == [("systemctl", "is-active")]
    _machine_agent.stop(7, OTHER.id)
    assert not any("stop" in command for command in running.commands)
    _machine_agent.stop(7, LEASE.id)
    assert ("systemctl", "stop", *_machine_agent.UNITS) in running.commands
    [removed] = [command for command in running.commands if command[0] == "rm"]
    assert {_machine_agent.HOME, _machine_agent.PROGRAM} <= {*removed}
    before = len(running.commands)
    _machine_agent.stop(0, LEASE.id)  # the machine has ended
    assert len(running.commands) == before


def test_a_machine_that_ended_has_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine_agent, "run_inside", Inside("active"))
    assert _machine_agent.hear(0).agent_us is None
    assert _machine_agent.hear(7).agent_us is not None
    monkeypatch.setattr(_machine_agent, "run_inside", Inside("activating"))
    assert _machine_agent.hear(7).agent_us is None
