"""What a report shows below its answer: sections with texts and tables, the same in every format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from overnight.diagnosis import fleet_evidence
from overnight.model.protocol import TaskKind
from overnight.model.text import percent, plural
from overnight.model.verdict import ArgumentOutcome
from overnight.reports.diagnosis import wording as texts
from overnight.reports.investigation import wording

if TYPE_CHECKING:
    from overnight.reports import investigation as package

MAX_FUNCTIONS = 15
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
    tables: Iterable[Table] = ()
    lines: tuple[str, ...] = ()
    file_title: str = ""
    file: str = ""
    folded: str = ""  # summary of tables that a page folds


def make_sections(report: package.Report) -> tuple[Section, ...]:
    """Return the sections that have content."""
    log = [(texts.clock(note.at_us), note.host or "-", note.text) for note in report.notes]
    no_trend = wording.explain_no_trend(report)
    every = (
        Section("arms", "Arms", _list_arms(report)),
        _explain_missed(report),
        Section("dose", "Dose and response", () if no_trend else _list_trends(report), (no_trend,) if no_trend else ()),
        Section("verdicts", "Verdicts", _list_verdicts(report)),
        Section("profiles", "Profiles compared", _list_profiles(report), folded="Processes and functions"),
        Section("conditions", "Conditions", _list_conditions(report)),
        Section("limits", "Missing or failed", lines=tuple(wording.list_limits(report))),
        Section("log", "Log", [_table("What the investigation did, UTC.", ("time", "host", "note"), log)], folded=plural(len(log), "line")),
    )  # fmt: skip
    full = (dataclasses.replace(s, tables=tuple(t for t in s.tables if t.rows)) for s in every)
    return tuple(section for section in full if section.tables or section.lines)


def _table(caption: str, heads: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]) -> Table:
    return Table(caption, heads, tuple(rows))


def _list_arms(report: package.Report) -> Iterator[Table]:
    shown = report.contrast
    yield _table(
        f"Rates per {shown.unit.removesuffix('s')} with exact 95 % intervals, wider where events come in bursts.",
        ("arm", "event", "n:events", "n:hosts", "n:host-hours", "n:cores", "n:rate"),
        (
            (
                row.arm, row.kind, str(row.rate.events if row.rate else 0), str(row.hosts), f"{row.host_hours:,.3g}",
                str(row.cores or "-"), wording.format_rate(row),
            )
            for row in shown.arms
        ),
    )  # fmt: skip
    yield _table(
        "Ratio of the rates of two arms. They differ if the interval excludes 1, and hosts of one arm differ less.",
        ("arms", "event", "answer", "n:ratio", "n:interval", "note"),
        (
            (
                f"{pair.arm} / {pair.base}", pair.kind, wording.OUTCOMES[pair.compared.outcome],
                wording.format_ratio(pair.compared.ratio),
                wording.format_interval(pair.compared.ratio_low, pair.compared.ratio_high), wording.list_caveats(pair),
            )
            for pair in shown.pairs
            if pair.compared.before.events or pair.compared.after.events
        ),
    )  # fmt: skip


def _explain_missed(report: package.Report) -> Section:
    missed = report.not_reproduced
    moves = _table(
        "Counter-moves: what makes a rare event come, or shows that it is rarer.",
        ("made", "move", "why"),
        (
            ("■ made" if move.made else "□ not made", move.move.replace("-", " "), move.why)
            for move in (missed.moves if missed else ())
        ),
    )
    here = report.investigation.plan.is_local
    title = f"The next plan{'' if here else ': save it as'} {report.next_plan}"
    return Section("missed", "Did not reproduce", (moves,), (), title, report.next_plan_text)


def _list_trends(report: package.Report) -> Iterator[Table]:
    yield _table(
        "Rate over dose, over all hosts of the cold, hot and purged arms.",
        ("dose", "event", "answer", "numbers"),
        (
            (wording.name_dose(trend.dose), trend.kind, wording.TRENDS[trend.outcome], wording.format_trend(trend))
            for trend in report.contrast.trends
            if trend.has_events
        ),
    )  # fmt: skip


def _list_verdicts(report: package.Report) -> Iterator[Table]:
    known = [(each, each.verdict) for each in report.diagnosed if each.verdict]
    yield _table(
        "Final verdicts; the arms are part of their evidence.",
        ("verdict", "event", "host", "n:confidence", "report"),
        (
            (
                verdict.narrative.headline, each.occurrence.kind, each.occurrence.host, f"{verdict.confidence:.2f}",
                ("report", each.report) if each.report else "-",
            )
            for each, verdict in known
        ),
    )  # fmt: skip
    yield _table(
        "What the arms argue about the chain of a verdict.",
        ("outcome", "argument"),
        (
            (
                "against" if argument.outcome is ArgumentOutcome.AGAINST else "for",
                argument.text.removeprefix("fleet: "),
            )
            for _, verdict in known
            for link in (verdict.blamed.links if verdict.blamed else ())
            for argument in link.arguments
            if argument.condition == fleet_evidence.CONDITION
        ),
    )
    pairs = [(arm, seen) for arm, run in wording.all_arms(report.investigation) for seen in run.occurrences]  # fmt: skip
    yield _table(
        "Events, UTC.",
        ("time", "arm", "host", "event", "first verdict"),
        (
            (
                texts.clock(seen.time_us), arm, seen.host, seen.kind,
                (seen.headline or "report", seen.report) if seen.report else seen.headline or "none",
            )
            for arm, seen in sorted(pairs, key=lambda pair: pair[1].time_us)
        ),
    )  # fmt: skip


def _list_profiles(report: package.Report) -> Iterator[Table]:
    for each in report.differences:
        arms, shares = f"{each.arm} against {each.base}", (f"n:{each.base}", f"n:{each.arm}")
        yield _table(
            f"Processes, {arms}: share {each.denominator}.",
            ("process", *shares, "n:change in points"),
            ((p.name, percent(p.base_share), percent(p.share), f"{100 * p.difference:+.3g}") for p in each.processes),
        )  # fmt: skip
        after, before = each.functions.coverage.samples, each.functions.baseline.samples
        yield _table(
            f"Functions, {arms}: share {each.denominator}, with the 95 % interval of the sampling; sorted by the change of the"
            f" function itself (self), without its callees. {after:,} samples in the {each.arm} arm, {before:,} in the"
            f" {each.base} arm.",
            ("function", *shares, "n:change in points", "n:self", "status"),
            (
                (
                    f"{c.name} {c.module}" if c.name.startswith("[") else c.name,
                    percent(c.baseline_rate),
                    percent(c.rate),
                    f"{100 * c.difference:+.3g} ({100 * c.low:+.3g} to {100 * c.high:+.3g})",
                    f"{100 * c.own_difference:+.3g}",
                    c.status,
                )
                for c in each.functions.rank_own(MAX_FUNCTIONS)
            ),
        )


def _list_conditions(report: package.Report) -> Iterator[Table]:
    yield _table(
        "Reserved hosts. A foreign workload disturbs the comparison.",
        ("host", "state", "passed", "not passed"),
        wording.list_checks(report),
    )
    yield _table(
        "Whether the load was constant, as measured on each host.",
        ("arm", "host", "answer"),
        wording.list_constancy(report),
    )
    yield _table(
        "Instruments, with their overhead.",
        ("arm", "host", "instrument", "result"),
        (
            (name, task.host, task.name, f"{task.state}: {task.detail}".removesuffix(": "))
            for name, arm in wording.all_arms(report.investigation)
            for task in arm.tasks
            if task.kind == TaskKind.INSTRUMENT
        ),
    )
