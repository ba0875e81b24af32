"""Every built-in rule, checked against the samples of all rules."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from overnight.sources.kernelrules import matcher, needles, rulefiles

if TYPE_CHECKING:
    from overnight.sources import kernelrules

FILES = sorted(rulefiles.HERE.glob("*.toml"))
RULES = [rule for path in FILES for rule in rulefiles.parse_rules(path.read_text(), path.name)]
MATCHER = matcher.Matcher(RULES)
SAMPLES = [(rule, sample) for rule in RULES for sample in rule.matches]
LONG = 8192


def test_the_compiled_rules_are_the_rules_tested_here() -> None:
    assert rulefiles.built_in() == RULES
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_complete(rule: kernelrules.Rule) -> None:
    assert rule.matches, "a line it matches"
    assert rule.misses, "a line it does not match"
    assert not rule.untested
    assert rule.needles, "every line would be tried against it"
    assert rule.meaning.endswith(".")
    number = {"cpu", "queue", "pid", "seconds"} & set(rule.pattern.groupindex)
    assert {rule.fields.get(name) for name in number} <= {"int"}


@pytest.mark.parametrize(("rule", "sample"), SAMPLES, ids=lambda value: getattr(value, "name", ""))
def test_a_sample_matches_its_rule_and_no_other_kind(
    rule: kernelrules.Rule, sample: kernelrules.Sample
) -> None:
    alone = matcher.try_rule(rule, sample.line)
    assert alone is not None
    for name, value in sample.fields.items():
        assert alone.fields[name] == value
        assert type(alone.fields[name]) is type(value)
    assert any(word in sample.line for word in rule.needles)
    raw = b"6,1,2,-;" + needles.raw_form(sample.line) + b"\n"
    assert MATCHER.wanted(raw), "the filter must let it through"
    kinds = {match.rule.kind for match in MATCHER.match(sample.line)}
    assert rule.kind in kinds
    assert kinds <= {rule.kind, *rule.overlaps}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_does_not_match_its_misses(rule: kernelrules.Rule) -> None:
    for line in rule.misses:
        assert matcher.try_rule(rule, line) is None


def test_ordinary_lines_are_filtered_out() -> None:
    for line in (
        b"6,1,2,-;smpboot: CPU 1 is now offline\n",
        b"6,1,2,-;EXT4-fs (vda1): mounted filesystem with ordered data mode\n",
        b"6,1,2,-;audit: type=1400 audit(1.2:3): apparmor=STATUS operation=profile_load\n",
    ):
        assert not MATCHER.wanted(line)


def hostile_lines(rule: kernelrules.Rule) -> list[str]:
    """Return long lines built from each sample: cut anywhere, with the tail repeated."""
    lines = []
    for sample in rule.matches:
        line = sample.line
        for cut in range(1, len(line), max(1, len(line) // 12)):
            fillers = ("x", "1", " ", ":", line[max(0, cut - 6) : cut])
            lines += [(line[:cut] + filler * LONG)[:LONG] for filler in fillers]
        lines += [(line * LONG)[:LONG], ("x" * LONG + line)[-LONG:], ("1:" * LONG + line)[-LONG:]]
        lines += [((word + " ") * LONG)[:LONG] for word in line.split()]
    return lines


def steps(pattern: re.Pattern[str], lines: list[str]) -> float:
    """Return how many times longer the slowest line takes than one scan of a line of that length."""
    plain = re.compile(r"[^\n]*?\n")

    def least(regex: re.Pattern[str], line: str) -> float:
        durations = []
        for _ in range(3):
            begin = time.process_time_ns()
            regex.match(line) if regex is plain else regex.search(line)
            durations.append(time.process_time_ns() - begin)
        return min(durations)

    unit = max(1.0, least(plain, "x" * LONG))
    worst = 0.0
    for line in lines:
        begin = time.process_time_ns()
        pattern.search(line)
        once = time.process_time_ns() - begin
        if once / unit > worst:
            worst = max(worst, least(pattern, line) / unit)
    return worst


@pytest.mark.timeout(20)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_hostile_line_is_slow(rule: kernelrules.Rule) -> None:
    lines = hostile_lines(rule)
    assert steps(rule.pattern, lines) < 400
    if rule.context_pattern is not None:
        assert steps(rule.context_pattern, lines) < 400


@pytest.mark.timeout(20)
def test_a_slow_regex_is_detected() -> None:
    assert steps(re.compile(r"(?P<unit>\S+): Scheduled restart"), ["x" * LONG]) > 400


def test_hostile_numbers_and_names() -> None:
    rule = next(rule for rule in RULES if rule.name == "soft-lockup")
    line = "BUG: soft lockup - CPU#{} stuck for 22s! [{}:1]"
    match = matcher.try_rule(rule, line.format("9" * 5000, "c" * 2000))
    assert match is not None
    assert "cpu" not in match.fields
    assert match.key == ""
    assert len(str(match.fields["comm"])) == 200
    other = matcher.try_rule(rule, line.format("٣", "c"))
    assert other is not None
    assert "cpu" not in other.fields, "a digit, but none the kernel prints"


def test_the_kernels_device_is_the_key_when_the_text_names_none() -> None:
    (match,) = MATCHER.match("Trigger reset is on", device="0000:20:03.0")
    assert match.key == "0000:20:03.0"


@pytest.mark.parametrize(("xid", "severity"), [(79, "critical"), (13, "warning")])
def test_some_gpu_errors_are_fatal(xid: int, severity: str) -> None:
    (match,) = MATCHER.match(f"NVRM: Xid (PCI:0000:65:00): {xid}, pid=1")
    assert match.severity == severity
