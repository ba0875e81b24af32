"""Verdicts in a terminal of 80 columns or fewer, with and without colours."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
import rich.cells
import rich.console
import verdicts

from overnight.model.finding import Answer, Status
from overnight.model.verdict import Narrative
from overnight.reports import diagnosis
from overnight.reports.diagnosis import text


def render(name: str, width: int = 80, **more: object) -> str:
    file = io.StringIO()
    console = rich.console.Console(file=file, width=width, highlight=False, **more)  # type: ignore[arg-type]
    console.print(text.render(*verdicts.ALL[name]()))
    return file.getvalue()


@pytest.mark.parametrize("name", verdicts.ALL)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_terminal_and_has_no_escape_sequences(name: str, width: int) -> None:
    shown = render(name, width)
    assert all(rich.cells.cell_len(line) <= width for line in shown.splitlines())
    assert not [c for c in shown if not c.isprintable() and c != "\n"]


def test_the_chain_is_drawn_from_root_to_event() -> None:
    lines = render("reference").splitlines()
    begin = lines.index("Chain, root first")
    chain = lines[begin + 1 : lines.index("", begin)]
    assert [line[2:].partition("  ")[0] for line in chain if line[0] in "●○"] == [
        "Crash loop not counted by systemd",
        "Dying (zombie) memory cgroups",
        "Kernel walk of all memory cgroups",
        "Saturated core",
        "Starved network queue",
        "Network driver reset",
    ]
    assert sum(line.startswith("▼") for line in chain) == 5
    last = max(n for n, line in enumerate(chain) if line[0] == "●")
    assert all(line[0] in "│▼●○" for line in chain[: last + 1])
    assert not any(line[0] in "│▼" for line in chain[last + 1 :])


def test_suspects_are_one_line_each_cleared_ones_first() -> None:
    lines = [line.rstrip() for line in render("reference", 120).splitlines()]
    begin = lines.index("Checked and not the cause")
    assert lines[begin + 1 : lines.index("", begin)] == [
        "cleared      hypervisor steal: 0.0 % of core 39, 0.0 % in its worst second (baseline 0.1 %, 2.0 %)",
        "not cleared  disk: changed at the event: nvme0n1 answered in 41.0 ms (baseline 0.8 ms, at most 1.1 ms)",
        "             iostat -x 1 5",
        "not checked  frequency: no data: the signal frequency was not recorded around the event",
    ]
    assert "Checked and not the cause" not in render("no-cause")


def test_the_verdict_names_suspects_by_outcome() -> None:
    verdict, _ = verdicts.reference()
    # A suspect says "recorder" with its number, so the detector's answer does not say it again.
    clear = tuple(Answer(name, Status.CLEAR) for name in ("recorder", "softirq", "oom"))
    verdict = dataclasses.replace(verdict, answers=clear)
    assert verdicts.narrated(verdict).narrative.cleared == (
        "hypervisor steal, softirq load (details below). Not cleared: disk. Not checked: frequency."
        " Also found, not linked to this event: a softirq storm."
    )


def test_every_step_is_shown() -> None:
    shown = render("reference", 200)
    verdict, _ = verdicts.reference()
    for step in (*verdict.next, *verdict.fix):
        assert all(f"     {line}" in shown for line in step.command.split("\n"))
        assert f"expect: {step.expect}" in shown
    first = shown.splitlines()[0]
    assert first.startswith("Cause found: ecs.service leaks memory cgroups  ")
    assert first.endswith("  confidence 0.82")
    for part in verdict.narrative.parts:
        assert f"  {part.label:<10}  {part.text[:60]}" in shown
    assert "failed   storage: ValueError" in shown
    assert "why not: it ended 53 s before" in shown
    assert "0.97  0.8 % of the samples" in shown


def test_a_long_command_is_broken_only_where_the_shell_allows_it() -> None:
    verdict, _ = verdicts.reference()
    command = " && ".join(f"systemctl mask -- unit-{n}.service" for n in range(5))
    step = verdicts.dataclasses.replace(verdict.fix[0], command=command)
    file = io.StringIO()
    rendered = text.render(verdicts.dataclasses.replace(verdict, fix=(step,)), diagnosis.EMPTY)
    rich.console.Console(file=file, width=80, highlight=False).print(rendered)
    shown = [line.strip() for line in file.getvalue().splitlines() if "unit-" in line]
    assert " ".join(shown) == command
    assert all(line.endswith("&&") for line in shown[:-1])


def test_no_cause_has_no_chain_and_no_fix() -> None:
    shown = render("no-cause")
    assert shown.startswith("No cause found")
    assert "Chain" not in shown
    assert "Fix" not in shown


def test_markup_in_names_is_text() -> None:
    file = io.StringIO()
    verdict, _ = verdicts.reference()
    nasty = verdicts.dataclasses.replace(
        verdict, narrative=Narrative("[bold red]x[/] [link=file:///]y[/link]")
    )
    rich.console.Console(file=file, width=100, force_terminal=True).print(
        text.render(nasty, diagnosis.EMPTY)
    )
    plain = rich.text.Text.from_ansi(file.getvalue()).plain
    assert "[bold red]x[/] [link=file:///]y[/link]" in plain
    assert "\x1b]8" not in file.getvalue()


@pytest.mark.parametrize("width", range(40, 101))
def test_a_number_and_its_unit_stay_on_one_line(width: int) -> None:
    lines = [line.rstrip(" │▼") for line in render("reference", width).splitlines()]
    starts = [re.sub(r"^[│▼ ]+", "", line) for line in lines]
    split = [
        (line, start)
        for line, start in zip(lines, starts[1:], strict=False)
        if re.search(r"\d$", line) and re.match(r"(%|ms|[shd])(?!\w)", start)
    ]
    assert split == []
    assert "\ue000" not in "".join(lines)
