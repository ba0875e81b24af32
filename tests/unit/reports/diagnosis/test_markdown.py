"""Verdicts as Markdown; names of the host cannot make links, tags or table cells."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import markdown_it
import pytest
import verdicts
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import token

from overnight.reports.diagnosis import markdown

if TYPE_CHECKING:
    from overnight.model.verdict import Verdict
    from overnight.reports import diagnosis


def render(verdict: Verdict, material: diagnosis.Material) -> str:
    file = io.BytesIO()
    markdown.write(verdict, file, material)
    return file.getvalue().decode()


def parse(text: str) -> list[token.Token]:
    reader = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return [
        inner for outer in reader.parse(text) for inner in (outer, *(outer.children or ()))
    ]  # fmt: skip


def kinds(text: str) -> set[str]:
    return {node.type for node in parse(text)}


@pytest.mark.parametrize("name", verdicts.ALL)
def test_every_verdict_is_markdown_without_unintended_markup(name: str) -> None:
    text = render(*verdicts.ALL[name]())
    assert not kinds(text) & {"html_inline", "html_block", "link_open", "image", "em_open", "s_open"}  # fmt: skip
    assert text.startswith("# ")
    assert text.endswith("\n")
    assert not [c for c in text if not c.isprintable() and c not in "\n\u200b"]


def test_the_ticket_shows_every_part_of_the_verdict() -> None:
    verdict, material = verdicts.reference()
    text = render(verdict, material)
    assert text.startswith(f"# {verdict.narrative.headline}\n\n**confidence 0.82**\n")
    for part in verdict.narrative.parts:
        assert f"- **{part.label}:** {part.text}\n" in text
    code = [node.content for node in parse(text) if node.type == "fence"]
    assert code == [f"{step.command}\n" for step in (*verdict.fix, *verdict.next)]
    assert "| `kubelet` | 648 | 98 % | 95 % | 0.95 |" in text
    assert "\n- cleared: **hypervisor steal**: 0.0 % of core 39," in text
    assert "at most 1.1 ms): `iostat -x 1 5`\n" in text
    for heading in (
        "Chain, root first",
        "Checked and not the cause",
        "Missing evidence",
        "Alternatives",
        "Fix",
        "Experiment",
    ):
        assert f"\n## {heading}\n" in text
    assert "no-data: pressure: the kernel was started with psi=0" in text
    assert verdict.gaps[1].what in text  # a leading number does not make a list


def test_a_process_name_cannot_add_table_cells() -> None:
    verdict, material = verdicts.hostile()
    types = [node.type for node in parse(render(verdict, material))]
    heads, cells, rows = (types.count(f"{kind}_open") for kind in ("th", "td", "tr"))
    assert heads == 5
    assert cells == 5 * (rows - 1)


@given(st.text(max_size=60) | st.sampled_from(verdicts.HOSTILE))
def test_text_stays_text(name: str) -> None:
    nodes = parse(f"- {markdown.m(name)}")
    allowed = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "inline", "text", "text_special", "paragraph_open", "paragraph_close"}  # fmt: skip
    assert {node.type for node in nodes} <= allowed
    (inline, *_) = [node for node in nodes if node.type == "inline"] or [None]
    if inline is not None:
        shown = "".join(child.content for child in inline.children or ())
        plain = markdown.wording.clean(name)
        assert shown.replace("\u200b", "").strip() == plain.strip()


@given(st.text(max_size=60) | st.sampled_from(verdicts.HOSTILE[:-1]))
def test_code_stays_code(name: str) -> None:
    plain = markdown.wording.clean(name, 160)
    spans = [node for node in parse(f"a {markdown.code(name)} b") if node.type == "code_inline"]
    if plain.strip():
        assert len(spans) == 1
        assert spans[0].content.strip() == plain.strip()
    fenced = [node for node in parse("\n".join(markdown.block(name))) if node.type == "fence"]
    assert len(fenced) == bool(name.strip())


def test_mentions_and_addresses_are_defused() -> None:
    text = markdown.m("@everyone see https://x.example")
    assert "@everyone" not in text
    assert "://" not in text
