"""Parses a unit file the way systemd does (systemd.syntax(7), conf-parser.c).

A sample, modelled on the unit that starts an ECS agent:

    [Unit]
    Description=Amazon Elastic Container Service - container agent
    After=cloud-final.service
    [Service]
    Restart=on-failure
    RestartSec=10s
    ExecStart=/usr/libexec/amazon-ecs-init start
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable

BLANK = " \t\r\n"
SPAN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([a-zA-Zµμ]*)")
SECONDS = {
    "": 1.0,
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "μs": 1e-6,
    "ms": 1e-3, "msec": 1e-3,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
    "M": 2629800.0, "month": 2629800.0, "months": 2629800.0,
    "y": 31557600.0, "year": 31557600.0, "years": 31557600.0,
}  # fmt: skip
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "s": " ", "t": "\t", "v": "\v"}


@dataclasses.dataclass(frozen=True)
class Setting:
    section: str
    key: str
    value: str
    path: str
    line: int


def parse_unit(text: str, path: str = "") -> tuple[Setting, ...]:
    """Parse every assignment in order, including empty ones, which reset earlier values.

    A line that ends in a backslash continues on the next one; comments in between are skipped.

    >>> [(s.key, s.value, s.line) for s in parse_unit("[Service]\\nExecStart=a \\\\\\n# no\\n  b\\n")]
    [('ExecStart', 'a  b', 2)]
    """
    settings: list[Setting] = []
    section = ""
    started = 0
    pending = ""
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.lstrip(BLANK)
        if line.startswith(("#", ";")):
            continue
        if pending:
            line = pending + line
        else:
            started = number
        if _continues(line):
            pending = line[:-1] + " "
            continue
        pending = ""
        line = line.strip(BLANK)
        if line.startswith("["):
            # systemd stops reading the file at a header that is not closed.
            if not line.endswith("]"):
                return tuple(settings)
            section = line[1:-1]
        elif "=" in line and section:
            key, _, value = line.partition("=")
            settings.append(Setting(section, key.rstrip(BLANK), value.strip(BLANK), path, started))
    return tuple(settings)


def _continues(line: str) -> bool:
    bare = line.rstrip("\\")
    return (len(line) - len(bare)) % 2 == 1


class Settings:
    """A unit's assignments after its drop-ins: later ones add, an empty one clears the list."""

    def __init__(self, assigned: Iterable[Setting] = ()) -> None:
        self._by_key: dict[tuple[str, str], list[Setting]] = {}
        for setting in assigned:
            values = self._by_key.setdefault((setting.section, setting.key), [])
            if setting.value:
                values.append(setting)
            else:
                values.clear()

    def all(self, section: str, *keys: str) -> tuple[Setting, ...]:
        """Return all values of a list, such as ExecStart=."""
        return tuple(setting for key in keys for setting in self._by_key.get((section, key), ()))

    def last(self, section: str, *keys: str) -> Setting | None:
        """Return the value in effect; several keys are synonyms."""
        settings = self.all(section, *keys)
        return settings[-1] if settings else None

    def value(self, section: str, *keys: str) -> str:
        setting = self.last(section, *keys)
        return setting.value if setting else ""

    def words(self, section: str, key: str) -> tuple[str, ...]:
        return tuple(
            word for setting in self.all(section, key) for word in split_words(setting.value)
        )


def parse_span(text: str) -> float | None:
    """Parse a time span into seconds; None where systemd would not accept it either.

    >>> parse_span("1min 30s"), parse_span("100ms"), parse_span("infinity"), parse_span("soon")
    (90.0, 0.1, inf, None)
    """
    text = text.strip()
    if text == "infinity":
        return math.inf
    total = 0.0
    at = 0
    while at < len(text):
        match = SPAN.match(text, at)
        if not match or match[2] not in SECONDS:
            return None
        total += float(match[1]) * SECONDS[match[2]]
        at = match.end()
    return total if text else None


def split_words(text: str) -> tuple[str, ...]:
    """Split into words and undo quotes and escapes like extract_first_word(); unbalanced quotes end it.

    >>> split_words("a 'b c' d\\\\x20e")
    ('a', 'b c', 'd e')
    """
    words = []
    word: list[str] = []
    quote = ""
    inside = False
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\" and at < len(text):
            unescaped, at = _escape(text, at)
            word.append(unescaped)
            inside = True
        elif quote:
            if character == quote:
                quote = ""
            else:
                word.append(character)
        elif character in "'\"" and not inside:
            quote, inside = character, True
        elif character in BLANK:
            if inside:
                words.append("".join(word))
            word, inside = [], False
        else:
            # A quote inside a word is an ordinary character.
            word.append(character)
            inside = True
    if inside and not quote:
        words.append("".join(word))
    return tuple(words)


def _escape(text: str, at: int) -> tuple[str, int]:
    character = text[at]
    digits = {"x": 2, "u": 4, "U": 8}.get(character)
    if digits:
        code = text[at + 1 : at + 1 + digits]
        if len(code) == digits and all(c in "0123456789abcdefABCDEF" for c in code):
            number = int(code, 16)
            if 0 < number < 0x110000:
                return chr(number), at + 1 + digits
        return "\\" + character, at + 1
    if len(octal := text[at : at + 3]) == 3 and all(c in "01234567" for c in octal):
        return chr(int(octal, 8) & 0xFF), at + 3
    if character in ESCAPES:
        return ESCAPES[character], at + 1
    return character if character in "\\'\"" else "\\" + character, at + 1


def parse_command(text: str) -> tuple[bool, tuple[str, ...]]:
    """Parse a command line: whether its failure is ignored (`-`), and its words without prefixes.

    >>> parse_command("-@/bin/true argv0 x"), parse_command("+!/bin/false")
    ((True, ('/bin/true', 'argv0', 'x')), (False, ('/bin/false',)))
    """
    words = split_words(text)
    if not words:
        return False, ()
    bare = words[0].lstrip("-@:+!|")
    prefixes = words[0][: len(words[0]) - len(bare)]
    return "-" in prefixes, (bare, *words[1:]) if bare else ()
