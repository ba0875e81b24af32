"""No banned phrases in source, help and documents."""

from __future__ import annotations

import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
FILES = ("src/overnight/**/*.py", "src/overnight/**/*.toml", "docs/**/*.md", "docs/schemas/*.json", "benchmarks/**/*.py", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")  # fmt: skip
BANNED = re.compile(
    "|".join(
        (
            r"\bagain for more\b",
            r"\b(?:is|are|was|were|be|been) told\b",
            r"\b(?:is|are|was|were|be|been) had\b",
            r"\bfor want of\b",
            r"\bits like\b",
            r"\bmend(?:s|ed|ing)?\b",
            r"\brang for\b",
            r"\bby (?:itself|themselves)\b",
            r"\bso many\b",
            r"\b(?:found were|hot are|suspected (?:is|are))\b",
            r"\bhot (?:seconds|stretch(?:es)?)\b",
            r"\bburnt\b",
            r"\bnobody is there\b",
            r"\bis no fault\b",
            # In quotes it is a field of drift-1.json.
            r"(?<!\")\bstands\b(?! (?:in|for|out)\b)",
            # "there is no …" is fine, and so is "is no longer".
            r"(?<!\bthere )(?<!\bhere )\b(?:is|are|was|were) no (?!(?:longer|more|later|less|earlier|larger)\b)\w",
        )
    ),
    re.IGNORECASE,
)


def find_phrases(text: str) -> list[str]:
    """Return the banned phrases, also across line ends and comment marks."""
    return [match.group() for match in BANNED.finditer(re.sub(r"\s*\n\s*(?:#\s*)?", " ", text))]


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("the kernel is told, and\nso\n# many wait", ["is told", "so many"]),
        ("it is no name of ours", ["is no n"]),
        ("there is no pool; There are no pools; it is no longer there", []),
        ("a standard, a stand-in, it stands out", []),
        ('it stands; "stands" is a field', ["stands"]),
        ("recommend", []),
    ],
)
def test_phrases_are_found(text: str, phrases: list[str]) -> None:
    assert find_phrases(text) == phrases


def test_no_file_has_a_banned_phrase() -> None:
    phrases = {
        str(path.relative_to(REPOSITORY)): banned
        for pattern in FILES
        for path in sorted(REPOSITORY.glob(pattern))
        if (banned := find_phrases(path.read_text()))
    }
    assert not phrases, "say it in plain English (CONTRIBUTING.md, Text)"
