"""Reports and replies: what is sent is what is read, and nothing else is accepted."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overnight import errors
from overnight.model import uplink
from overnight.model.audit import Belonging, Evidence, Finding, Risk
from overnight.model.audit import Gap as AuditGap
from overnight.model.audit import Report as Audit
from overnight.model.event import Event
from overnight.model.snapshot import Gap, Snapshot

SHA = "ab" * 32
ROLLUP = uplink.Rollup(5_000_000, 30, (0, 3), (1, 20), (7, 100), (2, 90), (0, 29_000))
EVENT = Event(
    7, "cpu.core_pinned", "core 3", "db-7", 3, "critical", "cpu.core_pinned-1", "0a-1b",
    until_us=9, count=2, fields={"busy": 0.5, "unit": "a.service", "is": True, "n": 3},
)  # fmt: skip
LINK = Evidence("/etc/systemd/system/a.service", 3, "Restart=always")
AUDIT = Audit(
    "db-7", "/", True, 8, 230, 18, Belonging("ecs", "Amazon ECS", (LINK,), {"nomad": (LINK,)}),
    Belonging("", "", (), {}), (Finding("looping", "a.service", Risk.HIGH, "b", "c", "d", (LINK,)),),
    (AuditGap("journal", "denied"),), ("a.service",),
)  # fmt: skip
REPORT = uplink.Report(
    10,
    "0a-1b",
    99,
    (uplink.Observed("0a-1b", 1, 9, 90),),
    {"zone": "eu-1a", "topology.kubernetes.io/zone": "x"},
    (EVENT,),
    (ROLLUP,),
    Snapshot({"host": "db-7"}, {"sysctl": {"vm.swappiness": "60"}}, (Gap("cpu", "x", "y"),)),
    (uplink.Offer(EVENT.id, SHA, 4096, 0, 12),),
    uplink.Lost(1, 2),
    AUDIT,
)


def as_sent(report: uplink.Report) -> Any:
    """Return a report as the JSON document of an agent."""
    document = dataclasses.asdict(report) | {
        "version": 1,
        "events": [event.as_json() for event in report.events],
        "snapshot": report.snapshot and report.snapshot.as_json(),
    }
    given = {name: value for name, value in document.items() if value is not None}
    return json.loads(json.dumps(given))


@pytest.mark.parametrize("report", [REPORT, uplink.Report(1, "a", 0)])
def test_a_report_arrives_as_it_was_sent(report: uplink.Report) -> None:
    assert uplink.Report.from_json(as_sent(report)) == report


def test_a_reply_is_plain_json() -> None:
    task = uplink.Task("t-1", uplink.TaskKind.UPLOAD_WINDOW, {"event": "x-1"}, 77)
    reply = uplink.Reply(30, 5, (task,), (SHA,), ("labels",))
    assert json.loads(json.dumps(reply.as_json())) == {
        "interval": 30,
        "now_us": 5,
        "tasks": [{"id": "t-1", "kind": "upload-window", "arguments": {"event": "x-1"}, "expires_us": 77}],
        "want": [SHA],
        "send": ["labels"],
    }  # fmt: skip


def test_a_task_report_arrives_as_it_was_sent() -> None:
    sent = {"state": "done", "detail": "uploaded", "progress": 1.0, "result": {"sha256": SHA}}
    done = uplink.TaskReport(uplink.TaskState.DONE, "uploaded", 1.0, {"sha256": SHA})
    assert uplink.TaskReport.from_json(sent) == done


def test_fields_of_a_later_version_are_ignored_but_a_later_version_is_not() -> None:
    later = as_sent(REPORT) | {"colour": "blue"}
    later["events"][0]["colour"] = "blue"
    assert uplink.Report.from_json(later) == REPORT
    with pytest.raises(errors.UsageError, match="version"):
        uplink.Report.from_json(later | {"version": 2})


def changed(*path: object, value: object) -> Any:
    document = as_sent(REPORT)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("sent_us",), "5", "sent_us"),
        (("sent_us",), True, "sent_us"),
        (("sent_us",), -1, "sent_us"),
        (("sent_us",), 1 << 60, "sent_us"),
        (("boot",), "../x", "boot"),
        (("version",), None, "version"),
        (("spells", 0, "end_us"), 0, r"spells\[0\].end_us"),
        (("spells",), [{}] * 1_001, "spells"),
        (("events",), {}, "events"),
        (("events", 0, "kind"), "Cpu", r"events\[0\].kind"),
        (("events", 0, "id"), "", r"events\[0\].id"),
        (("events", 0, "id"), "a\0b", r"events\[0\].id"),
        (("events", 0, "severity"), "loud", r"events\[0\].severity"),
        (("events", 0, "text"), "x" * 4_097, r"events\[0\].text"),
        (("events", 0, "fields"), {"x": {}}, r"events\[0\].fields.x"),
        (("events", 0, "fields"), {"x": float("nan")}, r"events\[0\].fields.x"),
        (("events", 0, "fields"), {str(n): n for n in range(65)}, "fields"),
        (("events",), [EVENT.as_json()] * 2_001, "events"),
        (("labels",), {f"l{n}": "" for n in range(65)}, "labels"),
        (("labels",), {"a b": "x"}, "labels.a b"),
        (("labels",), {"a": "x" * 257}, "labels.a"),
        (("labels",), {"a": "\ud800"}, "labels.a"),
        (("labels",), {"a": 5}, "labels.a"),
        (("rollups", 0, "mean"), [1], r"rollups\[0\].mean"),
        (("rollups", 0, "max"), [1, 101], r"rollups\[0\].max"),
        (("rollups", 0, "cores"), [0, 0], r"rollups\[0\].cores"),
        (("rollups", 0, "worst_ms"), [0, 30_001], r"rollups\[0\].worst_ms"),
        (("windows", 0, "sha256"), "../../etc", r"windows\[0\].sha256"),
        (("windows", 0, "bytes"), 0, r"windows\[0\].bytes"),
        (("snapshot",), {"schema": "x"}, "snapshot"),
        (("snapshot",), [], "snapshot"),
        (("lost",), {"events": -1}, "lost.events"),
        (("audit",), [], "report.audit"),
        (("audit",), {}, "audit.units"),
        (("audit", "enabled"), 1 << 60, "audit.enabled"),
        (("audit", "host"), None, "audit .*host is not a text"),
        (("audit", "live"), "yes", "audit .*live is not true or false"),
        (("audit", "examined_us"), 1.5, "audit .*examined_us"),
        (("audit", "orchestrator"), "ecs", "audit .*orchestrator"),
        (("audit", "cloud", "others"), {"x\x1b[2J": 5}, r"audit .*others.x\\x1b\[2J is not a list"),
        (("audit", "findings", 0, "risk"), "none", "audit .*risk is not one of"),
        (("audit", "findings", 0, "evidence", 0, "line"), "3", "audit .*line"),
        (("audit", "gaps"), [["journal", "denied"]], "audit .*gaps"),
        (("audit", "host"), "x" * uplink.MAX_AUDIT_BYTES, "report.audit is not an object of at most 1024 KB"),
    ],
)  # fmt: skip
def test_an_error_names_the_field(path: tuple[object, ...], value: object, named: str) -> None:
    with pytest.raises(errors.UsageError, match=named):
        uplink.Report.from_json(changed(*path, value=value))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner)
)
PARTS = [field.name for field in dataclasses.fields(uplink.Report)]


@given(st.sampled_from(["version", *PARTS]), JSON)
@example("labels", {"": ""})
def test_no_report_does_anything_but_arrive_or_be_refused(part: str, value: object) -> None:
    try:
        report = uplink.Report.from_json({**as_sent(REPORT), part: value})
    except errors.UsageError:
        return
    assert uplink.Report.from_json(as_sent(report)) == report


FIELDS = list(EVENT.as_json())


@given(st.sampled_from(FIELDS), JSON)
def test_no_event_does_anything_but_arrive_or_be_refused(name: str, value: object) -> None:
    try:
        event = uplink.parse_event({**EVENT.as_json(), name: value})
    except errors.UsageError:
        return
    assert uplink.parse_event(json.loads(json.dumps(event.as_json()))) == event


@pytest.mark.parametrize("parse", [uplink.Report, uplink.TaskReport])
def test_other_documents_are_refused(parse: Any) -> None:
    for value in (None, [], "x", 5, {}, {"version": 1}):
        with pytest.raises(errors.UsageError):
            parse.from_json(value)


@pytest.mark.parametrize("document", [{"x": "y" * 70_000}, {"x": float("nan")}, [], "x"])
def test_a_large_or_invalid_result_is_refused(document: object) -> None:
    with pytest.raises(errors.UsageError, match="result"):
        uplink.TaskReport.from_json({"state": "done", "result": document})


def test_an_agent_cannot_report_a_state_of_the_server() -> None:
    with pytest.raises(errors.UsageError, match="state"):
        uplink.TaskReport.from_json({"state": "cancelled"})
    assert not uplink.TaskState.LEASED.is_final
    assert uplink.TaskState.EXPIRED.is_final
