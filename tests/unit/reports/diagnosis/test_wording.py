"""Wording that all formats share."""

from __future__ import annotations

import dataclasses
import io
import math
import re

import pytest
import rich.console
import verdicts
from hypothesis import given
from hypothesis import strategies as st

from overnight.diagnosis import calibration, knowledge
from overnight.model.finding import Subject
from overnight.model.verdict import Gap, GapKind, RuledOut, RuledOutReason, VerdictStatus
from overnight.reports.diagnosis import html, markdown, text, wording


@given(st.text())
def test_clean_text_is_one_printable_line_that_hides_nothing(text: str) -> None:
    cleaned = wording.clean(text)
    assert cleaned.isprintable()
    assert len(cleaned) <= 10 * (wording.MAX_TEXT + 1)
    if text.isprintable() and len(text) <= wording.MAX_TEXT:
        assert cleaned == text


def test_a_command_keeps_its_lines() -> None:
    assert wording.command("a\nb\x1b\n") == "a\nb\\x1b"


def test_subjects_and_places_are_described() -> None:
    walk = verdicts.incident_steps()["walk"].subject
    assert (
        wording.describe_subject(walk) == "kubelet (kubelet.service) in mem_cgroup_nr_lru_pages()"
    )
    assert wording.format_place(walk) == "core 39, gpu-96-07"
    queue = Subject(interface="eth0", queue=0, core=0)
    assert wording.format_place(queue) == "core 0, eth0 queue 0"
    assert wording.describe_subject(queue) == ""


def test_known_numbers_have_a_unit_and_unknown_numbers_are_shown() -> None:
    step = dataclasses.replace(
        verdicts.incident_steps()["walk"],
        magnitude={"cores_burnt": 0.0, "odd_thing": 5.0, "share_of_core_samples": 0.979, "samples": math.nan},
    )  # fmt: skip
    texts = ["98 % of that core's samples", "odd thing 5", "0.00 cores used"]
    assert list(wording.list_numbers(step, knowledge.known())) == texts


@pytest.mark.parametrize(
    ("status", "confidence", "begins"),
    [
        ("cause-found", 0.95, "Act on it, and run the experiment to be sure."),
        ("cause-found", 0.8, "Likely: run the experiment before you change anything."),
        ("inconclusive", 0.5, "A suspicion to follow up"),
        ("inconclusive", 0.0, ""),
        ("no-cause", 0.0, ""),
    ],
)
def test_a_confidence_is_explained(status: str, confidence: float, begins: str) -> None:
    """Whoever acts on it reads what the number is, what it was measured on, and what it is not."""
    verdict = dataclasses.replace(
        verdicts.reference()[0],
        status=VerdictStatus(status),
        score=0.42,
        confidence=confidence,
        gaps=(),
    )
    explanation = wording.explain_confidence(verdict)
    assert explanation.startswith(begins)
    assert "issing evidence" not in explanation
    assert bool(wording.format_confidence(verdict)) == bool(confidence) == bool(explanation)
    if confidence:
        assert "with this score (0.42), about" in explanation
        assert f"about {100 * confidence:.0f} blame a true cause" in explanation
        assert f"measured on {calibration.known().diagnoses:,} diagnoses" in explanation
        assert "causes in hardware are hardly measured" in explanation
        assert "does not mean that this is the only cause" in explanation
    gap = Gap(GapKind.SIGNALS, "signals", "", 0.5)
    lessened = wording.explain_confidence(dataclasses.replace(verdict, gaps=(gap,)))
    assert f"factor of{' 0.50 for missing evidence' if confidence else ' 0.50.'}" in lessened
    claimed = wording.chain_heading(verdict) == "Chain, root first"
    assert claimed == (status == "cause-found")


def test_every_format_names_the_process_of_an_alternative_and_lists_notes_apart() -> None:
    """A note is not missing evidence: a reader would look for what to record."""
    verdict, material = verdicts.reference()
    other = verdicts.generic()[0].chain
    assert other
    ruled_out = RuledOut(other.root.id, other.root.kind, "it ended before", RuledOutReason.WEAK)
    verdict = dataclasses.replace(
        verdict,
        alternatives=(other,),
        gaps=(),
        notes=("the load trials was constant",),
        findings=(*verdict.findings, other.root),
        ruled_out=(ruled_out,),
    )
    console = rich.console.Console(file=io.StringIO(), width=300)
    console.print(text.render(verdict, material))
    shown = [console.file.getvalue()]
    for module in (markdown, html):
        file = io.BytesIO()
        module.write(verdict, file, material)
        shown.append(file.getvalue().decode())
    name = "Top consumer of the core: backup-agent (backup.service) in crypto_shash_update()"
    for report in shown:
        assert f"{name} → Saturated core → " in report
        apart = report.partition("Missing evidence")[2].partition("Notes")
        assert wording.NOTHING_MISSING in apart[0]
        assert "the load trials was constant" in apart[2]
    assert re.search(rf"^- {re.escape(name)} *\n  why not: it ended before", shown[0], re.MULTILINE)


def test_a_time_out_of_range_is_shown_in_seconds() -> None:
    assert wording.clock(2**62) == "4611686018427 s after 1970"


def test_every_shared_kind_has_a_title() -> None:
    for step in verdicts.incident_steps().values():
        assert ":" not in knowledge.known().title(step.kind)
    assert knowledge.known().title("gpu.fell_off") == "gpu: fell off"


def test_the_length_of_an_instant_is_not_shown() -> None:
    assert [wording.format_length(seconds) for seconds in (0.0, 0.000409, 0.05, 4.5, 1760)] == [
        "", "", "0.05 s", "4.5 s", "29 min 20 s",
    ]  # fmt: skip
