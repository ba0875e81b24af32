"""The report as one HTML file: offline, printable, for light and dark, with every picture inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from overnight.reports import diagnosis
from overnight.reports.diagnosis import parts, style, wording
from overnight.reports.diagnosis.pictures import census, chain, embedded, timeline

if TYPE_CHECKING:
    from overnight.model.verdict import Step, Verdict

__all__ = ["NAME", "SUFFIX", "write"]

NAME = "html"
SUFFIX = ".html"
MOST_CHANGES = 15
SYMBOLS = {"cause-found": "■", "inconclusive": "◧", "no-cause": "□"}

h = parts.h


def write(told: Verdict, file: BinaryIO, material: diagnosis.Material = diagnosis.EMPTY) -> None:
    """The whole page; the same values give the same bytes."""
    sections = [
        ("chain", "The chain", _chain(told)),
        ("timeline", "Timeline", _timeline(told, material)),
        ("who", "Who ran there", _who(material)),
        ("stacks", "Stacks of the hot window", _stacks(material)),
        ("recurrences", "Over all recurrences", _lifts(material)),
        ("census", "Memory cgroups", _census(told, material)),
        ("fleet", "Evidence from other hosts", _fleet(told, material)),
        ("alternatives", "Alternatives, and why each lost", _alternatives(told)),
        ("gaps", "What is missing", _gaps(told, material)),
        ("next", "How to confirm or refute it", _steps(told.next)),
        ("fix", "Fix", _steps(told.fix)),
        ("detectors", "What was looked for", _answers(told)),
        ("others", "Findings outside the chain", _others(told, material)),
    ]
    made = [(name, heading, "\n".join(body)) for name, heading, body in sections]
    shown = [(name, heading, body) for name, heading, body in made if body]
    title = wording.title(told)
    links = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in shown)
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{heading}</h2>\n{text}\n</section>'
        for name, heading, text in shown
    )
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{style.policy()}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{h(title)}</title>
<style>{style.sheet()}</style>
</head>
<body>
<a class="skip" href="#chain">To the chain</a>
<header>
{_head(told, material, title)}
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{body}
</main>
<p id="said" role="status" aria-live="polite"></p>
<script>{style.COPY_SCRIPT}</script>
</body>
</html>
"""
    file.write(page.encode("utf-8", "replace"))


def _head(told: Verdict, material: diagnosis.Material, title: str) -> str:
    status = told.status if told.status in wording.STATUS else "inconclusive"
    share = min(1.0, max(0.0, told.confidence))
    bar = f'<span class="bar" aria-hidden="true"><i style="width:{100 * share:.0f}%"></i></span>'
    said = wording.confidence_words(told)
    sure = f'<span class="confidence">{said} {bar}</span>' if said else ""
    facts = []
    if told.event:
        facts.append(f"<li>event <b>{h(told.event.kind, 80)}</b></li>")
        if told.event.id:
            facts.append(f"<li>id <b>{h(told.event.id, 80)}</b></li>")
    facts += [f"<li>{h(k, 40)} <b>{h(v, 80)}</b></li>" for k, v in material.labels.items()]
    line = f'<p class="small">{h(told.event.text)}</p>' if told.event and told.event.text else ""
    return f"""<h1>{h(title)}</h1>
<ul class="facts">{"".join(facts)}</ul>
{line}
<div class="verdict">
<p><span class="badge {status}"><span aria-hidden="true">{SYMBOLS[status]} </span>{h(wording.STATUS.get(told.status, told.status))}</span>
{sure}</p>
<p class="said">{h(told.summary, 3000)}</p>
<p class="small">{h(wording.STATUS_MEANS.get(told.status, ""))} {h(wording.confidence_means(told), 1000)}</p>
</div>"""


def _chain(told: Verdict) -> Iterator[str]:
    if told.chain is None or not told.chain.steps:
        yield "<p>No chain is claimed: nothing that was recorded leads to the event.</p>"
        return
    claimed = wording.is_claimed(told)
    top = (
        "The cause on top" if claimed else "No cause is claimed: the earliest that is known on top"
    )
    yield (
        f"<figure>{chain.draw_chain(told.chain, claimed=claimed)}<figcaption>{top}, the event at the bottom. "
        "The thicker an arrow, the better time, place, size and recurrence agree; dashed is weak.</figcaption></figure>"
    )
    yield "<h3>What each step rests on</h3>"
    yield from parts.evidence_steps(told.chain)


