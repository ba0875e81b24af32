"""Finds rules in lines: words first, regexes only where a word was found."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from overnight.sources.kernelrules import needles

if TYPE_CHECKING:
    from overnight.sources import kernelrules

__all__ = ["Match", "Matcher", "try_rule"]

FIELD_LIMIT = 200
DIGITS = 18  # more do not fit into 64 bits, and are no number the kernel prints
COMMON = (
    b" eotainrsdlcmuph01:fg.2_bvk3y4-5w678xA9/,CSETDPRINM="  # of real logs, the commonest first
)
SHORTEST_END = 4
TEMPLATE = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A rule found in a line. `key` names the incident that the line belongs to."""

    rule: kernelrules.Rule
    severity: str
    key: str
    fields: Mapping[str, kernelrules.Value]


class Matcher:
    """All rules at once. A line that holds no rule's words costs one search."""

    def __init__(self, rules: Iterable[kernelrules.Rule]) -> None:
        self.rules = tuple(rules)
        self._blind = tuple(rule for rule in self.rules if not rule.needles)
        words = {needles.raw_form(word) for rule in self.rules for word in rule.needles}
        self._wanted: Callable[[bytes], object] = (
            _always if self._blind else re.compile(_alternatives(words) or b"(?!)").search
        )

    @property
    def wanted(self) -> Callable[[bytes], object]:
        """For the bytes of a record as /dev/kmsg gives it: false when no rule can match."""
        return self._wanted

    def candidates(self, text: str) -> list[kernelrules.Rule]:
        """Rules whose words are in the line."""
        return [
            rule
            for rule in self.rules
            if not rule.needles or any(word in text for word in rule.needles)
        ]

    def match(self, text: str, device: str = "") -> list[Match]:
        """What the line says, the first rule of each kind.

        `device` is what the kernel says the line is about, for rules that find none in the text.
        """
        found: dict[str, Match] = {}
        for rule in self.candidates(text):
            if rule.kind not in found and (match := try_rule(rule, text, device)) is not None:
                found[rule.kind] = match
        return list(found.values())


def _always(data: bytes) -> bool:
    return bool(data)


def try_rule(rule: kernelrules.Rule, text: str, device: str = "") -> Match | None:
    """One rule against one line."""
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
            # int() takes thousands of digits, and digits of other scripts.
            if len(text) <= DIGITS and text.isascii():
                fields[name] = int(text) if kind == "int" else float(text)
        except ValueError:
            continue


def _rarity(byte: int) -> int:
    place = COMMON.find(byte)
    return len(COMMON) if place < 0 else place


def _rare_begin(word: bytes) -> bytes:
    """The word from its rarest letter on: at fewer places of a line has it to be compared at all."""
    begins = range(max(1, len(word) - SHORTEST_END))
    return word[min(begins, key=lambda begin: -_rarity(word[begin])) :]


def _alternatives(words: set[bytes]) -> bytes:
    """A regex for any of the words. One that contains another is found by it, and left out."""
    words = {_rare_begin(word) for word in words}
    least = [w for w in words if not any(other != w and other in w for other in words)]
    return _trie(sorted(least))


def _trie(words: list[bytes]) -> bytes:
    """Words with a common beginning share it, so that a place in a line is left after one look."""
    if len(words) == 1:
        return re.escape(words[0])
    if not words:
        return b""
    parts = []
    for first in sorted({word[:1] for word in words}):
        tails = [word[1:] for word in words if word[:1] == first]
        parts.append(re.escape(first) + (b"" if b"" in tails else _trie(tails)))
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"
