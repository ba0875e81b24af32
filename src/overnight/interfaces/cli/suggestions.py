"""Commands that overnight suggests, completed so that they can be pasted: with the data home or server of the session.

A command within a sentence stands in backticks. A whole text, or a line of a shell command, may begin with one.
"""

from __future__ import annotations

import contextvars
import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")
Complete = Callable[[str], str]  # the words behind `overnight` -> the command line
COMPLETE: contextvars.ContextVar[Complete] = contextvars.ContextVar("COMPLETE")
START = r"(sudo )?overnight (?=--?[a-z]|[a-z])"
QUOTED = re.compile(rf"(`){START}([^`\n]*)(?=`)")
SHELL = re.compile(rf"(^|[;&|] ){START}([^`;&|\n]*[^`;&|\n ])", re.MULTILINE)
# Fields of results that hold advice, never a text from a host.
FIELDS = frozenset(
    ("advice", "command", "expect", "fix", "fix_command", "look", "todo", "todo_command", "why")
)


def complete(text: str) -> str:
    """Return text with each quoted command completed."""
    return _replace(QUOTED, text, str)


def complete_advice(text: str) -> str:
    """Return advice with each command completed, also where it is the whole text or a line for a shell."""
    return _replace(QUOTED if "`" in text else SHELL, text, str)


def complete_json(document: str) -> str:
    """Return a JSON document with the commands in its texts completed."""
    return _replace(QUOTED, document, lambda command: json.dumps(command)[1:-1])


def complete_fields(value: T) -> T:
    """Return a result with the commands in its fields of advice completed."""
    if isinstance(value, tuple):
        return cast("T", tuple(map(complete_fields, value)))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    old: dict[str, Any] = {
        field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init
    }
    new = {
        name: complete_advice(part) if isinstance(part, str) and name in FIELDS else complete_fields(part)
        for name, part in old.items()
    }  # fmt: skip
    return value if new == old else dataclasses.replace(value, **new)


def _replace(pattern: re.Pattern[str], text: str, escape: Callable[[str], str]) -> str:
    known = COMPLETE.get(None)
    if known is None or "overnight " not in text:
        return text

    def rewrite(found: re.Match[str]) -> str:
        line = known(found[3])
        sudo = "" if line.startswith("sudo ") else found[2] or ""
        return found[1] + sudo + escape(line)

    return pattern.sub(rewrite, text)
