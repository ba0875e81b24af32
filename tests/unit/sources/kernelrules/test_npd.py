from __future__ import annotations

import json
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight import errors
from overnight.sources.kernelrules import matcher, npd, rulefiles

RULES = [
    {"type": "temporary", "reason": "OOMKilling", "pattern": r"Killed process \d+ (.+) total-vm:\d+kB.*"},
    {"type": "temporary", "reason": "KernelOops", "pattern": r"divide error: 0000 \[#\d+\] SMP"},
    {"type": "temporary", "reason": "KernelOops", "pattern": "BUG: unable to handle .*"},
    {"type": "permanent", "condition": "KernelDeadlock", "reason": "DockerHung",
     "pattern": r"task docker:\w+ blocked for more than \w+ seconds\."},
    {"type": "temporary", "reason": "Greek", "pattern": r"\p{Greek}+ fault"},
    {"type": "temporary", "reason": "TwoLines", "pattern": r"one\ntwo"},
]  # fmt: skip


def document(**more: object) -> str:
    return json.dumps({"plugin": "kmsg", "conditions": [], "rules": RULES, **more})


def test_rules_are_imported_and_others_reported() -> None:
    done = npd.parse_npd(document(), "kernel-monitor.json")
    assert [(rule.name, rule.kind, rule.severity) for rule in done.rules] == [
        ("npd-oom-killing", "npd.oom_killing", "warning"),
        ("npd-kernel-oops", "npd.kernel_oops", "warning"),
        ("npd-kernel-oops-2", "npd.kernel_oops", "warning"),
        ("npd-docker-hung", "npd.docker_hung", "critical"),
    ]
    assert [reason for reason, _ in done.problems] == ["Greek", "TwoLines"]
    assert done.notes == ()


def test_written_rules_can_be_loaded_and_match() -> None:
    done = npd.parse_npd(document(), "kernel-monitor.json")
    loaded = rulefiles.parse_rules(npd.as_toml(done.rules, 'about "it"\x7f'), "npd.toml")
    assert [rule.regex for rule in loaded] == [rule.regex for rule in done.rules]
    rules_matcher = matcher.Matcher(loaded)
    matches = rules_matcher.match("INFO: task docker:77 blocked for more than 120 seconds.")
    assert [match.rule.name for match in matches] == ["npd-docker-hung"]
    assert not rules_matcher.match("task docker:77 blocked for more than 120 seconds. Twice."), (
        "to the end"
    )


@pytest.mark.parametrize(
    ("go", "line", "matches"),
    [
        (r"a\Q.[\Eb", "a.[b", True),
        (r"a\Q.[", "a.[", True),
        (r"[[:digit:][:upper:]]+x", "A1x", True),
        (r"[]a]+", "]a", True),
        (r"[^]a]", "]", False),
        (r"[[&]+x", "[&x", True),
        (r"(?<name>\d+)s", "12s", True),
        (r"(?i)BUG", "bug", True),
        (r"(?i:b)UG", "bUG", True),
        (r"a{,2}", "a{,2}", True),
        (r"\x{41}\x42", "AB", True),
        (r"\w+ end", "é end", False),
        (r"end\z", "the end", True),
        (r"[^\n]+x", "yx", True),
    ],
)
def test_a_translated_pattern_matches_as_in_go(go: str, line: str, matches: bool) -> None:
    assert bool(re.search(npd.translate(go), line)) is matches


@pytest.mark.parametrize(
    "go",
    [r"\pL", r"\PL", r"\C", "(?U)a+", "a(?i)b", r"a\nb", "a\nb", "[a", "[[:none:]]", "(", "(?=a)", "\\", r"\x{110000}"],
)  # fmt: skip
def test_an_untranslatable_pattern_is_refused(go: str) -> None:
    with pytest.raises(npd.NotTranslatableError):
        npd.translate(go)


@hypothesis.given(st.text(alphabet=r"a\[]():?^{,}Qpx<>P-&|*+.n", max_size=24))
@hypothesis.settings(max_examples=150)
def test_any_pattern_is_translated_or_reported(go: str) -> None:
    try:
        re.compile(npd.translate(go))
    except npd.NotTranslatableError:
        return


@pytest.mark.parametrize("text", ["{", "[]", '{"rules": 3}', "\x00"])
def test_a_file_that_is_not_a_configuration_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match=r"x\.json"):
        npd.parse_npd(text, "x.json")


def test_entries_that_are_not_rules() -> None:
    strange = [
        3,
        {},
        {"pattern": "x"},
        {"reason": "Every", "pattern": "x*"},
        {"reason": "!", "pattern": "x"},
    ]
    done = npd.parse_npd(document(rules=strange, plugin="journald"), "x.json")
    assert done.rules == ()
    assert len(done.problems) == len(strange)
    assert "journald" in done.notes[0]


def test_a_pattern_that_is_slow_here_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go's time grows with the line, Python's with its number of partitions."""
    monkeypatch.setattr(matcher, "MAX_CPU_S", 0.05)
    text = json.dumps({"rules": [{"reason": "Slow", "pattern": "disk (a|a)+b"}]})
    imported = npd.parse_npd(text, "x.json")
    assert not imported.rules
    assert "too much time" in imported.problems[0][1]


def test_a_set_whose_meaning_will_change_is_reported():
    with pytest.raises(npd.NotTranslatableError, match="set difference"):
        npd.translate("[:--]")
