"""The agent keeps its credential over a restart, and reports a machine that is not ready as failed."""

from __future__ import annotations

import json
import pathlib
import time
import types
from typing import Any

import pytest

from overnight.pools.providers import _member_agent


def order(folder: pathlib.Path, token: str, **fields: object) -> None:
    written = {"endpoint": "http://127.0.0.1:9", "token": token, **fields}
    (folder / "order.json").write_text(json.dumps(written))


class Ended(Exception):  # noqa: N818  not an error
    pass


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str], str]]:
    """Record the agent's requests to a control plane that accepts all and then ends it."""
    recorded: list[tuple[str, dict[str, str], str]] = []

    def ask(
        endpoint: str, path: str, body: dict[str, str], credential: str = ""
    ) -> tuple[str, dict[str, object]]:
        recorded.append((path, body, credential))
        beats = [path for path, *_ in recorded].count("/v1/beat")
        return _member_agent.DONE, {"gone": beats == 2, "state": "ready"}

    monkeypatch.setattr(_member_agent, "ask", ask)
    monkeypatch.setattr(_member_agent, "BEAT_SECONDS", 0)
    monkeypatch.setattr(_member_agent.signal, "signal", lambda *_: None)
    return recorded


def test_the_agent_enrols_reports_ready_and_beats(
    tmp_path: pathlib.Path, requests: list[tuple[str, dict[str, str], str]]
) -> None:
    order(tmp_path, "5" * 64)
    _member_agent.main(tmp_path)
    assert [path for path, _, _ in requests] == ["/v1/enrol", "/v1/phase", "/v1/beat", "/v1/beat"]
    credential = requests[0][1]["credential"]
    assert requests[1:] == [
        ("/v1/phase", {"phase": "ready"}, credential),
        ("/v1/beat", {}, credential),
        ("/v1/beat", {}, credential),
    ]
    assert '"token": ""' in (tmp_path / "order.json").read_text()


def test_a_restarted_agent_is_the_same_member_and_uses_no_token(
    tmp_path: pathlib.Path, requests: list[tuple[str, dict[str, str], str]]
) -> None:
    order(tmp_path, "5" * 64)
    _member_agent.main(tmp_path)
    first = requests[0][1]["credential"]
    requests.clear()
    _member_agent.main(tmp_path)
    assert [(path, credential) for path, _, credential in requests] == [
        ("/v1/phase", first),
        ("/v1/beat", first),
        ("/v1/beat", first),
    ]


