"""Every `--help`: a short summary in the imperative, and options that say when they are repeatable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from overnight.interfaces import cli

LONGEST_SUMMARY = 60


def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, f"{path} {name}")


ALL = {
    path: command
    for path, command in walk(typer.main.get_command(cli.build()), "overnight")
    if path != "overnight"
}


@pytest.mark.parametrize("path", ALL)
def test_a_summary_is_a_short_imperative_phrase(path: str) -> None:
    summary = ALL[path].help.partition("\n\n")[0].replace("\n", " ").removesuffix(".")
    assert len(summary) <= LONGEST_SUMMARY, summary
    assert summary[0].isupper()
    assert ". " not in summary, "a summary is one phrase; details go into the text below it"
    verb = summary.partition(" ")[0]
    assert not verb.endswith(("ing", "es")), f"{verb}: an imperative verb comes first"
    assert verb not in ("The", "A", "What", "How", "Who", "Every", "One")


@pytest.mark.parametrize("path", ALL)
def test_paragraphs_have_no_line_breaks_of_the_source(path: str) -> None:
    assert all("\n" not in paragraph for paragraph in ALL[path].help.split("\n\n"))


@pytest.mark.parametrize("path", ALL)
def test_repeatable_options_say_so(path: str) -> None:
    for parameter in ALL[path].params:
        text = getattr(parameter, "help", None) or ""
        assert "again for more" not in text
        if parameter.param_type_name == "option" and parameter.name != "help":
            assert text.endswith("."), f"{path} {parameter.opts}: {text}"
            repeatable = text.rstrip(".").endswith("(repeatable)")
            assert repeatable == bool(parameter.multiple), f"{path} {parameter.opts}: {text}"


def test_one_command_is_built_like_all_of_them() -> None:
    """Only the module of the command that runs is imported; its help must not depend on that."""
    everything = typer.main.get_command(cli.build())
    for name, command in everything.commands.items():  # type: ignore[attr-defined]
        alone = typer.main.get_command(cli.build(name)).commands  # type: ignore[attr-defined]
        assert list(alone) == [name]
        assert alone[name].help == command.help
        assert [p.opts for p in alone[name].params] == [p.opts for p in command.params]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["top", "functions"], "top"),
        (["--home", "pool", "top"], "top"),
        (["--home=x", "--debug", "import", "top"], "import"),
        (["--help"], ""),
        ([], ""),
        (["--home"], ""),
        (["-O", "json", "top"], "top"),
        (["--output=json", "top"], "top"),
        (["-Ojson", "top"], "top"),
    ],
)
def test_the_command_is_found_behind_global_options(words: list[str], command: str) -> None:
    assert cli._arrange(words)[0] == command
