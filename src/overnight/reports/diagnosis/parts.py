"""Pieces of the page: escaped text, tables, evidence with its command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.reports import svg
from overnight.reports.diagnosis import wording

if TYPE_CHECKING:
    from overnight.model.finding import Evidence, Finding
    from overnight.model.verdict import Chain, Link

__all__ = [
    "command", "evidence", "evidence_steps", "finding_list", "h", "links", "name", "plain", "short", "table",
]  # fmt: skip

DEEPEST = 3
MOST_ITEMS = 60


def h(text: object, longest: int = wording.LONGEST) -> str:
    """Text from a host as HTML, for elements and for attributes in double quotes."""
    return svg.safe(wording.clean(text, longest))


def name(text: str) -> str:
    """A name that a host chose, kept apart from the writing direction around it."""
    return f"<bdi><code>{h(text, 160)}</code></bdi>" if text else "-"


def short(text: str) -> str:
    """A cell whose words stay together, unless somebody chose a name that nobody would."""
    return f"<td{' class=k' if len(text) <= 32 else ''}>{h(text, 80)}</td>"


def command(text: str) -> str:
    """A command that can be copied; the button shows itself where scripts run."""
    if not text.strip():
        return ""
    shown = "\n".join(svg.safe(line) for line in wording.command(text).split("\n"))
    return (
        f'<div class="command"><code>{shown}</code>'
        f'<button class="copy" type="button" hidden aria-label="copy the command">copy</button></div>'
    )


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; a head that begins with `n:` is of numbers."""
    told = "".join(
        f'<th scope="col" class="n">{h(one[2:])}</th>'
        if one.startswith("n:")
        else f'<th scope="col">{h(one)}</th>'
        for one in heads
    )
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return (
        f'<div class="scroll"><table><caption>{h(caption, 2000)}</caption>'
        f"<thead><tr>{told}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def evidence(those: Iterable[Evidence], against: Iterable[Evidence]) -> str:
    """What a finding rests on, and what speaks against it, each with its source and command."""
    items = [_fact(one, "") for one in those]
    items += [_fact(one, '<span class="against">against:</span> ') for one in against]
    return f'<ul class="evidence">{"".join(items)}</ul>' if items else ""


def _fact(one: Evidence, lead: str) -> str:
    source = h(wording.look_words(one), 1200)
    return f'<li>{lead}{h(one.text, 1000)}<div class="from">{source}</div>{command(one.look)}</li>'


def evidence_steps(chain: Chain) -> Iterator[str]:
    """Every step of a chain with its evidence, and why it leads to the next."""
    following = {link.cause: link for link in chain.links}
    yield '<ol class="steps">'
    for step in chain.steps:
        yield f"<li>{_heading(step)}{evidence(step.evidence, step.against)}"
        if link := following.get(step.id):
            yield _link(link)
        yield "</li>"
    yield "</ol>"


def _heading(step: Finding) -> str:
    where = " · ".join(
        filter(None, (wording.who_words(step.subject), wording.place_words(step.subject)))
    )
    facts = (
        wording.number_words(step, 8),
        f"confidence {step.confidence:.2f}",
        wording.when_words(step.window.begin_us, step.window.end_us),
    )
    place = f'<div class="from">{h(where, 900)}</div>' if where else ""
    return (
        f"<b>{h(wording.kind_words(step.kind))}.</b> {h(step.summary, 1000)}"
        f'{place}<div class="from">{h(" · ".join(filter(None, facts)), 1200)}</div>'
    )


def _link(link: Link) -> str:
    against = "".join(f'; <span class="against">against:</span> {h(one)}' for one in link.against)
    why = h("; ".join(link.reasons), 1500)
    return (
        f'<div class="small">leads to the next, {link.strength:.2f} {wording.strength_words(link.strength)}: '
        f"{why}{against}</div>"
    )


def links(chain: Chain) -> Iterator[str]:
    """The steps of a runner-up in short."""
    following = {link.cause: link for link in chain.links}
    yield "<ul>"
    for step in chain.steps:
        link = following.get(step.id)
        yield f"<li>{h(step.summary, 1000)}{_link(link) if link else ''}</li>"
    yield "</ul>"


def finding_list(
    those: Iterable[Finding], why_not: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Findings one by one, each with its evidence, and why it is in no chain where that is known."""
    yield '<ul class="evidence">'
    for one in those:
        why = (why_not or {}).get(one.id, "")
        out = f'<div class="small"><b>Not in the chain:</b> {h(why, 1000)}</div>' if why else ""
        yield f"<li>{_heading(one)}{out}{evidence(one.evidence, one.against)}</li>"
    yield "</ul>"


def plain(value: object, deep: int = 0) -> str:
    """A document that others define, as nested lists; it ends where nobody would read on."""
    if isinstance(value, Mapping) and deep < DEEPEST:
        pairs = list(value.items())[:MOST_ITEMS]
        items = "".join(f"<dt>{h(str(k).replace('_', ' '), 80)}</dt><dd>{plain(v, deep + 1)}</dd>" for k, v in pairs)  # fmt: skip
        return f'<dl class="plain">{items}</dl>'
    if isinstance(value, list | tuple) and deep < DEEPEST:
        if all(isinstance(one, str | int | float | None) for one in value):
            return h(", ".join(map(_short, value[:MOST_ITEMS])), 1000)
        return "<ul>" + "".join(f"<li>{plain(v, deep + 1)}</li>" for v in value[:MOST_ITEMS]) + "</ul>"  # fmt: skip
    return h(_short(value))


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)
