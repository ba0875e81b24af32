"""docs/kernel-log.md lists every built-in rule."""

from __future__ import annotations

import pathlib
import re

from overnight.sources.kernelrules import rulefiles

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/kernel-log.md"


def table() -> str:
    """Return the table of the document, to be copied there when a rule changes."""
    rows = ["| rule | event | severity | one event for each | meaning |", "|---|---|---|---|---|"]
    for rule in rulefiles.built_in():
        star = "" if rule.confidence == "sure" else "*"
        severity = f"{rule.severity}/critical" if rule.critical_when else rule.severity
        each = " ".join(re.findall(r"\{(\w+)\}", rule.incident)) or "host"
        rows.append(
            f"| `{rule.name}`{star} | `{rule.kind}` | {severity} | {each} | {rule.meaning} |"
        )
    return "\n".join(rows) + "\n"


def test_the_table_lists_the_built_in_rules() -> None:
    assert DOCUMENT.read_text().endswith("\n\n" + table())


def test_the_example_is_a_valid_rule() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (rule,) = rulefiles.parse_rules(example, "example.toml")
    assert rule.name == "disk-burns"
