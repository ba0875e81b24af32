"""Vendor presets (systemd.preset(5)): which units a distribution wants enabled.

    enable ecs.service
    enable getty@.service tty1 tty2
    disable *

Files of all folders are read in order of their names; of two files with the same name only the one in the
first folder counts. The first line that matches a unit decides; without a match it is enabled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import re
from collections.abc import Callable

from overnight.sources.image import inventory, unitname
from overnight.sources.image import tree as trees

FOLDERS = (
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
)
ACTIONS = ("enable", "disable", "ignore")


@dataclasses.dataclass(frozen=True)
class Rule:
    action: str
    pattern: str
    instances: tuple[str, ...]
    path: str
    line: int


def parse_presets(text: str, path: str = "") -> tuple[Rule, ...]:
    """Parse the lines of one file that systemd accepts.

    >>> [(r.action, r.pattern) for r in parse_presets("# x\\nenable a.service\\nnonsense\\ndisable *\\n")]
    [('enable', 'a.service'), ('disable', '*')]
    """
    rules = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if len(words) < 2 or words[0] not in ACTIONS:
            continue
        # Only `enable` takes instances; elsewhere the rest of the line is part of the pattern.
        if words[0] == "enable":
            pattern, instances = words[1], tuple(words[2:])
            if instances and not (unitname.is_valid(pattern) and unitname.is_template(pattern)):
                continue
        else:
            pattern, instances = " ".join(words[1:]), ()
        rules.append(Rule(words[0], pattern, instances, path, number))
    return tuple(rules)


def read_presets(tree: trees.Tree, gaps: inventory.Gaps) -> tuple[Rule, ...]:
    """Read every rule in systemd's order."""
    first: dict[str, str] = {}
    for folder in FOLDERS:
        with inventory.report_errors(gaps, folder), contextlib.suppress(FileNotFoundError):
            for name, entry in tree.entries(folder).items():
                if name.endswith(".preset") and entry.kind != "folder":
                    first.setdefault(name, f"{folder}/{name}")
    rules: list[Rule] = []
    for _, path in sorted(first.items()):
        if not tree.is_null(path):  # a vendor's file is disabled by masking it
            with inventory.report_errors(gaps, path):
                rules += parse_presets(tree.text(path), path)
    return tuple(rules)


def fits(rule: Rule, name: str) -> bool:
    instance, matches = unitname.instance_of(name), _matcher(rule.pattern)
    if rule.instances and instance is not None and matches(unitname.template_of(name)):
        return not instance or instance in rule.instances
    return bool(matches(name))


def decide(rules: tuple[Rule, ...], name: str) -> tuple[str, Rule | None]:
    """Return `enabled`, `disabled` or `ignored`, and the deciding rule; None where no rule matches."""
    for rule in rules:
        if fits(rule, name):
            return f"{rule.action}d", rule
    return "enabled", None


@functools.lru_cache(maxsize=4096)
def _matcher(pattern: str) -> Callable[[str], object]:
    # fnmatch(3) accepts `[^x]` for `[!x]`; Python's does not.
    return re.compile(fnmatch.translate(pattern.replace("[^", "[!"))).match
