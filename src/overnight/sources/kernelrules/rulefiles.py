"""Reads rules from TOML files: the built-in ones, then the user's, which add or replace by name."""

from __future__ import annotations

import collections
import pathlib
import re
import string
import tomllib
from collections.abc import Iterable

from overnight import errors
from overnight.model.severity import Severity
from overnight.sources import kernelrules
from overnight.sources.kernelrules import matcher, needles

HERE = pathlib.Path(__file__).parent
FILE_KEYS = {"family", "about", "context", "rule"}
REQUIRED = {"name", "kind", "severity", "regex", "meaning"}
WORDS = REQUIRED | {"incident", "confidence", "untested"}  # keys whose values are strings
KEYS = WORDS | {"needle", "fields", "critical_when", "overlaps", "matches", "misses"}
NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
KIND = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)+")
# Fields that a template may use besides the regex's own groups.
ALWAYS = {"device"}


def built_in() -> list[kernelrules.Rule]:
    """Return the built-in rules; tests check their regexes, not every start."""
    return [
        rule
        for path in sorted(HERE.glob("*.toml"))
        for rule in parse_rules(path.read_text(), path.name, trusted=True)
    ]


def load(*folders: pathlib.Path) -> list[kernelrules.Rule]:
    """Load the built-in rules, then each folder's; a rule replaces an earlier one with the same name."""
    added = (rule for folder in folders for rule in read_folder(folder))
    return list({rule.name: rule for rule in (*built_in(), *added)}.values())


def read_folder(folder: pathlib.Path) -> list[kernelrules.Rule]:
    """Read every *.toml of a folder; a missing folder has none."""
    rules: list[kernelrules.Rule] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise errors.CannotError(
                f"{path} cannot be read", why=why, todo="fix the file, or remove it from the folder"
            ) from error
        rules += parse_rules(text, str(path))
    _check_names(rules, "folder")
    return rules