def _timeline(told: Verdict, material: diagnosis.Material) -> Iterator[str]:
    if material.cores is None or not len(material.cores.begin_us):
        if told.event:
            yield "<p>The flight recorder kept no seconds of the cores around the event.</p>"
        return
    wanted = [material.core, told.event.core if told.event else -1]
    if told.chain:
        wanted += [step.subject.core for step in told.chain.steps if step.subject.core is not None]
    drawn = timeline.draw_timeline(material.cores, wanted, material.hot, material.events)
    yield (
        f'<figure class="scroll">{drawn}<figcaption>Shares of {h(material.cores.denominator)}. '
        "The mean of all cores is what a dashboard shows.</figcaption></figure>"
    )
    if material.events:
        rows = [
            [f"<td class=k>{wording.clock(one.time_us, '%H:%M:%S')}</td>", f"<td class=k>{h(one.severity, 20)}</td>",
             parts.short(one.kind), f"<td class=n>{one.core if one.core >= 0 else '-'}</td>",
             f"<td>{h(one.text)}</td>"]
            for one in material.events[:40]
        ]  # fmt: skip
        more = len(material.events) - len(rows)
        note = f"; {more} more are left out" if more else ""
        yield parts.table(
            f"Events that touch these seconds, UTC{note}",
            ("when", "severity", "kind", "n:core", "what was seen"),
            rows,
        )


def _where(material: diagnosis.Material) -> str:
    core = f"core {material.core}" if material.core >= 0 else "all cores"
    when = wording.when_words(material.hot.begin_us, material.hot.end_us) if material.hot else ""
    return f"{core}, {when}".strip(", ")


def _who(material: diagnosis.Material) -> Iterator[str]:
    shown = material.processes
    if shown is None or not shown.rows:
        return
    rows = [
        [f"<td>{parts.name(row.name)}</td>", f"<td class=n>{row.samples:,}</td>", f"<td class=n>{wording.percent(row.share_of_samples)}</td>",
         f"<td class=n>{wording.percent(row.share_of_capacity)}</td>", f"<td class=n>{'-' if row.cores is None else f'{row.cores:.2f}'}</td>"]
        for row in shown.rows
    ]  # fmt: skip
    more = f" {shown.others:,} more are left out." if shown.others else ""
    yield parts.table(
        f"{shown.kind.capitalize()} on {_where(material)}. {shown.coverage.samples:,} busy samples, {shown.coverage.lost:,} lost.{more}",
        (shown.kind, "n:samples", *(f"n:{name}" for name, _ in wording.DENOMINATORS)),
        rows,
    )
    told = "; ".join(f"<b>{name}</b>: {meaning}" for name, meaning in wording.DENOMINATORS)
    yield f'<p class="small">Three denominators. {told}.</p>'


def _stacks(material: diagnosis.Material) -> Iterator[str]:
    if material.flame is not None:
        yield (
            f"<figure>{embedded.draw_flame(material.flame, 'flame')}<figcaption>Flame graph of {h(_where(material))}: "
            "a frame is as wide as its share of the samples; who called it is below it.</figcaption></figure>"
        )
    if material.compared is not None:
        yield (
            f"<figure>{embedded.draw_difference(material.compared, 'change')}<figcaption>The same core against "
            "its baseline: what is new, what grew, what vanished.</figcaption></figure>"
        )
    shown = material.difference
    if shown is not None and shown.changes:
        # By what each did itself: its callers all have the same change, and would come first.
        sure = [one for one in shown.changes if one.status != "unclear"] or shown.changes
        ranked = sorted(sure, key=lambda one: -abs(one.own_difference))[:MOST_CHANGES]
        rows = [
            [f"<td>{parts.name(one.name)}</td>", f"<td class=k>{'kernel' if one.kernel else 'user'}</td>", f"<td class=n>{wording.percent(one.baseline_rate)}</td>",
             f"<td class=n>{wording.percent(one.rate)}</td>", f"<td class=n>{100 * one.difference:+.3g} ({100 * one.low:+.3g} to {100 * one.high:+.3g})</td>",
             f"<td class=n>{100 * one.own_difference:+.3g}</td>", f"<td class=k>{h(one.status, 20)}</td>"]
            for one in ranked
        ]  # fmt: skip
        yield parts.table(
            f"What changed, function by function, on {_where(material)}: share of the core's time, with the 95 % interval of the sampling; "
            f"first what changed most in itself, without what it calls. {shown.coverage.lost + shown.baseline.lost:,} samples were lost.",
            ("function", "side", "n:before", "n:hot", "n:change in points", "n:in itself", "now"),
            rows,
        )


