from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.sources.image import unitfile, unitname


def pairs(text: str) -> list[tuple[str, str, str]]:
    return [(entry.section, entry.key, entry.value) for entry in unitfile.parse_unit(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Unit]\nA = b \n", [("Unit", "A", "b")]),
        ("A=b\n[Unit]\n", []),  # outside of a section
        ("[Unit]\n# A=b\n ; A=b\nA=c # no comment\n", [("Unit", "A", "c # no comment")]),
        ("[S]\nA=1 \\\n  2\\\n# comment\n 3\nB=4\n", [("S", "A", "1  2 3"), ("S", "B", "4")]),
        ("[S]\nA=ends\\\\\nB=2\n", [("S", "A", "ends\\\\"), ("S", "B", "2")]),
        ("\ufeff[S]\r\nA=1\r\n", [("S", "A", "1")]),
        ("[S]\nA=\n", [("S", "A", "")]),
        ("[S]\nA=1\n[broken\nB=2\n", [("S", "A", "1")]),
        ("[S]\nnonsense\nA=x=y\n", [("S", "A", "x=y")]),
    ],
)
def test_lines_are_read_as_systemd_reads_them(
    text: str, expected: list[tuple[str, str, str]]
) -> None:
    assert pairs(text) == expected


def test_an_empty_value_clears_a_list() -> None:
    text = "[Service]\nExecStart=/a\nExecStart=/b\nExecStart=\nExecStart=/c\nRestart=always\nRestart=\n"
    settings = unitfile.Settings(unitfile.parse_unit(text, "x"))
    assert [entry.value for entry in settings.all("Service", "ExecStart")] == ["/c"]
    assert settings.last("Service", "Restart") is None
    assert settings.last("Service", "ExecStart").line == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("5s", 5), ("1min30s", 90), ("2 h", 7200), ("50ms", 0.05), ("1.5s", 1.5), ("1M", 2629800), ("1m", 60), ("", None), ("5 parsecs", None), ("-1", None), ("0", 0)],
)  # fmt: skip
def test_time_spans(text: str, seconds: float | None) -> None:
    assert unitfile.parse_span(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b", ("a", "b")),
        ("\"a b\" 'c d'", ("a b", "c d")),
        (r"a\x20b \101", ("a b", "A")),
        ("it's", ("it's",)),
        ("'open", ()),
        ('a "" b', ("a", "", "b")),
    ],
)  # fmt: skip
def test_words(text: str, words: tuple[str, ...]) -> None:
    assert unitfile.split_words(text) == words


@hypothesis.given(st.text(alphabet="[]=#;\\\n\"' ax%-@", max_size=200))
def test_any_text_can_be_parsed(text: str) -> None:
    for entry in unitfile.parse_unit(text):
        assert "\n" not in entry.value
        unitfile.split_words(entry.value)
        unitfile.parse_command(entry.value)
        unitname.specify(entry.value, "a@b.service")
    unitfile.parse_span(text)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("/a/%i", "/a/b-c"), ("/a/%I", "/a/b/c"), ("%n %N %p", "a@b-c.service a@b-c a"), ("100%%", "100%"), ("%%i", "%i"), ("%q", None), ("x%", "x%")],
)  # fmt: skip
def test_specifiers(text: str, expanded: str | None) -> None:
    assert unitname.specify(text, "a@b-c.service") == expanded


def test_names() -> None:
    assert unitname.template_of("getty@tty1.service") == "getty@.service"
    assert unitname.instance_of("a.service") is None
    assert unitname.shorter("a-b@.service") == ("a-@.service",)
    assert not unitname.is_valid("x" * 300 + ".service")