def test_an_interrupted_enrolment_is_retried_with_the_same_credential(
    tmp_path: pathlib.Path,
    requests: list[tuple[str, dict[str, str], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order(tmp_path, "5" * 64)
    tries = []

    def cut_off(*words: object) -> tuple[str, dict[str, object]]:
        tries.append(words[2])
        raise Ended

    with monkeypatch.context() as broken:
        broken.setattr(_member_agent, "ask", cut_off)
        with pytest.raises(Ended):
            _member_agent.main(tmp_path)
    _member_agent.main(tmp_path)
    assert requests[0][1] == tries[0]


def test_only_the_owner_can_read_the_credential(tmp_path: pathlib.Path) -> None:
    credential = _member_agent.read_credential(tmp_path)
    assert len(credential) == 64
    assert (tmp_path / "credential").stat().st_mode & 0o077 == 0
    assert _member_agent.read_credential(tmp_path) == credential


class Machine:
    """A machine whose systemctl prints what a test writes; `phases` runs the agent on it."""

    def __init__(self, folder: pathlib.Path, requests: list[tuple[str, dict[str, str], str]]):
        self.root, self._requests = folder / "root", requests
        self.command = self.root / _member_agent.READY_COMMAND
        self.command.parent.mkdir(parents=True)
        self._folder, self._units = folder / "agent", folder / "units"
        self._folder.mkdir()
        self.units = ""

    @property
    def systemctl(self) -> str:
        return f'#!/bin/sh\ncase "$*" in *--state=failed,auto-restart*) cat {self._units};; *) exit 64;; esac\n'

    @property
    def units(self) -> str:
        return self._units.read_text()

    @units.setter
    def units(self, text: str) -> None:
        self._units.write_text(text)

    def ready_when(self, script: str, mode: int = 0o755) -> None:
        self.command.write_text(f"#!/bin/sh\n{script}\n")
        self.command.chmod(mode)

    def phases(self, **fields: object) -> list[dict[str, str]]:
        """Run the agent until it ends; return the phases that it reported."""
        self._requests.clear()
        order(self._folder, "", **{"readiness_timeout_seconds": 0.001, **fields})
        _member_agent.main(self._folder, self.root)
        return [body for path, body, _ in self._requests if path == "/v1/phase"]


@pytest.fixture
def machine(
    tmp_path: pathlib.Path,
    requests: list[tuple[str, dict[str, str], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Machine:
    new_machine = Machine(tmp_path, requests)
    systemctl = tmp_path / "tools/systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(new_machine.systemctl)
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(systemctl.parent), prepend=":")
    return new_machine


READY = [{"phase": "ready"}]
FAILED = "prepare.service loaded failed failed Prepare the host\n"
RESTARTING = "runner.service loaded activating auto-restart The runner\n"


def clock(**functions: object) -> types.SimpleNamespace:
    """Return `time` with some functions replaced, for the agent alone."""
    return types.SimpleNamespace(**{**vars(time), **functions})


def failed(reason: str, detail: str) -> list[dict[str, str]]:
    return [{"phase": "failed", "reason": reason, "detail": detail}]


def test_a_machine_without_faults_is_ready(machine: Machine) -> None:
    assert machine.phases() == READY
    machine.ready_when("exit 0")
    assert machine.phases() == READY


@pytest.mark.parametrize("bullet", ["", "\N{BLACK CIRCLE} ", "* "])
def test_a_failed_unit_fails_the_member(machine: Machine, bullet: str) -> None:
    machine.units = f"{bullet}{FAILED}"
    assert machine.phases() == failed("unit_failed", "prepare.service")
    assert machine.phases(ignore_failed_units=True) == READY


def test_a_member_whose_readiness_command_reports_a_reason_fails_at_once(machine: Machine) -> None:
    machine.ready_when("echo pulling; echo reason=module_pull_failed; exit 3")
    detail = f"{machine.command} exited with 3: reason=module_pull_failed"
    assert machine.phases() == failed("module_pull_failed", detail)
    machine.ready_when("exit 0", mode=0o644)
    [body] = machine.phases()
    assert body["reason"] == "readiness_failed"
    assert "Permission denied" in body["detail"]


def test_a_machine_that_needs_time_gets_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.units = RESTARTING
    machine.ready_when(
        f'echo . >> {machine.root}/tries; test "$(cat {machine.root}/tries)" = "$(printf ".\\n.")"'
    )
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        machine.units = ""

    monkeypatch.setattr(_member_agent, "time", clock(sleep=sleep))
    assert machine.phases(readiness_timeout_seconds=300) == READY
    # A restarting unit, then a command that fails once; the rest are heartbeats.
    assert slept == [*_member_agent.RETRY_SECONDS[:2], 0, 0]


@pytest.mark.parametrize(
    ("units", "script", "detail"),
    [
        (RESTARTING, "exit 0", "restarting: runner.service"),
        ("", "echo no route to host >&2; exit 1", "exited with 1: no route to host"),
        ("", "sleep 1000", "has not exited"),
    ],
)
def test_a_machine_that_is_not_ready_in_time_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, units: str, script: str, detail: str
) -> None:
    machine.units = units
    machine.ready_when(script)
    instants = iter([0.0, 0.0])
    monkeypatch.setattr(_member_agent, "time", clock(monotonic=lambda: next(instants, 5.5)))
    [body] = machine.phases()
    assert (body["phase"], body["reason"]) == ("failed", "readiness_timeout")
    assert detail in body["detail"]


def test_a_unit_that_fails_later_fails_the_member_while_nobody_has_it(
    machine: Machine, requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["ready", "claimed"])

    def ask(*words: Any) -> tuple[str, dict[str, object]]:
        requests.append(words[1:])
        if words[1] == "/v1/phase":
            machine.units = FAILED
            return _member_agent.DONE, {}
        return _member_agent.DONE, {"state": next(answers, "errored"), "gone": len(requests) == 5}

    monkeypatch.setattr(_member_agent, "ask", ask)
    assert machine.phases() == READY + failed("unit_failed", "prepare.service")
    # Restarted: the unit that its user broke does not matter.
    answers = iter(["claimed"])
    assert machine.phases() == READY
