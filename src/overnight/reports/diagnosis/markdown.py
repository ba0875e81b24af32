"""The report as Markdown, for a ticket or a chat: the verdict first, what to run, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from overnight.reports import diagnosis
from overnight.reports.diagnosis import wording

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Verdict

__all__ = ["NAME", "SUFFIX", "write"]

NAME = "md"
SUFFIX = ".md"
MOST_ROWS = 8
# What means something anywhere in a line. An underscore within a word does not, and names have many.
SPECIAL = re.compile(r"[\\`*\[\]<>|~#&!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
LEADING = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$)")


def write(told: Verdict, file: BinaryIO, material: diagnosis.Material = diagnosis.EMPTY) -> None:
    """The whole text."""
    sure = f", {wording.confidence_words(told)}" if wording.confidence_words(told) else ""
    lines = [
        f"# {m(wording.title(told))}",
        "",
        f"**{m(wording.STATUS.get(told.status, told.status))}**{sure}. {m(told.summary, 3000)}",
        "",
        f"{m(wording.confidence_means(told), 1000)}",
        *_chain(told),
        *_who(material),
        *_next(told),
        *_evidence(told),
        *_fleet(material),
        *_alternatives(told),
        *_gaps(told, material),
        *_answers(told),
    ]
    file.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))


def m(text: object, longest: int = wording.LONGEST) -> str:
    r"""Text from a host as Markdown: nothing in it is a mark, a link, a tag, or calls anybody.

    >>> m("*a* <b> mem_cgroup_iter")
    '\\*a\\* \\<b\\> mem_cgroup_iter'
    """
    escaped = SPECIAL.sub(lambda found: "\\" + found[0], wording.clean(text, longest))
    # The blank of no width keeps `@name` from sending a message, and an address from being a link.
    quiet = escaped.replace("@", "@\u200b").replace("://", ":\u200b//")
    return LEADING.sub(lambda found: found[1] + _escaped(found[2]), quiet)


def _escaped(mark: str) -> str:
    return mark[:-1] + "\\" + mark[-1]


def code(text: str, longest: int = 160) -> str:
    """A name as code; its own back ticks do not end it."""
    shown = wording.clean(text, longest)
    if not shown:
        return "-"
    ticks = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def _cell(text: str) -> str:
    """Code in a table: a bar would end the cell even there."""
    return code(text.replace("|", "\u2223"))


def block(command: str) -> list[str]:
    """A command to copy."""
    if not command.strip():
        return []
    shown = wording.command(command)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return ["", f"{fence}sh", *shown.split("\n"), fence, ""]


def _chain(told: Verdict) -> Iterator[str]:
    yield from ("", f"## {wording.chain_heading(told)}", "")
    if not told.chain or not told.chain.steps:
        yield "No chain is claimed."
        return
    following = {link.cause: link for link in told.chain.links}
    for number, step in enumerate(told.chain.steps, 1):
        where = ", ".join(filter(None, (wording.who_words(step.subject), wording.place_words(step.subject))))  # fmt: skip
        numbers = wording.number_words(step)
        yield f"{number}. **{m(wording.kind_words(step.kind))}**: {m(step.summary, 1000)}  "
        yield f"   {m(' · '.join(filter(None, (where, numbers))), 600)}"
        if link := following.get(step.id):
            against = f"; against: {m('; '.join(link.against), 600)}" if link.against else ""
            yield f"   ↓ {link.strength:.2f} {wording.strength_words(link.strength)}: {m('; '.join(link.reasons), 600)}{against}"


def _who(material: diagnosis.Material) -> Iterator[str]:
    if not material.processes or not material.processes.rows:
        return
    names = " | ".join(name for name, _ in wording.DENOMINATORS)
    where = f"core {material.core}" if material.core >= 0 else "all cores"
    yield from ("", f"## Who ran on {where} in the hot window", "")
    yield f"| {material.processes.kind} | samples | {names} |"
    yield "|---|--:|--:|--:|--:|"
    for row in material.processes.rows[:MOST_ROWS]:
        cores = "-" if row.cores is None else f"{row.cores:.2f}"
        yield f"| {_cell(row.name)} | {row.samples:,} | {wording.percent(row.share_of_samples)} | {wording.percent(row.share_of_capacity)} | {cores} |"
    told = "; ".join(f"{name}: {meaning}" for name, meaning in wording.DENOMINATORS)
    yield from ("", f"{told}. {material.processes.coverage.lost:,} samples were lost.")


def _next(told: Verdict) -> Iterator[str]:
    for heading, steps in (("How to confirm or refute it", told.next), ("Fix", told.fix)):
        if steps:
            yield from ("", f"## {heading}", "")
        for number, step in enumerate(steps, 1):
            expect = f" Expect: {m(step.expect, 1000)}" if step.expect else ""
            yield f"{number}\\. {m(step.what, 1000)}{expect}"
            yield from block(step.command) or [""]


def _facts(found: Finding) -> Iterator[str]:
    for lead, those in (("", found.evidence), ("against: ", found.against)):
        for one in those:
            look = f": {code(' ; '.join(wording.command(one.look).split(chr(10))), 400)}" if one.look else ""  # fmt: skip
            yield f"  - {lead}{m(one.text, 1000)} ({m(wording.look_words(one), 600)}){look}"


def _evidence(told: Verdict) -> Iterator[str]:
    if not told.findings:
        return
    yield from ("", "## Evidence", "")
    ruled_out = {one.finding: one.why for one in told.ruled_out}
    for one in told.findings:
        why = f" Not in the chain: {m(ruled_out[one.id], 600)}" if one.id in ruled_out else ""
        yield f"- **{m(wording.kind_words(one.kind))}**: {m(one.summary, 1000)}{why}"
        yield from _facts(one)


def _fleet(material: diagnosis.Material) -> Iterator[str]:
    if not material.fleet:
        return
    yield from ("", "## Evidence from other hosts", "")
    for one in material.fleet:
        yield f"- {m(one.summary, 1000)}"
        yield from _facts(one)


def _alternatives(told: Verdict) -> Iterator[str]:
    if not told.alternatives:
        return
    yield from ("", "## Alternatives, and why each lost", "")
    for one in told.alternatives:
        line = " → ".join(wording.kind_words(step.kind) for step in one.steps)
        yield f"- {m(line, 600)} (score {one.score:.2f}): {m(one.why_not, 1000) or 'it scored less.'}"


def _gaps(told: Verdict, material: diagnosis.Material) -> Iterator[str]:
    yield from ("", "## What is missing", "")
    for gap in told.gaps:
        yield f"- {m(gap.what)}: {m(gap.why)} (factor {gap.factor:.2f})"
    for problem in material.problems:
        yield f"- not in this report: {m(problem)}"
    if not told.gaps and not material.problems:
        yield wording.nothing_missing(told)


def _answers(told: Verdict) -> Iterator[str]:
    if not told.answers:
        return
    yield from ("", "## What was looked for", "")
    for status in ("found", "clear", "no-data", "failed"):
        those = [one for one in told.answers if one.status == status]
        if those:
            named = ", ".join(
                m(one.detector, 80) + (f" ({m(one.why, 200)})" if one.why and status != "clear" else "")
                for one in those
            )  # fmt: skip
            yield f"- {status}: {named}"