def _lifts(material: diagnosis.Material) -> Iterator[str]:
    if not material.lifts:
        return
    rows = [
        [f"<td>{parts.name(one.process or one.unit)}</td>", f"<td>{parts.name(one.function)}</td>", f"<td>{parts.name(one.unit)}</td>", f"<td class=n>{one.lift:.3g}</td>",
         f"<td class=n>{one.low:.2f}</td>", f"<td class=n>{one.q_value:.2g}</td>",
         f"<td class=n>{one.recurrences}</td>", f"<td class=n>{one.cores_more:+.2g}</td>"]
        for one in material.lifts[:MOST_CHANGES]
    ]  # fmt: skip
    yield parts.table(
        "How much more each ran in the seconds before the events than at other times. Lift: ratio of the two rates; lower bound: of its natural logarithm, "
        "above 0 is more than chance; q: expected share of false ones among the rows up to this one.",
        ("process", "function", "unit", "n:lift", "n:lower bound", "n:q", "n:events", "n:cores more"),
        rows,
    )  # fmt: skip


def _census(told: Verdict, material: diagnosis.Material) -> Iterator[str]:
    if len(material.census) < 2:
        return
    drawn = census.draw_census(material.census, told.event.time_us if told.event else None)
    first, last = material.census[0], material.census[-1]
    line = " The upright line is the event." if told.event else ""
    hours = (last.time_us - first.time_us) / 3.6e9
    grew = f" {(last.dying - first.dying) / hours:+,.0f} dying an hour." if hours > 0.1 else ""
    yield (
        f"<figure>{drawn}<figcaption>Tracked by the kernel {last.tracked:,}, in use {last.in_use:,}, "
        f"dying {last.dying:,}: deleted, but held by something.{grew}{line}</figcaption></figure>"
    )


def _fleet(told: Verdict, material: diagnosis.Material) -> Iterator[str]:
    if material.fleet:
        yield from parts.finding_list(material.fleet)
    if told.fleet:
        yield parts.plain(told.fleet)


def _alternatives(told: Verdict) -> Iterator[str]:
    for number, one in enumerate(told.alternatives, 1):
        line = (
            " → ".join(wording.kind_words(step.kind) for step in one.steps)
            or "a chain without findings"
        )
        lost = h(one.why_not, 1000) or "It scored less."
        yield f"<h3>{number}. {h(line, 600)}</h3>"
        yield f"<p>Score {one.score:.2f}{_winner(told)}. <b>Why it lost:</b> {lost}</p>"
        yield from parts.links(one)


def _winner(told: Verdict) -> str:
    return f", the chain above {told.chain.score:.2f}" if told.chain else ""


def _gaps(told: Verdict, material: diagnosis.Material) -> Iterator[str]:
    if not told.gaps and not material.problems:
        yield f"<p>{wording.nothing_missing(told)}</p>"
        return
    if told.gaps:
        rows = [
            [f"<td>{h(gap.what)}</td>", f"<td>{h(gap.why)}</td>", f"<td class=n>{gap.factor:.2f}</td>"]
            for gap in told.gaps
        ]  # fmt: skip
        whole = wording.gap_factor(told.gaps)
        yield parts.table(
            f"Each multiplies the confidence by its factor; all together by {whole:.2f}.",
            ("missing", "why", "n:factor"),
            rows,
        )
    if material.problems:
        items = "".join(f"<li>{h(one)}</li>" for one in material.problems)
        yield f"<p>Not in this report:</p><ul>{items}</ul>"


def _steps(steps: tuple[Step, ...]) -> Iterator[str]:
    if not steps:
        return
    yield '<ol class="steps">'
    for step in steps:
        expect = (
            f'<p><span class="small">Expect:</span> {h(step.expect, 1000)}</p>'
            if step.expect
            else ""
        )
        yield f"<li>{h(step.what, 1000)}{parts.command(step.command)}{expect}</li>"
    yield "</ol>"


def _answers(told: Verdict) -> Iterator[str]:
    if not told.answers:
        return
    symbols = {"found": "■ found", "clear": "□ clear", "no-data": "? no data", "failed": "✗ failed"}
    order = list(symbols)
    rows = [
        [f"<td class=k>{h(symbols.get(str(one.status), one.status))}</td>", f"<td>{h(one.detector, 80)}</td>",
         f"<td>{h(one.why) or h('; '.join(wording.kind_words(f.kind) for f in one.findings))}</td>"]
        for one in sorted(told.answers, key=lambda a: (order.index(str(a.status)), a.detector))
    ]  # fmt: skip
    yield parts.table(
        "Every detector's answer. No data: what it needs was not recorded; failed: it broke down.",
        ("answer", "detector", "why"),
        rows,
    )


def _others(told: Verdict, material: diagnosis.Material) -> Iterator[str]:
    shown = {step.id for step in told.chain.steps} if told.chain else set()
    shown |= {one.id for one in material.fleet}
    rest = tuple(one for one in told.findings if one.id not in shown)
    if rest:
        yield from parts.finding_list(rest, {one.finding: one.why for one in told.ruled_out})
