from __future__ import annotations

import re

import pytest

from overnight.sources.kernelrules import needles


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        (r"\bena\b.*Transmit time out", ("Transmit time out",)),
        (r"(?:long word)?short", ("short",)),
        (r"(?:long word)+x", ("long word",)),
        (r"(?i:long word) short", (" short",)),
        (r"(?:one|(?P<x>\d+)) word", (" word",)),
        (r"one|\d", ()),
        (r"(?i)word", ()),
        (r"(?>atomic)", ("atomic",)),
        (r"ab", ()),
        (r"(", ()),
    ],
)
def test_required_words_of_a_regex(regex: str, words: tuple[str, ...]) -> None:
    assert needles.extract(regex) == words


def test_without_the_parser_every_line_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re._parser, "parse", None)
    assert needles.extract("some words") == ()
