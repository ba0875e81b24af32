"""Kinds of events that overnight finds itself. A kind outside their namespaces, such as `job.failed`, is added by others."""

from __future__ import annotations

import difflib
import functools

from overnight.agent import signals
from overnight.model import event
from overnight.sources.kernelrules import rulefiles


@functools.cache
def find_known() -> tuple[str, ...]:
    """Return the kinds of the built-in rules and watches, of the recorder, and of imported evidence."""
    of_rules = (rule.kind for rule in rulefiles.built_in())
    of_watches = (kind for watch in signals.discover_watches() for kind in watch.finds)
    return tuple(
        sorted(
            {*of_rules, *of_watches, *event.DEATHS, event.IMPORTED, event.LINES_LOST, event.PARTIAL}
        )
    )


def is_found(kind: str) -> bool:
    """Return whether events of a kind, or with a prefix that ends with a dot, are found while a host is recorded."""
    return any(event.Event(0, each).is_of(kind) for each in find_known())


def find_mistake(kind: str) -> str:
    """Return why no event can be of a kind; '' if one can."""
    is_valid = rulefiles.KIND.fullmatch(kind.removesuffix(".") + ".x" * kind.endswith("."))
    if is_found(kind) or (is_valid and event.is_outcome(kind)):
        return ""
    near = difflib.get_close_matches(kind.lower(), find_known(), 1)
    if not is_valid:
        return f"{kind!r} is not a dotted name in lower case, such as {[*near, 'job.failed'][0]}"
    namespace = kind.partition(".")[0] + "."
    kinds = ", ".join(each for each in find_known() if each.startswith(namespace))
    return f"unknown kind {kind}; " + (f"did you mean {near[0]}?" if near else f"kinds: {kinds}")
