"""What a report shows below its answer: sections with texts and tables, the same in every format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from overnight.diagnosis import fleet_evidence
from overnight.model.text import percent, rounded
from overnight.model.verdict import ArgumentOutcome
from overnight.reports.diagnosis import wording as texts
from overnight.reports.investigation import wording

if TYPE_CHECKING:
    from overnight.reports import investigation as package

Cell: TypeAlias = str | tuple[str, str]  # a text, or one with the address that it links to


@dataclasses.dataclass(frozen=True)
class Table:
    caption: str
    heads: tuple[str, ...]  # that of a number begins with `n:`
    rows: tuple[tuple[Cell, ...], ...]


@dataclasses.dataclass(frozen=True)
class Section:
    name: str  # of the anchor
    heading: str
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()
    command: str = ""
    folded: bool = False


def make_sections(report: package.Report) -> tuple[Section, ...]:
    """Return the sections that have content."""
    missed, run = report.not_reproduced, report.investigation
    log = ((texts.clock(note.at_us), note.host or "-", note.text) for note in report.notes)
    every = (
        Section("arms", "Arms", _drop_empty(_make_arms(report))),
        Section("experiment", "Experiment", lines=(wording.format_experiment(report),) if run.experiment else ()),
        Section(
            "missed", "Did not reproduce", _drop_empty(_make_moves(report)),
            (wording.format_missed(report) + ".", *(f"Next plan: {change}" for change in missed.changes or (wording.NO_LARGER,))) if missed else (),
            wording.next_command(report),
        ),
        Section("dose", "Dose and response", _drop_empty(_make_trends(report))),
        Section("verdicts", "Verdicts", _drop_empty(_make_verdicts(report))),
        Section("profiles", "Profiles compared", _drop_empty(_make_profiles(report)), folded=True),
        Section("conditions", "Conditions", _drop_empty(_make_conditions(report))),
        Section("limits", "Not possible", lines=tuple(wording.list_limits(report))),
        Section("log", "Log", _drop_empty([_table("What the investigation did, UTC.", ("time", "host", "note"), log)]), folded=True),
    )  # fmt: skip
    return tuple(section for section in every if section.tables or section.lines)


def _table(caption: str, heads: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]) -> Table:
    return Table(caption, heads, tuple(rows))


def _drop_empty(tables: Iterable[Table]) -> tuple[Table, ...]:
    return tuple(table for table in tables if table.rows)


def _make_arms(report: package.Report) -> Iterator[Table]:
    shown = report.contrast
    yield _table(
        f"Rates per {shown.unit.removesuffix('s')} with exact 95 % intervals, widened where events come in bursts.",
        ("arm", "event", "n:events", "n:hosts", "n:host-hours", "n:cores", "n:rate"),
        (
            (row.arm, row.kind, str(row.rate.events if row.rate else 0), str(row.hosts), f"{row.host_hours:,.3g}", str(row.cores or "-"), wording.format_rate(row))
            for row in shown.arms
        ),
    )  # fmt: skip
    yield _table(
        "Arms compared: ratio of the two rates. It is a difference if its interval excludes 1 and hosts differ less.",
        ("arms", "event", "answer", "n:ratio", "n:interval", "note"),
        (
            (f"{pair.arm} / {pair.base}", pair.kind, wording.OUTCOMES[pair.compared.outcome], "-" if pair.compared.ratio is None else rounded(pair.compared.ratio), wording.format_interval(pair.compared.ratio_low, pair.compared.ratio_high), wording.list_caveats(pair))
            for pair in shown.pairs
        ),
    )  # fmt: skip


def _make_moves(report: package.Report) -> Iterator[Table]:
    moves = report.not_reproduced.moves if report.not_reproduced else ()
    yield _table(
        "Counter-moves: what brings a rare event about, or shows that it is rarer.",
        ("made", "move", "why"),
        (("■ made" if move.made else "□ not made", wording.MOVES[move.move], move.why) for move in moves),
    )  # fmt: skip


def _make_trends(report: package.Report) -> Iterator[Table]:
    yield _table(
        "Rate over dose, over all hosts of the cold, hot and purged arms.",
        ("dose", "event", "answer", "numbers"),
        (
            (wording.DOSES.get(trend.dose, trend.dose), trend.kind, wording.TRENDS[trend.outcome], wording.format_trend(trend))
            for trend in report.contrast.trends
            if any(point.events for point in trend.points)
        ),
    )  # fmt: skip


def _make_verdicts(report: package.Report) -> Iterator[Table]:
    known = [(each, each.verdict) for each in report.diagnosed if each.verdict]
    yield _table(
        "Final verdicts, with the arms as arguments.",
        ("verdict", "event", "host", "n:confidence", "report"),
        (
            (verdict.narrative.headline, each.occurrence.kind, each.occurrence.host, f"{verdict.confidence:.2f}", ("report", each.report) if each.report else "-")
            for each, verdict in known
        ),
    )  # fmt: skip
    chains = [verdict.blamed for _, verdict in known if verdict.blamed]
    yield _table(
        "What the arms say about the chain of a verdict.",
        ("outcome", "argument"),
        (
            (
                "against" if argument.outcome is ArgumentOutcome.AGAINST else "agrees",
                argument.text.removeprefix("fleet: "),
            )
            for chain in chains
            for link in chain.links
            for argument in link.arguments
            if argument.condition == fleet_evidence.CONDITION
        ),
    )
    yield _table(
        "Events, UTC.",
        ("time", "arm", "host", "event", "first verdict"),
        (
            (texts.clock(seen.time_us), arm, seen.host, seen.kind, (seen.headline or "report", seen.report) if seen.report else seen.headline or "none")
            for arm, seen in wording.list_occurrences(report)
        ),
    )  # fmt: skip


def _make_profiles(report: package.Report) -> Iterator[Table]:
    for each in report.differences:
        yield _table(
            f"Processes, {each.arm} against {each.base}: share {each.denominator}.",
            ("process", f"n:{each.base}", f"n:{each.arm}", "n:change in points"),
            ((p.name, percent(p.base_share), percent(p.share), f"{100 * p.difference:+.3g}") for p in each.processes),
        )  # fmt: skip
        samples = (each.functions.coverage.samples, each.functions.baseline.samples)
        yield _table(
            f"Functions, {each.arm} against {each.base}: share {each.denominator}, with the 95 % interval of the sampling. "
            f"{samples[0]:,} samples in the {each.arm} arm, {samples[1]:,} in the {each.base} arm.",
            ("function", f"n:{each.base}", f"n:{each.arm}", "n:change in points", "status"),
            (
                (f"{c.name} {c.module}" if c.name.startswith("[") else c.name, percent(c.baseline_rate), percent(c.rate), f"{100 * c.difference:+.3g} ({100 * c.low:+.3g} to {100 * c.high:+.3g})", c.status)
                for c in each.functions.changes
            ),
        )  # fmt: skip


def _make_conditions(report: package.Report) -> Iterator[Table]:
    yield _table(
        "Reserved hosts. A foreign workload disturbs the comparison.",
        ("host", "state", "passed", "not passed"),
        wording.list_checks(report),
    )
    yield _table(
        "Whether the load was constant, as measured on each host.",
        ("arm", "host", "answer"),
        ((name, host, text) for name, arm in wording.all_arms(report.investigation) for host, text in arm.constancy.items()),
    )  # fmt: skip
    yield _table(
        "Instruments, with their overhead.",
        ("arm", "host", "instrument", "result"),
        (
            (name, task.host, task.name, f"{task.state}: {task.detail}".removesuffix(": "))
            for name, arm in wording.all_arms(report.investigation)
            for task in arm.tasks
            if task.kind == "instrument"
        ),
    )
