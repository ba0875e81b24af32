"""The report as Markdown, for a ticket or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from overnight.model.finding import Status
from overnight.model.suspect import SuspectOutcome
from overnight.reports import diagnosis
from overnight.reports.diagnosis import wording

if TYPE_CHECKING:
    from overnight.diagnosis import knowledge
    from overnight.model.finding import Finding
    from overnight.model.verdict import Step, Verdict

MAX_ROWS = 8
# Markup anywhere in a line. An underscore within a word is not markup, and names have many.
SPECIAL = re.compile(r"[\\`*\[\]<>|~#&!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
LEADING = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$)")


def write(verdict: Verdict, file: BinaryIO, material: diagnosis.Material = diagnosis.EMPTY) -> None:
    known = wording.knowledge_of(material)
    sections = {
        "Fix": _steps(verdict.fix),
        wording.next_heading(verdict): _steps(verdict.next),
        wording.chain_heading(verdict): _chain(verdict, known),
        wording.consumers_heading(material): _processes(material),
        "Instruments": (f"- {m(line)}" for line in wording.list_readings(material)),
        "Evidence": _evidence(verdict, known),
        "Evidence from other hosts": _fleet(material),
        "Alternatives": _alternatives(verdict, known),
        wording.SUSPECTS: _suspects(verdict),
        "Missing evidence": _gaps(verdict, material),
        "Notes": (f"- {m(note)}" for note in verdict.notes),
        "Detectors": _answers(verdict, known),
    }
    lines = [*_verdict(verdict)]
    for heading, section in sections.items():
        if body := list(section):
            lines += ["", f"## {heading}", "", *body]
    file.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))


def m(text: object, longest: int = wording.MAX_TEXT) -> str:
    r"""Escape text from a host: nothing in it is markup, a link, a tag or a mention. A command to copy is code.

    >>> print(m("*a* mem_cgroup_iter: `overnight --server http://c hosts`"))
    \*a\* mem_cgroup_iter: `overnight --server http://c hosts`
    """
    parts = wording.QUOTED.split(wording.clean(text, longest))
    return "".join(code(part, 4000) if at % 2 else _escape(part) for at, part in enumerate(parts))


def _escape(text: str) -> str:
    escaped = SPECIAL.sub(lambda match: "\\" + match[0], text)
    # A zero-width space keeps `@name` from being a mention, and an address from being a link.
    quiet = escaped.replace("@", "@\u200b").replace("://", ":\u200b//")
    return LEADING.sub(lambda match: f"{match[1]}{match[2][:-1]}\\{match[2][-1]}", quiet)


def code(text: str, longest: int = 160) -> str:
    """Format a name as code; its own backticks do not end it."""
    shown = wording.clean(text, longest)
    if not shown:
        return "-"
    ticks = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def block(command: str) -> list[str]:
    if not command.strip():
        return []
    shown = wording.command(command)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return ["", f"{fence}sh", *shown.split("\n"), fence, ""]


def _verdict(verdict: Verdict) -> Iterator[str]:
    confidence = wording.format_confidence(verdict)
    yield f"# {m(verdict.narrative.headline, 600)}"
    if confidence:
        yield from ("", f"**{confidence}**")
    yield ""
    for part in verdict.narrative.parts:
        yield f"- **{part.label}:** {m(part.text, 1500)}"
        # Inside a list item a fence would end the list: a short command is code in the line below.
        if part.command:
            yield f"  {code(wording.command(part.command).replace(chr(10), ' ; '), 4000)}"
    if meaning := wording.explain_confidence(verdict):
        yield from ("", m(meaning, 1000))


def _chain(verdict: Verdict, known: knowledge.Knowledge) -> Iterator[str]:
    if not verdict.chain:
        return
    following = {link.cause: link for link in verdict.chain.links}
    for number, step in enumerate(verdict.chain.steps, 1):
        details = wording.list_details(step, known)
        yield f"{number}. **{m(known.title(step.kind))}**: {m(step.summary, 1000)}  "
        yield f"   {m(' · '.join(filter(None, details)), 600)}"
        if link := following.get(step.id):
            against = f"; against: {m('; '.join(link.against), 600)}" if link.against else ""
            yield f"   ↓ {wording.format_strength(link.strength)}: {m('; '.join(link.reasons), 600)}{against}"


def _processes(material: diagnosis.Material) -> Iterator[str]:
    if not material.processes or not material.processes.rows:
        return
    names = " | ".join(name for name, _ in wording.DENOMINATORS)
    yield f"| {material.processes.kind} | samples | {names} |"
    yield "|---|--:|--:|--:|--:|"
    for row in material.processes.rows[:MAX_ROWS]:
        cores = "-" if row.cores is None else f"{row.cores:.2f}"
        name = code(row.name.replace("|", "\u2223"))  # a bar would end the cell
        yield f"| {name} | {row.samples:,} | {wording.percent(row.share_of_samples)} | {wording.percent(row.share_of_capacity)} | {cores} |"
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in wording.DENOMINATORS)
    yield from ("", f"{meanings}. {material.processes.coverage.lost:,} samples were lost.")
    yield from (f"- {m(line, 600)}" for line in material.processes.coverage.remarks())


def _steps(steps: tuple[Step, ...]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        what = m(step.what, 1000)
        if step.expect not in ("", *wording.OUTCOMES):
            what = f"{what.removesuffix('.')}. Expect: {m(step.expect, 1000)}"
        yield f"{number}\\. {what}"
        yield from block(step.command) or [""]


def _facts(finding: Finding) -> Iterator[str]:
    for lead, many in (("", finding.evidence), ("against: ", finding.against)):
        for evidence in many:
            command = wording.command(evidence.look).replace("\n", " ; ")
            look = f": {code(command, 400)}" if evidence.look else ""
            yield f"  - {lead}{m(evidence.text, 1000)} ({m(wording.format_source(evidence), 600)}){look}"


def _evidence(verdict: Verdict, known: knowledge.Knowledge) -> Iterator[str]:
    ruled_out = {each.finding: each.why for each in verdict.ruled_out}
    for finding in verdict.findings:
        why = f". Not in the chain: {m(ruled_out[finding.id], 600)}" if finding.id in ruled_out else ""  # fmt: skip
        yield f"- **{m(known.title(finding.kind))}**: {m(finding.summary, 1000)}{why}"
        yield from _facts(finding)


def _fleet(material: diagnosis.Material) -> Iterator[str]:
    for finding in material.fleet:
        yield f"- {m(finding.summary, 1000)}"
        yield from _facts(finding)


def _alternatives(verdict: Verdict, known: knowledge.Knowledge) -> Iterator[str]:
    for chain in verdict.alternatives:
        yield f"- {m(wording.format_chain(chain, known), 2000)}  "
        yield f"  Why not: {m(chain.why_not, 1000)}"


def _suspects(verdict: Verdict) -> Iterator[str]:
    for suspect in wording.order_suspects(verdict):
        is_open = suspect.outcome is SuspectOutcome.NOT_CLEARED and suspect.look
        look = f": {code(wording.command(suspect.look), 400)}" if is_open else ""
        outcome = wording.format_outcome(suspect)
        yield f"- {outcome}: **{m(suspect.title)}**: {m(suspect.text, 600)}{look}"


def _gaps(verdict: Verdict, material: diagnosis.Material) -> Iterator[str]:
    if verdict.gaps:
        yield from (f"{wording.FACTORS}:", "")
    for gap in verdict.gaps:
        yield f"- {m(gap.what)}: {m(gap.why)} (factor {gap.factor:.2f})"
    for problem in material.problems:
        yield f"- not in this report: {m(problem)}"
    if not verdict.gaps and not material.problems:
        yield wording.NOTHING_MISSING


def _answers(verdict: Verdict, known: knowledge.Knowledge) -> Iterator[str]:
    for status in Status:
        for answer in verdict.answers:
            if answer.status == status:
                why = m(wording.explain_answer(answer, known))
                yield f"- {status}: {m(answer.detector, 80)}{f': {why}' if why else ''}"
