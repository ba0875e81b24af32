"""Matches lines against rules: fixed text first, regexes only where a rule's text was found."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from overnight.sources.kernelrules import needles

if TYPE_CHECKING:
    from overnight.sources import kernelrules

FIELD_LIMIT = 200
DIGITS = 18  # more do not fit into 64 bits, and the kernel does not print them
COMMON = b" eotainrsdlcmuph01:fg.2_bvk3y4-5w678xA9/,CSETDPRINM="  # in real logs, most common first
MIN_END = 4
TEMPLATE = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A rule that matches a line. `key` identifies the incident that the line belongs to."""

    rule: kernelrules.Rule
    severity: str
    key: str
    fields: Mapping[str, kernelrules.Value]


class Matcher:
    """Matches all rules at once. A line without any rule's fixed text costs one search."""

    def __init__(self, rules: Iterable[kernelrules.Rule]) -> None:
        self.rules = tuple(rules)
        blind = any(not rule.needles for rule in self.rules)
        words = {needles.raw_form(word) for rule in self.rules for word in rule.needles}
        # A filter for the bytes of a /dev/kmsg record: false when no rule can match.
        self.wanted: Callable[[bytes], object] = (
            bool if blind else re.compile(_alternatives(words) or b"(?!)").search
        )

    def candidates(self, text: str) -> list[kernelrules.Rule]:
        """Return the rules whose fixed text is in the line."""
        return [
            rule
            for rule in self.rules
            if not rule.needles or any(word in text for word in rule.needles)
        ]

    def match(self, text: str, device: str = "") -> list[Match]:
        """Return the first matching rule of each kind.

        `device` comes from the record's dictionary, for rules that find none in the text.
        """
        matches: dict[str, Match] = {}
        for rule in self.candidates(text):
            if rule.kind not in matches and (match := try_rule(rule, text, device)) is not None:
                matches[rule.kind] = match
        return list(matches.values())


def try_rule(rule: kernelrules.Rule, text: str, device: str = "") -> Match | None:
    matched = rule.pattern.search(text)
    if matched is None:
        return None
    fields: dict[str, kernelrules.Value] = {}
    if rule.context_pattern is not None and (around := rule.context_pattern.search(text)):
        _add(fields, around, rule.fields)
    if device:
        fields.setdefault("device", device)
    _add(fields, matched, rule.fields)
    severity = rule.severity
    if any(fields.get(field) in values for field, values in rule.critical_when.items()):
        severity = "critical"
    key = TEMPLATE.sub(lambda name: str(fields.get(name[1], "")), rule.incident)
    return Match(rule, severity, key, fields)


def _add(
    fields: dict[str, kernelrules.Value], matched: re.Match[str], types: Mapping[str, str]
) -> None:
    for name, text in matched.groupdict().items():
        if text is None:
            continue
        kind = types.get(name, "str")
        if kind == "str":
            fields[name] = text[:FIELD_LIMIT]
            continue
        try:
            # int() accepts thousands of digits, and digits of other scripts.
            if len(text) <= DIGITS and text.isascii():
                fields[name] = int(text) if kind == "int" else float(text)
        except ValueError:
            continue


def _rarity(byte: int) -> int:
    rank = COMMON.find(byte)
    return len(COMMON) if rank < 0 else rank


def _rare_begin(word: bytes) -> bytes:
    """Cut a word before its rarest letter, so that fewer positions of a line need a comparison."""
    begins = range(max(1, len(word) - MIN_END))
    return word[min(begins, key=lambda begin: -_rarity(word[begin])) :]


def _alternatives(words: set[bytes]) -> bytes:
    """Build a regex for any of the words. A word that contains another one is redundant."""
    words = {_rare_begin(word) for word in words}
    least = [w for w in words if not any(other != w and other in w for other in words)]
    return _trie(sorted(least))


def _trie(words: list[bytes]) -> bytes:
    """Build a regex in which words share their common beginnings, so that a mismatch is found early."""
    if len(words) <= 1:
        return re.escape(b"".join(words))
    parts = []
    for first in sorted({word[:1] for word in words}):
        tails = [word[1:] for word in words if word[:1] == first]
        parts.append(re.escape(first) + (b"" if b"" in tails else _trie(tails)))
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"
