from __future__ import annotations

import pathlib

import pytest

from overnight import errors
from overnight.sources.kernelrules import matcher, rulefiles

RULE = """
[[rule]]
name = "mine"
kind = "my.kind"
severity = "warning"
regex = 'disk (?P<disk>\\w+) burns'
incident = "{disk}"
meaning = "A disk burns."
matches = [{ line = "disk sda burns", fields = { disk = "sda" } }]
misses = ["disk sda is cool"]
"""


def with_line(line: str) -> str:
    return RULE + line + "\n"


def replaced(old: str, new: str) -> str:
    assert old in RULE
    return RULE.replace(old, new)


def test_a_user_rule() -> None:
    (rule,) = rulefiles.parse_rules(RULE, "mine.toml")
    assert (rule.family, rule.origin, rule.needles) == ("mine", "mine.toml", (" burns",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[rule]", "not valid TOML"),
        ("colour = 1", "unknown keys: colour"),
        ("rule = 3", "[[rule]]"),
        ("rule = [3]", "[[rule]]"),
        ("family = 3", "family must be a string"),
        ("context = '('\n" + RULE, "bad regex"),
        (with_line("colour = 1"), "unknown keys: colour"),
        (replaced('meaning = "A disk burns."', ""), "missing: meaning"),
        (replaced('"A disk burns."', '""'), "meaning is empty"),
        (replaced("burns'", "(burns'"), "bad regex"),
        (replaced("'disk (?P<disk>\\w+) burns'", "'(?P<disk>x)?'"), "every line"),
        (replaced('"warning"', '"dire"'), "severity 'dire'"),
        (replaced('"my.kind"', '"kind"'), "must be dotted"),
        (replaced('"mine"', '"My Rule"'), "lowercase letters"),
        (replaced('"{disk}"', '"{plate}"'), "named 'plate'"),
        (replaced('"{disk}"', '"{disk"'), "incident"),
        (with_line('confidence = "maybe"'), "confidence 'maybe'"),
        (with_line('fields = { disk = "colour" }'), "table of names and types"),
        (with_line('fields = { plate = "int" }'), "named 'plate'"),
        (with_line("critical_when = { plate = [1] }"), "named 'plate'"),
        (with_line("critical_when = 3"), "critical_when"),
        (with_line("overlaps = [3]"), "overlaps"),
        (with_line("needle = 3"), "needle"),
        (replaced('misses = ["disk sda is cool"]', ""), "at least one line each"),
        (replaced('"disk sda is cool"', '"disk sdb burns"'), "listed in misses"),
        (replaced('line = "disk sda burns"', 'line = "cool"'), "does not match the sample"),
        (replaced('disk = "sda" }', 'disk = "sdb" }'), "'sda', not 'sdb'"),
        (replaced("{ line =", "{ text ="), "a match is a line"),
        (RULE + RULE, "two rules in the file"),
        (with_line('needle = "smoke"'), "does not match the sample"),
    ],
)
def test_an_error_names_the_file_and_the_problem(text: str, why: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        rulefiles.parse_rules(text, "mine.toml")
    assert "mine.toml" in caught.value.what
    assert why in caught.value.why


def test_an_error_names_the_rule() -> None:
    with pytest.raises(errors.UsageError, match=r"mine\.toml, rule mine$"):
        rulefiles.parse_rules(with_line("colour = 1"), "mine.toml")


def test_untested_needs_a_reason() -> None:
    text = replaced('misses = ["disk sda is cool"]', 'untested = "no log at hand"')
    assert rulefiles.parse_rules(text, "mine.toml")[0].untested == "no log at hand"


def test_rules_of_a_folder_add_and_override(tmp_path: pathlib.Path) -> None:
    built_in = {rule.name for rule in rulefiles.built_in()}
    (tmp_path / "mine.toml").write_text(RULE)
    (tmp_path / "oom.toml").write_text(
        RULE.replace('"mine"', '"oom-kill"').replace("my.kind", "memory.oom_kill")
    )
    rules = {rule.name: rule for rule in rulefiles.load(tmp_path, tmp_path / "none")}
    assert set(rules) == built_in | {"mine"}
    assert rules["oom-kill"].meaning == "A disk burns."


def test_two_rules_with_one_name_in_a_folder_are_refused(tmp_path: pathlib.Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(RULE)
    with pytest.raises(errors.UsageError) as caught:
        rulefiles.load(tmp_path)
    assert "two rules in the folder" in caught.value.why


def test_a_file_that_is_not_text_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(errors.CannotError, match=r"a\.toml"):
        rulefiles.load(tmp_path)


def test_a_rule_without_fixed_words_sees_every_line() -> None:
    (rule,) = rulefiles.parse_rules(
        replaced("'disk (?P<disk>\\w+) burns'", "'(?i)disk (?P<disk>\\w+) burns'"), "mine.toml"
    )
    rules_matcher = matcher.Matcher([rule])
    assert rule.needles == ()
    assert rules_matcher.wanted(b"6,1,2,-;DISK sda BURNS")
    assert rules_matcher.match("DISK sda BURNS")


def test_without_rules_no_line_is_wanted() -> None:
    assert not matcher.Matcher([]).wanted(b"6,1,2,-;x")
