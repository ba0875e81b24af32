"""The page of a verdict: whole, closed, and what a host calls itself stays text."""

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
# What the page is made of; anything else came out of a name.
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
    """Elements, attributes and texts of a page; a tag that closes another's element is a fault."""

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
        said = (data for tag, data in self.texts if tag not in ("style", "script"))
        return " ".join(" ".join(said).split())


def written(told: Verdict, beside: diagnosis.Material = diagnosis.EMPTY) -> bytes:
    file = io.BytesIO()
    pages.write(told, file, beside)
    return file.getvalue()


@pytest.mark.parametrize("name", verdicts.ALL)
def test_every_page_is_whole_closed_and_asks_for_nothing(name: str) -> None:
    data = written(*verdicts.ALL[name]())
    page = Page(data)
    assert {tag for tag, _ in page.elements} <= TAGS
    for tag, attributes in page.elements:
        assert not [one for one in attributes if one.startswith("on") or one == "src"]
        assert (attributes.get("href") or "#").startswith("#")
        if tag == "svg":
            assert attributes["role"] == "img"
    assert [tag for tag, _ in page.elements].count("script") == 1
    style = "".join(data for tag, data in page.texts if tag == "style")
    assert set(re.findall(r"url\([^)]*\)|@import|https?:", style)) <= {"url(#hatch)"}
    ids = [one["id"] for _, one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))
    assert data == written(*verdicts.ALL[name]())


def test_the_policy_lets_only_the_known_script_run() -> None:
    page = Page(written(*verdicts.reference()))
    (policy,) = [
        str(one["content"])
        for _, one in page.elements
        if one.get("http-equiv") == "Content-Security-Policy"
    ]
    (script,) = [data for tag, data in page.texts if tag == "script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_what_the_reader_needs_is_there() -> None:
    told, beside = verdicts.reference()
    text = Page(written(told, beside)).text
    assert "Cause found: ecs.service leaks memory cgroups confidence 0.82" in text
    for part in told.narrative.parts:
        assert f"{part.label} {' '.join(part.text.split())}" in text
    assert "not the probability" in text
    assert told.chain
    for step in told.chain.steps:
        assert step.summary in text
        for one in (*step.evidence, *step.against):
            assert one.text in text
            assert one.look in text
    for gap in told.gaps:
        assert gap.why in text
    for chain in told.alternatives:
        assert chain.why_not in text
    for one in (*told.next, *told.fix):
        assert one.expect in text
        assert all(line in text for line in one.command.split("\n"))
    for answer in told.answers:
        assert answer.detector in text
        assert answer.why in text
    for name in ("share of samples", "share of capacity", "cores"):
        assert f"{name} :" in text
    assert "Not in the chain: it ended 53 s before" in text
    assert "+276 dying an hour" in text


def test_a_chain_is_drawn_with_its_strengths() -> None:
    told, beside = verdicts.reference()
    data = written(told, beside).decode()
    picture = data[data.index('<svg class="chain"') :].partition("</svg>")[0]
    assert picture.count('class="arrow"') == 5
    assert picture.count('class="box') == 6
    texts = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    assert any("0.88 strong" in one for one in texts)
    assert any(one.startswith("against: the host was not rebooted") for one in texts)
    weak = dataclasses.replace(told, chain=told.alternatives[0])
    assert 'stroke-dasharray="5 4"' in written(weak, beside).decode()


def test_without_material_the_verdict_is_still_a_page() -> None:
    told, _ = verdicts.reference()
    text = Page(written(told)).text
    assert "The flight recorder kept no seconds" in text
    assert "Flame graph" not in text
    empty, _ = verdicts.no_cause()
    text = Page(written(empty)).text
    assert "Chain" not in text
    assert "detectors without data and those that failed are listed below" in text
    assert "Fix" not in text


def test_where_no_cause_is_claimed_no_box_is_called_the_cause() -> None:
    told, beside = verdicts.inconclusive()
    data = written(told, beside).decode()
    assert ">cause</text>" not in data
    assert 'class="box root"' not in data
    assert "No cause is claimed: the earliest known step is at the top" in data
    assert ">root cause</text>" in written(*verdicts.reference()).decode()


def test_nothing_is_missing_only_where_every_detector_could_answer() -> None:
    told, _ = verdicts.no_cause()
    whole = dataclasses.replace(told, answers=told.answers[:2])
    assert "Nothing that the detectors need is missing" in Page(written(whole)).text


def test_gaps_say_what_they_cost() -> None:
    told, beside = verdicts.inconclusive()
    text = Page(written(told, beside)).text
    assert "together 0.17" in text
    assert "Missing evidence multiplies it by 0.17" in text
    assert beside.problems[0] in text


def test_names_are_shown_as_they_are_but_hidden_characters_are_spelled_out() -> None:
    text = Page(written(*verdicts.hostile())).text
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
    told = Verdict(
        verdicts.reset(name, kind=other, text=name, time_us=when),
        VerdictStatus.CAUSE_FOUND, share, chain, (chain,), (Gap(GapKind.STACKS, name, other, share),),
        (Step(name, other, name),), (), (Answer(name, Status.FAILED, (), other),),
        (step,), {name: [other, {name: number}]}, narrative=Narrative(name, other, name, other),
    )  # fmt: skip
    page = Page(written(told))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert [tag for tag, _ in page.elements].count("script") == 1


def test_the_page_opens_with_the_verdict_and_the_timeline_and_folds_the_evidence() -> None:
    data = written(*verdicts.reference()).decode()
    places = [data.index(part) for part in ('class="form"', 'id="timeline"', 'id="fix"', 'id="chain"', 'id="evidence"')]  # fmt: skip
    assert places == sorted(places)
    assert "<details open" not in data
    evidence = data[data.index('id="evidence"') :]
    for summary in ("Top consumers", "Stacks of the incident window", "Alternatives", "Detectors"):
        assert f"<details><summary>{summary}</summary>" in evidence


def test_titles_and_numbers_of_a_users_knowledge_are_used() -> None:
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
    told = dataclasses.replace(verdicts.reference()[0], findings=(polls,))
    page = Page(written(told, dataclasses.replace(diagnosis.EMPTY, known=known))).text
    assert "Polling GPU driver. it polls" in page
    assert "4,000,000 polls/s" in page
