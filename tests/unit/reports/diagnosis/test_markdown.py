"""A verdict for a ticket or a chat; what a host calls itself makes no link, no tag, no table."""

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


def written(told: Verdict, beside: diagnosis.Material) -> str:
    file = io.BytesIO()
    markdown.write(told, file, beside)
    return file.getvalue().decode()


def parsed(text: str) -> list[token.Token]:
    reader = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return [
        inner for outer in reader.parse(text) for inner in (outer, *(outer.children or ()))
    ]  # fmt: skip


def kinds(text: str) -> set[str]:
    return {one.type for one in parsed(text)}


@pytest.mark.parametrize("name", verdicts.ALL)
def test_every_verdict_makes_a_text_that_reads_as_meant(name: str) -> None:
    text = written(*verdicts.ALL[name]())
    assert not kinds(text) & {"html_inline", "html_block", "link_open", "image", "em_open", "s_open"}  # fmt: skip
    assert text.startswith("# ")
    assert text.endswith("\n")
    assert not [c for c in text if not c.isprintable() and c not in "\n\u200b"]


def test_the_ticket_says_what_matters() -> None:
    told, beside = verdicts.reference()
    text = written(told, beside)
    assert text.startswith(f"# {told.narrative.headline}\n\n**confidence 0.82**\n")
    for part in told.narrative.parts:
        assert f"- **{part.label}:** {part.text}\n" in text
    code = [one.content for one in parsed(text) if one.type == "fence"]
    assert code == [f"{step.command}\n" for step in (*told.fix, *told.next)]
    assert "| `kubelet` | 648 | 98 % | 95 % | 0.95 |" in text
    for heading in ("Chain, root first", "Missing evidence", "Alternatives", "Fix", "Experiment"):
        assert f"\n## {heading}\n" in text
    assert "no-data: pressure: the kernel was started with psi=0" in text
    assert told.gaps[1].what in text  # a number at the beginning is no list


def test_a_table_has_a_cell_for_each_head_whatever_a_process_is_called() -> None:
    told, beside = verdicts.hostile()
    found = [one.type for one in parsed(written(told, beside))]
    heads, cells, rows = (found.count(f"{kind}_open") for kind in ("th", "td", "tr"))
    assert heads == 5
    assert cells == 5 * (rows - 1)


@given(st.text(max_size=60) | st.sampled_from(verdicts.HOSTILE))
def test_text_stays_text(name: str) -> None:
    found = parsed(f"- {markdown.m(name)}")
    allowed = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "inline", "text", "text_special", "paragraph_open", "paragraph_close"}  # fmt: skip
    assert {one.type for one in found} <= allowed
    (inline, *_) = [one for one in found if one.type == "inline"] or [None]
    if inline is not None:
        shown = "".join(child.content for child in inline.children or ())
        plain = markdown.wording.clean(name)
        assert shown.replace("\u200b", "").strip() == plain.strip()


@given(st.text(max_size=60) | st.sampled_from(verdicts.HOSTILE[:-1]))
def test_code_stays_code(name: str) -> None:
    plain = markdown.wording.clean(name, 160)
    found = [one for one in parsed(f"a {markdown.code(name)} b") if one.type == "code_inline"]
    if plain.strip():
        assert len(found) == 1
        assert found[0].content.strip() == plain.strip()
    fenced = [one for one in parsed("\n".join(markdown.block(name))) if one.type == "fence"]
    assert len(fenced) == bool(name.strip())


def test_nobody_is_called_and_no_address_is_a_link() -> None:
    said = markdown.m("@everyone see https://x.example")
    assert "@everyone" not in said
    assert "://" not in said
