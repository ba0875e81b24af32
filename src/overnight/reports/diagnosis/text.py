"""The report in a terminal: Rich renderables, readable at 80 columns and without colours."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import rich.console
import rich.containers
import rich.table
import rich.text

from overnight.model import times
from overnight.model.finding import Status
from overnight.model.suspect import SuspectOutcome
from overnight.model.times import HOUR_US, SECOND_US
from overnight.model.verdict import VerdictStatus
from overnight.reports import diagnosis
from overnight.reports.diagnosis import wording

if TYPE_CHECKING:
    from overnight.diagnosis import knowledge
    from overnight.model.finding import Finding
    from overnight.model.verdict import Link, Part, Step, Verdict

_Lines: TypeAlias = Iterator[rich.console.RenderableType]
STYLES = {
    VerdictStatus.CAUSE_FOUND: "bold red",
    VerdictStatus.INCONCLUSIVE: "bold yellow",
    VerdictStatus.NO_CAUSE: "bold green",
}
MAX_ROWS = 5
MAX_COMMAND = 72  # characters of a command on one line
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|[shd])(?!\w))")
# Private, so that no cleaned text has it. Not a no-break space: Rich breaks lines there, too.
JOINT = "\ue000"


def render(verdict: Verdict, material: diagnosis.Material = diagnosis.EMPTY) -> rich.console.Group:
    """Render the verdict and its details; names are text, never markup."""
    known = wording.knowledge_of(material)
    sections = {
        "Fix": _steps(verdict.fix),
        wording.next_heading(verdict): _steps(verdict.next),
        wording.chain_heading(verdict): _chain(verdict, known),
        wording.consumers_heading(material): _processes(material),
        "Instruments": (
            behind("- ", make_text(wording.clean(line))) for line in wording.list_readings(material)
        ),
        "Alternatives": _alternatives(verdict, known),
        wording.SUSPECTS: _suspects(verdict),
        "Also found, not linked to this event": _ruled_out(verdict, known),
        "Missing evidence": _gaps(verdict, material),
        "Notes": (behind("- ", make_text(wording.clean(note))) for note in verdict.notes),
        "Detectors": _answers(verdict, known),
    }
    lines = [*_verdict(verdict)]
    for heading, section in sections.items():
        if body := list(section):
            lines += [make_text(""), make_text((heading, "bold underline")), *body]
    return rich.console.Group(*lines)


def behind(lead: str, body: rich.text.Text, style: str = "") -> rich.console.RenderableType:
    """Put text behind a lead, so that wrapped lines stay aligned."""
    return _Behind(body, lead, " " * len(lead), style=style)


def command_line(line: str, indent: int = 0, style: str = "green") -> rich.text.Text:
    """Return a line to copy: it is never wrapped, also where the terminal is narrower."""
    return rich.text.Text(" " * indent + line, style, overflow="ignore", no_wrap=True)


class _Text(rich.text.Text):
    """Text whose lines end at spaces, but not at JOINT, which becomes one; a command in it stays whole."""

    def wrap(
        self, console: rich.console.Console, width: int, **options: Any
    ) -> rich.containers.Lines:
        joined = (word for word in self.plain.split() if JOINT in word)
        lines = super().wrap(console, max(width, *map(len, joined), 0), **options)
        for line in lines:
            line.plain = line.plain.replace(JOINT, " ")
        return lines


def make_text(*parts: tuple[str, str] | str) -> _Text:
    text = _Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        whole = wording.QUOTED.sub(lambda found: found[0].replace(" ", JOINT), words)
        text.append(BEFORE_UNIT.sub(JOINT, whole), style)
    return text


def _verdict(verdict: Verdict) -> _Lines:
    style = STYLES.get(verdict.status, "bold")
    headline = wording.clean(verdict.narrative.headline, 600)
    yield _Headline(make_text((headline, style)), wording.format_confidence(verdict))
    yield make_text("")
    for part in verdict.narrative.parts:
        yield from render_part(part)
    if meaning := wording.explain_confidence(verdict):
        yield make_text("")
        yield make_text((meaning, "dim"))


def render_part(part: Part) -> _Lines:
    yield behind(f"  {part.label:<10}  ", make_text(wording.clean(part.text, 2000)), "bold")
    for line in _split_command(part.command):
        yield command_line(line, 14)


class _Headline:
    """A headline with the confidence at the right edge, or below it where there is no room."""

    def __init__(self, headline: rich.text.Text, right: str) -> None:
        self.headline, self.right = headline, right

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        width = min(options.max_width, 100)
        free = width - self.headline.cell_len - len(self.right)
        if self.right and free >= 2:
            yield _Text.assemble(self.headline, " " * free, self.right)
            return
        yield self.headline
        if self.right:
            yield rich.text.Text(self.right)


def _chain(verdict: Verdict, known: knowledge.Knowledge) -> _Lines:
    if not verdict.chain:
        return
    following = {link.cause: link for link in verdict.chain.links}
    last = len(verdict.chain.steps) - 1
    for at, step in enumerate(verdict.chain.steps):
        rail = "│" if at < last else " "
        mark = "●" if at in (0, last) else "○"
        kind = wording.clean(known.title(step.kind))
        yield behind(f"{mark} ", make_text((kind, "bold"), f"  {_when(step)}"))
        details = wording.list_details(step, known)
        for detail, style in zip(details, ("cyan", "", ""), strict=True):
            if detail:
                yield _behind_rail(rail, make_text((detail, style)))
        for evidence in step.evidence[:3]:
            yield _behind_rail(rail, make_text(("· ", "dim"), wording.clean(evidence.text, 600)))
            if evidence.look:
                yield command_line(f"{rail}    $ {wording.command(evidence.look)}", 0, "dim")
        for evidence in step.against[:2]:
            yield _behind_rail(
                rail, make_text(("against: ", "yellow"), wording.clean(evidence.text, 600))
            )
        if at < last:
            link = following.get(step.id)
            yield _behind_rail("│", _link(link) if link else make_text("no link"), "▼")


@dataclasses.dataclass
class _Behind:
    """Text whose lines stand behind a lead: the first, those that follow, and, if it has a tip, the last."""

    body: rich.text.Text
    first: str
    following: str
    tip: str = ""
    style: str = ""

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        width = max(10, options.max_width - len(self.first))
        lines = self.body.wrap(console, width, overflow="fold")
        leads = [self.first, *[self.following] * (len(lines) - 1)]
        leads[-1] = self.tip or leads[-1]
        for lead, line in zip(leads, lines, strict=False):
            line.rstrip()
            whole = rich.text.Text(no_wrap=True, overflow="ignore")
            yield whole.append(lead, self.style).append_text(line)


def _behind_rail(rail: str, body: rich.text.Text, tip: str = "") -> _Behind:
    return _Behind(body, f"{rail}  ", f"{rail}  ", f"{tip or rail}  ")


def _link(link: Link) -> rich.text.Text:
    against = f"; against: {wording.clean('; '.join(link.against))}" if link.against else ""
    return make_text(
        (f"leads to the next, {wording.format_strength(link.strength)}: ", "italic"),
        f"{wording.clean('; '.join(link.reasons))}{against}",
    )


def _when(step: Finding) -> str:
    begin, end = step.window.begin_us, step.window.end_us
    if end - begin >= HOUR_US:
        return f"since {times.format_instant(begin)}"
    length = wording.format_length((end - begin) / SECOND_US)
    return wording.clock(begin, "%H:%M:%S") + (f", {length}" if length else "")


def _processes(material: diagnosis.Material) -> _Lines:
    if not material.processes or not material.processes.rows:
        return
    table = rich.table.Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(material.processes.kind, overflow="fold")
    for name in ("samples", *(name for name, _ in wording.DENOMINATORS)):
        table.add_column(name, justify="right")
    for row in material.processes.rows[:MAX_ROWS]:
        table.add_row(
            rich.text.Text(wording.clean(row.name, 60)),
            f"{row.samples:,}",
            wording.percent(row.share_of_samples),
            wording.percent(row.share_of_capacity),
            "-" if row.cores is None else f"{row.cores:.2f}",
        )
    yield table
    yield make_text((f"{material.processes.coverage.lost:,} samples were lost.", "dim"))
    for line in material.processes.coverage.remarks():
        yield make_text((wording.clean(line), "dim"))


def _alternatives(verdict: Verdict, known: knowledge.Knowledge) -> _Lines:
    for number, chain in enumerate(verdict.alternatives, 1):
        why = wording.clean(chain.why_not, 1000)
        yield behind(f"{number}. ", make_text(wording.format_chain(chain, known)))
        yield behind("   ", make_text(("why not: ", "dim"), why))


def _suspects(verdict: Verdict) -> _Lines:
    for suspect in wording.order_suspects(verdict):
        text = f"{wording.clean(suspect.title, 60)}: {wording.clean(suspect.text)}"
        yield behind(f"{wording.format_outcome(suspect):11}  ", make_text(text))
        if suspect.outcome is SuspectOutcome.NOT_CLEARED and suspect.look:
            yield command_line(wording.command(suspect.look), 13)


def _ruled_out(verdict: Verdict, known: knowledge.Knowledge) -> _Lines:
    findings = {finding.id: finding for finding in verdict.findings}
    for ruled_out in verdict.ruled_out:
        yield behind("- ", make_text(wording.name_finding(findings[ruled_out.finding], known)))
        yield behind("  ", make_text(("why not: ", "dim"), wording.clean(ruled_out.why, 600)))


def _gaps(verdict: Verdict, material: diagnosis.Material) -> _Lines:
    if verdict.gaps:
        yield make_text((f"{wording.FACTORS}.", "dim"))
    for gap in verdict.gaps:
        body = f"{wording.clean(gap.what)}: {wording.clean(gap.why)}"
        yield behind(f"{gap.factor:.2f}  ", make_text(body))
    for problem in material.problems:
        yield behind("not shown  ", make_text(wording.clean(problem)))
    if not verdict.gaps and not material.problems:
        yield make_text(wording.NOTHING_MISSING)


def _steps(steps: tuple[Step, ...]) -> _Lines:
    for number, step in enumerate(steps, 1):
        yield behind(f"{number}. ", make_text(wording.clean(step.what, 1000)))
        for line in _split_command(step.command):
            # Without a prompt: what is selected is what is run.
            yield command_line(line, 5)
        if step.expect and step.expect not in wording.OUTCOMES:
            yield behind("   ", make_text(("expect: ", "dim"), wording.clean(step.expect, 1000)))


def _split_command(command: str) -> list[str]:
    """Break long commands where the shell allows it: a terminal would break them anywhere."""
    if not command.strip():
        return []
    return [
        part
        for line in wording.command(command).split("\n")
        for part in (
            line.replace(" && ", " &&\n").split("\n") if len(line) > MAX_COMMAND else [line]
        )
    ]


def _answers(verdict: Verdict, known: knowledge.Knowledge) -> _Lines:
    for status in Status:
        for answer in verdict.answers:
            if answer.status == status:
                why = wording.explain_answer(answer, known)
                name = wording.clean(answer.detector, 60)
                yield behind(f"{status:8} ", make_text(f"{name}: {why}" if why else name))
