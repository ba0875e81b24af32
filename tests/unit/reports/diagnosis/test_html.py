"""Verdicts as a page: valid HTML that loads nothing and escapes the names of the host."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import io
import re

import pytest
import verdicts
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.diagnosis import knowledge
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject
from overnight.model.selection import Window
from overnight.model.verdict import (
    Argument,
    ArgumentOutcome,
    Chain,
    Gap,
    GapKind,
    Link,
    Narrative,
    Step,
    Verdict,
    VerdictStatus,
)
from overnight.reports import diagnosis
from overnight.reports.diagnosis import html as pages

VOID = {"meta", "br", "hr", "img", "input", "link"}
# The elements of the page; any other element came out of a name.
TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "a",
    "header",
    "h1",
    "h2",
    "h3",
    "ul",
    "ol",
    "li",
    "b",
    "p",
    "div",
    "span",
    "i",
    "main",
    "section",
    "figure",
    "figcaption",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "bdi",
    "code",
    "button",
    "dl",
    "dt",
    "dd",
    "script",
    "details",
    "summary",
    "svg",
    "desc",
    "defs",
    "pattern",
    "path",
    "rect",
    "text",
    "tspan",
    "g",
}


class Page(html.parser.HTMLParser):
    """Elements, attributes and texts of a page; refuses a closing tag that does not match."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(data.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        texts = (data for tag, data in self.texts if tag not in ("style", "script"))
        return " ".join(" ".join(texts).split())


def render(verdict: Verdict, material: diagnosis.Material = diagnosis.EMPTY) -> bytes:
    file = io.BytesIO()
    pages.write(verdict, file, material)
    return file.getvalue()


@pytest.mark.parametrize("name", verdicts.ALL)
def test_every_page_is_valid_and_loads_nothing(name: str) -> None:
    data = render(*verdicts.ALL[name]())
    page = Page(data)
    assert {tag for tag, _ in page.elements} <= TAGS
    for tag, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key == "src"]
        assert (attributes.get("href") or "#").startswith("#")
        if tag == "svg":
            assert attributes["role"] == "img"
    assert [tag for tag, _ in page.elements].count("script") == 1
    style = "".join(data for tag, data in page.texts if tag == "style")
    assert set(re.findall(r"url\([^)]*\)|@import|https?:", style)) <= {"url(#hatch)"}
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert data == render(*verdicts.ALL[name]())


