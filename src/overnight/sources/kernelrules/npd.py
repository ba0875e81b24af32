"""Imports the rules of node-problem-detector (`config/kernel-monitor.json`).

Its patterns are Go's, and must match up to the end of the message. A pattern without an equivalent in
Python is reported, not guessed. It has no sample lines, so its rules are `untested`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator

from overnight import errors
from overnight.sources import kernelrules
from overnight.sources.kernelrules import matcher

POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
GROUP = re.compile(r"\(\?(?:P?<(?P<name>\w+)>|(?P<flags>[a-zA-Z-]*)(?P<end>[:)]))")
SEVERAL_LINES = "it spans several lines, but a rule sees one line at a time"
MAX_RULES = 1000  # node-problem-detector's own files have a dozen
CODE = re.compile(r"\\x\{([0-9a-fA-F]{1,6})\}")


class NotTranslatableError(Exception):
    """The rule uses something that Python's regexes, or rules for single lines, do not have."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """The rules of a file, and why others could not be imported."""

    rules: tuple[kernelrules.Rule, ...]
    problems: tuple[tuple[str, str], ...]  # the rule's `reason`, and why it was not imported
    notes: tuple[str, ...] = ()


def translate(pattern: str) -> str:
    r"""Translate a Go regex into a Python one that matches the same within one line.

    >>> translate(r"task [\S ]+:\w+ [[:alpha:]]+\.")
    '(?a)task [\\S ]+:\\w+ [A-Za-z]+\\.\\Z'
    """
    translated = "(?a)" + "".join(_pieces(pattern)) + r"\Z"
    try:
        translated.encode()  # half of a surrogate pair cannot be written
        matcher.compile_regex(translated)
    except ValueError as error:
        raise NotTranslatableError(f"not a Python regex: {error}") from error
    return translated


def _pieces(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if pattern.startswith(r"\Q", at):
            end = pattern.find(r"\E", at)
            end = len(pattern) if end < 0 else end
            yield re.escape(pattern[at + 2 : end])
            at = end + 2
        elif character == "\\":
            piece, at = _escape(pattern, at, in_class=False)
            yield piece
        elif character == "[":
            piece, at = _class(pattern, at)
            yield piece
        elif pattern.startswith("(?", at):
            piece, at = _group(pattern, at)
            yield piece
        elif pattern.startswith("{,", at):
            yield r"\{"  # {,5} is literal text in Go, and a repetition in Python
            at += 1
        elif character == "\n":
            raise NotTranslatableError(SEVERAL_LINES)
        else:
            yield character
            at += 1


def _escape(pattern: str, at: int, *, in_class: bool) -> tuple[str, int]:
    if code_point := CODE.match(pattern, at):
        code = int(code_point[1], 16)
        if code > 0x10FFFF:
            raise NotTranslatableError(f"{code_point[0]} is not a character")
        return re.escape(chr(code)), code_point.end()
    letter = pattern[at + 1 : at + 2]
    if letter == "":
        raise NotTranslatableError("it ends in a backslash")
    if letter in "pP":
        raise NotTranslatableError(r"Python's regexes have no Unicode classes such as \pL")
    if letter == "C":
        raise NotTranslatableError(r"Python's regexes have no \C (any byte)")
    if letter == "n" and not in_class:
        raise NotTranslatableError(SEVERAL_LINES)
    if letter == "z":
        return r"\Z", at + 2
    return pattern[at : at + 2], at + 2


def _group(pattern: str, at: int) -> tuple[str, int]:
    group = GROUP.match(pattern, at)
    if group is None:
        raise NotTranslatableError(f"unknown group at {pattern[at : at + 8]!r}")
    if group["name"]:
        return f"(?P<{group['name']}>", group.end()
    if "U" in group["flags"]:
        raise NotTranslatableError("Python's regexes have no (?U) (ungreedy)")
    if group["end"] == ")" and (at or "-" in group["flags"]):
        raise NotTranslatableError("Python allows flags without a group only at the beginning")
    return group[0], group.end()


def _class(pattern: str, at: int) -> tuple[str, int]:
    translated, at = "[", at + 1
    if pattern.startswith("^", at):
        translated, at = "[^", at + 1
    if pattern.startswith("]", at):
        translated, at = translated + r"\]", at + 1
    while at < len(pattern):
        character = pattern[at]
        if character == "]":
            return translated + "]", at + 1
        if pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
            name = pattern[at + 2 : end]
            if name not in POSIX:
                raise NotTranslatableError(f"unknown class [:{name}:]")
            translated, at = translated + POSIX[name], end + 2
        elif character == "\\":
            piece, at = _escape(pattern, at, in_class=True)
            translated += piece
        else:
            # Python reserves these in sets.
            translated += "\\" + character if character in "[&|~" else character
            at += 1
    raise NotTranslatableError("a set is not closed")


def parse_npd(text: str, origin: str) -> Imported:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_a_configuration(origin, f"not valid JSON: {error}") from error
    rules_of_file = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(rules_of_file, list) or len(rules_of_file) > MAX_RULES:
        raise _not_a_configuration(origin, f"it has no list of at most {MAX_RULES} rules")
    notes = []
    plugin = str(document.get("plugin", "kmsg"))
    if plugin != "kmsg":
        notes.append(f"written for the plugin {plugin}; here its rules see only the kernel log")
    rules: dict[str, kernelrules.Rule] = {}
    problems = []
    for number, table in enumerate(rules_of_file, 1):
        reason = _plain(table.get("reason", "")) if isinstance(table, dict) else ""
        try:
            rule = _rule(table, reason, origin, set(rules))
        except NotTranslatableError as error:
            problems.append((reason or f"rule {number}", str(error)))
        else:
            rules[rule.name] = rule
    return Imported(tuple(rules.values()), tuple(problems), tuple(notes))


def _plain(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()


def _not_a_configuration(origin: str, why: str) -> errors.UsageError:
    return errors.UsageError(
        f"{origin} is not a configuration of node-problem-detector",
        why=why,
        todo="pass a file such as its config/kernel-monitor.json",
    )


def _rule(table: object, reason: str, origin: str, taken: set[str]) -> kernelrules.Rule:
    if not isinstance(table, dict) or not isinstance(table.get("pattern"), str):
        raise NotTranslatableError("it has no pattern")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", reason).lower()
    words = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if not words:
        raise NotTranslatableError("it has no reason, which would be its name")
    regex = translate(table["pattern"])
    if re.search(regex, ""):
        raise NotTranslatableError("it matches an empty line, and therefore every line")
    name, number = f"npd-{words}", 2
    while name in taken:
        name, number = f"npd-{words}-{number}", number + 1
    permanent = table.get("type") == "permanent"
    condition = f", condition {_plain(table['condition'])}" if table.get("condition") else ""
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
    """Quote a TOML string: like JSON's, except for one more character that TOML escapes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(rules: Iterable[kernelrules.Rule], about: str) -> str:
    """Write a rule file, to be put into HOME/rules and completed with samples."""
    lines = ['family = "node-problem-detector"', f"about = {_quoted(about)}"]
    for rule in rules:
        lines += ["", "[[rule]]"]
        for key in ("name", "kind", "severity", "confidence", "regex", "meaning", "untested"):
            lines.append(f"{key} = {_quoted(getattr(rule, key))}")
    return "\n".join(lines) + "\n"
