"""Rules of node-problem-detector (`config/kernel-monitor.json`) as rules of ours.

Its patterns are Go's, and have to match up to the end of the message. What Python's regexes cannot say
the same way is told, and not guessed. It has no sample lines, so its rules come as `untested`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections.abc import Iterable, Iterator

from overnight import errors
from overnight.sources import kernelrules

__all__ = ["Imported", "NotTranslatableError", "as_toml", "parse_npd", "translate"]

POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
GROUP = re.compile(r"\(\?(?:P?<(?P<name>\w+)>|(?P<flags>[a-zA-Z-]*)(?P<end>[:)]))")
CODE = re.compile(r"\\x\{([0-9a-fA-F]{1,6})\}")


class NotTranslatableError(Exception):
    """What Go's regexes have and Python's have not, or we cannot use."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """What became of a file: rules, and for each rule that could not be one, why."""

    rules: tuple[kernelrules.Rule, ...]
    problems: tuple[tuple[str, str], ...]  # reason (the rule's name there), why
    notes: tuple[str, ...] = ()


def translate(pattern: str) -> str:
    r"""A Go regex as a Python one that finds the same in one line.

    >>> translate(r"task [\S ]+:\w+ [[:alpha:]]+\.")
    '(?a)task [\\S ]+:\\w+ [A-Za-z]+\\.\\Z'
    """
    translated = "(?a)" + "".join(_pieces(pattern)) + r"\Z"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # a set that will mean something else
            re.compile(translated)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise NotTranslatableError(f"Python does not take it: {error}") from error
    return translated


def _pieces(pattern: str) -> Iterator[str]:
    place = 0
    while place < len(pattern):
        here = pattern[place]
        if pattern.startswith(r"\Q", place):
            end = pattern.find(r"\E", place)
            end = len(pattern) if end < 0 else end
            yield re.escape(pattern[place + 2 : end])
            place = end + 2
        elif here == "\\":
            piece, place = _escape(pattern, place, in_class=False)
            yield piece
        elif here == "[":
            piece, place = _class(pattern, place)
            yield piece
        elif pattern.startswith("(?", place):
            piece, place = _group(pattern, place)
            yield piece
        elif pattern.startswith("{,", place):
            yield r"\{"  # {,5} is five characters in Go, and a repetition in Python
            place += 1
        elif here == "\n":
            raise NotTranslatableError("it spans several lines, and rules see one at a time")
        else:
            yield here
            place += 1


def _escape(pattern: str, place: int, *, in_class: bool) -> tuple[str, int]:
    if found := CODE.match(pattern, place):
        code = int(found[1], 16)
        if code > 0x10FFFF:
            raise NotTranslatableError(f"{found[0]} is no character")
        return re.escape(chr(code)), found.end()
    which = pattern[place + 1 : place + 2]
    if which == "":
        raise NotTranslatableError("it ends in a backslash")
    if which in "pP":
        raise NotTranslatableError(r"classes of Unicode, as \pL, are not in Python's regexes")
    if which == "C":
        raise NotTranslatableError(r"\C, any byte, is not in Python's regexes")
    if which == "n" and not in_class:
        raise NotTranslatableError("it spans several lines, and rules see one at a time")
    if which == "z":
        return r"\Z", place + 2
    return pattern[place : place + 2], place + 2


def _group(pattern: str, place: int) -> tuple[str, int]:
    found = GROUP.match(pattern, place)
    if found is None:
        raise NotTranslatableError(f"unknown group at {pattern[place : place + 8]!r}")
    if found["name"]:
        return f"(?P<{found['name']}>", found.end()
    if "U" in found["flags"]:
        raise NotTranslatableError("(?U), ungreedy, is not in Python's regexes")
    if found["end"] == ")" and (place or "-" in found["flags"]):
        raise NotTranslatableError("flags for the rest of a pattern stand only at its begin")
    return found[0], found.end()


def _class(pattern: str, place: int) -> tuple[str, int]:
    made, place = "[", place + 1
    if pattern.startswith("^", place):
        made, place = "[^", place + 1
    if pattern.startswith("]", place):
        made, place = made + r"\]", place + 1
    while place < len(pattern):
        here = pattern[place]
        if here == "]":
            return made + "]", place + 1
        if pattern.startswith("[:", place) and (end := pattern.find(":]", place)) > 0:
            name = pattern[place + 2 : end]
            if name not in POSIX:
                raise NotTranslatableError(f"[:{name}:] is not known")
            made, place = made + POSIX[name], end + 2
        elif here == "\\":
            piece, place = _escape(pattern, place, in_class=True)
            made += piece
        else:
            # Python means to give these a meaning in sets.
            made, place = made + ("\\" + here if here in "[&|~" else here), place + 1
    raise NotTranslatableError("a set is not closed")


def parse_npd(text: str, origin: str) -> Imported:
    """What a configuration of a log monitor says."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(origin, f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("rules"), list):
        raise _wrong(origin, "it has no list of rules")
    notes = []
    plugin = str(document.get("plugin", "kmsg"))
    if plugin != "kmsg":
        notes.append(f"it was made for {plugin}: rules here see only lines of the kernel log")
    rules: dict[str, kernelrules.Rule] = {}
    problems = []
    for number, table in enumerate(document["rules"], 1):
        reason = str(table.get("reason", "")) if isinstance(table, dict) else ""
        try:
            rule = _rule(table, reason, origin, set(rules))
        except NotTranslatableError as error:
            problems.append((reason or f"rule {number}", str(error)))
        else:
            rules[rule.name] = rule
    return Imported(tuple(rules.values()), tuple(problems), tuple(notes))


def _wrong(origin: str, why: str) -> errors.UsageError:
    return errors.UsageError(
        f"{origin} is not a configuration of node-problem-detector",
        why=why,
        todo="give a file as its config/kernel-monitor.json",
    )


def _rule(table: object, reason: str, origin: str, taken: set[str]) -> kernelrules.Rule:
    if not isinstance(table, dict) or not isinstance(table.get("pattern"), str):
        raise NotTranslatableError("it has no pattern")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", reason).lower()
    words = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if not words:
        raise NotTranslatableError("it has no reason, and so no name")
    regex = translate(table["pattern"])
    if re.search(regex, ""):
        raise NotTranslatableError("it matches an empty line, and so every line")
    name, number = f"npd-{words}", 2
    while name in taken:
        name, number = f"npd-{words}-{number}", number + 1
    permanent = table.get("type") == "permanent"
    condition = f", condition {table['condition']}" if table.get("condition") else ""
    return kernelrules.Rule(
        name=name,
        kind="npd." + words.replace("-", "_"),
        severity="critical" if permanent else "warning",
        regex=regex,
        meaning=f"{reason}, a {'permanent' if permanent else 'temporary'} problem{condition}.",
        confidence="likely",
        untested="imported from node-problem-detector, which has no samples",
        family="node-problem-detector",
        origin=origin,
    )


def _quoted(text: str) -> str:
    """A TOML string: JSON's is one, but for the one character that TOML wants escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(rules: Iterable[kernelrules.Rule], about: str) -> str:
    """A rule file, to be put into HOME/rules and given samples."""
    lines = ['family = "node-problem-detector"', f"about = {_quoted(about)}"]
    for rule in rules:
        lines += ["", "[[rule]]"]
        for key in ("name", "kind", "severity", "confidence", "regex", "meaning", "untested"):
            lines.append(f"{key} = {_quoted(getattr(rule, key))}")
    return "\n".join(lines) + "\n"
