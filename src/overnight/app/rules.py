"""`overnight rules`: kernel-log rules listed, tried on a log, imported. No numpy."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator

from overnight import errors
from overnight.app import home as homes
from overnight.model import files
from overnight.model.text import printable
from overnight.sources import kernelrules, kmsg
from overnight.sources.kernelrules import matcher, npd, rulefiles

LISTED = ("name", "kind", "severity", "confidence", "meaning", "family", "origin", "regex", "incident")  # fmt: skip
# What dmesg, journalctl and syslog put before the message.
PREFIX = re.compile(
    r"^(?:<\d{1,3}>)?"
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} kernel: |\d{4}-\d\d-\d\dT\S{8,24} \S{1,255} kernel: )?"
    r"(?:\[[ \d]{0,12}\d\.\d{6}\] |\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] )?"
)


@dataclasses.dataclass(frozen=True)
class RuleList:
    """The rules in force: built in, of the data home, of a folder."""

    rules: tuple[kernelrules.Rule, ...]

    def as_json(self) -> dict[str, object]:
        listed = [
            {name: getattr(rule, name) for name in LISTED}
            | {"needles": list(rule.needles), "fields": dict(rule.fields)}
            | {"tested": not rule.untested}
            for rule in self.rules
        ]
        return {"schema": "overnight.rules/1", "rules": listed}


@dataclasses.dataclass(frozen=True)
class Match:
    line: int
    text: str
    match: matcher.Match

    def as_json(self) -> dict[str, object]:
        return {
            "line": self.line,
            "text": self.text,
            "rule": self.match.rule.name,
            "kind": self.match.rule.kind,
            "severity": self.match.severity,
            "key": self.match.key,
            "fields": dict(self.match.fields),
        }


@dataclasses.dataclass(frozen=True)
class Trial:
    """Rules tried on a log. For a rule file `lines` counts its rules."""

    lines: int
    matches: tuple[Match, ...] = ()

    @property
    def matched_lines(self) -> int:
        return len({match.line for match in self.matches})

    def as_json(self) -> dict[str, object]:
        return {
            "schema": "overnight.rules-test/1",
            "lines": self.lines,
            "matches": [match.as_json() for match in self.matches],
        }


@dataclasses.dataclass(frozen=True)
class ImportedRules:
    """Rules of node-problem-detector, and those that could not be translated."""

    file: pathlib.Path | None  # None: nothing was written
    rules: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]  # rule, why
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "schema": "overnight.rules-import/1",
            "file": str(self.file or ""),
            "rules": list(self.rules),
            "problems": [{"rule": name, "why": why} for name, why in self.problems],
            "notes": list(self.notes),
        }


def list_rules(home: pathlib.Path, folder: pathlib.Path | None = None) -> RuleList:
    """Load and check the rules; later sources override earlier ones by name."""
    return RuleList(tuple(_load(home, folder)))


def try_log(home: pathlib.Path, log: bytes, folder: pathlib.Path | None = None) -> Trial:
    """Match every line of a log from /dev/kmsg, dmesg, journalctl or syslog."""
    rules_matcher = matcher.Matcher(_load(home, folder))
    lines = list(_messages(log))
    matches = tuple(
        Match(number, text, match)
        for number, text in enumerate(lines, 1)
        for match in rules_matcher.match(text)
    )
    return Trial(len(lines), matches)


def check_rule_file(text: str, name: str) -> Trial:
    """Run the samples of a rule file; raises UsageError where one does not fit."""
    return Trial(len(rulefiles.parse_rules(text, name)))


def import_npd(
    home: pathlib.Path, source: pathlib.Path, target: pathlib.Path | None = None
) -> ImportedRules:
    """Translate rules of node-problem-detector into a rule file; by default one of the data home."""
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        todo = "give the path of a file such as config/kernel-monitor.json"
        raise errors.unreadable(source, error, todo) from error
    imported = npd.parse_npd(text, source.name)
    file = target or _rules_folder(home) / f"npd-{source.stem}.toml"
    if imported.rules:
        comment = f"From {source.name}, made for node-problem-detector."
        try:
            if target is None:
                homes.need_writable(home)
                files.make_folder(file.parent)
            text = npd.as_toml(imported.rules, comment)
            files.write_atomically(file, text, mode=0o644 if target else None)
        except OSError as error:
            raise errors.unwritable(file, error, "choose another file with -o FILE") from error
    names = tuple(rule.name for rule in imported.rules)
    return ImportedRules(file if imported.rules else None, names, imported.problems, imported.notes)


def _rules_folder(home: pathlib.Path) -> pathlib.Path:
    return home / "rules"


def _load(home: pathlib.Path, folder: pathlib.Path | None) -> list[kernelrules.Rule]:
    return rulefiles.load(_rules_folder(home), *([folder] if folder else []))


def _messages(log: bytes) -> Iterator[str]:
    """Yield each line without what dmesg, journalctl or syslog put before the message."""
    for raw in log.splitlines():
        if re.match(rb"\d{1,4},\d{1,20},\d{1,20},[^;]{1,100};", raw):
            record = kmsg.parse_record(raw)
            if record is not None:
                yield record.text
                continue
        text = raw.decode("utf-8", "backslashreplace")
        yield printable(PREFIX.sub("", text, count=1))[: kmsg.TEXT_LIMIT]