def parse_rules(text: str, origin: str, *, trusted: bool = False) -> list[kernelrules.Rule]:
    """Parse the rules of one file. Errors name the file and the rule.

    `trusted` skips the costly checks of regexes and samples, for files that the tests have checked.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _problem(origin, "", f"not valid TOML: {error}") from error
    if unknown := set(document) - FILE_KEYS:
        raise _problem(origin, "", f"unknown keys: {', '.join(sorted(unknown))}")
    tables = document.get("rule", [])
    if not isinstance(tables, list):
        raise _problem(origin, "", "rules are written as [[rule]]")
    family = _words(document, "family", origin, "") or pathlib.Path(origin).stem
    context = _words(document, "context", origin, "")
    if context and not trusted:
        _compile(context, origin, "")
    rules = [_rule(table, origin, family, context, trusted=trusted) for table in tables]
    _check_names(rules, "file")
    return rules


def _check_names(rules: list[kernelrules.Rule], where: str) -> None:
    counts = collections.Counter(rule.name for rule in rules)
    for rule in rules:
        if counts[rule.name] > 1:
            raise _problem(rule.origin, rule.name, f"two rules in the {where} have this name")


def _problem(origin: str, name: str, why: str) -> errors.UsageError:
    where = f"{origin}, rule {name}" if name else origin
    return errors.UsageError(
        f"invalid rule file {where}",
        why=why,
        todo="see the format in docs/kernel-log.md, then check with   `overnight rules test FILE`",
    )


def _words(table: dict[str, object], key: str, origin: str, name: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise _problem(origin, name, f"{key} must be a string")
    return value


def _list(value: object, key: str, origin: str, name: str) -> list[object]:
    if not isinstance(value, list):
        raise _problem(origin, name, f"{key} must be a list")
    return value


def _strings(value: object, key: str, origin: str, name: str) -> tuple[str, ...]:
    values = _list(value, key, origin, name)
    if not all(isinstance(value, str) and value for value in values):
        raise _problem(origin, name, f"{key} must be a list of strings")
    return tuple(str(value) for value in values)


def _compile(regex: str, origin: str, name: str, samples: Iterable[str] = ()) -> re.Pattern[str]:
    try:
        return matcher.compile_regex(regex, samples)
    except ValueError as error:
        raise _problem(origin, name, f"bad regex {regex!r}: {error}") from error


def _rule(
    table: object, origin: str, family: str, context: str, *, trusted: bool
) -> kernelrules.Rule:
    if not isinstance(table, dict):
        raise _problem(origin, "", "rules are written as [[rule]]")
    name = str(table.get("name", "without a name"))
    if missing := REQUIRED - set(table):
        raise _problem(origin, name, f"missing: {', '.join(sorted(missing))}")
    if unknown := set(table) - KEYS:
        raise _problem(origin, name, f"unknown keys: {', '.join(sorted(unknown))}")
    table = {"confidence": "sure", **table}
    words = {key: _words(table, key, origin, name) for key in sorted(WORDS)}
    needle = table.get("needle") or list(needles.extract(words["regex"]))
    rule = kernelrules.Rule(
        **words,
        needles=_strings([needle] if isinstance(needle, str) else needle, "needle", origin, name),
        fields=_types(table.get("fields", {}), origin, name),
        critical_when=_conditions(table.get("critical_when", {}), origin, name),
        overlaps=_strings(table.get("overlaps", []), "overlaps", origin, name),
        matches=_samples(table.get("matches", []), origin, name),
        misses=_strings(table.get("misses", []), "misses", origin, name),
        family=family,
        context=context,
        origin=origin,
    )
    if not trusted:
        _check(rule)
    return rule


def _types(value: object, origin: str, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        kind in kernelrules.FIELD_TYPES for kind in value.values()
    ):
        types = ", ".join(kernelrules.FIELD_TYPES)
        raise _problem(origin, name, f"fields must be a table of names and types ({types})")
    return dict(value)


def _conditions(value: object, origin: str, name: str) -> dict[str, tuple[kernelrules.Value, ...]]:
    if not isinstance(value, dict):
        raise _problem(origin, name, "critical_when must be a table of fields and lists")
    conditions = {}
    for field, values in value.items():
        limits = _list(values, "critical_when", origin, name)
        conditions[field] = tuple(x for x in limits if isinstance(x, str | int | float))
    return conditions


def _samples(value: object, origin: str, name: str) -> tuple[kernelrules.Sample, ...]:
    samples = []
    for entry in _list(value, "matches", origin, name):
        match {"line": entry} if isinstance(entry, str) else entry:
            case {"line": str(line), **rest} if not rest:
                samples.append(kernelrules.Sample(line))
            case {"line": str(line), "fields": dict(fields), **rest} if not rest:
                samples.append(kernelrules.Sample(line, fields))
            case _:
                raise _problem(origin, name, "a match is a line, or a table of line and fields")
    return tuple(samples)


def _check(rule: kernelrules.Rule) -> None:
    """Check a user's rule, including its own samples."""

    def fail(why: str) -> errors.UsageError:
        return _problem(rule.origin, rule.name, why)

    if not NAME.fullmatch(rule.name):
        raise fail("a name consists of lowercase letters, digits, dashes and dots")
    if not KIND.fullmatch(rule.kind):
        raise fail(f"kind {rule.kind!r} must be dotted, like net.driver_reset")
    words = {"severity": tuple(Severity), "confidence": kernelrules.CONFIDENCES}
    for key, allowed in words.items():
        if (word := getattr(rule, key)) not in allowed:
            raise fail(f"{key} {word!r} is not one of {', '.join(allowed)}")
    if not rule.meaning:
        raise fail("meaning is empty")
    pattern = _compile(rule.regex, rule.origin, rule.name, [sample.line for sample in rule.matches])
    if pattern.search(""):
        raise fail("the regex matches an empty line, and therefore every line")
    known = set(pattern.groupindex) | ALWAYS
    if rule.context:
        known |= set(re.compile(rule.context).groupindex)
    try:
        named = {field for _, field, _, _ in string.Formatter().parse(rule.incident) if field}
    except ValueError as error:
        raise fail(f"incident {rule.incident!r}: {error}") from error
    for field in named | set(rule.fields) | set(rule.critical_when):
        if field not in known:
            raise fail(f"the regex has no group named {field!r}")
    if not rule.untested and not (rule.matches and rule.misses):
        raise fail("matches and misses need at least one line each (or set `untested` to a reason)")
    for problem in _broken_samples(rule, matcher.Matcher([rule])):
        raise fail(problem)


def _broken_samples(rule: kernelrules.Rule, rules_matcher: matcher.Matcher) -> Iterable[str]:
    for sample in rule.matches:
        matches = rules_matcher.match(sample.line)
        if not matches:
            yield f"the regex does not match the sample {sample.line!r}"
            continue
        for field, value in sample.fields.items():
            if matches[0].fields.get(field) != value:
                yield f"{field} of {sample.line!r} is {matches[0].fields.get(field)!r}, not {value!r}"
    for line in rule.misses:
        if rules_matcher.match(line):
            yield f"the regex matches {line!r}, listed in misses"
