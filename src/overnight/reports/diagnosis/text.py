"""The report in a terminal: Rich renderables, readable at 80 columns and without colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight.reports import diagnosis
from overnight.reports.diagnosis import wording

if TYPE_CHECKING:
    import rich.console
    import rich.text

    from overnight.model.finding import Finding
    from overnight.model.verdict import Link, Step, Verdict

__all__ = ["render"]

STYLES = {"cause-found": "bold red", "inconclusive": "bold yellow", "no-cause": "bold green"}
MOST_ROWS = 5
LONGEST = 72  # characters of a command on one line


def render(told: Verdict, material: diagnosis.Material = diagnosis.EMPTY) -> rich.console.Group:
    """Verdict, chain, who ran there, what is missing, what next; names are text, never markup."""
    import rich.console

    return rich.console.Group(
        *_head(told),
        *_chain(told),
        *_who(material),
        *_alternatives(told),
        *_ruled_out(told),
        *_gaps(told, material),
        *_steps("Confirm or refute", told.next),
        *_steps("Fix", told.fix),
        *_answers(told),
    )


def _line(*parts: tuple[str, str] | str, indent: int = 0) -> rich.console.RenderableType:
    """Wrapped text; what does not fit begins under the first word."""
    import rich.padding
    import rich.text

    text = rich.text.Text()
    for part in parts:
        text.append(part) if isinstance(part, str) else text.append(*part)
    return rich.padding.Padding(text, (0, 0, 0, indent)) if indent else text


def _behind(lead: str, body: rich.text.Text, style: str = "") -> rich.console.RenderableType:
    """A lead in a column of its own, so that wrapped lines keep their place."""
    import rich.table

    grid = rich.table.Table.grid(padding=0)
    grid.add_column(no_wrap=True, style=style)
    grid.add_column(overflow="fold")
    grid.add_row(lead, body)
    return grid


def _text(*parts: tuple[str, str] | str) -> rich.text.Text:
    import rich.text

    made = rich.text.Text()
    for part in parts:
        made.append(part) if isinstance(part, str) else made.append(*part)
    return made


def _heading(name: str) -> Iterator[rich.console.RenderableType]:
    yield _line("")
    yield _line((name, "bold underline"))


def _head(told: Verdict) -> Iterator[rich.console.RenderableType]:
    yield _line((wording.title(told), "bold"))
    status = wording.STATUS.get(told.status, wording.clean(told.status, 40))
    sure = wording.confidence_words(told)
    yield _line(
        (status.upper(), STYLES.get(told.status, "bold")),
        f", {sure}" if sure else "",
    )
    yield _line("")
    yield _line(wording.clean(told.summary, 3000))
    yield _line("")
    yield _line((wording.confidence_means(told), "dim"))


def _chain(told: Verdict) -> Iterator[rich.console.RenderableType]:
    yield from _heading(wording.chain_heading(told))
    if not told.chain or not told.chain.steps:
        yield _line("No chain is claimed.")
        return
    following = {link.cause: link for link in told.chain.links}
    last = len(told.chain.steps) - 1
    for at, step in enumerate(told.chain.steps):
        rail = "│" if at < last else " "
        mark = "●" if at in (0, last) else "○"
        yield _behind(
            f"{mark} ", _text((wording.kind_words(step.kind), "bold"), f"  {_when(step)}")
        )
        for detail, style in (
            (wording.who_words(step.subject), "cyan"),
            (wording.place_words(step.subject), ""),
            (wording.number_words(step), ""),
        ):
            if detail:
                yield _Railed(rail, _text((detail, style)))
        for one in step.evidence[:3]:
            yield _Railed(rail, _text(("· ", "dim"), wording.clean(one.text, 600)))
            if one.look:
                yield _Railed(rail, _text(("  $ " + wording.command(one.look), "dim")))
        for one in step.against[:2]:
            yield _Railed(rail, _text(("against: ", "yellow"), wording.clean(one.text, 600)))
        link = following.get(step.id)
        if at < last:
            yield _Railed("│", _link(link) if link else _text("no link is recorded"), "▼")


class _Railed:
    """Text behind a rail that goes on through all of its lines, and ends in `tip` in the last one."""

    def __init__(self, rail: str, body: rich.text.Text, tip: str = "") -> None:
        self.rail, self.body, self.tip = rail, body, tip or rail

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        """What Rich asks for."""
        import rich.text

        lines = self.body.wrap(console, max(10, options.max_width - 4), overflow="fold")
        for number, line in enumerate(lines, 1):
            rail = self.tip if number == len(lines) else self.rail
            line.rstrip()
            yield rich.text.Text.assemble(f"{rail}  ", line)


def _link(link: Link) -> rich.text.Text:
    strength = f"{link.strength:.2f} {wording.strength_words(link.strength)}"
    against = f"; against: {wording.clean('; '.join(link.against))}" if link.against else ""
    return _text(
        (f"leads to the next, {strength}: ", "italic"),
        f"{wording.clean('; '.join(link.reasons))}{against}",
    )


def _when(step: Finding) -> str:
    begin, end = step.window.begin_us, step.window.end_us
    if end - begin >= 3_600_000_000:
        return f"since {wording.clock(begin, '%Y-%m-%d %H:%M')}"
    length = wording.length_words((end - begin) / 1e6)
    return wording.clock(begin, "%H:%M:%S") + (f", {length}" if length else "")


def _who(material: diagnosis.Material) -> Iterator[rich.console.RenderableType]:
    if not material.processes or not material.processes.rows:
        return
    import rich.table
    import rich.text

    where = f"core {material.core}" if material.core >= 0 else "all cores"
    yield from _heading(f"Who ran on {where} in the hot window")
    table = rich.table.Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(material.processes.kind, overflow="fold")
    for name in ("samples", *(name for name, _ in wording.DENOMINATORS)):
        table.add_column(name, justify="right")
    for row in material.processes.rows[:MOST_ROWS]:
        table.add_row(
            rich.text.Text(wording.clean(row.name, 60)), f"{row.samples:,}", wording.percent(row.share_of_samples),
            wording.percent(row.share_of_capacity), "-" if row.cores is None else f"{row.cores:.2f}",
        )  # fmt: skip
    yield table
    yield _line((f"{material.processes.coverage.lost:,} samples were lost.", "dim"))


def _alternatives(told: Verdict) -> Iterator[rich.console.RenderableType]:
    if not told.alternatives:
        return
    yield from _heading("Alternatives, and why each lost")
    for number, one in enumerate(told.alternatives, 1):
        line = " → ".join(wording.kind_words(step.kind) for step in one.steps)
        why = wording.clean(one.why_not, 1000) or "It scored less."
        yield _behind(f"{number}. ", _text(f"{wording.clean(line, 600)} (score {one.score:.2f}). ", why))  # fmt: skip


def _ruled_out(told: Verdict) -> Iterator[rich.console.RenderableType]:
    if not told.ruled_out:
        return
    yield from _heading("Found, but in no chain")
    for one in told.ruled_out:
        yield _behind("- ", _text(f"{wording.kind_words(one.kind)}: {wording.clean(one.why, 600)}"))


def _gaps(told: Verdict, material: diagnosis.Material) -> Iterator[rich.console.RenderableType]:
    yield from _heading("What is missing")
    if told.gaps:
        yield _line(("Each multiplies the confidence by its factor.", "dim"))
    for gap in told.gaps:
        body = f"{wording.clean(gap.what)}: {wording.clean(gap.why)}"
        yield _behind(f"{gap.factor:.2f}  ", _text(body))
    for problem in material.problems:
        yield _behind("not shown  ", _text(wording.clean(problem)))
    if not told.gaps and not material.problems:
        yield _line(wording.nothing_missing(told))


def _steps(heading: str, steps: tuple[Step, ...]) -> Iterator[rich.console.RenderableType]:
    if not steps:
        return
    yield from _heading(heading)
    for number, step in enumerate(steps, 1):
        yield _behind(f"{number}. ", _text(wording.clean(step.what, 1000)))
        for line in _command_lines(step.command):
            # Without a prompt: what is selected is what is run.
            yield _line((line, "green"), indent=5)
        if step.expect:
            yield _behind("   ", _text(("expect: ", "dim"), wording.clean(step.expect, 1000)))


def _command_lines(command: str) -> list[str]:
    """Long ones are broken where the shell lets them be: a terminal would break them anywhere."""
    if not command.strip():
        return []
    lines = wording.command(command).split("\n")
    return [
        part
        for line in lines
        for part in (line.replace(" && ", " &&\n").split("\n") if len(line) > LONGEST else [line])
    ]


def _answers(told: Verdict) -> Iterator[rich.console.RenderableType]:
    if not told.answers:
        return
    yield from _heading("What was looked for")
    for status in ("found", "clear", "no-data", "failed"):
        those = [one for one in told.answers if one.status == status]
        if those:
            named = ", ".join(
                wording.clean(one.detector, 60)
                + (f" ({wording.clean(one.why, 120)})" if one.why and status != "clear" else "")
                for one in those
            )
            yield _behind(f"{status:8} ", _text(named))