def test_the_content_security_policy_allows_only_the_known_script() -> None:
    page = Page(render(*verdicts.reference()))
    (policy,) = [
        str(attributes["content"])
        for _, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    (script,) = [data for tag, data in page.texts if tag == "script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_the_page_shows_every_part_of_the_verdict() -> None:
    verdict, material = verdicts.reference()
    text = Page(render(verdict, material)).text
    assert "Cause found: ecs.service leaks memory cgroups confidence 0.82" in text
    for part in verdict.narrative.parts:
        assert f"{part.label} {' '.join(part.text.split())}" in text
    assert "The confidence is a probability: of 100 verdicts with this score (0.45" in text
    assert "· weight 0.97 ·" in text  # of a finding, not a probability
    assert verdict.chain
    for step in verdict.chain.steps:
        assert step.summary in text
        for fact in (*step.evidence, *step.against):
            assert fact.text in text
            assert fact.look in text
    for gap in verdict.gaps:
        assert gap.why in text
    for chain in verdict.alternatives:
        assert chain.why_not in text
    for step in (*verdict.next, *verdict.fix):
        assert step.expect in text
        assert all(line in text for line in step.command.split("\n"))
    for answer in verdict.answers:
        assert answer.detector in text
        assert answer.why in text
    for name in ("share of samples", "share of capacity", "cores"):
        assert f"{name} :" in text
    assert "Not in the chain: it ended 53 s before" in text
    assert "+276 dying an hour" in text


def test_a_chain_is_drawn_with_its_strengths() -> None:
    verdict, material = verdicts.reference()
    data = render(verdict, material).decode()
    picture = data[data.index('<svg class="chain"') :].partition("</svg>")[0]
    assert picture.count('class="arrow"') == 5
    assert picture.count('class="box') == 6
    texts = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    assert any("0.88 strong" in label for label in texts)
    assert any(label.startswith("against: the host was not rebooted") for label in texts)
    weak = dataclasses.replace(verdict, chain=verdict.alternatives[0])
    assert 'stroke-dasharray="5 4"' in render(weak, material).decode()


def test_a_verdict_without_material_is_a_page() -> None:
    verdict, _ = verdicts.reference()
    text = Page(render(verdict)).text
    assert "The flight recorder kept no seconds" in text
    assert "Flame graph" not in text
    empty, _ = verdicts.no_cause()
    text = Page(render(empty)).text
    assert "Chain" not in text
    assert "Nothing that this verdict rests on is missing" in text
    assert "Fix" not in text


def test_an_inconclusive_chain_has_no_root_cause_box() -> None:
    verdict, material = verdicts.inconclusive()
    data = render(verdict, material).decode()
    assert ">cause</text>" not in data
    assert 'class="box root"' not in data
    assert "No cause is claimed: the earliest known step is at the top" in data
    assert ">root cause</text>" in render(*verdicts.reference()).decode()


def test_gaps_show_their_effect_on_the_confidence() -> None:
    verdict, material = verdicts.inconclusive()
    text = Page(render(verdict, material)).text
    assert "together 0.17" in text
    assert "Missing evidence weakens this result by a factor of 0.17." in text
    assert material.problems[0] in text


def test_names_are_escaped_and_hidden_characters_are_spelled_out() -> None:
    text = Page(render(*verdicts.hostile())).text
    assert "</script><script>window.broken=1</script>" in text
    assert "\\u202egnp.exe\\u2066" in text
    assert "a\\x1b[31mred\\x00\\x07\\x85\\n\\r\\tb" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)  # fmt: skip
    assert len(text) < 400_000


hostile = st.text(max_size=40) | st.sampled_from(verdicts.HOSTILE)


@given(hostile, hostile, st.floats(0, 1), st.floats(), st.integers(-(2**62), 2**62))
@settings(max_examples=40)
def test_any_text_and_number_makes_a_page(
    name: str, other: str, share: float, number: float, when: int
) -> None:
    window = Window(when, when + 1)
    about = Subject(name, 3, other, name, other, name, other, 2)
    fact = Evidence(name, other, {name: number, other: name}, window, other)
    step = Finding(
        name, other, name, about, window, share, other, (fact,), {name: number, "seconds": number}
    )
    chain = Chain(
        (step, step),
        (
            Link(
                name,
                name,
                share,
                tuple(Argument(name, outcome, other) for outcome in ArgumentOutcome),
            ),
        ),
        share,
        name,
    )
    verdict = Verdict(
        verdicts.reset(name, kind=other, text=name, time_us=when),
        VerdictStatus.CAUSE_FOUND, share, chain, (chain,), (Gap(GapKind.STACKS, name, other, share),),
        (Step(name, other, name),), (), (Answer(name, Status.FAILED, (), other),),
        (step,), {name: [other, {name: number}]}, narrative=Narrative(name, other, name, other),
    )  # fmt: skip
    page = Page(render(verdict))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert [tag for tag, _ in page.elements].count("script") == 1


def test_the_page_starts_with_verdict_and_timeline_and_folds_the_evidence() -> None:
    data = render(*verdicts.reference()).decode()
    places = [data.index(part) for part in ('class="form"', 'id="timeline"', 'id="fix"', 'id="chain"', 'id="evidence"')]  # fmt: skip
    assert places == sorted(places)
    assert "<details open" not in data
    evidence = data[data.index('id="evidence"') :]
    for summary in ("Top consumers", "Stacks of the incident window", "Alternatives", "Detectors"):
        assert f"<details><summary>{summary}</summary>" in evidence


def test_titles_and_numbers_of_user_knowledge_are_used() -> None:
    text = """
[[kind]]
kind = "gpu.poll"
name = "a polling driver"
title = "Polling GPU driver"
explains = 0.9
[[number]]
name = "polls_per_second"
format = "{value:,.0f} polls/s"
"""
    known = knowledge.parse_knowledge(text, "mine.toml", knowledge.known())
    polls = verdicts.make_finding(
        "polls", "gpu.poll", "it polls", magnitude={"polls_per_second": 4e6}
    )
    verdict = dataclasses.replace(verdicts.reference()[0], findings=(polls,))
    page = Page(render(verdict, dataclasses.replace(diagnosis.EMPTY, known=known))).text
    assert "Polling GPU driver: it polls" in page
    assert "4,000,000 polls/s" in page
