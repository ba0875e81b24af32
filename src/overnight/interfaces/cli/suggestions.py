"""Commands that overnight suggests, completed so that they can be pasted: with the data home or server of the session.

A command within a sentence stands in backticks. A whole text, or a line of a shell command, may begin with one.
"""

from __future__ import annotations

import contextvars
import dataclasses
import re
from collections.abc import Callable
from typing import Any

from overnight import errors

# The words behind `overnight` -> the command line. Completing it again does not change it.
COMPLETE: contextvars.ContextVar[Callable[..., str]] = contextvars.ContextVar("COMPLETE")
START = r"(sudo )?overnight (?=--?[a-z]|[a-z])"
QUOTED = re.compile(rf"(`){START}([^`\n]*)(?=`)")
SHELL = re.compile(rf"(^|[;&|] ){START}([^`;&|\n]*[^`;&|\n ])", re.MULTILINE)
# Fields of results that hold advice or a command, never a text from a host.
FIELDS = frozenset(("advice", "command", "fix", "fix_command", "look", "todo", "todo_command"))


def complete(text: str, pattern: re.Pattern[str] = QUOTED) -> str:
    """Return text with each quoted command completed."""
    known = COMPLETE.get(None)
    if known is None or "overnight " not in text:
        return text

    def rewrite(found: re.Match[str]) -> str:
        line = known(found[3], as_root=bool(found[2]))
        sudo = "" if line.startswith("sudo ") else found[2] or ""
        return found[1] + sudo + line

    try:
        return pattern.sub(rewrite, text)
    except errors.OvernightError:  # the settings of the user cannot be read
        return text


def complete_advice(text: str) -> str:
    """Return advice with each command completed, also where it is the whole text or a line for a shell."""
    return complete(text, QUOTED if "`" in text else SHELL)


def complete_values(value: Any) -> Any:
    """Return a result or a JSON document with the commands in its texts completed."""
    if isinstance(value, str):
        return complete(value)
    if isinstance(value, dict):
        return {name: complete_values(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(complete_values, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    new = {}
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        is_advice = isinstance(part, str) and field.name in FIELDS
        completed = complete_advice(part) if is_advice else complete_values(part)
        if completed != part and field.init:
            new[field.name] = completed
    return dataclasses.replace(value, **new) if new else value
