"""The documents name every command, option, exit code and schema, and no others."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest
import typer.main

from overnight import errors
from overnight.interfaces import cli

REPOSITORY = pathlib.Path(__file__).parents[2]
COMMANDS = (REPOSITORY / "docs/commands.md").read_text()


def walk(command: object, path: str) -> Iterator[tuple[str, object]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, f"{path} {name}")


ALL = dict(walk(typer.main.get_command(cli.build()), "overnight"))


def section(path: str) -> str:
    if path == "overnight":
        return COMMANDS
    match = re.search(rf"^## {path}\n(.*?)(?=^## |\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    assert match, f"docs/commands.md has no section for {path}"
    return match[1]


# Options that several commands share are documented once, in a section of their own.
SHARED = {
    "Common options": lambda path: True,
    "Sample options": lambda path: path.removeprefix("overnight ") in ("heatmap", "flame", "diff", "top"),
    "overnight pool": lambda path: path.startswith("overnight pool "),
    "overnight token": lambda path: path.startswith("overnight token "),
}  # fmt: skip


@pytest.mark.parametrize("path", ALL)
def test_every_command_and_option_is_documented(path: str) -> None:
    text = section(path) + "".join(section(name) for name, has in SHARED.items() if has(path))
    for parameter in ALL[path].params:
        named = (*parameter.opts, *parameter.secondary_opts)
        for option in (parameter.metavar,) if parameter.param_type_name == "argument" else named:
            if option not in ("-h", "--help"):
                assert f"`{option}" in text, f"docs/commands.md does not name {option} of {path}"


@pytest.mark.parametrize("path", [path for path in ALL if path != "overnight"])
def test_every_documented_option_exists(path: str) -> None:
    rows = [row.split("|")[1] for row in section(path).splitlines() if row.startswith("| `-")]
    known = {option for parameter in ALL[path].params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", " ".join(rows))) <= known


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_help_and_an_example(path: str) -> None:
    command = ALL[path]
    assert command.help
    if path != "overnight":
        assert command.epilog.startswith(f"Example: {path}")


def test_every_documented_command_exists() -> None:
    assert set(re.findall(r"^## (overnight .+)$", COMMANDS, re.MULTILINE)) == set(ALL) - {
        "overnight"
    }


def test_every_exit_code_is_documented() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", COMMANDS, re.MULTILINE))
    assert rows == {str(int(code)): code.name for code in errors.ExitCode}


def test_every_json_document_of_a_command_has_a_schema() -> None:
    """tests/integration/test_json.py validates the documents."""
    printed = set()
    for source in (REPOSITORY / "src/overnight").rglob("*.py"):
        printed |= set(re.findall(r'"overnight\.([a-z-]+/\d+)"', source.read_text()))
    internal = {"segment/1", "hour/1", "view/1", "recording-status/1", "undo/1"}
    for schema in printed - internal:
        name = schema.replace("/", "-")
        assert f'"overnight.{schema}"' in (REPOSITORY / f"docs/schemas/{name}.json").read_text()
        assert f"schemas/{name}.json" in COMMANDS


def anchors(document: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_link_in_the_documents_has_a_target() -> None:
    for document in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", document.read_text()):
            if "://" not in target:
                linked = document.parent / target if target else document
                assert linked.exists(), f"{document}: {target}"
                assert not anchor or anchor in anchors(linked), f"{document}: {target}#{anchor}"


def test_every_decision_is_listed() -> None:
    listed = (REPOSITORY / "docs/decisions/README.md").read_text()
    for record in (REPOSITORY / "docs/decisions").glob("0*.md"):
        assert f"({record.name})" in listed


def test_ci_has_no_setup_steps_of_its_own() -> None:
    lines = (REPOSITORY / ".ci/run").read_text().splitlines()
    assert lines[-1] == "exec make test"
