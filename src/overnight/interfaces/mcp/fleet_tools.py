"""Tools about hosts and their evidence: what happened, why, and what sets hosts apart. All of them only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from overnight.app import concierge, fleet_windows, studies
from overnight.interfaces.mcp import tools
from overnight.interfaces.mcp import values as v
from overnight.model import times

if TYPE_CHECKING:
    from overnight.app import fleet_questions

TIME = "A time such as '3h ago', 22:41 or 2026-11-15T03:14:07, in UTC."
STEPS = 6  # of a chain, a fix or an experiment
INTERVALS = 60


# --- what tools take


class HostsWanted(v.Input):
    label: dict[v.Name, v.Text] = Field({}, description="Labels that the host has.", examples=[{"zone": "b"}])  # fmt: skip
    limit: v.Limit = v.ROWS


class EventsWanted(v.Input):
    kinds: list[v.Name] = Field([], description="Kinds; one that ends with a dot is a prefix.", examples=[["net.driver_reset"]])  # fmt: skip
    hosts: list[v.Name] = Field([], description="Only these hosts.")
    severity: Literal["info", "warning", "critical"] = Field("warning", description="At least.")
    begin: v.Text = Field("", description=f"{TIME} Default: a week ago.")
    end: v.Text = Field("", description=TIME)
    limit: v.Limit = v.ROWS


class OfEvent(v.Input):
    event: v.Name = Field(description="Id of the event.")
    host: v.Text = Field("", description="Host, where several have the id.")


class OfWindow(v.Input):
    event: v.Text = Field("", description="Id of an event: its incident window.")
    host: v.Text = Field("", description="Host, without an event.")
    begin: v.Text = Field("", description=f"{TIME} At most an hour before end.")
    end: v.Text = Field("", description=TIME)


class CpuWanted(OfWindow):
    core: v.Text = Field("", description="Cores: 39 or 1-3,5.")
    every_seconds: float | None = Field(None, gt=0, le=3600, description="Length of an interval.")


class TopWanted(OfWindow):
    kind: Literal["processes", "threads", "units", "functions"] = "processes"
    core: v.Text = Field("", description="Cores: 39 or 1-3,5.")
    limit: v.Limit = v.ROWS


class OfKind(v.Input):
    kind: v.Name = Field(description="Kind of event.", examples=["net.driver_reset"])
    begin: v.Text = Field("", description=TIME)
    end: v.Text = Field("", description=TIME)
    limit: v.Limit = v.ROWS


class Comparison(v.Input):
    kinds: list[v.Name] = Field([], description="Default: every kind that is at least a warning.")
    at: v.Text = Field("", description=f"Compare before and after. {TIME}")
    group: v.Text = Field("", description="Or compare hosts with this LABEL=VALUE with others.")
    against: v.Text = Field("", description="With group: another value of the label.")
    begin: v.Text = Field("", description=TIME)
    end: v.Text = Field("", description=TIME)
    hosts: list[v.Name] = Field([], description="Only these hosts.")


class DriftWanted(v.Input):
    sick: list[v.Name] = Field([], description="Hosts to compare with the others.")
    kind: v.Text = Field("", description="Or: hosts that had this kind of event.")
    unit: v.Text = Field("", description="Or: hosts on which this unit is active.")
    against: v.Text = Field(
        "", description="Compare with hosts of this LABEL=VALUE only, such as a spared zone."
    )
    limit: v.Limit = v.ROWS


class OfHost(v.Input):
    host: v.Text = Field("", description="Host; without a server, this machine.")


# --- what tools return

HostRow = v.record(
    "HostRow", word="name state", instant="last_seen_at booted_at", more={"labels": dict[v.Word, v.HostText]}
)  # fmt: skip
Hosts = v.record("Hosts", base=v.Listed, more={"hosts": [HostRow]})
EventRow = v.record(
    "EventRow", word="id kind severity host", instant="at", number="lasted_seconds", count="count",
    text="process unit text", more={"core": int | None, "report": v.Word | None}
)  # fmt: skip
Events = v.record("Events", base=v.Listed, more={"events": [EventRow]})
Finding = v.record(
    "Finding", word="kind", number="confidence", text="summary", more={"core": int | None}
)  # fmt: skip
Step = v.record("Step", text="what command expect")
Alternative = v.record("Alternative", word="root", number="score", text="why_not")
Missing = v.record("Missing", word="kind", text="what why")
Verdict = v.record(
    "Verdict", word="status", number="confidence", text="headline root_cause mechanism effect link",
    more={"chain": [Finding], "fix": [Step], "experiment": [Step], "alternatives": [Alternative], "missing": [Missing], "report": v.Word | None}
)  # fmt: skip
Reading = v.record(
    "Reading", instant="at", number="used", more={"core": int | None, "values": dict[v.Word, v.Number]}
)  # fmt: skip
Cpu = v.record(
    "Cpu", base=v.Listed, word="host", instant="begin end", count="cores lost", more={"readings": [Reading]}
)  # fmt: skip
Consumer = v.record(
    "Consumer", text="name", count="samples", number="share_of_samples share_of_capacity cores"
)  # fmt: skip
Top = v.record("Top", base=v.Listed, word="kind", more={"consumers": [Consumer]})
Creator = v.record("Creator", text="cgroup unit", number="deaths_per_hour")
Census = v.record(
    "Census", count="tracked in_use dying", number="growth_per_hour measured_seconds hours_to_critical",
    word="severity", sentences="reasons", more={"creators": [Creator]}
)  # fmt: skip
Rate = v.record("Rate", count="events", number="exposure rate")
Compared = v.record(
    "Compared", word="kind outcome", number="ratio ratio_low ratio_high", text="answer",
    more={"before": Rate, "after": Rate}
)  # fmt: skip
Comparisons = v.record(
    "Comparisons", base=v.Listed, word="exposure", text="before after", texts="notes", more={"rows": [Compared]}
)  # fmt: skip
Cohort = v.record(
    "Cohort", count="hosts hosts_with_event events", number="expected_events rate_ratio p", flag="spared",
    more={"labels": dict[v.Word, v.HostText]}
)  # fmt: skip
Cohorts = v.record(
    "Cohorts", base=v.Listed, word="kind status", text="why", texts="findings", more={"cohorts": [Cohort]}
)  # fmt: skip
Item = v.record("Item", word="part", text="key property value", flag="present")
Difference = v.record(
    "Difference", count="sick_with sick healthy_with healthy", number="p", flag="significant",
    more={"items": [Item]}
)  # fmt: skip
Drift = v.record(
    "Drift", base=v.Listed, word="status", text="why", words="sick", count="healthy_hosts",
    more={"differences": [Difference]}
)  # fmt: skip
AuditFinding = v.record("AuditFinding", word="risk", text="id unit what why fix")
Audit = v.record("Audit", base=v.Listed, word="host", instant="examined_at", count="units enabled", more={"findings": [AuditFinding]})  # fmt: skip


# --- translation


def _hosts(backend: concierge.Backend, asked: HostsWanted) -> dict[str, Any]:
    found, now = backend.hosts().having(asked.label), times.now_us()

    def describe(host: fleet_questions.HostSummary) -> dict[str, Any]:
        online = "online" if now - host.seen_us < fleet_windows.OFFLINE_US else "offline"
        state = online if backend.url else "recorded"
        return {**vars(host), "state": state, "last_seen_at": host.seen_us, "booted_at": host.booted_us}  # fmt: skip

    return v.cut("hosts", map(describe, found.hosts), asked.limit)


def link(backend: concierge.Backend, event: str) -> str | None:
    """Return where the server delivers the report of an event."""
    return f"{backend.url}/reports/{event}" if backend.url else None


def _events(backend: concierge.Backend, asked: EventsWanted) -> dict[str, Any]:
    given = asked.model_dump(exclude={"limit"})
    chosen = concierge.make_filter(**given, now_us=times.now_us())
    rows = (
        {**vars(e), "at": e.time_us, "core": e.known_core, "lasted_seconds": e.seconds, "report": link(backend, e.id)}
        for e in backend.events(chosen, asked.limit + 1)
    )  # fmt: skip
    return v.cut_page("events", rows, asked.limit)


def _diagnose(backend: concierge.Backend, asked: OfEvent) -> dict[str, Any]:
    found = backend.study(studies.DIAGNOSE, asked.model_dump())
    verdict, event = found["verdict"], found["event"] or {}
    others = (each for each in found["alternatives"][:STEPS] if each["chain"])
    return {
        **verdict,
        "chain": [{**step, "core": step["subject"].get("core")} for step in verdict["chain"][:STEPS]],
        "fix": found["fix"][:STEPS],
        "experiment": found["next"][:STEPS],
        "alternatives": [{**each, "root": each["chain"][0]["kind"]} for each in others],
        "missing": found["gaps"][:STEPS],
        "report": link(backend, event["id"]) if event.get("id") else None,
    }  # fmt: skip


def _cpu(backend: concierge.Backend, asked: CpuWanted) -> dict[str, Any]:
    """Return the worst core of each interval; where there are too many, the worst intervals, by time."""
    found = backend.study(studies.CPU, asked.model_dump())
    rows = [{**i["cores"][0], "at": i["end_us"]} for i in found["intervals"] if i["cores"]]
    worst = sorted(rows, key=lambda row: -row["used"])[:INTERVALS]
    shown = v.cut("readings", sorted(worst, key=lambda row: row["at"]), INTERVALS, len(rows))
    begin, end = found["window"]["begin_us"], found["window"]["end_us"]
    return {**found, **shown, "begin": begin, "end": end, "cores": len(found["cores"])}


def _top(backend: concierge.Backend, asked: TopWanted) -> dict[str, Any]:
    found = backend.study(studies.TOP, asked.model_dump())
    total = len(found["rows"]) + found["others"]
    return {**found, **v.cut("consumers", found["rows"], asked.limit, total)}


def _compare(backend: concierge.Backend, asked: Comparison) -> dict[str, Any]:
    found = backend.ask("compare", asked.model_dump())
    return {**found, **v.cut("rows", found["rows"]), "notes": found["notes"][: v.ROWS]}


def _cohorts(backend: concierge.Backend, asked: OfKind) -> dict[str, Any]:
    found = backend.ask("cohorts", asked.model_dump(exclude={"limit"}))
    rows = (
        {**row, "labels": {label["name"]: label["value"] for label in row["labels"]}}
        for row in found["cohorts"]
    )
    summaries = [finding["summary"] for finding in found["findings"][: v.ROWS]]
    return {**found, **v.cut("cohorts", rows, asked.limit), "findings": summaries}


def _drift(backend: concierge.Backend, asked: DriftWanted) -> dict[str, Any]:
    found = backend.ask("drift", asked.model_dump(exclude={"limit"}))

    def describe(row: dict[str, Any]) -> dict[str, Any]:
        items = [{**item, "value": item["value"] or ""} for item in row["items"][:STEPS]]
        return {**row, "significant": row["stands"], "items": items}

    rows = v.cut("differences", map(describe, found["differences"]), asked.limit)
    return {**found, **rows, "sick": found["sick"][: v.ROWS], "healthy_hosts": len(found["healthy"])}  # fmt: skip


def _audit(backend: concierge.Backend, asked: OfHost) -> dict[str, Any]:
    found = backend.audit(asked.host)
    return {**found, **v.cut("findings", found["findings"]), "examined_at": found["examined_us"]}


TOOLS = (
    tools.Tool(
        name="hosts",
        about="List hosts with their labels and when they were last seen.",
        input=HostsWanted, output=Hosts, answer=_hosts,
    ),
    tools.Tool(
        name="events",
        about="List events of hosts, the newest first: resets, pinned cores, OOM kills, lockups.",
        input=EventsWanted, output=Events, answer=_events,
    ),
    tools.Tool(
        name="diagnose",
        about="Find the cause of an event: verdict, confidence, chain of evidence, fix, experiment.",
        input=OfEvent, output=Verdict, answer=_diagnose, open_world=True,
    ),
    tools.Tool(
        name="cpu",
        about="Show the CPU time of the worst core in each interval, around an event or in a window of a host.",
        input=CpuWanted, output=Cpu, answer=_cpu, open_world=True,
    ),
    tools.Tool(
        name="top",
        about="Rank processes, threads, units or functions by CPU time, around an event or in a window of a host.",
        input=TopWanted, output=Top, answer=_top, open_world=True,
    ),
    tools.Tool(
        name="census",
        about="Count dying (zombie) memory cgroups on a host around an event, and their growth.",
        input=OfWindow, output=Census, answer=lambda backend, asked: backend.study(studies.CENSUS, asked.model_dump()),
        open_world=True,
    ),
    tools.Tool(
        name="compare",
        about="Test whether the rate of events changed, between two times or two groups of hosts.",
        input=Comparison, output=Comparisons, answer=_compare,
    ),
    tools.Tool(
        name="cohorts",
        about="Find the labels (zone, image, kernel) that events of a kind follow.",
        input=OfKind, output=Cohorts, answer=_cohorts,
    ),
    tools.Tool(
        name="drift",
        about="Find what is installed or configured only on hosts that fail.",
        input=DriftWanted, output=Drift, answer=_drift,
    ),
    tools.Tool(
        name="audit",
        about="Find units of a host that do not belong there, loop, or cannot start, as it last reported them.",
        input=OfHost, output=Audit, answer=_audit,
    ),
)  # fmt: skip
