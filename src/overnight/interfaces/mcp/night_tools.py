"""Tools of reservations and investigations, and the request for a person's confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from overnight import errors
from overnight.app import investigations
from overnight.interfaces.mcp import fleet_tools, pool_tools, tools
from overnight.interfaces.mcp import values as v
from overnight.model.confirmation import ConfirmationNeededError, NoConfirmationNeededError
from overnight.model.reservation import Order

if TYPE_CHECKING:
    from overnight.app import concierge, reservations

HOUR = 3600
MAX_PLAN = 32 << 10


class NewReservation(v.Input):
    provider: v.Name = Field(description="local, nspawn, pool, kubernetes, ec2 or ecs")
    where: v.Text = Field("", description="Context, group, cluster, pool or image.")
    hosts: list[v.Name] = Field([], description="These hosts, or `count` that fit.")
    count: int = Field(1, ge=1, le=1000)
    labels: dict[v.Name, v.Text] = Field({}, description="Labels that they must have.")
    hours: float = Field(12.0, gt=0, le=336)
    evict: bool = Field(False, description="Move other workloads away.")
    no_execute: bool = Field(False, description="Kubernetes: also taint NoExecute.")
    purpose: v.Text = ""


class OfReservation(v.Input):
    id: v.Name = Field(description="Id of the reservation.", examples=["r-5f0c9a41d2b7"])


class NewInvestigation(v.Input):
    plan: str = Field(max_length=MAX_PLAN, description="The plan as YAML; resources have examples.")


class OfInvestigation(v.Input):
    id: v.Name = Field(description="Id of the investigation.", examples=["i-5f0c9a41d2b7"])


class WantedConfirmation(v.Input):
    action: v.Name = Field(description="Name of the tool.", examples=["system_drain_instance_pool"])
    arguments: dict[str, Any] = Field({}, description="Its arguments.", examples=[{"id": "ci"}])


ReservedHost = v.record(
    "ReservedHost", word="name state agent", words="failed_checks", text="detail"
)  # fmt: skip
Reservation = v.record(
    "Reservation", word="id state", instant="until", text="reason", more={"hosts": [ReservedHost]}
)  # fmt: skip
ReservationAnswer = v.record("ReservationAnswer", more={"reservation": Reservation})
Arm = v.record("Arm", word="kind state", words="hosts", count="events", text="note")
Seen = v.record(
    "Seen", word="event kind host", instant="at", text="verdict", more={"report": v.Word | None}
)  # fmt: skip
Investigation = v.record(
    "Investigation", word="id phase outcome", text="name reason", number="left_seconds",
    more={"arms": [Arm], "report": v.Word | None}
)  # fmt: skip
InvestigationAnswer = v.record(
    "InvestigationAnswer", base=v.Listed, texts="log", more={"investigation": Investigation, "events": [Seen]}
)  # fmt: skip
ConfirmationAnswer = v.record(
    "ConfirmationAnswer", flag="required", more={"confirmation": tools.PendingConfirmation | None}
)  # fmt: skip


def _order(asked: NewReservation) -> dict[str, Any]:
    fields = asked.model_dump(exclude={"hours", "hosts"})
    order = Order(**fields, hosts=tuple(asked.hosts), seconds=round(asked.hours * HOUR))
    return {"order": order, "confirmed": False}


def _reservation(report: reservations.Report, *_: Any) -> dict[str, Any]:
    made = report.reservation
    hosts = [
        {**vars(host), "failed_checks": [c.name for c in host.checks if c.state != "passed"]}
        for host in made.hosts[: v.ROWS]
    ]
    return {"reservation": {**vars(made), "until": made.until_us, "hosts": hosts}}


def _investigation(
    report: investigations.Report, backend: concierge.Backend, _: Any
) -> dict[str, Any]:
    found = report.investigation
    row = {
        **vars(found),
        "name": found.plan.name,
        "left_seconds": report.left_s,
        "arms": [{**vars(arm), "events": len(arm.occurrences)} for arm in found.arms],
        "report": found.report if "://" in found.report else None,
    }
    seen = (
        {**vars(each), "at": each.time_us, "verdict": each.headline, "report": fleet_tools.link(backend, each.event)}
        for each in report.events
    )  # fmt: skip
    log = [f"{note.host}: {note.text}".removeprefix(": ") for note in report.notes[-v.ROWS :]]
    return {**v.cut("events", seen), "investigation": row, "log": log}


def _of_reservation(asked: OfReservation) -> dict[str, Any]:
    return {"reservation_id": asked.id}


def _start(asked: NewInvestigation) -> dict[str, Any]:
    return {"plan": investigations.parse_plan(asked.plan), "confirmed": False}


def _of(asked: OfInvestigation) -> dict[str, Any]:
    return {"investigation_id": asked.id}


def _ask(backend: concierge.Backend, asked: WantedConfirmation) -> dict[str, Any]:
    guarded = {tool.name: tool for tool in (*pool_tools.TOOLS, *TOOLS) if tool.is_guarded}
    if asked.action not in guarded:
        raise errors.UsageError(
            f"{asked.action[:60]!r} is never confirmed",
            why=f"tools that may be: {', '.join(guarded)}",
            todo="call it directly, or name one of these",
        )
    try:
        guarded[asked.action].ask(backend, asked.arguments)
    except ConfirmationNeededError as error:
        return {"required": True, "confirmation": tools.describe(error.confirmation, error.why)}
    except NoConfirmationNeededError:
        pass
    return {"required": False, "confirmation": None}


TOOLS = (
    tools.Tool(
        name="reserve",
        about="Take hosts out of production for a while. A person confirms what disturbs others or is more than 20 hosts.",
        input=NewReservation, output=ReservationAnswer, action="reservation.create",
        given=_order, show=_reservation, open_world=True,
    ),
    tools.Tool(
        name="reservation_status",
        about="Show a reservation: its state, its end, its hosts and their failed checks.",
        input=OfReservation, output=ReservationAnswer, action="reservation.show",
        given=_of_reservation, show=_reservation,
    ),
    tools.Tool(
        name="release_reservation",
        about="Give the hosts of a reservation back. A person confirms it for the reservation of another caller.",
        input=OfReservation, output=ReservationAnswer, action="reservation.end",
        given=_of_reservation, show=_reservation, destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="start_investigation",
        about="Carry out a plan on reserved hosts overnight. A person confirms a plan that changes hosts.",
        input=NewInvestigation, output=InvestigationAnswer, action="investigation.create",
        given=_start, show=_investigation, destructive=True, open_world=True,
    ),
    tools.Tool(
        name="stop_investigation",
        about="End an investigation cleanly with what was learnt; every host is given back.",
        input=OfInvestigation, output=InvestigationAnswer, action="investigation.stop",
        given=_of, show=_investigation, destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="investigation_status",
        about="Show an investigation: phase, arms, events with their first verdicts, log, report.",
        input=OfInvestigation, output=InvestigationAnswer, action="investigation.show",
        given=_of, show=_investigation,
    ),
    tools.Tool(
        name="request_confirmation",
        about="Ask a person to confirm a destructive or costly call, and show exactly what it would do. Changes nothing.",
        input=WantedConfirmation, output=ConfirmationAnswer, answer=_ask, changes=True, idempotent=True,
    ),
)  # fmt: skip
