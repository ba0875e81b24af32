"""Every `overnight …` command that an error or a problem recommends exists, with its options."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Any

import pytest
import typer.main

from overnight.interfaces import cli
from overnight.interfaces.cli import session

SOURCE = pathlib.Path(cli.__file__).parents[2]
COMMAND = re.compile(r"(?<!the )\bovernight ((?:[a-z][a-z-]+ ?)+[^,;()`]*)")
PLACEHOLDER = "X1"


def _text(node: ast.expr) -> str:
    """Return a string expression with placeholders for its values."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_text(body)}; {_text(orelse)}"
        case ast.BoolOp(values=values):
            return "; ".join(_text(value) for value in values)
    return PLACEHOLDER


def _advice() -> list[tuple[str, str]]:
    """Return (file, command) of every `todo=`, and of the problems of pools."""
    advice = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        if "todo=" not in source and path.name != "problems.py":
            continue
        tree = ast.parse(source)
        texts = [
            _text(keyword.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            for keyword in node.keywords
            if keyword.arg == "todo"
        ]
        if path.name == "problems.py":
            texts += [_text(n) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)]
        for text in texts:
            advice += [(path.name, match[1].split("   ")[0]) for match in COMMAND.finditer(text)]
    return advice


@pytest.fixture(scope="module")
def advice() -> list[tuple[str, str]]:
    # Not a parameter of the test: every process of a run would read the whole source to collect it.
    return sorted(set(_advice()))


def test_the_advice_is_found(advice: list[tuple[str, str]]) -> None:
    assert len(advice) > 40
    assert ("pool_errors.py", f"pool drain {PLACEHOLDER}") in advice


def test_the_commands_exist(advice: list[tuple[str, str]]) -> None:
    root: Any = typer.main.get_command(cli.build())
    wrong = [
        (name, text, unknown) for name, text in advice if (unknown := _find_unknown(root, text))
    ]
    assert wrong == []


def _find_unknown(root: Any, advice: str) -> str:
    """Return the first word of a command line that is neither a command nor one of its options."""
    words = advice.split()
    command = root
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if not command.commands.get(words[0]) and not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            break
        if words[0] not in command.commands:
            return words[0]
        command = command.commands[words.pop(0)]
    if isinstance(command, session.DefaultGroup):
        command = command.commands[command.default]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
    known |= {option for parameter in root.params for option in parameter.opts}
    options = (word.partition("=")[0] for word in words if word.startswith("--"))
    return next((option for option in options if option not in known), "")


@pytest.mark.parametrize(
    ("advice", "unknown"),
    [
        ("pool frobnicate", "frobnicate"),
        ("pool list --frob=1", "--frob"),
        ("pool list --all", ""),
    ],
)
def test_an_unknown_word_is_found(advice: str, unknown: str) -> None:
    assert _find_unknown(typer.main.get_command(cli.build()), advice) == unknown
