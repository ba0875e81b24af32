"""docs/kernel-log.md lists every rule that comes with overnight, as it is."""

from __future__ import annotations

import pathlib
import re

from overnight.sources.kernelrules import rulefiles

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/kernel-log.md"


def table() -> str:
    """What the document must say, to be copied there when a rule has changed."""
    rows = ["| rule | event | severity | one event for each | meaning |", "|---|---|---|---|---|"]
    for rule in rulefiles.built_in():
        star = "" if rule.confidence == "sure" else "*"
        severity = f"{rule.severity}/critical" if rule.critical_when else rule.severity
        each = " ".join(re.findall(r"\{(\w+)\}", rule.incident)) or "host"
        rows.append(
            f"| `{rule.name}`{star} | `{rule.kind}` | {severity} | {each} | {rule.meaning} |"
        )
    return "\n".join(rows) + "\n"


def test_the_rules_are_listed_as_they_are() -> None:
    assert DOCUMENT.read_text().endswith("\n\n" + table())


def test_the_example_of_a_rule_is_one() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (rule,) = rulefiles.parse_rules(example, "example.toml")
    assert rule.name == "disk-burns"
