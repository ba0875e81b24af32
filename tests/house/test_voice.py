"""No banned phrases in source, help and documents.

`EXCEPTIONS` counts the phrases that are left, per file. It may only shrink: after a clean-up run
`python tests/house/test_voice.py`, which lowers the counts and refuses to raise any.
"""

from __future__ import annotations

import json
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
EXCEPTIONS = pathlib.Path(__file__).with_name("voice_exceptions.json")
FILES = ("src/overnight/**/*.py", "src/overnight/**/*.toml", "docs/**/*.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")  # fmt: skip
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
            r"\bstands\b(?! (?:in|for|out)\b)",
            # "there is no …" is fine, and so is "is no longer".
            r"(?<!\bthere )(?<!\bhere )\b(?:is|are|was|were) no (?!(?:longer|more|later|less|earlier|larger)\b)\w",
        )
    ),
    re.IGNORECASE,
)


def find_phrases(text: str) -> list[str]:
    """Return the banned phrases, also across line ends and comment marks."""
    return [match.group() for match in BANNED.finditer(re.sub(r"\s*\n\s*(?:#\s*)?", " ", text))]


def count_phrases() -> dict[str, int]:
    counts = {}
    for pattern in FILES:
        for path in sorted(REPOSITORY.glob(pattern)):
            if phrases := find_phrases(path.read_text()):
                counts[str(path.relative_to(REPOSITORY))] = len(phrases)
    return counts


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("the kernel is told, and\nso\n# many wait", ["is told", "so many"]),
        ("it is no name of ours", ["is no n"]),
        ("there is no pool; There are no pools; it is no longer there", []),
        ("a standard, a stand-in, it stands out", []),
        ("recommend", []),
    ],
)
def test_phrases_are_found(text: str, phrases: list[str]) -> None:
    assert find_phrases(text) == phrases


def test_no_file_has_more_or_fewer_phrases_than_its_exception() -> None:
    allowed = json.loads(EXCEPTIONS.read_text())
    counts = count_phrases()
    worse = {
        name: find_phrases((REPOSITORY / name).read_text())
        for name, count in counts.items()
        if count > allowed.get(name, 0)
    }
    assert not worse, "say it in plain English (CONTRIBUTING.md, Text)"
    assert counts == allowed, "lower the counts: python tests/house/test_voice.py"


def main() -> None:
    """Lower the exceptions to the present counts."""
    allowed = json.loads(EXCEPTIONS.read_text()) if EXCEPTIONS.exists() else None
    counts = count_phrases()
    if allowed is not None:
        counts = {
            name: min(count, allowed[name]) for name, count in counts.items() if name in allowed
        }
    EXCEPTIONS.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
