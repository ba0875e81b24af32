"""Every command that overnight suggests can be pasted: it parses, and names the data home or server of the session."""

from __future__ import annotations

import ast
import functools
import json
import pathlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from overnight.interfaces import cli
from overnight.interfaces.cli import session, suggestions

SOURCE = pathlib.Path(cli.__file__).parents[2]
VALUE = "8"  # for every value that is not known in the source
NAMES = "|".join(sorted(typer.main.get_command(cli.build()).commands, reverse=True))  # type: ignore[attr-defined]
COMMAND = re.compile(rf"(?<![/\w.-])overnight (?:--home|--server|--debug|(?:{NAMES})(?![\w.:-]))")
# Written into files of hosts, and help that shows an example.
FILES = ("fixes.py", "_boot.py", "_images.py")
UNKNOWN = (
    "session.py",
    "pool_size.py",
    "pool_errors.py",
    "trials.py",
)  # have commands whose names are values
HELP = ("Example: ", "Start with: ", "Carry out a plan: ")


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or VALUE for part in parts)
    return None


def _strings(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, without docstrings."""
    match tree:
        case ast.Module(body=body) | ast.ClassDef(body=body) | ast.FunctionDef(body=body):
            if body and isinstance(body[0], ast.Expr) and _text(body[0].value) is not None:
                body[0] = ast.Expr(ast.Constant(None))
    text = _text(tree)
    if text is not None:
        yield text
        return
    for child in ast.iter_child_nodes(tree):
        yield from _strings(child)


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name not in FILES:
            for text in _strings(ast.parse(path.read_text())):
                yield path.name, text
    for path in sorted(SOURCE.rglob("*.toml")):
        for text in _values(tomllib.loads(path.read_text())):
            yield path.name, re.sub(r"\{\w+\}", VALUE, text)


def _values(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _values(part)
    elif isinstance(value, list):
        for part in value:
            yield from _values(part)


@pytest.fixture(scope="module")
def suggested() -> list[tuple[str, str]]:
    """Return the file and the words of each command that a text suggests."""
    found = []

    def note(name: str, words: str, *, as_root: bool) -> str:
        assert isinstance(as_root, bool)
        found.append((name, words))
        return ""

    for name, text in _texts():
        if COMMAND.search(text) and not text.startswith(HELP):
            token = suggestions.COMPLETE.set(functools.partial(note, name))
            suggestions.complete_advice(text)
            suggestions.COMPLETE.reset(token)
    return sorted(set(found))


def test_a_command_in_a_sentence_stands_in_backticks() -> None:
    bare = []
    for name, text in _texts():
        outside = "".join(text.split("`")[::2])
        is_command = "`" not in text and suggestions.SHELL.search(text)
        if not COMMAND.search(outside) or text.startswith(HELP):
            continue
        if not is_command or re.search(r", or |, with |\(|; (?!overnight )", text):
            bare.append((name, text))
    assert bare == []


def test_the_suggestions_are_found(suggested: list[tuple[str, str]]) -> None:
    assert len(suggested) > 180
    assert ("pool_errors.py", f"pool drain {VALUE}") in suggested
    assert ("knowledge.toml", "census --for 1m") in suggested


def test_every_suggested_command_parses(suggested: list[tuple[str, str]]) -> None:
    wrong = []
    for name, words in suggested:
        has_value = name in UNKNOWN and re.search(rf" {VALUE}+ {VALUE}\b", f" {words}")
        if not has_value and (problem := _find_problem(words)):
            wrong.append(f"{name}: overnight {words}: {problem}")
    assert wrong == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("pool frobnicate", "No such command"),
        ("pool list --frob", "No such option"),
        ("pool update ci --target many", "not a valid int"),
        ("pool show", "Missing argument"),
        ("pool list --all", ""),
    ],
)
def test_what_does_not_parse_is_found(words: str, problem: str) -> None:
    assert problem in _find_problem(words)
    assert bool(problem) == bool(_find_problem(words))


@functools.cache
def _build() -> Any:
    return typer.main.get_command(cli.build())


def _find_problem(words: str) -> str:
    """Return why the real command line refuses these words; '' where it takes them."""
    line = words.partition(" > ")[0]
    line = re.sub(r"(?<![\w/.-])[A-Z][A-Z/-]*(?![\w/])", VALUE, line)
    line = line.replace(f"-O {VALUE}", "-O svg")
    _, arranged = cli._arrange(shlex.split(line))
    command = _build()
    current = session.Session()
    try:
        context = command.make_context("overnight", arranged, obj=current)
        while hasattr(command, "resolve_command"):
            rest = [*context._protected_args, *context.args]
            name, command, rest = command.resolve_command(context, rest)
            context = command.make_context(name, rest, parent=context, obj=current)
    except typer.TyperException as error:
        return error.format_message()
    except typer.Exit:  # --help
        return ""
    return ""


def test_commands_in_json_keep_their_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    home = pathlib.Path("/a b/it's")
    current = session.Session(chosen_home=home, home_given=True)
    token = suggestions.COMPLETE.set(current.command)
    current.print_json({"notes": ['first `overnight events`, then `overnight top -b "é"`']})
    suggestions.COMPLETE.reset(token)
    named = f"overnight --home {shlex.quote(str(home))}"
    assert json.loads(capsys.readouterr().out) == {"notes": [f'first `{named} events`, then `{named} top -b "é"`']}  # fmt: skip
