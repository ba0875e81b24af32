"""Matches lines against rules: fixed text first, regexes only where a rule's text was found."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from overnight.sources.kernelrules import needles

if TYPE_CHECKING:
    from overnight.sources import kernelrules

FIELD_LIMIT = 200
DIGITS = 18  # more do not fit into 64 bits, and the kernel does not print them
COMMON = b" eotainrsdlcmuph01:fg.2_bvk3y4-5w678xA9/,CSETDPRINM="  # in real logs, most common first
MIN_END = 4
LINE = 2048  # that the kernel log has
MAX_CPU_S = 0.25  # of one search; a usual rule takes microseconds, a quadratic one 0.04
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
        self.wanted: Callable[[bytes], object] = bool
        if not blind:
            # With hundreds of words that share their beginnings, every record is tried.
            with contextlib.suppress(RecursionError):
                self.wanted = re.compile(_alternatives(words) or b"(?!)").search

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


def compile_regex(regex: str, samples: Iterable[str] = ()) -> re.Pattern[str]:
    """Compile a regex from elsewhere; raise ValueError if it is invalid, or slow on lines like the samples.

    Only the main thread can stop a search: in others, none is tried.
    """
    letters = dict.fromkeys(regex[-100:] + "x1 ")
    begins = [(begin, letter) for begin in ("", *needles.extract(regex)) for letter in letters]
    for line in samples:
        cuts = range(1, len(line), max(1, len(line) // 12))
        begins += [(line[:cut], letter) for cut in cuts for letter in (line[cut - 1], "x", " ")]
    lines = [(begin + letter * LINE)[:LINE] + "!" for begin, letter in begins]
    try:
        with warnings.catch_warnings(), _limit_time() as restart:
            warnings.simplefilter("error", FutureWarning)  # a set whose meaning will change
            pattern = re.compile(regex)
            if restart:
                for line in ("", *lines):
                    restart()
                    pattern.search(line)
    except (re.error, RecursionError, OverflowError, FutureWarning, MemoryError) as error:
        raise ValueError(str(error) or "it takes too much memory") from error
    return pattern


@contextlib.contextmanager
def _limit_time() -> Iterator[Callable[[], object] | None]:
    """Raise ValueError in what takes longer than MAX_CPU_S; yield a function that starts the time again."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return

    def stop(*_: object) -> None:
        raise ValueError("it takes too much time for some lines")

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        restart = functools.partial(signal.setitimer, signal.ITIMER_VIRTUAL, MAX_CPU_S)
        restart()
        yield restart
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


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
