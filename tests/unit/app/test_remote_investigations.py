"""What the client of a server's investigations does while the server works."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from overnight.app import investigations, operations, remote_operations
from overnight.model.investigation import Investigation, Note, Phase
from overnight.model.plan import HostsPlan, Plan

if TYPE_CHECKING:
    from overnight.app import server_requests

PLAN = Plan(name="night", hosts=HostsPlan(provider="played"))
BEGUN = Investigation(id="i-1", plan=PLAN)


def ignore(_: object) -> None:
    return


def step(phase: Phase, *notes: Note) -> investigations.Report:
    return investigations.Report(dataclasses.replace(BEGUN, phase=phase), notes, 5.0)


class Client(remote_operations.RemoteInvestigations):
    """Shows one step after the other, as if a server had done it."""

    def __init__(self, *steps: investigations.Report) -> None:
        super().__init__(cast("server_requests.Requests", None))
        self.steps = [*steps]
        self.sent: list[str] = []

    def send(self, operation: operations.Operation, given: dict[str, Any]) -> Any:
        self.sent.append(operation.name)
        return self.steps.pop(0) if operation.name == "show" else step(Phase.ARMS)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(investigations, "POLL_SECONDS", 0.0)


def test_a_run_follows_the_server_and_shows_each_note_once() -> None:
    first, second = Note(1, "reserves"), Note(2, "differs", "a")
    client = Client(step(Phase.RESERVE, first), step(Phase.ARMS, first, second), step(Phase.ENDED, second))  # fmt: skip
    shown: list[str] = []
    phases: list[Phase] = []
    report = client.run(
        "i-1", threading.Event(), lambda each: phases.append(each.investigation.phase), shown.append
    )
    assert report.investigation.phase is Phase.ENDED
    assert phases == [Phase.RESERVE, Phase.ARMS, Phase.ENDED]
    assert shown == ["reserves", "a: differs"]
    assert client.sent == ["show"] * 3


def test_ctrl_c_asks_the_server_to_stop_once() -> None:
    client, stop = Client(step(Phase.ARMS), step(Phase.ARMS), step(Phase.ENDED)), threading.Event()
    stop.set()
    client.run("i-1", stop, ignore, ignore)
    assert client.sent == ["show", "stop", "show", "show"]


def test_finish_waits_for_the_end() -> None:
    client = Client(step(Phase.ARMS), step(Phase.ENDED))
    assert client.finish("i-1", ignore, ignore).investigation.phase is Phase.ENDED
    assert client.sent == ["stop", "show", "show"]


class Here(investigations.Investigations):
    """The same on this machine, while another process has the host."""

    show = Client.show
    send = Client.send

    def __init__(self, *steps: investigations.Report) -> None:
        super().__init__(pathlib.Path("unused"))
        self.steps, self.sent = [*steps], list[str]()

    def _open_host(self, _: Investigation) -> NoReturn:
        raise BlockingIOError


def test_a_second_process_on_this_machine_follows_the_first() -> None:
    local = dataclasses.replace(BEGUN, plan=Plan(name="night"))
    steps = [
        investigations.Report(dataclasses.replace(local, phase=phase), (), 0.0)
        for phase in (Phase.ARMS, Phase.ENDED)
    ]
    phases: list[Phase] = []
    here = Here(*steps)
    here.run("i-1", threading.Event(), lambda each: phases.append(each.investigation.phase), ignore)
    assert phases == [Phase.ARMS, Phase.ENDED]
